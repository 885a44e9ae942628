"""What is stored of configurations, without what this broker cannot use (Kafka's broker stops there)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from minikafka.config.broker import BrokerConfig
from minikafka.config.resolution import BrokerProperties, check_broker_overrides, topic_config
from minikafka.errors import ConfigError, KafkaError

logger = logging.getLogger(__name__)


def usable_broker_properties(
    properties: BrokerProperties, *, dynamic_default: Mapping[str, str], dynamic: Mapping[str, str]
) -> BrokerProperties:
    """``properties`` with the stored ones that this broker can use; each of the others gets a log line."""
    for per_broker, overrides in ((False, dynamic_default), (True, dynamic)):
        usable: dict[str, str] = {}
        properties = check_broker_overrides(properties, {}, per_broker=per_broker)
        for name, text in sorted(overrides.items()):
            try:
                properties = check_broker_overrides(properties, {**usable, name: text}, per_broker=per_broker)
            except KafkaError as error:
                logger.error("stored broker configuration ignored: %s", error.message)
            else:
                usable[name] = text
    return properties


def usable_topic_properties(broker: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, str]:
    """``overrides`` without those that are unknown, not allowed or contradict an earlier one."""
    return usable_properties(overrides, lambda texts: topic_config(broker, texts))


def usable_properties(
    overrides: Mapping[str, str], check: Callable[[Mapping[str, str]], object]
) -> dict[str, str]:
    """The most of ``overrides``, in the order of their names, that ``check`` does not refuse."""
    usable: dict[str, str] = {}
    for name, text in sorted(overrides.items()):
        try:
            check({**usable, name: text})
        except (ConfigError, KafkaError):
            continue
        usable[name] = text
    return usable
