"""ISR changes of a leader on their way to the controller: what it answers, when it does not, and who writes
where it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from minikafka.config.broker import broker_config
from minikafka.coordination.store import ConnectionLossError
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.control import ListenerEndpoint, LiveBroker, UpdateMetadataRequest
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.replication.partition_replicas import IsrChange, IsrOutcome, IsrRefused, IsrReread, IsrWritten
from minikafka.server.cluster.broker_connection import ControllerConnection
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.controller.alter_partition import (
    AlterPartitionManager,
    CurrentState,
    Outcome,
    ProposedIsr,
)
from minikafka.types import BrokerId, LeaderEpoch, PartitionState, TopicPartition
from tests.unit.server.virtual_time import in_virtual_time, passing

LEADER, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
EPOCH, VERSION, BROKER_EPOCH = LeaderEpoch(5), 7, 40
TOPIC_ID = UUID(int=1)
AT = TopicPartition("t", 0)

Answer = Callable[[Any], Any]


def change(*isr: BrokerId, partition: int = 0) -> IsrChange:
    return IsrChange(
        TopicPartition("t", partition), TOPIC_ID, EPOCH, isr, VERSION, 4, 2, (-1, 50)[: len(isr)]
    )


def answered(
    *isr: int, error: int = 0, leader: int = LEADER, epoch: int = EPOCH, version: int = VERSION + 1
) -> Any:
    """One partition of a response."""
    return SimpleNamespace(
        partition_index=0,
        error_code=error,
        leader_id=leader,
        leader_epoch=epoch,
        isr=isr,
        leader_recovery_state=0,
        partition_epoch=version,
        eligible_leader_replicas=(),
    )


def response(*partitions: Any, error: int = 0) -> Any:
    topic = SimpleNamespace(topic_id=TOPIC_ID, partitions=partitions)
    return SimpleNamespace(error_code=error, topics=[topic])


class Client:
    """A connection to a broker that answers as it is told; an exception is raised, None is never answered."""

    is_connected = True

    def __init__(self, world: World, port: int) -> None:
        self.world, self.port = world, port

    async def request(self, key: int, body: Any, *, deadline_ms: int, version: int | None = None) -> Any:
        assert (key, version) == (ApiKey.ALTER_PARTITION, 3)
        self.world.asked.append((self.port, body))
        answer = self.world.answers.pop(0)
        if answer is None:
            await asyncio.sleep(deadline_ms / 1000)
            raise BrokerUnavailable("no answer in time")
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        self.world.closed.append(self.port)


class World:
    """A leader; the controller of the moment; and the store, as far as the leader looks into it."""

    def __init__(self) -> None:
        self.metadata = MetadataCache()
        self.answers: list[Any] = []
        self.asked: list[tuple[int, Any]] = []
        """The controller's port, and the body."""
        self.closed: list[int] = []
        self.outcomes: list[IsrOutcome] = []
        self.written_directly: list[IsrChange] = []
        self.in_store: list[IsrOutcome | Exception] = []
        self.is_controller = False
        self.own_outcomes: list[Outcome] = []
        self.own_asked: list[ProposedIsr] = []
        config = broker_config({"node.id": "1", "log.dirs": "nowhere"})
        connection = ControllerConnection(self.metadata, config, node_id=LEADER, connect=self._connect)
        self.manager = AlterPartitionManager(
            self,  # type: ignore[arg-type]
            connection,
            self,  # type: ignore[arg-type]
            node_id=LEADER,
            broker_epoch=lambda: BROKER_EPOCH,
        )

    async def _connect(self, host: str, port: int, **_: Any) -> Any:
        return Client(self, port)

    def controller_is(self, node_id: BrokerId, *, is_of_0_2: bool = False) -> None:
        endpoint = ListenerEndpoint("PLAINTEXT", "h", 9090 + node_id)
        live = LiveBroker(node_id, 1, (endpoint,), is_of_0_2=is_of_0_2)
        self.metadata.update(UpdateMetadataRequest(node_id, 1, -1, (), (live,), False))

    def ask_for(self, *changes: IsrChange) -> None:
        for each in changes:
            self.manager.submit(each, self.outcomes.append)

    # Of the ControllerLoop

    async def alter_partitions(self, leader: BrokerId, proposed: Sequence[ProposedIsr]) -> list[Outcome]:
        assert leader == LEADER
        self.own_asked += proposed
        return self.own_outcomes

    # Of the IsrManager

    def submit(self, change: IsrChange, done: Callable[[IsrOutcome], object]) -> None:
        self.written_directly.append(change)

    async def outcome_of(self, change: IsrChange) -> IsrOutcome:
        found = self.in_store.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    made = World()
    made.controller_is(TWO)
    task = asyncio.create_task(made.manager.run())
    yield made
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


@in_virtual_time
async def test_the_controller_is_told_all_that_it_needs_to_decide() -> None:
    async with world() as leader:
        leader.answers = [response(answered(1, 2))]
        leader.ask_for(change(LEADER, TWO))
        await passing(10)
        assert leader.outcomes == [IsrWritten(VERSION + 1, (LEADER, TWO))]
        ((port, body),) = leader.asked
        assert port == 9092
        assert body == {
            "broker_id": LEADER,
            "broker_epoch": BROKER_EPOCH,
            "topics": [
                {
                    "topic_id": TOPIC_ID,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "leader_epoch": EPOCH,
                            "new_isr_with_epochs": [
                                {"broker_id": LEADER, "broker_epoch": BROKER_EPOCH},
                                {"broker_id": TWO, "broker_epoch": 50},
                            ],
                            "leader_recovery_state": 0,
                            "partition_epoch": VERSION,
                            "min_isr": 2,
                        }
                    ],
                }
            ],
        }


@pytest.mark.parametrize(
    ("answer", "in_store", "outcome"),
    [
        (answered(1, 3), None, IsrReread((LEADER, THREE), VERSION + 1)),
        (answered(1, 2, leader=THREE), None, IsrRefused("t-0 is led by broker 3 since epoch 5")),
        (answered(1, 2, epoch=6), None, IsrRefused("t-0 is led by broker 1 since epoch 6")),
        (answered(error=ErrorCode.FENCED_LEADER_EPOCH), IsrRefused("led by 3"), IsrRefused("led by 3")),
        (answered(error=ErrorCode.UNKNOWN_TOPIC_ID), IsrRefused("gone"), IsrRefused("gone")),
        (
            answered(error=ErrorCode.INVALID_UPDATE_VERSION),
            IsrReread((LEADER,), VERSION + 1, (TWO,)),
            IsrReread((LEADER,), VERSION + 1, (TWO,)),
        ),
        (
            answered(error=ErrorCode.INELIGIBLE_REPLICA),
            IsrReread((LEADER,), VERSION),
            IsrReread((LEADER,), VERSION),
        ),
    ],
)
@in_virtual_time
async def test_what_comes_of_a_change(answer: Any, in_store: IsrOutcome | None, outcome: IsrOutcome) -> None:
    async with world() as leader:
        leader.answers = [response(answer)]
        leader.in_store = [] if in_store is None else [in_store]
        leader.ask_for(change(LEADER, TWO))
        await passing(10)
        assert leader.outcomes == [outcome]


@pytest.mark.parametrize(
    ("answer", "in_store"),
    [
        (response(error=ErrorCode.NOT_CONTROLLER), []),
        (response(error=ErrorCode.STALE_BROKER_EPOCH), []),
        (response(error=ErrorCode.COORDINATOR_NOT_AVAILABLE), []),
        (BrokerUnavailable("it is gone"), []),
        (KafkaError(ErrorCode.UNSUPPORTED_VERSION, "no common version"), []),
        (response(), [IsrReread((LEADER,), VERSION)]),
        (response(answered(error=ErrorCode.NOT_CONTROLLER)), [IsrReread((LEADER,), VERSION)]),
        # The store that is asked has not heard of it yet, or is away.
        (response(answered(error=ErrorCode.INVALID_UPDATE_VERSION)), [IsrReread((LEADER,), VERSION)]),
        (response(answered(error=ErrorCode.INELIGIBLE_REPLICA)), [IsrReread((LEADER,), VERSION - 1)]),
        (response(answered(error=ErrorCode.FENCED_LEADER_EPOCH)), [ConnectionLossError("no answer")]),
    ],
)
@in_virtual_time
async def test_what_is_asked_again_until_it_is_known(answer: Any, in_store: list[Any]) -> None:
    async with world() as leader:
        leader.answers = [answer, answer, response(answered(1, 2))]
        leader.in_store = in_store * 2
        leader.ask_for(change(LEADER, TWO))
        await passing(49)
        assert (len(leader.asked), leader.outcomes) == (1, [])
        await passing(110)
        assert len(leader.asked) == 3
        assert leader.outcomes == [IsrWritten(VERSION + 1, (LEADER, TWO))]


@in_virtual_time
async def test_a_controller_that_hangs_is_given_up_when_there_is_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world() as leader:
        leader.answers = [None, response(answered(1, 2))]
        leader.ask_for(change(LEADER, TWO))
        await passing(5_000)
        assert leader.outcomes == []
        leader.controller_is(THREE)
        await passing(100)
        assert [port for port, _ in leader.asked] == [9092, 9093]
        assert 9092 in leader.closed
        assert leader.outcomes == [IsrWritten(VERSION + 1, (LEADER, TWO))]
        assert "ISR changes wait for the controller: NOT_CONTROLLER: broker 2 is not" in caplog.text


@in_virtual_time
async def test_what_comes_meanwhile_goes_with_the_next_request() -> None:
    async with world() as leader:
        leader.answers = [None, None]
        leader.ask_for(change(LEADER, TWO))
        await passing(1)
        leader.ask_for(change(LEADER, TWO, partition=1), change(LEADER, partition=2))
        leader.controller_is(THREE)
        await passing(60)
        partitions = [each["partition_index"] for each in leader.asked[1][1]["topics"][0]["partitions"]]
        assert partitions == [0, 1, 2]


@in_virtual_time
async def test_a_broker_that_is_the_controller_asks_itself() -> None:
    async with world() as leader:
        leader.is_controller = True
        state = PartitionState(LEADER, EPOCH, (LEADER, TWO), 4)
        leader.own_outcomes = [CurrentState(state, VERSION + 1)]
        leader.ask_for(change(LEADER, TWO))
        await passing(1)
        assert leader.outcomes == [IsrWritten(VERSION + 1, (LEADER, TWO))]
        assert leader.own_asked == [
            ProposedIsr(AT, EPOCH, VERSION, (LEADER, TWO), broker_epochs=(BROKER_EPOCH, 50), min_isr=2)
        ]
        assert leader.asked == []


@in_virtual_time
async def test_the_leader_writes_itself_under_a_controller_of_0_2() -> None:
    async with world() as leader:
        leader.controller_is(TWO, is_of_0_2=True)
        leader.ask_for(change(LEADER, TWO))
        await passing(1)
        assert (leader.written_directly, leader.asked) == ([change(LEADER, TWO)], [])


@in_virtual_time
async def test_the_leader_itself_clears_eligible_replicas_that_the_controller_does_not_know_of() -> None:
    """Apache Kafka's sees the same members, and writes nothing."""
    async with world() as leader:
        leader.answers = [response(answered(1, 2, version=VERSION))]
        leader.ask_for(change(LEADER, TWO))
        await passing(1)
        assert (leader.written_directly, leader.outcomes) == ([change(LEADER, TWO)], [])
