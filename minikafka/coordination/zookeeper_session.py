"""One session with ZooKeeper: a kazoo client, and the bridge between its thread and the event loop.

Kafka: the connection half of ``ZooKeeperClient``. ``ZooKeeperStore`` has one of these at a time; everything
here but what is marked happens on the loop.

What is asked of kazoo, and why:
- It runs on **one thread** (``_Handler``), which brings answers, watch events and changes of state to the
  loop in the order in which ZooKeeper sent them. With kazoo's own three threads an answer could overtake the
  event of the change that it shows. For the same reason events and changes of state wait (``_handing_over``)
  while the loop hands a request over: kazoo can be asked to tell of an answer only after the request left,
  and both the answer and an event of the watch that it sets may be there by then.
- It retries nothing but connecting. A request whose connection is lost fails.
- It never begins a **second session**. kazoo would, right after it has learned that the first has expired,
  and would send what is queued in the name of the new one. ``_Handler.over`` allows no further connection.
- It is handed ``REQUESTS_IN_FLIGHT_MAX`` requests at a time, the others wait here. kazoo is woken by a byte
  in a socket pair: some hundred unread bytes would block the loop.
- Each of those has a **deadline**. kazoo looks for a silent server only when it has nothing to send, so that
  steady requests to a frozen server would wait for ever. A request that is overdue cuts the connection.

A request that was handed over while kazoo was losing its connection may be carried out after the next one is
made, ahead of all later ones. Its caller has long been told ``ConnectionLossError``, which allows for that.

kazoo ends its thread at an answer that it does not understand. Then the session counts as expired, though
the server keeps it, and its ephemeral nodes, until its timeout.

**Calls as kazoo's and back**: paths below a chroot, transactions, answers, errors, sizes. Pure functions;
paths are valid. Kafka: ``ZooKeeperClient``'s requests and responses.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, assert_never

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss as KazooConnectionLoss
from kazoo.exceptions import SessionExpiredError as KazooSessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.hosts import collect_hosts
from kazoo.protocol.serialization import Create, SetData
from kazoo.protocol.states import EventType as KazooEventType
from kazoo.protocol.states import KazooState, KeeperState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from minikafka.coordination.paths import CONSUMERS, is_sensitive
from minikafka.coordination.store import (
    BadVersionError,
    CheckOp,
    ConnectionLossError,
    CreateOp,
    DeleteOp,
    EventType,
    InvalidNodeError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    NotEmptyError,
    Op,
    OpResult,
    SessionExpiredError,
    SessionState,
    SetOp,
    StoreError,
    StoreUnusableError,
    WatchEvent,
    parent_of,
    validate_path,
)
from minikafka.errors import ConfigError
from minikafka.named_tuple import NamedTuple

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")
_log = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 0xFFFFF
"""The server's default of ``jute.maxbuffer``: it closes a connection that sends a larger request."""
OP_OVERHEAD_BYTES = 60
"""What a ``create`` takes beside its path and its data: a header, lengths, flags, an access control list."""

_EPHEMERAL, _SEQUENTIAL = 1, 2

_TRANSIENT = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.ConnectionClosedError,
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.SessionMovedError,
    kazoo_errors.NotReadOnlyCallError,
    kazoo_errors.RequestTimeoutError,
    kazoo_errors.ThrottledOpError,
)
"""Not now, or not on this server: as good as a lost connection."""

_FINAL = {
    kazoo_errors.NoAuthError: "ZooKeeper's access control list forbids it",
    kazoo_errors.AuthFailedError: "ZooKeeper does not accept the login of zookeeper.sasl.jaas.config",
    kazoo_errors.InvalidACLError: "ZooKeeper does not know who we are, as zookeeper.set.acl needs",
    kazoo_errors.SessionClosedRequireSaslError: "ZooKeeper wants a login: set zookeeper.sasl.jaas.config",
    kazoo_errors.UnimplementedError: "ZooKeeper is older than 3.5",
}

REQUESTS_IN_FLIGHT_MAX = 10
"""Kafka's ``zookeeper.max.in.flight.requests``."""
RECONNECT_DELAY_MAX_MS = 1000
"""The longest pause between attempts to connect, as in ZooKeeper's Java client. kazoo's own is an hour."""
CLOSE_TIMEOUT_MS = 3000
"""How long a server that does not answer may hold up a broker that stops."""

_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.DISCONNECTED,
    KazooState.LOST: SessionState.EXPIRED,
}
_EVENTS = {
    KazooEventType.CREATED: EventType.NODE_CREATED,
    KazooEventType.DELETED: EventType.NODE_DELETED,
    KazooEventType.CHANGED: EventType.NODE_DATA_CHANGED,
    KazooEventType.CHILD: EventType.NODE_CHILDREN_CHANGED,
}


class Login(NamedTuple):
    """A user of ZooKeeper's, by SASL/DIGEST-MD5."""

    username: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.username})"


class ZooKeeperSecurity(NamedTuple):
    """How ZooKeeper is reached, and who may do what with the nodes that are made there."""

    tls_context: Callable[[], ssl.SSLContext] | None = None
    """Called for each connection, in a thread, so that new stores hold for the next. None: without TLS.
    Raises ConfigError."""
    login: Login | None = None
    sets_acl: bool = False

    def acl(self, path: str) -> list[ACL]:
        """Of a node that is made at ``path``, without the chroot (``ZkData.defaultAcls``)."""
        if not self.sets_acl or path == CONSUMERS:  # where consumers of old times write
            return OPEN_ACL_UNSAFE  # type: ignore[no-any-return]  # kazoo has no types
        return [*CREATOR_ALL_ACL, *(() if is_sensitive(path) else READ_ACL_UNSAFE)]


OPEN = ZooKeeperSecurity()
"""Without TLS and login, and nodes that any client may change."""


# Addresses and paths.
def parse_connect(connect: str) -> tuple[str, str]:
    """``host1:2181,host2:2181/chroot`` → the hosts, and the chroot (empty: none).

    Raises:
        StoreUnusableError: it is not of that form.
    """
    hosts, slash, chroot = connect.partition("/")
    try:
        for host, _ in collect_hosts(hosts)[0]:
            host.encode("idna")  # as the resolver will
        if chroot:
            validate_path(slash + chroot)
    except (ValueError, InvalidNodeError) as error:
        raise StoreUnusableError(
            f"{connect!r} is not host:port, several with commas, and at the end a /path or none ({error})"
        ) from error
    return hosts, slash + chroot if chroot else ""


def absolute(root: str, path: str, *, sequential: bool = False) -> str:
    """The path on the server. ``sequential``: its name may still be empty, and then its slash counts."""
    return path if not root else root if path == "/" and not sequential else root + path


def relative(root: str, path: str) -> str:
    return path.removeprefix(root) or "/"


# Requests.
def validate_size(root: str, ops: Sequence[Op]) -> None:
    """Raises InvalidNodeError: the server would not take the request."""
    size = 0
    for op in ops:
        size += OP_OVERHEAD_BYTES + len(root) + len(op.path.encode())
        if isinstance(op, CreateOp | SetOp):
            size += len(op.data)
    if size > REQUEST_BYTES_MAX:
        raise InvalidNodeError(
            f"{len(ops)} operations of together {size} bytes are more than ZooKeeper takes at once"
            f" ({REQUEST_BYTES_MAX}, its jute.maxbuffer)"
        )


def commit_async(client: KazooClient, root: str, ops: Sequence[Op], security: ZooKeeperSecurity) -> Any:
    """Start a transaction; kazoo's asynchronous result."""
    transaction = client.transaction()
    for op in ops:
        match op:
            case CreateOp(path, data, ephemeral, sequential):
                # Not by transaction.create, which takes away the slash at the end of a sequential node
                # without a name.
                flags = _EPHEMERAL * ephemeral | _SEQUENTIAL * sequential
                target = absolute(root, path, sequential=sequential)
                transaction.operations.append(Create(target, data or None, security.acl(path), flags))
            case SetOp(path, data, version):
                # Nor by transaction.set_data, which cannot take data away.
                transaction.operations.append(SetData(absolute(root, path), data or None, version))
            case DeleteOp(path, version):
                transaction.delete(absolute(root, path), version)
            case CheckOp(path, version):
                transaction.check(absolute(root, path), version)
            case _:
                assert_never(op)
    return transaction.commit_async()


# Answers.
def node_stat(stat: ZnodeStat) -> NodeStat:
    return NodeStat(
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        pzxid=stat.pzxid,
        created_ms=stat.ctime,
        modified_ms=stat.mtime,
        version=stat.version,
        cversion=stat.cversion,
        ephemeral_owner=stat.ephemeralOwner,
        data_length=stat.dataLength,
        num_children=stat.numChildren,
    )


def multi_results(root: str, ops: Sequence[Op], answers: Sequence[Any]) -> list[OpResult]:
    """Raises StoreError: what the first operation that failed is to raise."""
    innocent = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)  # undone, or never begun
    for index, (op, answer) in enumerate(zip(ops, answers, strict=True)):
        if isinstance(answer, Exception) and not isinstance(answer, innocent):
            error = store_error(answer, op)
            error.operation_index = index
            raise error
    results: list[OpResult] = []
    for op, answer in zip(ops, answers, strict=True):
        if isinstance(op, CreateOp):
            results.append(relative(root, answer))
        else:
            results.append(node_stat(answer) if isinstance(op, SetOp) else None)
    return results


def store_error(error: Exception, subject: Op | str) -> StoreError:
    """kazoo's error as ours. ``subject``: the operation, or the path, that it is about."""
    path = subject if isinstance(subject, str) else subject.path
    creates = isinstance(subject, CreateOp)
    match error:
        case kazoo_errors.NoNodeError() if creates:
            return NoNodeError(f"no node {parent_of(path)} to create {path} in")
        case kazoo_errors.NoNodeError():
            return NoNodeError(f"no node {path}")
        case kazoo_errors.NodeExistsError():
            return NodeExistsError(f"{path} exists")
        case kazoo_errors.BadVersionError():
            return BadVersionError(f"{path} does not have version {getattr(subject, 'version', None)}")
        case kazoo_errors.NotEmptyError():
            return NotEmptyError(f"{path} has children")
        case kazoo_errors.NoChildrenForEphemeralsError():
            return NoChildrenForEphemeralsError(f"{parent_of(path)} is ephemeral: cannot create {path}")
        case kazoo_errors.BadArgumentsError():
            return InvalidNodeError(f"ZooKeeper refuses the path {path}")
        case _ if isinstance(error, _TRANSIENT):  # before its base class, which is next
            return ConnectionLossError(f"{path}: ZooKeeper cannot be reached ({type(error).__name__})")
        case kazoo_errors.SessionExpiredError():
            return SessionExpiredError(f"{path}: the session has expired")
        case _ if type(error) in _FINAL:
            return StoreUnusableError(f"{path}: {_FINAL[type(error)]}")
        case _:
            return StoreError(f"{path}: ZooKeeper failed ({type(error).__name__})")


class ZooKeeperSession:
    """A session to be, alive, or over. ``start`` once, ``close`` once."""

    def __init__(
        self,
        hosts: str,
        *,
        timeout_ms: int,
        on_state: Callable[[ZooKeeperSession, SessionState], None],
        on_event: Callable[[ZooKeeperSession, WatchEvent], None],
        security: ZooKeeperSecurity = OPEN,
    ) -> None:
        """``hosts`` without a chroot; ``on_event`` is told of every watch that fires, with absolute paths."""
        self.id = 0
        self.connected = asyncio.Event()
        self._state: SessionState | None = None
        self._timeout_ms = timeout_ms
        self._on_state = on_state
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Request[Any]] = deque()  # bounded by those who await
        self._in_flight: dict[_Request[Any], None] = {}
        self._closed: asyncio.Future[None] | None = None
        self._handing_over = threading.RLock()  # a state may change on the loop too, when kazoo refuses
        self._log = _KazooLog(_log, {})
        self._handler = _Handler(timeout_ms / 1000 / len(hosts.split(",")), security)
        self.is_login_refused = False
        """Whether the session is over because ZooKeeper does not accept the login."""
        self._client = KazooClient(
            hosts=hosts,
            timeout=timeout_ms / 1000,
            handler=self._handler,
            connection_retry=KazooRetry(
                max_tries=-1, delay=0.1, max_delay=RECONNECT_DELAY_MAX_MS / 1000, max_jitter=0.4
            ),
            sasl_options=_sasl_options(security),
            logger=self._log,
        )
        self._client.add_listener(self._kazoo_changed)
        connection = self._client._connection
        connection._authenticate_with_sasl = _understood(connection._authenticate_with_sasl)

    def __repr__(self) -> str:
        state = "connected" if self.connected.is_set() else "not connected"
        return f"ZooKeeperSession({self.id}, {state}, in_flight={len(self._in_flight)})"

    @property
    def last_error(self) -> str:
        """Why the last attempt to connect failed, in kazoo's words."""
        return self._log.last_error

    @property
    def credentials(self) -> tuple[int, bytes] | None:
        """The session's id and password, while it is connected: a client that has them can take it over."""
        credentials: tuple[int, bytes] | None = self._client.client_id
        return credentials

    def start(self) -> None:
        """Begin to connect, and keep trying until ``close``. ``connected`` says when."""
        self._client.start_async()

    def call(
        self, send: Callable[[KazooClient], Any], receive: Callable[[Any], T], subject: Op | str
    ) -> asyncio.Future[T]:
        """Send a request after all earlier ones.

        ``send`` starts it, ``receive`` makes the result of its answer, at the moment when that arrives and
        before anything that arrives later, whether or not it is still awaited. ``subject`` is for
        messages.

        Raises (from the future):
            StoreError: what the server answers, ConnectionLossError or SessionExpiredError.
        """
        request = _Request(send, receive, subject, self._loop.create_future())
        if self._closed is not None or self._handler.over:
            request.give_up(SessionExpiredError(f"session {self.id} is over"))
        else:
            self._waiting.append(request)
            self._send_waiting()
        return request.future

    def drop_connection(self, reason: str) -> None:
        """Cut the connection; kazoo notices, fails what is in flight and reconnects."""
        _log.info("coordination session %d: cutting the connection to ZooKeeper: %s", self.id, reason)
        self._handler.shut_down_socket()

    def close(self) -> asyncio.Future[None]:
        """End the session on the server, if it can be reached, and let kazoo's thread end. Idempotent.

        The future resolves when that is done, or soon after ``CLOSE_TIMEOUT_MS``.
        """
        if self._closed is None:
            self._closed = self._loop.create_future()
            self._give_up(ConnectionLossError("the store is being closed"))
            if not self.connected.is_set():
                self._abandon()
            # kazoo waits for its thread, so another thread must. Not the loop's executor, which waits for its
            # threads at the end of the program: this one may hang on a server that does not answer.
            threading.Thread(target=self._stop_kazoo, name="close-zookeeper-session", daemon=True).start()
            patience = CLOSE_TIMEOUT_MS / 1000
            cut = self._loop.call_later(patience, self._abandon)
            end = self._loop.call_later(patience + 0.5, self._stopped)
            self._closed.add_done_callback(lambda future: cut.cancel())
            self._closed.add_done_callback(lambda future: end.cancel())
        return self._closed

    # Requests.

    def _send_waiting(self) -> None:
        # Without a connection kazoo would keep requests for the next one; these fail when the loop is told.
        while self._waiting and len(self._in_flight) < REQUESTS_IN_FLIGHT_MAX and self._client.connected:
            request = self._waiting.popleft()
            self._in_flight[request] = None
            # As long as kazoo lets the server be silent, and ZooKeeper's Java client.
            request.timer = self._loop.call_later(self._timeout_ms * 2 / 3000, self._overdue, request)
            with self._handing_over:
                request.send(self._client).rawlink(partial(self._post_answer, request))

    def _overdue(self, request: _Request[Any]) -> None:
        self.drop_connection(f"no answer within {self._timeout_ms * 2 // 3} ms")

    def _post_answer(self, request: _Request[Any], result: Any) -> None:
        """On kazoo's thread, or on the loop when kazoo refuses a request at once."""
        self._post(self._answered, request, result.exception, result.value)

    def _answered(self, request: _Request[Any], failure: Exception | None, value: Any) -> None:
        if request not in self._in_flight:
            return  # kazoo may fail a request twice
        del self._in_flight[request]
        if failure is None:
            request.resolve(value)
        else:
            error = store_error(failure, request.subject)
            request.give_up(error)
            if isinstance(error, SessionExpiredError):  # kazoo will learn of it when the server disconnects
                self._change_state(SessionState.EXPIRED)
            elif isinstance(failure, KazooConnectionLoss):  # kazoo tells those who wait before it tells all
                self._change_state(SessionState.DISCONNECTED)
        if self._closed is None:
            self._send_waiting()

    def _give_up(self, error: StoreError) -> None:
        """Fail all requests. Those in flight are kept until kazoo releases them."""
        waiting, self._waiting = self._waiting, deque()
        for request in (*self._in_flight, *waiting):
            request.give_up(error)

    # The state.

    def _kazoo_changed(self, state: str) -> None:
        """On kazoo's thread."""
        if state == KazooState.LOST:
            self._handler.over = True
            self.is_login_refused |= self._client.client_state == KeeperState.AUTH_FAILED
        credentials = self._client.client_id  # None unless connected
        with self._handing_over:
            self._post(self._told, _STATES[state], credentials[0] if credentials else None)

    def _told(self, state: SessionState, session_id: int | None) -> None:
        if state is SessionState.CONNECTED and session_id is not None:
            self.id = session_id
        self._change_state(state)

    def _change_state(self, state: SessionState) -> None:
        if state is self._state or self._state is SessionState.EXPIRED or self._closed is not None:
            return
        self._state = state
        match state:
            case SessionState.CONNECTED:
                self.connected.set()
            case SessionState.DISCONNECTED:
                self.connected.clear()
                self._give_up(
                    ConnectionLossError(f"the connection to ZooKeeper was lost ({self.last_error})")
                )
            case SessionState.EXPIRED:
                self.connected.clear()
                self._handler.over = True
                self._give_up(SessionExpiredError(f"session {self.id} has expired"))
        self._on_state(self, state)

    def watch_fired(self, event: WatchedEvent) -> None:
        """What kazoo is to call as a watch, on its thread. It also calls it when it forgets the watches."""
        if event.type in _EVENTS:
            with self._handing_over:
                self._post(self._on_event, self, WatchEvent(_EVENTS[event.type], event.path))

    # Ending, and the bridge.

    def _stop_kazoo(self) -> None:
        """On a thread of its own."""
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:  # noqa: BLE001 nothing depends on it any more
            _log.debug("closing a ZooKeeper session: %r", error)
        self._post(self._stopped)

    def _stopped(self) -> None:
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    def _abandon(self) -> None:
        """No connection any more, neither this one nor another."""
        self._handler.over = True
        self._handler.shut_down_socket()

    def _post(self, callback: Callable[..., object], *arguments: object) -> None:
        """From any thread. A loop that is closed needs no callback."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)


class _Request(Generic[T]):
    """One call: how it is sent, what becomes of its answer, and its waiter."""

    __slots__ = ("_given_up", "_receive", "future", "send", "subject", "timer")

    def __init__(
        self,
        send: Callable[[KazooClient], Any],
        receive: Callable[[Any], T],
        subject: Op | str,
        future: asyncio.Future[T],
    ) -> None:
        self.send = send
        self.subject = subject
        self.future = future
        self.timer: asyncio.TimerHandle | None = None
        self._receive = receive
        self._given_up = False

    def resolve(self, value: Any) -> None:
        if self._given_up:
            return
        try:
            result = self._receive(value)
        except StoreError as error:
            self.give_up(error)
            return
        self._finish()
        if not self.future.done():  # else its caller was cancelled
            self.future.set_result(result)

    def give_up(self, error: StoreError) -> None:
        if not self._given_up:
            self._finish()
            if not self.future.done():
                self.future.set_exception(error)

    def _finish(self) -> None:
        self._given_up = True
        if self.timer is not None:
            self.timer.cancel()


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Runs all of kazoo on the thread of its connection, and has a say in its sockets."""

    def __init__(self, connect_timeout: float, security: ZooKeeperSecurity) -> None:
        """``connect_timeout`` in seconds: kazoo would let one dead host use up the whole session."""
        super().__init__()
        self._tls_context = security.tls_context
        self.over = False
        self._connect_timeout = connect_timeout
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """No threads for callbacks: as a handler that is not running, results call back at once."""

    def stop(self) -> None:
        """Nothing was started."""

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        if self.over:
            raise KazooSessionExpiredError("this client has had its session")
        host = kwargs["hostname"]
        self._socket = super().create_connection(*args, **kwargs | {"timeout": self._connect_timeout})
        if self.over:
            self.shut_down_socket()
        if self._tls_context is not None:
            self._socket = self._with_tls(self._socket, self._tls_context, host)
        return self._socket

    def _with_tls(
        self, connection: socket.socket, context: Callable[[], ssl.SSLContext], host: str
    ) -> socket.socket:
        """kazoo's own TLS knows files of PEM only, and resolves the host again. Raises OSError."""
        connection.settimeout(self._connect_timeout)
        try:
            return context().wrap_socket(connection, server_hostname=host)
        except ConfigError as error:  # kazoo tries again after an OSError, and ends after others
            connection.close()
            raise OSError(str(error)) from None
        except OSError:
            connection.close()
            raise

    def select(self, read: Any, *args: Any, **kwargs: Any) -> Any:
        """Ready is also what OpenSSL has read and kazoo has not: no socket tells of that."""
        waiting = [each for each in read if getattr(each, "pending", int)()]
        return (waiting, [], []) if waiting else super().select(read, *args, **kwargs)

    def shut_down_socket(self) -> None:
        """From any thread."""
        connection = self._socket
        if connection is not None:
            with contextlib.suppress(OSError):  # it is not connected any more
                connection.shutdown(socket.SHUT_RDWR)


def _understood(log_in: Callable[[str, float], None]) -> Callable[[str, float], None]:
    """kazoo's login, with every refusal as the one after which kazoo ends the session; its thread would not
    survive the others."""

    def log_in_or_end(host: str, timeout_s: float) -> None:
        try:
            log_in(host, timeout_s)
        except (kazoo_errors.SessionClosedRequireSaslError, kazoo_errors.SASLException) as error:
            raise kazoo_errors.AuthFailedError(type(error).__name__) from None

    return log_in_or_end


def _sasl_options(security: ZooKeeperSecurity) -> dict[str, str] | None:
    if security.login is None:
        return None
    return {
        "mechanism": "DIGEST-MD5",
        "username": security.login.username,
        "password": security.login.password,
    }


class _KazooLog(logging.LoggerAdapter[logging.Logger]):
    """kazoo warns of each attempt to connect, ten a second. The store says it once; this keeps the reason."""

    last_error = "no attempt so far"

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if level == logging.WARNING and args:  # the warnings without arguments give no reason
            self.last_error = str(msg) % args
        if level < logging.ERROR:
            level = logging.DEBUG if level > logging.DEBUG else logging.DEBUG - 1
        super().log(level, msg, *args, **kwargs)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return f"kazoo: {msg}", kwargs
