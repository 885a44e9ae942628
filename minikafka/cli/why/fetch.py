"""``minikafka why fetch``: why a consumer of a partition waits, or gets nothing.

What it may see ends at the high watermark, or with read_committed at the last stable offset (LSO). Which
transaction holds the LSO, DescribeProducers of the leader and the coordinators say (any Kafka); which replica
holds the high watermark, only a leader of minikafka does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from minikafka.cli.transactions import ProducerState, TransactionDescription
from minikafka.cli.why import partition as partitions
from minikafka.cli.why.answer import Answer, Page, Reason, answer
from minikafka.cli.why.cluster import Cluster
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.types import NO_LEADER, TopicPartition
from minikafka.units import format_duration

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


class Follower(msgspec.Struct, frozen=True, kw_only=True):
    """A follower as its leader knows it; None: it has not fetched from this leader."""

    broker: int
    log_end_offset: int | None
    last_fetch_ms_ago: int | None
    not_caught_up_for_ms: int | None
    is_in_isr: bool


class OpenTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that is open in the partition, and what its coordinator knows; None: nothing."""

    producer: ProducerState
    transaction: TransactionDescription | None


class FetchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was gathered; offsets are None while the partition has no leader that answers."""

    at: TopicPartition
    offset: int | None
    """From where the consumer reads; None: from what is there last."""
    is_read_committed: bool
    now_ms: int
    start: int | None = None
    last_stable: int | None = None
    high_watermark: int | None = None
    log_end: int | None = None
    isr: Sequence[int] = ()
    min_isr: int = 1
    followers: Sequence[Follower] | None = None
    """None: the leader does not say."""
    waits_for: Sequence[int] = ()
    """Whom the high watermark waits for, as the leader's diagnostics have it."""
    open: Sequence[OpenTransaction] = ()
    """The one that begins first, first."""
    waiting: Sequence[Mapping[str, Any]] = ()
    """Fetches of consumers that wait for the partition now."""
    connection: str = ""


def out_of_range(facts: FetchFacts) -> Sequence[Reason]:
    offset, start, end = facts.offset, facts.start, facts.log_end
    if offset is None or start is None or end is None or start <= offset <= end:
        return ()
    if offset < start:
        why = f"the log begins at offset {start}: what was before it is deleted"
    else:
        why = f"the log ends at offset {end}: it was truncated, or the topic was made again"
    return [
        Reason(
            code="fetch.out-of-range",
            sentence=f"a fetch of {facts.at} from offset {offset} is refused (OFFSET_OUT_OF_RANGE): {why}; "
            "the consumer goes where auto.offset.reset says",
            page=Page.RETENTION if offset < start else Page.THREE_OFFSETS,
            evidence=_offsets(facts),
        )
    ]


def held_by_transaction(facts: FetchFacts) -> Sequence[Reason]:
    """The LSO is below the high watermark."""
    stable, mark = facts.last_stable, facts.high_watermark
    if stable is None or mark is None or stable >= mark or not facts.is_read_committed:
        return ()
    evidence = _offsets(facts)
    where = f"read_committed consumers of {facts.at} get nothing from offset {stable} on"
    if not facts.open:
        return [
            Reason(
                code="fetch.lso.marker",
                sentence=f"{where}: the marker of a transaction is written, but the high watermark has not "
                "passed it yet",
                page=Page.LAST_STABLE_OFFSET,
                evidence=evidence,
            )
        ]
    first = facts.open[0]
    producer, transaction = first.producer, first.transaction
    evidence |= {"open transactions": [_row(each, facts.now_ms) for each in facts.open]}
    begun = producer.transaction_start_offset
    if transaction is None:
        return [
            Reason(
                code="fetch.lso.hanging",
                sentence=f"{where}: a transaction of producer {producer.producer_id} hangs there since "
                f"offset {begun}: no coordinator knows of it, so no marker will end it",
                page=Page.LAST_STABLE_OFFSET,
                evidence=evidence,
                remedy=f"minikafka transactions abort --topic {facts.at.topic} --partition "
                f"{facts.at.partition} --start-offset {begun}{facts.connection}",
            )
        ]
    since_ms = None if transaction.start_time_ms is None else facts.now_ms - transaction.start_time_ms
    since = "" if since_ms is None else f" for {format_duration(since_ms)}"
    left = ""
    if since_ms is not None and transaction.state == "Ongoing":
        left = (
            "; its coordinator ends it at transaction.timeout.ms, in "
            f"{format_duration(max(transaction.timeout_ms - since_ms, 0))}"
        )
    return [
        Reason(
            code="fetch.lso.open",
            sentence=f"{where}: the transaction of {transaction.transactional_id} (producer "
            f"{producer.producer_id}) has been open{since}{left}",
            page=Page.LAST_STABLE_OFFSET,
            evidence=evidence,
            remedy="commit or abort in its application; a new producer with the same transactional.id aborts "
            "it, too",
        )
    ]


def held_by_replica(facts: FetchFacts) -> Sequence[Reason]:
    """The high watermark is below the log end."""
    mark, end = facts.high_watermark, facts.log_end
    if mark is None or end is None or mark >= end:
        return ()
    evidence = _offsets(facts) | {"in sync": list(facts.isr), "min.insync.replicas": facts.min_isr}
    where = f"consumers of {facts.at} see up to offset {mark}, although the log ends at {end}"
    if facts.followers is None:
        return [_high_watermark("fetch.hw", f"{where}: not all in-sync replicas have the rest", evidence)]
    evidence["followers"] = [
        {
            "broker": each.broker,
            "has up to": each.log_end_offset,
            "in sync": each.is_in_isr,
            "fetched ms ago": each.last_fetch_ms_ago,
            "not caught up for ms": each.not_caught_up_for_ms,
        }
        for each in facts.followers
    ]
    if len(facts.isr) < facts.min_isr:
        why = (
            f"only {len(facts.isr)} of min.insync.replicas = {facts.min_isr} replicas are in sync, and until "
            "then nothing is committed"
        )
        return [_high_watermark("fetch.hw.min-isr", f"{where}: {why}", evidence)]
    held = [
        each
        for each in facts.followers
        if (each.is_in_isr or each.broker in facts.waits_for) and (each.log_end_offset or 0) < end
    ]
    if not held:
        return [_high_watermark("fetch.hw", f"{where}: it is about to move", evidence)]
    slowest = min(held, key=lambda each: each.log_end_offset or 0)
    fetched_ms = slowest.last_fetch_ms_ago
    if fetched_ms is None:
        doing = "and has not fetched from this leader yet"
    else:
        doing = f"and fetched last {format_duration(fetched_ms)} ago"
    has = "nothing" if slowest.log_end_offset is None else f"only what is below {slowest.log_end_offset}"
    sentence = (
        f"{where}: replica {slowest.broker} is waited for, has {has}, {doing}; it leaves the ISR when it was "
        "not caught up for replica.lag.time.max.ms"
    )
    return [_high_watermark("fetch.hw.replica", sentence, evidence)]


def _high_watermark(code: str, sentence: str, evidence: Mapping[str, Any]) -> Reason:
    return Reason(code=code, sentence=sentence, page=Page.THREE_OFFSETS, evidence=evidence)


def nothing_there(facts: FetchFacts) -> Sequence[Reason]:
    """All that there is was read, so it waits for more."""
    end = facts.last_stable if facts.is_read_committed else facts.high_watermark
    if end is None or end != facts.log_end or (facts.offset is not None and facts.offset < end):
        return ()
    waits = f"a fetch of {facts.at} from offset {end} waits, because nothing is written behind it"
    return [
        Reason(
            code="fetch.nothing-there",
            sentence=f"{waits}; it answers with the next record, or after fetch.max.wait.ms without any",
            page=Page.PURGATORY,
            evidence=_offsets(facts) | {"fetches of consumers that wait now": list(facts.waiting)},
        )
    ]


def there_is_something(facts: FetchFacts) -> Sequence[Reason]:
    end = facts.last_stable if facts.is_read_committed else facts.high_watermark
    offset, start = facts.offset, facts.start
    if end is None or start is None or offset is None or not start <= offset < end:
        return ()
    return [
        Reason(
            code="fetch.answers",
            sentence=f"a fetch of {facts.at} from offset {offset} gets records: {end - offset} offsets lie "
            "before the end that it may see",
            page=Page.THREE_OFFSETS,
            evidence=_offsets(facts),
        )
    ]


def _offsets(facts: FetchFacts) -> dict[str, Any]:
    return {
        "log start offset": facts.start,
        "last stable offset": facts.last_stable,
        "high watermark": facts.high_watermark,
        "log end offset": facts.log_end,
    }


def _row(each: OpenTransaction, now_ms: int) -> dict[str, Any]:
    transaction = each.transaction
    start_ms = None if transaction is None else transaction.start_time_ms
    return {
        "producer": each.producer.producer_id,
        "epoch": each.producer.producer_epoch,
        "from offset": each.producer.transaction_start_offset,
        "transactional id": None if transaction is None else transaction.transactional_id,
        "state": "unknown to coordinators" if transaction is None else transaction.state,
        "open ms": None if start_ms is None else max(now_ms - start_ms, 0),
        "timeout ms": None if transaction is None else transaction.timeout_ms,
    }


LOOKS = (out_of_range, held_by_transaction, held_by_replica, there_is_something, nothing_there)


def reasons_of(facts: FetchFacts) -> list[Reason]:
    return [reason for look in LOOKS for reason in look(facts)]


# Gathering


async def why(cluster: Cluster, at: TopicPartition, *, offset: int | None, is_read_committed: bool) -> Answer:
    """Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION. BrokerUnavailable: no broker answers."""
    subject = f"fetch of {at}"
    now = await cluster.partition(at)
    if now.leader == NO_LEADER:
        found = await partitions.gather(cluster, at, question="offline")
        return answer(subject, partitions.offline(found), otherwise="", unknown=cluster.unknown)
    facts = await gather(cluster, at, offset=offset, is_read_committed=is_read_committed)
    otherwise = f"nothing keeps a fetch of {at} from its records"
    return answer(subject, reasons_of(facts), otherwise=otherwise, unknown=cluster.unknown)


async def gather(
    cluster: Cluster, at: TopicPartition, *, offset: int | None, is_read_committed: bool
) -> FetchFacts:
    now = await cluster.partition(at)
    mark = await cluster.end_offset(at, is_read_committed=False)
    end = await cluster.log_end_offset(at, now.leader)
    # Where all is committed, it does not matter who is how far.
    followers = [] if mark >= end else await _followers(cluster, at, now.leader, now.isr)
    about = "" if mark >= end else "whom the high watermark waits for"
    document = await cluster.diagnostics(
        "partition", now.leader, about, topic=at.topic, partition=at.partition
    )
    isr = (document or {}).get("isr") or {}
    waiting = await cluster.diagnostics(
        "waiting", now.leader, "which fetches wait now", topic=at.topic, partition=at.partition
    )
    configured = await cluster.topic_values(at.topic, ["min.insync.replicas"])
    return FetchFacts(
        at=at,
        offset=offset,
        is_read_committed=is_read_committed,
        now_ms=cluster.clock.now_ms(),
        start=await cluster.start_offset(at),
        last_stable=await cluster.end_offset(at, is_read_committed=True),
        high_watermark=mark,
        log_end=end,
        isr=isr.get("committed", now.isr),
        min_isr=isr.get("effective_min", int(configured.get("min.insync.replicas", 1))),
        followers=followers,
        waits_for=isr.get("waits_for", ()),
        open=await open_transactions(cluster, at) if is_read_committed else (),
        waiting=[each for each in (waiting or {}).get("fetch", ()) if each["replica"] < 0],
        connection=cluster.connection,
    )


async def _followers(
    cluster: Cluster, at: TopicPartition, leader: int, isr: Sequence[int]
) -> list[Follower] | None:
    quorum = await cluster.quorum(at, leader, "how far each replica is")
    if quorum is None:
        return None
    states = {int(each.replica_id): each for each in quorum.current_voters}
    if leader not in states:
        return None
    now_ms = int(states[leader].last_caught_up_timestamp)
    return [
        Follower(
            broker=broker,
            log_end_offset=int(each.log_end_offset) if each.log_end_offset >= 0 else None,
            last_fetch_ms_ago=_ago(int(each.last_fetch_timestamp), now_ms),
            not_caught_up_for_ms=_ago(int(each.last_caught_up_timestamp), now_ms),
            is_in_isr=broker in isr,
        )
        for broker, each in states.items()
        if broker != leader
    ]


def _ago(timestamp_ms: int, now_ms: int) -> int | None:
    return None if timestamp_ms <= 0 else max(now_ms - timestamp_ms, 0)


async def open_transactions(cluster: Cluster, at: TopicPartition) -> list[OpenTransaction]:
    """Those that are open in the partition, the one that begins first, first."""
    try:
        producers = await cluster.transactions.producers([at])
    except (BrokerUnavailable, KafkaError) as error:
        cluster.unknown.append(f"which transactions are open in {at}: {error}")
        return []
    found = sorted(
        (each for each in producers if each.transaction_start_offset is not None),
        key=lambda each: each.transaction_start_offset or 0,
    )
    return [
        OpenTransaction(producer=each, transaction=await _transaction_of(cluster, each, at)) for each in found
    ]


async def _transaction_of(
    cluster: Cluster, producer: ProducerState, at: TopicPartition
) -> TransactionDescription | None:
    """What the coordinator knows of it; None: it does not know that this partition is in a transaction."""
    for listed in await cluster.transactions.transactions(producer_ids=[producer.producer_id]):
        try:
            found = await cluster.transactions.describe(listed.transactional_id)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            continue
        if found.state in OPEN_STATES and at in found.partitions:
            return found
    return None
