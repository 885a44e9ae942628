"""A cluster of dictionaries around a controller: its effects are done on them, its requests are kept.

``FakeStore`` is what the coordination store holds, with a zxid for every write and a queue of the events
that watches would put. ``FakeBroker`` believes what it is told, and answers. ``Cluster`` lets a controller
step, between whose effects anything may happen (``before``), or the controller may end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar, assert_never
from uuid import UUID

import msgspec

from minikafka.controller import effects
from minikafka.controller.effects import Effect, ElectionConfig, TopicRecord, VersionedState
from minikafka.controller.events import (
    BrokersChanged,
    CaughtUpReassignmentsDue,
    ControlledShutdownAsked,
    Elected,
    Event,
    IsrChangesAnnounced,
    LeaderAndIsrAnswered,
    LogDirEventsAnnounced,
    PartitionsChanged,
    PreferredElectionsAsked,
    ReassignmentIsrChanged,
    ReassignmentsAsked,
    StopReplicaAnswered,
    TopicDeletionsChanged,
    TopicsChanged,
)
from minikafka.controller.step import Controller
from minikafka.errors import ErrorCode
from minikafka.protocol.control import (
    LEADER_DURING_DELETE,
    ControlledShutdownResponse,
    LeaderAndIsrPartition,
    LeaderAndIsrResponse,
    ListenerEndpoint,
    LiveBroker,
    PartitionError,
    StopReplicaResponse,
)
from minikafka.types import (
    NO_LEADER,
    BrokerId,
    LeaderEpoch,
    PartitionState,
    ReplicaAssignment,
    TopicPartition,
)

Send = effects.SendLeaderAndIsr | effects.SendUpdateMetadata | effects.SendStopReplica
S = TypeVar("S", bound=Send)
E = TypeVar("E", bound=Effect)


class ControllerMoved(Exception):
    """A write of a controller that has been replaced: the guard refuses it."""


class FakeStore:
    """The store's nodes as dictionaries. What it refuses and what it checks, it does to all controllers."""

    def __init__(self) -> None:
        self.zxid = 0
        self.controller_epoch = 0
        self.brokers: dict[BrokerId, LiveBroker] = {}
        self.topics: dict[str, TopicRecord] = {}
        self.damaged_topics: set[str] = set()
        self.states: dict[TopicPartition, VersionedState] = {}
        self.configs: dict[str, ElectionConfig] = {}
        self.deletions: dict[str, None] = {}
        self.isr_changes: list[TopicPartition] = []
        self.log_dir_events: list[BrokerId] = []
        self.reassignments: dict[TopicPartition, tuple[BrokerId, ...]] = {}
        """What the admin node asks for."""
        self.preferred_elections: list[TopicPartition] = []
        self.watched_states: set[TopicPartition] = set()
        self.removed: set[tuple[BrokerId, TopicPartition]] = set()
        """Who has ever been a replica of what and was none then."""
        self.events: deque[Event] = deque()
        self.leaders: dict[tuple[UUID | None, int, int], BrokerId] = {}
        """Who has ever led, by topic id, partition and leader epoch (I6)."""

    # What happens to it

    def register(
        self, *brokers: int, rack: str | None = None, port: int = 9092, clean_start: bool = True
    ) -> None:
        """Brokers come, or come back with a new epoch."""
        for broker in map(BrokerId, brokers):
            endpoint = ListenerEndpoint("PLAINTEXT", f"host{broker}", port)
            self.brokers[broker] = LiveBroker(broker, self._next_zxid(), (endpoint,), rack, clean_start)
        self._tell(BrokersChanged())

    def move(self, broker: int, *, port: int) -> None:
        """A broker tells another port, and has not been away."""
        known = self.brokers[BrokerId(broker)]
        endpoints = (known.endpoints[0]._replace(port=port),)
        self.brokers[BrokerId(broker)] = msgspec.structs.replace(known, endpoints=endpoints)
        self._tell(BrokersChanged())

    def unregister(self, *brokers: int) -> None:
        for broker in brokers:
            del self.brokers[BrokerId(broker)]
        self._tell(BrokersChanged())

    def create_topic(
        self, name: str, replicas: Sequence[Sequence[int]], *, topic_id: UUID | None = None
    ) -> None:
        """``replicas`` of partition 0, 1, …; the id is made up if none is given."""
        partitions = {partition: _assignment(each) for partition, each in enumerate(replicas)}
        self.topics[name] = TopicRecord(topic_id or UUID(int=self._next_zxid()), partitions)
        self._tell(TopicsChanged())

    def add_partitions(self, name: str, replicas: Sequence[Sequence[int]]) -> None:
        known = self.topics[name]
        added = {
            partition: _assignment(each)
            for partition, each in enumerate(replicas, start=len(known.partitions))
        }
        self.topics[name] = TopicRecord(known.topic_id, known.partitions | added)
        self._tell(PartitionsChanged(name))

    def reassign(self, topic: str, *targets: Sequence[int] | None) -> None:
        """A broker serves AlterPartitionReassignments for partition 0, 1, …; None leaves one as it is."""
        partitions = dict(self.topics[topic].partitions)
        for partition, target in enumerate(targets):
            if target is not None:
                partitions[partition] = partitions[partition].reassign_to(tuple(map(BrokerId, target)))
        self._put_assignments(topic, partitions)

    def cancel(self, topic: str, partition: int = 0) -> None:
        """A broker serves the request to go back to where the reassignment began."""
        partitions = dict(self.topics[topic].partitions)
        partitions[partition] = partitions[partition].reassign_to(partitions[partition].origin)
        self._put_assignments(topic, partitions)

    def want_reassigned(self, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
        """A client writes the admin node."""
        self.reassignments = {each: tuple(map(BrokerId, target)) for each, target in targets.items()}
        self._tell(ReassignmentsAsked())

    def want_preferred(self, *partitions: TopicPartition) -> None:
        self.preferred_elections = list(partitions)
        self._tell(PreferredElectionsAsked())

    def _put_assignments(self, topic: str, partitions: dict[int, ReplicaAssignment]) -> None:
        for partition, known in self.topics[topic].partitions.items():
            gone = [each for each in known.replicas if each not in partitions[partition].replicas]
            self.removed.update((broker, TopicPartition(topic, partition)) for broker in gone)
        self.topics[topic] = TopicRecord(self.topics[topic].topic_id, partitions)
        self._tell(PartitionsChanged(topic))

    def want_deleted(self, *topics: str) -> None:
        self.deletions.update(dict.fromkeys(topics))
        self._tell(TopicDeletionsChanged())

    def remove_topic(self, name: str) -> None:
        """The topic's nodes go."""
        for partition in self.topics.pop(name).partitions:
            self.states.pop(TopicPartition(name, partition), None)
        self.configs.pop(name, None)
        self.deletions.pop(name, None)
        self._tell(TopicsChanged())
        self._tell(PartitionsChanged(name))

    def leader_writes_isr(self, topic_partition: TopicPartition, isr: Sequence[int], *, version: int) -> bool:
        """A leader shrinks or expands its ISR over the version that it knows. Whether it could."""
        current = self.states.get(topic_partition)
        if current is None or current.version != version:
            return False
        members = tuple(map(BrokerId, isr))
        self._put_state(topic_partition, msgspec.structs.replace(current.state, isr=members))
        self.isr_changes.append(topic_partition)
        self._tell(IsrChangesAnnounced())
        return True

    def announce_lost_log_dir(self, broker: int) -> None:
        self.log_dir_events.append(BrokerId(broker))
        self._tell(LogDirEventsAnnounced())

    def state(self, topic: str, partition: int = 0) -> PartitionState:
        return self.states[TopicPartition(topic, partition)].state

    def version(self, topic: str, partition: int = 0) -> int:
        return self.states[TopicPartition(topic, partition)].version

    def _tell(self, event: Event) -> None:
        if event not in self.events:
            self.events.append(event)

    def _next_zxid(self) -> int:
        self.zxid += 1
        return self.zxid

    # What a controller asks of it

    def perform(self, effect: Effect, *, controller_epoch: int) -> Any:
        """Do one effect for the controller of that epoch. Raises ControllerMoved for writes of old ones."""
        match effect:
            case effects.ReadBrokers():
                return dict(self.brokers)
            case effects.ReadTopics():
                return sorted(self.topics)
            case effects.ReadAssignments(topics):
                readable = self.topics.keys() - self.damaged_topics
                return {topic: self.topics[topic] for topic in topics if topic in readable}
            case effects.ReadPartitionStates(partitions, is_watched):
                self.watched_states.update(partitions if is_watched else ())
                return {each: self.states[each] for each in partitions if each in self.states}
            case effects.ReadTopicConfigs(topics):
                return {topic: self.configs.get(topic, ElectionConfig()) for topic in topics}
            case effects.ReadTopicDeletions():
                return sorted(self.deletions)
            case effects.ReadReassignments():
                return dict(self.reassignments)
        if controller_epoch != self.controller_epoch:
            raise ControllerMoved
        return self._write(effect)

    def _write(self, effect: Effect) -> Any:
        match effect:
            case effects.CreatePartitionStates(states):
                created = {each: new for each, new in states.items() if self._can_be_created(each, new)}
                return {each: self._controller_writes(each, new) for each, new in created.items()}
            case effects.WritePartitionStates(states):
                current = {
                    each: new.state
                    for each, new in states.items()
                    if each in self.states and self.states[each].version == new.version
                }
                return {each: self._controller_writes(each, new) for each, new in current.items()}
            case effects.AssignTopicIds(topics):
                for topic in topics:
                    known = self.topics[topic]
                    self.topics[topic] = TopicRecord(UUID(int=self._next_zxid()), known.partitions)
            case effects.DeleteTopicNodes(topic):
                self.remove_topic(topic)
            case effects.DropTopicDeletions(topics):
                for topic in topics:
                    self.deletions.pop(topic, None)
            case effects.WriteAssignments(changes):
                return self._write_assignments(changes)
            case effects.LeaveReassignments(replicas):
                self.want_reassigned(replicas)
            case effects.TakePreferredElections():
                asked, self.preferred_elections = self.preferred_elections, []
                return asked
            case effects.TakeIsrChanges():
                announced, self.isr_changes = self.isr_changes, []
                return sorted(set(announced))
            case effects.TakeLogDirEvents():
                lost, self.log_dir_events = self.log_dir_events, []
                return sorted(set(lost))
        return None

    def _write_assignments(
        self, changes: Mapping[TopicPartition, effects.AssignmentChange]
    ) -> list[TopicPartition]:
        written = []
        for each, change in changes.items():
            record = self.topics.get(each.topic)
            if record is not None and record.partitions.get(each.partition) == change.expected:
                self._put_assignments(each.topic, record.partitions | {each.partition: change.new})
                written.append(each)
        return written

    def _can_be_created(self, topic_partition: TopicPartition, state: PartitionState) -> bool:
        """Not if it exists, or its topic does not; nor what is meant for a topic before this one."""
        record = self.topics.get(topic_partition.topic)
        assignment = None if record is None else record.partitions.get(topic_partition.partition)
        return (
            topic_partition not in self.states
            and assignment is not None
            and set(state.isr) <= set(assignment.replicas)
        )

    def _controller_writes(self, topic_partition: TopicPartition, state: PartitionState) -> int:
        """A controller's own write: it raises the leader epoch, and says whose it is (I6, I14)."""
        assert state.controller_epoch == self.controller_epoch
        known = self.states.get(topic_partition)
        assert state.leader_epoch == (0 if known is None else known.state.leader_epoch + 1)
        if known is not None and not state.leader_recovering:  # only a leader knows who else is in sync
            before = known.state
            assert {*state.isr} <= {*before.isr, *before.eligible, before.last_known_leader}
        return self._put_state(topic_partition, state)

    def _put_state(self, topic_partition: TopicPartition, state: PartitionState) -> int:
        topic, partition = topic_partition
        record = self.topics[topic]
        assert state.isr and set(state.isr) <= set(record.partitions[partition].replicas)  # I12
        if state.leader >= 0:
            assert state.leader in state.isr
            key = (record.topic_id, partition, state.leader_epoch)
            assert self.leaders.setdefault(key, state.leader) == state.leader
        known = self.states.get(topic_partition)
        assert known is None or known.state.controller_epoch <= state.controller_epoch
        version = 0 if known is None else known.version + 1
        self.states[topic_partition] = VersionedState(state, version, self._next_zxid())
        if topic_partition in self.watched_states:
            self.watched_states.remove(topic_partition)
            self._tell(ReassignmentIsrChanged(topic_partition))
        return version


def _assignment(replicas: Sequence[int]) -> ReplicaAssignment:
    return ReplicaAssignment(tuple(map(BrokerId, replicas)))


class FakeBroker:
    """One incarnation of a broker: what it has been told, and what it does about its disk."""

    def __init__(self, live: LiveBroker, disk: dict[TopicPartition, UUID]) -> None:
        self.live = live
        self.disk = disk
        """The logs that it has, with their topics' ids; it stays when the broker is gone."""
        self.metadata: dict[TopicPartition, LeaderAndIsrPartition] = {}
        self.live_brokers: tuple[LiveBroker, ...] = ()
        self.replicas: dict[TopicPartition, LeaderAndIsrPartition] = {}
        self.strays: dict[TopicPartition, UUID] = {}
        """What a full LeaderAndIsr did not name."""
        self.lost: set[TopicPartition] = set()
        """What lay on a log directory that has failed."""

    def receive(self, send: Send) -> Event | None:
        """Believe a request; returns the answer, if it has one that the controller waits for."""
        match send:
            case effects.SendUpdateMetadata(_, partitions, live_brokers, is_full):
                self.live_brokers = live_brokers
                if is_full:
                    self.metadata.clear()
                for each in partitions:
                    if each.leader == LEADER_DURING_DELETE:
                        self.metadata.pop(each.topic_partition, None)
                    else:
                        self.metadata[each.topic_partition] = each
                return None
            case effects.SendLeaderAndIsr(_, partitions, _, is_full):
                return self._lead_or_follow(partitions, is_full=is_full)
            case effects.SendStopReplica(_, partitions):
                results = []
                for stopped in partitions:
                    topic_partition = TopicPartition(stopped.topic, stopped.partition)
                    self.replicas.pop(topic_partition, None)
                    if stopped.delete and topic_partition not in self.lost:
                        self.disk.pop(topic_partition, None)
                    results.append(self._result(topic_partition))
                response = StopReplicaResponse(ErrorCode.NONE, tuple(results))
                return StopReplicaAnswered(self.live.node_id, self.live.epoch, partitions, response)
            case _:
                assert_never(send)

    def _lead_or_follow(self, partitions: Sequence[LeaderAndIsrPartition], *, is_full: bool) -> Event:
        if is_full:
            named = {each.topic_partition for each in partitions}
            for topic_partition in self.disk.keys() - named:
                self.strays[topic_partition] = self.disk[topic_partition]
        for each in partitions:
            if each.topic_partition not in self.lost:
                self.replicas[each.topic_partition] = each
                self.disk[each.topic_partition] = each.topic_id
        results = tuple(self._result(each.topic_partition) for each in partitions)
        response = LeaderAndIsrResponse(ErrorCode.NONE, results)
        return LeaderAndIsrAnswered(self.live.node_id, self.live.epoch, response)

    def _result(self, topic_partition: TopicPartition) -> PartitionError:
        code = ErrorCode.KAFKA_STORAGE_ERROR if topic_partition in self.lost else ErrorCode.NONE
        return PartitionError(*topic_partition, code)


class Cluster:
    """A store, brokers, and the current controller. Requests wait in channels, one for each broker."""

    def __init__(self, *brokers: int) -> None:
        self.store = FakeStore()
        self.controller = Controller(BrokerId(-1))
        self.epoch = 0
        self.sent: list[Send] = []
        """All requests since the test has last cleared this."""
        self.performed: list[Effect] = []
        """All other effects, likewise."""
        self.brokers: dict[BrokerId, FakeBroker] = {}
        self.disks: dict[BrokerId, dict[TopicPartition, UUID]] = {}
        self.channels: dict[BrokerId, deque[Send]] = {}
        self.before: Callable[[Effect], None] = lambda effect: None
        """Called before each effect is done."""
        if brokers:
            self.store.register(*brokers)

    def clear(self) -> None:
        self.sent.clear()
        self.performed.clear()

    def elect(
        self,
        *,
        controller_id: int = 1,
        controller: Controller | None = None,
        stop_after: int | None = None,
    ) -> None:
        """A new controller, which knows nothing; what the old one had in its channels is lost."""
        self.store.controller_epoch += 1
        self.controller = controller or Controller(BrokerId(controller_id))
        self.epoch = self.store.controller_epoch
        self.channels.clear()
        self.store.watched_states.clear()
        for event in list(self.store.events):
            if isinstance(event, LeaderAndIsrAnswered | StopReplicaAnswered | CaughtUpReassignmentsDue):
                self.store.events.remove(event)
        self.step(Elected(self.epoch), stop_after=stop_after)

    def step(self, event: Event, *, stop_after: int | None = None) -> object:
        """One step. With ``stop_after`` it is closed before that many effects and one are done."""
        step = self.controller.step(event)
        try:
            return self._drive(step, stop_after)
        finally:
            step.close()
            if stop_after is None:
                self.controller.validate()

    def _drive(self, step: Generator[Effect, Any, object], stop_after: int | None) -> object:
        result: Any = None
        done = 0
        while True:
            try:
                effect = step.send(result)
            except StopIteration as stop:
                return stop.value
            if done == stop_after:
                return None
            done += 1
            self.before(effect)
            result = self._perform(effect)

    def _perform(self, effect: Effect) -> Any:
        match effect:
            case effects.SendUpdateMetadata() | effects.SendLeaderAndIsr() | effects.SendStopReplica():
                self.sent.append(effect)
                for broker in effect.to if isinstance(effect, effects.SendUpdateMetadata) else [effect.to]:
                    if broker in self.channels:
                        self.channels[broker].append(effect)
            case effects.Remind(event):
                self.performed.append(effect)
                self.store.events.append(event)  # when what waits already has happened, the time is over
            case _:
                self.performed.append(effect)
                result = self.store.perform(effect, controller_epoch=self.epoch)
                if isinstance(effect, effects.ReadBrokers):
                    self._open_channels(result)
                return result
        return None

    def _open_channels(self, registered: Mapping[BrokerId, LiveBroker]) -> None:
        """As ``ControllerChannels.update``; a broker that is new here begins to live."""
        for broker, live in registered.items():
            known = self.brokers.get(broker)
            if known is None or known.live.epoch != live.epoch:
                self.channels.pop(broker, None)
                self.brokers[broker] = FakeBroker(live, self.disks.setdefault(broker, {}))
            self.brokers[broker].live = live
            self.channels.setdefault(broker, deque())
        for broker in self.brokers.keys() - registered.keys():
            del self.brokers[broker]
            self.channels.pop(broker, None)

    def deliver(self, broker: BrokerId) -> bool:
        """The next request of a channel arrives. Whether there was one, and its broker could be reached."""
        registered = self.store.brokers.get(broker)
        if registered is None or not self.channels.get(broker):
            return False
        if registered.epoch != self.brokers[broker].live.epoch:
            return False
        answer = self.brokers[broker].receive(self.channels[broker].popleft())
        if answer is not None:
            self.store.events.append(answer)
        return True

    def settle(self) -> None:
        """Until nothing happens any more."""
        while True:
            for broker in list(self.channels):
                while self.deliver(broker):
                    pass
            if not self.store.events:
                return
            self.step(self.store.events.popleft())

    def settle_events(self) -> None:
        """As ``settle``, but no request arrives."""
        while self.store.events:
            self.step(self.store.events.popleft())

    def catch_up(self) -> None:
        """Every leader that knows its replicas takes those that are alive into the ISR."""
        for partition, current in list(self.store.states.items()):
            leader = self.brokers.get(current.state.leader)
            told = None if leader is None else leader.replicas.get(partition)
            if (
                told is not None
                and told.leader_epoch == current.state.leader_epoch
                and told.topic_id == self.store.topics[partition.topic].topic_id
            ):
                isr = [each for each in told.replicas if self._follows(each, partition)]
                if current.state.leader in isr and set(isr) != set(current.state.isr):
                    self.store.leader_writes_isr(partition, isr, version=current.version)

    def _follows(self, broker: BrokerId, partition: TopicPartition) -> bool:
        known, registered = self.brokers.get(broker), self.store.brokers.get(broker)
        return (
            known is not None
            and registered is not None
            and registered.epoch == known.live.epoch
            and partition in known.replicas
        )

    def calm_down(self) -> None:
        """Until all that can catch up has, and nothing happens any more."""
        while True:
            self.settle()
            self.catch_up()
            if not self.store.events:
                return

    def shut_down(self, broker: int) -> ControlledShutdownResponse:
        """A broker asks the controller to move its leaders."""
        live = self.store.brokers[BrokerId(broker)]
        response = self.step(ControlledShutdownAsked(live.node_id, live.epoch))
        assert isinstance(response, ControlledShutdownResponse)
        return response

    # What was sent

    def all_sent(self, kind: type[S]) -> list[S]:
        return [each for each in self.sent if isinstance(each, kind)]

    def all_performed(self, kind: type[E]) -> list[E]:
        return [each for each in self.performed if isinstance(each, kind)]

    def leader_and_isr(self, to: int) -> list[effects.SendLeaderAndIsr]:
        return [each for each in self.sent if isinstance(each, effects.SendLeaderAndIsr) and each.to == to]

    def update_metadata(self, to: int) -> list[effects.SendUpdateMetadata]:
        return [each for each in self.sent if isinstance(each, effects.SendUpdateMetadata) and to in each.to]

    def stop_replica(self, to: int) -> list[effects.SendStopReplica]:
        return [each for each in self.sent if isinstance(each, effects.SendStopReplica) and each.to == to]

    def told(self, broker: int, topic: str, partition: int = 0) -> LeaderAndIsrPartition:
        """What a broker knows as replica."""
        return self.brokers[BrokerId(broker)].replicas[TopicPartition(topic, partition)]

    def shown(self, broker: int, topic: str, partition: int = 0) -> LeaderAndIsrPartition:
        """What a broker's clients are shown."""
        return self.brokers[BrokerId(broker)].metadata[TopicPartition(topic, partition)]


def state(
    leader: int,
    leader_epoch: int,
    isr: Sequence[int],
    controller_epoch: int = 1,
    *,
    recovering: bool = False,
    eligible: Sequence[int] = (),
    last: int = NO_LEADER,
) -> PartitionState:
    """``last`` is the last known leader."""
    return PartitionState(
        BrokerId(leader),
        LeaderEpoch(leader_epoch),
        tuple(map(BrokerId, isr)),
        controller_epoch,
        recovering,
        tuple(map(BrokerId, eligible)),
        BrokerId(last),
    )


def running(*replicas: list[int], brokers: tuple[int, ...] = (1, 2, 3)) -> Cluster:
    """A cluster with a topic ``t`` in which all brokers know everything."""
    cluster = Cluster(*brokers)
    cluster.store.create_topic("t", replicas)
    cluster.elect()
    cluster.settle()
    cluster.clear()
    return cluster
