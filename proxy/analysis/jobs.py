"""What is submitted to Spark: ``spark-submit … deploy/spark/job.py ingest|stream|answers …``.

A job reads its arguments, reads, and writes; whatever it decides is decided elsewhere. The session is as
``spark-submit`` and its ``--conf`` make it. What is wrong with the arguments ends it with exit code 2.
"""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from proxy.analysis import ingest, layout, streaming
from proxy.analysis.answers import ANSWERS
from proxy.analysis.days import ALL, DayRange, parse_days
from proxy.errors import ConfigError

__all__ = ["main", "parser"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the job that *arguments* name, until it is done or, of a stream, stopped."""
    told = parser()
    asked = told.parse_args(arguments)
    try:
        asked.run(asked)
    except ConfigError as wrong:
        told.exit(2, f"{told.prog}: {wrong}\n")


def parser() -> argparse.ArgumentParser:
    """Of all jobs' arguments; what it has parsed knows how to ``run``."""
    told = argparse.ArgumentParser(prog="job.py", description="Sidefetch's ledgers, by Spark.")
    jobs = told.add_subparsers(required=True, metavar="JOB")

    job = jobs.add_parser("ingest", help="write ledgers as Parquet, or Parquet of many files as Parquet of few")
    _add_paths(job)
    _add_out(job)
    job.add_argument(
        "--mode",
        choices=("error", "append", "overwrite"),
        default="error",
        help="if it is there; of days, overwrite replaces those (default: %(default)s)",
    )
    job.set_defaults(run=_ingest)

    job = jobs.add_parser("stream", help="write ledgers as Parquet as they come")
    source = job.add_mutually_exclusive_group(required=True)
    source.add_argument("--folder", help="where files of JSON lines come")
    source.add_argument("--topic", help="the ledger's topic")
    _add_out(job)
    pace = job.add_mutually_exclusive_group()
    pace.add_argument(
        "--every", default="1 minute", help="between two batches, as Spark writes it (default: %(default)s)"
    )
    pace.add_argument("--once", action="store_true", help="only what is there now")
    job.add_argument(
        "--remembered", default="1 hour", help="for how long rows that came twice are known (default: %(default)s)"
    )
    _add_kafka(job.add_argument_group("of the topic"))
    job.set_defaults(run=_stream)

    job = jobs.add_parser("answers", help="write what ledgers answer, a folder for each answer")
    _add_paths(job)
    _add_out(job)
    job.add_argument(
        "--format", choices=("parquet", "json", "csv"), default="parquet", help="(default: %(default)s)"
    )
    job.add_argument("--only", action="append", choices=tuple(ANSWERS), help="this answer, as often as needed")
    job.set_defaults(run=_answers)
    return told


def _add_paths(job: argparse.ArgumentParser) -> None:
    job.add_argument("paths", nargs="+", metavar="PATH", help="files, folders and globs, of JSON lines or Parquet")
    job.add_argument(
        "--since", metavar="DAY", help="from this day on, in UTC: a date, yesterday, 7d for a week ago"
    )
    job.add_argument("--until", metavar="DAY", help="up to this day, which is read as well")


def _add_out(job: argparse.ArgumentParser) -> None:
    job.add_argument("--out", required=True, metavar="FOLDER", help="where it is to be")


def _add_kafka(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--kafka", action="append", default=[], metavar="NAME=VALUE", help="for the client: bootstrap.servers=…, …"
    )
    group.add_argument("--kafka-config", metavar="FILE", help="the same, one a line: for what nobody else may see")
    group.add_argument("--from", choices=("earliest", "latest"), default="earliest", dest="first")
    group.add_argument("--rows", type=int, metavar="N", help="the most that a batch takes")
    group.add_argument(
        "--skip-deleted", action="store_true", help="go on when rows were deleted before they were read"
    )
    group.add_argument("--native", action="store_true", help="by Spark's own source, whose jar must be there")


def _session() -> SparkSession:
    return SparkSession.Builder().appName("sidefetch").getOrCreate()


def _ingest(asked: argparse.Namespace) -> None:
    days = _days(asked)
    rows = ingest.read_wide(_session(), asked.paths, days)
    layout.write(rows, asked.out, asked.mode, all_days=days == ALL)


def _days(asked: argparse.Namespace) -> DayRange:
    return parse_days(asked.since, asked.until, datetime.now(UTC).date())


def _stream(asked: argparse.Namespace) -> None:
    options = _kafka_options(asked) if asked.topic is not None else {}
    spark = _session()
    if asked.topic is None:
        lines = streaming.from_folder(spark, asked.folder)
    else:
        lines = streaming.from_topic(spark, options, is_native=asked.native)
    pace = streaming.TriggerSettings(None if asked.once else asked.every, asked.remembered)
    streaming.start(lines, asked.out, pace).awaitTermination()


def _answers(asked: argparse.Namespace) -> None:
    days = _days(asked)
    ledger = ingest.read(_session(), asked.paths, days).ledger
    for name in asked.only or ANSWERS:
        found = ANSWERS[name](ledger)
        frame = _flat(found) if asked.format == "csv" else found
        # As few files as the size asks for.
        writer = frame.hint("rebalance").write.mode("error").option("header", True)
        writer.format(asked.format).save(f"{asked.out.rstrip('/')}/{name}")


def _flat(frame: DataFrame) -> DataFrame:
    """Arrays and structs as JSON: CSV has none."""
    return frame.select(
        *(
            F.to_json(field.name).alias(field.name)
            if isinstance(field.dataType, ArrayType | StructType)
            else field.name
            for field in frame.schema
        )
    )


def _kafka_options(asked: argparse.Namespace) -> dict[str, str]:
    """Raises: ConfigError."""
    told = list(asked.kafka)
    if asked.kafka_config is not None:
        try:
            lines = Path(asked.kafka_config).read_text(encoding="utf-8").splitlines()
        except OSError as wrong:
            raise ConfigError(f"--kafka-config: {asked.kafka_config}: {wrong.strerror}") from None
        told += [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    options = {"subscribe": asked.topic, "startingOffsets": asked.first}
    options["failOnDataLoss"] = str(not asked.skip_deleted).lower()
    if asked.rows is not None:
        options["maxOffsetsPerTrigger"] = str(asked.rows)
    for each in told:
        name, separator, value = each.partition("=")
        if not separator:
            # Not the text itself, which may be a password.
            raise ConfigError("--kafka, --kafka-config: no '=' in one; accepted: NAME=VALUE")
        options[f"kafka.{name.strip()}"] = value.strip()
    if not options.get("kafka.bootstrap.servers"):
        raise ConfigError("--kafka: no bootstrap.servers; accepted: --kafka bootstrap.servers=HOST:PORT,HOST:PORT")
    return options
