"""Error codes as a client's version can understand them."""

import pytest

from proxy.errors import ErrorCode
from proxy.fetch.error_codes import error_for


@pytest.mark.parametrize(
    ("code", "since", "older"),
    [
        (56, 6, 6),  # KAFKA_STORAGE_ERROR to NOT_LEADER_OR_FOLLOWER, as brokers do it
        (74, 9, 6),
        (75, 9, 6),
        (78, 9, 6),
        (9, 6, 6),
        (5, 6, 6),
        (100, 13, 3),
        (103, 13, 3),
        (109, 14, -1),
    ],
)
def test_newer_error_code_is_replaced_in_versions_that_do_not_know_it(code: int, since: int, older: int) -> None:
    assert error_for(since, code) == code
    assert error_for(18, code) == code
    assert error_for(since - 1, code) == older
    assert error_for(4, code) == older


@pytest.mark.parametrize("code", [0, 1, 2, 3, 6, 29, 35, 76, -1])
def test_error_code_known_to_all_versions_is_unchanged(code: int) -> None:
    assert {error_for(version, code) for version in range(19)} == {code}


@pytest.mark.parametrize(
    ("code", "expected"), [(5, 6), (9, 6), (56, 6), (74, 6), (75, 6), (78, 6), (100, 3), (103, 3)]
)
def test_the_oldest_clients_are_sent_to_look_again(code: int, expected: int) -> None:
    assert {error_for(version, code) for version in range(4)} == {expected}


@pytest.mark.parametrize("code", [7, 16, 29_999, 109])
def test_the_oldest_clients_hear_no_code_that_would_make_them_throw(code: int) -> None:
    assert {error_for(version, code) for version in range(4)} == {-1}


def test_unknown_error_code_is_passed_through() -> None:
    assert error_for(18, 30_000) == 30_000


def test_replacement_error_codes_are_known_to_old_versions() -> None:
    for code in ErrorCode:
        assert error_for(4, error_for(4, code)) == error_for(4, code)
