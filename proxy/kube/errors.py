"""Why a pod does not get Sidefetch, though it asks for it."""

import attrs

from proxy.errors import ProxyError

__all__ = ["InjectionRefused"]


@attrs.frozen
class InjectionRefused(ProxyError):
    """A pod is left alone, and whoever made it is told everything that is in the way."""

    reasons: tuple[str, ...]
    """Each names the thing, and what to do about it."""

    def __str__(self) -> str:
        return "; ".join(self.reasons)
