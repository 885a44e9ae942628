"""Hearing what other brokers have changed, by the notifications that they leave in the store.

Kafka: ``ZkNodeChangeNotificationListener``. A broker that changes something leaves a sequential node that
names it; every broker reads the ones it has not seen, in order, and then what they name. Nodes that are older
than 15 minutes are removed by any broker that sees them when there is a new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from minikafka.clock import Clock
from minikafka.coordination.paths import DamagedNodeError
from minikafka.coordination.store import CoordinationStore, NoNodeError, StoreError, WatchEvent

logger = logging.getLogger(__name__)

EXPIRATION_MS = 15 * 60 * 1000
"""``ZkNodeChangeNotificationListener``'s changeExpirationMs."""

RETRY_PAUSE_MS = 1000
"""While the store cannot be reached."""


class ChangeNotifications:
    """``begin`` before that which changes is loaded, then ``run`` as a task."""

    def __init__(
        self,
        store: CoordinationStore,
        directory: str,
        *,
        clock: Clock,
        what: str,
        apply: Callable[[str, bytes], Awaitable[None]],
    ) -> None:
        """``apply`` is given the path and the data of each notification. A ``DamagedNodeError`` of it is
        logged, and the next one applied; any other ``StoreError`` has it called again. ``what`` changes, for
        the log."""
        self._store = store
        self._directory = directory
        self._clock = clock
        self._what = what
        self._apply = apply
        self._last_seen = ""
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"ChangeNotifications({self._directory}, last seen {self._last_seen or 'none'})"

    def _notice(self, event: WatchEvent) -> None:
        self._changed.set()

    async def begin(self) -> None:
        """What there is now is known once what they speak of is loaded. Raises StoreError."""
        await self._store.ensure_path(self._directory)
        names = await self._store.children(self._directory, watch=self._notice)
        self._last_seen = names[-1] if names else ""

    def look_again(self) -> None:
        """The watch went with the old session."""
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._catch_up()
            except StoreError as error:
                logger.warning("%s wait for the coordination store: %s", self._what, error)
                await asyncio.sleep(RETRY_PAUSE_MS / 1000)
                self._changed.set()

    async def _catch_up(self) -> None:
        names = await self._store.children(self._directory, watch=self._notice)
        for name in names:
            path = f"{self._directory}/{name}"
            try:
                node = await self._store.get(path)
            except NoNodeError:
                continue
            if name > self._last_seen:
                try:
                    await self._apply(path, node.data)
                except DamagedNodeError as error:
                    logger.error("%s; the notification is ignored", error)
                self._last_seen = name
            if self._clock.now_ms() - node.stat.created_ms > EXPIRATION_MS:
                await self._remove(path)

    async def _remove(self, path: str) -> None:
        try:
            await self._store.delete(path)
        except NoNodeError:
            return
