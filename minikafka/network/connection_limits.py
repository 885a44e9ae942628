"""How many connections there may be, and how fast new ones may come. No I/O, no clock.

Kafka: ``ConnectionQuotas``. In number: ``max.connections`` of the broker and of a listener,
``max.connections.per.ip`` and its overrides; and how many the process has descriptors for, so that files can
still be opened. In rate (KIP-612): ``max.connection.creation.rate`` of the broker and of a listener, and
``connection_creation_rate`` of an address, which is a quota of the entity type ``ip``.

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
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

NO_LIMIT = 2**31 - 1
"""Kafka's default everywhere: Int.MaxValue."""

DELAYED_MAX = 1000
"""Connections that wait because of a rate. Kafka has those of a listener's backlog (50) wait, and holds any
number of those whose address is over its rate."""

DELAY_MS_MAX = 30_000
"""``request.timeout.ms`` of Kafka's clients: after that the client does not wait any more."""

BUCKETS_MAX = 10_000
"""Addresses whose rate is followed at a time. A full bucket is as good as none and is forgotten first."""


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
