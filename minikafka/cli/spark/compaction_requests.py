"""What ``minikafka compact`` asks of the broker that holds a log directory: its topics' configuration,
and to put in what was prepared.

Which broker that is says ``meta.properties``. The swap is asked for with AlterClientQuotas and an entity
type of our own (``server.apis.alter_client_quotas``), which other brokers than minikafka's refuse.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from minikafka.cli.shared.admin_client import AdminClient
from minikafka.cli.shared.commands import Address, CommandError, error_of
from minikafka.config.broker import broker_config
from minikafka.config.client_quotas import COMPACTION, SWAP_IN
from minikafka.config.resolution import topic_config
from minikafka.config.resource import ConfigResourceType
from minikafka.config.topic import TOPIC_CONFIG_KEYS, TopicConfig
from minikafka.files import OsFiles
from minikafka.log.files.meta_properties import META_PROPERTIES, read_meta_properties
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.types import TopicPartition

SWAP_TIMEOUT_MS = 600_000
"""A swap waits for fsyncs of a directory, and for its turn on a busy disk thread."""

T = TypeVar("T")


class BrokerOfDirectory:
    """The broker that holds a log directory. Every call makes its own connection, and waits."""

    def __init__(self, addresses: Sequence[Address], log_directory: str, *, timeout_ms: int) -> None:
        """Raises CommandError: the directory does not say whose it is; CorruptCheckpoint, OSError."""
        meta = read_meta_properties(OsFiles(), log_directory)
        if meta is None or meta.node_id is None:
            path = os.path.join(log_directory, META_PROPERTIES)
            raise CommandError(f"{path} does not name a broker: no broker has this directory")
        self._addresses = addresses
        self._meta = meta
        self._node_id = meta.node_id
        self._timeout_ms = timeout_ms

    def topic_configs(self, topics: Sequence[str]) -> dict[str, TopicConfig]:
        """How the topics are configured.

        Raises:
            KafkaError: what the broker says. BrokerUnavailable: it is not there. CommandError: it is of
            another
                cluster, or a topic is not compacted.
        """
        return self._ask(lambda client: self._topic_configs(client, topics), self._timeout_ms)

    def put_in(self, at: TopicPartition, manifest_id: str) -> None:
        """Have the broker put in what is prepared for ``at``. Raises KafkaError: why not;
        BrokerUnavailable."""
        self._ask(lambda client: self._put_in(client, f"{at}:{manifest_id}"), SWAP_TIMEOUT_MS)

    def _ask(self, question: Callable[[AdminClient], Awaitable[T]], timeout_ms: int) -> T:
        async def ask() -> T:
            async with AdminClient(
                self._addresses, client_id="minikafka-compact", timeout_ms=timeout_ms
            ) as client:
                return await question(client)

        return asyncio.run(ask())

    async def _topic_configs(self, client: AdminClient, topics: Sequence[str]) -> dict[str, TopicConfig]:
        cluster_id = (await client.nodes()).cluster_id
        if self._meta.cluster_id not in (None, cluster_id):
            raise CommandError(
                f"the directory belongs to cluster {self._meta.cluster_id}, and the broker to {cluster_id}"
            )
        resources = [
            {"resource_type": ConfigResourceType.TOPIC, "resource_name": topic, "configuration_keys": None}
            for topic in topics
        ]
        body = {"resources": resources, "include_synonyms": False, "include_documentation": False}
        answer = await client.ask_broker(self._node_id, ApiKey.DESCRIBE_CONFIGS, body)
        return {result.resource_name: _topic_config(result) for result in answer.results}

    async def _put_in(self, client: AdminClient, name: str) -> None:
        entry = {
            "entity": [{"entity_type": COMPACTION, "entity_name": name}],
            "ops": [{"key": SWAP_IN, "value": 1.0, "remove": False}],
        }
        body = {"entries": [entry], "validate_only": False}
        answer = await client.ask_broker(self._node_id, ApiKey.ALTER_CLIENT_QUOTAS, body)
        for result in answer.entries:
            error = error_of(result.error_code, result.error_message)
            if error is not None:
                raise error


def _topic_config(result: Any) -> TopicConfig:
    """Raises KafkaError, CommandError."""
    error = error_of(result.error_code, result.error_message)
    if error is not None:
        raise error
    texts = {
        each.name: each.value
        for each in result.configs
        if each.name in TOPIC_CONFIG_KEYS and each.value is not None
    }
    config = topic_config(broker_config({}), texts)
    if not config.compact:
        raise CommandError(
            f"cleanup.policy of topic {result.resource_name} is {','.join(config.cleanup_policy)}: "
            "compaction would remove records that it keeps"
        )
    return config
