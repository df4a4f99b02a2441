"""The APIs that are passed, and those that are offered."""

import pytest
from kio.schema.index import api_key_map

from proxy.wire.apis import CARRIES_ADDRESSES, KNOWN_KEYS, ApiKey, VersionRange, is_accepted, offered_ranges


def test_nothing_is_offered_that_would_not_pass() -> None:
    every = {key: VersionRange(0, 100) for key in range(1000)}

    for key, range_ in offered_ranges(every).items():
        assert is_accepted(key, range_.first)
        assert is_accepted(key, range_.last)


def test_an_api_that_is_not_known_is_hidden_since_it_might_carry_addresses() -> None:
    unknown = max(api_key_map) + 1

    assert offered_ranges({unknown: VersionRange(0, 0)}) == {}
    assert not is_accepted(unknown, 0)


def test_an_api_without_rewrites_is_offered_in_versions_newer_than_sidefetch() -> None:
    assert offered_ranges({8: VersionRange(2, 99)}) == {8: VersionRange(2, 99)}


@pytest.mark.parametrize(
    ("key", "last"),
    [(0, 13), (1, 18), (3, 13), (10, 6), (17, 1), (18, 4), (55, 1), (60, 2), (78, 2), (79, 2)],
)
def test_an_api_that_is_decoded_is_offered_up_to_the_version_that_is_known(key: int, last: int) -> None:
    assert offered_ranges({key: VersionRange(0, 99)})[key].last == last
    assert not is_accepted(key, last + 1)


def test_offered_ranges_keep_minimum_versions_of_broker() -> None:
    broker = {0: VersionRange(0, 13), 1: VersionRange(4, 17)}

    assert offered_ranges(broker) == broker


def test_an_api_with_one_common_version_is_offered() -> None:
    assert offered_ranges({8: VersionRange(5, 5)}) == {8: VersionRange(5, 5)}


def test_lower_versions_are_offered_without_gaps_if_their_upgrades_are_served() -> None:
    broker = {0: VersionRange(3, 13), 1: VersionRange(4, 18), 3: VersionRange(4, 13)}
    upgraded = {(0, 2): 3, (1, 3): 4, (1, 2): 5, (1, 0): 4, (3, 3): 2}

    assert offered_ranges(broker, upgraded) == broker | {0: VersionRange(2, 13), 1: VersionRange(2, 18)}


def test_ranges_that_do_not_meet_are_left_out() -> None:
    assert offered_ranges({ApiKey.SHARE_FETCH: VersionRange(0, 0), ApiKey.FETCH: VersionRange(19, 20)}) == {}


def test_apis_with_addresses_accept_no_unknown_version() -> None:
    for key in CARRIES_ADDRESSES:
        assert key in KNOWN_KEYS
        assert not is_accepted(key, 99)


@pytest.mark.parametrize("key", sorted(api_key_map))
def test_every_version_that_is_offered_passes_and_no_other(key: int) -> None:
    reported = offered_ranges({key: VersionRange(0, 30)}).get(key)

    assert [version for version in range(31) if is_accepted(key, version)] == [
        version for version in range(31) if reported is not None and version in reported
    ]
