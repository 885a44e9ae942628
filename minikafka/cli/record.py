"""``minikafka record``: keeps what clients ask of a cluster, and the answers, for ``minikafka replay``.

A ``Relay`` stands between clients and the brokers. There is an address here for each broker; wherever a
broker tells clients an address, they get the one here, so they never talk to a broker without the relay. It
logs in to the brokers for them: what listens here takes everybody who can reach it, in plain text.

A client's connection has a connection to a broker of its own, with its client id, and its requests go on in
their order. Requests and versions that the relay does not know are taken out of ApiVersions.

A recording is a file of JSON lines, a head and then requests and responses in the order in which they came.

    {"format":"minikafka-recording","version":1,"records":"hidden","brokers":[1]}
    {"type":"request","number":0,"ms":0.0,"connection":0,"broker":null,"client_id":"rdkafka","api":"METADATA","version":12,"body":{…}}
    {"type":"response","number":0,"ms":1.2,"body":{…}}

Bodies have Kafka's field names in snake case; ``{"$bytes": base64}`` stands for bytes and ``{"$uuid": text}``
for ids. A request without a response was not answered while it was recorded, or asks for no answer.

No secret is in it: logins, tokens and passwords are not kept, and keys, values and headers of records are
replaced by as many other bytes, equal ones by equal ones, unless they are asked for.

Exit status: 0 when it was ended (Ctrl-C, SIGTERM, or the end of the command that it runs), 1 when no broker
answers or the file cannot be written, 2 for bad usage; with a command its own, unless it is 0.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import hashlib
import itertools
import os
import re
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from uuid import UUID

import msgspec

from minikafka.cli.shared.admin_client import AdminClient
from minikafka.cli.shared.commands import (
    FAILURE,
    OK,
    ProfileParser,
    add_connection_options,
    parse_addresses,
    parse_bytes,
    run,
    take_connection,
)
from minikafka.errors import ErrorCode, MinikafkaError, PeerProtocolError
from minikafka.network.addresses import format_address
from minikafka.network.broker_client import BrokerClient
from minikafka.network.socket_server import stop_listening
from minikafka.protocol.records.batch import HEADER_SIZE, BatchHeader, iterate_headers, rewrite
from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.records.records import Record, build_batch, iterate_records
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey, VersionRange
from minikafka.protocol.wire.codec import (
    RequestHeader,
    decode_request,
    encode_response,
    read_request_header,
)
from minikafka.steps import finish
from minikafka.types import Buffer
from minikafka.units import format_bytes

if TYPE_CHECKING:
    from minikafka.network.client_security import ClientSecurity

FORMAT: Final = "minikafka-recording"
VERSION: Final = 1

NEVER_KEPT: Final = frozenset(
    (
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.PUSH_TELEMETRY,
    )
)
"""Secrets, and what clients say of themselves."""

_SECRET_NAME: Final = re.compile(r"password|secret|jaas|token|\bkey\b|keystore\.key", re.IGNORECASE)
HIDDEN: Final = "hidden"

PROG: Final = "minikafka record"
CLIENT_ID: Final = "minikafka-record"
SIZE_MAX: Final = 64 * 1024 * 1024
ADDRESS: Final = "{}"
"""In a command: where its clients connect to."""

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


class RecordingError(MinikafkaError):
    """A file is not a recording, or cannot be written; the message is for the person at the terminal."""


class Head(msgspec.Struct, frozen=True):
    """The first line."""

    format: str
    version: int
    records: Literal["hidden", "kept"]
    brokers: list[int]
    """The cluster's, by id."""


class Request(msgspec.Struct, frozen=True, tag_field="type", tag="request"):
    """A request as the client sent it."""

    number: int
    ms: float
    """Since the recording began."""
    connection: int
    broker: int | None
    """That the connection went to; None: the one that clients are given, any of the cluster."""
    client_id: str | None
    api: str
    """By Kafka's name (``ApiKeys``)."""
    version: int
    body: Any


class Response(msgspec.Struct, frozen=True, tag_field="type", tag="response"):
    """What was answered to the request of the same number."""

    number: int
    ms: float
    body: Any


Event = Request | Response


_decode_event = msgspec.json.Decoder(Event).decode


_decode_head = msgspec.json.Decoder(Head).decode


def read(path: Path) -> tuple[Head, Iterator[Event]]:
    """The head, and the rest as it is read. Raises RecordingError, also while it is read."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {error.strerror}") from None
    with file:
        try:
            head = _decode_head(file.readline())
        except msgspec.DecodeError:
            head = Head("", 0, "hidden", [])
    if head.format != FORMAT:
        raise RecordingError(f"{path} is not a recording of minikafka record")
    if head.version != VERSION:
        raise RecordingError(
            f"{path} has version {head.version} of recordings, this minikafka reads {VERSION}"
        )
    return head, _events(path)


def _events(path: Path) -> Iterator[Event]:
    with path.open("rb") as file:
        file.readline()
        for number, line in enumerate(file, start=2):
            if not line.endswith(b"\n"):
                return  # the recorder was killed while it wrote
            try:
                yield _decode_event(line)
            except msgspec.DecodeError as error:
                raise RecordingError(f"{path}, line {number}: {error}") from None


def body_of(entity: Any) -> Any:
    """An entity of the codec as a body that it takes: named tuples become dicts, views bytes."""
    if isinstance(entity, tuple):
        if hasattr(entity, "_fields"):
            return {name: body_of(value) for name, value in zip(entity._fields, entity, strict=True)}
        return [body_of(each) for each in entity]
    if isinstance(entity, memoryview | bytearray):
        return bytes(entity)
    return entity


def plain(value: Any) -> Any:
    """A body as JSON has it."""
    match value:
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list():
            return [plain(each) for each in value]
        case bytes():
            return {"$bytes": base64.b64encode(value).decode()}
        case UUID():
            return {"$uuid": str(value)}
        case _:
            return value


def body_from(value: Any) -> Any:
    """The reverse of ``plain``."""
    match value:
        case {"$bytes": str(text)}:
            return base64.b64decode(text)
        case {"$uuid": str(text)}:
            return UUID(text)
        case dict():
            return {name: body_from(each) for name, each in value.items()}
        case list():
            return [body_from(each) for each in value]
        case _:
            return value


def without_secrets(body: Any) -> Any:
    """Values of properties whose name says that they are secret are ``hidden``."""
    match body:
        case {"name": str(name), "value": str(), **others} if _SECRET_NAME.search(name):
            return {"name": name, "value": HIDDEN, **others}
        case dict():
            return {name: without_secrets(each) for name, each in body.items()}
        case list():
            return [without_secrets(each) for each in body]
        case _:
            return body


class Disguise:
    """Replaces keys, values and header values of records: equal bytes by equal ones, of the same length."""

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(16)

    def of_body(self, body: Any) -> Any:
        """``body`` with all ``records`` in it disguised."""
        return with_records(body, self._of_batches)

    def _of_batches(self, data: bytes) -> bytes:
        try:
            return with_batches(data, self._of_batch)
        except MinikafkaError:  # nothing that a broker would take, or an older format
            return bytes(len(data))

    def _of_batch(self, batch: bytes, header: BatchHeader) -> bytes:
        if header.is_control:
            return batch
        records = [
            Record(
                each.offset,
                each.timestamp,
                self._of(each.key),
                self._of(each.value),
                tuple((name, self._of(value)) for name, value in each.headers),
            )
            for each in iterate_records(batch)
        ]
        return build_batch(
            records,
            base_offset=header.base_offset,
            compression=CompressionType(header.compression),
            timestamp_type=header.timestamp_type,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            leader_epoch=header.partition_leader_epoch,
        )

    def _of(self, data: bytes | None) -> bytes | None:
        if not data:
            return data
        return hashlib.shake_128(self._salt + data).digest(len(data))


def with_records(body: Any, change: Callable[[bytes], bytes]) -> Any:
    """``body`` with ``change`` made to each field ``records``."""
    if isinstance(body, dict):
        return {
            name: change(value)
            if name == "records" and isinstance(value, bytes)
            else with_records(value, change)
            for name, value in body.items()
        }
    if isinstance(body, list):
        return [with_records(each, change) for each in body]
    return body


def with_batches(data: bytes, change: Callable[[bytes, BatchHeader], bytes]) -> bytes:
    """Batches one after the other, each changed; one that is cut off is dropped. Raises CorruptBatch."""
    return b"".join(
        change(data[position : position + header.size], header) for position, header in iterate_headers(data)
    )


def with_producer_ids(data: bytes, ids: Mapping[int, int]) -> bytes:
    """Batches with the producer ids that ``ids`` has for theirs."""

    def change(batch: bytes, header: BatchHeader) -> bytes:
        producer_id = ids.get(header.producer_id, header.producer_id)
        if producer_id == header.producer_id:
            return batch
        return rewrite(batch, header, producer_id=producer_id) + batch[HEADER_SIZE:]

    try:
        return with_batches(data, change) or data
    except MinikafkaError:
        return data


def records_in(data: Buffer | None) -> list[Any]:
    """What a consumer gets of a field ``records``: offset, whether a control record, key, value, headers."""
    if not data:
        return []
    data = bytes(data)
    return [
        (each.offset, header.is_control, each.key, each.value, each.headers)
        for position, header in iterate_headers(data)
        for each in iterate_records(data[position : position + header.size])
    ]


# The command
def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka record``."""
    options = ProfileParser(
        prog=PROG,
        usage="minikafka record [options] FILE [-- COMMAND ...]",
        description="Stand between clients and a cluster, and keep what is asked and answered, for minikafka "
        "replay. Clients connect to the address that is printed, in plain text; --command-config says how to "
        "log in to the cluster. Logins, tokens and passwords are not kept, nor the contents of records. A "
        "COMMAND is run with the address in place of {}, and the recording ends when it does.",
        epilog="example: minikafka record -b localhost:9092 bug.jsonl -- kcat -b {} -L",
        allow_abbrev=False,
    )
    options.add_argument("file", metavar="FILE", type=Path, help="where to; it must not be there yet")
    add_connection_options(options)
    options.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="where clients connect to; for the brokers further ports are taken (127.0.0.1 and any port)",
    )
    options.add_argument(
        "--client-id", action="append", default=[], metavar="PATTERN", help="only of these clients"
    )
    options.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only requests about these topics, or about none",
    )
    options.add_argument(
        "--with-records", action="store_true", help="keep keys, values and headers of records as they are"
    )
    options.add_argument(
        "--max-bytes",
        default=str(SIZE_MAX),
        metavar="SIZE",
        help=f"how large the file may become ({format_bytes(SIZE_MAX)}); then clients go on, unrecorded",
    )
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Record until it is ended. Returns the exit status."""
    options = parser()
    given = list(sys.argv[1:] if argv is None else argv)
    end = given.index("--") if "--" in given else len(given)
    arguments = options.parse_args(given[:end])
    arguments.command = given[end + 1 :]
    try:
        take_connection(arguments)
        arguments.at = ("127.0.0.1", 0)
        if arguments.listen is not None:
            arguments.at, *others = parse_addresses(arguments.listen, option="--listen")
            if others:
                raise ValueError(f"--listen {arguments.listen}: must be one HOST:PORT")
        arguments.size_max = parse_bytes(arguments.max_bytes)
    except ValueError as error:
        options.error(str(error))
    return run(PROG, _run(arguments))


class Recorder:
    """The file. It is written as requests come; nothing more once it is full."""

    def __init__(self, path: Path, head: Head, *, size_max: int) -> None:
        """Raises RecordingError: the file cannot be made, or is there already."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise RecordingError(f"cannot make {path}: {error.strerror}") from None
        self._path = path
        self._file = os.fdopen(descriptor, "wb")
        self._left = size_max
        self.requests = 0
        self.is_full = False
        self._write(head)

    def keep(self, event: Event) -> None:
        """Raises RecordingError: the disk does not take it."""
        if self.is_full:
            return
        self._write(event)
        if isinstance(event, Request) and not self.is_full:
            self.requests += 1

    def _write(self, line: Head | Event) -> None:
        data = msgspec.json.encode(line) + b"\n"
        if len(data) > self._left:
            self.is_full = True
            print(f"{PROG}: {self._path} is full (--max-bytes); clients go on, unrecorded", file=sys.stderr)
            return
        self._left -= len(data)
        try:
            self._file.write(data)
        except OSError as error:
            raise RecordingError(f"cannot write {self._path}: {error.strerror}") from None

    def close(self) -> None:
        """Raises RecordingError, as ``keep``. Idempotent."""
        try:
            self._file.close()
        except OSError as error:
            raise RecordingError(f"cannot write {self._path}: {error.strerror}") from None


async def _run(arguments: argparse.Namespace) -> int:
    async with AdminClient.of(arguments, CLIENT_ID) as admin:
        brokers = (await admin.nodes()).brokers
    first = brokers[min(brokers)]
    head = Head(FORMAT, VERSION, "kept" if arguments.with_records else "hidden", sorted(brokers))
    recorder = Recorder(arguments.file, head, size_max=arguments.size_max)
    try:
        async with _listening(arguments, Target(first.host, first.port), recorder) as (address, failed):
            status = await (_run_command if arguments.command else _wait)(arguments, address, failed)
    finally:
        recorder.close()
    print(f"{recorder.requests} requests in {arguments.file}", file=sys.stderr)
    return status


@contextlib.asynccontextmanager
async def _listening(
    arguments: argparse.Namespace, target: Target, recorder: Recorder
) -> AsyncIterator[tuple[str, asyncio.Future[None]]]:
    """The relay's address, and a future that gets the reason why the recording has failed."""
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def keep(event: Event) -> None:
        try:
            recorder.keep(event)
        except RecordingError as error:
            if not failed.done():
                failed.set_exception(error)

    host, port = arguments.at
    relay = Relay(
        host=host,
        security=arguments.security,
        timeout_ms=arguments.timeout_ms,
        chosen=Chosen(tuple(arguments.client_id), tuple(arguments.topic)),
        disguise=None if arguments.with_records else Disguise(),
        keep=keep,
        say=lambda text: print(f"{PROG}: {text}", file=sys.stderr),
    )
    try:
        try:
            port = await relay.listen(None, target, port=port)
        except OSError as error:
            raise RecordingError(f"cannot listen on {format_address(host, port)}: {error.strerror}") from None
        yield format_address(host, port), failed
    finally:
        await relay.close()


async def _wait(arguments: argparse.Namespace, address: str, failed: asyncio.Future[None]) -> int:
    print(f"Clients connect to {address}. Ctrl-C ends the recording.", flush=True)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    await _first(ended.wait(), failed)
    return OK


async def _run_command(arguments: argparse.Namespace, address: str, failed: asyncio.Future[None]) -> int:
    words = [each.replace(ADDRESS, address) for each in arguments.command]
    try:
        process = await asyncio.create_subprocess_exec(*words)
    except OSError as error:
        print(f"{PROG}: cannot run {words[0]}: {error.strerror}", file=sys.stderr)
        return FAILURE
    try:
        await _first(process.wait(), failed)
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    assert process.returncode is not None
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


async def _first(work, failed: asyncio.Future[None]) -> None:  # type: ignore[no-untyped-def]
    """Until ``work`` is done. Raises what ``failed`` has, sooner."""
    task = asyncio.ensure_future(work)
    await asyncio.wait((task, failed), return_when=asyncio.FIRST_COMPLETED)
    task.cancel()
    if failed.done():
        failed.result()


# The relay
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


if __name__ == "__main__":
    sys.exit(main())
