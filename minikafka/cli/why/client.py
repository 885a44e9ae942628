"""``minikafka why client``: why a client cannot log in, is denied, is refused, or is slowed down.

Only brokers of minikafka remember it, each for itself, so all of them are asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from minikafka.cli.quotas import SeenThrottle
from minikafka.cli.why import produce
from minikafka.cli.why.answer import Answer, Page, Reason, answer
from minikafka.cli.why.cluster import Cluster
from minikafka.config.client_quotas import QuotaType
from minikafka.units import format_duration

ROWS_MAX = 20

_RESOURCES = {"TransactionalId": "transactional-id", "DelegationToken": "delegation-token"}
"""As ``minikafka why-denied`` calls them, where that is not the small letters."""


class Who(msgspec.Struct, frozen=True, kw_only=True):
    """Which client is meant; None: any."""

    client_id: str | None = None
    user: str | None = None
    """``alice`` or ``User:alice``."""
    host: str | None = None

    def __str__(self) -> str:
        parts = (("client", self.client_id), ("user", self.user), ("host", self.host))
        return ", ".join(f"{name} {value}" for name, value in parts if value) or "any client"

    def matches(self, refusal: Mapping[str, Any]) -> bool:
        """A login that has failed knows no client id, and its user only in the message."""
        if self.host is not None and refusal["host"] != self.host:
            return False
        is_login = refusal["kind"] == "login"
        if self.client_id is not None and refusal["client_id"] != self.client_id and not is_login:
            return False
        if self.user is None:
            return True
        name = self.user.removeprefix("User:")
        if is_login:
            return name in refusal["message"].replace(",", " ").replace("'", " ").split()
        return name == str(refusal["user"]).removeprefix("User:")


class ClientFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was gathered of all brokers."""

    who: Who
    refusals: Sequence[Mapping[str, Any]] = ()
    """The newest first."""
    throttles: Sequence[SeenThrottle] = ()
    now_ms: int = 0
    connection: str = ""

    def of(self, kind: str) -> list[Mapping[str, Any]]:
        return [each for each in self.refusals if each["kind"] == kind and self.who.matches(each)]


def logins(facts: ClientFacts) -> Sequence[Reason]:
    found = facts.of("login")
    if not found:
        return ()
    last = found[0]
    return [
        Reason(
            code="client.login",
            sentence=f"a client at {last['host']} could not log in on {last['about']}, the last time "
            f"{format_duration(last['last_ms_ago'])} ago: {last['message']}",
            page=Page.LOGINS,
            evidence={"logins that have failed": _rows(found)},
        )
    ]


def denials(facts: ClientFacts) -> Sequence[Reason]:
    found = facts.of("authorization")
    if not found:
        return ()
    last = found[0]
    operation, _, resource = str(last["about"]).partition(" ")
    kind, _, name = resource.partition(":")
    what = "cluster" if kind == "Cluster" else f"{_RESOURCES.get(kind, kind.lower())}:{name}"
    return [
        Reason(
            code="client.denied",
            sentence=f"{last['user']} at {last['host']} was denied {operation} on {kind} {name} (in a "
            f"request {last['error']}), the last time {format_duration(last['last_ms_ago'])} ago: "
            f"{last['message']}",
            page=Page.AUTHORIZATION,
            evidence={"denied": _rows(found)},
            remedy=f"minikafka why-denied {last['user']} {operation} {what}{facts.connection}",
        )
    ]


def refused(facts: ClientFacts) -> Sequence[Reason]:
    found = facts.of("produce")
    if not found:
        return ()
    last = found[0]
    told = last["message"] or produce.NO_MORE_THAN_A_NAME.get(last["error"], "the broker says no more")
    return [
        Reason(
            code="client.refused",
            sentence=f"{last['client_id'] or 'a client'} was refused to write to {last['about']}, the last "
            f"time {format_duration(last['last_ms_ago'])} ago, with {last['error']}: {told}",
            page=Page.REFUSED,
            evidence={"refused": _rows(found)},
        )
    ]


def throttled(facts: ClientFacts) -> Sequence[Reason]:
    name = None if facts.who.user is None else facts.who.user.removeprefix("User:")
    found = [each for each in facts.throttles if name in (None, each.throttle.user)]
    if not found:
        return ()
    last = found[-1]
    throttle = last.throttle
    return [
        Reason(
            code="client.throttled",
            sentence=f"{throttle.client_id or throttle.user} was throttled by broker {last.broker} "
            f"{format_duration(facts.now_ms - throttle.at_ms)} ago for "
            f"{format_duration(throttle.throttle_time_ms)}, because of {throttle.quota.value}: "
            f"{throttle.formula}",
            page=Page.THROTTLES,
            evidence={
                "throttles": [
                    {
                        "ms ago": facts.now_ms - each.throttle.at_ms,
                        "broker": each.broker,
                        "client": each.throttle.client_id,
                        "user": each.throttle.user,
                        "quota": each.throttle.quota.value,
                        "observed": each.throttle.observed,
                        "bound": each.throttle.bound,
                        "throttled ms": each.throttle.throttle_time_ms,
                    }
                    for each in found[-ROWS_MAX:]
                ]
            },
        )
    ]


def _rows(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "last ms ago": each["last_ms_ago"],
            "times": each["count"],
            "broker": each["broker"],
            "about": each["about"],
            "user": each["user"],
            "client": each["client_id"],
            "host": each["host"],
            "because": each["message"] or each["error"],
        }
        for each in found[:ROWS_MAX]
    ]


LOOKS = (logins, denials, refused, throttled)


def answer_of(facts: ClientFacts, unknown: Sequence[str] = ()) -> Answer:
    reasons = [reason for look in LOOKS for reason in look(facts)]
    reasons.sort(key=_last_ms_ago)
    otherwise = f"no broker has turned {facts.who} down or slowed it down, as far as they remember"
    if unknown:
        otherwise = f"what the brokers have turned down of {facts.who} is not known of all of them"
    return answer(f"{facts.who}", reasons, otherwise=otherwise, unknown=unknown)


def _last_ms_ago(reason: Reason) -> int:
    """What was last is what is asked about."""
    (rows,) = reason.evidence.values()
    return min(int(row.get("last ms ago", row.get("ms ago", 0))) for row in rows)


async def why(cluster: Cluster, who: Who) -> Answer:
    """Raises BrokerUnavailable: no broker answers."""
    brokers = frozenset((await cluster.admin.nodes()).brokers)
    facts = ClientFacts(
        who=who,
        refusals=await produce.refusals(cluster, brokers),
        throttles=await produce.throttles(cluster, brokers, who.client_id, tuple(QuotaType)),
        now_ms=cluster.clock.now_ms(),
        connection=cluster.connection,
    )
    return answer_of(facts, cluster.unknown)
