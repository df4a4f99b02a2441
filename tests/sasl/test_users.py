"""The file of users, and who is one."""

import pytest

from proxy.sasl.users import Users, make_line

ALICE = make_line("alice", "SCRAM-SHA-256", "secret", b"salt", 4096)
BOB = make_line("bob", "SCRAM-SHA-512", "hidden", b"salt", 5000)
CAROL = make_line("carol", "SCRAM-SHA-512", "hidden", bytes(16), 6000)
DAVE = make_line("dave", "SCRAM-SHA-512", "hidden", bytes(24), 7000)


def users(*lines: str) -> Users:
    return Users.parse("\n".join(lines))


def test_password_is_accepted_only_for_its_user() -> None:
    known = users("# ours", "", ALICE, BOB)

    assert known.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    assert known.is_password_right("alice", "secret")
    assert known.is_password_right("bob", "hidden")
    for user, password in (("alice", "hidden"), ("alice", ""), ("carol", "secret"), ("", "")):
        assert not known.is_password_right(user, password)


def test_scram_keys_of_unknown_user_resemble_real_ones_in_every_process() -> None:
    known = users(BOB, CAROL)

    names = [f"nobody-{number}" for number in range(50)]
    unknown = [known.keys_of(name, "SCRAM-SHA-512") for name in names]
    assert unknown == [users(BOB, CAROL).keys_of(name, "SCRAM-SHA-512") for name in names]
    assert len({keys.salt for keys in unknown}) == len({keys.stored_key for keys in unknown}) == 50
    shapes = {(keys.iterations, len(keys.salt), len(keys.stored_key), len(keys.server_key)) for keys in unknown}
    assert shapes == {(5000, 4, 64, 64), (6000, 16, 64, 64)}


def test_most_unknown_users_keep_their_keys_when_another_user_is_added() -> None:
    before, after = users(BOB, CAROL), users(BOB, CAROL, DAVE)

    names = [f"nobody-{number}" for number in range(100)]
    same = [before.keys_of(name, "SCRAM-SHA-512") == after.keys_of(name, "SCRAM-SHA-512") for name in names]
    assert 50 <= sum(same) < 100


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "there are no users"),
        (["alice"], "line 1: its mechanism"),
        (["# x", ALICE.replace("SCRAM-SHA-256", "PLAIN")], "line 2: its mechanism"),
        ([ALICE, ALICE], "line 2: that user has"),
        ([ALICE.replace("salt=", "salz=")], "cannot be read"),
        ([ALICE.replace("4096", "4095")], "iterations"),
        ([ALICE.replace("4096", "9999999")], "iterations"),
        ([ALICE.replace("SHA-256", "SHA-512")], "64 bytes"),
        ([ALICE.replace("alice", " ")], "line 1: a name"),
    ],
)
def test_invalid_user_line_is_reported_by_number_without_its_keys(lines: list[str], why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        users(*lines)

    assert "stored_key=" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a:b", "a\n", " a", "#a"])
def test_a_name_that_no_line_can_hold_gets_none(name: str) -> None:
    with pytest.raises(ValueError, match="a name"):
        make_line(name, "SCRAM-SHA-256", "x", b"salt", 4096)


def test_nothing_of_them_is_shown() -> None:
    assert repr(users(ALICE)) == "Users()"
