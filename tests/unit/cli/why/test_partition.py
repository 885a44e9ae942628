"""Why a partition is as it is: from facts to reasons, without a cluster."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from minikafka.cli import main as minikafka
from minikafka.cli.cluster.describe import ReplicaState
from minikafka.cli.shared.admin_client import PartitionNow
from minikafka.cli.why.answer import Reason
from minikafka.cli.why.partition import Moved, PartitionFacts, answer_of
from minikafka.types import BrokerId, ReplicaAssignment, TopicPartition

AT, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000


def facts(leader: int = 1, isr: tuple[int, ...] = (1, 2, 3), **more: Any) -> PartitionFacts:
    offline = more.pop("offline", ())
    given: dict[str, Any] = {
        "at": AT,
        "now": PartitionNow(leader, (1, 2, 3), isr, offline),
        "live": frozenset({1, 2, 3}),
        "controller": 1,
        "topic": {"min.insync.replicas": "2", "cleanup.policy": "delete"},
    }
    return PartitionFacts(**given | more)


def codes(found: PartitionFacts, question: str | None = None) -> list[str]:
    return [reason.code for reason in answer_of(found, question).reasons]


def only(found: PartitionFacts, question: str | None = None) -> Reason:
    (reason,) = answer_of(found, question).reasons
    return reason


def parses(remedy: str) -> bool:
    """Whether the command that is proposed last is one that can be typed."""
    command = shlex.split(remedy[remedy.index("minikafka ") :])[1:]
    module, _ = minikafka.SUBCOMMANDS[command[0]]
    return bool(minikafka.load(module).parser().parse_args(command[1:]))


def test_a_partition_without_trouble_is_well() -> None:
    found = answer_of(facts(), None)
    assert not found.reasons and "orders-0 is well" in found.sentence


# Offline


def test_offline_because_no_broker_with_a_replica_is_there() -> None:
    reason = only(facts(-1, (2,), live=frozenset({4}), controller=4), "offline")
    assert reason.code == "offline.no-replica"
    assert "1, 2, 3" in reason.sentence and reason.remedy == "start broker 2 again"


def test_offline_because_only_one_that_was_not_in_sync_is_there() -> None:
    reason = only(facts(-1, (2,), live=frozenset({1})), "offline")
    assert reason.code == "offline.not-in-sync"
    assert "broker 2 has all records" in reason.sentence and parses(reason.remedy)


def test_offline_because_a_disk_has_failed() -> None:
    reason = only(facts(-1, (2,), live=frozenset({2}), offline=(2,)), "offline")
    assert reason.code == "offline.log-directory" and "broker 2" in reason.sentence


def test_offline_because_nobody_elects() -> None:
    assert only(facts(-1, (1,), controller=-1), "offline").code == "offline.no-controller"


# Replicas


def test_under_replicated_and_under_min_isr_the_graver_first() -> None:
    away = [ReplicaState(2, "its broker is not registered"), ReplicaState(3, "30 records behind", 30)]
    found = facts(1, (1,), live=frozenset({1, 3}), out_of_sync=away)
    assert codes(found) == ["under-min-isr", "under-replicated.broker-away"]
    first = answer_of(found, None)
    assert "1 of 2 replicas are in sync: 2: its broker is not registered; 3: 30 records" in first.sentence


def test_a_replica_that_is_added_is_not_missing_and_a_throttled_one_is_named() -> None:
    late = [ReplicaState(2, "9 records behind"), ReplicaState(3, "it has not fetched")]
    replicas = tuple(map(BrokerId, (1, 2, 3)))
    assignment = ReplicaAssignment(replicas, (BrokerId(3),), ())
    throttled = {"follower.replication.throttled.replicas": "0:2,1:3", "min.insync.replicas": "1"}
    reason = only(facts(1, (1,), out_of_sync=late, under_way=assignment, topic=throttled), "under-replicated")
    assert reason.evidence["out of sync"] == [{"replica": 2, "why": "9 records behind", "throttled": True}]


def test_fewer_replicas_than_min_isr_can_never_do() -> None:
    assert only(facts(1, (1, 2, 3), topic={"min.insync.replicas": "4"})).code == "under-min-isr.few-replicas"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"live": frozenset({2, 3})}, "broker-away"),
        ({"isr": (2, 3), "out_of_sync": [ReplicaState(1, "5 behind")]}, "not-in-sync"),
        ({"broker": {"auto.leader.rebalance.enable": "true"}}, "soon"),
        ({"broker": {"auto.leader.rebalance.enable": "false"}}, "not-automatic"),
        ({"under_way": ReplicaAssignment((BrokerId(1),), (), ())}, "reassigned"),
    ],
)
def test_who_should_lead_and_does_not(more: dict[str, Any], code: str) -> None:
    reason = only(facts(2, **more), "not-preferred")
    assert reason.code == f"not-preferred.{code}"
    assert "minikafka" not in reason.remedy or parses(reason.remedy)


# The log


def document(**compaction: Any) -> dict[str, Any]:
    log = {
        "start": 0,
        "last_stable": 60,
        "high_watermark": 90,
        "end": 90,
        "segments": 3,
        "bytes": 900,
        "cleanup_policy": ["delete"],
        "retention_ms": 7 * DAY_MS,
        "retention_bytes": -1,
        "segment_ms": DAY_MS,
        "segment_bytes": 1000,
    }
    oldest = {
        "base_offset": 0,
        "end_offset": 30,
        "bytes": 300,
        "newest_timestamp_ms": NOW_MS - DAY_MS,
        "is_active": False,
    }
    found = {
        "enabled": True,
        "in_progress": False,
        "given_up": False,
        "moving": False,
        "min_dirty_ratio": 0.5,
        "min_lag_ms": 60_000,
        "unreadable": None,
        "dirty_ratio": 0.2,
        "dirty_bytes": 100,
        "cleanable_bytes": 500,
        "ends_at": "active segment",
        "end_offset": 60,
        "first_dirty_offset": 50,
        "is_due": False,
    }
    return {"now_ms": NOW_MS, "log": log, "oldest_segment": oldest, "compaction": found | compaction}


COMPACT = {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("compaction", "code", "words"),
    [
        ({}, "clean-enough", "20% of its bytes are dirty"),
        ({"enabled": False}, "disabled", "log.cleaner.enable is false"),
        ({"given_up": True}, "given-up", "until the broker restarts"),
        ({"unreadable": "segment 30 is damaged"}, "given-up", "segment 30 is damaged"),
        ({"in_progress": True}, "in-progress", "being compacted now"),
        ({"moving": True}, "moving", "another log directory"),
        ({"is_due": True}, "due", "waits for its turn"),
        ({"dirty_bytes": 0}, "active-segment", "active segment"),
        ({"dirty_bytes": 0, "ends_at": "last stable offset"}, "open-transaction", "from offset 60 on"),
        ({"dirty_bytes": 0, "ends_at": "min.compaction.lag.ms"}, "young", "(1 min)"),
    ],
)
def test_what_keeps_a_log_from_being_compacted(compaction: dict[str, Any], code: str, words: str) -> None:
    reason = only(facts(topic=COMPACT, document=document(**compaction)), "not-compacted")
    assert reason.code == f"not-compacted.{code}" and words in reason.sentence


def test_a_topic_that_is_not_compacted_at_all() -> None:
    reason = only(facts(), "not-compacted")
    assert reason.code == "not-compacted.policy" and parses(reason.remedy)


@pytest.mark.parametrize(
    ("log", "oldest", "code", "words"),
    [
        ({}, {}, "young", "goes in 6 d"),
        ({"cleanup_policy": ["compact"]}, {}, "policy", "cleanup.policy is compact"),
        ({"retention_ms": -1}, {}, "for-ever", "sets a limit"),
        ({"high_watermark": 29}, {}, "not-committed", "(29) has not passed the end"),
        ({}, {"newest_timestamp_ms": NOW_MS + DAY_MS}, "future", "1 d in the future"),
        ({}, {"newest_timestamp_ms": NOW_MS - 8 * DAY_MS}, "due", "every 5 min"),
        ({"retention_bytes": 600}, {}, "due", "every 5 min"),
        ({"retention_bytes": 700, "retention_ms": -1}, {}, "small", "retention.bytes (700 B)"),
        ({}, {"is_active": True, "bytes": 0}, "empty", "none"),
    ],
)
def test_what_keeps_the_oldest_records(
    log: dict[str, Any], oldest: dict[str, Any], code: str, words: str
) -> None:
    found = document()
    found["log"] |= log
    found["oldest_segment"] |= oldest
    reason = only(facts(document=found), "not-deleted")
    assert reason.code == f"not-deleted.{code}" and words in reason.sentence


def test_without_diagnostics_the_configuration_says_what_it_can() -> None:
    for_ever = {"retention.ms": "-1", "retention.bytes": "-1"}
    assert only(facts(topic=for_ever), "not-deleted").code == "not-deleted.for-ever"
    assert codes(facts(), "not-deleted") == []


# Between two looks


def moved(mine: tuple[int, int], other: tuple[int, int]) -> dict[str, Any]:
    both = {AT: mine, OTHER: other}
    found = {at: Moved(produced=produced, consumed=consumed) for at, (produced, consumed) in both.items()}
    return {"moved": found, "sample_ms": 2_000}


def test_growing_says_how_fast_and_why_nothing_goes() -> None:
    reason = only(facts(**moved((100, 0), (10, 0)), moved_bytes=4_000, document=document()), "growing")
    assert "grows by 50 records/s (2.00 kB/s); the oldest records" in reason.sentence
    assert codes(facts(**moved((0, 0), (0, 0))), "growing") == ["not-growing"]


@pytest.mark.parametrize(
    ("mine", "other", "expected"),
    [
        ((100, 100), (100, 100), []),
        ((100, 10), (100, 100), ["uneven.read-unevenly"]),
        ((10, 10), (100, 100), ["uneven.written-unevenly"]),
        ((10, 0), (10, 0), ["uneven.not-read"]),
    ],
)
def test_uneven_reading_comes_of_its_reader_or_of_its_keys(
    mine: tuple[int, int], other: tuple[int, int], expected: list[str]
) -> None:
    assert codes(facts(**moved(mine, other)), "unevenly-read") == expected
