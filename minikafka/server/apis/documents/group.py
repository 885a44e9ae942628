"""``group``: what the coordinator of a group waits for, whom it has lost, what its last rebalances were for.

DescribeGroups and ConsumerGroupDescribe tell state, members and assignments; here is what they have no field
for: since when, until when, whom a rebalance waits for, when each member was heard of, when offsets were
committed, and the history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from minikafka.coordinator.group.classic_group import ClassicGroup, ClassicMember
from minikafka.coordinator.group.consumer.consumer_group import ConsumerGroup, ConsumerGroupMember
from minikafka.coordinator.group.messages import GroupOperation, OperationKind
from minikafka.coordinator.group.shard import GroupShard
from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.apis.shared.diagnostics_arguments import take
from minikafka.server.coordinator.hosted_shard import HostedShard
from minikafka.server.services import Services
from minikafka.steps import ELEMENTS_A_STEP, Steps

MEMBERS_MAX: Final = 500
COMMITS_MAX: Final = 5_000


def group(services: Services, arguments: Mapping[str, str]) -> Steps[Any]:
    """Raises KafkaError: INVALID_REQUEST; that this broker does not coordinate the group, or not yet;
    GROUP_ID_NOT_FOUND."""
    take(arguments, required=("group",))
    group_id = arguments["group"]
    hosted = services.groups.hosted_shard_of(group_id)
    shard = hosted.check_active()
    found = shard.group(group_id)
    if found is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    yield
    now_ms, monotonic_ms = services.clock.now_ms(), services.clock.monotonic_ms()
    look = _Look(hosted, services, now_ms=now_ms, monotonic_ms=monotonic_ms)
    document: dict[str, Any] = {
        "broker": int(services.node_id),
        "now_ms": now_ms,
        "history": look.history(group_id),
    }
    if isinstance(found, ClassicGroup):
        document |= look.classic(found)
    elif isinstance(found, ConsumerGroup):
        document |= look.consumer(found)
    else:
        document |= {"type": "other", "members": []}
    document["commits"] = yield from _commits(shard, group_id, now_ms)
    return document


class _Look:
    """At one group, at one moment."""

    def __init__(
        self, hosted: HostedShard[GroupShard], services: Services, *, now_ms: int, monotonic_ms: int
    ) -> None:
        self._hosted = hosted
        self._services = services
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def history(self, group_id: str) -> list[dict[str, Any]]:
        return [
            {
                "ago_ms": max(self._now_ms - each.at_ms, 0),
                "kind": each.kind.value,
                "why": each.why,
                "member_id": each.member_id,
                "client_id": each.client_id,
            }
            for each in self._services.groups.counts.history.of(group_id)
        ]

    def classic(self, group: ClassicGroup) -> dict[str, Any]:
        since_ms = group.state_timestamp_ms
        members = sorted(group.members.values(), key=lambda each: each.awaiting_join is not None)
        return {
            "type": "classic",
            "state": group.state.value,
            "state_for_ms": None if since_ms is None else max(self._now_ms - since_ms, 0),
            "generation": group.generation,
            "leader": group.leader,
            "rebalance_timeout_ms": group.rebalance_timeout_ms if group.members else None,
            "join_left_ms": self._left_ms(group.join_operation),
            "sync_left_ms": self._left_ms(group.sync_operation),
            "members": [self._classic_member(group, each) for each in members[:MEMBERS_MAX]],
        }

    def _classic_member(self, group: ClassicGroup, member: ClassicMember) -> dict[str, Any]:
        return {
            "member_id": member.member_id,
            "client_id": member.client_id,
            "host": member.client_host,
            "instance_id": member.group_instance_id,
            "has_joined": member.awaiting_join is not None,
            "must_sync": member.member_id in group.pending_syncs,
            "session_timeout_ms": member.session_timeout_ms,
            "rebalance_timeout_ms": member.rebalance_timeout_ms,
            "heard_ms_ago": self._heard_ms_ago(group.group_id, member.member_id, member.session_timeout_ms),
        }

    def consumer(self, group: ConsumerGroup) -> dict[str, Any]:
        members = sorted(
            group.members.values(), key=lambda each: each.is_reconciled_to(group.assignment_epoch)
        )
        return {
            "type": "consumer",
            "state": group.state,
            "epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
            "computing": group.computing_epoch >= 0,
            "members": [self._consumer_member(group, each) for each in members[:MEMBERS_MAX]],
        }

    def _consumer_member(self, group: ConsumerGroup, member: ConsumerGroupMember) -> dict[str, Any]:
        classic = member.metadata.classic_member_metadata
        timeout_ms = (
            self._hosted.shard.consumer_session_timeout_ms(group.group_id)
            if classic is None
            else classic.session_timeout_ms
        )
        revocation = GroupOperation(OperationKind.REVOCATION, group.group_id, member.member_id)
        return {
            "member_id": member.member_id,
            "client_id": member.metadata.client_id,
            "host": member.metadata.client_host,
            "instance_id": member.metadata.instance_id,
            "state": member.state.name,
            "epoch": member.epoch,
            "must_revoke": self._named(member.pending_revocation),
            "revocation_left_ms": self._left_ms(revocation),
            "session_timeout_ms": timeout_ms,
            "rebalance_timeout_ms": member.metadata.rebalance_timeout_ms,
            "heard_ms_ago": self._heard_ms_ago(group.group_id, member.member_id, timeout_ms),
        }

    def _named(self, partitions: Mapping[UUID, frozenset[int]]) -> list[str]:
        named = []
        for topic_id, numbers in partitions.items():
            topic = self._services.metadata.topic_by_id(topic_id)
            name = topic_id if topic is None else topic.name
            named += [f"{name}-{number}" for number in sorted(numbers)]
        return named

    def _left_ms(self, operation: GroupOperation) -> int | None:
        expiration_ms = self._hosted.expiration_ms(operation)
        return None if expiration_ms is None else max(expiration_ms - self._monotonic_ms, 0)

    def _heard_ms_ago(self, group_id: str, member_id: str, timeout_ms: int) -> int | None:
        """A session begins again with each heartbeat. None: it is not watched now, because the member waits
        for the coordinator."""
        left_ms = self._left_ms(GroupOperation(OperationKind.SESSION, group_id, member_id))
        return None if left_ms is None else max(timeout_ms - left_ms, 0)


def _commits(shard: GroupShard, group_id: str, now_ms: int) -> Steps[list[dict[str, Any]]]:
    commits: list[dict[str, Any]] = []
    committed = {topic: dict(partitions) for topic, partitions in shard.offsets_of(group_id).items()}
    for topic, partitions in committed.items():
        for number, each in partitions.items():
            if len(commits) >= COMMITS_MAX:
                return commits
            ago_ms = max(now_ms - each.commit_timestamp_ms, 0)
            commits.append({"topic": topic, "partition": number, "offset": each.offset, "ago_ms": ago_ms})
            if len(commits) % ELEMENTS_A_STEP == 0:
                yield
    return commits
