"""Requests that only the coordinator of a consumer group can answer, from clients that do not know it."""

from collections.abc import Generator
from typing import Any, Final, TypeVar

from kio.schema.errors import ErrorCode

from proxy.convert.versions.entities import read
from proxy.convert.versions.upgrade import Pieces, SendToBroker, SendToCoordinator

__all__ = ["send_to_coordinator"]

R = TypeVar("R")

_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)
_TRIES: Final = 5
"""The most attempts with coordinators; loading a group's offsets, or an election, takes some seconds."""


def send_to_coordinator(
    group: str, body: Pieces, kind: type[R]
) -> Generator[SendToBroker | SendToCoordinator, memoryview | None, R | None]:
    """Return the response of *group*'s coordinator to a request; yield the steps of an upgrade that send it.

    The request goes to the client's own broker first: if the client knows the coordinator, it is that broker, and
    the client has authenticated there. If the response has an error such as NOT_COORDINATOR, the request goes to
    the coordinator that Sidefetch looks up, at most 5 times. Returns the last response, even with such an error;
    None if no coordinator was found.

    Args: body: the body of the request, in the newer version.
          kind: the message class of the response.
    """
    first = (yield SendToBroker(body, is_last=False)) or b""
    answer: R | None = read(kind, memoryview(first))
    for tried in range(_TRIES):
        if answer is not None and not _is_refused(answer):
            break
        found = yield SendToCoordinator(group, body, is_retry=tried > 0)
        answer = None if found is None else read(kind, found)
    return answer


def _is_refused(answer: Any) -> bool:
    return any(each.error_code in _ELSEWHERE for topic in answer.topics for each in topic.partitions)
