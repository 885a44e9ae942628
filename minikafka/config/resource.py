"""What can be configured, under which name, and how it is altered: the resources of DescribeConfigs and of
the Alter requests, and the operations of IncrementalAlterConfigs (KIP-339).

Kafka: ``ConfigResource``, ``AlterConfigOp``, ``ConfigAdminManager``. Pure: texts in, texts out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

import msgspec

from minikafka.config.definition import ConfigKey, ConfigType, format_value
from minikafka.errors import ErrorCode, KafkaError
from minikafka.named_tuple import NamedTuple
from minikafka.types import BrokerId

LIST_BYTES_MAX = 0x7FFF
"""What APPEND may make of a list: a longer one could not be told or set in one string of the protocol."""

DIAGNOSTICS: Final = 120
"""Our own type: a question to a broker about itself (``server/apis/diagnostics``), and its trace sessions.
Kafka's are powers of two, and 128 is more than the wire's signed byte holds."""


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


class AlterOperation(IntEnum):
    """``AlterConfigOp.OpType``; the numbers are the wire's."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(msgspec.Struct, frozen=True):
    """One operation on one property. ``value`` counts for all but DELETE."""

    name: str
    operation: int
    value: str | None = None

    def __repr__(self) -> str:
        """Without the value, which may be a password."""
        return f"Alteration({self.name}, {self.operation})"


def alter(
    current: Mapping[str, str], alterations: Iterable[Alteration], keys: Mapping[str, ConfigKey]
) -> dict[str, str]:
    """``current`` after ``alterations``. Values are not checked here; the result is.

    APPEND and SUBTRACT work on lists only, and start from the default where ``current`` has no value.

    Raises:
        KafkaError: INVALID_REQUEST for an unknown operation, a missing value or a property altered twice;
            INVALID_CONFIG for an unknown property, a list operation on something else or a list that becomes
            too long.
    """
    altered = dict(current)
    seen: set[str] = set()
    for alteration in alterations:
        name, value = alteration.name, alteration.value
        if name in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {name}")
        seen.add(name)
        if alteration.operation not in AlterOperation.__members__.values():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {alteration.operation}")
        operation = AlterOperation(alteration.operation)
        if operation is AlterOperation.DELETE:
            altered.pop(name, None)
            continue
        if value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
        if operation is AlterOperation.SET:
            altered[name] = value
        else:
            altered[name] = _alter_list(name, altered.get(name), operation, value, keys)
            if len(altered[name].encode()) > LIST_BYTES_MAX:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG, f"The list {name} would have more than {LIST_BYTES_MAX} bytes."
                )
    return altered


def _alter_list(
    name: str, current: str | None, operation: AlterOperation, value: str, keys: Mapping[str, ConfigKey]
) -> str:
    key = keys.get(name)
    if key is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {name}")
    if key.type is not ConfigType.LIST:
        what = operation.name.lower()
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Config value {what} is not allowed for config key: {name}"
        )
    old = _items(format_value(key, key.default) or "" if current is None else current)
    given = _items(value)
    if operation is AlterOperation.APPEND:
        there = frozenset(old)
        return ",".join(old + [item for item in given if item not in there])
    unwanted = frozenset(given)
    return ",".join(item for item in old if item not in unwanted)


def _items(text: str) -> list[str]:
    return [item for part in text.split(",") if (item := part.strip())]
