"""The times of garbage collection."""

import gc
import weakref
from collections.abc import Iterator

import pytest
import trio
from trio.testing import MockClock

from proxy.net.garbage import GarbageCollector, drop_tracebacks


class Knot:
    """Refers to itself, so that only looking for it finds it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_objects_loaded_at_startup_are_frozen_for_garbage_collection() -> None:
    GarbageCollector().configure()

    assert gc.get_freeze_count() > 10_000
    assert gc.get_threshold()[2] > 10_000


def test_garbage_collection_at_startup_skips_the_oldest_generation() -> None:
    looked_at = []

    def looks(phase: str, reported: dict[str, int]) -> None:
        if phase == "start":
            looked_at.append(reported["generation"])

    gc.callbacks.append(looks)
    try:
        GarbageCollector().configure()
    finally:
        gc.callbacks.remove(looks)

    assert looked_at == [1]


async def test_garbage_of_an_ended_connection_is_collected_within_a_minute(
    autojump_clock: MockClock,  # noqa: ARG001
) -> None:
    garbage = GarbageCollector()
    garbage.configure()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(garbage.run)
        left = weakref.ref(Knot())
        await trio.sleep(61)
        was_found_before = left() is None
        garbage.count_ended()
        await trio.sleep(60)
        nursery.cancel_scope.cancel()

    assert not was_found_before
    assert left() is None


@pytest.mark.parametrize(("connections", "fetch_bytes"), [(1, 20_000_000), (110, 0)])
async def test_much_garbage_of_ended_connections_is_collected_within_seconds(
    connections: int,
    fetch_bytes: int,
    autojump_clock: MockClock,  # noqa: ARG001
) -> None:
    garbage = GarbageCollector()
    garbage.configure()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(garbage.run)
        left = weakref.ref(Knot())
        await trio.sleep(1)
        for _ in range(connections):
            garbage.count_ended(fetch_bytes)
        await trio.sleep(6)
        was_found = left() is None
        nursery.cancel_scope.cancel()

    assert was_found


def test_variables_of_functions_that_raised_are_free_once_tracebacks_are_dropped() -> None:
    left: list[weakref.ref[Knot]] = []

    def fails() -> None:
        large = Knot()
        large.itself = None  # type: ignore[assignment]
        left.append(weakref.ref(large))
        raise ValueError

    def fails_in_turn() -> None:
        try:
            fails()
        except ValueError as error:
            raise ExceptionGroup("", [KeyError()]) from error

    def caught() -> ExceptionGroup[Exception]:
        try:
            fails_in_turn()
        except ExceptionGroup as error:
            return error
        raise AssertionError

    error = caught()
    was_kept = left[0]() is not None
    drop_tracebacks(error)

    assert was_kept
    assert left[0]() is None


async def test_the_exception_of_a_cancelling_task_keeps_its_traceback() -> None:
    dropped: list[trio.Cancelled] = []

    async def wait() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancelled:
            drop_tracebacks(cancelled)
            dropped.append(cancelled)
            raise

    with pytest.RaisesGroup(KeyError) as caught:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            try:
                raise KeyError
            except KeyError:
                nursery.cancel_scope.cancel()
                raise

    (error,) = caught.value.exceptions
    assert dropped[0].__context__ is error
    assert error.__traceback__ is not None
