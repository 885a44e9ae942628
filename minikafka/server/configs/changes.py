"""Learning of configurations, and of delegation tokens, that other brokers have changed.

Kafka: ``DynamicConfigManager`` and ``ZkNodeChangeNotificationListener``. A broker that changes a
configuration leaves a sequential node under ``/config/changes`` that names it; every broker reads the ones it
has not seen, in order, and then the configuration itself. Nodes that are older than 15 minutes are removed by
any broker that writes one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from minikafka.clock import Clock
from minikafka.coordination import paths
from minikafka.coordination.store import CoordinationStore, NoNodeError, StoreError, WatchEvent

logger = logging.getLogger(__name__)

EXPIRATION_MS = 15 * 60 * 1000
"""``ZkNodeChangeNotificationListener``'s changeExpirationMs."""

RETRY_PAUSE_MS = 1000
"""While the store cannot be reached."""


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
        self._path = path
        self._decode = decode
        self._store = store
        self._clock = clock
        self._reload = reload
        self._last_seen = ""
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"ConfigChangeListener(last seen {self._last_seen or 'none'})"

    def _notice(self, event: WatchEvent) -> None:
        self._changed.set()

    async def begin(self) -> None:
        """What there is now is known once the configurations are loaded. Raises StoreError."""
        await self._store.ensure_path(self._path)
        names = await self._store.children(self._path, watch=self._notice)
        self._last_seen = names[-1] if names else ""

    async def session_began(self) -> None:
        """Look again: the watch went with the old session."""
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._catch_up()
            except StoreError as error:
                logger.warning("configuration changes wait for the coordination store: %s", error)
                await asyncio.sleep(RETRY_PAUSE_MS / 1000)
                self._changed.set()

    async def _catch_up(self) -> None:
        names = await self._store.children(self._path, watch=self._notice)
        for name in names:
            path = f"{self._path}/{name}"
            try:
                node = await self._store.get(path)
            except NoNodeError:
                continue
            if name > self._last_seen:
                await self._apply(path, node.data)
                self._last_seen = name
            if self._clock.now_ms() - node.stat.created_ms > EXPIRATION_MS:
                await self._remove(path)

    async def _apply(self, path: str, data: bytes) -> None:
        try:
            entity_path = self._decode(data, path)
        except paths.DamagedNodeError as error:
            logger.error("%s; the notification is ignored", error)
            return
        await self._reload(entity_path)

    async def _remove(self, path: str) -> None:
        try:
            await self._store.delete(path)
        except NoNodeError:
            return
