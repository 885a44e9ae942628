"""What the properties of a resource must be before anything else, for every principal.

Kafka: ``ConfigAdminManager.preprocess``, which has no bound. All properties of a resource are read, checked
and stored in one go, while no other request has a turn.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any

from minikafka.config.resource import AlterOperation
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import field

CONFIGS_MAX = 5_000
"""A topic has 33 properties, a broker 300; loggers are hundreds, and of unknown names there may be
some more."""


def check_configs(configs: Sequence[Any]) -> None:
    """Of AlterConfigs or IncrementalAlterConfigs.

    Raises:
        KafkaError: INVALID_REQUEST for a property that is named twice or has no value, and for too many.
    """
    check_config_count(configs)
    if len({config.name for config in configs}) < len(configs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    without_value = [
        config.name
        for config in configs
        if config.value is None
        and field(config, "config_operation", AlterOperation.SET) != AlterOperation.DELETE
    ]
    if without_value:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(without_value)}"
        )


def check_config_count(configs: Sized) -> None:
    """Raises KafkaError: INVALID_REQUEST."""
    if len(configs) > CONFIGS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{len(configs)} configurations of one resource; {CONFIGS_MAX} are allowed.",
        )
