"""Why a reassignment does not move: from facts to reasons."""

from __future__ import annotations

from typing import Any

from minikafka.cli.cluster.describe import ReplicaState
from minikafka.cli.shared.admin_client import PartitionNow
from minikafka.cli.why.answer import Reason
from minikafka.cli.why.reassignment import MoveFacts, reasons_of
from minikafka.types import BrokerId, ReplicaAssignment, TopicPartition

AT = TopicPartition("orders", 0)
COMING = ReplicaState(3, "900 records behind", 900)


def move(**more: Any) -> Reason:
    one, two, three = map(BrokerId, (1, 2, 3))
    given: dict[str, Any] = {
        "at": AT,
        "assignment": ReplicaAssignment((one, three, two), (three,), (two,)),
        "now": PartitionNow(1, (1, 3, 2), (1, 2), ()),
        "live": frozenset({1, 2, 3}),
        "adding": [COMING],
        "left_bytes": 1_000_000,
        "copied_bytes": 200_000,
        "sample_ms": 2_000,
    }
    (reason,) = reasons_of(MoveFacts(**given | more))
    return reason


def test_it_moves_and_will_be_done() -> None:
    reason = move()
    assert reason.code == "reassignment.moving"
    assert "1.00 MB are left, it copies 100 kB/s, done in about 10 s" in reason.sentence


def test_a_throttle_holds_it_back() -> None:
    reason = move(throttles={"leader.replication.throttled.rate of broker 1": 90_000})
    assert reason.code == "reassignment.throttled"
    assert (
        "under the throttle of 90.0 kB/s (leader.replication.throttled.rate of broker 1)" in reason.sentence
    )
    assert move(throttles={"leader.replication.throttled.rate of broker 1": 10_000}).code.endswith("moving")


def test_nothing_is_copied() -> None:
    reason = move(copied_bytes=0)
    assert reason.code == "reassignment.stuck" and "replica 3 copies nothing: 900 records" in reason.sentence
    assert move(copied_bytes=0, throttles={"rate": 500}).code == "reassignment.throttled"


def test_it_is_not_known_how_fast() -> None:
    assert move(copied_bytes=None).code == "reassignment.copying"


def test_a_broker_that_is_to_get_a_replica_is_away() -> None:
    reason = move(live=frozenset({1, 2}))
    assert reason.code == "reassignment.broker-away" and "broker 3 is to get a replica" in reason.sentence


def test_the_disk_of_the_new_replica_has_failed() -> None:
    assert move(adding=[ReplicaState(3, "its log directory is offline: /b")]).code.endswith("log-directory")


def test_without_a_leader_nobody_can_copy() -> None:
    assert move(now=PartitionNow(-1, (1, 3, 2), (1,), ())).code == "reassignment.no-leader"


def test_all_that_are_to_come_are_in_sync() -> None:
    assert move(adding=[]).code == "reassignment.ending"
