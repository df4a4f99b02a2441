"""A line an event: readable by people and by machines, bounded, harmless."""

import io
import json
import os
from typing import TextIO

import attrs
import pytest

from proxy.config import Address
from proxy.net.io.logs import Format, Level, Log

AT = 1767225600.0  # 2026-01-01T00:00:00Z


@attrs.define
class Desk:
    """A log on a string, with a clock to turn."""

    log: Log
    out: io.StringIO
    now_s: float = 0.0

    def lines(self) -> list[str]:
        return self.out.getvalue().splitlines()


def desk(format: Format = "text", level: Level = "info") -> Desk:  # noqa: A002  # as the field is called
    out = io.StringIO()
    made = Desk(Log(format, level, out, wall_s=lambda: AT), out)
    made.log.clock_s = lambda: made.now_s
    return made


def test_an_event_is_one_line_of_key_values() -> None:
    here = desk()

    here.log.info("listening", address=Address("127.0.0.1", 9092), node=1)

    assert here.out.getvalue() == "2026-01-01T00:00:00.000Z info listening address=127.0.0.1:9092 node=1\n"


def test_in_json_too() -> None:
    here = desk("json")

    here.log.warning("broker-lost", node=1, after_s=0.25, rack=None, error=OSError("gone"))

    assert json.loads(here.out.getvalue()) == {
        "timestamp": "2026-01-01T00:00:00.000Z",
        "level": "warning",
        "event": "broker-lost",
        "node": 1,
        "after_s": 0.25,
        "rack": None,
        "error": "OSError: gone",
    }


def test_json_log_puts_event_first_and_fields_cannot_overwrite_it() -> None:
    here = desk("json")

    here.log.info("listening", node=1, level="of the sea", timestamp="noon")

    head = '"timestamp":"2026-01-01T00:00:00.000Z","level":"info","event":"listening"'
    assert here.out.getvalue() == f'{{{head},"node":1}}\n'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain-1", "plain-1"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('say "x"', '"say \\"x\\""'),
        ("line\nbreak", '"line\\nbreak"'),
        ("\x1b[31m", '"\\u001b[31m"'),
        ("\u2028", '"\\u2028"'),
        ("txt.\u202eexe", '"txt.\\u202eexe"'),
        ("\x9b31m", '"\\u009b31m"'),
        ("grün", "grün"),
        (True, "true"),
        (None, "null"),
        (1.23456789, "1.23457"),
        (b"record", '"<6 bytes>"'),
        (memoryview(b"record"), '"<6 bytes>"'),
        (ConnectionResetError(), "ConnectionResetError"),
    ],
)
def test_a_value_is_quoted_where_it_must_be(value: object, text: str) -> None:
    here = desk()

    here.log.info("event", value=value)

    assert here.out.getvalue() == f"2026-01-01T00:00:00.000Z info event value={text}\n"


def test_credentials_are_not_shown() -> None:
    here = desk()

    here.log.info("event", sasl_password="hunter2", Token="abc")

    assert here.lines() == ["2026-01-01T00:00:00.000Z info event sasl_password=*** Token=***"]


def test_a_long_value_keeps_its_ends() -> None:
    here = desk()

    here.log.error("bug", traceback="a" * 10_000 + "z" * 1_000)

    (line,) = here.lines()
    assert len(line) < 2_100
    assert line.endswith("z" * 1_000)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_levels_below_the_set_one_are_left_out(level: Level, expected: list[str]) -> None:
    here = desk(level=level)

    here.log.debug("event")
    here.log.info("event")
    here.log.warning("event")
    here.log.error("event")

    assert [line.split()[1] for line in here.lines()] == expected


def test_repeated_event_is_rate_limited_and_logged_with_suppressed_count() -> None:
    here = desk()

    for here.now_s in (0, 1, 9.9, 10, 10.1, 25):
        here.log.warning("unreachable", every_s=10, per=1, node=1)

    assert [line.partition("unreachable ")[2] for line in here.lines()] == [
        "node=1",
        "node=1 suppressed=2",
        "node=1 suppressed=1",
    ]


def test_repeats_are_counted_by_event_and_value() -> None:
    here = desk()

    here.log.warning("unreachable", every_s=10, per=1)
    here.log.warning("unreachable", every_s=10, per=2)
    here.log.warning("refused", every_s=10, per=1)

    assert len(here.lines()) == 3


def test_values_that_clients_choose_do_not_escape_the_rate_limit() -> None:
    here = desk()

    for _ in range(2):
        for host in range(1_000):
            here.log.info("event", every_s=10, per=host)
    here.log.info("other", every_s=10, per=500)
    assert len(here.lines()) == 100 + 1 + 1

    here.now_s += 10
    here.log.info("event", every_s=10, per=999)
    here.log.info("event", every_s=10, per=998)
    assert len(here.lines()) == 104


class Grumpy:
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_log_line_with_unformattable_value_is_dropped_and_counted() -> None:
    here = desk()

    here.log.info("event", value=Grumpy())
    here.log.info("next")

    assert [line.split(" ", 1)[1] for line in here.lines()] == ["warning log-lines-dropped count=1", "info next"]


def test_a_closed_stream_does_no_harm() -> None:
    here = desk()
    here.out.close()

    here.log.info("event")


def test_a_full_pipe_drops_lines_and_does_not_wait() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0) as reader, open(writing, "w", encoding="utf-8") as stream:
        log = _to(stream)
        for number in range(10_000):
            log.info("event", number=number, padding="x" * 100)
        seen = reader.read(1 << 20)
        log.info("after")
        after = reader.read(1 << 20)

    assert seen.count(b"\n") < 10_000
    expected = [line.split(" ", 1)[1] for line in after.decode().splitlines()]
    assert expected == [f"warning log-lines-dropped count={10_000 - seen.count(b'padding')}", "info after"]


def _to(stream: TextIO) -> Log:
    return Log("text", "info", stream)
