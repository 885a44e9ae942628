"""``api/why``, ``api/events`` and ``api/purgatory``: what brokers say of their reasons.

``api/why`` is ``minikafka why`` for the page: the same questions, the same answers as its ``--json``. Events
are what the brokers have decided, all of theirs in one order; a purgatory is what waits on one of them.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any, Final

from minikafka.cli.console.cluster import ClusterView, Connection
from minikafka.cli.console.exchange import Query, Refusal
from minikafka.cli.why import partition as partitions
from minikafka.cli.why.cluster import Cluster
from minikafka.cli.why.command import SAMPLE_MS, SUBJECTS, TABLE
from minikafka.clock import Clock
from minikafka.config.definition import INT_MAX, LONG_MAX
from minikafka.types import TopicPartition

TIMEOUT_S: Final = 15.0
SAMPLE_MS_MAX: Final = 5_000
AT_ONCE_MAX: Final = 4
"""Questions; more wait. Each has connections of its own."""
ELSEWHERE: Final = {
    TABLE: "only the command answers it, minikafka why table: a reader of this page would have this server "
    "open any catalog and directory that they name"
}
"""Subjects of the command that the page does not have, and why. A catalog or an output is a URL or a path:
what opens it for a reader would read files, and ask addresses, that only the server may."""
ASKED: Final = [subject for subject in SUBJECTS if subject not in ELSEWHERE]

NEWEST: Final = 100
NEWEST_MAX: Final = 1_000
WAITING_MAX: Final = 1_000


class WhyView:
    """See the module header."""

    def __init__(self, connection: Connection, clock: Clock, *, options: str = "") -> None:
        """``options``: of the connection, for the commands that answers propose, with a space in front."""
        self._connection = connection
        self._clock = clock
        self._options = options
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)

    def __repr__(self) -> str:
        return f"WhyView({self._connection.addresses})"

    async def why(self, query: Query) -> Any:
        """Raises Refusal: 504 where the brokers take too long; KafkaError, BrokerUnavailable."""
        arguments = arguments_of(query)
        try:
            async with asyncio.timeout(TIMEOUT_S), self._turns:
                return await self._answer(arguments)
        except TimeoutError:
            raise Refusal(504, f"no answer within {TIMEOUT_S:.0f} s") from None

    async def _answer(self, arguments: argparse.Namespace) -> Any:
        arguments.addresses = self._connection.addresses
        arguments.security = self._connection.security
        arguments.connect = self._connection.connect
        arguments.timeout_ms = self._connection.timeout_ms
        arguments.bootstrap_server = arguments.command_config = None
        async with Cluster(arguments, self._clock) as cluster:
            cluster.connection = self._options
            return await SUBJECTS[arguments.subject](cluster, arguments)


def arguments_of(query: Query) -> argparse.Namespace:
    """What ``minikafka why``'s own parser would have made of it. Raises Refusal."""
    subject = query.needed("subject")
    if subject in ELSEWHERE:
        raise Refusal(400, f"subject {subject}: {ELSEWHERE[subject]}")
    if subject not in ASKED:
        raise Refusal(400, f"subject: must be one of {', '.join(ASKED)}")
    found = argparse.Namespace(
        subject=subject, sample_ms=query.number("sample_ms", SAMPLE_MS, most=SAMPLE_MS_MAX)
    )
    match subject:
        case "partition":
            found.at, found.question = _at(query), query.optional("question")
            if found.question not in (None, *partitions.QUESTIONS):
                raise Refusal(400, f"question: must be one of {', '.join(partitions.QUESTIONS)}")
        case "fetch":
            found.at, found.read_committed = _at(query), query.flag("read_committed")
            offset = query.optional("offset")
            found.offset = None if offset is None else query.number("offset", most=LONG_MAX)
        case "produce":
            has_partition = query.optional("partition") is not None
            found.topic = _at(query) if has_partition else query.needed("topic")
            found.client_id = query.optional("client_id")
        case "group":
            found.group = query.optional("group") or query.needed("id")
        case "topic":
            found.topic = query.needed("topic")
        case "reassignment":
            found.at = None if query.optional("topic") is None else _at(query)
        case "transaction":
            found.transactional_id = query.optional("transactional_id") or query.needed("id")
        case "client":
            found.client_id = query.optional("client_id") or query.optional("id")
            found.user, found.host = query.optional("user"), query.optional("host")
        case _:
            name = "broker" if query.optional("broker") is not None else "id"
            found.broker = query.number(name, most=INT_MAX)
    return found


def _at(query: Query) -> TopicPartition:
    return TopicPartition(query.needed("topic"), query.number("partition", most=INT_MAX))


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
