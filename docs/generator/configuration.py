"""The page of all configuration properties."""

from __future__ import annotations

from collections.abc import Iterable

from docs.generator.markdown import code, page, table, text
from minikafka.config.broker import BROKER_CONFIG_KEYS
from minikafka.config.client_metrics import CLIENT_METRICS_CONFIG_KEYS
from minikafka.config.definition import ConfigKey, format_value
from minikafka.config.group import BROKER_PREFIX, GROUP_CONFIG_KEYS
from minikafka.config.topic import TOPIC_CONFIG_KEYS

HEADER = ("property", "type", "default", "allowed", "meaning")


def configuration() -> str:
    """The page's text."""
    return page(
        "Configuration",
        "Properties have Kafka's names, and their values are read as Kafka reads them. A range names the "
        "smallest and the largest value, both allowed; `...` is no bound but that of the type.",
        "## Broker",
        "From `--set`, environment variables (`MINIKAFKA_LOG_SEGMENT_BYTES` for `log.segment.bytes`), the "
        "file of `--config`, and defaults, in this order. Those that say `per-broker` or `cluster-wide` can "
        "be changed while the broker runs.",
        table(
            (*HEADER[:-1], "update", HEADER[-1]),
            [
                (*row[:-1], code(key.update_mode.value), row[-1])
                for key, row in zip(BROKER_CONFIG_KEYS.values(), _rows(BROKER_CONFIG_KEYS), strict=True)
            ],
        ),
        "## Topic",
        "What a topic does not set comes from the broker's property beside it, the first "
        "that is set where there are several; the default is that of a broker that sets none.",
        table(
            (*HEADER[:-1], "broker's", HEADER[-1]),
            [
                (*row[:-1], ", ".join(code(synonym.name) for synonym in key.synonyms), row[-1])
                for key, row in zip(TOPIC_CONFIG_KEYS.values(), _rows(TOPIC_CONFIG_KEYS), strict=True)
            ],
        ),
        "## Group",
        f"What a group does not set comes from the broker's property with `{BROKER_PREFIX}` in front; the "
        "broker's `group.consumer.min.…` and `group.consumer.max.…` bound what can be set.",
        table(HEADER, _rows(GROUP_CONFIG_KEYS)),
        "## Client metrics subscription",
        "The resource `client-metrics` (KIP-714).",
        table(HEADER, _rows(CLIENT_METRICS_CONFIG_KEYS)),
    )


def _rows(keys: dict[str, ConfigKey]) -> Iterable[tuple[str, ...]]:
    for key in keys.values():
        yield (
            code(key.name),
            key.type.name.lower(),
            _default(key),
            code(key.allowed()),
            text(key.documentation),
        )


def _default(key: ConfigKey) -> str:
    default = format_value(key, key.default)
    if default is None:
        return "unset"
    return code(default) or "empty"
