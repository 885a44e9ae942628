"""``minikafka reassign generate``: proposes a plan, and changes nothing.

Kafka: ``ReassignPartitionsCommand.generateAssignment``. Different here: the plan keeps what it can
(``reassign_planner``), all topics and all registered brokers are taken unless said otherwise, and the
replication factor can be changed.
"""

from __future__ import annotations

import argparse
import sys

from minikafka.cli.reassign.plan import format_plan, parse_topics
from minikafka.cli.reassign.planner import Assignment, count_moves, plan_assignment
from minikafka.cli.shared.admin_client import AdminClient
from minikafka.cli.shared.commands import OK, CommandError, read_text, write_text
from minikafka.controller.assignment import BrokerMetadata
from minikafka.types import BrokerId


async def generate(admin: AdminClient, arguments: argparse.Namespace) -> int:
    """Print where the partitions are and where they could be. Returns the exit status.

    Raises:
        CommandError: an unknown topic or broker, brokers with and without racks, more replicas than brokers.
    """
    current = await _current(admin, _topics(arguments))
    brokers = await _brokers(admin, arguments)
    try:
        planned = plan_assignment(current, brokers, replication_factor=arguments.replication_factor)
    except ValueError as error:
        raise CommandError(str(error)) from None
    proposal = format_plan(planned)
    print(f"Current partition replica assignment\n{format_plan(current)}\n")
    print(f"Proposed partition reassignment configuration\n{proposal}")
    changed = sum(planned[each] != current[each] for each in planned)
    print(
        f"{changed} of {len(planned)} partitions change, {count_moves(current, planned)} replicas are copied",
        file=sys.stderr,
    )
    if arguments.output is not None:
        write_text(arguments.output, proposal + "\n")
    return OK


def _topics(arguments: argparse.Namespace) -> list[str] | None:
    if arguments.topics_to_move_json_file is not None:
        return parse_topics(read_text(arguments.topics_to_move_json_file))
    return None if arguments.topics is None else list(dict.fromkeys(arguments.topics.split(",")))


async def _current(admin: AdminClient, topics: list[str] | None) -> Assignment:
    """Where the partitions are, or will be when what is under way is done."""
    partitions = await admin.partitions(topics)
    missing = sorted(set(topics or ()) - {each.topic for each in partitions})
    if missing:
        raise CommandError(f"there is no topic {', '.join(missing)}")
    if not partitions:
        raise CommandError("there is no partition to plan for")
    under_way = await admin.reassignments()
    return {
        each: under_way[each].target if each in under_way else now.replicas
        for each, now in partitions.items()
    }


async def _brokers(admin: AdminClient, arguments: argparse.Namespace) -> list[BrokerMetadata]:
    live = (await admin.nodes()).brokers
    wanted = arguments.broker_list or list(live)
    unknown = [node_id for node_id in wanted if node_id not in live]
    if unknown:
        raise CommandError(f"broker {', '.join(map(str, unknown))} is not registered")
    racks = [None if arguments.disable_rack_aware else live[node_id].rack for node_id in wanted]
    if None in racks and any(rack is not None for rack in racks):
        without = [str(node_id) for node_id, rack in zip(wanted, racks, strict=True) if rack is None]
        raise CommandError(
            f"broker {', '.join(without)} has no rack, others have; --disable-rack-aware leaves racks aside"
        )
    return [BrokerMetadata(BrokerId(node_id), rack) for node_id, rack in zip(wanted, racks, strict=True)]
