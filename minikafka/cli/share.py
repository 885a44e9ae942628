"""``minikafka share``: list and describe share groups, reset and delete their offsets, delete them (KIP-932).

Kafka: ``kafka-share-groups.sh`` (``ShareGroupCommand``), whose options work here, with those of
``minikafka groups`` beside them: actions are words too, a reset shows where offsets are now, and knows more
places to go to.

A share group has start offsets in the place of committed ones: from there on records are delivered that are
not acknowledged. Exit status: 0 when all was done, 1 when something was refused or no broker answers, 2 for
bad usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from minikafka.cli.groups import (
    NO_OFFSET,
    GroupAdmin,
    GroupDescription,
    GroupMember,
    add_describe,
    add_groups,
    add_list,
    add_reset,
    chosen_groups,
    complain,
    delete_groups,
    group_lines,
    listing_lines,
    member_lines,
    reset_offsets,
    show,
    table,
    take_reset,
    text_of,
)
from minikafka.cli.shared.admin_client import COORDINATOR_MOVES, CoordinatorType
from minikafka.cli.shared.commands import (
    OK,
    ProfileParser,
    add_connection_options,
    as_json,
    error_of,
    run,
    take_connection,
    with_action_first,
)
from minikafka.clock import Clock
from minikafka.errors import KafkaError
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.system_clock import SystemClock
from minikafka.types import TopicPartition

PROG = "minikafka share"
ACTIONS = ("list", "describe", "reset-offsets", "delete-offsets", "delete")
SHARE = "share"


class SharePosition(msgspec.Struct, frozen=True):
    """One partition. None: the share coordinator does not know."""

    topic: str
    partition: int
    start_offset: int | None
    leader_epoch: int
    lag: int | None
    """Records that are not acknowledged yet."""


class ShareAdmin(GroupAdmin):
    """The same questions about share groups: what is committed are start offsets."""

    types = (SHARE,)

    async def describe(self, group: str) -> GroupDescription:
        """A group that there is not, or no share group: a KafkaError GROUP_ID_NOT_FOUND."""
        coordinator, answer = await self.ask_coordinator(
            CoordinatorType.GROUP,
            group,
            ApiKey.SHARE_GROUP_DESCRIBE,
            {"group_ids": [group], "include_authorized_operations": False},
            lambda answer: answer.groups[0],
        )
        found = answer.groups[0]
        members = [
            GroupMember(
                each.member_id,
                None,
                each.client_id,
                each.client_host,
                {topic.topic_name: sorted(topic.partitions) for topic in each.assignment.topic_partitions},
            )
            for each in found.members
        ]
        return GroupDescription(group, SHARE, found.group_state, coordinator, found.assignor_name, members)

    async def positions(self, group: str) -> list[SharePosition]:
        """Of all partitions that the share coordinator keeps for the group, sorted."""
        _, answer = await self.ask_coordinator(
            CoordinatorType.GROUP,
            group,
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            {"groups": [{"group_id": group, "topics": None}]},
            lambda answer: answer.groups[0],
        )
        found = []
        for topic in answer.groups[0].topics:
            for each in topic.partitions:
                error = error_of(each.error_code)
                if error is not None:
                    raise KafkaError(error.code, f"{topic.topic_name}-{each.partition_index}")
                start = None if each.start_offset == NO_OFFSET else int(each.start_offset)
                lag = getattr(each, "lag", -1)
                found.append(
                    SharePosition(
                        topic.topic_name,
                        each.partition_index,
                        start,
                        each.leader_epoch,
                        None if lag < 0 else int(lag),
                    )
                )
        return sorted(found, key=lambda each: (each.topic, each.partition))

    async def committed(self, group: str) -> dict[TopicPartition, int]:
        """The start offsets."""
        return {
            TopicPartition(each.topic, each.partition): each.start_offset
            for each in await self.positions(group)
            if each.start_offset is not None
        }

    async def partitions_of(self, group: str) -> list[TopicPartition]:
        """Also those that it has not begun with."""
        return [TopicPartition(each.topic, each.partition) for each in await self.positions(group)]

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError]:
        """Set start offsets, which works while the group has no members. Returns what was refused."""
        topics: dict[str, list[dict[str, int]]] = {}
        for each, offset in offsets.items():
            topics.setdefault(each.topic, []).append(
                {"partition_index": each.partition, "start_offset": offset}
            )
        body = {
            "group_id": group,
            "topics": [{"topic_name": name, "partitions": each} for name, each in topics.items()],
        }
        _, answer = await self.ask_coordinator(
            CoordinatorType.GROUP, group, ApiKey.ALTER_SHARE_GROUP_OFFSETS, body, _moved
        )
        _raise_refusal(answer)
        return {
            TopicPartition(topic.topic_name, each.partition_index): error
            for topic in answer.responses
            for each in topic.partitions
            if (error := error_of(each.error_code)) is not None
        }

    async def delete_offsets(self, group: str, topics: Sequence[str]) -> dict[str, KafkaError]:
        """Forget topics, which works while the group has no members. Returns what was refused."""
        body = {"group_id": group, "topics": [{"topic_name": topic} for topic in topics]}
        _, answer = await self.ask_coordinator(
            CoordinatorType.GROUP, group, ApiKey.DELETE_SHARE_GROUP_OFFSETS, body, _moved
        )
        _raise_refusal(answer)
        return {
            topic.topic_name: error
            for topic in answer.responses
            if (error := error_of(topic.error_code)) is not None
        }


def _moved(answer: Any) -> Any:
    """What carries the error of a request that another coordinator would take."""
    return answer if answer.error_code in COORDINATOR_MOVES else None


def _raise_refusal(answer: Any) -> None:
    error = error_of(answer.error_code)
    if error is not None:
        raise KafkaError(error.code, answer.error_message)


def position_lines(
    group: GroupDescription, positions: Sequence[SharePosition], *, verbose: bool
) -> list[str]:
    """A group's start offsets and lag (``ShareGroupCommand.printOffsets``)."""
    note = [] if group.members else [f"Share group {group.group} has no members."]
    heads = ["GROUP", "TOPIC", "PARTITION", *(["LEADER-EPOCH"] if verbose else []), "START-OFFSET", "LAG"]
    rows = [
        [
            group.group,
            each.topic,
            str(each.partition),
            *([str(each.leader_epoch)] if verbose else []),
            text_of(each.start_offset),
            text_of(each.lag),
        ]
        for each in positions
    ]
    return note + table(heads, rows)


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka share``."""
    options = ProfileParser(
        prog=PROG,
        description="Share groups: their members, start offsets and lag.",
        allow_abbrev=False,
    )
    options.set_defaults(prog=PROG)
    actions = options.add_subparsers(dest="action", required=True, metavar="ACTION")
    add_list(actions.add_parser("list", help="all share groups with their state", allow_abbrev=False))
    describe = actions.add_parser("describe", help="offsets and lag, or members", allow_abbrev=False)
    add_describe(describe)
    describe.add_argument(
        "--verbose", action="store_true", help="with --members what each shares in, else leader epochs"
    )
    add_reset(actions.add_parser("reset-offsets", help="move start offsets", allow_abbrev=False))
    forget = actions.add_parser("delete-offsets", help="forget topics", allow_abbrev=False)
    forget.add_argument("--group", required=True, metavar="GROUP", help="this group")
    forget.add_argument(
        "--topic", action="append", required=True, metavar="TOPIC", help="this topic; may be repeated"
    )
    add_groups(actions.add_parser("delete", help="delete groups and their offsets", allow_abbrev=False))
    for each in actions.choices.values():
        add_connection_options(each)
    return options


def main(argv: Sequence[str] | None = None, *, clock: Clock | None = None) -> int:
    """Run an action. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(with_action_first(sys.argv[1:] if argv is None else argv, ACTIONS))
    try:
        take_connection(arguments)
        if arguments.action == "reset-offsets":
            take_reset(arguments, now_ms=(clock or SystemClock()).now_ms())
    except ValueError as error:
        options.error(str(error))
    return run(PROG, _run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    async with ShareAdmin.of(arguments, "minikafka-share") as admin:
        match arguments.action:
            case "list":
                return await _list(admin, arguments)
            case "describe":
                return await _describe(admin, arguments)
            case "reset-offsets":
                return await reset_offsets(admin, arguments)
            case "delete-offsets":
                return await _delete_offsets(admin, arguments)
            case _:
                return await delete_groups(admin, arguments)


async def _list(admin: ShareAdmin, arguments: argparse.Namespace) -> int:
    states = [each.strip() for each in arguments.state.split(",") if each.strip()]
    groups = await admin.groups(states=states, types=admin.types)
    show([as_json(groups)] if arguments.json else listing_lines(groups))
    return OK


async def _describe(admin: ShareAdmin, arguments: argparse.Namespace) -> int:
    status = OK
    described: list[tuple[GroupDescription, list[SharePosition]]] = []
    for group in await chosen_groups(admin, arguments):
        try:
            described.append((await admin.describe(group), await admin.positions(group)))
        except KafkaError as error:
            status = complain(PROG, group, error)
    if arguments.json:
        show([as_json([{"group": group, "positions": each} for group, each in described])])
        return status
    for index, (description, each) in enumerate(described):
        lines = [""] if index else []
        if arguments.state:
            lines += group_lines(description)
        elif arguments.members:
            lines += member_lines(description, verbose=arguments.verbose)
        else:
            lines += position_lines(description, each, verbose=arguments.verbose)
        show(lines)
    return status


async def _delete_offsets(admin: ShareAdmin, arguments: argparse.Namespace) -> int:
    status = OK
    topics = list(dict.fromkeys(arguments.topic))
    try:
        refused = await admin.delete_offsets(arguments.group, topics)
    except KafkaError as error:
        return complain(PROG, arguments.group, error)
    for topic in topics:
        if topic in refused:
            status = complain(PROG, f"{arguments.group}: {topic}", refused[topic])
        else:
            show([f"Deleted the offsets of {topic} of share group {arguments.group}."])
    return status


if __name__ == "__main__":
    sys.exit(main())
