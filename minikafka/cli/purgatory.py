"""``minikafka purgatory``: what waits on the brokers, under which keys, since when and until when.

minikafka's own; it asks the brokers over the Kafka port (``server.apis.documents``). ``--wheel``
draws the levels of the timing wheel that they all wait on.

Exit status: 0 when all was shown, 1 when a broker did not answer, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Any, Final

from minikafka.cli.groups import table
from minikafka.cli.logs import one_line
from minikafka.cli.shared.admin_client import AdminClient
from minikafka.cli.shared.commands import (
    FAILURE,
    OK,
    ProfileParser,
    add_connection_options,
    as_json,
    explain,
    parse_broker_list,
    run,
    take_connection,
)
from minikafka.errors import KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.units import format_duration

PROG = "minikafka purgatory"

LIMIT: Final = 20
LIMIT_MAX: Final = 1_000

_HEADS: Final = ("PURGATORY", "KEYS", "WAITED", "LEFT", "WAITS FOR")
_SHADES: Final = "·123456789#"
"""How full a bucket is: the number, and # from ten on."""


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka purgatory``."""
    options = ProfileParser(
        prog=PROG,
        description="What waits on the brokers: produces with acks=all, fetches, joins, sessions; under "
        "which keys, since when, until when, and what would end it.",
        allow_abbrev=False,
    )
    options.add_argument("--broker", metavar="IDS", help="only these brokers, like 1,2 (all)")
    options.add_argument("--name", metavar="NAME", help="only this purgatory, like Fetch or Heartbeat (all)")
    options.add_argument(
        "--key", metavar="TEXT", help="only what has this in a key or in what it waits for, like orders-0"
    )
    options.add_argument(
        "--limit", type=_limit, default=LIMIT, metavar="N", help=f"rows of each purgatory ({LIMIT})"
    )
    options.add_argument("--wheel", action="store_true", help="draw the timing wheel, too")
    options.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(options)
    return options


def _limit(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) <= LIMIT_MAX:
        raise argparse.ArgumentTypeError(f"{text}: must be from 1 to {LIMIT_MAX}")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run it. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    try:
        take_connection(arguments)
        arguments.brokers = None if arguments.broker is None else parse_broker_list(arguments.broker)
    except ValueError as error:
        options.error(str(error))
    return run(PROG, _run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    async with AdminClient.of(arguments, "minikafka-purgatory") as admin:
        wanted = arguments.brokers or list((await admin.nodes()).brokers)
        answers = await asyncio.gather(*(_of_broker(admin, each, arguments) for each in wanted))
    documents = [each for each in answers if each is not None]
    if arguments.json:
        print(as_json(documents))
    else:
        print("\n\n".join("\n".join(_lines(each, with_wheel=arguments.wheel)) for each in documents))
    return OK if len(documents) == len(answers) else FAILURE


async def _of_broker(admin: AdminClient, broker: int, arguments: argparse.Namespace) -> Any:
    """None: it does not answer, which is told."""
    filters = {"name": arguments.name, "key": arguments.key, "limit": arguments.limit}
    try:
        return await admin.diagnostics("purgatory", node_id=broker, **filters)
    except BrokerUnavailable as error:
        reason = str(error)
    except KafkaError as error:
        reason = explain(error)
    print(f"{PROG}: broker {broker} does not say what waits: {reason}", file=sys.stderr)
    return None


def _lines(document: Any, *, with_wheel: bool) -> list[str]:
    now_ms = document["at_ms"]
    counts = [f"{each['delayed']} in {each['name']}" for each in document["purgatories"] if each["delayed"]]
    lines = [f"Broker {document['broker']}: {', '.join(counts) or 'nothing waits'}"]
    rows = [
        [
            each["name"],
            _keys(waits),
            format_duration(now_ms - waits["since_ms"]),
            format_duration(waits["until_ms"] - now_ms),
            one_line(waits["waits_for"]) or "-",
        ]
        for each in document["purgatories"]
        for waits in each["waiting"]
    ]
    lines += table(_HEADS, rows)
    left_out = sum(each["waiting_left_out"] for each in document["purgatories"])
    if left_out:
        lines.append(f"{left_out} more wait, which are not shown (--limit, --key, --name).")
    return lines + (_wheel(document["wheel"]) if with_wheel else [])


def _keys(waits: Any) -> str:
    more = f" and {waits['keys_left_out']} more" if waits["keys_left_out"] else ""
    return one_line(", ".join(waits["keys"])) + more


def _wheel(levels: Any) -> list[str]:
    """A line for each level, a character for each bucket, from now on."""
    lines = ["Timing wheel, from now on; each character is a bucket:"]
    for level in levels:
        buckets = "".join(_SHADES[min(count, len(_SHADES) - 1)] for count in level["counts"])
        span_ms = level["tick_ms"] * len(level["counts"])
        lines.append(
            f"  {format_duration(level['tick_ms']):>12}  {buckets}  {sum(level['counts'])} "
            f"within {format_duration(span_ms)}"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
