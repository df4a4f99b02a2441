import gzip
import json
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from pyspark.sql import DataFrame, SparkSession

from proxy.analysis import ingest
from proxy.analysis.lines import BAD_ROWS
from proxy.analysis.schemas import SCHEMAS
from proxy.errors import ConfigError
from proxy.telemetry.ledger import RECORDS
from tests.analysis.rows import row, write_lines

_SHARE: Final = {
    "topic": None,
    "node": 1,
    "rack": None,
    "leader_node": 2,
    "leader_rack": "b",
    "wanted": 3,
    "bytes": 4,
    "request_share_bytes": 5,
}


def _line(record: str, **fields: Any) -> str:
    return json.dumps(row(record, **fields), separators=(",", ":"))


def _without(line: str, *columns: str) -> str:
    return json.dumps({name: value for name, value in json.loads(line).items() if name not in columns})


def _with(line: str, **columns: Any) -> str:
    return json.dumps(json.loads(line) | columns)


def _seqs(frame: DataFrame) -> list[int]:
    return sorted(each["seq"] for each in frame.select("seq").collect())


GOOD: Final = _line("fetch", seq=1, fetcher_id="1-1", fetcher="live", kind="full")
EXCHANGE: Final = _line("exchange", seq=2, sources=[_SHARE], errors=[{"code": 3, "n": 1}])

BAD: Final[dict[str, tuple[str, str]]] = {
    "cut off": (GOOD[:-20], "not a JSON object, or truncated"),
    "no JSON": ("\0\0\0", "not a JSON object, or truncated"),
    "quotes of another kind": (GOOD.replace('"', "'"), "not a JSON object, or truncated"),
    "an array": (f"[{GOOD}]", "not a JSON object, or truncated"),
    "a number": ("5", "not a JSON object, or truncated"),
    "two rows in a line": (GOOD + GOOD, "more text follows the row on its line"),
    "two rows and a space": (f"{GOOD} {{ {GOOD[1:]}", "more text follows the row on its line"),
    "a tail": (GOOD + "xyz", "more text follows the row on its line"),
    "a newer schema": (
        _with(GOOD, schema=2, seq="now a text"),
        "schema: 2 is newer than 1: upgrade the Sidefetch that reads it",
    ),
    "no schema": (_without(GOOD, "schema"), "schema: missing, or not 1"),
    "an older schema": (_with(GOOD, schema=0), "schema: missing, or not 1"),
    "no record": (_without(GOOD, "record"), "record: missing or null"),
    "an unknown record": (
        _with(GOOD, record="batches"),
        f"record: 'batches' is not one of {', '.join(RECORDS)}",
    ),
    "a missing column": (_without(GOOD, "seq"), "seq: missing, null or not of type long"),
    "a null": (_with(GOOD, fetcher=None), "fetcher: missing, null or not of type string"),
    "two wrong columns": (
        _with(_without(GOOD, "size"), node="1"),
        "node: missing, null or not of type long; size: missing, null or not of type long",
    ),
    "a text for a number": (_with(GOOD, seq="1"), "seq: missing, null or not of type long"),
    "a fraction for a long": (_with(GOOD, seq=1.5), "seq: missing, null or not of type long"),
    "more than a long": (_with(GOOD, seq=2**63), "seq: missing, null or not of type long"),
    "a number for a text": (_with(GOOD, fetcher=5), "fetcher: not of type string"),
    "an object for a text that may be null": (_with(GOOD, rack={"a": 1}), "rack: not of type string"),
    "a text for a number that may be null": (
        _with(EXCHANGE, converted_to="none"),
        "converted_to: not of type long",
    ),
    "a weight that is none": (_with(GOOD, weight=-1.0), "weight: not positive and finite"),
    "a weight that is no number": (_with(GOOD, weight="NaN"), "weight: missing, null or not of type double"),
    "a time that is none": (_with(GOOD, at_us=2**62), "at_us: not between 1970 and 9999"),
    "no array": (_with(EXCHANGE, sources={}), "sources: missing, null or not of type array"),
    "a null in an array": (_with(EXCHANGE, sources=[None]), "sources: has an invalid item"),
    "an item that lacks a column": (_with(EXCHANGE, errors=[{"code": 3}]), "errors: has an invalid item"),
    "an item with another type": (_with(EXCHANGE, errors=[{"code": 3, "n": "1"}]), "errors: has an invalid item"),
    "a number for an item's text": (
        _with(EXCHANGE, sources=[{**_SHARE, "rack": 7}]),
        "sources: has an invalid item",
    ),
}


def test_each_bad_row_is_kept_with_its_text_the_reason_and_its_file(spark: SparkSession, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p-0-9.jsonl", [GOOD, *(text for text, _ in BAD.values()), EXCHANGE])

    found = ingest.read(spark, str(tmp_path))

    assert found.bad.schema.names == BAD_ROWS.names
    bad = found.bad.collect()
    assert {each["row"]: each["reason"] for each in bad} == dict(BAD.values())
    assert len(bad) == len(BAD)
    assert {each["file"] for each in bad} == {f"file:{path}"}
    assert _seqs(found.ledger.fetch) == [1]
    assert _seqs(found.ledger.exchange) == [2]


def test_rows_of_every_record_come_as_they_were_written(spark: SparkSession, tmp_path: Path) -> None:
    records = [row(record, seq=number, at_us=5) for number, record in enumerate(RECORDS)]
    records[0] |= {"sources": [_SHARE], "client_id": 'a}{"x" "client_id": 5}', "weight": 20}
    write_lines(tmp_path / "p-0-9.jsonl", map(json.dumps, records))

    found = ingest.read(spark, str(tmp_path))

    frames = attrs.asdict(found.ledger, recurse=False)
    assert {record: frame.schema for record, frame in frames.items()} == dict(SCHEMAS)
    for each in records[:2]:
        assert [got.asDict(recursive=True) for got in frames[each["record"]].collect()] == [each]
    rows = ingest.read_wide(spark, str(tmp_path))
    assert [got["record"] for got in rows.orderBy("seq").collect()] == list(RECORDS)


def test_unknown_columns_are_ignored_and_missing_columns_are_null(spark: SparkSession, tmp_path: Path) -> None:
    newer = _with(GOOD, mood={"good": [1]})
    older = _with(_without(GOOD, "rack"), seq=2)
    write_lines(tmp_path / "p-0-9.jsonl", [newer, "", "  ", older])

    found = ingest.read(spark, str(tmp_path))

    assert _seqs(found.ledger.fetch) == [1, 2]
    assert found.ledger.fetch.where("rack is null").count() == 2
    assert found.bad.isEmpty()


def test_rows_that_came_twice_are_one_by_record_process_and_seq(spark: SparkSession, tmp_path: Path) -> None:
    lost = {"reason": "full", "seq": 1, "count": 1, "seq_last": 1}
    write_lines(tmp_path / "a-0-1.jsonl", [GOOD, _line("lost", **lost, seq_first=1), _with(GOOD, proxy_id="other")])
    write_lines(
        tmp_path / "b-0-1.jsonl", [GOOD, _line("lost", **lost, seq_first=1), _line("lost", **lost, seq_first=0)]
    )

    found = ingest.read(spark, str(tmp_path)).ledger

    assert sorted(each["proxy_id"] for each in found.fetch.collect()) == ["other", "proxy"]
    assert sorted(each["seq_first"] for each in found.lost.collect()) == [0, 1]


def test_folders_are_read_in_depth_but_only_whole_files_of_lines(spark: SparkSession, tmp_path: Path) -> None:
    write_lines(tmp_path / "one" / "p-0-1.jsonl", [_with(GOOD, seq=1)])
    write_lines(tmp_path / "two" / "deep" / "p-1-2.jsonl", [_with(GOOD, seq=2)])
    (tmp_path / "two" / "q.jsonl.gz").write_bytes(gzip.compress(_with(GOOD, seq=3).encode()))
    write_lines(tmp_path / "two" / ".p-2.open", [_with(GOOD, seq=4)])
    write_lines(tmp_path / "two" / "notes.txt", ["none of the ledger's"])

    assert _seqs(ingest.read(spark, str(tmp_path)).ledger.fetch) == [1, 2, 3]
    assert _seqs(ingest.read(spark, f"{tmp_path}/t*").ledger.fetch) == [2, 3]
    assert _seqs(ingest.read(spark, [f"{tmp_path}/one/*.jsonl", f"{tmp_path}/two/deep"]).ledger.fetch) == [1, 2]


def test_a_file_that_is_named_is_read_whatever_its_name(spark: SparkSession, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.json", [GOOD])

    assert _seqs(ingest.read(spark, str(path)).ledger.fetch) == [1]


@pytest.mark.parametrize("path", ["nowhere", "nowhere/*.jsonl"])
def test_a_path_that_is_not_there_is_named(spark: SparkSession, tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigError, match=f"{path.replace('*', '.')}: no such file or folder"):
        ingest.read(spark, [str(tmp_path), f"{tmp_path}/{path}"])


def test_empty_path_list_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="no path is given"):
        ingest.read(spark, [])


def test_rows_of_an_older_sidefetch_have_served_one_client_fetch_for_each_fetch(
    spark: SparkSession, tmp_path: Path
) -> None:
    old = _without(_line("fetch", seq=1, fetches=7, connection_id=3), "client_fetches")
    shared = _line("fetch", seq=2, connection_id=None, client_fetches=20)
    write_lines(tmp_path / "a.jsonl", [old, shared])

    found = ingest.read(spark, str(tmp_path))

    rows = {row["seq"]: row for row in found.ledger.fetch.collect()}
    assert found.bad.count() == 0
    assert {seq: (row["connection_id"], row["client_fetches"]) for seq, row in rows.items()} == {
        1: (3, 7),
        2: (None, 20),
    }
