"""Two brokers to which the same happens, one of them without fast paths: no client can tell them apart."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Final, TypeVar, cast
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from minikafka.clock import ManualClock
from minikafka.config.broker import BrokerConfig, broker_config
from minikafka.config.client_quotas import DEFAULT, QuotaEntity, Quotas, QuotaType
from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode, PeerProtocolError
from minikafka.metrics.broker_stats import Refusals
from minikafka.metrics.sensors import Metrics
from minikafka.network.connection import Connection, PendingResponse
from minikafka.protocol.control import UpdateMetadataRequest
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.replication.fetch_session import FetchSessionCache
from minikafka.security.acl import ANONYMOUS, AclOperation, ResourceType
from minikafka.server.apis import HANDLERS
from minikafka.server.assembly import drop_fast_paths_with_changes
from minikafka.server.client_quotas import CLIENT_LIFE_MS, ClientQuotas
from minikafka.server.cluster.features import FinalizedFeatures, FinalizedFeatureStore
from minikafka.server.dispatch.dispatcher import Dispatcher, Handler
from minikafka.server.requests import RequestContext, request_channel_metrics
from minikafka.server.runtime import fast_paths
from minikafka.server.runtime.fast_paths import FastPath, FastPaths
from minikafka.server.runtime.work_scheduler import WorkScheduler
from minikafka.server.services import Services
from minikafka.types import TopicPartition
from tests.support.fake_authorizer import FakeAuthorizer, Right
from tests.unit.server.replicas import BROKER_EPOCH, OTHER, THREE, TP, Replicas, state_of

PLACES = st.sampled_from([TP, OTHER])
CLIENTS = st.sampled_from(["a", "b"])
REPEATED = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT)
EVERYONE = QuotaEntity(None, DEFAULT)
REQUEST_QUOTA_UNIT = 1e-8
"""A request takes a few microseconds (``HandlersClock``), which are to exceed the smaller bound."""


class PeerStub:
    """A client's connection, which notes how it is slowed down."""

    listener_name = "INTERNAL"
    peer_host = "::1"
    principal = ANONYMOUS
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


class HandlersClock(ManualClock):
    """Handlers take time: a microsecond passes with each look at the nanoseconds."""

    def __init__(self) -> None:
        super().__init__()
        self._looks = 0

    def monotonic_ns(self) -> int:
        self._looks += 1
        return super().monotonic_ns() + self._looks * 1_000


class OneBroker:
    """As far as its clients' requests go."""

    PROPERTIES: ClassVar[Mapping[str, str]] = {}
    """Of its configuration."""
    SEEN_REQUESTS: ClassVar[tuple[ApiKey, ...]] = (ApiKey.PRODUCE,)
    """Besides a consumer's Fetch."""

    def __init__(self, loop: asyncio.AbstractEventLoop, directory: Path, *, has_fast_paths: bool) -> None:
        self.loop = loop
        self.replicas = Replicas(directory, clock=HandlersClock())
        clock = self.replicas.clock
        config = broker_config(self.PROPERTIES)
        self.quotas = ClientQuotas(config, clock=clock, metrics=Metrics())
        self.metrics = request_channel_metrics()
        self._config_followers: list[Callable[[str, TopicConfig], None]] = [
            self.replicas.manager.update_topic_config
        ]
        self._broker_config_followers: list[Callable[[BrokerConfig], None]] = []
        self.slow_path_requests = 0
        fast_paths.SWITCHED_OFF.update(() if has_fast_paths else FastPath)
        self.services = services = SimpleNamespace(
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
            features=(features := FinalizedFeatures()),
            feature_store=FinalizedFeatureStore(cast(Any, None), features, node_id=cast(Any, 1)),
            authorizer=FakeAuthorizer(),
            produce_refusals=Refusals(),
            configs=SimpleNamespace(
                subscribe_topics=self._config_followers.append,
                subscribe_broker=self._broker_config_followers.append,
            ),
            supervisor=SimpleNamespace(start=lambda name, work: loop.create_task(work())),
        )
        fast_paths.SWITCHED_OFF.clear()
        self.services.authorizer.allow_all_but()
        self.fast_paths = paths
        drop_fast_paths_with_changes(cast(Services, services))
        handlers = {key: self._counted(HANDLERS[key]) for key in REPEATED}
        self._dispatch = Dispatcher(cast(Services, services), handlers)
        self.connections = [PeerStub(), PeerStub()]
        self.answers: list[PendingResponse | tuple[Any, ...] | list[Any] | None] = []

    def _counted(self, handler: Handler) -> Handler:
        def handle(services: Services, context: RequestContext, request: Any) -> Any:
            self.slow_path_requests += 1
            return handler(services, context, request)

        return handle

    def serve(self, connection: int, frame: bytes) -> None:
        """On the slow path, unless what the connection remembers is of this epoch."""

        async def dispatch() -> None:
            peer = self.connections[connection]
            may_be_fast = peer.memory is not None and peer.memory.epoch == self.fast_paths.epoch
            slow_path_requests = self.slow_path_requests
            try:
                self.answers.append(self._dispatch(cast(Connection, peer), memoryview(frame)))
            except PeerProtocolError as error:  # which closes the connection
                self.answers.append((str(error).encode(),))
                self.connections[connection] = PeerStub()
            else:
                took_slow_path = self.slow_path_requests > slow_path_requests
                assert may_be_fast or took_slow_path, f"{peer.memory!r} was asked after its epoch"

        self.loop.run_until_complete(dispatch())

    def configure_broker(self) -> None:
        for apply in self._broker_config_followers:
            apply(self.services.config)

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
                for each in (*map(self.metrics.of, self.SEEN_REQUESTS), self.metrics.fetch_consumer)
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
        before = machine.fast.slow_path_requests
        machine.the_last_requests_come_again(times=1)
        machine.took_slow_path = machine.fast.slow_path_requests - before

    return step


RIGHTS: Final = tuple(
    Right(operation, kind, name)
    for operation, kind, names in (
        (AclOperation.WRITE, ResourceType.TOPIC, (TP.topic,)),
        (AclOperation.READ, ResourceType.TOPIC, (TP.topic,)),
        (AclOperation.DESCRIBE, ResourceType.TOPIC, (TP.topic,)),
        (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, ("t",)),
        (AclOperation.READ, ResourceType.GROUP, ("classic", "modern")),
    )
    for name in names
)
"""What the requests of the machines need."""


class TwoBrokers(RuleBasedStateMachine):
    """What changes between their clients' requests. Broker 1 of the cluster, twice."""

    BROKER: ClassVar[type[OneBroker]] = OneBroker

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.loop = asyncio.new_event_loop()
        self.both: Sequence[OneBroker] = [
            self.BROKER(self.loop, self.directory / name, has_fast_paths=name == "fast")
            for name in ("fast", "slow")
        ]
        self.fast = self.both[0]
        self.epoch = 0
        self.topic_number = 1
        self.is_hosted = False
        self.last: dict[int, bytes] = {}
        """Of each connection."""
        self.took_slow_path = 0
        """How many connections took the slow path after the last change."""
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
    @rule(at=PLACES)
    @between_requests
    def a_replica_is_moved_away(self, at: TopicPartition) -> None:
        """Before the metadata say so. It comes back with the next election."""
        for each in self.both:
            each.replicas.stop_replica(at, delete=True, leader_epoch=self.epoch)

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
        quota=st.sampled_from([None, None, None, QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST]),
        bound=st.sampled_from([10.0, 1e9]),
    )
    @between_requests
    def a_quota_changes(self, who: QuotaEntity, quota: QuotaType | None, bound: float) -> None:
        if quota is QuotaType.REQUEST:
            bound *= REQUEST_QUOTA_UNIT
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
        """As by default, but for ``values``."""
        for each in self.both:
            each.configure(TopicConfig(**values))

    @rule()
    @between_requests
    def the_broker_is_configured(self) -> None:
        for each in self.both:
            each.configure_broker()

    @rule(denied=st.sets(st.sampled_from(RIGHTS), max_size=2))
    @between_requests
    def the_rules_change(self, denied: Iterable[Right]) -> None:
        """Everything is allowed but that."""
        for each in self.both:
            each.services.authorizer.allow_all_but(*denied)

    @rule(duration_ms=st.sampled_from([1, 600, 20_000]))
    @between_requests
    def time_passes(self, duration_ms: int) -> None:
        for each in self.both:
            each.replicas.pass_time(duration_ms)

    @rule()
    @between_requests
    def idle_clients_are_forgotten(self) -> None:
        for each in self.both:
            each.quotas.clients()  # who did something since the last look is not idle before the next
            each.replicas.pass_time(CLIENT_LIFE_MS)
            each.quotas.clients()

    def let_follower_fetch(self, at: TopicPartition) -> None:
        """All that there is of a partition, so that what waits for the follower is answered."""
        for each in self.both:
            partition = each.replicas.manager.partitions.get(at)
            if partition is None or not partition.is_leader:
                continue
            end_offset = partition.log.log_end_offset
            read = each.replicas.follower_fetch(2, end_offset, at, topic_id=partition.topic_id)
            assert read.error is ErrorCode.NONE
            if each.replicas.store.submitted:
                each.replicas.store.finish()

    @rule()
    def the_disk_is_flushed(self) -> None:
        for each in self.both:
            each.flush()


CHANGES: dict[str, Callable[[TwoBrokers], None]] = {
    "quota": lambda machine: machine.a_quota_changes(QuotaEntity(None, "b"), QuotaType.PRODUCE, 1e9),
    "leadership": lambda machine: machine.a_leader_is_elected(OTHER, 1, (1,)),
    "topics": lambda machine: machine.the_metadata_lose_the_topic(),
    "configuration of a topic": lambda machine: machine.the_topic_is_configured(),
    "configuration of the broker": lambda machine: machine.the_broker_is_configured(),
    "rules of the authorizer": lambda machine: machine.the_rules_change(()),
}
"""Each is told to the fast paths in a way of its own (``assembly.drop_fast_paths_with_changes``), and none of
them alone would keep a request of a machine's beginning from the fast path."""


def a_change_is_noticed(machine: type[TwoBrokers], kind: str) -> None:
    """All connections take the slow path once after one of ``CHANGES``, and none did before."""
    with story_of(machine) as story:
        story.time_passes(1)
        assert story.took_slow_path == 0
        CHANGES[kind](story)
        assert story.took_slow_path == len(story.last)


def a_right_is_lost(machine: type[TwoBrokers], *rights: Right) -> None:
    """What was recognised and allowed is refused from the next request on, and served again later."""
    with story_of(machine) as story:

        def said() -> Any:
            return seen(story.fast.answers[-1])[AFTER_CORRELATION_ID]

        story.time_passes(1)
        assert story.took_slow_path == 0
        allowed = said()
        story.the_rules_change(rights)
        assert story.took_slow_path == len(story.last)
        denied = said()
        assert denied != allowed
        story.the_last_requests_come_again(times=2)
        assert said() == denied
        story.the_rules_change(())
        story.the_last_requests_come_again(times=2)
        assert said() != denied


AFTER_CORRELATION_ID = slice(8, None)
"""In a response with its size."""

M = TypeVar("M", bound=TwoBrokers)


@contextmanager
def story_of(machine: type[M]) -> Iterator[M]:
    """One run that is written down: no client can tell the brokers apart at its end."""
    made = machine()
    try:
        yield made
        made.are_indistinguishable()
    finally:
        made.teardown()
