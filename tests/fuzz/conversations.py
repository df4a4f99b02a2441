"""Fuzzing of whole conversations, in which one damaged message follows another, and their postconditions."""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

from kio.schema.errors import ErrorCode

from proxy.cluster.topology import BrokerId
from proxy.convert.versions.table import UPGRADES
from proxy.convert.versions.upgrade import Compute, SendToBroker, SendToCoordinator
from proxy.errors import BrokerProtocolError, BrokerUnavailable, ClientProtocolError, MalformedFrame
from proxy.fetch.client_sessions import ClientSessions
from proxy.fetch.fetch_config import FetchConfig
from proxy.fetch_rules import FetchRules
from proxy.relay.commands import (
    PASS,
    ClientFrame,
    CloseLink,
    Delivered,
    Draining,
    Event,
    GroupCoordinatorResult,
    Link,
    LinkAnswering,
    LinkFrame,
    LinkLost,
    LinkOpened,
    MetadataUpdated,
    OpenLink,
    RefreshMetadata,
    Reply,
    RunInThread,
    Send,
    SendToGroupCoordinator,
    ThreadFinished,
    Tick,
)
from proxy.wire import fetch
from proxy.wire.apis import ApiKey, VersionRange
from proxy.wire.headers import read_request_header
from tests.fetch.desk import Connection, wanted_of
from tests.fuzz import harness, seeds
from tests.pieces import joined
from tests.relay.driver import MemoryNeeded
from tests.relay.playbook import topology
from tests.relay.solo import Solo

__all__ = ["TARGETS"]

_SIZE_BYTES: Final = 4
_MOST_EVENTS: Final = 60
_MOST_FOLLOWING: Final = 2000
"""Events that one may have in its wake: the harness answers at once whatever is asked."""


def _chapters(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Layout: ``code: u8 | size: u16 | bytes``, repeated; the last may be cut off."""
    at = 0
    for _ in range(_MOST_EVENTS):
        if len(data) - at < 3:
            return
        size = int.from_bytes(data[at + 1 : at + 3])
        yield data[at], data[at + 3 : at + 3 + size]
        at += 3 + size


def _chapter(code: int, content: bytes = b"") -> bytes:
    return bytes((code,)) + len(content).to_bytes(2) + content


# ---------------------------------------------------------------------------------------- a client connection

_CLIENT, _ANSWER, _RAW, _TICK, _TOLD, _LOST, _ODD, _ERRAND = range(8)


class _World:
    """Everything around a relay, as bytes have it."""

    def __init__(self, how: int) -> None:
        ids = count(100)
        self._sessions = ClientSessions(4, lambda: next(ids))
        reading = FetchConfig(
            0 if how & 1 else 10,
            fetch_buffer_bytes=1 << 20,
            response_timeout_s=5,
            sessions=self._sessions,
            reads_ahead=bool(how & 16),
            checks_liveness=True,
        )
        self._known = topology()
        self._relay = Solo(BrokerId(1), self._map_address, reading)
        self._bypass = FetchRules.parse("all") if how & 2 else FetchRules()
        self._version = (18, 12, 13, 11)[how >> 2 & 3]
        self._now_s = 1000.0
        self._links: dict[Link, deque[bytes]] = {}
        """Open ones, and the heads of the requests on each that are not answered."""
        self._errand: bytes | None = None
        self.requests = self.replies = 0

    @staticmethod
    def _map_address(node_id: int, host: str, port: int) -> tuple[str, int] | None:
        return None if node_id % 7 == 3 else (host[:3] or "h", port & 0xFFFF)

    def take(self, code: int, content: bytes) -> None:
        view = memoryview(content)
        match code % 8:
            case 0:
                self.requests += 1
                self._follow(ClientFrame(view, self._known, self._bypass))
            case 1 if self._links:
                link = list(self._links)[code // 8 % len(self._links)]
                owed = self._links[link]
                head = owed.popleft() if owed else bytes(_SIZE_BYTES)
                self._follow(LinkFrame(link, memoryview(head + content)))
            case 2 if self._links:
                self._follow(LinkFrame(list(self._links)[code // 8 % len(self._links)], view))
            case 3:
                self._now_s += (code // 8) * 0.2
                if self._relay.deadline_s is not None and self._relay.deadline_s <= self._now_s:
                    self._follow(Tick())
            case 4:
                self._known = topology(leaders={code // 8 % 3: 1 + code // 24 % 3}, epoch=5 + code // 64)
                self._follow(MetadataUpdated(self._known))
            case 5 if self._links:
                link = list(self._links)[code // 8 % len(self._links)]
                del self._links[link]
                self._follow(LinkLost(link))
            case 6:
                odd: list[Event | MemoryNeeded] = [
                    MemoryNeeded(),
                    Draining(),
                    *map(LinkAnswering, list(self._links)[:1]),
                ]
                self._follow(odd[code // 8 % len(odd)])
            case 7 if self._errand is not None:
                head, self._errand = self._errand, None
                self._follow(GroupCoordinatorResult(memoryview(head + content) if code // 8 % 4 else None))
            case _:
                pass

    def _follow(self, event: Event | MemoryNeeded) -> None:
        """And all that comes of it at once."""
        pending: deque[Event | MemoryNeeded] = deque([event])
        for _ in range(_MOST_FOLLOWING):
            if not pending:
                break
            for command in self._relay.handle(pending.popleft(), self._now_s):
                match command:
                    case Reply(pieces):
                        frame = joined(pieces)
                        assert not frame or int.from_bytes(frame[:_SIZE_BYTES]) == len(frame) - _SIZE_BYTES
                        self.replies += 1
                    case Send(link, pieces):
                        if link in self._links:
                            self._links[link] += _heads(b"".join(pieces))
                    case OpenLink(link, _):
                        self._links[link] = deque()
                        ranges = {} if link is PASS else {int(ApiKey.FETCH): VersionRange(4, self._version)}
                        pending.append(LinkOpened(link, ranges))
                    case CloseLink(link, _, _):
                        self._links.pop(link, None)
                    case RefreshMetadata(_):
                        pending.append(MetadataUpdated(self._known))
                    case RunInThread(worker, run):
                        pending.append(ThreadFinished(worker, run()))
                    case SendToGroupCoordinator(_, pieces, _):
                        self._errand = b"".join(pieces)[8:12]
                    case Delivered():
                        pass
        else:
            raise AssertionError("it never comes to rest")
        assert self.replies <= self.requests
        assert len(self._sessions) <= 4

    def end(self) -> None:
        self._relay.leave(self._now_s)


def _heads(sent: bytes) -> list[bytes]:
    """The correlation ids of the frames in *sent*."""
    heads = []
    at = 0
    while at < len(sent):
        size = int.from_bytes(sent[at : at + _SIZE_BYTES])
        heads.append(sent[at + 8 : at + 12])
        at += _SIZE_BYTES + size
    assert at == len(sent)
    return heads


def _feed_relay(data: bytes) -> object:
    world = _World(data[0] if data else 0)
    try:
        for code, content in _chapters(data[1:]):
            world.take(code, content)
    finally:
        world.end()
    return f"{min(world.requests, 9)} {min(world.replies, 9)}"


_FAULTS: Final = (ClientProtocolError, BrokerProtocolError, BrokerUnavailable)


def _seed_relay() -> list[bytes]:
    """Return hundreds of fetches, upgraded requests, and forwarded requests, each with valid responses."""
    made = [b"\0"]
    fetches: dict[int, list[bytes]] = {}
    for frame in seeds.request_frames():
        fetches.setdefault(int.from_bytes(frame[:2]), []).append(frame)
    for how in (0, 1, 2, 4, 8, 12):
        version = (18, 12, 13, 11)[how >> 2 & 3]
        flexible = b"\0" * (version >= 12)
        answers = [flexible + body for body in seeds.response_bodies(ApiKey.FETCH, version)]
        for frame in fetches[ApiKey.FETCH]:
            story = _chapter(_CLIENT, frame)
            for answer in answers:
                story += _chapter(_ANSWER, answer) + _chapter(_TICK + 8 * 3) + _chapter(_CLIENT, frame)
            made.append(bytes((how,)) + story + _chapter(_ANSWER, answers[-1]) + _chapter(_LOST))
    offered = b"".join(key.to_bytes(2) + (3).to_bytes(2) + (18).to_bytes(2) for key in range(90))
    ranges = _chapter(_ANSWER, bytes(2) + (90).to_bytes(4) + offered)
    for key, old, body in seeds.old_requests():
        frame = key.to_bytes(2) + old.to_bytes(2) + (5).to_bytes(4) + b"\0\1c" + body
        for answer in seeds.response_bodies(key, UPGRADES[key, old].to) if (key, old) in UPGRADES else ():
            reported = _chapter(_ANSWER, answer) + _chapter(_ERRAND + 8, answer)
            made.append(b"\0" + _chapter(_CLIENT, frame) + ranges + reported * 2)
    for key, some in fetches.items():
        if key != ApiKey.FETCH:
            for body in list(seeds.response_bodies(key, seeds.versions(key)[-1]))[:2]:
                made.append(b"\0" + _chapter(_CLIENT, some[-1]) + _chapter(_ANSWER, body) + _chapter(_TOLD))
    handshake = (17).to_bytes(2) + bytes(2) + (5).to_bytes(4) + b"\0\1c" + b"\0\5PLAIN"
    token = _chapter(_CLIENT, b"\0user\0secret")
    made.append(b"\0" + _chapter(_CLIENT, handshake) + _chapter(_ANSWER, bytes(6)) + token + _chapter(_RAW))
    return made


# ------------------------------------------------------------------------------------------------- upgrades

_UPGRADED: Final = [upgrade for upgrade in UPGRADES.values() if upgrade.steps is not None]
_MOST_STEPS: Final = 200


def _feed_upgrades(data: bytes) -> object:
    """The first byte says which; then the request's body, and an answer for each step as long as there are any."""
    upgrade = _UPGRADED[data[0] % len(_UPGRADED)] if data else _UPGRADED[0]
    chapters = [content for _, content in _chapters(data[1:])] or [b""]
    assert upgrade.steps is not None
    steps, answers, came_back, kinds = upgrade.steps(memoryview(chapters[0])), deque(chapters[1:]), None, ""
    for _ in range(_MOST_STEPS):
        try:
            step = steps.send(came_back)
        except StopIteration as done:
            reported = None if done.value is None else b"".join(done.value)
            return f"{upgrade.api} {upgrade.version} {kinds[:9]} {reported is not None}"
        kinds += type(step).__name__[-1]
        match step:
            case Compute(run, _):
                came_back = run()
            case SendToBroker(body, is_answered, _):
                assert sum(map(len, body)) <= 4 * len(data) + 64
                came_back = memoryview(answers.popleft()) if is_answered and answers else None
                if is_answered and came_back is None:
                    return f"{upgrade.api} {upgrade.version} {kinds[:9]} waits"
            case SendToCoordinator():
                came_back = memoryview(answers.popleft()) if answers else None
        if came_back is not None and isinstance(came_back, memoryview):
            upgrade.throttle_ms(came_back)
    steps.close()
    return f"{upgrade.api} {upgrade.version} goes on"


def _seed_upgrades() -> list[bytes]:
    made = []
    old = list(seeds.old_requests())
    for number, upgrade in enumerate(_UPGRADED):
        bodies = [body for key, version, body in old if (key, version) == (upgrade.key, upgrade.version)]
        sets = seeds.message_sets() if upgrade.key == ApiKey.PRODUCE else ()
        for message_set in sets:
            part = bytes(4) + len(message_set).to_bytes(4) + message_set
            bodies.append(b"\0\1" + bytes(4) + (1).to_bytes(4) + b"\0\1t" + (2).to_bytes(4) + part + part)
        for body in bodies or [b"\0\1g", bytes(10), b""]:
            for answer in seeds.response_bodies(upgrade.key, upgrade.to):
                made.append(bytes((number,)) + _chapter(0, body) + _chapter(0, answer) * 3)
    return made


# --------------------------------------------------------------------------------------------- client sessions


def _feed_sessions(data: bytes) -> object:
    """Fetches of all kinds and versions, one after the other; 5 of 8 say the session and epoch that is right."""
    ids = count(100)
    sessions, connection = ClientSessions(2, lambda: next(ids)), Connection()
    held, epoch, kinds = 0, 0, ""
    for number, (code, content) in enumerate(_chapters(data)):
        header, cursor = read_request_header(memoryview(content))
        if not 7 <= header.api_version <= fetch.MAX_VERSION or header.api_key != ApiKey.FETCH:
            return f"{kinds} no fetch"
        request = fetch.read_request(header, cursor)
        if code % 8 < 5 and held:
            request = fetch.FetchRequest(
                header, -1, request.options, held, epoch, request.sections, request.forgotten
            )
        context = sessions.open(request, 1, number * (70.0 if code & 128 else 1.0))
        kinds += type(context).__name__[0]
        asked = wanted_of(context)
        if not context.request.sections or not asked:
            context.empty()
            continue
        answer = connection.answer(context, dict.fromkeys(asked, (10 + number, 10, 0)), ())
        reported = sum(len(replies) for _, replies in answer.topics)
        assert reported <= sum(len(s.entries) for s in context.request.sections)
        if answer.session_id and answer.error == ErrorCode.none:
            held, epoch = answer.session_id, epoch + 1 if answer.session_id == held else 1
        assert len(sessions) <= 2
    sessions.take_records()
    return kinds


def _seed_sessions() -> list[bytes]:
    frames = [frame for frame in seeds.request_frames() if frame[:2] == b"\0\1" and int.from_bytes(frame[2:4]) >= 7]
    # Sessions begin with epoch 0, which is behind the options of a fetch.
    made = []
    for n, frame in enumerate(frames):
        begun = _with_epoch(frame, 0)
        same = [each for each in frames if each[:4] == frame[:4]]
        story = [begun, *same, frames[(n + 5) % len(frames)], begun]
        made.append(b"".join(_chapter(0, each) for each in story))
    return made


def _with_epoch(frame: bytes, epoch: int) -> bytes:
    header, cursor = read_request_header(memoryview(frame))
    flexible = header.api_version >= 12
    at = cursor.at + flexible + (4 if header.api_version <= 14 else 0) + 4 + 4 + 4 + 1
    return frame[:at] + bytes(4) + epoch.to_bytes(4, signed=True) + frame[at + 8 :]


TARGETS: Sequence[harness.Target] = (
    harness.Target("upgrades", _seed_upgrades, _feed_upgrades, (MalformedFrame, ClientProtocolError), 1.5, 1000),
    harness.Target("relay", _seed_relay, _feed_relay, _FAULTS, 1.5, 2000),
    harness.Target("client-sessions", _seed_sessions, _feed_sessions, (MalformedFrame,), 1, 1000),
)
