"""The names in deploy/, compared with the declarations, and checked with Prometheus' own tool."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from proxy.config import OPTIONS
from proxy.telemetry.instruments import DELAY, INSTRUMENTS
from tests.command_blocks import command
from tests.prerequisites import require

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
ALERTS: Final = (DEPLOY / "alerts.yaml").read_text(encoding="utf-8")
ALERT_TESTS: Final = (DEPLOY / "alerts.test.yaml").read_text(encoding="utf-8")
BOARD: Final[dict[str, Any]] = json.loads((DEPLOY / "grafana" / "sidefetch.json").read_text(encoding="utf-8"))
DECLARED: Final = {each.prometheus: set(each.attributes) for each in INSTRUMENTS} | {
    f"{DELAY.prometheus}_bucket": {"le"}
}
DELIVERY_RATIO: Final = "".join(
    command("proxy/telemetry/METRICS.md", f'direction="{each}"') for each in ("delivered", "fetched")
)
SCRAPED: Final = {"job", "instance"}
"""Labels that Prometheus adds."""


def alerts() -> dict[str, str]:
    """Each as it is written, by its name."""
    _, *rules = re.split(r"^ +- alert: ", ALERTS, flags=re.MULTILINE)
    return {rule.partition("\n")[0]: rule for rule in rules}


def panels() -> Iterator[dict[str, Any]]:
    return (panel for panel in BOARD["panels"] if panel["type"] != "row")


def board_queries() -> list[str]:
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    return asked + [variable["query"]["query"] for variable in BOARD["templating"]["list"][1:]]


def names_of(query: str) -> dict[str, set[str]]:
    """The metrics of a query, and the labels that it has of each."""
    named: dict[str, set[str]] = {}
    for name, matchers in re.findall(r"\b(sidefetch_\w+)(?:\{([^}]*)\})?", query):
        named.setdefault(name, set()).update(re.findall(r"(\w+)(?==)", matchers))
    return named


@pytest.mark.parametrize("query", [ALERTS, ALERT_TESTS, *board_queries(), DELIVERY_RATIO])
def test_every_metric_and_label_that_is_named_is_declared(query: str) -> None:
    assert names_of(query) or "ALERTS" in query
    for name, labels in names_of(query).items():
        assert name in DECLARED
        assert labels <= DECLARED[name] | SCRAPED, name


def test_labels_that_are_summed_by_or_shown_are_those_of_the_metric() -> None:
    for panel in panels():
        for target in panel["targets"]:
            known = set().union(*(DECLARED[name] for name in names_of(target["expr"]))) | SCRAPED
            grouped = re.findall(r"\bby \(([^)]*)\)", target["expr"])
            used = {label.strip() for each in grouped for label in each.split(",")}
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert used <= known, panel["title"]
            assert shown <= used, panel["title"]


def test_every_alert_has_severity_summary_description_and_action() -> None:
    assert len(alerts()) == ALERTS.count("- alert:") >= 8
    for name, rule in alerts().items():
        for part in ("summary", "description", "action"):
            assert re.search(rf"^ {{10}}{part}: .*\w", rule, re.MULTILINE), (name, part)
        assert re.search(r"^ {10}severity: (critical|warning)$", rule, re.MULTILINE), name


def test_flags_and_events_named_in_alerts_exist() -> None:
    flags = {option.flag for option in OPTIONS}
    sources = "".join(path.read_text(encoding="utf-8") for path in (DEPLOY.parent / "proxy" / "net").rglob("*.py"))

    assert set(re.findall(r"--[a-z-]+", ALERTS)) <= flags
    for event in re.findall(r"event `([a-z-]+)`", ALERTS):
        assert f'"{event}"' in sources, event


def test_every_alert_is_tested_where_it_fires() -> None:
    for name in alerts():
        assert f'alertname="{name}"' in ALERT_TESTS or f"alertname: {name}\n" in ALERT_TESTS, name


def test_panels_have_queries_and_a_place_of_their_own() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        for cell in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
            assert cell not in taken, (panel["title"], taken.get(cell))
            taken[cell] = panel["title"]
    assert all(panel["targets"] and panel["description"] for panel in panels())
    numbers = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_compose_sets_options_that_there_are_and_mounts_files_that_there_are() -> None:
    compose = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")

    assert set(re.findall(r"\bSIDEFETCH_\w+", compose)) <= {option.env for option in OPTIONS}
    for file in re.findall(r"- (\./[\w./-]+):/", compose):
        assert (DEPLOY / file).exists(), file


def promtool(*arguments: str, cwd: Path = DEPLOY) -> str:
    require("prometheus")
    done = subprocess.run(["promtool", *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.telemetry
def test_alerts_fire_where_they_should_and_nowhere_else() -> None:
    assert f"{len(alerts())} rules found" in promtool("check", "rules", "alerts.yaml")
    assert "SUCCESS" in promtool("test", "rules", "alerts.test.yaml")


@pytest.mark.telemetry
def test_prometheus_takes_its_config() -> None:
    assert "SUCCESS" in promtool("check", "config", "prometheus.yaml")


@pytest.mark.telemetry
def test_queries_of_the_dashboard_are_queries(tmp_path: Path) -> None:
    queries = [
        target["expr"].replace("$__rate_interval", "5m") for panel in panels() for target in panel["targets"]
    ]
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "queries.json"
    file.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}), encoding="utf-8")

    assert f"{len(queries)} rules found" in promtool("check", "rules", str(file))
