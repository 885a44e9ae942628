"""While a request quota is set, each request's handler is timed, and its client waits for what it used."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

from minikafka.clock import ManualClock
from minikafka.config.broker import broker_config
from minikafka.config.client_quotas import QuotaEntity, QuotaType
from minikafka.metrics.sensors import Metrics
from minikafka.network.broker_client import BrokerClient
from minikafka.network.connection import Connection, PendingResponse
from minikafka.network.responses import UnfinishedRequest
from minikafka.protocol.records.records import Record, build_batch
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import decode_response, encode_request
from minikafka.security.acl import ANONYMOUS
from minikafka.server.apis.shared.coordinator_requests import CoordinatorAnswer
from minikafka.server.client_quotas import ClientQuotas
from minikafka.server.cluster.features import FinalizedFeatures
from minikafka.server.dispatch.dispatcher import Dispatcher
from minikafka.server.requests import RequestContext, request_channel_metrics
from minikafka.server.runtime.event_loop import Supervisor
from minikafka.server.runtime.fast_paths import FastPaths
from minikafka.server.runtime.work_scheduler import WorkScheduler
from minikafka.server.services import Services
from minikafka.testing import Broker
from tests.unit.server.conftest import resolved
from tests.unit.server.running import topics_of

DEADLINE_MS = 20_000
LIST_GROUPS: dict[str, Any] = {"states_filter": [], "types_filter": []}
ANSWER = {"throttle_time": 0, "error_code": 0, "groups": []}


class World:
    """A dispatcher whose only API is ListGroups, by a handler of the test's."""

    def __init__(self, handler: Any) -> None:
        self.clock = ManualClock()
        self.client_quotas = ClientQuotas(broker_config({}), clock=self.clock, metrics=Metrics())
        self.fast_paths = FastPaths()
        self.features = FinalizedFeatures()
        self.supervisor = Supervisor()
        self.scheduler = WorkScheduler(self.clock)
        self.request_metrics = request_channel_metrics()
        self.received_ns = 0
        self.memory = None
        self.authorizer = None
        self.principal = ANONYMOUS
        self.muted_ms: list[int | None] = []
        self.dispatcher = Dispatcher(cast(Services, self), {ApiKey.LIST_GROUPS: handler})

    def mute(self, duration_ms: int | None = None) -> None:
        self.muted_ms.append(duration_ms)

    is_follower = False

    def has_room(self, *, for_records: bool) -> bool:
        return True

    def work(self, duration_ms: int) -> None:
        """A handler is busy."""
        self.clock.advance(duration_ms)

    def limit(self, percent: float) -> None:
        self.client_quotas.update(QuotaEntity(None, "c"), {QuotaType.REQUEST: percent})

    def used_percent(self) -> float:
        """Of a second, by the client within all windows, however long they are by now."""
        sensor = self.client_quotas.client("ANONYMOUS", "c").sensors[QuotaType.REQUEST]
        return sensor._rate._sum.measure(self.clock.monotonic_ms())

    async def ask(self) -> int:
        """One request of client c. Returns the throttle time, in ms."""
        frame = encode_request(
            api_key=ApiKey.LIST_GROUPS, api_version=5, correlation_id=7, client_id="c", body=LIST_GROUPS
        )
        result = self.dispatcher(cast(Connection, self), frame[4:])
        while isinstance(result, UnfinishedRequest):
            await asyncio.sleep(0)
            result = result.result() if result.has_ended else result
        if isinstance(result, PendingResponse):
            result = await resolved(result)
        assert result is not None
        (response,) = result
        _, answer = decode_response(
            api_key=ApiKey.LIST_GROUPS, api_version=5, frame=cast(bytes, response)[4:]
        )
        return int(answer.throttle_time)


async def test_nothing_is_timed_without_a_request_quota() -> None:
    def handle(services: Any, context: RequestContext, request: Any) -> Any:
        assert context.handler_time is None and context.size_bytes > 0
        return ANSWER

    assert await World(handle).ask() == 0


async def test_the_answer_tells_the_throttle_and_the_connection_is_muted() -> None:
    def handle(services: Any, context: RequestContext, request: Any) -> Any:
        services.work(300)
        return ANSWER

    world = World(handle)
    world.limit(5)
    assert await world.ask() == 0, "30 percent of a second, over ten of them: 3"
    throttle_time_ms = await world.ask()
    assert throttle_time_ms == 1000 and world.muted_ms == [1000], "a window at most"


async def test_small_excesses_wait_by_the_formula() -> None:
    def handle(services: Any, context: RequestContext, request: Any) -> Any:
        services.work(51)
        return ANSWER

    world = World(handle)
    world.limit(0.5)
    assert await world.ask() == round((5.1 / 10.0 - 0.5) / 0.5 * 10_000)


@pytest.mark.parametrize("fails", [False, True])
async def test_only_the_steps_of_a_coroutine_count_and_not_its_waiting(fails: bool) -> None:
    async def handle(services: Any, context: RequestContext, request: Any) -> Any:
        services.work(10)
        await asyncio.sleep(0)
        services.work(20)
        try:
            await fail() if fails else await asyncio.sleep(0)
        except ValueError:
            services.work(30)
        return ANSWER

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError

    world = World(handle)
    world.limit(1000)
    others = asyncio.create_task(idle(world))
    await world.ask()
    others.cancel()
    assert world.used_percent() == pytest.approx(6 if fails else 3)


async def idle(world: World) -> None:
    """Another task uses the loop."""
    while True:
        world.work(1000)
        await asyncio.sleep(0)


async def test_a_cancelled_request_is_cancelled() -> None:
    cancelled, started = [], asyncio.Event()

    async def handle(services: Any, context: RequestContext, request: Any) -> Any:
        started.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    world = World(handle)
    world.limit(5)
    asking = asyncio.create_task(world.ask())
    await started.wait()
    await world.supervisor.stop()
    asking.cancel()
    assert cancelled == [True]


async def test_a_group_that_answers_later_tells_the_throttle_too() -> None:
    def handle(services: Any, context: RequestContext, request: Any) -> Any:
        services.work(70)
        answer = CoordinatorAnswer(services, context, lambda result: ANSWER)
        asyncio.get_running_loop().call_soon(answer.answer, None)
        return answer.pending

    world = World(handle)
    world.limit(0.5)
    assert await world.ask() == 1000


async def test_a_longer_throttle_of_the_handlers_own_stays_in_the_answer() -> None:
    def handle(services: Any, context: RequestContext, request: Any) -> Any:
        services.work(60)
        return {**ANSWER, "throttle_time": 5000}

    world = World(handle)
    world.limit(0.5)
    assert await world.ask() == 5000


async def test_produce_fetch_and_others_tell_their_clients_over_a_real_connection() -> None:
    """A millionth of the loop's time is used up by anything, so each answer has the longest throttle."""
    async with Broker() as broker:
        await topics_of(broker.server).create_topic("t")
        quotas = broker.server.services.client_quotas
        quotas.update(QuotaEntity(None, "c"), {QuotaType.REQUEST: 0.0001})
        produce = {"index": 0, "records": build_batch([Record(0, int(time.time() * 1000), None, b"v", ())])}
        fetch = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": 0,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1000,
        }
        for key, version, body in (
            (
                ApiKey.PRODUCE,
                9,
                {
                    "transactional_id": None,
                    "acks": 1,
                    "timeout": 1000,
                    "topic_data": [{"name": "t", "partition_data": [produce]}],
                },
            ),
            (
                ApiKey.FETCH,
                12,
                {
                    "replica_id": -1,
                    "max_wait": 0,
                    "min_bytes": 1,
                    "max_bytes": 1000,
                    "isolation_level": 0,
                    "session_id": 0,
                    "session_epoch": -1,
                    "topics": [{"topic": "t", "partitions": [fetch]}],
                    "forgotten_topics_data": [],
                    "rack_id": "",
                },
            ),
            (ApiKey.LIST_GROUPS, 5, LIST_GROUPS),
            (ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]}),
        ):
            client = await BrokerClient.connect(
                "127.0.0.1", broker.port, client_id="c", deadline_ms=DEADLINE_MS
            )
            answer = await client.request(key, body, version=version, deadline_ms=DEADLINE_MS)
            await client.close()
            assert answer.throttle_time == 1000, key.name
            if key is ApiKey.FETCH:
                assert answer.responses == (), "a throttled fetch is empty"
