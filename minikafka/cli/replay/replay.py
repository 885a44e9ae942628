"""``minikafka replay``: asks a cluster what ``minikafka record`` has kept, and compares the answers.

The recording's order is kept: a request is sent when all those have been answered whose answers were there
when it was recorded. So what one client did because of what another had done keeps its place, and requests
that waited for each other (a JoinGroup for the other members, a Fetch for records) wait side by side again.

Brokers put clients off while a coordinator or a leader is not ready, and clients ask again. A request that
was put off when it was recorded is left out, for the client's next try is recorded, too; one that is put off
now is sent again as a client would.

Exit status: 0 when all answers are as they were recorded, 1 when some differ or no broker answers, 2 for bad
usage.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minikafka.cli.replay.compare import Comparison, Difference, Names, may_come_true, was_put_off
from minikafka.cli.replay.recording import Event, Head, Request, Response, body_from, body_of, read
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
from minikafka.errors import MinikafkaError
from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.wire.api_versions import ApiKey

if TYPE_CHECKING:
    from minikafka.network.client_security import ClientSecurity

PROG: Final = "minikafka replay"
CLIENT_ID: Final = "minikafka-replay"
SHOWN_MAX: Final = 20
VALUE_LENGTH_MAX: Final = 200

IN_FLIGHT_MAX: Final = 10_000
RETRIES_MS: Final = 10_000
RETRY_BACKOFF_MS: Final = 100
"""Of clients: retry.backoff.ms."""


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


class Sent(NamedTuple):
    """A request that was sent again."""

    request: Request
    answer: asyncio.Task[Any]


class Differing(NamedTuple):
    """What is not as it was recorded of one request."""

    request: Request
    differences: Sequence[Difference]


class Report:
    """Of a replay that has ended."""

    def __init__(self) -> None:
        self.sent = 0
        self.compared = 0
        self.put_off = 0
        """Requests that were put off when they were recorded, and are not sent."""
        self.later_or_sooner = 0
        self.differing: list[Differing] = []


class Player:
    """To one cluster."""

    def __init__(
        self,
        addresses: Mapping[int | None, tuple[str, int]],
        comparison: Comparison,
        names: Names,
        *,
        security: ClientSecurity | None,
        timeout_ms: int,
        keeps_pace: bool,
    ) -> None:
        """``addresses``: of the broker to ask, by the recorded one's id; None: where clients began.
        ``keeps_pace`` waits between requests as long as the clients did. ``timeout_ms`` is for each answer,
        beside what the request itself waits."""
        self._addresses = addresses
        self._comparison = comparison
        self._names = names
        self._security = security
        self._timeout_ms = timeout_ms
        self._keeps_pace = keeps_pace
        self._clients: dict[int, asyncio.Task[BrokerClient]] = {}
        self._sent: dict[int, Sent] = {}
        self._report = Report()

    async def play(self, events: Iterable[Event], *, without: Collection[int] = ()) -> Report:
        """``without``: requests that are not sent. Raises RecordingError, as ``events`` does."""
        self._report.put_off = len(without)
        started_s = time.monotonic()
        try:
            for event in events:
                if event.number in without:
                    continue
                if isinstance(event, Request):
                    if self._keeps_pace:
                        await asyncio.sleep(max(0.0, started_s + event.ms / 1000 - time.monotonic()))
                    self._send(event)
                    await asyncio.sleep(0)  # it is sent before the next
                else:
                    await self._take(event)
        finally:
            for sent in self._sent.values():
                sent.answer.cancel()
            await asyncio.gather(*(each.answer for each in self._sent.values()), return_exceptions=True)
            for connecting in self._clients.values():
                if connecting.done() and connecting.exception() is None:
                    await connecting.result().close()
                connecting.cancel()
        self._report.later_or_sooner = self._comparison.later_or_sooner
        return self._report

    def _send(self, request: Request) -> None:
        self._report.sent += 1
        answer = asyncio.ensure_future(self._ask(request))
        answer.add_done_callback(_look_at)
        self._sent[request.number] = Sent(request, answer)

    async def _ask(self, request: Request) -> Any:
        if request.connection not in self._clients:
            self._clients[request.connection] = asyncio.ensure_future(self._connect(request))
        client = await asyncio.shield(self._clients[request.connection])
        key = ApiKey[request.api]
        body = self._names.in_request(body_from(request.body), request.connection)
        waits_ms = max(
            body.get(each) or 0 for each in ("max_wait", "max_wait_ms", "rebalance_timeout", "timeout")
        )
        deadline_ms = self._timeout_ms + int(waits_ms)
        if key == ApiKey.PRODUCE and body["acks"] == 0:
            await client.send(key, body, deadline_ms=deadline_ms, version=request.version)
            return None
        return await client.request(key, body, deadline_ms=deadline_ms, version=request.version)

    async def _connect(self, request: Request) -> BrokerClient:
        host, port = self._addresses.get(request.broker, self._addresses[None])
        return await BrokerClient.connect(
            host,
            port,
            client_id=request.client_id,
            deadline_ms=self._timeout_ms,
            security=self._security,
            in_flight_max=IN_FLIGHT_MAX,
        )

    async def _take(self, recorded: Response) -> None:
        sent = self._sent.pop(recorded.number, None)
        if sent is None:
            return
        self._report.compared += 1
        request, recorded_body = sent.request, body_from(recorded.body)
        try:
            answered = body_of(await sent.answer)
            tries_until_s = time.monotonic() + RETRIES_MS / 1000
            while may_come_true(recorded_body, answered) and time.monotonic() < tries_until_s:
                await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
                answered = body_of(await self._ask(request))
        except MinikafkaError as error:
            self._report.differing.append(Differing(request, [Difference("", "an answer", str(error))]))
            return
        found = self._comparison.differences(ApiKey[request.api], request.connection, recorded_body, answered)
        if found:
            self._report.differing.append(Differing(request, found))


def put_off(events: Iterable[Event]) -> frozenset[int]:
    """The requests that brokers have put off. Raises RecordingError, as ``events`` does."""
    return frozenset(
        each.number for each in events if isinstance(each, Response) and was_put_off(body_from(each.body))
    )


def _look_at(answer: asyncio.Task[Any]) -> None:
    """What went wrong with one that is not asked for its result is no warning of asyncio's."""
    if not answer.cancelled():
        answer.exception()


if __name__ == "__main__":
    sys.exit(main())
