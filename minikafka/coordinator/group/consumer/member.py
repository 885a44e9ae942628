"""One member of a KIP-848 group: what it told about itself, and what it owns.

Kafka: ``ConsumerGroupMember``, ``MemberState``. A member is exactly its two records: it is replaced when one
of them is written, never changed.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from minikafka.coordinator.group.footprint import member_bytes
from minikafka.protocol.internal.group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""A static member that is away, and is expected back before its session ends."""


class MemberState(IntEnum):
    """Where a member stands on the way from what it owns to its target assignment."""

    STABLE = 0
    """It owns what it shall own, as far as it has heard."""
    UNREVOKED_PARTITIONS = 1
    """It must say that it has given partitions back before it enters the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It is in its epoch, and waits for partitions that others have not yet given back."""
    UNKNOWN = 127
    """A state of a newer version: the member must begin anew."""


_STATES = {int(state): state for state in MemberState}

NOTHING_TOLD = ConsumerGroupMemberMetadataValue(client_id="", client_host="")
NOTHING_OWNED = ConsumerGroupCurrentMemberAssignmentValue(
    member_epoch=0,
    previous_member_epoch=0,
    state=MemberState.STABLE,
    assigned_partitions={},
    partitions_pending_revocation={},
)


class ConsumerGroupMember(msgspec.Struct, frozen=True):
    """``metadata`` is what the member told, ``current`` what it owns and in which epoch."""

    member_id: str
    metadata: ConsumerGroupMemberMetadataValue = NOTHING_TOLD
    current: ConsumerGroupCurrentMemberAssignmentValue = NOTHING_OWNED

    @property
    def epoch(self) -> int:
        return self.current.member_epoch

    @property
    def state(self) -> MemberState:
        return _STATES.get(self.current.state, MemberState.UNKNOWN)

    @property
    def assigned(self) -> TopicPartitions:
        """What it may consume."""
        return self.current.assigned_partitions

    @property
    def pending_revocation(self) -> TopicPartitions:
        """What it must stop consuming; nobody else gets it until it says that it has."""
        return self.current.partitions_pending_revocation

    @property
    def size_bytes(self) -> int:
        """What it takes in memory because of what it told; what it owns is of the coordinator's making."""
        told = self.metadata
        classic = told.classic_member_metadata
        about = (self.member_id, told.instance_id, told.rack_id, told.client_id, told.client_host)
        wanted = (told.subscribed_topic_regex, told.server_assignor, *told.subscribed_topic_names)
        protocols = () if classic is None else classic.supported_protocols
        return member_bytes((*about, *wanted), ((each.name, each.metadata) for each in protocols))

    @property
    def regex(self) -> str | None:
        """Its regular expression; None also if it is empty."""
        return self.metadata.subscribed_topic_regex or None

    @property
    def is_classic(self) -> bool:
        """It speaks the classic protocol."""
        return self.metadata.classic_member_metadata is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.current.state == MemberState.STABLE and self.current.member_epoch == epoch


def is_subset(owned: TopicPartitions, assigned: TopicPartitions) -> bool:
    """Whether everything in ``owned`` is also in ``assigned``."""
    return all(partitions <= assigned.get(topic_id, frozenset()) for topic_id, partitions in owned.items())
