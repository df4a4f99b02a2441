"""The rack in files and in responses of the Kubernetes API."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.option_types import RACK
from proxy.config.rack import ZONE_LABEL, rack_in_file, rack_in_node, rack_name

LABELS = 'app="orders"\npod-template-hash="5f7"\ntopology.kubernetes.io/region="eu"\n'


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("eu-1a", "eu-1a"),
        ("eu-1a\n", "eu-1a"),
        ("\n  rack 7, hall 2\r\n\n", "rack 7, hall 2"),
        ("a=b", "a=b"),
        (f'{LABELS}{ZONE_LABEL}="eu-1a"', "eu-1a"),
        (f'{ZONE_LABEL}="eu-1a"\n{LABELS}', "eu-1a"),
        (f'x-{ZONE_LABEL}="no"\n{ZONE_LABEL}="eu-1a"\n', "eu-1a"),
    ],
)
def test_a_file_has_the_name_alone_or_labels_with_the_zone(text: str, zone: str) -> None:
    assert rack_in_file(text) == zone


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        (" \n\n", "it is empty"),
        (f'{ZONE_LABEL}=""\n', "it is empty"),
        (LABELS, r"topology.kubernetes.io/zone is not among its labels \(there are 3\)"),
        ("eu-1a\neu-1b\n", "it has 2 lines that are no labels"),
        ("a\tb", "it has 3 characters that are no name of a rack"),
        ("r" * 256, "it has 256 characters that are no name of a rack"),
    ],
)
def test_rack_file_without_zone_is_refused_with_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{why}"):
        rack_in_file(text)


@given(st.text())
def test_whatever_a_file_holds_it_has_a_rack_or_a_reason(text: str) -> None:
    try:
        name = rack_in_file(text)
    except ValueError:
        return
    assert RACK.parse(name) == name == rack_name(name)


def node(labels: object) -> bytes:
    return json.dumps({"kind": "Node", "metadata": {"name": "n", "labels": labels}}).encode()


def test_a_nodes_zone_is_its_label() -> None:
    assert rack_in_node(node({"kubernetes.io/hostname": "n", ZONE_LABEL: "eu-1a"})) == "eu-1a"


@pytest.mark.parametrize("labels", [None, {}, {"failure-domain.beta.kubernetes.io/zone": "x"}, {ZONE_LABEL: 1}])
def test_a_node_may_have_no_zone(labels: object) -> None:
    with pytest.raises(ValueError, match=f"the node has no label {ZONE_LABEL}"):
        rack_in_node(node(labels))


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff", b"[]", b"null", b"{}", b'{"metadata": 1}', b'{"metadata": {"labels": 1}}', b"[" * 100_000],
)
def test_malformed_node_response_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="the response is no node"):
        rack_in_node(body)


def test_a_nodes_zone_may_be_no_rack() -> None:
    with pytest.raises(ValueError, match="it is empty"):
        rack_in_node(node({ZONE_LABEL: ""}))
