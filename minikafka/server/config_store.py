"""The configurations in the coordination store: read, written, and heard of by the other brokers.

**Properties** (``ConfigStore``): replaced unless another broker wrote meanwhile. A write carries a
notification under ``/config/changes`` that names what has changed. Kafka: ``AdminZkClient``,
``ConfigRepository``. Used by ``ConfigService`` only.

**Passwords** among a broker's dynamic properties (``StoredPasswords``): encrypted in the store, plain in
memory. Kafka: ``DynamicBrokerConfig.toPersistentProps``, ``fromPersistentProps``, ``maybeReEncodePasswords``
(3.9). Without ``password.encoder.secret`` no password can be changed while the broker runs. What has been
encrypted with ``password.encoder.old.secret`` is still read, and is to be written again (``is_outdated``). A
key is derived in a thread, since it takes milliseconds; where there are no passwords nothing is.

**SCRAM credentials** of users (``ScramCredentialConfigs``), in the same nodes as their quotas. Kafka:
``ZkAdminManager.alterUserScramCredentials``, ``UserConfigHandler``; KIP-554.

**Changes of others** (``ConfigChangeListener``), of delegation tokens too: every broker reads each
notification, and then the configuration itself. Kafka: ``DynamicConfigManager``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig, is_password
from minikafka.coordination import paths
from minikafka.coordination.store import (
    BadVersionError,
    CheckOp,
    CoordinationStore,
    CreateOp,
    DeleteOp,
    Node,
    NodeExistsError,
    NoNodeError,
    Op,
    SetOp,
)
from minikafka.deferred import deferred
from minikafka.errors import ConfigError, ErrorCode, KafkaError
from minikafka.server.cluster.coordination_store import ChangeNotifications, mapped_store_failures
from minikafka.server.security.scram_credentials import ScramCredentials

if TYPE_CHECKING:
    from minikafka.security import password_encoder, scram
    from minikafka.security.password_encoder import PasswordEncoder
    from minikafka.security.scram import ScramCredential
else:
    password_encoder = deferred("minikafka.security.password_encoder")
    scram = deferred("minikafka.security.scram")

WRITE_ATTEMPTS_MAX = 5
"""Lost races before a change gives up; in each of them another broker's change of the node won."""

Alter = Callable[[Mapping[str, str]], dict[str, str]]
"""What is set for a resource now → what is to be set."""


class StoredPasswords:
    """See the module header."""

    def __init__(self, config: BrokerConfig) -> None:
        """``config``: the static one, which has the secrets."""
        self._config = config
        self._current: PasswordEncoder | None = None
        self._old: PasswordEncoder | None = None

    def __repr__(self) -> str:
        return f"StoredPasswords(secret={self._config.password_encoder_secret is not None})"

    async def decoded(self, stored: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """What is stored, with plain passwords; and by name why some of these cannot be had, which have the
        stored text in their place."""
        names = [name for name in stored if is_password(name)]
        if not names:
            return dict(stored), {}
        return await asyncio.to_thread(self._decoded, stored, names)

    async def encoded(self, texts: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
        """``texts`` as they are to be stored in the place of ``stored``: an unchanged password stays the text
        that it is.

        Raises:
            KafkaError: INVALID_REQUEST: there is no secret to encrypt a password with.
        """
        names = [name for name in texts if is_password(name)]
        if not names:
            return dict(texts)
        return await asyncio.to_thread(self._encoded, texts, stored, names)

    async def is_outdated(self, stored: Mapping[str, str]) -> bool:
        """Whether a password is encrypted with the old secret."""
        if self._config.password_encoder_old_secret is None:
            return False
        _, failures = await self.decoded(stored)
        names = [name for name in stored if is_password(name) and name not in failures]
        return bool(names) and await asyncio.to_thread(
            lambda: any(self._with_current(stored[name]) is None for name in names)
        )

    def _encoder(self) -> PasswordEncoder | None:
        if self._current is None and self._config.password_encoder_secret is not None:
            self._current = self._made(self._config.password_encoder_secret)
        return self._current

    def _old_encoder(self) -> PasswordEncoder | None:
        if self._old is None and self._config.password_encoder_old_secret is not None:
            self._old = self._made(self._config.password_encoder_old_secret)
        return self._old

    def _made(self, secret: str) -> PasswordEncoder:
        config = self._config
        return password_encoder.PasswordEncoder(
            secret,
            random_bytes=os.urandom,
            key_factory_algorithm=config.password_encoder_keyfactory_algorithm,
            cipher_algorithm=config.password_encoder_cipher_algorithm,
            key_length=config.password_encoder_key_length,
            iterations=config.password_encoder_iterations,
        )

    def _decoded(self, stored: Mapping[str, str], names: list[str]) -> tuple[dict[str, str], dict[str, str]]:
        texts, failures = dict(stored), {}
        for name in names:
            try:
                texts[name] = self._plain(stored[name])
            except ConfigError as error:
                failures[name] = str(error)
        return texts, failures

    def _plain(self, text: str) -> str:
        """Raises ConfigError."""
        current, old = self._encoder(), self._old_encoder()
        if current is None:
            raise ConfigError("password.encoder.secret is not set")
        try:
            return current.decode(text)
        except ConfigError:
            if old is None:
                raise
            return old.decode(text)

    def _with_current(self, text: str | None) -> str | None:
        """Decoded with the secret of now; None: it is not of that."""
        current = self._encoder()
        if current is None or text is None:
            return None
        try:
            return current.decode(text)
        except ConfigError:
            return None

    def _encoded(
        self, texts: Mapping[str, str], stored: Mapping[str, str], names: list[str]
    ) -> dict[str, str]:
        """Raises KafkaError."""
        result = dict(texts)
        for name in names:
            there = stored.get(name)
            if there is not None and texts[name] in (there, self._with_current(there)):
                result[name] = there
                continue
            encoder = self._encoder()
            if encoder is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Password encoder secret not configured: {name} can be changed while the broker runs "
                    "when password.encoder.secret is set",
                )
            result[name] = encoder.encode(texts[name])
        return result


class ConfigStore:
    """See the module header."""

    def __init__(self, store: CoordinationStore) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"ConfigStore({self._store!r})"

    async def children(self, path: str) -> list[str]:
        """The names under ``path``; none where it does not exist. Raises StoreError."""
        try:
            return await self._store.children(path)
        except NoNodeError:
            return []

    async def read(self, path: str) -> dict[str, str]:
        """What is set at ``path``. Raises StoreError."""
        try:
            return paths.decode_config((await self._store.get(path)).data, path)
        except NoNodeError:
            return {}

    async def replace(
        self,
        path: str,
        change: Alter,
        *,
        guard: CheckOp | None = None,
        check: Callable[[dict[str, str]], Awaitable[None]] | None = None,
        passwords: StoredPasswords | None = None,
        validate_only: bool,
        remove_empty: bool = False,
    ) -> dict[str, str] | None:
        """Replace the properties at ``path`` by what ``change`` makes of them; None when only validating.

        ``check`` may take its time with what would be written. ``guard`` must hold too; with ``remove_empty``
        the node goes with its last property. What is changed and returned has plain passwords, what is stored
        has not, with ``passwords``.

        Raises:
            KafkaError: what ``change``, ``check`` and ``passwords`` raise; UNKNOWN_TOPIC_OR_PARTITION when
                the guarded topic is gone; REQUEST_TIMED_OUT when others were faster too often.
        """
        with mapped_store_failures(f"changing {path}"):
            for _ in range(WRITE_ATTEMPTS_MAX):
                try:
                    node = await self._store.get(path)
                except NoNodeError:
                    node = None
                stored = {} if node is None else paths.decode_config(node.data, path)
                current = stored if passwords is None else (await passwords.decoded(stored))[0]
                changed = change(current)
                if check is not None:
                    await check(changed)
                written = changed if passwords is None else await passwords.encoded(changed, stored)
                if validate_only:
                    return None
                if remove_empty and not changed and node is None:
                    return changed
                write = _write(path, node, written, remove_empty=remove_empty)
                try:
                    await self._store.multi([*([] if guard is None else [guard]), write, _announcement(path)])
                except (BadVersionError, NodeExistsError):
                    continue
                except NoNodeError as error:
                    if guard is not None and error.operation_index == 0:
                        raise unknown_topic(guard.path.rpartition("/")[2]) from None
                    for parent in (path.rpartition("/")[0], paths.CONFIG_CHANGES):
                        await self._store.ensure_path(parent)
                    continue
                return changed
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "Others changed the same configuration all the time.")

    async def set_if_missing(self, path: str, name: str, text: str) -> None:
        """Set one property at ``path`` where it is not set. Raises StoreError."""
        while True:
            try:
                node = await self._store.get(path)
            except NoNodeError:
                node = None
            current = {} if node is None else paths.decode_config(node.data, path)
            if name in current:
                return
            write = _write(path, node, current | {name: text}, remove_empty=False)
            try:
                await self._store.multi([write, _announcement(path)])
            except (BadVersionError, NodeExistsError):
                continue  # another broker was faster
            except NoNodeError:
                for parent in (path.rpartition("/")[0], paths.CONFIG_CHANGES):
                    await self._store.ensure_path(parent)


def unknown_topic(topic: str) -> KafkaError:
    """The error for a topic that does not exist."""
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")


def _write(path: str, node: Node | None, changed: dict[str, str], *, remove_empty: bool) -> Op:
    data = paths.encode_config(changed)
    if node is None:
        return CreateOp(path, data)
    if remove_empty and not changed:
        return DeleteOp(path, node.stat.version)
    return SetOp(path, data, node.stat.version)


def _announcement(path: str) -> CreateOp:
    """Tells the other brokers (``DynamicConfigManager``)."""
    entity_path = path.removeprefix(f"{paths.CONFIGS}/")
    return CreateOp(paths.CONFIG_CHANGE_PREFIX, paths.encode_config_change(entity_path), sequential=True)


class ScramCredentialConfigs:
    """The credentials that are stored, and how they are changed. ``ConfigService`` has its lock and reads the
    nodes."""

    def __init__(self, store: ConfigStore, lock: asyncio.Lock) -> None:
        self._store = store
        self._lock = lock
        self.credentials = ScramCredentials()
        """As they are in the store."""

    def __repr__(self) -> str:
        return f"ScramCredentialConfigs({self.credentials})"

    async def alter(self, user: str, changes: Mapping[str, ScramCredential | None]) -> None:
        """Raises KafkaError: as ``alter_scram_credentials``."""
        async with self._lock:
            self.credentials.read(user, await alter_scram_credentials(self._store, user, changes))


def missing_credential() -> KafkaError:
    """A credential that is to be removed is not there."""
    message = "Attempt to delete a user credential that does not exist"
    return KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)


async def alter_scram_credentials(
    store: ConfigStore, user: str, changes: Mapping[str, ScramCredential | None]
) -> dict[str, str]:
    """Set a user's credentials, mechanism → credential, and remove those whose change is None. Returns what
    is set for the user now, quotas included. Needs no broker: a credential can be made before the first
    starts.

    Raises:
        KafkaError: RESOURCE_NOT_FOUND: a credential to remove is not there; REQUEST_TIMED_OUT: the store
            cannot be reached, or others were faster too often.
    """

    def changed(current: Mapping[str, str]) -> dict[str, str]:
        texts = dict(current)
        for mechanism, credential in changes.items():
            if credential is not None:
                texts[mechanism] = scram.encode_credential(credential)
            elif texts.pop(mechanism, None) is None:
                raise missing_credential()
        return texts

    stored = await store.replace(paths.user_config_path(user), changed, validate_only=False)
    assert stored is not None, "it was to be written"
    return stored


class ConfigChangeListener:
    """``begin`` before the configurations are loaded, then ``run`` as a task."""

    def __init__(
        self,
        store: CoordinationStore,
        *,
        clock: Clock,
        reload: Callable[[str], Awaitable[None]],
        path: str = paths.CONFIG_CHANGES,
        decode: Callable[[bytes, str], str] = paths.decode_config_change,
    ) -> None:
        """``reload`` is given what ``decode`` reads in a notification below ``path``: of configurations, what
        follows ``/config/``."""
        self._decode = decode
        self._reload = reload
        self._notifications = ChangeNotifications(
            store, path, clock=clock, what=f"changes in {path}", apply=self._apply
        )

    def __repr__(self) -> str:
        return f"ConfigChangeListener({self._notifications!r})"

    async def begin(self) -> None:
        """What there is now is known once the configurations are loaded. Raises StoreError."""
        await self._notifications.begin()

    async def session_began(self) -> None:
        """Look again: the watch went with the old session."""
        self._notifications.look_again()

    async def run(self) -> None:
        """Until cancelled."""
        await self._notifications.run()

    async def _apply(self, path: str, data: bytes) -> None:
        await self._reload(self._decode(data, path))
