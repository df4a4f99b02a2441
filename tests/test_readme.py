"""The Markdown pages, compared with the program and with each other."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Final

import pytest

from proxy.cli import parser
from proxy.cli.settings import load_settings
from proxy.config import OPTIONS, SECTIONS, RoutingConfig
from proxy.config.rack import ZONE_LABEL
from proxy.kube.annotations import Defaults, injection_request, is_on
from proxy.net.kubernetes import NODE_NAME
from proxy.relay.traffic import Traffic
from tests.pages import ROOT, TABLES, Table, anchors, pages, section, text_of
from tests.telemetry.log_events import logged_events

PAGES: Final = [path.relative_to(ROOT).as_posix() for path in pages()]
README: Final = text_of("README.md")
CLOSEST: Final = section("deploy/README.md", "The closest replica")
OF_OTHER_PROGRAMS: Final = {
    *(
        "--cgroup",
        "--combinations",
        "--figures",
        "--inputs",
        "--millions",
        "--option",
        "--python",
        "--quick",
        "--seconds",
        "--seed",
        "--short",
    ),  # of the tests
    *("--archives", "--packages", "--properties-file"),  # of spark-submit
    *("--build", "--help", "--set", "--system"),
}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.mark.removeprefix("made from "))
def test_generated_table_equals_the_program(table: Table) -> None:
    text = text_of(table.page)

    assert table.replaced(text) == text, "update it: python -m tests.pages"


def test_readme_is_short() -> None:
    assert len(README.splitlines()) < 250
    assert len(README.encode()) < 20_000


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_resolve(page: str) -> None:
    text = re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)

    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (ROOT / page).parent / file if file else ROOT / page
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path.read_text(encoding="utf-8")), target


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_exists(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")

    for target in set(re.findall(r"(?:`|^    )make ([a-z-]+)", text_of(page), re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("page", PAGES)
def test_every_flag_exists(page: str) -> None:
    ours = re.sub(r"(?m)^    (docker|helm|kubectl) .*$|`(docker|helm|kubectl)\b[^`]*`", "", text_of(page))
    commands = [*(ROOT / "proxy" / "cli").glob("*.py"), ROOT / "proxy" / "analysis" / "jobs.py"]
    sources = "".join(path.read_text(encoding="utf-8") for path in commands)
    options = {option.flag for option in OPTIONS}

    for flag in set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+(?!-)\b", ours)) - OF_OTHER_PROGRAMS:
        assert flag in options or f'"{flag}"' in sources, flag


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_sidefetch_are_accepted(page: str) -> None:
    text = text_of(page).replace("\\\n", " ").replace("$(id -u sidefetch)", "1000")

    for line in re.findall(r"^    (?:\S+=\S+ |sudo (?:-u \w+ )?)*\.venv/bin/sidefetch (.+)$", text, re.MULTILINE):
        arguments = shlex.split(line.partition(" >> ")[0])
        if arguments != ["--version"]:
            parser(arguments[:1]).parse_args(arguments)


def test_options_of_the_readme_have_the_defaults_of_the_program() -> None:
    rows = re.findall(r"^\| (`--[^|]+) \| ([^|]+) \| ", section("README.md", "Options"), re.MULTILINE)
    by_flag = {option.flag: option for option in OPTIONS}

    assert len(rows) > 10
    for flags, defaults in rows:
        options = [by_flag[flag] for flag in re.findall(r"`(--[\w-]+)`", flags)]
        texts = [
            "required" if each.required else f"`{each.default_text}`" if each.default_text else "none"
            for each in options
        ]
        assert defaults == ", ".join(texts) or defaults == ", ".join(f"`{text.strip('`')}`" for text in texts)


def test_example_file_uses_every_section_and_is_accepted() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", text_of("proxy/config/OPTIONS.md"), re.DOTALL)

    tables = {name.partition("_")[0] for name in SECTIONS}
    assert tables <= set(tomllib.loads(example))
    load_settings(flags={}, environ={}, toml=example, toml_name="the example")


def test_list_of_sections_is_complete() -> None:
    named = re.findall(r"`\[(\w+)\]`", section("proxy/config/OPTIONS.md", "The configuration file"))

    assert set(named) == {name.partition("_")[0] for name in SECTIONS}


def test_every_log_event_has_an_anchor_and_every_anchor_an_event() -> None:
    described = re.findall(r"^### (.+)$", text_of("proxy/telemetry/LOGS.md"), re.MULTILINE)

    assert len(set(described)) == len(described)
    assert set(described) == logged_events()


def test_annotations_of_the_example_are_accepted() -> None:
    manifest = re.search(r"  annotations:\n((?:    \S+: .*\n)+)", section("helm/README.md", "Injection"))
    assert manifest is not None
    lines = [line.strip().partition(": ") for line in manifest[1].splitlines()]
    annotations = {name: text.strip('"') for name, _, text in lines}

    assert is_on(annotations)
    asked = injection_request(annotations, Defaults({"image": "i"}))
    assert (asked.env, asked.address) == (("KAFKA_BOOTSTRAP_SERVERS",), "127.0.0.1:9092")


def test_deploy_commands_of_the_readme_are_those_of_the_deploy_page() -> None:
    def commands(text: str) -> list[str]:
        return re.findall(r"^    ((?:docker|helm|kubectl) .*)$", text, re.MULTILINE)

    assert commands(section("README.md", "Deploy"))[:5] == commands(section("deploy/README.md", "Kubernetes"))[:5]


def test_sources_of_a_rack_are_those_that_are_tried() -> None:
    named = re.findall(r"^\| `(env:\w+|file:[\w/]+|kubernetes)` \|", CLOSEST, re.MULTILINE)

    assert named == list(map(str, RoutingConfig().rack_from))


def test_manifests_for_racks_set_the_variables_that_are_read() -> None:
    manifests = re.findall(r"```yaml\n(.*?)```", CLOSEST, re.DOTALL)
    variables = {
        name for manifest in manifests for name in re.findall(r"- name: ([A-Z_]+)$", manifest, re.MULTILINE)
    }
    env, _, _ = RoutingConfig().rack_from

    assert variables == {env.name, NODE_NAME}
    assert f"metadata.labels['{ZONE_LABEL}']" in manifests[0]
    assert "spec.nodeName" in manifests[1]
    assert "resources: [nodes]\n    verbs: [get]\n" in manifests[1]


def test_traffic_fields_have_the_names_of_the_program() -> None:
    traffic = Traffic()
    traffic.add_records("t", "a", True, 1)
    names = set(re.findall(r"`(\w+_(?:bytes|topic))`", CLOSEST))

    assert names
    assert names <= set(traffic.as_log_fields())


def test_log_events_of_the_rack_section_are_logged() -> None:
    events = logged_events()

    for event in ("rack-found", "rack-unknown", "no-broker-in-rack", "traffic-summary", "stopped"):
        assert f"`{event}`" in CLOSEST
        assert event in events


def test_anchors_are_those_that_github_makes() -> None:
    page = "# A `b`: c, d\n## What if\n```\n# no heading\n```\n## What if\n### [x](y)-z_1\n"

    assert anchors(page) == {"a-b-c-d", "what-if", "what-if-1", "x-z_1"}


def test_section_ends_at_the_next_heading_of_its_level(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n\n## B\n1\n\n### C\n2\n\n## D\n3\n", encoding="utf-8")

    assert section(str(page), "B") == "1\n\n### C\n2\n\n"
    assert section(str(page), "C") == "2\n\n"
