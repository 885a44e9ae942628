"""One step of a member towards its target assignment. Kafka: ``CurrentAssignmentBuilder``.

=====================  ============================================  ===============================
state                  the step                                      next state
=====================  ============================================  ===============================
STABLE                 its epoch is behind the target's              one of the three below
STABLE                 the target takes partitions away, and it      UNREVOKED_PARTITIONS, in its
                       may still own them                            old epoch
UNREVOKED_PARTITIONS   it says what it owns, and that is none of     STABLE or UNRELEASED_PARTITIONS
                       the revoked                                   in the target's epoch
UNRELEASED_PARTITIONS  others have given partitions back             STABLE, or itself with more
UNKNOWN                it says that it owns nothing                  as STABLE
=====================  ============================================  ===============================

Invariant: a partition goes to a member only while it is in nobody's assigned and nobody's pending partitions.
So a partition has one owner, whatever the members do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

import msgspec

from minikafka.coordinator.group.consumer.member import ConsumerGroupMember, MemberState
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import TopicPartitions

Owner = Callable[[UUID, int], str | None]
"""Who owns a partition, or must give it back: a member id."""
_NONE: frozenset[int] = frozenset()


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """What a step depends on. ``owned`` is what the member says that it owns, None if it did not say."""

    target_epoch: int
    target: TopicPartitions
    subscribed_topic_ids: Collection[UUID]
    subscription_changed: bool
    owner: Owner
    owned: TopicPartitions | None

    def step(self, member: ConsumerGroupMember) -> ConsumerGroupMember:
        """The member after the step, ``member`` itself if it must wait.

        Raises:
            KafkaError: FENCED_MEMBER_EPOCH if the member's state is unknown and it owns something.
        """
        match member.state:
            case MemberState.STABLE:
                if member.epoch != self.target_epoch:
                    return self._next(member, member.epoch)
                return self._without_unsubscribed(member) if self.subscription_changed else member
            case MemberState.UNREVOKED_PARTITIONS:
                if not self._may_own(member.pending_revocation):
                    return self._next(member, member.epoch)
                return self._without_unsubscribed(member) if self.subscription_changed else member
            case MemberState.UNRELEASED_PARTITIONS:
                return self._next(member, member.epoch)
            case MemberState.UNKNOWN:
                if self.owned is None or self.owned:
                    raise KafkaError(
                        ErrorCode.FENCED_MEMBER_EPOCH,
                        "The consumer group member is in a unknown state. "
                        "The member must abandon all its partitions and rejoin.",
                    )
                return self._next(member, self.target_epoch)

    def _may_own(self, partitions: TopicPartitions) -> bool:
        if self.owned is None:
            return True
        return any(self.owned.get(topic_id, _NONE) & numbers for topic_id, numbers in partitions.items())

    def _without_unsubscribed(self, member: ConsumerGroupMember) -> ConsumerGroupMember:
        """The topics that the member does not want any more are revoked at once, in its epoch."""
        kept: TopicPartitions = {}
        revoked = dict(member.pending_revocation)
        for topic_id, numbers in member.assigned.items():
            if topic_id in self.subscribed_topic_ids:
                kept[topic_id] = numbers
            else:
                revoked[topic_id] = revoked.get(topic_id, _NONE) | numbers
        if len(kept) == len(member.assigned):
            return member
        if self._may_own(revoked):
            return _moved(member, MemberState.UNREVOKED_PARTITIONS, member.epoch, kept, revoked)
        return _moved(member, member.state, member.epoch, kept, member.pending_revocation)

    def _next(self, member: ConsumerGroupMember, epoch: int) -> ConsumerGroupMember:
        assigned: TopicPartitions = {}
        revoked: TopicPartitions = {}
        gained: TopicPartitions = {}
        waits = False
        for topic_id in {**self.target, **member.assigned}:
            target = self.target.get(topic_id, _NONE) if topic_id in self.subscribed_topic_ids else _NONE
            current = member.assigned.get(topic_id, _NONE)
            if kept := current & target:
                assigned[topic_id] = kept
            if lost := current - target:
                revoked[topic_id] = lost
            if wanted := target - kept:
                free = frozenset(
                    number
                    for number in wanted  # any order
                    if self.owner(topic_id, number) in (None, member.member_id)
                )
                if free:
                    gained[topic_id] = free
                waits = waits or len(free) < len(wanted)
        if revoked and self._may_own(revoked):
            return _moved(member, MemberState.UNREVOKED_PARTITIONS, epoch, assigned, revoked)
        assigned = {
            topic_id: assigned.get(topic_id, _NONE) | gained.get(topic_id, _NONE)
            for topic_id in self.target  # its order is what the member is told
            if topic_id in assigned or topic_id in gained
        }
        state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
        return _moved(member, state, self.target_epoch, assigned, {})


def _moved(
    member: ConsumerGroupMember,
    state: MemberState,
    epoch: int,
    assigned: TopicPartitions,
    pending_revocation: TopicPartitions,
) -> ConsumerGroupMember:
    """``member`` itself if nothing has changed. The epoch that it comes from becomes its previous one."""
    current = member.current
    if (current.state, current.member_epoch, current.assigned_partitions) == (state, epoch, assigned) and (
        current.partitions_pending_revocation == pending_revocation
    ):
        return member
    return msgspec.structs.replace(
        member,
        current=msgspec.structs.replace(
            current,
            member_epoch=epoch,
            previous_member_epoch=current.member_epoch,
            state=int(state),
            assigned_partitions=assigned,
            partitions_pending_revocation=pending_revocation,
        ),
    )
