"""The command that starts each client program; its dependencies are installed or built at the first use.

Limits of the old ones:

- ``create`` and ``delete``: of the old clients only Sarama as 0.10.2 has them. Java has no admin client before
    0.11,
  and one source serves that and older ones; the admin clients of kafka-python and librdkafka use the newest
  versions
  of the broker, and would test nothing of old ones.
- Headers: they came with Fetch v4, which Java 0.11 and librdkafka speak; others neither read nor send any.
- Timestamps: they came with Fetch v2. Java 0.9, kafka-python and Sarama as 0.8 and 0.9 report -1.
- Groups: kafka-python as 0.8 (0.9 brought groups) and Sarama before 0.10.2 (when its own began) take all partitions
  for ``group``, and keep their offsets with the coordinator; as 0.8.1, with any broker, for ZooKeeper.
- lz4 in producers: Sarama refuses it before 0.10, kafka-python as 0.8.1.
- An ``isolation`` other than reading all.
"""

import json
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Final

from tests.kafka.jars import What
from tests.kafka.java import java_command
from tests.kept import CACHE, kept, locked, run
from tests.prerequisites import require

__all__ = ["CLIENTS", "DRIVE", "DRIVE_GO_NODE", "MORE_CLIENTS", "OLD_CLIENTS", "PROGRAMS", "SESSION_CLIENTS"]

_HERE: Final = Path(__file__).parent
_LOCKS: Final = _HERE / "locks"


def _python(module: str, *arguments: str) -> list[str]:
    # Deprecation warnings of client libraries are not the tests' concern.
    return [sys.executable, "-W", "ignore", "-m", f"tests.clients.{module}", *arguments]


def _java(version: str = "4.3.1") -> list[str]:
    require("java", "maven")
    what: What = "kafka" if version == "4.3.1" else "kafka-clients"
    return java_command(_HERE / "java" / "Client.java", version, what=what, beside=[_HERE / "java" / "v2_0"])


def _old_java(version: str, *shapes: str) -> list[str]:
    """The command for Java before 4; of each class the first of *shapes* that has it is taken."""
    require("java", "maven")
    beside = [_HERE / "java" / each for each in shapes]
    return java_command(_HERE / "java" / "OldClient.java", version, what="kafka-clients", beside=beside)


def _node() -> list[str]:
    """The command for KafkaJS, installed from its lock file; again only when that has changed."""
    require("node")
    folder = _HERE / "node"
    lock = (folder / "package-lock.json").read_text()
    with locked(CACHE / "node"):
        installed = folder / "node_modules" / "installed-lock.json"
        if not (installed.is_file() and installed.read_text() == lock):
            run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], timeout_s=300, cwd=folder)
            installed.write_text(lock)
    return ["node", str(folder / "kafkajs.js")]


def _pip_install(lock: Path, *options: str) -> Path:
    """Return a folder with the packages of *lock*, separate from the environment of the tests."""

    def install(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        run([*pip, "--require-hashes", *options, f"--target={folder}", f"--requirement={lock}"], timeout_s=300)

    return kept(lock.stem, [lock], install, of=sys.version)


def _kafka_python(api_version: str) -> list[str]:
    libraries = _pip_install(_LOCKS / "kafka-python-1.4.7.lock")
    return ["env", f"PYTHONPATH={libraries}", *_python("kafka_python", api_version)]


def _librdkafka() -> list[str]:
    """librdkafka as confluent-kafka's wheels brought it; of which Python they are for does not matter to it."""
    require("linux-x86-64")
    wheel = ["--only-binary=:all:", "--platform=manylinux1_x86_64", "--implementation=cp", "--python-version=3.7"]
    libraries = _pip_install(_LOCKS / "librdkafka-0.11.6.lock", *wheel)
    return _python("old_librdkafka", str(libraries / "confluent_kafka" / ".libs"))


def _go(program: str, *arguments: str) -> list[str]:
    require("go")
    module = _HERE / "go"
    sources = [
        *sorted(module.glob("go.*")),
        *sorted(module.glob("talk/*.go")),
        *sorted(module.glob(f"{program}/*.go")),
    ]

    def build(folder: Path) -> None:
        run(["go", "build", "-o", str(folder / program), f"./{program}"], timeout_s=300, cwd=module)

    return [str(kept(program, sources, build) / program), *arguments]


CLIENTS: Final[Mapping[str, Callable[[], list[str]]]] = {
    "kafka-python": lambda: _python("kafka_python"),
    "aiokafka": lambda: _python("aiokafka_client"),
    "librdkafka": lambda: _python("librdkafka"),
    "kafkajs": cache(_node),
    "java": cache(_java),
    "franz-go": cache(partial(_go, "franz")),
}
"""The clients that Kafka 4 serves, by name."""

OLD_CLIENTS: Final[Mapping[str, Callable[[], list[str]]]] = {
    "java-0.9.0.1": cache(partial(_old_java, "0.9.0.1", "v0_9")),
    "java-0.10.2.2": cache(partial(_old_java, "0.10.2.2", "v0_10")),
    "java-0.11.0.3": cache(partial(_old_java, "0.11.0.3", "v0_11", "v0_10")),
    "kafka-python-1.4.7-as-0.8.1": cache(partial(_kafka_python, "0.8.1")),
    "kafka-python-1.4.7-as-0.8.2": cache(partial(_kafka_python, "0.8.2")),
    "kafka-python-1.4.7-as-0.9": cache(partial(_kafka_python, "0.9")),
    "kafka-python-1.4.7-as-0.10": cache(partial(_kafka_python, "0.10")),
    "sarama-1.19.0-as-0.8.2": cache(partial(_go, "sarama", "0.8.2.0")),
    "sarama-1.19.0-as-0.9": cache(partial(_go, "sarama", "0.9.0.0")),
    "sarama-1.19.0-as-0.10.2": cache(partial(_go, "sarama", "0.10.2.0")),
    "librdkafka-0.11.6": cache(_librdkafka),
}
"""The clients that were made for brokers before 1.0."""

SESSION_CLIENTS: Final[Mapping[str, Callable[[], list[str]]]] = {
    "java-2.0.1": cache(partial(_old_java, "2.0.1", "v2_0", "v0_11")),
}
"""The clients that have sessions (KIP-227) and were released before racks (KIP-392)."""

MORE_CLIENTS: Final[Mapping[str, Callable[[], list[str]]]] = {
    "java-1.1.1": cache(partial(_old_java, "1.1.1", "v0_11", "v0_10")),
    "java-2.3.1": cache(partial(_old_java, "2.3.1", "v2_0", "v0_11")),
    "java-3.9.2": cache(partial(_old_java, "3.9.2", "v2_0", "v0_11")),
    "java-4.4.0": cache(partial(_java, "4.4.0")),
}
"""Versions between and after those above, for the differential test."""

PROGRAMS: Final = {**CLIENTS, **OLD_CLIENTS, **SESSION_CLIENTS, **MORE_CLIENTS}


def _current_sarama() -> list[str]:
    """Build the program ``sarama`` with the library's current version, which has another import path."""
    require("go")
    module = _HERE / "go"

    def build(folder: Path) -> None:
        replaced = {}
        for source in module.glob("sarama/*.go"):
            copy = folder / source.name
            copy.write_text(source.read_text().replace("github.com/Shopify/sarama", "github.com/IBM/sarama"))
            replaced[str(source)] = str(copy)
        overlay = folder / "overlay.json"
        overlay.write_text(json.dumps({"Replace": replaced}))
        command = ["go", "build", "-overlay", str(overlay), "-o", str(folder / "program"), "./sarama"]
        run(command, timeout_s=300, cwd=module)

    sources = [*sorted(module.glob("go.*")), *sorted(module.glob("talk/*.go")), *sorted(module.glob("sarama/*.go"))]
    return [str(kept("sarama-current", sources, build) / "program"), "3.0.0"]


# kafka-go has no command but ``drive``.
PROGRAMS.update({"kafka-go": cache(partial(_go, "kafka_go")), "sarama": cache(_current_sarama)})

_GO: Final = frozenset({"from", "seek", "pause", "sleep", "commit", "group"})
_OLD_SARAMA: Final = _GO | {"assign", "consumers"}

DRIVE_GO_NODE: Final[Mapping[str, frozenset[str]]] = {
    # It expects aborted transactions by first offset, but brokers list them by last offset: which records it drops
    # depends on where its fetches are cut.
    "kafkajs": _GO | {"rack"},
    "franz-go": _GO | {"assign", "isolation", "rack"},
    "kafka-go": _GO | {"assign"},  # asks with an isolation level, but does not drop aborted records
    "sarama": _OLD_SARAMA | {"isolation", "rack"},
    "sarama-1.19.0-as-0.8.2": _OLD_SARAMA,
    "sarama-1.19.0-as-0.9": _OLD_SARAMA,
    "sarama-1.19.0-as-0.10.2": _OLD_SARAMA,
}
"""By program, the steps of ``drive`` that it can take, and which of from, isolation, group, rack and consumers it
supports."""

_ALL_STEPS: Final = frozenset({"from", "seek", "pause", "assign", "sleep"})
_KAFKA_PYTHON: Final = _ALL_STEPS - {"pause"}  # it skips the buffered records of a paused partition
_OLD_JAVA: Final = _ALL_STEPS | {"commit", "group"}
_JAVA: Final = _OLD_JAVA | {"isolation"}

DRIVE: Final[Mapping[str, frozenset[str]]] = {
    "java-0.9.0.1": _OLD_JAVA,
    "java-0.10.2.2": _OLD_JAVA,
    "java-0.11.0.3": _JAVA,
    "java-1.1.1": _JAVA,
    "java-2.0.1": _JAVA,
    "java-2.3.1": _JAVA,
    "java-3.9.2": _JAVA | {"rack"},
    "java": _JAVA | {"rack"},
    "java-4.4.0": _JAVA | {"rack"},
    "kafka-python": _KAFKA_PYTHON | {"commit", "group"},
    "kafka-python-1.4.7-as-0.8.2": _KAFKA_PYTHON,
    "kafka-python-1.4.7-as-0.9": _KAFKA_PYTHON | {"commit", "group"},
    "kafka-python-1.4.7-as-0.10": _KAFKA_PYTHON | {"commit", "group"},
    "aiokafka": _ALL_STEPS | {"commit", "group", "isolation"},
    "librdkafka": _ALL_STEPS | {"commit", "group", "isolation", "rack"},
    "librdkafka-0.11.6": _ALL_STEPS | {"commit", "group"},
    **DRIVE_GO_NODE,
}
"""By program, the steps of ``drive`` that it can take, and which of "from", "isolation", "group", "rack" and
"consumers" it supports."""
