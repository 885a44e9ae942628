"""``minikafka reassign``: move replicas between brokers and between log directories; and ``minikafka
elect-leaders``: let partitions elect their preferred leader, or any leader at all.

Kafka: ``kafka-reassign-partitions.sh`` (``ReassignPartitionsCommand``, KIP-455, KIP-113, KIP-73), whose
options and files work here too: ``minikafka reassign --execute --reassignment-json-file plan.json`` is
``minikafka reassign execute --reassignment-json-file plan.json``.

``execute`` checks a plan as a whole, starts it, watches it, and tidies up after it. Kafka:
``executeAssignment``, ``executeMoves``. Different here: everything that can be wrong is looked for before
anything is changed; the command runs until the replicas are where they are to be (``--no-wait``: it does
not), and then removes the throttle itself, where Kafka's needs a later ``--verify``.

What has to be copied, and how long that takes under a throttle, is said before it begins; Kafka's operators
reckon by hand. The throttle (KIP-73) limits what each broker sends and what each broker receives, so the side
with fewer brokers is the narrow one::

    duration = bytes / (min(number of leaders, number of followers) * rate)

This supposes that each broker of that side has the same share. With one big partition among small ones the
big one takes longer; what producers write meanwhile is not in it either.

``elect-leaders``: Kafka's ``kafka-leader-election.sh`` (``LeaderElectionCommand``, KIP-460), whose options
work here. Different here: ``--topic`` without ``--partition`` means all partitions of the topic.

Exit status: 0 when all went well (``verify``: when all is as planned; ``elect-leaders``: when every partition
has the leader that was asked for), 1 when not, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from minikafka.cli.reassign.plan import (
    Plan,
    format_plan,
    generate,
    parse_election_partitions,
    parse_plan,
    problems_of,
    problems_with_cluster,
    problems_with_log_dirs,
    refuse,
)
from minikafka.cli.reassign.verify import (
    ProgressView,
    Seen,
    bytes_left,
    cancel,
    find_throttles,
    ids,
    list_moves,
    log_dirs_of,
    look,
    moves_of,
    remove_all_throttles,
    report,
    set_log_dirs_throttle,
    set_throttle,
    settle_throttles,
    topics_of,
    verify,
)
from minikafka.cli.shared.admin_client import RETRY_BACKOFF_S, AdminClient, LogDir, PartitionNow
from minikafka.cli.shared.commands import (
    FAILURE,
    OK,
    CommandError,
    ProfileParser,
    add_connection_options,
    explain,
    parse_broker_list,
    parse_bytes,
    read_text,
    run,
    take_connection,
    typed_connection,
    with_action_first,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.types import BrokerId, ElectionType, ReplicaAssignment, TopicPartition
from minikafka.units import format_bytes, format_duration, format_rate

ACTIONS = ("generate", "execute", "verify", "cancel", "list", "remove-throttles")
PLAN_FORMAT = (
    'A plan is JSON: {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [2, 3], '
    '"log_dirs": ["any", "/disk2"]}]}. The first replica is the preferred leader; log_dirs may be left out.'
)
_T = TypeVar("_T")

POLL_S = 1.0
NAMED_MAX = 5
"""So many partitions are named in a sentence; of others only the number."""

UnderWay = dict[TopicPartition, ReplicaAssignment]
Partitions = dict[TopicPartition, PartitionNow]


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka reassign``."""
    options = ProfileParser(
        prog="minikafka reassign",
        description="Move replicas between brokers and log directories while clients keep working.",
        epilog="Each ACTION has --help; as an option it works too: --generate, --execute, …",
        allow_abbrev=False,
    )
    actions = options.add_subparsers(dest="action", required=True, metavar="ACTION")
    _generate_options(_add(actions, "generate", "propose a plan: even, over all racks, and little to copy"))
    _execute_options(_add(actions, "execute", "execute a plan, and wait until it is done", PLAN_FORMAT))
    check = _add(actions, "verify", "say how far a plan is; remove its throttle when all is done")
    _plan_option(check, required=True)
    check.add_argument("--wait", action="store_true", help="show what is left until nothing moves any more")
    _preserve_option(check)
    back = _add(actions, "cancel", "cancel a plan: replicas are kept where they were")
    which = back.add_mutually_exclusive_group(required=True)
    _plan_option(which, required=False)
    which.add_argument("--all", action="store_true", help="cancel everything that is under way")
    _preserve_option(back)
    _add(actions, "list", "show what is being moved now, and stale throttles")
    _add(actions, "remove-throttles", "remove every replication throttle; what moves continues at full speed")
    return options


def _add(
    actions: argparse._SubParsersAction[ProfileParser], name: str, text: str, epilog: str = ""
) -> argparse.ArgumentParser:
    options = actions.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".", epilog=epilog, allow_abbrev=False
    )
    add_connection_options(options)
    return options


def _generate_options(options: argparse.ArgumentParser) -> None:
    which = options.add_mutually_exclusive_group()
    which.add_argument("--topics", metavar="A,B", help="the topics to plan for (all)")
    which.add_argument(
        "--topics-to-move-json-file",
        metavar="FILE",
        help='the same, from a file: {"version": 1, "topics": [{"topic": "orders"}]}',
    )
    options.add_argument(
        "--broker-list",
        type=_checked(parse_broker_list),
        metavar="1,2,3",
        help="the brokers that are to have all replicas (all that are registered)",
    )
    options.add_argument(
        "--replication-factor", type=int, metavar="N", help="give each partition N replicas (as many as now)"
    )
    options.add_argument("--disable-rack-aware", action="store_true", help="leave racks aside")
    options.add_argument("--output", metavar="FILE", help="write the proposed plan into FILE, too")


def _execute_options(options: argparse.ArgumentParser) -> None:
    _plan_option(options, required=True)
    options.add_argument(
        "--throttle",
        type=_checked(parse_bytes),
        metavar="BYTES",
        help="bytes a second that each broker may send, and may receive, for this: 50000000, 50MB",
    )
    options.add_argument(
        "--replica-alter-log-dirs-throttle",
        type=_checked(parse_bytes),
        metavar="BYTES",
        help="bytes a second that each broker may copy between its log directories",
    )
    options.add_argument(
        "--additional",
        action="store_true",
        help="besides what is under way; with the same plan, only the throttle changes",
    )
    options.add_argument("--no-wait", action="store_true", help="start it, and exit")
    _preserve_option(options)


def _plan_option(options: argparse._ActionsContainer, *, required: bool) -> None:
    options.add_argument(
        "--reassignment-json-file", required=required, metavar="FILE", help="the plan; - is standard input"
    )


def _preserve_option(options: argparse.ArgumentParser) -> None:
    options.add_argument("--preserve-throttles", action="store_true", help="leave throttles as they are")


def _checked(parse: Callable[[str], _T]) -> Callable[[str], _T]:
    """``parse`` for argparse, which shows the message of its own error class only."""

    def checked(text: str) -> _T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def main(argv: Sequence[str] | None = None) -> int:
    """Run one action. Returns the exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    options = parser()
    arguments = options.parse_args(with_action_first(given, ACTIONS))
    try:
        take_connection(arguments)
    except ValueError as error:
        options.error(str(error))
    return run("minikafka reassign", _run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    async with AdminClient.of(arguments, "minikafka-reassign") as admin:
        match arguments.action:
            case "generate":
                return await generate(admin, arguments)
            case "execute":
                return await execute(admin, arguments)
            case "list":
                return await list_moves(admin)
            case "remove-throttles":
                return await remove_all_throttles(admin)
            case "cancel" if arguments.all:
                return await cancel(admin, None, preserve_throttles=arguments.preserve_throttles)
        plan = parse_plan(read_text(arguments.reassignment_json_file))
        if arguments.action == "cancel":
            return await cancel(admin, plan, preserve_throttles=arguments.preserve_throttles)
        if arguments.wait:
            await wait_until_done(admin, plan, arguments)
        return await verify(admin, plan, preserve_throttles=arguments.preserve_throttles)


# How long copying takes
class CopyEstimate(NamedTuple):
    """So many bytes, from so many brokers to so many brokers."""

    size_bytes: int
    leaders: int
    followers: int

    def duration_ms(self, bytes_per_s: int) -> float | None:
        """At a throttle of ``bytes_per_s``; None: with that rate it never ends."""
        width = min(self.leaders, self.followers) * bytes_per_s
        if self.size_bytes == 0:
            return 0.0
        return self.size_bytes * 1000 / width if width else None

    def describe(self, bytes_per_s: int | None) -> str:
        """A sentence; None: no throttle, so the time is unknown."""
        text = (
            f"To copy: {format_bytes(self.size_bytes)}, "
            f"from {_count(self.leaders, 'leader')} to {_count(self.followers, 'follower')}"
        )
        if bytes_per_s is None:
            return f"{text}."
        duration_ms = self.duration_ms(bytes_per_s)
        how_long = "it never ends" if duration_ms is None else f"about {format_duration(duration_ms)}"
        return f"{text}; {how_long} at {format_rate(bytes_per_s)}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


async def estimate(
    admin: AdminClient, plan: Plan, under_way: Mapping[TopicPartition, ReplicaAssignment]
) -> CopyEstimate:
    """What will be copied once ``plan`` runs besides what is ``under_way``.

    Partitions that are gone, those without a leader and those whose leader does not answer are left out.

    Raises:
        KafkaError, BrokerUnavailable: the cluster as a whole does not answer.
    """
    topics = {each.partition.topic for each in plan} | {each.topic for each in under_way}
    partitions = await admin.partitions(sorted(topics))
    moves = dict(under_way)
    for each in plan:
        now = partitions.get(each.partition)
        if now is not None:  # or its topic was deleted a moment ago
            before = moves.get(each.partition)
            origin = _brokers(now.replicas) if before is None else before.origin
            moves[each.partition] = ReplicaAssignment(origin).reassign_to(_brokers(each.replicas))
    copied = {each: move for each, move in moves.items() if move.adding and each in partitions}
    brokers = {
        node_id for each, move in copied.items() for node_id in (partitions[each].leader, *move.adding)
    }
    live = (await admin.nodes()).brokers
    log_dirs = await log_dirs_of(admin, sorted(brokers & set(live)), sorted(copied))
    left = {each: size for each, size in bytes_left(copied, partitions, log_dirs).items() if size}
    return CopyEstimate(
        sum(left.values()),
        leaders=len({partitions[each].leader for each in left}),
        followers=len({node_id for each in left for node_id in copied[each].adding}),
    )


def _brokers(node_ids: tuple[int, ...]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, node_ids))


# Executing
async def execute(admin: AdminClient, arguments: argparse.Namespace) -> int:
    """Carry out the plan that ``arguments`` name. Returns the exit status.

    Raises:
        CommandError: the plan cannot be carried out; nothing was changed.
    """
    plan = parse_plan(read_text(arguments.reassignment_json_file))
    under_way = await admin.reassignments()
    if under_way and not arguments.additional:
        raise CommandError(
            f"{named(under_way)} being reassigned already; --additional starts this plan besides that "
            "(or changes the throttle of what is under way)"
        )
    partitions, log_dirs = await _check(admin, plan)
    origins = {
        each.partition: under_way[each.partition].origin
        if each.partition in under_way
        else partitions[each.partition].replicas
        for each in plan
    }
    print("Current partition replica assignment\n")
    print(format_plan(origins, _paths_now(plan, log_dirs)))
    print("\nSave this to use as the --reassignment-json-file option during rollback", flush=True)
    if not under_way:
        await _name_stale_throttles(admin)
    await _say_what_is_copied(admin, arguments, plan, under_way)
    await _throttle(admin, arguments, plan, origins, under_way)
    await _start(admin, plan)
    if arguments.no_wait:
        print(f"Watch it, and remove the throttle when it is done: {_verify_command(arguments)} --wait")
        return OK
    started = asyncio.get_running_loop().time()
    seen = await wait_until_done(admin, plan, arguments)
    took_ms = (asyncio.get_running_loop().time() - started) * 1000
    status = report(plan, seen, done_too=False)
    if status == OK:
        print(f"Reassigned {len(plan)} partition{'s' * (len(plan) > 1)} in {format_duration(took_ms)}.")
        _hint_at_leaders(plan, seen)
    await settle_throttles(admin, topics_of(plan), preserve=arguments.preserve_throttles)
    return status


def _hint_at_leaders(plan: Plan, seen: Seen) -> None:
    """Moving replicas does not move a leader that is kept."""
    count = sum(seen.partitions[each.partition].leader != each.replicas[0] for each in plan)
    if count:
        print(
            f"{count} of these {'is' if count == 1 else 'are'} not led by the preferred leader yet; "
            "`minikafka elect-leaders --election-type preferred --all-topic-partitions` changes that."
        )


def named(partitions: UnderWay) -> str:
    """``a-0, a-1 and 7 more partitions are``: the subject of a sentence."""
    names = [str(each) for each in partitions][:NAMED_MAX]
    more = len(partitions) - len(names)
    return (
        ", ".join(names) + (f" and {more} more" if more else "") + (" is" if len(partitions) == 1 else " are")
    )


async def _check(admin: AdminClient, plan: Plan) -> tuple[Partitions, dict[int, list[LogDir]]]:
    """Look for all that can be wrong. Returns what it was checked against."""
    problems = problems_of(plan)
    if not plan:
        refuse(problems)
    partitions = await admin.partitions(sorted({each.partition.topic for each in plan}))
    live = (await admin.nodes()).brokers
    problems += problems_with_cluster(plan, partitions, live)
    log_dirs = {
        node_id: await admin.log_dirs(node_id, [each.partition for each in plan])
        for node_id in sorted({broker for each in plan for broker, _ in each.moves()})
        if node_id in live
    }
    refuse(problems + problems_with_log_dirs(plan, log_dirs))
    return partitions, log_dirs


def _paths_now(plan: Plan, log_dirs: dict[int, list[LogDir]]) -> dict[tuple[TopicPartition, int], str]:
    """Where the replicas are now that the plan puts into a certain directory."""
    return {
        (each.partition, broker): log_dir.path
        for each in plan
        for broker, _ in each.moves()
        for log_dir in log_dirs.get(broker, ())
        if each.partition in log_dir.replicas and not log_dir.replicas[each.partition].is_future
    }


async def _name_stale_throttles(admin: AdminClient) -> None:
    for throttle in await find_throttles(admin):
        print(
            f"minikafka reassign: a throttle from before is still set, {throttle}; "
            "`minikafka reassign remove-throttles` removes it",
            file=sys.stderr,
        )


async def _say_what_is_copied(
    admin: AdminClient, arguments: argparse.Namespace, plan: Plan, under_way: UnderWay
) -> None:
    """Nothing to say when replicas only go away or change places."""
    copied = await estimate(admin, plan, under_way)
    if copied.size_bytes:
        print(copied.describe(arguments.throttle), flush=True)


async def _throttle(
    admin: AdminClient,
    arguments: argparse.Namespace,
    plan: Plan,
    origins: dict[TopicPartition, tuple[int, ...]],
    under_way: UnderWay,
) -> None:
    away: list[int] = []
    if arguments.throttle is not None:
        moves = moves_of({each.partition: each.replicas for each in plan}, origins, under_way)
        away = await set_throttle(admin, moves, bytes_per_s=arguments.throttle)
        print(f"The inter-broker throttle limit was set to {format_rate(arguments.throttle)}", flush=True)
    if arguments.replica_alter_log_dirs_throttle is not None:
        brokers = [broker for each in plan for broker, _ in each.moves()]
        rate = arguments.replica_alter_log_dirs_throttle
        away += await set_log_dirs_throttle(admin, brokers, bytes_per_s=rate)
        print(f"The replica-alter-dir throttle limit was set to {format_rate(rate)}", flush=True)
    if away:
        print(
            f"minikafka reassign: broker {ids(sorted(set(away)))} is not registered, "
            "and is not throttled when it comes back",
            file=sys.stderr,
        )


async def _start(admin: AdminClient, plan: Plan) -> None:
    """Raises CommandError: some of it was refused."""
    refused = await admin.reassign({each.partition: each.replicas for each in plan})
    if refused:
        lines = "".join(f"\n  {partition}: {explain(error)}" for partition, error in sorted(refused.items()))
        others = len(plan) - len(refused)
        raise CommandError(
            f"the cluster refused to reassign{lines}\n{others} of {len(plan)} partitions were started"
            + ("; `minikafka reassign cancel` cancels them" if others else "")
        )
    started = [each.partition for each in sorted(plan)]
    print(f"Successfully started partition reassignment{'s' * (len(started) > 1)} for {ids_of(started)}")
    await _start_dir_moves(
        admin, {(each.partition, broker): path for each in plan for broker, path in each.moves()}
    )


def ids_of(partitions: list[TopicPartition]) -> str:
    return ",".join(map(str, partitions))


async def _start_dir_moves(admin: AdminClient, moves: dict[tuple[TopicPartition, int], str]) -> None:
    """A replica that the broker does not have yet can be moved when it has come.

    Raises:
        CommandError: a move was refused, or did not begin in time.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + admin.timeout_ms / 1000
    waiting = dict(moves)
    while waiting:
        errors: dict[tuple[TopicPartition, int], KafkaError] = {}
        for node_id in sorted({broker for _, broker in waiting}):
            paths = {each: path for (each, broker), path in waiting.items() if broker == node_id}
            refused = await admin.move_between_dirs(node_id, paths)
            errors |= {(each, node_id): error for each, error in refused.items()}
        for partition, broker in [each for each in waiting if each not in errors]:
            path = waiting.pop((partition, broker))
            print(f"Successfully started moving {partition} on broker {broker} to {path}", flush=True)
        is_over = loop.time() >= deadline
        failed = [
            f"\n  {partition} on broker {broker}: {explain(error)}"
            for (partition, broker), error in errors.items()
            if is_over or error.code is not ErrorCode.REPLICA_NOT_AVAILABLE
        ]
        if failed:
            raise CommandError(f"could not move between log directories{''.join(failed)}")
        if waiting:
            await asyncio.sleep(RETRY_BACKOFF_S)


async def wait_until_done(admin: AdminClient, plan: Plan, arguments: argparse.Namespace) -> Seen:
    """Show what is left until nothing of ``plan`` moves any more. An interrupt ends only the watching."""
    mine = {each.partition for each in plan}
    view = ProgressView(mine)
    loop = asyncio.get_running_loop()
    try:
        while True:
            seen = await look(admin, plan, everywhere=False)
            if mine.isdisjoint(seen.under_way) and not any(
                move.is_under_way for move in seen.dir_moves.values()
            ):
                return seen
            view.show(seen, now_ms=round(loop.time() * 1000))
            await asyncio.sleep(POLL_S)
    except asyncio.CancelledError:
        view.end()
        print("\nInterrupted. The reassignment continues.", file=sys.stderr)
        print(f"  watch it:   {_verify_command(arguments)} --wait", file=sys.stderr)
        print(
            f"  verify it:  {_verify_command(arguments)}   (removes the throttle when all is done)",
            file=sys.stderr,
        )
        print(f"  cancel it:  {_command('cancel', arguments)}", file=sys.stderr)
        raise
    finally:
        view.end()


def _verify_command(arguments: argparse.Namespace) -> str:
    return _command("verify", arguments)


def _command(action: str, arguments: argparse.Namespace) -> str:
    name = arguments.reassignment_json_file
    plan = "PLAN.json" if name == "-" else name
    return f"minikafka reassign {action}{typed_connection(arguments)} --reassignment-json-file {plan}"


# Electing leaders


def elect_leaders_parser() -> argparse.ArgumentParser:
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


def elect_leaders(argv: Sequence[str] | None = None) -> int:
    """Run elections. Returns the exit status."""
    options = elect_leaders_parser()
    arguments = options.parse_args(argv)
    if arguments.partition is not None and arguments.topic is None:
        options.error("--partition needs --topic")
    try:
        take_connection(arguments)
    except ValueError as error:
        options.error(str(error))
    return run("minikafka elect-leaders", _elect(arguments))


async def _elect(arguments: argparse.Namespace) -> int:
    election_type = ElectionType[arguments.election_type.upper()]
    async with AdminClient.of(arguments, "minikafka-elect-leaders") as admin:
        results = await admin.elect_leaders(election_type, await _to_elect(admin, arguments))
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


async def _to_elect(admin: AdminClient, arguments: argparse.Namespace) -> list[TopicPartition] | None:
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
