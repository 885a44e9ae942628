"""The store of a cluster on several machines: a ZooKeeper ensemble, version 3.5 or newer, through kazoo.

Kafka: ``KafkaZkClient`` over ``ZooKeeperClient``. A session is a ``ZooKeeperSession``, which owns a kazoo
client and its thread; here are the calls, the states and the watches, all on the event loop. kazoo is the
extra ``zookeeper``; without it this module cannot be imported.

After a connection was lost and made again the store is CONNECTED only when all watches are set again and have
told what they missed (``SessionWatches``): so here, too, a client is told before it sees.

Not as in the other engines:
- A client that is cut off learns that its session has expired when it reaches a server again, which may be
  much later. Until then it is DISCONNECTED. Its writes reach no server meanwhile.
- An operation that is none (``InvalidNodeError``) fails a ``multi`` before anything is sent, even when an
  earlier one would have failed too.
- A ``multi`` has a limit: ``jute.maxbuffer`` of the server, of which its default is assumed. One that is too
  large is an ``InvalidNodeError`` too.
- A read is answered by the server that the client is connected to, and may lag behind what others wrote
  through another server. A caller that depends on what it read writes with its version.
- A node without data has none at all in ZooKeeper, as Kafka makes it, not data of no bytes.
- ``session_timeout_ms`` is what was asked for; the server keeps it between 2 and 20 of its ticks.

How it is reached, and who may change the nodes, is a ``ZooKeeperSecurity``, made of a broker's properties
(Kafka: ``KafkaServer.zkClientConfigFromKafkaConfig``; of the JAAS section ``Client`` there is the property
``zookeeper.sasl.jaas.config``). As in Kafka nodes that are there already keep their access control lists.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from minikafka.config.broker import BrokerConfig
from minikafka.config.security import PropertyNames
from minikafka.coordination.store import (
    ANY_VERSION,
    ConnectionLossError,
    Created,
    CreateOp,
    DeleteOp,
    EventType,
    Node,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    Op,
    OpResult,
    SessionEvent,
    SessionExpiredError,
    SessionListener,
    SessionState,
    SetOp,
    StoreError,
    StoreUnusableError,
    Watch,
    WatchEvent,
    WatchTable,
    parent_of,
    validate_op,
    validate_path,
)
from minikafka.coordination.zookeeper_session import (
    OPEN,
    Login,
    ZooKeeperSecurity,
    ZooKeeperSession,
    absolute,
    commit_async,
    multi_results,
    node_stat,
    parse_connect,
    relative,
    validate_size,
)
from minikafka.errors import ConfigError
from minikafka.security.jaas import parse_jaas
from minikafka.security.tls_settings import TlsSettings, client_tls_settings

if TYPE_CHECKING:
    import ssl

_log = logging.getLogger(__name__)

SESSION_TIMEOUT_MS = 18_000
"""Kafka's ``zookeeper.session.timeout.ms``."""

DIGEST_LOGIN_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
_TYPES = {".pem": "PEM", ".p12": "PKCS12", ".pfx": "PKCS12"}
"""ZooKeeper's ``KeyStoreFileType.fromFilename``; others are JKS."""


class ZooKeeperStore:
    """A client of an ensemble. Use ``ZooKeeperStore.open``."""

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        connection_timeout_ms: int | None = None,
        security: ZooKeeperSecurity = OPEN,
    ) -> None:
        """``connect`` as Kafka's ``zookeeper.connect``; ``connection_timeout_ms``: how long the begin of a
        session may take, None: as long as a session without connection lives.

        Raises:
            StoreUnusableError: ``connect`` is not an address.
        """
        self.connect = connect
        self._hosts, self._root = parse_connect(connect)
        self._session_timeout_ms = session_timeout_ms
        self._connection_timeout_ms = connection_timeout_ms or session_timeout_ms
        self._security = security
        self._session: ZooKeeperSession | None = None
        self._session_id = 0
        self._state: SessionState | None = None
        self._starting = asyncio.Lock()
        self._watches = SessionWatches()
        self._catching_up: asyncio.Task[None] | None = None
        self._listeners: list[SessionListener] = []
        self._closed = False

    @classmethod
    async def open(cls, connect: str, **options: Any) -> ZooKeeperStore:
        """Connect and start a session. A chroot that is missing is created.

        Raises:
            StoreUnusableError, ConnectionLossError.
        """
        store = cls(connect, **options)
        try:
            await store.start_session()
        except BaseException:
            await store.close()
            raise
        return store

    def __repr__(self) -> str:
        state = "CLOSED" if self._closed else self._state.value if self._state else "NEW"
        return f"ZooKeeperStore({self.connect!r}, {state}, session_id={self._session_id})"

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        return self._session_timeout_ms

    # Sessions.

    async def start_session(self) -> int:
        async with self._starting:
            self._check_open()
            if self._state in (SessionState.CONNECTED, SessionState.DISCONNECTED):
                return self._session_id
            if self._session is not None:
                await self._session.close()
            self._session = await self._begin_session()
            self._session_id = self._session.id
            self._change_state(SessionState.CONNECTED)
            return self._session_id

    async def _begin_session(self) -> ZooKeeperSession:
        session = ZooKeeperSession(
            self._hosts,
            timeout_ms=self._session_timeout_ms,
            on_state=self._session_changed,
            on_event=self._watch_fired,
            security=self._security,
        )
        session.start()
        try:
            async with asyncio.timeout(self._connection_timeout_ms / 1000):
                await session.connected.wait()
                await self._ensure_root(session)
                if self._security.login is not None:  # which comes after the connection
                    await session.call(lambda kazoo: kazoo.exists_async("/"), bool, "/")
            self._check_open()
            if not session.connected.is_set():
                raise ConnectionLossError(f"the connection to ZooKeeper was lost ({session.last_error})")
        except SessionExpiredError:
            await session.close()
            if session.is_login_refused:
                raise StoreUnusableError(
                    "ZooKeeper does not accept the login of zookeeper.sasl.jaas.config"
                ) from None
            raise
        except TimeoutError:
            await session.close()
            raise ConnectionLossError(
                f"ZooKeeper does not answer within {self._connection_timeout_ms} ms ({session.last_error})"
            ) from None
        except BaseException:
            await session.close()
            raise
        return session

    async def _ensure_root(self, session: ZooKeeperSession) -> None:
        """Create what is missing of the chroot, as ``KafkaZkClient`` does."""
        parts = self._root.split("/")[1:]
        for depth in range(1, len(parts) + 1):
            op = CreateOp("/" + "/".join(parts[:depth]))
            with contextlib.suppress(NodeExistsError):
                await session.call(
                    partial(commit_async, root="", ops=[op], security=self._security),
                    partial(multi_results, "", [op]),
                    op,
                )

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._stop_catching_up()
        self._watches.clear()
        if self._session is not None:
            await self._session.close()

    def add_session_listener(self, listener: SessionListener) -> Callable[[], None]:
        self._listeners.append(listener)

        def remove() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return remove

    # Nodes.

    async def get(self, path: str, *, watch: Watch | None = None) -> Node:
        validate_path(path)
        session, target = self._live(), absolute(self._root, path)

        def receive(answer: Any) -> Node:
            data, stat = answer[0] or b"", node_stat(answer[1])
            if watch is not None:
                self._watches.watch_data(path, watch, stat)
            return Node(data, stat)

        kazoo_watch = None if watch is None else session.watch_fired
        return await session.call(lambda kazoo: kazoo.get_async(target, kazoo_watch), receive, path)

    async def exists(self, path: str, *, watch: Watch | None = None) -> NodeStat | None:
        validate_path(path)
        session, target = self._live(), absolute(self._root, path)

        def receive(answer: Any) -> NodeStat | None:
            stat = None if answer is None else node_stat(answer)
            if watch is not None:
                self._watches.watch_data(path, watch, stat)
            return stat

        kazoo_watch = None if watch is None else session.watch_fired
        return await session.call(lambda kazoo: kazoo.exists_async(target, kazoo_watch), receive, path)

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        validate_path(path)
        session, target = self._live(), absolute(self._root, path)

        def receive(answer: Any) -> list[str]:
            names, stat = answer
            if watch is not None:
                self._watches.watch_children(path, watch, node_stat(stat))
            return sorted(names)

        kazoo_watch = None if watch is None else session.watch_fired
        return await session.call(
            lambda kazoo: kazoo.get_children_async(target, kazoo_watch, include_data=True), receive, path
        )

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        op = CreateOp(path, data, ephemeral, sequential)
        validate_op(op)
        target = absolute(self._root, path, sequential=sequential)

        def receive(answer: Any) -> Created:
            return Created(relative(self._root, answer[0]), node_stat(answer[1]))

        return await self._live().call(
            lambda kazoo: kazoo.create_async(
                target,
                data or None,
                acl=self._security.acl(path),
                ephemeral=ephemeral,
                sequence=sequential,
                include_data=True,
            ),
            receive,
            op,
        )

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> NodeStat:
        op = SetOp(path, data, version)
        validate_op(op)
        target = absolute(self._root, path)
        return await self._live().call(
            lambda kazoo: kazoo.set_async(target, data or None, version), node_stat, op
        )

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        op = DeleteOp(path, version)
        validate_op(op)
        target = absolute(self._root, path)
        await self._live().call(lambda kazoo: kazoo.delete_async(target, version), bool, op)

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        steps = list(ops)
        for index, op in enumerate(steps):
            try:
                validate_op(op)
            except StoreError as error:
                error.operation_index = index
                raise
        validate_size(self._root, steps)
        session = self._live()
        if not steps:
            return []
        return await session.call(
            lambda kazoo: commit_async(kazoo, self._root, steps, self._security),
            lambda answers: multi_results(self._root, steps, answers),
            steps[0],
        )

    async def ensure_path(self, path: str) -> None:
        validate_path(path)
        if await self.exists(path) is None:
            await self.ensure_path(parent_of(path))
            with contextlib.suppress(NodeExistsError):
                await self.create(path)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self.connect}: the store is closed")

    def _live(self) -> ZooKeeperSession:
        """The session, if it can be used now. Raises StoreError."""
        self._check_open()
        if self._state is SessionState.EXPIRED:
            raise SessionExpiredError(f"session {self._session_id} has expired")
        if self._state is not SessionState.CONNECTED or self._session is None:
            reason = "no session was started" if self._session is None else self._session.last_error
            raise ConnectionLossError(f"there is no connection to ZooKeeper ({reason})")
        return self._session

    # What the session tells.

    def _session_changed(self, session: ZooKeeperSession, state: SessionState) -> None:
        if session is not self._session or self._closed:
            return
        self._stop_catching_up()
        match state:
            case SessionState.CONNECTED:
                self._catching_up = asyncio.create_task(self._catch_up(session), name="set watches again")
            case SessionState.DISCONNECTED:
                _log.warning("coordination session %d: %s", self._session_id, session.last_error)
                self._change_state(state)
            case SessionState.EXPIRED:
                self._watches.clear()
                session.close()
                self._change_state(state)

    def _change_state(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        _log.info("coordination session %d: %s", self._session_id, state.value)
        for listener in self._listeners:
            asyncio.get_running_loop().call_soon(listener, SessionEvent(state, self._session_id))

    def _watch_fired(self, session: ZooKeeperSession, event: WatchEvent) -> None:
        if session is self._session:
            self._tell(event._replace(path=relative(self._root, event.path)))

    def _tell(self, event: WatchEvent) -> None:
        for watch in self._watches.take(event):
            asyncio.get_running_loop().call_soon(watch, event)

    # After a reconnection.

    async def _catch_up(self, session: ZooKeeperSession) -> None:
        """Set all watches again and tell what they missed. A connection that is lost again ends it."""
        calls: list[Coroutine[Any, Any, None]] = []
        calls += [self._watch_data_again(session, path) for path in self._watches.data_paths()]
        calls += [self._watch_children_again(session, path) for path in self._watches.children_paths()]
        with contextlib.suppress(ConnectionLossError, SessionExpiredError):
            await asyncio.gather(*calls)
            self._change_state(SessionState.CONNECTED)

    async def _watch_data_again(self, session: ZooKeeperSession, path: str) -> None:
        target = absolute(self._root, path)

        def receive(answer: Any) -> None:
            event = self._watches.missed_data(path, None if answer is None else node_stat(answer))
            if event is not None:
                self._tell(event)

        try:
            await session.call(lambda kazoo: kazoo.exists_async(target, session.watch_fired), receive, path)
        except (ConnectionLossError, SessionExpiredError):
            raise
        except StoreError:  # the watcher will read it, and learn why
            self._tell(WatchEvent(EventType.NODE_DATA_CHANGED, path))

    async def _watch_children_again(self, session: ZooKeeperSession, path: str) -> None:
        target = absolute(self._root, path)

        def receive(answer: Any) -> None:
            event = self._watches.missed_children(path, node_stat(answer[1]))
            if event is not None:
                self._tell(event)

        try:
            await session.call(
                lambda kazoo: kazoo.get_children_async(target, session.watch_fired, include_data=True),
                receive,
                path,
            )
        except (ConnectionLossError, SessionExpiredError):
            raise
        except NoNodeError:
            self._tell(WatchEvent(EventType.NODE_DELETED, path))
        except StoreError:
            self._tell(WatchEvent(EventType.NODE_CHILDREN_CHANGED, path))

    def _stop_catching_up(self) -> None:
        task, self._catching_up = self._catching_up, None
        if task is not None:
            task.cancel()


class SessionWatches:
    """The watches of one session, and what they missed while the connection was gone.

    ZooKeeper's servers know watches by connection: after a new one is made its Java client sends them again,
    with what it knew last (``SetWatches``), and is told of what has changed. kazoo forgets its watches
    instead. So they are kept here, each path with the id of the write that was last known to it, and compared
    with what the server says when the path is watched again. The rules are those of ZooKeeper's
    ``DataTree.setWatches``: one event tells of all that happened; a node that was deleted and created again
    counts as changed.
    """

    def __init__(self) -> None:
        self._table = WatchTable()
        self._known_data: dict[str, int | None] = {}
        self._known_children: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"SessionWatches({self._table!r})"

    def watch_data(self, path: str, watch: Watch, stat: NodeStat | None) -> None:
        """``stat``: what the node was when the watch was set; None: missing."""
        self._table.watch_data(path, watch)
        self._known_data[path] = None if stat is None else stat.mzxid

    def watch_children(self, path: str, watch: Watch, stat: NodeStat) -> None:
        self._table.watch_children(path, watch)
        self._known_children[path] = stat.pzxid

    def clear(self) -> None:
        self._table.clear()
        self._known_data.clear()
        self._known_children.clear()

    def take(self, event: WatchEvent) -> Iterator[Watch]:
        """Whom to tell. They are forgotten."""
        if event.type is not EventType.NODE_CHILDREN_CHANGED:
            self._known_data.pop(event.path, None)
        if event.type in (EventType.NODE_CHILDREN_CHANGED, EventType.NODE_DELETED):
            self._known_children.pop(event.path, None)
        return self._table.take(event)

    # After a reconnection.

    def data_paths(self) -> list[str]:
        """The paths of nodes whose data or existence is watched."""
        return list(self._known_data)

    def children_paths(self) -> list[str]:
        return list(self._known_children)

    def missed_data(self, path: str, stat: NodeStat | None) -> WatchEvent | None:
        """What to tell the watches of ``path``, now that the node is ``stat``; None: nothing happened."""
        known = self._known_data.get(path)
        if path not in self._known_data or known == (None if stat is None else stat.mzxid):
            return None
        if stat is None:
            return WatchEvent(EventType.NODE_DELETED, path)
        return WatchEvent(EventType.NODE_CREATED if known is None else EventType.NODE_DATA_CHANGED, path)

    def missed_children(self, path: str, stat: NodeStat) -> WatchEvent | None:
        if self._known_children.get(path, stat.pzxid) == stat.pzxid:
            return None
        return WatchEvent(EventType.NODE_CHILDREN_CHANGED, path)


async def zookeeper_security(config: BrokerConfig) -> ZooKeeperSecurity:
    """Raises StoreUnusableError: a property is wrong, or a store cannot be read."""
    try:
        tls_context = None
        if config.zookeeper_ssl_client_enable:
            settings = tls_settings(config)

            def context() -> ssl.SSLContext:
                from minikafka.security.tls import client_context  # with cryptography

                return client_context(settings)

            await asyncio.to_thread(context)  # what is wrong is told at the start
            tls_context = context
        return ZooKeeperSecurity(
            tls_context, _login(config.zookeeper_sasl_jaas_config), config.zookeeper_set_acl
        )
    except ConfigError as error:
        raise StoreUnusableError(str(error)) from None


def tls_settings(config: BrokerConfig) -> TlsSettings:
    """``zookeeper.ssl.…`` as what they are without the prefix. Raises ConfigError."""
    versions = config.zookeeper_ssl_enabled_protocols or (config.zookeeper_ssl_protocol,)
    properties = {
        "ssl.protocol": max(versions),
        "ssl.enabled.protocols": ",".join(versions),
        "ssl.cipher.suites": ",".join(config.zookeeper_ssl_cipher_suites or ()),
        "ssl.endpoint.identification.algorithm": config.zookeeper_ssl_endpoint_identification_algorithm,
    }
    for kind in ("keystore", "truststore"):
        location = getattr(config, f"zookeeper_ssl_{kind}_location")
        if location is not None:
            given = getattr(config, f"zookeeper_ssl_{kind}_type")
            end = location[location.rfind(".") :].lower()
            properties[f"ssl.{kind}.location"] = location
            properties[f"ssl.{kind}.type"] = given or _TYPES.get(end, "JKS")
        password = getattr(config, f"zookeeper_ssl_{kind}_password")
        if password is not None:
            properties[f"ssl.{kind}.password"] = password
    try:
        settings = client_tls_settings(properties)
    except ConfigError as error:
        raise ConfigError(f"the properties zookeeper.ssl.…: {error}") from None
    return settings._replace(
        key_store=settings.key_store._replace(names=PropertyNames("zookeeper.")),
        trust_store=settings.trust_store._replace(names=PropertyNames("zookeeper.")),
    )


def _login(text: str | None) -> Login | None:
    """Raises ConfigError."""
    if text is None:
        return None
    try:
        modules = parse_jaas(text)
    except ConfigError as error:  # which knows of no other property than clients' own
        raise ConfigError(str(error).replace(" sasl.jaas.config:", " zookeeper.sasl.jaas.config:")) from None
    options = modules[0].options
    if len(modules) > 1 or modules[0].login_module != DIGEST_LOGIN_MODULE:
        raise ConfigError(f"zookeeper.sasl.jaas.config: must be one module, {DIGEST_LOGIN_MODULE}")
    for name in ("username", "password"):
        if not options.get(name):
            raise ConfigError(f"zookeeper.sasl.jaas.config: the option {name} is missing")
    try:
        import puresasl  # noqa: F401 - by which kazoo logs in
    except ModuleNotFoundError:
        raise ConfigError(
            "zookeeper.sasl.jaas.config: pure-sasl is not installed: pip install 'minikafka[zookeeper]'"
        ) from None
    return Login(options["username"], options["password"])
