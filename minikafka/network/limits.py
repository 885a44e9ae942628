"""Limits of connections: how many, how fast they come, and how many bytes they may hold.

**How many there may be, and how fast new ones may come.** No I/O, no clock. Kafka: ``ConnectionQuotas``. In
number: ``max.connections`` of the broker and of a listener, ``max.connections.per.ip`` and its overrides; and
how many the process has descriptors for, so that files can still be opened. In rate (KIP-612):
``max.connection.creation.rate`` of the broker and of a listener, and ``connection_creation_rate`` of an
address, which is a quota of the entity type ``ip``.

A connection over a number is closed at once, before it is read. One over the rate of the broker or the
listener is accepted and read later; one over the rate of its address is kept for a while and then closed, so
that its client does not come back at once. Where more wait than ``DELAYED_MAX``, or one had to wait for more
than ``DELAY_MS_MAX``, it is closed at once.

The listener that brokers use among themselves is protected where there are others: the broker's number and
rate do not hold for it. The owner of the connections closes one of another listener for each that is over
the number (``excess``).

A rate is a bucket of tokens that holds what may come in all windows of quotas together, as in Kafka, whose
first burst is about as large.

Unlike Kafka, which stops accepting at a number until a connection closes, that limit refuses: an event loop's
server cannot stop accepting without closing its listening socket, and a client that is told at once tries
elsewhere. A rate delays here each connection and not the acceptor.

**How many bytes** all connections together may hold for requests and responses under way. Kafka's
``SimpleMemoryPool`` behind ``queued.max.request.bytes``; here responses that wait count too, because we have
them in memory where Kafka has them in files (sendfile). One half is for requests that have not arrived in
full, the other for responses that cannot leave.

**Requests.** What counts is what has arrived, not what a frame's size announces. All connections of an
address may hold ``ADDRESS_SHARE`` of the half. A connection may collect more of a frame while it holds no
more than a part of what its address may still take, 1/``CONNECTION_SHARES`` (the *dynamic threshold* of
shared-memory switches, Choudhury and Hahne 1998). So n connections that take what they can get have 1/(n+4)
each, and four times as much is left for those that come: six of them leave 40 MB of 102, one hundred 4 MB,
and other addresses have theirs besides.

A frame may be larger than any share. So one connection at a time may *overdraw*: its frame grows to its end
without being counted any further, while the others over their share wait in line. That way the line always
moves, and the overdraft is at most one request. Who overdraws and does not send is closed
(``Connection.sweep``).

Connections that have not logged in count there too, and besides have a much smaller share among themselves
(CVE-2022-34917), with an overdraft of their own. What comes in one piece, as logins do, takes nothing of it;
who sends a piece of a frame for which it has no room at all is closed.

What is read at once may hold many whole frames. When they have to wait, because their connection has requests
under way, the chunk counts as well; it cannot be sent back, so who brings one when nothing is left is closed,
but for the one that overdraws.

**Responses.** They are there before they can be refused. So requests whose answers may be far larger than
themselves wait while there is no room (``has_room``): consumers' fetches below the others, so that peers
which do not read their records leave room for metadata. Their answers are cut to a part of what is left
(``answer_bytes_max``). All others, a produce or a heartbeat, are answered in a few bytes and never wait.

A connection that was told to wait stands in line and is woken, first come first served, when something was
given back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minikafka.named_tuple import NamedTuple

NO_LIMIT = 2**31 - 1
"""Kafka's default everywhere: Int.MaxValue."""

DELAYED_MAX = 1000
"""Connections that wait because of a rate. Kafka has those of a listener's backlog (50) wait, and holds any
number of those whose address is over its rate."""

DELAY_MS_MAX = 30_000
"""``request.timeout.ms`` of Kafka's clients: after that the client does not wait any more."""

BUCKETS_MAX = 10_000
"""Addresses whose rate is followed at a time. A full bucket is as good as none and is forgotten first."""

ADDRESS_SHARE = 0.8
"""Of the requests' half, for all connections of one address: behind a NAT are a hundred clients, and still
others have something."""

LOGIN_SHARE = 1 / 4
"""Of the requests' half, for all connections that have not logged in: 32 MB, or 64 messages of
``sasl.server.max.receive.size`` at once, where one of SCRAM has 100 bytes and a token a few kilobytes."""

LOGIN_ADDRESS_SHARE = 0.5
"""Of that, for all of one address."""

CONNECTION_SHARES = 4
"""Few enough for a connection alone to collect 20 MB, where clients send 1 MB (``max.request.size``); and who
comes when a hundred have taken what they can still gets 0.8 MB."""

RECORDS_SHARE = 0.75
"""Of the responses' half, for what consumers fetch."""

ANSWERS_MIN = 4
"""An answer takes at most this part of what is left for records."""

ANSWER_BYTES_MIN = 64 * 1024
"""What an answer may have at the least: one that holds nothing would be asked for again and again."""

WAKES_PER_TURN = 256
"""Connections that are looked at in one turn of the loop, about 1 ms."""


class Admission(NamedTuple):
    """What becomes of a new connection."""

    refusal: str | None = None
    """Why it is closed; then it counts only if there is a delay before."""
    delay_ms: int = 0
    """How long it is not read, or not closed."""


class ListenerLimits(NamedTuple):
    """What holds for one listener alone."""

    max_connections: int = NO_LIMIT
    max_connection_creation_rate: int = NO_LIMIT


class ConnectionCounts:
    """Of one listener, for the metrics of Kafka's ``socket-server-metrics``. All only grow, but for
    ``open``."""

    __slots__ = ("accepted", "delayed_ms", "ip_delayed_ms", "ip_throttled", "open", "refused", "throttled")

    def __init__(self) -> None:
        self.open = 0
        self.accepted = 0
        self.refused = 0
        self.throttled = 0
        """Delayed by a rate of the broker or the listener, for ``delayed_ms`` together."""
        self.delayed_ms = 0
        self.ip_throttled = 0
        """Closed because of the rate of its address, after ``ip_delayed_ms`` together."""
        self.ip_delayed_ms = 0

    def __repr__(self) -> str:
        return f"ConnectionCounts(open={self.open}, accepted={self.accepted}, refused={self.refused})"


class CreationRate:
    """A bucket: full at first, and never fuller than ``burst_s`` seconds bring. It may be overspent."""

    __slots__ = ("_burst_s", "_rate", "_tokens", "_updated_ms")

    def __init__(self, rate: float, *, burst_s: float, now_ms: int) -> None:
        self._rate, self._burst_s = rate, burst_s
        self._tokens = rate * burst_s
        self._updated_ms = now_ms

    def __repr__(self) -> str:
        return f"CreationRate({self._tokens:g} of {self._rate:g} a second)"

    @property
    def rate(self) -> float:
        return self._rate

    def change(self, rate: float) -> None:
        """Another rate from now on; a debt is paid off by it, what is spare does not outgrow it."""
        self._rate = rate
        self._tokens = min(self._tokens, rate * self._burst_s)

    def wait_ms(self, now_ms: int) -> int:
        """How long one that comes now has to wait. Takes nothing."""
        self._refill(now_ms)
        return 0 if self._tokens >= 1 else int((1 - self._tokens) * 1000 / self._rate)

    def take(self, now_ms: int) -> None:
        """One has come."""
        self._refill(now_ms)
        self._tokens -= 1

    def is_full(self, now_ms: int) -> bool:
        self._refill(now_ms)
        return self._tokens >= self._rate * self._burst_s

    def _refill(self, now_ms: int) -> None:
        come = self._rate * (now_ms - self._updated_ms) / 1000
        self._tokens = min(self._rate * self._burst_s, self._tokens + come)
        self._updated_ms = now_ms


class ConnectionLimits:
    """Counts open connections. Addresses are textual, IPv4 in its own form even on a dual-stack socket. Times
    are readings of one clock, in milliseconds."""

    def __init__(
        self,
        *,
        max_connections: int,
        max_connections_per_ip: int,
        max_connections_per_ip_overrides: Mapping[str, int],
        descriptors: int = NO_LIMIT,
        max_connection_creation_rate: int = NO_LIMIT,
        listeners: Mapping[str, ListenerLimits] | None = None,
        protected_listener: str | None = None,
        burst_s: float = 11.0,
    ) -> None:
        """``protected_listener``: that of the brokers, where there are others. ``burst_s``: all windows of
        quotas together."""
        self._descriptors = descriptors
        self.max_connections = max_connections
        self.max_connections_per_ip = max_connections_per_ip
        self.max_connections_per_ip_overrides = dict(max_connections_per_ip_overrides)
        self.max_connection_creation_rate = max_connection_creation_rate
        self.listeners: dict[str, ListenerLimits] = dict(listeners or {})
        """By name; a listener without an entry has no limits of its own."""
        self.counts: dict[str, ConnectionCounts] = {}
        """By listener; there from the first connection on."""
        self._protected = protected_listener
        self._burst_s = burst_s
        self._count_by_address: dict[str, int] = {}
        self._count = 0
        self._delayed = 0
        self._rates: dict[str | None, CreationRate] = {}  # by listener; None: the broker's
        self._ip_rates: dict[str, float] = {}
        self._ip_rate_default: float | None = None
        self._ip_buckets: dict[str, CreationRate] = {}

    def __repr__(self) -> str:
        return f"ConnectionLimits({self._count} from {len(self._count_by_address)} addresses)"

    @property
    def count(self) -> int:
        return self._count

    @property
    def delayed(self) -> int:
        """Connections that wait because of a rate."""
        return self._delayed

    @property
    def excess(self) -> int:
        """How many connections of unprotected listeners are to be closed, because protected ones came."""
        return max(0, self._count - self.max_connections)

    def is_protected(self, listener: str) -> bool:
        return listener == self._protected

    def set_ip_rate(self, address: str | None, rate: float | None) -> None:
        """New connections a second from ``address`` (None: from each that has no rate of its own); None: no
        limit."""
        if address is None:
            self._ip_rate_default = rate
            touched = [each for each in self._ip_buckets if each not in self._ip_rates]
        else:
            self._ip_rates.pop(address, None)
            if rate is not None:
                self._ip_rates[address] = rate
            touched = [address]
        for each in touched:
            holds, bucket = self._ip_rate(each), self._ip_buckets.get(each)
            if bucket is not None and holds is not None:
                bucket.change(holds)
            elif bucket is not None:
                del self._ip_buckets[each]

    def _ip_rate(self, address: str) -> float | None:
        return self._ip_rates.get(address, self._ip_rate_default)

    def admit(self, address: str, listener: str = "", *, now_ms: int = 0) -> Admission:
        """Count a new connection, unless it is closed at once. Of one with a delay ``delay_over`` is told."""
        counts = self.counts.get(listener)
        if counts is None:
            counts = self.counts[listener] = ConnectionCounts()
        admission = self._decide(address, listener, counts, now_ms)
        if admission.refusal is not None:
            counts.refused += 1
            if not admission.delay_ms:
                return admission
        self._count_by_address[address] = self._count_by_address.get(address, 0) + 1
        self._count += 1
        counts.open += 1
        if admission.refusal is None:
            counts.accepted += 1
        if admission.delay_ms:
            self._delayed += 1
        return admission

    def delay_over(self) -> None:
        """A connection that was delayed is read now, or has closed."""
        self._delayed -= 1

    def release(self, address: str, listener: str = "") -> None:
        """A connection that was counted has closed."""
        count = self._count_by_address[address] - 1
        if count:
            self._count_by_address[address] = count
        else:
            del self._count_by_address[address]
        self._count -= 1
        self.counts[listener].open -= 1

    def _decide(self, address: str, listener: str, counts: ConnectionCounts, now_ms: int) -> Admission:
        own = self.listeners.get(listener, ListenerLimits())
        if self._count >= self.max_connections and not self.is_protected(listener):
            return Admission(f"there are already {self._count} connections (max.connections)")
        if counts.open >= own.max_connections:
            limit = f"listener.name.{listener.lower()}.max.connections"
            return Admission(f"the listener already has its {counts.open} connections ({limit})")
        if self._count >= self._descriptors:
            return Admission(
                f"there are already {self._count} connections; the other file descriptors are for files"
            )
        allowed = self.max_connections_per_ip_overrides.get(address, self.max_connections_per_ip)
        if self._count_by_address.get(address, 0) >= allowed:
            return Admission(f"the address already has its {allowed} connections (max.connections.per.ip)")
        return self._pace_of_address(address, counts, now_ms) or self._pace(listener, own, counts, now_ms)

    def _pace_of_address(self, address: str, counts: ConnectionCounts, now_ms: int) -> Admission | None:
        rate = self._ip_rate(address)
        if rate is None:
            return None
        bucket = self._ip_buckets.get(address)
        if bucket is None:
            if len(self._ip_buckets) >= BUCKETS_MAX:
                self._forget_addresses(now_ms)
            bucket = self._ip_buckets[address] = CreationRate(rate, burst_s=self._burst_s, now_ms=now_ms)
        wait_ms = bucket.wait_ms(now_ms)
        if not wait_ms:
            bucket.take(now_ms)
            return None
        delay_ms = wait_ms if self._may_wait(wait_ms) else 0
        counts.ip_throttled += 1
        counts.ip_delayed_ms += delay_ms
        return Admission(
            f"its address has more than {rate:g} new ones a second (connection_creation_rate)", delay_ms
        )

    def _pace(self, listener: str, own: ListenerLimits, counts: ConnectionCounts, now_ms: int) -> Admission:
        """By the rates of listener and broker: the longer delay of both, or none of the tokens is taken."""
        rates: list[tuple[str | None, int]] = [(listener, own.max_connection_creation_rate)]
        if not self.is_protected(listener):
            rates.append((None, self.max_connection_creation_rate))
        buckets = [bucket for name, rate in rates if (bucket := self._bucket(name, rate, now_ms)) is not None]
        delay_ms = max((bucket.wait_ms(now_ms) for bucket in buckets), default=0)
        if delay_ms and not self._may_wait(delay_ms):
            return Admission("too many others wait to be accepted (max.connection.creation.rate)")
        for bucket in buckets:
            bucket.take(now_ms)
        if delay_ms:
            counts.throttled += 1
            counts.delayed_ms += delay_ms
        return Admission(None, delay_ms)

    def _bucket(self, name: str | None, rate: int, now_ms: int) -> CreationRate | None:
        """None where there is no limit: such a rate costs nothing."""
        if rate >= NO_LIMIT:
            self._rates.pop(name, None)
            return None
        bucket = self._rates.get(name)
        if bucket is None:
            bucket = self._rates[name] = CreationRate(rate, burst_s=self._burst_s, now_ms=now_ms)
        elif bucket.rate != rate:
            bucket.change(rate)
        return bucket

    def _may_wait(self, delay_ms: int) -> bool:
        return self._delayed < DELAYED_MAX and delay_ms <= DELAY_MS_MAX

    def _forget_addresses(self, now_ms: int) -> None:
        """Those with a full bucket; where all are in use, the one that came first."""
        full = [address for address, bucket in self._ip_buckets.items() if bucket.is_full(now_ms)]
        for address in full or [next(iter(self._ip_buckets))]:
            del self._ip_buckets[address]


class _Share:
    """Bytes of requests that have not arrived in full, by address."""

    __slots__ = ("_address_bytes_max", "_by_address", "bytes_max", "held_bytes")

    def __init__(self, bytes_max: int, *, address_share: float) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self._address_bytes_max = int(bytes_max * address_share)
        self._by_address: dict[str, int] = {}

    def adjust(self, change_bytes: int, address: str) -> None:
        self.held_bytes += change_bytes
        of_address = self._by_address.get(address, 0) + change_bytes
        assert of_address >= 0, (address, of_address)
        if of_address:
            self._by_address[address] = of_address
        else:
            self._by_address.pop(address, None)

    def left_bytes(self, address: str) -> int:
        """What a connection from there may still take, at most; negative when too much is taken."""
        of_address = self._address_bytes_max - self._by_address.get(address, 0)
        return min(of_address, self.bytes_max - self.held_bytes)


class MemoryBudget:
    """Counts bytes; owned by one event loop.

    ``call_soon`` is the loop's: the ones in line are woken from there and not from inside of ``adjust``, so
    that one connection's progress never runs another one's handlers in the middle of its own.
    """

    __slots__ = (
        "_call_soon",
        "_frames",
        "_logins",
        "_overdrawers",
        "_record_bytes_max",
        "_response_bytes_max",
        "_to_wake",
        "_waiting",
        "_wake_is_scheduled",
        "response_bytes",
    )

    def __init__(self, bytes_max: int, *, call_soon: Callable[..., object]) -> None:
        if bytes_max < 2:
            raise ValueError(f"a memory budget of {bytes_max} bytes")
        self._frames = _Share(bytes_max // 2, address_share=ADDRESS_SHARE)
        self._logins = _Share(int(bytes_max // 2 * LOGIN_SHARE), address_share=LOGIN_ADDRESS_SHARE)
        """Of those in ``_frames`` what connections hold that have not logged in."""
        self._response_bytes_max = bytes_max - self._frames.bytes_max
        self._record_bytes_max = int(self._response_bytes_max * RECORDS_SHARE)
        self._call_soon = call_soon
        self._waiting: dict[Callable[[], None], None] = {}
        self._to_wake = 0
        self._wake_is_scheduled = False
        self._overdrawers: dict[bool, object] = {}
        """One of those that have not logged in (True), and one of the others."""
        self.response_bytes = 0
        """Of responses that wait for an earlier one or for the peer."""

    def __repr__(self) -> str:
        return (
            f"MemoryBudget(requests {self.frame_bytes} of {self._frames.bytes_max} bytes, "
            f"logins {self.login_bytes} of {self._logins.bytes_max}, "
            f"responses {self.response_bytes} of {self._response_bytes_max}, {len(self._waiting)} waiting)"
        )

    @property
    def frame_bytes(self) -> int:
        """Of requests that have not arrived in full, without what is overdrawn."""
        return self._frames.held_bytes

    @property
    def login_bytes(self) -> int:
        """Of these, what connections hold that have not logged in."""
        return self._logins.held_bytes

    @property
    def used_bytes(self) -> int:
        return self.frame_bytes + self.response_bytes

    @property
    def waiting(self) -> int:
        """How many wait for something to be left."""
        return len(self._waiting)

    @property
    def answer_bytes_max(self) -> int:
        """How large an answer should be whose size is ours to choose."""
        left_bytes = self._record_bytes_max - self.response_bytes
        return max(left_bytes // ANSWERS_MIN, ANSWER_BYTES_MIN)

    def adjust_frame(self, change_bytes: int, address: str, *, before_login: bool = False) -> None:
        """A connection from ``address`` has collected bytes, or gives them back."""
        self._frames.adjust(change_bytes, address)
        if before_login:
            self._logins.adjust(change_bytes, address)
        if change_bytes < 0:
            self._schedule_wake()

    def logged_in(self, held_bytes: int, address: str) -> None:
        """A connection that holds ``held_bytes`` of a frame counts among the others from now on."""
        self._logins.adjust(-held_bytes, address)
        self._schedule_wake()

    def adjust_responses(self, change_bytes: int) -> None:
        """A connection holds more or fewer bytes of responses."""
        self.response_bytes += change_bytes
        assert self.response_bytes >= 0, self
        if change_bytes < 0 and self.response_bytes < self._response_bytes_max:
            self._schedule_wake()

    def has_room(self, *, for_records: bool) -> bool:
        """Whether a request may be handled whose answer may be large."""
        bytes_max = self._record_bytes_max if for_records else self._response_bytes_max
        return self.response_bytes < bytes_max

    def may_collect(self, held_bytes: int, address: str, *, before_login: bool = False) -> bool:
        """Whether a connection that holds ``held_bytes`` of a frame is within its share."""
        return held_bytes * CONNECTION_SHARES <= self.left_bytes(address, before_login=before_login)

    def left_bytes(self, address: str, *, before_login: bool = False) -> int:
        """What connections from ``address`` may still take; negative when they hold too much."""
        left_bytes = self._frames.left_bytes(address)
        return min(left_bytes, self._logins.left_bytes(address)) if before_login else left_bytes

    def may_overdraw(self, who: object, *, before_login: bool = False) -> bool:
        """Whether ``who`` may go on beyond its share: the one that asked first, until ``settle``."""
        return self._overdrawers.setdefault(before_login, who) is who

    def is_overdrawn_by(self, who: object) -> bool:
        """Whether an overdraft is that of ``who``."""
        return any(each is who for each in self._overdrawers.values())

    def settle(self, who: object) -> None:
        """``who`` has what it wanted: the overdraft, if one was its, is free."""
        for kind, overdrawer in self._overdrawers.items():
            if overdrawer is who:
                del self._overdrawers[kind]
                self._schedule_wake()
                return

    def wait(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` once something was given back. The same ``wake`` stands in line only once."""
        self._waiting[wake] = None

    def forget(self, wake: Callable[[], None]) -> None:
        """Leave the line."""
        self._waiting.pop(wake, None)

    def _schedule_wake(self) -> None:
        self._to_wake = len(self._waiting)
        if self._to_wake and not self._wake_is_scheduled:
            self._wake_is_scheduled = True
            self._call_soon(self._wake)

    def _wake(self) -> None:
        """Those for whom it is still too little stand in line again, behind the others."""
        self._wake_is_scheduled = False
        for _ in range(min(self._to_wake, WAKES_PER_TURN)):
            if not self._waiting:
                return
            self._to_wake -= 1
            wake = next(iter(self._waiting))
            del self._waiting[wake]
            wake()
        if self._to_wake and not self._wake_is_scheduled:
            self._wake_is_scheduled = True
            self._call_soon(self._wake)
