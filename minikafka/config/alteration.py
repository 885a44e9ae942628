"""Changing one property after another: the operations of IncrementalAlterConfigs (KIP-339).

Kafka: ``AlterConfigOp``, ``ConfigAdminManager.prepareIncrementalConfigs``. Pure: texts in, texts out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

import msgspec

from minikafka.config.definition import ConfigKey, ConfigType, format_value
from minikafka.errors import ErrorCode, KafkaError

LIST_BYTES_MAX = 0x7FFF
"""What APPEND may make of a list: a longer one could not be told or set in one string of the protocol."""


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
