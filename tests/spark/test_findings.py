"""The rules of findings, without Spark: what should be acted on, and what is no finding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from minikafka.protocol.internal.group_record_codec import encode_record
from minikafka.protocol.internal.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from minikafka.spark.analyze.analysis import (
    FORMAT,
    Analysis,
    BatchFill,
    Bucket,
    CodecTrial,
    CodecUse,
    CommittedOffset,
    Damage,
    Difference,
    Directory,
    Duplicate,
    Duplicates,
    Finding,
    Gaps,
    Keys,
    OpenTransaction,
    Partition,
    ReplicaBatch,
    ReplicaComparison,
    Retention,
    Setting,
    Timestamps,
    Topic,
    TopKey,
    Transactions,
)
from minikafka.spark.analyze.findings import DAY_MS, find, where
from minikafka.spark.analyze.passes import decode_commits

NOW_MS = 1_700_000_000_000
LOG_DIR = "/var/lib/kafka"
MB, GB = 1_000_000, 1_000_000_000
HOUR_MS = 3_600_000


def partition(number: int = 0, topic: str = "orders", *, records: int = 100, **figures: Any) -> Partition:
    """Of a quiet log, but for ``figures``."""
    given: dict[str, Any] = {
        "broker": 1,
        "bytes": 100 * records,
        "batches": 10,
        "control_batches": 0,
        "segments": 1,
        "first_offset": 0 if records else None,
        "log_end_offset": records or None,
        "high_watermark": records,
        "fill": None,
        "codecs": [],
        "trial": None,
        "sizes": None,
        "keys": None,
        "gaps": Gaps(gaps=0, missing=0, missing_inside=0, overlaps=0, first=[]),
        "timestamps": timestamps(),
        "epochs": [],
        "duplicates": Duplicates(batches=0, records=0, first=[]),
        "transactions": transactions(),
        "throughput": [],
        "damage": [],
        "damage_left_out": 0,
        "retention": retention(),
    }
    return Partition(topic=topic, partition=number, log_dir=LOG_DIR, records=records, **(given | figures))


def timestamps(**figures: Any) -> Timestamps:
    given = {"first_ms": NOW_MS - DAY_MS, "last_ms": NOW_MS, "log_append_time_batches": 0, "late_batches": 0,
             "late_records": 0, "late_max_ms": 0}  # fmt: skip
    return Timestamps(**(given | figures))


def transactions(**figures: Any) -> Transactions:
    given: dict[str, Any] = dict.fromkeys(Transactions.__struct_fields__, 0) | {"first_open": []}
    return Transactions(**(given | figures))


def retention(ms: int = 7 * DAY_MS, size: int = -1, **figures: Any) -> Retention:
    settings = {
        "retention.ms": Setting(value=str(ms), source="Kafka's default"),
        "retention.bytes": Setting(value=str(size), source="Kafka's default"),
    }
    given: dict[str, Any] = {
        "settings": settings, "applies": True, "due_segments": 0, "due_records": 0, "due_bytes": 0,
        "next_ms": None, "last_ms": None, "bytes_left": None,
    }  # fmt: skip
    return Retention(**(given | figures))


def keys(share: float, *, count: int = 50, records: int = 10_000) -> Keys:
    top = TopKey(key="alice", partition=0, records=round(share * records), bytes=2 * MB, share=share)
    figures: dict[str, Any] = dict.fromkeys(Keys.__struct_fields__, 0) | {"top": [top], "top_share": share}
    return Keys(**(figures | {"keys": count}))


def fill(**figures: Any) -> BatchFill:
    given: dict[str, Any] = dict.fromkeys(BatchFill.__struct_fields__, 0) | {"batch_size": 16_384}
    return BatchFill(**(given | figures))


def topic(*partitions: Partition, name: str = "orders", bucket_ms: int = HOUR_MS) -> Topic:
    return Topic(
        name=name,
        records=sum(each.records for each in partitions),
        bytes=sum(each.bytes for each in partitions),
        batches=sum(each.batches for each in partitions),
        tombstones=0,
        null_key_records=0,
        keys=None,
        superseded_records=0,
        compaction_saves_bytes=0,
        bucket_ms=bucket_ms,
        throughput=[],
        size_histogram=[],
        key_histogram=[],
        partitions=list(partitions),
    )


def found(
    *topics: Topic,
    free: int | None = None,
    replicas: list[ReplicaComparison] | None = None,
    commits: Sequence[CommittedOffset] = (),
) -> list[Finding]:
    directory = Directory(path=LOG_DIR, broker=1, cluster_id=None, partitions=1, disk_free_bytes=free)
    return find(
        Analysis(
            format=FORMAT,
            created_ms=NOW_MS,
            directories=[directory],
            topics=list(topics),
            replicas=replicas,
            approximations=[],
            committed=list(commits),
        )
    )


def only(*topics: Topic, **given: Any) -> Finding:
    (finding,) = found(*topics, **given)
    return finding


def committed(offset: int, *, ago_ms: int = HOUR_MS) -> CommittedOffset:
    return CommittedOffset(
        group_id="packing", topic="orders", partition=0, offset=offset, committed_ms=NOW_MS - ago_ms
    )


def test_a_quiet_log_has_none() -> None:
    assert found(topic(partition(0), partition(1)), free=GB) == []


def test_what_loses_records_comes_first_and_names_the_place() -> None:
    segment = "00000000000000000000.log"
    damage = Damage(log_dir=LOG_DIR, segment=segment, position=512, offset=7, what="its CRC-32C is wrong")
    open_one = OpenTransaction(producer_id=9, producer_epoch=0, first_offset=40, records=3)
    waiting = partition(0, transactions=transactions(open=1, open_records=3, first_open=[open_one]))
    broken = partition(1, damage=[damage], damage_left_out=2)
    late, damaged = reversed(found(topic(waiting, broken)))
    assert (damaged.severity, where(damaged)) == ("error", "orders-1")
    assert damaged.seen == f"damaged: {LOG_DIR}/orders-1/{segment} at 512: its CRC-32C is wrong (and 2 more)"
    assert (late.severity, late.code, where(late)) == ("warning", "open-transaction", "orders-0")
    assert late.seen == "1 open transaction (3 records): producer 9 from offset 40 on"


def test_replicas_that_differ_say_whose_bytes_are_not_what_was_written() -> None:
    batch = ReplicaBatch(
        broker=2, file="/b/orders-0/0.log", position=7, last_offset=9, leader_epoch=0, size=80,
        stored_crc=0x1234, actual_crc=0xABCD,
    )  # fmt: skip
    compared = ReplicaComparison(
        topic="orders", partition=0, brokers=[1, 2], from_offset=0, to_offset=10, batches=1, bytes=80,
        differences=1, first=Difference(offset=5, what="broker 2 has other bytes", batches=[batch]),
    )  # fmt: skip
    finding = only(topic(partition(0)), replicas=[compared])
    assert (finding.severity, finding.code) == ("error", "replicas-differ")
    assert finding.seen.splitlines() == [
        "1 batch differs, the first at offset 5: broker 2 has other bytes",
        "  broker 2: /b/orders-0/0.log position 7: CRC 00001234, of the bytes 0000abcd",
    ]


def test_batches_that_are_there_twice() -> None:
    first = Duplicate(
        producer_id=4, producer_epoch=0, base_sequence=0, first_offset=100, last_offset=109, batches=1,
        records=10,
    )  # fmt: skip
    finding = only(topic(partition(0, duplicates=Duplicates(batches=1, records=10, first=[first]))))
    assert finding.seen == (
        "1 repeated batch of idempotent producers (10 records); the first of producer 4 at offset 100"
    )
    overlapping = Gaps(gaps=0, missing=0, missing_inside=0, overlaps=2, first=[])
    assert only(topic(partition(0, gaps=overlapping))).severity == "error"


def test_microseconds_taken_for_milliseconds_keep_a_segment_for_ever() -> None:
    finding = only(topic(partition(0, timestamps=timestamps(last_ms=1_000 * NOW_MS))))
    assert (finding.code, finding.setting) == ("future-timestamps", "message.timestamp.after.max.ms")
    assert "1700000000000000 ms" in finding.seen  # no calendar has that year
    assert found(topic(partition(0, timestamps=timestamps(last_ms=NOW_MS + HOUR_MS)))) == []


def test_what_a_broker_removes_as_soon_as_it_starts() -> None:
    due = retention(due_segments=3, due_records=1_500, due_bytes=2 * GB)
    finding = only(topic(partition(0, retention=due), partition(1, retention=due)))
    assert finding.seen == "6 segments past retention: 3,000 records, 4.00 GB"


def test_a_group_that_is_behind_what_retention_leaves() -> None:
    lost = topic(partition(0, first_offset=40, log_end_offset=100))
    finding = only(lost, commits=[committed(10, ago_ms=26 * HOUR_MS)])
    assert (finding.severity, finding.code, where(finding)) == ("error", "records-lost", "orders-0")
    assert finding.seen == (
        "the group packing goes on at offset 10 (committed 1 d 2 h ago), and the log begins at 40: 30 "
        "offsets removed before it read them"
    )
    assert found(lost, commits=[committed(40)]) == []
    compacted = partition(0, first_offset=40, log_end_offset=100, retention=retention(applies=False))
    assert found(topic(compacted), commits=[committed(10)]) == [], (
        "compaction removes what has a newer record"
    )


def test_a_group_that_retention_will_overtake() -> None:
    soon = retention(next_ms=NOW_MS + HOUR_MS, next_offset=60)
    behind = topic(partition(0, log_end_offset=100, retention=soon))
    finding = only(behind, commits=[committed(10)])
    assert (finding.severity, finding.code) == ("warning", "records-at-risk")
    assert "at 2023-11-14 23:13:20 UTC retention removes what is before 60: 50 offsets" in finding.seen
    assert found(behind, commits=[committed(60)]) == []
    later = retention(next_ms=NOW_MS + 2 * DAY_MS, next_offset=60)
    assert found(topic(partition(0, retention=later)), commits=[committed(10)]) == []
    due = retention(due_segments=1, due_records=50, due_bytes=1, due_offset=50, next_offset=60)
    at_risk, _ = found(topic(partition(0, retention=due)), commits=[committed(10)])
    assert "as soon as a broker looks retention removes what is before 50: 40 offsets" in at_risk.seen


def test_commits_are_read_as_a_broker_wrote_them() -> None:
    """Members of groups are in the same topic; what was removed has no offset."""
    key = OffsetCommitKey("packing", "orders", 3)
    value = OffsetCommitValue(offset=42, leader_epoch=1, metadata="", commit_timestamp_ms=NOW_MS)
    encoded = [encode_record(GroupRecord(key, value)), encode_record(GroupRecord(key, None))]
    rows = [*encoded, (b"\0\2\0\1g", b"a member"), (b"\0\1 broken", b"")]
    batch = pa.RecordBatch.from_pylist(
        [{"key": key, "value": value, "offset": at} for at, (key, value) in enumerate(rows)]
    )
    (decoded,) = decode_commits([batch])
    assert [tuple(row.values()) for row in decoded.to_pylist()] == [
        ("packing", "orders", 3, 42, NOW_MS, 0),
        ("packing", "orders", 3, None, None, 1),
    ]


@pytest.mark.parametrize(
    ("free", "severity", "days"), [(5 * GB, "error", 6), (20 * GB, "warning", 21), (100 * GB, "notice", 101)]
)
def test_a_disk_that_will_be_full_is_worse_the_sooner_it_is(free: int, severity: str, days: int) -> None:
    """1 GB a day, and nothing takes it away again."""
    growing = partition(0, retention=retention(ms=-1), throughput=a_day(GB))
    finding = only(topic(growing), free=free)
    assert (finding.severity, where(finding)) == (severity, LOG_DIR)
    assert f"grow by 1.00 GB a day, as in their last 7 days: full within {days} days" in finding.seen
    assert finding.advice.startswith("orders grows fastest (1.00 GB a day)")


def test_a_disk_that_retention_keeps_free_is_no_finding() -> None:
    """7 days of 1 GB a day, of which 1 GB is there already; and a limit of 2 GB."""
    by_time = topic(partition(0, bytes=GB, throughput=a_day(GB)))
    assert found(by_time, free=int(6.1 * GB)) == []
    assert only(by_time, free=int(5.9 * GB)).code == "disk-full"
    by_size = topic(partition(0, bytes=GB, retention=retention(-1, 2 * GB), throughput=a_day(GB)))
    assert found(by_size, free=int(1.1 * GB)) == []
    assert only(by_size, free=int(0.9 * GB)).code == "disk-full"


def test_minutes_say_nothing_of_days() -> None:
    burst = [Bucket(start_ms=NOW_MS, records=1, bytes=GB)]
    assert found(topic(partition(0, throughput=burst), bucket_ms=60_000), free=1) == []


def a_day(size: int) -> list[Bucket]:
    return [Bucket(start_ms=NOW_MS + hour * HOUR_MS, records=1, bytes=size // 24) for hour in range(24)]


def test_partitions_that_have_more_than_their_share_and_none() -> None:
    spread = topic(partition(0, records=9_000), partition(1, records=500), partition(2, records=500),
                   partition(3, records=0))  # fmt: skip
    hot, idle = found(spread)
    assert (hot.code, where(hot)) == ("hot-partition", "orders-0")
    assert hot.seen.startswith("9,000 records, 3.6 times the mean of the topic's 4 partitions")
    assert (idle.code, where(idle)) == ("idle-partition", "orders")
    assert idle.seen == "1 partition of 4 without a record: 3"
    few = topic(partition(0, records=90), partition(1, records=1), partition(2, records=1))
    assert found(few) == [], "of few records it is chance"


def test_a_key_that_has_much_of_a_partition() -> None:
    finding = only(topic(partition(0, records=10_000, keys=keys(0.45))))
    assert finding.seen == ("the key alice has 45% of the records (4,500 of 10,000, 2.00 MB uncompressed)")
    assert found(topic(partition(0, records=10_000, keys=keys(0.1)))) == []
    assert found(topic(partition(0, records=10_000, keys=keys(1.0, count=1)))) == [], "there is one key"


def test_timestamps_out_of_order_count_from_a_minute_on() -> None:
    late = timestamps(late_batches=5, late_records=50, late_max_ms=7_200_000)
    finding = only(topic(partition(0, records=1_000, timestamps=late)))
    assert finding.seen == ("50 records of 1,000 in batches that are older than one before, by up to 2 h")
    barely = timestamps(late_batches=5, late_records=50, late_max_ms=50)
    assert found(topic(partition(0, records=1_000, timestamps=barely))) == []


def test_a_codec_that_would_take_less() -> None:
    trial = CodecTrial(
        batches=40, failed=0, stored_bytes=4 * MB, plain_bytes=4 * MB, ratio=1.0, bytes_by_codec={},
        saved_by_codec={"none": 0, "lz4": 40 * MB, "zstd": 60 * MB},
    )  # fmt: skip
    use = CodecUse(codec="none", batches=1_000, records=10_000, bytes=100 * MB)
    finding = only(topic(partition(0, bytes=100 * MB, trial=trial, codecs=[use])))
    assert finding.seen == (
        "zstd would save 60.0 MB of 100 MB (60%); in use: none. By 40 batches (4.00 MB) that were "
        "compressed again"
    )
    assert finding.setting == "compression.type"
    assert found(topic(partition(0, bytes=1_000 * MB, trial=trial, codecs=[use]))) == [], "6 % is little"


def test_producers_that_send_one_record_at_a_time() -> None:
    small = fill(records_mean=1.2, fill=0.01, single_record_batches=900)
    finding = only(topic(partition(0, batches=1_000, records=1_200, fill=small)))
    assert finding.seen == (
        "1.2 records a batch (90% of batches have one), 1.0% of a batch.size of 16,384 bytes; headers of "
        "batches are 61.0 kB of 120 kB"
    )
    large = fill(records_mean=1.0, fill=0.9, single_record_batches=1_000)
    assert found(topic(partition(0, batches=1_000, records=1_000, fill=large))) == [], (
        "large records fill them"
    )


def test_internal_topics_are_kafkas_own_but_for_their_damage() -> None:
    name = "__consumer_offsets"
    small = fill(records_mean=1.0, fill=0.01, single_record_batches=1_000)
    own = partition(0, name, batches=1_000, records=5_000, fill=small, keys=keys(0.9))
    idle = partition(1, name, records=0)
    assert found(topic(own, idle, name=name)) == []
    broken = partition(
        0, name, damage=[Damage(log_dir=LOG_DIR, segment="", position=None, offset=None, what="x")]
    )
    assert only(topic(broken, name=name)).code == "damage"
