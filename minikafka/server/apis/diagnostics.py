"""What a broker knows of itself and Kafka has no API for, as answers to DescribeConfigs.

A resource of the type ``DIAGNOSTICS`` is a question to the broker that is asked; its name is the kind of
document that is wanted, ``configuration_keys`` are what the kind takes, each as ``name=value``. The answer
has properties whose values, one after the other, are JSON; the first is named like the kind. Stock clients
never send the type, and an api key of our own could be met by accident (``docs/decisions/046``).

What can be altered (IncrementalAlterConfigs) are trace sessions: ``apis.traces``.

Each kind is a function of ``KINDS``: arguments in, a document out, in steps; it looks, and changes nothing.
It sees to it that its document is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from minikafka.config.definition import ConfigSource, ConfigType
from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.apis import traces
from minikafka.server.apis.documents import (
    broker,
    counters,
    events,
    group,
    partition,
    purgatory,
    refusals,
    take,
    topic_deletion,
    waiting,
)
from minikafka.server.services import Services
from minikafka.steps import Steps

FIRST_VERSION: Final = 4
"""Of DescribeConfigs: the one that our tools speak."""
PART_LENGTH_MAX: Final = 8_000
"""Characters of the JSON in one property: a string of the protocol has at most 32,767 bytes."""

Kind = Callable[[Services, Mapping[str, str]], Steps[Any]]
"""A document as values that msgspec encodes. Raises KafkaError: INVALID_REQUEST, or why there is none."""


def purgatories(services: Services, arguments: Mapping[str, str]) -> Steps[Any]:
    """``purgatories``: how many operations wait in each, and entries in its watch lists."""
    take(arguments)
    parked, groups = services.replica_manager.parked, services.groups.parked
    waiting = (parked.produce, parked.fetch, parked.delete_records, parked.share_fetch)
    yield
    return [
        {"name": each.name, "delayed": each.delayed, "watched": each.watched}
        for each in (*waiting, groups.rebalance, groups.heartbeat)
    ]


KINDS: Final[Mapping[str, Kind]] = {
    "broker": broker,
    "counters": counters,
    "events": events,
    "group": group,
    "partition": partition,
    "purgatories": purgatories,
    "purgatory": purgatory,
    "refusals": refusals,
    "topic-deletion": topic_deletion,
    "traces": traces.traces,
    "waiting": waiting,
}


def describe(services: Services, name: str, keys: Iterable[str]) -> Steps[list[dict[str, Any]]]:
    """The properties of the answer. Raises KafkaError: INVALID_REQUEST for an unknown kind or argument, and
    what the kind says."""
    kind = KINDS.get(name)
    if kind is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"No diagnostics named {name!r}: there are {', '.join(sorted(KINDS))}"
        )
    document = yield from kind(services, arguments_of(keys))
    text = msgspec.json.encode(document).decode()
    starts = range(0, len(text), PART_LENGTH_MAX)
    yield
    return [
        _property(f"{name}.{number}" if number else name, text[start : start + PART_LENGTH_MAX])
        for number, start in enumerate(starts)
    ]


def _property(name: str, value: str) -> dict[str, Any]:
    return {
        "name": name,
        "value": value,
        "read_only": True,
        "config_source": ConfigSource.UNKNOWN,
        "is_sensitive": False,
        "synonyms": [],
        "config_type": ConfigType.STRING,
        "documentation": None,
    }


def arguments_of(keys: Iterable[str]) -> dict[str, str]:
    """Raises KafkaError: INVALID_REQUEST for one that is not ``name=value``, or is there twice."""
    arguments: dict[str, str] = {}
    for key in keys:
        name, equals, value = key.partition("=")
        if not equals or not name or name in arguments:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Diagnostics take name=value, each once, not {key!r}"
            )
        arguments[name] = value
    return arguments
