"""The client side of one connection to a broker: pipelined requests, each with a deadline.

Kafka: ``NetworkClient``, ``InFlightRequests``, ``NodeApiVersions`` (KIP-35, KIP-511). For the command line,
other people's tests, replica fetchers and controller channels. One of these is one connection: a caller that
wants to reconnect makes a new one, at its own pace.

Invariants:
- Requests leave in the order of the calls to ``request``; a broker answers in that order, and a response
  whose correlation id is not the oldest one's ends the connection.
- Every wait ends: with the answer, at its deadline, or when the connection is lost. A loss fails everyone who
  waits, with one reason that names the broker.
- At most ``in_flight_max`` requests are under way, and none is written while the broker does not read; the
  others wait in line, up to their deadlines.
- A request that is not answered in time ends the connection, as in Kafka: nothing behind it can be answered
  earlier. A *cancelled* request does not; its answer is dropped when it comes.
- A session that ends at some time (KIP-368) is renewed before that, by the first request which is made when
  it is due. Requests that were sent before are answered meanwhile; later ones wait in line.
"""

from __future__ import annotations

import asyncio
import logging
import ssl  # which asyncio has loaded
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Self, cast

from minikafka import __version__
from minikafka.errors import ErrorCode, KafkaError, MinikafkaError, PeerProtocolError
from minikafka.named_tuple import NamedTuple
from minikafka.network.addresses import format_address
from minikafka.network.frame_reader import FrameReader
from minikafka.protocol.wire.api_versions import OWN_SOFTWARE, SUPPORTED, ApiKey, VersionRange
from minikafka.protocol.wire.codec import AnyBody, decode_response, encode_request
from minikafka.types import Buffer

if TYPE_CHECKING:
    from minikafka.network.client_security import ClientSecurity

logger = logging.getLogger(__name__)

IN_FLIGHT_MAX = 100
"""Java's 5 (max.in.flight.requests.per.connection) bounds what a retry may reorder; here nothing is retried,
so the bound only has to keep a broker busy and memory small."""

RESPONSE_BYTES_MAX = 256 * 1024 * 1024
"""A Fetch may exceed its 50 MiB by one batch; anything near this is not a Kafka broker."""

CLOSED_BY_BROKER = "the broker closed the connection"
OTHER_PROTOCOL = "does its listener have another security.protocol?"

TOPICS_NAMED_UNTIL: Final[Mapping[int, int]] = {
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.TXN_OFFSET_COMMIT: 5,
}
"""The last versions with names: who asks for a group's offsets by hand knows no ids. Java's admin client
stops there, too (``OffsetCommitRequest.Builder.forTopicNames``)."""

_UNSUPPORTED_VERSION = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


class BrokerUnavailable(MinikafkaError):
    """There is no connection to the broker, or no longer; names the broker and says why."""


class BrokerTimeout(BrokerUnavailable):
    """The broker did not answer in time."""


class AuthenticationFailed(BrokerUnavailable):
    """The broker does not accept who we are, or is not who it should be. Asking again does not help."""


class _InFlight(NamedTuple):
    correlation_id: int
    api_key: int
    version: int
    answer: asyncio.Future[Any]


class BrokerClient(asyncio.Protocol):
    """One connection; made by ``connect``, ended by ``close`` or by the broker. Belongs to one event loop."""

    def __init__(
        self, host: str, port: int, *, client_id: str | None, in_flight_max: int, response_bytes_max: int
    ) -> None:
        self._address = format_address(host, port)
        self._client_id = client_id
        self._in_flight_max = in_flight_max
        self._reader = FrameReader(frame_bytes_max=response_bytes_max, keeps_buffer=True)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._lost: str | None = None  # why there is no connection any more
        self._failure_type: type[BrokerUnavailable] = BrokerUnavailable
        self._in_flight: deque[_InFlight] = deque()
        self._in_line: deque[asyncio.Future[None]] = deque()
        self._granted = 0  # turns given to tasks that have not run since
        self._is_paused = False
        self._security: ClientSecurity | None = None
        self._is_login_due = False
        self._login: asyncio.Task[None] | None = None  # the one of a session that ends soon
        self._due: asyncio.TimerHandle | None = None
        self._next_correlation_id = 0
        self.api_versions: Mapping[int, VersionRange] = {}
        """What the broker speaks, by api key."""

    def __repr__(self) -> str:
        state = f"closed: {self._lost}" if self._lost else f"{len(self._in_flight)} in flight"
        return f"BrokerClient({self._address}, {state})"

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        client_id: str | None,
        deadline_ms: int,
        security: ClientSecurity | None = None,
        in_flight_max: int = IN_FLIGHT_MAX,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
    ) -> Self:
        """Connect, learn the broker's versions and log in, within ``deadline_ms`` from now. ``security`` is
        None for a listener with neither TLS nor SASL.

        Raises:
            AuthenticationFailed: the broker does not accept us, or we its certificate.
            BrokerUnavailable: nothing listens there, it does not answer, or it does not speak Kafka.
            ConfigError: a store of ``security`` cannot be read.
        """
        client = cls(
            host,
            port,
            client_id=client_id,
            in_flight_max=in_flight_max,
            response_bytes_max=response_bytes_max,
        )
        loop = asyncio.get_running_loop()
        deadline = loop.time() + deadline_ms / 1000
        try:
            async with asyncio.timeout_at(deadline):
                if security is None or security.tls_context is None:
                    await loop.create_connection(lambda: client, host, port)
                else:
                    context = await security.tls_context()
                    await loop.create_connection(
                        lambda: client, host, port, ssl=context, server_hostname=host
                    )
        except TimeoutError:
            raise BrokerTimeout(f"broker {client._address}: no connection within {deadline_ms} ms") from None
        except OSError as error:
            if security is not None and security.tls_context is not None:
                raise _handshake_failure(client._address, error) from error
            raise BrokerUnavailable(
                f"broker {client._address}: cannot connect: {error.strerror or error}"
            ) from error
        try:
            await client._negotiate(deadline)
            if security is not None and security.login is not None:
                client._security = security
                await client._log_in(deadline)
        except BaseException as error:
            lost = client._lost
            await client.close()
            if lost == CLOSED_BY_BROKER and type(error) is BrokerUnavailable:
                raise BrokerUnavailable(f"{error} before it answered ({OTHER_PROTOCOL})") from None
            raise
        return client

    @property
    def is_connected(self) -> bool:
        return self._lost is None

    def version_of(self, api_key: int) -> int:
        """The highest version of an API that both sides speak, and in which topics have names.

        Raises:
            KafkaError: UNSUPPORTED_VERSION, there is none.
        """
        ours = SUPPORTED.get(cast(ApiKey, api_key))
        theirs = self.api_versions.get(api_key)
        if ours is None or theirs is None or not theirs.min <= ours.max or not ours.min <= theirs.max:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{_api_name(api_key)}: broker {self._address} speaks {_range(theirs)}, "
                f"this client {_range(ours)}",
            )
        return min(ours.max, theirs.max, TOPICS_NAMED_UNTIL.get(api_key, ours.max))

    async def request(
        self, api_key: int, body: AnyBody, *, deadline_ms: int, version: int | None = None
    ) -> Any:
        """Send a request and wait for its response, at most ``deadline_ms``. Returns the response's entity.

        ``version`` is the highest common one unless given; a given one is sent as it is.

        Raises:
            KafkaError: UNSUPPORTED_VERSION, no common version.
            BrokerTimeout: not answered in time; the connection is closed.
            BrokerUnavailable: the connection is lost.
        """
        if version is None:
            version = self.version_of(api_key)
        deadline = self._loop.time() + deadline_ms / 1000
        return await self._request(api_key, version, body, deadline)

    async def send(
        self, api_key: int, body: AnyBody, *, deadline_ms: int, version: int | None = None
    ) -> None:
        """Send a request that a broker does not answer (Produce with acks=0). Raises as ``request``."""
        if version is None:
            version = self.version_of(api_key)
        await self._turn(self._loop.time() + deadline_ms / 1000)
        self._write(api_key, version, body)

    async def close(self) -> None:
        """Drop the connection; those who wait fail. Idempotent."""
        self._end("closed by this client")
        if self._login is not None:
            self._login.cancel()
        if self._transport is not None:
            await asyncio.shield(self._closed)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._lost is not None:  # given up while it was being made
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError):  # TLS 1.3 refuses a client's certificate after the handshake
            from minikafka.security.tls import reason_of  # which is loaded: it has made the context

            self._end(f"TLS failed: {reason_of(exc)}", failure=AuthenticationFailed)
        self._end(f"the connection broke: {exc}" if exc is not None else CLOSED_BY_BROKER)
        if not self._closed.done():
            self._closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._answered(frame)
            if self._reader.error is not None:
                raise self._reader.error
        except PeerProtocolError as error:
            logger.warning("closing the connection to broker %s: %s", self._address, error)
            self._end(f"it does not speak the protocol: {error}")

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._next_in_line()

    # Requests

    async def _request(
        self, api_key: int, version: int, body: AnyBody, deadline: float, *, is_of_login: bool = False
    ) -> Any:
        started = self._loop.time()
        if not is_of_login:
            await self._turn(deadline)
        elif self._lost is not None:
            raise self._failure(self._lost)
        correlation_id = self._write(api_key, version, body)
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._in_flight.append(_InFlight(correlation_id, api_key, version, answer))
        # Not asyncio.timeout: one timer and no cancellation, for each request of each follower.
        overdue = self._loop.call_at(deadline, self._overdue, answer, api_key, started)
        try:
            return await answer
        finally:
            overdue.cancel()

    def _overdue(self, answer: asyncio.Future[Any], api_key: int, started: float) -> None:
        if not answer.done():
            waited_ms = round((self._loop.time() - started) * 1000)
            reason = f"{_api_name(api_key)} was not answered within {waited_ms} ms"
            answer.set_exception(BrokerTimeout(f"broker {self._address}: {reason}"))
            self._end(reason)

    async def _turn(self, deadline: float) -> None:
        """Wait until a request may be written: first come first served, and not past the deadline."""
        if self._lost is None and (self._in_line or self._granted or not self._may_write()):
            if self._is_login_due and self._login is None:
                self._login = self._loop.create_task(self._log_in_again(deadline), name="log in again")
            turn: asyncio.Future[None] = self._loop.create_future()
            self._in_line.append(turn)
            try:
                async with asyncio.timeout_at(deadline):
                    await turn
            except TimeoutError:
                raise BrokerTimeout(
                    f"broker {self._address}: no turn in time, {len(self._in_flight)} requests are in flight"
                ) from None
            finally:
                if turn in self._in_line:
                    self._in_line.remove(turn)
                elif turn.done() and not turn.cancelled():
                    self._granted -= 1  # the caller writes in this very step, or never
                    self._loop.call_soon(self._next_in_line)
        if self._lost is not None:
            raise self._failure(self._lost)

    def _may_write(self) -> bool:
        return (
            len(self._in_flight) + self._granted < self._in_flight_max
            and not self._is_paused
            and not self._is_login_due
        )

    def _next_in_line(self) -> None:
        """Give out the turns there are, in order; each holds its place until its owner has run."""
        while self._in_line and self._may_write():
            turn = self._in_line.popleft()
            if not turn.done():
                self._granted += 1
                turn.set_result(None)

    def _write(self, api_key: int, version: int, body: AnyBody) -> int:
        correlation_id = self._next_correlation_id
        frame = encode_request(
            api_key=api_key,
            api_version=version,
            correlation_id=correlation_id,
            client_id=self._client_id,
            body=body,
        )
        self._next_correlation_id = (correlation_id + 1) & 0x7FFF_FFFF
        assert self._transport is not None
        self._transport.write(frame)
        return correlation_id

    def _answered(self, frame: Buffer) -> None:
        if not self._in_flight:
            raise PeerProtocolError("a response to no request")
        request = self._in_flight[0]
        version = request.version
        if request.api_key == ApiKey.API_VERSIONS and frame[4:6] == _UNSUPPORTED_VERSION:
            version = 0  # KIP-511: how a broker answers a version that it does not know
        correlation_id, entity = decode_response(api_key=request.api_key, api_version=version, frame=frame)
        if correlation_id != request.correlation_id:
            raise PeerProtocolError(
                f"a response with correlation id {correlation_id} where {request.correlation_id} is due"
            )
        self._in_flight.popleft()
        if not request.answer.done():
            request.answer.set_result(entity)
        self._next_in_line()

    async def _negotiate(self, deadline: float) -> None:
        """ApiVersions in our highest version; a broker that does not know it says which it does (KIP-511)."""
        key = ApiKey.API_VERSIONS
        ours = SUPPORTED[key]
        body = {"client_software_name": OWN_SOFTWARE, "client_software_version": __version__}
        answer = await self._request(key, ours.max, body, deadline)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            theirs = _ranges(answer).get(key, VersionRange(0, 0))
            answer = await self._request(key, max(ours.min, min(ours.max, theirs.max)), body, deadline)
        if answer.error_code != ErrorCode.NONE:
            raise BrokerUnavailable(
                f"broker {self._address}: ApiVersions answers {ErrorCode(answer.error_code).name}"
            )
        self.api_versions = _ranges(answer)

    async def _log_in(self, deadline: float) -> None:
        """Prove who we are. Raises AuthenticationFailed, BrokerUnavailable, ConfigError."""
        from minikafka.network import client_security  # which an open cluster never needs

        assert self._security is not None and self._security.login is not None
        login = self._security.login

        async def ask(api_key: ApiKey, body: Mapping[str, Any]) -> Any:
            version = self.version_of(api_key)
            if api_key is ApiKey.SASL_HANDSHAKE and version < client_security.HANDSHAKE_VERSION:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION, f"broker {self._address} speaks no SaslAuthenticate"
                )
            return await self._request(api_key, version, body, deadline, is_of_login=True)

        try:
            async with asyncio.timeout_at(deadline):
                lifetime_ms = await login(ask)
        except (client_security.LoginRefused, KafkaError) as error:
            raise AuthenticationFailed(f"broker {self._address}: authentication failed: {error}") from None
        except TimeoutError:
            raise BrokerTimeout(f"broker {self._address}: the login did not end in time") from None
        if lifetime_ms > 0:
            after_ms = client_security.reauthenticate_after_ms(lifetime_ms)
            self._due = self._loop.call_later(after_ms / 1000, self._login_is_due)

    def _login_is_due(self) -> None:
        self._is_login_due = True

    async def _log_in_again(self, deadline: float) -> None:
        try:
            await self._log_in(deadline)
        except (MinikafkaError, OSError) as error:
            logger.warning("broker %s: the session cannot be renewed: %s", self._address, error)
            refused = isinstance(error, AuthenticationFailed)
            self._end(
                f"the session cannot be renewed: {error}",
                failure=AuthenticationFailed if refused else BrokerUnavailable,
            )
        else:
            self._is_login_due = False
            self._next_in_line()
        finally:
            self._login = None

    def _failure(self, reason: str) -> BrokerUnavailable:
        return self._failure_type(f"broker {self._address}: {reason}")

    def _end(self, reason: str, *, failure: type[BrokerUnavailable] = BrokerUnavailable) -> None:
        if self._lost is not None:
            return
        self._lost, self._failure_type = reason, failure
        if self._due is not None:
            self._due.cancel()
        in_flight, self._in_flight = self._in_flight, deque()
        for request in in_flight:
            if not request.answer.done():
                request.answer.set_exception(self._failure(reason))
        in_line, self._in_line = self._in_line, deque()
        for turn in in_line:
            if not turn.done():
                self._granted += 1
                turn.set_result(None)  # it looks at ``_lost`` itself
        if self._transport is not None:
            self._transport.abort()


def _handshake_failure(address: str, error: OSError) -> BrokerUnavailable:
    """Why there is no connection with TLS: no broker, one without TLS, or a certificate that is refused."""
    if not isinstance(error, ssl.SSLError):
        why = error.strerror or str(error) or f"{CLOSED_BY_BROKER} ({OTHER_PROTOCOL})"
        return BrokerUnavailable(f"broker {address}: cannot connect with TLS: {why}")
    from minikafka.security.tls import reason_of  # which is loaded: it has made the context

    hint = ""
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = "; ssl.truststore.location says whom to trust"
    elif error.reason == "WRONG_VERSION_NUMBER":
        hint = f" ({OTHER_PROTOCOL})"
    return AuthenticationFailed(f"broker {address}: TLS failed: {reason_of(error)}{hint}")


def _ranges(answer: Any) -> dict[int, VersionRange]:
    return {int(api.api_key): VersionRange(api.min_version, api.max_version) for api in answer.api_keys}


def _range(versions: VersionRange | None) -> str:
    return "no version" if versions is None else f"{versions.min} to {versions.max}"


def _api_name(api_key: int) -> str:
    try:
        return ApiKey(api_key).name
    except ValueError:
        return f"api key {api_key}"
