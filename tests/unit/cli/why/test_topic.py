"""Why a topic is not deleted: from facts to reasons."""

from __future__ import annotations

from typing import Any

from minikafka.cli.why.answer import Reason
from minikafka.cli.why.topic import TopicFacts, reasons_of
from minikafka.types import BrokerId, ReplicaAssignment, TopicPartition
from tests.unit.cli.why.test_partition import parses

MOVING = {TopicPartition("orders", 1): ReplicaAssignment((BrokerId(1),), (), ())}


def replica(broker: int, state: str = "DELETION_STARTED", *, alive: bool = True) -> dict[str, Any]:
    return {"partition": 0, "broker": broker, "state": state, "alive": alive}


def deletion(**more: Any) -> dict[str, Any]:
    given = {
        "known": True,
        "to_be_deleted": True,
        "waits_for_reassignment": False,
        "ineligible": False,
        "started": True,
        "enabled": True,
        "deleted_replicas": 1,
        "replicas_left": [replica(2)],
    }
    return given | more


def first(**more: Any) -> Reason:
    given: dict[str, Any] = {"topic": "orders", "exists": True, "controller": 1}
    return reasons_of(TopicFacts(**given | more))[0]


def test_it_is_gone() -> None:
    assert reasons_of(TopicFacts(topic="orders", exists=False, controller=1)) == []


def test_it_is_under_way() -> None:
    reason = first(deletion=deletion())
    assert reason.code == "topic.under-way" and "left to delete: 1 replica" in reason.sentence


def test_a_broker_that_has_a_replica_is_away() -> None:
    left = [replica(2), replica(3, "DELETION_INELIGIBLE", alive=False)]
    assert "broker 3, which has a replica" in first(deletion=deletion(replicas_left=left)).sentence


def test_a_broker_could_not_delete_its_replica() -> None:
    left = [replica(3, "DELETION_INELIGIBLE")]
    reason = first(deletion=deletion(replicas_left=left, ineligible=True))
    assert reason.code == "topic.ineligible" and "broker 3 could not" in reason.sentence


def test_a_reassignment_has_to_end_first() -> None:
    waits = deletion(to_be_deleted=False, waits_for_reassignment=True)
    assert "(orders-1)" in first(deletion=waits, under_way=MOVING).sentence


def test_it_cannot_be_deleted_at_all() -> None:
    assert first(broker={"delete.topic.enable": "false"}).code == "topic.disabled"
    assert first(controller=-1).code == "topic.no-controller"


def test_nobody_asks_for_it() -> None:
    asked = deletion(to_be_deleted=False, replicas_left=[])
    made = {"auto.create.topics.enable": "true"}
    assert first(deletion=asked, broker=made).code == "topic.made-again"
    reason = first(deletion=asked, broker={"auto.create.topics.enable": "false"})
    assert reason.code == "topic.not-asked-for" and parses(reason.remedy)
    assert "nobody asks" not in first().sentence, "Apache Kafka does not say"
