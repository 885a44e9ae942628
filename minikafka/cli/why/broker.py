"""``minikafka why broker``: why a broker started slowly, is slow now, or has left.

Whether it is registered and what it has, Kafka's APIs say; how it started, and its event loop, garbage and
disks, only a broker of minikafka itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from minikafka.cli.cluster.describe import BrokerState, broker_states
from minikafka.cli.quotas import SeenThrottle
from minikafka.cli.why import produce
from minikafka.cli.why.answer import Answer, Page, Reason, answer, counted
from minikafka.cli.why.cluster import Cluster
from minikafka.config.client_quotas import QuotaType
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.types import NO_LEADER
from minikafka.units import format_bytes, format_duration

SLOW_START_MS: Final = 5_000
LATE_MS: Final = 20.0
"""A timer of an event loop that does nothing long fires within a millisecond or two."""
BUSY_SHARE: Final = 0.85
SLOW_FLUSH_MS: Final = 100.0
LONG_COLLECTION_MS: Final = 50.0
LONG_AGO_MS: Final = 600_000
LITTLE_BYTES: Final = 1_000_000_000


class BrokerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was gathered of one broker."""

    broker: int
    is_registered: bool
    state: BrokerState | None = None
    """What it leads and has; None: no partition has a replica there."""
    address: tuple[str, int] | None = None
    listens: bool | None = None
    """Whether something answers at its address; None: it is not known where that is."""
    offline: Sequence[str] = ()
    """Partitions without a leader that have a replica there."""
    document: Mapping[str, Any] | None = None
    """``broker`` of its diagnostics."""
    throttles: Sequence[SeenThrottle] = ()
    now_ms: int = 0


def left(facts: BrokerFacts) -> Sequence[Reason]:
    if facts.is_registered:
        return ()
    where = "" if facts.address is None else f" ({facts.address[0]}:{facts.address[1]})"
    name = f"broker {facts.broker}{where} is not in the cluster"
    evidence: dict[str, Any] = {
        "replicas": 0 if facts.state is None else facts.state.replicas,
        "offline partitions": list(facts.offline),
        "something listens at its address": facts.listens,
    }
    if facts.state is None and facts.address is None:
        code, why = "broker.unknown", "no partition has a replica there, so perhaps there never was one"
        remedy = ""
    elif facts.listens:
        code = "broker.lost-session"
        why = (
            "something answers at its address, so it runs, and its session has ended: it cannot reach the "
            "coordination store, or was held up for longer than zookeeper.session.timeout.ms"
        )
        remedy = (
            f"see the log of broker {facts.broker}; it registers again by itself when it reaches the store"
        )
    else:
        code = "broker.left"
        heard = "nothing answers at its address" if facts.listens is False else "its address is not known"
        why = f"it has stopped, or its session has ended ({heard})"
        remedy = f"start broker {facts.broker} again; its log says why it has stopped"
    held = f"; offline without it: {counted(len(facts.offline), 'partition')}" if facts.offline else ""
    return [
        Reason(
            code=code,
            sentence=f"{name}: {why}{held}",
            page=Page.BROKER_DIES,
            evidence=evidence,
            remedy=remedy,
        )
    ]


def disks(facts: BrokerFacts) -> Sequence[Reason]:
    if facts.document is None:
        return ()
    disk = facts.document["disk"]
    flushes = disk["flushes"]
    rows = [
        {
            "directory": each["path"],
            "offline because": each["offline"],
            "free": None if each["free_bytes"] is None else format_bytes(each["free_bytes"]),
        }
        for each in disk["directories"]
    ]
    evidence = {
        "flushes": flushes["count"],
        "p99 ms": flushes["p99"],
        "longest ms": flushes["max"],
        "disks": rows,
    }
    name = f"broker {facts.broker}"
    failed = [each for each in disk["directories"] if each["offline"] is not None]
    full = [
        each
        for each in disk["directories"]
        if each["free_bytes"] is not None and each["free_bytes"] < LITTLE_BYTES
    ]
    found = []
    if failed:
        why = f"{name} has lost a log directory: {failed[0]['path']}: {failed[0]['offline']}"
        found.append(_slow("disk-failed", why, evidence))
    if full:
        free = format_bytes(full[0]["free_bytes"])
        found.append(_slow("disk-full", f"{name} has little room: {free} in {full[0]['path']}", evidence))
    if flushes["p99"] >= SLOW_FLUSH_MS:
        why = (
            f"{name} is slow, because its disk is: flushes take up to {format_duration(flushes['p99'])} (p99)"
        )
        found.append(_slow("disk-slow", why, evidence))
    return found


def event_loop(facts: BrokerFacts) -> Sequence[Reason]:
    if facts.document is None:
        return ()
    loop = facts.document["loop"]
    late, busy = loop["late_ms"], loop["busy_share"]
    evidence = {
        "measured for ms": loop["measured_ms"],
        "busy share": busy,
        "timers fire late, median ms": late["p50"],
        "longest ms": late["max"],
        "requests": list(facts.document["requests"]),
    }
    name = f"broker {facts.broker} is slow now"
    if busy >= BUSY_SHARE:
        why = f"{name}: its event loop computes {busy:.0%} of the time, and one thread serves everything"
        return [_slow("loop-busy", why, evidence)]
    if late["max"] >= LATE_MS:
        why = (
            f"{name}: its event loop was held up for {format_duration(late['max'])} in the last "
            f"{format_duration(loop['measured_ms'])}, although it computes only {busy:.0%} of the time: "
            "other processes have the processor, or a disk does not answer"
        )
        return [_slow("loop-late", why, evidence)]
    return ()


def garbage(facts: BrokerFacts) -> Sequence[Reason]:
    if facts.document is None:
        return ()
    long = [
        each
        for each in facts.document["garbage"]
        if each["duration_ms"] >= LONG_COLLECTION_MS and each["ago_ms"] < LONG_AGO_MS
    ]
    if not long:
        return ()
    worst = max(long, key=lambda each: float(each["duration_ms"]))
    return [
        _slow(
            "garbage",
            f"broker {facts.broker} stood still for {format_duration(worst['duration_ms'])} "
            f"{format_duration(worst['ago_ms'])} ago to collect garbage",
            {"full collections": [{"ms ago": e["ago_ms"], "lasted ms": e["duration_ms"]} for e in long]},
        )
    ]


def quotas(facts: BrokerFacts) -> Sequence[Reason]:
    recent = [each for each in facts.throttles if facts.now_ms - each.throttle.at_ms < LONG_AGO_MS]
    if not recent:
        return ()
    last = recent[-1].throttle
    clients = sorted({each.throttle.client_id or each.throttle.user for each in recent})
    return [
        Reason(
            code="broker.quotas",
            sentence=f"broker {facts.broker} slows clients down because of quotas "
            f"({', '.join(clients[:5])}), the last time {format_duration(facts.now_ms - last.at_ms)} ago "
            f"because of {last.quota.value}",
            page=Page.THROTTLES,
            evidence={"clients": clients, "throttles": len(recent)},
            remedy=f"minikafka why client {last.client_id}",
        )
    ]


def started(facts: BrokerFacts) -> Sequence[Reason]:
    start = None if facts.document is None else facts.document["start"]
    if start is None or start["total_ms"] < SLOW_START_MS:
        return ()
    slowest = max(start["phases"], key=lambda each: int(each["ms"]))
    name = f"broker {facts.broker} took {format_duration(start['total_ms'])} to start"
    why = f"{slowest['name']} took {format_duration(slowest['ms'])} of it"
    if slowest["name"] == "logs" and not start["was_clean"]:
        why += ", because it was not stopped cleanly, and the ends of its logs had to be checked"
    elif slowest["name"] == "logs":
        why += f", for {start['logs']} logs"
    return [
        Reason(
            code="broker.slow-start",
            sentence=f"{name}: {why}",
            page=Page.SLOW_BROKER,
            evidence={
                "started ms ago": start["ago_ms"],
                "stopped cleanly before": start["was_clean"],
                "logs": start["logs"],
                "phases": [{"phase": each["name"], "took ms": each["ms"]} for each in start["phases"]],
            },
        )
    ]


def _slow(code: str, sentence: str, evidence: Mapping[str, Any]) -> Reason:
    return Reason(code=f"broker.{code}", sentence=sentence, page=Page.SLOW_BROKER, evidence=evidence)


LOOKS = (left, disks, event_loop, garbage, started, quotas)


def answer_of(facts: BrokerFacts, unknown: Sequence[str] = ()) -> Answer:
    reasons = [reason for look in LOOKS for reason in look(facts)]
    otherwise = f"broker {facts.broker} is in the cluster"
    if facts.document is not None:
        loop, start = facts.document["loop"], facts.document["start"] or {"total_ms": 0, "ago_ms": 0}
        otherwise = (
            f"broker {facts.broker} is well: it started in {format_duration(start['total_ms'])}, "
            f"{format_duration(start['ago_ms'])} ago; its event loop computes {loop['busy_share']:.0%} of "
            "the time, and its disks have room and answer"
        )
    return answer(f"broker {facts.broker}", reasons, otherwise=otherwise, unknown=unknown)


# Gathering


async def why(cluster: Cluster, broker: int) -> Answer:
    """Raises BrokerUnavailable: no broker answers."""
    return answer_of(await gather(cluster, broker), cluster.unknown)


async def gather(cluster: Cluster, broker: int) -> BrokerFacts:
    nodes = await cluster.admin.nodes()
    partitions = await cluster.admin.partitions()
    states = {each.id: each for each in broker_states(nodes, partitions, {})}
    registered = nodes.brokers.get(broker)
    address = (
        await _last_address(cluster, broker) if registered is None else (registered.host, registered.port)
    )
    document = None
    throttles: list[SeenThrottle] = []
    if registered is not None:
        document = await cluster.diagnostics("broker", broker, "how it started and how busy it is")
        throttles = await produce.throttles(cluster, frozenset({broker}), None, tuple(QuotaType))
    return BrokerFacts(
        broker=broker,
        is_registered=registered is not None,
        state=states.get(broker),
        address=address,
        listens=None if address is None else await _listens(*address),
        offline=[
            str(at) for at, now in partitions.items() if now.leader == NO_LEADER and broker in now.replicas
        ],
        document=document,
        throttles=throttles,
        now_ms=cluster.clock.now_ms(),
    )


async def _last_address(cluster: Cluster, broker: int) -> tuple[str, int] | None:
    """Where a broker that is not registered was last; brokers of Kafka 4 remember it (KIP-1073)."""
    body = {
        "include_cluster_authorized_operations": False,
        "endpoint_type": 1,
        "include_fenced_brokers": True,
    }
    try:
        found = await cluster.admin.ask_any(ApiKey.DESCRIBE_CLUSTER, body)
    except (BrokerUnavailable, KafkaError):
        return None
    if found.error_code != ErrorCode.NONE:
        return None
    return next(((each.host, each.port) for each in found.brokers if each.broker_id == broker), None)


async def _listens(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), timeout=2)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
