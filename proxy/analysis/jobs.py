"""The jobs for ``spark-submit … deploy/spark/job.py ingest|stream|answers …``.

A job parses its arguments, reads ledgers and writes the output; other modules hold the logic. ``spark-submit`` and
its ``--conf`` configure the Spark session. Invalid arguments end the job with exit code 2.
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
    """Run the Spark job that the command line names; return when it is done or, for a stream, when it is stopped.

    An error of configuration (``ConfigError``) is printed and ends the process with exit code 2.

    Args: arguments: the command line without the program's name; None: that of the process.
    """
    command_line = parser()
    asked = command_line.parse_args(arguments)
    try:
        asked.run(asked)
    except ConfigError as wrong:
        command_line.exit(2, f"{command_line.prog}: {wrong}\n")


def parser() -> argparse.ArgumentParser:
    """Return the argument parser of ``job.py``, with one subcommand for each job: ingest, stream and answers.

    The parsed namespace has the function that runs the job as ``run``; the function takes the namespace.
    """
    command_line = argparse.ArgumentParser(prog="job.py", description="Process Sidefetch's ledgers with Spark.")
    jobs = command_line.add_subparsers(required=True, metavar="JOB")

    job = jobs.add_parser("ingest", help="write ledgers as Parquet, or merge many Parquet files into few")
    _add_paths(job)
    _add_out(job)
    job.add_argument(
        "--mode",
        choices=("error", "append", "overwrite"),
        default="error",
        help="if FOLDER exists; with --since or --until, overwrite replaces only these days (default: %(default)s)",
    )
    job.set_defaults(run=_ingest)

    job = jobs.add_parser("stream", help="write ledger rows as Parquet continuously, as they arrive")
    source = job.add_mutually_exclusive_group(required=True)
    source.add_argument("--folder", help="folder that receives files of JSON lines")
    source.add_argument("--topic", help="the ledger's topic")
    _add_out(job)
    pace = job.add_mutually_exclusive_group()
    pace.add_argument(
        "--every", default="1 minute", help="time between two batches, in Spark's notation (default: %(default)s)"
    )
    pace.add_argument("--once", action="store_true", help="process the rows that exist now, then exit")
    job.add_argument(
        "--remembered",
        default="1 hour",
        help="how long rows are remembered to drop duplicates (default: %(default)s)",
    )
    _add_kafka(job.add_argument_group("options of --topic"))
    job.set_defaults(run=_stream)

    job = jobs.add_parser("answers", help="compute the answers and write each to a folder of its own")
    _add_paths(job)
    _add_out(job)
    job.add_argument(
        "--format", choices=("parquet", "json", "csv"), default="parquet", help="(default: %(default)s)"
    )
    job.add_argument(
        "--only", action="append", choices=tuple(ANSWERS), help="compute only this answer; may be repeated"
    )
    job.set_defaults(run=_answers)
    return command_line


def _add_paths(job: argparse.ArgumentParser) -> None:
    job.add_argument("paths", nargs="+", metavar="PATH", help="files, folders and globs of JSON lines or Parquet")
    job.add_argument(
        "--since", metavar="DAY", help="first day to read, in UTC: a date, yesterday, or 7d for a week ago"
    )
    job.add_argument("--until", metavar="DAY", help="last day to read, included")


def _add_out(job: argparse.ArgumentParser) -> None:
    job.add_argument("--out", required=True, metavar="FOLDER", help="folder to write to")


def _add_kafka(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--kafka",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="setting of the Kafka client: bootstrap.servers=…, …",
    )
    group.add_argument(
        "--kafka-config", metavar="FILE", help="file with such settings, one per line; use it for secrets"
    )
    group.add_argument("--from", choices=("earliest", "latest"), default="earliest", dest="first")
    group.add_argument("--rows", type=int, metavar="N", help="maximum rows of a batch")
    group.add_argument(
        "--skip-deleted", action="store_true", help="continue when Kafka deleted rows before they were read"
    )
    group.add_argument(
        "--native", action="store_true", help="read with Spark's own Kafka source, whose jar must be installed"
    )


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
        # The hint lets Spark write as few files as the size needs.
        writer = frame.hint("rebalance").write.mode("error").option("header", True)
        writer.format(asked.format).save(f"{asked.out.rstrip('/')}/{name}")


def _flat(frame: DataFrame) -> DataFrame:
    """Return *frame* with arrays and structs as JSON texts, because CSV has neither."""
    return frame.select(
        *(
            F.to_json(field.name).alias(field.name)
            if isinstance(field.dataType, ArrayType | StructType)
            else field.name
            for field in frame.schema
        )
    )


def _kafka_options(asked: argparse.Namespace) -> dict[str, str]:
    """Return the options of the Kafka source (``kafka_source``, or Spark's own) from the parsed arguments.

    Raises: ConfigError: the file of ``--kafka-config`` cannot be read, an entry is not NAME=VALUE, or
            bootstrap.servers is missing.
    """
    entries = list(asked.kafka)
    if asked.kafka_config is not None:
        try:
            lines = Path(asked.kafka_config).read_text(encoding="utf-8").splitlines()
        except OSError as wrong:
            raise ConfigError(f"--kafka-config: {asked.kafka_config}: {wrong.strerror}") from None
        entries += [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    options = {"subscribe": asked.topic, "startingOffsets": asked.first}
    options["failOnDataLoss"] = str(not asked.skip_deleted).lower()
    if asked.rows is not None:
        options["maxOffsetsPerTrigger"] = str(asked.rows)
    for each in entries:
        name, separator, value = each.partition("=")
        if not separator:
            # The message omits the entry, which may be a password.
            raise ConfigError("--kafka, --kafka-config: an entry has no '='; accepted: NAME=VALUE")
        options[f"kafka.{name.strip()}"] = value.strip()
    if not options.get("kafka.bootstrap.servers"):
        raise ConfigError("--kafka: no bootstrap.servers; accepted: --kafka bootstrap.servers=HOST:PORT,HOST:PORT")
    return options
