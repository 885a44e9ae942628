"""Share sessions: which partitions a member of a share group fetches from this broker, without naming them in
each request.

Kafka: ``ShareSession``, ``ShareSessionCache``, ``SharePartitionManager.newContext`` (KIP-932). A member has
one session with a broker. Its first request has epoch 0 and makes it; each of the following has the next
epoch, and -1 ends it. Requests of a session change its partitions: those they name are added, those they
forget go.
A session also ends with the connection that it was made on. No more than ``sessions_max`` are kept: one more
is refused, for a session that is thrown out would take its records' locks with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from minikafka.coordinator.share.messages import TopicIdPartition
from minikafka.errors import ErrorCode, KafkaError
from minikafka.named_tuple import NamedTuple

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
PARTITIONS_MAX: Final = 100_000
"""Of a session: more than any group consumes of one broker; a session is memory that its member fills."""


def next_epoch(epoch: int) -> int:
    """0 and below are special, so it goes on with 1 (``ShareRequestMetadata.nextEpoch``)."""
    return 1 if epoch == _EPOCH_MAX else epoch + 1


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


class ShareSession:
    """``epoch`` is that of the next request. Compared by identity."""

    __slots__ = ("epoch", "key", "partitions")

    def __init__(self, key: SessionKey, partitions: Iterable[TopicIdPartition]) -> None:
        self.key = key
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.partitions: dict[TopicIdPartition, None] = dict.fromkeys(partitions)

    def __repr__(self) -> str:
        return f"ShareSession({self.key}, epoch={self.epoch}, {len(self.partitions)} partitions)"

    def in_turn(self) -> list[TopicIdPartition]:
        """The partitions, each time from another one on, so that all are served
        (``PartitionRotateStrategy``)."""
        partitions = list(self.partitions)
        if not partitions:
            return partitions
        first = self.epoch % len(partitions)
        return partitions[first:] + partitions[:first]


class ShareSessionCache:
    """All sessions of this broker."""

    def __init__(self, sessions_max: int) -> None:
        self.sessions_max = sessions_max
        self.evictions = 0
        """Sessions that ended with their connections (Kafka: ``ShareSessionEvictionsPerSec``)."""
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._members: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"ShareSessionCache({len(self._sessions)} sessions)"

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Of all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def has(self, key: SessionKey) -> bool:
        return key in self._sessions

    def has_group(self, group_id: str) -> bool:
        """Whether one of its members has a session."""
        return self._members[group_id] > 0

    def find(self, key: SessionKey) -> ShareSession:
        """Raises KafkaError: SHARE_SESSION_NOT_FOUND."""
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND, "The share session was not found.")
        return session

    def begin(self, key: SessionKey, partitions: Iterable[TopicIdPartition]) -> ShareSession:
        """A new session in the place of the member's last one.

        Raises:
            KafkaError: SHARE_SESSION_LIMIT_REACHED, INVALID_REQUEST.
        """
        session = ShareSession(key, partitions)
        _check_size(session)
        replaced = self._sessions.get(key)
        if replaced is not None:
            self.end(replaced)
        if len(self._sessions) >= self.sessions_max:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED, "The limit of share sessions has been reached."
            )
        self._sessions[key] = session
        self._members[key.group_id] += 1
        return session

    def proceed(
        self,
        key: SessionKey,
        epoch: int,
        *,
        add: Iterable[TopicIdPartition] = (),
        forget: Iterable[TopicIdPartition] = (),
    ) -> ShareSession:
        """The next request of a session.

        Raises:
            KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, INVALID_REQUEST.
        """
        session = self.find(key)
        if epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "The share session epoch is invalid.")
        session.partitions.update(dict.fromkeys(add))
        for partition in forget:
            session.partitions.pop(partition, None)
        _check_size(session)
        session.epoch = next_epoch(session.epoch)
        return session

    def end(self, session: ShareSession) -> bool:
        """Returns whether it was there still."""
        if self._sessions.get(session.key) is not session:
            return False
        del self._sessions[session.key]
        self._members[session.key.group_id] -= 1
        if not self._members[session.key.group_id]:
            del self._members[session.key.group_id]
        return True


def _check_size(session: ShareSession) -> None:
    if len(session.partitions) > PARTITIONS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"A share session has at most {PARTITIONS_MAX} partitions."
        )
