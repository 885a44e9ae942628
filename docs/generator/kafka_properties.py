"""The page of all properties of Kafka 4.4, and what each does here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from docs.generator.markdown import code, page, table, text
from minikafka.config.broker import BROKER_CONFIG_KEYS
from minikafka.config.definition import ConfigKey, format_value
from minikafka.config.group import GROUP_CONFIG_KEYS
from minikafka.config.not_honoured import KafkaProperty, kafka_properties, treatment_of
from minikafka.config.topic import TOPIC_CONFIG_KEYS

WITHOUT_EFFECT = ("consumer.assignor.", "local.", "log.local.", "max.decompressed.", "remote.")
"""Those that our configuration has, because topics and groups can set them, and that do nothing."""
REFUSED_TOO = ("max.decompressed.message.bytes", "remote.storage.enable")

HEADER = ("property", "Kafka's default", "here")


def kafka_properties_page() -> str:
    """The page's text."""
    known = kafka_properties()
    return page(
        "Kafka's properties",
        "Every property of Apache Kafka 4.4, and what it does here. *Honoured*: what it says, with Kafka's "
        "default where no other is named; [Configuration](configuration.md) has type, bounds and meaning. "
        "*Accepted*: it may have any value and changes nothing; a broker names those that are set in one "
        "line at its start. *Refused*: it would change results and cannot be had, so any value but Kafka's "
        "default, and those that are named, is an error. DescribeConfigs lists all.",
        "## Broker",
        table(HEADER, _rows(known.broker, BROKER_CONFIG_KEYS)),
        "## Topic",
        table(HEADER, _rows(known.topic, TOPIC_CONFIG_KEYS)),
        "## Group",
        table(HEADER, _rows(known.group, GROUP_CONFIG_KEYS)),
    )


def _rows(known: Mapping[str, KafkaProperty], ours: Mapping[str, ConfigKey]) -> Iterable[tuple[str, ...]]:
    for name, kafkas in sorted(known.items()):
        default = "unset" if kafkas.default is None else code(kafkas.default) or "empty"
        yield code(name), default, _here(name, kafkas, ours.get(name))


def _here(name: str, kafkas: KafkaProperty, key: ConfigKey | None) -> str:
    if key is not None and name.startswith(WITHOUT_EFFECT):
        only_default = key.name in REFUSED_TOO
        return f"{'refused' if only_default else 'accepted'}. {text(key.documentation)}"
    if key is not None:
        default = format_value(key, key.default)
        if (default or "").lower() == (kafkas.default or "").lower():
            return "honoured"
        return f"honoured; default {'unset' if default is None else code(default) or 'empty'}"
    treatment = treatment_of(name)
    if treatment is None:
        assert kafkas.internal, f"{name} is not known"
        return "unknown: for Kafka's own tests"
    if treatment.only is None:
        return f"accepted. {text(treatment.why)}"
    also = ", ".join(code(each) for each in treatment.only if each != kafkas.default)
    return f"refused{f' (but {also})' if also else ''}. {text(treatment.why)}"
