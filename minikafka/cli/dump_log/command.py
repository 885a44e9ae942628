"""``minikafka dump-log``: shows what is in a log's files and finds damage. Kafka: ``kafka-dump-log``
(``DumpLogSegments``), whose lines its text resembles.

Takes segments, indexes, producer snapshots, checkpoints, ``partition.metadata`` and ``meta.properties``, a
partition's directory or a whole log directory. Files are only read, in bounded memory.

Exit status: 0 nothing is wrong; 1 damage was found; 2 the arguments cannot be used or a file cannot be read.

With ``--json`` every line is an object. ``type`` says what it is:

    file                  file, kind, size; what follows is from this file
    batch                 file, base_offset, last_offset, count, base_sequence, last_sequence, producer_id,
                          producer_epoch, partition_leader_epoch, is_transactional, is_control,
                          delete_horizon_ms, position, timestamp_type, max_timestamp, size, magic,
                          compression, crc, is_valid
    record                offset, timestamp, key_size, value_size (-1: null), sequence, headers [{key,
    value}],
                          key, value; bytes that are no UTF-8 are in key_base64, value_base64 instead;
                          or, of a control record, end_txn_marker and coordinator_epoch;
                          with --offsets-decoder or --transaction-log-decoder key and value are
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
import os
import re
import sys
from collections.abc import Iterator, Sequence

from minikafka.cli.dump_log import offsets as dump_log_offsets
from minikafka.cli.dump_log import transactions as dump_log_transactions
from minikafka.cli.dump_log.directories import PathKind, path_kind
from minikafka.cli.dump_log.files import FileKind, Item, KnownFile, Selection, identify, items_of
from minikafka.cli.dump_log.output import Output, open_output
from minikafka.cli.dump_log.segment import Finding
from minikafka.cli.dump_log.verify import Verifier
from minikafka.files import Files, OsFiles
from minikafka.log.files.names import parse_directory_name

DAMAGED, UNUSABLE = 1, 2

_OFFSETS = re.compile(r"(?P<first>\d{0,19})(?P<range>:(?P<last>\d{0,19}))?", re.ASCII)


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
        const=dump_log_offsets.decoded_record,
        help="show records of __consumer_offsets decoded (implies --print-data-log)",
    )
    decoders.add_argument(
        "--transaction-log-decoder",
        action="store_const",
        dest="decoder",
        const=dump_log_transactions.decoded_record,
        help="show records of __transaction_state decoded (implies --print-data-log)",
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
