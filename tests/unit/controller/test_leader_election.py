"""Who leads next: each rule of an election by itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.controller.state_machines import (
    after_unclean_shutdown,
    controlled_shutdown_election,
    election_after_absence,
    first_state,
    known_brokers_only,
    offline_partition_election,
    preferred_replica_election,
    reassign_partition_election,
    same_leader,
    without_replica,
)
from minikafka.types import NO_LEADER, BrokerId, PartitionState
from tests.unit.controller.driver import state

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
REPLICAS = (THREE, ONE, TWO)


def test_the_first_online_replica_leads_a_new_partition() -> None:
    assert first_state(REPLICAS, [ONE, TWO, THREE], controller_epoch=4) == state(3, 0, [3, 1, 2], 4)
    assert first_state(REPLICAS, [TWO], controller_epoch=4) == state(2, 0, [2], 4)
    assert first_state(REPLICAS, [], controller_epoch=4) is None


def test_the_first_online_member_of_the_isr_in_assignment_order_follows_a_dead_leader() -> None:
    elected = offline_partition_election(state(3, 7, [2, 1, 3]), REPLICAS, [ONE, TWO], unclean=False)
    assert elected == state(1, 8, [2, 1])


def test_without_an_online_member_of_the_isr_there_is_no_leader() -> None:
    assert offline_partition_election(state(3, 7, [3]), REPLICAS, [ONE, TWO], unclean=False) is None
    assert offline_partition_election(state(3, 7, [3]), REPLICAS, [], unclean=True) is None


def test_an_unclean_leader_is_alone_in_its_isr_and_has_to_recover() -> None:
    elected = offline_partition_election(state(3, 7, [3]), REPLICAS, [ONE, TWO], unclean=True)
    assert elected == state(1, 8, [1], recovering=True)


def test_unclean_is_the_last_resort() -> None:
    elected = offline_partition_election(state(3, 7, [3, 2]), REPLICAS, [ONE, TWO], unclean=True)
    assert elected == state(2, 8, [2])


def test_who_has_to_recover_has_to_do_so_after_the_next_election_too() -> None:
    recovering = state(3, 7, [3, 2], recovering=True)
    assert offline_partition_election(recovering, REPLICAS, [TWO], unclean=False) == state(
        2, 8, [2], recovering=True
    )


def test_the_preferred_leader_is_elected_only_from_the_isr() -> None:
    assert preferred_replica_election(state(1, 7, [1, 3]), REPLICAS, [ONE, THREE]) == state(3, 8, [1, 3])
    assert preferred_replica_election(state(1, 7, [1]), REPLICAS, [ONE, THREE]) is None
    assert preferred_replica_election(state(1, 7, [1, 3]), REPLICAS, [ONE]) is None


def test_a_leader_that_shuts_down_hands_over_and_leaves_the_isr() -> None:
    elected = controlled_shutdown_election(state(3, 7, [3, 1, 2]), REPLICAS, REPLICAS, shutting_down=[THREE])
    assert elected == state(1, 8, [1, 2])


def test_a_leader_that_shuts_down_keeps_a_partition_that_no_other_can_lead() -> None:
    alone = state(3, 7, [3])
    assert controlled_shutdown_election(alone, REPLICAS, REPLICAS, shutting_down=[THREE]) is None
    two_stop = controlled_shutdown_election(
        state(3, 7, [3, 1]), REPLICAS, REPLICAS, shutting_down=[THREE, ONE]
    )
    assert two_stop is None
    dead = controlled_shutdown_election(state(3, 7, [3, 1]), REPLICAS, [THREE, TWO], shutting_down=[THREE])
    assert dead is None


def test_after_an_absence_the_leader_goes_on_in_a_new_epoch() -> None:
    assert election_after_absence(state(2, 7, [3, 1, 2]), REPLICAS, REPLICAS) == state(2, 8, [3, 1, 2])


def test_after_an_absence_of_the_leader_too_the_first_that_is_in_sync_leads() -> None:
    assert election_after_absence(state(3, 7, [3, 1]), REPLICAS, [ONE, TWO]) == state(1, 8, [1])


def test_the_last_member_of_an_isr_stays_in_it() -> None:
    assert without_replica(state(3, 7, [3, 1]), THREE) == state(NO_LEADER, 8, [1], last=3)
    assert without_replica(state(3, 7, [3, 1]), ONE) == state(3, 8, [3])
    assert without_replica(state(3, 7, [3]), THREE) == state(NO_LEADER, 8, [3], last=3)


def test_a_new_epoch_may_change_nothing_else() -> None:
    assert same_leader(state(3, 7, [3, 1])) == state(3, 8, [3, 1])


BROKERS = st.integers(1, 5).map(BrokerId)


@given(data=st.data(), replicas=st.lists(BROKERS, min_size=1, max_size=5, unique=True))
def test_every_election_keeps_its_promises(data: st.DataObject, replicas: list[BrokerId]) -> None:
    """A leader is online and in an ISR of online replicas, and the epoch has risen."""
    some = st.lists(st.sampled_from(replicas), unique=True)
    isr = data.draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True))
    online = data.draw(some)
    before = state(data.draw(st.sampled_from([-1, *isr])), data.draw(st.integers(0, 9)), isr)
    stopping = data.draw(some)
    elected: list[PartitionState | None] = [
        offline_partition_election(before, replicas, online, unclean=data.draw(st.booleans())),
        preferred_replica_election(before, replicas, online),
        controlled_shutdown_election(before, replicas, online, shutting_down=stopping),
        election_after_absence(before, replicas, online),
    ]
    for after in elected:
        if after is not None:
            assert after.leader in online
            assert after.leader in after.isr
            assert set(after.isr) <= set(replicas)
            assert after.leader_epoch == before.leader_epoch + 1
            assert after.leader in before.isr or after.leader_recovering
    if set(online) & set(isr):
        assert elected[0] is not None


TARGET = (THREE, ONE)


def test_a_leader_that_is_part_of_the_target_leads_on_and_the_others_leave_the_isr() -> None:
    assert reassign_partition_election(state(1, 7, [1, 2, 3]), TARGET, [ONE, TWO, THREE]) == state(
        1, 8, [1, 3]
    )


def test_else_the_first_of_the_target_that_can_lead_leads() -> None:
    assert reassign_partition_election(state(2, 7, [1, 2, 3]), TARGET, [ONE, TWO, THREE]) == state(
        3, 8, [1, 3]
    )
    assert reassign_partition_election(state(2, 7, [1, 2, 3]), TARGET, [ONE, TWO]) == state(1, 8, [1, 3])
    assert reassign_partition_election(state(1, 7, [1, 2, 3]), TARGET, [TWO, THREE]) == state(3, 8, [1, 3])
    assert reassign_partition_election(state(2, 7, [1, 2, 3]), TARGET, [TWO]) is None


def test_no_member_leaves_the_isr_before_the_whole_target_is_in_it() -> None:
    assert reassign_partition_election(state(1, 7, [1, 2]), TARGET, [ONE, TWO, THREE]) is None
    assert reassign_partition_election(state(2, 7, [2]), TARGET, [ONE, TWO, THREE]) is None


def test_an_isr_that_no_member_leaves_need_not_be_whole() -> None:
    assert reassign_partition_election(state(1, 7, [1]), TARGET, [ONE, TWO, THREE]) == state(1, 8, [1])


def test_unknown_brokers_are_not_eligible_and_have_not_led() -> None:
    before = state(NO_LEADER, 7, [1], eligible=[2, 3], last=2)
    assert known_brokers_only(before, TARGET) == state(NO_LEADER, 7, [1], eligible=[3])
    assert known_brokers_only(state(1, 7, [1], eligible=[3]), TARGET) == state(1, 7, [1], eligible=[3])


# Unclean shutdowns and the last known leader (KIP-966; Kafka: PartitionChangeBuilderTest)


@pytest.mark.parametrize(
    ("before", "returned", "after"),
    [
        # Those that returned leave the ISR, others that are in it keep the partition.
        (state(3, 7, [3, 1, 2]), [ONE], state(3, 8, [3, 2])),
        (state(3, 7, [3, 1, 2]), [THREE], state(NO_LEADER, 8, [1, 2], last=3)),
        (state(3, 7, [3], eligible=[1, 2]), [ONE], state(3, 8, [3], eligible=[2])),
        # The ISR is gone: those that are eligible take its place, and who led last is remembered.
        (state(3, 7, [3], eligible=[1, 2]), [THREE], state(NO_LEADER, 8, [1, 2], last=3)),
        (state(NO_LEADER, 7, [2], eligible=[1], last=3), [TWO], state(NO_LEADER, 8, [1], last=3)),
        # So are those that are eligible: the partition is the last known leader's.
        (state(NO_LEADER, 7, [1], last=3), [ONE], state(NO_LEADER, 8, [3], last=3)),
        (state(NO_LEADER, 7, [1, 2], last=3), [ONE, TWO], state(NO_LEADER, 8, [3], last=3)),
        (state(3, 7, [3, 1, 2]), REPLICAS, state(3, 8, [3])),
        (state(3, 7, [3], eligible=[1]), [ONE, THREE], state(3, 8, [3])),
        # Nothing changes: it did not count before, or it is the last known leader, and there is no other.
        (state(3, 7, [3, 1]), [TWO], None),
        (state(NO_LEADER, 7, [3], last=3), [THREE], None),
        (state(NO_LEADER, 7, [3], last=3), REPLICAS, None),
        (state(3, 7, [3]), [THREE], None),
        # An earlier release has not said who led last.
        (state(NO_LEADER, 7, [3, 1]), [THREE], state(NO_LEADER, 8, [1])),
        (state(NO_LEADER, 7, [1]), [ONE], None),
    ],
)
def test_who_counts_after_unclean_shutdowns(
    before: PartitionState, returned: Sequence[BrokerId], after: PartitionState | None
) -> None:
    assert after_unclean_shutdown(before, returned) == after


def test_who_led_last_is_remembered_until_a_replica_leads() -> None:
    """Through any number of changes; a leader that was never replaced stays the last known one."""
    left = without_replica(state(3, 7, [3, 1]), THREE)
    assert left == state(NO_LEADER, 8, [1], last=3)
    assert same_leader(left) == state(NO_LEADER, 9, [1], last=3)
    assert offline_partition_election(left, REPLICAS, [ONE], unclean=False) == state(1, 9, [1])


def test_the_last_known_leader_leads_only_when_it_is_online() -> None:
    """KAFKA-19522."""
    waiting = state(NO_LEADER, 7, [3], last=3)
    assert offline_partition_election(waiting, REPLICAS, [ONE, TWO], unclean=False) is None
    assert offline_partition_election(waiting, REPLICAS, REPLICAS, unclean=False) == state(3, 8, [3])


def test_while_an_eligible_replica_is_waited_for_the_last_known_leader_does_not_lead() -> None:
    waiting = state(NO_LEADER, 7, [1], last=3)
    assert offline_partition_election(waiting, REPLICAS, [THREE, TWO], unclean=False) is None


def test_an_unclean_election_prefers_the_last_known_leader() -> None:
    waiting = state(NO_LEADER, 7, [3], last=2)
    elected = offline_partition_election(waiting, REPLICAS, [ONE, TWO], unclean=True)
    assert elected == state(2, 8, [2], recovering=True)
    elected = offline_partition_election(waiting, REPLICAS, [ONE], unclean=True)
    assert elected == state(1, 8, [1], recovering=True)


@given(
    data=st.data(),
    replicas=st.lists(BROKERS, min_size=1, max_size=5, unique=True),
    led_last=st.sampled_from([NO_LEADER, *REPLICAS]),
)
def test_in_which_order_brokers_return_does_not_matter(
    data: st.DataObject, replicas: list[BrokerId], led_last: BrokerId
) -> None:
    """One after the other or all at once: the same replicas count, and the ISR is never empty."""
    isr = data.draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True))
    others = [each for each in replicas if each not in isr]
    eligible = data.draw(st.lists(st.sampled_from(others), unique=True)) if others else []
    before = state(NO_LEADER, 7, isr, eligible=eligible, last=led_last)
    returned = data.draw(st.permutations(replicas))
    at_once = after_unclean_shutdown(before, returned) or before
    one_by_one = before
    for each in returned:
        one_by_one = after_unclean_shutdown(one_by_one, [each]) or one_by_one
        assert one_by_one.isr
    if led_last != NO_LEADER:
        assert one_by_one.isr == at_once.isr == (led_last,)
    assert one_by_one.eligible == at_once.eligible == ()
