"""What was produced is counted exactly, at any moment, whichever path it took and whatever became of the
topic, its leader or the connection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from minikafka.config.broker import broker_config
from minikafka.metrics.broker_stats import Refusals
from minikafka.metrics.request_metrics import TIMED_ONE_IN
from minikafka.metrics.sensors import Metrics
from minikafka.network.connection import Connection
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import encode_request
from minikafka.security.acl import ANONYMOUS
from minikafka.server.apis import HANDLERS
from minikafka.server.apis import produce as slow_path
from minikafka.server.client_quotas import ClientQuotas
from minikafka.server.dispatch.dispatcher import Dispatcher
from minikafka.server.dispatch.repeated_produce import RepeatedProduce
from minikafka.server.requests import request_channel_metrics
from minikafka.server.runtime.fast_paths import FastPaths
from minikafka.server.runtime.work_scheduler import WorkScheduler
from minikafka.server.services import Services
from minikafka.types import TopicPartition
from tests.unit.server.replicas import OTHER, TP, Replicas, batch, state_of

TOPIC, CLIENT = TP.topic, "writer"
VERSION = 12


class World:
    """A broker as far as a producer sees it, and what it should have counted."""

    def __init__(self, directory: Path) -> None:
        self.replicas = Replicas(directory)
        self.metrics = request_channel_metrics()
        self.quotas = ClientQuotas(broker_config({}), clock=self.replicas.clock, metrics=Metrics())
        services = SimpleNamespace(
            replica_manager=self.replicas.manager,
            metadata=self.replicas.metadata,
            request_metrics=self.metrics,
            client_quotas=self.quotas,
            clock=self.replicas.clock,
            scheduler=WorkScheduler(self.replicas.clock),
            fast_paths=(fast_paths := FastPaths()),
            authorizer=None,
            produce_refusals=Refusals(),
        )
        self.quotas.follow(fast_paths.drop)
        self.replicas.metadata.follow_topics(fast_paths.drop)
        self.replicas.manager.add_leadership_listener(fast_paths.drop)
        self._dispatch = Dispatcher(cast(Services, services), HANDLERS)
        self.connections = [self.connect() for _ in range(3)]
        self.epoch = 0
        self.topic_id = UUID(int=1, version=4)
        self.topic: Counter[str] = Counter()
        """Of the topic, while it is hosted."""
        self.gone: Counter[str] = Counter()
        self.versions: Counter[int] = Counter()
        self.client_bytes = 0
        self.ends = Counter({TP: 0, OTHER: 0})
        for at in (TP, OTHER):
            self.lead(at)

    @staticmethod
    def connect() -> Any:
        return SimpleNamespace(
            memory=None,
            received_ns=0,
            peer_host="::1",
            listener_name="INTERNAL",
            leader_hints={},
            principal=ANONYMOUS,
        )

    # What happens

    def lead(self, at: TopicPartition, *, leader: int = 1) -> None:
        self.epoch += 1
        state = state_of(
            at, leader=leader, epoch=self.epoch, topic_id=self.topic_id, isr=[1], replicas=[1, 2]
        )
        assert self.replicas.become(state) == [0]

    def delete(self) -> None:
        for at in (TP, OTHER):
            self.replicas.stop_replica(at, delete=True, leader_epoch=self.epoch)
        self.gone += self.topic
        self.topic = Counter()
        self.ends.clear()
        self.topic_id = UUID(int=self.topic_id.int + 1)

    def produce(
        self,
        connection: int = 0,
        at: TopicPartition = TP,
        *,
        records: int = 1,
        size: int = 100,
        version: int = VERSION,
    ) -> None:
        sent = batch(records, size)
        body = {
            "transactional_id": None,
            "acks": 1,
            "timeout": 1000,
            "topic_data": [{"name": at.topic, "partition_data": [{"index": at.partition, "records": sent}]}],
        }
        frame = encode_request(
            api_key=ApiKey.PRODUCE, api_version=version, correlation_id=7, client_id=CLIENT, body=body
        )[4:]
        hosted = self.replicas.manager.partitions.get(at)
        is_here = any(each in self.replicas.manager.partitions for each in (TP, OTHER))
        counts = self.topic if is_here else self.gone
        counts["produce_requests"] += 1
        if hosted is None or not hosted.is_leader:
            counts["failed_produce_requests"] += 1
        else:
            self.ends[at] += records
            counts["messages_in"] += records
            counts["bytes_in"] += len(sent)
        self.versions[version] += 1
        self.client_bytes += len(frame)
        assert self._dispatch(cast(Connection, self.connections[connection]), memoryview(frame))

    # What a scrape says

    def check(self) -> None:
        for at, partition in self.replicas.manager.partitions.items():
            assert partition.log.log_end_offset == self.ends[at]
        stats = self.replicas.manager.stats
        total = stats.total()
        for name in ("produce_requests", "messages_in", "bytes_in", "failed_produce_requests"):
            found = [counts.value(name) for topic, counts in stats.topics.items() if topic == TOPIC]
            assert sum(found) == self.topic[name], name
            assert total.value(name) == self.topic[name] + self.gone[name], name
        produce = self.metrics.of(ApiKey.PRODUCE)
        assert produce.counts == self.versions
        assert produce.count == self.versions.total()
        assert self.quotas.client("ANONYMOUS", CLIENT).produced_bytes == self.client_bytes


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.check()
    made.replicas.close()


@pytest.fixture
def slow_paths(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One for each request that took it."""
    taken: list[object] = []
    begun = slow_path._Produce.start

    def start(self: Any) -> Any:
        taken.append(self)
        return begun(self)

    monkeypatch.setattr(slow_path._Produce, "start", start)
    return taken


STEPS = st.one_of(
    st.tuples(
        st.just("produce"),
        st.integers(0, 2),
        st.sampled_from([TP, OTHER]),
        st.sampled_from([1, 1, 3]),
        st.sampled_from([1, 200]),
        st.sampled_from([8, 9, 12]),
    ),
    st.tuples(st.just("repeat"), st.integers(0, 2), st.sampled_from([TP, OTHER])),
    st.tuples(st.sampled_from(["lead", "follow"]), st.sampled_from([TP, OTHER])),
    st.tuples(st.just("reconnect"), st.integers(0, 2)),
    st.tuples(st.sampled_from(["delete", "create"])),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_at_every_moment_the_counts_are_those_of_what_was_sent(steps: list[Any]) -> None:
    with TemporaryDirectory() as directory:
        world = World(Path(directory))
        for step in steps:
            match step:
                case ["produce", connection, at, records, size, version]:
                    world.produce(connection, at, records=records, size=size, version=version)
                case ["repeat", connection, at]:
                    for _ in range(3):
                        world.produce(connection, at)
                case ["lead" | "follow" as what, at]:
                    world.lead(at, leader=1 if what == "lead" else 2)
                case ["reconnect", connection]:
                    world.connections[connection] = world.connect()
                case ["delete"]:
                    world.delete()
                case ["create"]:
                    for at in (TP, OTHER):
                        world.lead(at)
            world.check()
        world.replicas.close()


def test_what_a_connection_had_counted_stays_when_it_closes(world: World, slow_paths: list[object]) -> None:
    for _ in range(5):
        world.produce()
    assert len(slow_paths) == 1
    world.connections[0] = world.connect()
    world.check()
    world.produce()


def test_a_topic_of_the_same_name_starts_over_and_the_total_continues(
    world: World, slow_paths: list[object]
) -> None:
    for _ in range(5):
        world.produce(records=2)
    world.delete()
    world.check()
    assert TOPIC not in world.replicas.manager.stats.topics
    world.produce()
    assert len(slow_paths) == 2, "which says that there is no such topic"
    world.lead(TP)
    for _ in range(4):
        world.produce()
    assert len(slow_paths) == 3, "and once more for the new one"
    assert world.topic["messages_in"] == 4
    world.check()


def test_the_counts_go_on_when_the_leader_comes_back(world: World, slow_paths: list[object]) -> None:
    for _ in range(3):
        world.produce()
    world.lead(TP, leader=2)
    world.produce()
    assert len(slow_paths) == 2 and world.topic["failed_produce_requests"] == 1
    world.check()
    world.lead(TP)
    for _ in range(3):
        world.produce()
    assert len(slow_paths) == 3


def test_a_partition_that_is_not_hosted_any_more_has_no_leader(world: World) -> None:
    """Who produced to it still has it, and would else go on."""
    partition = world.replicas.partition()
    assert partition.is_leader
    world.delete()
    assert not partition.is_leader


def test_who_goes_over_to_another_partition_writes_there(world: World, slow_paths: list[object]) -> None:
    for at in (TP, OTHER):
        for _ in range(4):
            world.produce(at=at)
            world.check()
    assert len(slow_paths) == 1, "what was remembered of its topic's other partition serves this one"


def test_a_refused_batch_is_counted_once_and_as_refused(world: World) -> None:
    world.produce()
    world.produce()
    world.produce(size=2_000_000)
    world.ends[TP] -= 1
    world.topic["messages_in"] -= 1
    world.topic["bytes_in"] -= len(batch(1, 2_000_000))
    world.topic["failed_produce_requests"] += 1
    world.check()
    assert world.replicas.manager.stats.total().bytes_rejected == len(batch(1, 2_000_000))


def test_a_request_that_is_served_while_another_is_appended_is_not_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append wakes whom it must, and that may be a connection with requests to be served."""
    for connection in (0, 1):
        world.produce(connection)
        world.produce(connection)
    manager = world.replicas.manager
    append_to = manager.append_to
    nested = 0

    def and_one_more(*args: Any, **kwargs: Any) -> Any:
        nonlocal nested
        info = append_to(*args, **kwargs)
        if nested < 2 * TIMED_ONE_IN and nested % 2 == 0:
            nested += 1
            world.produce(1)
        else:
            nested += 1
        return info

    monkeypatch.setattr(manager, "append_to", and_one_more)
    for _ in range(3 * TIMED_ONE_IN):
        world.produce(0)
    world.check()
    timed = len(world.metrics.of(ApiKey.PRODUCE).sizes._values)
    assert timed >= world.versions.total() // TIMED_ONE_IN, (
        "and the next one that is to be timed is not missed"
    )


def test_tallies_are_as_many_as_there_are_topics(world: World) -> None:
    """So nothing grows with the connections that come and go, or with topics that do."""
    for _ in range(20):
        for connection in range(3):
            world.connections[connection] = world.connect()
            world.produce(connection)
            world.produce(connection)
            assert isinstance(world.connections[connection].memory, RepeatedProduce)
        world.delete()
        world.lead(TP)
    counter = world.metrics.of(ApiKey.PRODUCE).counter(VERSION)
    assert len(counter._tallies) == 0
    world.produce(0)
    assert len(counter._tallies) == 1
