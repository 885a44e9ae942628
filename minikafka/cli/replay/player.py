"""Asks a cluster what a recording has, in its order, and compares the answers.

A request is sent when all those have been answered whose answers were there when it was recorded. So what one
client did because of what another had done keeps its order, and requests that waited for each other (a
JoinGroup for the other members, a Fetch for records) wait side by side again.

Brokers put clients off while a coordinator or a leader is not ready, and clients ask again. A request that
was put off when it was recorded is left out, for the client's next try is recorded, too; one that is put off
now is sent again as a client would.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minikafka.cli.replay.compare import Comparison, Difference, Names, may_come_true, was_put_off
from minikafka.cli.replay.recording import Event, Request, Response, body_from, body_of
from minikafka.errors import MinikafkaError
from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.wire.api_versions import ApiKey

if TYPE_CHECKING:
    from minikafka.network.client_security import ClientSecurity

IN_FLIGHT_MAX: Final = 10_000
RETRIES_MS: Final = 10_000
RETRY_BACKOFF_MS: Final = 100
"""Of clients: retry.backoff.ms."""


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
