"""What can be set for a client metrics subscription: which clients send which of their metrics, how often.

Kafka: ``ClientMetricsConfigs`` (KIP-714). Patterns are regular expressions that must match the whole
attribute, as Java's ``matches``. Their syntax is RE2's, whose cost is bounded whatever a client's attributes
are; Kafka's is Java's, which has references to groups and looks around besides.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from minikafka.config.definition import ConfigType, Importance, config_keys, parse_value, prop
from minikafka.errors import ConfigError, ErrorCode, KafkaError
from minikafka.regex import compile_regex

INTERVAL_MS_DEFAULT = 300_000
INTERVAL_MS_MIN = 100
INTERVAL_MS_MAX = 3_600_000

ALL_METRICS = "*"
"""Among the metrics of a subscription: every metric there is."""

CLIENT_ATTRIBUTES = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What ``match`` can look at."""

MEDIUM = Importance.MEDIUM


class ClientMetricsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A field is the property's name with underscores for dots."""

    metrics: Annotated[
        tuple[str, ...],
        prop(ConfigType.LIST, MEDIUM, "Prefixes of the names of metrics that are sent; * for all metrics."),
    ] = ()
    interval_ms: Annotated[
        int, prop(ConfigType.INT, MEDIUM, "How often metrics are sent: 100 ms to one hour.")
    ] = INTERVAL_MS_DEFAULT
    match: Annotated[
        tuple[str, ...],
        prop(
            ConfigType.LIST,
            MEDIUM,
            "Which clients: attribute=pattern, all of which must match; nothing for all clients.",
        ),
    ] = ()

    def patterns(self) -> dict[str, Any]:
        """``match`` by attribute. Raises ConfigError."""
        return dict(_pattern(text) for text in self.match)


CLIENT_METRICS_CONFIG_KEYS = config_keys(ClientMetricsConfig)
"""Every property of a subscription by its name."""


def client_metrics_config(overrides: Mapping[str, str]) -> ClientMetricsConfig:
    """A subscription that sets ``overrides``.

    Raises:
        KafkaError: INVALID_REQUEST for an unknown name and an interval out of bounds, INVALID_CONFIG for
            anything that cannot be read: Kafka's codes.
    """
    values = {}
    for name, text in overrides.items():
        key = CLIENT_METRICS_CONFIG_KEYS.get(name)
        if key is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
        try:
            values[key.attribute] = parse_value(key, text)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    config = ClientMetricsConfig(**values)
    if not INTERVAL_MS_MIN <= config.interval_ms <= INTERVAL_MS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {config.interval_ms} for interval.ms, interval must be between {INTERVAL_MS_MIN} "
            f"and {INTERVAL_MS_MAX} (1 hour)",
        )
    try:
        config.patterns()
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return config


def _pattern(text: str) -> tuple[str, Any]:
    name, found, pattern = text.partition("=")
    try:
        if not found or not pattern or "=" in pattern or name.strip() not in CLIENT_ATTRIBUTES:
            raise ValueError(text)
        return name.strip(), compile_regex(pattern.strip(), name=name.strip())
    except (ValueError, KafkaError):
        raise ConfigError(f"Illegal client matching pattern: {text}") from None
