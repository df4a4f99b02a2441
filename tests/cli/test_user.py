"""``sidefetch user``: lines for the file of users."""

import io

import pytest

from proxy.cli import main
from proxy.sasl.users import Users


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_line_makes_a_user_and_does_not_hold_the_password(
    mechanism: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\n"))

    assert main(["user", "alice", "--mechanism", mechanism]) == 0

    line = capsys.readouterr().out
    assert "correct horse" not in line
    assert Users.parse(line).is_password_right("alice", "correct horse")


@pytest.mark.parametrize(("name", "password"), [("a:b", "x\n"), ("alice", "\n")])
def test_invalid_user_name_or_password_is_refused(
    name: str, password: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(password))

    assert main(["user", name]) == 2
    assert "accepted:" in capsys.readouterr().err
