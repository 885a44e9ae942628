"""A broker that is about to stop has its partitions led by others first.

Kafka: ``KafkaController.doControlledShutdown``. Where the broker leads, another member of the ISR does. It
follows nothing any more and leaves the ISRs. From now on, until it registers anew, it is elected nowhere.
A partition without another replica, or whose topic is being deleted, has nobody else and is not counted among
what remains.

Where it differs from Kafka: followers are told to stop once, with their leaving of the ISR; Kafka tells them
before as well. Where another broker leads now, the replica goes OFFLINE at once. In Kafka it follows the new
leader until its process ends, may be in the ISR again by then, and producers wait until it is out for the
second time. A broker epoch that is not the registered one is refused, whichever of both is older.
"""

from __future__ import annotations

import logging

from minikafka.controller.context import ControllerContext
from minikafka.controller.effects import Step
from minikafka.controller.machines import Machines
from minikafka.controller.partition_state_machine import ElectionStrategy
from minikafka.controller.states import ReplicaStatus
from minikafka.errors import ErrorCode
from minikafka.protocol.control.messages import ControlledShutdownResponse
from minikafka.types import BrokerId, TopicPartition

_log = logging.getLogger(__name__)


def controlled_shutdown(
    machines: Machines, broker: BrokerId, broker_epoch: int
) -> Step[ControlledShutdownResponse]:
    """Returns BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH, or the partitions that ``broker`` leads still."""
    context = machines.context
    if broker not in context.brokers:
        return ControlledShutdownResponse(ErrorCode.BROKER_NOT_AVAILABLE)
    if not context.is_current(broker, broker_epoch):
        return ControlledShutdownResponse(ErrorCode.STALE_BROKER_EPOCH)
    _log.info("broker %d shuts down", broker)
    context.shutting_down.add(broker)
    led = [each for each in context.led_by(broker) if _has_to_move(context, each)]
    followed = [
        each
        for each in context.replicas_on([broker])[broker]
        if _has_to_move(context, each) and context.leadership[each].state.leader != broker
    ]
    moved = (yield from machines.partitions.elect(led, ElectionStrategy.CONTROLLED_SHUTDOWN)).elected
    yield from machines.replicas.change(
        {broker: [*moved, *followed]}, ReplicaStatus.OFFLINE, just_elected=moved
    )
    remaining = tuple(each for each in context.led_by(broker) if _has_to_move(context, each))
    return ControlledShutdownResponse(ErrorCode.NONE, remaining)


def _has_to_move(context: ControllerContext, topic_partition: TopicPartition) -> bool:
    return (
        len(context.assignments[topic_partition].replicas) > 1
        and topic_partition in context.leadership
        and not context.is_to_be_deleted(topic_partition.topic)
    )
