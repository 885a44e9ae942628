"""``minikafka why topic``: why a topic that was deleted is still there. How far a deletion is, only the
controller knows; one of Apache Kafka does not say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from minikafka.cli.shared.admin_client import NO_NODE, broker_resource
from minikafka.cli.why.answer import Answer, Page, Reason, answer, counted
from minikafka.cli.why.cluster import Cluster
from minikafka.errors import KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.types import ReplicaAssignment, TopicPartition

ROWS_MAX = 20


class TopicFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was gathered; ``deletion`` is the controller's diagnostics, None: not known."""

    topic: str
    exists: bool
    controller: int
    deletion: Mapping[str, Any] | None = None
    broker: Mapping[str, str] = {}
    under_way: Mapping[TopicPartition, ReplicaAssignment] = {}
    connection: str = ""


def reasons_of(facts: TopicFacts) -> list[Reason]:
    topic, deletion = facts.topic, facts.deletion or {}
    name = f"topic {topic} is not deleted"
    if facts.broker.get("delete.topic.enable") == "false" and not deletion.get("to_be_deleted"):
        why = f"{name}: delete.topic.enable is false, so requests to delete are refused"
        return [_reason(facts, "disabled", why, "set delete.topic.enable=true on all brokers")]
    if facts.controller == NO_NODE:
        return [_reason(facts, "no-controller", f"{name}: there is no controller to delete it", "")]
    if deletion.get("waits_for_reassignment"):
        moving = ", ".join(str(each) for each in facts.under_way if each.topic == topic)
        why = f"{name}: it is to be, when its reassignment has ended ({moving or 'about to end'})"
        remedy = f"minikafka why reassignment, or minikafka reassign cancel --all{facts.connection}"
        return [_reason(facts, "reassigned", why, remedy)]
    if deletion.get("to_be_deleted"):
        return [_being_deleted(facts, deletion, name)]
    if facts.exists:
        return [_not_asked_for(facts)]
    return []


def _being_deleted(facts: TopicFacts, deletion: Mapping[str, Any], name: str) -> Reason:
    left = deletion["replicas_left"]
    away = sorted({each["broker"] for each in left if not each["alive"]})
    if away:
        ids = ", ".join(map(str, away))
        why = f"{name} yet: it is to be, and broker {ids}, which has a replica, is not registered"
        return _reason(facts, "broker-away", why, f"start broker {ids} again; then it goes on by itself")
    failed = [each for each in left if each["state"] == "DELETION_INELIGIBLE"]
    if failed or deletion["ineligible"]:
        ids = ", ".join(sorted({str(each["broker"]) for each in failed})) or "one of its brokers"
        why = f"{name} yet: broker {ids} could not delete its replica, as with a log directory that failed"
        remedy = f"see the log of broker {ids}, repair, and restart it: then it is tried again"
        return _reason(facts, "ineligible", why, remedy)
    why = f"{name} yet: it is being deleted; left to delete: {counted(len(left), 'replica')}"
    return _reason(facts, "under-way", why, "")


def _not_asked_for(facts: TopicFacts) -> Reason:
    topic = facts.topic
    name = f"topic {topic} is there, and nobody asks for its deletion"
    if facts.deletion is None:
        name = f"topic {topic} is there"
    if facts.broker.get("auto.create.topics.enable") == "true":
        why = (
            f"{name}; if it was deleted, a client has made it again: auto.create.topics.enable is true, so "
            "each producer and consumer that still uses it does"
        )
        remedy = "stop its clients first, or set auto.create.topics.enable=false"
        return _reason(facts, "made-again", why, remedy)
    delete = f"minikafka topics delete --topic {topic}{facts.connection}"
    return _reason(facts, "not-asked-for", name, delete)


def _reason(facts: TopicFacts, code: str, sentence: str, remedy: str) -> Reason:
    deletion = facts.deletion or {}
    evidence: dict[str, Any] = {
        "controller": facts.controller,
        "delete.topic.enable": facts.broker.get("delete.topic.enable"),
        "auto.create.topics.enable": facts.broker.get("auto.create.topics.enable"),
    }
    if deletion:
        evidence |= {
            "to be deleted": deletion["to_be_deleted"],
            "deleted replicas": deletion["deleted_replicas"],
            "replicas that are left": list(deletion["replicas_left"])[:ROWS_MAX],
        }
    return Reason(
        code=f"topic.{code}", sentence=sentence, page=Page.TOPIC_DELETION, evidence=evidence, remedy=remedy
    )


async def why(cluster: Cluster, topic: str) -> Answer:
    """Raises BrokerUnavailable: no broker answers."""
    facts = await gather(cluster, topic)
    otherwise = f"there is no topic {topic}: it is deleted, or never was"
    return answer(f"topic {topic}", reasons_of(facts), otherwise=otherwise, unknown=cluster.unknown)


async def gather(cluster: Cluster, topic: str) -> TopicFacts:
    nodes = await cluster.admin.nodes()
    deletion = None
    if nodes.controller != NO_NODE:
        about = "whether the topic is to be deleted"
        deletion = await cluster.diagnostics("topic-deletion", nodes.controller, about, topic=topic)
    asked = nodes.controller if nodes.controller in nodes.brokers else next(iter(nodes.brokers))
    names = ["delete.topic.enable", "auto.create.topics.enable"]
    try:
        broker = await cluster.values(broker_resource(asked), names, node_id=asked)
    except (BrokerUnavailable, KafkaError):
        broker = {}
    return TopicFacts(
        topic=topic,
        exists=bool(await cluster.admin.partitions([topic])) or bool((deletion or {}).get("known")),
        controller=nodes.controller,
        deletion=deletion,
        broker=broker,
        under_way=await cluster.admin.reassignments() if nodes.controller != NO_NODE else {},
        connection=cluster.connection,
    )
