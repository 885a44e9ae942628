"""How a property's text becomes a value, and what is said when it cannot."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.config.broker import BROKER_CONFIG_KEYS
from minikafka.config.definition import ConfigType, check_value, format_value, parse_value
from minikafka.config.topic import TOPIC_CONFIG_KEYS
from minikafka.errors import ConfigError

ALL_KEYS = [*TOPIC_CONFIG_KEYS.values(), *BROKER_CONFIG_KEYS.values()]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("segment.bytes", " 1048576 ", 1048576),
        ("segment.bytes", "+2147483647", 2147483647),
        ("retention.ms", "-1", -1),
        ("retention.ms", "-" + "0" * 5000 + "1", -1),
        ("retention.ms", "+" + "0" * 5000, 0),
        ("preallocate", "TRUE", True),
        ("preallocate", " false", False),
        ("cleanup.policy", "compact , delete", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("min.cleanable.dirty.ratio", "1", 1.0),
        ("min.cleanable.dirty.ratio", "1.", 1.0),
        ("min.cleanable.dirty.ratio", ".5e0", 0.5),
        ("min.cleanable.dirty.ratio", "0" * 32_000, 0.0),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
    ],
)
def test_a_text_is_read_as_kafka_reads_it(name: str, text: str, value: Any) -> None:
    assert parse_value(TOPIC_CONFIG_KEYS[name], text) == value


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("segment.bytes", "1048575", "Value must be at least 1048576 (allowed: [1048576,...])"),
        ("segment.bytes", "2147483648", "Not a number of type INT"),
        ("segment.bytes", "1_000_000", "Not a number of type INT"),
        ("segment.bytes", "1e6", "Not a number of type INT"),
        ("segment.bytes", "", "Not a number of type INT"),
        ("segment.bytes", "٣٣٣٣٣٣٣٣", "Not a number of type INT"),
        ("segment.bytes", "9" * 5000, "Not a number of type INT"),
        ("retention.ms", "-2", "Value must be at least -1"),
        ("min.cleanable.dirty.ratio", "1.5", "Value must be no more than 1 (allowed: [0,1])"),
        ("min.cleanable.dirty.ratio", "NaN", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "1e999", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "1" * 32_000 + "x", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "1." + "1" * 32_000 + "x", "Not a number of type DOUBLE"),
        ("preallocate", "yes", "Expected value to be either true or false"),
        ("cleanup.policy", "compact,purge", "String must be one of: compact, delete"),
        (
            "compression.type",
            "GZIP",
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
    ],
)
def test_a_wrong_text_is_refused_with_name_value_and_what_is_allowed(name: str, text: str, why: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_value(TOPIC_CONFIG_KEYS[name], text)
    message = str(raised.value)
    assert why in message and name in message and text.replace(" ", "") in message


@given(st.sampled_from(ALL_KEYS), st.text(max_size=40))
def test_any_text_is_a_value_or_a_config_error(key: Any, text: str) -> None:
    try:
        value = parse_value(key, text)
    except ConfigError as error:
        assert key.name in str(error)
    else:
        assert parse_value(key, format_value(key, value) or "") == value


@pytest.mark.parametrize("key", ALL_KEYS, ids=lambda key: key.name)
def test_every_default_is_allowed_and_survives_being_shown(key: Any) -> None:
    if key.default is not None:
        assert check_value(key, key.default) == key.default
        assert parse_value(key, format_value(key, key.default) or "") == key.default
    assert key.documentation and key.type is not ConfigType.UNKNOWN


def test_values_are_shown_as_kafka_shows_them() -> None:
    keys = TOPIC_CONFIG_KEYS
    assert format_value(keys["preallocate"], True) == "true"
    assert format_value(keys["cleanup.policy"], ("compact", "delete")) == "compact,delete"
    assert format_value(keys["min.cleanable.dirty.ratio"], 0.5) == "0.5"
    assert format_value(BROKER_CONFIG_KEYS["broker.rack"], None) is None
