"""What may not be written to the store or given to a consumer, one violation at a time."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from minikafka.coordination import paths
from minikafka.coordination.store import NO_OWNER, CreateOp, DeleteOp, SetOp
from minikafka.errors import InvariantError
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing.simulation.client import SimulatedClient, make_batch
from minikafka.testing.simulation.invariants import InvariantChecker
from minikafka.testing.simulation.simulation import Simulation
from minikafka.types import NO_LEADER, BrokerId, LeaderEpoch, PartitionState

PATH = paths.partition_state_path("t", 0)
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
STATE = PartitionState(ONE, LeaderEpoch(5), (ONE, TWO), controller_epoch=3, eligible=(THREE,))


def state(**changes: Any) -> PartitionState:
    return msgspec.structs.replace(STATE, **changes)


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    made = Simulation(0)
    yield made
    made.loop.close()


def written(simulation: Simulation, *states: PartitionState) -> InvariantChecker:
    """One after the other. The checker has not looked since."""
    checker, tree = InvariantChecker(simulation), simulation.store.tree
    tree.ensure_path(paths.partition_path("t", 0))
    tree.write([CreateOp(PATH, paths.encode_partition_state(STATE))], session_id=NO_OWNER)
    for each in states:
        tree.write([SetOp(PATH, paths.encode_partition_state(each))], session_id=NO_OWNER)
    return checker


@pytest.mark.parametrize(
    "following",
    [
        state(isr=(ONE, TWO, THREE), eligible=()),  # the leader adds a member
        state(leader=TWO, leader_epoch=6, isr=(TWO,)),
        state(leader=THREE, leader_epoch=6, isr=(THREE,), eligible=()),  # which was eligible
        state(leader=NO_LEADER, leader_epoch=6),
        state(controller_epoch=4),
    ],
)
def test_what_may_be_written(simulation: Simulation, following: PartitionState) -> None:
    written(simulation, following).look()


@pytest.mark.parametrize(
    ("following", "broken"),
    [
        (state(leader_epoch=4), "I6"),
        (state(controller_epoch=2), "I14"),
        (state(leader=BrokerId(4), leader_epoch=6, isr=(BrokerId(4),)), "I5"),
        (state(leader=TWO, leader_epoch=6, isr=(TWO, BrokerId(4))), "I12"),
    ],
)
def test_what_may_not_is_found_though_it_is_written_over(
    simulation: Simulation, following: PartitionState, broken: str
) -> None:
    checker = written(simulation, following, state(leader_epoch=9, controller_epoch=9))
    with pytest.raises(InvariantError, match=f"^{broken}: "):
        checker.look()


def test_a_topic_that_is_made_again_has_another_history(simulation: Simulation) -> None:
    checker, tree = written(simulation), simulation.store.tree
    tree.write([DeleteOp(PATH)], session_id=NO_OWNER)
    tree.write([CreateOp(PATH, paths.encode_partition_state(state(leader_epoch=0)))], session_id=NO_OWNER)
    checker.look()


@pytest.mark.parametrize(
    ("read_committed", "bound"), [(False, "high_watermark"), (True, "last_stable_offset")]
)
async def test_a_record_that_is_not_committed_is_not_given(
    monkeypatch: pytest.MonkeyPatch, read_committed: bool, bound: str
) -> None:
    answered = SimpleNamespace(
        error_code=0, records=make_batch([b"a", b"b"]), aborted_transactions=None, high_watermark=2,
        last_stable_offset=2, log_start_offset=0, preferred_read_replica=-1,
    )  # fmt: skip

    async def request(self: SimulatedClient, address: Any, key: ApiKey, body: Any, **options: Any) -> Any:
        return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=[answered])])

    monkeypatch.setattr(SimulatedClient, "request", request)
    client = SimulatedClient([("b", 9092)])
    fetched = await client.fetch("t", 0, 0, read_committed=read_committed, address=("b", 9092))
    assert [record.value for record in fetched.records] == [b"a", b"b"]
    setattr(answered, bound, 1)
    with pytest.raises(InvariantError, match=r"R16: t-0: .* gave 1, above 1"):
        await client.fetch("t", 0, 0, read_committed=read_committed, address=("b", 9092))
