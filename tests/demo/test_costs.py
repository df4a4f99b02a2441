"""The sums of costs, and their display."""

import io
import re

from proxy.demo.costs import CostRow, CostTable, FetchCost, compare_costs, rack_table, size


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def row(seconds: float, to_brokers: int = 100, way: str = "directly") -> CostRow:
    return CostRow(way, seconds, FetchCost(fetches=2, named=2000, to_brokers=to_brokers, from_brokers=0), records=5)


def test_costs_since_then() -> None:
    assert FetchCost(5, 50, 500, 5000) - FetchCost(1, 2, 3, 4) == FetchCost(4, 48, 497, 4996)
    assert FetchCost(1, 2, 3, 4).both_ways == 7
    later, earlier = FetchCost(from_racks={"a": 5, "b": 7}), FetchCost(from_racks={"b": 3})
    assert (later - earlier).from_racks == {"a": 5, "b": 4}


def test_sizes_have_three_digits_or_so() -> None:
    assert [size(n) for n in (0, 999, 1000, 46_300, 463_000, 5_900_000, 7 * 10**9, 5 * 10**12)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "46.3 kB",
        "463 kB",
        "5.9 MB",
        "7.0 GB",
        "5000 GB",
    ]


def test_a_pipe_gets_a_line_every_few_seconds_and_the_last() -> None:
    out = io.StringIO()
    table = CostTable(out)

    for seconds in (0, 1, 2, 3, 4):
        table.write_row(row(seconds))
    table.write_row(row(5), last=True)
    table.write_row(row(0, way="through"))

    assert [line.split()[:2] for line in out.getvalue().splitlines()] == [
        ["directly", "0"],
        ["directly", "3"],
        ["directly", "5"],
        ["through", "0"],
    ]


def test_a_terminal_gets_one_line_redrawn_for_each_way() -> None:
    out = Terminal()
    table = CostTable(out)

    table.write_row(row(0))
    table.write_row(row(1), last=True)
    table.write_row(row(0, way="through"))

    assert out.getvalue().count("\n") == 3
    assert out.getvalue().count("\x1b[1A\x1b[2K") == 1


def test_cost_comparison_names_direction_and_factor() -> None:
    assert "41 times fewer bytes" in compare_costs(row(5, 41_000), row(5, 1000))
    assert "2.5 times fewer bytes" in compare_costs(row(5, 2500), row(5, 1000))
    assert "about the same" in compare_costs(row(5, 1000), row(5, 1000))
    assert "2.0 times more bytes" in compare_costs(row(5, 500), row(5, 1000))
    assert "1.0 kB instead of 41.0 kB" in compare_costs(row(5, 41_000), row(5, 1000))


def test_racks_of_records_are_shown_with_the_share_of_the_readers_own_rack() -> None:
    direct = CostRow("directly", 5, FetchCost(from_racks={"a": 10, "b": 10, "c": 1000}), 1)
    through = CostRow("through Sidefetch", 5, FetchCost(from_racks={"a": 0, "b": 2000, "c": 0}), 1)
    nearly = CostRow("nearly", 5, FetchCost(from_racks={"a": 1, "b": 1999, "c": 0}), 1)
    nothing = CostRow("nothing", 5, FetchCost(), 0)

    lines = rack_table([direct, through, nearly, nothing], "b").splitlines()

    assert [re.split(" {2,}", line.strip()) for line in lines] == [
        ["rack a", "rack b", "rack c", "from rack b"],
        ["directly", "10 B", "10 B", "1.0 kB", "0 %"],
        ["through Sidefetch", "0 B", "2.0 kB", "0 B", "100 %"],
        ["nearly", "1 B", "2.0 kB", "0 B", "99 %"],
        ["nothing", "0 B", "0 B", "0 B", "-"],
    ]
