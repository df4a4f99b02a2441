"""Hypothesis strategies of the property tests; ``SIDEFETCH_HYPOTHESIS=deep`` runs twenty times as many examples.

Quick runs draw the same examples every time, so that only a change makes them fail; deep runs draw new ones. The
profile ``unshrunk`` draws those of quick runs, and reports the first failing example as it is.
"""

import os
from typing import Final

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from proxy.wire.fetch import (
    IDS_VERSION,
    Endpoint,
    FetchOptions,
    FetchPartition,
    FetchResponse,
    PartitionKey,
    PartitionReply,
    Topic,
    TopicId,
)

__all__ = [
    "asks",
    "client_ids",
    "examples",
    "i16s",
    "i32s",
    "i64s",
    "keys",
    "options",
    "replies",
    "responses",
    "steps",
    "topics",
]

_PROFILE: Final = os.environ.get("SIDEFETCH_HYPOTHESIS", "quick")
_SCALE: Final = 20 if _PROFILE == "deep" else 1
_CALM: Final = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile("quick", deadline=None, derandomize=True, suppress_health_check=_CALM)
settings.register_profile("deep", deadline=None, suppress_health_check=_CALM)
settings.register_profile("unshrunk", settings.get_profile("quick"), phases=[Phase.explicit, Phase.generate])
settings.load_profile(_PROFILE)


def examples(count: int) -> settings:
    """So many, or more in a deep run."""
    return settings(max_examples=count * _SCALE)


def steps(count: int, runs: int) -> settings:
    """For a stateful test: *runs* of up to *count* steps each."""
    return settings(max_examples=runs * _SCALE, stateful_step_count=count)


i16s = st.integers(-(2**15), 2**15 - 1)
i32s = st.one_of(st.integers(0, 200), st.integers(-(2**31), 2**31 - 1))
i64s = st.one_of(st.integers(0, 200), st.integers(-(2**63), 2**63 - 1))
client_ids = st.one_of(st.none(), st.text(max_size=12))
_names = st.one_of(
    st.sampled_from(["orders", "payments", "é", "x" * 249]),
    st.text(min_size=1, max_size=300).map(lambda name: name.encode()[:249].decode(errors="ignore")),
)
_ids = st.one_of(st.integers(1, 3), st.integers(1, 2**128 - 1)).map(lambda number: TopicId(number.to_bytes(16)))


def topics(version: int) -> st.SearchStrategy[Topic]:
    """Draw topics as a request of *version* names them."""
    return _ids if version >= IDS_VERSION else _names


def keys(version: int) -> st.SearchStrategy[PartitionKey]:
    return st.builds(PartitionKey, topics(version), i32s)


def asks(version: int) -> st.SearchStrategy[FetchPartition]:
    """Draw partitions with the fields of *version*."""
    return st.builds(
        FetchPartition,
        offset=i64s,
        max_bytes=i32s,
        epoch=i32s if version >= 9 else st.just(-1),
        last_fetched_epoch=i32s if version >= 12 else st.just(-1),
    )


def options(version: int) -> st.SearchStrategy[FetchOptions]:
    return st.builds(
        FetchOptions,
        max_wait_ms=i32s,
        min_bytes=i32s,
        max_bytes=i32s if version >= 3 else st.just(2**31 - 1),
        isolation=st.integers(0, 1) if version >= 4 else st.just(0),
        rack_id=st.text(max_size=5) if version >= 11 else st.just(""),
    )


def _pairs(
    first: st.SearchStrategy[int], second: st.SearchStrategy[int]
) -> st.SearchStrategy[tuple[int, int] | None]:
    """None too; not the pair of -1, which stands for none."""
    return st.one_of(st.none(), st.tuples(first, second).filter(lambda pair: pair != (-1, -1)))


def replies(version: int, errors: st.SearchStrategy[int]) -> st.SearchStrategy[PartitionReply]:
    """Draw partitions of a response with the fields of *version*; from v4 on."""
    tagged = version >= 12
    return st.builds(
        PartitionReply,
        partition=i32s,
        error=errors,
        high_watermark=i64s,
        last_stable_offset=i64s,
        log_start_offset=i64s if version >= 5 else st.just(-1),
        aborted=st.one_of(st.none(), st.lists(st.tuples(i64s, i64s), max_size=3).map(tuple)),
        preferred_read_replica=i32s if version >= 11 else st.just(-1),
        records=st.one_of(st.just(b""), st.binary(max_size=300)),
        diverging_epoch=_pairs(i32s, i64s) if tagged else st.none(),
        current_leader=_pairs(i32s, i32s) if tagged else st.none(),
    )


_endpoints = st.builds(
    Endpoint, node_id=i32s, host=st.text(max_size=12), port=i32s, rack=st.one_of(st.none(), st.text(max_size=5))
)


def responses(version: int, errors: st.SearchStrategy[int]) -> st.SearchStrategy[FetchResponse]:
    """Answers as brokers send them; from v4 on."""
    parts = st.tuples(topics(version), st.lists(replies(version, errors), max_size=3).map(tuple))
    return st.builds(
        FetchResponse,
        correlation_id=i32s,
        throttle_ms=st.integers(0, 2**31 - 1),
        error=errors if version >= 7 else st.just(0),
        session_id=i32s if version >= 7 else st.just(0),
        topics=st.lists(parts, max_size=3).map(tuple),
        endpoints=st.lists(_endpoints, max_size=2).map(tuple) if version >= 16 else st.just(()),
    )
