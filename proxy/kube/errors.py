"""The error about a pod that requests the sidecar and cannot get it."""

import attrs

from proxy.errors import ProxyError

__all__ = ["InjectionRefused"]


@attrs.frozen
class InjectionRefused(ProxyError):
    """The refusal to change a pod, because its request for the sidecar is invalid or the pod does not permit it.

    The API server, or ``sidefetch inject``, reports the reasons to the user.
    """

    reasons: tuple[str, ...]
    """The problems; each names its subject and the remedy."""

    def __str__(self) -> str:
        return "; ".join(self.reasons)
