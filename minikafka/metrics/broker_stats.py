"""What a broker counts: its traffic by topic, logins, its authorizer's decisions, and what it has refused.

Plain integers, added to on the event loop where the work is done.

**Traffic.** Kafka: ``BrokerTopicStats``, ``BrokerTopicMetrics``. Kafka counts everything twice, for the topic
and for all topics; here the total is added up when it is read, so a request pays for one addition. Nearly all
Produce requests share that with the count of their API (``ProduceTally``).

**Logins and decisions.** Kafka: the sensors of ``Selector.SelectorMetrics`` (``socket-server-metrics``), and
``StandardAuthorizer.AuthorizerMetrics``. TLS handshakes are counted where they are made
(``network.tls_acceptor.Handshakes``), ACLs where they are kept (``AclStore.count``).

**Refusals** of late, and why: produces, logins, operations that no ACL allows. Clients log what they are
told, if at all, and who is asked for help sees the broker; Kafka has it in its logs. Equal refusals are one
entry with a count.

Invariants: what a peer says never adds a count without bound. There are counts for each topic that is hosted
here, for each listener, and for no others; of refusals so many entries are kept, those that did not come
again for the longest time go first, and no text is longer than it has to be, because clients make most of
them. The total of the traffic never falls, because a topic that goes leaves its counts in it; every other
count only grows, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from minikafka.metrics.request_metrics import ProduceTally, RequestCounter
from minikafka.named_tuple import NamedTuple

FIELDS: Final = (
    "messages_in",
    "bytes_in",
    "bytes_out",
    "bytes_rejected",
    "produce_requests",
    "fetch_requests",
    "failed_produce_requests",
    "failed_fetch_requests",
    "share_fetch_requests",
    "failed_share_fetch_requests",
    "share_acknowledgement_requests",
    "failed_share_acknowledgement_requests",
)
_TALLIED: Final = frozenset(("messages_in", "bytes_in", "produce_requests"))
"""What a ``ProduceTally`` has too, under the same names."""

AUTHENTICATION_FIELDS: Final = (
    "successful",
    "failed",
    "successful_reauthentication",
    "failed_reauthentication",
    "no_reauth",
    "expired_killed",
)

REFUSALS_MAX: Final = 500
REFUSAL_TEXT_MAX: Final = 256


class TopicStats:
    """Counts of one topic. The code that does the work adds to them, or to a tally; ``value`` reads
    one."""

    __slots__ = (*FIELDS, "_tallies")

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        """To consumers."""
        self.bytes_rejected = 0
        self.produce_requests = 0
        """Appends, refused ones too."""
        self.fetch_requests = 0
        """Reads, refused ones too."""
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0
        self.share_fetch_requests = 0
        """ShareFetch requests that read it, once each for all of its partitions."""
        self.failed_share_fetch_requests = 0
        """Those that were answered with an error for a partition of it."""
        self.share_acknowledgement_requests = 0
        """Requests that acknowledge records of it, ShareFetch too."""
        self.failed_share_acknowledgement_requests = 0
        self._tallies: dict[RequestCounter, ProduceTally] = {}

    def __repr__(self) -> str:
        return f"TopicStats({', '.join(f'{name}={self.value(name)}' for name in FIELDS)})"

    def value(self, name: str) -> int:
        """One of ``FIELDS``, with what the tallies have."""
        value: int = getattr(self, name)
        if name in _TALLIED:
            value += sum(getattr(tally, name) for tally in self._tallies.values())
        return value

    def tally(self, counter: RequestCounter) -> ProduceTally:
        """Where to count requests for this topic that ``counter`` counts, for both."""
        tally = self._tallies.get(counter)
        if tally is None:
            tally = self._tallies[counter] = counter.tally()
        return tally

    def add(self, other: TopicStats) -> None:
        for name in FIELDS:
            setattr(self, name, getattr(self, name) + other.value(name))

    def settle_tallies(self) -> None:
        """The topic is not hosted here any more: what was counted for others too becomes theirs alone."""
        for counter, tally in self._tallies.items():
            counter.settle(tally)
        self._tallies.clear()


class BrokerTopicStats:
    """The counts of a broker."""

    def __init__(self) -> None:
        self.replication_bytes_in = 0
        """What this broker's fetchers have appended."""
        self.replication_bytes_out = 0
        """What followers were answered with."""
        self.elsewhere = TopicStats()
        """Requests for topics that are not here, and what deleted topics have left."""
        self._topics: dict[str, TopicStats] = {}

    def __repr__(self) -> str:
        return f"BrokerTopicStats({len(self._topics)} topics, total={self.total()})"

    @property
    def topics(self) -> Mapping[str, TopicStats]:
        return self._topics

    def host(self, topic: str) -> TopicStats:
        """The counts of a topic that is hosted here from now on, or already."""
        stats = self._topics.get(topic)
        if stats is None:
            stats = self._topics[topic] = TopicStats()
        return stats

    def forget(self, topic: str) -> None:
        """The topic is not hosted here any more."""
        stats = self._topics.pop(topic, None)
        if stats is not None:
            self.elsewhere.add(stats)
            stats.settle_tallies()

    def of(self, topic: str) -> TopicStats:
        """Where to count a request for a topic that may not be here."""
        return self._topics.get(topic, self.elsewhere)

    def total(self) -> TopicStats:
        """A new sum of all."""
        total = TopicStats()
        total.add(self.elsewhere)
        for stats in self._topics.values():
            total.add(stats)
        return total


class AuthenticationMetrics:
    """Counts of one listener."""

    __slots__ = (*AUTHENTICATION_FIELDS, "refusals")

    def __init__(self, refusals: Refusals | None = None) -> None:
        self.refusals = Refusals() if refusals is None else refusals
        """What the failed ones were told."""
        self.successful = 0
        """First logins of connections by SASL."""
        self.failed = 0
        """Those that failed, for whatever reason."""
        self.successful_reauthentication = 0
        """Logins of a connection that had logged in before (KIP-368)."""
        self.failed_reauthentication = 0
        self.no_reauth = 0
        """Logins of clients that cannot authenticate again (SaslAuthenticate 0, or none); they count as
        successful too."""
        self.expired_killed = 0
        """Connections that were closed because they sent a request after their session had expired."""

    def __repr__(self) -> str:
        counts = ", ".join(f"{each}={getattr(self, each)}" for each in AUTHENTICATION_FIELDS)
        return f"AuthenticationMetrics({counts})"


class AuthorizerMetrics:
    """Counts of the authorizer."""

    __slots__ = ("allowed", "denied", "refusals")

    def __init__(self, refusals: Refusals | None = None) -> None:
        self.refusals = Refusals() if refusals is None else refusals
        """Who was denied what."""
        self.allowed = 0
        self.denied = 0

    def __repr__(self) -> str:
        return f"AuthorizerMetrics(allowed={self.allowed}, denied={self.denied})"

    @property
    def requests(self) -> int:
        """Decisions, whatever they were."""
        return self.allowed + self.denied


class SecurityMetrics:
    """The counts of a broker."""

    def __init__(self) -> None:
        self.refusals = Refusals()
        """Logins that have failed, and operations that were denied."""
        self.authorizer = AuthorizerMetrics(self.refusals)
        self.listeners: dict[str, AuthenticationMetrics] = {}
        """By name."""

    def __repr__(self) -> str:
        return f"SecurityMetrics({self.listeners}, {self.authorizer})"

    def of(self, listener_name: str) -> AuthenticationMetrics:
        """The counts of a listener, made when it is first asked for. Keep them, rather than ask for each
        connection."""
        counts = self.listeners.get(listener_name)
        if counts is None:
            counts = self.listeners[listener_name] = AuthenticationMetrics(self.refusals)
        return counts


class RefusedKind(Enum):
    """Values are what diagnostics show."""

    PRODUCE = "produce"
    LOGIN = "login"
    AUTHORIZATION = "authorization"


class Refused(NamedTuple):
    """What was refused to whom; what is the same counts as one. Empty: not known."""

    kind: RefusedKind
    about: str
    """A partition, a listener, or a resource with the operation."""
    error: str
    """The name of an error code."""
    user: str
    client_id: str
    host: str


class Refusal:
    """How often, since when, and what the last one was told."""

    __slots__ = ("count", "first_ms", "last_ms", "message")

    def __init__(self, now_ms: int) -> None:
        self.count = 0
        self.first_ms = self.last_ms = now_ms
        self.message = ""

    def __repr__(self) -> str:
        return f"Refusal({self.count} from {self.first_ms} to {self.last_ms}: {self.message!r})"


class Refusals:
    """Those of one broker."""

    def __init__(self) -> None:
        self._found: dict[Refused, Refusal] = {}

    def __repr__(self) -> str:
        return f"Refusals({len(self._found)})"

    def note(
        self,
        kind: RefusedKind,
        about: str,
        error: str,
        message: str | None,
        *,
        user: str = "",
        client_id: str | None = "",
        host: str = "",
        now_ms: int,
    ) -> None:
        texts = (text[:REFUSAL_TEXT_MAX] for text in (about, error, user, client_id or "", host))
        refused = Refused(kind, *texts)
        refusal = self._found.pop(refused, None)
        if refusal is None:
            refusal = Refusal(now_ms)
            if len(self._found) >= REFUSALS_MAX:
                del self._found[next(iter(self._found))]
        self._found[refused] = refusal  # the last one in the order of the dict
        refusal.count += 1
        refusal.last_ms = now_ms
        refusal.message = (message or "")[:REFUSAL_TEXT_MAX]

    def newest_first(self) -> Iterable[tuple[Refused, Refusal]]:
        return reversed(self._found.items())
