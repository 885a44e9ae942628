"""One fetcher: a loop that copies the partitions of one leader, one fetch request after the other.

Kafka: the thread in ``AbstractFetcherThread`` and ``ReplicaFetcherThread``; KIP-227 (sessions). What an
answer does to a log is in ``followed_partitions.py``; this module is the part that waits.

A round: connect; ask for what the session says; take the answer partition by partition, giving way to others
in between; ask for the leader's bounds where an offset was out of range.

When the leader cannot be reached, does not answer in time or refuses a full fetch request, the connection is
dropped and the loop rests for ``replica.fetch.backoff.ms``, then tries again, for ever. A session that the
leader has lost is not worth a rest: the next request is a full one.

Invariants: one request is under way at a time; every wait ends at a deadline, but the wait for something to
fetch; the connection ends with the loop.

Differs from Kafka: nothing is built for a leader that is not there, and the partitions are not delayed one by
one for it; a refused full request makes the loop rest where Kafka asks again at once; an outage is logged
when it begins and when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.errors import ErrorCode, KafkaError
from minikafka.metrics.timer import OneMinuteRate
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.replication.fetch_state import PartitionFetchState
from minikafka.server.replica.fetcher.followed_partitions import FollowedPartitions
from minikafka.server.replica.fetcher.remote_leader import ListedOffset, RemoteLeader
from minikafka.server.replica.partition import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from minikafka.server.replica.replica_fetchers import PartitionT, Replicas
from minikafka.server.replica.replication_quotas import ReplicationQuotaManager
from minikafka.server.runtime.turns import Turns
from minikafka.types import NO_OFFSET, TopicPartition

logger = logging.getLogger(__name__)

_NOT_LISTED = ListedOffset(ErrorCode.UNKNOWN_SERVER_ERROR, NO_OFFSET)
"""For a partition that the leader's answer leaves out."""


class ReplicaFetcher(Generic[PartitionT]):
    """A loop, ``run``, over ``partitions``. Belongs to the fetcher manager."""

    def __init__(
        self,
        leader: RemoteLeader,
        *,
        replicas: Replicas[PartitionT],
        clock: Clock,
        config: Callable[[], BrokerConfig],
        failed_partitions: set[TopicPartition],
        quota: ReplicationQuotaManager,
    ) -> None:
        self.leader = leader
        self.partitions = FollowedPartitions(
            replicas=replicas,
            clock=clock,
            config=config,
            failed_partitions=failed_partitions,
            quota=quota,
        )
        self.requests = 0
        """Fetch requests, answered or not."""
        self.request_rate = OneMinuteRate(clock.monotonic_ms)
        self._clock = clock
        self._config = config
        self._added = asyncio.Event()
        self._is_out_of_reach = False

    def __repr__(self) -> str:
        return f"ReplicaFetcher(broker {self.leader.endpoint}, {self.partitions!r})"

    def wake(self) -> None:
        """Partitions were added."""
        self._added.set()

    async def run(self) -> None:
        """Fetch until cancelled."""
        try:
            while True:
                try:
                    await self._round()
                except (BrokerUnavailable, KafkaError) as error:
                    await self._rest(str(error))
        finally:
            self.partitions.session.reset()
            await self.leader.close()

    async def _round(self) -> None:
        if not self.partitions:
            await self._wait_for_work()
            return
        await self.leader.connect()
        request = self.partitions.next_request()
        if request is None:
            await self._wait_for_work()
            return
        self.requests += 1
        self.request_rate.mark()
        response = await self.leader.fetch(request)
        keys = [
            (topic.topic_id, data.partition_index)
            for topic in response.responses
            for data in topic.partitions
        ]
        if self.partitions.session.answered(
            error=response.error_code, session_id=response.session_id, keys=keys
        ):
            self._note_success()
            await self._take(response)
        elif request.is_full:
            error = response.error_code
            reason = f"it answers {error!r}" if error else "its answer is to another question"
            await self._rest(f"broker {self.leader.endpoint}: {reason}")

    async def _take(self, response: Any) -> None:
        partitions = self.partitions
        turns = Turns()
        for topic in response.responses:
            for data in topic.partitions:
                partitions.take(topic.topic_id, data)
                await turns.give_way()
        if out_of_range := partitions.take_out_of_range():
            await self._reset(out_of_range)

    async def _reset(self, out_of_range: Mapping[TopicPartition, PartitionFetchState]) -> None:
        epochs = {each: state.current_leader_epoch for each, state in out_of_range.items()}
        latest = await self.leader.list_offsets(epochs, LATEST_TIMESTAMP)
        earliest = await self.leader.list_offsets(epochs, EARLIEST_TIMESTAMP)
        for each, state in out_of_range.items():
            self.partitions.reset(
                each,
                state,
                earliest=earliest.get(each, _NOT_LISTED),
                latest=latest.get(each, _NOT_LISTED),
            )

    async def _wait_for_work(self) -> None:
        """Until partitions are added, or one that is delayed or held back may be fetched again."""
        self._added.clear()
        due_ms = self.partitions.next_due_ms
        wait_s = None if due_ms is None else max(0, due_ms - self._clock.monotonic_ms()) / 1000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._added.wait()

    async def _rest(self, reason: str) -> None:
        """The leader is of no use for a while."""
        backoff_ms = self._config().replica_fetch_backoff_ms
        level = logging.DEBUG if self._is_out_of_reach else logging.WARNING
        logger.log(level, "cannot fetch, trying again every %d ms: %s", backoff_ms, reason)
        self._is_out_of_reach = True
        self.partitions.session.reset()
        await self.leader.close()
        await asyncio.sleep(backoff_ms / 1000)

    def _note_success(self) -> None:
        if self._is_out_of_reach:
            self._is_out_of_reach = False
            logger.info("fetching from broker %s again", self.leader.endpoint)
