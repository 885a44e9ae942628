"""What leaders ask the controller for: written, there already, or refused with Kafka's error."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from minikafka.coordination import paths
from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.cluster.registration import Election
from minikafka.server.controller.alter_partition import CurrentState, Outcome, ProposedIsr, alter_partitions
from minikafka.types import BrokerId, LeaderEpoch, PartitionState, TopicPartition
from tests.unit.server.virtual_store import open_store
from tests.unit.server.virtual_time import in_virtual_time

LEADER, TWO, GONE = BrokerId(1), BrokerId(2), BrokerId(3)
EPOCH = LeaderEpoch(5)
AT = TopicPartition("t", 0)
STATE = PartitionState(LEADER, EPOCH, (LEADER,), 4, eligible=(TWO,))


class Asking:
    """A leader that asks the controller of epoch 6."""

    def __init__(self, store: Any, election: Election, version: int, epochs: dict[BrokerId, int]) -> None:
        self.store, self.election, self.version, self.epochs = store, election, version, epochs

    async def ask(self, *proposed: ProposedIsr, leader: BrokerId = LEADER) -> list[Outcome]:
        return await alter_partitions(self.store, self.election, leader, proposed)

    async def state(self) -> PartitionState:
        return paths.decode_partition_state(
            "t", 0, (await self.store.get(paths.partition_state_path("t", 0))).data
        )


@asynccontextmanager
async def asking(directory: Path, state: PartitionState = STATE) -> AsyncIterator[Asking]:
    store = await open_store(directory)
    try:
        for path in paths.PERSISTENT_PATHS:
            await store.ensure_path(path)
        epochs = {}
        for node_id in (LEADER, TWO):
            registration = paths.BrokerRegistration((paths.Endpoint("PLAINTEXT", "h", 1),), 0)
            await store.create(paths.broker_path(node_id), paths.encode_broker(registration), ephemeral=True)
            stat = await store.exists(paths.broker_path(node_id))
            assert stat is not None
            epochs[node_id] = stat.czxid
        path = paths.partition_state_path("t", 0)
        await store.ensure_path(path)
        version = (await store.set(path, paths.encode_partition_state(state))).version
        await store.ensure_path(paths.CONTROLLER_EPOCH)
        term = (await store.set(paths.CONTROLLER_EPOCH, b"6")).version
        yield Asking(store, Election(6, term), version, epochs)
    finally:
        await store.close()


@in_virtual_time
async def test_a_larger_isr_is_written_and_found_there_when_asked_again(tmp_path: Path) -> None:
    async with asking(tmp_path) as world:
        proposed = ProposedIsr(AT, EPOCH, world.version, (LEADER, TWO))
        written = PartitionState(LEADER, EPOCH, (LEADER, TWO), 6)
        assert await world.ask(proposed) == [CurrentState(written, world.version + 1)]
        assert await world.state() == written, "no eligible replica is left"
        assert await world.ask(proposed) == [CurrentState(written, world.version + 1)], "its answer was lost"


@in_virtual_time
async def test_who_leaves_an_isr_that_becomes_too_small_stays_eligible_until_the_leader_clears_it(
    tmp_path: Path,
) -> None:
    """KIP-966, for a leader that says what its min.insync.replicas is."""
    async with asking(tmp_path, PartitionState(LEADER, EPOCH, (LEADER, TWO), 4)) as world:
        smaller = ProposedIsr(AT, EPOCH, world.version, (LEADER,), min_isr=2)
        written = PartitionState(LEADER, EPOCH, (LEADER,), 6, eligible=(TWO,))
        assert await world.ask(smaller) == [CurrentState(written, world.version + 1)]
        assert await world.ask(smaller) == [CurrentState(written, world.version + 1)], "its answer was lost"
        cleared = ProposedIsr(AT, EPOCH, world.version + 1, (LEADER,), min_isr=1)
        written = PartitionState(LEADER, EPOCH, (LEADER,), 6)
        assert await world.ask(cleared) == [CurrentState(written, world.version + 2)]
        assert await world.state() == written


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"leader_epoch": LeaderEpoch(4)}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": LeaderEpoch(6)}, ErrorCode.NOT_CONTROLLER),
        ({"version": 1}, ErrorCode.NOT_CONTROLLER),
        ({"version": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"isr": (LEADER, GONE)}, ErrorCode.INELIGIBLE_REPLICA),
        ({"isr": ()}, ErrorCode.INVALID_REQUEST),
        ({"is_recovering": True}, ErrorCode.INVALID_REQUEST),
        ({"restarted": True}, ErrorCode.INELIGIBLE_REPLICA),
        ({"topic_partition": TopicPartition("t", 9)}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
@in_virtual_time
async def test_what_may_not_be_is_refused_and_changes_nothing(
    tmp_path: Path, changes: dict[str, Any], code: ErrorCode
) -> None:
    async with asking(tmp_path) as world:
        epoch_of_two = world.epochs[TWO] - bool(changes.get("restarted"))
        proposed = ProposedIsr(
            changes.get("topic_partition", AT),
            changes.get("leader_epoch", EPOCH),
            world.version + changes.get("version", 0),
            changes.get("isr", (LEADER, TWO)),
            changes.get("is_recovering", False),
            (world.epochs[LEADER], epoch_of_two) if "isr" not in changes else (),
        )
        good = ProposedIsr(AT, EPOCH, world.version, (LEADER, TWO))
        assert await world.ask(proposed) == [code]
        assert await world.state() == STATE
        refused, _ = await world.ask(proposed, good._replace(topic_partition=TopicPartition("t", 9)))
        assert refused == code


@in_virtual_time
async def test_another_broker_than_the_leader_is_fenced(tmp_path: Path) -> None:
    async with asking(tmp_path) as world:
        proposed = ProposedIsr(AT, EPOCH, world.version, (TWO,))
        assert await world.ask(proposed, leader=TWO) == [ErrorCode.FENCED_LEADER_EPOCH]


@in_virtual_time
async def test_a_deposed_controller_writes_nothing(tmp_path: Path) -> None:
    async with asking(tmp_path) as world:
        await world.store.set(paths.CONTROLLER_EPOCH, b"7")
        with pytest.raises(KafkaError, match="another broker has become controller"):
            await world.ask(ProposedIsr(AT, EPOCH, world.version, (LEADER, TWO)))
        assert await world.state() == STATE
