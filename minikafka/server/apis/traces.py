"""Trace sessions of this broker, started, ended and read by clients (``docs/decisions/047``).

IncrementalAlterConfigs of ``DIAGNOSTICS``/``traces``: each property is a session, SET starts it with options
in JSON (``SessionOptions``), DELETE ends it. DescribeConfigs of the same resource reads it; see
``apis.diagnostics``. It needs ALTER_CONFIGS or DESCRIBE_CONFIGS on the cluster: who follows records learns
who writes and reads them, never what is in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from minikafka.config.resource import Alteration, AlterOperation
from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.services import Services
from minikafka.server.tracing.tracer import Trace, Tracer, read_options
from minikafka.steps import Steps

NAME: Final = "traces"

TRACES_BYTES_MAX: Final = 26_000
"""Of an answer: a string of the protocol has 32,767 bytes, and the sessions take some."""


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


def alter(tracer: Tracer, name: str, alterations: Sequence[Alteration], *, validate_only: bool) -> None:
    """Start and end sessions; none where one of them cannot be.

    Raises:
        KafkaError: INVALID_REQUEST for another resource or operation, INVALID_CONFIG for bad options, and
            what ``Tracer.start`` says.
    """
    if name != NAME:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Only the diagnostics {NAME} can be altered, not {name!r}"
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
