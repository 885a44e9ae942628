"""What the configuration says about connections, as ``network.limits`` takes it.

Kafka: ``ConnectionQuotas.listenerConfigurations``, ``IpConfigHandler``.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging

from minikafka.config.broker import BrokerConfig
from minikafka.config.client_quotas import DEFAULT, QuotaEntity, Quotas, QuotaType
from minikafka.errors import ConfigError
from minikafka.network.limits import NO_LIMIT, ConnectionLimits, ListenerLimits
from minikafka.network.socket_server import resolved_overrides

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


class ConnectionOverrides:
    """``max.connections.per.ip.overrides`` while a broker runs. Hosts in it are looked up before a change is
    stored, which is refused where one is unknown, and by each broker that hears of it."""

    def __init__(self, config: BrokerConfig, limits: ConnectionLimits) -> None:
        self._set = config.connection_overrides()
        self._limits = limits
        self._checked: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"ConnectionOverrides({self._set})"

    async def check(self, config: BrokerConfig) -> None:
        """Raises ConfigError: a host is unknown."""
        wanted = config.connection_overrides()
        if wanted != self._set:
            by_address, unknown = await resolved_overrides(wanted)
            if unknown:
                raise ConfigError(unknown[0])
            self._checked = (wanted, by_address)

    def apply(self, config: BrokerConfig) -> None:
        """At once what was checked here; else as soon as ``run`` has looked it up."""
        wanted = config.connection_overrides()
        if wanted == self._set:
            return
        self._set = wanted
        checked, by_address = self._checked
        if wanted == checked:
            self._changed.clear()
            self._limits.max_connections_per_ip_overrides = by_address
        else:
            self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = self._set
            by_address, unknown = await resolved_overrides(wanted)
            if self._set is not wanted:
                continue  # it was set again meanwhile
            for line in unknown:
                logger.error("%s; this broker does without that override", line)
            self._limits.max_connections_per_ip_overrides = by_address


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
