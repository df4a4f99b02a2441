"""The ledger's one definition: which rows there are, their columns, types, units and meanings.

Rows are built (``rows``), folded (``folding``) and documented by it, and read by it: a pipeline declares its schema
from ``RECORDS``. A new column or record leaves ``SCHEMA`` as it is; one that goes, or changes, raises it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, get_args

import attrs

from proxy.trace import FetchKind, LaneName, SessionEvent, SessionSide

__all__ = ["COMMON", "RECORDS", "SCHEMA", "Column", "Row", "problems", "readme_tables"]

SCHEMA: Final = 1
"""The version of all that follows."""

Row = dict[str, Any]
"""A row, by column, in the order of the columns."""

Kind = Literal["string", "long", "double", "array"]
Fold = Literal["same", "sum", "first", "last", "merge"]
"""What becomes of a column when rows are folded into one: it tells runs apart, it is added up, it is that of the
first or the last row; of an array: items that are the same in all but sums become one."""


@attrs.frozen
class Column:
    """One column of a row, or of an array's items."""

    name: str
    kind: Kind
    meaning: str
    unit: str = ""
    fold: Fold = "same"
    is_optional: bool = False
    """Whether it may be null."""
    items: "tuple[Column, ...]" = ()
    """Of an array: what each of its items has."""


def _text(name: str, meaning: str, *, optional: bool = False, fold: Fold = "same") -> Column:
    return Column(name, "string", meaning, fold=fold, is_optional=optional)


def _number(name: str, meaning: str, unit: str = "", *, fold: Fold = "same", optional: bool = False) -> Column:
    return Column(name, "long", meaning, unit, fold, optional)


def _sum(name: str, unit: str, meaning: str, *, optional: bool = False) -> Column:
    return Column(name, "long", meaning, unit, "sum", optional)


def _bytes(name: str, meaning: str, *, optional: bool = False) -> Column:
    return _sum(name, "bytes", meaning, optional=optional)


def _array(name: str, meaning: str, *items: Column) -> Column:
    return Column(name, "array", meaning, fold="merge", items=items)


def _one_of(values: Any) -> str:
    return ", ".join(get_args(values)) + "."


COMMON: Final = (
    _text("record", "Which record this is."),
    _number("schema", "The version of this definition."),
    _number("at_us", "When it was over; of a folded run: the last one.", "us since 1970", fold="last"),
    _number(
        "first_at_us", "Of a folded run: when the first one was over; else as at_us.", "us since 1970", fold="first"
    ),
    _text("cluster_id", "The Kafka cluster's.", optional=True),
    _text("proxy_id", "The host's name and a mark of the process: another one after each start."),
    _number(
        "seq",
        "Counts the rows of a proxy_id from 0; what is missing was lost. A row that comes twice has it twice. A"
        " lost row has that of the last one that it stands for.",
        fold="last",
    ),
    Column("weight", "double", "How many rows it stands for: 1 / the sampling rate."),
)
_CONNECTION: Final = _number("connection_id", "The client's connection, within the proxy_id.")
_CLIENT_ID: Final = _text("client_id", "As the client calls itself.", optional=True)
_SOFTWARE: Final = _text("software", "The client's library and its version, where known.", optional=True)

_EXCHANGE: Final = (
    _sum("exchanges", "exchanges", "Fetches of a client, with their answers: of a run, how many."),
    _CONNECTION,
    _CLIENT_ID,
    _SOFTWARE,
    _number("fetch_version", "Fetch version that the client speaks."),
    _number("client_session_id", "Its session with Sidefetch; 0 for none."),
    _number("client_session_epoch", "The session epoch of its request.", fold="last"),
    _number("node_id", "The broker that it has asked."),
    _text("reader_rack", "Where Sidefetch is, and so the client.", optional=True),
    _sum("wanted", "partitions", "Asked for, named or remembered by a session."),
    _sum("named", "partitions", "Named by the request."),
    _sum("answered", "partitions", "In the answer."),
    _sum("with_data", "partitions", "In the answer, with records."),
    _bytes("request_bytes", "The client's request, with its size prefix."),
    _bytes("response_bytes", "The answer, with its size prefix."),
    _bytes("direct_request_bytes", "What the request would have been without Sidefetch: the same."),
    _bytes(
        "direct_response_bytes",
        "What the answer would have been without Sidefetch: the same; where records were converted, modelled: with"
        " the records as brokers have them.",
    ),
    _sum("direct_partition_looks", "partitions", "That the broker would have looked at: all that were asked for."),
    _bytes("source_bytes", "Records, as they came from brokers."),
    _bytes("delivered_bytes", "Records, as the client got them, padding included."),
    _bytes("held_bytes", "Of source_bytes, what was here already when the client asked."),
    _bytes("converted_in_bytes", "Records that were converted, before."),
    _bytes("converted_out_bytes", "The same after, without padding."),
    _sum("converted_records", "records", "How many those were."),
    _bytes("padding_bytes", "Declared before the conversion, and then not needed."),
    _sum("conversion_cpu_us", "us", "Of the threads that converted."),
    _number("converted_to", "The record format (magic) that they were converted to.", optional=True),
    _array(
        "sources",
        "What was read where: at most 64, and one for all others.",
        _text("topic", "Null for all others.", optional=True),
        _number("node", "The broker that was read; -1 for all others."),
        _text("rack", "Where that is.", optional=True),
        _number("leader_node", "The broker that leads."),
        _text("leader_rack", "Where that is.", optional=True),
        _sum("wanted", "partitions", "Asked for there."),
        _bytes("bytes", "Records that came from there."),
        _bytes("request_share_bytes", "Of the client's request, those about these partitions, were it a full one."),
    ),
    _sum("total_us", "us", "From the whole request to the answer's last byte: the sum of the six below."),
    _sum("poll_us", "us", "Waiting for news, as long as the client lets us."),
    _sum("broker_us", "us", "Waiting for a broker that has some, or is being reached."),
    _sum("budget_us", "us", "Waiting for memory."),
    _sum("convert_us", "us", "Waiting for a conversion."),
    _sum("throttle_us", "us", "Waiting for the end of a throttling."),
    _sum("write_us", "us", "Waiting for the client, which reads its answer."),
    _array(
        "errors",
        "Error codes that partitions were answered with.",
        _number("code", "Kafka's."),
        _sum("n", "partitions", "How many; of an answer that is an error as a whole: 1."),
    ),
    _text("trace_id", "Of the exchange's span, where that is exported.", optional=True, fold="last"),
)

_FETCH: Final = (
    _sum("fetches", "fetches", "Sidefetch's own: of a run, how many."),
    _CONNECTION,
    _text("lane_id", "Tells the lanes of a connection apart."),
    _text("lane", f"What the lane is for: {_one_of(LaneName)}"),
    _number("node", "The broker."),
    _text("rack", "Where it is.", optional=True),
    _number("version", "Fetch version spoken with it."),
    _text("kind", f"How it was asked: {_one_of(FetchKind)}"),
    _number("session_id", "The broker's session; 0 for none."),
    _number("epoch_first", "The session epoch of the request; of a run, of its first one.", fold="first"),
    _number("epoch_last", "The same of the last one.", fold="last"),
    _sum("size", "partitions", "That the request is about, named or remembered by the broker."),
    _sum("named", "partitions", "Named by the request."),
    _sum("forgotten", "partitions", "That the request removes from the session."),
    _sum("answered", "partitions", "In the answer."),
    _bytes("request_bytes", "The request, with its size prefix."),
    _bytes("response_bytes", "The answer, with its size prefix; 0 where there was none."),
    _bytes("record_bytes", "Of the answer, those that are records."),
    _bytes(
        "dropped_bytes", "Of those, what was of no use when it came: the client had gone on from elsewhere by then."
    ),
    _sum("broker_us", "us", "From the request to the answer, the broker's waiting for news included."),
    _sum("throttle_us", "us", "For how long the broker will not listen."),
    _number(
        "error",
        "Kafka's error code of the whole answer; 0 for none; 13 (NETWORK_EXCEPTION): the connection ended before"
        " there was one, by the broker's fault or since the client had gone.",
    ),
)

_SESSION: Final = (
    _text("side", f"Whose session it is: with the broker, or of a client with Sidefetch: {_one_of(SessionSide)}"),
    _number("node", "The broker."),
    _text("lane_id", "Of upstream sessions: the lane that made it.", optional=True),
    _number("session_id", "0 for one that was refused."),
    _text("event", f"What became of it: {_one_of(SessionEvent)}"),
    _text("reason", "Why it was reset or refused, in Kafka's words or a few.", optional=True),
    _number("partitions", "In it at that time.", "partitions"),
    _number("created_us", "When it began.", "us since 1970", optional=True),
    _number("last_used_us", "When it was last asked in.", "us since 1970", optional=True),
)

_CLIENT: Final = (
    _CONNECTION,
    _CLIENT_ID,
    _SOFTWARE,
    _array(
        "apis",
        "What it has asked for since it has connected; each row has the sums up to then.",
        _number("key", "Kafka's API key."),
        _number("version", "That it was asked for in."),
        _number("lifted_to", "The version that the broker was asked in; the same one where nothing was lifted."),
        _sum("requests", "requests", "How many."),
        _bytes("bytes", "Of the requests."),
    ),
)

_TOPOLOGY: Final = (
    _text("topic", "Its name."),
    _number("partition", "Its number."),
    _number("leader", "The broker that leads; -1 while there is none."),
    _array(
        "replicas",
        "All of them, leader included, in the order of preference.",
        _number("node", "The broker."),
        _text("rack", "Where that is.", optional=True),
        _number("in_sync", "1 if it is in sync, else 0."),
    ),
)

_LOST: Final = (
    _text(
        "reason",
        "full: the queue before the disk or the topic; max-size: the oldest files; torn: cut off by a crash;"
        " file-gone: taken away while it was written; too-large: more than the topic takes.",
    ),
    _number("count", "How many rows.", "rows"),
    _number("seq_first", "The first of them."),
    _number("seq_last", "The last of them."),
)

RECORDS: Final[Mapping[str, tuple[Column, ...]]] = {
    name: (*COMMON, *columns)
    for name, columns in {
        "exchange": _EXCHANGE,
        "fetch": _FETCH,
        "session": _SESSION,
        "client": _CLIENT,
        "topology": _TOPOLOGY,
        "lost": _LOST,
    }.items()
}
"""The columns of each record."""

_MEANINGS: Final = {
    "exchange": "A fetch of a client and its answer.",
    "fetch": "A fetch of Sidefetch's own.",
    "session": "A session began, or ended. Never sampled.",
    "client": "What a client's connection speaks: every five minutes, and at its end. Never sampled.",
    "topology": "A partition, written by `sidefetch topology`.",
    "lost": "Rows that are not there. Never sampled.",
}
_TYPES: Final[Mapping[Kind, type]] = {"string": str, "long": int, "double": float}


def problems(row: Mapping[str, object]) -> Iterator[str]:
    """What is wrong with a row by this definition; nothing for a good one."""
    columns = RECORDS.get(str(row.get("record")))
    if columns is None:
        yield f"record: {row.get('record')!r} is not one of {', '.join(RECORDS)}"
        return
    yield from _wrong_in(columns, row, "")


def _wrong_in(columns: tuple[Column, ...], row: Mapping[str, object], where: str) -> Iterator[str]:
    yield from (f"{where}{name}: unknown" for name in row.keys() - {column.name for column in columns})
    for column in columns:
        path = where + column.name
        if column.name not in row:
            yield f"{path}: missing"
            continue
        value = row[column.name]
        if value is None:
            if not column.is_optional:
                yield f"{path}: null"
        elif column.kind == "array":
            if not isinstance(value, list):
                yield f"{path}: {value!r} is not an array"
                continue
            for index, item in enumerate(value):
                yield from _wrong_in(column.items, item, f"{path}[{index}].")
        elif type(value) is not _TYPES[column.kind]:
            yield f"{path}: {value!r} is not a {column.kind}"


def readme_tables() -> str:
    """Return the tables of ``LEDGER.md``."""
    parts = ["### All rows\n\n" + _table(COMMON)]
    parts += [
        f"### {name}\n\n{_MEANINGS[name]}\n\n{_table(columns[len(COMMON) :])}" for name, columns in RECORDS.items()
    ]
    return "\n".join(parts)


def _table(columns: tuple[Column, ...]) -> str:
    rows = ["| column | type | unit | in a run | what it is |", "|---|---|---|---|---|"]
    for column in columns:
        rows.append(_line(column, column.name))
        rows += [_line(item, f"{column.name}[].{item.name}") for item in column.items]
    return "\n".join(rows) + "\n"


def _line(column: Column, name: str) -> str:
    kind = f"{column.kind}, or null" if column.is_optional else column.kind
    return f"| `{name}` | {kind} | {column.unit} | {column.fold} | {column.meaning} |"
