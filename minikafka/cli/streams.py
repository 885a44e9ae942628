"""``minikafka streams``: list and describe streams groups, reset and delete their offsets, delete them
(KIP-1071).

Kafka: ``kafka-streams-groups.sh`` (``StreamsGroupCommand``), whose options work here, but for ``--topology``;
actions are words too, a list always has states, and a reset shows where offsets are now.

Offsets are committed as in consumer groups, for source and repartition topics. A partition without one counts
from its first record. Exit status: 0 when all was done, 1 when something was refused or no broker answers, 2
for bad usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from minikafka.cli.groups import (
    EARLIEST,
    LATEST,
    NO_OFFSET,
    GroupAdmin,
    GroupDescription,
    GroupListing,
    GroupMember,
    ListedOffset,
    add_describe,
    add_groups,
    add_list,
    add_reset,
    chosen_groups,
    complain,
    delete_groups,
    parse_topic,
    partitions_of_topics,
    reset_offsets,
    show,
    table,
    take_reset,
    text_of,
)
from minikafka.cli.shared.admin_client import COORDINATOR_MOVES, CoordinatorType, raise_error
from minikafka.cli.shared.commands import (
    FAILURE,
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
from minikafka.network.addresses import format_address
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.system_clock import SystemClock
from minikafka.types import TopicPartition

PROG = "minikafka streams"
ACTIONS = ("list", "describe", "reset-offsets", "delete-offsets", "delete")
STREAMS = "streams"

Tasks = dict[str, list[int]]
"""Partitions by subtopology."""


class StreamsMember(GroupMember, frozen=True, kw_only=True):
    """Its ``assignment`` is its active tasks, by subtopology."""

    process_id: str
    epoch: int
    topology_epoch: int
    is_classic: bool
    standby: Tasks
    warmup: Tasks
    target: tuple[Tasks, Tasks, Tasks]
    """Active, standby and warm-up tasks that it shall have."""


class Subtopology(msgspec.Struct, frozen=True):
    """What a part of the application reads, and the internal topics that it has."""

    name: str
    source_topics: list[str]
    repartition_topics: list[str]
    changelog_topics: list[str]


class StreamsDescription(GroupDescription, frozen=True, kw_only=True):
    """A streams group, as its coordinator has it."""

    group_epoch: int
    assignment_epoch: int
    subtopologies: list[Subtopology]

    @property
    def input_topics(self) -> set[str]:
        """Those that are not the application's own."""
        return {topic for each in self.subtopologies for topic in each.source_topics}

    @property
    def read_topics(self) -> set[str]:
        """Those of which it commits offsets."""
        return self.input_topics | {topic for each in self.subtopologies for topic in each.repartition_topics}

    @property
    def internal_topics(self) -> list[str]:
        """Sorted."""
        return sorted(
            {
                topic
                for each in self.subtopologies
                for topic in each.repartition_topics + each.changelog_topics
            }
        )

    def active_partitions(self) -> set[TopicPartition]:
        """What its members read now."""
        topics = {each.name: each.source_topics + each.repartition_topics for each in self.subtopologies}
        return {
            TopicPartition(topic, number)
            for member in self.members
            for name, numbers in member.assignment.items()
            for topic in topics.get(name, ())
            for number in numbers
        }


class StreamsPosition(msgspec.Struct, frozen=True):
    """One partition. None: nothing is committed, the log's end cannot be known."""

    topic: str
    partition: int
    committed: int | None
    leader_epoch: int | None
    log_end: int | None
    lag: int | None
    """Records from the committed offset on, or from the first record."""


class StreamsAdmin(GroupAdmin):
    """The same questions about streams groups."""

    types = (STREAMS,)
    makes_groups = False

    async def describe(self, group: str) -> StreamsDescription:
        """A group that there is not, or no streams group: a KafkaError GROUP_ID_NOT_FOUND."""
        coordinator, answer = await self.ask_coordinator(
            CoordinatorType.GROUP,
            group,
            ApiKey.STREAMS_GROUP_DESCRIBE,
            {
                "group_ids": [group],
                "include_authorized_operations": False,
                "include_topology_description": False,
            },
            lambda answer: answer.groups[0],
        )
        found = answer.groups[0]
        subtopologies = () if found.topology is None else found.topology.subtopologies or ()
        return StreamsDescription(
            group=group,
            type=STREAMS,
            state=found.group_state,
            coordinator=coordinator,
            assignor=getattr(found, "assignor_name", None) or "",
            members=[_member(each) for each in found.members],
            group_epoch=found.group_epoch,
            assignment_epoch=found.assignment_epoch,
            subtopologies=[_subtopology(each) for each in subtopologies],
        )

    async def positions(self, group: StreamsDescription) -> list[StreamsPosition]:
        """Of all partitions that members read or of which an offset is committed, sorted."""
        committed = {
            at: listed
            for at, listed in (await self.committed_with_epochs(group.group)).items()
            if at.topic in group.read_topics
        }
        partitions = sorted(group.active_partitions() | committed.keys())
        starts = await self.list_offsets(partitions, EARLIEST)
        ends = await self.list_offsets(partitions, LATEST)
        return [_position(at, committed.get(at), starts[at], ends[at]) for at in partitions]

    async def partitions_of(self, group: str) -> list[TopicPartition]:
        """Those of input topics; an application reads its repartition topics by itself."""
        topics = (await self.describe(group)).input_topics
        return [each for each in await self.committed(group) if each.topic in topics]

    async def delete(self, group: str) -> None:
        """DeleteGroups, of a streams group only."""
        await self.describe(group)
        await super().delete(group)

    async def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError]:
        """Forget offsets. Returns what was refused, such as GROUP_SUBSCRIBED_TO_TOPIC."""
        topics: dict[str, list[dict[str, int]]] = {}
        for each in partitions:
            topics.setdefault(each.topic, []).append({"partition_index": each.partition})
        body = {
            "group_id": group,
            "topics": [{"name": name, "partitions": each} for name, each in topics.items()],
        }
        _, answer = await self.ask_coordinator(
            CoordinatorType.GROUP, group, ApiKey.OFFSET_DELETE, body, _moved
        )
        raise_error(answer)
        return {
            TopicPartition(topic.name, each.partition_index): error
            for topic in answer.topics
            for each in topic.partitions
            if (error := error_of(each.error_code)) is not None
        }

    async def delete_topic(self, topic: str) -> None:
        """DeleteTopics."""
        body = {
            "topics": [{"name": topic, "topic_id": None}],
            "topic_names": [topic],  # until v5
            "timeout": self.timeout_ms,
        }
        answer = await self.ask_any(ApiKey.DELETE_TOPICS, body)
        for each in answer.responses:
            raise_error(each)


def _moved(answer: Any) -> Any:
    """What carries the error of a request that another coordinator would take."""
    return answer if answer.error_code in COORDINATOR_MOVES else None


def _member(member: Any) -> StreamsMember:
    target = member.target_assignment
    return StreamsMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=_tasks(member.assignment.active_tasks),
        process_id=member.process_id,
        epoch=member.member_epoch,
        topology_epoch=member.topology_epoch,
        is_classic=member.is_classic,
        standby=_tasks(member.assignment.standby_tasks),
        warmup=_tasks(member.assignment.warmup_tasks),
        target=(
            _tasks(target.active_tasks),
            _tasks(target.standby_tasks),
            _tasks(target.warmup_tasks),
        ),
    )


def _tasks(tasks: Iterable[Any]) -> Tasks:
    return {each.subtopology_id: sorted(each.partitions) for each in tasks}


def _subtopology(each: Any) -> Subtopology:
    return Subtopology(
        each.subtopology_id,
        list(each.source_topics),
        [topic.name for topic in each.repartition_source_topics],
        [topic.name for topic in each.state_changelog_topics],
    )


def _position(
    at: TopicPartition,
    committed: ListedOffset | None,
    start: ListedOffset | KafkaError,
    end: ListedOffset | KafkaError,
) -> StreamsPosition:
    log_end = None if isinstance(end, KafkaError) else end.offset
    begin = committed if committed is not None else start
    lag = None if log_end is None or isinstance(begin, KafkaError) else max(0, log_end - begin.offset)
    epoch = None if committed is None or committed.leader_epoch == NO_OFFSET else committed.leader_epoch
    return StreamsPosition(
        at.topic, at.partition, None if committed is None else committed.offset, epoch, log_end, lag
    )


def listing_lines(groups: Sequence[GroupListing]) -> list[str]:
    """``StreamsGroupCommand.printGroupInfo``."""
    return table(["GROUP", "STATE"], [[each.group, each.state] for each in groups])


def position_lines(
    group: StreamsDescription, positions: Sequence[StreamsPosition], *, verbose: bool
) -> list[str]:
    """A group's lag, with ``verbose`` its offsets too (``StreamsGroupCommand.printOffsets``)."""
    note = [] if group.members else [f"Streams group {group.group} has no members."]
    more = ["CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET"] if verbose else []
    rows = [
        [
            group.group,
            each.topic,
            str(each.partition),
            *(map(text_of, (each.committed, each.leader_epoch, each.log_end)) if verbose else ()),
            text_of(each.lag),
        ]
        for each in positions
    ]
    return note + table(["GROUP", "TOPIC", "PARTITION", *more, "OFFSET-LAG"], rows)


def member_lines(group: StreamsDescription, *, verbose: bool) -> list[str]:
    """Members and their tasks, with ``verbose`` those too that they shall have (``printMembers``)."""
    if not group.members:
        return [f"Streams group {group.group} has no members."]
    heads = ["GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"]
    if verbose:
        heads[1:4] = [
            *("TARGET-ASSIGNMENT-EPOCH", "TOPOLOGY-EPOCH", "MEMBER", "MEMBER-PROTOCOL", "MEMBER-EPOCH"),
            *("PROCESS", "CLIENT-ID"),
        ]
    rows = []
    for each in group.members:
        assert isinstance(each, StreamsMember)
        row = [
            group.group,
            each.member_id,
            each.process_id,
            each.client_id,
            _task_text(each, verbose=verbose),
        ]
        if verbose:
            protocol = "classic" if each.is_classic else STREAMS
            row[1:2] = [
                *(str(group.assignment_epoch), str(each.topology_epoch)),
                *(each.member_id, protocol, str(each.epoch)),
            ]
        rows.append(row)
    return table(heads, rows)


def _task_text(member: StreamsMember, *, verbose: bool) -> str:
    """``ACTIVE: 0:[0,1]; STANDBY: 1:[2];``, as Kafka's tool writes it."""
    kinds = [("ACTIVE", member.assignment), ("STANDBY", member.standby), ("WARMUP", member.warmup)]
    if verbose:
        names = ("TARGET-ACTIVE", "TARGET-STANDBY", "TARGET-WARMUP")
        kinds += list(zip(names, member.target, strict=True))
    texts = []
    for kind, tasks in kinds:
        if tasks:
            each = (f"{name}:[{','.join(map(str, tasks[name]))}];" for name in tasks)
            texts.append(f"{kind}: {' '.join(each)}")
    return " ".join(texts) or text_of(None)


def group_lines(group: StreamsDescription, *, verbose: bool) -> list[str]:
    """A group's state and its coordinator, with ``verbose`` its epochs (``printStates``)."""
    coordinator = group.coordinator
    where = f"{format_address(coordinator.host, coordinator.port)} ({coordinator.node_id})"
    heads = ["GROUP", "COORDINATOR (ID)", "ASSIGNOR", "STATE"]
    row = [group.group, where, text_of(group.assignor), group.state]
    if verbose:
        heads += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [str(group.group_epoch), str(group.assignment_epoch)]
    return table([*heads, "#MEMBERS"], [[*row, str(len(group.members))]])


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka streams``."""
    options = ProfileParser(
        prog=PROG,
        description="Streams groups: their members, tasks, offsets and lag.",
        allow_abbrev=False,
    )
    options.set_defaults(prog=PROG)
    actions = options.add_subparsers(dest="action", required=True, metavar="ACTION")
    add_list(actions.add_parser("list", help="all streams groups with their state", allow_abbrev=False))
    describe = actions.add_parser("describe", help="lag, members or state", allow_abbrev=False)
    add_describe(describe)
    describe.add_argument(
        "--verbose", action="store_true", help="with offsets, epochs and target assignments"
    )
    reset = actions.add_parser("reset-offsets", help="move committed offsets", allow_abbrev=False)
    add_reset(reset, of="input-")
    reset.add_argument(
        "--delete-internal-topic",
        action="append",
        metavar="TOPIC",
        default=[],
        help="with --execute: delete this internal topic of the groups, too; may be repeated",
    )
    reset.add_argument(
        "--delete-all-internal-topics",
        action="store_true",
        help="with --execute: delete all internal topics of the groups, too",
    )
    forget = actions.add_parser("delete-offsets", help="forget committed offsets", allow_abbrev=False)
    forget.add_argument("--group", required=True, metavar="GROUP", help="this group")
    which = forget.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--input-topic", dest="topic", action="append", metavar="TOPIC[:0,1]", help="may be repeated"
    )
    which.add_argument(
        "--all-input-topics", dest="all_topics", action="store_true", help="all input topics of the group"
    )
    delete = actions.add_parser("delete", help="delete groups and their offsets", allow_abbrev=False)
    add_groups(delete)
    delete.add_argument(
        "--delete-all-internal-topics", action="store_true", help="delete their internal topics, too"
    )
    for each in actions.choices.values():
        add_connection_options(each)
    return options


def main(argv: Sequence[str] | None = None, *, clock: Clock | None = None) -> int:
    """Run an action. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(with_action_first(sys.argv[1:] if argv is None else argv, ACTIONS))
    try:
        take_connection(arguments)
        if arguments.action == "delete-offsets":
            arguments.topics = [parse_topic(each) for each in arguments.topic or ()]
        if arguments.action == "reset-offsets":
            take_reset(arguments, now_ms=(clock or SystemClock()).now_ms())
            deletes = arguments.delete_internal_topic or arguments.delete_all_internal_topics
            if deletes and not arguments.execute:
                raise ValueError("internal topics are deleted only with --execute")
    except ValueError as error:
        options.error(str(error))
    return run(PROG, _run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    async with StreamsAdmin.of(arguments, "minikafka-streams") as admin:
        match arguments.action:
            case "list":
                return await _list(admin, arguments)
            case "describe":
                return await _describe(admin, arguments)
            case "reset-offsets":
                return await _reset(admin, arguments)
            case "delete-offsets":
                return await _delete_offsets(admin, arguments)
            case _:
                return await _delete(admin, arguments)


async def _list(admin: StreamsAdmin, arguments: argparse.Namespace) -> int:
    states = [each.strip() for each in arguments.state.split(",") if each.strip()]
    groups = await admin.groups(states=states, types=admin.types)
    show([as_json(groups)] if arguments.json else listing_lines(groups))
    return OK


async def _describe(admin: StreamsAdmin, arguments: argparse.Namespace) -> int:
    status = OK
    described: list[tuple[StreamsDescription, list[StreamsPosition]]] = []
    for group in await chosen_groups(admin, arguments):
        try:
            found = await admin.describe(group)
            described.append((found, await admin.positions(found)))
        except KafkaError as error:
            status = complain(PROG, group, error)
    if arguments.json:
        show([as_json([{"group": group, "positions": each} for group, each in described])])
        return status
    for index, (description, each) in enumerate(described):
        lines = [""] if index else []
        if arguments.state:
            lines += group_lines(description, verbose=arguments.verbose)
        elif arguments.members:
            lines += member_lines(description, verbose=arguments.verbose)
        else:
            lines += position_lines(description, each, verbose=arguments.verbose)
        show(lines)
    return status


async def _reset(admin: StreamsAdmin, arguments: argparse.Namespace) -> int:
    wanted: list[str] = list(dict.fromkeys(arguments.delete_internal_topic))
    internal: list[str] = []
    if wanted or arguments.delete_all_internal_topics:
        internal = await _internal_topics(admin, await chosen_groups(admin, arguments))
        foreign = [topic for topic in wanted if topic not in internal]
        if foreign:
            raise CommandError(f"{', '.join(foreign)}: not an internal topic of the group")
    status = await reset_offsets(admin, arguments)
    if status != OK:  # what was not reset continues where it was, with its state
        return status
    return await _delete_topics(admin, internal if arguments.delete_all_internal_topics else wanted)


async def _delete(admin: StreamsAdmin, arguments: argparse.Namespace) -> int:
    groups = await chosen_groups(admin, arguments)
    by_group: Mapping[str, list[str]] = {}
    if arguments.delete_all_internal_topics:
        by_group = {group: await _internal_topics(admin, [group]) for group in groups}
    status = await delete_groups(admin, arguments)
    gone = set(groups) - {each.group for each in await admin.groups(types=admin.types)}
    topics = [topic for group, names in by_group.items() if group in gone for topic in names]
    return max(status, await _delete_topics(admin, topics))


async def _internal_topics(admin: StreamsAdmin, groups: Iterable[str]) -> list[str]:
    """Of those groups that are there; of the others it is said later what is wrong with them."""
    found: list[str] = []
    for group in groups:
        try:
            found += (await admin.describe(group)).internal_topics
        except KafkaError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
    return list(dict.fromkeys(found))


async def _delete_topics(admin: StreamsAdmin, topics: Iterable[str]) -> int:
    status = OK
    for topic in topics:
        try:
            await admin.delete_topic(topic)
        except KafkaError as error:
            status = complain(PROG, topic, error)
        else:
            show([f"Deleted topic {topic}."])
    return status


async def _delete_offsets(admin: StreamsAdmin, arguments: argparse.Namespace) -> int:
    group = arguments.group
    try:
        await admin.describe(group)
        topics = None if arguments.all_topics else arguments.topics
        partitions = await partitions_of_topics(admin, group, topics)
        refused = await admin.delete_offsets(group, partitions) if partitions else {}
    except (KafkaError, CommandError) as error:
        return complain(PROG, group, error)
    done = [each for each in partitions if each not in refused]
    show(table(["GROUP", "TOPIC", "PARTITION"], [[group, each.topic, str(each.partition)] for each in done]))
    for each, why in refused.items():
        complain(PROG, f"{group}: {each}", why)
    return FAILURE if refused else OK


if __name__ == "__main__":
    sys.exit(main())
