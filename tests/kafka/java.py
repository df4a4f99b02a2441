"""Small Java programs of the tests' own, compiled once against Kafka's jars."""

import hashlib
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from proxy.demo.kafka_server import QUICK_JVM
from tests.kafka.jars import What, class_path, home
from tests.kept import locked, run

__all__ = ["java_command"]


def java_command(source: Path, version: str, *, what: What = "kafka", beside: Sequence[Path] = ()) -> list[str]:
    """Return the command that runs *source* with the jars of *what* in *version*; its class has the file's name.

    Other classes of its folder and of the folders *beside* it are compiled with it if it names them.
    """
    jars = class_path(version, what)
    folders = (source.parent, *beside)
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in _sources(folders))).hexdigest()[:12]
    folder = home(version, what) / "classes"
    classes = folder / f"{source.stem}-{digest}"
    with locked(folder):
        if not classes.is_dir():
            # Under another name first, so that a torn compilation is not taken for a whole one.
            fresh = folder / "fresh"
            shutil.rmtree(fresh, ignore_errors=True)
            options = ["-nowarn", "-proc:none", "-cp", jars, "-d", str(fresh)]
            paths = ["-implicit:class", "-sourcepath", ":".join(map(str, folders))]
            command = ["javac", *options, *paths, str(source)]
            run(command, timeout_s=120)
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


def _sources(folders: Iterable[Path]) -> list[Path]:
    return [source for folder in folders for source in sorted(folder.glob("*.java"))]
