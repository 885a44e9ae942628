"""What ``minikafka groups`` asks a cluster: one method per question, answers as plain values.

Kafka: the part of ``KafkaAdminClient`` about consumer groups (``CoordinatorStrategy``,
``DescribeConsumerGroupsHandler``, ``ListConsumerGroupOffsetsHandler``). Works with any broker.

What a member of a classic consumer group was assigned. Kafka: ``ConsumerProtocol.deserializeAssignment``.

The coordinator does not look into it, so it may be anything; what is no assignment counts as none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from minikafka.cli.shared.admin_client import COORDINATOR_MOVES, AdminClient, CoordinatorType, LiveBroker
from minikafka.cli.shared.commands import error_of
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.types import TopicPartition

_I16, _I32 = struct.Struct(">h"), struct.Struct(">i")


def read_assignment(data: bytes) -> dict[str, list[int]]:
    """Topic → partitions; all versions of the format begin like the first. Nothing for other bytes."""
    assignment: dict[str, list[int]] = {}
    try:
        (topics,) = _I32.unpack_from(data, _I16.size)
        position = _I16.size + _I32.size
        for _ in range(topics):
            (length,) = _I16.unpack_from(data, position)
            position += _I16.size
            name = bytes(data[position : position + length]).decode()
            position += length
            (count,) = _I32.unpack_from(data, position)
            position += _I32.size
            assignment[name] = sorted(struct.unpack_from(f">{count}i", data, position))
            position += count * _I32.size
    except (struct.error, UnicodeDecodeError):
        return {}
    return assignment


LATEST, EARLIEST = -1, -2
"""In place of a timestamp (ListOffsets)."""

NO_OFFSET = -1
_NO_GENERATION = -1


class GroupListing(msgspec.Struct, frozen=True):
    """A group as ListGroups has it. Brokers of old do not say state and type: empty then."""

    group: str
    type: str
    protocol_type: str
    state: str


class GroupMember(msgspec.Struct, frozen=True):
    """A member, and what it is to read."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: dict[str, list[int]]


class GroupDescription(msgspec.Struct, frozen=True):
    """A group, as its coordinator has it."""

    group: str
    type: str
    state: str
    coordinator: LiveBroker
    assignor: str
    """The assignor's name; empty when the group has none yet."""
    members: list[GroupMember]

    @property
    def is_rebalancing(self) -> bool:
        """Its members are joining, or on their way to another assignment: what they own is not settled."""
        return self.state in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")

    @property
    def is_inactive(self) -> bool:
        """It has no members, so its offsets can be changed."""
        return self.state in ("Empty", "Dead")


class ListedOffset(NamedTuple):
    """What ListOffsets says; the offset is -1 when there is no record of that time."""

    offset: int
    leader_epoch: int


class GroupAdmin(AdminClient):
    """Methods raise KafkaError for what a broker refuses, and BrokerUnavailable when there is no answer."""

    async def groups(self, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
        """The groups of all brokers, sorted by name, in one of ``states`` and of one of ``types``."""
        body = {"states_filter": list(states), "types_filter": list(types)}
        found = {}
        for broker in (await self.nodes()).brokers:
            for each in (await self.ask_loaded(broker, ApiKey.LIST_GROUPS, body)).groups:
                state, kind = getattr(each, "group_state", ""), getattr(each, "group_type", "")
                found[each.group_id] = GroupListing(each.group_id, kind, each.protocol_type, state)
        return [found[group] for group in sorted(found)]

    async def describe(self, group: str) -> GroupDescription:
        """One group, of either protocol. A group that there is not: a KafkaError GROUP_ID_NOT_FOUND."""
        coordinator, answer = await self.ask_coordinator(
            CoordinatorType.GROUP,
            group,
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            {"group_ids": [group], "include_authorized_operations": False},
            lambda answer: answer.groups[0],
            expected=(ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION),
        )
        if answer is not None:
            found = answer.groups[0]
            members = [_member(each, _assigned(each)) for each in found.members]
            return GroupDescription(
                group, "consumer", found.group_state, coordinator, found.assignor_name, members
            )
        return await self._describe_classic(group)

    async def _describe_classic(self, group: str) -> GroupDescription:
        coordinator, answer = await self.ask_coordinator(
            CoordinatorType.GROUP,
            group,
            ApiKey.DESCRIBE_GROUPS,
            {"groups": [group], "include_authorized_operations": False},
            lambda answer: answer.groups[0],
        )
        found = answer.groups[0]
        if found.group_state == "Dead" and not found.members:  # before version 6 there was no error for it
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group} not found.")
        members = [_member(each, read_assignment(each.member_assignment)) for each in found.members]
        return GroupDescription(
            group, "classic", found.group_state, coordinator, found.protocol_data, members
        )

    async def committed(self, group: str) -> dict[TopicPartition, int]:
        """Every offset that the group has committed, sorted by partition."""
        _, answer = await self.ask_coordinator(
            CoordinatorType.GROUP,
            group,
            ApiKey.OFFSET_FETCH,
            {
                "group_id": group,  # until v7
                "topics": None,
                "groups": [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}],
                "require_stable": False,
            },
            lambda answer: answer.groups[0] if hasattr(answer, "groups") else answer,
        )
        offsets = {}
        for topic in answer.groups[0].topics if hasattr(answer, "groups") else answer.topics:
            for each in topic.partitions:
                error = error_of(each.error_code)
                if error is not None:
                    raise KafkaError(error.code, f"{topic.name}-{each.partition_index}")
                if each.committed_offset != NO_OFFSET:
                    offsets[TopicPartition(topic.name, each.partition_index)] = int(each.committed_offset)
        return dict(sorted(offsets.items()))

    async def list_offsets(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int, *, is_read_committed: bool = False
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        """The offset of each partition at a time, or ``EARLIEST`` or ``LATEST``; what cannot be known is an
        error: the topic is gone, or has no leader. ``is_read_committed``: open transactions end the log."""
        wanted = list(partitions)
        found: dict[TopicPartition, ListedOffset | KafkaError] = {}
        known = await self.partitions(sorted({each.topic for each in wanted}))
        by_leader: dict[int, list[TopicPartition]] = {}
        for each in wanted:
            if each not in known:
                found[each] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
            elif known[each].leader < 0:
                found[each] = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "it has no leader")
            else:
                by_leader.setdefault(known[each].leader, []).append(each)
        for leader, led in sorted(by_leader.items()):
            found |= await self._list_offsets(leader, led, timestamp_ms, int(is_read_committed))
        return {each: found[each] for each in wanted}

    async def _list_offsets(
        self, leader: int, partitions: Sequence[TopicPartition], timestamp_ms: int, isolation_level: int
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        topics: dict[str, list[dict[str, int]]] = {}
        for each in partitions:
            topics.setdefault(each.topic, []).append(
                {
                    "partition_index": each.partition,
                    "current_leader_epoch": -1,
                    "timestamp": timestamp_ms,
                }
            )
        body = {
            "replica_id": -1,
            "isolation_level": isolation_level,
            "topics": [{"name": name, "partitions": each} for name, each in topics.items()],
            "timeout": self.timeout_ms,
        }
        try:
            answer = await self.ask_broker(leader, ApiKey.LIST_OFFSETS, body)
        except BrokerUnavailable as error:
            return dict.fromkeys(partitions, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, str(error)))
        found: dict[TopicPartition, ListedOffset | KafkaError] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                listed = ListedOffset(int(each.offset), int(getattr(each, "leader_epoch", -1)))
                partition = TopicPartition(topic.name, each.partition_index)
                found[partition] = error_of(each.error_code) or listed
        return found

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError]:
        """Set the offsets of a group, which works while it has no members. Returns what was refused."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for each, offset in offsets.items():
            topics.setdefault(each.topic, []).append(
                {
                    "partition_index": each.partition,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                }
            )
        body = {
            "group_id": group,
            "generation_id_or_member_epoch": _NO_GENERATION,
            "member_id": "",
            "group_instance_id": None,
            "retention_time": -1,  # until v4: the broker's
            "topics": [{"name": name, "partitions": each} for name, each in topics.items()],
        }
        _, answer = await self.ask_coordinator(
            CoordinatorType.GROUP, group, ApiKey.OFFSET_COMMIT, body, _moved
        )
        refused = {}
        for topic in answer.topics:
            for each in topic.partitions:
                error = error_of(each.error_code)
                if error is not None:
                    refused[TopicPartition(topic.name, each.partition_index)] = error
        return refused

    async def delete(self, group: str) -> None:
        """DeleteGroups: the group and its offsets."""
        await self.ask_coordinator(
            CoordinatorType.GROUP,
            group,
            ApiKey.DELETE_GROUPS,
            {"groups_names": [group]},
            lambda answer: answer.results[0],
        )


def _moved(answer: Any) -> Any:
    """What carries the error of a commit that another coordinator would take; a partition's own is left."""
    first = answer.topics[0].partitions[0]
    return first if first.error_code in COORDINATOR_MOVES else None


def _member(member: Any, assignment: dict[str, list[int]]) -> GroupMember:
    instance_id = getattr(member, "group_instance_id", None) or getattr(member, "instance_id", None)
    return GroupMember(member.member_id, instance_id, member.client_id, member.client_host, assignment)


def _assigned(member: Any) -> dict[str, list[int]]:
    return {each.topic_name: sorted(map(int, each.partitions)) for each in member.assignment.topic_partitions}
