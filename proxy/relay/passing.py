"""The forwarding of a client's requests to its broker, and of the responses, on one pass-through connection."""

import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Final, assert_never

import attrs
from kio.schema.api_versions.v0.request import ApiVersionsRequest
from kio.schema.errors import ErrorCode

from proxy.convert.versions.table import TARGETS, UPGRADES, serves
from proxy.convert.versions.upgrade import Compute, Pieces, SendToBroker, SendToCoordinator, Step, Upgrade
from proxy.errors import (
    BrokerProtocolError,
    BrokerUnavailable,
    ClientProtocolError,
    MalformedFrame,
    ProtocolError,
)
from proxy.relay.commands import (
    PASS,
    Command,
    OpenLink,
    PrincipalChanged,
    RunInThread,
    Send,
    SendToGroupCoordinator,
    Worker,
)
from proxy.relay.identity import ClientIdentity
from proxy.relay.in_flight import (
    ApiVersionsProbe,
    FinishedUpgrade,
    ForwardedRequest,
    InFlightRequest,
    SaslTokenRequest,
    UpgradedRequest,
    check_order,
    malformed_response,
)
from proxy.relay.limits import MOST_SASL_BYTES
from proxy.relay.pipeline import Pipeline, Slot
from proxy.relay.tokens import Tokens
from proxy.wire import addresses, api_versions, messages, produce, sasl
from proxy.wire.addresses import AddressMap
from proxy.wire.apis import CARRIES_ADDRESSES, KNOWN_KEYS, ApiKey, ApiRanges
from proxy.wire.frames import QUICK_BYTES
from proxy.wire.headers import RequestHeader, read_request_header
from proxy.wire.primitives import Cursor

__all__ = ["PassThrough"]

_SIZE: Final = struct.Struct(">i")
_CORRELATION_BYTES: Final = 4
_PROBE_ID: Final = 0
_MOST_UPGRADED_BYTES: Final = 1024 * 1024
"""The largest request, other than to produce, that is upgraded: its objects take some 15 times its size. It has
room for offsets of 40,000 partitions."""
_SASL_REFUSED: Final = "Sidefetch logs in to the brokers itself, and asks nobody to: have this client use no SASL"


@attrs.frozen
class _Request:
    header: RequestHeader
    frame: memoryview
    slot: Slot | None
    """None: the request has no response."""


@attrs.frozen
class _HeldBack:
    until_s: float
    slot: Slot
    pieces: list[bytes | memoryview]


class PassThrough:
    """The requests that are forwarded from one client to its broker, in order, and the broker's responses.

    A request is forwarded unchanged if the broker serves its version; otherwise it is upgraded to a newer version.
    The broker's versions come from the client's own ApiVersions request, or Sidefetch requests them before the
    first request that may need an upgrade; that request and those behind it wait meanwhile. Fetches that Sidefetch
    answers itself do not get here.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        map_address: AddressMap,
        *,
        passes_sasl: bool = True,
        allowed_apis: frozenset[int] = KNOWN_KEYS,
    ) -> None:
        """Create the state of one client connection.

        Args: pipeline:    gets a slot for each request, and the response into it.
              map_address: maps the address of a broker to the one that the client gets in responses.
              passes_sasl: whether the client's SASL exchange is forwarded to the broker; otherwise it is refused.
              allowed_apis: the keys of the APIs that the client gets in the response to ApiVersions.
        """
        self._pipeline = pipeline
        self._map_address = map_address
        self._passes_sasl = passes_sasl
        self._allowed_apis = allowed_apis
        self._tokens = Tokens()
        self.identity = ClientIdentity()
        self._is_used = False
        self._served: ApiRanges | None = None
        """The API versions of the broker on the connection; None if they are unknown."""
        self._queue: deque[_Request] = deque()
        """Requests that may not be sent yet."""
        self._blocked_by: UpgradedRequest | None = None
        """The upgrade that has more to send before later requests may be sent; no other upgrade resets this."""
        self._awaits_coordinator = False
        """Whether that upgrade waits for a group coordinator."""
        self._held_back: deque[_HeldBack] = deque()
        """The responses that wait for the end of their throttle time."""
        self._in_flight: deque[InFlightRequest] = deque()
        """The requests that the broker has not answered yet, oldest first."""
        self._is_open = False
        self._waiting: list[bytes | memoryview] | None = None
        """The bytes to send once the connection is open; None unless it is being opened."""
        self._is_last_unanswered = False
        """Whether the last request on the connection was a produce request with acks=0."""

    @property
    def takes_requests(self) -> bool:
        """Whether no request waits here to be sent to the broker; only then may the client's next request be read.

        Otherwise Sidefetch could notice that the client has closed its connection, and drop a request that waits,
        such as a produce request with acks=0. An offset commit that waits for a group coordinator is an exception:
        the client is read meanwhile, up to its next request. If the client leaves, the commit is dropped, since it
        must not come after the commits of the client's next connection.
        """
        return self._waiting is None and not self._queue and (self._blocked_by is None or self._awaits_coordinator)

    def upgraded_version(self, key: int, version: int) -> int:
        """Return the version in which a client request is sent to the broker: a newer one if it is upgraded.

        Args: key:     the API key.
              version: the version of the client's request; it is returned if the broker serves it, or if the
                  broker's versions are not known yet.
        """
        to = TARGETS.get((key, version), version)
        return version if self._served is None or serves(self._served, key, version) else to

    @property
    def deadline_s(self) -> float | None:
        """The time, in seconds, of the next call of ``tick``: when the first throttle time ends; None for never."""
        return min((each.until_s for each in self._held_back), default=None)

    # ------------------------------------------------------------------------------------------- requests

    def forward_request(self, header: RequestHeader, frame: memoryview, now_s: float) -> Iterator[Command]:
        """Forward a request of the client to the broker, upgraded if necessary; queue it if it cannot be sent yet.

        Yields the commands to carry out. The request gets a slot in the pipeline, unless it is a produce request
        with acks=0. If SASL requests are not forwarded, Sidefetch answers them with an error.

        Args:   frame:  the whole request, without its size prefix; *header* is its header, decoded.
        Raises: MalformedFrame, ClientProtocolError: the request cannot be decoded, or the broker serves neither its
            version nor the one to which it would be upgraded. The client's connection must be closed.
        """
        _, cursor = read_request_header(frame)
        key, version = header.api_key, header.api_version
        if key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            if not self._passes_sasl:
                self._pipeline.add_slot().pieces = [
                    sasl.error_response(header, ErrorCode.illegal_sasl_state, _SASL_REFUSED)
                ]
                return
            yield from _notify(self._track_login(header, frame))
        is_answered = key != ApiKey.PRODUCE or produce.is_answered(version, cursor)
        slot = self._pipeline.add_slot() if is_answered else None
        self._queue.append(_Request(header, frame, slot))
        yield from self._send_queued(now_s)

    def _track_login(self, header: RequestHeader, frame: memoryview) -> PrincipalChanged | None:
        """Decode a SASL request of the client, and pass it to ``identity``; return its notice, if any."""
        body = sasl.read_request(header, frame)
        if header.api_key == ApiKey.SASL_AUTHENTICATE:
            return self.identity.add_token(bytes(body.auth_bytes))
        self.identity.add_handshake(body.mechanism)
        if header.api_version == 0:
            self._tokens.expect_tokens(body.mechanism)
        return None

    def send_own_request(self, header: RequestHeader, framed: bytes, now_s: float) -> Iterator[Command]:
        """Send a request of Sidefetch itself to the broker, behind those of the client; drop the response.

        Args: header: its header; the response must have the same correlation id.
              framed: the request frame with its size prefix.
        """
        self._queue.append(_Request(header, memoryview(framed)[_SIZE.size :], Slot()))
        yield from self._send_queued(now_s)

    def detect_token(self, frame: memoryview) -> bool:
        """Return whether *frame* is a SASL token without a header, for ``forward_token``, and not a request.

        Call this once for each frame of the client, in order: it counts the tokens that may still come. If the last
        frame was a token that need not be answered, no answer to it is expected from here on.
        """
        is_first, self._is_used = not self._is_used, True
        self._drop_unanswered_token()
        return self._tokens.detect_token(frame, is_first=is_first)

    def forward_token(self, frame: memoryview) -> Iterator[Command]:
        """Forward a SASL token to the broker; the token that the broker sends in return is for the client.

        Raises: ClientProtocolError: the token has more than 512 KiB.
        """
        if len(frame) > MOST_SASL_BYTES:
            raise ClientProtocolError(f"a SASL token of {len(frame)} bytes, {MOST_SASL_BYTES} are allowed")
        yield from _notify(self.identity.add_token(bytes(frame)))
        yield from self._send(
            [_SIZE.pack(len(frame)), frame], SaslTokenRequest(self._pipeline.add_slot(), self._tokens.is_answered)
        )

    def _drop_unanswered_token(self) -> None:
        """Drop the expectation of a token that may have no response.

        A client sends nothing behind a token before it has the response, unless there is none.
        """
        if self._in_flight and isinstance(last := self._in_flight[-1], SaslTokenRequest) and not last.is_certain:
            self._in_flight.pop()
            last.slot.pieces = []

    def _send_queued(self, now_s: float) -> Iterator[Command]:
        """Send the queued requests, up to one that must wait."""
        while self._queue and self._blocked_by is None:
            request = self._queue[0]
            header = request.header
            api = header.api_key, header.api_version
            upgrade = UPGRADES[api] if api in TARGETS else None
            if upgrade is None or upgrade.steps is None:
                self._queue.popleft()
                yield from self._forward_unchanged(request)
            elif self._served is not None:
                self._queue.popleft()
                yield from self._upgrade(request, upgrade, self._served, now_s)
            else:
                yield from self._request_versions(header.client_id)
                return

    def _forward_unchanged(self, request: _Request) -> Iterator[Command]:
        in_flight = ForwardedRequest(request.header, request.slot) if request.slot is not None else None
        yield from self._send([_SIZE.pack(len(request.frame)), request.frame], in_flight)

    def _request_versions(self, client_id: str | None) -> Iterator[Command]:
        if not any(isinstance(each, ApiVersionsProbe) for each in self._in_flight):
            yield from self._send(
                [messages.request_frame(_PROBE_ID, client_id, ApiVersionsRequest())], ApiVersionsProbe()
            )

    def _upgrade(self, request: _Request, upgrade: Upgrade, served: ApiRanges, now_s: float) -> Iterator[Command]:
        header = request.header
        if serves(served, upgrade.key, upgrade.version):
            yield from self._forward_unchanged(request)
            return
        if not serves(served, upgrade.key, upgrade.to):
            what = f"{upgrade.api} v{upgrade.version}, nor v{upgrade.to} that it can be upgraded to"
            raise ClientProtocolError(f"the broker does not serve {what}")
        size_bytes = len(request.frame)
        is_produce = upgrade.key == ApiKey.PRODUCE
        if size_bytes > _MOST_UPGRADED_BYTES and not is_produce:
            what = f"{upgrade.api} v{upgrade.version} of {size_bytes} bytes cannot be upgraded"
            raise ClientProtocolError(f"{what}: more than {_MOST_UPGRADED_BYTES}")
        assert upgrade.steps is not None
        _, cursor = read_request_header(request.frame)
        upgraded = UpgradedRequest(upgrade, header, request.slot, upgrade.steps(request.frame[cursor.at :]))
        # The records of produce requests are decoded in a step of their own.
        if size_bytes > QUICK_BYTES and not is_produce:
            self._blocked_by = upgraded
            yield RunInThread(Worker.PASS, partial(_advance, upgraded, None, is_request=True))
        else:
            yield from self._carry_out(_advance(upgraded, None, is_request=True), now_s)

    # --------------------------------------------------------------------------------------------- upgrading

    def _handle_answer(
        self, upgraded: UpgradedRequest, answer: memoryview | None, now_s: float
    ) -> Iterator[Command]:
        """Go on with a broker's response to a request of an upgrade; decode it in a thread if it is large."""
        if answer is not None and len(answer) > QUICK_BYTES:
            yield RunInThread(Worker.PASS, partial(_advance, upgraded, answer))
        else:
            yield from self._carry_out(_advance(upgraded, answer), now_s)

    def _carry_out(self, advanced: "_Advanced", now_s: float) -> Iterator[Command]:
        """Carry out steps of an upgrade until one must wait.

        Later requests wait until the upgrade's last request was sent.
        """
        upgraded = advanced.upgraded
        while True:
            step = advanced.outcome
            if isinstance(step, ProtocolError):
                raise step
            if isinstance(step, FinishedUpgrade):
                self._finish_upgrade(upgraded, step.body, now_s)
                return
            assert self._blocked_by is None or self._blocked_by is upgraded, "it goes on behind its last request"
            self._blocked_by = upgraded
            match step:
                case SendToBroker(body, is_answered, is_last):
                    if is_last:
                        self._blocked_by = None
                    yield from self._send(upgraded.make_frame(body), upgraded if is_answered else None)
                    if is_answered:
                        return
                    advanced = _advance(upgraded, None)
                case SendToCoordinator(group, body, is_retry):
                    self._awaits_coordinator = True
                    yield SendToGroupCoordinator(group, upgraded.make_frame(body), is_retry)
                    return
                case Compute(run, size_bytes) if size_bytes <= QUICK_BYTES:
                    advanced = _advance(upgraded, run())
                case Compute(run):
                    yield RunInThread(Worker.PASS, partial(_compute, upgraded, run))
                    return
                case never:
                    assert_never(never)

    def _finish_upgrade(self, upgraded: UpgradedRequest, body: Pieces | None, now_s: float) -> None:
        if self._blocked_by is upgraded:
            self._blocked_by = None
        if upgraded.slot is None or body is None:
            return
        correlation_id = upgraded.header.correlation_id
        size = _CORRELATION_BYTES + sum(map(len, body))
        pieces: list[bytes | memoryview] = [_SIZE.pack(size) + _SIZE.pack(correlation_id), *body]
        if upgraded.throttle_ms > 0:
            self._held_back.append(_HeldBack(now_s + upgraded.throttle_ms / 1000, upgraded.slot, pieces))
        else:
            upgraded.slot.pieces = pieces

    def handle_thread_result(self, result: object, now_s: float) -> Iterator[Command]:
        """Continue the upgrade or the response that waits for a thread, and send requests that waited for it.

        Args:   result: the return value of the function of the command ``RunInThread``.
        Raises: ClientProtocolError, BrokerProtocolError: the request or response cannot be decoded.
        """
        if isinstance(result, _Replaced):
            yield from self._finish_replacement(result)
            return
        assert isinstance(result, _Advanced)
        yield from self._carry_out(result, now_s)
        yield from self._send_queued(now_s)

    def _finish_replacement(self, replaced: "_Replaced") -> Iterator[Command]:
        """Put a response into its slot; if it names brokers, map their addresses, and replace them once more."""
        if isinstance(replaced.pieces, BrokerProtocolError):
            raise replaced.pieces
        if replaced.unknown:
            known = {broker: self._map_address(*broker) for broker in replaced.unknown}
            yield RunInThread(Worker.ADDRESSES, partial(_replace_known, replaced.request, replaced.frame, known))
        else:
            replaced.request.slot.pieces = replaced.pieces

    def handle_coordinator_response(self, frame: memoryview | None, now_s: float) -> Iterator[Command]:
        """Continue the upgrade that waits for a group coordinator, and send requests that waited for it.

        Args:   frame: the coordinator's response without its size prefix; None if no coordinator was found.
        Raises: BrokerProtocolError: the response cannot be decoded, or is not for the upgrade's request.
        """
        upgraded, self._awaits_coordinator = self._blocked_by, False
        assert upgraded is not None
        answer = None if frame is None else _read_answer(upgraded.header, frame)
        yield from self._handle_answer(upgraded, answer, now_s)
        yield from self._send_queued(now_s)

    def tick(self, now_s: float) -> None:
        """Put the responses whose throttle time is over into their slots, so that the client gets them."""
        for each in [each for each in self._held_back if each.until_s <= now_s]:
            self._held_back.remove(each)
            each.slot.pieces = each.pieces

    # ---------------------------------------------------------------------------------------------- answers

    def handle_response(self, frame: memoryview, now_s: float) -> Iterator[Command]:
        """Take the broker's next response, which is for the oldest unanswered request, and put it into its slot.

        Broker addresses in it are replaced. The response to an upgraded request may lead to further requests before
        the client gets its response. Yields the commands to carry out, among them queued requests that may be sent
        now.

        Raises: BrokerProtocolError: the response cannot be decoded, or no request is unanswered.
        """
        if not self._in_flight:
            raise BrokerProtocolError("an answer to nothing")
        match self._in_flight.popleft():
            case SaslTokenRequest(slot, _):
                slot.pieces = [_SIZE.pack(len(frame)), frame]
                yield from _notify(self.identity.handle_token_response(bytes(frame), is_accepted=True))
            case ForwardedRequest(header, slot) as request:
                try:
                    check_order(header, frame)
                    if _takes_long(header, frame):
                        yield RunInThread(Worker.ADDRESSES, partial(_replace_known, request, frame, {}))
                    else:
                        slot.pieces = self._rewrite(header, frame)
                    yield from _notify(self._track_login_response(header, frame))
                except MalformedFrame as wrong:
                    raise malformed_response(header, wrong) from wrong
            case ApiVersionsProbe():
                self._read_versions(frame)
            case UpgradedRequest() as upgraded:
                answer = _read_answer(upgraded.header, frame)
                upgraded.throttle_ms = max(upgraded.throttle_ms, upgraded.upgrade.throttle_ms(answer))
                yield from self._handle_answer(upgraded, answer, now_s)
            case never:
                assert_never(never)
        yield from self._send_queued(now_s)

    def _read_versions(self, frame: memoryview) -> None:
        try:
            correlation_id, body = api_versions.read_response(0, frame)
        except MalformedFrame as wrong:
            raise BrokerProtocolError(f"a malformed answer to ApiVersions: {wrong}") from wrong
        if correlation_id != _PROBE_ID or body.error_code != ErrorCode.none:
            raise BrokerProtocolError(f"an answer to ApiVersions with {body.error_code!r}")
        self._served = api_versions.ranges_of(body)

    def _track_login_response(self, header: RequestHeader, frame: memoryview) -> PrincipalChanged | None:
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            code = sasl.read_response(header, frame).error_code
            return self.identity.handle_handshake_response(is_accepted=code == ErrorCode.none)
        if header.api_key == ApiKey.SASL_AUTHENTICATE:
            body = sasl.read_response(header, frame)
            return self.identity.handle_token_response(
                bytes(body.auth_bytes), is_accepted=body.error_code == ErrorCode.none
            )
        return None

    def _rewrite(self, header: RequestHeader, frame: memoryview) -> list[bytes | memoryview]:
        key, version = header.api_key, header.api_version
        if key == ApiKey.API_VERSIONS:
            _, body = api_versions.read_response(version, frame)
            if body.error_code == ErrorCode.none:
                self._served = api_versions.ranges_of(body)
            return [api_versions.rewrite_response(version, frame, TARGETS, self._allowed_apis)]
        if key == ApiKey.SASL_HANDSHAKE and Cursor(frame, _CORRELATION_BYTES).i16():
            self._tokens.expect_none()
        if _has_addresses(header):
            return addresses.replace_addresses(key, version, frame, self._map_address)
        return [_SIZE.pack(len(frame)), frame]

    # --------------------------------------------------------------------------------------- the connection

    def handle_link_opened(self) -> Iterator[Command]:
        """Send the requests that waited until the connection to the broker was open."""
        self._is_open = True
        waiting, self._waiting = self._waiting, None
        if waiting:
            yield Send(PASS, waiting)

    def handle_link_lost(self) -> None:
        """Note that the connection to the broker is closed; the next request opens another one.

        Raises: BrokerUnavailable: the client's connection must be closed as well. It waits for a response, or has
            requests to be sent; or its last request was a produce request with acks=0, after which a broker closes
            the connection to report an error; or its login cannot be repeated. Otherwise the broker has closed an
            idle connection, which the client need not notice.
        """
        self._is_open = False
        # The broker may come back in another version.
        self._served = None
        if self._in_flight or self._waiting is not None or self._is_last_unanswered or self.identity.is_single:
            raise BrokerUnavailable("the broker went away")

    def _send(self, framed: Sequence[bytes | memoryview], in_flight: InFlightRequest | None) -> Iterator[Command]:
        self._is_last_unanswered = in_flight is None
        if in_flight is not None:
            self._in_flight.append(in_flight)
        if self._is_open:
            yield Send(PASS, framed)
        elif self._waiting is None:
            self._waiting = list(framed)
            yield OpenLink(PASS, None)
        else:
            self._waiting += framed


@attrs.frozen
class _Advanced:
    """An upgrade whose next step has been computed, in this thread or in another."""

    upgraded: UpgradedRequest
    outcome: Step | FinishedUpgrade | ProtocolError
    """The next step, or the error that closes the client's connection."""


def _advance(upgraded: UpgradedRequest, result: object, *, is_request: bool = False) -> _Advanced:
    """Compute the next step of an upgrade from the *result* of the previous one, or from the client's request."""
    try:
        return _Advanced(upgraded, upgraded.steps.send(result))
    except StopIteration as done:
        return _Advanced(upgraded, FinishedUpgrade(done.value))
    except ClientProtocolError as wrong:
        return _Advanced(upgraded, wrong)
    except MalformedFrame as wrong:
        if is_request:
            return _Advanced(upgraded, ClientProtocolError(f"malformed request: {wrong}"))
        return _Advanced(upgraded, malformed_response(upgraded.header, wrong))


def _compute(upgraded: UpgradedRequest, run: Callable[[], object]) -> _Advanced:
    return _advance(upgraded, run())


_Broker = tuple[int, str, int]
"""A broker's node id, host and port."""


@attrs.frozen
class _Replaced:
    """A large response whose addresses were replaced in a thread, as far as they were known."""

    request: ForwardedRequest
    frame: memoryview
    """The response as the broker sent it."""
    pieces: list[bytes | memoryview] | BrokerProtocolError
    """The new response, or the error that closes the client's connection."""
    unknown: Set[_Broker]
    """The brokers that were left out, because their new addresses were not known."""


def _replace_known(
    request: ForwardedRequest, frame: memoryview, known: Mapping[_Broker, tuple[str, int] | None]
) -> _Replaced:
    """Replace the broker addresses in *frame* by those in *known*; this may run in any thread."""
    header, unknown = request.header, set[_Broker]()

    def map_address(*broker: *_Broker) -> tuple[str, int] | None:
        if broker not in known:
            unknown.add(broker)
        return known.get(broker)

    try:
        pieces = addresses.replace_addresses(header.api_key, header.api_version, frame, map_address)
    except MalformedFrame as wrong:
        return _Replaced(request, frame, malformed_response(header, wrong), unknown)
    return _Replaced(request, frame, pieces, unknown)


def _has_addresses(header: RequestHeader) -> bool:
    return header.api_version >= CARRIES_ADDRESSES.get(header.api_key, header.api_version + 1)


def _takes_long(header: RequestHeader, frame: memoryview) -> bool:
    """Return whether the addresses in a response to *header* must be replaced in a thread.

    Of Metadata only the brokers are decoded, however large the response is.
    """
    return len(frame) > QUICK_BYTES and _has_addresses(header) and header.api_key != ApiKey.METADATA


def _read_answer(header: RequestHeader, frame: memoryview) -> memoryview:
    """Return the body of a broker's response. Raises: BrokerProtocolError: it is not that to *header*."""
    try:
        check_order(header, frame)
    except MalformedFrame as wrong:
        raise malformed_response(header, wrong) from wrong
    return frame[_CORRELATION_BYTES:]


def _notify(change: PrincipalChanged | None) -> Iterator[Command]:
    if change is not None:
        yield change
