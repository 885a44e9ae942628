"""``minikafka reassign``: move replicas between brokers and between log directories.

Kafka: ``kafka-reassign-partitions.sh`` (``ReassignPartitionsCommand``, KIP-455, KIP-113, KIP-73), whose
options and files work here too: ``minikafka reassign --execute --reassignment-json-file plan.json`` is
``minikafka reassign execute --reassignment-json-file plan.json``.

Exit status: 0 when all went well (``verify``: when all is as planned), 1 when not, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from minikafka.cli.reassign.execute import execute, wait_until_done
from minikafka.cli.reassign.plan import generate, parse_plan
from minikafka.cli.reassign.verify import cancel, list_moves, remove_all_throttles, verify
from minikafka.cli.shared.admin_client import AdminClient
from minikafka.cli.shared.commands import (
    ProfileParser,
    add_connection_options,
    parse_broker_list,
    parse_bytes,
    read_text,
    run,
    take_connection,
    with_action_first,
)

ACTIONS = ("generate", "execute", "verify", "cancel", "list", "remove-throttles")
PLAN_FORMAT = (
    'A plan is JSON: {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [2, 3], '
    '"log_dirs": ["any", "/disk2"]}]}. The first replica is the preferred leader; log_dirs may be left out.'
)
_T = TypeVar("_T")


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


if __name__ == "__main__":
    sys.exit(main())
