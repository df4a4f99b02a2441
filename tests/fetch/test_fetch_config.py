"""The choice of clients that share upstream fetches."""

from typing import Literal

import pytest

from proxy.fetch.fetch_config import FetchConfig

Mode = Literal["off", "client-id", "principal"]


@pytest.mark.parametrize(
    ("mode", "is_excepted", "owner", "client_id"),
    [
        ("off", False, "reader", "client"),
        ("off", True, "reader", "client"),
        ("client-id", False, ("alice", "client"), "client"),
        ("client-id", True, "reader", "client"),
        ("principal", False, ("alice",), "sidefetch"),
        ("principal", True, "reader", "client"),
    ],
)
def test_share_reads_mode_and_exception_select_log_cache_owner(
    mode: Mode, is_excepted: bool, owner: object, client_id: str
) -> None:
    reading = FetchConfig(
        10, fetch_buffer_bytes=8 << 20, response_timeout_s=5, shares_reads=mode, principal="alice"
    )

    assert reading.sharing("reader", "client", is_excepted=is_excepted) == (owner, client_id)
