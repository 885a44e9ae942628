"""Groups for people: tables in plain text, a group or partition a line, so that other tools can cut them."""

from __future__ import annotations

from collections.abc import Sequence

from minikafka.cli.groups.positions import Position
from minikafka.cli.groups.requests import GroupDescription, GroupListing
from minikafka.cli.groups.reset import Reset
from minikafka.network.addresses import format_address

NOTHING = "-"


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
            *map(_text, (each.partition, each.committed, each.log_end, each.lag)),
            *map(_text, (each.member_id, each.host, each.client_id)),
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
    """Who is in a group; with ``verbose`` also what each is to read."""
    heads = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    rows = []
    for each in group.members:
        count = sum(map(len, each.assignment.values()))
        row = [group.group, each.member_id, _text(each.instance_id), each.host, each.client_id, str(count)]
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
    row = [group.group, group.type, where, _text(group.assignor), group.state, str(len(group.members))]
    return table(["GROUP", "TYPE", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"], [row])


def reset_lines(resets: Sequence[Reset]) -> list[str]:
    """What a reset changes, or has changed."""
    rows = [
        [each.group, each.topic, *map(_text, (each.partition, each.current, each.new)), each.note]
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


def _text(value: object) -> str:
    return NOTHING if value is None or value == "" else str(value)
