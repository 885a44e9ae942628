"""A trace as spans of OpenTelemetry, without OpenTelemetry: ``otlp`` makes its objects of them.

======================  ======================================  ======================================
span                    of                                      parent
======================  ======================================  ======================================
produce T               the leader, from the socket to the      the application's, by ``traceparent``;
                        answer; its events are the steps        else it is the root
append T-P              the leader: validated to appended       produce T
wait in purgatory       the leader: parked to woken             produce T
replicate T-P to N      the leader: in an answer to the         produce T
                        follower, until it fetches behind it
append T-P              a follower                              produce T
fetch T                 who serves a consumer                   produce T
======================  ======================================  ======================================

Names of attributes are those of OpenTelemetry's semantic conventions (messaging, errors) where there is one,
else they begin with ``minikafka.``.

A span never ends when it begins: Jaeger takes that for a broken clock, and warns of it. What is known as a
moment, a follower's append and a consumer's fetch, lasts ``MOMENT_NS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from minikafka.named_tuple import NamedTuple
from minikafka.server.tracing.trace_context import span_id

if TYPE_CHECKING:
    from minikafka.server.tracing.tracer import Step, Trace

Value = str | int | bool

MOMENT_NS: Final = 1


class Span(NamedTuple):
    """One span, and what was known of it when it ended."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value]
    is_server: bool = False
    """Of a request; else it is internal."""
    events: tuple[tuple[str, int, Mapping[str, Value]], ...] = ()
    error: str | None = None


def of_produce(trace: Trace, node_id: int) -> list[Span]:
    """The leader's, when the request is over."""
    if not trace.steps:
        return []
    at: dict[str, Step] = {}
    for step in trace.steps:
        at.setdefault(step.name, step)
    refused = at.get("refused")
    woken = at.get("woken")
    error = None if refused is None else refused.detail.get("error")
    if error is None and woken is not None:
        error = woken.detail.get("error")
    topic, partition = trace.topic_partition
    attributes = _attributes(trace, node_id, "produce") | {"messaging.operation.type": "send"}
    if error is not None:
        attributes["error.type"] = str(error)
    received = trace.steps[0].detail
    attributes |= {
        name: received[key]
        for name, key in (("messaging.client.id", "client"), ("minikafka.acks", "acks"))
        if received.get(key) is not None
    }
    begin_ns, end_ns = trace.steps[0].at_ns, trace.steps[-1].at_ns
    spans = [
        Span(
            trace.context.trace_id,
            produce_span_id(trace),
            trace.context.parent_span_id,
            f"produce {topic}",
            begin_ns,
            max(end_ns, begin_ns + MOMENT_NS),
            attributes,
            is_server=True,
            events=tuple((step.name, step.at_ns, _flat(step.detail)) for step in trace.steps),
            error=error,
        )
    ]
    for operation, name, first, last in (
        ("append", f"append {topic}-{partition}", "validated", "appended"),
        ("wait", "wait in purgatory", "parked", "woken"),
    ):
        if first in at and last in at:
            detail = _flat(at[first].detail | at[last].detail)
            spans.append(_below(trace, node_id, operation, name, at[first].at_ns, at[last].at_ns, **detail))
    return spans


def of_replication(trace: Trace, node_id: int, replica_id: int, since_ns: int, until_ns: int) -> Span:
    """The leader's, of one follower."""
    topic, partition = trace.topic_partition
    name = f"replicate {topic}-{partition} to broker {replica_id}"
    return _below(trace, node_id, "replicate", name, since_ns, until_ns, replica=replica_id)


def of_follower_append(trace: Trace, node_id: int) -> Span:
    topic, partition = trace.topic_partition
    step = trace.steps[-1]
    name = f"append {topic}-{partition}"
    return _below(trace, node_id, "append", name, step.at_ns, step.at_ns, **step.detail)


def of_consumer_fetch(trace: Trace, node_id: int, client_id: str) -> Span:
    now_ns = trace.steps[-1].at_ns
    name = f"fetch {trace.topic_partition.topic}"
    ordinal = sum(step.name == "consumed" for step in trace.steps) + trace.dropped_steps
    made = _below(trace, node_id, "fetch", name, now_ns, now_ns, ordinal=ordinal)
    of_reader = {"messaging.operation.type": "receive", "messaging.client.id": client_id}
    return made._replace(attributes={**made.attributes, **of_reader})


def produce_span_id(trace: Trace) -> str:
    """The parent of all others of the batch, on whichever broker they are made."""
    return span_id(trace.context.trace_id, *trace.topic_partition, trace.first_offset, "produce")


def _below(
    trace: Trace, node_id: int, operation: str, name: str, start_ns: int, end_ns: int, **detail: Any
) -> Span:
    trace_id = trace.context.trace_id
    return Span(
        trace_id,
        span_id(
            trace_id, *trace.topic_partition, trace.first_offset, node_id, name, detail.get("ordinal", 0)
        ),
        produce_span_id(trace),
        name,
        start_ns,
        max(end_ns, start_ns + MOMENT_NS),
        _attributes(trace, node_id, operation)
        | {f"minikafka.{key}": value for key, value in _flat(detail).items()},
    )


def _attributes(trace: Trace, node_id: int, operation: str) -> dict[str, Value]:
    topic, partition = trace.topic_partition
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": operation,
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(partition),
        "messaging.kafka.offset": trace.first_offset,
        "messaging.batch.message_count": trace.last_offset - trace.first_offset + 1,
        "minikafka.broker": node_id,
    }


def _flat(detail: Mapping[str, Any]) -> dict[str, Value]:
    """As attributes can be: no None, no lists."""
    return {
        key: value if isinstance(value, str | int | bool) else ", ".join(map(str, value))
        for key, value in detail.items()
        if value is not None
    }
