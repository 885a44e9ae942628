"""What a step of the controller has decided, for the flight recorder: it sees the effects go by.

Elections and ISRs are recorded when their write has succeeded, with what the controller was dealing with as
their cause. A step that has written nothing and sent nothing is not recorded; most answers and periodic looks
are of that kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minikafka.controller import effects, events
from minikafka.controller.context import ControllerContext
from minikafka.controller.effects import Effect, VersionedState
from minikafka.controller.events import Event
from minikafka.flight_recorder import ControllerStep, IsrChanged, LeaderElected, Record
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.types import NO_LEADER, BrokerId, ElectionType, PartitionState, TopicPartition, joined


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
