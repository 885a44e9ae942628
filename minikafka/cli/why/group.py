"""``minikafka why group``: why a group rebalances, is stuck, lags, is empty, or has lost a member.

State, members and offsets come by Kafka's APIs. Since when, for whom a rebalance waits, when each member was
heard of and what the last rebalances were for, only a coordinator of minikafka says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from minikafka.cli.groups import LATEST, GroupDescription, GroupMember, ListedOffset
from minikafka.cli.shared.admin_client import COORDINATOR_MOVES
from minikafka.cli.why.answer import Answer, Page, Reason, answer, counted
from minikafka.cli.why.cluster import Cluster
from minikafka.errors import ErrorCode, KafkaError
from minikafka.types import TopicPartition
from minikafka.units import format_duration

OFTEN = 3
"""So many rebalances within ``OFTEN_MS`` are no accident."""
OFTEN_MS = 300_000
ROWS_MAX = 20
"""Partitions and members that are shown; those that lag most, and those that are waited for."""


class ReadPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that the group reads; None: not known."""

    at: TopicPartition
    committed: int | None
    end: int | None
    produced: int | None = None
    """Records, between the two looks."""
    consumed: int | None = None
    last_stable: int | None = None
    reader: GroupMember | None = None
    next_record_age_ms: int | None = None
    """Since when the record that is read next is there, by its own timestamp."""
    committed_ms_ago: int | None = None

    @property
    def lag(self) -> int:
        """Records; 0 also where it is not known."""
        return 0 if self.committed is None or self.end is None else max(self.end - self.committed, 0)


class GroupFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was gathered of one group."""

    group: str
    type: str
    state: str
    members: Sequence[GroupMember] = ()
    document: Mapping[str, Any] | None = None
    """``group`` of the coordinator's diagnostics."""
    read: Sequence[ReadPartition] = ()
    sample_ms: int = 0


def empty(facts: GroupFacts) -> Sequence[Reason]:
    if facts.state not in ("Empty", "Dead"):
        return ()
    gone = [each for each in _history(facts) if each["kind"] in ("left", "removed")]
    last = gone[-1] if gone else None
    why = ""
    if last is not None:
        how = "left" if last["kind"] == "left" else "was removed"
        told = f": {last['why']}" if last["why"] else ""
        why = f"; the last member ({last['client_id']}) {how} {format_duration(last['ago_ms'])} ago{told}"
    return [
        Reason(
            code="group.empty",
            sentence=f"group {facts.group} does not read, because it has no members{why}",
            page=Page.LOST_MEMBERS,
            evidence={
                "state": facts.state,
                "lag": sum(each.lag for each in facts.read),
                "gone": [
                    {"ms ago": each["ago_ms"], "how": each["kind"], **_who(each)} for each in gone[-OFTEN:]
                ],
            },
        )
    ]


def joining(facts: GroupFacts) -> Sequence[Reason]:
    """A classic group waits until its members have joined again."""
    if facts.state != "PreparingRebalance":
        return ()
    cause = _last_cause(facts)
    evidence: dict[str, Any] = {"state": facts.state, "members": len(facts.members)}
    why = "its members have to join again"
    code = "group.joining"
    if facts.document is not None and facts.document["type"] == "classic":
        document = facts.document
        late = [each for each in document["members"] if not each["has_joined"]]
        evidence |= {
            "for ms": document["state_for_ms"],
            "rebalance timeout ms": document["rebalance_timeout_ms"],
            "waits for": _members(late),
        }
        left = document["join_left_ms"]
        until = "" if left is None else f"; after {format_duration(left)} it goes on without them"
        since = _for(document["state_for_ms"])
        if late:
            code = "group.joining.waits"
            why = f"it has waited{since} for {_names(late)} to join again (max.poll.interval.ms){until}"
        else:
            code = "group.joining.delay"
            until = "" if left is None else f" for another {format_duration(left)}"
            why = f"its members have joined, and it waits{until} for more (group.initial.rebalance.delay.ms)"
    return [
        Reason(
            code=code,
            sentence=f"group {facts.group} rebalances{cause}: {why}",
            page=Page.REBALANCE,
            evidence=evidence,
        )
    ]


def syncing(facts: GroupFacts) -> Sequence[Reason]:
    """A classic group waits for its leader's assignment."""
    if facts.state != "CompletingRebalance":
        return ()
    evidence: dict[str, Any] = {"state": facts.state, "members": len(facts.members)}
    why = "its leader has not sent the assignment yet"
    if facts.document is not None and facts.document["type"] == "classic":
        document = facts.document
        leader = [each for each in document["members"] if each["member_id"] == document["leader"]]
        late = [each for each in document["members"] if each["must_sync"]]
        left = document["sync_left_ms"]
        until = "" if left is None else f"; after {format_duration(left)} it rebalances without them"
        since = _for(document["state_for_ms"])
        why = f"it has waited{since} for the assignment of its leader, {_names(leader or late)}{until}"
        evidence |= {"for ms": document["state_for_ms"], "has not synced": _members(late)}
    return [
        Reason(
            code="group.syncing",
            sentence=f"group {facts.group} rebalances{_last_cause(facts)}: {why}",
            page=Page.REBALANCE,
            evidence=evidence,
        )
    ]


def reconciling(facts: GroupFacts) -> Sequence[Reason]:
    """A KIP-848 group is on its way to another assignment."""
    if facts.state not in ("Assigning", "Reconciling"):
        return ()
    evidence: dict[str, Any] = {"state": facts.state, "members": len(facts.members)}
    why = "its members are on their way to another assignment"
    if facts.state == "Assigning":
        why = "its next assignment is not worked out yet"
    code = f"group.{facts.state.lower()}"
    if facts.document is not None and facts.document["type"] == "consumer":
        members = facts.document["members"]
        holding = [each for each in members if each["must_revoke"]]
        waiting = [each for each in members if each["state"] == "UNRELEASED_PARTITIONS"]
        evidence |= {
            "group epoch": facts.document["epoch"],
            "assignment epoch": facts.document["assignment_epoch"],
            "must give back": [
                {
                    "member": each["member_id"],
                    "client": each["client_id"],
                    "partitions": ", ".join(each["must_revoke"][:ROWS_MAX]),
                    "left ms": each["revocation_left_ms"],
                    "heard ms ago": each["heard_ms_ago"],
                }
                for each in holding[:ROWS_MAX]
            ],
            "wait for partitions": _members(waiting),
        }
        if holding:
            code = "group.reconciling.revocation"
            first = holding[0]
            left = first["revocation_left_ms"]
            until = "" if left is None else f"; it is removed in {format_duration(left)} if it does not"
            why = f"{_names(holding)} has to give back {', '.join(first['must_revoke'][:5])}{until}"
    return [
        Reason(
            code=code,
            sentence=f"group {facts.group} rebalances{_last_cause(facts)}: {why}",
            page=Page.REBALANCE,
            evidence=evidence,
        )
    ]


def again_and_again(facts: GroupFacts) -> Sequence[Reason]:
    recent = [each for each in _history(facts) if each["kind"] == "rebalance" and each["ago_ms"] < OFTEN_MS]
    if len(recent) < OFTEN:
        return ()
    within = format_duration(recent[0]["ago_ms"])
    return [
        Reason(
            code="group.rebalances-often",
            sentence=f"group {facts.group} rebalances again and again: {len(recent)} times in the last "
            f"{within}, the last time because {recent[-1]['why']}",
            page=Page.REBALANCE,
            evidence={"rebalances": [{"ms ago": each["ago_ms"], "because": each["why"]} for each in recent]},
        )
    ]


def lost_members(facts: GroupFacts) -> Sequence[Reason]:
    removed = [each for each in _history(facts) if each["kind"] == "removed"]
    if not removed or facts.state in ("Empty", "Dead"):
        return ()
    last = removed[-1]
    return [
        Reason(
            code="group.member-removed",
            sentence=f"group {facts.group} has lost a member ({last['client_id']}) "
            f"{format_duration(last['ago_ms'])} ago: {last['why']}",
            page=Page.LOST_MEMBERS,
            evidence={
                "removed": [{"ms ago": each["ago_ms"], **_who(each)} for each in removed],
            },
        )
    ]


def lagging(facts: GroupFacts) -> Sequence[Reason]:
    late = sorted((each for each in facts.read if each.lag), key=lambda each: -each.lag)
    if not late:
        return ()
    total, slowest = sum(each.lag for each in late), late[0]
    evidence: dict[str, Any] = {
        "records that are not read": total,
        "measured for ms": facts.sample_ms,
        "partitions": [_lag_row(each, facts.sample_ms) for each in late[:ROWS_MAX]],
    }
    who = f"{slowest.at} has {slowest.lag} of them"
    age = slowest.next_record_age_ms
    since = "" if age is None else f", the oldest written {format_duration(age)} ago"
    code, why = _why_lagging(slowest, facts)
    return [
        Reason(
            code=f"group.lags.{code}",
            sentence=f"group {facts.group} lags by {counted(total, 'record')}; {who}{since}: {why}",
            page=Page.LAST_STABLE_OFFSET if code == "transaction" else Page.LAG,
            evidence=evidence,
        )
    ]


def _why_lagging(slowest: ReadPartition, facts: GroupFacts) -> tuple[str, str]:
    """The end of a code, and the words, for the partition that lags most."""
    reader = slowest.reader
    if reader is None:
        settled = facts.state == "Stable"
        return "no-reader", "no member reads it" + ("" if settled else f" while the group is {facts.state}")
    name = f"{reader.client_id} on {reader.host.lstrip('/')}"
    stable = slowest.last_stable
    if (
        stable is not None
        and slowest.end is not None
        and stable < slowest.end
        and slowest.committed == stable
    ):
        return (
            "transaction",
            f"{name} waits at the last stable offset {stable}, if it reads committed records only: ask "
            f"minikafka why fetch {slowest.at.topic}:{slowest.at.partition} --read-committed",
        )
    if slowest.consumed is None or slowest.produced is None or not facts.sample_ms:
        return "reader", f"{name} reads it"
    consumed, produced = (each * 1000 / facts.sample_ms for each in (slowest.consumed, slowest.produced))
    if not slowest.consumed:
        ago = slowest.committed_ms_ago
        since = "" if ago is None else f", the last time {format_duration(ago)} ago"
        return (
            "stuck",
            f"{name} has committed nothing in {format_duration(facts.sample_ms)}{since}, while "
            f"{produced:.3g} records/s are written",
        )
    rates = f"{name} reads {consumed:.3g} records/s, and {produced:.3g} are written"
    if consumed > produced:
        eta_ms = slowest.lag / (consumed - produced) * 1000
        return "catching-up", f"{rates}; it will have caught up in about {format_duration(eta_ms)}"
    return "too-slow", f"{rates}; so it will never catch up"


def _lag_row(each: ReadPartition, sample_ms: int) -> dict[str, Any]:
    def rate(records: int | None) -> float | None:
        return None if records is None or not sample_ms else records * 1000 / sample_ms

    reader = each.reader
    return {
        "partition": str(each.at),
        "committed": each.committed,
        "end": each.end,
        "lag": each.lag,
        "written/s": rate(each.produced),
        "read/s": rate(each.consumed),
        "next record ms ago": each.next_record_age_ms,
        "committed ms ago": each.committed_ms_ago,
        "client": None if reader is None else reader.client_id,
        "host": None if reader is None else reader.host.lstrip("/"),
        "member": None if reader is None else reader.member_id,
    }


def _history(facts: GroupFacts) -> Sequence[Mapping[str, Any]]:
    return facts.document["history"] if facts.document is not None else ()


def _who(event: Mapping[str, Any]) -> dict[str, Any]:
    return {"client": event["client_id"], "member": event["member_id"], "because": event["why"]}


def _last_cause(facts: GroupFacts) -> str:
    causes = [each["why"] for each in _history(facts) if each["kind"] == "rebalance"]
    return f", because {causes[-1]}" if causes else ""


def _members(members: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "member": each["member_id"],
            "client": each["client_id"],
            "host": each["host"].lstrip("/"),
            "heard ms ago": each["heard_ms_ago"],
            "session timeout ms": each["session_timeout_ms"],
        }
        for each in list(members)[:ROWS_MAX]
    ]


def _names(members: Sequence[Mapping[str, Any]]) -> str:
    if not members:
        return "a member"
    first = f"{members[0]['client_id']} on {members[0]['host'].lstrip('/')}"
    return first if len(members) == 1 else f"{first} and {len(members) - 1} more"


def _for(duration_ms: int | None) -> str:
    return "" if duration_ms is None else f" for {format_duration(duration_ms)}"


LOOKS = (joining, syncing, reconciling, empty, again_and_again, lagging, lost_members)
"""The one that weighs most first."""


def answer_of(facts: GroupFacts, unknown: Sequence[str] = ()) -> Answer:
    otherwise = (
        f"group {facts.group} is well: it is {facts.state}, with {counted(len(facts.members), 'member')}, "
        "and has read all that is there"
    )
    reasons = [reason for look in LOOKS for reason in look(facts)]
    return answer(f"group {facts.group}", reasons, otherwise=otherwise, unknown=unknown)


# Gathering


async def why(cluster: Cluster, group: str, *, sample_ms: int) -> Answer:
    """Raises KafkaError: GROUP_ID_NOT_FOUND. BrokerUnavailable: no broker answers."""
    try:
        facts = await gather(cluster, group, sample_ms=sample_ms)
    except KafkaError as error:
        if error.code not in COORDINATOR_MOVES:
            raise
        return answer(
            f"group {group}",
            [_no_coordinator(group, error)],
            otherwise="",
            unknown=cluster.unknown,
        )
    return answer_of(facts, cluster.unknown)


def _no_coordinator(group: str, error: KafkaError) -> Reason:
    loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    why = (
        "its coordinator still reads its partition of __consumer_offsets"
        if loading
        else "it has no coordinator: its partition of __consumer_offsets has no leader"
    )
    return Reason(
        code="group.coordinator-loads" if loading else "group.no-coordinator",
        sentence=f"group {group} is stuck, because {why}",
        page=Page.REBALANCE,
        evidence={"error": error.code.name},
        remedy="minikafka cluster describe says which partitions are offline, and why",
    )


async def gather(cluster: Cluster, group: str, *, sample_ms: int) -> GroupFacts:
    described = await cluster.admin.describe(group)
    committed = await cluster.admin.committed(group)
    readers = _readers(described)
    partitions = sorted(committed.keys() | readers.keys())
    ends = await _ends(cluster, partitions)
    if sample_ms and partitions and readers:
        await asyncio.sleep(sample_ms / 1000)
        described = await cluster.admin.describe(group)
        readers = _readers(described)
        committed_now = await cluster.admin.committed(group)
        ends_now = await _ends(cluster, partitions)
    else:
        sample_ms, committed_now, ends_now = 0, committed, ends
    document = await cluster.diagnostics(
        "group",
        described.coordinator.node_id,
        "what its last rebalances were for, and whom it has lost",
        group=group,
    )
    ago_ms = {
        TopicPartition(each["topic"], each["partition"]): each["ago_ms"]
        for each in (document or {}).get("commits", ())
    }
    stable = await _ends(cluster, partitions, is_read_committed=True)
    read = [
        ReadPartition(
            at=each,
            committed=committed_now.get(each),
            end=ends_now.get(each),
            produced=_moved(ends, ends_now, each) if sample_ms else None,
            consumed=_moved(committed, committed_now, each) if sample_ms else None,
            last_stable=stable.get(each),
            reader=readers.get(each),
            committed_ms_ago=ago_ms.get(each),
        )
        for each in partitions
    ]
    return GroupFacts(
        group=group,
        type=described.type,
        state=described.state,
        members=described.members,
        document=document,
        read=await _with_ages(cluster, read),
        sample_ms=sample_ms,
    )


def _readers(described: GroupDescription) -> dict[TopicPartition, GroupMember]:
    return {
        TopicPartition(topic, partition): member
        for member in described.members
        for topic, partitions in member.assignment.items()
        for partition in partitions
    }


def _moved(
    before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int], at: TopicPartition
) -> int | None:
    if at not in before or at not in after:
        return None
    return max(after[at] - before[at], 0)


async def _ends(
    cluster: Cluster, partitions: Sequence[TopicPartition], *, is_read_committed: bool = False
) -> dict[TopicPartition, int]:
    """Those that can be known."""
    listed = await cluster.admin.list_offsets(partitions, LATEST, is_read_committed=is_read_committed)
    return {at: each.offset for at, each in listed.items() if isinstance(each, ListedOffset)}


async def _with_ages(cluster: Cluster, read: Sequence[ReadPartition]) -> list[ReadPartition]:
    """With the age of the record that is read next, where the group lags most."""
    late = sorted((each for each in read if each.lag), key=lambda each: -each.lag)[:ROWS_MAX]
    ages = {each.at: await cluster.record_age_ms(each.at, each.committed or 0) for each in late}
    return [
        msgspec.structs.replace(each, next_record_age_ms=ages[each.at]) if each.at in ages else each
        for each in read
    ]
