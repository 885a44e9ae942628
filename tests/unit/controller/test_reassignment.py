"""Partitions get other replicas: what is done in which order, and what may happen meanwhile."""

from __future__ import annotations

from minikafka.controller import effects
from minikafka.controller.effects import Effect, TopicRecord
from minikafka.controller.events import CaughtUpReassignmentsDue, LeaderAndIsrAnswered
from minikafka.controller.reassignment import TOGETHER_MS
from minikafka.errors import ErrorCode
from minikafka.protocol.control import LeaderAndIsrResponse, PartitionError
from minikafka.types import NO_LEADER, BrokerId, ReplicaAssignment, TopicPartition
from tests.unit.controller.driver import Cluster, running, state

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BROKERS = (1, 2, 3, 4, 5)


def assignment(
    *replicas: int, adding: tuple[int, ...] = (), removing: tuple[int, ...] = ()
) -> ReplicaAssignment:
    return ReplicaAssignment(
        tuple(map(BrokerId, replicas)), tuple(map(BrokerId, adding)), tuple(map(BrokerId, removing))
    )


def stored(cluster: Cluster, partition: int = 0) -> ReplicaAssignment:
    return cluster.store.topics["t"].partitions[partition]


def deleted(cluster: Cluster) -> list[tuple[int, int]]:
    """Who was told to delete which partition."""
    return [
        (send.to, each.partition)
        for send in cluster.all_sent(effects.SendStopReplica)
        for each in send.partitions
        if each.delete
    ]


def moving(*targets: list[int], origin: tuple[list[int], ...] = ([1, 2],)) -> Cluster:
    """The partitions of ``t`` are on the way to ``targets``; no new replica is in the ISR."""
    cluster = running(*origin, brokers=BROKERS)
    cluster.store.reassign("t", *targets)
    cluster.settle()
    return cluster


# The steps


def test_first_the_leader_hears_of_new_replicas_and_then_they_begin() -> None:
    cluster = moving([4, 5])
    under_way = assignment(4, 5, 1, 2, adding=(4, 5), removing=(1, 2))
    assert cluster.store.state("t") == state(1, 1, [1, 2])
    orders = cluster.all_sent(effects.SendLeaderAndIsr)
    assert [(order.to, each.is_new) for order in orders for each in order.partitions] == [
        (1, False),
        (2, False),
        (4, True),
        (5, True),
    ]
    for order in orders:
        (told,) = order.partitions
        assert (told.leader, told.leader_epoch, told.isr) == (1, 1, (1, 2))
        assert ReplicaAssignment(told.replicas, told.adding_replicas, told.removing_replicas) == under_way
    assert cluster.shown(3, "t").adding_replicas == (4, 5)
    assert cluster.all_performed(effects.WriteAssignments) == []  # the broker that was asked has written it
    assert cluster.all_sent(effects.SendStopReplica) == []


def test_nothing_more_happens_before_all_of_the_target_is_in_the_isr() -> None:
    cluster = moving([4, 5])
    cluster.clear()
    cluster.store.leader_writes_isr(T0, [1, 2, 4], version=1)
    cluster.settle()
    assert stored(cluster).is_being_reassigned
    assert cluster.sent == cluster.all_sent(effects.SendUpdateMetadata)
    assert cluster.all_performed(effects.WritePartitionStates) == []


def test_then_the_target_leads_and_the_others_stop_are_deleted_and_leave_the_store_at_last() -> None:
    cluster = moving([4, 5])
    cluster.store.leader_writes_isr(T0, [1, 2, 4, 5], version=1)
    cluster.clear()
    happened: list[str] = []
    cluster.before = lambda effect: happened.extend(_described(effect))
    cluster.settle_events()
    assert happened == [
        "state 4 [4, 5]",
        "4 leads 4",
        "4 leads 5",
        "clients",
        "clients",
        "stop 1",
        "stop 2",
        "delete 1",
        "delete 2",
        "assignment [4, 5]",
        "admin node",
        "clients",
        "clients",  # of the ISR that the old leader has announced
    ]
    cluster.settle()
    assert stored(cluster) == assignment(4, 5)
    assert cluster.store.state("t") == state(4, 2, [4, 5])
    assert [broker for broker, disk in cluster.disks.items() if T0 in disk] == [4, 5]
    assert cluster.shown(3, "t").replicas == (4, 5)


def _described(effect: Effect) -> list[str]:
    match effect:
        case effects.WritePartitionStates(states):
            return [f"state {each.state.leader} {list(each.state.isr)}" for each in states.values()]
        case effects.SendLeaderAndIsr(to, partitions):
            return [f"{each.leader} leads {to}" for each in partitions]
        case effects.SendStopReplica(to, partitions):
            return [f"{'delete' if each.delete else 'stop'} {to}" for each in partitions]
        case effects.SendUpdateMetadata():
            return ["clients"]
        case effects.WriteAssignments(changes):
            return [f"assignment {list(change.new.replicas)}" for change in changes.values()]
        case effects.ReadReassignments():
            return ["admin node"]
    return []


def test_a_leader_that_is_in_the_target_leads_on_at_a_new_epoch() -> None:
    cluster = moving([3, 1])
    cluster.calm_down()
    assert cluster.store.state("t") == state(1, 2, [3, 1])
    assert deleted(cluster) == [(2, 0)]
    assert cluster.told(1, "t").replicas == (3, 1)


def test_many_partitions_take_as_many_effects_as_one() -> None:
    counts = []
    for partitions in (1, 200):
        cluster = moving(*[[4, 5]] * partitions, origin=([1, 2],) * partitions)
        cluster.settle()
        cluster.catch_up()
        cluster.settle_events()
        kinds = (effects.WritePartitionStates, effects.WriteAssignments, effects.SendStopReplica)
        writes = [
            effect for kind in kinds for effect in (*cluster.performed, *cluster.sent) if type(effect) is kind
        ]
        assert not any(each.is_being_reassigned for each in cluster.store.topics["t"].partitions.values())
        counts.append((len(writes), len(cluster.all_sent(effects.SendLeaderAndIsr))))
    assert counts[0] == counts[1]


def test_partitions_that_are_ready_together_are_finished_together() -> None:
    """The first event looks at all, the others find nothing to do, and wait for nothing."""
    cluster = moving([4], [4], [5], origin=([1], [2], [3]))
    cluster.catch_up()
    cluster.clear()
    cluster.step(cluster.store.events.popleft())
    assert [len(each.changes) for each in cluster.all_performed(effects.WriteAssignments)] == [3]
    cluster.clear()
    cluster.step(cluster.store.events.popleft())
    cluster.settle_events()
    assert cluster.all_performed(effects.WritePartitionStates) == []


def test_what_is_caught_up_waits_for_others_and_is_finished_with_them_but_not_with_all() -> None:
    """A client is refused for each leader that moves alone; of all that move together it learns at once."""
    cluster = moving([4], [4], [5], origin=([1], [2], [3]))
    cluster.clear()
    for topic_partition, isr in ((T0, [1, 4]), (T1, [2, 4])):
        cluster.store.leader_writes_isr(topic_partition, isr, version=cluster.store.version(*topic_partition))
    reminder = CaughtUpReassignmentsDue()
    while cluster.store.events[0] != reminder:
        cluster.step(cluster.store.events.popleft())
    assert cluster.all_performed(effects.Remind) == [effects.Remind(reminder, TOGETHER_MS)]
    assert cluster.all_performed(effects.WritePartitionStates) == []
    cluster.settle()
    moves = [each.changes.keys() for each in cluster.all_performed(effects.WriteAssignments)]
    assert moves == [{T0, T1}]
    cluster.clear()
    cluster.calm_down()  # the last one has none to wait for
    assert cluster.all_performed(effects.Remind) == []
    assert not stored(cluster, 2).is_being_reassigned


def test_who_falls_out_of_the_isr_while_the_others_are_waited_for_waits_too() -> None:
    cluster = moving([4], [4], [5], origin=([1], [2], [3]))
    for topic_partition, isr in ((T0, [1, 4]), (T1, [2, 4]), (T0, [1])):
        cluster.store.leader_writes_isr(topic_partition, isr, version=cluster.store.version(*topic_partition))
    cluster.settle()
    assert [stored(cluster, each).is_being_reassigned for each in range(3)] == [True, False, True]
    cluster.calm_down()
    assert [stored(cluster, each) for each in range(3)] == [assignment(4), assignment(4), assignment(5)]


def test_what_the_controller_writes_itself_is_no_news() -> None:
    """A state is watched after the new epoch was written, not before."""
    cluster = moving([4, 5])
    assert len(cluster.all_performed(effects.WritePartitionStates)) == 1
    assert [each.is_watched for each in cluster.all_performed(effects.ReadPartitionStates)] == [
        False,  # is it done already?
        False,  # the new epoch
        True,
    ]


# Other changes of an assignment


def test_another_order_is_told_and_waits_for_no_broker() -> None:
    cluster = running([1, 2, 3])
    cluster.store.leader_writes_isr(T0, [1, 2], version=0)
    cluster.settle()
    cluster.clear()
    cluster.store.reassign("t", [3, 1, 2])
    cluster.settle()
    assert cluster.store.state("t") == state(1, 1, [1, 2])
    assert [cluster.told(broker, "t").replicas for broker in (1, 2, 3)] == [(3, 1, 2)] * 3
    assert cluster.all_performed(effects.WriteAssignments) == cluster.all_sent(effects.SendStopReplica) == []


def test_another_order_of_a_partition_without_a_leader_counts_when_it_gets_one() -> None:
    cluster = running([1, 2])
    cluster.store.unregister(1, 2)
    cluster.settle()
    cluster.store.reassign("t", [2, 1])
    cluster.settle()
    assert cluster.shown(3, "t").replicas == (2, 1)
    cluster.store.register(1, 2)
    cluster.settle()
    assert cluster.told(2, "t").replicas == (2, 1)


def test_more_replicas_and_fewer() -> None:
    cluster = moving([1, 2, 3])
    cluster.calm_down()
    assert (stored(cluster), deleted(cluster)) == (assignment(1, 2, 3), [])
    assert cluster.store.state("t") == state(1, 2, [1, 2, 3])
    cluster.store.reassign("t", [3])
    cluster.calm_down()
    assert (stored(cluster), deleted(cluster)) == (assignment(3), [(1, 0), (2, 0)])
    assert cluster.store.state("t") == state(3, 3, [3])


def test_a_topic_grows_and_is_reassigned_in_one_write() -> None:
    cluster = running([1, 2], brokers=BROKERS)
    known = cluster.store.topics["t"]
    cluster.store._put_assignments(
        "t", {0: known.partitions[0].reassign_to((BrokerId(3),)), 1: assignment(4, 5)}
    )
    cluster.calm_down()
    assert cluster.store.state("t", 1) == state(4, 0, [4, 5])
    assert stored(cluster) == assignment(3)
    assert len([each for each in cluster.performed if each == effects.ReadAssignments(("t",))]) == 2


def test_partitions_that_are_created_on_their_way_elsewhere_arrive() -> None:
    cluster = running(brokers=BROKERS)
    cluster.store.topics["t"] = TopicRecord(
        cluster.store.topics["t"].topic_id, {0: assignment(3, 1, adding=(3,), removing=(1,))}
    )
    cluster.store.create_topic("other", [])
    cluster.store._put_assignments("t", cluster.store.topics["t"].partitions)
    cluster.calm_down()
    assert (stored(cluster), cluster.store.state("t").isr) == (assignment(3), (3,))


def test_an_assignment_that_was_written_by_hand_is_reached_step_by_step() -> None:
    """It names nothing but a target. The replicas that hold everything are not deleted at once."""
    cluster = running([1, 2], brokers=BROKERS)
    cluster.store._put_assignments("t", {0: assignment(4, 5)})
    cluster.step(cluster.store.events.popleft())
    assert stored(cluster) == assignment(4, 5, 1, 2, adding=(4, 5), removing=(1, 2))
    assert cluster.store.state("t") == state(1, 1, [1, 2])
    cluster.calm_down()
    assert (stored(cluster), cluster.store.state("t").isr) == (assignment(4, 5), (4, 5))


def test_an_assignment_to_no_broker_is_ignored() -> None:
    cluster = running([1, 2])
    for senseless in (assignment(), assignment(1, 2, removing=(1, 2)), assignment(1, 1)):
        cluster.store._put_assignments("t", {0: senseless})
        cluster.settle()
        assert cluster.sent == []


# Cancelled, and reassigned again


def test_a_cancelled_reassignment_is_over_at_once_and_what_it_began_is_deleted() -> None:
    cluster = moving([4, 5])
    cluster.clear()
    cluster.store.cancel("t")
    assert stored(cluster) == assignment(1, 2, 4, 5, adding=(4, 5), removing=(4, 5))
    cluster.settle()
    assert stored(cluster) == assignment(1, 2)
    assert cluster.store.state("t") == state(1, 2, [1, 2])
    assert deleted(cluster) == [(4, 0), (5, 0)]
    assert [broker for broker, disk in cluster.disks.items() if T0 in disk] == [1, 2]


def test_a_cancelled_reassignment_takes_new_replicas_out_of_the_isr() -> None:
    cluster = moving([4, 5])
    cluster.store.leader_writes_isr(T0, [1, 2, 4], version=1)
    cluster.store.cancel("t")
    cluster.settle()
    assert (stored(cluster), cluster.store.state("t")) == (assignment(1, 2), state(1, 2, [1, 2]))


def test_a_new_target_in_the_middle_keeps_what_it_needs_of_the_old_one() -> None:
    cluster = moving([4, 5])
    cluster.store.leader_writes_isr(T0, [1, 2, 4], version=1)
    cluster.settle()
    cluster.clear()
    cluster.store.reassign("t", [4, 3])
    cluster.settle()
    assert stored(cluster) == assignment(4, 3, 5, 1, 2, adding=(4, 3, 5), removing=(5, 1, 2))
    new = [order.to for order in cluster.all_sent(effects.SendLeaderAndIsr) if order.partitions[0].is_new]
    assert new == [3]
    assert deleted(cluster) == []
    cluster.calm_down()
    assert (stored(cluster), cluster.store.state("t").isr) == (assignment(4, 3), (4, 3))
    assert deleted(cluster) == [(1, 0), (2, 0), (5, 0)]


def test_two_new_targets_before_the_controller_has_seen_the_first_are_one() -> None:
    cluster = running([1, 2], brokers=BROKERS)
    cluster.store.reassign("t", [4, 5])
    cluster.store.reassign("t", [3, 1])
    cluster.settle()
    assert stored(cluster) == assignment(3, 1, 2, adding=(3,), removing=(2,))
    assert T0 not in cluster.disks[BrokerId(4)]


def overtaken_by(*request: int) -> Cluster:
    """A broker writes another request, just before the controller writes the target (B6)."""
    cluster = moving([4, 5], origin=([1, 2, 3],))

    def overtake(effect: Effect) -> None:
        if isinstance(effect, effects.WriteAssignments):
            cluster.before = lambda effect: None
            cluster.store.reassign("t", request)

    cluster.before = overtake
    cluster.calm_down()
    return cluster


def test_a_request_that_overtakes_the_end_of_a_reassignment_comes_next() -> None:
    cluster = overtaken_by(3, 4)
    assert (stored(cluster), cluster.store.state("t").isr) == (assignment(3, 4), (3, 4))
    assert [broker for broker, disk in cluster.disks.items() if T0 in disk] == [3, 4]


def test_a_cancellation_that_comes_too_late_brings_replicas_back_that_were_deleted() -> None:
    cluster = overtaken_by(1, 2, 3)
    assert (stored(cluster), set(cluster.store.state("t").isr)) == (assignment(1, 2, 3), {1, 2, 3})
    new = [
        (order.to, each.is_new)
        for order in cluster.all_sent(effects.SendLeaderAndIsr)
        for each in order.partitions
        if order.to in (1, 2, 3) and each.is_new
    ]
    assert new == [(1, True), (2, True), (3, True)]


def test_a_target_that_falls_out_of_the_isr_at_the_last_moment_is_waited_for_again() -> None:
    """The old replicas are the only ones in sync then: Kafka would delete them."""
    cluster = moving([4], origin=([1],))

    def shrink(effect: Effect) -> None:
        if isinstance(effect, effects.WritePartitionStates):
            cluster.before = lambda effect: None
            cluster.store.leader_writes_isr(T0, [1], version=cluster.store.version("t"))

    cluster.before = shrink
    cluster.catch_up()
    cluster.settle()
    assert deleted(cluster) == []
    assert stored(cluster) == assignment(4, 1, adding=(4,), removing=(1,))
    assert cluster.told(1, "t").replicas == (4, 1)
    cluster.calm_down()
    assert (stored(cluster), deleted(cluster)) == (assignment(4), [(1, 0)])


# Brokers die


def test_a_target_broker_that_dies_is_waited_for_until_it_comes_back() -> None:
    cluster = moving([4, 5])
    cluster.store.unregister(5)
    cluster.calm_down()
    assert cluster.store.state("t").isr == (4, 1, 2)
    assert stored(cluster).is_being_reassigned
    cluster.store.register(5)
    cluster.calm_down()
    assert (stored(cluster), cluster.store.state("t").isr) == (assignment(4, 5), (4, 5))


def test_a_target_broker_that_is_dead_when_the_request_comes_begins_when_it_returns() -> None:
    cluster = running([1, 2], brokers=BROKERS)
    cluster.store.unregister(5)
    cluster.settle()
    cluster.clear()
    cluster.store.reassign("t", [4, 5])
    cluster.calm_down()
    assert len(cluster.all_performed(effects.WritePartitionStates)) == 1  # none is fenced twice
    assert stored(cluster).is_being_reassigned
    cluster.store.register(5)
    cluster.calm_down()
    assert stored(cluster) == assignment(4, 5)


def test_a_new_replica_whose_broker_bounces_is_fenced_and_told_again() -> None:
    """KIP-903: what the leader decides on what it fetched before must fail."""
    cluster = moving([4, 5])
    version = cluster.store.version("t")
    cluster.store.register(4)
    cluster.settle_events()
    assert not cluster.store.leader_writes_isr(T0, [1, 2, 4], version=version)
    cluster.calm_down()
    assert stored(cluster) == assignment(4, 5)


def test_the_leader_dies_in_the_middle_and_another_one_goes_on() -> None:
    cluster = moving([4, 5])
    cluster.store.unregister(1)
    cluster.calm_down()
    assert (stored(cluster), cluster.store.state("t").isr) == (assignment(4, 5), (4, 5))
    assert cluster.store.state("t").leader == 4
    assert (1, 0) not in deleted(cluster)
    cluster.store.register(1)
    cluster.settle()
    assert cluster.brokers[BrokerId(1)].strays.keys() == {T0}  # it learns from what it is not told


def test_the_last_member_of_the_isr_dies_in_the_middle_and_no_new_replica_leads() -> None:
    cluster = moving([4, 5], origin=([1],))
    cluster.store.unregister(1)
    cluster.calm_down()
    assert cluster.store.state("t").leader == NO_LEADER
    assert stored(cluster).is_being_reassigned
    cluster.store.register(1)
    cluster.calm_down()
    assert stored(cluster) == assignment(4, 5)


def test_a_partition_without_a_leader_is_reassigned_when_it_has_one_again() -> None:
    cluster = running([1], brokers=BROKERS)
    cluster.store.unregister(1)
    cluster.settle()
    cluster.store.reassign("t", [4, 5])
    cluster.calm_down()
    assert cluster.store.state("t") == state(NO_LEADER, 1, [1], last=1)
    cluster.store.register(1)
    cluster.calm_down()
    assert stored(cluster) == assignment(4, 5)


def test_a_target_that_is_in_sync_and_dead_is_waited_for() -> None:
    """None of it could lead. Kafka would continue, and leave no replica that is alive."""
    cluster = moving([4], origin=([1],))
    cluster.catch_up()
    cluster.shut_down(4)
    cluster.settle()
    cluster.store.leader_writes_isr(T0, [1, 4], version=cluster.store.version("t"))
    cluster.settle()
    assert stored(cluster).is_being_reassigned
    cluster.store.register(4)
    cluster.calm_down()
    assert stored(cluster) == assignment(4)


def test_a_reassignment_is_looked_at_when_a_broker_of_its_target_comes() -> None:
    """Nothing is watched here: the state was not there to be watched, say."""
    cluster = moving([4], origin=([1],))
    cluster.store.watched_states.clear()
    cluster.catch_up()
    cluster.store.events.clear()
    cluster.store.unregister(1, 4)
    cluster.settle()
    assert stored(cluster).is_being_reassigned
    cluster.store.register(4)
    cluster.settle()
    assert (stored(cluster), cluster.store.state("t").leader) == (assignment(4), 4)


def test_a_reassignment_is_looked_at_when_its_leader_announces_the_isr() -> None:
    cluster = moving([4], origin=([1],))
    cluster.store.watched_states.clear()
    cluster.calm_down()
    assert stored(cluster) == assignment(4)


def test_a_partition_without_a_possible_leader_begins_with_its_target() -> None:
    cluster = running([8, 9])
    assert T0 not in cluster.store.states
    cluster.store.reassign("t", [2, 3])
    cluster.calm_down()
    assert (stored(cluster), cluster.store.state("t").isr) == (assignment(2, 3), (2, 3))
    cluster.store.register(8)
    cluster.calm_down()
    assert cluster.disks[BrokerId(8)] == {}


def test_a_new_replica_on_a_lost_log_directory_is_asked_about() -> None:
    cluster = moving([4, 5])
    cluster.brokers[BrokerId(4)].lost.add(T0)
    cluster.store.announce_lost_log_dir(4)
    cluster.settle()
    assert cluster.shown(3, "t").offline_replicas == (4,)


def test_an_answer_about_a_replica_that_was_removed_says_nothing() -> None:
    cluster = moving([3], origin=([1],))
    cluster.calm_down()
    cluster.clear()
    errors = (PartitionError("t", 0, ErrorCode.KAFKA_STORAGE_ERROR),)
    epoch = cluster.store.brokers[BrokerId(1)].epoch
    cluster.step(LeaderAndIsrAnswered(BrokerId(1), epoch, LeaderAndIsrResponse(ErrorCode.NONE, errors)))
    assert cluster.sent == cluster.performed == []


def test_who_was_removed_is_eligible_no_more() -> None:
    """KIP-966: else it could get into an ISR that it is no replica for."""
    cluster = running([1, 2, 3], brokers=BROKERS)
    cluster.store.configs["t"] = effects.ElectionConfig(min_insync_replicas=3)
    cluster.store.unregister(2)
    cluster.settle()
    assert cluster.store.state("t").eligible == (2,)
    cluster.store.reassign("t", [4, 5])
    cluster.calm_down()
    assert (cluster.store.state("t").isr, cluster.store.state("t").eligible) == ((4, 5), ())


# The admin node


def test_the_admin_nodes_request_is_written_first_and_taken_away_last() -> None:
    cluster = running([1, 2], [2, 3], brokers=BROKERS)
    cluster.store.want_reassigned({T0: [4, 5], T1: [2, 4]})
    cluster.settle()
    assert stored(cluster) == assignment(4, 5, 1, 2, adding=(4, 5), removing=(1, 2))
    assert isinstance(cluster.performed[1], effects.WriteAssignments)
    cluster.store.leader_writes_isr(T1, [2, 3, 4], version=1)
    cluster.settle()
    assert stored(cluster, 1) == assignment(2, 4)
    assert cluster.store.reassignments == {T0: (4, 5)}
    cluster.calm_down()
    assert (stored(cluster), cluster.store.reassignments) == (assignment(4, 5), {})


def test_requests_that_cannot_be_granted_are_taken_away_and_the_others_are_granted() -> None:
    cluster = running([1, 2], [1, 2], [1, 2], [1, 2], [1, 2], [1, 2])
    cluster.store.unregister(3)
    cluster.store.create_topic("leaving", [[1]])
    cluster.store.want_deleted("leaving")
    cluster.settle_events()
    refused = {
        TopicPartition("gone", 0): [1],
        TopicPartition("t", 9): [1],
        TopicPartition("leaving", 0): [2],
        T0: [],
        T1: [1, 1],
        TopicPartition("t", 2): [-1],
        TopicPartition("t", 3): [1, 3],
        TopicPartition("t", 4): [1, 2],
    }
    cluster.clear()
    cluster.store.want_reassigned({**refused, TopicPartition("t", 5): [2]})
    cluster.settle_events()
    assert cluster.store.reassignments == {}
    assert [stored(cluster, each) for each in range(6)] == [*[assignment(1, 2)] * 5, assignment(2)]


def test_a_request_that_names_a_dead_broker_that_is_a_replica_already_is_granted() -> None:
    cluster = running([1, 2])
    cluster.store.unregister(2)
    cluster.settle()
    cluster.store.want_reassigned({T0: [2, 3, 1]})
    cluster.calm_down()
    assert stored(cluster) == assignment(2, 3, 1, adding=(3,))


def test_the_apis_request_takes_the_place_of_the_admin_nodes() -> None:
    cluster = running([1, 2], brokers=BROKERS)
    cluster.store.want_reassigned({T0: [4, 5]})
    cluster.settle()
    cluster.store.reassign("t", [3, 1])
    cluster.settle()
    assert cluster.store.reassignments == {}
    cluster.calm_down()
    assert stored(cluster) == assignment(3, 1)


def test_a_request_of_the_admin_node_that_is_overtaken_in_the_store_is_let_go() -> None:
    cluster = running([1, 2], brokers=BROKERS)

    def overtake(effect: Effect) -> None:
        if isinstance(effect, effects.WriteAssignments):
            cluster.before = lambda effect: None
            cluster.store.reassign("t", [3])

    cluster.before = overtake
    cluster.store.want_reassigned({T0: [4, 5]})
    cluster.calm_down()
    assert (stored(cluster), cluster.store.reassignments) == (assignment(3), {})


def test_a_topic_that_vanishes_takes_its_request_along() -> None:
    cluster = running([1, 2], brokers=BROKERS)
    cluster.store.want_reassigned({T0: [4, 5]})
    cluster.settle()
    cluster.store.remove_topic("t")
    cluster.settle()
    assert cluster.store.reassignments == {}
