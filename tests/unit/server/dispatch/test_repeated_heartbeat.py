"""A heartbeat that is served by the fast path has the answer of the slow one, and is counted as there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from minikafka.clock import ManualClock
from minikafka.config.broker import broker_config
from minikafka.config.client_quotas import QuotaEntity, QuotaType
from minikafka.coordinator.group.messages import ConsumerGroupHeartbeatResult, HeartbeatResult
from minikafka.errors import ErrorCode, KafkaError
from minikafka.metrics.request_metrics import FREQUENT_TIMED_ONE_IN, RequestTiming
from minikafka.metrics.sensors import Metrics
from minikafka.network.connection import Connection, PendingResponse
from minikafka.network.responses import PendingState
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import encode_request
from minikafka.security.acl import ANONYMOUS
from minikafka.server.apis import HANDLERS
from minikafka.server.client_quotas import ClientQuotas
from minikafka.server.cluster.features import FinalizedFeatures
from minikafka.server.dispatch import dispatcher
from minikafka.server.dispatch.dispatcher import Dispatcher
from minikafka.server.dispatch.repeated_heartbeat import RepeatedHeartbeat
from minikafka.server.dispatch.repeated_produce import RepeatedProduce
from minikafka.server.requests import request_channel_metrics
from minikafka.server.runtime.fast_paths import NEVER, FastPaths
from minikafka.server.runtime.work_scheduler import WorkScheduler
from minikafka.server.services import Services

CLASSIC = {"group_id": "g", "generation_id": 3, "member_id": "m"}
MODERN = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 4,
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout": -1,
    "subscribed_topic_names": None,
    "server_assignor": None,
    "topic_partitions": None,
}
TOPIC_ID = UUID(int=1)
REQUESTS = [
    (ApiKey.HEARTBEAT, 0, CLASSIC),
    (ApiKey.HEARTBEAT, 1, CLASSIC),
    (ApiKey.HEARTBEAT, 3, CLASSIC),
    (ApiKey.HEARTBEAT, 4, CLASSIC),
    (ApiKey.HEARTBEAT, 4, CLASSIC | {"generation_id": 4}),
    (ApiKey.HEARTBEAT, 4, CLASSIC | {"group_instance_id": "i"}),
    (ApiKey.HEARTBEAT, 4, CLASSIC | {"group_id": ""}),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, MODERN),
    (
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        MODERN | {"topic_partitions": [{"topic_id": TOPIC_ID, "partitions": [0, 2]}]},
    ),
]
CLASSIC_4, MODERN_0 = 3, 7
MODERN_RESULT = ConsumerGroupHeartbeatResult(member_id="m", member_epoch=4, heartbeat_interval_ms=3000)
REFUSALS = st.builds(KafkaError, st.sampled_from(list(ErrorCode)[2:]), st.sampled_from([None, "so it is"]))
RESULTS = {
    ApiKey.HEARTBEAT: st.builds(
        HeartbeatResult,
        st.sampled_from([ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID]),
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: st.builds(
        ConsumerGroupHeartbeatResult,
        member_id=st.just("m"),
        member_epoch=st.integers(4, 5),
        heartbeat_interval_ms=st.sampled_from([3000, 5000]),
        assignment=st.sampled_from([None, {}, {TOPIC_ID: frozenset({0})}]),
    ),
}


class Groups:
    """In place of the coordinator: answers what the test says, at once or when the test says."""

    def __init__(self) -> None:
        self.result: Any = HeartbeatResult()
        self.answers_later = False
        self.heard: list[Any] = []
        self.waiting: list[Any] = []
        self.failures: list[type[Exception]] = []
        self.due: list[str] = []

    def regexes_due(self, group_id: str, *, has_rules: bool) -> list[str]:
        return self.due

    def ask(self, group_id: str, call: Any, ticket: Any) -> None:
        shard = SimpleNamespace(heartbeat=self._hear, consumer_group_heartbeat=self._hear)
        try:
            call(shard, ticket, 17)
        except KafkaError as error:
            ticket.answer(error)
            return
        assert self.heard[-1].group_id == group_id
        self.waiting.append(ticket)
        if not self.answers_later:
            self.answer_those_who_wait()

    def answer_those_who_wait(self) -> None:
        """Twice, for only the first answer counts. One that cannot be written is the connection's trouble."""
        waiting, self.waiting = self.waiting, []
        for ticket in waiting:
            try:
                ticket.answer(self.result)
            except AttributeError as error:
                self.failures.append(type(error))
            ticket.answer(HeartbeatResult(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _hear(self, request: Any, ticket: Any, now_ms: int) -> None:
        self.heard.append(request)


def frame_of(number: int, correlation_id: int = 7, *, client_id: str = "c") -> memoryview:
    """Of ``REQUESTS``, without its size."""
    key, version, body = REQUESTS[number]
    frame = encode_request(
        api_key=key, api_version=version, correlation_id=correlation_id, client_id=client_id, body=body
    )
    return memoryview(frame)[4:]


class Served:
    """A dispatcher, and one connection to it."""

    def __init__(self) -> None:
        self.groups = Groups()
        self.metrics = request_channel_metrics()
        self.fast_paths = FastPaths()
        clock = ManualClock()
        self.quotas = ClientQuotas(broker_config({}), clock=clock, metrics=Metrics())
        self.quotas.follow(self.fast_paths.drop)
        services = SimpleNamespace(
            config=broker_config({}),
            groups=self.groups,
            request_metrics=self.metrics,
            clock=clock,
            client_quotas=self.quotas,
            scheduler=WorkScheduler(clock),
            fast_paths=self.fast_paths,
            features=FinalizedFeatures(),
            authorizer=None,
        )
        self.connection = SimpleNamespace(memory=None, received_ns=0, peer_host="::1", principal=ANONYMOUS)
        self._dispatch = Dispatcher(cast(Services, services), HANDLERS)

    def send(self, number: int, correlation_id: int = 7, *, client_id: str = "c") -> Any:
        """Of ``REQUESTS``. The buffers of the answer, or the promise of one."""
        result = self.dispatch(number, correlation_id, client_id=client_id)
        if isinstance(result, PendingResponse) and result.state is PendingState.COMPLETE:
            return list(result.buffers)
        return list(result) if isinstance(result, tuple) else result

    def dispatch(self, number: int, correlation_id: int = 7, *, client_id: str = "c") -> Any:
        frame = frame_of(number, correlation_id, client_id=client_id)
        return self._dispatch(cast(Connection, self.connection), frame)

    def counted(self) -> list[Any]:
        of = [self.metrics.of(key) for key in RESULTS]
        return [(each.counts, each.errors, each.sizes.quantiles([0, 0.5, 1])) for each in of]


@st.composite
def steps(draw: st.DrawFn) -> tuple[int, int, Any, bool]:
    number = draw(st.integers(0, len(REQUESTS) - 1))
    result = draw(st.one_of(RESULTS[REQUESTS[number][0]], REFUSALS))
    return number, draw(st.integers(-(2**31), 2**31 - 1)), result, draw(st.booleans())


@given(story=st.lists(st.tuples(steps(), st.integers(1, 4)), max_size=12))
@settings(max_examples=150, deadline=None)
def test_both_paths_ask_the_same_answer_the_same_and_count_the_same(story: list[Any]) -> None:
    fast, slow = Served(), Served()
    for (number, correlation_id, result, answers_later), times in story:
        for again in range(times):
            slow.connection.memory = None
            answers = []
            for served in (fast, slow):
                served.groups.result, served.groups.answers_later = result, answers_later
                answer = served.send(number, correlation_id ^ again)
                if isinstance(answer, PendingResponse):
                    served.groups.answer_those_who_wait()
                    answer = list(answer.buffers)
                answers.append(answer)
            assert answers[0] == answers[1]
    assert fast.groups.heard == slow.groups.heard
    assert fast.counted() == slow.counted()
    assert not fast.groups.failures and not slow.groups.failures


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The api keys of what was decoded."""
    keys: list[int] = []
    decode = dispatcher.decode_request

    def noted(header: Any, frame: Any) -> Any:
        keys.append(header.api_key)
        return decode(header, frame)

    monkeypatch.setattr(dispatcher, "decode_request", noted)
    return keys


@pytest.mark.parametrize("number", [CLASSIC_4, MODERN_0])
def test_what_is_repeated_is_decoded_once(decoded: list[int], number: int) -> None:
    served = Served()
    if number == MODERN_0:
        served.groups.result = MODERN_RESULT
    for correlation_id in range(5):
        assert served.send(number, correlation_id)[0][4:8] == correlation_id.to_bytes(4)
    assert decoded == [REQUESTS[number][0]]
    served.send(number, client_id="another")
    assert len(decoded) == 2


def test_one_in_a_few_is_timed_and_all_are_counted(decoded: list[int]) -> None:
    served = Served()
    metrics = served.metrics.of(ApiKey.HEARTBEAT)
    timed = 0
    for _ in range(2 * FREQUENT_TIMED_ONE_IN):
        result = served.dispatch(CLASSIC_4)
        timed += isinstance(result, PendingResponse) and isinstance(result.observer, RequestTiming)
    assert metrics.counts == {4: 2 * FREQUENT_TIMED_ONE_IN} and len(decoded) == 1
    assert timed == 2


def test_under_a_request_quota_every_heartbeat_takes_the_slow_path(decoded: list[int]) -> None:
    served = Served()
    served.send(CLASSIC_4)
    assert isinstance(served.connection.memory, RepeatedHeartbeat)
    served.quotas.update(QuotaEntity(None, "another"), {QuotaType.REQUEST: 50.0})
    for _ in range(3):
        served.send(CLASSIC_4)
    assert len(decoded) == 4
    served.quotas.update(QuotaEntity(None, "another"), {})
    for _ in range(3):
        served.send(CLASSIC_4)
    assert len(decoded) == 5


def test_a_group_that_looks_at_expressions_is_asked_by_the_slow_path() -> None:
    served = Served()
    served.groups.result = MODERN_RESULT
    served.send(MODERN_0)
    served.groups.due = ["orders.*"]
    remembered = served.connection.memory
    assert isinstance(remembered, RepeatedHeartbeat)
    assert remembered.serve(frame_of(MODERN_0)) is None
    served.groups.due = []
    assert remembered.serve(frame_of(MODERN_0)) is not None


def test_a_connection_that_produces_goes_on_remembering_that() -> None:
    served = Served()
    produce = object.__new__(RepeatedProduce)
    produce.epoch = NEVER
    served.connection.memory = produce
    served.send(CLASSIC_4)
    assert served.connection.memory is produce


def test_no_answer_is_written_for_a_connection_that_is_gone() -> None:
    served = Served()
    served.send(CLASSIC_4)
    served.groups.answers_later = True
    promise = served.send(CLASSIC_4)
    assert isinstance(promise, PendingResponse)
    promise.connection_closed()
    served.groups.result = HeartbeatResult(ErrorCode.UNKNOWN_MEMBER_ID)
    served.groups.answer_those_who_wait()
    assert served.metrics.of(ApiKey.HEARTBEAT).errors == {}


@pytest.mark.parametrize("answers_later", [False, True])
def test_an_answer_that_cannot_be_written_closes_the_connection(answers_later: bool) -> None:
    served = Served()
    served.groups.result = MODERN_RESULT
    served.send(MODERN_0)
    served.groups.answers_later = answers_later
    served.groups.result = HeartbeatResult()  # which is not how such a request is answered
    promise = served.send(MODERN_0)
    served.groups.answer_those_who_wait()
    assert promise.state is PendingState.ABANDONED
    assert served.groups.failures == [AttributeError]
