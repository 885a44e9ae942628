"""What a step of the controller decides is recorded when it is written, with what the step was for."""

from __future__ import annotations

import pytest

from minikafka.controller import effects, events
from minikafka.controller.context import ControllerContext
from minikafka.controller.effects import VersionedState
from minikafka.flight_recorder import ControllerStep, Event, IsrChanged, LeaderElected
from minikafka.protocol.control import LiveBroker
from minikafka.server.controller.loop import StepRecorder, cause_of
from minikafka.types import BrokerId, ElectionType, LeaderEpoch, PartitionState, TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def state(leader: int, epoch: int, *isr: int) -> VersionedState:
    members = tuple(map(BrokerId, isr))
    return VersionedState(PartitionState(BrokerId(leader), LeaderEpoch(epoch), members, 1), 7)


def brokers(*ids: BrokerId) -> dict[BrokerId, LiveBroker]:
    return {each: LiveBroker(each, 1, ()) for each in ids}


@pytest.fixture
def context() -> ControllerContext:
    context = ControllerContext(1)
    context.brokers = brokers(ONE, TWO, THREE)
    context.leadership = {A0: state(1, 4, 1, 2), A1: state(2, 6, 1, 2)}
    return context


async def recorded(
    context: ControllerContext, event: events.Event, *performed: tuple[effects.Effect, object]
) -> list[Event]:
    found: list[Event] = []
    recorder = StepRecorder(found.append, event, context)
    for effect, result in performed:
        await recorder.performed(effect, result, context)
    recorder.ended("LeaderElection", 3_000_000)
    return found


async def test_a_broker_that_goes_is_the_cause_of_its_elections(context: ControllerContext) -> None:
    wanted = {A0: state(2, 5, 2), A1: state(2, 7, 2)}
    election, isr, step = await recorded(
        context,
        events.BrokersChanged(),
        (effects.ReadBrokers(), brokers(TWO, THREE)),
        (effects.WritePartitionStates(wanted), {A0: 8, A1: 8}),
        (effects.SendUpdateMetadata((TWO, THREE), (), ()), None),
    )
    assert isinstance(election, LeaderElected) and isinstance(isr, IsrChanged)
    assert election.text == "leader 2 after 1 in epoch 5, ISR 2: broker 1 is gone"
    assert isr.text == "ISR 2 after 1,2: the controller: broker 1 is gone"
    assert step == ControllerStep(
        step="LeaderElection", duration_ms=3, states_written=2, requests=2, cause="broker 1 is gone"
    )


async def test_what_could_not_be_written_was_not_decided(context: ControllerContext) -> None:
    wanted = effects.WritePartitionStates({A0: state(2, 5, 2)})
    assert await recorded(context, events.BrokersChanged(), (wanted, {})) == []


async def test_a_leader_from_outside_of_the_isr_is_unclean(context: ControllerContext) -> None:
    event = events.LeaderElectionsAsked((A0,), ElectionType.UNCLEAN)
    wanted = effects.WritePartitionStates({A0: state(3, 5, 3), A1: state(-1, 7, 1, 2)})
    unclean, offline, _ = await recorded(context, event, (wanted, {A0: 8, A1: 8}))
    assert isinstance(unclean, LeaderElected) and unclean.is_unclean
    assert unclean.text.endswith("unclean: committed records may be lost: an unclean election was asked for")
    assert isinstance(offline, LeaderElected) and not offline.is_unclean
    assert offline.text.startswith("no leader after 2 in epoch 7")


async def test_the_first_leader_of_a_partition(context: ControllerContext) -> None:
    wanted = effects.CreatePartitionStates({A0: state(1, 0, 1, 2).state})
    election, _ = await recorded(context, events.TopicsChanged(), (wanted, {A0: 0}))
    assert isinstance(election, LeaderElected)
    assert (election.previous_leader, election.cause) == (-1, "the partition is new")


async def test_a_step_that_changes_nothing_is_not_recorded(context: ControllerContext) -> None:
    event = events.LeaderRebalanceDue(10)
    assert await recorded(context, event, (effects.ReadTopics(), ["a"])) == []


def test_every_event_is_a_cause() -> None:
    assert cause_of(events.ControlledShutdownAsked(TWO, 5)) == "broker 2 shuts down"
    assert cause_of(events.ReassignmentIsrChanged(A0)) == "a reassignment goes on"
