"""``python -m tests.bench_spark [--quick]``: print tables, write ``bench-spark-TIME.json``."""

import argparse
import io
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from proxy.analysis.frames import LedgerFrames
from proxy.analysis.generate.frames import generate, repeat_ledger
from proxy.analysis.generate.mix import FleetMix
from proxy.analysis.generate.sidecar import sidecar_rows
from proxy.analysis.schemas import SCHEMAS
from proxy.cli.spark import spark_at
from tests.bench.frame import Expectation, Table, Way, as_json, measure, render
from tests.bench_spark import whole
from tests.bench_spark.queries import QUERIES, by_duckdb, by_spark
from tests.checkout import commit

_MILLIONS: Final = (1.0, 10.0, 50.0)
_QUICK_MILLIONS: Final = (0.1, 0.4)
_WHOLE_MILLIONS: Final = (0.5, 2.0)
"""Sizes of the ledgers that pass through the jobs, in lines of some 850 bytes."""
_QUICK_WHOLE_MILLIONS: Final = (0.05, 0.2)
_SIDECARS, _HOURS, _SEED = 24, 6, 1
_MOST_FALL: Final = 0.5
"""Rows a second of the most rows, of those of the fewest: less is not near linear."""
_ROOT: Final = Path(__file__).parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    """0: rows a second hold as rows grow. 1: they do not."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench_spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds; figures that vary more")
    parser.add_argument("--millions", type=float, nargs="+", help="how many rows [default: 1 10 50]")
    arguments = parser.parse_args(argv)
    millions = arguments.millions or (_QUICK_MILLIONS if arguments.quick else _MILLIONS)
    started = datetime.now(UTC)
    cores = os.cpu_count() or 1
    sizes: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory(prefix="sidefetch-bench-") as folder,
        spark_at(f"local[{cores}]", {"spark.driver.memory": "4g", "spark.local.dir": folder}) as spark,
    ):
        rounds = 2 if arguments.quick else 3
        tables = _measured(spark, Path(folder), millions, rounds, cores, sizes)
        whole_millions = _QUICK_WHOLE_MILLIONS if arguments.quick else _WHOLE_MILLIONS
        tables += _measured_whole(spark, Path(folder), whole_millions, rounds)
    print(f"\n{render(tables)}")
    path = _ROOT / f"bench-spark-{started:%Y%m%d-%H%M%S}.json"
    about = {"at": started.isoformat(timespec="seconds"), "machine": _machine(), "bytes_a_row": _bytes_a_row()}
    path.write_text(
        json.dumps({**about, "sizes": sizes, "cases": as_json(tables)}, indent=2) + "\n", encoding="utf-8"
    )
    print(f"\n{json.dumps(about['machine'])}\nevery value is in {path.name}")
    return 0 if all(each.is_met for table in tables for each in table.expectations) else 1


def _measured(
    spark: SparkSession,
    folder: Path,
    millions: Sequence[float],
    rounds: int,
    cores: int,
    sizes: list[dict[str, Any]],
) -> list[Table]:
    base, base_rows = _base(spark, folder)
    tables: list[Table] = []
    for size in millions:
        copies = max(1, round(size * 1e6 / base_rows))
        made_s = time.perf_counter()
        path = _tiles(base, folder / f"{size:g}", copies)
        made_s = time.perf_counter() - made_s
        rows = base_rows * copies
        size_bytes = sum(each.stat().st_size for each in path.glob("*.parquet"))
        sizes.append({"rows": rows, "tiled_bytes_a_row": size_bytes / rows, "written_rows_a_s": rows / made_s})
        _show_progress(
            f"{rows:,} rows of exchanges, {size_bytes / 1e6:,.0f} MB as Parquet, in which copies take little"
        )
        runs = {"DuckDB": by_duckdb(path, cores), "Spark": by_spark(spark, path)}
        for query in QUERIES:
            ways = [Way(name, _rate(run[query.name], rows)) for name, run in runs.items()]
            for way in ways:
                way.run()
            tables.append(
                measure(f"{rows:,} rows: {query.name}", "rows/s", ways, rounds=rounds, show_progress=_show_progress)
            )
        for each in path.glob("*"):
            each.unlink()
    return _grown(tables, len(QUERIES))


def _measured_whole(spark: SparkSession, folder: Path, millions: Sequence[float], rounds: int) -> list[Table]:
    base = _as_parquet(generate(spark, FleetMix(), _SEED, _SIDECARS, _HOURS), folder / "all")
    base_rows = sum(getattr(base, record).count() for record in SCHEMAS)
    tables: list[Table] = []
    for size in millions:
        copies = max(1, round(size * 1e6 / base_rows))
        lines = whole.written_lines(repeat_ledger(base, copies, days=7), folder / f"lines-{size:g}")
        size_bytes = sum(each.stat().st_size for each in lines.glob("*/*.jsonl"))
        _show_progress(f"{base_rows * copies:,} rows of all records, {size_bytes / 1e6:,.0f} MB as JSON")
        for job, run in whole.by_spark(spark, lines).items():
            ways = [Way("Spark", _rate(run, base_rows * copies))]
            tables.append(
                measure(
                    f"{base_rows * copies:,} rows: {job}",
                    "rows/s",
                    ways,
                    rounds=rounds,
                    show_progress=_show_progress,
                )
            )
        shutil.rmtree(lines)
    return _grown(tables, len(whole.JOBS))


def _as_parquet(ledger: LedgerFrames, folder: Path) -> LedgerFrames:
    """Write the ledger once, because generated frames are computed again for each use."""

    def kept(frame: DataFrame, path: str) -> DataFrame:
        frame.write.parquet(path)
        return frame.sparkSession.read.schema(frame.schema).parquet(path)

    return LedgerFrames(**{record: kept(getattr(ledger, record), str(folder / record)) for record in SCHEMAS})


def _base(spark: SparkSession, folder: Path) -> tuple[DataFrame, int]:
    """Exchanges of a few sidecars, generated once."""
    _show_progress("generating rows")
    exchange = generate(spark, FleetMix(), _SEED, _SIDECARS, _HOURS).exchange
    exchange.write.parquet(str(folder / "base"))
    base = spark.read.parquet(str(folder / "base"))
    return base, base.count()


def _tiles(base: DataFrame, path: Path, copies: int) -> Path:
    """Write so many copies, spread over a week, in files that are large enough."""
    ledger = LedgerFrames(exchange=base, fetch=base, session=base, client=base, topology=base, lost=base)
    repeat_ledger(ledger, copies, days=7).exchange.write.parquet(str(path))
    return path


def _rate(run: Callable[[], int], rows: int) -> Callable[[], float]:
    def measured() -> float:
        began_s = time.perf_counter()
        assert run() > 0
        return rows / (time.perf_counter() - began_s)

    return measured


def _grown(tables: list[Table], each: int) -> list[Table]:
    """Hold the rate with the most rows against that with the fewest, for *each* question of a size."""
    if len(tables) == each:
        return tables
    for place in range(each):
        first, last = tables[place], tables[place - each]
        ratio = last.median("Spark") / first.median("Spark")
        text = f"{last.case}: {ratio:.2f} of the rows a second of the fewest rows, at least {_MOST_FALL}"
        tables[place - each] = last.expecting(Expectation(text, is_met=ratio >= _MOST_FALL))
    return tables


def _bytes_a_row() -> dict[str, float]:
    """Return the size of generated rows of all records without copies, as lines and as Parquet."""
    rows = [row for index in range(_SIDECARS) for row in sidecar_rows(FleetMix(), _SEED, index, _HOURS)]
    lines = sum(len(json.dumps(row, separators=(",", ":"))) + 1 for row in rows)
    parquet = 0
    for record, schema in SCHEMAS.items():
        file = io.BytesIO()
        own = [row for row in rows if row["record"] == record]
        pq.write_table(pa.Table.from_pylist(own, to_arrow_schema(schema)), file)
        parquet += file.tell() if own else 0
    rows_a_day = len(rows) / _SIDECARS * 24 / _HOURS
    return {"json": lines / len(rows), "parquet": parquet / len(rows), "rows_a_sidecar_and_day": rows_a_day}


def _machine() -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "load": [round(each, 1) for each in os.getloadavg()],
        **{name: version(name) for name in ("pyspark", "duckdb")},
        "commit": commit(),
    }


def _show_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
