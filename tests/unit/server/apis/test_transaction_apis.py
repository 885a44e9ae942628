"""The requests of a transactional producer in every version, and what operators see of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from minikafka.coordination.paths import partition_state_path
from minikafka.coordination.store import Op
from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.server.cluster.topic_validation import GROUP_METADATA_TOPIC
from minikafka.types import TopicPartition
from tests.unit.server.running import eventually

ADD, OFFSETS, END = ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN
DESCRIBE, LIST = ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS


def versions(key: ApiKey) -> range:
    return range(SUPPORTED[key].min, SUPPORTED[key].max + 1)


class Producer(NamedTuple):
    """A transactional id, and what InitProducerId gave it."""

    broker: Any
    transactional_id: str
    producer_id: int
    epoch: int

    @classmethod
    async def init(cls, broker: Any, transactional_id: str = "t", timeout_ms: int = 60_000) -> Producer:
        body = {
            "transactional_id": transactional_id,
            "transaction_timeout": timeout_ms,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = await broker.ask(ApiKey.INIT_PRODUCER_ID, 5, body)
        assert answer.error_code == ErrorCode.NONE
        return cls(broker, transactional_id, answer.producer_id, answer.producer_epoch)

    async def add(
        self, version: int, *partitions: int, topic: str = "orders", verify_only: bool = False
    ) -> list[ErrorCode]:
        topics = [{"name": topic, "partitions": partitions}]
        if version >= 4:
            transaction = {
                "transactional_id": self.transactional_id,
                "producer_id": self.producer_id,
                "producer_epoch": self.epoch,
                "verify_only": verify_only,
                "topics": topics,
            }
            answer = await self.broker.ask(ADD, version, {"transactions": [transaction]})
            (result,) = answer.results_by_transaction
            assert result.transactional_id == self.transactional_id
            results = result.topic_results
        else:
            body = {
                "v3_and_below_transactional_id": self.transactional_id,
                "v3_and_below_producer_id": self.producer_id,
                "v3_and_below_producer_epoch": self.epoch,
                "v3_and_below_topics": topics,
            }
            results = (await self.broker.ask(ADD, version, body)).results_by_topic_v3_and_below
        (found,) = results
        assert [each.partition_index for each in found.results_by_partition] == list(partitions)
        return [ErrorCode(each.partition_error_code) for each in found.results_by_partition]

    def fields(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    async def add_offsets(self, version: int, group: str) -> ErrorCode:
        answer = await self.broker.ask(OFFSETS, version, {**self.fields(), "group_id": group})
        return ErrorCode(answer.error_code)

    async def end(self, version: int, *, commit: bool) -> Any:
        return await self.broker.ask(END, version, {**self.fields(), "committed": commit})

    async def described(self) -> Any:
        answer = await self.broker.ask(DESCRIBE, 0, {"transactional_ids": [self.transactional_id]})
        return answer.transaction_states[0]

    async def partitions(self) -> list[tuple[str, int]]:
        return [
            (each.topic, number) for each in (await self.described()).topics for number in each.partitions
        ]


@pytest.mark.parametrize("version", versions(ADD))
async def test_partitions_become_part_of_the_transaction(transacting_broker: Any, version: int) -> None:
    producer = await Producer.init(transacting_broker)
    assert await producer.add(version, 0) == [ErrorCode.NONE]
    assert await producer.add(version, 0, 1) == [ErrorCode.NONE, ErrorCode.NONE]
    found = await producer.described()
    assert (found.error_code, found.transaction_state) == (ErrorCode.NONE, "Ongoing")
    assert (found.producer_id, found.producer_epoch, found.transaction_timeout) == (0, 0, 60_000)
    assert await producer.partitions() == [("orders", 0), ("orders", 1)]


@pytest.mark.parametrize("version", versions(ADD))
async def test_where_one_partition_is_not_there_none_is_added(transacting_broker: Any, version: int) -> None:
    producer = await Producer.init(transacting_broker)
    assert await producer.add(version, 0, 7) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert await producer.add(version, 0, topic="nothing") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (await producer.described()).transaction_state == "Empty"


@pytest.mark.parametrize("version", versions(ADD))
async def test_only_brokers_add_partitions_of_internal_topics(transacting_broker: Any, version: int) -> None:
    await transacting_broker.topics.create_topic(GROUP_METADATA_TOPIC, partitions=1)
    producer = await Producer.init(transacting_broker)
    wanted = ErrorCode.NONE if version >= 4 else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert await producer.add(version, 0, topic=GROUP_METADATA_TOPIC) == [wanted]


@pytest.mark.parametrize("version", versions(ADD))
async def test_a_zombie_is_fenced_in_words_that_it_knows(transacting_broker: Any, version: int) -> None:
    zombie = await Producer.init(transacting_broker)
    await Producer.init(transacting_broker)
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert await zombie.add(version, 0, 1) == [fenced, fenced]
    unknown = zombie._replace(producer_id=77)
    assert await unknown.add(version, 0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


@pytest.mark.parametrize("version", versions(ADD)[4:])
async def test_a_broker_asks_without_adding(transacting_broker: Any, version: int) -> None:
    producer = await Producer.init(transacting_broker)
    await producer.add(3, 0)
    missing = ErrorCode.TRANSACTION_ABORTABLE if version >= 5 else ErrorCode.INVALID_TXN_STATE
    assert await producer.add(version, 0, 1, verify_only=True) == [ErrorCode.NONE, missing]
    assert await producer.partitions() == [("orders", 0)]


@pytest.mark.parametrize("version", versions(ADD)[4:])
async def test_brokers_ask_for_several_transactions_at_once(transacting_broker: Any, version: int) -> None:
    producers = [await Producer.init(transacting_broker, each) for each in ("t", "u")]
    transactions = [
        {**each.fields(), "verify_only": False, "topics": [{"name": "orders", "partitions": [number]}]}
        for number, each in enumerate(producers)
    ]
    answer = await transacting_broker.ask(ADD, version, {"transactions": transactions})
    assert [each.transactional_id for each in answer.results_by_transaction] == ["t", "u"]
    assert [await each.partitions() for each in producers] == [[("orders", 0)], [("orders", 1)]]
    nothing = await transacting_broker.ask(ADD, version, {"transactions": []})
    assert nothing.results_by_transaction == ()


@pytest.mark.parametrize("version", versions(OFFSETS))
async def test_the_partition_of_a_group_becomes_part_of_it(transacting_broker: Any, version: int) -> None:
    await transacting_broker.topics.create_topic(GROUP_METADATA_TOPIC, partitions=50)
    producer = await Producer.init(transacting_broker)
    assert await producer.add_offsets(version, "readers") is ErrorCode.NONE
    number = transacting_broker.services.groups.topic.partition_for("readers")
    assert await producer.partitions() == [(GROUP_METADATA_TOPIC, number)]
    zombie = producer._replace(epoch=-1)
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert await zombie.add_offsets(version, "readers") is fenced


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", versions(END))
async def test_a_transaction_ends_and_the_next_begins(
    transacting_broker: Any, version: int, commit: bool
) -> None:
    producer = await Producer.init(transacting_broker)
    await producer.add(3, 0, 1)
    answer = await producer.end(version, commit=commit)
    assert answer.error_code == ErrorCode.NONE
    if version >= 5:
        assert (answer.producer_id, answer.producer_epoch) == (producer.producer_id, producer.epoch + 1)
        producer = producer._replace(epoch=answer.producer_epoch)
    await until_ended(producer, "CompleteCommit" if commit else "CompleteAbort")
    assert await producer.add(5 if version >= 5 else 3, 0) == [ErrorCode.NONE]


async def until_ended(producer: Producer, state: str) -> None:
    """All markers are written, and that they are."""

    async def ended() -> bool:
        return bool((await producer.described()).transaction_state == state)

    await eventually(ended, state)
    assert await producer.partitions() == []


@pytest.mark.parametrize("version", versions(END))
async def test_what_cannot_be_ended(transacting_broker: Any, version: int) -> None:
    producer = await Producer.init(transacting_broker)
    answer = await producer.end(version, commit=True)
    assert answer.error_code == ErrorCode.INVALID_TXN_STATE, "nothing was begun"
    if version >= 5:
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    await producer.add(3, 0)
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await producer._replace(epoch=9).end(version, commit=True)).error_code == fenced
    unknown = producer._replace(transactional_id="nobody")
    assert (await unknown.end(version, commit=True)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await producer.partitions() == [("orders", 0)]


async def test_a_transaction_that_takes_too_long_is_aborted(transacting_broker: Any) -> None:
    producer = await Producer.init(transacting_broker, timeout_ms=1)
    await producer.add(3, 0)
    await until_ended(producer, "CompleteAbort")
    assert await producer.add(3, 0) == [ErrorCode.PRODUCER_FENCED]


async def test_descriptions_have_an_error_each(transacting_broker: Any) -> None:
    await Producer.init(transacting_broker)
    answer = await transacting_broker.ask(DESCRIBE, 0, {"transactional_ids": ["t", "nobody", "", "t"]})
    assert [(each.transactional_id, each.error_code) for each in answer.transaction_states] == [
        ("t", ErrorCode.NONE),
        ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_REQUEST),
    ]


@pytest.mark.parametrize("version", versions(LIST))
async def test_the_list_has_what_passes_the_filters(transacting_broker: Any, version: int) -> None:
    ongoing, _ = [await Producer.init(transacting_broker, each) for each in ("t", "u")]
    await ongoing.add(3, 0)

    async def listed(**filters: Any) -> list[tuple[str, int, str]]:
        body = {
            "state_filters": [],
            "producer_id_filters": [],
            "duration_filter": -1,
            "transactional_id_pattern": None,
        }
        answer = await transacting_broker.ask(LIST, version, body | filters)
        assert answer.error_code == ErrorCode.NONE
        return [(each.transactional_id, each.producer_id, each.transaction_state) for each in answer[3]]

    assert await listed() == [("t", 0, "Ongoing"), ("u", 1, "Empty")]
    assert await listed(state_filters=["Empty"]) == [("u", 1, "Empty")]
    assert await listed(producer_id_filters=[0, 9]) == [("t", 0, "Ongoing")]
    if version >= 1:
        assert await listed(duration_filter=600_000, state_filters=["Ongoing"]) == []
    if version >= 2:
        assert await listed(transactional_id_pattern="[u-z]") == [("u", 1, "Empty")]


async def test_the_list_tells_what_it_does_not_understand(transacting_broker: Any) -> None:
    body = {"state_filters": ["Ongoing", "Lost"], "producer_id_filters": [], "duration_filter": -1}
    answer = await transacting_broker.ask(LIST, 2, body | {"transactional_id_pattern": ""})
    assert (answer.error_code, answer.unknown_state_filters) == (ErrorCode.NONE, ("Lost",))
    answer = await transacting_broker.ask(LIST, 2, body | {"transactional_id_pattern": "("})
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_an_error_is_given_when_the_store_has_confirmed_who_coordinates(
    transacting_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the producer, and comes of what this broker remembers: another may lead the partition already,
    and have begun the transaction."""
    services = transacting_broker.services
    topic = services.transactions.topic
    path = partition_state_path(topic.name, topic.partition_for("t"))
    producer = await Producer.init(transacting_broker)
    multi, questions = services.store.multi, []

    async def asked(operations: Sequence[Op]) -> Any:
        questions.append(operations)
        return await multi(operations)

    monkeypatch.setattr(services.store, "multi", asked)
    answers = await asyncio.gather(*(producer.end(5, commit=True) for _ in range(10)))
    assert {answer.error_code for answer in answers} == {ErrorCode.INVALID_TXN_STATE}
    assert [operation.path for operations in questions for operation in operations] == [path], "one for all"
    node = await services.store.get(path)
    await services.store.set(path, node.data)  # by a controller, whose request is on its way
    assert (await producer.end(5, commit=True)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await producer.add(3, 0) == [ErrorCode.NONE], "what this needs is that the log takes it"


@pytest.mark.parametrize("version", [4, 5])
async def test_an_end_that_is_told_by_the_state_is_given_when_the_store_has_confirmed_who_coordinates(
    transacting_broker: Any, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """It may be of a transaction before the one that is meant, which is open at another coordinator; or the
    producer may have a successor there."""
    services = transacting_broker.services
    topic = services.transactions.topic
    path = partition_state_path(topic.name, topic.partition_for("t"))
    producer = await Producer.init(transacting_broker)
    await producer.add(3 if version < 5 else 5, 0)
    multi, questions = services.store.multi, []

    async def asked(operations: Sequence[Op]) -> Any:
        questions.append([operation.path for operation in operations])
        return await multi(operations)

    monkeypatch.setattr(services.store, "multi", asked)
    assert (await producer.end(version, commit=True)).error_code == ErrorCode.NONE
    assert questions == [], "the log has taken it"

    async def is_complete() -> bool:
        return bool((await producer.described()).transaction_state == "CompleteCommit")

    await eventually(is_complete, "the markers are written")
    assert (await producer.end(version, commit=True)).error_code == ErrorCode.NONE
    assert questions == [[path]]
    node = await services.store.get(path)
    await services.store.set(path, node.data)  # by a controller, whose request is on its way
    assert (await producer.end(version, commit=True)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_an_error_is_not_given_while_the_store_is_away(transacting_broker: Any) -> None:
    producer = await Producer.init(transacting_broker)
    zombie = producer._replace(epoch=7)
    assert await zombie.add(5, 0) == [ErrorCode.PRODUCER_FENCED]
    await transacting_broker.services.store.close()
    assert await zombie.add(5, 0) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


async def test_an_error_is_not_given_when_the_partition_was_lost_and_regained_meanwhile(
    transacting_broker: Any,
) -> None:
    """The store confirms the leader epoch of now; the error is of the epoch before it."""
    services = transacting_broker.services
    topic = services.transactions.topic
    topic_partition = TopicPartition(topic.name, topic.partition_for("t"))
    partition = services.replica_manager.partitions[topic_partition]
    producer = await Producer.init(transacting_broker)
    partition.leader_epoch += 1  # regained, and the coordinator's shard has not heard of it yet
    assert (await producer.end(5, commit=True)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    partition.leader_epoch -= 1
    assert (await producer.end(5, commit=True)).error_code == ErrorCode.INVALID_TXN_STATE


async def test_an_error_that_comes_up_during_a_question_has_the_next_one(
    transacting_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the store answers may be older than the error."""
    services = transacting_broker.services
    producer = await Producer.init(transacting_broker)
    multi, asked, may_answer = services.store.multi, asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def paused(operations: Sequence[Op]) -> Any:
        asked.release()
        await may_answer.acquire()
        return await multi(operations)

    monkeypatch.setattr(services.store, "multi", paused)
    first = asyncio.create_task(producer.end(5, commit=True))
    await asked.acquire()
    second = asyncio.create_task(producer.end(4, commit=True))
    await transacting_broker.ask(LIST, 0, {"state_filters": [], "producer_id_filters": []})  # second is there
    may_answer.release()
    assert (await first).error_code == ErrorCode.INVALID_TXN_STATE
    await asked.acquire()
    assert not second.done()
    may_answer.release()
    assert (await second).error_code == ErrorCode.INVALID_TXN_STATE


async def test_whoever_waits_for_the_store_is_answered_when_the_question_itself_fails(
    transacting_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await Producer.init(transacting_broker)

    async def failing(operations: Sequence[Op]) -> Any:
        raise RuntimeError("a defect of the store's client")

    monkeypatch.setattr(transacting_broker.services.store, "multi", failing)
    answers = await asyncio.gather(*(producer.end(5, commit=True) for _ in range(2)))
    assert {answer.error_code for answer in answers} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
