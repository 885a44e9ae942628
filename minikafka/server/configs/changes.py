"""Learning of configurations, and of delegation tokens, that other brokers have changed.

Kafka: ``DynamicConfigManager``. A broker that changes a configuration leaves a notification under
``/config/changes`` that names it; every broker reads it, and then the configuration itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from minikafka.clock import Clock
from minikafka.coordination import paths
from minikafka.coordination.store import CoordinationStore
from minikafka.server.cluster.change_notifications import ChangeNotifications


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
            store, path, clock=clock, what="configuration changes", apply=self._apply
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
