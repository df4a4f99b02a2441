"""The values of ``--allowed-apis``: sets of APIs, and single ones."""

import itertools

import pytest

from proxy.config.allowed_apis import ALL_APIS, API_NAMES, AllowedApis
from proxy.wire.apis import KNOWN_KEYS, ApiKey

ALWAYS = {ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
ADMINISTRATIVE = {
    *("UnregisterBroker", "IncrementalAlterConfigs", "CreateAcls", "Envelope", "DeleteGroups", "WriteTxnMarkers"),
}


def names(text: str) -> set[str]:
    return {API_NAMES[key] for key in AllowedApis.parse(text).keys - ALWAYS}


def test_all_apis_that_sidefetch_knows_are_allowed_by_default() -> None:
    assert ALL_APIS.keys >= KNOWN_KEYS


def test_sets_are_disjoint_and_allow_no_administrative_api() -> None:
    sets = [names(each) for each in ("clients", "describe", "topics")]

    assert all(one.isdisjoint(other) for one, other in itertools.combinations(sets, 2))
    assert all(name.startswith(("Describe", "List")) or name.endswith("Describe") for name in sets[1])
    assert set().union(*sets).isdisjoint(ADMINISTRATIVE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("topics", {"CreateTopics", "DeleteTopics", "CreatePartitions", "DeleteRecords"}),
        ("ListOffsets, Fetch", {"ListOffsets", "Fetch"}),
        (
            "topics,ListOffsets",
            {"CreateTopics", "DeleteTopics", "CreatePartitions", "DeleteRecords", "ListOffsets"},
        ),
    ],
)
def test_names_add_up(text: str, expected: set[str]) -> None:
    assert names(text) == expected
    assert AllowedApis.parse(str(AllowedApis.parse(text))) == AllowedApis.parse(text)


@pytest.mark.parametrize("text", ["", "clients,", "listoffsets", "client", "all;topics"])
def test_unknown_name_is_refused_and_the_error_lists_the_sets(text: str) -> None:
    with pytest.raises(ValueError, match="is neither all, clients, describe, topics nor the name of an API"):
        AllowedApis.parse(text)
