"""Turns, medians, ratios."""

import json

from tests.bench.frame import (
    Expectation,
    Figure,
    Table,
    Way,
    as_json,
    in_turns,
    measure,
    measure_all,
    percentile,
    render,
)


def test_ways_take_turns_and_each_round_begins_with_another() -> None:
    order: list[str] = []

    def way(name: str, value: float) -> Way:
        def run() -> float:
            order.append(name)
            return value

        return Way(name, run)

    table = measure("case", "s", [way("a", 1), way("b", 2), way("c", 3)], rounds=3, show_progress=lambda _: None)

    assert order == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert table.values == {"a": [1, 1, 1], "b": [2, 2, 2], "c": [3, 3, 3]}


def test_each_round_is_reported() -> None:
    printed: list[str] = []

    measure("case", "MB/s", [Way("direct", lambda: 2300.4)], rounds=2, show_progress=printed.append)

    assert printed == ["case, round 1 of 2: direct 2,300 MB/s", "case, round 2 of 2: direct 2,300 MB/s"]


TABLE = Table("reading", "MB/s", {"direct": [2000, 1000, 3000], "through": [1000, 500, 600]}).expecting(
    Expectation("at least 0.3 of direct", is_met=True), Expectation("at least 0.9 of direct", is_met=False)
)


def test_first_way_is_baseline_of_ratios() -> None:
    assert TABLE.median("direct") == 2000
    assert TABLE.ratio("through") == 0.3


def test_nothing_is_compared_with_zero() -> None:
    assert Table("idle", "B", {"direct": [0], "through": [1]}).ratio("through") == 0


def test_table_is_rendered_with_spread_ratio_and_expectations() -> None:
    lines = render([TABLE]).splitlines()

    assert [line.split() for line in lines] == [
        ["case", "way", "median", "spread", "ratio"],
        ["-" * len(lines[0])],
        ["reading", "direct", "2,000", "MB/s", "1,000", "to", "3,000"],
        ["through", "600", "MB/s", "500", "to", "1,000", "0.3"],
        [],
        ["met", "at", "least", "0.3", "of", "direct"],
        ["MISSED", "at", "least", "0.9", "of", "direct"],
    ]


def test_json_has_every_value() -> None:
    (case,) = json.loads(json.dumps(as_json([TABLE])))

    assert case["ways"]["direct"] == {"median": 2000, "ratio": 1, "values": [2000, 1000, 3000]}
    assert [expectation["is_met"] for expectation in case["expectations"]] == [True, False]


def test_in_turns_gives_whatever_a_way_returns() -> None:
    ways = {"a": lambda: "x", "b": lambda: "y"}

    assert list(in_turns(ways, rounds=2)) == [(0, "a", "x"), (0, "b", "y"), (1, "b", "y"), (1, "a", "x")]


def test_each_figure_of_a_measurement_has_a_table_of_the_ways_that_have_it() -> None:
    speed, own = Figure("speed", "MB/s"), Figure("CPU of Sidefetch", "ms")
    printed: list[str] = []

    tables = measure_all(
        "case",
        {"direct": lambda: {speed: 4.0}, "Sidefetch": lambda: {speed: 2.0, own: 7.0}},
        rounds=2,
        show_progress=printed.append,
    )

    assert tables == {
        speed: Table("case: speed", "MB/s", {"direct": [4, 4], "Sidefetch": [2, 2]}),
        own: Table("case: CPU of Sidefetch", "ms", {"Sidefetch": [7, 7]}),
    }
    assert printed[1] == "case, round 1 of 2: Sidefetch: speed 2 MB/s, CPU of Sidefetch 7 ms"


def test_a_percentile_is_one_of_the_values() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]

    assert [percentile(values, percent) for percent in (0, 20, 50, 99, 100)] == [1, 1, 3, 5, 5]
    assert percentile(range(1, 201), 99) == 198
