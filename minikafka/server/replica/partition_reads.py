"""Reading several partitions for one fetch: who gets how many bytes, and what each has to say.

Kafka's ``ReplicaManager.readFromLog``. The request's byte limit is spent in the order of the partitions;
the first record batch found is returned even when it is larger than every limit, so that a consumer never
stalls (KIP-74). Once it is spent, or less is left than the next batch needs, the answer is full: it says of
the partitions that follow how they stand, and nothing of them is read. Kafka looks in each for a batch that
would still fit; with hundreds of partitions that costs more than the records that it finds.

Followers read up to the log end, from the leader alone; consumers up to the high watermark or the last stable
offset, from any replica when they say that they can (KIP-392); the bounds are those of the moment when the
read of a partition begins (KAFKA-9807).

For a follower the partitions come first in which it is waited for, because it is in their ISR or about to be:
their records are what acks=all waits for. What it has to catch up with comes in small chunks
(``replication_quotas``), so that neither this loop nor its own is long busy with it; one batch of it comes in
every answer, however much there is of the others, unless the follower is paused. Kafka's order knows no
difference.

A follower that is not in sync gets no records of a partition that is listed for the leader's replication
quota, while that is exceeded (KIP-73): the remainder of its answer comes, and it counts as a fetch.

A range that is not in the page cache is not read here. All such ranges of a fetch are collected, disk threads
fetch them, and then the whole fetch is read again, with what they have brought.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Final
from uuid import UUID

from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.segment.fetch_data import (
    ColdRead,
    FetchData,
    FetchedAbortedTransaction,
    FetchIsolation,
    LogOffsetMetadata,
)
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.records.batch import CorruptBatch, iterate_headers
from minikafka.protocol.wire.fast_paths import EpochEndOffset
from minikafka.replication.partition_replicas import NO_BROKER_EPOCH, ReplicaView
from minikafka.server.replica.partition import CONSUMER_REPLICA_ID, FollowerPlace, Partition
from minikafka.server.replica.replica_manager import ReplicaManager
from minikafka.server.replica.replication_quotas import (
    CatchUpChunk,
    CatchUpLag,
    CatchUpPace,
    ReplicationQuotaManager,
)
from minikafka.steps import Steps
from minikafka.types import NO_OFFSET, BrokerId, Buffer, Offset, TopicPartition

NO_REPLICA: Final = -1
"""Read here."""

READS_A_STEP = 16
"""Partitions read between two yields: at 10 to 20 µs each 0.3 ms. A yield costs half as much as a read."""


class ClientMetadata(NamedTuple):
    """What a consumer says that can be sent to another replica (Fetch since version 11)."""

    rack: str
    """Empty when it did not say."""
    listener_name: str


def preferred_read_replica(
    replicas: ReplicaManager, partition: Partition, fetch_offset: Offset, client: ClientMetadata
) -> int:
    """The replica that ``client`` should rather fetch from; ``NO_REPLICA`` when it is right here.

    Kafka: ``ReplicaManager.findPreferredReadReplica`` (KIP-392). The leader alone decides. It names only
    members of the ISR that hold the wanted record: one that lags would be chosen again each time the consumer
    asks, and keep it behind (KAFKA-14379).
    """
    select = replicas.replica_selector
    if select is None or not partition.is_leader:
        return NO_REPLICA
    now_ms = replicas.clock.monotonic_ms()
    metadata = replicas.metadata
    followers = [
        ReplicaView(
            follower.broker_id, broker.rack, follower.log_end_offset, now_ms - follower.last_caught_up_ms
        )
        for follower in partition.replication.followers.values()
        if follower.broker_id in partition.isr
        and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
        and (broker := metadata.broker(follower.broker_id)) is not None
        and broker.endpoint(client.listener_name) is not None
    ]
    own = metadata.broker(partition.node_id)
    leader = ReplicaView(
        partition.node_id, None if own is None else own.rack, partition.log.log_end_offset, 0
    )
    chosen = select(client.rack, leader, followers)
    return NO_REPLICA if chosen is leader else chosen.broker_id


class FetchParams(NamedTuple):
    """What a fetch request asks for as a whole (Kafka's ``FetchParams``)."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: FetchIsolation
    replica_id: BrokerId = BrokerId(CONSUMER_REPLICA_ID)
    replica_epoch: int = NO_BROKER_EPOCH
    client: ClientMetadata | None = None
    """Since version 11."""
    fetcher: object = None
    """Of a follower: the connection over which the request came, each of its fetchers has one."""

    @property
    def is_from_follower(self) -> bool:
        return self.replica_id >= 0

    def at_most(self, answer_bytes_max: int) -> FetchParams:
        """The same, with an answer that is no larger than that."""
        if answer_bytes_max >= self.max_bytes:
            return self
        return self._replace(max_bytes=answer_bytes_max, min_bytes=min(self.min_bytes, answer_bytes_max))

    @property
    def leader_only(self) -> bool:
        """Whether only the leader may answer: followers have to follow it, and old consumers expect it."""
        return self.replica_id >= 0 or (self.replica_id == CONSUMER_REPLICA_ID and self.client is None)


class WantedPartition(NamedTuple):
    """What a fetch request asks of one partition (Kafka's ``FetchRequest.PartitionData``).

    ``topic_id`` is None in requests that name their topics. An empty topic name stands for an id that this
    broker does not know (yet).
    """

    topic_partition: TopicPartition
    topic_id: UUID | None
    fetch_offset: Offset
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: Offset = NO_OFFSET
    """The follower's; -1 from a consumer."""


class PartitionRead(NamedTuple):
    """What one partition answers (Kafka's ``LogReadResult``)."""

    wanted: WantedPartition
    error: ErrorCode = ErrorCode.NONE
    records: Buffer = b""
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    aborted_transactions: list[FetchedAbortedTransaction] | None = None
    diverging_epoch: EpochEndOffset | None = None
    preferred_read_replica: int = NO_REPLICA
    start: LogOffsetMetadata | None = None
    """Where the read began in the log's files, for counting what has come since."""
    is_paused: bool = False
    """Whether there are records, and the follower is to have them later (``CatchUpPace``)."""
    first_entry_incomplete: bool = False
    """Whether the first batch is larger than what was left for this partition, and was left out."""


class Reads(NamedTuple):
    """All answers of one pass, or the cold ranges that kept it from being complete."""

    partitions: list[PartitionRead]
    size_bytes: int
    cold: dict[TopicPartition, ColdRead]
    places: list[FollowerPlace]
    """Where a follower fetched without an error and a diverging epoch: there it holds all below its fetch
    offset."""
    has_held_back: bool
    """Whether the quota kept records of a partition back, if it has any, or there are some for later."""
    pause_ms: int
    """Until there may be those for later; 0 when there are none."""


class LeaderThrottle(NamedTuple):
    """The leader's quota at a moment when it is exceeded, for one follower (``shouldLeaderThrottle``)."""

    quota: ReplicationQuotaManager
    replica_id: BrokerId

    @classmethod
    def of(cls, replicas: ReplicaManager, params: FetchParams) -> LeaderThrottle | None:
        """None when nothing is held back from this reader."""
        quota = replicas.leader_quota
        if (
            params.is_from_follower
            and quota.is_active
            and quota.is_quota_exceeded(replicas.clock.monotonic_ms())
        ):
            return cls(quota, params.replica_id)
        return None

    def holds_back(self, partition: Partition) -> bool:
        """A replica that is in sync gets what it asks for, or the throttle would shrink the ISR."""
        at = partition.topic_partition
        is_held_back = self.replica_id not in partition.isr and self.quota.is_throttled(at)
        if is_held_back:
            self.quota.note_held_back(at)
        return is_held_back


def read_partitions(
    replicas: ReplicaManager,
    params: FetchParams,
    wanted: Iterable[WantedPartition],
    *,
    cached_only: bool,
    brought: Mapping[TopicPartition, ColdRead],
) -> Steps[Reads]:
    """In steps: one pass over ``wanted``, in order, but for what a follower has to catch up with; with what
    was cold in the passes before, ``brought`` from the disk."""
    reads: list[PartitionRead] = []
    cold: dict[TopicPartition, ColdRead] = {}
    places: list[FollowerPlace] = []
    is_from_follower = params.is_from_follower
    throttle = LeaderThrottle.of(replicas, params) if is_from_follower else None
    has_held_back = False
    whole = Budget(params.max_bytes)
    late = LateBudget(replicas.catch_up_pace, params.fetcher) if is_from_follower else None
    turns = zip(wanted, repeat(whole)) if late is None else _in_turn(replicas, params, wanted, whole, late)
    for count, (want, budget) in enumerate(turns, start=1):
        if count % READS_A_STEP == 0:
            yield
        if not want.topic_partition.topic:
            reads.append(_of_unknown_topic(replicas, want))
            continue
        partition = None
        try:
            partition = replicas.hosted(want.topic_partition)
            partition.stats.fetch_requests += 1
            is_held_back = throttle is not None and throttle.holds_back(partition)
            has_held_back = has_held_back or is_held_back
            max_bytes = 0 if is_held_back else max(0, min(want.max_bytes, whole.left, budget.left))
            is_full = whole.is_full and budget.is_touched
            read = _without_records(replicas, partition, want, params, is_full=is_full)
            if read is None:
                data = partition.log.read(
                    want.fetch_offset,
                    max_bytes=max_bytes,
                    min_one_message=not (budget.is_touched or is_held_back),
                    isolation=params.isolation,
                    cached_only=cached_only,
                    brought=brought.get(want.topic_partition) if brought else None,
                )
                read = _with_records(want, data)
        except KafkaError as error:
            reads.append(_failed(replicas, partition, want, error))
            continue
        except ColdRead as range_:
            # Without its traceback, which holds this frame: what it brings is freed when it was sent.
            cold[want.topic_partition] = range_.with_traceback(None)
            size_bytes = range_.size
            has_parted = False
        else:
            if budget is late:
                is_paused = late.keeps_back(partition, want)
                read = read._replace(records=_whole_batches(read.records), is_paused=is_paused)
            reads.append(read)
            size_bytes = len(read.records)
            has_parted = read.diverging_epoch is not None
            if read.first_entry_incomplete:
                whole.leave_out(max_bytes, params)
        if is_from_follower and partition is not None and not has_parted:
            places.append(FollowerPlace(partition, want.fetch_offset, want.log_start_offset))
        whole.spend(size_bytes)
        if budget is not whole:
            budget.spend(size_bytes)
    if late is not None and not cold:
        late.settle()
    pause_ms = 0 if late is None else late.pause_ms
    return Reads(reads, params.max_bytes - whole.left, cold, places, has_held_back or pause_ms > 0, pause_ms)


def _failed(
    replicas: ReplicaManager, partition: Partition | None, want: WantedPartition, error: KafkaError
) -> PartitionRead:
    """``partition``: where this broker hosts it."""
    stats = replicas.stats.of(want.topic_partition.topic)
    if partition is not None:
        replicas.note_failure(partition, error)
    else:
        stats.fetch_requests += 1
    stats.failed_fetch_requests += 1
    return PartitionRead(want, error.code)


def _of_unknown_topic(replicas: ReplicaManager, want: WantedPartition) -> PartitionRead:
    replicas.stats.elsewhere.fetch_requests += 1
    replicas.stats.elsewhere.failed_fetch_requests += 1
    return PartitionRead(want, ErrorCode.UNKNOWN_TOPIC_ID)


def _whole_batches(records: Buffer) -> Buffer:
    """Without the batch that is cut off at the end: in a small chunk it is much for nothing."""
    end = 0
    try:
        for position, header in iterate_headers(records):
            end = position + header.size
    except CorruptBatch:
        return records  # the append will say so
    return memoryview(records)[:end] if 0 < end < len(records) else records


class Budget:
    """Bytes that an answer may have; the first batch may be larger than all of it."""

    __slots__ = ("is_full", "is_touched", "left")

    def __init__(self, size_bytes: int) -> None:
        self.left = size_bytes
        self.is_touched = self.is_full = False

    def spend(self, size_bytes: int) -> None:
        self.left -= size_bytes
        self.is_touched = self.is_touched or size_bytes > 0
        self.is_full = self.is_full or self.left <= 0

    def leave_out(self, max_bytes: int, params: FetchParams) -> None:
        """A batch did not fit into ``max_bytes``. If that was all that is left, and the reader has what it
        wants at least, the answer is full."""
        if max_bytes == self.left:
            self.is_full = params.max_bytes - self.left >= params.min_bytes


class LateBudget(Budget):
    """What a follower may have of partitions that it has to catch up with; nothing while it is paused."""

    __slots__ = ("_chunk", "_fetcher", "_lag", "_pace", "pause_ms")

    def __init__(self, pace: CatchUpPace, fetcher: object) -> None:
        super().__init__(0)
        self._pace = pace
        self._fetcher = fetcher
        self._lag = CatchUpLag(0, 0)
        self._chunk = CatchUpChunk(0, 0)
        self.pause_ms = 0
        """Until its pause is over; 0 when there is nothing for it then."""

    def open(self, lag: CatchUpLag) -> None:
        """How the follower stands is known."""
        self._lag = lag
        self._chunk = self._pace.chunk(self._fetcher, lag)
        self.left = self._chunk.size_bytes
        self.is_touched = self._chunk.pause_ms > 0

    def settle(self) -> None:
        """What was spent is on its way."""
        if self.left < self._chunk.size_bytes:
            self._pace.sent(self._fetcher, self._lag)

    def keeps_back(self, partition: Partition, want: WantedPartition) -> bool:
        """Whether the follower is paused, and there is something for it."""
        if not self._chunk.pause_ms or partition.log.log_end_offset <= want.fetch_offset:
            return False
        self.pause_ms = self._chunk.pause_ms
        return True


def _in_turn(
    replicas: ReplicaManager,
    params: FetchParams,
    wanted: Iterable[WantedPartition],
    whole: Budget,
    late: LateBudget,
) -> Iterator[tuple[WantedPartition, Budget]]:
    """The partitions in which the follower is waited for, then the others, each with the bytes it may take
    from."""
    behind = []
    fetched = end = 0
    now_ms = replicas.clock.monotonic_ms()
    for want in wanted:
        partition = replicas.partitions.get(want.topic_partition)
        if partition is not None and not partition.is_waited_for(params.replica_id, now_ms):
            behind.append(want)
            fetched += want.fetch_offset
            end += partition.log.log_end_offset
        else:
            yield want, whole
    if behind:
        late.open(CatchUpLag(fetched, end))
    for want in behind:
        yield want, late


def _without_records(
    replicas: ReplicaManager,
    partition: Partition,
    want: WantedPartition,
    params: FetchParams,
    *,
    is_full: bool,
) -> PartitionRead | None:
    """What is answered to a reader that gets no records here, for there is no room left (``is_full``), or it
    is to read elsewhere; None: the log is read.

    Raises:
        KafkaError: this replica may not answer this reader.
    """
    if want.topic_id is not None and want.topic_id != partition.topic_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_TOPIC_ID, f"{want.topic_partition} is not the topic {want.topic_id}"
        )
    log = partition.log
    check_access(partition, want, params)
    preferred = NO_REPLICA
    if params.client is not None and replicas.replica_selector is not None and params.replica_id < 0:
        preferred = preferred_read_replica(replicas, partition, want.fetch_offset, params.client)
    diverging_epoch = None
    if preferred == NO_REPLICA:
        diverging_epoch = partition.diverging_epoch(
            last_fetched_epoch=want.last_fetched_epoch, fetch_offset=want.fetch_offset
        )
    is_read_elsewhere = preferred != NO_REPLICA or diverging_epoch is not None
    if is_full and not is_read_elsewhere:
        log.check_range(want.fetch_offset)
    if not (is_full or is_read_elsewhere):
        return None
    return PartitionRead(
        want,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        diverging_epoch=diverging_epoch,
        preferred_read_replica=preferred,
    )


def _with_records(want: WantedPartition, data: FetchData) -> PartitionRead:
    return PartitionRead(
        want,
        records=data.records,
        high_watermark=data.high_watermark,
        last_stable_offset=data.last_stable_offset,
        log_start_offset=data.log_start_offset,
        aborted_transactions=data.aborted_transactions,
        start=data.fetch_offset_metadata,
        first_entry_incomplete=data.first_entry_incomplete,
    )


def check_access(partition: Partition, want: WantedPartition, params: FetchParams) -> None:
    """Whether this replica may answer this reader.

    Raises:
        KafkaError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER.
    """
    if params.leader_only:
        partition.check_leader(want.current_leader_epoch)
    else:
        partition.check_leader_epoch(want.current_leader_epoch)
    if params.replica_id >= 0:
        partition.check_follower(
            params.replica_id,
            current_leader_epoch=want.current_leader_epoch,
            broker_epoch=params.replica_epoch,
        )
