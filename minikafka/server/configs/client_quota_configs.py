"""The client quotas that are set: kept in the store, changed for clients, told to those who enforce them.

Kafka: ``ZkAdminManager.alterClientQuotas`` and ``describeClientQuotas``, ``UserConfigHandler``,
``ClientIdConfigHandler``. Belongs to ``ConfigService``, whose lock is held while something changes.

Invariants: what is known here is in the store and can be used; those who follow have heard of every change.
Other properties of a user's node (Kafka keeps credentials there) stay as they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from minikafka.config.client_quotas import (
    QuotaEntity,
    QuotaFilter,
    Quotas,
    QuotaType,
    quota_text,
    stored_quotas,
)
from minikafka.coordination import paths
from minikafka.server.configs.store import ConfigStore

logger = logging.getLogger(__name__)

ApplyQuotas = Callable[[QuotaEntity, Quotas], None]
"""Called with an entity and all that is set for it; nothing is set when it is gone."""


class ClientQuotaConfigs:
    """See the module header."""

    def __init__(self, store: ConfigStore, lock: asyncio.Lock) -> None:
        self._store = store
        self._lock = lock
        self._quotas: dict[QuotaEntity, Quotas] = {}
        self._followers: list[ApplyQuotas] = []

    def __repr__(self) -> str:
        return f"ClientQuotaConfigs({len(self._quotas)} entities)"

    def follow(self, apply: ApplyQuotas) -> None:
        """``apply`` is called now with everything there is, and at every change."""
        self._followers.append(apply)
        for entity, quotas in self._quotas.items():
            apply(entity, quotas)

    def describe(self, wanted: QuotaFilter) -> dict[QuotaEntity, Quotas]:
        """What is set for the entities that are asked for."""
        return {entity: quotas for entity, quotas in self._quotas.items() if wanted.matches(entity.parts())}

    async def load(self) -> None:
        """Read everything. Raises StoreError."""
        for user in await self._store.children(paths.USER_CONFIGS):
            await self.reload(f"{paths.USERS}/{user}")
            for client_id in await self._store.children(paths.user_clients_path(user)):
                await self.reload(f"{paths.USERS}/{user}/{paths.CLIENTS}/{client_id}")
        for client_id in await self._store.children(paths.CLIENT_CONFIGS):
            await self.reload(f"{paths.CLIENTS}/{client_id}")

    async def reload(self, entity_path: str) -> None:
        """Read what is set at ``/config/<entity_path>``, if that is a place for quotas. Raises StoreError."""
        entity = paths.quota_entity_at(entity_path)
        if entity is None:
            return
        stored = await self._store.read(f"{paths.CONFIGS}/{entity_path}")
        quotas = stored_quotas(stored)
        for quota in QuotaType:
            if quota.value in stored and quota not in quotas:
                text = stored[quota.value]
                logger.error("%s=%s of %s cannot be used and is ignored", quota.value, text, entity)
        self._set(entity, quotas)

    async def alter(
        self, entity: QuotaEntity, changes: Mapping[QuotaType, float | None], *, validate_only: bool
    ) -> None:
        """Set quotas, which were checked, and remove those whose change is None.

        Raises:
            KafkaError: REQUEST_TIMED_OUT: the store cannot be reached, or others were faster too often.
        """

        def changed(current: Mapping[str, str]) -> dict[str, str]:
            texts = dict(current)
            for quota, value in changes.items():
                if value is None:
                    texts.pop(quota.value, None)
                else:
                    texts[quota.value] = quota_text(quota, value)
            return texts

        async with self._lock:
            stored = await self._store.replace(
                paths.client_quota_path(entity),
                changed,
                validate_only=validate_only,
                remove_empty=entity.client_id is not None,  # a user's node may have clients under it
            )
            if stored is not None:
                self._set(entity, stored_quotas(stored))

    def _set(self, entity: QuotaEntity, quotas: Quotas) -> None:
        if quotas == self._quotas.get(entity, {}):
            return
        if quotas:
            self._quotas[entity] = quotas
        else:
            del self._quotas[entity]
        for apply in self._followers:
            apply(entity, quotas)
