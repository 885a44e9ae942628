"""``minikafka why reassignment``: why a reassignment does not move, or when it will be done.

Kafka's APIs say what is to come and go, how large the logs are, and which throttles are set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from minikafka.cli.cluster.describe import ReplicaState
from minikafka.cli.reassign.verify import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    bytes_left,
    log_dirs_of,
)
from minikafka.cli.shared.admin_client import PartitionNow, broker_resource
from minikafka.cli.why.answer import Answer, Page, Reason, answer
from minikafka.cli.why.cluster import Cluster
from minikafka.config.definition import LONG_MAX
from minikafka.errors import KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.types import NO_LEADER, ReplicaAssignment, TopicPartition
from minikafka.units import format_bytes, format_duration, format_rate

SLOW_FACTOR = 1.5
"""Copying at less than the throttle times this counts as held back by it."""


class MoveFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was gathered of one partition that is being reassigned; None: not known."""

    at: TopicPartition
    assignment: ReplicaAssignment
    now: PartitionNow
    live: frozenset[int]
    adding: Sequence[ReplicaState] = ()
    """Those that are to come and are not in sync, and why."""
    left_bytes: int | None = None
    copied_bytes: int | None = None
    """Between two looks."""
    sample_ms: int = 0
    throttles: Mapping[str, int] = {}
    """In bytes a second, by what sets them."""
    connection: str = ""


def reasons_of(facts: MoveFacts) -> list[Reason]:
    at, name = facts.at, f"the reassignment of {facts.at}"
    away = [each for each in facts.assignment.target if each not in facts.live]
    cancel = "minikafka reassign cancel --all" + facts.connection
    if facts.now.leader == NO_LEADER:
        where = f"minikafka why partition {at.topic}:{at.partition}{facts.connection}"
        return [_reason(facts, "no-leader", f"{name} does not move: the partition has no leader", where)]
    if away:
        ids = ", ".join(map(str, away))
        why = f"{name} does not end: broker {ids} is to get a replica, and is not registered"
        return [_reason(facts, "broker-away", why, f"start broker {ids}, or {cancel}")]
    broken = [each for each in facts.adding if "log directory" in each.why]
    if broken:
        why = f"{name} does not move: replica {broken[0].broker}: {broken[0].why}"
        return [
            _reason(facts, "log-directory", why, f"repair the disk and restart broker {broken[0].broker}")
        ]
    if not facts.adding:
        return [_reason(facts, "ending", f"{name} is about to end: all that are to come are in sync", "")]
    return [_copying(facts, name)]


def _copying(facts: MoveFacts, name: str) -> Reason:
    rate = None
    if facts.copied_bytes is not None and facts.sample_ms:
        rate = facts.copied_bytes * 1000 / facts.sample_ms
    left = "" if facts.left_bytes is None else f"{format_bytes(facts.left_bytes)} are left"
    bound, set_by = min(((value, each) for each, value in facts.throttles.items()), default=(LONG_MAX, ""))
    is_bound = rate is not None and set_by and rate <= bound * SLOW_FACTOR
    first = facts.adding[0]
    if rate is None:
        return _reason(facts, "copying", f"{name} copies: {left or first.why}", "")
    if is_bound:
        why = f"it copies {format_rate(rate)} under the throttle of {format_rate(bound)} ({set_by})"
        eta = _eta(facts.left_bytes, max(rate, 1.0))
        code = "throttled"
        remedy = (
            "execute the plan again with a higher --throttle; producers that write faster than that are "
            "never caught up with"
        )
    elif rate <= 0:
        return _reason(
            facts, "stuck", f"{name} does not move: replica {first.broker} copies nothing: {first.why}", ""
        )
    else:
        code, why, eta, remedy = "moving", f"it copies {format_rate(rate)}", _eta(facts.left_bytes, rate), ""
    return _reason(
        facts, code, f"{name} moves: {', '.join(each for each in (left, why, eta) if each)}", remedy
    )


def _eta(left_bytes: int | None, rate: float) -> str:
    return "" if left_bytes is None else f"done in about {format_duration(left_bytes * 1000 / rate)}"


def _reason(facts: MoveFacts, code: str, sentence: str, remedy: str) -> Reason:
    evidence: dict[str, Any] = {
        "replicas now": list(facts.now.replicas),
        "in sync": list(facts.now.isr),
        "target": list(facts.assignment.target),
        "adding": list(facts.assignment.adding),
        "removing": list(facts.assignment.removing),
        "left bytes": facts.left_bytes,
        "copied bytes": facts.copied_bytes,
        "measured for ms": facts.sample_ms,
        "throttles": [{"set by": each, "bytes/s": value} for each, value in sorted(facts.throttles.items())],
        "not in sync yet": [{"replica": each.broker, "why": each.why} for each in facts.adding],
    }
    page = Page.REASSIGNMENT_THROTTLES if code == "throttled" else Page.REASSIGNMENT
    return Reason(code=f"reassignment.{code}", sentence=sentence, page=page, evidence=evidence, remedy=remedy)


# Gathering


async def why(cluster: Cluster, at: TopicPartition | None, *, sample_ms: int) -> Answer:
    """Of one partition, or of all that are under way."""
    subject = "reassignments" if at is None else f"reassignment of {at}"
    if at is not None:
        await cluster.partition(at)
    under_way = await cluster.admin.reassignments()
    wanted = {each: under_way[each] for each in under_way if at in (None, each)}
    found = await gather(cluster, wanted, sample_ms=sample_ms) if wanted else []
    otherwise = "nothing is being reassigned" if at is None else f"{at} is not being reassigned"
    reasons = [reason for each in found for reason in reasons_of(each)]
    return answer(subject, reasons, otherwise=otherwise, unknown=cluster.unknown)


async def gather(
    cluster: Cluster, wanted: Mapping[TopicPartition, ReplicaAssignment], *, sample_ms: int
) -> list[MoveFacts]:
    before = await _left(cluster, wanted)
    await asyncio.sleep(sample_ms / 1000)
    left = await _left(cluster, wanted)
    partitions = await cluster.admin.partitions(sorted({each.topic for each in wanted}))
    live = frozenset((await cluster.admin.nodes()).brokers)
    found = []
    for at, assignment in wanted.items():
        if at not in partitions:
            continue
        now = partitions[at]
        dirs = await cluster.log_dirs([each for each in now.replicas if each in live], at)
        late = await cluster.out_of_sync(at, now, dirs)
        then, still = before.get(at), left.get(at)
        found.append(
            MoveFacts(
                at=at,
                assignment=assignment,
                now=now,
                live=live,
                adding=[each for each in late if each.broker in assignment.adding],
                left_bytes=still,
                copied_bytes=None if then is None or still is None else max(then - still, 0),
                sample_ms=sample_ms,
                throttles=await _throttles(cluster, at, now, assignment, live),
                connection=cluster.connection,
            )
        )
    return found


async def _left(
    cluster: Cluster, wanted: Mapping[TopicPartition, ReplicaAssignment]
) -> dict[TopicPartition, int | None]:
    partitions = await cluster.admin.partitions(sorted({each.topic for each in wanted}))
    brokers = sorted((await cluster.admin.nodes()).brokers)
    return bytes_left(wanted, partitions, await log_dirs_of(cluster.admin, brokers, sorted(wanted)))


async def _throttles(
    cluster: Cluster,
    at: TopicPartition,
    now: PartitionNow,
    assignment: ReplicaAssignment,
    live: frozenset[int],
) -> dict[str, int]:
    """The rates that count for copies of this partition."""
    topic = await cluster.topic_values(at.topic, [LEADER_REPLICAS, FOLLOWER_REPLICAS])
    sides = [(now.leader, LEADER_RATE, LEADER_REPLICAS)]
    sides += [(broker, FOLLOWER_RATE, FOLLOWER_REPLICAS) for broker in assignment.adding]
    found: dict[str, int] = {}
    for broker, rate, replicas in sides:
        listed = topic.get(replicas, "")
        if broker not in live or (listed != "*" and f"{at.partition}:{broker}" not in listed.split(",")):
            continue
        try:
            values = await cluster.values(broker_resource(broker), [rate], node_id=broker)
        except (BrokerUnavailable, KafkaError):
            continue
        if int(values.get(rate, LONG_MAX)) < LONG_MAX:
            found[f"{rate} of broker {broker}"] = int(values[rate])
    return found
