"""``minikafka groups``: list and describe consumer groups, reset their offsets, delete them.

Kafka: ``kafka-consumer-groups.sh`` (``ConsumerGroupCommand``), whose options work here. Different: the
actions are words (``--list`` and its like work too), states and types are always shown, and a reset shows
where offsets are now.

Exit status: 0 when all was done, 1 when something was refused or nobody answers, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from minikafka.cli.groups.positions import Position, positions
from minikafka.cli.groups.requests import GroupAdmin, GroupDescription
from minikafka.cli.groups.reset import (
    Reset,
    Target,
    parse_datetime,
    parse_duration,
    parse_topic,
    plan_resets,
)
from minikafka.cli.groups.view import group_lines, listing_lines, member_lines, position_lines, reset_lines
from minikafka.cli.shared.commands import (
    FAILURE,
    OK,
    CommandError,
    add_connection_options,
    as_json,
    explain,
    parse_addresses,
    run,
    with_action_first,
)
from minikafka.cli.shared.profiles import ProfileParser
from minikafka.clock import Clock
from minikafka.errors import ErrorCode, KafkaError
from minikafka.system_clock import SystemClock
from minikafka.types import TopicPartition

PROG = "minikafka groups"
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
ACTIONS = ("list", "describe", "reset-offsets", "delete")


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka groups``."""
    options = ProfileParser(
        prog=PROG,
        description="Consumer groups: who is in them, and how far they have come.",
        allow_abbrev=False,
    )
    actions = options.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="all groups with type and state", allow_abbrev=False)
    listing.add_argument("--state", default="", metavar="STATES", help="only these, like Stable,Empty")
    listing.add_argument("--type", default="", metavar="TYPES", help="only these: consumer,classic")
    describe = actions.add_parser("describe", help="offsets and lag, or members", allow_abbrev=False)
    _add_groups(describe)
    what = describe.add_mutually_exclusive_group()
    what.add_argument("--offsets", action="store_true", help="offsets and lag by partition (the default)")
    what.add_argument("--members", action="store_true", help="who is in the group")
    what.add_argument("--state", action="store_true", help="state and coordinator")
    describe.add_argument(
        "--isolation-level",
        choices=ISOLATION_LEVELS,
        default=ISOLATION_LEVELS[0],
        help="how the group reads: the lag of read_committed ends where an open transaction begins",
    )
    describe.add_argument("--verbose", action="store_true", help="with --members: what each is to read")
    for each in (listing, describe):
        each.add_argument("--json", action="store_true", help="print JSON")
    _add_reset(actions.add_parser("reset-offsets", help="move committed offsets", allow_abbrev=False))
    _add_groups(actions.add_parser("delete", help="delete groups and their offsets", allow_abbrev=False))
    for each in actions.choices.values():
        add_connection_options(each)
    return options


def _add_groups(options: argparse.ArgumentParser) -> None:
    which = options.add_mutually_exclusive_group(required=True)
    which.add_argument("--group", action="append", metavar="GROUP", help="this group; may be repeated")
    which.add_argument("--all-groups", action="store_true", help="all groups")


def _add_reset(options: argparse.ArgumentParser) -> None:
    _add_groups(options)
    where = options.add_mutually_exclusive_group(required=True)
    where.add_argument("--topic", action="append", metavar="TOPIC[:0,1]", help="may be repeated")
    where.add_argument("--all-topics", action="store_true", help="all for which something is committed")
    to = options.add_mutually_exclusive_group(required=True)
    to.add_argument("--to-earliest", action="store_true", help="to the first record there is")
    to.add_argument("--to-latest", action="store_true", help="to the end")
    to.add_argument("--to-current", action="store_true", help="stay, but within the log")
    to.add_argument("--to-datetime", metavar="TIME", help="to the first record since 2026-02-03T04:05:06.789")
    to.add_argument("--by-duration", metavar="DURATION", help="to the first record of the last P1DT2H30M")
    to.add_argument("--shift-by", type=int, metavar="N", help="N records on; back when negative")
    to.add_argument("--to-offset", type=int, metavar="OFFSET", help="to this offset")
    how = options.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="only show what would change (the default)")
    how.add_argument("--execute", action="store_true", help="do it")
    options.add_argument("--json", action="store_true", help="print JSON")


def main(argv: Sequence[str] | None = None, *, clock: Clock | None = None) -> int:
    """Run an action. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(with_action_first(sys.argv[1:] if argv is None else argv, ACTIONS))
    try:
        arguments.addresses = parse_addresses(arguments.bootstrap_server)
        if arguments.action == "reset-offsets":
            arguments.topics = [parse_topic(each) for each in arguments.topic or ()]
            arguments.target = _target(arguments, now_ms=(clock or SystemClock()).now_ms())
    except ValueError as error:
        options.error(str(error))
    return run(PROG, _run(arguments))


def _target(arguments: argparse.Namespace, *, now_ms: int) -> Target:
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
    if arguments.to_offset is not None:
        return Target("offset", arguments.to_offset)
    return Target("current")


async def _run(arguments: argparse.Namespace) -> int:
    async with GroupAdmin(
        arguments.addresses, client_id="minikafka-groups", timeout_ms=arguments.timeout_ms
    ) as admin:
        match arguments.action:
            case "list":
                return await _list(admin, arguments)
            case "describe":
                return await _describe(admin, arguments)
            case "reset-offsets":
                return await _reset(admin, arguments)
            case _:
                return await _delete(admin, arguments)


async def _groups(admin: GroupAdmin, arguments: argparse.Namespace) -> list[str]:
    if arguments.all_groups:
        return [each.group for each in await admin.groups()]
    return list(dict.fromkeys(arguments.group))


async def _list(admin: GroupAdmin, arguments: argparse.Namespace) -> int:
    states, types = (
        [each.strip() for each in text.split(",") if each.strip()]
        for text in (arguments.state, arguments.type)
    )
    groups = await admin.groups(states=states, types=types)
    _print([as_json(groups)] if arguments.json else listing_lines(groups))
    return OK


async def _describe(admin: GroupAdmin, arguments: argparse.Namespace) -> int:
    status = OK
    described: list[tuple[GroupDescription, list[Position]]] = []
    for group in await _groups(admin, arguments):
        try:
            found = await admin.describe(group)
            is_read_committed = arguments.isolation_level == "read_committed"
            described.append((found, await positions(admin, found, is_read_committed=is_read_committed)))
        except KafkaError as error:
            status = _complain(group, error)
    if arguments.json:
        _print([as_json([{"group": group, "positions": each} for group, each in described])])
        return status
    for index, (description, each) in enumerate(described):
        lines = [""] if index else []
        if arguments.state:
            lines += group_lines(description)
        elif arguments.members:
            lines += member_lines(description, verbose=arguments.verbose)
        else:
            lines += position_lines(description, each)
        _print(lines)
    return status


async def _reset(admin: GroupAdmin, arguments: argparse.Namespace) -> int:
    status = OK
    plan: list[Reset] = []
    for group in await _groups(admin, arguments):
        try:
            await _check_inactive(admin, group)
            plan += await plan_resets(
                admin, group, await _partitions(admin, group, arguments), arguments.target
            )
        except (KafkaError, CommandError) as error:
            status = _complain(group, error)
    refused: dict[tuple[str, str, int], KafkaError] = {}
    if arguments.execute:
        for group in dict.fromkeys(each.group for each in plan):
            refused |= await _commit(admin, group, [each for each in plan if each.group == group])
    done = [each for each in plan if (each.group, each.topic, each.partition) not in refused]
    _print([as_json(done)] if arguments.json else reset_lines(done))
    for (group, topic, partition), why in refused.items():
        status = _complain(f"{group}: {TopicPartition(topic, partition)}", why)
    if plan and not arguments.execute:
        print(f"{PROG}: nothing was changed: --execute does it", file=sys.stderr)
    return status


async def _check_inactive(admin: GroupAdmin, group: str) -> None:
    """Offsets of a group with members cannot be changed from outside. Raises CommandError."""
    try:
        description = await admin.describe(group)
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:  # committing makes it
            return
        raise
    if not description.is_inactive:
        raise CommandError(
            f"offsets can only be reset while the group has no members; it is {description.state} with "
            f"{len(description.members)}"
        )


async def _partitions(admin: GroupAdmin, group: str, arguments: argparse.Namespace) -> list[TopicPartition]:
    """Which to reset. Raises CommandError: there is no such topic or partition."""
    if arguments.all_topics:
        return list(await admin.committed(group))
    known = list(await admin.partitions([topic for topic, _ in arguments.topics]))
    partitions = []
    for topic, wanted in arguments.topics:
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


async def _delete(admin: GroupAdmin, arguments: argparse.Namespace) -> int:
    status = OK
    for group in await _groups(admin, arguments):
        try:
            await admin.delete(group)
        except KafkaError as error:
            status = _complain(group, error)
        else:
            _print([f"Deleted group {group}."])
    return status


def _print(lines: Sequence[str]) -> None:
    if lines:
        print("\n".join(lines))


def _complain(what: str, error: KafkaError | CommandError) -> int:
    text = explain(error) if isinstance(error, KafkaError) else str(error)
    print(f"{PROG}: {what}: {text}", file=sys.stderr)
    return FAILURE


if __name__ == "__main__":
    sys.exit(main())
