"""What a member of a KIP-848 group wants, and whether a heartbeat makes that another epoch of the group.

Kafka: ``hasMemberSubscriptionChanged``, ``maybeUpdateRegularExpressions``. Differences: a regular expression
is resolved in the heartbeat that brings it, not in a thread after it, so the member has its partitions with
the first answer; and without an authorizer expressions are resolved again only when topics have changed,
since there is nothing else that their result depends on. With one, topics that the member whose heartbeat
resolves them may not describe do not match (``TopicRegexResolver.filterTopicDescribeAuthorizedTopics``).
Beside names an expression that is new to the group waits for the group's next heartbeat: as in Kafka the
member has the topics that it names with the first answer, and those that match with another one.

Regular expressions that members subscribe with (KIP-848): resolved here. A pattern must match the whole
name. Which names a pattern matches is remembered, so that later only names that are new are matched, and so
that a request's handler can do most of it before the group's turn: what topics have come meanwhile the group
still sees, by the names that are not remembered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from minikafka.coordinator.group.consumer.consumer_group import ConsumerGroup, ConsumerGroupMember, GroupDraft
from minikafka.coordinator.group.consumer.membership import forget_regexes, write_metadata
from minikafka.coordinator.group.messages import ConsumerGroupHeartbeat, MayDescribe
from minikafka.coordinator.group.topic_image import TopicImage
from minikafka.protocol.internal.group_records import (
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from minikafka.regex import compile_regex
from minikafka.steps import Steps, finish

REMEMBERED_MAX = 32
"""Patterns, as many as are kept compiled."""


class Matches(NamedTuple):
    """Which of the names that it has ``seen`` an expression matches, in alphabetical order."""

    regex: str
    seen: frozenset[str]
    matched: tuple[str, ...]


_remembered: dict[str, Matches] = {}
"""What patterns match, which nothing but their names decides; the latest last."""


def check_regex(regex: str) -> None:
    """Raises KafkaError INVALID_REGULAR_EXPRESSION."""
    _compiled(regex)


def resolve_regex(regex: str, topics: TopicImage, may_describe: MayDescribe | None = None) -> tuple[str, ...]:
    """The names of the topics that ``regex``, which compiles, matches, and that may be described; in
    alphabetical order. Where most of them are remembered this costs little."""
    matches = finish(resolve_regex_in_steps(regex, topics.names()))
    remember(matches)
    if may_describe is None:
        return matches.matched
    return tuple(name for name in matches.matched if may_describe(name))


def resolve_regex_in_steps(regex: str, names: Iterable[str]) -> Steps[Matches]:
    """What it matches of ``names``, which are in alphabetical order; only those are matched that are not
    remembered."""
    in_order = tuple(names)
    all_names = frozenset(in_order)
    known = _remembered.get(regex, Matches(regex, frozenset(), ()))
    if known.seen == all_names:
        return known
    pattern = _compiled(regex)
    hits = frozenset(known.matched)
    matched = []
    for name in in_order:
        if name in hits:
            matched.append(name)
        elif name not in known.seen:
            if pattern.fullmatch(name):
                matched.append(name)
            yield
    return Matches(regex, all_names, tuple(matched))


def remember(matches: Matches) -> None:
    """So that ``resolve_regex`` finds it, until so many others are remembered."""
    _remembered.pop(matches.regex, None)
    _remembered[matches.regex] = matches
    if len(_remembered) > REMEMBERED_MAX:
        del _remembered[next(iter(_remembered))]


def _compiled(regex: str) -> Any:
    return compile_regex(regex, name="SubscribedTopicRegex")


REGEX_REFRESH_INTERVAL_MS = 10_000
"""Kafka's REGEX_BATCH_REFRESH_MIN_INTERVAL_MS: a group looks for new topics at most this often, so that many
of them make one rebalance."""
RIGHTS_REFRESH_INTERVAL_MS = 600_000
"""Kafka's default of ``group.consumer.regex.refresh.interval.ms``: how long it may take until a member has a
topic that it was allowed to describe meanwhile, or has lost one. Without an authorizer there is no need."""
REGEXES_PER_HEARTBEAT = 4
"""So many are looked at in one heartbeat, the others in the next ones: one expression against 10,000 topics
takes 30 ms. Kafka has a thread for it; here the request's handler does it in steps (``regexes_due``)."""


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


def regexes_due(group: ConsumerGroup, topics: TopicImage, now_ms: int, *, has_rules: bool) -> list[str]:
    """The expressions that the group's next heartbeat looks at, if that were now, beside one that it brings:
    what they match is found in steps and remembered before, and the heartbeat does not hold up others.
    ``has_rules``: there is an authorizer."""
    round_ = _round(group, group, topics, now_ms, has_rules=has_rules)
    return [*round_[:REGEXES_PER_HEARTBEAT], *group.unresolved_regexes()[:REGEXES_PER_HEARTBEAT]]


def _round(
    draft: ConsumerGroup, group: ConsumerGroup, topics: TopicImage, now_ms: int, *, has_rules: bool
) -> list[str]:
    """Which of the draft's expressions are to be looked at again, a few with each heartbeat."""
    if not draft.regexes:
        return []
    if group.regexes_to_check:
        return group.regexes_to_check
    has_changed = group.regexes_checked_version != topics.version or (
        has_rules and now_ms >= group.regexes_checked_ms + RIGHTS_REFRESH_INTERVAL_MS
    )
    is_due = has_changed and now_ms >= group.regexes_checked_ms + REGEX_REFRESH_INTERVAL_MS
    return list(draft.regexes) if is_due else []


def refresh_regexes(
    draft: GroupDraft,
    group: ConsumerGroup,
    topics: TopicImage,
    now_ms: int,
    may_describe: MayDescribe | None = None,
) -> bool:
    """Look for topics that have come or gone, or that may be described now or not any more; whether there are
    any. ``group`` is the one that is no draft,
    where it is noted what is up to date."""
    round_ = _round(draft.group, group, topics, now_ms, has_rules=may_describe is not None)
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
