"""Generated ledgers as frames."""

from collections import Counter
from itertools import chain

import pytest
from pyspark.sql import SparkSession

from proxy.analysis.generate.cluster import cluster_of
from proxy.analysis.generate.frames import generate, repeat_ledger
from proxy.analysis.generate.mix import FleetMix
from proxy.analysis.generate.sidecar import sidecar_rows
from proxy.analysis.schemas import SCHEMAS
from proxy.telemetry.ledger import RECORDS

MIX = FleetMix(losses=1e-3, duplicates=0, topics=5)
DAY_US = 86_400_000_000


@pytest.mark.parametrize("record", ["exchange", "session", "topology"])
def test_frames_have_the_rows_that_files_would(record: str, spark: SparkSession) -> None:
    frame = getattr(generate(spark, MIX, 1, sidecars=3, hours=0.5), record)

    written = chain.from_iterable(sidecar_rows(MIX, 1, index, 0.5) for index in range(3))
    rows = [*written, *cluster_of(MIX, 1, 0).topology_rows(MIX.start_us)]
    by_number = [(row["proxy_id"], row["seq"]) for row in rows if row["record"] == record]
    assert frame.schema == SCHEMAS[record]
    collected = frame.collect()
    assert sorted((row["proxy_id"], row["seq"]) for row in collected) == sorted(by_number)
    first = collected[0].asDict(recursive=True)
    assert first in rows


def test_tiles_are_the_same_sidecars_under_other_names_and_on_other_days(spark: SparkSession) -> None:
    ledger = generate(spark, MIX, 1, sidecars=1, hours=0.1)
    tiles = repeat_ledger(ledger, copies=3, days=2)

    once = [row.asDict() for row in ledger.session.collect()]
    rows = [row.asDict() for row in tiles.session.collect()]
    assert len(rows) == 3 * len(once) > 0
    assert len({row["proxy_id"] for row in rows}) == 3
    days = Counter((row["at_us"] - MIX.start_us) // DAY_US for row in rows)
    assert days == {0: 2 * len(once), 1: len(once)}
    assert all(getattr(tiles, record).schema.names == SCHEMAS[record].names for record in RECORDS)
