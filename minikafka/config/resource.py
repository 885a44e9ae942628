"""What can be configured, and under which name: the resources of DescribeConfigs and of the Alter requests.

Kafka: ``ConfigResource``, ``ConfigAdminManager.preprocess``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from minikafka.errors import ErrorCode, KafkaError
from minikafka.types import BrokerId


class ConfigResourceType(IntEnum):
    """Kafka's ``ConfigResource.Type``; the numbers are the wire's."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """One thing that can be configured. A broker's name is its id; "" stands for all brokers."""

    type: int
    """The wire's number; it may be none of ``ConfigResourceType``."""
    name: str


def unsupported(resource_type: int) -> KafkaError:
    """The error for a resource of a type that is none of ``ConfigResourceType``."""
    known = ", ".join(each.name for each in ConfigResourceType if each)
    return KafkaError(
        ErrorCode.INVALID_REQUEST, f"Unsupported resource type {resource_type}: there are {known}"
    )


def check_named(resource: ConfigResource) -> None:
    """A group or a client metrics subscription may have any name but none.

    Raises:
        KafkaError: INVALID_REQUEST for an empty name.
    """
    if not resource.name:
        what = "Group" if resource.type == ConfigResourceType.GROUP else "Client metrics subscription"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} name must not be empty")


def check_broker_name(name: str, *, node_id: BrokerId, may_be_empty: bool) -> None:
    """A broker answers for itself only.

    Raises:
        KafkaError: INVALID_REQUEST when ``name`` is not this broker's id.
    """
    if not name and may_be_empty:
        return
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if not (name.isascii() and name.removeprefix("-").isdigit()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if name != str(node_id):
        or_empty = " or empty string" if may_be_empty else ""
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {node_id}{or_empty}, but received {name}",
        )
