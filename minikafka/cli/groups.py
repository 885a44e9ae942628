"""``minikafka groups``: list and describe consumer groups, reset their offsets, delete them.

Kafka: ``kafka-consumer-groups.sh`` (``ConsumerGroupCommand``), whose options work here, and the part of
``KafkaAdminClient`` about consumer groups (``CoordinatorStrategy``, ``DescribeConsumerGroupsHandler``,
``ListConsumerGroupOffsetsHandler``). It works with any broker. Different: the actions are words (``--list``
and its like work too), states and types are always shown, and a reset shows where offsets are now. Tables
have a group or partition a line, so that other tools can cut them.

What ``reset-offsets`` is going to do is a plan, shown before anything is done (Kafka:
``prepareOffsetsToReset``). A new offset always lies within the log: what would lie outside is moved to its
nearer end, and the plan says so.

The coordinator does not look into what a member of a classic group was assigned
(``ConsumerProtocol.deserializeAssignment``), so it may be anything; what is no assignment counts as none.

Exit status: 0 when all was done, 1 when something was refused or no broker answers, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import io
import re
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal, NamedTuple, assert_never

import msgspec

from minikafka.cli.shared.admin_client import COORDINATOR_MOVES, AdminClient, CoordinatorType, LiveBroker
from minikafka.cli.shared.commands import (
    FAILURE,
    OK,
    CommandError,
    ProfileParser,
    add_connection_options,
    as_json,
    error_of,
    explain,
    run,
    take_connection,
    with_action_first,
)
from minikafka.clock import Clock
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.addresses import format_address
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.system_clock import SystemClock
from minikafka.types import TopicPartition

_I16, _I32 = struct.Struct(">h"), struct.Struct(">i")

LATEST, EARLIEST = -1, -2
"""In place of a timestamp (ListOffsets)."""

NO_OFFSET = -1
_NO_GENERATION = -1

Kind = Literal["earliest", "latest", "current", "time", "shift", "offset", "file"]

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.ASCII | re.IGNORECASE,
)

Topics = Sequence[tuple[str, list[int] | None]]
"""Each with its partitions; None: all."""

NOTHING = "-"

PROG = "minikafka groups"
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
ACTIONS = ("list", "describe", "reset-offsets", "delete")


# What a cluster is asked


def read_assignment(data: bytes) -> dict[str, list[int]]:
    """Topic → partitions; all versions of the format begin like the first. Nothing for other bytes."""
    assignment: dict[str, list[int]] = {}
    try:
        (topics,) = _I32.unpack_from(data, _I16.size)
        position = _I16.size + _I32.size
        for _ in range(topics):
            (length,) = _I16.unpack_from(data, position)
            position += _I16.size
            name = bytes(data[position : position + length]).decode()
            position += length
            (count,) = _I32.unpack_from(data, position)
            position += _I32.size
            assignment[name] = sorted(struct.unpack_from(f">{count}i", data, position))
            position += count * _I32.size
    except (struct.error, UnicodeDecodeError):
        return {}
    return assignment


class GroupListing(msgspec.Struct, frozen=True):
    """A group as ListGroups has it. Brokers of old do not say state and type: empty then."""

    group: str
    type: str
    protocol_type: str
    state: str


class GroupMember(msgspec.Struct, frozen=True):
    """A member, and what it is to read."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: dict[str, list[int]]


class GroupDescription(msgspec.Struct, frozen=True):
    """A group, as its coordinator has it."""

    group: str
    type: str
    state: str
    coordinator: LiveBroker
    assignor: str
    """The assignor's name; empty when the group has none yet."""
    members: list[GroupMember]

    @property
    def is_rebalancing(self) -> bool:
        """Its members are joining, or on their way to another assignment: what they own is not settled."""
        return self.state in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")

    @property
    def is_inactive(self) -> bool:
        """It has no members, so its offsets can be changed."""
        return self.state in ("Empty", "Dead")


class ListedOffset(NamedTuple):
    """What ListOffsets says; the offset is -1 when there is no record of that time."""

    offset: int
    leader_epoch: int


class GroupAdmin(AdminClient):
    """Methods raise KafkaError for what a broker refuses, and BrokerUnavailable when there is no answer."""

    types: ClassVar[tuple[str, ...]] = ("classic", "consumer")
    """Of the groups that ``--all-groups`` means; share groups are for ``minikafka share``, streams groups for
    ``minikafka streams``."""
    makes_groups: ClassVar[bool] = True
    """Whether a commit for a group that is not there makes one of these types."""

    async def groups(self, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
        """The groups of all brokers, sorted by name, in one of ``states`` and of one of ``types``."""
        body = {"states_filter": list(states), "types_filter": list(types)}
        found = {}
        for broker in (await self.nodes()).brokers:
            for each in (await self.ask_loaded(broker, ApiKey.LIST_GROUPS, body)).groups:
                state, kind = getattr(each, "group_state", ""), getattr(each, "group_type", "")
                found[each.group_id] = GroupListing(each.group_id, kind, each.protocol_type, state)
        return [found[group] for group in sorted(found)]

    async def describe(self, group: str) -> GroupDescription:
        """One group, of either protocol. A group that there is not: a KafkaError GROUP_ID_NOT_FOUND."""
        coordinator, answer = await self.ask_coordinator(
            CoordinatorType.GROUP,
            group,
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            {"group_ids": [group], "include_authorized_operations": False},
            lambda answer: answer.groups[0],
            expected=(ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION),
        )
        if answer is not None:
            found = answer.groups[0]
            members = [_member(each, _assigned(each)) for each in found.members]
            return GroupDescription(
                group, "consumer", found.group_state, coordinator, found.assignor_name, members
            )
        return await self._describe_classic(group)

    async def _describe_classic(self, group: str) -> GroupDescription:
        coordinator, answer = await self.ask_coordinator(
            CoordinatorType.GROUP,
            group,
            ApiKey.DESCRIBE_GROUPS,
            {"groups": [group], "include_authorized_operations": False},
            lambda answer: answer.groups[0],
        )
        found = answer.groups[0]
        if found.group_state == "Dead" and not found.members:  # before version 6 there was no error for it
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group} not found.")
        members = [_member(each, read_assignment(each.member_assignment)) for each in found.members]
        return GroupDescription(
            group, "classic", found.group_state, coordinator, found.protocol_data, members
        )

    async def committed(self, group: str) -> dict[TopicPartition, int]:
        """Every offset that the group has committed, sorted by partition."""
        return {each: listed.offset for each, listed in (await self.committed_with_epochs(group)).items()}

    async def committed_with_epochs(self, group: str) -> dict[TopicPartition, ListedOffset]:
        """The same with the leader epochs that the group knows; -1: none."""
        _, answer = await self.ask_coordinator(
            CoordinatorType.GROUP,
            group,
            ApiKey.OFFSET_FETCH,
            {
                "group_id": group,  # until v7
                "topics": None,
                "groups": [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}],
                "require_stable": False,
            },
            lambda answer: answer.groups[0] if hasattr(answer, "groups") else answer,
        )
        offsets = {}
        for topic in answer.groups[0].topics if hasattr(answer, "groups") else answer.topics:
            for each in topic.partitions:
                error = error_of(each.error_code)
                if error is not None:
                    raise KafkaError(error.code, f"{topic.name}-{each.partition_index}")
                if each.committed_offset != NO_OFFSET:
                    epoch = int(getattr(each, "committed_leader_epoch", -1))
                    at = TopicPartition(topic.name, each.partition_index)
                    offsets[at] = ListedOffset(int(each.committed_offset), epoch)
        return dict(sorted(offsets.items()))

    async def partitions_of(self, group: str) -> list[TopicPartition]:
        """Those that the group has offsets of, sorted."""
        return list(await self.committed(group))

    async def list_offsets(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int, *, is_read_committed: bool = False
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        """The offset of each partition at a time, or ``EARLIEST`` or ``LATEST``; what cannot be known is an
        error: the topic is gone, or has no leader. ``is_read_committed``: open transactions end the log."""
        wanted = list(partitions)
        found: dict[TopicPartition, ListedOffset | KafkaError] = {}
        known = await self.partitions(sorted({each.topic for each in wanted}))
        by_leader: dict[int, list[TopicPartition]] = {}
        for each in wanted:
            if each not in known:
                found[each] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
            elif known[each].leader < 0:
                found[each] = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "it has no leader")
            else:
                by_leader.setdefault(known[each].leader, []).append(each)
        asked = (
            self._list_offsets(leader, led, timestamp_ms, int(is_read_committed))
            for leader, led in sorted(by_leader.items())
        )
        for answer in await asyncio.gather(*asked):
            found |= answer
        return {each: found[each] for each in wanted}

    async def _list_offsets(
        self, leader: int, partitions: Sequence[TopicPartition], timestamp_ms: int, isolation_level: int
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        topics: dict[str, list[dict[str, int]]] = {}
        for each in partitions:
            topics.setdefault(each.topic, []).append(
                {
                    "partition_index": each.partition,
                    "current_leader_epoch": -1,
                    "timestamp": timestamp_ms,
                }
            )
        body = {
            "replica_id": -1,
            "isolation_level": isolation_level,
            "topics": [{"name": name, "partitions": each} for name, each in topics.items()],
            "timeout": self.timeout_ms,
        }
        try:
            answer = await self.ask_broker(leader, ApiKey.LIST_OFFSETS, body)
        except BrokerUnavailable as error:
            return dict.fromkeys(partitions, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, str(error)))
        found: dict[TopicPartition, ListedOffset | KafkaError] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                listed = ListedOffset(int(each.offset), int(getattr(each, "leader_epoch", -1)))
                partition = TopicPartition(topic.name, each.partition_index)
                found[partition] = error_of(each.error_code) or listed
        return found

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError]:
        """Set the offsets of a group, which works while it has no members. Returns what was refused."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for each, offset in offsets.items():
            topics.setdefault(each.topic, []).append(
                {
                    "partition_index": each.partition,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                }
            )
        body = {
            "group_id": group,
            "generation_id_or_member_epoch": _NO_GENERATION,
            "member_id": "",
            "group_instance_id": None,
            "retention_time": -1,  # until v4: the broker's
            "topics": [{"name": name, "partitions": each} for name, each in topics.items()],
        }
        _, answer = await self.ask_coordinator(
            CoordinatorType.GROUP, group, ApiKey.OFFSET_COMMIT, body, _moved
        )
        refused = {}
        for topic in answer.topics:
            for each in topic.partitions:
                error = error_of(each.error_code)
                if error is not None:
                    refused[TopicPartition(topic.name, each.partition_index)] = error
        return refused

    async def delete(self, group: str) -> None:
        """DeleteGroups: the group and its offsets."""
        await self.ask_coordinator(
            CoordinatorType.GROUP,
            group,
            ApiKey.DELETE_GROUPS,
            {"groups_names": [group]},
            lambda answer: answer.results[0],
        )


def _moved(answer: Any) -> Any:
    """What carries the error of a commit that another coordinator would take; a partition's own is left."""
    first = answer.topics[0].partitions[0]
    return first if first.error_code in COORDINATOR_MOVES else None


def _member(member: Any, assignment: dict[str, list[int]]) -> GroupMember:
    instance_id = getattr(member, "group_instance_id", None) or getattr(member, "instance_id", None)
    return GroupMember(member.member_id, instance_id, member.client_id, member.client_host, assignment)


def _assigned(member: Any) -> dict[str, list[int]]:
    return {each.topic_name: sorted(map(int, each.partitions)) for each in member.assignment.topic_partitions}


# Where offsets are to go


class Target(msgspec.Struct, frozen=True):
    """What was asked for; ``value`` is a timestamp in ms, a number of records, or an offset."""

    kind: Kind
    value: int = 0
    offsets: dict[tuple[str, TopicPartition], int] = {}
    """Of a file: by group and partition."""

    def of(self, group: str, partition: TopicPartition) -> Target:
        """For one of them."""
        if self.kind != "file":
            return self
        return Target("offset", self.offsets[group, partition])


class Reset(msgspec.Struct, frozen=True):
    """One partition's change. ``current`` is None when nothing is committed."""

    group: str
    topic: str
    partition: int
    current: int | None
    new: int
    note: str = ""
    """Why it is not what was asked for."""


class LogRange(msgspec.Struct, frozen=True):
    """The offsets of a partition's first record and of the next one that is written."""

    start: int
    end: int


def new_offset(
    target: Target, log: LogRange, *, committed: int | None, at_time: int | None
) -> tuple[int, str]:
    """The offset to commit, and why it is not what was asked for. ``at_time``: of the first record at or
    after the target's time; None when there is none.

    Raises:
        CommandError: nothing is committed that could be shifted.
    """
    match target.kind:
        case "earliest":
            wanted = log.start
        case "latest":
            wanted = log.end
        case "current":
            wanted = log.end if committed is None else committed
        case "time":
            wanted = log.end if at_time is None else at_time
        case "offset":
            wanted = target.value
        case "file":
            raise AssertionError("a file has an offset for each partition")
        case "shift":
            if committed is None:
                raise CommandError("nothing is committed that could be shifted")
            wanted = committed + target.value
        case _:
            assert_never(target.kind)
    if wanted < log.start:
        return log.start, f"{wanted} is before the log's start"
    if wanted > log.end:
        return log.end, f"{wanted} is behind the log's end"
    return wanted, ""


async def plan_resets(
    admin: GroupAdmin, group: str, partitions: Sequence[TopicPartition], target: Target
) -> list[Reset]:
    """The changes for ``partitions``.

    Raises:
        CommandError: a partition's offsets cannot be known, or cannot be what was asked for.
    """
    committed = await admin.committed(group)
    starts = await _listed(admin, partitions, EARLIEST)
    ends = await _listed(admin, partitions, LATEST)
    times = await _listed(admin, partitions, target.value) if target.kind == "time" else {}
    resets = []
    for each in partitions:
        at_time = times.get(each, -1)
        log = LogRange(starts[each], ends[each])
        try:
            new, note = new_offset(
                target.of(group, each),
                log,
                committed=committed.get(each),
                at_time=None if at_time < 0 else at_time,
            )
        except CommandError as error:
            raise CommandError(f"{group}: {each}: {error}") from None
        resets.append(Reset(group, each.topic, each.partition, committed.get(each), new, note))
    return resets


async def _listed(
    admin: GroupAdmin, partitions: Sequence[TopicPartition], timestamp_ms: int
) -> dict[TopicPartition, int]:
    offsets = {}
    for partition, listed in (await admin.list_offsets(partitions, timestamp_ms)).items():
        if isinstance(listed, KafkaError):
            raise CommandError(f"{partition}: {explain(listed)}")
        assert isinstance(listed, ListedOffset)
        offsets[partition] = listed.offset
    return offsets


def parse_datetime(text: str) -> int:
    """``2026-02-03T04:05:06.789`` as ms since 1970; UTC unless it says otherwise. Raises ValueError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text}: must be a time like 2026-02-03T04:05:06.789 or …+01:00") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration(text: str) -> int:
    """``P1DT2H30M`` as ms. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError(f"{text}: must be a duration like P1D, PT2H30M or PT45S")
    parts = {name: float(number) for name, number in match.groupdict().items() if number}
    try:
        return round(timedelta(**parts).total_seconds() * 1000)
    except OverflowError:
        raise ValueError(f"{text}: is longer than a duration may be") from None


def parse_topic(text: str) -> tuple[str, list[int] | None]:
    """``orders`` (all partitions) or ``orders:0,1``. Raises ValueError."""
    topic, separator, partitions = text.partition(":")
    try:
        wanted = [int(each) for each in partitions.split(",")] if separator else None
    except ValueError:
        wanted = [-1]
    if not topic or (wanted is not None and min(wanted) < 0):
        raise ValueError(f"--topic {text}: must be TOPIC or TOPIC:0,1,2")
    return topic, wanted


# How far a group has come


class Position(msgspec.Struct, frozen=True):
    """One partition. None: nothing is committed, the log's end cannot be known, no member has it."""

    topic: str
    partition: int
    committed: int | None
    log_end: int | None
    lag: int | None
    """Records between the two."""
    member_id: str | None = None
    host: str | None = None
    client_id: str | None = None


async def positions(admin: GroupAdmin, group: GroupDescription, *, is_read_committed: bool) -> list[Position]:
    """Of all partitions for which something is committed or that a member is to read, sorted.

    ``is_read_committed``: for such consumers a log ends where an open transaction begins (its last stable
    offset). No broker knows how a group reads; Kafka's tool counts every record.
    """
    committed = await admin.committed(group.group)
    readers = {
        TopicPartition(topic, partition): member
        for member in group.members
        for topic, partitions in member.assignment.items()
        for partition in partitions
    }
    partitions = sorted(committed.keys() | readers.keys())
    ends = await admin.list_offsets(partitions, LATEST, is_read_committed=is_read_committed)
    found = []
    for each in partitions:
        end, offset, reader = ends[each], committed.get(each), readers.get(each)
        log_end = None if isinstance(end, KafkaError) else end.offset
        lag = None if log_end is None or offset is None else max(0, log_end - offset)
        who = (None, None, None) if reader is None else (reader.member_id, reader.host, reader.client_id)
        found.append(Position(each.topic, each.partition, offset, log_end, lag, *who))
    return found


# Tables


def listing_lines(groups: Sequence[GroupListing]) -> list[str]:
    """All groups; nothing when there are none."""
    rows = [[each.group, each.type, each.protocol_type, each.state] for each in groups]
    return table(["GROUP", "TYPE", "PROTOCOL", "STATE"], rows)


def position_lines(group: GroupDescription, positions: Sequence[Position]) -> list[str]:
    """A group's offsets and lag, and its members without partitions; a line above them when it has no members
    or is rebalancing (``ConsumerGroupCommand.printOffsets``)."""
    note = [] if group.members else [f"Group {group.group} has no members."]
    if group.is_rebalancing:
        note = [f"Group {group.group} is rebalancing ({group.state})."]
    rows = [
        [
            group.group,
            each.topic,
            *map(text_of, (each.partition, each.committed, each.log_end, each.lag)),
            *map(text_of, (each.member_id, each.host, each.client_id)),
        ]
        for each in positions
    ]
    rows += [
        [group.group, *[NOTHING] * 5, each.member_id, each.host, each.client_id]
        for each in group.members
        if not any(each.assignment.values())
    ]
    heads = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
    return note + table(heads.split(), rows)


def member_lines(group: GroupDescription, *, verbose: bool) -> list[str]:
    """The members of a group; with ``verbose`` also what each is to read."""
    heads = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    rows = []
    for each in group.members:
        count = sum(map(len, each.assignment.values()))
        row = [group.group, each.member_id, text_of(each.instance_id), each.host, each.client_id, str(count)]
        if verbose:
            row.append(
                " ".join(
                    f"{topic}({','.join(map(str, partitions))})"
                    for topic, partitions in sorted(each.assignment.items())
                )
                or NOTHING
            )
        rows.append(row)
    if not rows:
        return [f"Group {group.group} has no members."]
    return table([*heads, "ASSIGNMENT"] if verbose else heads, rows)


def group_lines(group: GroupDescription) -> list[str]:
    """A group's state and its coordinator."""
    coordinator = group.coordinator
    where = f"{format_address(coordinator.host, coordinator.port)} ({coordinator.node_id})"
    row = [group.group, group.type, where, text_of(group.assignor), group.state, str(len(group.members))]
    return table(["GROUP", "TYPE", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"], [row])


def reset_lines(resets: Sequence[Reset]) -> list[str]:
    """What a reset changes, or has changed."""
    rows = [
        [each.group, each.topic, *map(text_of, (each.partition, each.current, each.new)), each.note]
        for each in resets
    ]
    return table(["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET", ""], rows)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell; nothing without rows."""
    if not rows:
        return []
    lines = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def text_of(value: object) -> str:
    """In a table."""
    return NOTHING if value is None or value == "" else str(value)


# The command


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka groups``."""
    options = ProfileParser(
        prog=PROG,
        description="Consumer groups: their members, offsets and lag.",
        allow_abbrev=False,
    )
    options.set_defaults(prog=PROG)
    actions = options.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="all groups with type and state", allow_abbrev=False)
    add_list(listing)
    listing.add_argument("--type", default="", metavar="TYPES", help="only these: consumer,classic,share")
    describe = actions.add_parser("describe", help="offsets and lag, or members", allow_abbrev=False)
    add_describe(describe)
    describe.add_argument(
        "--isolation-level",
        choices=ISOLATION_LEVELS,
        default=ISOLATION_LEVELS[0],
        help="how the group reads: the lag of read_committed ends where an open transaction begins",
    )
    describe.add_argument("--verbose", action="store_true", help="with --members: what each is to read")
    add_reset(actions.add_parser("reset-offsets", help="move committed offsets", allow_abbrev=False))
    add_groups(actions.add_parser("delete", help="delete groups and their offsets", allow_abbrev=False))
    for each in actions.choices.values():
        add_connection_options(each)
    return options


def add_list(options: argparse.ArgumentParser) -> None:
    """Which groups are listed, and how."""
    options.add_argument("--state", default="", metavar="STATES", help="only these, like Stable,Empty")
    options.add_argument("--json", action="store_true", help="print JSON")


def add_describe(options: argparse.ArgumentParser) -> None:
    """Of which groups what is described, and how."""
    add_groups(options)
    what = options.add_mutually_exclusive_group()
    what.add_argument("--offsets", action="store_true", help="offsets and lag by partition (the default)")
    what.add_argument("--members", action="store_true", help="the members of the group")
    what.add_argument("--state", action="store_true", help="state and coordinator")
    options.add_argument("--json", action="store_true", help="print JSON")


def add_groups(options: argparse.ArgumentParser) -> None:
    """Which groups; one of the options is needed."""
    which = options.add_mutually_exclusive_group(required=True)
    which.add_argument("--group", action="append", metavar="GROUP", help="this group; may be repeated")
    which.add_argument("--all-groups", action="store_true", help="all groups")


def add_reset(options: argparse.ArgumentParser, *, of: str = "") -> None:
    """What to reset, and to where. ``of``: what the options for topics have in their names: ``input-``."""
    add_groups(options)
    where = options.add_mutually_exclusive_group()
    options.set_defaults(topic_options=f"--{of}topic or --all-{of}topics")
    where.add_argument(
        f"--{of}topic", dest="topic", action="append", metavar="TOPIC[:0,1]", help="may be repeated"
    )
    where.add_argument(
        f"--all-{of}topics",
        dest="all_topics",
        action="store_true",
        help="all for which something is committed",
    )
    to = options.add_mutually_exclusive_group(required=True)
    to.add_argument("--to-earliest", action="store_true", help="to the first record there is")
    to.add_argument("--to-latest", action="store_true", help="to the end")
    to.add_argument("--to-current", action="store_true", help="the current offset, but within the log")
    to.add_argument("--to-datetime", metavar="TIME", help="to the first record since 2026-02-03T04:05:06.789")
    to.add_argument("--by-duration", metavar="DURATION", help="to the first record of the last P1DT2H30M")
    to.add_argument("--shift-by", type=int, metavar="N", help="N records on; back when negative")
    to.add_argument("--to-offset", type=int, metavar="OFFSET", help="to this offset")
    to.add_argument(
        "--from-file",
        metavar="CSV",
        help="to the offsets of its lines: TOPIC,PARTITION,OFFSET, of several groups GROUP before them",
    )
    how = options.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="only show what would change (the default)")
    how.add_argument("--execute", action="store_true", help="do it")
    shown = options.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print JSON")
    shown.add_argument("--export", action="store_true", help="print CSV for --from-file")


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


def take_reset(arguments: argparse.Namespace, *, now_ms: int) -> None:
    """Complete what ``add_reset`` took. Raises ValueError."""
    names_topics = bool(arguments.topic) or arguments.all_topics
    if names_topics == (arguments.from_file is not None):
        raise ValueError(f"{arguments.topic_options}, or --from-file, which names partitions itself")
    arguments.topics = [parse_topic(each) for each in arguments.topic or ()]
    arguments.target = target_of(arguments, now_ms=now_ms)


def read_offsets(path: str, groups: Sequence[str]) -> dict[tuple[str, TopicPartition], int]:
    """The lines of a file of ``--export``, here or in Kafka's tools: ``TOPIC,PARTITION,OFFSET`` of the only
    one of ``groups``, or ``GROUP,TOPIC,PARTITION,OFFSET``. Raises ValueError, which names the line."""
    offsets = {}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            for number, row in enumerate(csv.reader(file), start=1):
                if not row:
                    continue
                *named, topic, partition, offset = row if len(row) in (3, 4) else ["", "", "", "", ""]
                if len(named) != 1 and not (len(groups) == 1 and not named):
                    wanted = "TOPIC,PARTITION,OFFSET" if len(groups) == 1 else "GROUP,TOPIC,PARTITION,OFFSET"
                    raise ValueError(f"{path}, line {number}: must be {wanted}")
                try:
                    at = TopicPartition(topic, int(partition))
                    offsets[named[0] if named else groups[0], at] = int(offset)
                except ValueError:
                    raise ValueError(f"{path}, line {number}: partition and offset must be numbers") from None
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    return offsets


def csv_lines(resets: Sequence[Reset], *, with_group: bool) -> list[str]:
    """What ``read_offsets`` reads (``CsvUtils``)."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for each in resets:
        writer.writerow([*([each.group] if with_group else []), each.topic, each.partition, each.new])
    return text.getvalue().splitlines()


def target_of(arguments: argparse.Namespace, *, now_ms: int) -> Target:
    """Where offsets are to go. Raises ValueError."""
    if arguments.to_earliest:
        return Target("earliest")
    if arguments.to_latest:
        return Target("latest")
    if arguments.to_datetime is not None:
        return Target("time", parse_datetime(arguments.to_datetime))
    if arguments.by_duration is not None:
        return Target("time", now_ms - parse_duration(arguments.by_duration))
    if arguments.shift_by is not None:
        return Target("shift", arguments.shift_by)
    if arguments.from_file is not None:
        return Target("file", offsets=read_offsets(arguments.from_file, arguments.group or ()))
    if arguments.to_offset is not None:
        return Target("offset", arguments.to_offset)
    return Target("current")


async def _run(arguments: argparse.Namespace) -> int:
    async with GroupAdmin.of(arguments, "minikafka-groups") as admin:
        match arguments.action:
            case "list":
                return await _list(admin, arguments)
            case "describe":
                return await _describe(admin, arguments)
            case "reset-offsets":
                return await reset_offsets(admin, arguments)
            case _:
                return await delete_groups(admin, arguments)


async def chosen_groups(admin: GroupAdmin, arguments: argparse.Namespace) -> list[str]:
    """Those that were named, or all that ``admin`` is about."""
    if arguments.all_groups:
        return [each.group for each in await admin.groups(types=admin.types)]
    return list(dict.fromkeys(arguments.group))


async def _list(admin: GroupAdmin, arguments: argparse.Namespace) -> int:
    states, types = (
        [each.strip() for each in text.split(",") if each.strip()]
        for text in (arguments.state, arguments.type)
    )
    groups = await admin.groups(states=states, types=types)
    show([as_json(groups)] if arguments.json else listing_lines(groups))
    return OK


async def _describe(admin: GroupAdmin, arguments: argparse.Namespace) -> int:
    status = OK
    described: list[tuple[GroupDescription, list[Position]]] = []
    for group in await chosen_groups(admin, arguments):
        try:
            found = await admin.describe(group)
            is_read_committed = arguments.isolation_level == "read_committed"
            described.append((found, await positions(admin, found, is_read_committed=is_read_committed)))
        except KafkaError as error:
            status = complain(arguments.prog, group, error)
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
            lines += position_lines(description, each)
        show(lines)
    return status


async def reset_offsets(admin: GroupAdmin, arguments: argparse.Namespace) -> int:
    """Plan the resets, show them, and do them with ``--execute``. Returns the exit status."""
    status = OK
    plan: list[Reset] = []
    for group in await chosen_groups(admin, arguments):
        try:
            await _check_inactive(admin, group)
            partitions = await partitions_of_topics(admin, group, _topics_to_reset(group, arguments))
            plan += await plan_resets(admin, group, partitions, arguments.target)
        except (KafkaError, CommandError) as error:
            status = complain(arguments.prog, group, error)
    refused: dict[tuple[str, str, int], KafkaError] = {}
    if arguments.execute:
        for group in dict.fromkeys(each.group for each in plan):
            refused |= await _commit(admin, group, [each for each in plan if each.group == group])
    done = [each for each in plan if (each.group, each.topic, each.partition) not in refused]
    if arguments.export:
        show(csv_lines(done, with_group=arguments.all_groups or len(arguments.group) > 1))
    else:
        show([as_json(done)] if arguments.json else reset_lines(done))
    for (group, topic, partition), why in refused.items():
        status = complain(arguments.prog, f"{group}: {TopicPartition(topic, partition)}", why)
    if plan and not arguments.execute:
        print(f"{arguments.prog}: nothing was changed: --execute does it", file=sys.stderr)
    return status


async def _check_inactive(admin: GroupAdmin, group: str) -> None:
    """Offsets of a group with members cannot be changed from outside. Raises CommandError."""
    try:
        description = await admin.describe(group)
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND and admin.makes_groups:
            return
        raise
    if not description.is_inactive:
        raise CommandError(
            f"offsets can only be reset while the group has no members; it is {description.state} with "
            f"{len(description.members)}"
        )


def _topics_to_reset(group: str, arguments: argparse.Namespace) -> Topics | None:
    if arguments.all_topics:
        return None
    if arguments.target.kind != "file":
        topics: Topics = arguments.topics
        return topics
    return [(at.topic, [at.partition]) for named, at in arguments.target.offsets if named == group]


async def partitions_of_topics(admin: GroupAdmin, group: str, topics: Topics | None) -> list[TopicPartition]:
    """Those of ``topics``; None: all that ``admin`` knows of the group. Raises CommandError: there is no such
    topic or partition."""
    if topics is None:
        return await admin.partitions_of(group)
    known = list(await admin.partitions(dict.fromkeys(topic for topic, _ in topics)))
    partitions = []
    for topic, wanted in topics:
        there = [each for each in known if each.topic == topic]
        if not there:
            raise CommandError(f"there is no topic {topic}")
        chosen = there if wanted is None else [TopicPartition(topic, number) for number in wanted]
        for each in chosen:
            if each not in there:
                raise CommandError(f"there is no partition {each}")
        partitions += chosen
    return list(dict.fromkeys(partitions))


async def _commit(
    admin: GroupAdmin, group: str, resets: Sequence[Reset]
) -> Mapping[tuple[str, str, int], KafkaError]:
    offsets = {TopicPartition(each.topic, each.partition): each.new for each in resets}
    try:
        refused = await admin.commit(group, offsets)
    except KafkaError as error:
        refused = dict.fromkeys(offsets, error)
    return {(group, each.topic, each.partition): error for each, error in refused.items()}


async def delete_groups(admin: GroupAdmin, arguments: argparse.Namespace) -> int:
    """Returns the exit status."""
    status = OK
    for group in await chosen_groups(admin, arguments):
        try:
            await admin.delete(group)
        except KafkaError as error:
            status = complain(arguments.prog, group, error)
        else:
            show([f"Deleted group {group}."])
    return status


def show(lines: Sequence[str]) -> None:
    """Print them, if there are any."""
    if lines:
        print("\n".join(lines))


def complain(prog: str, what: str, error: KafkaError | CommandError) -> int:
    """Say what went wrong. Returns the exit status that it makes."""
    text = explain(error) if isinstance(error, KafkaError) else str(error)
    print(f"{prog}: {what}: {text}", file=sys.stderr)
    return FAILURE


if __name__ == "__main__":
    sys.exit(main())
