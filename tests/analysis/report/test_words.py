import pytest

from proxy.analysis.report.model import Unit, Value
from proxy.analysis.report.words import in_words, plural


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0, "bytes", "0 B"),
        (999, "bytes", "999 B"),
        (1_000, "bytes", "1 kB"),
        (1_234_567, "bytes", "1.23 MB"),
        (-45_600_000_000, "bytes", "−45.6 GB"),
        (123_400_000_000_000, "bytes", "123 TB"),
        (12, "us", "12 µs"),
        (1_500, "us", "1.50 ms"),
        (90_000_000, "us", "1.50 min"),
        (3 * 86_400_000_000, "us", "3 days"),
        (999_999, "count", "999,999"),
        (48_211_034, "count", "48.2 million"),
        (0.0312, "share", "3.12 %"),
        (1, "share", "100 %"),
        (0.5, "usd", "$0.50"),
        (0.0004, "usd", "under $0.01"),
        (12_345.6, "usd", "$12,346"),
        (0, "at_us", "1970-01-01 00:00"),
        (None, "bytes", "–"),
        ("", "text", "–"),
        ("billing", "text", "billing"),
    ],
)
def test_values_are_formatted_with_units(value: Value, unit: Unit, expected: str) -> None:
    assert in_words(value, unit) == expected


def test_singular_is_used_only_for_one() -> None:
    assert [plural(n, "row") for n in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]
    assert plural(2, "process", "processes") == "2 processes"
