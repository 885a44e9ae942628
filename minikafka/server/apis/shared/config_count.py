"""How many properties a request may set for one resource.

Kafka has no bound. All of them are read, checked and stored in one go, while no other request has a turn.
"""

from __future__ import annotations

from collections.abc import Sized

from minikafka.errors import ErrorCode, KafkaError

CONFIGS_MAX = 5_000
"""A topic has 33 properties, a broker 300; loggers are hundreds, and of unknown names there may be
some more."""


def check_config_count(configs: Sized) -> None:
    """Raises KafkaError: INVALID_REQUEST."""
    if len(configs) > CONFIGS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{len(configs)} configurations of one resource; {CONFIGS_MAX} are allowed.",
        )
