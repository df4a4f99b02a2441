"""The error about a pod that requests the sidecar and cannot get it."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

import attrs

from proxy.errors import ProxyError

__all__ = ["MOST_REASONS", "InjectionRefused"]

MOST_REASONS: Final = 20
"""The most problems that are reported of one pod."""
_MOST_CHARS: Final = 1000


def _some(reasons: Iterable[str]) -> tuple[str, ...]:
    """Return the first *reasons*, truncated: the user chooses their number and length."""
    some = [
        each if len(each) <= _MOST_CHARS else f"{each[:_MOST_CHARS]}..."
        for each in islice(reasons, MOST_REASONS + 1)
    ]
    return tuple(some) if len(some) <= MOST_REASONS else (*some[:MOST_REASONS], "and more problems")


@attrs.frozen
class InjectionRefused(ProxyError):
    """The refusal to change a pod, because its request for the sidecar is invalid or the pod does not permit it.

    The API server, or ``sidefetch inject``, reports the reasons to the user.
    """

    reasons: tuple[str, ...] = attrs.field(converter=_some)
    """The problems; each names its subject and the remedy. There are at most 20, and a note if there are more."""

    def __str__(self) -> str:
        return "; ".join(self.reasons)
