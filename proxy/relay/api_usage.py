"""The API versions that a client uses, and its software: this shows which clients would fail on Kafka 4."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

import attrs

from proxy.errors import MalformedFrame
from proxy.events import ClientRecord, UsedApi
from proxy.wire import api_versions
from proxy.wire.apis import ApiKey, is_accepted
from proxy.wire.frames import SIZE_BYTES
from proxy.wire.headers import RequestHeader

__all__ = ["ApiUsage"]

_RELEASES: Final[Mapping[int, str]] = MappingProxyType(
    {
        0: "0.8",
        1: "0.9",
        2: "0.10.0",
        3: "0.10.1 or 0.10.2",
        4: "0.11",
        5: "0.11",
        6: "1.0",
        7: "1.1",
        8: "2.0",
        9: "2.0",
        10: "2.1 or 2.2",
        11: "2.3 to 2.6",
        12: "2.7 to 3.0",
        13: "3.1 to 3.4",
        14: "3.5 or 3.6",
        15: "3.5 or 3.6",
        16: "3.7 or 3.8",
        17: "3.9 to 4.0",
        18: "4.1 or newer",
    }
)
"""Kafka releases by the Fetch version that their own clients send."""


_UNKNOWN_VERSION: Final = 2**15 - 1
"""The largest version: it stands for all that Sidefetch does not accept, of which a client can make up 65,000."""


@attrs.define
class _Use:
    requests: int = 0
    request_bytes: int = 0


class ApiUsage:
    """Counts of one client connection's requests and their bytes by API and version, and the client's software.

    All versions of an API that Sidefetch does not accept count as version 32,767.
    """

    def __init__(self) -> None:
        self._uses: dict[tuple[int, int], _Use] = {}
        self._client_id: str | None = None
        self._software = ""

    def add_request(self, header: RequestHeader, frame: memoryview) -> None:
        """Count a request of the client and keep its client id, and the software's name if it is ApiVersions v3+.

        Args: header: the header of *frame*, decoded.
              frame:  the request without its size prefix; the prefix is counted, too.
        """
        key, version = header.api_key, header.api_version
        api = key, version if is_accepted(key, version) else _UNKNOWN_VERSION
        use = self._uses.get(api)
        if use is None:
            use = self._uses[api] = _Use()
            if key == ApiKey.API_VERSIONS:
                with suppress(MalformedFrame):  # the relay reports the malformed request
                    self._software = api_versions.read_client_software(frame)
        use.requests += 1
        use.request_bytes += SIZE_BYTES + len(frame)
        self._client_id = header.client_id

    def make_record(self, upgraded_version: Callable[[int, int], int]) -> ClientRecord | None:
        """Return a telemetry record with all counts since the start of the connection; None without any request.

        If the client has not stated its software, the record has a guess from the client's newest Fetch version.

        Args: upgraded_version: a function of an API key and the client's version; returns the version of that API
            in which Sidefetch sends such requests to the broker.
        """
        if not self._uses:
            return None
        apis = [
            UsedApi(key, version, upgraded_version(key, version), use.requests, use.request_bytes)
            for (key, version), use in sorted(self._uses.items())
        ]
        return ClientRecord(
            self._client_id, self._software or self._guess_software(), not self._software, tuple(apis)
        )

    def _guess_software(self) -> str:
        """Return a guess of the client's Kafka release, from its newest Fetch version; "" if it has not fetched.

        The guess is too low if the broker is older than the client: the client then uses an older version.
        """
        fetches = [version for key, version in self._uses if key == ApiKey.FETCH]
        return f"speaks as Kafka {_RELEASES.get(max(fetches), 'of the future')}" if fetches else ""
