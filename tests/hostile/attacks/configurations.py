"""Configurations that cost more to read than to send."""

from __future__ import annotations

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import ApiKey
from tests.hostile.attack import Attack
from tests.hostile.attacks import many_entries
from tests.hostile.bystander import TOPIC
from tests.integration.support.process import BrokerProcess
from tests.integration.support.wire import RawClient

TOPIC_RESOURCE, CLIENT_METRICS_RESOURCE = 2, 16
SET, APPEND = 0, 2
STRING_BYTES_MAX = 32_000
THROTTLED_REPLICAS = "leader.replication.throttled.replicas"


def alter(client: RawClient, resource_type: int, name: str, *configs: tuple[str, int, str]) -> int:
    """IncrementalAlterConfigs of one resource; returns its error code."""
    resource = {
        "resource_type": resource_type,
        "resource_name": name,
        "configs": [
            {"name": config, "config_operation": operation, "value": value}
            for config, operation, value in configs
        ],
    }
    body = {"resources": [resource], "validate_only": False}
    client.send(many_entries.frame(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, body))
    _, answer = client.receive()
    return int.from_bytes(answer[8:10], "big", signed=True)


def digits(broker: BrokerProcess, short: bool) -> str:
    """A number of 32 KB that is none because of its last character."""
    rounds = 1 if short else 20
    with RawClient(broker.port) as client:
        for _ in range(rounds):
            code = alter(
                client,
                TOPIC_RESOURCE,
                TOPIC,
                ("min.cleanable.dirty.ratio", SET, "1" * STRING_BYTES_MAX + "x"),
            )
            assert code == ErrorCode.INVALID_CONFIG, code
    return f"{rounds} refusals"


def lists(broker: BrokerProcess, short: bool) -> str:
    """A list of some thousands of entries that is to grow by as many, none of which is there yet."""
    rounds = 2 if short else 20
    entries = 4_000
    with RawClient(broker.port) as client:
        for number in range(rounds):
            first = number * entries
            value = ",".join(f"{entry}:1" for entry in range(first, first + entries))
            code = alter(client, TOPIC_RESOURCE, TOPIC, (THROTTLED_REPLICAS, APPEND, value))
            assert code == (ErrorCode.INVALID_CONFIG if number else ErrorCode.NONE), code
    return f"{rounds - 1} refusals"


def matching(broker: BrokerProcess, short: bool) -> str:
    """A subscription to clients' metrics whose pattern does not match one of them for a very long time."""
    with RawClient(broker.port) as client:
        code = alter(client, CLIENT_METRICS_RESOURCE, "attack", ("match", SET, "client_id=(a+)+b"))
        assert code == ErrorCode.NONE, code
        body = {"client_instance_id": None}
        request = many_entries.frame(
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, body, client_id="a" * STRING_BYTES_MAX
        )
        client.send(request)
        client.receive()
    return "an answer"


ATTACKS = [
    Attack("a number of 32 KB", digits),
    Attack("a list that grows", lists),
    Attack("a pattern for clients' metrics", matching),
]
