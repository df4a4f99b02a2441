"""The declared attributes of spans, compared with OpenTelemetry's own names."""

import re

from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv.attributes import client_attributes, error_attributes, server_attributes

from proxy.telemetry.attributes import ATTRIBUTES, SPANS


def test_attributes_without_sidefetch_prefix_are_opentelemetry_names() -> None:
    theirs = {
        value
        for module in (messaging_attributes, client_attributes, error_attributes, server_attributes)
        for name, value in vars(module).items()
        if name.isupper()
    }

    assert {each.name for each in ATTRIBUTES if not each.name.startswith("sidefetch.")} <= theirs


def test_names_are_declared_once_and_none_is_a_namespace_of_another() -> None:
    names = [each.name for each in ATTRIBUTES]

    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(\.[a-z][a-z_]*)+", name) for name in names)
    assert not [(one, other) for one in names for other in names if other.startswith(f"{one}.")]
    assert len({each.name for each in SPANS}) == len(SPANS)


def test_only_integer_attributes_have_units() -> None:
    for each in ATTRIBUTES:
        assert each.unit in ("", "By", "us", "ms") or re.fullmatch(r"\{[a-z]+\}", each.unit), each.name
        assert not (each.unit and each.type not in ("int", "int[]")), each.name
        assert each.meaning.endswith("."), each.name
