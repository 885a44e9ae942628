"""``minikafka replay``: asks a cluster what ``minikafka record`` has kept, and compares the answers.

Exit status: 0 when all answers are as they were recorded, 1 when some differ or no broker answers, 2 for bad
usage.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from minikafka.cli.replay.compare import Comparison, Names
from minikafka.cli.replay.player import Differing, Player, Report, put_off
from minikafka.cli.replay.recording import Head, Request, read
from minikafka.cli.shared.admin_client import AdminClient
from minikafka.cli.shared.commands import (
    FAILURE,
    OK,
    CommandError,
    ProfileParser,
    add_connection_options,
    as_json,
    run,
    take_connection,
)

PROG: Final = "minikafka replay"
CLIENT_ID: Final = "minikafka-replay"
SHOWN_MAX: Final = 20
VALUE_LENGTH_MAX: Final = 200


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka replay``."""
    options = ProfileParser(
        prog=PROG,
        description="Ask a cluster what minikafka record has kept, in the same order, and show which answers "
        "differ. Where the recording begins without a topic or group, the cluster must not have it either.",
        allow_abbrev=False,
    )
    options.add_argument("file", metavar="FILE", type=Path, help="that minikafka record has made")
    add_connection_options(options, timeout_ms=30_000)
    options.add_argument(
        "--pace",
        choices=("fast", "recorded"),
        default="fast",
        help="send as soon as the answers before are there, or when the clients did (fast)",
    )
    options.add_argument(
        "--ignore", action="append", default=[], metavar="FIELD", help="do not compare this field"
    )
    options.add_argument("--texts", action="store_true", help="compare the wording of errors, too")
    options.add_argument("--all", action="store_true", help=f"show all kinds of differences, not {SHOWN_MAX}")
    options.add_argument("--json", action="store_true", help="print JSON")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Replay a recording. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    try:
        take_connection(arguments)
    except ValueError as error:
        options.error(str(error))
    return run(PROG, _run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    head, events = read(arguments.file)
    without = put_off(read(arguments.file)[1])
    async with AdminClient.of(arguments, CLIENT_ID) as admin:
        brokers = (await admin.nodes()).brokers
    pairs = stand_ins(head, sorted(brokers))
    names = Names(pairs)
    comparison = Comparison(names, ignored=arguments.ignore, texts=arguments.texts)
    addresses: dict[int | None, tuple[str, int]] = {
        old: (brokers[new].host, brokers[new].port) for old, new in pairs.items()
    }
    addresses[None] = addresses[head.brokers[0]]
    player = Player(
        addresses,
        comparison,
        names,
        security=arguments.security,
        timeout_ms=arguments.timeout_ms,
        keeps_pace=arguments.pace == "recorded",
    )
    report = await player.play(events, without=without)
    _print(report, arguments)
    return FAILURE if report.differing else OK


def stand_ins(head: Head, brokers: Sequence[int]) -> dict[int, int]:
    """Which broker is asked in place of which recorded one: one for all, or each in the order of ids.

    Raises:
        CommandError: there are other numbers of them.
    """
    if len(brokers) == 1:
        return dict.fromkeys(head.brokers, brokers[0])
    if len(brokers) != len(head.brokers) or not brokers:
        raise CommandError(
            f"the recording is of {len(head.brokers)} brokers and this cluster has {len(brokers)}: "
            "it must have as many, or one"
        )
    return dict(zip(head.brokers, brokers, strict=True))


def _print(report: Report, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(as_json(_as_values(report)))
        return
    found = _by_differences(report.differing)
    for (api, version, differences), requests in list(found.items())[: None if arguments.all else SHOWN_MAX]:
        first, *others = requests
        again = f", and {len(others)} more" if others else ""
        print(f"{api} {version}, request {first.number} of {first.client_id}{again}:")
        for line in differences:
            print(f"  {line}")
    if len(found) > SHOWN_MAX and not arguments.all:
        print(f"and {len(found) - SHOWN_MAX} more kinds of differences (--all)")
    if report.differing:
        by_api = Counter(request.api for request, _ in report.differing)
        print("Differing answers: " + ", ".join(f"{count} × {api}" for api, count in by_api.most_common()))
    print(
        f"{report.sent} requests sent, {report.compared} answers compared: "
        f"{len(report.differing) or 'none'} differ{'s' if len(report.differing) == 1 else ''}."
    )
    if report.put_off:
        print(f"{report.put_off} requests are left out: brokers were not ready, and clients asked again.")
    if report.later_or_sooner:
        print(
            f"{report.later_or_sooner} times a Fetch came sooner or later than it did then and got more or "
            "fewer records; what both have is the same."
        )


def _by_differences(
    differing: Sequence[Differing],
) -> dict[tuple[str, int, tuple[str, ...]], list[Request]]:
    """Requests whose answers differ in the same way, in the order of the first ones."""
    found: dict[tuple[str, int, tuple[str, ...]], list[Request]] = {}
    for request, differences in differing:
        lines = tuple(
            f"{each.path + ': ' if each.path else ''}"
            f"recorded {_short(each.recorded)}, now {_short(each.answered)}"
            for each in differences
        )
        found.setdefault((request.api, request.version, lines), []).append(request)
    return found


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_LENGTH_MAX else f"{text[:VALUE_LENGTH_MAX]}…"


def _as_values(report: Report) -> dict[str, Any]:
    return {
        "sent": report.sent,
        "compared": report.compared,
        "put_off": report.put_off,
        "later_or_sooner": report.later_or_sooner,
        "differing": [
            {
                "number": request.number,
                "api": request.api,
                "version": request.version,
                "client_id": request.client_id,
                "differences": [
                    {"path": each.path, "recorded": repr(each.recorded), "now": repr(each.answered)}
                    for each in differences
                ],
            }
            for request, differences in report.differing
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
