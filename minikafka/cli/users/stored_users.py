"""SCRAM users in the coordination store, where no broker need run yet.

Kafka: ``kafka-configs.sh --zookeeper`` (until 3.x), ``ZkAdminManager.alterUserScramCredentials``,
``ScramCredentialUtils``. A user's credentials lie at ``/config/users/<user>``, a property for each mechanism,
beside the user's quotas. What is written carries the notification that running brokers follow.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Self

from minikafka.cli.shared.commands import CommandError
from minikafka.cli.shared.scram_users import MECHANISMS, SaltedPassword, ScramMechanism
from minikafka.config.broker import BROKER_CONFIG_KEYS, BrokerConfig, broker_config
from minikafka.config.broker_checks import SQLITE_SCHEME
from minikafka.coordination import paths
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import (
    BadVersionError,
    CoordinationStore,
    CreateOp,
    NodeExistsError,
    NoNodeError,
    Op,
    SetOp,
    StoreError,
)
from minikafka.errors import ConfigError
from minikafka.security.sasl.scram import credential_of, decode_credential, encode_credential
from minikafka.system_clock import SystemClock

ZOOKEEPER_SCHEME: Final = "zookeeper://"
ZOOKEEPER_PREFIX: Final = "zookeeper."
"""Of the properties that say how ZooKeeper is reached."""
WRITE_ATTEMPTS_MAX = 5
"""Lost races before a change gives up."""


class StoredUsers:
    """The users of a cluster. Methods raise CommandError when the store cannot be used."""

    def __init__(self, store: CoordinationStore) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"StoredUsers({self._store!r})"

    @classmethod
    async def open(cls, url: str, properties: Mapping[str, str], *, creates: bool = False) -> Self:
        """``sqlite:///PATH`` (of an absolute path: four slashes) or ``zookeeper://HOST:PORT,…/CHROOT``, as
        ``coordination`` and ``zookeeper.connect`` of a broker name it. ``properties``: a broker's; of these
        ``zookeeper.…`` count, as those of ``--zk-tls-config-file`` do for Kafka's tools.

        Raises:
            CommandError: the store cannot be used, or a property is wrong.
        """
        try:
            return cls(await _open(url, properties, creates=creates))
        except ConfigError as error:
            raise CommandError(f"--command-config: {error}") from None
        except StoreError as error:
            raise CommandError(f"--coordination {url}: {error}") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._store.close()

    async def describe(self) -> dict[str, dict[ScramMechanism, int]]:
        """User → mechanism → iterations, sorted."""
        found = {}
        try:
            for node in await self._store.children(paths.USER_CONFIGS):
                credentials = _credentials((await self._read(node))[0])
                if node != paths.DEFAULT_ENTITY and credentials:
                    found[paths.named_config(node)] = credentials
        except NoNodeError:  # no broker has started on it yet
            return {}
        except StoreError as error:
            raise CommandError(f"cannot read the users: {error}") from None
        return dict(sorted(found.items()))

    async def set(self, user: str, credential: SaltedPassword) -> None:
        """Make or replace the credential of one mechanism."""
        name = credential.mechanism.mechanism_name
        text = encode_credential(
            credential_of(name, credential.salted_password, credential.salt, credential.iterations)
        )
        await self._change(user, lambda current: {**current, name: text})

    async def delete(self, user: str, mechanism: ScramMechanism) -> None:
        """Remove the credential of one mechanism."""
        name = mechanism.mechanism_name
        await self._change(
            user, lambda current: {key: value for key, value in current.items() if key != name}
        )

    async def _change(self, user: str, change: Callable[[Mapping[str, str]], dict[str, str]]) -> None:
        node = paths.sanitize(user)
        path = f"{paths.USER_CONFIGS}/{node}"
        announcement = CreateOp(
            paths.CONFIG_CHANGE_PREFIX,
            paths.encode_config_change(f"{paths.USERS}/{node}"),
            sequential=True,
        )
        try:
            for parent in (paths.USER_CONFIGS, paths.CONFIG_CHANGES):
                await self._store.ensure_path(parent)
            for _ in range(WRITE_ATTEMPTS_MAX):
                current, version = await self._read(node)
                data = paths.encode_config(change(current))
                write: Op = CreateOp(path, data) if version is None else SetOp(path, data, version)
                try:
                    await self._store.multi([write, announcement])
                    return
                except (BadVersionError, NodeExistsError, NoNodeError):
                    continue  # another was faster
        except StoreError as error:
            raise CommandError(f"cannot change the user {user}: {error}") from None
        raise CommandError(f"cannot change the user {user}: others change it all the time")

    async def _read(self, node: str) -> tuple[dict[str, str], int | None]:
        """What is set for a user, and its version; None: there is no node."""
        path = f"{paths.USER_CONFIGS}/{node}"
        try:
            found = await self._store.get(path)
        except NoNodeError:
            return {}, None
        return paths.decode_config(found.data, path), found.stat.version


async def _open(url: str, properties: Mapping[str, str], *, creates: bool) -> CoordinationStore:
    """Raises StoreError, CommandError, ConfigError."""
    config = _zookeeper_config(properties)
    session_timeout_ms = config.zookeeper_session_timeout_ms
    if url.startswith(SQLITE_SCHEME) and url.removeprefix(SQLITE_SCHEME).strip("/"):
        path = url.removeprefix(SQLITE_SCHEME)
        if not creates and not await asyncio.to_thread(os.path.isfile, path):
            raise CommandError(
                f"--coordination {url}: there is no store at {path}; give the path that the "
                "brokers have as coordination, else coordination.sqlite in their first log directory"
            )
        return await SqliteStore.open(path, clock=SystemClock(), session_timeout_ms=session_timeout_ms)
    if not url.startswith(ZOOKEEPER_SCHEME) or not url.removeprefix(ZOOKEEPER_SCHEME):
        raise CommandError(f"--coordination {url}: must be sqlite:///PATH or zookeeper://HOST:PORT/CHROOT")
    try:  # here, because kazoo is an extra
        from minikafka.coordination.zookeeper import ZooKeeperStore
        from minikafka.coordination.zookeeper_security import zookeeper_security
    except ModuleNotFoundError:
        raise CommandError("kazoo is not installed: pip install 'minikafka[zookeeper]'") from None
    return await ZooKeeperStore.open(
        url.removeprefix(ZOOKEEPER_SCHEME),
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        security=await zookeeper_security(config),
    )


def _zookeeper_config(properties: Mapping[str, str]) -> BrokerConfig:
    """What ``properties`` say of ZooKeeper. Unless they say it, who logs in there makes nodes that are for
    brokers alone, as with Kafka's tools (``ConfigCommand``). Raises ConfigError."""
    known = {
        name: value
        for name, value in properties.items()
        if name.startswith(ZOOKEEPER_PREFIX) and name in BROKER_CONFIG_KEYS
    }
    config = broker_config(known)
    shows_certificate = (
        config.zookeeper_ssl_client_enable and config.zookeeper_ssl_keystore_location is not None
    )
    logs_in = config.zookeeper_sasl_jaas_config is not None or shows_certificate
    if "zookeeper.set.acl" in known or not logs_in:
        return config
    return broker_config(known | {"zookeeper.set.acl": "true"})


def _credentials(config: Mapping[str, str]) -> dict[ScramMechanism, int]:
    """The mechanisms that there are credentials for, with their iterations; damaged ones have 0."""
    found = {}
    for name, mechanism in MECHANISMS.items():
        if name in config:
            try:
                found[mechanism] = decode_credential(name, config[name]).iterations
            except ValueError:
                found[mechanism] = 0
    return found
