"""``minikafka why partition``: offline, under-replicated, under min.insync.replicas, not led by its preferred
leader, not compacted, not deleted by retention, growing, unevenly read.

Kafka's APIs say what is so; the leader's diagnostics say what the log cleaner and retention wait for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from minikafka.cli.cluster.describe import ReplicaState
from minikafka.cli.groups import ListedOffset
from minikafka.cli.shared.admin_client import PartitionNow, broker_resource
from minikafka.cli.why.answer import Answer, Page, Reason, answer
from minikafka.cli.why.cluster import LATEST, Cluster
from minikafka.errors import KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.types import NO_LEADER, ReplicaAssignment, TopicPartition
from minikafka.units import format_bytes, format_duration, format_rate

TOPIC_CONFIGS = (
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "follower.replication.throttled.replicas",
)
BROKER_CONFIGS = (
    "auto.leader.rebalance.enable",
    "leader.imbalance.check.interval.seconds",
    "leader.imbalance.per.broker.percentage",
    "log.retention.check.interval.ms",
)
UNEVEN = 2.0
"""A partition whose readers get twice what they get of an average one is read unevenly."""

HEALTH = ("offline", "under-min-isr", "under-replicated", "not-preferred")
"""What is asked when nothing is: the graver first."""
SAMPLED = ("growing", "unevenly-read")


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a topic between two looks."""

    produced: int
    """Records."""
    consumed: int
    """Records, by all groups together, as far as they have committed."""


class PartitionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was gathered of one partition; None: not known, or not asked for."""

    at: TopicPartition
    now: PartitionNow
    live: frozenset[int]
    controller: int
    out_of_sync: Sequence[ReplicaState] = ()
    under_way: ReplicaAssignment | None = None
    topic: Mapping[str, str] = {}
    broker: Mapping[str, str] = {}
    document: Mapping[str, Any] | None = None
    """``partition`` of the leader's diagnostics."""
    moved: Mapping[TopicPartition, Moved] = {}
    """All partitions of the topic, when growth or reading was asked for."""
    moved_bytes: int | None = None
    sample_ms: int = 0
    connection: str = ""


Look = Callable[[PartitionFacts], Sequence[Reason]]


def offline(facts: PartitionFacts) -> Sequence[Reason]:
    now, at = facts.now, facts.at
    if now.leader != NO_LEADER:
        return ()
    here = [each for each in now.replicas if each in facts.live and each not in now.offline]
    failed = [each for each in now.replicas if each in facts.live and each in now.offline]
    evidence = {
        "replicas": list(now.replicas),
        "last in-sync replicas": list(now.isr),
        "brokers that are registered": sorted(facts.live),
        "replicas in failed log directories": failed,
        "unclean.leader.election.enable": facts.topic.get("unclean.leader.election.enable"),
    }
    remedy = f"start broker {_ids(now.isr)} again"
    if facts.controller < 0:
        code, why = "offline.no-controller", "there is no controller to elect a leader"
        remedy = "see why no broker becomes the controller: each needs the coordination store"
    elif failed and not here:
        code = "offline.log-directory"
        why = f"the log directory of its replica on broker {_ids(failed)} has failed"
        remedy = f"repair the disk and restart broker {_ids(failed)}"
    elif not here:
        code = "offline.no-replica"
        why = f"none of the brokers that have a replica ({_ids(now.replicas)}) is registered"
    else:
        code = "offline.not-in-sync"
        why = (
            f"only broker {_ids(here)} is there, which was not in sync when the last leader left; broker "
            f"{_ids(now.isr)} has all records"
        )
        remedy += (
            "; or, which loses the records that the other does not have: minikafka elect-leaders "
            f"--election-type unclean --topic {at.topic} --partition {at.partition}{facts.connection}"
        )
    return [
        Reason(
            code=code,
            sentence=f"{at} is offline: {why}",
            page=Page.WHO_MAY_LEAD,
            evidence=evidence,
            remedy=remedy,
        )
    ]


def under_replicated(facts: PartitionFacts) -> Sequence[Reason]:
    adding = facts.under_way.adding if facts.under_way else ()
    late = [each for each in facts.out_of_sync if each.broker not in adding]
    if not late or facts.now.leader == NO_LEADER:
        return ()
    throttled = facts.topic.get("follower.replication.throttled.replicas", "")
    listed = set(throttled.replace(" ", "").split(","))
    rows = [
        {
            "replica": each.broker,
            "why": each.why,
            "throttled": throttled == "*" or f"{facts.at.partition}:{each.broker}" in listed,
        }
        for each in late
    ]
    first = late[0]
    away = first.broker not in facts.live
    return [
        Reason(
            code="under-replicated.broker-away" if away else "under-replicated.behind",
            sentence=f"{facts.at} is under-replicated: replica {first.broker} is not in sync: {first.why}",
            page=Page.ISR,
            evidence={
                "leader": facts.now.leader,
                "replicas": list(facts.now.replicas),
                "in sync": list(facts.now.isr),
                "out of sync": rows,
            },
            remedy=f"start broker {first.broker} again" if away else "",
        )
    ]


def under_min_isr(facts: PartitionFacts) -> Sequence[Reason]:
    minimum = int(facts.topic.get("min.insync.replicas", 0))
    now = facts.now
    if now.leader == NO_LEADER or len(now.isr) >= minimum:
        return ()
    few = minimum > len(now.replicas)
    why = f"it has {len(now.replicas)} replicas at all" if few else f"{_whys(facts.out_of_sync)}"
    return [
        Reason(
            code="under-min-isr.few-replicas" if few else "under-min-isr",
            sentence=f"{facts.at} is under min.insync.replicas, so that acks=all is refused: "
            f"{len(now.isr)} of {minimum} replicas are in sync: {why}",
            page=Page.ISR,
            evidence={
                "min.insync.replicas": minimum,
                "in sync": list(now.isr),
                "replicas": list(now.replicas),
            },
        )
    ]


def not_preferred(facts: PartitionFacts) -> Sequence[Reason]:
    now, at = facts.now, facts.at
    preferred = now.replicas[0]
    if now.leader in (NO_LEADER, preferred):
        return ()
    remedy = (
        f"minikafka elect-leaders --election-type preferred --topic {at.topic} --partition "
        f"{at.partition}{facts.connection}"
    )
    automatic = facts.broker.get("auto.leader.rebalance.enable")
    interval_s = int(facts.broker.get("leader.imbalance.check.interval.seconds", 0))
    if facts.under_way is not None:
        code, why, remedy = "not-preferred.reassigned", "it is being reassigned, which comes first", ""
    elif preferred not in facts.live:
        code, why = "not-preferred.broker-away", f"broker {preferred} is not registered"
        remedy = f"start broker {preferred} again"
    elif preferred not in now.isr:
        late = [each for each in facts.out_of_sync if each.broker == preferred]
        code, why, remedy = "not-preferred.not-in-sync", f"broker {_whys(late) or preferred}", ""
    elif automatic == "true":
        code = "not-preferred.soon"
        percentage = facts.broker.get("leader.imbalance.per.broker.percentage", "10")
        why = (
            f"broker {preferred} is in sync again, and the controller gives leadership back when it looks "
            f"next, every {format_duration(interval_s * 1000)}, if more than {percentage} % of the broker's "
            "partitions are led by others"
        )
    else:
        code = "not-preferred.not-automatic"
        why = (
            f"broker {preferred} is in sync, but nothing gives leadership back by itself: "
            f"auto.leader.rebalance.enable is {automatic or 'not known'}"
        )
    return [
        Reason(
            code=code,
            sentence=f"{at} is led by broker {now.leader}, not by its preferred leader {preferred}: {why}",
            page=Page.PREFERRED_LEADER,
            evidence={
                "leader": now.leader,
                "replicas": list(now.replicas),
                "in sync": list(now.isr),
                "auto.leader.rebalance.enable": automatic,
            },
            remedy=remedy,
        )
    ]


def not_compacted(facts: PartitionFacts) -> Sequence[Reason]:
    at, policy = facts.at, facts.topic.get("cleanup.policy", "")
    if "compact" not in policy:
        if not policy:
            return ()
        return [
            Reason(
                code="not-compacted.policy",
                sentence=f"{at} is not compacted, because its cleanup.policy is {policy}",
                page=Page.COMPACTION,
                evidence={"cleanup.policy": policy},
                remedy=f"minikafka configs alter --topic {at.topic} --add-config "
                f"cleanup.policy=compact{facts.connection}",
            )
        ]
    if facts.document is None or facts.document.get("compaction") is None:
        return ()
    found, log = facts.document["compaction"], facts.document["log"]
    code, why = _why_not_compacted(found, log)
    evidence = {
        "dirty": f"{format_bytes(found.get('dirty_bytes', 0))} of "
        f"{format_bytes(found.get('cleanable_bytes', 0))} that could be compacted",
        "dirty ratio": found.get("dirty_ratio"),
        "min.cleanable.dirty.ratio": found["min_dirty_ratio"],
        "first dirty offset": found.get("first_dirty_offset"),
        "ends before offset": found.get("end_offset"),
        "ends at": found.get("ends_at"),
        "last stable offset": log["last_stable"],
        "log end offset": log["end"],
        "segments": log["segments"],
    }
    return [
        Reason(
            code=f"not-compacted.{code}",
            sentence=f"{at} is {'being compacted now' if code == 'in-progress' else 'not compacted: ' + why}",
            page=Page.COMPACTION,
            evidence=evidence,
        )
    ]


def _why_not_compacted(found: Mapping[str, Any], log: Mapping[str, Any]) -> tuple[str, str]:
    """The end of a code, and the words."""
    if not found["enabled"]:
        return "disabled", "log.cleaner.enable is false on its leader"
    if found["given_up"] or found["unreadable"]:
        told = found["unreadable"] or "the broker's log says what it found"
        return "given-up", f"the log cleaner has given it up until the broker restarts: {told}"
    if found["in_progress"]:
        return "in-progress", ""
    if found["moving"]:
        return "moving", "it is being moved to another log directory, and both logs must stay alike"
    if found["is_due"]:
        return "due", "it is due, and waits for its turn: the dirtiest log comes first"
    if not found["dirty_bytes"]:
        match found["ends_at"]:
            case "last stable offset":
                held = f"from offset {log['last_stable']} on a transaction is open, and nothing behind it is"
                return "open-transaction", held
            case "min.compaction.lag.ms":
                lag = format_duration(found["min_lag_ms"])
                return "young", f"its records are younger than min.compaction.lag.ms ({lag})"
        size, age = format_bytes(log["segment_bytes"]), format_duration(log["segment_ms"])
        return (
            "active-segment",
            "what is not compacted lies in its active segment, which never is; it rolls at segment.bytes "
            f"({size}) or segment.ms ({age})",
        )
    return (
        "clean-enough",
        f"{found['dirty_ratio']:.0%} of its bytes are dirty, and min.cleanable.dirty.ratio asks for more "
        f"than {found['min_dirty_ratio']:.0%}",
    )


def not_deleted(facts: PartitionFacts) -> Sequence[Reason]:
    at = facts.at
    policy = facts.topic.get("cleanup.policy", "delete")
    evidence: dict[str, Any] = {
        "cleanup.policy": policy,
        "retention.ms": facts.topic.get("retention.ms"),
        "retention.bytes": facts.topic.get("retention.bytes"),
    }
    if facts.document is not None:
        log, oldest = facts.document["log"], facts.document["oldest_segment"]
        code, why = _why_not_deleted(facts.document, facts.broker)
        evidence |= {
            "size": format_bytes(log["bytes"]),
            "segments": log["segments"],
            "high watermark": log["high_watermark"],
            "oldest segment": f"offsets {oldest['base_offset']} to {oldest['end_offset'] - 1}, "
            f"{format_bytes(oldest['bytes'])}",
        }
    elif "delete" not in policy:
        code, why = "policy", f"its cleanup.policy is {policy}"
    elif facts.topic.get("retention.ms") == "-1" and facts.topic.get("retention.bytes") == "-1":
        code, why = "for-ever", "neither retention.ms nor retention.bytes sets a limit"
    else:
        return ()
    return [
        Reason(
            code=f"not-deleted.{code}",
            sentence=f"the oldest records of {at} are not deleted yet: {why}",
            page=Page.RETENTION,
            evidence=evidence,
        )
    ]


def _why_not_deleted(document: Mapping[str, Any], broker: Mapping[str, str]) -> tuple[str, str]:
    log, oldest, now_ms = document["log"], document["oldest_segment"], document["now_ms"]
    if "delete" not in log["cleanup_policy"]:
        return "policy", f"its cleanup.policy is {','.join(log['cleanup_policy'])}"
    retention_ms, retention_bytes = log["retention_ms"], log["retention_bytes"]
    if retention_ms < 0 and retention_bytes < 0:
        return "for-ever", "neither retention.ms nor retention.bytes sets a limit"
    if oldest["is_active"] and not oldest["bytes"]:
        return "empty", "there are none"
    if log["high_watermark"] < oldest["end_offset"]:
        return (
            "not-committed",
            f"the high watermark ({log['high_watermark']}) has not passed the end of their segment "
            f"({oldest['end_offset']}), and what is not committed is not deleted",
        )
    newest_ms = oldest["newest_timestamp_ms"]
    excess_bytes = log["bytes"] - retention_bytes
    if retention_bytes >= 0 and excess_bytes >= oldest["bytes"]:
        return "due", _due(broker)
    if retention_ms < 0 or newest_ms is None:
        return (
            "small",
            f"the log has {format_bytes(log['bytes'])}; the oldest segment goes when the others alone have "
            f"retention.bytes ({format_bytes(retention_bytes)})",
        )
    age_ms = now_ms - newest_ms
    if age_ms > retention_ms:
        return "due", _due(broker)
    if age_ms < 0:
        return (
            "future",
            f"a record in their segment has a timestamp {format_duration(-age_ms)} in the future, and it "
            f"goes as a whole when that is {format_duration(retention_ms)} old",
        )
    return (
        "young",
        f"a segment goes as a whole, and the newest record of theirs is {format_duration(age_ms)} old; "
        f"retention.ms is {format_duration(retention_ms)}, so it goes in "
        f"{format_duration(retention_ms - age_ms)}",
    )


def _due(broker: Mapping[str, str]) -> str:
    interval_ms = int(broker.get("log.retention.check.interval.ms", 300_000))
    return f"they are due, and go when the broker looks next, every {format_duration(interval_ms)}"


def growing(facts: PartitionFacts) -> Sequence[Reason]:
    mine = facts.moved.get(facts.at)
    if mine is None or not facts.sample_ms:
        return ()
    seconds = facts.sample_ms / 1000
    rate = mine.produced / seconds
    kept = not_deleted(facts)
    compacted = not_compacted(facts) if "compact" in facts.topic.get("cleanup.policy", "") else ()
    because = "".join(f"; {each.sentence}" for each in (*kept, *compacted))
    if not mine.produced:
        sentence = (
            f"{facts.at} does not grow: nothing was written to it for {format_duration(facts.sample_ms)}"
        )
    else:
        size = "" if facts.moved_bytes is None else f" ({format_rate(facts.moved_bytes / seconds)})"
        sentence = f"{facts.at} grows by {rate:.3g} records/s{size}{because}"
    others = [each.produced for at, each in facts.moved.items() if at != facts.at]
    return [
        Reason(
            code="growing" if mine.produced else "not-growing",
            sentence=sentence,
            page=Page.RETENTION,
            evidence={
                "measured for ms": facts.sample_ms,
                "records written": mine.produced,
                "to another partition of the topic, on average": sum(others) / len(others)
                if others
                else None,
            },
        )
    ]


def unevenly_read(facts: PartitionFacts) -> Sequence[Reason]:
    mine = facts.moved.get(facts.at)
    if mine is None or len(facts.moved) < 2 or not facts.sample_ms:
        return ()
    consumed = sum(each.consumed for each in facts.moved.values()) / len(facts.moved)
    produced = sum(each.produced for each in facts.moved.values()) / len(facts.moved)
    rows = [
        {"partition": at.partition, "written": each.produced, "read": each.consumed}
        for at, each in sorted(facts.moved.items())
    ]
    if not consumed:
        code, why = "not-read", "no group has committed an offset of its topic meanwhile"
    elif mine.consumed > UNEVEN * consumed or mine.consumed * UNEVEN < consumed:
        how = f"{mine.consumed} records were read of it, of an average partition {consumed:.3g}"
        if mine.produced > UNEVEN * produced or mine.produced * UNEVEN < produced:
            code, why = "written-unevenly", f"{how}, because so it is written: keys decide who gets what"
        else:
            code, why = "read-unevenly", f"{how}, although it is written as the others are: its reader lags"
    else:
        return ()
    return [
        Reason(
            code=f"uneven.{code}",
            sentence=f"{facts.at} is read unevenly: {why}" if consumed else f"{facts.at} is not read: {why}",
            page=Page.LAG,
            evidence={"measured for ms": facts.sample_ms, "records": rows},
        )
    ]


QUESTIONS: dict[str, tuple[Look, str]] = {
    "offline": (offline, "it has a leader"),
    "under-replicated": (under_replicated, "all of its replicas are in sync"),
    "under-min-isr": (under_min_isr, "enough of its replicas are in sync for acks=all"),
    "not-preferred": (not_preferred, "its preferred leader leads it"),
    "not-compacted": (not_compacted, "how its log cleaner sees it is not known"),
    "not-deleted": (not_deleted, "how retention sees it is not known"),
    "growing": (growing, "whether it grows is not known"),
    "unevenly-read": (unevenly_read, "it is read as the other partitions of its topic are"),
}
"""What may be asked, by whom it is answered, and what is so when there is no reason."""


def answer_of(facts: PartitionFacts, question: str | None, unknown: Sequence[str] = ()) -> Answer:
    """``question`` None: what is wrong with it."""
    now, subject = facts.now, f"partition {facts.at}"
    if question is not None:
        look, otherwise = QUESTIONS[question]
        return answer(subject, look(facts), otherwise=f"{facts.at}: {otherwise}", unknown=unknown)
    reasons = [reason for name in HEALTH for reason in QUESTIONS[name][0](facts)]
    others = ", ".join(name for name in QUESTIONS if name not in HEALTH)
    otherwise = (
        f"{facts.at} is well: led by its preferred leader {now.leader}, and all of its replicas "
        f"({_ids(now.replicas)}) are in sync. It may be asked, too: {others}"
    )
    return answer(subject, reasons, otherwise=otherwise, unknown=unknown)


# Gathering


async def gather(
    cluster: Cluster, at: TopicPartition, *, question: str | None = None, sample_ms: int = 0
) -> PartitionFacts:
    """Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION. BrokerUnavailable: no broker answers."""
    now = await cluster.partition(at)
    nodes = await cluster.admin.nodes()
    replicas = [each for each in now.replicas if each in nodes.brokers]
    log_dirs = await cluster.log_dirs(replicas, at)
    asked = now.leader if now.leader in nodes.brokers else next(iter(nodes.brokers))
    document = None
    if now.leader in nodes.brokers:
        about = "" if question in (None, *HEALTH) else "what retention and the log cleaner wait for"
        document = await cluster.diagnostics(
            "partition", now.leader, about, topic=at.topic, partition=at.partition
        )
    if document is not None and document["isr"] is not None:
        # The leader decides on the ISR; what Metadata tells of it may be seconds old.
        now = now._replace(isr=tuple(document["isr"]["committed"]))
    moved: dict[TopicPartition, Moved] = {}
    moved_bytes = None
    if question in SAMPLED:
        moved, moved_bytes = await _sample(cluster, at, now.leader, sample_ms, reads=question == SAMPLED[1])
    return PartitionFacts(
        at=at,
        now=now,
        live=frozenset(nodes.brokers),
        controller=nodes.controller,
        out_of_sync=await cluster.out_of_sync(at, now, log_dirs),
        under_way=(await cluster.admin.reassignments()).get(at) if nodes.controller >= 0 else None,
        topic=await cluster.topic_values(at.topic, TOPIC_CONFIGS),
        broker=await _broker_values(cluster, asked),
        document=document,
        moved=moved,
        moved_bytes=moved_bytes,
        sample_ms=sample_ms,
        connection=cluster.connection,
    )


async def _broker_values(cluster: Cluster, node_id: int) -> dict[str, str]:
    try:
        return await cluster.values(broker_resource(node_id), BROKER_CONFIGS, node_id=node_id)
    except (BrokerUnavailable, KafkaError):
        return {}


async def _sample(
    cluster: Cluster, at: TopicPartition, leader: int, sample_ms: int, *, reads: bool
) -> tuple[dict[TopicPartition, Moved], int | None]:
    partitions = list(await cluster.admin.partitions([at.topic]))

    async def look() -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], int | None]:
        ends = {
            each: listed.offset
            for each, listed in (await cluster.admin.list_offsets(partitions, LATEST)).items()
            if isinstance(listed, ListedOffset)
        }
        committed = await _committed(cluster, at.topic) if reads else {}
        return ends, committed, await _size(cluster, at, leader)

    ends, committed, size = await look()
    await asyncio.sleep(sample_ms / 1000)
    ends_after, committed_after, size_after = await look()
    moved = {
        each: Moved(
            produced=max(ends_after[each] - ends[each], 0),
            consumed=max(committed_after.get(each, 0) - committed.get(each, 0), 0),
        )
        for each in ends
        if each in ends_after
    }
    return moved, None if size is None or size_after is None else max(size_after - size, 0)


async def _committed(cluster: Cluster, topic: str) -> dict[TopicPartition, int]:
    """The sum of what all groups have committed, by partition."""
    sums: dict[TopicPartition, int] = {}
    for group in await cluster.admin.groups(types=("classic", "consumer")):
        for each, offset in (await cluster.admin.committed(group.group)).items():
            if each.topic == topic:
                sums[each] = sums.get(each, 0) + offset
    return sums


async def _size(cluster: Cluster, at: TopicPartition, leader: int) -> int | None:
    dirs = (await cluster.log_dirs([leader], at)).get(leader)
    sizes = [each.replicas[at].size_bytes for each in dirs or () if at in each.replicas]
    return sizes[0] if sizes else None


def _whys(states: Sequence[ReplicaState]) -> str:
    return "; ".join(f"{each.broker}: {each.why}" for each in states)


def _ids(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers)) or "none"
