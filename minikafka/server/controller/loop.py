"""The controller of the cluster, as far as this broker is it: election, events, effects.

Kafka: ``KafkaController`` and ``ControllerEventManager``. What to do is decided by ``minikafka.controller``;
here its steps are driven: an effect that it yields is carried out, and what came of it is sent back in. One
event is finished before the next begins, as in Kafka's single controller thread.

States of the loop::

    CANDIDATE --/controller is ours--> CONTROLLER --deposed, or the session ends--> CANDIDATE

A step that loses the controllership in the middle is closed where it stands, and everything that the
controller knew is dropped with it: the next one reads the store. While the store cannot be reached the step
waits (Kafka: ``retryRequestUntilConnected``); brokers go on with what they were told.

The same event waits in the queue at most once, unless its answer is waited for: so the queue is bounded
by the number of topics, partitions, brokers and requests under way. Watches outlive a term; what they tell
then is ignored.

**How often** each kind of event was handled, and how long that took. Kafka: ``ControllerStats``,
``ControllerState`` and the ``state`` of each ``ControllerEvent``; ``KINDS`` are its names. ``LeaderElection``
is the time that it takes until brokers that came or went are dealt with: the name is older than the others.

Differs from Kafka: kinds without an event here (ControllerShutdown, ListPartitionReassignment,
UpdateFeatures, UpdateMetadataResponseReceived) are left out.

**Effects** are carried out on the store, the channels to the brokers, and the configurations.

**What a step has decided** is recorded (``StepRecorder``), which sees the effects go by. Elections and ISRs
are recorded when their write has succeeded, with what the controller was dealing with as their cause. A step
that has written nothing and sent nothing is not recorded; most answers and periodic looks are of that kind.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, assert_never

from minikafka.clock import Clock
from minikafka.config.topic import TopicConfig
from minikafka.controller import effects, events
from minikafka.controller.context import ControllerContext
from minikafka.controller.effects import Effect, ElectionConfig, VersionedState
from minikafka.controller.events import (
    ControlledShutdownAsked,
    Elected,
    Event,
    IsrsAltered,
    LeaderElectionsAsked,
    LeaderRebalanceDue,
)
from minikafka.controller.step import Controller
from minikafka.coordination import paths
from minikafka.coordination.store import (
    ConnectionLossError,
    CoordinationStore,
    SessionExpiredError,
    StoreError,
    WatchEvent,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.flight_recorder import (
    ControllerChanged,
    ControllerStep,
    IsrChanged,
    LeaderElected,
    Record,
    cut,
    not_recorded,
)
from minikafka.metrics.request_metrics import KafkaTimer
from minikafka.protocol.control import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    ControlRequest,
    LeaderAndIsrRequest,
    LiveBroker,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from minikafka.server.cluster.registration import Election, MigratesToKRaftError, SessionKeeper, elect
from minikafka.server.config_service import ConfigService
from minikafka.server.controller import alter_partition
from minikafka.server.controller.alter_partition import Outcome, ProposedIsr
from minikafka.server.controller.channel import ControllerChannels, Send
from minikafka.server.controller.store import ControllerMoved, ControllerStore
from minikafka.server.runtime.event_loop import Restart, Supervisor
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.types import NO_LEADER, BrokerId, ElectionType, PartitionState, TopicPartition, joined

logger = logging.getLogger(__name__)

_KIND_OF: Final[dict[type[events.Event], str]] = {
    events.Elected: "ControllerChange",
    events.BrokersChanged: "LeaderElection",
    events.TopicsChanged: "TopicChange",
    events.PartitionsChanged: "TopicChange",
    events.TopicDeletionsChanged: "TopicDeletion",
    events.StopReplicaAnswered: "TopicDeletion",
    events.ReassignmentsAsked: "PartitionReassignment",
    events.ReassignmentIsrChanged: "PartitionReassignment",
    events.CaughtUpReassignmentsDue: "PartitionReassignment",
    events.LeaderRebalanceDue: "AutoLeaderBalance",
    events.PreferredElectionsAsked: "ManualLeaderBalance",
    events.LeaderElectionsAsked: "ManualLeaderBalance",
    events.ControlledShutdownAsked: "ControlledShutdown",
    events.IsrChangesAnnounced: "IsrChange",
    events.IsrsAltered: "IsrChange",
    events.LeaderAndIsrAnswered: "LeaderAndIsrResponseReceived",
    events.LogDirEventsAnnounced: "LogDirChange",
}
_UNCLEAN_ELECTIONS: Final = {True: "UncleanLeaderElectionEnable", False: "TopicUncleanLeaderElectionEnable"}

KINDS: Final = tuple(dict.fromkeys((*_KIND_OF.values(), *_UNCLEAN_ELECTIONS.values())))

STORE_RETRY_PAUSE_MS = 200
"""Between tries of an effect while the store cannot be reached."""

FIRST_REBALANCE_DELAY_MS = 5_000
"""From the election to the first look at who leads (``KafkaController.onControllerFailover``)."""


class ControllerStats:
    """A timer for each of ``KINDS``; they outlast a term, as counters must."""

    def __init__(self) -> None:
        self.timers = {kind: KafkaTimer() for kind in KINDS}

    def __repr__(self) -> str:
        return (
            f"ControllerStats({ {kind: timer.count for kind, timer in self.timers.items() if timer.count} })"
        )

    def handled(self, event: events.Event, duration_ns: int) -> str:
        """An event's step is over, to its end or not. Returns its kind."""
        if isinstance(event, events.UncleanElectionEnabled):
            kind = _UNCLEAN_ELECTIONS[event.topic is None]
        else:
            kind = _KIND_OF[type(event)]
        self.timers[kind].update(duration_ns)
        return kind


class ControllerEffects:
    """Made at an election, for one controller epoch."""

    def __init__(
        self,
        store: ControllerStore,
        channels: ControllerChannels,
        configs: ConfigService,
        *,
        node_id: BrokerId,
        controller_epoch: int,
        remind: Callable[[Event, int], object],
    ) -> None:
        """``remind`` is given an event and in how many milliseconds it shall come."""
        self._store = store
        self._channels = channels
        self._configs = configs
        self._node_id = node_id
        self._controller_epoch = controller_epoch
        self._remind = remind

    async def perform(self, effect: Effect) -> Any:
        """Carry out one effect; returns what ``controller.effects`` says.

        Raises:
            ControllerMoved: a write's guard failed. StoreError: the store's.
        """
        store = self._store
        match effect:
            case effects.ReadBrokers():
                brokers = await store.brokers()
                await self._channels.update(brokers)
                return brokers
            case effects.ReadTopics():
                return await store.topics()
            case effects.ReadAssignments(topics):
                return await store.assignments(topics)
            case effects.ReadPartitionStates(partitions, is_watched):
                return await store.states.read(partitions, is_watched=is_watched)
            case effects.CreatePartitionStates(states):
                return await store.states.create(states)
            case effects.WritePartitionStates(states):
                return await store.states.write(states)
            case effects.AssignTopicIds(topics):
                return await store.assign_topic_ids(topics)
            case effects.ReadTopicConfigs(topics):
                configs = await self._configs.read_topic_configs(topics)
                return {topic: _election_config(config) for topic, config in configs.items()}
            case effects.ReadTopicDeletions():
                return await store.notifications.topic_deletions()
            case effects.DeleteTopicNodes(topic):
                return await store.delete_topic(topic)
            case effects.DropTopicDeletions(topics):
                return await store.notifications.drop_topic_deletions(topics)
            case effects.WriteAssignments(changes):
                return await store.write_assignments(changes)
            case effects.ReadReassignments():
                return await store.notifications.reassignments()
            case effects.LeaveReassignments(replicas):
                return await store.notifications.leave_reassignments(replicas)
            case effects.Remind(event, after_ms):
                self._remind(event, after_ms)
            case effects.TakePreferredElections():
                return await store.notifications.take_preferred_elections()
            case effects.TakeIsrChanges():
                return await store.notifications.take_isr_changes()
            case effects.TakeLogDirEvents():
                return await store.notifications.take_log_dir_events()
            case effects.SendLeaderAndIsr() | effects.SendUpdateMetadata() | effects.SendStopReplica():
                self._send(effect)
            case _:
                assert_never(effect)
        return None

    def _send(
        self, effect: effects.SendLeaderAndIsr | effects.SendUpdateMetadata | effects.SendStopReplica
    ) -> None:
        match effect:
            case effects.SendLeaderAndIsr(to, partitions, live_leaders, is_full):
                self._enqueue(
                    to,
                    lambda epoch: LeaderAndIsrRequest(
                        self._node_id, self._controller_epoch, epoch, partitions, live_leaders, is_full
                    ),
                )
            case effects.SendStopReplica(to, stopped):
                self._enqueue(
                    to,
                    lambda epoch: StopReplicaRequest(self._node_id, self._controller_epoch, epoch, stopped),
                )
            case effects.SendUpdateMetadata(brokers, partitions, live_brokers, is_full):
                for broker in brokers:
                    self._enqueue(
                        broker,
                        lambda epoch: UpdateMetadataRequest(
                            self._node_id, self._controller_epoch, epoch, partitions, live_brokers, is_full
                        ),
                    )

    def _enqueue(self, to: BrokerId, request: Any) -> None:
        channel = self._channels.get(to)
        if channel is not None:  # else it went, and what it has to know it will be told when it returns
            made: ControlRequest = request(channel.broker.epoch)
            channel.enqueue(made)


def _election_config(config: TopicConfig) -> ElectionConfig:
    return ElectionConfig(
        unclean_leader_election=config.unclean_leader_election_enable,
        min_insync_replicas=config.min_insync_replicas,
    )


class EventQueue:
    """What waits for the controller, in order. Equal events wait once."""

    def __init__(self) -> None:
        self._events: deque[tuple[Event, asyncio.Future[Any] | None]] = deque()
        self._waiting: set[Event] = set()
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Event, answer: asyncio.Future[Any] | None = None) -> None:
        """``answer`` is resolved with what the step returns."""
        if answer is None:
            if event in self._waiting:
                return
            self._waiting.add(event)
        self._events.append((event, answer))
        self._filled.set()

    async def get(self) -> tuple[Event, asyncio.Future[Any] | None]:
        while not self._events:
            self._filled.clear()
            await self._filled.wait()
        event, answer = self._events.popleft()
        self._waiting.discard(event)
        return event, answer

    def clear(self) -> None:
        """Drop everything; those that wait for an answer learn that there is none."""
        for _, answer in self._events:
            if answer is not None:
                answer.cancel()
        self._events.clear()
        self._waiting.clear()


class ControllerLoop:
    """One broker's part in being the controller. ``run`` is its task."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        store: CoordinationStore,
        sessions: SessionKeeper,
        configs: ConfigService,
        clock: Clock,
        rng: random.Random,
        supervisor: Supervisor,
        open_sender: Callable[[LiveBroker, int], Send],
    ) -> None:
        """``open_sender`` is given a broker and the controller's epoch."""
        self._node_id = node_id
        self._store = store
        self._sessions = sessions
        self._configs = configs
        self._clock = clock
        self._rng = rng
        self._supervisor = supervisor
        self._open_sender = open_sender
        self.record: Record = not_recorded
        self._queue = EventQueue()
        self._altering = asyncio.Lock()
        self._election: Election | None = None
        self._controller: Controller | None = None
        self._deposed: str | None = None
        self.stats = ControllerStats()

    def __repr__(self) -> str:
        state = "candidate" if self._election is None else f"controller, {self._election}"
        return f"ControllerLoop(node {self._node_id}, {state}, {len(self._queue)} events waiting)"

    @property
    def is_controller(self) -> bool:
        return self._election is not None

    @property
    def context(self) -> ControllerContext | None:
        """What this broker knows as the controller; None when it is not."""
        return None if self._controller is None else self._controller.context

    @property
    def events_waiting(self) -> int:
        return len(self._queue)

    def notify(self, event: Event) -> None:
        """Something happened; nothing, when this broker is not the controller."""
        if self._election is not None:
            self._queue.put(event)

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        """A broker asks to have its leaders moved."""
        try:
            response: ControlledShutdownResponse = await self._ask(
                ControlledShutdownAsked(request.node_id, request.broker_epoch)
            )
        except KafkaError as error:
            return ControlledShutdownResponse(error.code)
        return response

    async def alter_partitions(self, leader: BrokerId, proposed: Sequence[ProposedIsr]) -> list[Outcome]:
        """A leader proposes other ISRs (AlterPartition). Returns what became of each.

        One request after the other, each in the term in which it came: when a leader has an answer, none of
        its earlier requests that it has given up can be carried out any more.

        Raises:
            KafkaError: NOT_CONTROLLER. StoreError: the store's.
        """
        election = self._election
        if election is None:
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER, f"Broker {self._node_id} is not the active controller."
            )
        async with self._altering:
            outcomes = await alter_partition.alter_partitions(self._store, election, leader, proposed)
        altered = tuple(
            each.topic_partition
            for each, outcome in zip(proposed, outcomes, strict=True)
            if isinstance(outcome, alter_partition.CurrentState)
        )
        if altered:
            self._queue.put(IsrsAltered(altered))
        return outcomes

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, election_type: ElectionType
    ) -> dict[TopicPartition, KafkaError | None]:
        """Hold elections (KIP-460), of all partitions for None. Returns what became of each that was asked
        about; of all partitions only those for which there was something to do.

        Raises:
            KafkaError: NOT_CONTROLLER.
        """
        asked = None if partitions is None else tuple(partitions)
        results: dict[TopicPartition, KafkaError | None] = await self._ask(
            LeaderElectionsAsked(asked, election_type)
        )
        return results

    async def _ask(self, event: Event) -> Any:
        """What the step of ``event`` returns.

        Raises:
            KafkaError: NOT_CONTROLLER, also when another broker becomes it before the step is done.
        """
        not_controller = KafkaError(
            ErrorCode.NOT_CONTROLLER, f"Broker {self._node_id} is not the active controller."
        )
        if self._election is None:
            raise not_controller
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.put(event, answer)
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.cancelled():  # deposed in the meantime
                raise not_controller from None
            raise

    async def run(self) -> None:
        """Wait for the election, lead, resign, and again: until cancelled, or no broker is elected any more,
        because the cluster migrates to KRaft, which ends this broker."""
        while True:
            session_id = await self._sessions.ready()
            try:
                async with self._sessions.lasting(session_id):
                    election = await elect(self._store, node_id=self._node_id, clock=self._clock)
                    await self._lead(election)
            except (SessionExpiredError, ConnectionLossError) as error:
                logger.info("not a candidate for controller at the moment: %s", error)
                await asyncio.sleep(STORE_RETRY_PAUSE_MS / 1000)
            except MigratesToKRaftError as error:
                logger.error("this broker stops: %s", error)
                return self._supervisor.fail(error)

    async def _lead(self, election: Election) -> None:
        logger.info("elected controller of epoch %d", election.controller_epoch)
        self.record(ControllerChanged(controller_epoch=election.controller_epoch, is_controller=True))
        cause = "it stops"
        self._election, self._deposed = election, None
        self._queue.put(Elected(election.controller_epoch))  # before anything else can come
        store = ControllerStore(
            self._store,
            epoch_version=election.epoch_version,
            rng=self._rng,
            notify=lambda event: self._notify_in(election, event),
        )
        channels = ControllerChannels(
            open_sender=lambda broker: self._open_sender(broker, election.controller_epoch),
            notify=lambda event: self._notify_in(election, event),
            start=lambda name, work: self._supervisor.start(name, work, restart=Restart.ALWAYS),
        )
        effects = ControllerEffects(
            store,
            channels,
            self._configs,
            node_id=self._node_id,
            controller_epoch=election.controller_epoch,
            remind=lambda event, after_ms: asyncio.get_running_loop().call_later(
                after_ms / 1000, self._notify_in, election, event
            ),
        )
        rebalance = self._supervisor.start("leader-rebalance", lambda: self._rebalance_leaders(election))
        try:
            await self._watch_controller(election)
            self._controller = Controller(self._node_id)
            await self._lead_on(self._controller, effects)
        except ControllerMoved as error:
            logger.info("no longer the controller of epoch %d: %s", election.controller_epoch, error)
            cause = str(error)
        except StoreError as error:
            cause = str(error)
            raise
        except Exception as error:
            cause = f"{error!r}, which is a bug"
            await self._resign(store)  # our bug: the next controller begins with what the store says
            raise
        finally:
            self.record(
                ControllerChanged(
                    controller_epoch=election.controller_epoch, is_controller=False, cause=cut(cause)
                )
            )
            rebalance.cancel()
            self._election = self._controller = None
            self._queue.clear()
            await channels.close()

    def _notify_in(self, election: Election, event: Event) -> None:
        """Something happened to the controller of that election; nothing, when it is none any more."""
        if self._election is election:
            self._queue.put(event)

    async def _rebalance_leaders(self, election: Election) -> None:
        """Have the controller look, every now and then, whether leadership is spread as it is preferred."""
        config = self._configs.broker_config
        if not config.auto_leader_rebalance_enable:
            return
        await asyncio.sleep(FIRST_REBALANCE_DELAY_MS / 1000)
        while True:
            self._notify_in(election, LeaderRebalanceDue(config.leader_imbalance_per_broker_percentage))
            await asyncio.sleep(config.leader_imbalance_check_interval_seconds)

    async def _lead_on(self, controller: Controller, effects: ControllerEffects) -> None:
        while True:
            event, answer = await self._queue.get()
            try:
                if self._deposed is not None:
                    raise ControllerMoved(self._deposed)
                began_ns = self._clock.monotonic_ns()
                recorder = StepRecorder(self.record, event, controller.context)
                try:
                    result = await self._step(controller, event, effects, recorder)
                finally:
                    duration_ns = self._clock.monotonic_ns() - began_ns
                    recorder.ended(self.stats.handled(event, duration_ns), duration_ns)
            except BaseException:
                if answer is not None:
                    answer.cancel()  # those that wait ask the next controller
                raise
            if answer is not None and not answer.done():
                answer.set_result(result)

    async def _step(
        self, controller: Controller, event: Event, effects: ControllerEffects, recorder: StepRecorder
    ) -> object:
        """Carry out one step. Raises ControllerMoved, SessionExpiredError."""
        step = controller.step(event)
        result: Any = None
        try:
            while True:
                effect = step.send(result)
                result = await self._perform(effect, effects)
                await recorder.performed(effect, result, controller.context)
        except StopIteration as done:
            return done.value
        finally:
            step.close()

    async def _perform(self, effect: Effect, effects: ControllerEffects) -> Any:
        is_waiting = False
        while True:
            try:
                return await effects.perform(effect)
            except ConnectionLossError as error:
                if not is_waiting:
                    logger.warning("the controller waits for the coordination store: %s", error)
                is_waiting = True
                await asyncio.sleep(STORE_RETRY_PAUSE_MS / 1000)

    async def _resign(self, store: ControllerStore) -> None:
        try:
            await store.resign()
        except (ControllerMoved, StoreError) as error:
            logger.warning("cannot resign: %s", error)

    async def _watch_controller(self, election: Election) -> None:
        """An operator may delete ``/controller`` by hand, to have another one elected."""

        def changed(event: WatchEvent) -> None:
            if self._election is election:  # else it is a watch of an earlier term
                self._deposed = f"{paths.CONTROLLER} was written or deleted"
                self._queue.put(Elected(-1))  # only to wake the loop

        if await self._store.exists(paths.CONTROLLER, watch=changed) is None:
            raise ControllerMoved(f"{paths.CONTROLLER} is gone")


class StepRecorder:
    """Of one step, from its event to its end."""

    def __init__(self, record: Record, event: Event, context: ControllerContext | None) -> None:
        """``context``: as it was before; None: this is the first step of a controller."""
        self._record = record
        self._event = event
        self._context = context
        self._known_brokers = frozenset(() if context is None else context.brokers)
        self._cause = "" if isinstance(event, events.BrokersChanged) else cause_of(event)
        self._states_written = 0
        self._requests = 0

    async def performed(self, effect: Effect, result: Any, context: ControllerContext | None) -> None:
        """``effect`` is carried out, and the controller does not know its ``result`` yet."""
        match effect:
            case effects.ReadBrokers() if isinstance(self._event, events.BrokersChanged):
                self._cause = _brokers_changed(self._known_brokers, frozenset(result))
            case effects.WritePartitionStates(states):
                known = {} if context is None else context.leadership
                await self._written({at: states[at].state for at in result}, known, self._cause)
            case effects.CreatePartitionStates(states):
                await self._written({at: states[at] for at in result}, {}, "the partition is new")
            case effects.SendLeaderAndIsr() | effects.SendStopReplica():
                self._requests += 1
            case effects.SendUpdateMetadata(to):
                self._requests += len(to)

    async def _written(
        self,
        states: Mapping[TopicPartition, PartitionState],
        known: Mapping[TopicPartition, VersionedState],
        cause: str,
    ) -> None:
        self._states_written += len(states)
        time_slice = TimeSlice()
        for at, state in states.items():
            before = known.get(at)
            self._record_state(at, state, None if before is None else before.state, cause)
            await time_slice.give_way()

    def _record_state(
        self, at: TopicPartition, state: PartitionState, before: PartitionState | None, cause: str
    ) -> None:
        if before is None or state.leader != before.leader:
            was_safe = () if before is None else (*before.isr, *before.eligible, NO_LEADER)
            is_unclean = before is not None and state.leader not in was_safe
            self._record(
                LeaderElected(
                    topic=at.topic,
                    partition=at.partition,
                    leader=state.leader,
                    previous_leader=NO_LEADER if before is None else before.leader,
                    leader_epoch=state.leader_epoch,
                    isr=state.isr,
                    is_unclean=is_unclean,
                    cause=cause,
                )
            )
        elif state.isr != before.isr:
            self._record(
                IsrChanged(
                    topic=at.topic,
                    partition=at.partition,
                    isr=state.isr,
                    previous_isr=before.isr,
                    leader_epoch=state.leader_epoch,
                    cause=f"the controller: {cause}",
                )
            )

    def ended(self, step: str, duration_ns: int) -> None:
        """The step is over, to its end or not. ``step``: its name."""
        if self._states_written or self._requests:
            self._record(
                ControllerStep(
                    step=step,
                    duration_ms=duration_ns // 1_000_000,
                    states_written=self._states_written,
                    requests=self._requests,
                    cause=self._cause,
                )
            )


def _brokers_changed(before: frozenset[BrokerId], now: frozenset[BrokerId]) -> str:
    gone, came = sorted(before - now), sorted(now - before)
    changes = [f"{_brokers(gone)} gone"] if gone else []
    if came:
        changes.append(f"{_brokers(came)} here")
    return ", ".join(changes) or "a broker has registered again"


def _brokers(brokers: list[BrokerId]) -> str:
    return f"broker {brokers[0]} is" if len(brokers) == 1 else f"brokers {joined(brokers)} are"


def cause_of(event: Event) -> str:
    """What a step is done for, in words."""
    match event:
        case events.Elected():
            return "a controller was elected"
        case events.BrokersChanged():
            return "brokers came or went"
        case events.TopicsChanged():
            return "topics were created or deleted"
        case events.PartitionsChanged(topic):
            return f"the assignment of {topic} was written"
        case events.TopicDeletionsChanged() | events.StopReplicaAnswered():
            return "a topic is being deleted"
        case events.IsrChangesAnnounced() | events.IsrsAltered():
            return "leaders have changed their ISRs"
        case events.LogDirEventsAnnounced():
            return "a log directory has failed"
        case events.LeaderAndIsrAnswered(broker_id):
            return f"broker {broker_id} has answered what it leads and follows"
        case events.ControlledShutdownAsked(broker_id):
            return f"broker {broker_id} shuts down"
        case events.UncleanElectionEnabled():
            return "unclean.leader.election.enable was set"
        case events.LeaderElectionsAsked(_, election_type):
            kind = "a preferred" if election_type is ElectionType.PREFERRED else "an unclean"
            return f"{kind} election was asked for"
        case events.PreferredElectionsAsked():
            return "a preferred election was asked for"
        case events.LeaderRebalanceDue():
            return "leadership goes back to the preferred replicas (auto.leader.rebalance.enable)"
        case _:
            return "a reassignment goes on"
