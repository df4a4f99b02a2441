"""The table of upgrades as a whole."""

import subprocess
import sys

import pytest
from kio.index import load_request_schema

from proxy.convert.versions.table import TARGETS, UPGRADES, markdown_table, serves
from proxy.errors import MalformedFrame
from proxy.wire.apis import VersionRange, is_accepted, offered_ranges
from tests.wire.broker_versions import BROKERS

REMOVED = {
    0: [0, 1, 2], 1: [0, 1, 2, 3], 2: [0], 8: [0, 1], 9: [0], 11: [0, 1], 19: [0, 1], 20: [0], 23: [0, 1],
    29: [0], 30: [0], 31: [0], 32: [0], 34: [0], 35: [0], 38: [0], 39: [0], 40: [0], 41: [0],
}  # fmt: skip
"""The versions by KIP-896, and those of JoinGroup by 4.0.0."""


def test_every_version_that_kafka_4_removed_is_upgraded() -> None:
    assert sorted(UPGRADES) == [(key, version) for key, versions in REMOVED.items() for version in versions]


def test_api_module_is_imported_with_its_first_upgrade() -> None:
    program = (
        "import sys; from proxy.convert.versions.table import UPGRADES, TARGETS;"
        " (11, 0) in UPGRADES and len(UPGRADES);"
        " before = {*sys.modules}; UPGRADES[11, 0]; print(*{*sys.modules} - before)"
    )
    reported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    versions = {each.rpartition(".")[2] for each in reported.split() if each.startswith("proxy.convert.versions.")}
    assert versions == {"join_group", "entities"}


@pytest.mark.parametrize("version", [(11, 2), (3, 0), (999, 0)])
def test_version_without_an_upgrade_is_not_in_the_table(version: tuple[int, int]) -> None:
    assert version not in UPGRADES
    assert UPGRADES.get(version) is None


@pytest.mark.parametrize(("key", "version"), UPGRADES)
def test_upgrade_targets_the_oldest_version_that_was_kept(key: int, version: int) -> None:
    upgrade = UPGRADES[key, version]
    assert (upgrade.key, upgrade.version, upgrade.to) == (key, version, TARGETS[key, version])
    assert upgrade.to == REMOVED[key][-1] + 1
    assert load_request_schema(key, TARGETS[key, version])
    assert is_accepted(key, version)


@pytest.mark.parametrize(("key", "version"), [each for each in UPGRADES if UPGRADES[each].steps])
def test_a_request_that_is_cut_short_is_malformed_or_passes_as_it_is(key: int, version: int) -> None:
    upgrade = UPGRADES[key, version]
    assert upgrade.steps is not None
    try:
        step = next(upgrade.steps(memoryview(b"\0")))
    except MalformedFrame:
        return
    assert b"".join(step.body).startswith(b"\0")  # type: ignore[union-attr]  # only requests pass as they are


def test_a_broker_that_serves_the_old_versions_is_offered_as_it_is() -> None:
    served = {key: VersionRange(*range_) for key, range_ in BROKERS["3.9"].items() if key != 55}

    assert offered_ranges(served, TARGETS) == served


def test_in_front_of_kafka_4_everything_is_offered_from_0() -> None:
    reported = offered_ranges({key: VersionRange(*range_) for key, range_ in BROKERS["4.3"].items()}, TARGETS)

    assert {key: range_.first for key, range_ in reported.items()} == dict.fromkeys(reported, 0)
    assert reported[1] == VersionRange(0, 18)
    assert reported[2] == VersionRange(0, 11)


def test_versions_that_cannot_be_upgraded_are_not_offered() -> None:
    assert offered_ranges({2: VersionRange(2, 11)}, TARGETS)[2] == VersionRange(2, 11)
    assert offered_ranges({11: VersionRange(2, 9)}, TARGETS)[11] == VersionRange(0, 9)
    assert offered_ranges({11: VersionRange(3, 9)}, TARGETS)[11] == VersionRange(3, 9)
    assert 8 not in offered_ranges({}, TARGETS)


@pytest.mark.parametrize(
    ("broker", "produce_v2", "produce_v3", "join_v0", "commit_v1"),
    [("4.3", False, True, True, False), ("4.0", False, True, True, False), ("3.9", True, True, True, True)],
)
def test_versions_that_need_no_upgrade_depend_on_the_broker_release(
    broker: str, produce_v2: bool, produce_v3: bool, join_v0: bool, commit_v1: bool
) -> None:
    """Check that Produce v0 to v2 are upgraded: Kafka 4 lists them, and closes the connection on them."""
    served = {key: VersionRange(*range_) for key, range_ in BROKERS[broker].items()}

    assert serves(served, 0, 2) == produce_v2
    assert serves(served, 0, 3) == produce_v3
    assert serves(served, 11, 0) == join_v0
    assert serves(served, 8, 1) == commit_v1
    assert not serves(served, 999, 0)


def test_markdown_table_has_a_row_for_every_version() -> None:
    table = markdown_table()

    for upgrade in UPGRADES.values():
        assert f"| {upgrade.api} |" in table
        assert upgrade.loses in table
