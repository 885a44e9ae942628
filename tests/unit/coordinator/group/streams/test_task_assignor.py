"""The sticky task assignor: every task once, evenly, with few moves, standbys in other processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.coordinator.group.environment import StreamsGroupSettings
from minikafka.coordinator.group.streams.task_assignment import MemberSpec, assign
from minikafka.coordinator.group.streams.topology import (
    ConfiguredSubtopology,
    ConfiguredTopology,
    Tasks,
    TopicInfo,
)

NO_STANDBYS = StreamsGroupSettings()


def topology(*counts: int, stateful: bool = True) -> ConfiguredTopology:
    changelogs = {"changelog": TopicInfo("changelog", 1)} if stateful else {}
    return ConfiguredTopology(
        epoch=1,
        subtopologies={
            str(number): ConfiguredSubtopology(
                number_of_tasks=count,
                source_topics=("t",),
                repartition_source_topics={},
                state_changelog_topics=changelogs,
            )
            for number, count in enumerate(counts)
        },
    )


def members(
    tasks: Mapping[str, Tasks],
    processes: Mapping[str, str] | None = None,
    **offsets: dict[str, dict[int, int]],
) -> dict[str, MemberSpec]:
    return {
        member_id: MemberSpec(
            instance_id=None,
            rack_id=None,
            process_id=(processes or {}).get(member_id, member_id),
            client_tags={},
            tasks=mine,
            task_offsets=offsets.get(member_id, {}),
            task_end_offsets={},
        )
        for member_id, mine in tasks.items()
    }


def flat(tasks: Mapping[str, frozenset[int]]) -> set[tuple[str, int]]:
    return {(key, number) for key, numbers in tasks.items() for number in numbers}


def test_a_newcomer_takes_half_and_no_other_task_moves() -> None:
    before = assign(members({"a": Tasks()}), topology(4), NO_STANDBYS)
    assert before["a"].active == {"0": frozenset(range(4))}
    after = assign(members({**before, "b": Tasks()}), topology(4), NO_STANDBYS)
    assert len(flat(after["a"].active)) == len(flat(after["b"].active)) == 2
    again = assign(members(after), topology(4), NO_STANDBYS)
    assert again == after


def test_who_goes_leaves_its_tasks_to_its_standbys() -> None:
    with_standby = StreamsGroupSettings(num_standby_replicas=1)
    first = assign(members({each: Tasks() for each in "abc"}), topology(6), with_standby)
    gone = flat(first["a"].active)
    holders = {task: next(each for each in "bc" if task in flat(first[each].standby)) for task in gone}
    after = assign(members({each: first[each] for each in "bc"}), topology(6), with_standby)
    for each in "bc":
        assert flat(first[each].active) <= flat(after[each].active)
    # Both may have been with one of the two, which takes its part of them.
    assert any(task in flat(after[holder].active) for task, holder in holders.items())
    assert len(flat(after["b"].active)) == len(flat(after["c"].active)) == 3


def test_who_has_the_state_on_disk_has_the_task_again() -> None:
    specs = members({"a": Tasks(), "b": Tasks()}, b={"0": {0: 100, 1: 50}})
    after = assign(specs, topology(2, 2), NO_STANDBYS)
    assert flat(after["b"].active) == {("0", 0), ("0", 1)}


def test_tasks_without_state_have_no_standbys() -> None:
    after = assign(
        members({"a": Tasks(), "b": Tasks()}),
        topology(2, stateful=False),
        StreamsGroupSettings(num_standby_replicas=1),
    )
    assert not any(each.standby for each in after.values())


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.lists(st.sampled_from("pqrs"), min_size=1, max_size=6),
    st.integers(0, 2),
    st.integers(0, 5),
)
def test_every_task_is_active_once_and_standbys_are_elsewhere(
    counts: list[int], processes: list[str], replicas: int, leaving: int
) -> None:
    configured = StreamsGroupSettings(num_standby_replicas=replicas)
    names = {f"m{number}": process for number, process in enumerate(processes)}
    tasks = {(str(key), number) for key, count in enumerate(counts) for number in range(count)}
    target = {name: Tasks() for name in names}
    for _ in range(2):
        target = assign(members(target, names), topology(*counts), configured)
        active = Counter(task for each in target.values() for task in flat(each.active))
        assert active == Counter(tasks)
        if len(set(names.values())) == len(names):
            loads = [len(flat(each.active)) for each in target.values()]
            assert max(loads) - min(loads) <= 1
        placed: dict[tuple[str, int], list[str]] = {}
        for name, each in target.items():
            for task in (*flat(each.active), *flat(each.standby)):
                placed.setdefault(task, []).append(names[name])
        for where in placed.values():
            assert len(where) == len(set(where)) == min(1 + replicas, len(set(names.values())))
        if len(names) > 1 and leaving < len(names):
            gone = sorted(names)[leaving]
            del names[gone], target[gone]
