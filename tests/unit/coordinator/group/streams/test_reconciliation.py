"""One step of a member towards its target: what is given back, what is waited for, what changes its role."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.coordinator.group.streams.task_assignment import Holders, Reconciliation, StreamsMemberState
from minikafka.coordinator.group.streams.topology import Tasks
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import StreamsGroupCurrentMemberAssignmentValue

STABLE, UNREVOKED, UNRELEASED, UNKNOWN = StreamsMemberState
NOTHING = Tasks({}, {}, {})
Held = dict[tuple[str, int], tuple[str, ...]]


def tasks(*numbers: int) -> dict[str, frozenset[int]]:
    return {"0": frozenset(numbers)} if numbers else {}


def has(
    *active: int,
    standby: tuple[int, ...] = (),
    warmup: tuple[int, ...] = (),
    state: int = STABLE,
    epoch: int = 1,
    **more: Any,
) -> StreamsGroupCurrentMemberAssignmentValue:
    return StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=epoch,
        previous_member_epoch=0,
        state=int(state),
        active_tasks={"0": dict.fromkeys(active, 1)} if active else {},
        standby_tasks=tasks(*standby),
        warmup_tasks=tasks(*warmup),
        **more,
    )


def step(
    current: StreamsGroupCurrentMemberAssignmentValue,
    *active: int,
    standby: tuple[int, ...] = (),
    warmup: tuple[int, ...] = (),
    owned: Tasks | None = None,
    others: dict[str, dict[int, str]] | None = None,
) -> StreamsGroupCurrentMemberAssignmentValue:
    """Of a member of process ``p`` to epoch 2; ``others``: what other members have, role → task → process."""

    def held(role: str, mine: Any) -> Any:
        def of(subtopology_id: str, number: int) -> tuple[str, ...]:
            other = (others or {}).get(role, {}).get(number)
            own = ("p",) if number in mine.get(subtopology_id, ()) else ()
            return own if other is None else (*own, other)

        return of

    return Reconciliation(
        current,
        process_id="p",
        target_epoch=2,
        target=Tasks(tasks(*active), tasks(*standby), tasks(*warmup)),
        holders=Holders(
            held("active", current.active_tasks),
            held("standby", current.standby_tasks),
            held("warmup", current.warmup_tasks),
        ),
        owned=owned,
    ).step()


def test_a_member_that_is_there_stays() -> None:
    current = has(0, epoch=2)
    assert step(current, 1) is current


def test_what_is_free_it_has_at_once_with_the_epoch_of_its_assignment() -> None:
    after = step(has(0), 0, 1)
    assert (after.state, after.member_epoch, after.previous_member_epoch) == (STABLE, 2, 1)
    assert after.active_tasks == {"0": {0: 1, 1: 2}}


def test_it_gives_back_first_and_enters_the_epoch_when_it_says_so() -> None:
    waits = step(has(0, 1), 0, 2, owned=Tasks(tasks(0, 1), {}, {}))
    assert (waits.state, waits.member_epoch) == (UNREVOKED, 1)
    assert (waits.active_tasks, waits.active_tasks_pending_revocation) == ({"0": {0: 1}}, {"0": {1: 1}})
    assert step(waits, 0, 2) is waits
    assert step(waits, 0, 2, owned=Tasks(tasks(0, 1), {}, {})) is waits
    after = step(waits, 0, 2, owned=Tasks(tasks(0), {}, {}))
    assert (after.state, after.member_epoch) == (STABLE, 2)
    assert (after.active_tasks, after.active_tasks_pending_revocation) == ({"0": {0: 1, 2: 2}}, {})


def test_what_others_have_it_waits_for() -> None:
    after = step(has(0), 0, 1, 2, others={"active": {1: "q"}})
    assert (after.state, after.member_epoch, after.active_tasks) == (UNRELEASED, 2, {"0": {0: 1, 2: 2}})
    assert step(after, 0, 1, 2, others={"active": {1: "q"}}) is after
    assert step(after, 0, 1, 2).active_tasks == {"0": {0: 1, 1: 2, 2: 2}}


@pytest.mark.parametrize("role", ["standby", "warmup"])
def test_a_task_is_once_in_a_process_in_whichever_role(role: str) -> None:
    assert step(has(), 1, others={role: {1: "p"}}).state == UNRELEASED
    assert step(has(), 1, others={role: {1: "q"}}).state == STABLE
    assert step(has(), standby=(1,), others={"active": {1: "p"}}).state == UNRELEASED
    assert step(has(), standby=(1,), others={"active": {1: "q"}}).state == STABLE
    assert step(has(), warmup=(1,), others={"active": {1: "p"}}).state == UNRELEASED
    assert step(has(), warmup=(1,), others={"standby": {1: "p"}}).state == UNRELEASED


def test_a_standby_that_becomes_active_stays_a_standby_until_the_task_is_free() -> None:
    after = step(has(standby=(1,)), 1, others={"active": {1: "q"}}, owned=Tasks({}, tasks(1), {}))
    assert (after.state, after.standby_tasks, after.active_tasks) == (UNRELEASED, tasks(1), {})
    after = step(after, 1)
    assert (after.state, after.standby_tasks, after.active_tasks) == (STABLE, {}, {"0": {1: 2}})


def test_an_active_task_that_becomes_a_standby_changes_at_once_and_is_given_back() -> None:
    after = step(has(1), standby=(1,), owned=Tasks(tasks(1), {}, {}))
    assert (after.state, after.member_epoch, after.active_tasks) == (UNREVOKED, 1, {})
    assert (after.standby_tasks, after.active_tasks_pending_revocation) == (tasks(1), {"0": {1: 1}})


def test_standbys_and_warm_ups_change_places_without_being_given_back() -> None:
    after = step(
        has(standby=(1,), warmup=(2,)), standby=(2,), warmup=(1,), owned=Tasks({}, tasks(1), tasks(2))
    )
    assert (after.state, after.standby_tasks, after.warmup_tasks) == (STABLE, tasks(2), tasks(1))


def test_a_state_that_is_not_known_is_left_without_tasks_only() -> None:
    current = has(1, state=99)
    for owned in (None, Tasks(tasks(1), {}, {})):
        with pytest.raises(KafkaError) as error:
            step(current, 1, owned=owned)
        assert error.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert step(has(state=99), 1, owned=NOTHING).active_tasks == {"0": {1: 2}}
