"""``minikafka transactions``: what transactional producers are doing; find and abort transactions that hang.

Kafka: ``kafka-transactions.sh`` (``TransactionsCommand``, KIP-664), whose subcommands and options work here
under the same names.

A transaction hangs in a partition when it has been open for longer than any transaction may, and its
coordinator does not know of it: no marker will come, and nobody reads committed records behind it. ``abort``
writes the marker.

Exit status: 0 when all was done, 1 when something was refused or nobody answers, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from minikafka.cli.shared.commands import (
    OK,
    CommandError,
    add_connection_options,
    as_json,
    parse_addresses,
    run,
    with_action_first,
)
from minikafka.cli.shared.profiles import ProfileParser
from minikafka.cli.transactions.requests import ProducerState, TransactionAdmin
from minikafka.cli.transactions.view import (
    MINUTE_MS,
    description_lines,
    hanging_lines,
    listing_lines,
    producer_lines,
)
from minikafka.clock import Clock
from minikafka.errors import ErrorCode, KafkaError
from minikafka.system_clock import SystemClock
from minikafka.types import TopicPartition

PROG = "minikafka transactions"
ACTIONS = ("list", "describe", "describe-producers", "find-hanging", "abort")
MAX_TRANSACTION_TIMEOUT_MIN = 15
"""Kafka's ``transaction.max.timeout.ms``, in minutes."""


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka transactions``."""
    options = ProfileParser(
        prog=PROG,
        description="Transactions: who writes in one, since when and where, and which will never end.",
        allow_abbrev=False,
    )
    actions = options.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="all transactional ids and their states", allow_abbrev=False)
    listing.add_argument(
        "--duration-filter", type=int, default=-1, metavar="MS", help="only those open for longer than this"
    )
    listing.add_argument(
        "--transactional-id-pattern", metavar="REGEX", help="only ids that match this as a whole"
    )
    describe = actions.add_parser("describe", help="what a transactional id is doing", allow_abbrev=False)
    describe.add_argument("--transactional-id", required=True, metavar="ID")
    producers = actions.add_parser(
        "describe-producers", help="the producers that a partition knows", allow_abbrev=False
    )
    _add_partition(producers, is_required=True)
    producers.add_argument("--broker-id", type=int, metavar="ID", help="ask this replica, not the leader")
    _add_find_hanging(
        actions.add_parser("find-hanging", help="transactions that nobody will end", allow_abbrev=False)
    )
    _add_abort(
        actions.add_parser("abort", help="end a transaction that hangs in a partition", allow_abbrev=False)
    )
    for name, each in actions.choices.items():
        add_connection_options(each)
        if name != "abort":
            each.add_argument("--json", action="store_true", help="print JSON")
    return options


def _add_partition(options: argparse.ArgumentParser, *, is_required: bool) -> None:
    options.add_argument("--topic", required=is_required, metavar="TOPIC")
    options.add_argument("--partition", type=int, required=is_required, metavar="N")


def _add_find_hanging(options: argparse.ArgumentParser) -> None:
    _add_partition(options, is_required=False)
    options.add_argument("--broker-id", type=int, metavar="ID", help="look at the replicas of this broker")
    options.add_argument(
        "--max-transaction-timeout",
        type=int,
        default=MAX_TRANSACTION_TIMEOUT_MIN,
        metavar="MINUTES",
        help=f"no transaction may take longer ({MAX_TRANSACTION_TIMEOUT_MIN})",
    )


def _add_abort(options: argparse.ArgumentParser) -> None:
    _add_partition(options, is_required=True)
    options.add_argument("--start-offset", type=int, metavar="OFFSET", help="where the transaction begins")
    options.add_argument("--producer-id", type=int, metavar="ID", help="instead of --start-offset")
    options.add_argument("--producer-epoch", type=int, metavar="EPOCH", help="with --producer-id")
    options.add_argument("--coordinator-epoch", type=int, metavar="EPOCH", help="with --producer-id")


def main(argv: Sequence[str] | None = None, *, clock: Clock | None = None) -> int:
    """Run an action. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(with_action_first(sys.argv[1:] if argv is None else argv, ACTIONS))
    try:
        arguments.addresses = parse_addresses(arguments.bootstrap_server)
        _check(arguments)
    except ValueError as error:
        options.error(str(error))
    return run(PROG, _run(arguments, clock or SystemClock()))


def _check(arguments: argparse.Namespace) -> None:
    """What must hold between options. Raises ValueError."""
    if arguments.action == "find-hanging":
        if arguments.topic is None and arguments.broker_id is None:
            raise ValueError("find-hanging needs --topic or --broker-id to say where to look")
        if arguments.partition is not None and arguments.topic is None:
            raise ValueError("--partition needs --topic")
    if arguments.action == "abort" and arguments.start_offset is None:
        if arguments.producer_id is None:
            raise ValueError(
                "abort needs --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch"
            )
        if arguments.producer_epoch is None or arguments.coordinator_epoch is None:
            raise ValueError("--producer-id needs --producer-epoch and --coordinator-epoch")


async def _run(arguments: argparse.Namespace, clock: Clock) -> int:
    async with TransactionAdmin(
        arguments.addresses, client_id="minikafka-transactions", timeout_ms=arguments.timeout_ms
    ) as admin:
        match arguments.action:
            case "list":
                await _list(admin, arguments)
            case "describe":
                await _describe(admin, arguments, clock)
            case "describe-producers":
                await _describe_producers(admin, arguments)
            case "find-hanging":
                await _find_hanging(admin, arguments, clock)
            case _:
                await _abort(admin, arguments)
    return OK


async def _list(admin: TransactionAdmin, arguments: argparse.Namespace) -> None:
    found = await admin.transactions(
        duration_ms=arguments.duration_filter, transactional_id_pattern=arguments.transactional_id_pattern
    )
    _print([as_json(found)] if arguments.json else listing_lines(found))


async def _describe(admin: TransactionAdmin, arguments: argparse.Namespace, clock: Clock) -> None:
    found = await admin.describe(arguments.transactional_id)
    _print([as_json(found)] if arguments.json else description_lines(found, now_ms=clock.now_ms()))


async def _describe_producers(admin: TransactionAdmin, arguments: argparse.Namespace) -> None:
    partition = TopicPartition(arguments.topic, arguments.partition)
    found = await admin.producers([partition], broker=arguments.broker_id)
    _print([as_json(found)] if arguments.json else producer_lines(found))


async def _find_hanging(admin: TransactionAdmin, arguments: argparse.Namespace, clock: Clock) -> None:
    limit_ms = arguments.max_transaction_timeout * MINUTE_MS
    now_ms = clock.now_ms()
    found = await admin.producers(await _partitions(admin, arguments), broker=arguments.broker_id)
    old = [
        each
        for each in found
        if each.transaction_start_offset is not None and now_ms - each.last_timestamp_ms > limit_ms
    ]
    hanging = await _unknown_to_coordinators(admin, old) if old else []
    _print([as_json(hanging)] if arguments.json else hanging_lines(hanging, now_ms=now_ms))


async def _partitions(admin: TransactionAdmin, arguments: argparse.Namespace) -> list[TopicPartition]:
    """Where to look. Raises CommandError: there is no such topic or partition."""
    topics = None if arguments.topic is None else [arguments.topic]
    partitions = await admin.partitions(topics)
    if arguments.topic is not None and not partitions:
        raise CommandError(f"there is no topic {arguments.topic}")
    if arguments.partition is not None:
        wanted = TopicPartition(arguments.topic, arguments.partition)
        if wanted not in partitions:
            raise CommandError(f"there is no partition {wanted}")
        return [wanted]
    broker = arguments.broker_id
    return [each for each, now in partitions.items() if broker is None or broker in now.replicas]


async def _unknown_to_coordinators(
    admin: TransactionAdmin, open_transactions: Sequence[ProducerState]
) -> list[ProducerState]:
    """Those whose coordinator will write no marker: it knows no such producer, or not that it writes
    there."""
    producer_ids = {each.producer_id for each in open_transactions}
    listed = await admin.transactions(producer_ids=producer_ids)
    transactional_ids = {each.producer_id: each.transactional_id for each in listed}
    written: dict[int, frozenset[TopicPartition]] = {}
    for producer_id, transactional_id in transactional_ids.items():
        try:
            written[producer_id] = frozenset((await admin.describe(transactional_id)).partitions)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    return [
        each
        for each in open_transactions
        if TopicPartition(each.topic, each.partition) not in written.get(each.producer_id, ())
    ]


async def _abort(admin: TransactionAdmin, arguments: argparse.Namespace) -> None:
    partition = TopicPartition(arguments.topic, arguments.partition)
    if arguments.start_offset is None:
        # A producer that never got a marker has a coordinator epoch of -1; 0 is not more than any real one.
        await admin.abort(
            partition,
            producer_id=arguments.producer_id,
            producer_epoch=arguments.producer_epoch,
            coordinator_epoch=max(arguments.coordinator_epoch, 0),
        )
        return
    for each in await admin.producers([partition]):
        if each.transaction_start_offset == arguments.start_offset:
            await admin.abort(
                partition,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                coordinator_epoch=max(each.coordinator_epoch, 0),
            )
            return
    raise CommandError(
        f"no open transaction of {partition} starts at offset {arguments.start_offset}; "
        "find-hanging says which do"
    )


def _print(lines: Sequence[str]) -> None:
    if lines:
        print("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
