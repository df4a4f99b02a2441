import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from proxy.analysis import ingest, layout, streaming
from proxy.errors import ConfigError
from tests.analysis.rows import row, write_lines

_DAY_US = 86_400_000_000
_NOW = streaming.TriggerSettings(every=None)


def _fetch(seq: int, day: int = 20_000, **fields: Any) -> str:
    return json.dumps(row("fetch", seq=seq, at_us=day * _DAY_US + seq, **fields))


def _drain(spark: SparkSession, source: Path, out: Path) -> None:
    query = streaming.start(streaming.from_folder(spark, str(source)), str(out), _NOW)
    assert query.awaitTermination(300)
    assert query.exception() is None


def _days(spark: SparkSession, out: Path) -> list[tuple[int, str, str]]:
    rows = spark.read.parquet(str(out)).where("record = 'fetch'").selectExpr("seq", "string(day)", "cluster_id")
    return sorted(tuple(each) for each in rows.collect())


def test_a_batch_is_written_by_record_day_and_cluster_and_read_as_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = [
        _fetch(0, 20_000, cluster_id="a/b"),
        _fetch(1, 20_001, cluster_id="7"),
        _fetch(1, 20_001, cluster_id="7"),
    ]
    write_lines(tmp_path / "in" / "p-0-2.jsonl", [*lines, _fetch(2, 20_001, cluster_id=None), "torn", "torn"])
    rows = ingest.read_wide(spark, str(tmp_path / "in"))

    layout.write(rows, str(tmp_path / "out"))

    folders = {path.parent.relative_to(tmp_path / "out").as_posix() for path in tmp_path.glob("out/**/*.parquet")}
    unknown = "__HIVE_DEFAULT_PARTITION__"
    assert folders == {
        "record=fetch/day=2024-10-04/cluster_id=a%2Fb",
        "record=fetch/day=2024-10-05/cluster_id=7",
        f"record=fetch/day=2024-10-05/cluster_id={unknown}",
        f"record=bad/day={unknown}/cluster_id={unknown}",
    }
    found = ingest.read(spark, [str(tmp_path / "out"), str(tmp_path / "in")])
    assert {each["seq"]: each["cluster_id"] for each in found.ledger.fetch.collect()} == {0: "a/b", 1: "7", 2: None}
    assert [(each["row"], each["reason"]) for each in found.bad.collect()] == [
        ("torn", "not a JSON object, or truncated")
    ]


def test_stream_writes_each_row_once_and_resumes_after_restart(spark: SparkSession, tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    write_lines(source / "p-0-2.jsonl", [_fetch(0), _fetch(1), _fetch(1), "torn"])
    write_lines(source / ".p-2.open", [_fetch(9)])
    _drain(spark, source, out)
    assert _days(spark, out) == [(0, "2024-10-04", "cluster"), (1, "2024-10-04", "cluster")]

    write_lines(source / "p-2-9.jsonl", [_fetch(1), _fetch(2, 30_000), _fetch(3, 10)])
    _drain(spark, source, out)
    write_lines(source / "q-0-1.jsonl", [_fetch(4, 10), _fetch(5, proxy_id="other")])
    _drain(spark, source, out)

    assert [(seq, day) for seq, day, _ in _days(spark, out)] == [
        (0, "2024-10-04"),
        (1, "2024-10-04"),
        (2, "2052-02-20"),
        (3, "1970-01-11"),
        (4, "1970-01-11"),
        (5, "2024-10-04"),
    ]
    assert [each["row"] for each in ingest.read(spark, str(out)).bad.collect()] == ["torn"]


def test_leftover_file_of_killed_batch_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    write_lines(source / "p-0-1.jsonl", [_fetch(0)])
    _drain(spark, source, out)
    (written,) = out.glob("record=fetch/*/*/*.parquet")

    written.with_name(f"part-left-behind{written.suffix}").write_bytes(written.read_bytes())

    assert len(_days(spark, out)) == 1


def test_stream_refuses_foreign_folder_or_missing_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "p-0-1.jsonl", [_fetch(0)])
    lines = streaming.from_folder(spark, str(tmp_path / "in"))
    with pytest.raises(ConfigError, match="not empty, and not the folder of a stream"):
        streaming.start(lines, str(tmp_path / "in"))

    (tmp_path / "out" / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(ConfigError, match="its _checkpoint is missing"):
        streaming.start(lines, str(tmp_path / "out"))
