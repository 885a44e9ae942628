"""The client side, against a server that speaks just enough Kafka, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from minikafka.errors import ErrorCode, KafkaError, PeerProtocolError
from minikafka.network.broker_client import BrokerClient, BrokerTimeout, BrokerUnavailable
from minikafka.network.connection import Connection, PendingResponse, Result
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.protocol.wire.codec import RequestHeader, read_request_header
from minikafka.types import Buffer
from tests.support.codec import decode_request, encode_response
from tests.unit.network.support import DEADLINE_SECONDS, framed, serving, until

DEADLINE_MS = int(DEADLINE_SECONDS * 1000)
RANGES = {ApiKey.API_VERSIONS: (0, 4), ApiKey.METADATA: (0, 9), ApiKey.CREATE_TOPICS: (20, 30)}


def versions_body(code: ErrorCode = ErrorCode.NONE, ranges: dict[ApiKey, tuple[int, int]] = RANGES) -> Any:
    return {
        "error_code": code,
        "api_keys": [
            {"api_key": int(key), "min_version": low, "max_version": high}
            for key, (low, high) in ranges.items()
        ],
        "throttle_time": 0,
        "supported_features": [],
        "finalized_features_epoch": 0,
        "finalized_features": [],
        "zk_migration_ready": False,
    }


def metadata_body(cluster_id: str) -> Any:
    return {
        "throttle_time": 0,
        "brokers": [],
        "cluster_id": cluster_id,
        "controller_id": 0,
        "topics": [],
        "cluster_authorized_operations": 0,
    }


def encoded(
    header: RequestHeader, body: Any, *, version: int | None = None, correlation_id: int = 0
) -> bytes:
    return encode_response(
        api_key=header.api_key,
        api_version=header.api_version if version is None else version,
        correlation_id=header.correlation_id + correlation_id,
        body=body,
    )


class FakeBroker:
    """Answers ApiVersions; Metadata as told by ``metadata``, by default with the names asked for."""

    def __init__(self) -> None:
        self.headers: list[RequestHeader] = []
        self.api_versions: Callable[[RequestHeader], Result] = lambda header: (
            encoded(header, versions_body()),
        )
        self.metadata: Callable[[Connection, RequestHeader, Any], Result] = (
            lambda connection, header, request: (
                encoded(header, metadata_body(",".join(topic.name for topic in request.topics))),
            )
        )

    def __call__(self, connection: Connection, frame: Buffer) -> Result:
        header = read_request_header(frame)
        self.headers.append(header)
        if header.api_key == ApiKey.API_VERSIONS:
            return self.api_versions(header)
        return self.metadata(connection, header, decode_request(header, frame))


@contextlib.asynccontextmanager
async def connected(fake: FakeBroker, **options: Any) -> AsyncIterator[BrokerClient]:
    async with serving(fake) as server:
        client = await BrokerClient.connect(
            "127.0.0.1", server.port, client_id="test", deadline_ms=DEADLINE_MS, **options
        )
        try:
            yield client
        finally:
            await client.close()


async def ask(client: BrokerClient, topic: str, deadline_ms: int = DEADLINE_MS) -> str:
    body = {
        "topics": [{"name": topic, "topic_id": None}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    answer = await client.request(ApiKey.METADATA, body, deadline_ms=deadline_ms)
    return str(answer.cluster_id)


async def test_the_highest_common_version_is_used() -> None:
    fake = FakeBroker()
    async with connected(fake) as client:
        assert await ask(client, "t") == "t"
        assert client.version_of(ApiKey.METADATA) == 9 < SUPPORTED[ApiKey.METADATA].max
        assert [(header.api_key, header.api_version) for header in fake.headers] == [(18, 5), (3, 9)]
        assert fake.headers[1].client_id == "test"


@pytest.mark.parametrize("key", [ApiKey.CREATE_TOPICS, ApiKey.FETCH, 999])
async def test_an_api_without_a_common_version_is_refused_before_it_is_sent(key: int) -> None:
    async with connected(FakeBroker()) as client:
        with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION") as caught:
            await client.request(key, {}, deadline_ms=DEADLINE_MS)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        assert await ask(client, "t") == "t"


async def test_an_older_broker_is_asked_again_in_a_version_it_knows() -> None:
    fake = FakeBroker()

    def old(header: RequestHeader) -> Result:
        if header.api_version > 2:
            body = versions_body(ErrorCode.UNSUPPORTED_VERSION, {ApiKey.API_VERSIONS: (0, 2)})
            return (encoded(header, body, version=0),)
        return (encoded(header, versions_body()),)

    fake.api_versions = old
    async with connected(fake):
        assert [header.api_version for header in fake.headers] == [5, 2]


async def test_requests_are_pipelined_and_bounded_and_answered_in_order() -> None:
    fake = FakeBroker()
    parked: list[tuple[PendingResponse, RequestHeader]] = []

    def park(connection: Connection, header: RequestHeader, request: Any) -> Result:
        parked.append((PendingResponse(), header))
        return parked[-1][0]

    fake.metadata = park
    async with connected(fake, in_flight_max=3) as client:
        asked = [asyncio.create_task(ask(client, str(index))) for index in range(7)]
        for index in range(7):
            await until(lambda index=index: len(parked) == min(index + 3, 7))  # type: ignore[misc]
            pending, header = parked[index]
            pending.complete((encoded(header, metadata_body(str(index))),))
            assert await asked[index] == str(index)
        assert [header.correlation_id for _, header in parked] == list(range(1, 8))


async def test_a_cancelled_request_leaves_the_connection_usable() -> None:
    fake = FakeBroker()
    parked: list[tuple[PendingResponse, RequestHeader]] = []

    def park_first(connection: Connection, header: RequestHeader, request: Any) -> Result:
        if not parked:
            parked.append((PendingResponse(), header))
            return parked[0][0]
        return (encoded(header, metadata_body("second")),)

    fake.metadata = park_first
    async with connected(fake, in_flight_max=1) as client:
        first = asyncio.create_task(ask(client, "first"))
        await until(lambda: bool(parked))
        waiting = asyncio.create_task(ask(client, "in line"))
        second = asyncio.create_task(ask(client, "second"))
        await asyncio.sleep(0)
        for task in (first, waiting):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        pending, header = parked[0]
        pending.complete((encoded(header, metadata_body("first")),))
        assert await second == "second"


async def test_an_answer_that_does_not_come_ends_the_connection_and_fails_all() -> None:
    fake = FakeBroker()
    fake.metadata = lambda connection, header, request: PendingResponse()
    async with connected(fake) as client:
        patient = asyncio.create_task(ask(client, "patient"))
        await until(lambda: len(fake.headers) == 2)
        with pytest.raises(BrokerTimeout, match=r"METADATA was not answered within \d+ ms"):
            await ask(client, "hasty", deadline_ms=20)
        with pytest.raises(BrokerUnavailable, match="METADATA was not answered"):
            await patient
        with pytest.raises(BrokerUnavailable, match="METADATA was not answered"):
            await ask(client, "late")
        assert not client.is_connected


async def test_a_request_that_finds_no_turn_fails_alone() -> None:
    fake = FakeBroker()
    parked: list[tuple[PendingResponse, RequestHeader]] = []

    def park(connection: Connection, header: RequestHeader, request: Any) -> Result:
        parked.append((PendingResponse(), header))
        return parked[-1][0]

    fake.metadata = park
    async with connected(fake, in_flight_max=1) as client:
        first = asyncio.create_task(ask(client, "first"))
        await until(lambda: bool(parked))
        with pytest.raises(BrokerTimeout, match="no turn in time, 1 requests are in flight"):
            await ask(client, "second", deadline_ms=20)
        pending, header = parked[0]
        pending.complete((encoded(header, metadata_body("first")),))
        assert await first == "first"


async def test_a_broker_that_goes_away_fails_everyone_with_its_name() -> None:
    fake = FakeBroker()
    victims: list[Connection] = []

    def drop(connection: Connection, header: RequestHeader, request: Any) -> Result:
        victims.append(connection)
        return PendingResponse()

    fake.metadata = drop
    async with connected(fake, in_flight_max=2) as client:
        asked = [asyncio.create_task(ask(client, str(index))) for index in range(4)]
        await until(lambda: len(victims) == 2)
        victims[0].abort()
        for task in asked:
            with pytest.raises(BrokerUnavailable, match=r"broker 127\.0\.0\.1:\d+: "):
                await task


@pytest.mark.parametrize(
    "answer",
    [
        lambda header: (encoded(header, metadata_body("x"), correlation_id=1),),
        lambda header: (framed(header.correlation_id.to_bytes(4, "big") + b"\xff\xff"),),
        lambda header: (b"\xff\xff\xff\xff",),
        lambda header: (encoded(header, metadata_body("x")) * 2,),
    ],
    ids=["another correlation id", "a malformed body", "a bad size", "an answer to nothing"],
)
async def test_a_broker_that_breaks_the_protocol_is_left(
    answer: Callable[[RequestHeader], Result], caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeBroker()
    fake.metadata = lambda connection, header, request: answer(header)
    async with connected(fake) as client:
        with contextlib.suppress(BrokerUnavailable):  # an answer to nothing comes after a good one
            assert await ask(client, "t") == "x"
        await until(lambda: not client.is_connected)
        with pytest.raises(BrokerUnavailable, match="does not speak the protocol"):
            await ask(client, "again")
        assert "closing the connection to broker 127.0.0.1" in caplog.text


async def test_a_request_without_a_response_is_only_sent() -> None:
    fake = FakeBroker()
    seen: list[str] = []

    def silent(connection: Connection, header: RequestHeader, request: Any) -> Result:
        seen.append(request.topics[0].name)
        return None if seen == ["acks=0"] else (encoded(header, metadata_body("answered")),)

    fake.metadata = silent
    async with connected(fake) as client:
        body = {
            "topics": [{"name": "acks=0", "topic_id": None}],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        await client.send(ApiKey.METADATA, body, deadline_ms=DEADLINE_MS)
        assert await ask(client, "t") == "answered"
        assert seen == ["acks=0", "t"]


async def test_connecting_fails_with_one_reason() -> None:
    async with serving() as server:
        port = server.port
    with pytest.raises(BrokerUnavailable, match=f"127.0.0.1:{port}: cannot connect"):
        await BrokerClient.connect("127.0.0.1", port, client_id=None, deadline_ms=DEADLINE_MS)

    def mute(connection: Connection, frame: Buffer) -> Result:
        return PendingResponse()

    async with serving(mute) as server:
        with pytest.raises(BrokerTimeout, match="API_VERSIONS was not answered"):
            await BrokerClient.connect("127.0.0.1", server.port, client_id=None, deadline_ms=20)

    def hostile(connection: Connection, frame: Buffer) -> Result:
        raise PeerProtocolError("go away")

    async with serving(hostile) as server:
        with pytest.raises(BrokerUnavailable, match=r"the broker closed the connection|broke"):
            await BrokerClient.connect("127.0.0.1", server.port, client_id=None, deadline_ms=DEADLINE_MS)


async def test_close_fails_those_who_wait_and_may_be_repeated() -> None:
    fake = FakeBroker()
    fake.metadata = lambda connection, header, request: PendingResponse()
    async with connected(fake) as client:
        asked = asyncio.create_task(ask(client, "t"))
        await until(lambda: len(fake.headers) == 2)
        await client.close()
        await client.close()
        with pytest.raises(BrokerUnavailable, match="closed by this client"):
            await asked
        assert "closed by this client" in repr(client)
