"""The request for the zone of this pod's node to the Kubernetes API.

It uses what every pod has: the API's address in the environment, a token and a CA below ``SERVICE_ACCOUNT``. The
manifest must set the node's name as NODE_NAME. Blocking, for a thread.
"""

import http.client
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request

from proxy.config.rack import KUBERNETES_HOST, ZONE_LABEL, NoRack, rack_in_node
from proxy.net.io.https_client import get_body

__all__ = ["NODE_NAME", "SERVICE_ACCOUNT", "api_address", "read_credentials", "zone_of_this_node"]

NODE_NAME: Final = "NODE_NAME"
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MOST_BYTES: Final = 4 * 1024**2
"""The response may list a node's images, if the API cannot leave them out."""
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"
_NAME_NODE: Final = f"set {NODE_NAME} from spec.nodeName in the pod's manifest"
_GRANT: Final = "let the pod's service account get nodes (RBAC: a ClusterRole with the verb get on nodes)"
_OR_GIVE: Final = "give --rack, or another place by --rack-from"


def zone_of_this_node(
    environ: Mapping[str, str], timeout_s: float, account: Path = SERVICE_ACCOUNT, label: str = ZONE_LABEL
) -> tuple[str, str]:
    """Request this pod's node from the Kubernetes API; return the zone (availability zone), and the node's name.

    Args:
        environ:   the environment of the pod, with the address of the API and the node's name (NODE_NAME).
        timeout_s: the limit in seconds for each network operation, not for the whole request.
        account:   the folder with the token and the CA of the pod's service account.
        label:     the label of the node that has the zone.

    Raises: NoRack: the API cannot be reached, or the node has no such label; with the reason and the remedy.
    """
    api = api_address(environ)
    assert api is not None
    node = environ.get(NODE_NAME, "").strip()
    if not node:
        raise NoRack(f"{NODE_NAME} is not set", _NAME_NODE)
    token, tls = _check_credentials(account)
    request = Request(f"https://{api}/api/v1/nodes/{quote(node, safe='')}", headers={"Accept": _METADATA_ONLY})
    request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        # Without an HTTP proxy: that of the environment is for destinations outside the cluster.
        body = get_body(request, tls, timeout_s, most_bytes=_MOST_BYTES, through_proxy=False)
        return rack_in_node(body, label), node
    except HTTPError as refused:
        refused.close()
        raise NoRack(f"the API answers {refused.code} for node {node}", _remedy_for(refused.code)) from None
    except URLError as unreached:
        raise NoRack(f"the API at {api} was not reached: {unreached.reason}", _OR_GIVE) from None
    except (OSError, http.client.HTTPException) as broken:
        raise NoRack(f"the API at {api} broke off: {type(broken).__name__}", _OR_GIVE) from None
    except ValueError as wrong:
        raise NoRack(f"node {node}: {wrong}", f"label the node with {label}, or {_OR_GIVE}") from None


def api_address(environ: Mapping[str, str]) -> str | None:
    """Return ``HOST:PORT`` of the Kubernetes API from *environ*, the environment of a pod; None outside of pods."""
    host, port = environ.get(KUBERNETES_HOST), environ.get("KUBERNETES_SERVICE_PORT") or "443"
    if not host:
        return None
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def read_credentials(account: Path) -> tuple[str, ssl.SSLContext]:
    """Return the token of the service account in the folder *account*, and a TLS context that trusts its CA.

    Both are for requests to the Kubernetes API.

    Raises: OSError, ValueError: a file is missing or cannot be read.
    """
    token = (account / "token").read_text(encoding="ascii").strip()
    tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT  # many clusters' own CAs lack a field that Python 3.13 requires
    return token, tls


def _check_credentials(account: Path) -> tuple[str, ssl.SSLContext]:
    try:
        token, tls = read_credentials(account)
    except (OSError, ValueError) as wrong:
        why = f"no service account in {account}: {type(wrong).__name__}"
        raise NoRack(why, f"let the pod have one (automountServiceAccountToken), or {_OR_GIVE}") from None
    if not token.isprintable() or not token:
        raise NoRack(f"{account / 'token'} holds no token", f"mount it anew, or {_OR_GIVE}")
    return token, tls


def _remedy_for(code: int) -> str:
    if code == 404:
        return _NAME_NODE
    return _GRANT if code in (401, 403) else _OR_GIVE
