"""The configurations in the coordination store: read, and replaced unless another broker wrote meanwhile.

Kafka: ``AdminZkClient``, ``ConfigRepository``. Used by ``ConfigService`` only. A write carries the
notification that tells the other brokers of it (``configs/changes.py``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

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
from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.cluster.store_failures import mapped_store_failures
from minikafka.server.configs.stored_passwords import StoredPasswords

WRITE_ATTEMPTS_MAX = 5
"""Lost races before a change gives up; in each of them another broker's change of the node won."""

Alter = Callable[[Mapping[str, str]], dict[str, str]]
"""What is set for a resource now → what is to be set."""


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
