"""``minikafka replay``: asks a cluster what ``minikafka record`` has kept, and compares the answers.

The recording's order is kept: a request is sent when all those have been answered whose answers were there
when it was recorded. So what one client did because of what another had done keeps its place, and requests
that waited for each other (a JoinGroup for the other members, a Fetch for records) wait side by side again.

Brokers put clients off while a coordinator or a leader is not ready, and clients ask again. A request that
was put off when it was recorded is left out, for the client's next try is recorded, too; one that is put off
now is sent again as a client would.

Topic ids, producer ids, member ids and fetch sessions are other ones in another cluster. The first answer
that has such a name where the recording has another one teaches which stands for which; from then on requests
say it the new way, and an answer that breaks the rule is a difference.

What depends on the place and the moment is not compared: addresses, racks, cluster ids, throttling, times
that brokers read off their clocks, and the wording of errors unless it is asked for. When a Fetch gets more
or fewer records than the recorded one, because it came a little sooner or later, it is counted and not held
against the broker, as long as what both have is the same.

Exit status: 0 when all answers are as they were recorded, 1 when some differ or no broker answers, 2 for bad
usage.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from minikafka.cli.record import (
    Event,
    Head,
    Request,
    Response,
    body_from,
    body_of,
    read,
    records_in,
    with_producer_ids,
    with_records,
)
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
from minikafka.errors import ErrorCode, MinikafkaError
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

NAMES: Final[Mapping[str, str]] = {
    "topic_id": "topic",
    "producer_id": "producer",
    "member_id": "member",
    "leader": "member",
    "member_ids": "member",
    "session_id": "session",
    "acquisition_session_id": "session",
    "node_id": "broker",
    "broker_id": "broker",
    "leader_id": "broker",
    "controller_id": "broker",
    "replica_nodes": "broker",
    "isr_nodes": "broker",
    "offline_replicas": "broker",
    "eligible_leader_replicas": "broker",
    "last_known_elr": "broker",
    "preferred_read_replica": "broker",
    "replicas": "broker",
    "coordinator_id": "broker",
}
"""Field → what kind of name it has."""

NOT_COMPARED: Final = frozenset(
    (
        "throttle_time",
        "host",
        "port",
        "rack",
        "cluster_id",
        "node_endpoints",
        "client_host",
        "log_append_time",
        "transaction_start_time",
        "last_timestamp",
        "acquisition_lock_timeout",
        "log_dir",
        "size",
        "total_bytes",
        "usable_bytes",
        "finalized_features_epoch",
    )
)
TEXTS: Final = frozenset(("error_message", "message", "batch_index_error_message", "documentation"))
"""Compared only when it is asked for."""
AT_THE_MOMENT: Final = frozenset(("records", "high_watermark", "last_stable_offset", "aborted_transactions"))
"""Of a partition in a Fetch."""

NOT_READY: Final = frozenset(
    (
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
)
"""By which a broker puts a client off, which asks again soon."""
MAY_COME_TRUE: Final = NOT_READY | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS}
"""What may go away soon in a cluster where something was just made."""

_IDENTITY: Final = (
    "name", "topic_name", "topic", "group_id", "transactional_id", "resource_name", "key", "user",
    "topic_id", "partition_index", "partition", "index", "member_id", "api_key", "node_id", "broker_id",
    "producer_id", "resource_type", "error_code",
)  # fmt: skip
"""By which two lists of the same things are laid side by side, in whatever order they are."""
_SETS: Final = frozenset(("isr_nodes", "offline_replicas", "eligible_leader_replicas", "last_known_elr"))
_NOTHING: Final = (None, "", -1, UUID(int=0))
"""And 0, where it is a session of fetches: a broker and a producer may have it for an id."""


# The command


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


# Asking again


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


# Comparing


class Difference(NamedTuple):
    """One field of one answer."""

    path: str
    """``topics[t].partitions[0].error_code``."""
    recorded: Any
    answered: Any


class Absent:
    """In place of what one of the answers has not."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT: Final = Absent()


class Names:
    """Recorded name → the replayed cluster's."""

    def __init__(self, brokers: Mapping[int, int]) -> None:
        self._known: dict[tuple[str, Any], Any] = {("broker", old): new for old, new in brokers.items()}

    def of(self, kind: str, connection: int, value: Any) -> Any:
        """What stands for a recorded name; itself while that is not known."""
        return self._known.get(self._place(kind, connection, value), value)

    def learn(self, kind: str, connection: int, recorded: Any, answered: Any) -> bool:
        """Returns whether ``answered`` may stand for ``recorded``."""
        if any(each in _NOTHING or (each == 0 and kind == "session") for each in (recorded, answered)):
            return bool(recorded == answered)
        if kind == "producer" and recorded == answered == 0:
            return True  # it may stand in an answer that has an error, and nothing else
        place = self._place(kind, connection, recorded)
        return bool(self._known.setdefault(place, answered) == answered)

    def _place(self, kind: str, connection: int, value: Any) -> tuple[str, Any]:
        return kind, (connection, value) if kind == "session" else value

    def producer_ids(self) -> dict[int, int]:
        return {old: new for (kind, old), new in self._known.items() if kind == "producer"}

    def in_request(self, body: Any, connection: int) -> Any:
        """A recorded request as it is to be sent."""
        ids = self.producer_ids()
        body = self._said(body, connection)
        return with_records(body, lambda data: with_producer_ids(data, ids)) if ids else body

    def _said(self, body: Any, connection: int, name: str = "") -> Any:
        if isinstance(body, dict):
            return {field: self._said(value, connection, field) for field, value in body.items()}
        if isinstance(body, list):
            return [self._said(each, connection, name) for each in body]
        kind = NAMES.get(name)
        return body if kind is None else self.of(kind, connection, body)


class Comparison:
    """Of all answers of a recording. ``ignored`` are further fields that are not compared."""

    def __init__(self, names: Names, *, ignored: Sequence[str] = (), texts: bool = False) -> None:
        self._names = names
        self._ignored = NOT_COMPARED | set(ignored) | (frozenset() if texts else TEXTS)
        self._connection = 0
        self._is_fetch = False
        self.later_or_sooner = 0
        """Partitions of Fetches with more or fewer records than when it was recorded."""

    def differences(self, key: ApiKey, connection: int, recorded: Any, answered: Any) -> list[Difference]:
        """And learns names."""
        self._connection = connection
        self._is_fetch = key in (ApiKey.FETCH, ApiKey.SHARE_FETCH)
        return list(self._of("", "", recorded, answered))

    def _of(self, path: str, name: str, recorded: Any, answered: Any) -> Iterator[Difference]:
        if isinstance(recorded, dict) and isinstance(answered, dict):
            yield from self._of_dicts(path, recorded, answered)
        elif isinstance(recorded, list) and isinstance(answered, list):
            yield from self._of_lists(path, name, recorded, answered)
        elif (kind := NAMES.get(name)) is not None:
            if not self._names.learn(kind, self._connection, recorded, answered):
                yield Difference(path, recorded, answered)
        elif name == "records":
            if records_or_bytes(recorded) != records_or_bytes(answered):
                yield Difference(path, records_or_bytes(recorded), records_or_bytes(answered))
        elif recorded != answered:
            yield Difference(path, _readable(name, recorded), _readable(name, answered))

    def _of_dicts(
        self, path: str, recorded: Mapping[str, Any], answered: Mapping[str, Any]
    ) -> Iterator[Difference]:
        ignored = self._ignored
        is_part_of_fetch = self._is_fetch and "records" in recorded and "records" in answered
        if is_part_of_fetch and _is_start_of_other(recorded["records"], answered["records"]):
            ignored = ignored | AT_THE_MOMENT
            self.later_or_sooner += 1
        for name in [*recorded, *(each for each in answered if each not in recorded)]:
            if name not in ignored:
                below = f"{path}.{name}" if path else name
                yield from self._of(below, name, recorded.get(name, ABSENT), answered.get(name, ABSENT))

    def _of_lists(
        self, path: str, name: str, recorded: Sequence[Any], answered: Sequence[Any]
    ) -> Iterator[Difference]:
        if not any(isinstance(each, dict) for each in (*recorded, *answered)):
            yield from self._of_values(path, name, recorded, answered)
            return
        theirs = {self._identity(each, recorded=False): each for each in answered}
        for each in recorded:
            identity = self._identity(each, recorded=True)
            other = theirs.pop(identity, ABSENT)
            yield from self._of_entries(f"{path}[{_shown(identity)}]", each, other)
        for identity, other in theirs.items():
            yield from self._of_entries(f"{path}[{_shown(identity)}]", ABSENT, other)

    def _of_values(
        self, path: str, name: str, recorded: Sequence[Any], answered: Sequence[Any]
    ) -> Iterator[Difference]:
        kind = NAMES.get(name)
        if kind is not None:
            recorded = [self._names.of(kind, self._connection, each) for each in recorded]
        if name in _SETS:
            recorded, answered = sorted(recorded), sorted(answered)
        if list(recorded) != list(answered):
            yield Difference(path, recorded, answered)

    def _of_entries(self, path: str, recorded: Any, answered: Any) -> Iterator[Difference]:
        if recorded is not ABSENT and answered is not ABSENT:
            yield from self._of(path, "", recorded, answered)
            return
        there = answered if recorded is ABSENT else recorded
        if self._is_fetch and not _has_error(there):
            self.later_or_sooner += 1  # a session leaves out partitions without news
            return
        yield Difference(path, recorded, answered)

    def _identity(self, entry: Any, *, recorded: bool) -> tuple[Any, ...]:
        if not isinstance(entry, dict):
            return (entry,)
        found: list[Any] = []
        for name in _IDENTITY:
            value = entry.get(name)
            if value is None or value == "":
                continue
            if name == "topic_id" and found:
                continue  # it has a name
            if recorded and (kind := NAMES.get(name)) is not None:
                value = self._names.of(kind, self._connection, value)
            if name == "error_code" and found:
                continue
            found.append(value)
        return tuple(map(_hashable, found))


def _hashable(value: Any) -> Any:
    return value if value.__hash__ else repr(value)


def _shown(identity: tuple[Any, ...]) -> str:
    return ", ".join(map(str, identity))


def _has_error(entry: Any) -> bool:
    if isinstance(entry, dict):
        return bool(entry.get("error_code")) or any(map(_has_error, entry.values()))
    return isinstance(entry, list) and any(map(_has_error, entry))


def error_codes(entry: Any) -> Iterator[int]:
    """All error codes in a body, 0 as well, but for that of a whole with parts of which each has its own."""
    if isinstance(entry, list):
        for each in entry:
            yield from error_codes(each)
    if not isinstance(entry, dict):
        return
    below = [code for each in entry.values() for code in error_codes(each)]
    yield from below
    own = [value for name, value in entry.items() if name.endswith("error_code")]
    yield from (code for code in own if code or not below)


def was_put_off(answer: Any) -> bool:
    """Whether nothing was done but to tell the client to ask again."""
    codes = list(error_codes(answer))
    return bool(codes) and all(code in NOT_READY for code in codes)


def may_come_true(recorded: Any, answered: Any) -> bool:
    """Whether an answer has errors which the recorded one has not and which may be gone when it is asked
    again."""
    new = {code for code in error_codes(answered) if code} - set(error_codes(recorded))
    return bool(new) and all(code in MAY_COME_TRUE for code in new)


def records_or_bytes(data: Any) -> Any:
    """Records as a consumer sees them; what cannot be read as it is."""
    if not isinstance(data, bytes):
        return [] if data is None else data
    try:
        return records_in(data)
    except MinikafkaError:
        return data


def _is_start_of_other(one: Any, other: Any) -> bool:
    """Whether both have the same records as far as the shorter one goes, and not the same number."""
    one, other = records_or_bytes(one), records_or_bytes(other)
    if not (isinstance(one, list) and isinstance(other, list)) or len(one) == len(other):
        return False
    count = min(len(one), len(other))
    return bool(one[:count] == other[:count])


def _readable(name: str, value: Any) -> Any:
    if name == "error_code" and isinstance(value, int):
        try:
            return ErrorCode(value).name
        except ValueError:
            return value
    return value


if __name__ == "__main__":
    sys.exit(main())
