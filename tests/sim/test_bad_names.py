"""Names that nothing can have, in every request with a name: each is answered, and none with a bug of ours.

The requests are made from their schemas, so that an API which is added later is asked too. What the APIs of
topics answer exactly is in ``tests/integration/test_bad_names.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from minikafka.config.resource import ConfigResourceType
from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.protocol.wire.schema import EntitySchema, FieldSchema, message_schema
from minikafka.testing.simulation.client import SimulatedClient
from minikafka.testing.simulation.simulation import Simulation

BAD_NAMES = (
    *("", ".", "..", "a/b", "../a", "a b", "nul\0", "ü", "known ", "x" * 250, "x" * 5_000),
    *("known/partitions", "known/partitions/0/state"),
)
BETWEEN_BROKERS = {
    *(ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN),
}
CONFIGS = {ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS}
LAST_TO_NAME_TOPICS = {ApiKey.PRODUCE: 12, ApiKey.FETCH: 12}
"""Later versions have the topics' ids. Of the others the last version is asked."""
SENSIBLE: Mapping[str, Any] = {"acks": 1, "timeout": 1_000, "path": "/data"}
"""Where zero would end a request before its name is looked at."""
CONFIG = {
    f"{topic}.{key}": 1
    for topic, keys in (
        ("offsets.topic", ("replication.factor", "num.partitions")),
        ("transaction.state.log", ("replication.factor", "num.partitions", "min.isr")),
    )
    for key in keys
}


def value_of(field: FieldSchema, name: str, resource_type: int) -> Any:
    if field.entity is not None:
        return body_of(field.entity, name, resource_type)
    if field.name == "resource_type":
        return resource_type
    if field.name in SENSIBLE:
        return SENSIBLE[field.name]
    if field.kafka_type == "string":
        return name
    return {"bool": False, "bytes": b"", "records": None, "float64": 0.0, "uuid": uuid.UUID(int=7)}.get(
        field.kafka_type or "", 0
    )


def body_of(entity: EntitySchema, name: str, resource_type: int) -> dict[str, Any]:
    """A body whose strings are all ``name``, and whose arrays have one entry."""
    found = {field.name: value_of(field, name, resource_type) for field in entity.fields}
    return {
        field.name: [found[field.name]] if field.is_array else found[field.name] for field in entity.fields
    }


def requests() -> Iterator[tuple[ApiKey, int, dict[str, Any]]]:
    for key, versions in SUPPORTED.items():
        if key in BETWEEN_BROKERS:
            continue
        version = LAST_TO_NAME_TOPICS.get(key, versions.max)
        entity = message_schema(key, version, "request").body
        for resource_type in ConfigResourceType if key in CONFIGS else (ConfigResourceType.TOPIC,):
            for name in BAD_NAMES:
                yield key, version, body_of(entity, name, resource_type)


def test_a_bad_name_is_answered_by_every_api(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(simulation: Simulation) -> None:
        broker = await simulation.start_broker(1, CONFIG)
        client = SimulatedClient([broker.address])
        await client.create_topic("known", partitions=1, replication_factor=1)
        before = set(broker.disk.mount().list("/data"))
        asked = 0
        for key, version, body in requests():
            answer = await client.request(broker.address, key, body, version=version)
            assert f"{ErrorCode.UNKNOWN_SERVER_ERROR!r}" not in repr(answer), (key, body, answer)
            asked += 1
        assert asked > 800
        made = set(broker.disk.mount().list("/data")) - before
        assert made <= {"__consumer_offsets-0", "__transaction_state-0", "minikafka-events.jsonl"}, made

    Simulation(1).run(scenario)
    assert "Traceback" not in caplog.text
