"""A follower's side of a fetch session (KIP-227): it names its partitions once, then only what changed. Pure.

Kafka: ``FetchSessionHandler``, ``FetchMetadata``; the leader's side is ``fetch_session.py``. Partitions are
named by topic id (KIP-516), so a topic that was deleted and created again is another partition: the old one
is forgotten, the new one is sent. What a request says of a partition is opaque here.

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

from collections.abc import Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from minikafka.errors import ErrorCode
from minikafka.replication.fetch_session import INITIAL_EPOCH, INVALID_SESSION_ID, next_epoch

Request = TypeVar("Request")

TopicIdPartition = tuple[UUID, int]
"""Topic id and partition."""


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
