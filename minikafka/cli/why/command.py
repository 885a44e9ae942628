"""``minikafka why``: why something is as it is: one sentence, and what it rests on.

Minikafka's own. Each subject has a module: it gathers facts, and pure functions make reasons of them. Works
with any Kafka, as far as Kafka's own APIs tell; what only minikafka's brokers could tell is named then.

Exit status: 0 when there is an answer, 1 when a broker refused or cannot be reached or a table cannot be
read, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from minikafka.cli.shared.commands import (
    OK,
    ProfileParser,
    add_connection_options,
    as_json,
    run,
    take_connection,
)
from minikafka.cli.shared.tables import (
    FORMATS,
    add_catalog_options,
    add_output_option,
    misplaced,
    open_tables,
)
from minikafka.cli.why import (
    broker,
    client,
    fetch,
    group,
    partition,
    produce,
    reassignment,
    topic,
    transaction,
)
from minikafka.cli.why.answer import Answer, show
from minikafka.cli.why.cluster import Cluster
from minikafka.clock import Clock
from minikafka.system_clock import SystemClock
from minikafka.types import TopicPartition

PROG = "minikafka why"
SAMPLE_MS = 2_000
"""How long rates are measured unless it is said: consumers commit every 5 s by default, so a longer look sees
more, and waiting is tedious."""
TABLE = "table"
PATIENCE_MS = 5_000
"""For each answer: what is asked about is often what does not answer."""

_PARTITION = re.compile(r"(?P<topic>[^:]+)[:-](?P<partition>\d{1,9})", re.ASCII)


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka why``."""
    options = ProfileParser(
        prog=PROG,
        description="Say why something is as it is: one sentence, the evidence, and where the mechanism is "
        "explained.",
        epilog="For example: minikafka why partition orders:0; minikafka why fetch orders:0 "
        "--read-committed; minikafka why group billing; minikafka why table orders --format delta -o /lake.",
        allow_abbrev=False,
    )
    subjects = options.add_subparsers(dest="subject", required=True, metavar="SUBJECT")
    _add_partition(subjects)
    _add_fetch(subjects)
    _add_produce(subjects)
    _add_group(subjects)
    _add_table(subjects)
    _add_others(subjects)
    for each in subjects.choices.values():
        each.add_argument("--json", action="store_true", help="print JSON")
        add_connection_options(each, timeout_ms=PATIENCE_MS)
    return options


def _add_partition(subjects: Any) -> None:
    options = subjects.add_parser(
        "partition",
        help="it is offline, under-replicated, not led as it should, not compacted, not deleted, growing, …",
        description="Why a partition is as it is. Without QUESTION: what is wrong with it.",
        allow_abbrev=False,
    )
    _add_topic_partition(options)
    options.add_argument(
        "question",
        nargs="?",
        choices=list(partition.QUESTIONS),
        metavar="QUESTION",
        help=f"one of {', '.join(partition.QUESTIONS)}",
    )
    _add_sample(options)


def _add_fetch(subjects: Any) -> None:
    options = subjects.add_parser(
        "fetch",
        help="a consumer of a partition waits, or gets nothing",
        description="Why a consumer of a partition waits or gets nothing: what holds the high watermark, and "
        "which transaction holds the last stable offset.",
        allow_abbrev=False,
    )
    _add_topic_partition(options)
    options.add_argument("--offset", type=int, metavar="N", help="from where it reads")
    options.add_argument(
        "--read-committed", action="store_true", help="its isolation.level is read_committed"
    )


def _add_group(subjects: Any) -> None:
    options = subjects.add_parser(
        "group",
        help="a group rebalances, is stuck, lags, is empty, or has lost a member",
        description="Why a group does not read as it should: whom a rebalance waits for, who is slow, on "
        "which partition, since when, and when it will have caught up.",
        allow_abbrev=False,
    )
    options.add_argument("group", metavar="GROUP")
    _add_sample(options)


def _add_produce(subjects: Any) -> None:
    options = subjects.add_parser(
        "produce",
        help="a produce to a partition waits, was refused, throttled, or a duplicate",
        description="Why a produce waits, was refused or throttled, or was a duplicate.",
        allow_abbrev=False,
    )
    options.add_argument(
        "topic", metavar="TOPIC[:PARTITION]", type=parse_topic_or_partition, help="like orders, or orders:0"
    )
    options.add_argument("--client-id", metavar="ID", help="only what this client was refused")


def _add_table(subjects: Any) -> None:
    options = subjects.add_parser(
        "table",
        help="an Iceberg or Delta table lacks records of its topic, or will never have them",
        description="Why the table of minikafka export is behind its topic: what it lacks, since when, what "
        "retention deletes before it is exported, and what else is wrong with it. Reads the table, and "
        "changes nothing. --format, --catalog, --namespace and --output are those of the export.",
        allow_abbrev=False,
    )
    options.add_argument("topic", metavar="TOPIC")
    options.add_argument("--format", choices=FORMATS, required=True, help="of the table")
    add_output_option(options)
    add_catalog_options(options)
    _add_sample(options)


def _add_others(subjects: Any) -> None:
    options = subjects.add_parser(
        "topic",
        help="a topic that was deleted is still there",
        description="Why a topic is not deleted.",
        allow_abbrev=False,
    )
    options.add_argument("topic", metavar="TOPIC")
    options = subjects.add_parser(
        "reassignment",
        help="a reassignment does not move; when it will be done",
        description="Why a reassignment does not move, what holds it back, and when it will be done.",
        allow_abbrev=False,
    )
    options.add_argument("at", nargs="?", metavar="TOPIC:PARTITION", help="only this one; else all")
    _add_sample(options)
    options = subjects.add_parser(
        "transaction",
        help="a transaction does not end",
        description="Why a transaction does not end. One that no coordinator knows is found by why fetch "
        "--read-committed.",
        allow_abbrev=False,
    )
    options.add_argument("transactional_id", metavar="TRANSACTIONAL-ID")
    options = subjects.add_parser(
        "client",
        help="a client cannot log in, is denied, refused or slowed down",
        description="What the brokers have turned down lately, and why: logins, operations that no ACL "
        "allows, produces; and whom quotas have slowed down.",
        allow_abbrev=False,
    )
    options.add_argument("client_id", nargs="?", metavar="CLIENT-ID", help="only this client.id")
    options.add_argument("--user", metavar="USER", help="only this user: alice, or User:alice")
    options.add_argument("--host", metavar="ADDRESS", help="only from this address")
    options = subjects.add_parser(
        "broker",
        help="a broker started slowly, is slow now, or has left",
        description="Why a broker started slowly, is slow now (its event loop, disks, garbage, quotas), or "
        "has left the cluster.",
        allow_abbrev=False,
    )
    options.add_argument("broker", type=int, metavar="ID", help="its broker.id")


def _add_topic_partition(options: argparse.ArgumentParser) -> None:
    options.add_argument("at", metavar="TOPIC:PARTITION", help="like orders:0")


def _add_sample(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "--sample-ms",
        type=int,
        default=SAMPLE_MS,
        metavar="MS",
        help=f"how long rates are measured ({SAMPLE_MS})",
    )


def main(argv: Sequence[str] | None = None, *, clock: Clock | None = None) -> int:
    """Answer a question. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    try:
        take_connection(arguments)
        if getattr(arguments, "at", None) is not None:
            arguments.at = parse_partition(arguments.at)
        if not 0 <= getattr(arguments, "sample_ms", 0) <= 600_000:
            raise ValueError(f"--sample-ms {arguments.sample_ms}: must be from 0 to 600000")
        wrong = misplaced(arguments) if arguments.subject == TABLE else None
        if wrong is not None:
            raise ValueError(wrong)
    except ValueError as error:
        options.error(str(error))
    return run(PROG, _run(arguments, clock or SystemClock()))


def parse_partition(text: str) -> TopicPartition:
    """``orders:0``, or ``orders-0`` as everything shows it. Raises ValueError."""
    match = _PARTITION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text}: must be TOPIC:PARTITION, like {text.partition(':')[0] or 'orders'}:0")
    return TopicPartition(match["topic"], int(match["partition"]))


def parse_topic_or_partition(text: str) -> str | TopicPartition:
    """With a colon it is a partition: ``orders-0`` may be a topic. Raises ArgumentTypeError."""
    try:
        return parse_partition(text) if ":" in text else text
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


async def _run(arguments: argparse.Namespace, clock: Clock) -> int:
    async with Cluster(arguments, clock) as cluster:
        found = await SUBJECTS[arguments.subject](cluster, arguments)
    if arguments.json:
        print(as_json(found))
    else:
        show(found, sys.stdout)
    return OK


async def _partition(cluster: Cluster, arguments: argparse.Namespace) -> Answer:
    facts = await partition.gather(
        cluster, arguments.at, question=arguments.question, sample_ms=arguments.sample_ms
    )
    return partition.answer_of(facts, arguments.question, cluster.unknown)


async def _fetch(cluster: Cluster, arguments: argparse.Namespace) -> Answer:
    return await fetch.why(
        cluster, arguments.at, offset=arguments.offset, is_read_committed=arguments.read_committed
    )


async def _group(cluster: Cluster, arguments: argparse.Namespace) -> Answer:
    return await group.why(cluster, arguments.group, sample_ms=arguments.sample_ms)


async def _produce(cluster: Cluster, arguments: argparse.Namespace) -> Answer:
    if isinstance(arguments.topic, str):
        return await produce.why_topic(cluster, arguments.topic, client_id=arguments.client_id)
    return await produce.why(cluster, arguments.topic, client_id=arguments.client_id)


async def _topic(cluster: Cluster, arguments: argparse.Namespace) -> Answer:
    return await topic.why(cluster, arguments.topic)


async def _reassignment(cluster: Cluster, arguments: argparse.Namespace) -> Answer:
    return await reassignment.why(cluster, arguments.at, sample_ms=arguments.sample_ms)


async def _transaction(cluster: Cluster, arguments: argparse.Namespace) -> Answer:
    return await transaction.why(cluster, arguments.transactional_id)


async def _table(cluster: Cluster, arguments: argparse.Namespace) -> Answer:
    from minikafka.cli.why import table  # it knows files of logs, which no other subject does

    tables = open_tables(arguments, is_read_only=True)
    export = export_command(arguments)
    return await table.why(cluster, tables, arguments.topic, sample_ms=arguments.sample_ms, export=export)


def export_command(arguments: argparse.Namespace) -> str:
    """What continues the table that the arguments name; a password in the catalog's URI is left out."""
    from minikafka.spark.runtime.storage import without_password

    catalog = None if arguments.catalog is None else without_password(arguments.catalog)
    given = (
        ("--topics", arguments.topic),
        ("--format", arguments.format),
        ("--catalog", catalog),
        ("--namespace", arguments.namespace),
        ("-o", arguments.output),
    )
    words = [word for option, value in given if value is not None for word in (option, value)]
    return f"minikafka export LOG-DIR {shlex.join(words)}"


async def _client(cluster: Cluster, arguments: argparse.Namespace) -> Answer:
    who = client.Who(client_id=arguments.client_id, user=arguments.user, host=arguments.host)
    return await client.why(cluster, who)


async def _broker(cluster: Cluster, arguments: argparse.Namespace) -> Answer:
    return await broker.why(cluster, arguments.broker)


SUBJECTS: dict[str, Callable[[Cluster, argparse.Namespace], Awaitable[Answer]]] = {
    "partition": _partition,
    "fetch": _fetch,
    "produce": _produce,
    "topic": _topic,
    "reassignment": _reassignment,
    "transaction": _transaction,
    "client": _client,
    "broker": _broker,
    "group": _group,
    TABLE: _table,
}


if __name__ == "__main__":
    sys.exit(main())
