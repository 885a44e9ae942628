"""The four operations of IncrementalAlterConfigs."""

from __future__ import annotations

import pytest

from minikafka.config.resource import Alteration, AlterOperation, alter
from minikafka.config.topic import TOPIC_CONFIG_KEYS
from minikafka.errors import ErrorCode, KafkaError

SET, DELETE, APPEND, SUBTRACT = AlterOperation


def altered(current: dict[str, str], *alterations: Alteration) -> dict[str, str]:
    return alter(current, alterations, TOPIC_CONFIG_KEYS)


def test_set_and_delete() -> None:
    current = {"segment.bytes": "1", "retention.ms": "2"}
    assert altered(current, Alteration("segment.bytes", SET, "3"), Alteration("retention.ms", DELETE)) == {
        "segment.bytes": "3"
    }
    assert current == {"segment.bytes": "1", "retention.ms": "2"}
    assert altered({}, Alteration("retention.ms", DELETE)) == {}


def test_a_list_stays_what_a_string_of_the_protocol_can_hold() -> None:
    replicas = "leader.replication.throttled.replicas"
    longest = ",".join(["1:1"] * 8_191)
    assert altered({replicas: longest}, Alteration(replicas, APPEND, "1:1")) == {replicas: longest}
    with pytest.raises(KafkaError) as raised:
        altered({replicas: longest}, Alteration(replicas, APPEND, "20:1"))
    assert raised.value.code is ErrorCode.INVALID_CONFIG


def test_lists_grow_and_shrink() -> None:
    policy = "cleanup.policy"
    assert altered({}, Alteration(policy, APPEND, "compact")) == {policy: "delete,compact"}
    assert altered({policy: "compact"}, Alteration(policy, APPEND, "delete, compact")) == {
        policy: "compact,delete"
    }
    assert altered({policy: "compact,delete"}, Alteration(policy, SUBTRACT, "compact")) == {policy: "delete"}
    assert altered({policy: "delete"}, Alteration(policy, SUBTRACT, "compact")) == {policy: "delete"}


@pytest.mark.parametrize(
    ("alterations", "code"),
    [
        ([Alteration("segment.bytes", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([Alteration("foo", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([Alteration("segment.bytes", SET)], ErrorCode.INVALID_REQUEST),
        ([Alteration("segment.bytes", 4, "1")], ErrorCode.INVALID_REQUEST),
        (
            [Alteration("segment.bytes", SET, "1"), Alteration("segment.bytes", DELETE)],
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_what_cannot_be_done_is_refused(alterations: list[Alteration], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as raised:
        altered({}, *alterations)
    assert raised.value.code is code
