"""librdkafka 0.11.6 itself, by ctypes: its Python wheels are for Pythons that are gone.

It asks brokers for their versions, and sends nothing that they do not say they serve. Structures and numbers are
those of its rdkafka.h.
"""

import contextlib
import ctypes
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.clients.drive import Drive
from tests.clients.talk import CHUNK_BYTES, MAX_BYTES, Talk, from_text, serve

_PRODUCER, _CONSUMER = 0, 1
_CONF_OK = 0
_UNSUPPORTED_FEATURE = -165
_ENDING = (_UNSUPPORTED_FEATURE, 29)
"""Errors that other clients end with: 29 is TOPIC_AUTHORIZATION_FAILED."""
_OFFSET_BEGINNING = -2
_END, _TOPIC, _PARTITION, _VALUE, _KEY, _MSGFLAGS, _TIMESTAMP, _HEADERS = 0, 1, 3, 4, 5, 7, 8, 10
_COPY = 2


class _Message(ctypes.Structure):
    _fields_ = (
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


class _TopicPartition(ctypes.Structure):
    _fields_ = (
        ("topic", ctypes.c_char_p),
        ("partition", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("metadata", ctypes.c_void_p),
        ("metadata_size", ctypes.c_size_t),
        ("opaque", ctypes.c_void_p),
        ("err", ctypes.c_int),
        ("private", ctypes.c_void_p),
    )


class _MetadataTopic(ctypes.Structure):
    _fields_ = (
        ("topic", ctypes.c_char_p),
        ("partition_cnt", ctypes.c_int),
        ("partitions", ctypes.c_void_p),
        ("err", ctypes.c_int),
    )


class _Metadata(ctypes.Structure):
    _fields_ = (
        ("broker_cnt", ctypes.c_int),
        ("brokers", ctypes.c_void_p),
        ("topic_cnt", ctypes.c_int),
        ("topics", ctypes.POINTER(_MetadataTopic)),
    )


_DELIVERED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_Message), ctypes.c_void_p)

_RETURNS: Final = {
    ctypes.c_void_p: ("conf_new", "new", "topic_new", "topic_partition_list_new", "headers_new"),
    ctypes.c_char_p: ("err2str",),
    ctypes.c_int64: ("message_timestamp",),
    ctypes.POINTER(_Message): ("consumer_poll",),
    ctypes.POINTER(_TopicPartition): ("topic_partition_list_add",),
}


def _load(folder: Path) -> ctypes.CDLL:
    for needed in ("libz", "libcrypto", "libssl"):  # which it names without saying where they are
        ctypes.CDLL(str(next(folder.glob(f"{needed}-*"))), ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(folder / "librdkafka.so.1"))
    for kind, names in _RETURNS.items():
        for name in names:
            getattr(library, f"rd_kafka_{name}").restype = kind
    return library


_library = _load(Path(sys.argv[1]))


def _call(name: str, *arguments: Any) -> Any:
    return getattr(_library, f"rd_kafka_{name}")(*arguments)


def _check(error: int) -> None:
    if error:
        raise RuntimeError(_call("err2str", error).decode())


def _handle(kind: int, settings: dict[str, object], delivered: Any = None) -> ctypes.c_void_p:
    problem = ctypes.create_string_buffer(512)
    conf = ctypes.c_void_p(_call("conf_new"))
    for name, value in settings.items():
        if _call("conf_set", conf, name.encode(), str(value).encode(), problem, len(problem)) != _CONF_OK:
            raise ValueError(problem.value.decode())
    if delivered is not None:
        _call("conf_set_dr_msg_cb", conf, delivered)
    handle = _call("new", kind, conf, problem, len(problem))
    if not handle:
        raise RuntimeError(problem.value.decode())
    return ctypes.c_void_p(handle)


@contextlib.contextmanager
def _consumer(request: dict[str, Any]) -> Iterator[ctypes.c_void_p]:
    max_bytes, wait_ms = request.get("max_bytes", MAX_BYTES), request.get("wait_ms", 500)
    handle = _handle(
        _CONSUMER,
        {
            "bootstrap.servers": request["bootstrap"],
            "client.id": request.get("client_id", "old-librdkafka"),
            "group.id": request.get("group", "unused"),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "enable.partition.eof": "false",
            "max.partition.fetch.bytes": request.get("chunk_bytes", CHUNK_BYTES),
            "fetch.max.bytes": max_bytes,
            "message.max.bytes": min(max_bytes, 1_000_000),
            "fetch.wait.max.ms": wait_ms,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
            "check.crcs": "true",
        },
    )
    _call("poll_set_consumer", handle)
    try:
        yield handle
    finally:
        _call("consumer_close", handle)
        if "group" in request:
            # Its request to leave waits at the broker behind the last fetch, and is lost when it closes at once.
            time.sleep(wait_ms / 1000 + 0.1)
        _call("destroy", handle)


@contextlib.contextmanager
def _partitions(topic: str, offsets: dict[int, int]) -> Iterator[ctypes.c_void_p]:
    listed = ctypes.c_void_p(_call("topic_partition_list_new", len(offsets)))
    try:
        for partition, offset in offsets.items():
            _call("topic_partition_list_add", listed, topic.encode(), partition).contents.offset = offset
        yield listed
    finally:
        _call("topic_partition_list_destroy", listed)


def _bytes(at: int | None, size: int) -> bytes | None:
    return None if at is None else ctypes.string_at(at, size)


def _headers(message: Any) -> Iterator[tuple[str, bytes | None]]:
    headers, name = ctypes.c_void_p(), ctypes.c_char_p()
    value, size = ctypes.c_void_p(), ctypes.c_size_t()
    if _call("message_headers", message, ctypes.byref(headers)):
        return
    index = 0
    found = (ctypes.byref(name), ctypes.byref(value), ctypes.byref(size))
    while not _call("header_get_all", headers, ctypes.c_size_t(index), *found):
        yield (name.value or b"").decode(), _bytes(value.value, size.value)
        index += 1


def _report(talk: Talk, message: Any, after: dict[int, int]) -> None:
    """Report *message*, and note in *after* the offset after it."""
    it = message.contents
    if it.err == _UNSUPPORTED_FEATURE:  # the brokers say so once and for all
        _check(it.err)
    elif it.err:
        talk.say(heard=_call("err2str", it.err).decode())
    else:
        timestamp_ms = _call("message_timestamp", message, ctypes.byref(ctypes.c_int()))
        key, value = _bytes(it.key, it.key_len), _bytes(it.payload, it.len)
        talk.record(it.partition, it.offset, timestamp_ms, key, value, list(_headers(message)))
        after[it.partition] = it.offset + 1


def _poll_until(talk: Talk, consumer: ctypes.c_void_p, count: int | None, *, commit_to: str | None) -> None:
    while (count is None or talk.count < count) and not talk.has_commands():
        after: dict[int, int] = {}
        for message in _polled(consumer, 200 if count is None else min(200, count - talk.count)):
            _report(talk, message, after)
        if commit_to is not None and after:
            with _partitions(commit_to, after) as offsets:
                _check(_call("commit", consumer, offsets, 0))
            talk.say(committed=after)


def _polled(consumer: ctypes.c_void_p, most: int) -> Iterator[Any]:
    """Up to *most* messages, as long as there is one every 200 ms; each lives until the next is asked for."""
    while most and (message := _call("consumer_poll", consumer, 200)):
        try:
            yield message
        finally:
            _call("message_destroy", message)
        most -= 1


def read(talk: Talk, request: dict[str, Any]) -> None:
    beginning = dict.fromkeys(request["partitions"], _OFFSET_BEGINNING)
    with _consumer(request) as consumer, _partitions(request["topic"], beginning) as partitions:
        _check(_call("assign", consumer, partitions))
        _poll_until(talk, consumer, request["count"], commit_to=None)


def group(talk: Talk, request: dict[str, Any]) -> None:
    with _consumer(request) as consumer, _partitions(request["topic"], {-1: _OFFSET_BEGINNING}) as topics:
        _check(_call("subscribe", consumer, topics))
        _poll_until(talk, consumer, request["count"], commit_to=request["topic"])


def produce(_: Talk, request: dict[str, Any]) -> list[list[int]]:
    places: list[list[int]] = []
    problems: list[str] = []

    def delivered(_: int, message: Any, __: int) -> None:
        it = message.contents
        if it.err:
            problems.append(_call("err2str", it.err).decode())
        else:
            places.append([it.partition, it.offset])

    settings = {
        "bootstrap.servers": request["bootstrap"],
        "queue.buffering.max.ms": 20,
        "compression.codec": request.get("codec", "none"),
        "request.required.acks": -1,
        "produce.offset.report": "true",
    }
    report = _DELIVERED(delivered)  # bound: it is called until the producer is gone
    producer = _handle(_PRODUCER, settings, report)
    try:
        for record in request["records"]:
            _check(_call("producev", producer, *_message(request["topic"], record), ctypes.c_int(_END)))
        if _call("flush", producer, 30_000) or problems:
            raise RuntimeError(f"not delivered: {problems[:5]}")
    finally:
        _call("destroy", producer)
    return places


def _message(topic: str, record: list[Any]) -> Iterator[Any]:
    """Return the variable arguments of producev for a record."""
    partition, _, timestamp_ms, key, value, named = record
    yield from (ctypes.c_int(_TOPIC), topic.encode())
    yield from (ctypes.c_int(_PARTITION), ctypes.c_int32(partition))
    yield from (ctypes.c_int(_MSGFLAGS), ctypes.c_int(_COPY))
    yield from (ctypes.c_int(_TIMESTAMP), ctypes.c_int64(timestamp_ms))
    for kind, data in ((_KEY, from_text(key)), (_VALUE, from_text(value))):
        yield from (ctypes.c_int(kind), data, ctypes.c_size_t(len(data or b"")))
    headers = ctypes.c_void_p(_call("headers_new", ctypes.c_size_t(len(named))))
    for name, text in named:
        data = from_text(text)
        _call("header_add", headers, name.encode(), ctypes.c_ssize_t(-1), data, ctypes.c_ssize_t(len(data or b"")))
    yield from (ctypes.c_int(_HEADERS), headers)


def offsets(_: Talk, request: dict[str, Any]) -> dict[int, list[int]]:
    topic = request["topic"].encode()
    found: dict[int, list[int]] = {}
    with _consumer(request) as consumer:
        handle = ctypes.c_void_p(_call("topic_new", consumer, topic, None))
        metadata = ctypes.POINTER(_Metadata)()
        _check(_call("metadata", consumer, 0, handle, ctypes.byref(metadata), 10_000))
        for partition in range(metadata.contents.topics[0].partition_cnt):
            first, last = ctypes.c_int64(), ctypes.c_int64()
            both = (ctypes.byref(first), ctypes.byref(last))
            _check(_call("query_watermark_offsets", consumer, topic, partition, *both, 10_000))
            found[partition] = [first.value, last.value]
        _call("metadata_destroy", metadata)
        _call("topic_destroy", handle)
    return found


def drive(talk: Talk, request: dict[str, Any]) -> None:
    state = Drive(talk, request)
    options = {"bootstrap.servers": request["bootstrap"], "group.id": request.get("group") or "unused"}
    options |= {"client.id": request.get("client_id", "old-librdkafka"), "enable.auto.commit": "false"}
    options["enable.partition.eof"] = "false"
    consumer = _handle(_CONSUMER, {**options, **request["settings"]})
    _call("poll_set_consumer", consumer)
    try:
        _assign(state, consumer)
        while not state.is_done:
            if state.is_all_due():
                _assign(state, consumer)
            if resumed := state.take_resumed():
                _on_partitions("resume_partitions", state, consumer, resumed)
            began_s = time.monotonic()
            while time.monotonic() < began_s + 0.1 and not state.is_done:
                if message := _call("consumer_poll", consumer, 50):
                    try:
                        _drive_on(state, consumer, message.contents)
                    finally:
                        _call("message_destroy", message)
            state.flush()
    finally:
        _call("consumer_close", consumer)
        _call("destroy", consumer)


def _on_partitions(name: str, state: Drive, consumer: ctypes.c_void_p, partitions: Iterable[int]) -> None:
    """Call a function that takes a list of partitions, each with the offset where it was."""
    with _partitions(state.topic, {each: state.next[each] for each in partitions}) as listed:
        _check(_call(name, consumer, listed))


def _assign(state: Drive, consumer: ctypes.c_void_p) -> None:
    """Assign the partitions of *state*, each at its position; paused partitions stay paused."""
    _on_partitions("resume_partitions", state, consumer, state.next)
    _on_partitions("assign", state, consumer, sorted(state.assigned))
    if paused := [each for each in state.paused() if each in state.assigned]:
        _on_partitions("pause_partitions", state, consumer, paused)


def _drive_on(state: Drive, consumer: ctypes.c_void_p, message: Any) -> None:
    if message.err:
        if message.err in _ENDING:
            _check(message.err)
        state.hear(_call("err2str", message.err).decode())
        return
    timestamp_ms = _call("message_timestamp", ctypes.byref(message), ctypes.byref(ctypes.c_int()))
    key, value = _bytes(message.key, message.key_len), _bytes(message.payload, message.len)
    for step in state.report(message.partition, message.offset, timestamp_ms, key, value):
        match step["do"]:
            case "seek":
                if step["partition"] in state.assigned:
                    where = ctypes.c_void_p(message.rkt), step["partition"], ctypes.c_int64(step["to"])
                    _check(_call("seek", *where, 5_000))
            case "pause":
                state.pause(step)
                if step["partition"] in state.assigned:
                    _on_partitions("pause_partitions", state, consumer, [step["partition"]])
            case "assign":
                state.assign(step)
                _assign(state, consumer)
            case "commit":
                offsets = state.to_commit()
                with _partitions(state.topic, offsets) as listed:
                    error = _call("commit", consumer, listed, 0)
                if error:
                    state.hear(_call("err2str", error).decode())
                else:
                    state.committed(offsets)


if __name__ == "__main__":
    serve({each.__name__: each for each in (read, group, produce, offsets, drive)})
