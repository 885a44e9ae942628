"""``minikafka transactions``: what transactional producers are doing; find and abort transactions that hang.

Kafka: ``kafka-transactions.sh`` (``TransactionsCommand``, KIP-664), whose subcommands and options work here
under the same names and whose tables have the same heads, and the part of ``KafkaAdminClient`` about
transactions (``ListTransactionsHandler``, ``DescribeTransactionsHandler``, ``DescribeProducersHandler``,
``AbortTransactionHandler``). It works with any broker since Kafka 3.0.

A transaction hangs in a partition when it has been open for longer than any transaction may, and its
coordinator does not know of it: no marker will come, and committed records behind it are not read. ``abort``
writes the marker.

Exit status: 0 when all was done, 1 when something was refused or no broker answers, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from minikafka.cli.groups import table
from minikafka.cli.shared.admin_client import AdminClient, CoordinatorType
from minikafka.cli.shared.commands import (
    OK,
    CommandError,
    ProfileParser,
    add_connection_options,
    as_json,
    error_of,
    run,
    take_connection,
    with_action_first,
)
from minikafka.clock import Clock
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.system_clock import SystemClock
from minikafka.types import NO_LEADER, TopicPartition

NONE = "None"
MINUTE_MS = 60_000

PARTITIONS_MAX = 500
"""Of one DescribeProducers (``TransactionsCommand.MAX_BATCH_SIZE``)."""

PROG = "minikafka transactions"
ACTIONS = ("list", "describe", "describe-producers", "find-hanging", "abort")
MAX_TRANSACTION_TIMEOUT_MIN = 15
"""Kafka's ``transaction.max.timeout.ms``, in minutes."""


# Tables


def listing_lines(transactions: Sequence[TransactionListing]) -> list[str]:
    """All transactional ids; nothing when there are none."""
    rows = [
        [each.transactional_id, str(each.coordinator), str(each.producer_id), each.state]
        for each in transactions
    ]
    return table(["TransactionalId", "Coordinator", "ProducerId", "TransactionState"], rows)


def description_lines(found: TransactionDescription, *, now_ms: int) -> list[str]:
    """What a transactional id is doing, and for how long."""
    start_ms = found.start_time_ms
    row = [
        str(found.coordinator),
        found.transactional_id,
        str(found.producer_id),
        str(found.producer_epoch),
        found.state,
        str(found.timeout_ms),
        NONE if start_ms is None else str(start_ms),
        NONE if start_ms is None else str(now_ms - start_ms),
        ",".join(map(str, found.partitions)),
    ]
    heads = (
        "CoordinatorId TransactionalId ProducerId ProducerEpoch TransactionState TransactionTimeoutMs "
        "CurrentTransactionStartTimeMs TransactionDurationMs TopicPartitions"
    )
    return table(heads.split(), [row])


def producer_lines(producers: Sequence[ProducerState]) -> list[str]:
    """The producers of a partition; nothing when none is known."""
    rows = [
        [
            str(each.producer_id),
            str(each.producer_epoch),
            str(each.coordinator_epoch),
            str(each.last_sequence),
            str(each.last_timestamp_ms),
            NONE if each.transaction_start_offset is None else str(each.transaction_start_offset),
        ]
        for each in producers
    ]
    heads = (
        "ProducerId ProducerEpoch LatestCoordinatorEpoch LastSequence LastTimestamp "
        "CurrentTransactionStartOffset"
    )
    return table(heads.split(), rows)


def hanging_lines(producers: Sequence[ProducerState], *, now_ms: int) -> list[str]:
    """Hanging transactions; nothing when there are none."""
    rows = [
        [
            each.topic,
            str(each.partition),
            str(each.producer_id),
            str(each.producer_epoch),
            str(each.coordinator_epoch),
            str(each.transaction_start_offset),
            str(each.last_timestamp_ms),
            str((now_ms - each.last_timestamp_ms) // MINUTE_MS),
        ]
        for each in producers
    ]
    heads = (
        "Topic Partition ProducerId ProducerEpoch CoordinatorEpoch StartOffset LastTimestamp Duration(min)"
    )
    return table(heads.split(), rows)


# What a cluster is asked


class TransactionListing(msgspec.Struct, frozen=True):
    """A transactional id as ListTransactions has it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class TransactionDescription(msgspec.Struct, frozen=True):
    """A transactional id, as its coordinator has it. ``start_time_ms`` is None without a transaction."""

    coordinator: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_time_ms: int | None
    partitions: list[TopicPartition]


class ProducerState(msgspec.Struct, frozen=True):
    """A producer, as a replica of a partition knows it. ``transaction_start_offset`` is None without one."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int | None


class TransactionAdmin(AdminClient):
    """Methods raise KafkaError for what a broker refuses, and BrokerUnavailable when there is no answer."""

    async def transactions(
        self,
        *,
        producer_ids: Iterable[int] = (),
        duration_ms: int = -1,
        transactional_id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Those of all brokers that pass the filters, sorted by id."""
        body = {
            "state_filters": [],
            "producer_id_filters": sorted(producer_ids),
            "duration_filter": duration_ms,
            "transactional_id_pattern": transactional_id_pattern,
        }
        found = [
            TransactionListing(each.transactional_id, broker, each.producer_id, each.transaction_state)
            for broker in (await self.nodes()).brokers
            for each in (await self.ask_loaded(broker, ApiKey.LIST_TRANSACTIONS, body)).transaction_states
        ]
        return sorted(found, key=lambda each: (each.transactional_id, each.coordinator))

    async def describe(self, transactional_id: str) -> TransactionDescription:
        """One transactional id. One that there is not: a KafkaError TRANSACTIONAL_ID_NOT_FOUND."""
        coordinator, answer = await self.ask_coordinator(
            CoordinatorType.TRANSACTION,
            transactional_id,
            ApiKey.DESCRIBE_TRANSACTIONS,
            {"transactional_ids": [transactional_id]},
            lambda answer: answer.transaction_states[0],
        )
        found = answer.transaction_states[0]
        return TransactionDescription(
            coordinator.node_id,
            transactional_id,
            found.producer_id,
            found.producer_epoch,
            found.transaction_state,
            found.transaction_timeout,
            found.transaction_start_time if found.transaction_start_time >= 0 else None,
            [TopicPartition(topic.topic, number) for topic in found.topics for number in topic.partitions],
        )

    async def producers(
        self, partitions: Sequence[TopicPartition], *, broker: int | None = None
    ) -> list[ProducerState]:
        """The producers that partitions know: their leaders, or the replicas on one ``broker``."""
        found: list[ProducerState] = []
        for asked, each in (await self._by_broker(partitions, broker)).items():
            for first in range(0, len(each), PARTITIONS_MAX):
                found += await self._producers(asked, each[first : first + PARTITIONS_MAX])
        return sorted(found, key=lambda each: (each.topic, each.partition, each.producer_id))

    async def _by_broker(
        self, partitions: Sequence[TopicPartition], broker: int | None
    ) -> dict[int, list[TopicPartition]]:
        if broker is not None:
            return {broker: list(partitions)}
        by_broker: dict[int, list[TopicPartition]] = {}
        for each in partitions:
            by_broker.setdefault(await self._leader(each), []).append(each)
        return by_broker

    async def _leader(self, partition: TopicPartition) -> int:
        known = (await self.partitions([partition.topic])).get(partition)
        if known is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
        if known.leader == NO_LEADER:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
        return known.leader

    async def _producers(self, broker: int, partitions: Sequence[TopicPartition]) -> list[ProducerState]:
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)
        body = {
            "topics": [{"name": name, "partition_indexes": numbers} for name, numbers in topics.items()],
        }
        answer = await self.ask_broker(broker, ApiKey.DESCRIBE_PRODUCERS, body)
        found = []
        for topic in answer.topics:
            for each in topic.partitions:
                error = error_of(each.error_code)
                if error is not None:
                    where = TopicPartition(topic.name, each.partition_index)
                    raise KafkaError(error.code, f"{where} on broker {broker}")
                found += [_producer(topic.name, each.partition_index, one) for one in each.active_producers]
        return found

    async def abort(
        self, partition: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Write the marker of an abort into one partition, whatever the coordinator thinks."""
        marker = {
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "transaction_result": False,
            "topics": [{"name": partition.topic, "partition_indexes": [partition.partition]}],
            "coordinator_epoch": coordinator_epoch,
            "transaction_version": 0,
        }
        answer = await self.ask_broker(
            await self._leader(partition), ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]}
        )
        error = error_of(answer.markers[0].topics[0].partitions[0].error_code)
        if error is not None:
            raise error


def _producer(topic: str, partition: int, found: Any) -> ProducerState:
    start = found.current_txn_start_offset
    return ProducerState(
        topic,
        partition,
        found.producer_id,
        found.producer_epoch,
        found.coordinator_epoch,
        found.last_sequence,
        found.last_timestamp,
        start if start >= 0 else None,
    )


# The command


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka transactions``."""
    options = ProfileParser(
        prog=PROG,
        description="Transactions: their producers, states and partitions, and hanging ones.",
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
        actions.add_parser(
            "find-hanging", help="transactions that their coordinator will not end", allow_abbrev=False
        )
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
        take_connection(arguments)
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
    async with TransactionAdmin.of(arguments, "minikafka-transactions") as admin:
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
