"""The share partitions of the partitions that this broker leads, and the sessions of those who consume them.

Kafka: ``SharePartitionManager``, ``SharePartitionCache`` (KIP-932). A share partition is loaded when a member
of its group first fetches it, in the leader epoch of its partition, and ends with that epoch, with its
partition or when the share coordinator refuses its writes. A member's session ends when the member says so or
its connection closes; then what it holds is available to the others at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from minikafka.coordinator.group.environment import ShareGroupSettings
from minikafka.coordinator.share.messages import TopicIdPartition
from minikafka.deferred import deferred
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import Connection
from minikafka.server.share.hosted_share_partition import (
    FetchFigures,
    HostedSharePartition,
    ShareKey,
    ShareParts,
)
from minikafka.share.share_session import SessionKey, ShareSession, ShareSessionCache
from minikafka.types import TopicPartition

if TYPE_CHECKING:
    from minikafka.server.share import delayed_share_fetch
    from minikafka.server.share.delayed_share_fetch import ShareFetchParams, ShareRead
    from minikafka.share.share_partition import AcknowledgementBatch
else:
    delayed_share_fetch = deferred("minikafka.server.share.delayed_share_fetch")


class SharePartitionManager:
    """See the module header."""

    def __init__(self, parts: ShareParts, *, sessions_max: int) -> None:
        self.sessions = ShareSessionCache(sessions_max)
        self.counts = parts.counts
        self._parts = parts
        self._replicas = parts.replicas
        self._hosted: dict[ShareKey, HostedSharePartition] = {}
        self._by_partition: dict[TopicPartition, set[ShareKey]] = {}
        self._connections: dict[ShareSession, Connection] = {}

    def __repr__(self) -> str:
        return f"SharePartitionManager({len(self._hosted)} share partitions, {self.sessions!r})"

    def __len__(self) -> int:
        return len(self._hosted)

    def hosted(self) -> list[HostedSharePartition]:
        """All that are served here, in whatever state, ordered by group, topic and partition."""
        return sorted(self._hosted.values(), key=lambda each: (each.key.group_id, each.topic_partition))

    def start(self) -> None:
        """Follow leadership from now on."""
        self._replicas.add_leadership_listener(self.leadership_changed)

    async def close(self) -> None:
        """Drop the connections to leaders of dead letter queues."""
        await self._parts.dead_letters.close()

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        return self._parts.settings_of(group_id)

    def leadership_changed(self, topic_partition: TopicPartition) -> None:
        """End what began in another epoch."""
        for key in list(self._by_partition.get(topic_partition, ())):
            try:
                self._hosted[key].partition()
            except KafkaError:
                pass  # it has ended with that

    # Sessions

    def begin_session(
        self, key: SessionKey, partitions: Sequence[TopicIdPartition], connection: Connection
    ) -> ShareSession:
        """A session that ends with ``connection``; the member's last one ends now.

        Raises:
            KafkaError: SHARE_SESSION_LIMIT_REACHED.
        """
        if self.sessions.has(key):
            self._forget(self.sessions.find(key))
        session = self.sessions.begin(key, partitions)

        def closed() -> None:
            self.sessions.evictions += 1
            self.end_session(session)

        connection.closed[session] = closed
        self._connections[session] = connection
        return session

    def end_session(self, session: ShareSession) -> None:
        """What its member holds is available to others. Nothing, when it has ended."""
        self._forget(session)
        if self.sessions.end(session):
            if not self.sessions.has_group(session.key.group_id):
                self.counts.fetches.pop(session.key.group_id, None)
            self.release(session.key)
            for hosted in list(self._hosted.values()):
                self._end_unused(hosted)

    def _end_unused(self, hosted: HostedSharePartition) -> None:
        """Without a member here a group's offsets may be altered, or the group deleted: who comes then reads
        the state again (``ShareGroupListener.onGroupEmpty``)."""
        if hosted.is_idle and not self.sessions.has_group(hosted.key.group_id):
            hosted.end(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group has no members here."))

    def _forget(self, session: ShareSession) -> None:
        connection = self._connections.pop(session, None)
        if connection is not None:
            connection.closed.pop(session, None)

    def release(self, key: SessionKey) -> None:
        """What the member holds is available to others: its session is over."""
        for hosted in list(self._hosted.values()):
            shared = hosted.shared if hosted.key.group_id == key.group_id else None
            if shared is not None and shared.release(key.member_id):
                self._changed(hosted)

    # Fetching and acknowledging

    async def fetch(
        self, group_id: str, partitions: Sequence[tuple[TopicIdPartition, str]], params: ShareFetchParams
    ) -> dict[TopicIdPartition, ShareRead | KafkaError]:
        """Acquire records of ``partitions``, each with its topic's name; wait for some if need be. Partitions
        that have nothing to say are left out."""
        answers: dict[TopicIdPartition, ShareRead | KafkaError] = {}
        hosted = []
        for at, topic in partitions:
            try:
                hosted.append(self._find_or_begin(ShareKey(group_id, at), topic))
            except KafkaError as error:
                answers[at] = error
        if not hosted or not params.asks_for_records:
            return answers
        if answers:
            params = params._replace(max_wait_ms=0)
        fetch = delayed_share_fetch.ShareFetch(
            params,
            hosted,
            wanted=len(partitions),
            figures=self._figures(group_id),
            counts=self.counts,
            replicas=self._replicas,
            log_io=self._parts.log_io,
            changed=self._changed,
        )
        for read in await fetch.run():
            if read.error is None:
                answers[read.hosted.key.at] = read
            elif read.error.code is not ErrorCode.COORDINATOR_NOT_AVAILABLE:  # else it is loaded again
                answers[read.hosted.key.at] = read.error
        return answers

    def _figures(self, group_id: str) -> FetchFigures:
        """Kept while the group has members here: so there are no more than sessions."""
        figures = self.counts.fetches.get(group_id)
        if figures is None:
            figures = FetchFigures()
            if self.sessions.has_group(group_id):
                self.counts.fetches[group_id] = figures
        return figures

    def acknowledge(
        self, group_id: str, member_id: str, at: TopicIdPartition, batches: Sequence[AcknowledgementBatch]
    ) -> asyncio.Future[KafkaError | None]:
        """What became of it, when it is safe: often now, see ``HostedSharePartition.submit``.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION; INVALID_RECORD_STATE; why it is not led here.
        """
        hosted = self._hosted.get(ShareKey(group_id, at))
        shared = None if hosted is None else hosted.shared
        if hosted is None or shared is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            )
        hosted.partition()
        now_ms = self._replicas.clock.monotonic_ms()
        return hosted.submit(shared.acknowledge(member_id, batches, now_ms=now_ms))

    def count(self, batches: Sequence[AcknowledgementBatch]) -> None:
        """Of acknowledgements that are safe."""
        for batch in batches:
            for first, last, kind in batch.ranges():
                self.counts.acknowledged[kind] += last - first + 1

    def _find_or_begin(self, key: ShareKey, topic: str) -> HostedSharePartition:
        """Raises KafkaError: it is not led here."""
        hosted = self._hosted.get(key)
        if hosted is not None and hosted.error is None:
            hosted.partition()
            return hosted
        topic_partition = TopicPartition(topic, key.at.partition)
        partition = self._replicas.partition(topic_partition)
        if partition.topic_id != key.at.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{topic_partition} has another topic id")
        hosted = HostedSharePartition(
            key,
            topic_partition,
            leader_epoch=partition.leader_epoch,
            parts=self._parts,
            changed=self._changed,
        )
        self._hosted[key] = hosted
        self._by_partition.setdefault(topic_partition, set()).add(key)
        return hosted

    def _changed(self, hosted: HostedSharePartition) -> None:
        """There may be more to acquire, or it has ended."""
        if hosted.error is not None and self._hosted.get(hosted.key) is hosted:
            del self._hosted[hosted.key]
            keys = self._by_partition[hosted.topic_partition]
            keys.discard(hosted.key)
            if not keys:
                del self._by_partition[hosted.topic_partition]
        if hosted.error is not None or hosted.can_be_fetched():
            self._replicas.parked.share_fetch.check_and_complete(hosted.key)
        self._end_unused(hosted)
