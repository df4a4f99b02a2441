"""What only the coordinator of a group can answer, asked by clients that do not know which broker that is."""

from collections.abc import Generator
from typing import Any, Final, TypeVar

from kio.schema.errors import ErrorCode

from proxy.convert.versions.entities import read
from proxy.convert.versions.upgrade import AskBroker, AskCoordinator, Pieces

__all__ = ["ask_coordinator"]

R = TypeVar("R")

_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)
_TRIES: Final = 5
"""At coordinators found; a group's offsets are loaded, or a new coordinator elected, within some seconds."""


def ask_coordinator(
    group: str, body: Pieces, kind: type[R]
) -> Generator[AskBroker | AskCoordinator, memoryview | None, R | None]:
    """The coordinator's answer, or the last one that told of none; None if none could be found.

    The client's own broker is asked first: where clients know the coordinator, that is it, and there they are who
    they have said they are.
    """
    told = (yield AskBroker(body, is_last=False)) or b""
    answer: R | None = read(kind, memoryview(told))
    for tried in range(_TRIES):
        if answer is not None and not _is_elsewhere(answer):
            break
        found = yield AskCoordinator(group, body, afresh=tried > 0)
        answer = None if found is None else read(kind, found)
    return answer


def _is_elsewhere(answer: Any) -> bool:
    return any(each.error_code in _ELSEWHERE for topic in answer.topics for each in topic.partitions)
