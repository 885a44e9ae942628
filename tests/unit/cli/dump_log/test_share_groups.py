"""``dump-log`` shows the records of ``__share_group_state``."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from minikafka.cli.dump_log.command import main
from minikafka.protocol.internal.share_record_codec import encode_record
from minikafka.protocol.internal.share_records import (
    SharePartitionKey,
    ShareRecord,
    ShareSnapshotValue,
    ShareUpdateValue,
    StateBatch,
)
from minikafka.protocol.records.records import Record, build_batch

KEY = SharePartitionKey("g", UUID("6f02ed56-0f49-432e-8b16-9c0f0e8ffb77"), 1)
SHOWN_KEY = {"groupId": "g", "topicId": "bwLtVg9JQy6LFpwPDo_7dw", "partition": 1}
BATCHES = (StateBatch(5, 9, 2, 1),)
SHOWN_BATCHES = [{"firstOffset": 5, "lastOffset": 9, "deliveryState": 2, "deliveryCount": 1}]


def test_snapshots_updates_and_tombstones_are_shown_as_kafka_shows_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [
        ShareSnapshotValue(
            snapshot_epoch=1,
            state_epoch=2,
            leader_epoch=3,
            start_offset=4,
            delivery_complete_count=6,
            create_timestamp=7,
            write_timestamp=8,
            state_batches=BATCHES,
        ),
        ShareUpdateValue(snapshot_epoch=1, leader_epoch=3, start_offset=-1, state_batches=BATCHES),
        None,
    ]
    pairs = [encode_record(ShareRecord(KEY, each)) for each in records]
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(build_batch([Record(i, 1, key, data, ()) for i, (key, data) in enumerate(pairs)]))
    assert main(["--share-group-state-decoder", "--json", str(path)]) == 0
    items = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    snapshot, update, tombstone = [item for item in items if item["type"] == "record"]
    assert snapshot["key"] == tombstone["key"] == {"type": "0", "data": SHOWN_KEY}
    assert update["key"] == {"type": "1", "data": SHOWN_KEY}
    assert tombstone["value"] is None
    assert snapshot["value"]["data"] == {
        "snapshotEpoch": 1,
        "stateEpoch": 2,
        "leaderEpoch": 3,
        "startOffset": 4,
        "deliveryCompleteCount": 6,
        "createTimestamp": 7,
        "writeTimestamp": 8,
        "stateBatches": SHOWN_BATCHES,
    }
    assert update["value"]["data"] == {
        "snapshotEpoch": 1,
        "leaderEpoch": 3,
        "startOffset": -1,
        "stateBatches": SHOWN_BATCHES,
    }


def test_what_is_no_record_of_a_share_group_is_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(build_batch([Record(0, 1, b"\0\0\0\3pay", b"\0\1x", ())]))
    assert main(["--share-group-state-decoder", "--json", str(path)]) == 1
    assert "cannot be decoded" in capsys.readouterr().out
