"""``minikafka why transaction``: why a transaction does not end. Kafka's own APIs say all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from minikafka.cli.shared.admin_client import PartitionNow
from minikafka.cli.transactions import ProducerState, TransactionDescription
from minikafka.cli.why.answer import Answer, Page, Reason, answer
from minikafka.cli.why.cluster import Cluster
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.types import NO_LEADER, TopicPartition
from minikafka.units import format_duration

GRACE_MS = 20_000
"""A coordinator looks for transactions that take too long every 10 s
(``transaction.abort.timed.out.transaction.cleanup.interval.ms``)."""


class TransactionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was gathered of one transactional id."""

    described: TransactionDescription
    now_ms: int
    partitions: Mapping[TopicPartition, PartitionNow] = {}
    """Of those that are in the transaction, and exist."""
    producers: Sequence[ProducerState] = ()
    """This producer, as the leaders of the partitions know it."""
    live: frozenset[int] = frozenset()


def ongoing(facts: TransactionFacts) -> Sequence[Reason]:
    found = facts.described
    if found.state != "Ongoing" or found.start_time_ms is None:
        return ()
    open_ms = max(facts.now_ms - found.start_time_ms, 0)
    left_ms = found.timeout_ms - open_ms
    name = f"the transaction of {found.transactional_id} is open for {format_duration(open_ms)}"
    timeout = format_duration(found.timeout_ms)
    remedy = (
        "commit or abort in its application; a new producer with the same transactional.id aborts it, too"
    )
    if left_ms < -GRACE_MS:
        code = "transaction.overdue"
        why = (
            f"its time was over {format_duration(-left_ms)} ago (transaction.timeout.ms = {timeout}), and "
            f"its coordinator, broker {found.coordinator}, has not aborted it: it cannot write to "
            "__transaction_state"
        )
        remedy = "minikafka cluster describe says whether partitions of __transaction_state are unwell"
    elif not found.partitions:
        code, why = "transaction.nothing-written", "nothing was written in it yet"
    else:
        code = "transaction.ongoing"
        why = (
            "its producer has neither committed nor aborted; the coordinator aborts it in "
            f"{format_duration(max(left_ms, 0))} (transaction.timeout.ms = {timeout})"
        )
    return [
        Reason(
            code=code,
            sentence=f"{name}: {why}",
            page=Page.ENDING_TRANSACTIONS,
            evidence=_evidence(facts) | {"open ms": open_ms, "timeout ms": found.timeout_ms},
            remedy=remedy,
        )
    ]


def prepared(facts: TransactionFacts) -> Sequence[Reason]:
    """It is decided, and markers are missing."""
    found = facts.described
    if found.state not in ("PrepareCommit", "PrepareAbort"):
        return ()
    verb = "committed" if found.state == "PrepareCommit" else "aborted"
    name = f"the transaction of {found.transactional_id} is being {verb}"
    blocked = _blocked(facts)
    if blocked:
        at, why = blocked[0]
        code, sentence = "transaction.marker-blocked", f"{name}: {at} has no marker yet, because {why}"
    else:
        left = ", ".join(map(str, found.partitions)) or "none"
        code, sentence = "transaction.markers", f"{name}: its markers are being written; left are {left}"
    return [
        Reason(
            code=code,
            sentence=sentence,
            page=Page.ENDING_TRANSACTIONS,
            evidence=_evidence(facts) | {"blocked": [f"{at}: {why}" for at, why in blocked]},
            remedy=f"minikafka why partition {blocked[0][0].topic}:{blocked[0][0].partition}"
            if blocked
            else "",
        )
    ]


def ended(facts: TransactionFacts) -> Sequence[Reason]:
    found = facts.described
    words = {
        "Empty": "has begun no transaction",
        "CompleteCommit": "has no transaction open; the last one was committed",
        "CompleteAbort": "has no transaction open; the last one was aborted",
        "PrepareEpochFence": "is being fenced: a new producer with this id is on its way",
        "Dead": "is being forgotten",
    }.get(found.state)
    if words is None:
        return ()
    return [
        Reason(
            code="transaction.none",
            sentence=f"{found.transactional_id} {words}",
            page=Page.ENDING_TRANSACTIONS,
            evidence=_evidence(facts),
        )
    ]


def _blocked(facts: TransactionFacts) -> list[tuple[TopicPartition, str]]:
    blocked = []
    for at in facts.described.partitions:
        now = facts.partitions.get(at)
        if now is None:
            blocked.append((at, "there is no such partition any more"))
        elif now.leader == NO_LEADER:
            blocked.append((at, "it has no leader"))
        elif now.leader not in facts.live:
            blocked.append((at, f"its leader, broker {now.leader}, is not registered"))
    return blocked


def _evidence(facts: TransactionFacts) -> dict[str, Any]:
    found = facts.described
    starts = {(each.topic, each.partition): each for each in facts.producers}
    rows = []
    for at in found.partitions:
        now, producer = facts.partitions.get(at), starts.get((at.topic, at.partition))
        rows.append(
            {
                "partition": str(at),
                "leader": None if now is None else now.leader,
                "open from offset": None if producer is None else producer.transaction_start_offset,
            }
        )
    return {
        "state": found.state,
        "producer id": found.producer_id,
        "producer epoch": found.producer_epoch,
        "coordinator": found.coordinator,
        "partitions": rows,
    }


LOOKS = (ongoing, prepared, ended)


def answer_of(facts: TransactionFacts, unknown: Sequence[str] = ()) -> Answer:
    found = facts.described
    reasons = [reason for look in LOOKS for reason in look(facts)]
    otherwise = f"{found.transactional_id} is in state {found.state}"
    return answer(f"transaction of {found.transactional_id}", reasons, otherwise=otherwise, unknown=unknown)


def unknown_id(transactional_id: str) -> Answer:
    reason = Reason(
        code="transaction.unknown",
        sentence=f"no coordinator knows the transactional id {transactional_id}: no producer has begun with "
        "it, or it was idle for so long that it was forgotten (transactional.id.expiration.ms), so it has no "
        "open transaction",
        page=Page.ENDING_TRANSACTIONS,
        evidence={},
        remedy="minikafka transactions list names those that are known; minikafka why fetch says what keeps "
        "the last stable offset of a partition",
    )
    return answer(f"transaction of {transactional_id}", [reason], otherwise="")


# Gathering


async def why(cluster: Cluster, transactional_id: str) -> Answer:
    """Raises KafkaError: the coordinator's, but for TRANSACTIONAL_ID_NOT_FOUND."""
    try:
        described = await cluster.transactions.describe(transactional_id)
    except KafkaError as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return unknown_id(transactional_id)
    topics = sorted({each.topic for each in described.partitions})
    known = await cluster.admin.partitions(topics) if topics else {}
    led = [each for each in described.partitions if each in known and known[each].leader != NO_LEADER]
    producers: list[ProducerState] = []
    for each in led:
        try:
            producers += await cluster.transactions.producers([each])
        except (BrokerUnavailable, KafkaError) as error:
            cluster.unknown.append(f"where it begins in {each}: {error}")
    facts = TransactionFacts(
        described=described,
        now_ms=cluster.clock.now_ms(),
        partitions={each: known[each] for each in described.partitions if each in known},
        producers=[each for each in producers if each.producer_id == described.producer_id],
        live=frozenset((await cluster.admin.nodes()).brokers),
    )
    return answer_of(facts, cluster.unknown)
