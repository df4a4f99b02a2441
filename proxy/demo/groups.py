"""Consumer groups of the embedded cluster: the classic protocol, enough for common consumers.

::

                 join                    all joined, or time is up             leader's sync
    Empty --------------> Preparing ---------------------------> Completing ---------------> Stable
      ^                       ^                                       |                        |
      |                       +---------- join, leave, expiry --------+------------------------+
      +------------------------------------- last one left

Committed offsets never expire. A commit without membership (generation -1) is accepted if the group has no member.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final
from uuid import UUID, uuid4

import attrs
import trio

from proxy.demo.messages import ReceivedRequest
from proxy.demo.requests import coordinator_of
from proxy.demo.state import ClusterState
from proxy.errors import ErrorCode

__all__ = ["Groups", "GroupsAt"]

_INITIAL_DELAY_S: Final = 0.1  # for the members of a new group to find each other; Kafka's default is 3 s


class _Phase(Enum):
    EMPTY = auto()
    PREPARING = auto()
    COMPLETING = auto()
    STABLE = auto()


@attrs.define(eq=False)
class _Member:
    id: str
    instance_id: str | None
    session_s: float
    rebalance_s: float
    protocols: dict[str, bytes]
    expires_s: float = 0.0
    joined: bool = False
    """Whether it has joined the next generation and waits for the response."""
    assignment: bytes = b""


@attrs.define(eq=False)
class _Group:
    id: str
    phase: _Phase = _Phase.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, _Member] = attrs.field(factory=dict)
    offsets: dict[tuple[str, int], tuple[int, int, str]] = attrs.field(factory=dict)
    """Offset, leader epoch and metadata, by topic and partition."""
    changed: trio.Condition = attrs.field(factory=trio.Condition)
    preparing_until_s: float = 0.0
    settling_until_s: float = 0.0


class Groups:
    """All consumer groups of the embedded cluster, shared by its brokers.

    ``at`` returns the handlers of group requests at one broker; ``run`` enforces the members' timeouts.
    """

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.groups: dict[str, _Group] = {}

    def at(self, node: int) -> "GroupsAt":
        """Return the handlers of group requests for broker *node*."""
        return GroupsAt(node, self)

    def group(self, group_id: str) -> _Group:
        return self.groups.setdefault(group_id, _Group(group_id))

    async def run(self) -> None:
        """Remove members whose session timed out, and complete rebalances that are due; every 50 ms, for ever."""
        while True:
            await trio.sleep(0.05)
            now_s = trio.current_time()
            for group in list(self.groups.values()):  # requests add groups while this task waits
                if group.phase is not _Phase.EMPTY:
                    async with group.changed:
                        self._tick(group, now_s)

    def _tick(self, group: _Group, now_s: float) -> None:
        for member in list(group.members.values()):
            if not member.joined and now_s > member.expires_s:
                self.remove(group, member.id)
        if group.phase is not _Phase.PREPARING:
            return
        late = now_s >= group.preparing_until_s
        if late:
            for member in [each for each in group.members.values() if not each.joined]:
                del group.members[member.id]
        if late or (now_s >= group.settling_until_s and all(m.joined for m in group.members.values())):
            self._begin_generation(group, now_s)

    def _begin_generation(self, group: _Group, now_s: float) -> None:
        group.generation += 1
        group.phase = _Phase.COMPLETING if group.members else _Phase.EMPTY
        if group.members:
            common = set.intersection(*(set(member.protocols) for member in group.members.values()))
            first = next(iter(group.members.values()))
            group.protocol = next((name for name in first.protocols if name in common), "")
            if group.leader not in group.members:
                group.leader = first.id
        for member in group.members.values():
            member.joined = False
            member.assignment = b""
            member.expires_s = now_s + member.session_s
        group.changed.notify_all()

    def prepare(self, group: _Group) -> None:
        """Begin a rebalance of *group*, for which its members must join again; no effect if one has begun.

        ``run`` completes it once all members have joined, or after the longest rebalance timeout among them. The
        caller must hold ``group.changed``.
        """
        if group.phase is _Phase.PREPARING:
            return
        now_s = trio.current_time()
        group.settling_until_s = now_s + (_INITIAL_DELAY_S if group.phase is _Phase.EMPTY else 0)
        group.preparing_until_s = now_s + max(
            (member.rebalance_s for member in group.members.values()), default=0.0
        )
        group.phase = _Phase.PREPARING
        group.changed.notify_all()

    def remove(self, group: _Group, member_id: str) -> bool:
        """Remove a member that left or timed out, and begin a rebalance of the others; return whether it was there.

        If there are no others, the group becomes empty. The caller must hold ``group.changed``.
        """
        if group.members.pop(member_id, None) is None:
            return False
        if group.members:
            self.prepare(group)
        else:
            group.phase = _Phase.EMPTY
            group.generation += 1
        group.changed.notify_all()
        return True


@attrs.define(eq=False)
class GroupsAt:
    """The handlers of group requests at one broker; for groups that it does not coordinate they return an error."""

    node: int
    groups: Groups

    def _find(self, group_id: str) -> _Group | ErrorCode:
        if coordinator_of(self.groups.state, group_id) != self.node:
            return ErrorCode.not_coordinator
        return self.groups.group(group_id) if group_id else ErrorCode.invalid_group_id

    async def join(self, request: ReceivedRequest) -> dict[str, Any]:
        body = request.body
        group = self._find(body.group_id)
        if not isinstance(group, _Group):
            return _not_joined(group, body.member_id)
        async with group.changed:
            return await self._join(group, request)

    async def _join(self, group: _Group, request: ReceivedRequest) -> dict[str, Any]:
        body = request.body
        instance_id = getattr(body, "group_instance_id", None)
        member = group.members.get(body.member_id)
        if body.member_id and member is None and not body.member_id.startswith("given-"):
            return _not_joined(ErrorCode.unknown_member_id, body.member_id)
        if instance_id is not None and member is None:
            member = self._take_over(group, instance_id)
        if not body.member_id and member is None and request.version >= 4 and instance_id is None:
            return _not_joined(ErrorCode.member_id_required, f"given-{request.client_id}-{uuid4()}")
        protocols = {protocol.name: protocol.metadata for protocol in body.protocols}
        if not _is_compatible(group, body.protocol_type, protocols):
            return _not_joined(ErrorCode.inconsistent_group_protocol, body.member_id)
        session_s = body.session_timeout.total_seconds()
        rebalance_s = body.rebalance_timeout.total_seconds() if request.version >= 1 else session_s
        if member is None:
            member_id = body.member_id or f"given-{request.client_id}-{uuid4()}"
            member = _Member(member_id, instance_id, session_s, rebalance_s, protocols)
            group.members[member_id] = member
        member.protocols, member.session_s, member.rebalance_s = protocols, session_s, rebalance_s
        member.joined = True
        group.protocol_type = body.protocol_type
        self.groups.prepare(group)
        while member.joined and group.members.get(member.id) is member:
            await group.changed.wait()
        if group.members.get(member.id) is not member:
            return _not_joined(ErrorCode.unknown_member_id, member.id)
        leads = group.leader == member.id
        return {
            "generation_id": group.generation,
            "protocol_type": group.protocol_type,
            "protocol_name": group.protocol,
            "leader": group.leader,
            "member_id": member.id,
            "members": [
                {
                    "member_id": each.id,
                    "group_instance_id": each.instance_id,
                    "metadata": each.protocols[group.protocol],
                }
                for each in group.members.values()
            ]
            if leads
            else [],
        }

    def _take_over(self, group: _Group, instance_id: str) -> _Member | None:
        """Give the static member *instance_id*, which restarted, a new member id; return None if it is unknown."""
        for former in group.members.values():
            if former.instance_id == instance_id:
                del group.members[former.id]
                successor = attrs.evolve(former, id=f"given-{instance_id}-{uuid4()}")
                group.members[successor.id] = successor
                if group.leader == former.id:
                    group.leader = successor.id
                group.changed.notify_all()
                return successor
        return None

    def _find_member(self, group: _Group, body: Any) -> _Member | ErrorCode:
        member = group.members.get(body.member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if body.generation_id != group.generation:
            return ErrorCode.illegal_generation
        member.expires_s = trio.current_time() + member.session_s
        return member

    async def sync(self, request: ReceivedRequest) -> dict[str, Any]:
        body = request.body
        group = self._find(body.group_id)
        if not isinstance(group, _Group):
            return {"error_code": group}
        async with group.changed:
            member = self._find_member(group, body)
            if not isinstance(member, _Member):
                return {"error_code": member}
            if group.phase is _Phase.COMPLETING and group.leader == member.id:
                for assigned in body.assignments:
                    if assigned.member_id in group.members:
                        group.members[assigned.member_id].assignment = assigned.assignment
                group.phase = _Phase.STABLE
                group.changed.notify_all()
            while group.phase is _Phase.COMPLETING and group.generation == body.generation_id:
                await group.changed.wait()
            if group.phase is not _Phase.STABLE or group.generation != body.generation_id:
                return {"error_code": ErrorCode.rebalance_in_progress}
            member.expires_s = trio.current_time() + member.session_s
            return {
                "protocol_type": group.protocol_type,
                "protocol_name": group.protocol,
                "assignment": member.assignment,
            }

    async def heartbeat(self, request: ReceivedRequest) -> dict[str, Any]:
        group = self._find(request.body.group_id)
        if not isinstance(group, _Group):
            return {"error_code": group}
        async with group.changed:
            member = self._find_member(group, request.body)
            if not isinstance(member, _Member):
                return {"error_code": member}
            preparing = group.phase is _Phase.PREPARING
            return {"error_code": ErrorCode.rebalance_in_progress if preparing else ErrorCode.none}

    async def leave(self, request: ReceivedRequest) -> dict[str, Any]:
        body = request.body
        group = self._find(body.group_id)
        if not isinstance(group, _Group):
            return {"error_code": group}
        if request.version < 3:
            leaving: list[tuple[str, str | None]] = [(body.member_id, None)]
        else:
            leaving = [(member.member_id, member.group_instance_id) for member in body.members]
        members = []
        async with group.changed:
            for member_id, instance_id in leaving:
                if not member_id and instance_id is not None:
                    member_id = next(
                        (each.id for each in group.members.values() if each.instance_id == instance_id), ""
                    )
                gone = self.groups.remove(group, member_id)
                error = ErrorCode.none if gone else ErrorCode.unknown_member_id
                members.append({"member_id": member_id, "group_instance_id": instance_id, "error_code": error})
        return {"error_code": members[0]["error_code"] if request.version < 3 else 0, "members": members}

    def offset_commit(self, request: ReceivedRequest) -> dict[str, Any]:
        body = request.body
        group = self._find(body.group_id)
        generation = body.generation_id_or_member_epoch
        if not isinstance(group, _Group):
            error = group
        elif generation < 0 and not body.member_id:
            error = ErrorCode.unknown_member_id if group.members else ErrorCode.none
        elif body.member_id not in group.members:
            error = ErrorCode.unknown_member_id
        else:
            error = ErrorCode.none if generation == group.generation else ErrorCode.illegal_generation
        name_of = self.groups.state.name_of
        topics = []
        for topic in body.topics:
            name = topic.name if request.version < 10 else name_of(topic.topic_id)
            unknown = ErrorCode.unknown_topic_id if name is None else ErrorCode.unknown_topic_or_partition
            partitions = []
            for asked in topic.partitions:
                index = asked.partition_index
                known = name is not None and self.groups.state.partition(name, index) is not None
                refusal = error or (ErrorCode.none if known else unknown)
                if not refusal and isinstance(group, _Group) and name is not None:
                    group.offsets[(name, index)] = (
                        asked.committed_offset,
                        getattr(asked, "committed_leader_epoch", -1),
                        asked.committed_metadata or "",
                    )
                partitions.append({"partition_index": index, "error_code": refusal})
            topics.append({"name": name, "topic_id": getattr(topic, "topic_id", None), "partitions": partitions})
        return {"topics": topics}

    def offset_fetch(self, request: ReceivedRequest) -> dict[str, Any]:
        body = request.body
        if request.version < 8:
            return self._read_offsets(request, body.group_id, body.topics)
        return {"groups": [self._read_offsets(request, asked.group_id, asked.topics) for asked in body.groups]}

    def _read_offsets(self, request: ReceivedRequest, group_id: str, asked: Any) -> dict[str, Any]:
        group = self._find(group_id)
        if not isinstance(group, _Group):
            if request.version >= 2:
                return {"group_id": group_id, "error_code": group, "topics": []}
            return {"topics": _unknown_offsets(asked, group)}
        name_of = self.groups.state.name_of
        wanted: list[tuple[str | None, UUID | None, list[int]]]
        if asked is None:
            by_topic: dict[str, list[int]] = {}
            for name, index in group.offsets:
                by_topic.setdefault(name, []).append(index)
            wanted = [(name, self._id(name), indexes) for name, indexes in by_topic.items()]
        elif request.version >= 10:
            wanted = [(name_of(t.topic_id), t.topic_id, t.partition_indexes) for t in asked]
        else:
            wanted = [(t.name, None, t.partition_indexes) for t in asked]
        topics = []
        for name_or_none, topic_id, indexes in wanted:
            partitions = []
            for index in indexes:
                offset, epoch, metadata = group.offsets.get((name_or_none or "", index), (-1, -1, ""))
                partitions.append(
                    {
                        "partition_index": index,
                        "committed_offset": offset,
                        "committed_leader_epoch": epoch,
                        "metadata": metadata,
                        "error_code": ErrorCode.unknown_topic_id if name_or_none is None else ErrorCode.none,
                    }
                )
            topics.append({"name": name_or_none, "topic_id": topic_id, "partitions": partitions})
        return {"group_id": group_id, "topics": topics}

    def _id(self, name: str) -> UUID | None:
        topic = self.groups.state.topics.get(name)
        return None if topic is None else topic.id


def _not_joined(error: ErrorCode, member_id: str) -> dict[str, Any]:
    return {"error_code": error, "member_id": member_id, "generation_id": -1, "protocol_name": "", "leader": ""}


def _is_compatible(group: _Group, protocol_type: str, protocols: Mapping[str, bytes]) -> bool:
    if not protocols:
        return False
    others = group.members.values()
    if not others:
        return True
    common = set.intersection(set(protocols), *(set(member.protocols) for member in others))
    return group.protocol_type == protocol_type and bool(common)


def _unknown_offsets(asked: Any, error: ErrorCode) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": index, "committed_offset": -1, "metadata": "", "error_code": error}
                for index in topic.partition_indexes
            ],
        }
        for topic in asked
    ]
