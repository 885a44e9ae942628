"""The configuration of the group coordinator, as its shards read it: the broker's, and that of single groups.

Kafka: ``GroupCoordinatorConfig``, ``GroupConfigManager``.
"""

from __future__ import annotations

from collections.abc import Callable

from minikafka.config.broker import BrokerConfig
from minikafka.coordinator.group.settings import ConsumerGroupSettings


class BrokerGroupSettings:
    """A ``GroupSettings``. None of the broker's properties here changes while it runs; groups' do."""

    def __init__(
        self, config: BrokerConfig, *, consumer_group: Callable[[str], ConsumerGroupSettings]
    ) -> None:
        """``consumer_group``: what holds for one group."""
        self.group_min_session_timeout_ms = config.group_min_session_timeout_ms
        self.group_max_session_timeout_ms = config.group_max_session_timeout_ms
        self.group_initial_rebalance_delay_ms = config.group_initial_rebalance_delay_ms
        self.group_max_size = config.group_max_size
        self.group_consumer_max_size = config.group_consumer_max_size
        self.group_max_member_metadata_bytes = config.group_max_member_metadata_bytes
        self.group_max_memory_bytes = config.group_max_memory_bytes
        self.group_consumer_assignors: tuple[str, ...] = config.group_consumer_assignors
        self.group_consumer_migration_policy = config.group_consumer_migration_policy
        self.offset_metadata_max_bytes = config.offset_metadata_max_bytes
        self.offsets_retention_minutes = config.offsets_retention_minutes
        self._consumer_group = consumer_group

    def consumer_group(self, group_id: str) -> ConsumerGroupSettings:
        """What is set for the group, else the broker's values."""
        return self._consumer_group(group_id)
