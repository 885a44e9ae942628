"""``Broker``: a broker on the event loop of the test that uses it; and ``SecureAccess``: client settings,
users and ACLs of a secured broker or cluster.

A broker is the real ``minikafka.server.broker.Broker`` with a port of its own and a directory of its own; the
records go to real files. It starts in a few tens of milliseconds. Leaving the ``async with`` block stops it,
ends its tasks and its disk thread, closes its sockets and removes its temporary directory, also when the test
failed.

Not thread-safe: it belongs to the loop that started it. ``ThreadedBroker`` is for tests without a loop.

A secured one is what ``minikafka-broker --secure`` starts. Users and ACLs are made as an administrator makes
them, by requests over TLS.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.testing.groups import AsksGroups

if TYPE_CHECKING:
    from minikafka.config.loader import Setting
    from minikafka.network.broker_client import BrokerClient
    from minikafka.security.acl import AclBinding
    from minikafka.security.client_files import Login
    from minikafka.security.secure_setup import FirstUser, SecureSetup
    from minikafka.server.broker import Broker as ServerBroker
    from minikafka.server.services import Services

Property = str | int | float | bool
"""A value of a Kafka property; lists are written as Kafka writes them, with commas."""

ADMIN = "admin"
DEADLINE_MS = 30_000
POLL_S = 0.01
SCRAM_SHA_512 = 2
"""``ScramMechanism`` in requests."""

Address = tuple[str, int]


def property_text(value: Property) -> str:
    """A property's value as a ``.properties`` file spells it: ``True`` becomes ``true``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Broker(AsksGroups):
    """A broker for the length of an ``async with`` block::

        async with Broker(config={"num.partitions": 3}) as broker:
            consumer = AIOKafkaConsumer("orders", bootstrap_servers=broker.bootstrap_servers)

    Args:
        config: Kafka's broker properties; they win over the defaults made here (a free port, ``data_dir``).
        data_dir: keep the records here, so that a later ``Broker`` continues with them. None: a temporary
            directory that goes when the broker stops.
        host: the address to listen on and to advertise.
        secure: TLS, users with passwords, and nothing allowed that no ACL allows, as with
            ``minikafka-broker --secure``::

                async with Broker(secure=True) as broker:
                    await broker.add_user("alice")
                    await broker.add_acl("alice", "read", topic="orders")
                    consumer = confluent_kafka.Consumer(broker.client_config("alice") | {"group.id": "a"})
        api_versions: the release of Kafka that clients see: ``"3.9"``, ``"4.1"`` or ``"4.4"``; None: what
            ``config`` says, else 4.4.
    """

    def __init__(
        self,
        *,
        config: Mapping[str, Property] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        host: str = "127.0.0.1",
        secure: bool = False,
        api_versions: str | None = None,
    ) -> None:
        self._is_secure = secure
        self._access: SecureAccess | None = None
        self._config: dict[str, Property] = dict(config or {})
        if api_versions is not None:
            self._config["api.versions"] = api_versions
        self._given_data_dir = None if data_dir is None else os.fspath(data_dir)
        self._data_dir: str | None = None
        self._host = host
        self._server: ServerBroker | None = None

    def __repr__(self) -> str:
        state = "stopped" if self._server is None else f"listening on {self.bootstrap_servers}"
        return f"<minikafka.testing.Broker {state}>"

    @property
    def server(self) -> ServerBroker:
        """The running broker itself, for tests that look inside. Raises RuntimeError when not running."""
        if self._server is None:
            raise RuntimeError("the broker is not running: use it inside `async with Broker() as broker:`")
        return self._server

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self.server.port

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``, as every Kafka client takes it."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self.port}"

    @property
    def data_dir(self) -> str:
        """Where the records are. Raises RuntimeError when the broker is not running."""
        if self._data_dir is None:
            raise RuntimeError("the broker is not running: use it inside `async with Broker() as broker:`")
        return self._data_dir

    def client_config(
        self, user: str = "admin", password: str | None = None, *, client: str = "confluent-kafka"
    ) -> dict[str, Any]:
        """How a client of a secure broker connects as ``user``: settings by the names of ``client``, which is
        confluent-kafka, aiokafka, kafka-python or java, the address among them.

        ``admin`` may do anything; ``password`` is known of users that ``add_user`` has made.

        Raises:
            ValueError: no such client, or an unknown password. RuntimeError: not running, or not secure.
        """
        return self._secure_access.client_config(self.bootstrap_servers, user, password, client=client)

    async def add_user(self, name: str, password: str | None = None) -> str:
        """Make a user who logs in by SCRAM-SHA-512, or give one a new password; a random one unless it is
        said. Returns it."""
        return await self._secure_access.add_user([(self._host, self.port)], name, password)

    async def add_acl(self, user: str, operation: str, **resource: Any) -> None:
        """Allow ``user`` an operation (``"read"``, ``"write"``, ``"describe"``, ``"all"`` …) on one resource:
        ``topic=``, ``group=`` or ``transactional_id=`` with its name, or ``cluster=True``. ``prefixed=True``:
        on all whose names begin so; ``deny=True``: the opposite; ``host=``: from one address only.

        Raises:
            ValueError: not one resource, or no such operation. KafkaError: the broker refuses it.
        """
        await self._secure_access.add_acl([(self._host, self.port)], acl_binding(user, operation, **resource))

    @property
    def _secure_access(self) -> SecureAccess:
        if self._access is None:
            raise RuntimeError("there are users and ACLs only inside `async with Broker(secure=True)`")
        return self._access

    def _services(self) -> list[Services]:
        return [self.server.services]

    async def start(self) -> None:
        """Start, or raise ``StartError`` or ``ConfigError`` and leave nothing behind."""
        if self._server is not None:
            raise RuntimeError("the broker is already running")
        from minikafka.config.loader import Setting, load
        from minikafka.server.broker import Broker as ServerBroker

        data_dir = self._given_data_dir or tempfile.mkdtemp(prefix="minikafka-test-")
        host = f"[{self._host}]" if ":" in self._host else self._host
        protocol = "SASL_SSL" if self._is_secure else "PLAINTEXT"
        properties = {"log.dirs": data_dir, "listeners": f"{protocol}://{host}:0"} | self._config
        settings = [Setting(name, property_text(value), "config") for name, value in properties.items()]
        first_users: tuple[FirstUser, ...] = ()
        try:
            if self._is_secure:
                self._access = SecureAccess(_security_directory(data_dir))
                setup = self._access.setup({setting.name: setting for setting in settings})
                settings += setup.settings
                first_users = setup.first_users
            server = ServerBroker(load(settings=settings).config, first_users=first_users)
            await server.start()
        except BaseException:
            self._remove(data_dir)
            raise
        self._server, self._data_dir = server, data_dir

    async def stop(self) -> None:
        """Stop cleanly; a broker that is not running is left so."""
        if self._server is None or self._data_dir is None:
            return
        server, data_dir = self._server, self._data_dir
        self._server = self._data_dir = self._access = None
        try:
            await server.stop()
        finally:
            self._remove(data_dir)

    def _remove(self, data_dir: str) -> None:
        if self._given_data_dir is None:
            shutil.rmtree(data_dir)
            if self._is_secure:
                shutil.rmtree(_security_directory(data_dir), ignore_errors=True)

    async def __aenter__(self) -> Broker:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()


def _security_directory(data_dir: str) -> str:
    """Beside the records, where ``minikafka-broker --secure`` has it, too."""
    return f"{data_dir.rstrip('/')}-security"


class SecureAccess:
    """Of one broker or cluster. Made before it starts."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._passwords: dict[str, str] = {}
        self._setup: SecureSetup | None = None

    def __repr__(self) -> str:
        return f"SecureAccess({self._directory!r}, users {sorted(self._passwords)})"

    def setup(self, given: Mapping[str, Setting]) -> SecureSetup:
        """What a broker with ``given`` properties is started with. Raises ConfigError."""
        from minikafka.server.security.secure_broker import make_secure_setup

        made = self._setup = make_secure_setup(given, self._directory)
        self._passwords |= {user.name: user.password for user in made.first_users}
        return made

    def client_config(
        self, servers: str, user: str = ADMIN, password: str | None = None, *, client: str = "confluent-kafka"
    ) -> dict[str, Any]:
        """See ``Broker.client_config``."""
        from minikafka.security.client_files import CLIENT_SETTINGS

        if client not in CLIENT_SETTINGS:
            raise ValueError(f"there is no client {client!r}, there are {', '.join(CLIENT_SETTINGS)}")
        return dict(CLIENT_SETTINGS[client](self._login(servers, user, password)))

    def _login(self, servers: str, user: str, password: str | None = None) -> Login:
        if self._setup is None:
            raise RuntimeError("the broker has not been started")
        known = self._passwords.get(user) if password is None else password
        if known is None:
            raise ValueError(f"there is no user {user!r}: add_user makes one, or say a password")
        # The authority's certificate, all that a user needs of a directory, is in its root.
        return self._setup.directory.login(user, servers, known)._replace(
            directory=str(self._setup.directory.path)
        )

    async def add_user(self, brokers: Sequence[Address], name: str, password: str | None = None) -> str:
        """Returns the password, when the user can log in at all ``brokers``."""
        from minikafka.protocol.wire.api_versions import ApiKey
        from minikafka.security.client_files import MECHANISM
        from minikafka.security.scram import ITERATIONS_MIN, salted_password

        password = secrets.token_urlsafe() if password is None else password
        salt = os.urandom(16)
        salted = await asyncio.to_thread(salted_password, MECHANISM, password, salt, ITERATIONS_MIN)
        upsertion = {
            "name": name,
            "mechanism": SCRAM_SHA_512,
            "iterations": ITERATIONS_MIN,
            "salt": salt,
            "salted_password": salted,
        }
        body = {"deletions": [], "upsertions": [upsertion]}
        client = await self._connect(brokers[0])
        try:
            answer = await client.request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, body, deadline_ms=DEADLINE_MS)
        finally:
            await client.close()
        _raise_error(answer.results[0])
        self._passwords[name] = password
        async with asyncio.timeout(DEADLINE_MS / 1000):
            for broker in brokers:
                while not await self._can_log_in(broker, name):  # noqa: ASYNC110 - brokers do not tell
                    await asyncio.sleep(POLL_S)
        return password

    async def _can_log_in(self, broker: Address, user: str) -> bool:
        from minikafka.network.broker_client import BrokerUnavailable

        try:
            client = await self._connect(broker, user)
        except BrokerUnavailable:
            return False
        await client.close()
        return True

    async def add_acl(self, brokers: Sequence[Address], binding: AclBinding) -> None:
        """Returns when all ``brokers`` know it."""
        from minikafka.protocol.wire.api_versions import ApiKey

        pattern, entry = binding
        creation = {
            "resource_type": pattern.resource_type,
            "resource_name": pattern.name,
            "resource_pattern_type": pattern.pattern_type,
            "principal": entry.principal,
            "host": entry.host,
            "operation": entry.operation,
            "permission_type": entry.permission_type,
        }
        client = await self._connect(brokers[0])
        try:
            answer = await client.request(
                ApiKey.CREATE_ACLS, {"creations": [creation]}, deadline_ms=DEADLINE_MS
            )
        finally:
            await client.close()
        _raise_error(answer.results[0])
        wanted = {
            "resource_type_filter": pattern.resource_type,
            "resource_name_filter": pattern.name,
            "pattern_type_filter": pattern.pattern_type,
            "principal_filter": entry.principal,
            "host_filter": entry.host,
            "operation": entry.operation,
            "permission_type": entry.permission_type,
        }
        async with asyncio.timeout(DEADLINE_MS / 1000):
            for broker in brokers:
                client = await self._connect(broker)
                try:
                    while not await _is_known(client, wanted):  # noqa: ASYNC110 - brokers do not tell
                        await asyncio.sleep(POLL_S)
                finally:
                    await client.close()

    async def _connect(self, broker: Address, user: str = ADMIN) -> BrokerClient:
        from minikafka.network.broker_client import BrokerClient
        from minikafka.network.client_security import client_security
        from minikafka.security.client_files import java_settings

        security = client_security(java_settings(self._login("{}:{}".format(*broker), user)))
        return await BrokerClient.connect(
            *broker, client_id="minikafka-testing", deadline_ms=DEADLINE_MS, security=security
        )


async def _is_known(client: BrokerClient, wanted: Mapping[str, Any]) -> bool:
    from minikafka.protocol.wire.api_versions import ApiKey

    answer = await client.request(ApiKey.DESCRIBE_ACLS, wanted, deadline_ms=DEADLINE_MS)
    _raise_error(answer)
    return bool(answer.resources)


def _raise_error(outcome: Any) -> None:
    if outcome.error_code != ErrorCode.NONE:
        raise KafkaError(ErrorCode(outcome.error_code), outcome.error_message)


def acl_binding(
    user: str,
    operation: str,
    *,
    topic: str | None = None,
    group: str | None = None,
    transactional_id: str | None = None,
    cluster: bool = False,
    prefixed: bool = False,
    deny: bool = False,
    host: str = "*",
) -> AclBinding:
    """See ``Broker.add_acl``."""
    from minikafka.security.acl import (
        CLUSTER_NAME,
        AccessControlEntry,
        AclBinding,
        AclOperation,
        AclPermissionType,
        PatternType,
        ResourcePattern,
        ResourceType,
    )

    named = {
        ResourceType.TOPIC: topic,
        ResourceType.GROUP: group,
        ResourceType.TRANSACTIONAL_ID: transactional_id,
        ResourceType.CLUSTER: CLUSTER_NAME if cluster else None,
    }
    given = [(kind, name) for kind, name in named.items() if name is not None]
    if len(given) != 1:
        raise ValueError("an ACL is of one of topic, group, transactional_id and cluster")
    name = operation.strip().upper().replace(" ", "_").replace("-", "_")
    try:
        wanted = AclOperation[name]
    except KeyError:
        raise ValueError(
            f"there is no operation {operation!r}, there are "
            f"{', '.join(each.name for each in AclOperation if each > AclOperation.ANY)}"
        ) from None
    pattern_type = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
    return AclBinding(
        ResourcePattern(*given[0], pattern_type),
        AccessControlEntry(f"User:{user}", host, wanted, permission),
    )
