"""What the assignors promise, for any group."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.coordinator.group.consumer.target import (
    Assignor,
    GroupSpec,
    MemberSpec,
    assign_range,
    assign_uniform,
)
from minikafka.protocol.internal.group_records import TopicPartitions

TOPICS = [UUID(int=number) for number in range(1, 6)]
MEMBERS = [f"member-{number}" for number in range(7)]

Targets = dict[str, TopicPartitions]


@st.composite
def groups(draw: st.DrawFn, *, homogeneous: bool | None = None) -> GroupSpec:
    """Members with any wants, and any targets from before: that two share, or of partitions that are gone."""
    counts = {topic_id: draw(st.integers(1, 8)) for topic_id in TOPICS}
    wants = st.sets(st.sampled_from(TOPICS)).map(lambda chosen: tuple(sorted(chosen)))
    common = draw(wants)
    alike = draw(st.booleans()) if homogeneous is None else homogeneous
    targets = st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 9), min_size=1))
    members = {
        member_id: MemberSpec(common if alike else draw(wants), draw(targets))
        for member_id in draw(st.lists(st.sampled_from(MEMBERS), unique=True, min_size=1))
    }
    wanted = {topic_id for member in members.values() for topic_id in member.topic_ids}
    return GroupSpec(members, {topic_id: counts[topic_id] for topic_id in sorted(wanted)})


def again(spec: GroupSpec, targets: Targets, *, without: str | None = None) -> GroupSpec:
    members = {
        member_id: MemberSpec(member.topic_ids, targets[member_id])
        for member_id, member in spec.members.items()
        if member_id != without
    }
    wanted = {topic_id for member in members.values() for topic_id in member.topic_ids}
    return GroupSpec(members, {topic_id: spec.partition_counts[topic_id] for topic_id in sorted(wanted)})


def load(targets: Targets, member_id: str) -> int:
    return sum(map(len, targets[member_id].values()))


def owners(targets: Targets) -> dict[tuple[UUID, int], str]:
    return {
        (topic_id, number): member_id
        for member_id, topics in targets.items()
        for topic_id, numbers in topics.items()
        for number in numbers
    }


@pytest.mark.parametrize("assignor", [assign_uniform, assign_range])
@given(spec=groups())
def test_every_partition_goes_to_one_member_that_wants_it(assignor: Assignor, spec: GroupSpec) -> None:
    targets = assignor(spec)
    assert list(targets) == list(spec.members)
    for member_id, topics in targets.items():
        assert set(topics) <= set(spec.members[member_id].topic_ids)
        assert all(topics.values()), "no topic without partitions"
    assert sum(load(targets, member_id) for member_id in targets) == len(owners(targets))
    assert owners(targets).keys() == {
        (topic_id, number) for topic_id, count in spec.partition_counts.items() for number in range(count)
    }


@pytest.mark.parametrize("assignor", [assign_uniform, assign_range])
@given(spec=groups())
def test_nothing_moves_when_nothing_has_changed(assignor: Assignor, spec: GroupSpec) -> None:
    targets = assignor(spec)
    assert assignor(again(spec, targets)) == targets


@given(spec=groups(homogeneous=True))
def test_uniform_differs_by_one_at_most_where_all_want_the_same(spec: GroupSpec) -> None:
    targets = assign_uniform(spec)
    loads = [load(targets, member_id) for member_id in targets]
    assert max(loads) - min(loads) <= 1


@given(spec=groups(homogeneous=False))
def test_no_single_move_would_make_uniform_more_even(spec: GroupSpec) -> None:
    targets = assign_uniform(spec)
    for member_id, topics in targets.items():
        for topic_id in topics:
            for other_id, other in spec.members.items():
                if topic_id in other.topic_ids:
                    assert load(targets, member_id) - load(targets, other_id) <= 1


@given(spec=groups(homogeneous=True))
def test_uniform_moves_only_what_the_leaving_member_had(spec: GroupSpec) -> None:
    before = assign_uniform(spec)
    for leaver in list(before)[1:]:
        after = owners(assign_uniform(again(spec, before, without=leaver)))
        had = {key for key, member_id in owners(before).items() if member_id == leaver}
        assert {key for key in after if after[key] != owners(before)[key]} == had


@given(spec=groups(homogeneous=True))
def test_uniform_moves_to_a_new_member_only_what_it_gets(spec: GroupSpec) -> None:
    newcomer = list(spec.members)[-1]
    members = {member_id: member for member_id, member in spec.members.items() if member_id != newcomer}
    if not members:
        return
    before = assign_uniform(GroupSpec(members, spec.partition_counts))
    after = assign_uniform(again(spec, {**before, newcomer: {}}))
    moved = {key for key, member_id in owners(after).items() if owners(before)[key] != member_id}
    assert moved == {key for key, member_id in owners(after).items() if member_id == newcomer}


@given(spec=groups())
def test_range_gives_each_subscriber_its_share_of_each_topic(spec: GroupSpec) -> None:
    targets = assign_range(spec)
    for topic_id, subscribers in spec.subscribers().items():
        shares = [len(targets[member_id].get(topic_id, ())) for member_id in subscribers]
        assert max(shares) - min(shares) <= 1


def test_range_gives_the_same_numbers_of_topics_of_one_size() -> None:
    members = {member_id: MemberSpec(tuple(TOPICS[:2]), {}) for member_id in MEMBERS[:3]}
    targets = assign_range(GroupSpec(members, dict.fromkeys(TOPICS[:2], 7)))
    assert [sorted(targets[member_id][TOPICS[0]]) for member_id in members] == [[0, 1, 2], [3, 4], [5, 6]]
    assert all(len(set(topics.values())) == 1 for topics in targets.values())


def test_a_topic_that_few_want_is_given_first() -> None:
    members = {"a": MemberSpec((TOPICS[0], TOPICS[1]), {}), "b": MemberSpec((TOPICS[1],), {})}
    targets = assign_uniform(GroupSpec(members, {TOPICS[0]: 2, TOPICS[1]: 4}))
    assert targets["a"] == {TOPICS[0]: frozenset({0, 1}), TOPICS[1]: frozenset({2})}


def test_no_member_gets_anything_of_nothing() -> None:
    assert assign_uniform(GroupSpec({}, {})) == assign_range(GroupSpec({}, {})) == {}
    assert assign_uniform(GroupSpec({"a": MemberSpec((), {})}, {})) == {"a": {}}
