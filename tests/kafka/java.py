"""Small Java programs of the tests' own, compiled once against Kafka's jars."""

import hashlib
import shutil
import subprocess
from pathlib import Path

from tests.kafka.jars import CACHE, class_path, locked

__all__ = ["QUICK_JVM", "java_command"]

QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""Halve the time to the first answer; wrong for benchmarks: C2 and G1 change a JVM's figures by a factor of two."""


def java_command(source: Path, version: str) -> list[str]:
    """Return the command that runs *source* with the jars of Kafka *version*; its class is named as the file."""
    jars = class_path(version)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    folder = CACHE / version / "classes"
    classes = folder / f"{source.stem}-{digest}"
    with locked(folder):
        if not classes.is_dir():
            # Under another name first, so that a torn compilation is not taken for a whole one.
            fresh = folder / "fresh"
            shutil.rmtree(fresh, ignore_errors=True)
            options = ["-nowarn", "-proc:none", "-cp", jars, "-d", str(fresh)]
            done = subprocess.run(["javac", *options, str(source)], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"javac {source} failed:\n{done.stdout}{done.stderr}")
            fresh.rename(classes)
    return [
        "java",
        *QUICK_JVM,
        "-Xmx256m",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        f"{classes}:{jars}",
        source.stem,
    ]
