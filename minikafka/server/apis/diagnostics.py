"""What a broker knows of itself and Kafka has no API for, as answers to DescribeConfigs.

A resource of the type ``DIAGNOSTICS`` is a question to the broker that is asked; its name is the kind of
document that is wanted, ``configuration_keys`` are what the kind takes, each as ``name=value``. The answer
has properties whose values, one after the other, are JSON; the first is named like the kind. Stock clients
never send the type, and an api key of our own could be met by accident (``docs/decisions/046``).

Each kind is a function of ``KINDS`` (most are in ``documents``): arguments in, a document out, in steps; it
looks, and changes nothing. It sees to it that its document is bounded.

What clients can alter are trace sessions of this broker (``docs/decisions/047``). IncrementalAlterConfigs of
``DIAGNOSTICS``/``traces``: each property is a session, SET starts it with options in JSON
(``SessionOptions``), DELETE ends it; DescribeConfigs of the same resource reads it. It needs ALTER_CONFIGS or
DESCRIBE_CONFIGS on the cluster: who follows records learns who writes and reads them, never what is in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from minikafka.config.definition import ConfigSource, ConfigType
from minikafka.config.resource import Alteration, AlterOperation
from minikafka.errors import ErrorCode, KafkaError
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
from minikafka.server.tracing.tracer import Trace, Tracer, read_options
from minikafka.steps import Steps

FIRST_VERSION: Final = 4
"""Of DescribeConfigs: the one that our tools speak."""
PART_LENGTH_MAX: Final = 8_000
"""Characters of the JSON in one property: a string of the protocol has at most 32,767 bytes."""

Kind = Callable[[Services, Mapping[str, str]], Steps[Any]]
"""A document as values that msgspec encodes. Raises KafkaError: INVALID_REQUEST, or why there is none."""

TRACES: Final = "traces"

TRACES_BYTES_MAX: Final = 26_000
"""Of an answer: a string of the protocol has 32,767 bytes, and the sessions take some."""


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


def traces(services: Services, arguments: Mapping[str, str]) -> Steps[Any]:
    """``traces``: the sessions of this broker; with ``session=…`` the traces of that one, oldest first, as
    many as fit into an answer. ``next`` is where the others begin (``from=…``)."""
    if unknown := sorted(arguments.keys() - {"session", "from"}):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unknown argument {unknown[0]!r}; these diagnostics take session, from",
        )
    tracer, wanted = services.replica_manager.tracer, arguments.get("session")
    found: list[msgspec.Raw] = []
    left_bytes, following = TRACES_BYTES_MAX, None
    if wanted is not None:
        session = tracer.session(wanted)
        if session is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"There is no trace session {wanted} on broker {services.node_id}"
            )
        first = _number(arguments.get("from", "0"))
        for number, trace in enumerate(list(session.traces), start=session.begun - len(session.traces)):
            if number < first:
                continue
            encoded = _encoded(trace)
            if len(encoded) > left_bytes:
                following = number
                break
            left_bytes -= len(encoded)
            found.append(msgspec.Raw(encoded))
            yield
    yield
    return {
        "next": following,
        "broker": services.node_id,
        "now_ns": tracer.now_ns(),
        "sessions": [
            {"name": each.name, "begun": each.begun, "options": msgspec.to_builtins(each.options)}
            for each in tracer.sessions()
        ],
        "traces": found,
    }


def _number(text: str) -> int:
    """Raises KafkaError."""
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"from={text!r} is no number")
    return int(text)


def _encoded(trace: Trace) -> bytes:
    """As JSON; a trace that is too long for an answer without its last steps."""
    document = _document(trace)
    encoded = msgspec.json.encode(document)
    while len(encoded) > TRACES_BYTES_MAX:
        left = len(document["steps"]) // 2
        document["dropped_steps"] += len(document["steps"]) - left
        document["steps"] = document["steps"][:left]
        encoded = msgspec.json.encode(document)
    return encoded


def _document(trace: Trace) -> dict[str, Any]:
    context = trace.context
    return {
        "topic": trace.topic_partition.topic,
        "partition": trace.topic_partition.partition,
        "first_offset": trace.first_offset,
        "last_offset": trace.last_offset,
        "trace_id": context.trace_id,
        "parent_span_id": context.parent_span_id,
        "dropped_steps": trace.dropped_steps,
        "steps": [{"step": step.name, "at_ns": step.at_ns, **step.detail} for step in trace.steps],
    }


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
    "traces": traces,
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


def alter(tracer: Tracer, name: str, alterations: Sequence[Alteration], *, validate_only: bool) -> None:
    """Start and end sessions; none where one of them cannot be.

    Raises:
        KafkaError: INVALID_REQUEST for another resource or operation, INVALID_CONFIG for bad options, and
            what ``Tracer.start`` says.
    """
    if name != TRACES:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Only the diagnostics {TRACES} can be altered, not {name!r}"
        )
    operations = {AlterOperation.SET, AlterOperation.DELETE}
    for each in alterations:
        if each.operation not in operations:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Trace session {each.name} can be set or deleted")
    started = {
        each.name: read_options(each.value) for each in alterations if each.operation == AlterOperation.SET
    }
    if validate_only:
        return
    for each in alterations:
        if each.operation == AlterOperation.DELETE:
            tracer.end_of_client(each.name)
    for session, options in started.items():
        tracer.start(session, options)
