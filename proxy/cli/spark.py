"""A Spark session for a command; Spark's messages are shown only if it fails."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from proxy.cli.extras import require_spark_extra
from proxy.errors import ConfigError, SparkFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["add_flags", "settings_of", "spark_at"]

_LEAST_JAVA: Final = 17
_LOCAL: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "8",
}
_ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_MOST_LINES: Final = 12


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags ``--master``, Spark's master URL, and ``--conf``, settings of Spark, to *parser*."""
    parser.add_argument(
        "--master", metavar="URL", default="local[*]", help="Spark's master URL [default: %(default)s]"
    )
    parser.add_argument(
        "--conf", metavar="KEY=VALUE", action="append", default=[], help="configuration of Spark; may be repeated"
    )


def settings_of(given: Sequence[str]) -> dict[str, str]:
    """Return the settings of Spark as a dict, from the values of ``--conf``: each is a text ``KEY=VALUE``.

    Raises: ConfigError: a value has another form.
    """
    pairs = [each.partition("=") for each in given]
    if wrong := [each for each, (key, equals, _) in zip(given, pairs, strict=True) if not key or not equals]:
        raise ConfigError(f"conf: {wrong[0]!r}; accepted: KEY=VALUE, such as spark.driver.memory=4g")
    return {key: value for key, _, value in pairs}


@contextmanager
def spark_at(master: str, settings: Mapping[str, str]) -> Iterator["SparkSession"]:
    """Start Spark, yield its session, and stop it at the end of the context.

    Spark's messages go to a temporary file instead of stderr. If Spark fails, SparkFailed has the causes and the
    last error messages.

    Args:   master: Spark's master URL: ``local[*]``, ``spark://HOST:PORT``.
            settings: settings of Spark, which override Sidefetch's defaults.
    Raises: ConfigError: pyspark or Java is missing; SparkFailed: Spark does not start, or a job fails.
    """
    with require_spark_extra():
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    _check_java()
    is_local = master.startswith("local")
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise its workers run python3 of the PATH
    builder = SparkSession.Builder().appName("sidefetch").master(master)
    for key, value in {**_ALWAYS, **(_LOCAL if is_local else {}), **settings}.items():
        builder = builder.config(key, value)
    with tempfile.TemporaryFile() as log:
        try:
            with _redirect_stderr(log):
                session = builder.getOrCreate()
            try:
                yield session
            finally:
                session.stop()
        except (PySparkException, Py4JError) as wrong:
            raise SparkFailed(*_failure_causes(wrong, log)) from wrong


def _check_java() -> None:
    """Check the Java that Spark will start. Raises: ConfigError: it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    remedy = f"accepted: Java {_LEAST_JAVA} or newer on the PATH or at JAVA_HOME (Debian: openjdk-17-jre-headless)"
    if shutil.which(java) is None:
        raise ConfigError(f"Spark needs Java, and {java} does not exist; {remedy}")
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603 - Spark runs it, too
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    if found is None or int(found[1]) < _LEAST_JAVA:
        version = found[1] if found else "unknown"
        raise ConfigError(f"Spark needs Java {_LEAST_JAVA}, and the version of {java} is {version}; {remedy}")


@contextmanager
def _redirect_stderr(log: IO[bytes]) -> Iterator[None]:
    """Make *log* the stderr of processes that are started within the context, for as long as they run."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _failure_causes(wrong: Exception, log: IO[bytes]) -> Iterator[str]:
    message = str(wrong)
    causes = re.findall(r"^(?:: |Caused by: )(.+)", message, re.MULTILINE)
    yield from dict.fromkeys(causes or [message.partition("\n")[0]])
    if "FAILED_READ_FILE" in message:
        yield "Repair or remove the file, or read its intact part: --conf spark.sql.files.ignoreCorruptFiles=true"
    log.seek(0)
    lines = [
        line for line in log.read().decode(errors="replace").splitlines() if " ERROR " in line or "Error:" in line
    ]
    yield from lines[-_MOST_LINES:]
