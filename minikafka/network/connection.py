"""One client connection of the broker: bytes in, frames to the handler, responses out in request order.

Kafka: ``SocketServer.Processor``, ``KafkaChannel`` (mute states), KIP-219 (throttled channels). The handler
is called synchronously from ``data_received``: no task, queue or future per request. Everything that the
frames of one chunk answer leaves in one write.

Invariants:
- Responses leave in request order. A ``PendingResponse`` holds back the later ones.
- What one connection can make us hold is bounded (``responses.py``, the constants below). Whatever is over a
  bound stops the *reading*, one bit of ``_hold`` per reason; frames already cut wait in ``_held``; both go on
  when the last bit is cleared.
- The memory budget (all connections together) counts what has arrived of unfinished frames, chunks of which
  frames have to wait, responses that wait for an earlier one, and responses that the peer does not read. A
  connection that has more of a frame than its share is not read on, unless the overdraft is its; one that
  sends ahead when nothing is left is closed. Handlers of requests whose answers may be large ask for room
  first (``wait_for_room``). A body that does not come, and who stalls while others wait, is
  closed by the sweeper.
- A handler's bug closes its connection and is logged with a traceback; nothing else happens.

Unlike Kafka, which mutes a connection until its request is answered, pipelined requests are handled while
earlier ones are parked, up to the bounds.

**How it reads**: as ``asyncio.Protocol``, and the remainder of a large frame as ``BufferedProtocol``, where
it stays. A chunk that is ``bytes`` can be kept by the holder of a small frame of it, and costs one call less
(an echo of 100 bytes under uvloop: 4.3 µs of the server's CPU instead of 4.6). Of a large frame, chunks are
two copies and fresh memory more.

**Idle time**: for how long nothing has happened on a connection. Kafka: ``Selector.IdleExpiryManager``.
Something happened when bytes came or left. The loop's clock is read when the sweeper comes by and not for
every chunk: so a time is short by at most the pause between two sweeps, and never too long.

**Muting**: for how long a connection stays so (KIP-219). Kafka: ``ThrottledChannel`` and its reaper's queue.
Several quotas may throttle one connection at a time: of several ends the last one counts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from minikafka.errors import PeerProtocolError
from minikafka.named_tuple import NamedTuple
from minikafka.network.addresses import format_address, split_address
from minikafka.network.frame_reader import LARGE_BYTES_MIN, FrameReader, LargeFrames
from minikafka.network.limits import MemoryBudget
from minikafka.network.responses import PendingResponse, ResponseQueue, UnfinishedRequest
from minikafka.security.acl import ANONYMOUS, KafkaPrincipal
from minikafka.steps import Steps
from minikafka.types import Buffer

__all__ = ["Connection", "ConnectionOwner", "Handler", "LeaderHints", "PendingResponse", "Result"]

logger = logging.getLogger(__name__)

BODY_BYTES_PER_SECOND_MIN = 10_000
"""The remainder of a request comes at least this fast: ten clients that share a link of 100 KB/s are still
served, and at less a batch of 1 MB takes longer than clients wait for its answer (``request.timeout.ms``, 30
s)."""

FRAMES_PER_TURN = 256
"""Requests handled before other connections get the loop: a few milliseconds at 10 to 20 µs a request. A
chunk of 256 KiB (what the loops read at once) may carry thousands."""

WRITE_BYTES = 256 * 1024
"""Responses collected before they are written: above it, more gathering saves nothing, and the transport
should be the one to tell that the peer does not keep up."""

JOIN_BYTES_MAX = 64 * 1024
"""Small responses are joined: cheaper than many buffers in a transport. Large ones are not copied."""

_WRITE, _PENDING, _MUTED, _BUDGET, _TURN, _CLOSING, _UNFINISHED = 1, 2, 4, 8, 16, 32, 64
_HOLDS = {
    _WRITE: "peer does not read",
    _PENDING: "too much pending",
    _MUTED: "muted",
    _BUDGET: "memory budget",
    _TURN: "others' turn",
    _CLOSING: "closing",
    _UNFINISHED: "a request in steps",
}

Result = Sequence[Buffer] | PendingResponse | UnfinishedRequest | None
"""A response, one that comes later, a request that is handled in steps (any of the others comes of it), or
none (Produce with acks=0). The buffers must not change afterwards."""


class Idleness:
    """Of one connection, which sets ``is_active`` whenever something happens."""

    __slots__ = ("_since", "is_active")

    def __init__(self, now: float) -> None:
        self.is_active = True
        self._since = now

    def seconds(self, now: float, *, is_excused: bool) -> float:
        """How long it has been idle at ``now``. 0 when something happened since the last call, or when the
        connection has a good reason to be silent."""
        if self.is_active or is_excused:
            self.is_active = False
            self._since = now
        return now - self._since

    def silent_seconds(self, now: float) -> float:
        """As far as the last sweep knows, without a good reason for it. Changes nothing."""
        return 0.0 if self.is_active else now - self._since


class BodyProgress:
    """Whether the remainder of a request comes. Looked at by the sweeper, so it costs the traffic nothing."""

    __slots__ = ("_begun", "_bytes", "_since")

    def __init__(self, now: float) -> None:
        self._since = now
        self._begun = 0
        self._bytes = 0

    def late_seconds(self, now: float, begun: int, bytes_here: int, *, is_excused: bool) -> float:
        """For how long the frame, the ``begun``-th, has grown too slowly; 0 when it was fast enough since the
        last call that gave 0. ``is_excused``: we have not read on."""
        seconds = now - self._since
        grown_bytes = bytes_here - self._bytes
        if is_excused or begun != self._begun or grown_bytes > BODY_BYTES_PER_SECOND_MIN * seconds:
            self._since, self._begun, self._bytes = now, begun, bytes_here
            return 0.0
        return seconds


class MuteTimer:
    """Calls ``unmute`` when the time is over. Owned by one connection, on its loop."""

    __slots__ = ("_ends_at", "_loop", "_timer", "_unmute")

    def __init__(self, loop: asyncio.AbstractEventLoop, unmute: Callable[[], None]) -> None:
        self._loop = loop
        self._unmute = unmute
        self._timer: asyncio.TimerHandle | None = None
        self._ends_at = 0.0

    def start(self, duration_ms: int) -> None:
        """From now on for so long, or for what is left of an earlier time if that is longer."""
        ends_at = self._loop.time() + duration_ms / 1000
        if self._timer is None or ends_at > self._ends_at:
            self.cancel()
            self._ends_at = ends_at
            self._timer = self._loop.call_later(duration_ms / 1000, self._unmute)

    def cancel(self) -> None:
        """Harmless when it does not run."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ConnectionOwner(Protocol):
    """Who is told that a connection opened and closed."""

    def connection_opened(self, connection: Connection) -> bool:
        """Gives it its id. Whether it may stay."""
        ...

    def connection_secured(self, connection: Connection) -> None:
        """Its TLS handshake is done."""
        ...

    def connection_closed(self, connection: Connection) -> None: ...


class LeaderHints(NamedTuple):
    """The partitions of a topic whose leaders a peer was told, and when, on the monotonic clock."""

    at_ms: int
    partitions: frozenset[int]


class Connection(asyncio.Protocol):
    """What handlers see of a peer, and the machinery behind it.

    ``received_ns``: when the frame came that is handled, 0 for just now.
    ``memory`` is the handler's own: what it wants to know when this peer's next request comes.
    ``id`` is Kafka's connection id, ``local-remote-index``. ``client_software_name`` and ``…_version`` are
    what ApiVersions said (KIP-511). ``leader_hints``: where the peer was sent to lately, by topic.
    ``closed``: each is called once, when the connection is lost; by what is to end then. ``is_follower``: a
    broker fetches over it. ``principal``: who the peer is, as far as it has proved it.
    """

    __slots__ = (
        "__weakref__", "_ahead_bytes", "_before_login", "_body", "_budget", "_collecting", "_frame_bytes",
        "_handler", "_held", "_hold", "_idleness", "_lags", "_loop", "_mute_timer", "_now_ns", "_owner",
        "_reader", "_reading", "_response_bytes", "_responses", "_room", "_serving", "_transport",
        "_unfinished", "_unfinished_bytes", "_unsent_bytes", "client_software_name",
        "client_software_version", "closed", "id",
        "is_follower", "leader_hints", "listener_name", "local_host", "local_port", "memory", "peer_host",
        "peer_port", "principal", "received_ns",
    )  # fmt: skip

    def __init__(
        self,
        handler: Handler,
        *,
        owner: ConnectionOwner,
        loop: asyncio.AbstractEventLoop,
        budget: MemoryBudget,
        frame_bytes_max: int,
        listener_name: str,
        large_frames: LargeFrames | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.listener_name = listener_name
        self.memory: Any = None
        self.client_software_name = "unknown"
        self.client_software_version = "unknown"
        self.id = ""
        self.is_follower = False
        self.closed: dict[object, Callable[[], None]] = {}
        self.principal = ANONYMOUS
        self.local_host, self.local_port = "", 0
        self.peer_host, self.peer_port = "", 0
        self.leader_hints: dict[str, LeaderHints] = {}
        self._handler = handler
        self._owner = owner
        self._loop = loop
        self._budget = budget
        self._reader = FrameReader(frame_bytes_max=frame_bytes_max, large_frames=large_frames)
        self._responses = ResponseQueue(changed=self._responses_changed, abandoned=self._response_abandoned)
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._hold = 0
        self._reading = True
        self._serving = False
        self._held: list[Buffer] = []
        self._ahead_bytes = 0  # of the chunks that held frames are in
        self._unsent_bytes = 0  # in the transport above its high-water mark
        self._lags = False  # when all frames are handled, ``received_ns`` or ``_collecting`` is to be reset
        self._collecting = False  # a frame is being collected; once it is handled, an overdraft is settled
        self._frame_bytes = 0  # what the budget knows of
        self._before_login = False
        self._response_bytes = 0
        self._room: asyncio.Future[None] | None = None  # a request waits for it
        self._unfinished: UnfinishedRequest | None = None
        self._unfinished_bytes = 0  # the frame of that request
        self._mute_timer = MuteTimer(loop, self.unmute)
        self._idleness = Idleness(loop.time())
        self._body = BodyProgress(loop.time())
        self._now_ns = now_ns
        self.received_ns = 0

    def __repr__(self) -> str:
        holds = [name for bit, name in _HOLDS.items() if self._hold & bit]
        return (
            f"Connection({self.id}, {self.listener_name}, pending={len(self._responses)}, "
            f"held={len(self._held)}, bytes={self.held_bytes}, holds={holds})"
        )

    @property
    def peer(self) -> str:
        """``host:port`` for log lines."""
        return format_address(self.peer_host, self.peer_port)

    # What handlers and the server use.

    @property
    def is_closing(self) -> bool:
        """Whether responses are of no more use."""
        return bool(self._hold & _CLOSING)

    @property
    def held_bytes(self) -> int:
        """What this connection takes from the memory budget."""
        return self._frame_bytes + self._response_bytes

    @property
    def answer_bytes_max(self) -> int:
        """How large an answer should be whose size is ours to choose (a Fetch), as memory is now."""
        return self._budget.answer_bytes_max

    def has_room(self, *, for_records: bool) -> bool:
        """Whether memory is left for an answer that may be large: a consumer's records, or anything else. A
        follower that waited behind consumers would leave the ISR."""
        return self.is_follower or self._budget.has_room(for_records=for_records)

    def wait_for_room(self, *, for_records: bool) -> Steps[bool]:
        """In steps: wait until there is. False when the connection has closed meanwhile."""
        while not (self.is_closing or self.has_room(for_records=for_records)):
            self._room = self._loop.create_future()
            self._budget.wait(self._room_available)
            yield self._room
        return not self.is_closing

    def hand_over(
        self, handler: Handler, *, frame_bytes_max: int | None = None, before_login: bool = False
    ) -> None:
        """The next frame goes to ``handler``, which forgets what the last one remembered. With
        ``frame_bytes_max`` frames that begin from now on may be as large as that. ``before_login``: the peer
        has proved nothing yet, and gets little memory."""
        self._handler = handler
        self.memory = None
        if self._before_login and not before_login:
            self._budget.logged_in(self._frame_bytes, self.peer_host)
        self._before_login = before_login
        if frame_bytes_max is not None:
            self._reader.frame_bytes_max = frame_bytes_max

    def mute(self, duration_ms: int | None = None) -> None:
        """Handle no further requests until ``unmute``, or for ``duration_ms``; responses leave (KIP-219).

        Of several durations the one that ends last counts.
        """
        if self._hold & _CLOSING:
            return
        if duration_ms is None:
            self._mute_timer.cancel()
        else:
            self._mute_timer.start(duration_ms)
        self._hold |= _MUTED
        self._settle()

    def unmute(self) -> None:
        """Go on handling requests. Harmless when not muted."""
        self._mute_timer.cancel()
        self._resume(_MUTED)

    def close(self) -> None:
        """Handle nothing more; what has been answered is still sent. Idempotent."""
        if not self._hold & _CLOSING:
            self._stop()
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        """Close at once; unsent responses are dropped. Idempotent."""
        self._stop()
        self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.local_host, self.local_port = split_address(transport.get_extra_info("sockname"))
        self.peer_host, self.peer_port = split_address(transport.get_extra_info("peername"))
        if not self._owner.connection_opened(self):
            self.abort()

    def secured(self, principal: KafkaPrincipal) -> None:
        """By TLS (``tls_acceptor.SecuredProtocol``)."""
        self.principal = principal
        self._owner.connection_secured(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._reader.forget()
        self._owner.connection_closed(self)
        closed, self.closed = self.closed, {}
        for tell in closed.values():
            tell()

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        self._take(reader.feed(data), len(data))
        if reader.missing_bytes >= LARGE_BYTES_MIN // 2 and reader.room() is not None:
            self._read_as(_LargeFrameReceiver(self, reader))

    def large_frame_grown(self, frames: Sequence[Buffer], more_bytes: int) -> None:
        """By bytes that are where they belong; ``frames`` has it when these were the last."""
        if frames:
            self._read_as(self)
        self._take(frames, more_bytes)

    def _read_as(self, protocol: asyncio.BaseProtocol) -> None:
        transport = self._transport
        transport.set_protocol(protocol)
        if self._reading and not transport.is_closing():  # uvloop chooses how when reading begins
            transport.pause_reading()
            transport.resume_reading()

    def _take(self, frames: Sequence[Buffer], chunk_bytes: int) -> None:
        """What came of a chunk, the bytes of which are counted already while they are a part of a frame."""
        self._idleness.is_active = True
        if self._hold:
            self._lags = True
            self.received_ns = self.received_ns or self._now_ns()
            if not self._hold & _CLOSING:
                self._held += frames
        elif frames:
            self._serve(frames)
        if self._held:
            self._keep_ahead(chunk_bytes)
        reader = self._reader
        if (
            self._hold
            or self._held
            or self._frame_bytes
            or self._response_bytes
            or reader.expected_bytes
            or reader.error
        ):
            self._settle()

    def _keep_ahead(self, chunk_bytes: int) -> None:
        """Frames of a chunk have to wait, which keep all of it."""
        budget, before_login = self._budget, self._before_login
        if budget.left_bytes(self.peer_host, before_login=before_login) < chunk_bytes:
            if not budget.may_overdraw(self, before_login=before_login):
                logger.info(
                    "closing the connection from %s (%s): it sends ahead, and no memory is left for that",
                    self.peer,
                    self.id,
                )
                self.abort()
                return
            self._collecting = self._lags = True
        self._ahead_bytes += chunk_bytes

    def pause_writing(self) -> None:
        self._hold |= _WRITE
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self._settle()

    def resume_writing(self) -> None:
        self._unsent_bytes = 0
        self._idleness.is_active = True
        self._resume(_WRITE)

    # The sweeper's side.

    def silent_seconds(self, now: float) -> float:
        """For how long nothing has come or left; 0 when something has since the last sweep."""
        return self._idleness.silent_seconds(now)

    def sweep(
        self, now: float, *, idle_seconds_max: float, stalled_seconds_max: float, body_seconds_max: float
    ) -> str | None:
        """Why this connection should be aborted now, if it should.

        Idle: nothing received, sent or owed for ``connections.max.idle.ms``, also because it is muted for
        longer (as in Kafka, KAFKA-12427). Stalled: nothing received or sent for a shorter time, while it
        holds memory that others wait for, or has only last bytes to take. Late: the remainder of a request
        does not come, or too slowly (``BodyProgress``).
        """
        others_wait = self._budget.waiting > 0
        late_seconds = self._body.late_seconds(
            now, self._reader.begun, self._reader.buffered_bytes, is_excused=self._hold != 0
        )
        if self._reader.expected_bytes and late_seconds >= (
            stalled_seconds_max if others_wait else body_seconds_max
        ):
            return (
                f"{self._reader.buffered_bytes} of the {self._reader.expected_bytes} bytes of a request are "
                f"here, and for {late_seconds:.1f} s the remainder has not come"
            )
        if self._hold & (_WRITE | _CLOSING):
            unsent_bytes = self._transport.get_write_buffer_size()
            if unsent_bytes != self._unsent_bytes:
                self._unsent_bytes = unsent_bytes
                self._idleness.is_active = True
        owes = (len(self._responses) > 0 or self._unfinished is not None) and not self._hold & _WRITE
        idle_seconds = self._idleness.seconds(now, is_excused=owes or bool(self._hold & _BUDGET))
        if idle_seconds == 0:
            return None
        if idle_seconds >= idle_seconds_max:
            return f"idle for {idle_seconds:.1f} s (connections.max.idle.ms)"
        if idle_seconds >= stalled_seconds_max and not self._hold & _MUTED:  # then it is not its peer's fault
            if self._hold & _CLOSING:
                return "its peer does not take the last responses"
            if self.held_bytes and others_wait:
                return f"stalled with {self.held_bytes} bytes while others wait for memory"
        return None

    # Handling.

    def _serve(self, frames: Sequence[Buffer]) -> None:
        """Handle frames until one of the bounds says stop; the others are held. Writes what came of it."""
        responses = self._responses
        done, count = 0, len(frames)
        turn = frames
        if count > 1:
            self._lags = True
            if not self.received_ns:  # all but the first have to wait
                self.received_ns = self._now_ns()
            if count > FRAMES_PER_TURN:
                turn = frames[:FRAMES_PER_TURN]
        self._serving = True
        try:
            for frame in turn:
                if self._hold:
                    break
                done += 1
                result = self._handler(self, frame)
                if result is not None:
                    if not isinstance(result, tuple) and isinstance(result, UnfinishedRequest):
                        self._wait_for(result, len(frame))
                        break
                    if responses.add(result):
                        self._hold |= _PENDING
                    if responses.out_bytes >= WRITE_BYTES:
                        self._flush()
        except Exception as error:  # noqa: BLE001  # logged, and the connection closes
            self._close_after(error)
        self._serving = False
        self._flush()
        if self._hold & _CLOSING:
            return
        if done < count:
            self._held = [*frames[done:], *self._held]
            if done == FRAMES_PER_TURN:
                self._hold |= _TURN
                self._loop.call_soon(self._resume, _TURN)
        elif self._lags:
            self._lags = False
            self.received_ns = 0
            if self._collecting:  # the frame that it was for has been handled
                self._collecting = False
                self._budget.settle(self)

    def _close_after(self, error: Exception) -> None:
        if isinstance(error, PeerProtocolError):
            logger.warning("closing the connection from %s (%s): %s", self.peer, self.id, error)
        else:
            logger.error(
                "closing the connection from %s (%s): a request failed", self.peer, self.id, exc_info=error
            )
        self.close()

    def _wait_for(self, unfinished: UnfinishedRequest, size_bytes: int) -> None:
        """Requests keep their order: the next one is handled when this one has been."""
        self._unfinished, self._unfinished_bytes = unfinished, size_bytes
        self._hold |= _UNFINISHED
        unfinished.on_end = self._finished

    def _finished(self) -> None:
        unfinished, self._unfinished, self._unfinished_bytes = self._unfinished, None, 0
        assert unfinished is not None
        is_gone = self._hold & _CLOSING
        self._idleness.is_active = True
        self._serving = True
        try:
            result = unfinished.result()
            if is_gone:
                if isinstance(result, PendingResponse):
                    result.connection_closed()
            elif result is not None and self._responses.add(result):
                self._hold |= _PENDING
        except Exception as error:  # noqa: BLE001  # logged, and the connection closes
            self._close_after(error)
        self._serving = False
        if is_gone:
            self._count()
        else:
            self._flush()
            self._resume(_UNFINISHED)

    def _settle(self) -> None:
        """Bring held frames, the budget and the transport's reading in line with ``_hold``."""
        if self._serving:
            return  # the call that serves settles afterwards
        while self._held and not self._hold:
            frames, self._held = self._held, []
            self._serve(frames)
        if self._hold & _CLOSING:
            return
        if not self._held:
            self._ahead_bytes = 0
        self._count()
        budget, before_login = self._budget, self._before_login
        if self._reader.expected_bytes and not self._held:
            if budget.may_collect(
                self._frame_bytes, self.peer_host, before_login=before_login
            ) or budget.may_overdraw(self, before_login=before_login):
                self._collecting = self._lags = True
            elif before_login and budget.left_bytes(self.peer_host, before_login=True) < 0:
                logger.info(
                    "closing the connection from %s (%s): others that have not logged in hold the memory for "
                    "that",
                    self.peer,
                    self.id,
                )
                self.abort()
                return
            else:
                self._wait_for_budget()
        if self._reader.error is not None and not self._held:
            logger.warning("closing the connection from %s (%s): %s", self.peer, self.id, self._reader.error)
            self.close()
        elif self._hold:
            if self._reading:
                self._reading = False
                self._transport.pause_reading()
        elif not self._reading:
            self._reading = True
            self._transport.resume_reading()

    def _resume(self, reason: int) -> None:
        self._hold &= ~reason
        if not self._hold & _CLOSING:
            self._settle()

    def _wait_for_budget(self) -> None:
        self._hold |= _BUDGET
        self._budget.wait(self._budget_available)

    def _budget_available(self) -> None:
        self._resume(_BUDGET)

    def _room_available(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _count(self) -> None:
        # A connection that is closing gets nothing more and owes nothing, but may still be served.
        frame_bytes, response_bytes = self._unfinished_bytes, 0
        if not self._hold & _CLOSING:
            frame_bytes += self._reader.buffered_bytes + self._ahead_bytes
            response_bytes = self._responses.queued_bytes + self._unsent_bytes
            if frame_bytes > self._frame_bytes and self._budget.is_overdrawn_by(self):
                frame_bytes = self._frame_bytes
        if frame_bytes != self._frame_bytes:
            change_bytes, self._frame_bytes = frame_bytes - self._frame_bytes, frame_bytes
            self._budget.adjust_frame(change_bytes, self.peer_host, before_login=self._before_login)
        if response_bytes != self._response_bytes:
            change_bytes, self._response_bytes = response_bytes - self._response_bytes, response_bytes
            self._budget.adjust_responses(change_bytes)

    def _responses_changed(self) -> None:
        self._idleness.is_active = True
        if self._hold & _PENDING and not self._responses.is_full:
            self._hold &= ~_PENDING
        if not self._serving:
            self._flush()
            self._settle()

    def _response_abandoned(self) -> None:
        logger.info("closing the connection from %s (%s): a request is not answered", self.peer, self.id)
        self.close()

    def _flush(self) -> None:
        """Hand the collected responses to the transport in one call."""
        responses = self._responses
        out = responses.out
        if not out:
            return
        if self._hold & _CLOSING and self._transport.is_closing():
            pass  # the handler itself closed: its answer has nowhere to go
        elif len(out) == 1:
            self._transport.write(out[0])
        elif responses.out_bytes <= JOIN_BYTES_MAX:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)
        out.clear()
        responses.out_bytes = 0
        if responses.observers:
            responses.tell_observers()
        if self._hold & _WRITE:
            self._unsent_bytes = self._transport.get_write_buffer_size()

    def _stop(self) -> None:
        """From here on nothing is handled and nothing is owed."""
        self._hold |= _CLOSING
        self._held = []
        self._ahead_bytes = 0
        self._collecting = False
        self._unsent_bytes = 0
        self._budget.settle(self)
        self._mute_timer.cancel()
        self._budget.forget(self._budget_available)
        self._budget.forget(self._room_available)
        self._room_available()
        self._responses.close()
        self._count()


class _LargeFrameReceiver(asyncio.BufferedProtocol):
    """A connection, while the remainder of a large frame comes."""

    __slots__ = ("_connection", "_reader")

    def __init__(self, connection: Connection, reader: FrameReader) -> None:
        self._connection = connection
        self._reader = reader

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        room = self._reader.room()
        assert room is not None, "there is a frame until it is received or the connection is lost"
        return room

    def buffer_updated(self, nbytes: int) -> None:
        self._connection.large_frame_grown(self._reader.received(nbytes), nbytes)


Handler = Callable[[Connection, Buffer], Result]
"""Called for every frame, in order; owns the frame. PeerProtocolError closes the connection, logged."""
