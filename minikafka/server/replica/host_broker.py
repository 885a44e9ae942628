"""What the partitions of a broker know of it; apart from them, because it is there before its first one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from minikafka.clock import Clock
from minikafka.types import BrokerId

if TYPE_CHECKING:
    from minikafka.log.unified_log import UnifiedLog
    from minikafka.replication.partition_replicas import LiveBrokerEpoch


class HostBroker(msgspec.Struct, frozen=True, kw_only=True):
    """What the partitions of a broker know of it and of its cluster."""

    node_id: BrokerId
    clock: Clock
    replica_lag_time_max_ms: int
    live_broker_epoch: LiveBrokerEpoch
    log_truncated: Callable[[UnifiedLog], None]
    """Called when records are gone that a checkpoint on the disk may count on."""
