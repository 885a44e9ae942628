"""``minikafka topics``: create, list, describe, alter and delete topics, on any Kafka broker.

Kafka: ``kafka-topics.sh`` (``TopicCommand``), whose options work here too: ``minikafka topics --create
--topic orders --partitions 3`` is ``minikafka topics create orders --partitions 3``. Different from Kafka:
``alter`` also sets and removes configurations, and ``--json`` prints what programs can read.

Exit status: 0 when all went well, 1 when the broker refused something or cannot be reached, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from minikafka.cli.shared.commands import (
    FAILURE,
    add_connection_options,
    as_json,
    explain,
    parse_addresses,
    run,
    with_action_first,
)
from minikafka.cli.shared.profiles import ProfileParser
from minikafka.cli.topics.requests import TopicAdmin, TopicDescription
from minikafka.errors import ErrorCode, KafkaError

ACTIONS = ("create", "list", "describe", "alter", "delete")


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka topics``."""
    options = ProfileParser(
        prog="minikafka topics",
        description="Create, list, describe, alter and delete topics.",
        allow_abbrev=False,
    )
    options.add_argument("action", choices=ACTIONS, help="also as an option: --create, --list, …")
    options.add_argument("topics", nargs="*", metavar="TOPIC", help="topics; describe without any: all")
    add_connection_options(options)
    options.add_argument("--topic", action="append", default=[], metavar="TOPIC", help="the same as TOPIC")
    options.add_argument("--partitions", type=int, metavar="N", help="create, alter: how many partitions")
    options.add_argument(
        "--replication-factor", type=int, metavar="N", help="create: replicas of each partition"
    )
    options.add_argument(
        "--replica-assignment",
        metavar="1:2,2:1",
        help="create, alter: the replicas of each (new) partition: broker ids, the preferred leader first",
    )
    options.add_argument(
        "--config", action="append", default=[], metavar="NAME=VALUE", help="create, alter: set a property"
    )
    options.add_argument(
        "--delete-config", action="append", default=[], metavar="NAME", help="alter: back to the default"
    )
    options.add_argument("--if-not-exists", action="store_true", help="create: no error when it is there")
    options.add_argument(
        "--if-exists", action="store_true", help="describe, alter, delete: no error when it is not"
    )
    options.add_argument(
        "--exclude-internal", action="store_true", help="list, describe: leave out Kafka's own"
    )
    options.add_argument("--json", action="store_true", help="list, describe: print JSON")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run one action. Returns the exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    options = parser()
    arguments = options.parse_intermixed_args(with_action_first(given, ACTIONS))
    arguments.topics = [*arguments.topics, *(name for text in arguments.topic for name in text.split(","))]
    _check_usage(options, arguments)
    try:
        arguments.addresses = parse_addresses(arguments.bootstrap_server)
        arguments.settings = parse_configs(arguments.config)
        arguments.assignment = parse_assignment(arguments.replica_assignment)
    except ValueError as error:
        options.error(str(error))
    return run("minikafka topics", _run(arguments))


def _check_usage(options: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Options that make no sense with the action are bad usage, not silently ignored."""
    belongs = {
        "partitions": ("create", "alter"),
        "replication_factor": ("create",),
        "replica_assignment": ("create", "alter"),
        "config": ("create", "alter"),
        "delete_config": ("alter",),
        "if_not_exists": ("create",),
        "if_exists": ("describe", "alter", "delete"),
        "exclude_internal": ("list", "describe"),
        "json": ("list", "describe"),
    }
    for name, actions in belongs.items():
        if getattr(arguments, name) not in (None, False, []) and arguments.action not in actions:
            options.error(f"--{name.replace('_', '-')} does not go with {arguments.action}")
    if arguments.action in ("create", "alter", "delete") and not arguments.topics:
        options.error(f"{arguments.action} needs a topic")
    counts_given = arguments.partitions is not None or arguments.replication_factor is not None
    if arguments.action == "create" and arguments.replica_assignment and counts_given:
        options.error("--replica-assignment says how many partitions and replicas there are")
    if arguments.action == "alter":
        if arguments.partitions is None and not arguments.config and not arguments.delete_config:
            options.error("alter needs --partitions, --config or --delete-config")
        if arguments.replica_assignment and arguments.partitions is None:
            options.error("--replica-assignment needs --partitions")


async def _run(arguments: argparse.Namespace) -> int:
    async with await TopicAdmin.connect(arguments.addresses, timeout_ms=arguments.timeout_ms) as admin:
        match arguments.action:
            case "create":
                return await _create(admin, arguments)
            case "list":
                names = await admin.topic_names(internal=not arguments.exclude_internal)
                print(as_json(names) if arguments.json else "\n".join(names), end="\n" if names else "")
                return 0
            case "describe":
                return await _describe(admin, arguments)
            case "alter":
                return await _alter(admin, arguments)
            case _:
                return await _delete(admin, arguments)


async def _create(admin: TopicAdmin, arguments: argparse.Namespace) -> int:
    status = 0
    for topic in arguments.topics:
        try:
            await admin.create(
                topic,
                partitions=arguments.partitions,
                replication_factor=arguments.replication_factor,
                assignment=arguments.assignment,
                configs=arguments.settings,
            )
        except KafkaError as error:
            if arguments.if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                continue
            status = _complain(topic, error)
        else:
            print(f"Created topic {topic}.")
    return status


async def _describe(admin: TopicAdmin, arguments: argparse.Namespace) -> int:
    status = 0
    found = []
    for description in await admin.describe(arguments.topics or None):
        if isinstance(description, TopicDescription):
            if not (description.is_internal and arguments.exclude_internal):
                found.append(description)
        elif not (arguments.if_exists and description.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            status = _complain(description.topic, description)
    if arguments.json:
        print(as_json(found))
    else:
        for description in found:
            print("\n".join(description_lines(description)))
    return status


async def _alter(admin: TopicAdmin, arguments: argparse.Namespace) -> int:
    status = 0
    for topic in arguments.topics:
        try:
            if arguments.settings or arguments.delete_config:
                await admin.alter_configs(topic, set=arguments.settings, delete=arguments.delete_config)
            if arguments.partitions is not None:
                await admin.create_partitions(topic, arguments.partitions, assignment=arguments.assignment)
        except KafkaError as error:
            if arguments.if_exists and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            status = _complain(topic, error)
        else:
            print(f"Altered topic {topic}.")
    return status


async def _delete(admin: TopicAdmin, arguments: argparse.Namespace) -> int:
    status = 0
    for topic in arguments.topics:
        try:
            await admin.delete(topic)
        except KafkaError as error:
            if arguments.if_exists and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            status = _complain(topic, error)
        else:
            print(f"Deleted topic {topic}.")
    return status


def _complain(topic: str, error: KafkaError) -> int:
    print(f"minikafka topics: {topic}: {explain(error)}", file=sys.stderr)
    return FAILURE


def description_lines(description: TopicDescription) -> list[str]:
    """A topic as kafka-topics.sh shows it."""
    partitions = description.partitions
    configs = ",".join(f"{name}={value}" for name, value in description.configs.items())
    lines = [
        f"Topic: {description.topic}\tTopicId: {description.topic_id}\tPartitionCount: {len(partitions)}\t"
        f"ReplicationFactor: {len(partitions[0].replicas) if partitions else 0}\tConfigs: {configs}"
    ]
    for partition in partitions:
        leader = "none" if partition.leader < 0 else partition.leader
        lines.append(
            f"\tTopic: {description.topic}\tPartition: {partition.partition}\tLeader: {leader}\t"
            f"Replicas: {','.join(map(str, partition.replicas))}\tIsr: {','.join(map(str, partition.isr))}"
        )
    return lines


def parse_configs(texts: Sequence[str]) -> dict[str, str]:
    """``name=value`` texts as a dict. Raises ValueError."""
    configs = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise ValueError(f"--config {text}: must be NAME=VALUE")
        configs[name.strip()] = value
    return configs


def parse_assignment(text: str | None) -> list[list[int]] | None:
    """``1:2,2:1`` as the replicas of each partition. Raises ValueError."""
    if text is None:
        return None
    try:
        return [[int(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except ValueError:
        raise ValueError(f"--replica-assignment {text}: must be broker ids like 1:2,2:1") from None


if __name__ == "__main__":
    sys.exit(main())
