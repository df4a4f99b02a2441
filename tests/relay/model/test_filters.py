"""The two ways of leaving out aborted records agree with the log, and are sensitive to a list that is wrong."""

from hypothesis import given
from hypothesis import strategies as st

from tests.relay.model.broker import ModelBroker
from tests.relay.model.filters import java, librdkafka
from tests.relay.model.logs import Kind, Log
from tests.strategies import examples

some_history: st.SearchStrategy[list[tuple[Kind, int]]] = st.lists(
    st.tuples(
        st.sampled_from(["plain", "transactional", "transactional", "commit", "abort"]), st.sampled_from([7, 8])
    ),
    max_size=14,
)


def log_of(history: list[tuple[Kind, int]]) -> Log:
    broker = ModelBroker(18, {"a": 1}, 0)
    log = broker.log(("a", 0))
    for kind, producer in history:
        is_open = any(each.producer == producer and each.last is None for each in log.transactions())
        if is_open or kind in ("plain", "transactional"):
            broker.append(log, kind, 1, -1 if kind == "plain" else producer)
    log.replicate()
    return log


@given(history=some_history, start=st.integers(0, 14), length=st.integers(1, 14))
@examples(200)
def test_both_filters_deliver_exactly_the_committed_batches_of_any_range(
    history: list[tuple[Kind, int]], start: int, length: int
) -> None:
    log = log_of(history)
    bound = log.last_stable
    batches = [batch for batch in log.batches if start <= batch.last and batch.base < bound][:length]
    committed = [batch for batch in batches if log.is_committed(batch)]
    aborted = log.aborted(start, bound)
    assert java(batches, aborted) == committed
    assert librdkafka(batches, aborted) == committed


def test_librdkafka_loses_a_later_commit_if_an_aborted_transaction_is_listed_twice() -> None:
    log = log_of([("transactional", 7), ("abort", 7), ("transactional", 7), ("commit", 7)])
    later = [log.batches[2]]
    assert librdkafka(log.batches, [(7, 0)]) == later
    assert librdkafka(log.batches, [(7, 0), (7, 0)]) == []


def test_both_filters_lose_a_later_commit_if_an_abort_before_the_range_is_listed() -> None:
    log = log_of([("transactional", 7), ("abort", 7), ("transactional", 7), ("commit", 7)])
    rest = log.batches[2:]
    assert java(rest, []) == librdkafka(rest, []) == log.batches[2:3]
    assert java(rest, [(7, 0)]) == librdkafka(rest, [(7, 0)]) == []


def test_a_transaction_that_is_not_listed_is_delivered() -> None:
    log = log_of([("transactional", 7), ("abort", 7)])
    assert java(log.batches, []) == librdkafka(log.batches, []) == log.batches[:1]
