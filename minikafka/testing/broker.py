"""``Broker``: a broker on the event loop of the test that uses it.

It is the real ``minikafka.server.broker.Broker`` with a port of its own and a directory of its own; the
records go to real files. It starts in a few tens of milliseconds. Leaving the ``async with`` block stops it,
ends its tasks and its disk thread, closes its sockets and removes its temporary directory, also when the test
failed.

Not thread-safe: it belongs to the loop that started it. ``ThreadedBroker`` is for tests without a loop.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from minikafka.testing.groups import AsksGroups

if (
    TYPE_CHECKING
):  # the server is imported when a broker starts, so that a pytest run without brokers is quick
    from minikafka.security.secure_setup import FirstUser
    from minikafka.server.broker import Broker as ServerBroker
    from minikafka.server.services import Services
    from minikafka.testing.secure import SecureAccess

Property = str | int | float | bool
"""A value of a Kafka property; lists are written as Kafka writes them, with commas."""


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
        from minikafka.testing.secure import acl_binding

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
                from minikafka.testing.secure import SecureAccess

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
