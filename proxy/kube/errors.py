"""The error of a pod that requests Sidefetch and cannot get it."""

import attrs

from proxy.errors import ProxyError

__all__ = ["InjectionRefused"]


@attrs.frozen
class InjectionRefused(ProxyError):
    """A pod is not changed; the reasons are reported to whoever creates it."""

    reasons: tuple[str, ...]
    """The problems; each names its subject and the remedy."""

    def __str__(self) -> str:
        return "; ".join(self.reasons)
