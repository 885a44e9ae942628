"""What lies on disks: record batches of every codec, segments and what belongs to them, checkpoints,
names."""

from __future__ import annotations

import contextlib
import io
import random
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import crc32c

from minikafka.cli.dump_log import command as dump_log
from minikafka.clock import ManualClock
from minikafka.config.topic import TopicConfig
from minikafka.errors import ConfigError, KafkaError
from minikafka.log.checkpoint import (
    CorruptCheckpoint,
    EpochEntry,
    MetaProperties,
    decode_leader_epochs,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    encode_leader_epochs,
    encode_meta_properties,
    encode_offsets,
    encode_partition_metadata,
)
from minikafka.log.cleaner import raw_records, rebuild_batch
from minikafka.log.files import parse_directory_name, parse_file_name
from minikafka.log.producers.append import AppendOrigin
from minikafka.log.producers.snapshot import CorruptSnapshot, decode_snapshot
from minikafka.log.segment.fetch_data import FetchIsolation
from minikafka.log.segment.indexes import CorruptTransactionIndex, decode_aborted
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    CompressionType,
    crc_is_valid,
    iterate_headers,
    pack_header,
    read_header,
)
from minikafka.protocol.records.compression import CorruptBatch
from minikafka.protocol.records.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    build_batch,
    iterate_records,
    read_end_transaction_marker,
    validate_records,
)
from minikafka.testing.simulation.disk import SimulatedDisk
from minikafka.types import LeaderEpoch, TopicPartition
from tests.fuzz.target import Target

NOW_MS: Final = 1_700_000_000_000
DECOMPRESSED_BYTES_MAX: Final = 1 << 20
_TP: Final = TopicPartition("t", 0)
_LENGTH_AT: Final = 8
_DIRECTORY: Final = "/data/t-0"
_SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint")
_CONFIG: Final = TopicConfig(segment_bytes=2048, index_interval_bytes=100, segment_index_bytes=4096)


def _records(count: int = 3, *, base_offset: int = 0, **options: Any) -> bytes:
    values = [
        Record(
            base_offset + index,
            NOW_MS + index,
            b"k%d" % index if index else None,
            b"v" * index,
            (("h", b"x"), ("n", None)),
        )
        for index in range(count)
    ]
    return build_batch(values, base_offset=base_offset, **options)


def _with_crcs(data: bytes) -> bytes:
    """``data`` with the CRC of every whole batch in it put right: what else is wrong is what is looked
    for."""
    whole, position = bytearray(data), 0
    while len(whole) - position >= HEADER_SIZE:
        (length,) = struct.unpack_from(">i", whole, position + _LENGTH_AT)
        end = position + 12 + length
        if length < HEADER_SIZE - 12 or end > len(whole):
            break
        struct.pack_into(">I", whole, position + 17, crc32c.crc32c(memoryview(whole)[position + 21 : end]))
        position = end
    return bytes(whole)


# Batches


def _batches(data: bytes) -> object:
    return [(crc_is_valid(data, at, header), header.last_sequence) for at, header in iterate_headers(data)]


def _one_batch(codec: CompressionType, data: bytes) -> object:
    """The input is what stands behind the header: how many records, whether it is of a compacted topic, then
    the records as the codec leaves them. Who validates and who reads must agree."""
    if len(data) < 2:
        return None
    payload = data[2:]
    header = read_header(_EMPTY)._replace(
        batch_length=HEADER_SIZE - 12 + len(payload),
        attributes=int(codec),
        last_offset_delta=max(data[0] - 1, 0),
        record_count=data[0],
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
    )
    batch = pack_header(header, payload) + payload
    header = read_header(batch)
    assert crc_is_valid(batch, 0, header)
    summary = validate_records(
        batch, header, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX, keys_required=bool(data[1] & 1)
    )
    records = list(iterate_records(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX))
    assert len(records) == summary.record_count
    assert max(record.timestamp for record in records) == summary.max_timestamp
    return _rebuilt(batch, header)


def _rebuilt(batch: bytes, header: BatchHeader) -> bytes:
    raw = raw_records(batch, header, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    rebuilt = rebuild_batch(header, raw, delete_horizon_ms=None)
    assert read_header(rebuilt).record_count == len(raw)
    return rebuilt


def _payload_seeds(codec: CompressionType) -> Iterator[bytes]:
    for count in (1, 3, 40):
        batch = _records(count, compression=codec)
        for flag in (b"\0", b"\1"):
            yield bytes([count]) + flag + batch[HEADER_SIZE:]


def _marker(data: bytes) -> object:
    key, value = data[:4], data[4:]
    return read_end_transaction_marker(key or None, value or None)


def _marker_seeds() -> Iterable[bytes]:
    marker = EndTransactionMarker(ControlRecordType.COMMIT, 3)
    return [marker.key() + marker.value()]


# Logs


def _log(data: bytes) -> object:
    """A segment as the input says, opened as after a power cut or a clean stop, repaired, read and appended
    to. The first byte says which; CRCs are put right if its second bit is set."""
    if not data:
        return None
    content = _with_crcs(data[1:]) if data[0] & 2 else data[1:]
    return _open({"00000000000000000000.log": content}, clean=bool(data[0] & 1))


def _sidecar(data: bytes) -> object:
    """A sound log, of which one file beside a segment is the input. The first byte says which, and whether
    the stop was clean."""
    if not data:
        return None
    files = dict(_sound_log())
    suffix = _SUFFIXES[data[0] % len(_SUFFIXES)]
    name = next((name for name in files if name.endswith(suffix)), f"00000000000000000000{suffix}")
    return _open({**files, name: data[1:]}, clean=bool(data[0] & 0x80))


def _open(content: dict[str, bytes], *, clean: bool) -> object:
    disk = SimulatedDisk(rng=random.Random(0)).mount()
    disk.make_directory(_DIRECTORY)
    for name, data in content.items():
        disk.write_atomically(f"{_DIRECTORY}/{name}", data)
    log = UnifiedLog.load(
        _DIRECTORY, _TP, config=_CONFIG, files=disk, clock=ManualClock(NOW_MS), clean_shutdown=clean
    )
    if not clean:
        log.validate()
    log.update_high_watermark(log.log_end_offset)
    offset, found = log.log_start_offset, 0
    while offset < log.log_end_offset:
        # A clean stop's batches are not read again, so that a reader may find one that is damaged.
        read = log.read(
            offset,
            max_bytes=700,
            min_one_message=True,
            isolation=FetchIsolation.TXN_COMMITTED if clean else FetchIsolation.LOG_END,
            cached_only=False,
        )
        headers = [header for _, header in iterate_headers(read.records)]
        if not headers:
            break
        assert headers[-1].next_offset > offset, "the reader does not get on"
        offset, found = headers[-1].next_offset, found + len(headers)
    log.offset_for_timestamp(NOW_MS)
    if log.log_end_offset < 2**62:
        before = log.log_end_offset
        log.append_as_leader(_records(1), leader_epoch=LeaderEpoch(2**31 - 1))
        assert log.log_end_offset == before + 1
    return found


def _sound_log() -> dict[str, bytes]:
    if not _SOUND:
        disk = SimulatedDisk(rng=random.Random(0)).mount()
        log = UnifiedLog.load(
            _DIRECTORY, _TP, config=_CONFIG, files=disk, clock=ManualClock(NOW_MS), clean_shutdown=True
        )
        for sequence in range(12):
            producer = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
            batch = _records(4, base_sequence=sequence * 4, **producer)
            log.append_as_leader(batch, leader_epoch=LeaderEpoch(sequence // 4))
        end = EndTransactionMarker(ControlRecordType.ABORT, 0)
        marker = build_batch(
            [Record(0, NOW_MS, end.key(), end.value(), ())],
            producer_id=7,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
        log.append_as_leader(marker, leader_epoch=LeaderEpoch(3), origin=AppendOrigin.COORDINATOR)
        log.close()
        for name in disk.list(_DIRECTORY):
            _SOUND[name] = disk.read_bytes(f"{_DIRECTORY}/{name}")
    return _SOUND


_SOUND: dict[str, bytes] = {}
_EMPTY: Final = _records(1)


def _log_seeds() -> Iterator[bytes]:
    whole = _records(3) + _records(2, base_offset=3, compression=CompressionType.ZSTD, leader_epoch=1)
    for first in (b"\0", b"\1", b"\2", b"\3"):
        yield first + whole
        yield first + whole[:-5]


def _sidecar_seeds() -> Iterator[bytes]:
    for place, suffix in enumerate(_SUFFIXES):
        for name, data in _sound_log().items():
            if name.endswith(suffix):
                base = place if suffix else 0
                clean = 0x80 + (base - 0x80) % len(_SUFFIXES)
                yield bytes([base]) + data
                yield bytes([clean]) + data


def _snapshot(data: bytes) -> object:
    """Version and CRC are put right, which ``decode_snapshot`` compares first of all."""
    return decode_snapshot(struct.pack(">hI", 1, crc32c.crc32c(data)) + data)


def _snapshot_seeds() -> Iterator[bytes]:
    for name, data in _sound_log().items():
        if name.endswith(".snapshot"):
            yield data[6:]


# Dumped files


def _dumped(data: bytes) -> object:
    """``minikafka dump-log`` on one file of any kind, dumped or verified: it says what is wrong, and ends."""
    if not data:
        return None
    suffix = _SUFFIXES[data[0] % len(_SUFFIXES)]
    name = suffix if suffix.startswith("leader") else f"00000000000000000000{suffix}"
    with tempfile.TemporaryDirectory(dir=_memory()) as directory:
        path = Path(directory, name)
        path.write_bytes(_with_crcs(data[1:]) if suffix == ".log" else data[1:])
        options = ["--verify"] if data[0] & 0x80 else ["--print-data-log", "--json"]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            status = dump_log.main([*options, str(path)])
    assert status in (0, 1)
    return status


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


# Small files


def _one_of(readers: tuple[Callable[[bytes], object], ...], data: bytes) -> object:
    """The first byte says which reader."""
    return readers[data[0] % len(readers)](data[1:]) if data else None


_CHECKPOINTS: Final[tuple[Callable[[bytes], object], ...]] = (
    partial(decode_offsets, path="checkpoint"),
    partial(decode_leader_epochs, path="checkpoint"),
    partial(decode_partition_metadata, path="checkpoint"),
    partial(decode_meta_properties, path="checkpoint"),
    partial(decode_aborted, path="00000000000000000000.txnindex"),
)


def _checkpoint_seeds() -> Iterable[bytes]:
    return [
        b"\0" + encode_offsets({_TP: 5, TopicPartition("u", 1): 2**62}),
        b"\1" + encode_leader_epochs([EpochEntry(0, 0), EpochEntry(LeaderEpoch(3), 17)]),
        b"\2" + encode_partition_metadata(UUID(int=7)),
        b"\3" + encode_meta_properties(MetaProperties(1, "cluster", 1, UUID(int=7))),
        *(b"\4" + data for name, data in _sound_log().items() if name.endswith(".txnindex")),
    ]


def _name(data: bytes) -> object:
    text = data.decode(errors="surrogateescape")
    return parse_directory_name(text), parse_file_name(text)


def _name_seeds() -> Iterable[bytes]:
    return [
        b"t-0",
        b"a-b-7." + b"0" * 32 + b"-delete",
        b"00000000000000000007.timeindex",
        b"t-3." + b"f" * 32 + b"-future",
    ]


TARGETS: Final = (
    Target(
        "batches", _batches, (CorruptBatch,), lambda: [_records(3), _records(1) + _records(2, producer_id=3)]
    ),
    *(
        Target(
            f"records-{codec.name.lower()}",
            partial(_one_batch, codec),
            (CorruptBatch,),
            partial(_payload_seeds, codec),
        )
        for codec in CompressionType
    ),
    Target("marker", _marker, (CorruptBatch,), _marker_seeds, 64),
    Target("log", _log, (KafkaError,), _log_seeds),
    Target("log-sidecar", _sidecar, (KafkaError,), _sidecar_seeds),
    Target("snapshot", _snapshot, (CorruptSnapshot,), _snapshot_seeds),
    Target("dump-log", _dumped, (), lambda: [*_sidecar_seeds(), *_log_seeds()]),
    Target(
        "checkpoint",
        partial(_one_of, _CHECKPOINTS),
        (CorruptCheckpoint, ConfigError, CorruptTransactionIndex),
        _checkpoint_seeds,
        1024,
    ),
    Target("names", _name, (), _name_seeds, 300),
)
