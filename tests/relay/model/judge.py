"""Invariants of every response, and of every moment without one, whatever the broker and the client do."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from uuid import UUID

from proxy.cluster.topology import Topology
from proxy.errors import ErrorCode
from proxy.events import ExchangeRecord
from proxy.session import downstream
from proxy.session.downstream import Key
from proxy.wire.fetch import UNKNOWN, FetchPartition, FetchResponse, TopicId
from tests.relay.model import filters
from tests.relay.model.broker import FOLLOWER, FOLLOWERS_VERSION, LEADER, RACK, Flight, Look
from tests.relay.model.client import Exchange, Name, Said
from tests.relay.model.logs import Stored, whole_batches

if TYPE_CHECKING:
    from tests.relay.model.world import World

__all__ = ["nothing_stalls", "was_answered", "was_delivered", "was_sent"]

_PARK_GRACE_S: Final = 2.0
"""How long a parked request may be overdue."""
_SLACK_S: Final = 0.05
"""Tolerance for values that are rounded to milliseconds."""
_AGE_SLACK_S: Final = 0.5
_HOLD_S: Final = 0.25
"""How long a client of an unavailable broker is held."""
_SURE_S: Final = 0.1
"""How long the records of one broker may wait for another one's."""
_DRAINING_WAIT_S: Final = 0.1
_LOSSES: Final = 3
"""The most sources that may fail one after the other: the leader, its follower, the leader again."""
_BACK_OFF_S: Final = 10.0
"""The longest time until a partition with an error is asked for again."""


# ------------------------------------------------------------------------------------------ while it waits


def was_sent(world: "World", flight: Flight) -> None:
    """A fetch goes to the broker: for a client that is there."""
    silent_s = world.now_s - world.client.answered_s
    asks = flight.request.session_epoch != UNKNOWN or flight.request.sections
    if asks and not world.client.waiting and world.limits.upstream_max_wait_s:
        assert silent_s <= 2 * world.limits.upstream_max_wait_s + _SLACK_S, "read for a client that is silent"
    _check_rack(world, flight)


def _check_rack(world: "World", flight: Flight) -> None:
    """Check that only clients that may read followers are sent to one, and always with an epoch."""
    source, rack = flight.link.source, flight.request.options.rack_id
    if not flight.covers:
        return
    if source.is_rackless or not (world.racks.ours or world.racks.clients):
        assert not rack, "a rack is sent"
    elif flight.request.version >= FOLLOWERS_VERSION:
        assert rack == RACK, "no rack is sent"
    exchange = world.client.waiting[0] if world.client.waiting else None
    if source.node_id == FOLLOWER and exchange is not None and exchange.known == [world.known]:
        for key in flight.covers:
            assert _may_be_read_there(world, key), f"{key} is read from a follower that is not in sync"
    if source.node_id == FOLLOWER:
        assert world.racks.reads_followers, "a follower is read for who has no rack, or goes there by itself"
        asks = flight.covers.values()
        assert all(ask.leader_epoch != UNKNOWN for ask in asks), "asked without an epoch"
        assert all(ask.last_fetched_epoch == UNKNOWN for ask in asks), "asked what is truncated"


def nothing_stalls(world: "World") -> None:
    """All has happened that can happen now: the oldest exchange must not be due."""
    if not world.client.waiting:
        return
    exchange = world.client.waiting[0]
    options, limits = exchange.options, world.limits
    waited_s = world.now_s - exchange.begun_s
    max_wait_s = options.max_wait_ms / 1000
    if world.was_well_since(exchange.sent_at):
        ready = [name for name in exchange.asks if _could_be_had(world, exchange, name)]
        if not ready or options.min_bytes > 1:
            exchange.ready_s = float("inf")
        exchange.ready_s = min(exchange.ready_s, world.now_s)
        held_up_s = world.now_s - exchange.ready_s
        is_stalled = held_up_s > _SURE_S if world.racks.reads_followers else True
        assert options.min_bytes > 1 or not (ready and is_stalled), (
            f"no answer, though there are records in {ready}"
        )
        assert waited_s <= max_wait_s + _SLACK_S, "a client waits longer than it said"
    if limits.response_timeout_s is not None:
        delays_s = world.delays_s - exchange.delays_s
        losses = _LOSSES if world.racks.reads_followers else 1
        longest_s = max_wait_s + limits.upstream_max_wait_s + _PARK_GRACE_S + losses * limits.response_timeout_s
        longest_s += _HOLD_S + delays_s
        assert waited_s <= longest_s + _SLACK_S, "a client waits for ever"


def _could_be_had(world: "World", exchange: Exchange, name: Name) -> bool:
    """Whether there have been records since the exchange began that a broker would give without ado."""
    ask, log = exchange.asks[name], world.broker.log(name)
    generation, bound = exchange.bounds[name]
    topic_id = TopicId(log.topic_id.bytes)
    info = world.known.topic(name[0])
    leader = info.leaders.get(name[1]) if info is not None else None
    failed_s = world.broker.failed_s.get(name, float("-inf"))
    is_same = log.generation == generation and log.start <= ask.offset < bound
    is_known = (
        info is not None
        and info.topic_id == topic_id
        and leader == (1, log.epoch)
        and (exchange.ids[name[0]] == topic_id or not world.client.by_id)
        and ask.epoch in (UNKNOWN, log.epoch)
    )
    is_there = is_same and is_known and not log.error and world.now_s - failed_s > _BACK_OFF_S
    return is_there and (not world.racks.reads_followers or _is_not_withheld_by_the_follower(world, exchange, name))


def _is_not_withheld_by_the_follower(world: "World", exchange: Exchange, name: Name) -> bool:
    """Return whether the follower has the leader's records, or reports an error, or is not to be asked.

    It was asked under the epoch known at that time. If a later one becomes known, it may not have heard of it: it
    rightly waits until it has. A follower that the leader has preferred is read for a while, even if it is not in
    sync by then.
    """
    ask, log = exchange.asks[name], world.broker.log(name)
    replica = world.broker.replicas[log]
    if world.racks.is_slow and world.broker.would_redirect(log, ask.offset):
        return False
    if not world.is_follower_able:
        return True
    key: Key = (log.topic_id, log.index) if world.follower.version >= 13 else name
    infos = [known.topic(name[0]) for known in exchange.known]
    epochs = {info.leaders[name[1]].epoch for info in infos if info is not None and name[1] in info.leaders}
    asks = [downstream.SessionPartition(ask.offset, ask.max_bytes, epoch) for epoch in epochs]
    if all(world.follower.refusal(replica, key, each) for each in asks):
        return True
    generation, bound = exchange.follower_bounds[name]
    if generation == replica.generation and replica.start <= ask.offset < bound:
        return True
    is_out = all(
        info is not None and FOLLOWER not in info.replicas[name[1]].in_sync
        for info in (known.topic(name[0]) for known in exchange.known)
    )
    return is_out and not _was_named_since(world, name) and not world.broker.would_redirect(log, ask.offset)


def _may_be_read_there(world: "World", key: Key) -> bool:
    """Whether the follower is in sync as far as is known, or the leader has said so since that was known."""
    name = world.broker.name_of(key[0], world.known)
    info = None if name is None else world.known.topic(name)
    if name is None or info is None or key[1] not in info.replicas:
        return True
    return FOLLOWER in info.replicas[key[1]].in_sync or _was_named_since(world, (name, key[1]))


def _was_named_since(world: "World", name: Name) -> bool:
    """Whether the leader has preferred the follower since the metadata that is known was sent."""
    return world.named_at.get(name, 0) > world.announced_at.get(name, 0)


# -------------------------------------------------------------------------------------- when it is answered


def was_delivered(record: ExchangeRecord, response_bytes: int, response: FetchResponse) -> None:
    """Check the record of an exchange against the response that the client has read."""
    replies = [reply for _, replies in response.topics for reply in replies]
    assert (record.answered, record.response_bytes) == (len(replies), response_bytes)
    assert record.with_data == sum(len(reply.records) > 0 for reply in replies)
    assert record.delivered_bytes == record.source_bytes == sum(len(reply.records) for reply in replies), record
    assert record.source_bytes == sum(share.record_bytes for share in record.sources), record
    assert record.wanted >= sum(share.wanted for share in record.sources), record
    errors = Counter(int(reply.error) for reply in replies if reply.error)
    errors.update([int(response.error)] if response.error else [])
    assert dict(record.errors) == errors, (record, replies)
    waited_s = sum(for_us for _, for_us in record.waited_us) / 1e6
    assert abs(record.ended_s - record.started_s - waited_s) < 1e-4


def was_answered(world: "World", exchange: Exchange, response: FetchResponse, said: list[Said]) -> None:
    is_empty = not any(each.reply.error or len(each.reply.records) or _is_redirect(each) for each in said)
    given = {id(reply) for _, replies in response.topics for reply in replies}
    for each in said:
        _check_redirect(world, exchange, each)
        if each.reply.error:
            assert not len(each.reply.records)
            _check_error(world, exchange, each)
            continue
        _check_watermark(world, each)
        if len(each.reply.records):
            _check_records(world, exchange, each, is_delayed=response.throttle_ms > 0)
        elif not (response.throttle_ms or _is_redirect(each)):
            _check_nothing_new(world, exchange, each, is_empty=is_empty, is_given=id(each.reply) in given)
    if is_empty and not response.throttle_ms and world.was_well_since(exchange.sent_at):
        withheld = [each.name for each in said if _could_be_had(world, exchange, each.name)]
        assert not withheld, f"an empty answer, though there are records in {withheld}"


def _is_redirect(each: Said) -> bool:
    return each.reply.preferred_read_replica != UNKNOWN


def _check_redirect(world: "World", exchange: Exchange, each: Said) -> None:
    """It is the leader's, for a client that follows it."""
    if _is_redirect(each):
        assert world.racks.clients, "a redirect is shown to a client without a rack"
        looks = _leaders_looks(world, exchange, each)
        assert any(look.preferred_replica == each.reply.preferred_read_replica for _, look in looks)


def _check_error(world: "World", exchange: Exchange, each: Said) -> None:
    """Check that the leader has sent the error since the exchange began, or that there is no leader to ask."""
    error = each.reply.error
    looks = list(_leaders_looks(world, exchange, each))
    if error == ErrorCode.offset_out_of_range:
        assert any(_is_out_of_range(each, ask, look) for ask, look in looks), (
            f"{each.name} is not out of range at {each.ask.offset}:{_seen(world, exchange)}"
        )
        return
    is_misfit = any(_is_misfit(world, exchange, known, each.name) for known in exchange.known)
    is_of_epochs = error in (ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch)
    assert not is_of_epochs or each.ask.epoch != UNKNOWN, "an error about an epoch that no request had"
    is_cut_off = any(
        max(world.wires[link].lost_at, world.wires[link].closed_at) > exchange.sent_at
        for link in world.links_to(LEADER)
    )
    of_leader = [look for _, look in looks if look.error]
    is_certain = is_of_epochs or error == ErrorCode.kafka_storage_error
    is_reported = any(look.error == error or not is_certain for look in of_leader) or _is_stalled(
        world, exchange, error
    )
    assert is_reported or (not is_certain and (is_misfit or is_cut_off)), (
        f"the leader has sent no error {error} of {each.name}:{_seen(world, exchange)}"
    )


def _is_stalled(world: "World", exchange: Exchange, error: int) -> bool:
    """The watchdog may have answered: something went wrong, and the fetch has outlived its wait."""
    timeout_s = world.limits.response_timeout_s
    if timeout_s is None or error != ErrorCode.not_leader_or_follower or world.was_well_since(exchange.sent_at):
        return False
    longest_s = _DRAINING_WAIT_S if world.is_draining else float("inf")
    wait_s = min(exchange.options.max_wait_ms / 1000, longest_s)
    return world.now_s >= exchange.begun_s + wait_s + timeout_s


def _is_out_of_range(each: Said, ask: downstream.SessionPartition, look: Look) -> bool:
    if ask.offset != each.ask.offset:
        return False
    if look.diverging_epoch is not None:
        return each.ask.epoch == UNKNOWN and look.diverging_epoch[1] < each.ask.offset
    return look.error == ErrorCode.offset_out_of_range and ask.last_fetched_epoch == UNKNOWN


def _leaders_looks(
    world: "World", exchange: Exchange, each: Said
) -> Iterator[tuple[downstream.SessionPartition, Look]]:
    """Return the leader's answers about a partition since the exchange began."""
    for flight in world.broker.flights:
        if flight.node_id == LEADER and (flight.delivered_at or 0) > exchange.sent_at:
            for key, look in flight.looks.items():
                if (world.broker.name_of(key[0], flight.meant), key[1]) == each.name:
                    yield flight.covers[key], look


def _is_misfit(world: "World", exchange: Exchange, known: Topology, name: Name) -> bool:
    """Whether nobody need be asked, as far as is known."""
    info = known.topic(name[0])
    if info is None or info.error or (world.client.by_id and info.topic_id != exchange.ids[name[0]]):
        return True
    leader = info.leaders.get(name[1])
    return leader is None or leader.node_id != LEADER


def _check_watermark(world: "World", each: Said) -> None:
    """It is one that there was, and it does not go back but to a later generation's."""
    shown = each.reply.high_watermark
    before, generations = world.shown.get(each.name, (-1, {0}))
    possible = {
        generation
        for log in world.broker.past[each.name]
        for generation, watermark in log.watermarks
        if watermark == shown
        and any(generation > earlier or (generation == earlier and shown >= before) for earlier in generations)
    }
    assert possible, f"the high watermark of {each.name} went from {before} to {shown}"
    world.shown[each.name] = (shown, possible)


def _check_records(world: "World", exchange: Exchange, each: Said, *, is_delayed: bool) -> None:
    """The log's own batches from the one with the offset on, none missing and none from another time."""
    whole, cut = whole_batches(each.reply.records)
    assert whole, "a batch that is cut before its end"
    batches = [world.broker.by_bytes[data] for data in whole]
    first, last = batches[0], batches[-1]
    log = first.log
    assert all(batch.log is log for batch in batches)
    assert log.key == each.name, "records of another partition"
    assert not world.client.by_id or log.topic_id.bytes == exchange.ids[log.topic], "records of another topic"
    assert first.base <= each.ask.offset <= first.last, f"{each.name} was asked for at {each.ask.offset}"
    assert all(one.last + 1 == next_.base for one, next_ in pairwise(batches))
    assert log.coexisted(batches), "records from before and after a truncation"
    if cut:
        assert any(batch.base == last.last + 1 and batch.data.startswith(cut) for batch in log.added)
    isolation = exchange.options.isolation
    bound = each.reply.last_stable_offset if isolation else each.reply.high_watermark
    assert last.last < bound, "records behind the reported end"
    for batch in batches:
        assert is_delayed or _is_current(world, exchange, each.ask, batch), (
            f"{each.name} at {batch.base}: from an earlier reading"
        )
    is_still_there = first.base >= log.start and not any(batch in log.removed for batch in batches)
    if isolation and is_still_there:
        committed = [batch for batch in batches if log.is_committed(batch)]
        aborted = each.reply.aborted or ()
        assert filters.java(batches, aborted) == committed
        assert filters.librdkafka(batches, aborted) == committed


def _is_current(world: "World", exchange: Exchange, ask: FetchPartition, batch: Stored) -> bool:
    """Whether it was read for this exchange, or was held and nothing has happened to it since."""
    readings = [
        (flight, key)
        for flight, key in world.broker.sent.get(batch, [])
        if flight.delivered_at is not None and not _is_mistaken(world, flight, key, ask)
    ]
    if not world.limits.upstream_max_wait_s:
        return any(flight.sent_at > exchange.sent_at for flight, _ in readings)
    return any(_holds(world, exchange, flight, key) for flight, key in readings)


def _holds(world: "World", exchange: Exchange, flight: Flight, key: Key) -> bool:
    name = world.broker.name_of(key[0], flight.known)
    if name is None or flight.delivered_at is None:
        return False
    failures = world.broker.failed_at
    epoch = flight.covers[key].leader_epoch
    failed_at = max(failures.get((key, epoch), 0), failures.get(((name, key[1]), epoch), 0))
    is_young = world.now_s - flight.delivered_s <= world.limits.upstream_max_wait_s + _AGE_SLACK_S
    return (
        (is_young or flight.delivered_at > exchange.sent_at)
        and flight.delivered_at > failed_at
        and (flight.delivered_at > world.wires[flight.link].lost_at or flight.sent_at > exchange.sent_at)
        and flight.request.options.isolation == exchange.options.isolation
        and _identity(flight.known, name, key[1]) == _identity(world.known, name, key[1])
    )


def _is_mistaken(world: "World", flight: Flight, key: Key, ask: FetchPartition) -> bool:
    """Return whether it is a follower's answer, though the client did not send that it knows the epoch.

    If a topic was created again with the same name and epoch, nobody could know. A client with a rack may have been
    sent
    to a follower, and means it.
    """
    look = flight.looks[key]
    info = flight.meant.topic(key[0]) if isinstance(key[0], str) else None
    is_namesake = info is not None and look.log is not None and info.topic_id != look.log.topic_id.bytes
    return look.is_followers and ask.epoch == UNKNOWN and not (is_namesake or world.racks.clients)


def _identity(known: Topology, topic: str, partition: int) -> object:
    info = known.topic(topic)
    return None if info is None else (info.topic_id, info.leaders.get(partition))


def _check_nothing_new(world: "World", exchange: Exchange, each: Said, *, is_empty: bool, is_given: bool) -> None:
    """Check that the broker says so: in a later response, or by holding a fetch for exactly this.

    Beside other brokers' news, a fetch that waits for more than the first byte counts as having too little. Of
    values
    that a session's response leaves out, the high watermark alone is known to be unchanged: brokers leave out a
    last
    stable offset that has moved by itself (KIP-227).
    """
    reply = each.reply
    bound = reply.last_stable_offset if exchange.options.isolation and is_given else reply.high_watermark
    if each.ask.offset < bound:
        return
    assert any(
        _says_nothing_new(world, exchange, each, flight)
        or (not is_empty and _waits(world, each, flight))
        or _is_unread(world, flight)
        for flight in world.broker.flights
        if not flight.is_lost
    ), f"nobody says that there is nothing new in {each.name} at {each.ask.offset}:{_seen(world, exchange)}"


def _seen(world: "World", exchange: Exchange) -> str:
    """The exchange and the latest fetches, for whoever has to find out why."""
    lines = [f"exchange of {exchange.sent_at}, {exchange.begun_s:g} s, {exchange.options}; now {world.now_s:g} s"]
    for flight in world.broker.flights[-5:]:
        state = "lost" if flight.is_lost else f"delivered at {flight.delivered_at}, {flight.delivered_s:g} s"
        asks = {
            str(key[0])[-2:] + f"-{key[1]}": (ask.offset, ask.leader_epoch) for key, ask in flight.covers.items()
        }
        lines.append(f"{flight.link} of {flight.sent_at}, {flight.sent_s:g} s, {asks}, {state}")
    return "\n".join(["", *lines])


def _is_unread(world: "World", flight: Flight) -> bool:
    """Return whether the broker has not read a request that was sent a while ago.

    From outside that looks like a long poll, and the request's partitions are not known before it is read.
    """
    return flight.is_under_way and flight.context is None and world.now_s - flight.sent_s >= _SLACK_S - 1e-6


def _waits(world: "World", each: Said, flight: Flight) -> bool:
    """Whether a fetch waits for more, of several brokers' partitions together."""
    options = flight.request.options
    is_share = options.max_wait_ms > 0 and options.min_bytes > 1 and world.racks.reads_followers
    is_waiting = is_share and flight.is_under_way
    return is_waiting and _covering(world.known, each, flight, options.isolation) is not None


def _says_nothing_new(world: "World", exchange: Exchange, each: Said, flight: Flight) -> bool:
    known = world.known if flight.delivered_at is None else flight.meant
    key = _covering(known, each, flight, exchange.options.isolation)
    if key is None:
        return False
    limits = world.limits
    answered_s = flight.delivered_s if flight.begun_at is None else flight.begun_s
    until_s = world.now_s if flight.delivered_at is None else answered_s
    is_in_time = until_s - flight.sent_s <= limits.upstream_max_wait_s + _PARK_GRACE_S + _SLACK_S
    was_parked = bool(limits.upstream_max_wait_s) and flight.request.options.min_bytes <= 1 and is_in_time
    if flight.delivered_at is None:
        return was_parked or world.is_draining
    # Who was parked when the exchange began, and has been answered since, has been read since.
    heard_at = flight.delivered_at if flight.begun_at is None else flight.begun_at
    is_since = flight.sent_at > exchange.sent_at or (was_parked and heard_at > exchange.sent_at)
    look = flight.looks.get(key)
    if not is_since or look is None or _is_mistaken(world, flight, key, each.ask):
        return False
    return not look.error and look.found_nothing


def _covering(known: Topology, each: Said, flight: Flight, isolation: int) -> Key | None:
    """Return the fetch's name of the client's partition, if the fetch asks for exactly the same of it."""
    info = known.topic(each.name[0])
    if info is None or flight.request.options.isolation != isolation:
        return None
    by_id = flight.request.version >= 13 and info.topic_id is not None
    key: Key = (UUID(bytes=info.topic_id) if by_id and info.topic_id else each.name[0], each.name[1])
    ask = flight.covers.get(key)
    if ask is None or ask.offset != each.ask.offset:
        return None
    return key if each.ask.epoch in (UNKNOWN, ask.leader_epoch) else None
