"""ElectLeaders in every version: what became of each partition, and who may be asked."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from minikafka.coordination import paths
from minikafka.coordination.store import CreateOp, DeleteOp
from minikafka.errors import ErrorCode
from minikafka.protocol.control import LeaderAndIsrPartition, UpdateMetadataRequest
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.types import NO_LEADER, BrokerId, ElectionType, LeaderEpoch, TopicPartition
from tests.unit.server.running import until

KEY = ApiKey.ELECT_LEADERS
VERSIONS = range(SUPPORTED[KEY].min, SUPPORTED[KEY].max + 1)
PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN
ONE, TWO = BrokerId(1), BrokerId(2)


def asked(
    *partitions: tuple[str, list[int]], election_type: int = PREFERRED, timeout: int = 20_000
) -> dict[str, Any]:
    named = [{"topic": topic, "partitions": numbers} for topic, numbers in partitions]
    return {"election_type": election_type, "topic_partitions": named or None, "timeout": timeout}


def for_version(body: dict[str, Any], version: int) -> dict[str, Any]:
    return {name: value for name, value in body.items() if version or name != "election_type"}


def codes(answer: Any) -> dict[tuple[str, int], ErrorCode]:
    return {
        (topic.topic, each.partition_id): ErrorCode(each.error_code)
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }


def say_leader(broker: Any, leader: BrokerId) -> None:
    """As the controller tells this broker of topic m with the replicas 1 and 2."""
    news = LeaderAndIsrPartition(
        topic="m",
        topic_id=UUID(int=5),
        partition=0,
        controller_epoch=1,
        leader=leader,
        leader_epoch=LeaderEpoch(0),
        isr=(ONE, TWO),
        partition_epoch=0,
        replicas=(ONE, TWO),
    )
    live = tuple(broker.metadata.live_broker(each.node_id) for each in broker.metadata.brokers())
    broker.metadata.update(UpdateMetadataRequest(ONE, 1, 70, (news,), live))


def elect_m0(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller says that it has elected the leader of m-0."""

    async def elected(*args: Any) -> Any:
        return {TopicPartition("m", 0): None}

    monkeypatch.setattr(broker.services.controller, "elect_leaders", elected)


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_partition_has_its_own_outcome(admin_broker: Any, version: int) -> None:
    await admin_broker.topics.create_topic("a", partitions=2)
    body = for_version(asked(("a", [0, 1, 0, 5]), ("x", [0])), version)
    answer = await admin_broker.ask(KEY, version, body)
    assert codes(answer) == {
        ("a", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("a", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("a", 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("x", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    if version >= 1:
        assert answer.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", VERSIONS)
async def test_of_all_partitions_only_those_that_needed_it_are_named(admin_broker: Any, version: int) -> None:
    await admin_broker.topics.create_topic("a", partitions=2)
    assert codes(await admin_broker.ask(KEY, version, for_version(asked(), version))) == {}


@pytest.mark.parametrize("version", VERSIONS)
async def test_only_the_controllers_broker_elects(admin_broker: Any, version: int) -> None:
    registration = paths.encode_controller(paths.ControllerRegistration(BrokerId(9), 0))
    await admin_broker.store.multi(
        [DeleteOp(paths.CONTROLLER), CreateOp(paths.CONTROLLER, registration, ephemeral=True)]
    )
    body = for_version(asked(("a", [0, 1])), version)
    controller = admin_broker.services.controller
    await until(admin_broker.broker, lambda: not controller.is_controller, "another one is the controller")
    answer = await admin_broker.ask(KEY, version, body)
    assert codes(answer) == dict.fromkeys([("a", 0), ("a", 1)], ErrorCode.NOT_CONTROLLER)
    if version >= 1:
        assert answer.error_code == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_an_unknown_kind_of_election_is_refused(admin_broker: Any, version: int) -> None:
    answer = await admin_broker.ask(KEY, version, asked(("a", [0]), election_type=2))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert codes(answer) == {("a", 0): ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize(("election_type", "before"), [(PREFERRED, TWO), (UNCLEAN, NO_LEADER)])
async def test_the_answer_waits_until_this_broker_has_heard_of_the_new_leader(
    admin_broker: Any, monkeypatch: pytest.MonkeyPatch, election_type: ElectionType, before: BrokerId
) -> None:
    elect_m0(admin_broker, monkeypatch)
    say_leader(admin_broker, before)
    answering = asyncio.create_task(admin_broker.ask(KEY, 2, asked(("m", [0]), election_type=election_type)))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not answering.done()
    say_leader(admin_broker, ONE)
    assert codes(await answering) == {("m", 0): ErrorCode.NONE}


async def test_who_does_not_hear_of_it_in_time_says_so(
    admin_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    elect_m0(admin_broker, monkeypatch)
    say_leader(admin_broker, TWO)
    answer = await admin_broker.ask(KEY, 2, asked(("m", [0]), timeout=0))
    assert codes(answer) == {("m", 0): ErrorCode.REQUEST_TIMED_OUT}
    answer = await admin_broker.ask(KEY, 2, asked(("m", [0]), timeout=0, election_type=UNCLEAN))
    assert codes(answer) == {("m", 0): ErrorCode.NONE}
