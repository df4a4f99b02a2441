"""The assignment of slots, and evictions."""

from itertools import count

from proxy.session.epochs import NO_SESSION
from proxy.session.slots import EVICTION_S, OccupiedSlot, SessionSlots


def two_slots() -> SessionSlots[list[int]]:
    counter = count(1)
    return SessionSlots(2, lambda: next(counter))


def of(size: int) -> list[int]:
    return list(range(size))


def test_ids_are_positive_and_never_shared() -> None:
    proposed = iter([0, -5, 7, 7, 2**31, 8])
    slots: SessionSlots[list[int]] = SessionSlots(2, lambda: next(proposed))

    assert [slots.add(of(1), 0.0), slots.add(of(1), 0.0)] == [7, 8]


def test_the_largest_session_id_is_granted() -> None:
    slots: SessionSlots[list[int]] = SessionSlots(1, iter([2**31 - 1, 1]).__next__)

    assert slots.add(of(1), 0.0) == 2**31 - 1


def test_no_slots_grant_nothing() -> None:
    slots: SessionSlots[list[int]] = SessionSlots(0, lambda: 1)

    assert [slots.add(of(3), 0.0), slots.add(of(3), 0.0)] == [NO_SESSION, NO_SESSION]
    assert slots.refusals == 2


def test_each_eviction_is_counted_and_reported_with_its_session() -> None:
    evicted: list[OccupiedSlot[list[int]]] = []
    slots = SessionSlots(1, count(1).__next__, evicted.append)
    sessions = [of(1), of(2), of(3)]
    for number, session in enumerate(sessions):
        slots.add(session, number * (EVICTION_S + 1))

    assert slots.evictions == 2
    assert [(slot.id, slot.session) for slot in evicted] == [(1, sessions[0]), (2, sessions[1])]


def test_a_full_set_refuses_until_a_session_is_stale() -> None:
    slots = two_slots()
    assert [slots.add(of(1), 0.0), slots.add(of(1), 10.0)] == [1, 2]

    assert slots.add(of(99), EVICTION_S) == NO_SESSION
    assert slots.add(of(1), EVICTION_S + 1) == 3
    assert slots.get(1) is None  # type: ignore[arg-type]
    assert (slots.evictions, slots.refusals) == (1, 1)


def test_touching_a_session_changes_which_one_is_stale() -> None:
    slots = two_slots()
    first, second = slots.add(of(1), 0.0), slots.add(of(1), 1.0)
    slots.touch(first, 100.0)

    assert slots.add(of(1), EVICTION_S + 2) == 3
    assert slots.get(first) is not None
    assert slots.get(second) is None


def test_a_larger_newcomer_displaces_the_smallest_session_that_is_old_enough() -> None:
    slots = two_slots()
    small, large = slots.add(of(2), 0.0), slots.add(of(3), 0.0)
    now_s = EVICTION_S + 1
    slots.touch(small, now_s)
    slots.touch(large, now_s)

    assert slots.add(of(1), now_s) == NO_SESSION  # smaller
    assert slots.add(of(2), now_s) == NO_SESSION  # equal
    assert slots.add(of(3), now_s) == 3  # larger
    assert slots.get(small) is None
    assert slots.get(large) is not None


def test_a_larger_newcomer_does_not_displace_young_sessions() -> None:
    slots = two_slots()
    first, second = slots.add(of(1), 0.0), slots.add(of(1), 0.0)
    slots.touch(first, EVICTION_S)
    slots.touch(second, EVICTION_S)

    assert slots.add(of(1000), EVICTION_S) == NO_SESSION


def test_the_age_of_a_session_counts_from_its_creation() -> None:
    slots = two_slots()
    small, large = slots.add(of(1), 100.0), slots.add(of(2), 100.0)
    now_s = 100.0 + EVICTION_S
    slots.touch(small, now_s)
    slots.touch(large, now_s)

    assert slots.add(of(9), now_s) == NO_SESSION
    slots.touch(small, now_s + 1)
    assert slots.add(of(9), now_s + 1) != NO_SESSION
    assert slots.get(small) is None


def test_partition_totals_follow_the_sizes_as_touched() -> None:
    slots = two_slots()
    session = of(5)
    held = slots.add(session, 0.0)
    session.clear()

    assert slots.partitions == 5
    slots.touch(held, 1.0)
    assert slots.partitions == 0
    assert slots.remove(held)
    assert not slots.remove(held)
    assert len(slots) == 0


def test_followers_displace_consumers_of_any_size_but_no_followers_of_their_own_size() -> None:
    slots = two_slots()
    large, small = slots.add(of(9), 0.0), slots.add(of(5), 0.0)

    follower = slots.add(of(1), 1.0, is_follower=True)
    assert slots.get(small) is None
    assert slots.get(large) is not None
    assert slots.add(of(1), 1.0, is_follower=True) != NO_SESSION
    assert slots.get(large) is None
    assert slots.add(of(99), 1.0, is_follower=True) == NO_SESSION  # the other two are young
    now_s = EVICTION_S + 2
    slots.touch(follower, now_s)
    assert slots.add(of(1), now_s, is_follower=True) != NO_SESSION  # one was not used for so long
    assert slots.add(of(1), now_s, is_follower=True) == NO_SESSION
    assert slots.add(of(2), now_s, is_follower=True) != NO_SESSION
    assert slots.get(follower) is None


def test_consumers_displace_no_follower_that_is_in_use() -> None:
    slots = two_slots()
    follower, consumer = slots.add(of(1), 0.0, is_follower=True), slots.add(of(3), 0.0)
    now_s = EVICTION_S + 1
    slots.touch(follower, now_s)
    slots.touch(consumer, now_s)

    assert slots.add(of(2), now_s) == NO_SESSION
    assert slots.add(of(4), now_s) != NO_SESSION
    assert slots.get(consumer) is None
    assert slots.add(of(99), now_s) == NO_SESSION


def test_eviction_takes_smallest_session_by_current_size_after_many_changes() -> None:
    slots: SessionSlots[list[int]] = SessionSlots(3, count(1).__next__)
    sessions = [of(size) for size in (1, 2, 3)]
    ids = [slots.add(session, 0.0) for session in sessions]
    now_s = EVICTION_S + 1
    for round_ in range(200):
        for session, session_id in zip(sessions, ids, strict=True):
            session.append(round_)
            slots.touch(session_id, now_s)
    sessions[0].extend(of(500))
    slots.touch(ids[0], now_s)

    assert slots.add(of(300), now_s) != NO_SESSION
    assert [slots.get(session_id) is None for session_id in ids] == [False, True, False]


def of_bytes(most_bytes: int) -> SessionSlots[list[int]]:
    """Slots for sessions that take ten bytes for each partition."""
    return SessionSlots(9, count(1).__next__, bytes_of=lambda session: 10 * len(session), most_bytes=most_bytes)


def test_a_session_beyond_the_limit_for_memory_is_refused_until_others_have_left() -> None:
    slots = of_bytes(100)
    first, second = slots.add(of(6), 0.0), slots.add(of(4), 0.0)
    assert slots.held_bytes == 100

    assert slots.add(of(1), 1.0) == NO_SESSION
    slots.remove(second)
    assert slots.add(of(5), 1.0) == NO_SESSION
    assert slots.add(of(4), 1.0) != NO_SESSION
    assert slots.get(first) is not None
    assert (slots.refusals, slots.evictions, slots.held_bytes) == (2, 0, 100)


def test_as_many_old_sessions_are_evicted_as_a_new_one_needs_memory() -> None:
    slots = of_bytes(100)
    old = [slots.add(of(3), float(nth)) for nth in range(3)]

    assert slots.add(of(7), EVICTION_S + 5) != NO_SESSION
    assert [slots.get(each) is not None for each in old] == [False, False, True]
    assert slots.held_bytes == 100


def test_a_session_that_is_larger_than_the_limit_for_memory_evicts_none() -> None:
    slots = of_bytes(100)
    old = slots.add(of(1), 0.0)

    assert slots.add(of(11), EVICTION_S + 5) == NO_SESSION
    assert slots.get(old) is not None


def test_a_session_that_grows_beyond_the_limit_for_memory_is_evicted() -> None:
    slots = of_bytes(100)
    growing = of(4)
    first, second = slots.add(growing, 0.0), slots.add(of(5), 0.0)

    growing.append(0)
    assert slots.touch(first, 1.0)
    growing.append(0)
    assert not slots.touch(first, 2.0)
    assert slots.get(first) is None
    assert slots.touch(second, 2.0)
    assert (slots.evictions, slots.held_bytes) == (1, 50)
