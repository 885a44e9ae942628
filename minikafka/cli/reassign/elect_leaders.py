"""``minikafka elect-leaders``: let partitions elect their preferred leader, or any leader at all.

Kafka: ``kafka-leader-election.sh`` (``LeaderElectionCommand``, KIP-460), whose options work here. Different
here: ``--topic`` without ``--partition`` means all partitions of the topic.

Exit status: 0 when every partition has the leader that was asked for, 1 when not, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from minikafka.cli.reassign.plan import parse_election_partitions
from minikafka.cli.shared.admin_client import AdminClient
from minikafka.cli.shared.commands import (
    FAILURE,
    OK,
    CommandError,
    ProfileParser,
    add_connection_options,
    explain,
    read_text,
    run,
    take_connection,
)
from minikafka.errors import ErrorCode
from minikafka.types import ElectionType, TopicPartition


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka elect-leaders``."""
    options = ProfileParser(
        prog="minikafka elect-leaders",
        description="Elect the preferred leaders, or (unclean) any live replica where there is no leader.",
        epilog="An unclean election makes a partition available again and can lose acknowledged records.",
        allow_abbrev=False,
    )
    add_connection_options(options)
    options.add_argument(
        "--election-type",
        required=True,
        type=str.lower,
        choices=[each.name.lower() for each in ElectionType],
        help="preferred: the first of its replicas, if it is in sync; unclean: any live one, if none leads",
    )
    which = options.add_mutually_exclusive_group(required=True)
    which.add_argument("--topic", metavar="TOPIC", help="the partitions of this topic")
    which.add_argument("--all-topic-partitions", action="store_true", help="all partitions there are")
    which.add_argument(
        "--path-to-json-file",
        metavar="FILE",
        help='these partitions: {"partitions": [{"topic": "orders", "partition": 1}]}; - is standard input',
    )
    options.add_argument("--partition", type=int, metavar="N", help="of --topic: only this one")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run elections. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    if arguments.partition is not None and arguments.topic is None:
        options.error("--partition needs --topic")
    try:
        take_connection(arguments)
    except ValueError as error:
        options.error(str(error))
    return run("minikafka elect-leaders", _run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    election_type = ElectionType[arguments.election_type.upper()]
    async with AdminClient.of(arguments, "minikafka-elect-leaders") as admin:
        results = await admin.elect_leaders(election_type, await _partitions(admin, arguments))
    done = [each for each, error in results.items() if error is None]
    failed = {each: error for each, error in results.items() if error is not None}
    not_needed = [each for each, error in failed.items() if error.code is ErrorCode.ELECTION_NOT_NEEDED]
    if done:
        name = election_type.name
        print(f"Successfully completed leader election ({name}) for partitions {_names(done)}")
    if not_needed or (not failed and not done):
        print(f"Valid replica already elected for partitions {_names(not_needed) or '(all)'}")
    for each in not_needed:
        del failed[each]
    for each, error in failed.items():
        print(f"minikafka elect-leaders: {each}: {explain(error)}", file=sys.stderr)
    return FAILURE if failed else OK


async def _partitions(admin: AdminClient, arguments: argparse.Namespace) -> list[TopicPartition] | None:
    """Which to elect leaders for; None: all. Raises CommandError: there is no such topic."""
    if arguments.path_to_json_file is not None:
        return parse_election_partitions(read_text(arguments.path_to_json_file))
    if arguments.topic is None:
        return None
    if arguments.partition is not None:
        return [TopicPartition(arguments.topic, arguments.partition)]
    partitions = list(await admin.partitions([arguments.topic]))
    if not partitions:
        raise CommandError(f"there is no topic {arguments.topic}")
    return partitions


def _names(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))


if __name__ == "__main__":
    sys.exit(main())
