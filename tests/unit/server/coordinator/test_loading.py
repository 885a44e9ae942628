"""A shard is filled from its partition's log: all of it, in order, whatever is damaged left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.records.batch import HEADER_SIZE
from minikafka.protocol.records.records import ControlRecordType, EndTransactionMarker, Record, build_batch
from minikafka.server.coordinator.hosted_shard import ShardState
from tests.unit.server.groups import AT, NOW_MS, Coordinator, committed, group_batch


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    made = Coordinator(tmp_path)
    yield made
    made.close()


def write(coordinator: Coordinator, *batches: bytes) -> None:
    """Into the log of this broker, while another one leads."""
    coordinator.follow(epoch=0)
    log = coordinator.replicas.partition(AT).log
    for batch in batches:
        log.append_as_follower(_at(batch, log.log_end_offset))


def _at(batch: bytes, offset: int) -> bytes:
    return offset.to_bytes(8, "big") + batch[8:]


def test_a_partition_without_records_is_ready_at_once(coordinator: Coordinator) -> None:
    coordinator.lead()
    assert coordinator.shard.state is ShardState.ACTIVE and coordinator.groups.told == ["loaded"]


def test_every_record_is_replayed_in_the_order_of_the_log(tmp_path: Path) -> None:
    """In pieces smaller than a batch, and in larger ones."""
    for buffer_bytes in (1, 200, 10_000):
        coordinator = Coordinator(tmp_path / str(buffer_bytes), offsets_load_buffer_size=str(buffer_bytes))
        write(coordinator, *(group_batch(committed(n), committed(n + 1)) for n in range(0, 20, 2)))
        coordinator.lead(epoch=1)
        assert coordinator.groups.offsets == list(range(20)) and coordinator.groups.told == ["loaded"]
        coordinator.close()


def test_offsets_of_a_transaction_come_with_its_producer_and_its_end(coordinator: Coordinator) -> None:
    marker = EndTransactionMarker(ControlRecordType.ABORT, 0)
    write(
        coordinator,
        group_batch(committed(1), transactional=True, producer_id=7, producer_epoch=0, base_sequence=0),
        build_batch(
            [Record(0, NOW_MS, marker.key(), marker.value(), ())],
            control=True,
            transactional=True,
            producer_id=7,
            producer_epoch=0,
        ),
        group_batch(committed(2)),
    )
    coordinator.lead(epoch=1)
    assert [producer for _, producer in coordinator.groups.replayed] == [7, -1]
    assert coordinator.groups.told == [("marker", 7, False), "loaded"]


@pytest.mark.parametrize(
    "damaged",
    [
        build_batch([Record(0, NOW_MS, b"\x00\x01", b"", ())]),
        build_batch([Record(0, NOW_MS, b"\x00\x63what is this", b"", ())]),
        build_batch([Record(0, NOW_MS, None, b"no key", ())]),
    ],
    ids=["cut off", "of an unknown type", "without a key"],
)
def test_a_damaged_record_is_named_and_left_out(
    coordinator: Coordinator, damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    write(coordinator, group_batch(committed(1)), damaged, group_batch(committed(2)))
    coordinator.lead(epoch=1)
    assert coordinator.groups.offsets == [1, 2] and coordinator.groups.told == ["loaded"]
    assert "__consumer_offsets-0: the record at offset 1 is damaged and left out" in caplog.text


def test_a_damaged_batch_is_named_and_left_out(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    write(coordinator, *(group_batch(committed(n)) for n in range(3)))
    (segment,) = tmp_path.glob("__consumer_offsets-0/*.log")
    whole = segment.read_bytes()
    first_length = len(whole) // 3 + HEADER_SIZE  # of the record in the second batch
    segment.write_bytes(whole[:first_length] + b"\x7e" + whole[first_length + 1 :])
    coordinator.lead(epoch=1)
    assert coordinator.groups.offsets == [0, 2] and coordinator.shard.state is ShardState.ACTIVE
    assert "the record at offset 1 is damaged and left out" in caplog.text
    segment.write_bytes(whole)


def test_a_log_that_cannot_be_read_is_not_coordinated(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    write(coordinator, group_batch(committed(1)), group_batch(committed(2)))
    (segment,) = tmp_path.glob("__consumer_offsets-0/*.log")
    whole = segment.read_bytes()
    middle = len(whole) // 2 + 16  # the magic of the second batch
    segment.write_bytes(whole[:middle] + b"\x09" + whole[middle + 1 :])
    coordinator.lead(epoch=1)
    assert coordinator.shard.state is ShardState.FAILED
    assert coordinator.ask().codes == [ErrorCode.NOT_COORDINATOR]
    assert "the groups of __consumer_offsets-0 cannot be loaded" in caplog.text
    segment.write_bytes(whole)
