"""Members of a KIP-848 group come, are found, want topics, take their steps, and go.

**Coming, being found and going.** Kafka: ``GroupMetadataManager``, its checks of members. **One step** of a
member towards its target assignment. Kafka: ``CurrentAssignmentBuilder``.

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

Invariant: a partition goes to a member only while it is among no member's assigned or pending partitions.
So a partition has one owner, whatever the members do.

**What a member wants**, and whether a heartbeat makes that another epoch of the group. Kafka:
``hasMemberSubscriptionChanged``, ``maybeUpdateRegularExpressions``. Differences: a regular expression is
resolved in the heartbeat that brings it, not in a thread after it, so the member has its partitions with the
first answer; and without an authorizer expressions are resolved again only when topics have changed, since
there is nothing else that their result depends on. With one, topics that the member whose heartbeat resolves
them may not describe do not match (``TopicRegexResolver.filterTopicDescribeAuthorizedTopics``). Beside names
an expression that is new to the group waits for the group's next heartbeat: as in Kafka the member has the
topics that it names with the first answer, and those that match with another one.

**Regular expressions** that members subscribe with are resolved here. A pattern must match the whole name.
Which names a pattern matches is remembered, so that later only names that are new are matched, and so that a
request's handler can do most of it before the group's turn: what topics have come meanwhile the group still
sees, by the names that are not remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Any
from uuid import UUID

import msgspec

from minikafka.clock import has_passed
from minikafka.coordinator.group.consumer.consumer_group import (
    PROTOCOL_TYPE,
    ConsumerGroup,
    ConsumerGroupMember,
    GroupDraft,
    MemberState,
    is_subset,
)
from minikafka.coordinator.group.consumer.target import bump_epoch, subscribed_topic_ids
from minikafka.coordinator.group.environment import TopicImage
from minikafka.coordinator.group.group import (
    LEAVE_STATIC_EPOCH,
    fenced_member_epoch,
    replace_static_member,
    unreleased_instance_id,
)
from minikafka.coordinator.group.messages import ConsumerGroupHeartbeat, MayDescribe
from minikafka.errors import ErrorCode, KafkaError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.internal.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartitions,
)
from minikafka.regex import compile_regex
from minikafka.steps import ELEMENTS_A_STEP, Steps, finish

Owner = Callable[[UUID, int], str | None]
"""Who owns a partition, or must give it back: a member id."""
_NONE: frozenset[int] = frozenset()

REMEMBERED_MAX = 32
"""Patterns, as many as are kept compiled."""

_remembered: dict[str, Matches] = {}
"""What patterns match, which nothing but their names decides; the latest last."""

REGEX_REFRESH_INTERVAL_MS = 10_000
"""Kafka's REGEX_BATCH_REFRESH_MIN_INTERVAL_MS: a group looks for new topics at most this often, so that many
of them make one rebalance."""
REGEXES_PER_HEARTBEAT = 4
"""So many are looked at in one heartbeat, the others in the next ones: one expression against 10,000 topics
takes 30 ms. Kafka has a thread for it; here the request's handler does it in steps (``regexes_due``)."""


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """What a step depends on. ``owned`` is what the member says that it owns, None if it did not say."""

    target_epoch: int
    target: TopicPartitions
    subscribed_topic_ids: AbstractSet[UUID]
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


def check_epoch(member: ConsumerGroupMember, epoch: int, owned: TopicPartitions | None) -> None:
    """Raises KafkaError FENCED_MEMBER_EPOCH.

    The epoch before is good too, if the member owns no more than it has: the answer with the new epoch may
    have been lost.
    """
    if epoch == member.epoch:
        return
    if (
        epoch != member.current.previous_member_epoch
        or epoch > member.epoch
        or owned is None
        or not is_subset(owned, member.assigned)
    ):
        raise fenced_member_epoch(PROTOCOL_TYPE, epoch, known=member.epoch)


def join_static_member(
    draft: GroupDraft, instance_id: str, member_id: str, *, is_classic: bool
) -> ConsumerGroupMember:
    """A static member that is new, or takes the place of the one before, with its partitions.

    One that has missed the answer to its join, or was fenced by its epoch, joins with the member id that it
    has, and gets its state back as a dynamic member does. Kafka 4.4 refuses it with UNRELEASED_INSTANCE_ID
    until its session has expired, which ends Java's consumer.

    Raises:
        KafkaError: UNRELEASED_INSTANCE_ID while the one before has not left. Where one of the two speaks the
            classic protocol it need not: there, who comes last has the name (KIP-345).
    """
    old = draft.group.static_member(instance_id)
    if old is None:
        return draft.group.members.get(member_id) or ConsumerGroupMember(member_id)
    if old.epoch != LEAVE_STATIC_EPOCH and not is_classic and not old.is_classic:
        if old.member_id == member_id:
            return old
        raise unreleased_instance_id(instance_id, member_id, owner=old.member_id)
    target = ConsumerGroupTargetAssignmentMemberValue(draft.group.targets.get(old.member_id, {}))
    return replace_static_member(draft, old, member_id, target)


def write_metadata(draft: GroupDraft, member: ConsumerGroupMember) -> None:
    draft.write(ConsumerGroupMemberMetadataKey(draft.group.group_id, member.member_id), member.metadata)


def write_current(draft: GroupDraft, member: ConsumerGroupMember) -> None:
    draft.write(
        ConsumerGroupCurrentMemberAssignmentKey(draft.group.group_id, member.member_id), member.current
    )


def remove_members(draft: GroupDraft, member_ids: Iterable[str], topics: TopicImage) -> None:
    """They leave or are fenced. What they had is free at once; the next heartbeat of any other assigns it."""
    for member_id in member_ids:
        draft.remove_member(member_id)
    forget_regexes(draft)
    bump_epoch(draft, topics)


def forget_regexes(draft: GroupDraft) -> None:
    """Forget the expressions that no member subscribes with any more."""
    for regex in list(draft.group.regexes):
        if not draft.group.regex_member_count(regex):
            draft.write(ConsumerGroupRegularExpressionKey(draft.group.group_id, regex), None)


def static_member_leave(draft: GroupDraft, member: ConsumerGroupMember) -> None:
    """A static member leaves and keeps its partitions; what it had to revoke it has revoked by leaving."""
    current = msgspec.structs.replace(
        member.current,
        member_epoch=LEAVE_STATIC_EPOCH,
        state=int(MemberState.STABLE),
        partitions_pending_revocation={},
    )
    write_current(draft, msgspec.structs.replace(member, current=current))


def reconcile(
    draft: GroupDraft,
    member_id: str,
    topics: TopicImage,
    *,
    owned: TopicPartitions | None,
    subscription_changed: bool,
) -> None:
    """One step of the member towards its target, if it is not there."""
    group = draft.group
    member = group.members[member_id]
    if member.is_reconciled_to(group.assignment_epoch) and not subscription_changed:
        return
    step = Reconciliation(
        target_epoch=group.assignment_epoch,
        target=group.targets.get(member_id, {}),
        subscribed_topic_ids=frozenset(subscribed_topic_ids(group, member, topics)),
        subscription_changed=subscription_changed,
        owner=group.owner,
        owned=owned,
    )
    updated = step.step(member)
    if updated is not member:
        write_current(draft, updated)


class Matches(NamedTuple):
    """Which of the names that it has ``seen`` an expression matches, both in alphabetical order."""

    regex: str
    seen: tuple[str, ...]
    matched: tuple[str, ...]


def check_regex(regex: str) -> None:
    """Raises KafkaError INVALID_REGULAR_EXPRESSION."""
    _compiled(regex)


def resolve_regex(regex: str, topics: TopicImage, may_describe: MayDescribe | None = None) -> tuple[str, ...]:
    """The names of the topics that ``regex``, which compiles, matches, and that may be described; in
    alphabetical order. Where most of them are remembered this costs little, and nothing where all are and no
    rules are asked."""
    matches = finish(resolve_regex_in_steps(regex, topics.names()))
    remember(matches)
    return matches.matched if may_describe is None else tuple(filter(may_describe, matches.matched))


def resolve_regex_in_steps(regex: str, names: tuple[str, ...]) -> Steps[Matches]:
    """What it matches of ``names``, which are in alphabetical order; only those are matched that are not
    remembered."""
    known = _remembered.get(regex, Matches(regex, (), ()))
    if known.seen == names:  # most often the same tuple
        return known
    pattern = _compiled(regex)
    seen, hits = frozenset(known.seen), frozenset(known.matched)
    matched = []
    for count, name in enumerate(names, start=1):
        if name in hits:
            matched.append(name)
        elif name not in seen:
            if pattern.fullmatch(name):
                matched.append(name)
            yield
        if count % ELEMENTS_A_STEP == 0:
            yield
    return Matches(regex, names, tuple(matched))


def remember(matches: Matches) -> None:
    """So that ``resolve_regex`` finds it, until so many others are remembered."""
    _remembered.pop(matches.regex, None)
    _remembered[matches.regex] = matches
    if len(_remembered) > REMEMBERED_MAX:
        del _remembered[next(iter(_remembered))]


def _compiled(regex: str) -> Any:
    return compile_regex(regex, name="SubscribedTopicRegex")


def metadata_of_heartbeat(
    before: ConsumerGroupMemberMetadataValue, request: ConsumerGroupHeartbeat
) -> ConsumerGroupMemberMetadataValue:
    """What is known of the member after ``request``, which leaves out what has not changed."""
    names = request.subscribed_topic_names
    timeout_ms = request.rebalance_timeout_ms
    return ConsumerGroupMemberMetadataValue(
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        subscribed_topic_names=before.subscribed_topic_names if names is None else tuple(sorted({*names})),
        subscribed_topic_regex=(
            before.subscribed_topic_regex
            if request.subscribed_topic_regex is None
            else request.subscribed_topic_regex
        ),
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=before.server_assignor
        if request.server_assignor is None
        else request.server_assignor,
    )


def update_subscription(
    draft: GroupDraft,
    before: ConsumerGroupMember,
    metadata: ConsumerGroupMemberMetadataValue,
    topics: TopicImage,
    now_ms: int,
    may_describe: MayDescribe | None = None,
) -> bool:
    """Write down what the member tells, if it is new; whether it wants other topics than before.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION.
    """
    if before.member_id in draft.group.members and metadata == before.metadata:
        return False
    member = msgspec.structs.replace(before, metadata=metadata)
    if member.regex is not None and member.regex not in draft.group.regexes:
        check_regex(member.regex)
    write_metadata(draft, member)
    if member.regex != before.regex:
        forget_regexes(draft)
        if (
            member.regex is not None
            and member.regex not in draft.group.regexes
            and not metadata.subscribed_topic_names
        ):
            _resolve(draft, member.regex, topics, now_ms, may_describe)
        return True
    return metadata.subscribed_topic_names != before.metadata.subscribed_topic_names


def resolve_new_regexes(
    draft: GroupDraft, topics: TopicImage, now_ms: int, may_describe: MayDescribe | None = None
) -> bool:
    """Resolve what earlier heartbeats brought beside names; whether there was any."""
    unresolved = draft.group.unresolved_regexes()
    for regex in unresolved[:REGEXES_PER_HEARTBEAT]:
        _resolve(draft, regex, topics, now_ms, may_describe)
    return bool(unresolved)


class Refreshment(NamedTuple):
    """When expressions are looked at again, besides when topics come or go."""

    interval_ms: int
    """``group.consumer.regex.refresh.interval.ms``: how long it may take until a member has a topic that it
    was allowed to describe meanwhile, or has lost one."""
    has_rules: bool
    """There is an authorizer; without one there is no need."""


def regexes_due(group: ConsumerGroup, topics: TopicImage, now_ms: int, refreshment: Refreshment) -> list[str]:
    """The expressions that the group's next heartbeat looks at, if that were now, beside one that it brings:
    what they match is found in steps and remembered before, and the heartbeat does not hold up others."""
    round_ = _round(group, group, topics, now_ms, refreshment)
    return [*round_[:REGEXES_PER_HEARTBEAT], *group.unresolved_regexes()[:REGEXES_PER_HEARTBEAT]]


def _round(
    draft: ConsumerGroup, group: ConsumerGroup, topics: TopicImage, now_ms: int, refreshment: Refreshment
) -> list[str]:
    """Which of the draft's expressions are to be looked at again, a few with each heartbeat."""
    if not draft.regexes:
        return []
    if group.regexes_to_check:
        return group.regexes_to_check
    checked_ms = group.regexes_checked_ms
    has_changed = group.regexes_checked_version != topics.version or (
        refreshment.has_rules and has_passed(refreshment.interval_ms, checked_ms, now_ms)
    )
    is_due = has_changed and has_passed(REGEX_REFRESH_INTERVAL_MS, checked_ms, now_ms)
    return list(draft.regexes) if is_due else []


def refresh_regexes(
    draft: GroupDraft,
    group: ConsumerGroup,
    topics: TopicImage,
    now_ms: int,
    refresh_interval_ms: int,
    may_describe: MayDescribe | None = None,
) -> bool:
    """Look for topics that have come or gone, or that may be described now or not any more; whether there are
    any. ``group`` is the one that is no draft,
    where it is noted what is up to date."""
    refreshment = Refreshment(refresh_interval_ms, has_rules=may_describe is not None)
    round_ = _round(draft.group, group, topics, now_ms, refreshment)
    if not round_:
        return False
    if not group.regexes_to_check:
        group.regexes_checked_version, group.regexes_checked_ms = topics.version, now_ms
    changed = []
    for regex in round_[:REGEXES_PER_HEARTBEAT]:
        if regex in draft.group.regexes:
            names = resolve_regex(regex, topics, may_describe)
            if names != draft.group.regexes[regex].topics:
                _write(draft, regex, names, topics, now_ms)
                changed.append(regex)
    # What has changed is looked at again: the log may refuse to have it.
    group.regexes_to_check = round_[REGEXES_PER_HEARTBEAT:] + changed
    return bool(changed)


def _resolve(
    draft: GroupDraft, regex: str, topics: TopicImage, now_ms: int, may_describe: MayDescribe | None
) -> None:
    _write(draft, regex, resolve_regex(regex, topics, may_describe), topics, now_ms)


def _write(draft: GroupDraft, regex: str, names: tuple[str, ...], topics: TopicImage, now_ms: int) -> None:
    value = ConsumerGroupRegularExpressionValue(topics=names, version=topics.version, timestamp_ms=now_ms)
    draft.write(ConsumerGroupRegularExpressionKey(draft.group.group_id, regex), value)
