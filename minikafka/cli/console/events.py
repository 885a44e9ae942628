"""``api/events`` and ``api/purgatory``: what the brokers have decided, all of theirs in one order, and what
waits on one of them."""

from __future__ import annotations

from typing import Any, Final

from minikafka.cli.console.exchange import Query
from minikafka.cli.console.snapshot import ClusterView
from minikafka.config.definition import INT_MAX

NEWEST: Final = 100
NEWEST_MAX: Final = 1_000
WAITING_MAX: Final = 1_000


async def events(view: ClusterView, query: Query) -> dict[str, Any]:
    """The newest of all brokers, the oldest of them first. The clocks of brokers differ a little, so events
    of two that are close together may be the wrong way round."""
    newest = query.number("newest", NEWEST, least=1, most=NEWEST_MAX)
    subject = query.text("subject")
    snapshot = await view.snapshot()
    answers = await view.of_brokers(
        snapshot.alive(),
        lambda node_id: view.admin.diagnostics("events", node_id=node_id, newest=newest, subject=subject),
    )
    not_answered = {node_id: each for node_id, each in answers.items() if isinstance(each, str)}
    for each in snapshot.brokers.values():
        if not each.is_alive:
            not_answered[each.node_id] = "it is not registered"
    found = [event for each in answers.values() if not isinstance(each, str) for event in each["events"]]
    found.sort(key=lambda each: (each["sequence"], each["broker"]))
    return {
        "at_ms": view.clock.now_ms(),
        "events": [
            {
                "at_ms": each["at_ms"],
                "broker": each["broker"],
                "kind": each["kind"],
                "subject": each["subject"],
                "text": each["text"],
                "is_bad": _is_bad(each),
            }
            for each in found[-newest:]
        ],
        "not_answered": not_answered,
    }


def _is_bad(event: Any) -> bool:
    """As the status page has it: a log directory failed, a session was lost, an election may lose records."""
    fields = event["event"]
    return event["kind"] == "log_dir" or bool(fields.get("is_unclean") or fields.get("is_lost"))


async def purgatory(view: ClusterView, query: Query) -> Any:
    """Raises KafkaError: what the broker says, also that it is none of minikafka's."""
    node_id = query.number("broker", most=INT_MAX)
    limit = query.optional("limit") and query.number("limit", least=1, most=WAITING_MAX)
    return await view.admin.diagnostics(
        "purgatory",
        node_id=node_id,
        name=query.optional("name"),
        key=query.optional("key"),
        limit=limit,
    )
