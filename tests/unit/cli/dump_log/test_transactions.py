"""``dump-log`` shows the records of ``__transaction_state``, and in a topic what belongs to transactions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minikafka.cli.dump_log.command import main
from minikafka.protocol.internal.transaction_record_codec import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionRecord,
    encode_record,
)
from minikafka.protocol.records.records import ControlRecordType, Record, build_batch
from minikafka.types import TopicPartition
from tests.unit.log.log_helpers import append, append_marker, idempotent, open_log

KEY = TransactionLogKey("pay")
SHOWN_KEY = {"type": "0", "data": {"transactionalId": "pay"}}


def value(**changes: Any) -> TransactionLogValue:
    return TransactionLogValue(
        **{
            "producer_id": 7,
            "producer_epoch": 3,
            "transaction_timeout_ms": 60_000,
            "transaction_status": 1,
            "transaction_partitions": frozenset({TopicPartition("a", 2), TopicPartition("a", 0)}),
            "transaction_last_update_timestamp_ms": 1000,
            "transaction_start_timestamp_ms": 900,
            **changes,
        }
    )


def records_shown(out: str) -> list[dict[str, Any]]:
    items = [json.loads(line) for line in out.splitlines()]
    return [item for item in items if item["type"] == "record"]


@pytest.mark.parametrize(
    ("written", "version", "more"),
    [
        (value(version=0), "0", {}),
        (value(), "1", {}),
        (
            value(previous_producer_id=6, next_producer_id=8, client_transaction_version=2),
            "1",
            {"previousProducerId": 6, "nextProducerId": 8, "clientTransactionVersion": 2},
        ),
    ],
)
def test_a_transactional_id_is_shown_as_kafka_shows_it(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    written: TransactionLogValue,
    version: str,
    more: dict[str, int],
) -> None:
    records = [TransactionRecord(KEY, written), TransactionRecord(KEY, None)]
    path = tmp_path / "00000000000000000000.log"
    pairs = [encode_record(each) for each in records]
    path.write_bytes(build_batch([Record(i, 1, key, data, ()) for i, (key, data) in enumerate(pairs)]))
    assert main(["--transaction-log-decoder", "--json", str(path)]) == 0
    ongoing, tombstone = records_shown(capsys.readouterr().out)
    assert ongoing["key"] == tombstone["key"] == SHOWN_KEY and tombstone["value"] is None
    assert ongoing["value"] == {
        "version": version,
        "data": {
            "producerId": 7,
            "producerEpoch": 3,
            "transactionTimeoutMs": 60_000,
            "transactionStatus": 1,
            "transactionPartitions": [{"topic": "a", "partitionIds": [0, 2]}],
            "transactionLastUpdateTimestampMs": 1000,
            "transactionStartTimestampMs": 900,
            **more,
        },
    }


def test_what_is_no_record_of_a_transaction_is_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(build_batch([Record(0, 1, b"\0\0\0\3pay", b"\0\1x", ())]))
    assert main(["--transaction-log-decoder", "--json", str(path)]) == 1
    assert "cannot be decoded" in capsys.readouterr().out


def test_one_decoder_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--transaction-log-decoder", "--offsets-decoder", str(tmp_path)]) == 2
    assert "not allowed with argument" in capsys.readouterr().err


def test_transactions_markers_and_aborted_ones_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "t-0"
    log = open_log(directory)
    append(log, idempotent(0, transactional=True))
    append_marker(log, ControlRecordType.ABORT)
    append(log, idempotent(1, transactional=True))
    log.close()
    assert main(["--print-data-log", "--json", str(directory)]) == 0
    items = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    batches = [item for item in items if item["type"] == "batch"]
    assert [(each["is_transactional"], each["is_control"]) for each in batches] == [
        (True, False),
        (True, True),
        (True, False),
    ]
    assert [each["end_txn_marker"] for each in items if "end_txn_marker" in each] == ["ABORT"]
    ((aborted),) = [item for item in items if item["type"] == "aborted_transaction"]
    assert (aborted["producer_id"], aborted["first_offset"], aborted["last_offset"]) == (7, 0, 1)
    assert aborted["last_stable_offset"] == 2
    producers = [item for item in items if item["type"] == "producer"]
    assert [each["current_txn_first_offset"] for each in producers] == [2]
