"""Exit codes and output of commands that end before they open a socket."""

import argparse
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import proxy.cli
from proxy.cli import main
from proxy.cli.check import cluster_report, settings_report
from proxy.cli.cluster_info import BrokerInfo, ClusterInfo
from proxy.cli.diagnostics import diagnose
from proxy.cli.extras import require_demo_extra
from proxy.cli.options import settings_of
from proxy.cli.settings import load_settings
from proxy.config import OPTIONS, Address
from proxy.config.rack import RackFound
from proxy.errors import ConfigError
from proxy.version import VERSION


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for option in OPTIONS:
        monkeypatch.delenv(option.env, raising=False)
    monkeypatch.delenv("SIDEFETCH_CONFIG", raising=False)
    monkeypatch.delenv("DEMO_SECONDS", raising=False)


def test_every_problem_is_a_line_on_stderr_and_the_exit_code_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--listen", "9092", "--grace", "soon"]) == 2

    said = capsys.readouterr()
    assert said.out == ""
    assert [line.split(":")[1] for line in said.err.splitlines()] == [" listen", " grace", " bootstrap-servers"]
    assert all(line.startswith("sidefetch: ") for line in said.err.splitlines())


def test_unreadable_config_file_is_reported_with_other_problems(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIDEFETCH_CONFIG", "/nowhere/s.toml")

    assert main(["check"]) == 2

    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("sidefetch: config: '/nowhere/s.toml' from environment SIDEFETCH_CONFIG: ")
    assert second.startswith("sidefetch: bootstrap-servers: not given")


def test_a_file_named_by_the_flag_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "s.toml"
    file.write_text("[upstream]\nbootstrap-servers = 'kafka:9092'\n")
    monkeypatch.setenv("SIDEFETCH_CONFIG", "/nowhere/s.toml")

    settings = settings_of(argparse.Namespace(config=str(file)))

    assert settings.config.upstream.bootstrap_servers == (Address("kafka", 9092),)
    assert str(settings.layers["bootstrap-servers"]) == f"file {file}: upstream.bootstrap-servers"


@pytest.mark.parametrize("argv", [[], ["go"], ["run", "--lisen", "x"], ["run", "--boot", "h:1"], ["try"]])
def test_unknown_command_or_flag_is_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(argv)

    assert left.value.code == 2
    assert capsys.readouterr().err.startswith("usage: sidefetch")


@pytest.mark.parametrize("argv", [["--help"], *([command, "--help"] for command in proxy.cli.COMMANDS)])
def test_help_is_at_hand(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(argv)

    assert left.value.code == 0
    assert capsys.readouterr().out.startswith(" ".join(["usage: sidefetch", *argv[:-1]]))


def test_help_has_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])

    listed = re.findall(r"^    (\S+)", capsys.readouterr().out, re.MULTILINE)
    assert listed == [*proxy.cli.COMMANDS]


def test_a_command_imports_no_other() -> None:
    program = "import sys; from proxy.cli import main; main(['run', '--grace', 'soon']); print(*sys.modules)"
    reported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    imported = {module.rpartition(".")[2] for module in reported.split() if module.startswith("proxy.cli.")}
    assert imported == {"conflicts", "run", "options", "settings"}


def test_help_of_run_has_every_option_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])

    out = " ".join(capsys.readouterr().out.split())
    for option in OPTIONS:
        assert f"{option.flag} " in out
        assert option.env in out
        assert option.required or f"[default: {option.default_text or 'none'};" in out


def test_version_flag_prints_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])

    assert left.value.code == 0
    assert capsys.readouterr().out == f"sidefetch {VERSION}\n"


class _Command:
    """A command that raises a given exception."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error

    def add_to(self, commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
        commands.add_parser("it").set_defaults(run=self._run)

    def _run(self, _: argparse.Namespace) -> int:
        if self.error is not None:
            raise self.error
        return 0


def run_it(monkeypatch: pytest.MonkeyPatch, error: BaseException | None) -> int:
    monkeypatch.setattr(proxy.cli, "COMMANDS", {"it": "it"})
    monkeypatch.setitem(sys.modules, "proxy.cli.it", _Command(error))
    return main(["it"])


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (None, 0, ""),
        (ConfigError("port 9092 is taken"), 2, "sidefetch: port 9092 is taken\n"),
        (
            BaseExceptionGroup(
                "nursery", [ExceptionGroup("inner", [ConfigError("one", "two")]), ConfigError("three")]
            ),
            2,
            "sidefetch: one\nsidefetch: two\nsidefetch: three\n",
        ),
        (KeyboardInterrupt(), 130, ""),
        (BaseExceptionGroup("nursery", [KeyboardInterrupt()]), 130, ""),
        (BaseExceptionGroup("nursery", [ExceptionGroup("inner", [OSError()]), SystemExit(1)]), 1, ""),
    ],
)
def test_a_command_ends_with_an_exit_code(
    error: BaseException | None,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_it(monkeypatch, error) == code
    assert capsys.readouterr().err == said


def test_a_bug_is_not_taken_for_a_bad_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ExceptionGroup):
        run_it(monkeypatch, ExceptionGroup("nursery", [ConfigError("one"), ZeroDivisionError()]))


@pytest.mark.parametrize("seconds", ["0", "soon", "3601", "nan"])
def test_a_demo_of_no_length_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--seconds", seconds]) == 2
    assert capsys.readouterr().err == f"sidefetch: seconds: {seconds!r} from flag --seconds; accepted: 1 to 3600\n"


def test_the_length_of_the_demo_is_taken_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DEMO_SECONDS", "x")

    assert main(["demo"]) == 2
    assert "'x' from environment DEMO_SECONDS" in capsys.readouterr().err


def test_error_for_missing_demo_extra_names_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiokafka", None)

    with pytest.raises(ConfigError, match=r"sidefetch\[demo\]"), require_demo_extra():
        importlib.import_module("aiokafka")

    with pytest.raises(ModuleNotFoundError), require_demo_extra():
        importlib.import_module("no_such_package")


@pytest.mark.parametrize(
    ("package", "argv"), [("ruamel.yaml", ["inject", "-f", "-"]), ("cryptography", ["webhook"])]
)
def test_error_for_missing_kube_extra_names_extra(package: str, argv: list[str]) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; from proxy.cli import main; sys.exit(main({argv!r}))"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, input="")

    assert done.returncode == 2
    assert "sidefetch[kube]" in done.stderr


def test_check_shows_each_setting_with_its_value_and_source() -> None:
    settings = load_settings(flags={"bootstrap-servers": "a:1,b:2"}, environ={"SIDEFETCH_GRACE": "1m"})

    lines = settings_report(settings).splitlines()

    assert [line.split()[0] for line in lines] == ["Settings", *(option.name for option in OPTIONS)]
    cells = [re.split(" {2,}", line.strip()) for line in lines]
    assert ["bootstrap-servers", "a:1,b:2", "flag --bootstrap-servers"] in cells
    assert ["grace", "60s", "environment SIDEFETCH_GRACE"] in cells
    assert ["advertise", "-", "default"] in cells
    assert len({line.index(cell[2]) for line, cell in zip(lines[1:], cells[1:], strict=True)}) == 1


def test_check_reports_brokers_findings_and_a_verdict() -> None:
    settings = load_settings(flags={"bootstrap-servers": "a:1"}, environ={})
    brokers = (
        BrokerInfo(2, Address("b2", 9092), None, problem="connection refused"),
        BrokerInfo(1, Address("b1", 9092), "a", {1: (4, 18)}),
    )
    seen = ClusterInfo("id", Address("a", 1), brokers)

    lines = cluster_report(seen, diagnose(seen, settings.config, RackFound(None, ""))).splitlines()

    assert lines[:4] == [
        "Cluster id, by way of a:1",
        "  node 1  b1:9092  rack a   Fetch v4-18    looks like Kafka 4.1 to 4.3",
        "  node 2  b2:9092  no rack  Fetch unknown  not reached",
        "Findings",
    ]
    assert lines[-1] == "Sidefetch cannot serve all of this cluster."
