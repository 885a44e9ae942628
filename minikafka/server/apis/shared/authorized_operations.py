"""What the asker may do, as the bit field of Metadata, DescribeCluster, DescribeTopicPartitions
and the descriptions of groups.

Kafka: ``AuthHelper.authorizedOperations``, ``AclEntry.supportedOperations``, KIP-430. There is no authorizer
here, and without one Kafka too answers every operation that the kind of resource knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class AclOperation(IntEnum):
    """Kafka's ``AclOperation``; the number is the bit."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def _bit_field(operations: Iterable[AclOperation]) -> int:
    return sum(1 << operation for operation in operations)


NOT_ASKED = -(2**31)
"""The schema's default: the asker did not want to know."""

TOPIC_OPERATIONS = _bit_field(
    {
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    }
)

CLUSTER_OPERATIONS = _bit_field(
    {
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    }
)

GROUP_OPERATIONS = _bit_field(
    {
        AclOperation.READ,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    }
)


def topic_operations(*, asked: bool) -> int:
    return TOPIC_OPERATIONS if asked else NOT_ASKED


def cluster_operations(*, asked: bool) -> int:
    return CLUSTER_OPERATIONS if asked else NOT_ASKED


def group_operations(*, asked: bool) -> int:
    return GROUP_OPERATIONS if asked else NOT_ASKED
