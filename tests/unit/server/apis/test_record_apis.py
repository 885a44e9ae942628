"""The APIs about records, in every version and over a real connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from minikafka.errors import ErrorCode
from minikafka.network.broker_client import BrokerClient, BrokerUnavailable
from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.records.records import Record, build_batch, iterate_records
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.server.apis.fetch import CONSUMER_ANSWER_BYTES_MAX
from minikafka.testing import Broker
from tests.unit.server.running import topics_of

DEADLINE_MS = 60_000
START_MS = 1_700_000_000_000
LATEST, EARLIEST, MAX, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def versions(key: ApiKey) -> range:
    return range(SUPPORTED[key].min, SUPPORTED[key].max + 1)


def batch(
    *values: bytes, transactional: bool = False, compression: CompressionType = CompressionType.NONE
) -> bytes:
    now_ms = START_MS
    records = [Record(i, now_ms + i, b"key", value, (("h", b"v"),)) for i, value in enumerate(values)]
    ids = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0} if transactional else {}
    return build_batch(records, transactional=transactional, compression=compression, **ids)


class Client:
    """Asks for one topic with one partition."""

    def __init__(self, connection: BrokerClient, topic_id: UUID) -> None:
        self.connection = connection
        self.topic_id = topic_id

    async def produce(self, version: int, records: bytes | None, *, acks: int = -1, index: int = 0) -> Any:
        topic = {"name": "orders", "topic_id": self.topic_id}
        body = {
            "transactional_id": None,
            "acks": acks,
            "timeout": 1000,
            "topic_data": [topic | {"partition_data": [{"index": index, "records": records}]}],
        }
        if acks == 0:
            await self.connection.send(ApiKey.PRODUCE, body, version=version, deadline_ms=DEADLINE_MS)
            return None
        answer = await self.connection.request(ApiKey.PRODUCE, body, version=version, deadline_ms=DEADLINE_MS)
        ((partition,),) = [t.partition_responses for t in answer.responses]
        return partition

    def fetch_body(self, offset: int, **fields: Any) -> dict[str, Any]:
        partition = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
        }
        return {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": "orders", "topic_id": self.topic_id, "partitions": [partition]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        } | fields

    async def fetch(self, version: int, offset: int, **fields: Any) -> Any:
        return await self.connection.request(
            ApiKey.FETCH, self.fetch_body(offset, **fields), version=version, deadline_ms=DEADLINE_MS
        )

    async def ask(self, key: ApiKey, version: int, partition: dict[str, Any], **fields: Any) -> Any:
        topics = [{"name": "orders", "topic": "orders", "partitions": [partition]}]
        body = {"topics": topics, "replica_id": -1, "isolation_level": 0, "timeout": 1000} | fields
        names = {
            ApiKey.LIST_OFFSETS: ("replica_id", "isolation_level", "timeout"),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: ("replica_id",),
            ApiKey.DELETE_RECORDS: ("timeout",),
        }[key]
        topic_name = "topic" if key is ApiKey.OFFSET_FOR_LEADER_EPOCH else "name"
        sent = {name: body[name] for name in names}
        sent["topics"] = [{topic_name: "orders", "partitions": [partition]}]
        answer = await self.connection.request(key, sent, version=version, deadline_ms=DEADLINE_MS)
        ((only,),) = [topic.partitions for topic in answer.topics]
        return only

    async def list_offset(self, version: int, timestamp: int) -> Any:
        partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
        return await self.ask(ApiKey.LIST_OFFSETS, version, partition)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Broker(config={"log.message.timestamp.before.max.ms": 2**62}) as broker:
        created = await topics_of(broker.server).create_topic("orders")
        assert created.topic_id is not None
        connection = await BrokerClient.connect(
            "127.0.0.1", broker.port, client_id="test", deadline_ms=DEADLINE_MS
        )
        yield Client(connection, created.topic_id)
        await connection.close()


async def test_what_any_version_produces_any_version_fetches(client: Client) -> None:
    for count, version in enumerate(versions(ApiKey.PRODUCE)):
        answer = await client.produce(version, batch(b"v%d" % version))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, count)
        assert answer.log_append_time == -1
    produced = [b"v%d" % version for version in versions(ApiKey.PRODUCE)]
    for version in versions(ApiKey.FETCH):
        answer = await client.fetch(version, 0)
        ((partition,),) = [topic.partitions for topic in answer.responses]
        assert partition.error_code == ErrorCode.NONE
        assert partition.high_watermark == partition.last_stable_offset == len(produced)
        values = []
        records = bytes(partition.records)
        while records:
            size = 12 + int.from_bytes(records[8:12], "big")
            values += [record.value for record in iterate_records(records[:size])]
            records = records[size:]
        assert values == produced


async def test_each_refusal_of_produce_has_its_own_code(client: Client) -> None:
    latest = SUPPORTED[ApiKey.PRODUCE].max
    by_name = latest - 1
    assert (await client.produce(by_name, batch(b"a"), acks=2)).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    unknown = await client.produce(by_name, batch(b"a"), index=7)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await client.produce(by_name, None)).error_code == ErrorCode.INVALID_RECORD
    transactional = await client.produce(by_name, batch(b"a", transactional=True))
    assert transactional.error_code == ErrorCode.INVALID_TXN_STATE
    damaged = bytearray(batch(b"a"))
    damaged[-1] ^= 1
    assert (await client.produce(by_name, bytes(damaged))).error_code == ErrorCode.CORRUPT_MESSAGE
    client.topic_id = UUID(int=99)
    assert (await client.produce(latest, batch(b"a"))).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (await client.list_offset(1, LATEST)).offset == 0, "nothing of it was appended"


async def test_zstd_is_refused_in_a_request_of_before_it_was_introduced(client: Client) -> None:
    """KIP-110; also of a producer that repeats itself."""
    for version in (3, 6):
        for _ in range(3):
            assert (await client.produce(version, batch(b"a"))).error_code == ErrorCode.NONE
        refused = await client.produce(version, batch(b"a", compression=CompressionType.ZSTD))
        assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert (await client.produce(version, batch(b"a", compression=CompressionType.LZ4))).error_code == 0
    assert (await client.produce(7, batch(b"a", compression=CompressionType.ZSTD))).base_offset == 8


async def test_acks_0_has_no_answer_and_closes_the_connection_on_an_error(client: Client) -> None:
    await client.produce(9, batch(b"a"), acks=0)
    assert (await client.list_offset(1, LATEST)).offset == 1
    await client.produce(9, batch(b"a"), acks=0, index=5)
    with pytest.raises(BrokerUnavailable):
        await client.list_offset(1, LATEST)


@pytest.mark.parametrize("version", [7, 12, 13, 18])
async def test_a_fetch_session_tells_only_news(client: Client, version: int) -> None:
    await client.produce(9, batch(b"a"))
    first = await client.fetch(version, 0, session_epoch=0)
    assert first.session_id > 0 and len(first.responses) == 1
    moved_on = client.fetch_body(1, session_id=first.session_id, session_epoch=1)
    nothing = await client.connection.request(
        ApiKey.FETCH, moved_on, version=version, deadline_ms=DEADLINE_MS
    )
    assert nothing.responses == ()
    await client.produce(9, batch(b"b"))
    news = await client.fetch(version, 1, session_id=first.session_id, session_epoch=2, topics=[])
    ((partition,),) = [topic.partitions for topic in news.responses]
    assert partition.high_watermark == 2
    (record,) = iterate_records(bytes(partition.records))
    assert (record.offset, record.value) == (1, b"b")
    wrong = await client.fetch(version, 1, session_id=first.session_id, session_epoch=9, topics=[])
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_a_consumer_gets_its_records_in_pieces_and_all_that_it_insists_on(client: Client) -> None:
    value = bytes(900_000)
    for _ in range(13):
        await client.produce(12, batch(value))

    async def fetched_bytes(**fields: Any) -> int:
        body = client.fetch_body(0, max_bytes=50 << 20, **fields)
        body["topics"][0]["partitions"][0]["partition_max_bytes"] = 50 << 20
        answer = await client.connection.request(ApiKey.FETCH, body, version=12, deadline_ms=DEADLINE_MS)
        ((partition,),) = [topic.partitions for topic in answer.responses]
        assert partition.error_code == ErrorCode.NONE
        return len(partition.records)

    assert await fetched_bytes() == CONSUMER_ANSWER_BYTES_MAX
    assert await fetched_bytes(min_bytes=10 << 20) == 10 << 20


async def test_fetching_an_unknown_topic_id_fails_for_that_topic_alone(client: Client) -> None:
    known = client.fetch_body(0)["topics"][0]
    unknown = known | {"topic_id": UUID(int=99)}
    answer = await client.fetch(13, 0, topics=[known, unknown])
    codes = {topic.topic_id: topic.partitions[0].error_code for topic in answer.responses}
    assert codes == {client.topic_id: ErrorCode.NONE, UUID(int=99): ErrorCode.UNKNOWN_TOPIC_ID}


async def test_list_offsets_knows_every_place_from_the_version_that_introduced_it(client: Client) -> None:
    await client.produce(9, batch(b"a", b"b", b"c"))
    for version in versions(ApiKey.LIST_OFFSETS):
        assert (await client.list_offset(version, EARLIEST)).offset == 0
        assert (await client.list_offset(version, LATEST)).offset == 3
        by_time = await client.list_offset(version, START_MS + 1)
        assert (by_time.offset, by_time.timestamp) == (1, START_MS + 1)
        assert (await client.list_offset(version, START_MS + 99)).offset == -1
        for place, first, offset in ((MAX, 7, 2), (EARLIEST_LOCAL, 8, 0), (LATEST_TIERED, 9, -1)):
            answer = await client.list_offset(version, place)
            expected = (ErrorCode.NONE, offset) if version >= first else (ErrorCode.UNSUPPORTED_VERSION, -1)
            assert (answer.error_code, answer.offset) == expected


async def test_the_end_of_an_epoch_and_epochs_that_do_not_match(client: Client) -> None:
    await client.produce(9, batch(b"a", b"b"))
    for version in versions(ApiKey.OFFSET_FOR_LEADER_EPOCH):
        wanted = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
        answer = await client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, wanted)
        assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (ErrorCode.NONE, 0, 2)
        ahead = wanted | {"current_leader_epoch": 5}
        answer = await client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, ahead)
        assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        missing = wanted | {"partition": 4}
        answer = await client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, missing)
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_deleted_records_are_gone_and_the_rest_stays(client: Client) -> None:
    await client.produce(9, batch(b"a", b"b", b"c"))
    for version, target, low in ((0, 1, 1), (1, 2, 2), (2, -1, 3)):
        wanted = {"partition_index": 0, "offset": target}
        answer = await client.ask(ApiKey.DELETE_RECORDS, version, wanted)
        assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, low)
        assert (await client.list_offset(1, EARLIEST)).offset == low
    above = await client.ask(ApiKey.DELETE_RECORDS, 2, {"partition_index": 0, "offset": 4})
    assert above.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    ((partition,),) = [topic.partitions for topic in (await client.fetch(12, 0)).responses]
    assert partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", [8, 9, 12, 13])
async def test_a_producer_that_repeats_itself_gets_the_answers_it_got_at_first(
    client: Client, version: int
) -> None:
    for count in range(5):
        answer = await client.produce(version, batch(b"v%d" % count))
        assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (0, count, 0)
    damaged = bytearray(batch(b"v5"))
    damaged[-1] ^= 1
    refused = await client.produce(version, bytes(damaged))
    assert refused.error_code == ErrorCode.CORRUPT_MESSAGE
    transactional = await client.produce(version, batch(b"v5", transactional=True))
    assert transactional.error_code == ErrorCode.INVALID_TXN_STATE
    assert (await client.produce(version, batch(b"v5"))).base_offset == 5
    assert (await client.list_offset(1, LATEST)).offset == 6


@pytest.mark.parametrize("version", [12, 13])
async def test_a_topic_that_was_created_again_is_another_topic_for_those_who_know_its_id(
    version: int,
) -> None:
    async with Broker() as broker:
        topics = topics_of(broker.server)
        first = await topics.create_topic("orders")
        assert first.topic_id is not None
        connection = await BrokerClient.connect(
            "127.0.0.1", broker.port, client_id="test", deadline_ms=DEADLINE_MS
        )
        client = Client(connection, first.topic_id)
        for offset in range(3):
            assert (await client.produce(version, now_batch())).base_offset == offset
        await topics.delete_topic("orders")
        await topics.create_topic("orders")
        again = await client.produce(version, now_batch())
        if version >= 13:
            assert again.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        else:
            assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
        await topics.delete_topic("orders")
        gone = await client.produce(version, now_batch())
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert gone.error_code == unknown
        await connection.close()


def now_batch() -> bytes:
    return build_batch([Record(0, -1, None, b"v", ())])
