"""What the configuration says about connections, as ``network.connection_limits`` takes it.

Kafka: ``ConnectionQuotas.listenerConfigurations``, ``IpConfigHandler``.
"""

from __future__ import annotations

import ipaddress
import logging

from minikafka.config.broker import BrokerConfig
from minikafka.config.client_quotas import DEFAULT, QuotaEntity, Quotas, QuotaType
from minikafka.network.connection_limits import NO_LIMIT, ConnectionLimits, ListenerLimits

logger = logging.getLogger(__name__)


def listener_limits(config: BrokerConfig) -> dict[str, ListenerLimits]:
    """What each listener has of its own."""

    def own(listener: str, name: str) -> int:
        value = config.listener_value(listener, name)
        return NO_LIMIT if value is None else int(value)

    return {
        listener.name: ListenerLimits(
            own(listener.name, "max.connections"), own(listener.name, "max.connection.creation.rate")
        )
        for listener in config.endpoints()
    }


def apply_ip_quota(limits: ConnectionLimits, entity: QuotaEntity, quotas: Quotas) -> None:
    """All that is set for an entity now; of interest are addresses. A host name, which only a Kafka can have
    stored, is left out: see ``config.client_quotas``."""
    if entity.ip is None:
        return
    rate = quotas.get(QuotaType.CONNECTION_CREATION)
    if entity.ip is DEFAULT:
        limits.set_ip_rate(None, rate)
        return
    try:
        limits.set_ip_rate(str(ipaddress.ip_address(str(entity.ip))), rate)
    except ValueError:
        logger.error("connection_creation_rate of %s is ignored: it is not an IP address", entity.ip)
