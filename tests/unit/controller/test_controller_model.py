"""Whatever happens to a cluster, and whenever its controller ends: what must hold, holds.

Brokers die, return and bounce, lose log directories and shut down; topics are created, grow and are deleted;
partitions are reassigned, with and without the admin node, and their reassignments cancelled; elections are
asked for; leaders change ISRs at the worst moment; requests are late; a controller may end after any of its
effects. The store itself checks each write (``FakeStore``): epochs rise with each write of a controller,
no broker leads in another's epoch (I6), an ISR is part of the replicas (I12) and only its leader lets it
grow, a controller that was replaced writes nothing (I14).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minikafka.controller.context import ControllerContext
from minikafka.controller.effects import Effect, ElectionConfig, SendStopReplica, WritePartitionStates
from minikafka.controller.events import (
    ControlledShutdownAsked,
    LeaderElectionsAsked,
    LeaderRebalanceDue,
    UncleanElectionEnabled,
)
from minikafka.protocol.control import LeaderAndIsrPartition
from minikafka.types import NO_LEADER, BrokerId, ElectionType, TopicPartition
from tests.unit.controller.driver import Cluster

BROKERS = (1, 2, 3, 4)
TOPICS = ("a", "b")

REPLICAS = st.permutations(BROKERS).flatmap(
    lambda order: st.integers(1, 3).map(lambda replication_factor: tuple(order[:replication_factor]))
)


class Decision(NamedTuple):
    """What a leader has decided: an ISR, by the incarnations of its members, over the version it knows."""

    told: LeaderAndIsrPartition
    version: int
    broker_epochs: dict[BrokerId, int]
    controller_epoch: int


class ControllerModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(*BROKERS)
        self.store = self.cluster.store
        self.decisions: list[Decision] = []
        self.written: dict[TopicPartition, Decision] = {}
        self.unheard: set[tuple[BrokerId, TopicPartition]] = set()
        """Replicas that a controller has told to go, and that ended before they had heard it."""

    @initialize(replicas=st.lists(REPLICAS, min_size=1, max_size=3))
    def begin(self, replicas: list[tuple[int, ...]]) -> None:
        self.store.create_topic("a", replicas)
        self.cluster.elect()
        self.cluster.settle()

    # Brokers

    @rule(broker=st.sampled_from(BROKERS))
    def dies_or_comes(self, broker: BrokerId) -> None:
        if broker in self.store.brokers:
            self.store.unregister(broker)
        else:
            self.store.register(broker)

    @rule(broker=st.sampled_from(BROKERS))
    def bounces(self, broker: BrokerId) -> None:
        if broker in self.store.brokers:
            self.store.register(broker)

    @rule(data=st.data())
    def loses_a_log_directory(self, data: st.DataObject) -> None:
        partitions = [
            (broker, each)
            for broker, known in sorted(self.cluster.brokers.items())
            for each in known.replicas
            if broker in self.store.brokers and broker not in self._shutting_down()
        ]
        if partitions:
            broker, partition = data.draw(st.sampled_from(partitions))
            self.cluster.brokers[broker].lost.add(partition)
            self.cluster.brokers[broker].replicas.pop(partition)
            self.store.announce_lost_log_dir(broker)

    @rule(broker=st.sampled_from(BROKERS))
    def shuts_down(self, broker: BrokerId) -> None:
        if broker in self.store.brokers:
            epoch = self.store.brokers[broker].epoch
            self.store.events.append(ControlledShutdownAsked(broker, epoch))

    # Topics

    @rule(topic=st.sampled_from(TOPICS), replicas=st.lists(REPLICAS, min_size=1, max_size=3))
    def is_created_or_grows(self, topic: str, replicas: Sequence[Sequence[int]]) -> None:
        if topic not in self.store.topics:
            self.store.create_topic(topic, replicas)
        elif len(self.store.topics[topic].partitions) < 5:
            self.store.add_partitions(topic, replicas)

    @rule(topic=st.sampled_from(TOPICS))
    def shall_be_deleted(self, topic: str) -> None:
        self.store.want_deleted(topic)

    @rule(topic=st.sampled_from(TOPICS))
    def vanishes(self, topic: str) -> None:
        if topic in self.store.topics:
            self.store.remove_topic(topic)

    @rule(topic=st.sampled_from(TOPICS))
    def accepts_unclean_leaders(self, topic: str) -> None:
        if topic in self.store.topics:
            self.store.configs[topic] = ElectionConfig(unclean_leader_election=True)
            self.store.events.append(UncleanElectionEnabled(topic))

    # Reassignments

    @rule(data=st.data(), replicas=REPLICAS)
    def is_reassigned(self, data: st.DataObject, replicas: tuple[int, ...]) -> None:
        if partition := self._some_partition(data):
            topic, number = partition
            self.store.reassign(topic, *[None] * number, replicas)

    @rule(data=st.data())
    def is_not_reassigned_after_all(self, data: st.DataObject) -> None:
        if partition := self._some_partition(data):
            self.store.cancel(*partition)

    @rule(data=st.data(), requests=st.lists(REPLICAS, max_size=3))
    def the_admin_node_is_written(self, data: st.DataObject, requests: list[tuple[int, ...]]) -> None:
        self.store.want_reassigned(
            {partition: target for target in requests if (partition := self._some_partition(data))}
        )

    @rule()
    def followers_catch_up(self) -> None:
        self.cluster.catch_up()

    def _some_partition(self, data: st.DataObject) -> TopicPartition | None:
        partitions = [
            TopicPartition(topic, partition)
            for topic, record in sorted(self.store.topics.items())
            for partition in record.partitions
        ]
        return data.draw(st.sampled_from(partitions)) if partitions else None

    # Elections

    @rule(data=st.data(), election_type=st.sampled_from(ElectionType), of_all=st.booleans())
    def leaders_are_asked_for(self, data: st.DataObject, election_type: ElectionType, of_all: bool) -> None:
        partition = self._some_partition(data)
        asked = None if of_all or partition is None else (partition,)
        self.store.events.append(LeaderElectionsAsked(asked, election_type))

    @rule(data=st.data())
    def the_preferred_leader_is_asked_for(self, data: st.DataObject) -> None:
        if partition := self._some_partition(data):
            self.store.want_preferred(partition)

    @rule(percent=st.integers(0, 100))
    def it_is_time_to_balance(self, percent: int) -> None:
        self.store.events.append(LeaderRebalanceDue(percent))

    # Leaders

    @rule(data=st.data(), late=st.booleans())
    def leader_changes_the_isr(self, data: st.DataObject, late: bool) -> None:
        """A broker that believes to lead decides with the version that it knows, and writes at once or
        later."""
        believed = [
            told
            for broker, known in sorted(self.cluster.brokers.items())
            for told in known.replicas.values()
            if told.leader == broker and broker in self.store.brokers and self._is_of(told)
        ]
        if believed:
            told = data.draw(st.sampled_from(believed))
            members = {told.leader}
            if alive := [each for each in told.replicas if each in self.store.brokers]:
                members |= data.draw(st.sets(st.sampled_from(alive)))
            current = self.store.states.get(told.topic_partition)
            version = told.partition_epoch
            if current is not None and current.state.leader_epoch == told.leader_epoch:
                version = current.version  # it has written itself since it was told
            epochs = {each: self.store.brokers[each].epoch for each in sorted(members)}
            self.decisions.append(Decision(told, version, epochs, self.cluster.epoch))
        if not late:
            self.leader_writes_what_it_decided()

    @rule()
    def leader_writes_what_it_decided(self) -> None:
        if self.decisions:
            decision = self.decisions.pop()
            partition = decision.told.topic_partition
            isr = list(decision.broker_epochs)
            if self._is_of(decision.told) and self.store.leader_writes_isr(
                partition, isr, version=decision.version
            ):
                self.written[partition] = decision

    def _is_of(self, told: LeaderAndIsrPartition) -> bool:
        """Whether it is about the topic that the store has now, not about one of the same name before."""
        record = self.store.topics.get(told.topic)
        return record is not None and record.topic_id == told.topic_id

    # The controller

    @rule(broker=st.sampled_from(BROKERS))
    def request_arrives(self, broker: BrokerId) -> None:
        self.cluster.deliver(broker)

    @precondition(lambda self: self.store.events)
    @rule(data=st.data(), count=st.integers(1, 5))
    def controller_goes_on(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.store.events))):
            self.cluster.step(self.store.events.popleft())

    @precondition(lambda self: self.store.events)
    @rule(data=st.data())
    def isr_changes_in_the_middle(self, data: st.DataObject) -> None:
        """Between a step's reading of a state and its writing, the leader writes it."""
        writes = data.draw(st.integers(1, 3))

        def interfere(effect: Effect) -> None:
            nonlocal writes
            if isinstance(effect, WritePartitionStates) and writes:
                writes -= 1
                partition = data.draw(st.sampled_from(sorted(effect.states)))
                if partition in self.store.states:
                    self._leader_writes(partition, data)

        self.cluster.before = interfere
        self.cluster.step(self.store.events.popleft())
        self.cluster.before = lambda effect: None

    def _leader_writes(self, partition: TopicPartition, data: st.DataObject) -> None:
        """The leader has known the state that the controller is about to overwrite, and is faster."""
        current = self.store.states[partition]
        leader = self.cluster.brokers.get(current.state.leader)
        if leader is not None:
            told = leader.replicas.get(partition)
            knows = told is not None and told.leader_epoch == current.state.leader_epoch
            replicas = told.replicas if told is not None and knows else current.state.isr
            members = data.draw(st.sets(st.sampled_from(replicas))) | {current.state.leader}
            self.store.leader_writes_isr(partition, sorted(members), version=current.version)

    @precondition(lambda self: self.store.events)
    @rule(ends_after=st.integers(0, 12), survives=st.integers(0, 25) | st.none())
    def controller_ends_in_the_middle(self, ends_after: int, survives: int | None) -> None:
        self.cluster.step(self.store.events.popleft(), stop_after=ends_after)
        self._lose_requests()
        self.cluster.elect(stop_after=survives)
        if survives is not None:
            self._lose_requests()
            self.cluster.elect()

    def _lose_requests(self) -> None:
        for broker, channel in self.cluster.channels.items():
            for send in channel:
                if isinstance(send, SendStopReplica):
                    self.unheard |= {
                        (broker, TopicPartition(each.topic, each.partition))
                        for each in send.partitions
                        if each.delete
                    }

    @rule()
    def everything_calms_down(self) -> None:
        self.cluster.settle()
        self._check_calm()

    def teardown(self) -> None:
        if self.cluster.epoch:
            self.cluster.settle()
            self._check_calm()

    # What must hold

    @invariant()
    def no_log_of_a_replica_is_a_stray(self) -> None:
        for broker, known in self.cluster.brokers.items():
            for partition, topic_id in known.strays.items():
                record = self.store.topics.get(partition.topic)
                if record is not None and record.topic_id == topic_id:
                    is_replica = broker in record.partitions[partition.partition].replicas
                    assert not is_replica or (broker, partition) in self.store.removed

    def _check_calm(self) -> None:
        """Nothing is on its way: the store, the controller and all brokers agree."""
        cluster, store = self.cluster, self.store
        shown = {
            TopicPartition(topic, partition)
            for topic, record in store.topics.items()
            if topic not in store.deletions or topic in self._context().topics_waiting_for_deletion
            for partition in record.partitions
        }
        for partition in sorted(shown):
            self._check_partition(partition)
        for broker in store.brokers:
            known = cluster.brokers[broker]
            assert known.live_brokers == tuple(store.brokers[each] for each in sorted(store.brokers))
            assert known.metadata.keys() == shown & store.states.keys()
        assert store.deletions.keys() <= store.topics.keys()
        for partition, decision in self.written.items():
            self._check_incarnations(partition, decision)
        for topic in store.deletions:
            assert self._may_wait(topic), f"{topic} should have been deleted"
        for partition, target in store.reassignments.items():
            assignment = store.topics[partition.topic].partitions[partition.partition]
            assert (assignment.is_being_reassigned, assignment.target) == (True, target)

    def _check_partition(self, partition: TopicPartition) -> None:
        store = self.store
        assignment = store.topics[partition.topic].partitions[partition.partition]
        replicas = assignment.replicas
        online = [each for each in replicas if self._is_online(each, partition)]
        if partition not in store.states:
            assert not online
            return
        current = store.states[partition]
        state, stopping = current.state, self._shutting_down()
        if any(each in state.isr for each in online):
            assert state.leader in store.brokers
            assert partition not in self.cluster.brokers[state.leader].lost
        elif state.leader not in stopping:
            assert state.leader == NO_LEADER
        for broker in store.brokers:
            metadata = self.cluster.brokers[broker].metadata[partition]
            assert (metadata.leader, metadata.leader_epoch) == (state.leader, state.leader_epoch)
            assert (metadata.isr, metadata.partition_epoch) == (state.isr, current.version)
            assert metadata.replicas == replicas
            assert set(metadata.offline_replicas) - stopping == set(replicas) - set(online) - stopping
        for broker in online:
            told = self.cluster.brokers[broker].replicas[partition]
            assert (told.leader, told.leader_epoch) == (state.leader, state.leader_epoch)
            assert told.topic_id == store.topics[partition.topic].topic_id
        for broker, known in self.cluster.brokers.items():
            if (
                broker not in replicas
                and partition in known.replicas
                and self._is_of(known.replicas[partition])
            ):
                assert (broker, partition) in self.unheard
        if assignment.is_being_reassigned:
            target = set(assignment.target)
            assert not target <= set(state.isr) or not target & set(online)

    def _check_incarnations(self, partition: TopicPartition, decision: Decision) -> None:
        """KIP-903: a leader's decision does not put a broker into the ISR that has restarted since.

        As long as there was a controller all the time, and the leader was the last to write.
        """
        current = self.store.states.get(partition)
        if (
            decision.controller_epoch == self.cluster.epoch
            and self._is_of(decision.told)
            and current is not None
            and current.version == decision.version + 1
        ):
            for member, epoch in decision.broker_epochs.items():
                if member in self.store.brokers:
                    assert self.store.brokers[member].epoch == epoch

    def _context(self) -> ControllerContext:
        machines = self.cluster.controller._machines
        assert machines is not None
        return machines.context

    def _shutting_down(self) -> set[BrokerId]:
        return self._context().shutting_down

    def _is_online(self, broker: BrokerId, partition: TopicPartition) -> bool:
        return (
            broker in self.store.brokers
            and broker not in self._shutting_down()
            and partition not in self.cluster.brokers[broker].lost
        )

    def _may_wait(self, topic: str) -> bool:
        """Whether a topic has a replica that cannot be deleted now, or is being reassigned."""
        return topic in self._context().topics_waiting_for_deletion or any(
            not self._is_online(replica, TopicPartition(topic, partition))
            for partition, assignment in self.store.topics[topic].partitions.items()
            for replica in assignment.replicas
        )


TestControllerModel = ControllerModel.TestCase
TestControllerModel.settings = settings(max_examples=200, stateful_step_count=40)
