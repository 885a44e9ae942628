"""``minikafka dump-log``: shows what is in a log's files and finds damage. Kafka: ``kafka-dump-log``
(``DumpLogSegments``), whose lines its text resembles; it is coloured on a terminal.

Takes segments, indexes, producer snapshots, checkpoints, ``partition.metadata`` and ``meta.properties``, a
partition's directory or a whole log directory. Files are only read, in bounded memory.

``--offsets-decoder``, ``--transaction-log-decoder`` and ``--share-group-state-decoder`` show the records of
``__consumer_offsets``, ``__transaction_state`` and ``__share_group_state`` in words. Kafka:
``OffsetsMessageParser``, ``TransactionLogMessageParser``, ``ShareGroupStateMessageParser``. Keys and values
have its JSON: types and versions are strings, fields have the names of Kafka's schemas, bytes are base64, a
tagged field that has its default is left out. Of a group of consumers, subscriptions and assignments are
decoded too, where they can be.

Exit status: 0 nothing is wrong; 1 damage was found; 2 the arguments cannot be used or a file cannot be read.

With ``--json`` every line is an object. ``type`` says what it is:

    file                  file, kind, size; what follows is from this file
    batch                 file, base_offset, last_offset, count, base_sequence, last_sequence, producer_id,
                          producer_epoch, partition_leader_epoch, is_transactional, is_control,
                          delete_horizon_ms, position, timestamp_type, max_timestamp, size, magic,
                          compression, crc, is_valid
    record                offset, timestamp, key_size, value_size (-1: null), sequence,
                          headers [{key, value}],
                          key, value; bytes that are no UTF-8 are in key_base64, value_base64 instead;
                          or, of a control record, end_txn_marker and coordinator_epoch;
                          with a decoder (--offsets-decoder and others) key and value are
                          objects, or undecoded says why not
    index_entry           offset, position
    time_index_entry      timestamp, offset
    aborted_transaction   version, producer_id, first_offset, last_offset, last_stable_offset
    reserved_space        entries: zero bytes at the end of an index
    producer              producer_id, producer_epoch, last_sequence, last_offset, offset_delta, timestamp,
                          coordinator_epoch, current_txn_first_offset (null: none)
    leader_epoch          epoch, start_offset
    checkpoint_entry      topic, partition, offset
    partition_metadata    version, topic_id
    meta_properties       version, cluster_id, node_id, directory_id
    clean_shutdown_marker content
    finding               file, position (null: of the file as a whole), what, advice
    summary               findings; with --verify also files, batches, records
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, Protocol, TextIO
from uuid import UUID

from minikafka.cli.dump_log.files import (
    FileKind,
    Item,
    KnownFile,
    PathKind,
    Selection,
    Verifier,
    identify,
    items_of,
    path_kind,
)
from minikafka.cli.dump_log.segment import Finding
from minikafka.errors import PeerProtocolError
from minikafka.files import Files, OsFiles
from minikafka.log.checkpoint import encode_uuid
from minikafka.log.files import parse_directory_name
from minikafka.protocol.internal import group_record_codec, share_record_codec, transaction_record_codec
from minikafka.protocol.internal.group_record_codec import SCHEMAS, Field, entity_schema
from minikafka.protocol.wire.reading import ELEMENTS_MAX, MALFORMED, Reader, compile_reader

_GROUP_METADATA = 2
_CONSUMER_PROTOCOL_TYPE = "consumer"
_CONSUMER_PROTOCOL_VERSION_MAX = 3
_TOPIC_PARTITIONS = (Field("topic", "string"), Field("partitions", "int32", is_array=True))
_SUBSCRIPTION: Final = (
    Field("topics", "string", is_array=True),
    Field("user_data", "bytes", nullable=True),
    Field("owned_partitions", _TOPIC_PARTITIONS, is_array=True, since=1),
    Field("generation_id", "int32", since=2),
    Field("rack_id", "string", nullable=True, since=3),
)
"""Kafka: ``ConsumerProtocolSubscription.json``."""
_ASSIGNMENT: Final = (
    Field("assigned_partitions", _TOPIC_PARTITIONS, is_array=True),
    Field("user_data", "bytes", nullable=True),
)
"""Kafka: ``ConsumerProtocolAssignment.json``."""
_ZERO_UUID = UUID(int=0)

_TRANSACTION_FIELDS: Final = (
    ("producerId", "producer_id", None),
    ("previousProducerId", "previous_producer_id", -1),
    ("nextProducerId", "next_producer_id", -1),
    ("producerEpoch", "producer_epoch", None),
    ("transactionTimeoutMs", "transaction_timeout_ms", None),
    ("transactionStatus", "transaction_status", None),
    ("transactionPartitions", "transaction_partitions", None),
    ("transactionLastUpdateTimestampMs", "transaction_last_update_timestamp_ms", None),
    ("transactionStartTimestampMs", "transaction_start_timestamp_ms", None),
    ("clientTransactionVersion", "client_transaction_version", 0),
)
"""Kafka's name and order, ours, and the default of a tagged field."""

_SHARE_KEY: Final = ("group_id", "topic_id", "partition")
_SHARE_VALUE: Final = (
    "snapshot_epoch",
    "state_epoch",
    "leader_epoch",
    "start_offset",
    "delivery_complete_count",
    "create_timestamp",
    "write_timestamp",
    "state_batches",
)
"""In Kafka's order; an update has some of them."""

_KAFKA_NAMES = {"compression": "compresscodec", "is_valid": "isvalid", "value": "payload"}
"""Where Kafka's tool has a name of its own."""

_SNAKE = re.compile(r"_([a-z])")

DAMAGED, UNUSABLE = 1, 2

_OFFSETS = re.compile(r"(?P<first>\d{0,19})(?P<range>:(?P<last>\d{0,19}))?", re.ASCII)


# Decoders


def decoded_group_record(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """``key`` and ``value`` as objects; the value of a tombstone is None.

    Raises:
        UnreadableRecord: the record cannot be decoded, and why.
    """
    record_type, body = group_record_codec.read_key(key)
    item: dict[str, Any] = {
        "key": {"type": str(record_type), "data": _json_of(SCHEMAS[record_type].key, body)},
        "value": None,
    }
    if value is None:
        return item
    version, value_body = group_record_codec.read_value(record_type, value, group=body[0])
    data = _json_of(SCHEMAS[record_type].value, value_body)
    if record_type == _GROUP_METADATA and data["protocolType"] == _CONSUMER_PROTOCOL_TYPE:
        for member, shown in zip(value_body.members, data["members"], strict=True):
            for name, fields in (("subscription", _SUBSCRIPTION), ("assignment", _ASSIGNMENT)):
                shown[name] = _consumer_protocol(fields, getattr(member, name)) or shown[name]
    item["value"] = {"version": str(version), "data": data}
    return item


def _consumer_protocol(fields: tuple[Field, ...], data: bytes) -> dict[str, Any] | None:
    """None when it is something else: nothing obliges a member to send what consumers send."""
    try:
        (version,) = struct.unpack_from(">h", data)
        if not 0 <= version <= _CONSUMER_PROTOCOL_VERSION_MAX:
            return None
        body, _ = _consumer_protocol_reader(fields, version)(memoryview(data), 2, [ELEMENTS_MAX])
    except (PeerProtocolError, *MALFORMED):
        return None
    return _json_of(fields, body)


@cache
def _consumer_protocol_reader(fields: tuple[Field, ...], version: int) -> Reader:
    return compile_reader(entity_schema("ConsumerProtocol", fields, version, flexible=False))


def _json_of(fields: tuple[Field, ...], body: Any) -> dict[str, Any]:
    """Of a named tuple of some version: a field that the version lacks is left out."""
    shown = {}
    for field in fields:
        if not hasattr(body, field.name):
            continue
        value = getattr(body, field.name)
        # A tagged array that is not there is read as an empty one.
        if field.tag is None or value not in (field.default, ()):
            first, *others = field.name.split("_")
            name = first + "".join(map(str.capitalize, others))
            shown[name] = (
                [_json_value(field, each) for each in value] if field.is_array else _json_value(field, value)
            )
    return shown


def _json_value(field: Field, value: Any) -> Any:
    if isinstance(field.kafka_type, tuple):
        return None if value is None else _json_of(field.kafka_type, value)
    if field.kafka_type == "uuid":
        return encode_uuid(value or _ZERO_UUID)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value


def decoded_transaction_record(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """``key`` and ``value`` as objects; the value of a tombstone is None.

    Raises:
        UnreadableTransactionRecord: the record cannot be decoded, and why.
    """
    transactional_id = transaction_record_codec.read_key(key).transactional_id
    item: dict[str, Any] = {
        "key": {
            "type": str(transaction_record_codec.KEY_VERSION),
            "data": {"transactionalId": transactional_id},
        },
        "value": None,
    }
    if value is not None:
        version, body = transaction_record_codec.read_value(value, transactional_id=transactional_id)
        item["value"] = {"version": str(version), "data": _transaction_data(body)}
    return item


def _transaction_data(body: Any) -> dict[str, Any]:
    shown = {}
    for name, attribute, default in _TRANSACTION_FIELDS:
        if default is not None and getattr(body, attribute, default) == default:
            continue
        value = getattr(body, attribute)
        if attribute == "transaction_partitions" and value is not None:
            value = [{"topic": each.topic, "partitionIds": list(each.partition_ids)} for each in value]
        shown[name] = value
    return shown


def decoded_share_record(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """``key`` and ``value`` as objects; the value of a tombstone is None.

    Raises:
        UnreadableShareRecord: the record cannot be decoded, and why.
    """
    kind, of = share_record_codec.read_key(key)
    item: dict[str, Any] = {
        "key": {"type": str(kind), "data": {_camel(name): _json(getattr(of, name)) for name in _SHARE_KEY}},
        "value": None,
    }
    if value is not None:
        body = share_record_codec.read_value(kind, value)
        data = {_camel(name): _json(getattr(body, name)) for name in _SHARE_VALUE if hasattr(body, name)}
        if body.delivery_complete_count == -1:  # a tagged field's default
            del data["deliveryCompleteCount"]
        item["value"] = {"version": str(share_record_codec.VALUE_VERSION), "data": data}
    return item


def _camel(name: str) -> str:
    return _SNAKE.sub(lambda match: match[1].upper(), name)


def _json(value: Any) -> Any:
    if isinstance(value, UUID):
        return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()
    if isinstance(value, tuple) and not hasattr(value, "_asdict"):
        return [{_camel(name): field for name, field in each._asdict().items()} for each in value]
    return value


# Output


class Output(Protocol):
    """Where items go."""

    def item(self, item: Item) -> None: ...

    def finding(self, finding: Finding) -> None: ...

    def summary(self, summary: Item) -> None: ...

    def close(self) -> None: ...


def open_output(stream: TextIO, *, as_json: bool) -> Output:
    """JSON lines, or text that is coloured when ``stream`` is a terminal."""
    if as_json:
        return JsonOutput(stream)
    return TerminalOutput(stream) if stream.isatty() else TextOutput(stream)


class JsonOutput:
    """One object a line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def item(self, item: Item) -> None:
        self._stream.write(json.dumps(item) + "\n")

    def finding(self, finding: Finding) -> None:
        self.item({"type": "finding", **finding._asdict()})

    def summary(self, summary: Item) -> None:
        self.item(summary)

    def close(self) -> None:
        self._stream.flush()


class TextOutput:
    """Plain text. What came from a log is escaped, so that it cannot play tricks on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def item(self, item: Item) -> None:
        if item["type"] == "file":
            self._write(f"Dumping {item['file']} ({item['size']} bytes)", "bold cyan")
        elif item["type"] == "record":
            self._write(f"| {_fields(item)}", "")
        else:
            self._write(_fields(item), "green" if item["type"] == "batch" else "")

    def finding(self, finding: Finding) -> None:
        where = finding.file if finding.position is None else f"{finding.file} at {finding.position}"
        self._write(f"DAMAGE {where}: {_printable(finding.what)}", "bold red")
        self._write(f"       what to do: {finding.advice}", "yellow")

    def summary(self, summary: Item) -> None:
        read = ""
        if "files" in summary:
            read = f"{summary['files']} files, {summary['batches']} batches, {summary['records']} records: "
        count = summary["findings"]
        if count:
            self._write(f"{read}{count} finding{'s' if count > 1 else ''}", "bold red")
        else:
            self._write(f"{read}nothing is wrong", "bold green")

    def close(self) -> None:
        self._stream.flush()

    def _write(self, line: str, style: str) -> None:
        self._stream.write(f"{line}\n")


class TerminalOutput(TextOutput):
    """The same text in colours, through rich."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console  # only where there is a terminal: it costs 50 ms

        super().__init__(stream)
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def _write(self, line: str, style: str) -> None:
        self._console.print(line, style=style or None)


def _fields(item: Item) -> str:
    parts = []
    timestamp_name = item.get("timestamp_type")
    for name, value in item.items():
        if name in ("type", "file", "timestamp_type"):
            continue
        if name == "max_timestamp" and timestamp_name is not None:
            name = str(timestamp_name)
        elif name == "headers":
            if value:
                parts.append(f"headers: [{', '.join(map(_header, value))}]")
            continue
        elif name == "value" and value is None and isinstance(item.get("key"), dict):
            value = "<DELETE>"
        parts.append(f"{_kafka_name(name)}: {_text(value)}")
    return " ".join(parts)


@cache
def _kafka_name(name: str) -> str:
    return _KAFKA_NAMES.get(name) or _SNAKE.sub(lambda match: match[1].upper(), name)


def _header(header: Item) -> str:
    value = header["value"] if "value" in header else f"base64:{header['value_base64']}"
    return f"{_printable(header['key'])}={_text(value)}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "null" if value is None else _printable(str(value))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


# The command


class _Unusable(Exception):
    """An argument that cannot be used, in one line."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``dump-log`` with ``argv`` (by default the process's); returns the exit status."""
    try:
        arguments = parser().parse_args(argv)
    except SystemExit as done:  # argparse has said why
        return done.code if isinstance(done.code, int) else UNUSABLE
    output = open_output(sys.stdout, as_json=arguments.json)
    try:
        return _run(arguments, output, OsFiles())
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except _Unusable as error:
        print(f"dump-log: {error}", file=sys.stderr)
    except OSError as error:
        print(f"dump-log: cannot read {error.filename or 'a file'}: {error.strerror}", file=sys.stderr)
    return UNUSABLE


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="minikafka dump-log",
        description="Show what is in a log's files, or verify them. Nothing is changed.",
        epilog="Exit status: 0 nothing is wrong, 1 damage was found, 2 the arguments cannot be used.",
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file, a partition's or a log directory")
    parser.add_argument("--print-data-log", action="store_true", help="show records, not only batches")
    parser.add_argument("--verify", action="store_true", help="read and compare everything, show only damage")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of text")
    parser.add_argument(
        "--offsets", type=_selected_offsets, metavar="FROM[:TO]", help="show only these offsets (inclusive)"
    )
    decoders = parser.add_mutually_exclusive_group()
    decoders.add_argument(
        "--offsets-decoder",
        action="store_const",
        dest="decoder",
        const=decoded_group_record,
        help="show records of __consumer_offsets decoded (implies --print-data-log)",
    )
    decoders.add_argument(
        "--transaction-log-decoder",
        action="store_const",
        dest="decoder",
        const=decoded_transaction_record,
        help="show records of __transaction_state decoded (implies --print-data-log)",
    )
    decoders.add_argument(
        "--share-group-state-decoder",
        action="store_const",
        dest="decoder",
        const=decoded_share_record,
        help="show records of __share_group_state decoded (implies --print-data-log)",
    )
    parser.add_argument(
        "--max-records",
        type=_count,
        metavar="N",
        help="stop after so many records of a segment (implies --print-data-log)",
    )
    return parser


def _selected_offsets(text: str) -> tuple[int, int]:
    match = _OFFSETS.fullmatch(text)
    if match is None or text in ("", ":"):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an offset or a range such as 100:200, 100: or :200"
        )
    first = int(match["first"] or 0)
    last = first if match["range"] is None else int(match["last"] or Selection().last_offset)
    if last < first:
        raise argparse.ArgumentTypeError(f"{text!r} ends before it begins")
    return first, last


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of records")
    return int(text)


def _run(arguments: argparse.Namespace, output: Output, files: Files) -> int:
    shows_records = arguments.print_data_log or arguments.max_records or arguments.decoder
    if arguments.verify and (arguments.offsets or shows_records):
        raise _Unusable("--verify reads everything and shows no records; leave the other options out")
    selection = Selection(with_records=bool(shows_records), decoder=arguments.decoder)
    if arguments.offsets is not None:
        first, last = arguments.offsets
        selection = selection._replace(first_offset=first, last_offset=last)
    selection = selection._replace(records_max=arguments.max_records)
    verifier = Verifier(files)
    findings = 0
    targets = [(path, _target(path, files)) for path in arguments.paths]
    for path, known in targets:
        emitted: Iterator[Item | Finding]
        if arguments.verify:
            emitted = _verified(path, known, verifier, files)
        else:
            emitted = _dumped(path, known, files, selection)
        for item in emitted:
            if isinstance(item, Finding):
                findings += 1
                output.finding(item)
            else:
                output.item(item)
    summary: Item = {"type": "summary", "findings": findings}
    if arguments.verify:
        summary.update(files=verifier.files_read, batches=verifier.batches, records=verifier.records)
    if arguments.verify or arguments.json or findings:
        output.summary(summary)
    output.close()
    return DAMAGED if findings else 0


def _target(path: str, files: Files) -> KnownFile | None:
    """What ``path`` is; None for a directory."""
    if not files.exists(path):
        raise _Unusable(f"{path} does not exist")
    if files.is_directory(path):
        return None
    known = identify(path)
    if known is None:
        raise _Unusable(f"{path}: by its name this is none of a log's files")
    return known


def _verified(path: str, known: KnownFile | None, verifier: Verifier, files: Files) -> Iterator[Finding]:
    if known is not None:
        return verifier.file(known)
    if path_kind(path, files) is PathKind.PARTITION:
        return verifier.partition(path)
    return verifier.log_directory(path)


def _dumped(
    path: str, known: KnownFile | None, files: Files, selection: Selection
) -> Iterator[Item | Finding]:
    if known is not None:
        yield from items_of(known, files, selection)
        return
    in_partition = path_kind(path, files) is PathKind.PARTITION
    for name in files.list(path):
        entry = os.path.join(path, name)
        if files.is_directory(entry):
            if not in_partition and parse_directory_name(name) is not None:
                yield from _dumped(entry, None, files, selection)
            continue
        known = identify(entry)
        if known is not None and known.kind is not FileKind.CLEAN_SHUTDOWN:
            yield from items_of(known, files, selection)


if __name__ == "__main__":
    sys.exit(main())
