"""``minikafka why produce``: why a produce waits, was refused, was throttled, or was a duplicate.

Offsets and replicas come by Kafka's APIs. What waits in the purgatory, what was refused lately, throttles and
duplicates only brokers of minikafka remember.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from minikafka.cli.quotas import SeenThrottle, last_throttles
from minikafka.cli.why import fetch
from minikafka.cli.why import partition as partitions
from minikafka.cli.why.answer import Answer, Page, Reason, answer, counted
from minikafka.cli.why.cluster import Cluster
from minikafka.config.client_quotas import CLIENT_ID, QuotaType
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.types import NO_LEADER, TopicPartition
from minikafka.units import format_duration

RECENT_MS: Final = 600_000
"""Refusals and throttles of longer ago are not what is asked about."""
OF_PRODUCERS = (QuotaType.PRODUCE, QuotaType.REQUEST)
ROWS_MAX = 20
PARTITIONS_MAX: Final = 50
"""Of a topic, when no partition is named: each takes a dozen requests."""

NO_MORE_THAN_A_NAME: Final[Mapping[str, str]] = {
    "NOT_LEADER_OR_FOLLOWER": "the client went to a broker that does not lead it (any more); it asks again",
    "UNKNOWN_TOPIC_OR_PARTITION": "the broker has no such partition",
    "OUT_OF_ORDER_SEQUENCE_NUMBER": "a batch before it is missing; the producer has to start over",
    "INVALID_PRODUCER_EPOCH": "another producer with the same transactional.id has fenced it",
    "TOPIC_AUTHORIZATION_FAILED": "no ACL allows its user to write: minikafka why client says which",
}
"""Errors that come without a message."""


class ProduceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was gathered of one partition."""

    at: TopicPartition
    client_id: str | None = None
    partition: partitions.PartitionFacts
    fetch: fetch.FetchFacts | None = None
    """Offsets and replicas; None: it has no leader that answers."""
    waiting: Sequence[Mapping[str, Any]] = ()
    """Produces in the leader's purgatory."""
    refusals: Sequence[Mapping[str, Any]] = ()
    """The newest first."""
    throttles: Sequence[SeenThrottle] = ()
    now_ms: int = 0


def waits(facts: ProduceFacts) -> Sequence[Reason]:
    if not facts.waiting:
        return ()
    longest = max(facts.waiting, key=lambda each: int(each["waited_ms"]))
    held = fetch.held_by_replica(facts.fetch) if facts.fetch is not None else ()
    why = "its records are not committed yet"
    evidence: dict[str, Any] = {}
    if held:
        why = held[0].sentence
        evidence |= held[0].evidence
    evidence["produces that wait"] = [
        {
            "for offset": each["required_offset"],
            "for ms": each["waited_ms"],
            "left ms": each["left_ms"],
        }
        for each in facts.waiting[:ROWS_MAX]
    ]
    return [
        Reason(
            code="produce.waits",
            sentence=f"waiting in {facts.at}: {counted(len(facts.waiting), 'produce')} with acks=all, the "
            f"longest for {format_duration(longest['waited_ms'])}, and for "
            f"{format_duration(longest['left_ms'])} more at most: {why}",
            page=Page.PURGATORY,
            evidence=evidence,
        )
    ]


def will_be_refused(facts: ProduceFacts) -> Sequence[Reason]:
    """A produce that comes now."""
    return [*partitions.offline(facts.partition), *partitions.under_min_isr(facts.partition)]


def refused(facts: ProduceFacts) -> Sequence[Reason]:
    recent = [each for each in facts.refusals if each["last_ms_ago"] < RECENT_MS]
    if facts.client_id is not None:
        recent = [each for each in recent if each["client_id"] == facts.client_id]
    if not recent:
        return ()
    last = recent[0]
    message = last["message"] or NO_MORE_THAN_A_NAME.get(last["error"], "the broker says no more")
    times = "once" if last["count"] == 1 else f"{last['count']} times"
    return [
        Reason(
            code=f"produce.refused.{last['error'].lower().replace('_', '-')}",
            sentence=f"{last['client_id'] or 'a client'} was refused {times} to write to {last['about']}, "
            f"the last time {format_duration(last['last_ms_ago'])} ago, with {last['error']}: {message}",
            page=Page.ISR if "REPLICAS" in last["error"] else Page.REFUSED,
            evidence={
                "refused": [
                    {
                        "last ms ago": each["last_ms_ago"],
                        "times": each["count"],
                        "client": each["client_id"],
                        "user": each["user"],
                        "host": each["host"],
                        "error": each["error"],
                        "message": each["message"],
                    }
                    for each in recent[:ROWS_MAX]
                ]
            },
        )
    ]


def throttled(facts: ProduceFacts) -> Sequence[Reason]:
    recent = [each for each in facts.throttles if facts.now_ms - each.throttle.at_ms < RECENT_MS]
    if not recent:
        return ()
    last = max(recent, key=lambda each: each.throttle.at_ms)
    throttle = last.throttle
    who = throttle.client_id or throttle.user
    ago = format_duration(facts.now_ms - throttle.at_ms)
    return [
        Reason(
            code="produce.throttled",
            sentence=f"{who} was throttled by broker {last.broker} {ago} ago for "
            f"{format_duration(throttle.throttle_time_ms)}, because of {throttle.quota.value}: "
            f"{throttle.formula}",
            page=Page.THROTTLES,
            evidence={
                "throttles": [
                    {
                        "ms ago": facts.now_ms - each.throttle.at_ms,
                        "broker": each.broker,
                        "client": each.throttle.client_id,
                        "user": each.throttle.user,
                        "quota": each.throttle.quota.value,
                        "observed": each.throttle.observed,
                        "bound": each.throttle.bound,
                        "throttled ms": each.throttle.throttle_time_ms,
                    }
                    for each in recent[-ROWS_MAX:]
                ]
            },
            remedy=f"minikafka quotas describe{facts.partition.connection} shows the quotas that are set",
        )
    ]


def duplicated(facts: ProduceFacts) -> Sequence[Reason]:
    found = (facts.partition.document or {}).get("duplicates")
    if not found:
        return ()
    return [
        Reason(
            code="produce.duplicate",
            sentence=f"{counted(found['count'], 'batch', 'batches')} came to {facts.at} again, the last one "
            f"{format_duration(found['last_ms_ago'])} ago: producer {found['producer_id']} had no answer to "
            f"its first try, and was told that the batch is at offset {found['offset']}; nothing is there "
            "twice",
            page=Page.IDEMPOTENCE,
            evidence={
                "batches": found["count"],
                "last ms ago": found["last_ms_ago"],
                "producer id": found["producer_id"],
                "offset": found["offset"],
            },
        )
    ]


LOOKS = (will_be_refused, waits, refused, duplicated, throttled)


def answer_of(facts: ProduceFacts, unknown: Sequence[str] = ()) -> Answer:
    reasons = [reason for look in LOOKS for reason in look(facts)]
    otherwise = (
        f"nothing keeps a produce to {facts.at} from its answer: it has a leader, enough replicas are in "
        f"sync, none waits, and none was refused or throttled in the last {format_duration(RECENT_MS)}"
    )
    if unknown:  # then it is not known whether any waits, or was refused
        otherwise = f"{facts.at} has a leader, and enough of its replicas are in sync for a produce"
    return answer(f"produce to {facts.at}", reasons, otherwise=otherwise, unknown=unknown)


# Gathering


async def why(cluster: Cluster, at: TopicPartition, *, client_id: str | None) -> Answer:
    """Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION. BrokerUnavailable: no broker answers."""
    return answer_of(await gather(cluster, at, client_id=client_id), cluster.unknown)


async def why_topic(cluster: Cluster, topic: str, *, client_id: str | None) -> Answer:
    """Of all partitions of a topic. Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION."""
    there = list(await cluster.admin.partitions([topic]))
    if not there:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}: there is no such topic")
    if len(there) > PARTITIONS_MAX:
        cluster.unknown.append(f"how it is with partitions {PARTITIONS_MAX} and up: name one of them")
    found = [await gather(cluster, at, client_id=client_id) for at in there[:PARTITIONS_MAX]]
    reasons = [reason for look in LOOKS for facts in found for reason in look(facts)]
    once = list({reason.sentence: reason for reason in reasons}.values())  # throttles are of no partition
    otherwise = f"nothing keeps a produce to {topic} from its answer, as far as is known"
    return answer(f"produce to {topic}", once, otherwise=otherwise, unknown=cluster.unknown)


async def gather(cluster: Cluster, at: TopicPartition, *, client_id: str | None) -> ProduceFacts:
    found = await partitions.gather(cluster, at)
    leader = found.now.leader
    waiting = None
    fetch_facts = None
    if leader != NO_LEADER and leader in found.live:
        fetch_facts = await fetch.gather(cluster, at, offset=None, is_read_committed=False)
        waiting = await cluster.diagnostics(
            "waiting", leader, "which produces wait now", topic=at.topic, partition=at.partition
        )
    return ProduceFacts(
        at=at,
        client_id=client_id,
        partition=found,
        fetch=fetch_facts,
        waiting=(waiting or {}).get("produce", ()),
        refusals=await refusals(cluster, found.live, what="produce", about=str(at)),
        throttles=await throttles(cluster, found.live, client_id, OF_PRODUCERS),
        now_ms=cluster.clock.now_ms(),
    )


async def refusals(cluster: Cluster, brokers: frozenset[int], **arguments: str) -> list[dict[str, Any]]:
    """Of all brokers, because clients ask the wrong ones too; the newest first."""
    found = []
    for broker in sorted(brokers):
        document = await cluster.diagnostics("refusals", broker, "what was refused lately", **arguments)
        found += [{**each, "broker": broker} for each in (document or {}).get("refusals", ())]
    return sorted(found, key=lambda each: int(each["last_ms_ago"]))


async def throttles(
    cluster: Cluster, brokers: frozenset[int], client_id: str | None, quotas: Sequence[QuotaType]
) -> list[SeenThrottle]:
    found: list[SeenThrottle] = []
    for broker in sorted(brokers):
        try:
            entity = {} if client_id is None else {CLIENT_ID: client_id}
            found += await last_throttles(cluster.admin, broker, entity)
        except (BrokerUnavailable, KafkaError):
            cluster.unknown.append(f"whether broker {broker} has throttled a client: it does not say")
    return sorted(
        (each for each in found if each.throttle.quota in quotas), key=lambda each: each.throttle.at_ms
    )
