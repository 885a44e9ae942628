"""How many requests of each API came, which errors they were answered with, and where their time was spent.

Kafka: ``RequestMetrics``, ``RequestChannel.Response``. The counts are exact: one addition a request, which is
one for its topic too where nearly all Produce requests go (``ProduceTally``). Times are taken of every
request, but of one in ``TIMED_ONE_IN`` of Produce and Fetch, which come in thousands, and of one in
``FREQUENT_TIMED_ONE_IN`` of heartbeats, which come in hundreds.

A timed request has a ``RequestTiming``, which is told of each of its stations:

    arrived --queue--> began --local--> handled --remote--> completed --response queue--> left --send--> sent

A station that a request passes without waiting (most have no remote time) is passed at the time of the one
before. Where a response is never sent (acks=0, or the connection closes) no times are kept.

Differs from Kafka: quantiles are those of the latest 1,024 timed requests (``Reservoir``), not of a sample in
which older ones fade away.

**Timers** say how often something was done and how long it took, and how often of late. Pure. Kafka:
``KafkaTimer``, which is Yammer's ``Timer``, and the one-minute rate of Yammer's ``Meter``.

Differs from Kafka: quantiles are those of the latest 1,024 durations (``Reservoir``), not of a sample in
which older ones fade away.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final

from minikafka.flight_recorder import Record, not_recorded

TICK_MS: Final = 5_000
"""Yammer's: what was counted in between becomes one value of the average."""

_ALPHA: Final = 1 - math.exp(-TICK_MS / 60_000)

RESERVOIR_SIZE: Final = 1024
"""Kafka's ``ExponentialReservoirSampling`` keeps 1,028."""

TIMED_ONE_IN: Final = 256
"""Of the requests of the fast APIs, beginning with the first. A power of two. Timing one costs about as much
as a short one costs in all."""

TIMED_MASK: Final = TIMED_ONE_IN - 1

FREQUENT_TIMED_ONE_IN: Final = 16
"""Of heartbeats. The latest that were timed of 2,000 members then are those of 25 seconds; of one and a half
if all were, and a fifth of what a heartbeat costs would be for that."""

_NS_PER_MS: Final = 1_000_000


class KafkaTimer:
    """A count, and the latest durations."""

    __slots__ = ("_durations_ms", "count")

    def __init__(self) -> None:
        self.count = 0
        self._durations_ms = Reservoir()

    def __repr__(self) -> str:
        return f"KafkaTimer({self.count})"

    def update(self, duration_ns: int) -> None:
        """It was done once more."""
        self.count += 1
        self._durations_ms.add(duration_ns / _NS_PER_MS)

    def quantiles_ms(self, shares: Sequence[float]) -> list[float]:
        """See ``request_metrics.quantiles``."""
        return self._durations_ms.quantiles(shares)


class Histogram:
    """A count, and the latest values (Yammer's ``Histogram``)."""

    __slots__ = ("_values", "count")

    def __init__(self) -> None:
        self.count = 0
        self._values = Reservoir()

    def __repr__(self) -> str:
        return f"Histogram({self.count})"

    def update(self, value: float) -> None:
        """There is one more."""
        self.count += 1
        self._values.add(value)

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """See ``request_metrics.quantiles``."""
        return self._values.quantiles(shares)


class OneMinuteRate:
    """How often a second something happened, as an average in which a minute ago weighs 1/e of now.

    Every ``TICK_MS`` what was counted since becomes a rate; the first one is the average, each later one
    moves it. ``mark`` reads the clock, so it is for what happens some times a second.
    """

    __slots__ = ("_counted", "_now_ms", "_per_second", "_ticked_ms")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._ticked_ms = now_ms()
        self._counted = 0
        self._per_second: float | None = None

    def __repr__(self) -> str:
        return f"OneMinuteRate({self._per_second} a second, {self._counted} since)"

    def mark(self) -> None:
        """It happened once."""
        self._tick()
        self._counted += 1

    def per_second(self) -> float:
        """0 until the first ``TICK_MS`` have passed."""
        self._tick()
        return self._per_second or 0.0

    def _tick(self) -> None:
        ticks = (self._now_ms() - self._ticked_ms) // TICK_MS
        if ticks <= 0:
            return
        self._ticked_ms += ticks * TICK_MS
        rate, self._counted = self._counted * 1_000 / TICK_MS, 0
        if self._per_second is None:
            self._per_second = rate
        else:
            self._per_second += _ALPHA * (rate - self._per_second)
        self._per_second *= (1 - _ALPHA) ** (ticks - 1)  # nothing happened in the others


class Phase(Enum):
    """The parts of a request's time. The values are their places in a row of ``TimedRequests``."""

    REQUEST_QUEUE = 0
    LOCAL = 1
    REMOTE = 2
    RESPONSE_QUEUE = 3
    RESPONSE_SEND = 4


_WIDTH: Final = len(Phase)


class Reservoir:
    """The latest values, for their quantiles."""

    __slots__ = ("_next", "_size", "_values")

    def __init__(self, size: int = RESERVOIR_SIZE) -> None:
        self._size = size
        self._values = array("f")
        self._next = 0

    def add(self, value: float) -> None:
        if len(self._values) < self._size:
            self._values.append(value)
        else:
            self._values[self._next] = value
            self._next = (self._next + 1) % self._size

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """See ``quantiles``."""
        return quantiles(self._values, shares)


class TimedRequests:
    """The latest requests that were timed, a row each: one call takes in all of its phases."""

    __slots__ = ("_next", "_rows")

    def __init__(self) -> None:
        self._rows = array("f")
        self._next = 0

    def __len__(self) -> int:
        return len(self._rows) // _WIDTH

    def add(self, row: tuple[float, float, float, float, float]) -> None:
        """Milliseconds by phase."""
        rows = self._rows
        if len(rows) < RESERVOIR_SIZE * _WIDTH:
            rows.extend(row)
        else:
            rows[self._next : self._next + _WIDTH] = array("f", row)
            self._next = (self._next + _WIDTH) % (RESERVOIR_SIZE * _WIDTH)

    def of(self, phase: Phase) -> array[float]:
        """Milliseconds, in no order."""
        return self._rows[phase.value :: _WIDTH]

    def totals(self) -> list[float]:
        """Milliseconds of all phases together, in no order."""
        rows = self._rows
        return [sum(rows[start : start + _WIDTH]) for start in range(0, len(rows), _WIDTH)]


def quantiles(values: Iterable[float], shares: Sequence[float]) -> list[float]:
    """The value below which each share of ``values`` lies, interpolated; 0 when there are none."""
    ordered = sorted(values)
    if not ordered:
        return [0.0] * len(shares)
    found = []
    for share in shares:
        position = share * (len(ordered) - 1)
        below = int(position)
        above = min(below + 1, len(ordered) - 1)
        found.append(ordered[below] + (position - below) * (ordered[above] - ordered[below]))
    return found


class RequestCounter:
    """The requests of one version of one API. ``count`` counts those that are served without a tally."""

    __slots__ = ("_tallies", "count")

    def __init__(self) -> None:
        self.count = 0
        self._tallies: set[ProduceTally] = set()

    def __repr__(self) -> str:
        return f"RequestCounter({self.total}, {len(self._tallies)} tallies)"

    @property
    def total(self) -> int:
        """All of them."""
        return self.count + sum(tally.produce_requests for tally in self._tallies)

    def tally(self) -> ProduceTally:
        """A new one, whose requests are counted here too.

        It does not begin with one that is timed, but continues the round that this counter is in: else a
        topic's first request would always be timed, and of many topics more than one in ``TIMED_ONE_IN``.
        """
        tally = ProduceTally(-self.count & TIMED_MASK)
        self._tallies.add(tally)
        return tally

    def settle(self, tally: ProduceTally) -> None:
        """Keep what a tally has, and drop it."""
        self._tallies.remove(tally)
        self.count += tally.produce_requests


class ProduceTally:
    """Requests of one version, each with one batch that was appended to one topic: one number that the topic
    and the API share.

    The code that serves such a request takes 1 from ``until_timed``, and times it when that was 0 or less
    (``note_timed``); it adds the batch's size to ``bytes_in``, and to ``further_records`` those behind its
    first. Counting down says at once which one to time, and Python keeps such small numbers ready.
    """

    __slots__ = ("_requests_then", "bytes_in", "further_records", "until_timed")

    def __init__(self, until_timed: int = 0) -> None:
        self.until_timed = until_timed
        """How many requests come before the next one that is timed."""
        self._requests_then = until_timed  # that were served, when it is 0
        self.bytes_in = 0
        self.further_records = 0

    def __repr__(self) -> str:
        return f"ProduceTally({self.produce_requests} requests, {self.messages_in} records)"

    @property
    def produce_requests(self) -> int:
        return self._requests_then - self.until_timed

    @property
    def messages_in(self) -> int:
        return self.produce_requests + self.further_records

    def note_timed(self) -> None:
        """The request that was just served was the one to be timed."""
        self.until_timed += TIMED_ONE_IN
        self._requests_then += TIMED_ONE_IN


class RequestMetrics:
    """One ``request`` of the series: an API, for Fetch the kind of reader. See ``RequestChannelMetrics``."""

    __slots__ = (
        "_counters", "_mask", "errors", "name", "parent", "sizes", "throttle_ms", "throttled", "timed",
    )  # fmt: skip

    def __init__(self, name: str, *, timed_one_in: int = 1, parent: RequestMetrics | None = None) -> None:
        """``parent`` counts the same requests and times under a wider name."""
        self.name = name
        self.parent = parent
        self.errors: dict[int, int] = {}
        """How often each error code was in an answer; NONE is not counted."""
        self.timed = TimedRequests()
        self.sizes = Reservoir()
        """Bytes of the timed requests, with their headers."""
        self.throttled = 0
        """Requests that a quota delayed."""
        self.throttle_ms = Reservoir()
        """By how much."""
        self._counters: dict[int, RequestCounter] = {}
        self._mask = timed_one_in - 1

    def __repr__(self) -> str:
        return f"RequestMetrics({self.name}, {self.count} requests, errors={self.errors})"

    def counter(self, version: int) -> RequestCounter:
        counter = self._counters.get(version)
        if counter is None:
            counter = self._counters[version] = RequestCounter()
        return counter

    @property
    def counts(self) -> Mapping[int, int]:
        """Requests by version."""
        return {version: counter.total for version, counter in self._counters.items()}

    @property
    def count(self) -> int:
        return sum(counter.total for counter in self._counters.values())

    def note(self, version: int) -> bool:
        """A request came. Returns whether to take its time."""
        if self.parent is not None:
            self.parent.counter(version).count += 1
        counter = self._counters.get(version) or self.counter(version)
        counter.count += 1
        return not (counter.count - 1) & self._mask

    def note_error(self, code: int) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1
        if self.parent is not None:
            self.parent.note_error(code)

    def note_throttle(self, duration_ms: int) -> None:
        """A quota delays a request by this."""
        self.throttled += 1
        self.throttle_ms.add(duration_ms)
        if self.parent is not None:
            self.parent.note_throttle(duration_ms)

    def note_size(self, size_bytes: int) -> None:
        """So large is a request that is timed."""
        self.sizes.add(size_bytes)
        if self.parent is not None:
            self.parent.sizes.add(size_bytes)

    def add(self, row: tuple[float, float, float, float, float]) -> None:
        """A timed request has ended: milliseconds by phase."""
        self.timed.add(row)
        if self.parent is not None:
            self.parent.timed.add(row)


class RequestTiming:
    """The stations of one request, by the clock's nanoseconds; see the module header."""

    __slots__ = ("_arrived", "_began", "_completed", "_handled", "_left", "_metrics", "_now_ns")

    def __init__(
        self, metrics: RequestMetrics, now_ns: Callable[[], int], *, arrived_ns: int, size_bytes: int
    ) -> None:
        """Its handler begins now. ``arrived_ns`` 0: so it has just arrived."""
        metrics.note_size(size_bytes)
        self._metrics = metrics
        self._now_ns = now_ns
        self._began = self._handled = self._completed = self._left = now_ns()
        self._arrived = arrived_ns or self._began

    def handled(self) -> None:
        """The handler has returned, with or without an answer."""
        self._handled = self._now_ns()
        if self._completed == self._began:  # the answer came with it, or comes later
            self._completed = self._left = self._handled

    def completed(self) -> None:
        """There is an answer."""
        self._completed = self._left = self._now_ns()

    def left(self) -> None:
        """All earlier answers have left."""
        self._left = self._now_ns()

    def sent(self) -> None:
        """The transport has it."""
        began, completed, left = self._began, self._completed, self._left
        handled = min(self._handled, completed)
        self.ended(
            (
                (began - self._arrived) / _NS_PER_MS,
                (handled - began) / _NS_PER_MS,
                (completed - handled) / _NS_PER_MS,
                (left - completed) / _NS_PER_MS,
                (self._now_ns() - left) / _NS_PER_MS,
            )
        )

    def ended(self, row: tuple[float, float, float, float, float]) -> None:
        """All is over. ``row``: milliseconds by phase."""
        self._metrics.add(row)


class SlowRequests:
    """From which duration on a request is an event, and where that goes."""

    __slots__ = ("from_ms", "record")

    def __init__(self) -> None:
        self.from_ms = 1000
        """``event.recorder.slow.request.ms``."""
        self.record: Record = not_recorded

    def __repr__(self) -> str:
        return f"SlowRequests(from {self.from_ms} ms)"


class RequestChannelMetrics:
    """Those of all APIs. Names are Kafka's: ``ListOffsets``."""

    def __init__(
        self,
        names: Mapping[int, str],
        *,
        produce_key: int,
        fetch_key: int,
        frequent_keys: Collection[int] = (),
    ) -> None:
        """``names``: of the APIs, by key. Two of them are fast (``TIMED_ONE_IN``), others are asked often
        (``FREQUENT_TIMED_ONE_IN``)."""
        self.slow = SlowRequests()
        timed_one_in = dict.fromkeys(frequent_keys, FREQUENT_TIMED_ONE_IN)
        timed_one_in |= dict.fromkeys((produce_key, fetch_key), TIMED_ONE_IN)
        self._apis = {
            key: RequestMetrics(name, timed_one_in=timed_one_in.get(key, 1)) for key, name in names.items()
        }
        fetch = self._apis[fetch_key]
        self.fetch_consumer = RequestMetrics("FetchConsumer", timed_one_in=TIMED_ONE_IN, parent=fetch)
        self.fetch_follower = RequestMetrics("FetchFollower", timed_one_in=TIMED_ONE_IN, parent=fetch)

    def __repr__(self) -> str:
        return f"RequestChannelMetrics({[each for each in self if each.count]})"

    def __iter__(self) -> Iterator[RequestMetrics]:
        """All, asked or not."""
        yield from self._apis.values()
        yield self.fetch_consumer
        yield self.fetch_follower

    def of(self, api_key: int) -> RequestMetrics:
        return self._apis[api_key]
