"""A frame is served, answered as an unknown ApiVersions, or ends its connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from minikafka.clock import ManualClock
from minikafka.config.broker import broker_config
from minikafka.errors import ErrorCode, InvariantError, PeerProtocolError
from minikafka.metrics.sensors import Metrics
from minikafka.network.connection import Connection, PendingResponse
from minikafka.network.responses import PendingState, UnfinishedRequest
from minikafka.protocol.wire.api_versions import (
    ADVERTISED,
    ANSWERED,
    BETWEEN_BROKERS,
    GROUP_VERSION,
    METADATA_VERSION,
    OLDER,
    OWN_SOFTWARE,
    SUPPORTED,
    ApiKey,
    Release,
)
from minikafka.protocol.wire.codec import Body, decode_response, encode_request
from minikafka.security.acl import ANONYMOUS
from minikafka.server.apis import HANDLERS
from minikafka.server.client_quotas import ClientQuotas
from minikafka.server.cluster.features import DEFAULT_LEVELS, SHARE_VERSION, FinalizedFeatures
from minikafka.server.dispatch.dispatcher import Dispatcher
from minikafka.server.requests import RequestContext, request_channel_metrics
from minikafka.server.runtime.event_loop import Supervisor
from minikafka.server.runtime.fast_paths import FastPaths
from minikafka.server.runtime.work_scheduler import WorkScheduler
from minikafka.server.services import Services
from minikafka.steps import Steps


class StubServices:
    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor, self.node_id, self.cluster_id = supervisor, 1, "C"
        self.configs = SimpleNamespace(client_metrics_subscriptions=lambda: ["one"])
        self.fast_paths = FastPaths()
        self.config = broker_config({})
        self.features = FinalizedFeatures()
        self.authorizer = None
        self.imitated: Release | None = None
        self.clock = ManualClock()
        self.client_quotas = ClientQuotas(broker_config({}), clock=self.clock, metrics=Metrics())
        self.scheduler = WorkScheduler(self.clock)
        self.request_metrics = request_channel_metrics()


class StubConnection:
    listener_name = "PLAINTEXT"
    client_software_name = client_software_version = ""
    memory = None
    principal = ANONYMOUS
    received_ns = 0
    is_follower = False

    def __init__(self) -> None:
        self.room: asyncio.Future[None] | None = None
        """There is room for a large answer, unless this is set and not done."""

    def has_room(self, *, for_records: bool) -> bool:
        return self.room is None or self.room.done()

    def wait_for_room(self, *, for_records: bool) -> Steps[bool]:
        yield self.room
        return True


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    made = Supervisor()
    yield made
    await made.stop()


def dispatcher(supervisor: Supervisor, **handlers: Any) -> Dispatcher:
    chosen = {ApiKey[name.upper()]: handler for name, handler in handlers.items()}
    return Dispatcher(cast(Services, StubServices(supervisor)), chosen or HANDLERS)


def request(key: ApiKey, version: int, body: Body, correlation_id: int = 7) -> bytes:
    frame = encode_request(
        api_key=key, api_version=version, correlation_id=correlation_id, client_id="test", body=body
    )
    return frame[4:]


def serve(dispatch: Dispatcher, frame: bytes, connection: StubConnection | None = None) -> Any:
    """The answer: its buffers, when it is there already."""
    result = dispatch(cast(Connection, connection or StubConnection()), frame)
    if isinstance(result, PendingResponse) and result.state is PendingState.COMPLETE:
        return result.buffers
    return result


async def test_every_supported_api_has_a_handler() -> None:
    assert set(SUPPORTED) <= set(ADVERTISED) <= set(ANSWERED)
    assert set(HANDLERS) == set(ANSWERED) | set(BETWEEN_BROKERS)


@pytest.mark.parametrize("version", range(6))
async def test_api_versions_answers_the_advertised_ranges(supervisor: Supervisor, version: int) -> None:
    body = {"client_software_name": "tester", "client_software_version": "1.0"} if version >= 3 else {}
    (frame,) = serve(dispatcher(supervisor), request(ApiKey.API_VERSIONS, version, body))
    correlation_id, answer = decode_response(
        api_key=ApiKey.API_VERSIONS, api_version=version, frame=frame[4:]
    )
    assert (correlation_id, answer.error_code) == (7, ErrorCode.NONE)
    ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    assert ranges == {int(key): tuple(versions) for key, versions in ADVERTISED.items()}


async def test_a_client_that_does_not_name_itself_properly_is_told(supervisor: Supervisor) -> None:
    body = {"client_software_name": "-bad", "client_software_version": "1.0"}
    (frame,) = serve(dispatcher(supervisor), request(ApiKey.API_VERSIONS, 3, body))
    _, answer = decode_response(api_key=ApiKey.API_VERSIONS, api_version=3, frame=frame[4:])
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        ("C", 1, ErrorCode.NONE),
        (None, -1, ErrorCode.NONE),
        (None, 2, ErrorCode.NONE),
        ("D", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("C", 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("C", -1, ErrorCode.REBOOTSTRAP_REQUIRED),
    ],
)
async def test_a_client_that_means_another_broker_is_told(
    supervisor: Supervisor, cluster_id: str | None, node_id: int, code: ErrorCode
) -> None:
    """KIP-1242: by both, as ``KafkaApis.clusterIdOrNodeIdIsInvalid`` has it."""
    body = {
        "client_software_name": "tester",
        "client_software_version": "1.0",
        "cluster_id": cluster_id,
        "node_id": node_id,
    }
    (frame,) = serve(dispatcher(supervisor), request(ApiKey.API_VERSIONS, 5, body))
    _, answer = decode_response(api_key=ApiKey.API_VERSIONS, api_version=5, frame=frame[4:])
    assert answer.error_code == code
    assert bool(answer.api_keys) == (code == ErrorCode.NONE)


async def test_a_too_new_api_versions_is_answered_in_version_0_with_its_range(supervisor: Supervisor) -> None:
    frame = bytearray(
        request(ApiKey.API_VERSIONS, 3, {"client_software_name": "a", "client_software_version": "b"})
    )
    frame[2:4] = (99).to_bytes(2, "big")
    (response,) = serve(dispatcher(supervisor), bytes(frame))
    correlation_id, answer = decode_response(api_key=ApiKey.API_VERSIONS, api_version=0, frame=response[4:])
    assert (correlation_id, answer.error_code) == (7, ErrorCode.UNSUPPORTED_VERSION)
    assert [(e.api_key, e.min_version, e.max_version) for e in answer.api_keys] == [(18, 0, 5)]


async def test_who_asks_for_much_waits_for_room_and_no_other_does(supervisor: Supervisor) -> None:
    """Answers that are not read have the memory: a request is not even decoded before there is some."""
    handled = []

    def handler(services: Services, context: RequestContext, body: Any) -> tuple[bytes, ...]:
        handled.append(context.header.api_key)
        return (b"answer",)

    dispatch = dispatcher(supervisor, metadata=handler, heartbeat=handler)
    connection = StubConnection()
    connection.room = asyncio.get_running_loop().create_future()
    metadata = request(ApiKey.METADATA, 4, {"topics": [], "allow_auto_topic_creation": False})
    heartbeat = request(ApiKey.HEARTBEAT, 0, {"group_id": "g", "generation_id": 1, "member_id": "m"})
    waiting = serve(dispatch, metadata, connection)
    assert isinstance(waiting, UnfinishedRequest) and handled == []
    assert serve(dispatch, heartbeat, connection) == (b"answer",)
    connection.room.set_result(None)
    ended = asyncio.Event()
    waiting.on_end = ended.set
    await ended.wait()
    assert handled[-1] == ApiKey.METADATA


async def test_an_unknown_key_and_an_unsupported_version_end_the_connection(supervisor: Supervisor) -> None:
    dispatch = dispatcher(supervisor)
    with pytest.raises(PeerProtocolError, match="unknown api key 999"):
        serve(dispatch, (999).to_bytes(2, "big") + bytes(20))
    produce_v2 = bytes((0, 0, 0, 2)) + bytes(20)
    with pytest.raises(PeerProtocolError, match=r"UNSUPPORTED_VERSION: PRODUCE version 2.*3 to 13"):
        serve(dispatch, produce_v2)


async def test_a_handler_that_awaits_answers_later(supervisor: Supervisor) -> None:
    release = asyncio.Event()

    async def handle(services: Any, context: Any, request: Any) -> Body:
        await release.wait()
        return {"throttle_time": 0, "topics": []}

    pending = serve(
        dispatcher(supervisor, delete_records=handle),
        request(ApiKey.DELETE_RECORDS, 2, {"topics": [], "timeout": 1000}),
    )
    assert isinstance(pending, PendingResponse) and pending.is_waiting
    release.set()
    async with asyncio.timeout(60):
        while pending.is_waiting:  # noqa: ASYNC110 - the task needs its turns of the loop
            await asyncio.sleep(0)
    (frame,) = pending.buffers
    correlation_id, answer = decode_response(
        api_key=ApiKey.DELETE_RECORDS, api_version=2, frame=bytes(frame)[4:]
    )
    assert (correlation_id, answer.topics) == (7, ())


async def test_a_handler_that_fails_while_it_awaits_abandons_its_answer(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(services: Any, context: Any, request: Any) -> Body:
        raise RuntimeError("a bug")

    pending = serve(
        dispatcher(supervisor, delete_records=handle),
        request(ApiKey.DELETE_RECORDS, 2, {"topics": [], "timeout": 1000}),
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert pending.state.name == "ABANDONED"
    assert "task failed" in caplog.text


async def test_an_answer_of_no_known_kind_is_our_bug(supervisor: Supervisor) -> None:
    with pytest.raises(InvariantError, match="DELETE_RECORDS answered 'text'"):
        serve(
            dispatcher(supervisor, delete_records=lambda *_: "text"),
            request(ApiKey.DELETE_RECORDS, 2, {"topics": [], "timeout": 1000}),
        )


async def test_an_imitated_release_serves_what_it_knew_to_all_but_our_own(supervisor: Supervisor) -> None:
    handled = []

    def handler(services: Services, context: RequestContext, body: Any) -> tuple[bytes, ...]:
        handled.append((context.header.api_key, context.header.api_version))
        return (b"answer",)

    keys = (ApiKey.METADATA, ApiKey.SHARE_FETCH, ApiKey.CONSUMER_GROUP_DESCRIBE)
    services = cast(Services, StubServices(supervisor))
    dispatch = Dispatcher(services, dict.fromkeys(keys, handler), imitated=OLDER["3.9"])
    client, own = StubConnection(), StubConnection()
    own.client_software_name = OWN_SOFTWARE
    body = {
        "topics": [],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }
    newest, newest_of_release = (request(ApiKey.METADATA, version, body) for version in (13, 12))
    assert serve(dispatch, newest_of_release, client) == (b"answer",)
    with pytest.raises(PeerProtocolError, match=r"UNSUPPORTED_VERSION: METADATA version 13.*0 to 12"):
        serve(dispatch, newest, client)
    assert serve(dispatch, newest, own) == (b"answer",)
    share_fetch = int(ApiKey.SHARE_FETCH).to_bytes(2, "big") + (1).to_bytes(2, "big") + bytes(20)
    with pytest.raises(PeerProtocolError, match="unknown api key 78"):
        serve(dispatch, share_fetch, client)
    assert handled == [(ApiKey.METADATA, 12), (ApiKey.METADATA, 13)]

    described = {"group_ids": ["g"], "include_authorized_operations": False}
    (frame,) = serve(dispatch, request(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, described), client)
    _, answer = decode_response(api_key=ApiKey.CONSUMER_GROUP_DESCRIBE, api_version=0, frame=frame[4:])
    assert [each.error_code for each in answer.groups] == [ErrorCode.UNSUPPORTED_VERSION]
    assert len(handled) == 2, "the release had it switched off"


@pytest.mark.parametrize(
    ("key", "feature"),
    [(ApiKey.CONSUMER_GROUP_DESCRIBE, GROUP_VERSION), (ApiKey.SHARE_GROUP_DESCRIBE, SHARE_VERSION)],
)
async def test_the_apis_of_a_feature_are_refused_while_it_is_off(
    supervisor: Supervisor, key: ApiKey, feature: str
) -> None:
    services = StubServices(supervisor)
    dispatch = Dispatcher(cast(Services, services), {key: lambda *_: (b"answer",)})
    frame = request(key, 1, {"group_ids": ["g"], "include_authorized_operations": False})
    assert serve(dispatch, frame) == (b"answer",)

    services.features.replace({**DEFAULT_LEVELS, feature: 0}, epoch=1)
    (buffer,) = serve(dispatch, frame)
    _, answer = decode_response(api_key=key, api_version=1, frame=buffer[4:])
    assert [each.error_code for each in answer.groups] == [ErrorCode.UNSUPPORTED_VERSION]

    services.features.replace({**DEFAULT_LEVELS, feature: 1}, epoch=2)
    assert serve(dispatch, frame) == (b"answer",)


async def test_an_imitated_release_names_its_versions(supervisor: Supervisor) -> None:
    services = StubServices(supervisor)
    services.imitated = OLDER["3.9"]
    dispatch = Dispatcher(cast(Services, services), HANDLERS, imitated=services.imitated)
    body = {"client_software_name": "tester", "client_software_version": "1.0"}
    (frame,) = serve(dispatch, request(ApiKey.API_VERSIONS, 5, body))
    _, answer = decode_response(api_key=ApiKey.API_VERSIONS, api_version=0, frame=frame[4:])
    assert [(e.api_key, e.min_version, e.max_version) for e in answer.api_keys] == [(18, 0, 4)]
    for name, expected in (("tester", OLDER["3.9"].advertised), (OWN_SOFTWARE, ADVERTISED)):
        body["client_software_name"] = name
        (frame,) = serve(dispatch, request(ApiKey.API_VERSIONS, 4, body))
        _, answer = decode_response(api_key=ApiKey.API_VERSIONS, api_version=4, frame=frame[4:])
        ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
        assert ranges == expected
        named = {each.name for each in answer.finalized_features}
        assert named == ({*DEFAULT_LEVELS} if name == OWN_SOFTWARE else {METADATA_VERSION})
