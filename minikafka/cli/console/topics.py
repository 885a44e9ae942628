"""``api/topics`` and ``api/topic``: topics with their sizes; one with partitions, configurations, groups."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from itertools import accumulate
from typing import Any, Final

from minikafka.cli.console.exchange import Query
from minikafka.cli.console.groups import GroupsView
from minikafka.cli.console.snapshot import ClusterView, TopicState, by_size
from minikafka.cli.shared.admin_client import raise_error
from minikafka.config.definition import ConfigSource
from minikafka.config.resource import ConfigResourceType
from minikafka.errors import KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.types import TopicPartition

PARTITIONS_MAX: Final = 1_000
GROUPS_MAX: Final = 200
COUNTED_MAX: Final = 2_000
"""Partitions of a list whose records and bytes are asked for: topics behind that have none."""


async def topics(view: ClusterView, query: Query) -> dict[str, Any]:
    """Those in trouble first, internal ones last."""
    wanted, limit = query.text("filter"), query.limit()
    snapshot = await view.snapshot()
    found = sorted(
        (each for each in snapshot.topics.values() if wanted in each.name),
        key=lambda each: (each.is_internal, *_weight(each), each.name),
    )
    shown = found[:limit]
    counts = accumulate(len(each.partitions) for each in shown)
    counted = [each for each, count in zip(shown, counts, strict=True) if count <= COUNTED_MAX]
    partitions = [
        TopicPartition(topic.name, each.partition) for topic in counted for each in topic.partitions
    ]
    ends, sizes = await asyncio.gather(view.ends(partitions), view.leader_bytes(counted))
    rows = []
    for topic in shown:
        at_all = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
        records = [ends[at].records if at in ends else None for at in at_all]
        rows.append(
            {
                "name": topic.name,
                "is_internal": topic.is_internal,
                "partitions": len(topic.partitions),
                "replication_factor": topic.replication_factor,
                "offline": topic.offline,
                "under_replicated": topic.under_replicated,
                "under_min_isr": topic.under_min_isr,
                "bytes": by_size(sizes, topic),
                "records": None if None in records else sum(each or 0 for each in records),
            }
        )
    return {"topics": rows, "left_out": len(found) - len(shown)}


def _weight(topic: TopicState) -> tuple[bool, bool]:
    return not (topic.offline or topic.under_min_isr), not topic.under_replicated


async def topic(view: ClusterView, groups: GroupsView, query: Query) -> dict[str, Any]:
    """Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION."""
    name = query.needed("name")
    found = (await view.snapshot()).topic(name)
    shown = found.partitions[:PARTITIONS_MAX]
    partitions = [TopicPartition(name, each.partition) for each in shown]
    ends, sizes, configs, readers = await asyncio.gather(
        view.ends(partitions), view.leader_bytes([found]), _configs(view, name), groups.of_topic(name)
    )
    return {
        "name": name,
        "topic_id": None
        if found.topic_id is None
        else urlsafe_b64encode(found.topic_id.bytes).decode().rstrip("="),
        "is_internal": found.is_internal,
        "partitions": [
            {
                "partition": each.partition,
                "leader": each.leader,
                "leader_epoch": each.leader_epoch,
                "replicas": each.replicas,
                "isr": each.isr,
                "log_start_offset": ends[at].log_start_offset,
                "high_watermark": ends[at].high_watermark,
                "bytes": sizes.get(at),
            }
            for each, at in zip(shown, partitions, strict=True)
        ],
        "partitions_left_out": len(found.partitions) - len(shown),
        "configs": configs,
        "groups": readers[:GROUPS_MAX],
        "groups_left_out": max(0, len(readers) - GROUPS_MAX),
    }


async def _configs(view: ClusterView, topic_name: str) -> list[dict[str, Any]]:
    """With sources, documentation and synonyms; nothing where we may not ask."""
    resource = {
        "resource_type": ConfigResourceType.TOPIC,
        "resource_name": topic_name,
        "configuration_keys": None,
    }
    body = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
    try:
        (answer,) = (await view.admin.ask_any(ApiKey.DESCRIBE_CONFIGS, body)).results
        raise_error(answer)
    except (KafkaError, BrokerUnavailable):
        return []
    return [
        {
            "name": each.name,
            "value": each.value,
            "source": _source(each.config_source),
            "is_sensitive": bool(each.is_sensitive),
            "is_read_only": bool(each.read_only),
            "documentation": getattr(each, "documentation", None),
            "synonyms": [
                {"name": synonym.name, "value": synonym.value, "source": _source(synonym.source)}
                for synonym in each.synonyms
            ],
        }
        for each in sorted(answer.configs, key=lambda each: str(each.name))
    ]


def _source(code: int) -> str:
    return ConfigSource(code).name if code in ConfigSource.__members__.values() else str(code)
