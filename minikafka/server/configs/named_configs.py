"""What is set for things that exist for the configuration only by their names: groups, and client metrics
subscriptions.

Kafka: ``GroupConfigManager``, ``ClientMetricsManager.updateSubscription``. Each has a node under its root,
``/config/groups`` or ``/config/client-metrics``, as long as something is set for it. (Kafka 3.9 creates these
roots in ZooKeeper and leaves them empty: it has such resources in KRaft only.)

Belongs to ``ConfigService``, whose lock is held while something changes. Invariant: what is known here is in
the store, without properties that this broker cannot use; those who follow have heard of every change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from minikafka.coordination import paths
from minikafka.server.configs.store import Alter, ConfigStore
from minikafka.server.configs.stored_configs import usable_properties

logger = logging.getLogger(__name__)

ApplyNamed = Callable[[str, Mapping[str, str]], None]
"""Called with a name and everything that is set for it; nothing is set when it is gone."""


class NamedConfigs:
    """See the module header."""

    def __init__(
        self, store: ConfigStore, root: str, *, check: Callable[[Mapping[str, str]], object]
    ) -> None:
        """``check`` raises ConfigError or KafkaError for properties that cannot be used."""
        self._store = store
        self._root = root
        self._check = check
        self._overrides: dict[str, dict[str, str]] = {}
        self._followers: list[ApplyNamed] = []

    def __repr__(self) -> str:
        return f"NamedConfigs({self._root}, {len(self._overrides)} names)"

    def names(self) -> list[str]:
        """For which something is set, sorted."""
        return sorted(self._overrides)

    def overrides(self, name: str) -> Mapping[str, str]:
        """What is set; nothing for an unknown name."""
        return self._overrides.get(name, {})

    def follow(self, apply: ApplyNamed) -> None:
        """``apply`` is called now with everything there is, and at every change."""
        self._followers.append(apply)
        for name, overrides in self._overrides.items():
            apply(name, overrides)

    async def load(self) -> None:
        """Read everything. Raises StoreError."""
        for node in await self._store.children(self._root):
            await self.load_one(paths.named_config(node))

    async def load_one(self, name: str) -> None:
        """Read what is set for one. Raises StoreError."""
        stored = await self._store.read(paths.named_config_path(self._root, name))
        usable = usable_properties(stored, self._check)
        for property_name in sorted(stored.keys() - usable.keys()):
            logger.error("%s of %s/%s cannot be used and is ignored", property_name, self._root, name)
        self._set(name, usable)

    async def change(self, name: str, change: Alter, *, validate_only: bool) -> None:
        """Raises KafkaError: what ``change`` raises, and that of ``ConfigStore.replace``."""
        changed = await self._store.replace(
            paths.named_config_path(self._root, name), change, validate_only=validate_only, remove_empty=True
        )
        if changed is not None:
            self._set(name, changed)

    def _set(self, name: str, overrides: dict[str, str]) -> None:
        if overrides:
            self._overrides[name] = overrides
        else:
            self._overrides.pop(name, None)
        for apply in self._followers:
            apply(name, overrides)
