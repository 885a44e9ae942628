"""Stands between clients and the brokers of a cluster, and keeps what they say to each other.

There is an address here for each broker. Wherever a broker tells clients an address, they get the one here;
so they never talk to a broker without the relay. It logs in to the brokers for them: what listens here takes
everybody who can reach it, in plain text.

A client's connection has a connection to a broker of its own, with its client id, and its requests go on in
their order. Requests and versions that this relay does not know are taken out of ApiVersions.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Collection
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minikafka.cli.replay.recording import (
    NEVER_KEPT,
    Disguise,
    Event,
    Request,
    Response,
    body_of,
    plain,
    without_secrets,
)
from minikafka.errors import ErrorCode, MinikafkaError, PeerProtocolError
from minikafka.network.broker_client import BrokerClient
from minikafka.network.socket_server import stop_listening
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey, VersionRange
from minikafka.protocol.wire.codec import (
    RequestHeader,
    decode_request,
    encode_response,
    read_request_header,
)
from minikafka.steps import finish

if TYPE_CHECKING:
    from minikafka.network.client_security import ClientSecurity

REQUEST_BYTES_MAX: Final = 100 * 1024 * 1024
"""socket.request.max.bytes."""
ANSWER_DEADLINE_MS: Final = 15 * 60_000
"""Longer than clients wait for an answer by default (10 min: JoinGroup with max.poll.interval.ms)."""
PIPELINED_MAX: Final = 100
"""Requests of one connection under way; the relay reads no more until one is answered."""
CONNECTIONS_MAX: Final = 1_000
NO_CLIENT_LOGIN: Final = frozenset((ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))

_KNOWN: Final = frozenset(map(int, ApiKey))
_TOPIC_FIELDS: Final = frozenset(("topics", "topic_data", "forgotten_topics_data", "topic_partitions"))


class Target(NamedTuple):
    """A broker of the cluster."""

    host: str
    port: int


class Chosen(NamedTuple):
    """What is kept: of which clients, and of which topics; empty: all. Patterns as of a shell."""

    client_ids: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()

    def has_client(self, client_id: str | None) -> bool:
        return not self.client_ids or _matches(client_id or "", self.client_ids)

    def has_topics(self, named: Collection[str]) -> bool:
        """Whether a request that names these topics is kept. One that names none is."""
        return not self.topics or not named or any(_matches(each, self.topics) for each in named)


def _matches(text: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(text, each) for each in patterns)


class Relay:
    """Of one cluster. ``keep`` gets each event."""

    def __init__(
        self,
        *,
        host: str,
        security: ClientSecurity | None,
        timeout_ms: int,
        chosen: Chosen,
        disguise: Disguise | None,
        keep: Callable[[Event], object],
        say: Callable[[str], object],
    ) -> None:
        """``host`` is where it listens; ``disguise`` hides records. ``say`` tells the person at the terminal
        why something went wrong."""
        self._host = host
        self._security = security
        self._timeout_ms = timeout_ms
        self._chosen = chosen
        self._disguise = disguise
        self._keep = keep
        self._say = say
        self._targets: dict[int | None, Target] = {}
        self._servers: dict[int | None, asyncio.Server] = {}
        self._listening = asyncio.Lock()
        self._handlers: set[asyncio.Task[None]] = set()
        self._connections = itertools.count()
        self._numbers = itertools.count()
        self._topic_names: dict[Any, str] = {}
        """By id, as brokers have told it."""
        self._started_s = time.monotonic()

    async def listen(self, node_id: int | None, target: Target, *, port: int = 0) -> int:
        """Stand in front of a broker. Returns the port here. Raises OSError: it is taken."""
        async with self._listening:
            self._targets[node_id] = target
            server = self._servers.get(node_id)
            if server is None:

                def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                    self._accept(node_id, reader, writer)

                server = await asyncio.start_server(accept, self._host, port)
                self._servers[node_id] = server
            return int(server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        for server in self._servers.values():
            stop_listening(server)
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    def _accept(
        self, node_id: int | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if len(self._handlers) >= CONNECTIONS_MAX:
            self._say(f"a connection more than {CONNECTIONS_MAX} is refused")
            writer.close()
            return

        def ended(handler: asyncio.Task[None]) -> None:
            self._handlers.discard(handler)
            writer.close()  # of one that was cancelled before it began, too

        handler = asyncio.ensure_future(self._serve(node_id, reader, writer))
        self._handlers.add(handler)
        handler.add_done_callback(ended)

    async def _serve(
        self, node_id: int | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            await _Connection(self, next(self._connections), node_id, reader, writer).serve()
        except (MinikafkaError, OSError, asyncio.IncompleteReadError) as error:
            if not isinstance(error, asyncio.IncompleteReadError) or error.partial:
                self._say(f"a client's connection ends: {error}")
        except asyncio.CancelledError:
            pass  # the relay is closed

    # What connections need

    async def connect(self, node_id: int | None, client_id: str | None) -> BrokerClient:
        """Raises BrokerUnavailable."""
        target = self._targets[node_id]
        return await BrokerClient.connect(
            target.host,
            target.port,
            client_id=client_id,
            deadline_ms=self._timeout_ms,
            security=self._security,
        )

    def keep_request(
        self, connection: int, node_id: int | None, header: RequestHeader, body: Any
    ) -> int | None:
        """Returns the number of the request; None: it is not kept."""
        key = ApiKey(header.api_key)
        is_kept = (
            key not in NEVER_KEPT
            and self._chosen.has_client(header.client_id)
            and self._chosen.has_topics(topics_named(body, self._topic_names))
        )
        if not is_kept:
            return None
        number = next(self._numbers)
        self._keep(
            Request(
                number,
                self._now_ms(),
                connection,
                node_id,
                header.client_id,
                key.name,
                header.api_version,
                self._to_keep(body),
            )
        )
        return number

    def keep_response(self, number: int, body: Any) -> None:
        self._keep(Response(number, self._now_ms(), self._to_keep(body)))

    def _to_keep(self, body: Any) -> Any:
        if self._disguise is not None:
            body = self._disguise.of_body(body)
        return plain(without_secrets(body))

    def _now_ms(self) -> float:
        return round((time.monotonic() - self._started_s) * 1000, 3)

    async def for_client(self, body: Any) -> Any:
        """A response with the addresses here in place of the brokers'."""
        match body:
            case {"host": str(host), "port": int(port)} if port > 0:
                node_id = body.get("node_id", body.get("broker_id"))
                if node_id is None:
                    return body
                here = await self.listen(node_id, Target(host, port))
                return body | {"host": self._host, "port": here}
            case {"name": str(name), "topic_id": topic_id} if topic_id is not None:
                self._topic_names[topic_id] = name
        if isinstance(body, dict):
            return {name: await self.for_client(each) for name, each in body.items()}
        if isinstance(body, list) and body and isinstance(body[0], dict | list):
            return [await self.for_client(each) for each in body]
        return body


class _Connection:
    """Of one client, until either side ends it."""

    def __init__(
        self,
        relay: Relay,
        number: int,
        node_id: int | None,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._relay = relay
        self._number = number
        self._node_id = node_id
        self._reader = reader
        self._writer = writer
        self._broker: BrokerClient | None = None
        self._answers: asyncio.Queue[asyncio.Task[bytes]] = asyncio.Queue(PIPELINED_MAX)

    async def serve(self) -> None:
        """Raises MinikafkaError, OSError or IncompleteReadError: why it ended."""
        tasks = {asyncio.ensure_future(self._read()), asyncio.ensure_future(self._write())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            while not self._answers.empty():
                tasks.add(self._answers.get_nowait())  # type: ignore[arg-type]
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._broker is not None:
                await self._broker.close()

    async def _read(self) -> None:
        while True:
            size = int.from_bytes(await self._reader.readexactly(4), "big", signed=True)
            if not 0 < size <= REQUEST_BYTES_MAX:
                raise PeerProtocolError(f"a request of {size} bytes")
            frame = await self._reader.readexactly(size)
            header = read_request_header(frame)
            if self._broker is None:
                self._broker = await self._relay.connect(self._node_id, header.client_id)
            key = header.api_key
            ours = SUPPORTED.get(ApiKey(key)) if key in _KNOWN else None
            theirs = self._broker.api_versions.get(key)
            if not (_has(ours, header.api_version) and _has(theirs, header.api_version)):
                await self._answers.put(asyncio.ensure_future(self._unsupported(header)))
                continue
            body = body_of(finish(decode_request(header, frame)))
            number = self._relay.keep_request(self._number, self._node_id, header, body)
            if key == ApiKey.PRODUCE and body["acks"] == 0:
                await asyncio.sleep(0)  # those that came before have been sent then
                await self._broker.send(key, body, deadline_ms=ANSWER_DEADLINE_MS, version=header.api_version)
                continue
            await self._answers.put(asyncio.ensure_future(self._answer(header, body, number)))

    async def _write(self) -> None:
        while True:
            self._writer.write(await (await self._answers.get()))
            await self._writer.drain()

    async def _answer(self, header: RequestHeader, body: Any, number: int | None) -> bytes:
        assert self._broker is not None
        answer = body_of(
            await self._broker.request(
                header.api_key, body, deadline_ms=ANSWER_DEADLINE_MS, version=header.api_version
            )
        )
        if number is not None:
            self._relay.keep_response(number, answer)
        if header.api_key == ApiKey.API_VERSIONS:
            answer["api_keys"] = versions_for_client(answer["api_keys"])
        return finish(
            encode_response(
                api_key=header.api_key,
                api_version=header.api_version,
                correlation_id=header.correlation_id,
                body=await self._relay.for_client(answer),
            )
        )

    async def _unsupported(self, header: RequestHeader) -> bytes:
        """As KIP-511 has it: clients begin with the newest ApiVersions that they know."""
        if header.api_key in NO_CLIENT_LOGIN:
            raise PeerProtocolError(
                "it logs in: clients of the relay do not, --command-config does it for them"
            )
        if header.api_key != ApiKey.API_VERSIONS:
            raise PeerProtocolError(f"it asks for api key {header.api_key}, version {header.api_version}")
        assert self._broker is not None
        keys = [
            {"api_key": key, "min_version": versions.min, "max_version": versions.max}
            for key, versions in self._broker.api_versions.items()
        ]
        body = {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": versions_for_client(keys)}
        return finish(
            encode_response(
                api_key=ApiKey.API_VERSIONS, api_version=0, correlation_id=header.correlation_id, body=body
            )
        )


def _has(versions: VersionRange | None, version: int) -> bool:
    return versions is not None and versions.min <= version <= versions.max


def versions_for_client(api_keys: list[dict[str, int]]) -> list[dict[str, int]]:
    """Those that the relay knows, too, and without logins."""
    found = []
    for each in api_keys:
        ours = SUPPORTED.get(ApiKey(each["api_key"])) if each["api_key"] in _KNOWN else None
        if ours is None or each["api_key"] in NO_CLIENT_LOGIN:
            continue
        low, high = max(ours.min, each["min_version"]), min(ours.max, each["max_version"])
        if low <= high:
            found.append(each | {"min_version": low, "max_version": high})
    return found


def topics_named(body: Any, names: dict[Any, str]) -> set[str]:
    """Topics that a request is about, by name; ``names`` has those of ids."""
    found: set[str] = set()
    if isinstance(body, dict):
        for name, value in body.items():
            if name in _TOPIC_FIELDS and isinstance(value, list):
                found.update(filter(None, (_topic(each, names) for each in value)))
            found |= topics_named(value, names)
    elif isinstance(body, list):
        for each in body:
            if not isinstance(each, dict | list):
                break
            found |= topics_named(each, names)
    return found


def _topic(entry: Any, names: dict[Any, str]) -> str | None:
    if isinstance(entry, str):
        return entry
    if not isinstance(entry, dict):
        return None
    name = entry.get("name") or entry.get("topic") or entry.get("topic_name")
    return name if isinstance(name, str) else names.get(entry.get("topic_id"))
