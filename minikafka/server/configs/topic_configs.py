"""What is set for each topic, and the configuration that it comes to. In memory; nothing waits.

Kafka: ``ConfigRepository``, ``LogConfig.fromProps``. Belongs to ``ConfigService``, which reads and writes the
store.

Invariants: ``config`` is what ``overrides`` and the broker's configuration come to now; who follows topics
has seen the configuration of each that is known here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from minikafka.config.broker import BrokerConfig
from minikafka.config.resolution import topic_config
from minikafka.config.topic import TopicConfig
from minikafka.errors import ConfigError
from minikafka.server.configs.stored_configs import usable_topic_properties

logger = logging.getLogger(__name__)

Apply = Callable[[str, TopicConfig], None]
"""Called with a topic and its configuration."""


class TopicConfigs:
    """The overrides of the topics that were read."""

    def __init__(self, broker_config: Callable[[], BrokerConfig]) -> None:
        self._broker_config = broker_config
        self._overrides: dict[str, dict[str, str]] = {}
        # What they come to; an entry goes when it may change.
        self._configs: dict[str, TopicConfig] = {}
        self._followers: list[Apply] = []

    def __repr__(self) -> str:
        return f"TopicConfigs({len(self._overrides)} topics)"

    def __contains__(self, topic: str) -> bool:
        return topic in self._overrides

    def __len__(self) -> int:
        return len(self._overrides)

    def overrides(self, topic: str) -> Mapping[str, str]:
        """What is set for a topic; nothing for an unknown one."""
        return self._overrides.get(topic, {})

    def config(self, topic: str) -> TopicConfig:
        """The configuration of a topic, known or not."""
        overrides = self._overrides.get(topic)
        if overrides is None:
            return topic_config(self._broker_config())
        config = self._configs.get(topic)
        if config is None:
            config = self._configs[topic] = self.resolve(topic, overrides)
        return config

    def resolve(self, topic: str, overrides: Mapping[str, str]) -> TopicConfig:
        """What ``overrides`` come to, without those that cannot be used."""
        broker_config = self._broker_config()
        try:
            return topic_config(broker_config, overrides)
        except ConfigError as error:
            logger.error("topic %s: %s; the property is ignored", topic, error)
            return topic_config(broker_config, usable_topic_properties(broker_config, overrides))

    def follow(self, apply: Apply) -> None:
        """``apply`` is called for the topics that are known, whenever one is read or set, and with the
        defaults when one is gone. Changed defaults are not told."""
        self._followers.append(apply)
        for topic in self._overrides:
            apply(topic, self.config(topic))

    def set(self, topic: str, overrides: dict[str, str]) -> None:
        """This is set for a topic now."""
        self._overrides[topic] = overrides
        self._changed(topic)

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        if self._overrides.pop(topic, None) is not None:
            self._changed(topic)

    def _changed(self, topic: str) -> None:
        self._configs.pop(topic, None)
        for apply in self._followers:
            apply(topic, self.config(topic))

    def defaults_changed(self) -> None:
        """The broker's configuration has changed, and with it what topics come to."""
        self._configs.clear()
