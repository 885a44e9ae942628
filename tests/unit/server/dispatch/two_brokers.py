"""Two brokers to which the same happens, one of them without fast paths: no client can tell them apart."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from minikafka.config.broker import broker_config
from minikafka.config.client_quotas import DEFAULT, QuotaEntity, Quotas, QuotaType
from minikafka.config.topic import TopicConfig
from minikafka.errors import PeerProtocolError
from minikafka.metrics.registry import Metrics
from minikafka.network.connection import Connection, PendingResponse
from minikafka.protocol.control.messages import UpdateMetadataRequest
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.replication.fetch_session import FetchSessionCache
from minikafka.server.apis import HANDLERS
from minikafka.server.assembly import drop_fast_paths_with_changes
from minikafka.server.dispatch.dispatcher import Dispatcher
from minikafka.server.quota.client_quotas import ClientQuotas
from minikafka.server.requests.accounting import request_channel_metrics
from minikafka.server.runtime import fast_paths
from minikafka.server.runtime.fast_paths import FastPath, FastPaths
from minikafka.server.runtime.work_scheduler import WorkScheduler
from minikafka.server.services import Services
from minikafka.types import TopicPartition
from tests.unit.server.replicas import BROKER_EPOCH, OTHER, THREE, TP, Replicas, state_of

PLACES = st.sampled_from([TP, OTHER])
CLIENTS = st.sampled_from(["a", "b"])
EVERYONE = QuotaEntity(None, DEFAULT)


class PeerStub:
    """A client's connection, which notes how it is slowed down."""

    listener_name = "INTERNAL"
    peer_host = "::1"
    received_ns = 0
    answer_bytes_max = 1 << 30
    is_follower = False

    def __init__(self) -> None:
        self.memory: Any = None
        self.leader_hints: dict[Any, Any] = {}
        self.muted_ms: list[int | None] = []

    def mute(self, duration_ms: int | None = None) -> None:
        self.muted_ms.append(duration_ms)

    def has_room(self, *, for_records: bool) -> bool:
        return True


class OneBroker:
    """As far as its clients' requests go."""

    def __init__(self, loop: asyncio.AbstractEventLoop, directory: Path, *, has_fast_paths: bool) -> None:
        self.loop = loop
        self.replicas = Replicas(directory)
        clock = self.replicas.clock
        config = broker_config({})
        self.quotas = ClientQuotas(config, clock=clock, metrics=Metrics())
        self.metrics = request_channel_metrics()
        self._config_followers: list[Callable[[str, TopicConfig], None]] = [
            self.replicas.manager.update_topic_config
        ]
        fast_paths.SWITCHED_OFF.update(() if has_fast_paths else FastPath)
        services = SimpleNamespace(
            config=config,
            replica_manager=self.replicas.manager,
            metadata=self.replicas.metadata,
            request_metrics=self.metrics,
            client_quotas=self.quotas,
            clock=clock,
            scheduler=WorkScheduler(clock),
            log_io=self.replicas.log_io,
            fetch_sessions=FetchSessionCache(max_slots=10, rng=cast(Any, None), clock=clock),
            fast_paths=(paths := FastPaths()),
            configs=SimpleNamespace(
                subscribe_topics=self._config_followers.append, subscribe_broker=lambda apply: None
            ),
            supervisor=SimpleNamespace(start=lambda name, work: loop.create_task(work())),
        )
        fast_paths.SWITCHED_OFF.clear()
        self.fast_paths = paths
        drop_fast_paths_with_changes(cast(Services, services))
        self._dispatch = Dispatcher(cast(Services, services), HANDLERS)
        self.connections = [PeerStub(), PeerStub()]
        self.answers: list[PendingResponse | tuple[Any, ...] | list[Any] | None] = []

    def serve(self, connection: int, frame: bytes) -> None:
        async def dispatch() -> None:
            peer = cast(Connection, self.connections[connection])
            try:
                self.answers.append(self._dispatch(peer, memoryview(frame)))
            except PeerProtocolError as error:  # which closes the connection
                self.answers.append((str(error).encode(),))
                self.connections[connection] = PeerStub()

        self.loop.run_until_complete(dispatch())

    def configure(self, config: TopicConfig) -> None:
        self.replicas.config = config
        for apply in self._config_followers:
            apply(TP.topic, config)

    def flush(self) -> None:
        """All that is due, as the disk thread does."""

        async def flush() -> None:
            if not self.replicas.disk_work._waiting:
                return
            for log in (batch := await self.replicas.disk_work.wait()).flushes:
                if log.is_open and (flush := log.begin_flush()) is not None:
                    flush.run()
                    log.complete_flush(flush)
            for done in batch.waiting:
                done.set_result(None)
            for _ in range(5):
                await asyncio.sleep(0)

        self.loop.run_until_complete(flush())

    def seen(self) -> dict[str, Any]:
        """All that anyone can see of it."""
        stats = self.replicas.manager.stats.total()
        names = (
            "produce_requests", "failed_produce_requests", "messages_in", "bytes_in", "bytes_rejected",
            "fetch_requests", "failed_fetch_requests", "bytes_out",
        )  # fmt: skip
        partitions = self.replicas.manager.partitions.values()
        return {
            "answers": [seen(each) for each in self.answers],
            "muted": [each.muted_ms for each in self.connections],
            "logs": {str(each.topic_partition): repr(each) for each in partitions},
            "counts": [stats.value(name) for name in names],
            "requests": [
                (each.counts, each.count, dict(each.errors))
                for each in (self.metrics.of(ApiKey.PRODUCE), self.metrics.fetch_consumer)
            ],
            "clients": {
                each.client_id: (each.produced_bytes, each.fetched_bytes) for each in self.quotas.clients()
            },
            "quotas": sorted(repr(each) for each in self.quotas.sensors()),
        }


def seen(answer: Any) -> Any:
    """The bytes of an answer, or that it waits."""
    if isinstance(answer, PendingResponse):
        return "waits" if answer.is_waiting else b"".join(answer.buffers)
    return None if answer is None else b"".join(answer)


def between_requests(change: Callable[..., None]) -> Callable[..., None]:
    """``change`` happens between two requests that are the same, the first of which was expected."""

    @wraps(change)
    def step(machine: TwoBrokers, *args: Any, **kwargs: Any) -> None:
        machine.the_last_requests_come_again(times=2)
        change(machine, *args, **kwargs)
        machine.the_last_requests_come_again(times=1)

    return step


class TwoBrokers(RuleBasedStateMachine):
    """What changes between their clients' requests. Broker 1 of the cluster, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.loop = asyncio.new_event_loop()
        self.both = [
            OneBroker(self.loop, self.directory / name, has_fast_paths=name == "fast")
            for name in ("fast", "slow")
        ]
        self.fast = self.both[0]
        self.epoch = 0
        self.topic_number = 1
        self.is_hosted = False
        self.last: dict[int, bytes] = {}
        """Of each connection."""
        self.create()

    def teardown(self) -> None:
        for each in self.both:
            each.flush()
            each.replicas.close()
        self.loop.close()
        shutil.rmtree(self.directory)

    @invariant()
    def are_indistinguishable(self) -> None:
        fast, slow = (each.seen() for each in self.both)
        assert fast == slow

    def serve(self, connection: int, frame: bytes) -> None:
        self.last[connection] = frame
        for each in self.both:
            each.serve(connection, frame)

    @rule(times=st.integers(1, 3))
    def the_last_requests_come_again(self, times: int) -> None:
        for connection, frame in self.last.items():
            for _ in range(times):
                self.serve(connection, frame)

    # What changes

    @property
    def topic_id(self) -> UUID:
        return self.id_of(self.topic_number)

    @staticmethod
    def id_of(number: int) -> UUID:
        """Of the topic that was created as the ``number``th."""
        return UUID(int=number, version=4)

    def state(self, at: TopicPartition, leader: int, isr: tuple[int, ...]) -> Any:
        return state_of(
            at,
            leader=leader,
            epoch=self.epoch,
            topic_id=self.topic_id,
            isr=isr,
            replicas=[1, 2],
        )

    def tell(self, at: TopicPartition, leader: int, isr: tuple[int, ...]) -> None:
        self.epoch += 1
        state = self.state(at, leader, isr)
        for each in self.both:
            each.replicas.become(state)
            self.tell_metadata(each, state)

    @staticmethod
    def tell_metadata(broker: OneBroker, *states: Any, is_full: bool = False) -> None:
        live = tuple(broker.replicas._live.values())
        broker.replicas.metadata.update(
            UpdateMetadataRequest(THREE, 1, BROKER_EPOCH, states, live, is_full=is_full)
        )

    @precondition(lambda self: self.is_hosted)
    @rule(at=PLACES, leader=st.sampled_from([1, 1, 2]), isr=st.sampled_from([(1,), (1,), (1, 2)]))
    @between_requests
    def a_leader_is_elected(self, at: TopicPartition, leader: int, isr: tuple[int, ...]) -> None:
        self.tell(at, leader, isr if leader == 1 else (2,))

    @precondition(lambda self: self.is_hosted)
    @rule()
    @between_requests
    def the_metadata_lose_the_topic(self) -> None:
        """Before its replicas are stopped, as with every deletion."""
        for each in self.both:
            self.tell_metadata(each, is_full=True)

    @precondition(lambda self: self.is_hosted)
    @rule()
    @between_requests
    def delete(self) -> None:
        self.is_hosted = False
        for each in self.both:
            for at in (TP, OTHER):
                each.replicas.stop_replica(at, delete=True, leader_epoch=self.epoch)
            self.tell_metadata(each, is_full=True)

    @precondition(lambda self: not self.is_hosted)
    @rule()
    def create(self) -> None:
        self.is_hosted = True
        self.topic_number += 1
        for at in (TP, OTHER):
            self.tell(at, 1, (1,))

    @rule(
        who=st.sampled_from([EVERYONE, QuotaEntity(None, "a"), QuotaEntity(None, "b")]),
        quota=st.sampled_from([None, None, None, QuotaType.PRODUCE, QuotaType.FETCH]),
        bound=st.sampled_from([10.0, 1e9]),
    )
    @between_requests
    def a_quota_changes(self, who: QuotaEntity, quota: QuotaType | None, bound: float) -> None:
        quotas: Quotas = {} if quota is None else {quota: bound}
        for each in self.both:
            each.quotas.update(who, quotas)

    @rule(
        flush_messages=st.sampled_from([1, 2, 2**63 - 1, 2**63 - 1]),
        min_insync_replicas=st.sampled_from([1, 1, 2]),
        max_message_bytes=st.sampled_from([150, 1 << 20]),
        message_timestamp_type=st.sampled_from(["CreateTime", "LogAppendTime"]),
    )
    @between_requests
    def the_topic_is_configured(self, **values: Any) -> None:
        for each in self.both:
            each.configure(TopicConfig(**values))

    @rule(duration_ms=st.sampled_from([1, 600, 20_000]))
    @between_requests
    def time_passes(self, duration_ms: int) -> None:
        for each in self.both:
            each.replicas.pass_time(duration_ms)

    @rule()
    def the_disk_is_flushed(self) -> None:
        for each in self.both:
            each.flush()
