"""Connections of a SASL listener, until they have proved who they are, and when they must do so again.

Kafka: ``SaslServerAuthenticator``, ``KafkaChannel`` (re-authentication), ``Selector`` (delayed close,
metrics); KIP-43, KIP-152, KIP-368.

A connection's handler is its ``SaslLogin`` at first. States::

    REQUEST ──ApiVersions──▶ HANDSHAKE
       └──────SaslHandshake──────┴──▶ AUTHENTICATE ──the mechanism's messages──▶ DONE
                                          ▲                                       │
                                          └──────SaslHandshake, again─────────────┘
    any of them ──▶ FAILED: answered after a pause, and closed

When DONE the dispatcher is the handler, and the data path pays nothing for all this: a timer hands the
connection over to ``_only_reauthentication`` when its session is over.

Invariants:
- Until DONE a frame has at most ``sasl.server.max.receive.size`` bytes, any request but the expected one ends
  the connection, and so does a login that takes longer than ``LOGIN_SECONDS_MAX`` in all.
- What may take long is done in a few threads, and no more than ``LOGINS_A_TURN`` steps of logins in a turn of
  the loop: clients that log in all at once delay the others by no more.
- Neither principal nor mechanism changes at a re-authentication.
- No message of a mechanism is in a log.

An unexpected request in the place of a SaslAuthenticate is answered with ILLEGAL_SASL_STATE, and the login
has failed; in the place of a SaslHandshake, or where it cannot be answered, the connection closes at once.

Where it differs from Kafka: a change of the mechanism is answered before the connection closes. An unexpected
request whose answer has no error at its top, such as Metadata, is not answered: clients would take the empty
answer for a cluster without brokers (aiokafka, which takes the first answer of OAUTHBEARER for the last one).
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Final, TypeVar

from minikafka.clock import Clock
from minikafka.errors import ErrorCode, KafkaError, PeerProtocolError
from minikafka.metrics.broker_stats import AuthenticationMetrics, RefusedKind
from minikafka.named_tuple import NamedTuple
from minikafka.network.connection import Connection, Handler, PendingResponse, Result
from minikafka.protocol.wire.api_versions import ANSWERED, ApiKey
from minikafka.protocol.wire.codec import (
    Body,
    RequestHeader,
    decode_request,
    encode_response,
    read_request_header,
)
from minikafka.security.acl import USER, KafkaPrincipal
from minikafka.security.sasl import SaslError, SaslServer, shown_name
from minikafka.server.requests import refusing_body
from minikafka.server.runtime.work_scheduler import WorkScheduler
from minikafka.steps import Steps
from minikafka.types import Buffer

T = TypeVar("T")

logger = logging.getLogger(__name__)

LOGIN_SECONDS_MAX: Final = 30
"""Of a connection from its beginning, with TLS from the end of the handshake, or of a re-authentication: as
long as clients wait for one answer (``request.timeout.ms``). In Kafka only ``connections.max.idle.ms`` ends
it."""

LOGINS_A_TURN: Final = 16
"""Steps of logins in one turn of the loop: at 0.1 ms each, 2 ms."""

LOGIN_THREADS: Final = 2
LOGINS_WAITING_MAX: Final = 4096
"""For a thread. A further connection is closed, and its client tries again."""

REAUTHENTICATION_PAUSE_MS: Final = 1000
"""``KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS``: what comes sooner is an illegal state."""

_SIZE = struct.Struct(">i")


class LoginTurns:
    """Bounds how many steps of logins are taken in a turn of the loop, on all listeners together."""

    def __init__(self) -> None:
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __repr__(self) -> str:
        return f"LoginTurns({self._taken} taken, {len(self._waiting)} waiting)"

    def wait(self) -> Steps[None]:
        """In steps: until it is our turn."""
        loop = asyncio.get_running_loop()
        if self._taken == LOGINS_A_TURN:
            turn = loop.create_future()
            self._waiting.append(turn)
            yield turn
            return
        if not self._taken:
            loop.call_soon(self._next_turn)
        self._taken += 1

    def _next_turn(self) -> None:
        self._taken = 0
        while self._waiting and self._taken < LOGINS_A_TURN:
            self._taken += 1
            self._waiting.popleft().set_result(None)
        if self._taken:
            asyncio.get_running_loop().call_soon(self._next_turn)


class LoginThreads:
    """Where keys are derived and signatures verified. The threads start on first use."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(LOGIN_THREADS, thread_name_prefix="minikafka-login")
        self._waiting = 0

    def __repr__(self) -> str:
        return f"LoginThreads({self._waiting} waiting)"

    def run(self, work: Callable[[], T]) -> Steps[T]:
        """In steps: what comes of ``work``.

        Raises:
            PeerProtocolError: too many wait already. Whatever ``work`` raises.
        """
        if self._waiting >= LOGINS_WAITING_MAX:
            raise PeerProtocolError(f"{self._waiting} logins are waiting already")
        self._waiting += 1
        done = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            yield done
            return done.result()
        finally:
            self._waiting -= 1
            del done  # else an error keeps itself until the garbage is collected

    def close(self) -> None:
        """Begin nothing more; what is under way is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class SaslSettings(NamedTuple):
    """What is configured for the logins of one listener."""

    mechanisms: Mapping[str, Callable[[], SaslServer]]
    """By name, those that are enabled, in the order of the configuration."""
    max_reauth_ms: Mapping[str, int]
    """By mechanism: how long a session lasts; 0: as long as its credentials."""
    receive_bytes_max: int
    failed_delay_ms: int


class SaslListener:
    """What the logins of a listener share. It is the ``Gate`` of that listener's connections."""

    def __init__(
        self,
        name: str,
        settings: SaslSettings,
        *,
        clock: Clock,
        scheduler: WorkScheduler,
        turns: LoginTurns,
        threads: LoginThreads,
        handler: Handler,
        request_bytes_max: int,
        counts: AuthenticationMetrics,
    ) -> None:
        """``handler`` gets the requests of those who have logged in, of up to ``request_bytes_max`` bytes."""
        self.name = name
        self.settings = settings
        """Replaced as a whole; logins that have begun keep their mechanism as it was."""
        self.clock = clock
        self.scheduler = scheduler
        self.turns = turns
        self.threads = threads
        self.handler = handler
        self.request_bytes_max = request_bytes_max
        self.counts = counts
        self._logins: dict[Connection, SaslLogin] = {}

    def __repr__(self) -> str:
        return f"SaslListener({self.name}, {len(self._logins)} connections)"

    def opened(self, connection: Connection) -> None:
        self._logins[connection] = login = SaslLogin(self, connection)
        connection.hand_over(login, frame_bytes_max=self.settings.receive_bytes_max, before_login=True)

    def closed(self, connection: Connection) -> None:
        login = self._logins.pop(connection, None)
        if login is not None:
            login.close()

    def login_of(self, connection: Connection) -> SaslLogin | None:
        """None for a connection of another listener."""
        return self._logins.get(connection)


class LoginState(Enum):
    """See the module header."""

    REQUEST = "waits for ApiVersions or SaslHandshake"
    HANDSHAKE = "waits for SaslHandshake"
    AUTHENTICATE = "authenticates"
    DONE = "authenticated"
    FAILED = "failed"


class _Session(NamedTuple):
    mechanism: str
    principal: KafkaPrincipal
    ends: bool
    """At some time, so that its client may authenticate again."""


class SaslLogin:
    """Of one connection. See the module header."""

    __slots__ = (
        "_began_ms", "_connection", "_has_headers", "_listener", "_loop", "_mechanism", "_server", "_session",
        "_session_timer", "_state", "_supports_reauth", "_timer",
    )  # fmt: skip

    def __init__(self, listener: SaslListener, connection: Connection) -> None:
        self._listener = listener
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._state = LoginState.REQUEST
        self._has_headers = False
        self._supports_reauth = False
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._session: _Session | None = None
        self._began_ms = 0
        self._session_timer: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(LOGIN_SECONDS_MAX, self._too_late)

    def __repr__(self) -> str:
        return f"SaslLogin({self._connection.peer}, {self._mechanism or 'no mechanism'}, {self._state.value})"

    @property
    def state(self) -> LoginState:
        return self._state

    def close(self) -> None:
        """The connection has closed."""
        self._cancel_timer()
        if self._session_timer is not None:
            self._session_timer.cancel()
        self._server = None

    def __call__(self, connection: Connection, frame: Buffer) -> Result:
        """The ``Handler`` of the connection until it is authenticated.

        Raises:
            PeerProtocolError: the connection must close, and why.
        """
        if self._state in (LoginState.REQUEST, LoginState.HANDSHAKE):
            header = read_request_header(frame)
            if header.api_key == ApiKey.API_VERSIONS:
                return self._api_versions(header, frame)
        return self._listener.scheduler.run(self._serve(frame))

    def reauthenticate(self, header: RequestHeader, mechanism: str) -> Steps[Result]:
        """In steps: the answer to a SaslHandshake on a connection that is authenticated; None when it may not
        be authenticated again, or not yet."""
        session, now_ms = self._session, self._listener.clock.monotonic_ms()
        if self._state is not LoginState.DONE or session is None or not session.ends:
            return None
        if self._began_ms and now_ms - self._began_ms < REAUTHENTICATION_PAUSE_MS:
            return None
        self._began_ms = now_ms
        self._timer = self._loop.call_later(LOGIN_SECONDS_MAX, self._too_late)
        self._connection.hand_over(self, frame_bytes_max=self._listener.settings.receive_bytes_max)
        return (yield from self._handshake(header, mechanism))

    # Requests

    def _api_versions(self, header: RequestHeader, frame: Buffer) -> Result:
        if self._state is LoginState.HANDSHAKE:
            raise PeerProtocolError("a second ApiVersions request during SASL authentication")
        versions = ANSWERED[ApiKey.API_VERSIONS]
        if versions.min <= header.api_version <= versions.max:
            self._state = LoginState.HANDSHAKE
        return self._listener.handler(self._connection, frame)

    def _serve(self, frame: Buffer) -> Steps[Result]:
        yield from self._listener.turns.wait()
        if self._connection.is_closing or self._state is LoginState.FAILED:
            return None
        if self._state is LoginState.AUTHENTICATE and not self._has_headers:
            return (yield from self._authenticate(None, bytes(frame)))
        header = read_request_header(frame)
        if self._state is LoginState.AUTHENTICATE:
            if header.api_key != ApiKey.SASL_AUTHENTICATE:
                return (yield from self._refuse_other(header, frame))
        elif header.api_key != ApiKey.SASL_HANDSHAKE:
            raise PeerProtocolError(
                f"a request of api key {header.api_key} when SASL_HANDSHAKE is due: the client has another "
                "security protocol, or is none of Kafka's"
            )
        _check_version(header)
        request = yield from decode_request(header, frame)
        if self._state is LoginState.AUTHENTICATE:
            return (yield from self._authenticate(header, bytes(request.auth_bytes)))
        return (yield from self._handshake(header, request.mechanism))

    def _refuse_other(self, header: RequestHeader, frame: Buffer) -> Steps[PendingResponse]:
        """Where a SaslAuthenticate is due. Raises PeerProtocolError: it cannot be answered."""
        if header.api_key not in ANSWERED:
            raise PeerProtocolError(f"a request of api key {header.api_key} when SASL_AUTHENTICATE is due")
        key = ApiKey(header.api_key)
        reason = f"Unexpected Kafka request of type {key.name} during SASL authentication."
        if key is ApiKey.API_VERSIONS and header.api_version > ANSWERED[key].max:
            refused = self._listener.handler(self._connection, frame)  # which has an answer to any version
            if not isinstance(refused, tuple):
                raise PeerProtocolError(reason)
            return self._fail(refused, reason)
        _check_version(header)
        yield from decode_request(header, frame)
        body = refusing_body(key, header.api_version, KafkaError(ErrorCode.ILLEGAL_SASL_STATE, reason))
        if "error_code" not in body:
            raise PeerProtocolError(reason)
        return self._fail((yield from _encoded(header, body)), reason)

    def _handshake(self, header: RequestHeader, mechanism: str) -> Steps[Result]:
        mechanisms = self._listener.settings.mechanisms
        make_server = mechanisms.get(mechanism)
        error = ErrorCode.NONE if make_server is not None else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        answer = yield from _encoded(header, {"error_code": error, "mechanisms": list(mechanisms)})
        if make_server is None:
            return self._fail(answer, f"Unsupported SASL mechanism {shown_name(mechanism)}")
        self._mechanism = mechanism
        self._server = make_server()
        self._has_headers = header.api_version >= 1
        self._state = LoginState.AUTHENTICATE
        return answer

    def _authenticate(self, header: RequestHeader | None, message: bytes) -> Steps[Result]:
        """``header`` is None for a message that stands alone, without a request around it."""
        server = self._server
        assert server is not None
        if header is not None and header.api_version > 0:
            self._supports_reauth = True
        try:
            self._check_mechanism()
            if server.may_take_long(message):
                answer = yield from self._listener.threads.run(lambda: server.evaluate(message))
            else:
                answer = server.evaluate(message)
            lifetime_ms = self._finish(server) if server.is_complete else 0
        except SaslError as error:
            return (yield from self._refuse(header, error))
        if header is None:
            return (_SIZE.pack(len(answer)) + answer,)
        body: Body = {
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "auth_bytes": answer,
            "session_lifetime": lifetime_ms,
        }
        return (yield from _encoded(header, body))

    def _check_mechanism(self) -> None:
        if self._session is not None and self._session.mechanism != self._mechanism:
            reason = (
                f"SASL mechanism '{self._mechanism}' requested by client is not supported for "
                f"re-authentication of mechanism '{self._session.mechanism}'"
            )
            raise SaslError(reason, told=reason)

    # The ends

    def _finish(self, server: SaslServer) -> int:
        """It has proved who it is. Returns for how long that holds, in ms; 0: for as long as it likes.

        Raises:
            SaslError: it is another principal than before.
        """
        connection, listener, before = self._connection, self._listener, self._session
        principal = KafkaPrincipal(USER, server.authorization_id, server.token_id)
        if before is not None and before.principal[:2] != principal[:2]:
            reason = (
                f"Cannot change principals during re-authentication from {before.principal.type}."
                f"{before.principal.name}: {principal.type}.{principal.name}"
            )
            raise SaslError(reason, told=reason)
        lifetimes_ms = []
        if max_reauth_ms := listener.settings.max_reauth_ms.get(self._mechanism, 0):
            lifetimes_ms.append(max_reauth_ms)
        if server.expires_at_ms is not None:
            lifetimes_ms.append(max(0, server.expires_at_ms - listener.clock.now_ms()))
        self._server = None
        self._state = LoginState.DONE
        self._session = _Session(self._mechanism, principal, ends=bool(lifetimes_ms))
        self._cancel_timer()
        if self._session_timer is not None:
            self._session_timer.cancel()
            self._session_timer = None
        if connection.is_closing:
            return 0
        if lifetimes_ms:
            self._session_timer = self._loop.call_later(min(lifetimes_ms) / 1000, self._session_ended)
        counts = listener.counts
        if before is not None:
            counts.successful_reauthentication += 1
        else:
            counts.successful += 1
            if lifetimes_ms and not self._supports_reauth:
                counts.no_reauth += 1
        logger.debug("%s is %s, by %s", connection.id, principal, self._mechanism)
        connection.principal = principal
        connection.hand_over(listener.handler, frame_bytes_max=listener.request_bytes_max)
        return min(lifetimes_ms, default=0)

    def _refuse(self, header: RequestHeader | None, error: SaslError) -> Steps[Result]:
        if header is None:
            return self._fail((), error.reason)
        what = "authentication" if self._session is None else "re-authentication"
        told = error.told or (
            f"Authentication failed during {what} due to invalid credentials with SASL mechanism "
            f"{self._mechanism}"
        )
        body: Body = {
            "error_code": ErrorCode.SASL_AUTHENTICATION_FAILED,
            "error_message": told,
            "auth_bytes": b"",
        }
        return self._fail((yield from _encoded(header, body)), error.reason)

    def _fail(self, answer: tuple[bytes, ...], reason: str) -> PendingResponse:
        """The answer leaves after ``connection.failed.authentication.delay.ms``, and the connection closes:
        who tries passwords can try few."""
        connection, listener = self._connection, self._listener
        self._state = LoginState.FAILED
        self._server = None
        self._cancel_timer()
        if self._session is None:
            listener.counts.failed += 1
        else:
            listener.counts.failed_reauthentication += 1
        listener.counts.refusals.note(
            RefusedKind.LOGIN,
            listener.name,
            ErrorCode.SASL_AUTHENTICATION_FAILED.name,
            reason,
            host=connection.peer_host,
            now_ms=listener.clock.now_ms(),
        )
        logger.info(
            "failed %s of %s (%s) on %s: %s",
            "authentication" if self._session is None else "re-authentication",
            connection.peer,
            connection.id,
            listener.name,
            reason,
        )
        connection.mute()
        pending = PendingResponse()

        def end() -> None:
            if pending.is_waiting:
                pending.complete(answer)
            connection.close()

        self._timer = self._loop.call_later(listener.settings.failed_delay_ms / 1000, end)
        return pending

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        connection = self._connection
        logger.info(
            "closing the connection from %s (%s): its authentication has taken %d s",
            connection.peer,
            connection.id,
            LOGIN_SECONDS_MAX,
        )
        connection.abort()

    # After the session

    def _session_ended(self) -> None:
        self._session_timer = None
        if self._state is LoginState.DONE:
            self._connection.hand_over(
                self._only_reauthentication, frame_bytes_max=self._listener.settings.receive_bytes_max
            )

    def _only_reauthentication(self, connection: Connection, frame: Buffer) -> Result:
        header = read_request_header(frame)
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            _check_version(header)
            return self._listener.scheduler.run(self._reauthenticate_late(header, frame))
        self._kill(header)
        return None

    def _reauthenticate_late(self, header: RequestHeader, frame: Buffer) -> Steps[Result]:
        request = yield from decode_request(header, frame)
        answer = yield from self.reauthenticate(header, request.mechanism)
        if answer is None:
            self._kill(header)
        return answer

    def _kill(self, header: RequestHeader) -> None:
        connection, session = self._connection, self._session
        assert session is not None
        self._listener.counts.expired_killed += 1
        logger.info(
            "closing the connection from %s (%s): the session of %s is over, and it sends a request of api "
            "key %d",
            connection.peer,
            connection.id,
            session.principal,
            header.api_key,
        )
        connection.close()


def _check_version(header: RequestHeader) -> None:
    key = ApiKey(header.api_key)
    versions = ANSWERED[key]
    if not versions.min <= header.api_version <= versions.max:
        raise PeerProtocolError(f"UNSUPPORTED_VERSION: {key.name} version {header.api_version}")


def _encoded(header: RequestHeader, body: Body) -> Steps[tuple[bytes, ...]]:
    response = yield from encode_response(
        api_key=header.api_key,
        api_version=header.api_version,
        correlation_id=header.correlation_id,
        body=body,
    )
    return (response,)
