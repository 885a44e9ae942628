"""Workload files in the shape of the OpenMessaging Benchmark's YAML, and its driver files for Kafka.

A file of OMB's runs as it is; what this generator does not do is refused by name rather than passed over.
Where it differs: consumers of a subscription are assigned their partitions instead of forming a group;
``producerRate: 0`` is as fast as the target takes it, without OMB's search for a balanced rate;
``consumerBacklogSizeGB`` is produced before the clock starts.

Beyond OMB's keys, ``messageSize`` and ``keyDistributor`` take this generator's distributions too.
"""

from __future__ import annotations

import difflib
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from minikafka.errors import ConfigError
from minikafka.loadgen.payloads import SIZE_MAX, key_picker, parse_distribution
from minikafka.loadgen.workload import Kind, Workload, checked

BYTES_PER_GB = 1024**3
OMB_KEYS = 10_000
"""How many keys KEY_ROUND_ROBIN and RANDOM_NANO choose from, as in OMB."""

_KEY_DISTRIBUTORS = {
    "NO_KEY": "none",
    "KEY_ROUND_ROBIN": f"sequential:{OMB_KEYS}",
    "RANDOM_NANO": f"uniform:{OMB_KEYS}",
}
_NUMBERS = {
    "topics": 1,
    "partitionsPerTopic": 1,
    "subscriptionsPerTopic": 1,
    "consumerPerSubscription": 1,
    "producersPerTopic": 1,
    "producerRate": 0,
    "consumerBacklogSizeGB": 0,
    "testDurationMinutes": 0,
    "warmupDurationMinutes": 0,
    "randomBytesRatio": 0,
    "randomizedPayloadPoolSize": 0,
}
"""Keys whose values are numbers, and the least that each may be."""
_OTHERS = ("name", "messageSize", "useRandomizedPayloads", "payloadFile", "keyDistributor")
_NEUTRAL = {
    "messageRateReceivedForSubscription": 100,
    "producerStartRate": None,
    "acceptableBacklog": None,
    "producerIncrementRate": 0,
    "producerIncrementSeconds": None,
    "producerPauseBeforeDrain": 0,
    "producerPauseDuringDrain": 0,
}
"""Keys of OMB's that are understood only with the value that changes nothing; None: any."""

_DRIVER_CONFIGS = ("commonConfig", "producerConfig", "consumerConfig", "topicConfig")
_DRIVER_IGNORED = ("name", "driverClass", "reset")
_JAVA_ONLY = frozenset(
    {
        "buffer.memory",
        "default.api.timeout.ms",
        "key.deserializer",
        "key.serializer",
        "max.poll.records",
        "value.deserializer",
        "value.serializer",
    }
)
"""Properties of Kafka's Java clients that librdkafka has nothing like; the others have the same names."""


def parse_workload(
    text: str, *, name: str, driver: str | None, read_bytes: Callable[[str], bytes]
) -> tuple[Workload, str | None]:
    """A workload file, and a driver file when there is one; also the driver's bootstrap.servers.

    Raises:
        ConfigError: one line that names the file (``name``) and the key.
    """
    keys = _mapping(text, name)
    known = {*_NUMBERS, *_OTHERS, *_NEUTRAL}
    for key, value in keys.items():
        _check_key(key, value, known, name)
    numbers = {key: float(keys.get(key, least)) for key, least in _NUMBERS.items()}
    if not numbers["testDurationMinutes"]:
        raise ConfigError(f"{name}: testDurationMinutes is missing, or 0")
    common, settings = _driver(driver) if driver is not None else ({}, {})
    topics = int(numbers["topics"])
    has_consumers = keys.get("subscriptionsPerTopic", 1) != 0
    workload = Workload(
        name=str(keys.get("name", name)),
        kind=Kind.STREAM if has_consumers else Kind.PRODUCE,
        topics=topics,
        partitions=int(numbers["partitionsPerTopic"]),
        producers=int(numbers["producersPerTopic"]) * topics,
        subscriptions=max(int(numbers["subscriptionsPerTopic"]), 1),
        consumers=int(numbers["consumerPerSubscription"]) * topics,
        rate=numbers["producerRate"],
        duration_s=numbers["testDurationMinutes"] * 60,
        warmup_s=numbers["warmupDurationMinutes"] * 60,
        backlog_bytes=int(numbers["consumerBacklogSizeGB"] * BYTES_PER_GB),
        drain_s=max(60.0, numbers["testDurationMinutes"] * 60),
        keys=_checked_keys(str(keys.get("keyDistributor", "NO_KEY")), name),
        record_size=_checked_size(str(keys.get("messageSize", 1024)), name),
        compressibility=_compressibility(keys, numbers["randomBytesRatio"]),
        payload=_payload(keys, name, read_bytes),
        **settings,
    )
    return checked(workload), common.get("bootstrap.servers")


def _mapping(text: str, name: str) -> dict[str, Any]:
    try:
        keys = yaml.safe_load(text)
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        where = f", line {place.line + 1}" if place is not None else ""
        raise ConfigError(f"{name}{where}: is no YAML: {getattr(error, 'problem', error)}") from None
    if not isinstance(keys, dict):
        raise ConfigError(f"{name}: must be keys and values")
    return {str(key): value for key, value in keys.items()}


def _check_key(key: str, value: object, known: set[str], name: str) -> None:
    if key not in known:
        close = difflib.get_close_matches(key, sorted(known), n=1)
        raise ConfigError(f"{name}: there is no key {key}" + (f"; did you mean {close[0]}?" if close else ""))
    if key in _NEUTRAL:
        if not (_NEUTRAL[key] is None or value == _NEUTRAL[key]):
            raise ConfigError(f"{name}: {key} {value} is not supported, only {_NEUTRAL[key]}")
        return
    if key in _NUMBERS:
        least = 0 if key == "subscriptionsPerTopic" else _NUMBERS[key]
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        if not least <= number < math.inf:
            raise ConfigError(f"{name}: {key} {value}: must be a number from {least}")
    if key == "useRandomizedPayloads" and not isinstance(value, bool):
        raise ConfigError(f"{name}: {key} {value}: must be true or false")


def _checked_keys(text: str, name: str) -> str:
    keys = _KEY_DISTRIBUTORS.get(text, text)
    try:
        key_picker("keyDistributor", keys, random.Random(0))
    except ConfigError as error:
        others = ", ".join(_KEY_DISTRIBUTORS)
        raise ConfigError(f"{name}: {error}, or {others}") from None
    return keys


def _checked_size(text: str, name: str) -> str:
    try:
        parse_distribution("messageSize", text, low=0, high=SIZE_MAX)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
    return text


def _compressibility(keys: Mapping[str, Any], random_share: float) -> str:
    """OMB's payloads are all one file, or of that share of random bytes."""
    if keys.get("useRandomizedPayloads"):
        return f"{1 - min(random_share, 1.0) if 'randomBytesRatio' in keys else 0:g}"
    return "0"


def _payload(keys: Mapping[str, Any], name: str, read_bytes: Callable[[str], bytes]) -> bytes | None:
    path = keys.get("payloadFile")
    if path is None or keys.get("useRandomizedPayloads"):
        return None
    try:
        payload = read_bytes(str(path))
    except OSError as error:
        raise ConfigError(f"{name}: payloadFile {path}: {error.strerror}") from None
    size = keys.get("messageSize")
    if isinstance(size, int) and len(payload) < size:
        raise ConfigError(f"{name}: payloadFile {path} has {len(payload)} bytes, messageSize {size}")
    return payload[:size] if isinstance(size, int) else payload


def _driver(text: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Its common properties, and fields of a workload."""
    keys = _mapping(text, "the driver file")
    configs: dict[str, dict[str, str]] = {name: {} for name in _DRIVER_CONFIGS}
    settings: dict[str, Any] = {}
    for key, value in keys.items():
        if key in configs:
            configs[key] = _properties(key, value)
        elif key == "replicationFactor":
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"the driver file: replicationFactor {value}: must be a number from 1")
            settings["replication_factor"] = value
        elif key not in _DRIVER_IGNORED:
            raise ConfigError(f"the driver file: there is no key {key}")
    common = {name: value for name, value in configs["commonConfig"].items() if name != "bootstrap.servers"}
    settings["producer_config"] = common | configs["producerConfig"]
    settings["consumer_config"] = {
        name: value
        for name, value in (common | configs["consumerConfig"]).items()
        if name not in ("auto.offset.reset", "enable.auto.commit", "group.id")  # assigned from known offsets
    }
    settings["topic_config"] = configs["topicConfig"]
    return configs["commonConfig"], settings


def _properties(key: str, value: object) -> dict[str, str]:
    """Lines of ``name=value``, as librdkafka calls them."""
    properties = {}
    for line in str(value or "").splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, found, setting = line.partition("=")
        if not found:
            raise ConfigError(f"the driver file: {key}: {line.strip()}: must be NAME=VALUE")
        if name.strip() not in _JAVA_ONLY:
            properties[name.strip()] = setting.strip()
    return properties
