"""What the README says that can be held against the code."""

import re
from pathlib import Path

from proxy.cli.options import readme_table
from proxy.config import RoutingConfig
from proxy.config.rack import ZONE_LABEL
from proxy.convert.versions import table as versions
from proxy.kube.annotations import Defaults, asked_by, is_on
from proxy.kube.annotations import readme_table as annotations_table
from proxy.net.kubernetes import NODE_NAME
from proxy.relay.traffic import Traffic
from proxy.telemetry import instruments

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_of_options_is_the_programs_own() -> None:
    _, _, rest = README.partition("made from proxy/config; a test keeps it equal -->\n")
    table, end, _ = rest.partition("<!-- end -->")

    assert end
    assert table == readme_table(), f"put this between the marks:\n{readme_table()}"


def test_the_table_of_versions_is_that_of_the_lifts() -> None:
    _, _, rest = README.partition("## Versions that Kafka 4 removed\n")
    table, end, _ = rest.partition("<!-- end -->")
    _, _, table = table.partition("a test keeps it equal -->\n")

    assert end
    assert table == versions.readme_table(), f"put this between the marks:\n{versions.readme_table()}"


def test_the_table_of_metrics_is_that_of_the_instruments() -> None:
    _, _, rest = README.partition("made from proxy/telemetry/instruments.py; a test keeps it equal -->\n")
    table, end, _ = rest.partition("<!-- end -->")

    assert end
    assert table == instruments.readme_table(), f"put this between the marks:\n{instruments.readme_table()}"


def test_the_table_of_annotations_is_the_programs_own() -> None:
    _, _, rest = README.partition("made from proxy/kube/annotations.py; a test keeps it equal -->\n")
    table, end, _ = rest.partition("<!-- end -->")

    assert end
    assert table == annotations_table(), f"put this between the marks:\n{annotations_table()}"


def test_the_annotations_that_it_shows_are_taken() -> None:
    manifest = re.search(r"  annotations:\n((?:    \S+: .*\n)+)", section("Kubernetes"))
    assert manifest is not None
    lines = [line.strip().partition(": ") for line in manifest[1].splitlines()]
    annotations = {name: text.strip('"') for name, _, text in lines}

    assert is_on(annotations)
    asked = asked_by(annotations, Defaults({"image": "i"}))
    assert (asked.env, asked.address) == (("KAFKA_BOOTSTRAP_SERVERS",), "127.0.0.1:9092")


def test_every_make_target_that_it_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")

    for target in set(re.findall(r"\bmake ([a-z]+)\b", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_flag_that_it_names_exists() -> None:
    ours = re.sub(r"(?m)^    (docker|helm|kubectl) .*$|`(docker|helm|kubectl)\b[^`]*`", "", README)
    commands = [*(ROOT / "proxy" / "cli").glob("*.py"), ROOT / "proxy" / "analysis" / "jobs.py"]
    sources = "".join(path.read_text(encoding="utf-8") for path in commands)
    table = readme_table()

    told_elsewhere = {"--inputs", "--long", "--millions", "--quick", "--seconds", "--seed"}
    for flag in set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", ours)) - told_elsewhere:
        assert f"`{flag}`" in table or f'"{flag}"' in sources, flag


def section(title: str) -> str:
    _, _, rest = README.partition(f"\n## {title}\n")
    return rest.partition("\n## ")[0]


def test_the_places_of_a_rack_are_those_that_are_tried() -> None:
    told = re.findall(r"^\| `(env:\w+|file:[\w/]+|kubernetes)` \|", section("The closest replica"), re.MULTILINE)

    assert told == list(map(str, RoutingConfig().rack_from))


def test_the_manifests_set_what_is_looked_at() -> None:
    manifests = re.findall(r"```yaml\n(.*?)```", section("The closest replica"), re.DOTALL)
    variables = {
        name for manifest in manifests for name in re.findall(r"- name: ([A-Z_]+)$", manifest, re.MULTILINE)
    }
    env, _, _ = RoutingConfig().rack_from

    assert variables == {env.name, NODE_NAME}
    assert f"metadata.labels['{ZONE_LABEL}']" in manifests[0]
    assert "spec.nodeName" in manifests[1]
    assert "resources: [nodes]\n    verbs: [get]\n" in manifests[1]


def test_what_the_log_tells_of_traffic_has_the_names_that_it_gives() -> None:
    traffic = Traffic()
    traffic.add("t", "a", True, 1)
    names = set(re.findall(r"`(\w+_(?:bytes|topic))`", section("The closest replica")))

    assert names
    assert names <= set(traffic.fields())


def test_the_events_that_it_names_are_logged() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "proxy" / "net").rglob("*.py"))

    for event in ("rack-found", "no-rack", "no-broker-in-rack", "traffic", "stopped"):
        assert f"`{event}`" in section("The closest replica")
        assert f'"{event}"' in sources, event
