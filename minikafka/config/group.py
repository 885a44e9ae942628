"""What can be set for one consumer group. Kafka: ``GroupConfig``, ``GroupConfigManager`` (KIP-848).

A value that is set must lie within the bounds that the broker has for it, ``group.consumer.min.…`` and
``group.consumer.max.…``; what is not set is the broker's ``group.consumer.…``.

Where it differs from Kafka: there are no share groups and no streams groups, and so none of their properties.
"""

from collections.abc import Container, Mapping
from typing import Annotated, Any, Protocol

import msgspec

from minikafka.config.definition import ConfigType, Importance, config_keys, parse_value, prop
from minikafka.errors import ConfigError, ErrorCode, KafkaError

BROKER_PREFIX = "group."
"""In front of a group's property: the name of the broker's property that gives its default."""


class GroupConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A field is the property's name with underscores for dots; the defaults are Kafka's."""

    consumer_session_timeout_ms: Annotated[
        int,
        prop(
            ConfigType.INT,
            Importance.MEDIUM,
            "How long a member may be silent before it is removed from a group of the consumer protocol.",
            ge=1,
        ),
    ] = 45_000
    consumer_heartbeat_interval_ms: Annotated[
        int,
        prop(
            ConfigType.INT,
            Importance.MEDIUM,
            "How often the members of a group of the consumer protocol are asked to send heartbeats.",
            ge=1,
        ),
    ] = 5_000
    consumer_assignment_interval_ms: Annotated[
        int,
        prop(
            ConfigType.INT,
            Importance.MEDIUM,
            "The least time between two assignments of a group of the consumer protocol: members that come "
            "or go meanwhile wait for the next one.",
            ge=0,
        ),
    ] = 0
    consumer_assignor_offload_enable: Annotated[
        bool,
        prop(
            ConfigType.BOOLEAN,
            Importance.MEDIUM,
            "Whether a thread works out assignments. Without effect: it is done in steps.",
        ),
    ] = True


GROUP_CONFIG_KEYS = config_keys(GroupConfig)
"""Every property of a group by its name."""


class GroupBounds(Protocol):
    """What a broker allows, and what holds where nothing is set (``GroupCoordinatorConfig``)."""

    @property
    def group_consumer_session_timeout_ms(self) -> int: ...
    @property
    def group_consumer_min_session_timeout_ms(self) -> int: ...
    @property
    def group_consumer_max_session_timeout_ms(self) -> int: ...
    @property
    def group_consumer_heartbeat_interval_ms(self) -> int: ...
    @property
    def group_consumer_min_heartbeat_interval_ms(self) -> int: ...
    @property
    def group_consumer_max_heartbeat_interval_ms(self) -> int: ...
    @property
    def group_consumer_assignment_interval_ms(self) -> int: ...
    @property
    def group_consumer_min_assignment_interval_ms(self) -> int: ...
    @property
    def group_consumer_max_assignment_interval_ms(self) -> int: ...


def group_config(bounds: GroupBounds, overrides: Mapping[str, str]) -> GroupConfig:
    """What holds for a group that sets ``overrides``, which were checked.

    Raises:
        ConfigError: an unknown name or a value that is not allowed.
    """
    values = {
        "consumer_session_timeout_ms": bounds.group_consumer_session_timeout_ms,
        "consumer_heartbeat_interval_ms": bounds.group_consumer_heartbeat_interval_ms,
        "consumer_assignment_interval_ms": bounds.group_consumer_assignment_interval_ms,
    }
    return GroupConfig(**values | _parsed(overrides))


def check_group_overrides(bounds: GroupBounds, overrides: Mapping[str, str]) -> None:
    """What a client wants to set: each value within the broker's bounds, and together with the broker's where
    one is missing, as in Kafka since 4.3.

    Raises:
        KafkaError: INVALID_CONFIG, with Kafka's kind of message.
    """
    try:
        _check_bounds(bounds, group_config(bounds, overrides), overrides)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _parsed(overrides: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for name, text in overrides.items():
        key = GROUP_CONFIG_KEYS.get(name)
        if key is None:
            raise ConfigError(f"Unknown group config name: {name}")
        values[key.attribute] = parse_value(key, text)
    return values


def _check_bounds(bounds: GroupBounds, config: GroupConfig, overrides: Container[str]) -> None:
    for name, value, low, high in (
        (
            "heartbeat.interval.ms",
            config.consumer_heartbeat_interval_ms,
            bounds.group_consumer_min_heartbeat_interval_ms,
            bounds.group_consumer_max_heartbeat_interval_ms,
        ),
        (
            "session.timeout.ms",
            config.consumer_session_timeout_ms,
            bounds.group_consumer_min_session_timeout_ms,
            bounds.group_consumer_max_session_timeout_ms,
        ),
        (
            "assignment.interval.ms",
            config.consumer_assignment_interval_ms,
            bounds.group_consumer_min_assignment_interval_ms,
            bounds.group_consumer_max_assignment_interval_ms,
        ),
    ):
        if f"consumer.{name}" not in overrides:
            continue
        if value < low:
            raise ConfigError(
                f"consumer.{name} must be greater than or equal to group.consumer.min.{name} ({low})"
            )
        if value > high:
            raise ConfigError(
                f"consumer.{name} must be less than or equal to group.consumer.max.{name} ({high})"
            )
    if config.consumer_session_timeout_ms <= config.consumer_heartbeat_interval_ms:
        raise ConfigError("consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms")
