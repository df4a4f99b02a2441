"""The epochs of a session, as a broker counts them."""

import pytest

from proxy.session.epochs import FINAL_EPOCH, INITIAL_EPOCH, is_full, next_epoch


@pytest.mark.parametrize(
    ("epoch", "following"), [(0, 1), (1, 2), (2**31 - 2, 2**31 - 1), (2**31 - 1, 1), (-1, -1), (-7, -1)]
)
def test_next_epoch_wraps_to_1_after_maximum(epoch: int, following: int) -> None:
    assert next_epoch(epoch) == following


def test_a_fetch_that_begins_or_ends_a_session_names_everything() -> None:
    assert is_full(INITIAL_EPOCH)
    assert is_full(FINAL_EPOCH)
    assert not is_full(1)
    assert not is_full(2**31 - 1)
