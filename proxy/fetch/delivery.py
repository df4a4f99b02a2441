"""The partitions of one client connection, and the composition of its responses from cached logs and errors."""

from collections.abc import Sequence
from typing import Final, assert_never

import attrs

from proxy.cluster.topology import BrokerId, Topology
from proxy.convert.types import (
    CodecRefused,
    ConversionTarget,
    Converted,
    DamagedEntry,
    IncompleteEntry,
    NothingForClient,
)
from proxy.errors import ErrorCode
from proxy.events import DamageRecord, Record, TruncationRecord
from proxy.fetch.client_sessions import Context
from proxy.fetch.commands import EmitRecord, ReaderCommand
from proxy.fetch.converting import Job, NoRoom, conversion_of
from proxy.fetch.error_codes import STALE_TOPOLOGY
from proxy.fetch.exchange import Exchange
from proxy.fetch.fetch_config import FetchConfig
from proxy.fetch.fetch_state import Change, FetchState, RequestContext
from proxy.fetch.log import Slice
from proxy.fetch.offsets import Offsets
from proxy.fetch.positions import Deliverable, Positions
from proxy.fetch.response_template import ResponseTemplate, Updates
from proxy.fetch.shared_log import LogKey, SharedLog
from proxy.wire.fetch import (
    UNKNOWN,
    FetchPartition,
    FetchRequest,
    PartitionKey,
    PartitionReply,
    Topic,
    erroneous,
    request_layout,
    response_layout,
)
from proxy.wire.frames import QUICK_BYTES, Piece

__all__ = ["Delivery", "Encoding", "Update"]

_ID_ERRORS: Final = (ErrorCode.unknown_topic_id, ErrorCode.inconsistent_topic_id)
_EPOCH_ERRORS: Final = (ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch)
_ENCODED_AT_ONCE: Final = 1000
"""The most partitions with errors, records or changed offsets of a response that is encoded in the event loop."""
_MOST_READ: Final = 1_000
"""The partitions of a resting client whose look-back is kept: about 250 kB."""


class Delivery:
    """The requested partitions and the responses of one client connection.

    It takes over client fetches (``prepare_update``) and puts records, errors and offsets into responses.
    ``Reader`` decides when a fetch is answered.
    """

    def __init__(self, node_id: BrokerId, config: FetchConfig) -> None:
        """*node_id*: the broker whose listener the client uses, and which it takes for the leader."""
        self.state = FetchState()
        """The partitions and offsets of the last client fetch."""
        self.template = ResponseTemplate(response_layout(0), committed=False)
        """The response template; empty before the first ``Update``."""
        self._node_id = node_id
        self._policy = config.policy
        self._truncations = config.truncations
        self._read: dict[PartitionKey, tuple[int, int]] = {}
        """By partition, the leader epoch and high watermark of the last delivered records; only for clients that
        send no epochs."""
        self._client_id: str | None = None
        self._sends_epochs = False
        """Whether the client sends leader epochs."""
        self._follows = False
        """Whether the client itself fetches from the replica that a leader prefers."""
        self.stale: dict[Topic, None] = {}
        """The topics whose metadata must be refreshed, because of errors."""
        self._answered: set[PartitionKey] = set()
        """The partitions that are in the response of the open client fetch already."""

    def rest(self) -> None:
        """Free the memory of the client's partitions, but for the 1,000 last read ones' leader epochs (L5)."""
        self._read = dict(list(self._read.items())[-_MOST_READ:])
        self.state, self._answered = FetchState(), set()
        self.template = ResponseTemplate(response_layout(0), committed=False)

    # ------------------------------------------------------------------------------------------- requests

    def prepare_update(self, request: FetchRequest, topology: Topology, at: Positions, *, by_id: bool) -> "Update":
        """Return the computation that adopts the partitions of a client fetch, or a new topology for it.

        Run it, in any thread, and pass its result to ``finish_update``; use neither ``state`` nor ``template``
        meanwhile. If the Fetch version or the isolation level has changed, the client's logs are dropped, unless
        clients share the cache.

        Args: request: the fetch, with all partitions of the client's session.
              at: the logs that the client reads; partitions with outdated offsets are added to its ``changed``.
              by_id: whether upstream fetches name topics by id.
        """
        self._client_id = request.header.client_id
        self._follows = bool(request.options.rack_id)
        self._sends_epochs = sends_epochs(request)
        context = RequestContext(self._node_id, by_id, self._follows, self._policy.switch_for(request.version))
        committed = bool(request.options.isolation)
        is_other = not self.template.is_for(request.version, committed=committed)
        if is_other:
            at.void_all()  # the response of another version may have offsets that the last one lacked
            self.template = ResponseTemplate(response_layout(request.version), committed=committed)
            at.changed.update(dict.fromkeys(self.state.requested))
        return Update(request, topology, context, self.state, self.template, is_other)

    def finish_update(self, change: Change, at: Positions) -> None:
        """Handle the result of an ``Update``.

        For a client that sends no leader epochs, truncation checks begin where the epoch has grown since it last
        got records, and its offset is not above their high watermark; for partitions not yet read on this
        connection, only at exactly the offset up to which its client id last read.
        """
        for key in change.touched:
            self._check_truncation(key)
        if change.reshaped:
            at.changed.update(dict.fromkeys(key for key in change.touched if key in self.state.requested))

    def _check_truncation(self, key: PartitionKey) -> None:
        """Have the leader check a partition for truncation, if its epoch has grown since the client read it."""
        wanted = self.state.requested.get(key)
        if wanted is not None and not self._sends_epochs and wanted.last_fetched_epoch == UNKNOWN:
            if key in self._read:
                epoch, high_watermark = self._read[key]
                is_suspected = epoch < wanted.epoch and wanted.offset <= high_watermark
            else:
                epoch = self._truncations.suspected_epoch(self._client_id, key, wanted)
                is_suspected = epoch != UNKNOWN
            if is_suspected:
                self.state.check(key, epoch)

    def begin(self, exchange: Exchange) -> None:
        """Begin the response of *exchange* from the start, with the errors of partitions that are not read."""
        exchange.updates = {}
        self._answered = set()
        self.add_unreadable(exchange)

    def add_unreadable(self, exchange: Exchange) -> None:
        """Add the errors of partitions that are not requested from brokers and not in the response already."""
        if self.state.unreadable_errors:
            exchange.add_errors(self.state.unreadable_errors)

    def answered(self, exchange: Exchange) -> set[PartitionKey]:
        """Return the partitions that are in the response already, by the brokers' names.

        These have records, an error or another result of a broker. Errors of partitions that are not requested from
        brokers (``add_unreadable``) do not count.
        """
        return self._answered if exchange.updates else set()

    def log_key(self, key: PartitionKey, rack: str, at: Positions, now_s: float) -> tuple[LogKey, FetchPartition]:
        """Return the identity of the log from which to read a partition, and the offset and limit to request.

        The source is the replica to read for a client in *rack*, or the leader; always the leader during a
        truncation check, and if a follower did not have the offset.
        """
        wanted = self.state.requested[key]
        routes = at.cache.routes(self._node_id)
        if key in at.at_leader:
            source = routes.rackless
        elif key in self.state.checked:
            source = routes.home if self._follows or not rack else routes.rackless
        else:
            source = routes.choose_source(key, rack, at.cache.topology, now_s)
            if source.is_rackless and not rack:
                source = routes.home
        return LogKey(key, source, wanted.epoch, wanted.last_fetched_epoch, at.is_probe), wanted

    # ------------------------------------------------------------------------------------------- responses

    def failed(
        self,
        exchange: Exchange,
        log: SharedLog,
        reply: PartitionReply,
        topology: Topology,
        commands: list[ReaderCommand],
    ) -> bool:
        """Add a broker's response for a partition to the client's, unless it is to be read again.

        It is read again, without Sidefetch's changes to the request, if the broker answers OFFSET_OUT_OF_RANGE to
        an offset that Sidefetch changed or to a truncation check, or if the check finds nothing missing below the
        offset. *reply* is a response other than records that a log can hold: an error, a redirect, a diverging
        epoch, or damaged records. The client gets it as it is, with an error code that its Fetch version has,
        except for damaged records that need conversion (CORRUPT_MESSAGE), the refusal of an epoch that Sidefetch
        added (NOT_LEADER_OR_FOLLOWER), and truncation that it has detected (OFFSET_OUT_OF_RANGE). Topics with stale
        metadata are added to ``stale``, telemetry to *commands*. No effect if the partition is not requested any
        more.

        Return whether the broker refuses a topic id or a leader epoch that Sidefetch added to the request, so that
        its metadata is out of date.
        """
        key = log.key.partition
        named, wanted = self.state.named.get(key.topic), self.state.requested.get(key)
        if named is None or wanted is None:
            return False
        if reply.error in STALE_TOPOLOGY:
            self.stale[named] = None
        if len(reply.records):
            self._answered.add(key)
            exchange.add(named, self._damaged_reply(exchange, key, reply, commands))
            return False
        if not self._is_read_again(key, reply):
            self._answered.add(key)
            exchange.add(named, self._error_reply(exchange, named, key, wanted, reply, topology, commands))
        return _is_ours(reply, exchange, named, by_id=isinstance(key.topic, bytes))

    def _damaged_reply(
        self, exchange: Exchange, key: PartitionKey, reply: PartitionReply, commands: list[ReaderCommand]
    ) -> PartitionReply:
        """Return the client's reply for damaged records: unchanged, or CORRUPT_MESSAGE if they need conversion."""
        offset, why = self.state.requested[key].offset, "the header of its first entry is damaged"
        target = self._policy.target(exchange.version, committed=bool(exchange.request.options.isolation))
        if conversion_of(reply, offset, target) is None:
            return reply
        topic = str(self.state.named[key.topic])
        commands.append(EmitRecord(DamageRecord(self._node_id, topic, key.partition, offset, why)))
        return erroneous(key.partition, ErrorCode.corrupt_message)

    def _error_reply(
        self,
        exchange: Exchange,
        named: Topic,
        key: PartitionKey,
        wanted: FetchPartition,
        reply: PartitionReply,
        topology: Topology,
        commands: list[ReaderCommand],
    ) -> PartitionReply:
        """Return the client's reply for a broker's error.

        It is NOT_LEADER_OR_FOLLOWER if the broker refused an epoch that Sidefetch added, and OFFSET_OUT_OF_RANGE if
        records that the client has read were truncated.
        """
        if reply.diverging_epoch is None or key not in self.state.checked:
            is_ours = _is_ours(reply, exchange, named, by_id=False)
            return reply._replace(error=ErrorCode.not_leader_or_follower) if is_ours else reply
        self._read.pop(key, None)
        self._truncations.forget(self._client_id, key)
        self.state.end_check(key)
        topic, read_under = topology.name_of(key.topic), wanted.last_fetched_epoch
        record = TruncationRecord(
            self._node_id, topic, key.partition, wanted.offset, read_under, *reply.diverging_epoch
        )
        commands.append(EmitRecord(record))
        return erroneous(reply.partition, ErrorCode.offset_out_of_range)

    def truncation_checked(self, key: PartitionKey) -> bool:
        """End the truncation check of a partition without truncation; return whether there was a check."""
        return key in self.state.requested and self.state.end_check(key)

    def _is_read_again(self, key: PartitionKey, reply: PartitionReply) -> bool:
        """Return whether to read the partition again: Sidefetch had changed the offset or added a truncation check.

        These changes are undone for the next request.
        """
        if reply.diverging_epoch is not None:
            _, end_offset = reply.diverging_epoch
            # The epoch that Sidefetch knows may have no records of its own: then nothing is missing up to its end.
            return end_offset >= self.state.requested[key].offset and self.state.end_check(key)
        if reply.error != ErrorCode.offset_out_of_range:
            return False
        # The offset after skipped records may be deleted, and the client's own not; or the broker forgot the epoch.
        return self.state.undo_skip(key) | self.state.end_check(key)

    def lacks_offsets(self, at: Positions, answered: set[PartitionKey]) -> bool:
        """Return whether the response lacks the offsets of a partition for which it has no records and no error.

        No broker has reported them; or the known high watermark is below the end of the client's log, and no
        response for that log has had one (``LogCache.lacks_offsets``). *answered*: the partitions that the response
        has already. Cost: O(changed).
        """
        quiet = (key for key in at.changed if key not in at.ready and key not in answered)
        return any(at.cache.lacks_offsets(at.logs[key]) for key in quiet)

    def encode(self, exchange: Exchange, at: Positions) -> "Encoding":
        """Return the computation of the response of *exchange*, with all changed offsets. Cost: O(changed).

        Run it, in any thread, and pass its result to ``Exchange.answer``; do not use ``template`` meanwhile.
        """
        patches = []
        for key in list(at.changed):
            offsets, named = at.cache.offsets.get(key), self.state.named.get(key.topic)
            if offsets is not None and named is not None:
                patches.append((named, key.partition, offsets))
                del at.changed[key]
        return Encoding(exchange.context, self.template, exchange.updates, patches)

    def hand_out(self, exchange: Exchange, at: Positions, deliverable: Deliverable) -> tuple[Job, ...]:
        """Add the records of *deliverable* to the response, or return them as jobs if some need conversion.

        In the second case nothing is added. Partitions whose records are added are not ready any more: their logs
        must be found again, at the offset of the client's next fetch.
        """
        options = exchange.request.options
        target = self._policy.target(exchange.version, committed=bool(options.isolation))
        jobs = [self._job(key, found, at, target, exchange) for key, found in deliverable.slices]
        if any(job.conversion is not None for job in jobs):
            return tuple(jobs)
        at.record_turns([job.key for job in jobs], is_all=deliverable.is_all)
        for job in jobs:
            exchange.add(self.state.named[job.key.topic], job.reply)
            self._delivered(job, exchange, at)
        return ()

    def _job(
        self, key: PartitionKey, found: Slice, at: Positions, target: ConversionTarget | None, exchange: Exchange
    ) -> Job:
        wanted, log = self.state.requested[key], at.logs[key]
        high_watermark, last_stable, log_start = at.cache.offsets.raise_to(key, log.key.epoch, log.offsets)
        aborted = found.aborted if exchange.request.options.isolation else None
        reply = PartitionReply(
            key.partition,
            ErrorCode.none,
            high_watermark,
            last_stable,
            log_start,
            aborted,
            records=found.records,
        )
        return Job(key, reply, found, wanted.max_bytes, conversion_of(reply, wanted.offset, target))

    def _delivered(self, job: Job, exchange: Exchange, at: Positions) -> None:
        """Move the client's position behind the records of *job*, which are in the response, or left out of it."""
        key, (size_bytes, next_offset) = job.key, job.taken
        wanted, log = self.state.requested[key], at.logs[key]
        if not self._sends_epochs and wanted.epoch != UNKNOWN:
            self._read.pop(key, None)  # the last read ones are the last
            self._read[key] = (wanted.epoch, job.reply.high_watermark)
            self._truncations.record(self._client_id, key, wanted.epoch, next_offset)
        self.state.end_check(key)
        at.delivered(key, next_offset)
        if exchange.recorder is not None:
            exchange.recorder.handed_out(key.topic, log.key.source, size_bytes, job.found.arrived_s)
        self._answered.add(key)

    def converted(self, exchange: Exchange, at: Positions, jobs: Sequence[Job]) -> tuple[bool, list[Record]]:
        """Add converted records, or errors of conversions, to the response; return whether a partition was skipped.

        The second result is telemetry.

        If all records of a partition are invisible to the client, it is skipped: Sidefetch reads on behind them, as
        old clients do not advance past records that they never see (KAFKA-5443, ruby-kafka 555). A partition for
        which the response has no room stays ready.
        """
        was_skipped = False
        records: list[Record] = []
        at.record_turns([job.key for job in jobs if not isinstance(job.outcome, NoRoom)], is_all=False)
        for job in jobs:
            key, topic = job.key, self.state.named[job.key.topic]
            if isinstance(job.outcome, NoRoom):
                continue
            self._delivered(job, exchange, at)
            match job.outcome:
                case Converted():
                    exchange.add(topic, job.reply, job.conversion)
                case NothingForClient(next_offset):
                    was_skipped = True
                    self.state.skip(key, next_offset)
                    self._answered.discard(key)
                case DamagedEntry(offset, why):
                    exchange.add(topic, erroneous(key.partition, ErrorCode.corrupt_message))
                    records.append(DamageRecord(self._node_id, str(topic), key.partition, offset, why))
                case CodecRefused():
                    exchange.add(topic, erroneous(key.partition, ErrorCode.unsupported_compression_type))
                case IncompleteEntry():
                    exchange.add(topic, job.reply, b"")
                case None:
                    raise AssertionError("it was not begun")
                case never:
                    assert_never(never)
        return was_skipped, records


@attrs.frozen
class Update:
    """The computation that adapts a client's state and response template to its fetch, or to a new topology."""

    request: FetchRequest
    topology: Topology
    context: RequestContext
    state: FetchState
    template: ResponseTemplate
    is_new: bool
    """Whether the template is a new one."""

    @property
    def is_quick(self) -> bool:
        """Whether few partitions must be compared or added, so that the computation may run in the event loop."""
        return self.state.count_entry_bytes(self.request.sections, self.topology) <= QUICK_BYTES

    def run(self) -> Change:
        """Adapt both; return the changes of the state. Any thread may call it."""
        layout, sections = request_layout(self.request.version), self.request.sections
        change = self.state.update(layout, sections, self.topology, self.context)
        reshaped = frozenset(range(len(sections))) if self.is_new else change.reshaped
        if reshaped or change.is_rearranged:
            self.template.reshape(layout, sections, reshaped, change.replaced)
        return change


@attrs.frozen
class Encoding:
    """The computation that writes changed offsets into the response template, and encodes a response."""

    context: Context
    template: ResponseTemplate
    updates: Updates
    """The partitions with records or errors, by topic."""
    patches: Sequence[tuple[Topic, int, Offsets]]
    """The partitions with changed offsets."""

    @property
    def is_quick(self) -> bool:
        """Whether few partitions have changed, so that the computation may run in the event loop."""
        return sum(map(len, self.updates.values())) + len(self.patches) <= _ENCODED_AT_ONCE

    def run(self) -> list[Piece] | None:
        """Write and encode; return the result of ``Context.splice``. Any thread may call it."""
        for topic, partition, offsets in self.patches:
            self.template.learn(topic, partition, offsets)
        return self.context.splice(self.template, self.updates)


def sends_epochs(request: FetchRequest) -> bool:
    """Return whether the first partition of *request* has a leader epoch.

    A client that sends epochs detects truncation itself.
    """
    layout = request_layout(request.version)
    first = next((section.entries for section in request.sections if section.entries), None)
    return first is not None and layout.fetch_partition(layout.entry.unpack_from(first)).epoch != UNKNOWN


def _is_ours(reply: PartitionReply, exchange: Exchange, topic: Topic, *, by_id: bool) -> bool:
    """Return whether a broker refuses a leader epoch or a topic id that Sidefetch added to the client's request.

    *by_id*: whether the upstream request named the topic by id.
    """
    if reply.error in _EPOCH_ERRORS:
        return not exchange.has_epoch(topic, reply.partition)
    return by_id and reply.error in _ID_ERRORS and isinstance(topic, str)
