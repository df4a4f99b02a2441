"""The definition of the ledger: its rows, their columns, types, units and meanings.

The modules that build (``rows``), fold (``folding``), document and read rows use it: a pipeline declares its schema
from ``RECORDS``. A new column or record type leaves ``SCHEMA`` as it is; removing or changing one increments it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, get_args

import attrs

from proxy.events import FetcherName, FetchKind, SessionEvent, SessionSide

__all__ = ["COMMON", "RECORDS", "SCHEMA", "LedgerColumn", "Row", "markdown_tables", "problems"]

SCHEMA: Final = 1
"""The version of this definition."""

Row = dict[str, Any]
"""A row: values by column name, in the order of the columns."""

Kind = Literal["string", "long", "double", "array"]
Fold = Literal["same", "sum", "first", "last", "merge"]
"""The rule by which a column is folded: equal within a run, summed, the first or the last row's value, or merged;
merging an array joins items that differ only in sums."""


@attrs.frozen
class LedgerColumn:
    """The definition of one column of a ledger row, or of one field of the items in an array column."""

    name: str
    kind: Kind
    """The type of the values."""
    meaning: str
    """The description in ``LEDGER.md``."""
    unit: str = ""
    """The unit, such as ``bytes``; empty if the value is no count or measurement."""
    fold: Fold = "same"
    """The rule by which several rows without records become one row."""
    is_optional: bool = False
    """Whether the value may be null."""
    items: "tuple[LedgerColumn, ...]" = ()
    """The fields of each item, if the column is an array."""


def _text(name: str, meaning: str, *, optional: bool = False, fold: Fold = "same") -> LedgerColumn:
    return LedgerColumn(name, "string", meaning, fold=fold, is_optional=optional)


def _number(
    name: str, meaning: str, unit: str = "", *, fold: Fold = "same", optional: bool = False
) -> LedgerColumn:
    return LedgerColumn(name, "long", meaning, unit, fold, optional)


def _sum(name: str, unit: str, meaning: str, *, optional: bool = False) -> LedgerColumn:
    return LedgerColumn(name, "long", meaning, unit, "sum", optional)


def _bytes(name: str, meaning: str, *, optional: bool = False) -> LedgerColumn:
    return _sum(name, "bytes", meaning, optional=optional)


def _array(name: str, meaning: str, *items: LedgerColumn) -> LedgerColumn:
    return LedgerColumn(name, "array", meaning, fold="merge", items=items)


def _one_of(values: Any) -> str:
    return ", ".join(get_args(values)) + "."


COMMON: Final = (
    _text("record", "Which record this is."),
    _number("schema", "The version of this definition."),
    _number("at_us", "Time of the end; of a folded run, of the last row.", "us since 1970", fold="last"),
    _number(
        "first_at_us",
        "Time of the end of the first row of a run; otherwise as at_us.",
        "us since 1970",
        fold="first",
    ),
    _text("cluster_id", "Id of the Kafka cluster.", optional=True),
    _text("proxy_id", "Host name and a mark of the process; changes with each start."),
    _number(
        "seq",
        "Number of the row within its proxy_id, from 0. Gaps are lost rows; a duplicate has the same"
        " number. A lost row has the number of the last row that it stands for.",
        fold="last",
    ),
    LedgerColumn("weight", "double", "Number of rows that it stands for: 1 / the sampling rate."),
)
_CONNECTION: Final = _number("connection_id", "The client's connection, within the proxy_id.")
_CLIENT_ID: Final = _text("client_id", "The client's id.", optional=True)
_SOFTWARE: Final = _text("software", "The client's library and version, if known.", optional=True)

_EXCHANGE: Final = (
    _sum("exchanges", "exchanges", "Number of client fetches in the run."),
    _CONNECTION,
    _CLIENT_ID,
    _SOFTWARE,
    _number("fetch_version", "The client's Fetch version."),
    _number("client_session_id", "The client's session with Sidefetch; 0 for none."),
    _number("client_session_epoch", "The session epoch of its request.", fold="last"),
    _number("node_id", "The broker that the client asked."),
    _text("reader_rack", "The rack of Sidefetch, and thus of the client.", optional=True),
    _sum("wanted", "partitions", "Requested, named or remembered by a session."),
    _sum("named", "partitions", "Named by the request."),
    _sum("answered", "partitions", "In the response."),
    _sum("with_data", "partitions", "In the response, with records."),
    _bytes("request_bytes", "The client's request, with its size prefix."),
    _bytes("response_bytes", "The response, with its size prefix."),
    _bytes("direct_request_bytes", "The request without Sidefetch: the same."),
    _bytes(
        "direct_response_bytes",
        "The response without Sidefetch: the same; if records were converted, modelled with the brokers' records.",
    ),
    _sum(
        "direct_partition_looks",
        "partitions",
        "Partitions that the broker would have examined: all requested ones.",
    ),
    _bytes("source_bytes", "Records, as they came from brokers."),
    _bytes("delivered_bytes", "Records, as the client got them, padding included."),
    _bytes("held_bytes", "Of source_bytes, records that were buffered before the client asked."),
    _bytes("converted_in_bytes", "Converted records, before conversion."),
    _bytes("converted_out_bytes", "The same after, without padding."),
    _sum("converted_records", "records", "Number of converted records."),
    _bytes("padding_bytes", "Declared before conversion, and then not needed."),
    _sum("conversion_cpu_us", "us", "CPU time of the conversion threads."),
    _number("converted_to", "The record format (magic) after conversion.", optional=True),
    _array(
        "sources",
        "Records by topic and broker: at most 64 items, and one for all others.",
        _text("topic", "Null for all others.", optional=True),
        _number("node", "The broker that was read; -1 for all others."),
        _text("rack", "Its rack.", optional=True),
        _number("leader_node", "The leader's node id."),
        _text("leader_rack", "Its rack.", optional=True),
        _sum("wanted", "partitions", "Requested there."),
        _bytes("bytes", "Records that came from there."),
        _bytes("request_share_bytes", "Bytes of the client's request for these partitions, if it were a full one."),
    ),
    _sum("total_us", "us", "From the complete request to the last byte of the response: the sum of the six below."),
    _sum("poll_us", "us", "Wait for new records, within the client's max wait."),
    _sum("broker_us", "us", "Wait for a broker that has records, or that is being connected."),
    _sum("budget_us", "us", "Wait for memory."),
    _sum("convert_us", "us", "Wait for conversion."),
    _sum("throttle_us", "us", "Wait for the end of throttling."),
    _sum("write_us", "us", "Wait for the client to read its response."),
    _array(
        "errors",
        "Error codes of partitions in the response.",
        _number("code", "Kafka's."),
        _sum("n", "partitions", "Number of partitions; 1 if the whole response is an error."),
    ),
    _text("trace_id", "Trace id of the span, if it is exported.", optional=True, fold="last"),
)

_FETCH: Final = (
    _sum("fetches", "fetches", "Number of Sidefetch's fetches in the run."),
    _number(
        "connection_id",
        "The client's connection, within the proxy_id. Null if clients share the fetch (--share-reads).",
        optional=True,
    ),
    _text(
        "fetcher_id",
        "Identifies the upstream connection, within the connection_id or, if that is null, within the proxy_id.",
    ),
    _text("fetcher", f"The kind of the fetcher: {_one_of(FetcherName)}"),
    _number("node", "The broker."),
    _text("rack", "Its rack.", optional=True),
    _number("version", "Fetch version of the request."),
    _text("kind", f"How it was asked: {_one_of(FetchKind)}"),
    _number("session_id", "The broker's session; 0 for none."),
    _number("epoch_first", "The session epoch of the request; of a run, of its first one.", fold="first"),
    _number("epoch_last", "The same of the last one.", fold="last"),
    _sum("size", "partitions", "Partitions of the request, named or remembered by the broker."),
    _sum("named", "partitions", "Named by the request."),
    _sum("forgotten", "partitions", "Partitions that the request removes from the session."),
    _sum("answered", "partitions", "In the response."),
    _bytes("request_bytes", "The request, with its size prefix."),
    _bytes("response_bytes", "The response, with its size prefix; 0 if there was none."),
    _bytes("record_bytes", "Bytes of records in the response."),
    _bytes(
        "dropped_bytes",
        "Of these, records whose log was dropped, or left the fetcher, after the request was sent.",
    ),
    _sum("broker_us", "us", "From the request to the response, including the broker's wait for new records."),
    _sum("throttle_us", "us", "Throttle time of the broker."),
    _number(
        "error",
        "Kafka's error code of the whole response; 0 for none; 13 (NETWORK_EXCEPTION): the connection"
        " ended first, because of the broker or because the client left.",
    ),
    _sum(
        "client_fetches",
        "fetches",
        "Number of client fetches that it served: those that waited for partitions of the fetcher when the"
        " response arrived. If clients do not share it, 1. Null in rows of older versions, which means 1 as well"
        " (of a run: fetches).",
        optional=True,
    ),
)

_SESSION: Final = (
    _text(
        "side", f"The side of the session: with the broker, or of a client with Sidefetch: {_one_of(SessionSide)}"
    ),
    _number("node", "The broker."),
    _text("fetcher_id", "For upstream sessions: the upstream connection that created it.", optional=True),
    _number("session_id", "0 if it was refused."),
    _text("event", f"The event of the session: {_one_of(SessionEvent)}"),
    _text("reason", "The reason of a reset or refusal.", optional=True),
    _number("partitions", "Partitions in the session at that time.", "partitions"),
    _number("created_us", "Time of creation.", "us since 1970", optional=True),
    _number("last_used_us", "Time of the last request in it.", "us since 1970", optional=True),
)

_CLIENT: Final = (
    _CONNECTION,
    _CLIENT_ID,
    _SOFTWARE,
    _array(
        "apis",
        "Requests since it connected; each row has the sums up to then.",
        _number("key", "Kafka's API key."),
        _number("version", "Version of the requests; 32,767 for all versions that Sidefetch does not accept."),
        _number("upgraded_to", "Version that was sent to the broker; the same if the request was not upgraded."),
        _sum("requests", "requests", "Number of requests."),
        _bytes("bytes", "Bytes of the requests."),
    ),
)

_TOPOLOGY: Final = (
    _text("topic", "Its name."),
    _number("partition", "Its number."),
    _number("leader", "The leader's node id; -1 while there is none."),
    _array(
        "replicas",
        "All replicas, leader included, in order of preference.",
        _number("node", "The broker."),
        _text("rack", "Its rack.", optional=True),
        _number("in_sync", "1 if it is in sync, else 0."),
    ),
)

_LOST: Final = (
    _text(
        "reason",
        "full: the queue before disk or topic was full; max-size: the oldest files were deleted; torn:"
        " cut off by a crash; file-gone: the open file was removed; too-large: more than the topic"
        " accepts.",
    ),
    _number("count", "Number of rows.", "rows"),
    _number("seq_first", "The first of them."),
    _number("seq_last", "The last of them."),
)

RECORDS: Final[Mapping[str, tuple[LedgerColumn, ...]]] = {
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
"""The columns of each record type."""

_MEANINGS: Final = {
    "exchange": "A client fetch and its response.",
    "fetch": "One of Sidefetch's own fetches.",
    "session": "A session began, or ended. Never sampled.",
    "client": "The APIs and versions of a client's connection: every five minutes, and at its end. Never sampled.",
    "topology": "A partition, written by `sidefetch topology`.",
    "lost": "Rows that were lost. Never sampled.",
}
_TYPES: Final[Mapping[Kind, type]] = {"string": str, "long": int, "double": float}


def problems(row: Mapping[str, object]) -> Iterator[str]:
    """Yield a message for each way in which *row* violates this definition; nothing for a valid row.

    Violations are: an unknown record type, unknown and missing columns, null where it is not allowed, and values of
    a wrong type, also in the items of arrays.
    """
    columns = RECORDS.get(str(row.get("record")))
    if columns is None:
        yield f"record: {row.get('record')!r} is not one of {', '.join(RECORDS)}"
        return
    yield from _wrong_in(columns, row, "")


def _wrong_in(columns: tuple[LedgerColumn, ...], row: Mapping[str, object], where: str) -> Iterator[str]:
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


def markdown_tables() -> str:
    """Return the Markdown tables of ``LEDGER.md``: the columns of all rows, and then those of each record type."""
    parts = ["### All rows\n\n" + _table(COMMON)]
    parts += [
        f"### {name}\n\n{_MEANINGS[name]}\n\n{_table(columns[len(COMMON) :])}" for name, columns in RECORDS.items()
    ]
    return "\n".join(parts)


def _table(columns: tuple[LedgerColumn, ...]) -> str:
    rows = ["| column | type | unit | in a run | meaning |", "|---|---|---|---|---|"]
    for column in columns:
        rows.append(_line(column, column.name))
        rows += [_line(item, f"{column.name}[].{item.name}") for item in column.items]
    return "\n".join(rows) + "\n"


def _line(column: LedgerColumn, name: str) -> str:
    kind = f"{column.kind}, or null" if column.is_optional else column.kind
    return f"| `{name}` | {kind} | {column.unit} | {column.fold} | {column.meaning} |"
