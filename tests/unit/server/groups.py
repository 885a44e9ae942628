"""A group coordinator on a broker of three, whose groups are played by the test.

``Coordinator`` has the real service over real logs (``replicas``); what its shards are told is noted by
``FakeGroups``, and what these want done is what the test says. The followers fetch when the test lets them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

from minikafka.config.broker import BrokerConfig, broker_config
from minikafka.config.topic import TopicConfig
from minikafka.coordinator.group.messages import Answer, Append, Effects, GroupOperation
from minikafka.errors import ErrorCode, KafkaError
from minikafka.metrics.coordinator_names import GROUP_METRICS
from minikafka.metrics.sensors import Metrics
from minikafka.protocol.internal.group_record_codec import encode_record
from minikafka.protocol.internal.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from minikafka.protocol.records.records import Record, build_batch
from minikafka.server.cluster.topic_validation import GROUP_METADATA_TOPIC
from minikafka.server.coordinator.group_service import GroupService
from minikafka.server.coordinator.hosted_shard import HostedShard, RequestTicket
from minikafka.server.coordinator.service import CoordinatorTopic, load_time_sensor, offsets_topic
from minikafka.types import TopicPartition
from tests.unit.server.replicas import Replicas, run

AT = TopicPartition(GROUP_METADATA_TOPIC, 0)
NOW_MS = 1_700_000_000_000


def committed(offset: int, group: str = "g") -> GroupRecord:
    return GroupRecord(
        OffsetCommitKey(group, "orders", 0), OffsetCommitValue(offset=offset, commit_timestamp_ms=NOW_MS)
    )


def group_batch(*records: GroupRecord, **fields: Any) -> bytes:
    """As a coordinator writes them."""
    return build_batch(
        [Record(index, NOW_MS, *encode_record(record), ()) for index, record in enumerate(records)], **fields
    )


class NotedAppend(Append):
    """Notes what became of it; ``then`` are the effects of its being committed."""

    __slots__ = ("notes", "then")

    def __init__(self, notes: list[Any], *records: GroupRecord, then: Effects | None = None) -> None:
        super().__init__(records)
        self.notes = notes
        self.then = then or []

    def _note(self, what: Any) -> None:
        self.notes.append((what, *(cast(OffsetCommitValue, each.value).offset for each in self.records)))

    def written(self, now_ms: int) -> Effects:
        self._note("written")
        return []

    def committed(self, now_ms: int) -> Effects:
        self._note("committed")
        return self.then

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        self._note(error.code)
        return [Answer(each.ticket, error) for each in self.then if isinstance(each, Answer)]


class FakeGroups:
    """In place of a ``GroupShard``."""

    def __init__(self) -> None:
        self.replayed: list[tuple[GroupRecord, int]] = []
        self.told: list[Any] = []
        self.waits: list[RequestTicket] = []
        self.answers_to: dict[str, Callable[[], Effects]] = {}

    def replay(self, record: GroupRecord, now_ms: int, *, producer_id: int = -1) -> None:
        self.replayed.append((record, producer_id))

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        self.told.append(("marker", producer_id, committed))

    def loaded(self, now_ms: int) -> Effects:
        return self._hear("loaded")

    def expired(self, operation: GroupOperation, now_ms: int) -> Effects:
        return self._hear("expired", operation)

    def clean_up(self, now_ms: int) -> Effects:
        return self._hear("clean_up")

    def topics_deleted(self, topics: Any, now_ms: int) -> Effects:
        return self._hear("topics_deleted", topics)

    def waiting(self) -> list[RequestTicket]:
        return self.waits

    def _hear(self, what: str, *more: Any) -> Effects:
        self.told.append((what, *more) if more else what)
        return self.answers_to.get(what, list)()

    @property
    def offsets(self) -> list[int]:
        return [cast(OffsetCommitValue, record.value).offset for record, _ in self.replayed]


class ManualSupervisor:
    """Tasks run when the test says so."""

    def __init__(self) -> None:
        self.tasks: list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = []

    def start(self, name: str, work: Any, *, restart: Any = None) -> None:
        self.tasks.append((name, work))

    def run(self) -> None:
        """All loads that were begun."""
        tasks, self.tasks = self.tasks, []
        for name, work in tasks:
            if name.startswith("load-"):
                run(work())


class Asked:
    """A request and its answers."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.ticket = RequestTicket(self.answers.append)

    @property
    def codes(self) -> list[ErrorCode]:
        return [each.code if isinstance(each, KafkaError) else ErrorCode.NONE for each in self.answers]


class Coordinator:
    """See the module header."""

    def __init__(self, directory: Path, *, config: TopicConfig | None = None, **properties: str) -> None:
        self.replicas = Replicas(directory, config or TopicConfig(cleanup_policy=("compact",)))
        self.config: BrokerConfig = broker_config(
            {name.replace("_", "."): properties[name] for name in properties}
        )
        self.supervisor = ManualSupervisor()
        self.metrics = Metrics()
        self.made: list[FakeGroups] = []
        self.service = GroupService(
            config=self.config,
            replicas=self.replicas.manager,
            topic=CoordinatorTopic(
                offsets_topic(self.config),
                config=self.config,
                metadata=self.replicas.metadata,
                topics=cast(Any, None),
            ),
            new_shard=cast(Any, lambda counts, memory_bytes: self._new_groups()),
            timer=self.replicas.timer,
            log_io=cast(Any, self.replicas.log_io),
            supervisor=cast(Any, self.supervisor),
            load_time=load_time_sensor(self.metrics, GROUP_METRICS, now_ms=0),
        )
        self.service.start()

    def _new_groups(self) -> FakeGroups:
        self.made.append(FakeGroups())
        return self.made[-1]

    @property
    def groups(self) -> FakeGroups:
        """Those made last."""
        return self.made[-1]

    @property
    def shard(self) -> HostedShard[Any]:
        return self.service._shards[0]

    def lead(self, *, epoch: int = 0, load: bool = True, **fields: Any) -> None:
        self.replicas.lead(AT, epoch=epoch, **fields)
        if load:
            self.supervisor.run()

    def follow(self, *, epoch: int = 1, leader: int = 2) -> None:
        self.replicas.follow(AT, leader=leader, epoch=epoch)

    def fetched(self, offset: int) -> None:
        """Both followers have all below ``offset``."""
        for follower in (2, 3):
            self.replicas.follower_fetch(follower, offset, AT)

    def ask(self, *effects: Any) -> Asked:
        """A request that a shard meets with ``effects``, where ``Answer(None, …)`` is the answer to it."""
        asked = Asked()

        def call(groups: Any, ticket: Any, now_ms: int) -> Effects:
            return [each._replace(ticket=ticket) if isinstance(each, Answer) else each for each in effects]

        self.shard.ask(call, asked.ticket)
        return asked

    def close(self) -> None:
        self.service.parked.rebalance.validate()
        self.service.parked.heartbeat.validate()
        self.replicas.close()
