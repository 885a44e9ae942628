"""One fetch request and its session: what to read, and which of the answers go into the response.

Kafka: ``FetchContext`` and its variants, ``FetchSession``, ``CachedPartition`` (KIP-227). The module
``fetch_session`` says which request gets which context, and the invariants.

What a request says of a partition is opaque here and kept as it is; names and topic ids are the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from minikafka.errors import ErrorCode
from minikafka.types import Buffer

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1

PartitionKey = tuple[Hashable, int]
"""Topic id (version 13 and later) or topic name, and partition."""


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


_NO_ITEM: tuple[None, Any] = (None, None)

CreateSession = Callable[[dict[PartitionKey, CachedPartition[Request]]], FetchSession[Request] | None]


class FetchContext(Generic[Request]):
    """One fetch request: what to read, and what of the answers to send. This one is sessionless."""

    __slots__ = ("_requests",)

    error = ErrorCode.NONE
    """Set when the request cannot be served at all: there is nothing to read, ``respond`` says the rest."""

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
