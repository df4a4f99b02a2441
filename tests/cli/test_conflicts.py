"""The refusal to run beside the distribution proxy.py; tests/test_dist.py has it with installed files."""

from pathlib import Path

import pytest

import proxy.cli
from proxy.cli import conflicts, main
from proxy.errors import ConfigError

_OF_PROXY_PY = {"common", "core", "dashboard", "http", "plugin", "proxy", "socks", "testing"}
"""The modules and packages in the package ``proxy`` of proxy.py 2.4.10."""


@pytest.mark.parametrize(
    "name",
    [
        "proxy.py-2.4.10.dist-info",
        "proxy_py-2.4.10.dist-info",
        "Proxy.Py-2.0.0-py3.11.egg-info",
        "proxy-py.egg-info",
    ],
)
def test_proxy_py_in_the_same_folder_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()

    with pytest.raises(ConfigError, match=r"sidefetch and proxy\.py are both installed") as raised:
        conflicts.refuse_proxy_py(tmp_path)

    assert str(tmp_path) in str(raised.value)
    assert "virtual environment of its own" in str(raised.value)


@pytest.mark.parametrize("name", ["sidefetch-0.1.0.dist-info", "proxy_pypi-1.0.dist-info", "proxy_py", "pproxy.py"])
def test_other_distributions_in_the_same_folder_are_accepted(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()

    conflicts.refuse_proxy_py(tmp_path)


def test_a_folder_that_cannot_be_listed_is_accepted(tmp_path: Path) -> None:
    conflicts.refuse_proxy_py(tmp_path / "sidefetch.pyz")


@pytest.mark.parametrize("argv", [["--version"], ["--help"], ["check"], ["no-such-command"]])
def test_every_command_line_is_refused_beside_proxy_py(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise ConfigError("proxy.py is here")

    monkeypatch.setattr(proxy.cli, "refuse_proxy_py", refuse)

    assert main(argv) == 2
    assert capsys.readouterr() == ("", "sidefetch: proxy.py is here\n")


def test_proxy_py_overwrites_no_module_that_the_refusal_needs() -> None:
    folder = Path(proxy.cli.__file__).parents[1]

    assert {path.stem for path in folder.iterdir()}.isdisjoint(_OF_PROXY_PY)
