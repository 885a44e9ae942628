"""``minikafka events``: what the brokers of a cluster have decided of late, and why, in one order.

minikafka's own. Each broker has a flight recorder (``server.runtime.event_recorder``); all that are alive are
asked, over the Kafka port, and their events are merged by time. The clocks of brokers differ a little, so
events of two brokers that are close together may be the wrong way round; those of one broker never are.

The recorder of a broker that is down is read from its files: ``--log-dir``.

Exit status: 0 when all was shown, 1 when a broker did not answer or a file cannot be read, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from minikafka.cli.groups import parse_datetime
from minikafka.cli.logs import one_line
from minikafka.cli.shared.admin_client import AdminClient
from minikafka.cli.shared.commands import (
    FAILURE,
    OK,
    CommandError,
    ProfileParser,
    add_connection_options,
    explain,
    parse_broker_list,
    run,
    take_connection,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.files import OsFiles
from minikafka.flight_recorder import (
    CURRENT_NAME,
    KINDS,
    OLD_NAME,
    EventFilter,
    ShownEvent,
    UnreadableEventFile,
    decode_event,
    read_event_file,
    show,
)
from minikafka.network.broker_client import BrokerUnavailable

PROG = "minikafka events"

FOLLOW_PAUSE_S: Final = 0.5
"""Between two rounds of questions with ``--follow``."""

FILE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Read of one file; a recorder's is far smaller unless it was told otherwise."""

_AGO: Final = re.compile(r"(\d{1,9})(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_HEADS: Final = ("TIME", "BROKER", "KIND", "SUBJECT", "WHAT")


class _Page(msgspec.Struct):
    """Of one broker (``server.apis.documents.EventsDocument``), as far as it matters here."""

    events: list[_ShownHere]
    last_sequence: int
    is_last: bool
    is_on: bool


class _ShownHere(msgspec.Struct):
    """``ShownEvent``, with the fields of the event as a newer broker may have them."""

    sequence: int
    at_ms: int
    broker: int
    kind: str
    subject: str
    text: str
    left_out: int
    event: dict[str, Any]


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka events``."""
    options = ProfileParser(
        prog=PROG,
        description="What the brokers of a cluster have decided of late, and why, in one order: elections, "
        "ISRs, leader epochs, truncations, rebalances, throttles, compactions, the controller's steps, "
        "sessions, slow requests.",
        epilog=f"Kinds: {', '.join(KINDS)}. How much is kept: event.recorder.max.bytes of each broker.",
        allow_abbrev=False,
    )
    options.add_argument("--follow", "-f", action="store_true", help="go on until interrupted")
    options.add_argument("--topic", metavar="TOPIC", help="only events of partitions of this topic")
    options.add_argument("--group", metavar="GROUP", help="only events of this group")
    options.add_argument("--broker", metavar="IDS", help="only of these brokers, like 1,2 (all)")
    options.add_argument("--kind", metavar="KINDS", help="only of these kinds, with commas between (all)")
    options.add_argument(
        "--since", metavar="WHEN", help="90s, 15m, 2h or 1d ago, or a time like 2026-02-03T04:05:06 in UTC"
    )
    options.add_argument(
        "--log-dir",
        action="append",
        default=[],
        metavar="DIR",
        help="read the files of a broker, which may be down, in the first of its log.dirs; may be repeated",
    )
    options.add_argument("--json", action="store_true", help="print a JSON object a line")
    add_connection_options(options)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run it. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    try:
        take_connection(arguments)
        arguments.brokers = None if arguments.broker is None else parse_broker_list(arguments.broker)
        arguments.kinds = parse_kinds(arguments.kind)
        now_ms = time.time_ns() // 1_000_000
        arguments.since_ms = 0 if arguments.since is None else parse_since(arguments.since, now_ms=now_ms)
        if arguments.log_dir and arguments.follow:
            raise ValueError("--log-dir reads files once; without it --follow asks the brokers")
    except ValueError as error:
        options.error(str(error))
    return run(PROG, _from_files(arguments) if arguments.log_dir else _from_brokers(arguments))


def parse_kinds(text: str | None) -> tuple[str, ...]:
    """``election,isr``; none for all. Raises ValueError."""
    kinds = tuple(filter(None, (text or "").split(",")))
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"--kind {kind}: there is no such kind; there are {', '.join(KINDS)}")
    return kinds


def parse_since(text: str, *, now_ms: int) -> int:
    """``15m`` ago or a time, as milliseconds since 1970. Raises ValueError."""
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_ms - int(ago[1]) * _SECONDS[ago[2]] * 1000)
    try:
        return max(0, parse_datetime(text))
    except ValueError:
        raise ValueError(
            f"--since {text}: must be like 90s, 15m, 2h or 1d, or a time like 2026-02-03T04:05:06"
        ) from None


# From brokers


async def _from_brokers(arguments: argparse.Namespace) -> int:
    async with AdminClient.of(arguments, "minikafka-events") as admin:
        follower = _Follower(admin, arguments)
        printer = _Printer(as_json=arguments.json)
        printer.print(await follower.new_events())
        while arguments.follow:
            await asyncio.sleep(FOLLOW_PAUSE_S)
            printer.print(await follower.new_events())
        if not printer.has_printed and not follower.has_failed:
            print("No broker remembers any such event.", file=sys.stderr)
        return FAILURE if follower.has_failed else OK


class _Follower:
    """Asks all wanted brokers, each for what it has recorded since it was asked last."""

    def __init__(self, admin: AdminClient, arguments: argparse.Namespace) -> None:
        self._admin = admin
        self._wanted: list[int] | None = arguments.brokers
        self._filters = {
            "topic": arguments.topic,
            "group": arguments.group,
            "kind": ",".join(arguments.kinds) or None,
            "since_ms": arguments.since_ms or None,
        }
        self._seen: dict[int, int] = {}
        self._silent: dict[int, str] = {}
        """Broker → why it does not answer; each reason is told once."""
        self.has_failed = False

    async def new_events(self) -> list[_ShownHere]:
        """Of all brokers, in order."""
        alive = list((await self._admin.nodes()).brokers)
        wanted = alive if self._wanted is None else self._wanted
        pages = await asyncio.gather(*map(self._of_broker, wanted))
        return sorted(
            (each for page in pages for each in page), key=lambda each: (each.sequence, each.broker)
        )

    async def _of_broker(self, broker: int) -> list[_ShownHere]:
        found: list[_ShownHere] = []
        try:
            while True:
                document = await self._admin.diagnostics(
                    "events", node_id=broker, after=self._seen.get(broker, 0), **self._filters
                )
                page = msgspec.convert(document, _Page)
                found += page.events
                self._seen[broker] = page.last_sequence
                if page.is_last:
                    break
        except BrokerUnavailable as error:
            self._tell(broker, str(error))
        except KafkaError as error:
            self._tell(broker, explain(error))
            if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise
        else:
            if not page.is_on:
                self._tell(broker, "it records nothing (event.recorder.max.bytes=0)")
            else:
                self._silent.pop(broker, None)
        return found

    def _tell(self, broker: int, reason: str) -> None:
        self.has_failed = True
        if self._silent.get(broker) != reason:
            self._silent[broker] = reason
            print(f"{PROG}: no events of broker {broker}: {reason}", file=sys.stderr)


# From files


async def _from_files(arguments: argparse.Namespace) -> int:
    wanted = EventFilter(
        since_ms=arguments.since_ms, topic=arguments.topic, group=arguments.group, kinds=arguments.kinds
    )
    events = [each for directory in arguments.log_dir for each in await asyncio.to_thread(_read, directory)]
    shown = [
        _here(each)
        for each, recorded in events
        if wanted.matches(recorded) and (arguments.brokers is None or each.broker in arguments.brokers)
    ]
    printer = _Printer(as_json=arguments.json)
    printer.print(sorted(shown, key=lambda each: (each.sequence, each.broker)))
    if not printer.has_printed:
        print("There is no such event in the files.", file=sys.stderr)
    return OK


def _read(directory: str) -> list[tuple[ShownEvent, Any]]:
    """Raises CommandError: there is no file, or it cannot be read."""
    files, found, read = OsFiles(), [], 0
    for name in (OLD_NAME, CURRENT_NAME):
        path = str(Path(directory, name))
        try:
            events = read_event_file(files, path, bytes_max=FILE_BYTES_MAX)
        except FileNotFoundError:
            continue
        except UnreadableEventFile as error:
            raise CommandError(str(error)) from None
        except OSError as error:
            raise CommandError(f"cannot read {path}: {error.strerror or error}") from None
        read += 1
        recorded = filter(None, map(decode_event, events.lines))
        found += [(show(events.broker, each), each) for each in recorded]
    if not read:
        raise CommandError(
            f"there is no {CURRENT_NAME} in {directory}: give the first of a broker's log.dirs"
        )
    return found


def _here(shown: ShownEvent) -> _ShownHere:
    return msgspec.convert(msgspec.to_builtins(shown), _ShownHere)


# Output


class _Printer:
    """Prints events as they come: a line each."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._widths: list[int] = []
        self.has_printed = False

    def print(self, events: Iterable[_ShownHere]) -> None:
        """The widths of the columns are those of the first events, and grow with later ones."""
        shown = list(events)
        if not shown:
            return
        if self._as_json:
            for each in shown:
                print(msgspec.json.encode({"time": _time(each.at_ms), **msgspec.to_builtins(each)}).decode())
        else:
            rows = [_row(each) for each in shown]
            if not self.has_printed:
                rows.insert(0, _HEADS)
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            self._widths = [max(pair) for pair in zip(widths, self._widths or widths, strict=True)]
            for row in rows:
                cells = zip(row[:-1], self._widths, strict=False)
                print("  ".join([*(f"{cell:<{width}}" for cell, width in cells), row[-1]]))
        self.has_printed = True
        sys.stdout.flush()


def _row(event: _ShownHere) -> tuple[str, ...]:
    more = f" ({event.left_out} more were not kept)" if event.left_out else ""
    return (
        _time(event.at_ms),
        str(event.broker),
        event.kind,
        one_line(event.subject),
        one_line(event.text + more),
    )


def _time(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


if __name__ == "__main__":
    sys.exit(main())
