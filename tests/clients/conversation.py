"""The tests' side of the conversation with a client program."""

import contextlib
import json
import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs

from tests.clients.programs import PROGRAMS
from tests.clients.talk import from_text, to_text
from tests.kafka.records import Record
from tests.processes import Process, has_connection

__all__ = ["Client", "ClientFailed", "Delivered", "Task"]

_ROOT = Path(__file__).parents[2]


class ClientFailed(AssertionError):
    """The program said so, ended, or did not answer in time."""


@attrs.frozen
class Delivered:
    """One record that ``drive`` has delivered."""

    after_ms: int
    """Milliseconds since the command began."""
    partition: int
    offset: int
    crc: int
    """CRC-32 of key and value, one after the other."""
    timestamp_ms: int
    """-1 where the client does not know it."""


class Task:
    """One command under way; its answers are read by one thread at a time."""

    def __init__(self, client: "Client", what: str) -> None:
        self._client, self._what = client, what
        self.records: list[Record] = []
        """The records received so far, in the order in which the client delivered them."""
        self.committed: dict[int, int] = {}
        """By partition, the last offset that the client has reported as committed."""
        self.delivered: list[Delivered] = []
        """The records that ``drive`` has delivered, in their order."""
        self.heard: list[str] = []
        """Errors that the client has met and says it overcomes."""
        self.is_done = False
        self.result: Any = None

    def wait_for(self, count: int, timeout_s: float = 60.0) -> list[Record]:
        """Return the records once there are *count*; the client goes on."""
        self._listen(lambda: len(self.records) >= count, f"{count} records", timeout_s)
        assert len(self.records) >= count, f"{self._what} ended with {len(self.records)} of {count} records"
        return self.records

    def wait(self, timeout_s: float = 60.0) -> list[Record]:
        """Return all records once the command is done."""
        self._listen(lambda: self.is_done, "the end", timeout_s)
        return self.records

    def take_what_is_there(self) -> list[Record]:
        """Return the records that the program reported before it was killed."""
        with contextlib.suppress(ClientFailed):
            self._listen(lambda: False, "more", 1.0)
        self.is_done = True
        return self.records

    def stop(self, timeout_s: float = 60.0) -> list[Record]:
        """Make a reader (Python programs only) commit, leave and end; return all its records."""
        if not self.is_done:
            self._client.write({"do": "stop"})
        return self.wait(timeout_s)

    def poll(self) -> None:
        """Take the messages of the program so far, without waiting."""
        while not self.is_done and (answer := self._client.next_answer(0)) is not None:
            self._take(answer)

    def _listen(self, enough: Callable[[], bool], what: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self.is_done and not enough():
            answer = self._client.next_answer(deadline - time.monotonic())
            if answer is None:
                got = f"{len(self.records)} records"
                raise ClientFailed(f"{self._what}: no {what} in {timeout_s:g} s, {got}; {self._client.fate()}")
            self._take(answer)

    def _take(self, answer: dict[str, Any]) -> None:
        match answer:
            case {"record": [partition, offset, timestamp_ms, key, value, headers]}:
                named = tuple((name, from_text(data)) for name, data in headers)
                self.records.append(
                    Record(partition, offset, timestamp_ms, from_text(key), from_text(value), named)
                )
            case {"read": [ms, rows]}:
                self.delivered += (Delivered(ms, *row) for row in rows)
            case {"committed": offsets}:
                self.committed |= {int(partition): offset for partition, offset in offsets.items()}
            case {"heard": error}:
                self.heard.append(error)
            case {"done": result}:
                self.is_done, self.result = True, result
            case {"error": error}:
                self.is_done = True
                raise ClientFailed(f"{self._what}: {error}")
            case _:
                raise ClientFailed(f"{self._what}: says {answer}")


class Client:
    """The client program *name*, running while in context; its commands run one after another."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._process: Process | None = None
        self._folder: Path | None = None
        self._answers: queue.Queue[Any] = queue.Queue()
        self._task: Task | None = None

    def __enter__(self) -> Self:
        command = PROGRAMS[self.name]()
        self._folder = Path(tempfile.mkdtemp(prefix=f"sidefetch-{self.name}-"))
        self._start(command)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self) -> None:
        """End the program as a crash would: it commits nothing and leaves no group."""
        if self._process is not None:
            self._process.kill()

    @property
    def is_running(self) -> bool:
        """Whether the program has neither ended nor been killed."""
        return self._process is not None and self._process.exit_code is None

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Let the program do nothing at all, while in context; its connections stay."""
        assert self._process is not None, "not in context"
        with self._process.stopped():
            yield

    def restart(self) -> None:
        """Start the program anew, with nothing left of the old one."""
        self.kill()
        self._start(PROGRAMS[self.name]())

    def _start(self, command: Sequence[str]) -> None:
        assert self._folder is not None, "not in context"
        process = Process(command, log=self._folder / f"{self.name}.log", piped=True, cwd=_ROOT)
        answers: queue.Queue[Any] = queue.Queue()
        self._process, self._answers, self._task = process, answers, None

        def listen() -> None:
            with contextlib.suppress(ValueError):  # killed: the pipe is closed under us
                for line in process.stdout:
                    answers.put(json.loads(line))

        threading.Thread(target=listen, daemon=True).start()

    def write(self, message: object) -> None:
        assert self._process is not None, "not in context"
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def next_answer(self, timeout_s: float) -> Any:
        """Return the next message of the program; None after a timeout, or if it has ended."""
        deadline = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(queue.Empty):
                return self._answers.get(timeout=max(0.0, min(deadline - time.monotonic(), 0.5)))
            if self.has_ended or time.monotonic() >= deadline:
                return None

    @property
    def has_ended(self) -> bool:
        """Whether the program ended by itself, and all of its messages were taken."""
        ended = self._process is not None and self._process.exit_code is not None
        return ended and self._answers.empty()

    @property
    def has_connection(self) -> bool:
        """Return whether the program has a TCP connection, or tries to open one (Linux only; elsewhere True)."""
        assert self._process is not None, "not in context"
        return has_connection(self._process.pid)

    def fate(self) -> str:
        """Return whether the program runs, and its output."""
        assert self._process is not None, "not in context"
        return f"exit code {self._process.exit_code}\n{self._process.log_text()[-4000:]}"

    def begin(self, do: str, bootstrap: str, topic: str, **more: object) -> Task:
        """Send a command; the caller waits for it. A program still at another one is started anew."""
        if self._task is not None and not self._task.is_done:
            self.restart()
        self.write({"do": do, "bootstrap": bootstrap, "topic": topic, **more})
        self._task = Task(self, f"{self.name}: {do} {topic}")
        return self._task

    def read(
        self, bootstrap: str, topic: str, partitions: Iterable[int], count: int, **more: object
    ) -> list[Record]:
        """Read *count* records or more from the start, by assignment (KafkaJS: in a group of its own)."""
        return self.begin("read", bootstrap, topic, partitions=list(partitions), count=count, **more).wait()

    def read_in_group(self, bootstrap: str, topic: str, group: str, count: int) -> list[Record]:
        """Join *group*, read *count* records or more, commit, leave."""
        return self.begin("group", bootstrap, topic, group=group, count=count).wait()

    def produce(
        self, bootstrap: str, topic: str, records: Iterable[Record], **more: object
    ) -> list[tuple[int, int]]:
        """Produce *records* and return partition and offset of each acknowledgement."""
        reported = [
            [
                each.partition,
                each.offset,
                each.timestamp_ms,
                to_text(each.key),
                to_text(each.value),
                _headers_of(each),
            ]
            for each in records
        ]
        task = self.begin("produce", bootstrap, topic, records=reported, **more)
        task.wait()
        return [(partition, offset) for partition, offset in task.result]

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.begin("create", bootstrap, topic, partitions=partitions).wait()

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        self.begin("delete", bootstrap, topic).wait()

    def offsets(self, bootstrap: str, topic: str) -> dict[int, tuple[int, int]]:
        """Earliest and latest offset of each partition."""
        task = self.begin("offsets", bootstrap, topic)
        task.wait()
        return {int(partition): (first, last) for partition, (first, last) in task.result.items()}


def _headers_of(record: Record) -> list[list[str | None]]:
    return [[name, to_text(data)] for name, data in record.headers]
