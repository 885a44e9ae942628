"""KIP-966: who holds all that is committed may lead, and who has lost the end of its log may not, before it.

The topic has min.insync.replicas=2 and three replicas.
"""

from __future__ import annotations

import pytest

from minikafka.controller.effects import ElectionConfig
from minikafka.types import TopicPartition
from tests.unit.controller.driver import Cluster, running, state


def three() -> Cluster:
    cluster = running([1, 2, 3])
    cluster.store.configs["t"] = ElectionConfig(min_insync_replicas=2)
    return cluster


def shrunk_to_one() -> Cluster:
    """3 died, then 2: 1 is alone in the ISR, and 2 was in it when it became too small."""
    cluster = three()
    for broker in (3, 2):
        cluster.store.unregister(broker)
        cluster.settle()
    assert cluster.store.state("t") == state(1, 2, [1], eligible=[2])
    return cluster


def test_who_leaves_an_isr_that_is_large_enough_is_not_eligible() -> None:
    cluster = three()
    cluster.store.unregister(3)
    cluster.settle()
    assert cluster.store.state("t") == state(1, 1, [1, 2])


def test_an_eligible_replica_leads_when_the_isr_is_gone() -> None:
    cluster = shrunk_to_one()
    cluster.store.unregister(1)
    cluster.settle()
    assert cluster.store.state("t").leader == -1
    cluster.store.register(3)
    cluster.settle()
    assert cluster.store.state("t").leader == -1, "3 lacks what 1 and 2 committed"
    cluster.store.register(2)
    cluster.settle()
    found = cluster.store.state("t")
    assert (found.leader, found.isr, found.eligible) == (2, (2,), (1,))


def test_r12_an_unclean_returner_is_not_elected_over_who_holds_all_that_is_committed() -> None:
    cluster = shrunk_to_one()
    cluster.store.unregister(1)
    cluster.settle()
    cluster.store.register(1, clean_start=False)
    cluster.settle()
    found = cluster.store.state("t")
    assert (found.leader, found.isr, found.eligible, found.last_known_leader) == (-1, (2,), (), 1)
    cluster.store.register(2)
    cluster.settle()
    found = cluster.store.state("t")
    assert (found.leader, found.isr) == (2, (2,))


def test_who_stopped_cleanly_leads_again_at_once() -> None:
    cluster = shrunk_to_one()
    cluster.store.unregister(1)
    cluster.settle()
    cluster.store.register(1)
    cluster.settle()
    found = cluster.store.state("t")
    assert (found.leader, found.isr, found.eligible) == (1, (1,), (2,))


def test_an_eligible_replica_that_comes_back_uncleanly_is_eligible_no_more() -> None:
    cluster = shrunk_to_one()
    epoch = cluster.store.state("t").leader_epoch
    cluster.store.register(2, clean_start=False)
    cluster.settle()
    assert cluster.store.state("t") == state(1, epoch + 1, [1])


def test_the_last_known_leader_leads_when_no_replica_is_sure_to_hold_all_that_was_committed() -> None:
    """1 led last, and is the last to return: 2, which is back before it, may have lost more than 1 has."""
    cluster = shrunk_to_one()
    cluster.store.unregister(1)
    cluster.settle()
    for broker in (3, 2):
        cluster.store.register(broker, clean_start=False)
        cluster.settle()
        assert cluster.store.state("t").leader == -1
    assert cluster.shown(2, "t").last_known_leader == 1
    cluster.store.register(1, clean_start=False)
    cluster.settle()
    found = cluster.store.state("t")
    assert (found.leader, found.isr, found.last_known_leader) == (1, (1,), -1)
    assert cluster.shown(2, "t").last_known_leader == -1


def test_the_last_known_leader_is_back_before_the_eligible_one() -> None:
    """2 surely held all that was committed, so it is waited for; it has stopped uncleanly too: 1 leads."""
    cluster = shrunk_to_one()
    cluster.store.unregister(1)
    cluster.settle()
    cluster.store.register(1, clean_start=False)
    cluster.settle()
    assert cluster.store.state("t").leader == -1
    cluster.store.register(2, clean_start=False)
    cluster.settle()
    found = cluster.store.state("t")
    assert (found.leader, found.isr) == (1, (1,))


@pytest.mark.parametrize("order", [(2, 3, 1), (3, 1, 2), (1, 2, 3)])
def test_all_brokers_fall_at_once_and_the_last_leader_leads_in_whichever_order_they_return(
    order: tuple[int, ...],
) -> None:
    """No controller has seen them fall: the first that is back is the controller, and has all in its ISR."""
    cluster = three()
    cluster.store.unregister(1, 2, 3)
    first, *others = order
    cluster.store.register(first, clean_start=False)
    cluster.elect(controller_id=first)
    cluster.settle()
    for broker in others:
        assert cluster.store.state("t").leader == -1
        cluster.store.register(broker, clean_start=False)
        cluster.settle()
    assert cluster.store.state("t").leader == 1


def test_who_stopped_cleanly_leads_when_all_others_did_not() -> None:
    cluster = three()
    cluster.store.unregister(1, 2, 3)
    cluster.store.register(1, clean_start=False)
    cluster.elect(controller_id=1)
    cluster.settle()
    cluster.store.register(3)
    cluster.settle()
    assert cluster.store.state("t").leader == 3


def test_who_has_caught_up_since_its_unclean_stop_is_not_distrusted_by_a_new_controller() -> None:
    """For another partition it has not been seen yet, and leaves its ISR there."""
    cluster = running([1, 2], [1, 2])
    cluster.store.register(2, clean_start=False)
    cluster.store.leader_writes_isr(TopicPartition("t", 1), [1, 2], version=cluster.store.version("t", 1))
    cluster.elect(controller_id=3)
    cluster.settle()
    assert cluster.store.state("t", 0).isr == (1,)
    assert cluster.store.state("t", 1).isr == (1, 2)


def test_the_last_one_leads_although_it_is_back_uncleanly_when_no_other_holds_more() -> None:
    cluster = running([1])
    cluster.store.unregister(1)
    cluster.settle()
    cluster.store.register(1, clean_start=False)
    cluster.settle()
    assert cluster.store.state("t").leader == 1


def test_a_new_controller_distrusts_who_came_back_uncleanly_before_it_was_elected() -> None:
    cluster = shrunk_to_one()
    cluster.store.unregister(1)
    cluster.store.register(1, clean_start=False)
    cluster.elect(controller_id=3)
    cluster.settle()
    found = cluster.store.state("t")
    assert (found.leader, found.isr) == (-1, (2,))


def test_the_leader_is_told_who_is_eligible() -> None:
    """It commits nothing without them: see ``replication.partition_replicas``."""
    assert shrunk_to_one().told(1, "t").eligible == (2,)


def test_no_replica_outside_of_an_isr_that_is_large_enough_now_is_elected() -> None:
    cluster = shrunk_to_one()
    cluster.store.configs["t"] = ElectionConfig(min_insync_replicas=1)
    cluster.store.unregister(1)
    cluster.settle()
    cluster.store.register(2)
    cluster.settle()
    assert cluster.store.state("t").leader == -1


def test_a_higher_minimum_changes_nothing_for_those_who_are_eligible() -> None:
    cluster = shrunk_to_one()
    cluster.store.configs["t"] = ElectionConfig(min_insync_replicas=3)
    cluster.settle()
    assert cluster.store.state("t") == state(1, 2, [1], eligible=[2])
    cluster.store.unregister(1)
    cluster.settle()
    cluster.store.register(2)
    cluster.settle()
    assert cluster.store.state("t").leader == 2
