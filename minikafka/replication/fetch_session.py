"""Fetch sessions (KIP-227), both sides: a reader names its partitions once, and then what has changed.

**The side of who is asked.** Kafka: ``FetchManager``, ``FetchSessionCacheShard``; topic ids: KIP-516. A
request becomes a context, which says what to read and which of the answers go into the response:

====================  ==========================  ========================================================
session epoch         session id                  context
====================  ==========================  ========================================================
-1 (final)            any; that session closes    sessionless: all answers, session id 0
0 (initial)           any; that session closes    full: all answers, a new session if there is room
the session's         one of ours                 incremental: only the answers with news
any other             one of ours                 INVALID_FETCH_SESSION_EPOCH
other than 0 and -1   none of ours                FETCH_SESSION_ID_NOT_FOUND
====================  ==========================  ========================================================

A session that names its topics otherwise than the request (by ids since version 13) is
FETCH_SESSION_TOPIC_ID_ERROR. An incremental request that forgets the last partition closes its session and
continues sessionless.

Invariants:
- What a reader has put together from a session's responses equals what full responses would have told it.
- An incremental response has the partitions with records, an error, a diverging epoch, a preferred read
  replica, or a changed high watermark, last stable offset or log start offset. What had an error or a
  diverging epoch is news once more afterwards.
- A partition that had records goes to the end of the session's order, so that under a byte limit each has
  its turn.
- A session's epoch counts its requests: 1 is due after the full one, after 2³¹−1 again 1. When two requests
  race for one session, the epoch tells, and the overtaken one is answered with an error.
- At most ``max_slots`` sessions. A newcomer evicts the one unused for the longest, if that is longer than
  ``min_eviction_ms``; else the least one, if that ranks below it: followers (privileged) above consumers,
  then by partitions. Young sessions (created within ``min_eviction_ms``) are safe, but consumers' not from
  followers.

Differences from Kafka: after a diverging epoch the offsets are told again, because the reader takes none from
that answer (KAFKA-14704); a last stable offset that moves alone is news too, or a read_committed consumer's
idea of it would lag behind; one cache instead of eight shards, because there is one thread.

**A request and its session**: what to read, and which of the answers go into the response. Kafka:
``FetchContext`` and its variants, ``FetchSession``, ``CachedPartition`` (KIP-227). What a
request says of a partition is opaque here and kept as it is; names and topic ids are the caller's.

**A follower's side**: it names its partitions once, then only what changed. Pure. Kafka:
``FetchSessionHandler``, ``FetchMetadata``. Partitions are named by topic id (KIP-516), so a topic that was
deleted and created again is another partition: the old one is forgotten, the new one is sent.

What the next request is:

==================================  ===========  ============  ==========================================
last answer                         session id   epoch         it names
==================================  ===========  ============  ==========================================
none yet                            0            0 (full)      all partitions
a full one, with a session          that one     1             what changed since
a full one, without a session       0            0 (full)      all partitions
an incremental one                  the same     the next      what changed since
an incremental one, session 0       0            0 (full)      all: the leader closed the session
FETCH_SESSION_ID_NOT_FOUND          0            0 (full)      all: the leader has forgotten the session
any other error, ``reset``          the same     0 (full)      all: the leader shall close the session
an answer that does not fit         the same     0 (full)      all: the leader shall close the session
==================================  ===========  ============  ==========================================

A full answer fits when it has exactly the partitions that were asked for, an incremental one when it has no
others. INVALID_FETCH_SESSION_EPOCH and FETCH_SESSION_TOPIC_ID_ERROR are such "other errors".

Invariants:
- ``sent`` is what the leader has been told, ``want`` and ``drop`` say what it shall be told; both are equal
  after ``next_request``.
- A partition that is dropped and wanted again makes the leader tell everything of it once more: in between
  its answers may have been ignored, and a session repeats nothing.
- An empty round costs nothing per partition.

Differs from Kafka: the partitions that changed are noted as they change; Kafka compares all of them in every
round. There are no requests without topic ids.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from minikafka.clock import Clock
from minikafka.errors import ErrorCode
from minikafka.named_tuple import NamedTuple
from minikafka.types import Buffer

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1

PartitionKey = tuple[Hashable, int]
"""Topic id (version 13 and later) or topic name, and partition."""

_NO_ITEM: tuple[None, Any] = (None, None)

MIN_EVICTION_MS = 120_000
"""Kafka's ``KafkaBroker.MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS``, a constant there too."""

_FULL_EPOCHS = (INITIAL_EPOCH, FINAL_EPOCH)
_NEVER_MS = 2**63

TopicIdPartition = tuple[UUID, int]
"""Topic id and partition."""


class PartitionAnswer(Protocol):
    """What the session looks at in one partition's answer."""

    @property
    def error(self) -> ErrorCode: ...
    @property
    def records(self) -> Buffer: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def diverging_epoch(self) -> object | None: ...
    @property
    def preferred_read_replica(self) -> int:
        """-1: none."""
        ...


Request = TypeVar("Request")
Answer = TypeVar("Answer", bound=PartitionAnswer)


class SessionResponse(NamedTuple, Generic[Answer]):
    """The session's part of a Fetch response, and the answers that go into it."""

    error: ErrorCode
    session_id: int
    answers: list[tuple[PartitionKey, Answer]]


def next_epoch(epoch: int) -> int:
    """The epoch of the request after one with ``epoch`` (``FetchMetadata.nextEpoch``)."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == EPOCH_MAX else epoch + 1


class CachedPartition(Generic[Request]):
    """What the reader asked for and was last told of one partition."""

    __slots__ = ("request", "told_offsets")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.told_offsets: tuple[int, int, int] | None = None
        """High watermark, last stable and log start offset; None after an error or a diverging epoch, of
        which the reader takes nothing else: they are news again."""

    def told(self, answer: PartitionAnswer) -> None:
        """``answer`` goes to the reader."""
        offsets = (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset)
        is_whole = not answer.error and answer.diverging_epoch is None
        self.told_offsets = offsets if is_whole else None

    def is_news(self, answer: PartitionAnswer) -> bool:
        """Whether the reader must be told ``answer``."""
        return (
            len(answer.records) > 0
            or (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset)
            != self.told_offsets
            or answer.error != 0
            or answer.diverging_epoch is not None
            or answer.preferred_read_replica >= 0
        )


class FetchSession(Generic[Request]):
    """One reader's partitions, in the order in which they are read next."""

    __slots__ = (
        "cached_size", "created_ms", "epoch", "id", "is_privileged", "last_used_ms", "partitions",
        "ranked_again_ms", "uses_topic_ids",
    )  # fmt: skip

    def __init__(
        self,
        session_id: int,
        partitions: dict[PartitionKey, CachedPartition[Request]],
        *,
        is_privileged: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> None:
        self.id = session_id
        self.partitions = partitions
        self.is_privileged = is_privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.cached_size = 0  # as the cache has counted it
        self.ranked_again_ms = now_ms  # when the next use must look at its rank

    def __repr__(self) -> str:
        return (
            f"FetchSession(id={self.id}, epoch={self.epoch}, {len(self.partitions)} partitions, "
            f"privileged={self.is_privileged}, topic_ids={self.uses_topic_ids})"
        )


CreateSession = Callable[[dict[PartitionKey, CachedPartition[Request]]], FetchSession[Request] | None]


class FetchContext(Generic[Request]):
    """One fetch request: what to read, and what of the answers to send. This one is sessionless."""

    __slots__ = ("_requests",)

    error = ErrorCode.NONE
    """Set when the request cannot be served at all: there is nothing to read, ``respond`` makes the
    answer."""

    def __init__(self, requests: Mapping[PartitionKey, Request]) -> None:
        self._requests = dict(requests)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._requests)} partitions)"

    def partitions(self) -> list[tuple[PartitionKey, Request]]:
        """All partitions to read, in order."""
        return list(self._requests.items())

    def remember(self, key: PartitionKey, request: Request) -> None:
        """Replace what is known of a partition, once its topic's name could be told from its id."""
        self._requests[key] = request

    def selected(self, answers: Iterable[tuple[PartitionKey, Answer]]) -> list[tuple[PartitionKey, Answer]]:
        """The answers that ``respond`` would send; changes nothing. For quotas, which need the size first."""
        return list(answers)

    def respond(self, answers: Iterable[tuple[PartitionKey, Answer]]) -> SessionResponse[Answer]:
        """The response to send for these answers; the session takes them as told. Once per context."""
        return SessionResponse(ErrorCode.NONE, INVALID_SESSION_ID, list(answers))

    def throttled(self) -> SessionResponse[Any]:
        """An empty response for a reader over its quota; the session stays as it was."""
        return SessionResponse(ErrorCode.NONE, INVALID_SESSION_ID, [])


class ErrorFetchContext(FetchContext[Request]):
    """A request whose session cannot be."""

    __slots__ = ("error",)

    def __init__(self, error: ErrorCode) -> None:
        super().__init__({})
        self.error = error

    def __repr__(self) -> str:
        return f"ErrorFetchContext({self.error.name})"

    def selected(self, answers: Iterable[tuple[PartitionKey, Answer]]) -> list[tuple[PartitionKey, Answer]]:
        return []

    def respond(self, answers: Iterable[tuple[PartitionKey, Answer]]) -> SessionResponse[Answer]:
        return SessionResponse(self.error, INVALID_SESSION_ID, [])


class FullFetchContext(FetchContext[Request]):
    """A request that names all its partitions and would like a session.

    ``create_session`` makes one of the partitions as they were told, or returns None when there is no room.
    """

    __slots__ = ("_create_session",)

    def __init__(
        self, requests: Mapping[PartitionKey, Request], create_session: CreateSession[Request]
    ) -> None:
        super().__init__(requests)
        self._create_session = create_session

    def respond(self, answers: Iterable[tuple[PartitionKey, Answer]]) -> SessionResponse[Answer]:
        answers = list(answers)
        partitions: dict[PartitionKey, CachedPartition[Request]] = {}
        for key, answer in answers:
            cached = partitions[key] = CachedPartition(self._requests[key])
            cached.told(answer)
        session = self._create_session(partitions)
        return SessionResponse(ErrorCode.NONE, session.id if session else INVALID_SESSION_ID, answers)


class IncrementalFetchContext(FetchContext[Request]):
    """A request within a session."""

    __slots__ = ("_epoch", "_session")

    def __init__(self, session: FetchSession[Request]) -> None:
        self._session = session
        self._epoch = session.epoch

    def __repr__(self) -> str:
        return f"IncrementalFetchContext({self._session!r})"

    def partitions(self) -> list[tuple[PartitionKey, Request]]:
        return [(key, cached.request) for key, cached in self._session.partitions.items()]

    def remember(self, key: PartitionKey, request: Request) -> None:
        self._session.partitions[key].request = request

    def selected(self, answers: Iterable[tuple[PartitionKey, Answer]]) -> list[tuple[PartitionKey, Answer]]:
        if self._session.epoch != self._epoch:
            return []
        partitions = self._session.partitions
        return [(key, answer) for key, answer in answers if partitions[key].is_news(answer)]

    def respond(self, answers: Iterable[tuple[PartitionKey, Answer]]) -> SessionResponse[Answer]:
        session = self._session
        if session.epoch != self._epoch:  # a later request of this session overtook this one while it waited
            return SessionResponse(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, [])
        partitions = session.partitions
        in_order = iter(partitions.items())
        news: list[tuple[PartitionKey, Answer]] = []
        with_records: list[PartitionKey] = []
        for key, answer in answers:
            expected_key, cached = next(in_order, _NO_ITEM)
            if expected_key is not key:  # in order, as usual, saves hashing a topic id
                cached = partitions[key]
            if cached.is_news(answer):
                news.append((key, answer))
                cached.told(answer)
                if len(answer.records) > 0:
                    with_records.append(key)
        for key in with_records:
            partitions[key] = partitions.pop(key)
        return SessionResponse(ErrorCode.NONE, session.id, news)

    def throttled(self) -> SessionResponse[Any]:
        session = self._session
        overtaken = session.epoch != self._epoch
        error = ErrorCode.INVALID_FETCH_SESSION_EPOCH if overtaken else ErrorCode.NONE
        return SessionResponse(error, session.id, [])


class Rng(Protocol):
    """What a cache needs of a ``random.Random``."""

    def randrange(self, start: int, stop: int, /) -> int: ...


class _EvictionOrder:
    """Sessions by worth, the least first: a heap whose outdated entries are dropped when they surface."""

    __slots__ = ("_heap", "_worth")

    def __init__(self) -> None:
        self._heap: list[tuple[bool, int, int]] = []
        self._worth: dict[int, tuple[bool, int, int]] = {}

    def put(self, worth: tuple[bool, int, int]) -> None:
        """``worth``: privileged, size, session id. Replaces the session's earlier worth."""
        self._worth[worth[2]] = worth
        heapq.heappush(self._heap, worth)
        if len(self._heap) > 2 * len(self._worth) + 64:
            self._heap = sorted(self._worth.values())

    def remove(self, session_id: int) -> None:
        self._worth.pop(session_id, None)

    def least(self) -> tuple[bool, int, int] | None:
        heap = self._heap
        while heap and self._worth.get(heap[0][2]) != heap[0]:
            heapq.heappop(heap)
        return heap[0] if heap else None


class FetchSessionCache(Generic[Request]):
    """All sessions of a broker. See the module header for who is evicted."""

    def __init__(
        self, *, max_slots: int, rng: Rng, clock: Clock, min_eviction_ms: int = MIN_EVICTION_MS
    ) -> None:
        self._max_slots = max_slots
        self._min_eviction_ms = min_eviction_ms
        self._rng = rng
        self._clock = clock
        self._sessions: OrderedDict[int, FetchSession[Request]] = OrderedDict()  # least recently used first
        self._evictable_by_all = _EvictionOrder()
        self._evictable_by_privileged = _EvictionOrder()
        self.total_partitions = 0
        """Kafka's NumIncrementalFetchPartitionsCached."""

    def __repr__(self) -> str:
        slots = f"{len(self._sessions)} of {self._max_slots}"
        return f"FetchSessionCache({slots}, {self.total_partitions} partitions)"

    def __len__(self) -> int:
        """Kafka's NumIncrementalFetchSessions."""
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession[Request] | None:
        return self._sessions.get(session_id)

    def new_context(
        self,
        *,
        session_id: int,
        session_epoch: int,
        uses_topic_ids: bool,
        is_follower: bool,
        partitions: Mapping[PartitionKey, Request],
        forgotten: Iterable[PartitionKey] = (),
    ) -> FetchContext[Request]:
        """What a fetch request means: its session (versions before 7: 0, -1) and the partitions it names."""
        if session_epoch in _FULL_EPOCHS:
            self.remove(session_id)
            if session_epoch == FINAL_EPOCH:
                return FetchContext(partitions)
            create = partial(self._create, is_privileged=is_follower, uses_topic_ids=uses_topic_ids)
            return FullFetchContext(partitions, create)
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorFetchContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != session_epoch:
            return ErrorFetchContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids is not uses_topic_ids:
            return ErrorFetchContext(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        cached_partitions = session.partitions
        for key, request in partitions.items():
            cached = cached_partitions.get(key)
            if cached is None:
                cached_partitions[key] = CachedPartition(request)
            else:
                cached.request = request
        for key in forgotten:
            cached_partitions.pop(key, None)
        if not cached_partitions:
            self.remove(session_id)
            return FetchContext(partitions)
        self._touch(session, self._clock.monotonic_ms())
        session.epoch = next_epoch(session.epoch)
        return IncrementalFetchContext(session)

    def remove(self, session_id: int) -> FetchSession[Request] | None:
        """Close a session; an unknown one is fine."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.total_partitions -= session.cached_size
            self._evictable_by_all.remove(session_id)
            self._evictable_by_privileged.remove(session_id)
        return session

    def _create(
        self,
        partitions: dict[PartitionKey, CachedPartition[Request]],
        *,
        is_privileged: bool,
        uses_topic_ids: bool,
    ) -> FetchSession[Request] | None:
        """A new session with a random id, if there is room or another can be evicted."""
        now_ms = self._clock.monotonic_ms()
        if not self._make_room(len(partitions), is_privileged=is_privileged, now_ms=now_ms):
            return None
        session_id = INVALID_SESSION_ID
        while session_id == INVALID_SESSION_ID or session_id in self._sessions:
            session_id = self._rng.randrange(1, EPOCH_MAX)
        session = FetchSession(
            session_id,
            partitions,
            is_privileged=is_privileged,
            uses_topic_ids=uses_topic_ids,
            now_ms=now_ms,
        )
        self._sessions[session_id] = session
        self._touch(session, now_ms)
        return session

    def _make_room(self, size: int, *, is_privileged: bool, now_ms: int) -> bool:
        if len(self._sessions) < self._max_slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > self._min_eviction_ms:
            victim = oldest.id
        else:
            order = self._evictable_by_privileged if is_privileged else self._evictable_by_all
            least = order.least()
            if least is None or (is_privileged, size, 0) < least:
                return False
            victim = least[2]
        self.remove(victim)
        return True

    def _touch(self, session: FetchSession[Request], now_ms: int) -> None:
        """Note a use: most recently used, and ranked again if its size or its age asks for that."""
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.id)
        if now_ms < session.ranked_again_ms and len(session.partitions) == session.cached_size:
            return
        self.total_partitions += len(session.partitions) - session.cached_size
        session.cached_size = len(session.partitions)
        worth = (session.is_privileged, session.cached_size, session.id)
        is_old = now_ms - session.created_ms > self._min_eviction_ms
        session.ranked_again_ms = _NEVER_MS if is_old else session.created_ms + self._min_eviction_ms + 1
        if is_old:
            self._evictable_by_all.put(worth)
        if is_old or not session.is_privileged:
            self._evictable_by_privileged.put(worth)


class SessionRequest(NamedTuple, Generic[Request]):
    """One fetch request, as far as the session has a say in it."""

    session_id: int
    session_epoch: int
    to_send: Mapping[TopicIdPartition, Request]
    """In the order in which the leader shall read them. Not to be changed."""
    to_forget: list[TopicIdPartition]

    @property
    def is_full(self) -> bool:
        return self.session_epoch == INITIAL_EPOCH


class FetchSessionHandler(Generic[Request]):
    """One follower's session with one leader."""

    def __init__(self) -> None:
        self._session_id = INVALID_SESSION_ID
        self._session_epoch = INITIAL_EPOCH
        self._wanted: dict[TopicIdPartition, Request] = {}
        self._changed: dict[TopicIdPartition, None] = {}
        self._sent: dict[TopicIdPartition, Request] = {}

    def __repr__(self) -> str:
        return (
            f"FetchSessionHandler(id={self._session_id}, epoch={self._session_epoch}, "
            f"{len(self._wanted)} partitions, {len(self._changed)} changed)"
        )

    def want(self, key: TopicIdPartition, request: Request) -> None:
        """Ask this of a partition from the next request on. A new one comes behind the others."""
        if key not in self._wanted and key in self._sent:
            self.reset()  # it was dropped, and the leader has not heard of that
        self._wanted[key] = request
        self._changed[key] = None

    def move_to_end(self, key: TopicIdPartition) -> None:
        """A partition had its turn: in a full request it comes last now, so that under a byte limit each has
        its turn. Within a session the leader sees to that."""
        if (request := self._wanted.pop(key, None)) is not None:
            self._wanted[key] = request

    def drop(self, key: TopicIdPartition) -> None:
        """Ask nothing more of a partition; an unknown one is fine."""
        if self._wanted.pop(key, None) is not None:
            self._changed[key] = None

    def sent(self, key: TopicIdPartition) -> Request | None:
        """What the leader was last asked of a partition; None when it was not."""
        return self._sent.get(key)

    def next_request(self) -> SessionRequest[Request] | None:
        """What to send now; None when there is nothing to ask for. The caller sends it and says how it went:
        ``answered`` or ``reset``."""
        changed, self._changed = self._changed, {}
        if self._session_epoch == INITIAL_EPOCH:
            self._sent = dict(self._wanted)
            if not self._sent:
                return None
            return SessionRequest(self._session_id, self._session_epoch, self._sent, [])
        to_send: dict[TopicIdPartition, Request] = {}
        to_forget: list[TopicIdPartition] = []
        for key in changed:
            request = self._wanted.get(key)
            if request is None:
                if self._sent.pop(key, None) is not None:
                    to_forget.append(key)
            elif request != self._sent.get(key):
                to_send[key] = self._sent[key] = request
        if not self._sent and not to_forget:
            return None
        return SessionRequest(self._session_id, self._session_epoch, to_send, to_forget)

    def answered(self, *, error: ErrorCode, session_id: int, keys: Iterable[TopicIdPartition]) -> bool:
        """Take the answer to the last request: its error, session and partitions. Returns whether those can
        be used; if not, the next request is a full one."""
        if error is not ErrorCode.NONE:
            if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = INVALID_SESSION_ID
            self._session_epoch = INITIAL_EPOCH
            return False
        answered = frozenset(keys)
        was_full = self._session_epoch == INITIAL_EPOCH
        if was_full or session_id == INVALID_SESSION_ID:
            self._session_id = session_id
        fits = answered == self._sent.keys() if was_full else answered <= self._sent.keys()
        goes_on = fits and session_id != INVALID_SESSION_ID
        self._session_epoch = next_epoch(self._session_epoch) if goes_on else INITIAL_EPOCH
        return fits

    def reset(self) -> None:
        """The next request is a full one: the last was not answered, or what it told is of no use."""
        self._session_epoch = INITIAL_EPOCH
