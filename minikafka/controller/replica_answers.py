"""What brokers answer: replicas on lost log directories, and replicas that are deleted.

Kafka: ``KafkaController.processLeaderAndIsrResponseReceived``,
``processTopicDeletionStopReplicaResponseReceived``, ``processLogDirEventNotification``.

A broker that loses a log directory announces that, not what lay in it. It is told again what it has, with a
LeaderAndIsr, and answers KAFKA_STORAGE_ERROR for what it has no more (KIP-112).

An answer of an earlier incarnation of a broker says nothing about the one that is registered.

What is answered about replicas that are none any more, because a reassignment has removed them, says nothing
either: nobody waits for it.

Where it differs from Kafka: a replica that is answered for without an error after it was lost is ONLINE
again at once; Kafka waits for the broker's restart. Only replicas that are ONLINE or NEW are asked about,
Kafka asks about all that are not NEW: the others are known to be lost, or are being stopped or deleted.
"""

from __future__ import annotations

import logging

from minikafka.controller.broker_changes import replicas_become_offline, replicas_become_online
from minikafka.controller.effects import Step
from minikafka.controller.events import LeaderAndIsrAnswered, StopReplicaAnswered
from minikafka.controller.machines import Machines
from minikafka.controller.request_batch import ControllerBrokerRequestBatch
from minikafka.controller.states import ReplicaStatus
from minikafka.controller.store_access import take_log_dir_events
from minikafka.errors import ErrorCode
from minikafka.protocol.control.messages import EPOCH_DURING_DELETE
from minikafka.types import TopicPartition, joined

_log = logging.getLogger(__name__)


def log_dir_event_notification(machines: Machines) -> Step[None]:
    """Brokers have lost log directories."""
    context = machines.context
    brokers = [broker for broker in (yield from take_log_dir_events()) if broker in context.brokers]
    asked = {
        broker: [
            each
            for each, status in context.replica_status[broker].items()
            if status in (ReplicaStatus.ONLINE, ReplicaStatus.NEW)
        ]
        for broker in brokers
    }
    if asked:
        _log.warning("log directories went offline on brokers %s", joined(brokers))
        batch = ControllerBrokerRequestBatch(context)
        for broker, partitions in asked.items():
            for each in partitions:
                if each in context.leadership:
                    batch.add_leader_and_isr([broker], each)
        yield from batch.send()


def leader_and_isr_answered(machines: Machines, answer: LeaderAndIsrAnswered) -> Step[None]:
    """Replicas are lost, or found again."""
    context, broker = machines.context, answer.broker_id
    if not context.is_current(broker, answer.broker_epoch):
        return
    if answer.response.error_code != ErrorCode.NONE:
        code = ErrorCode(answer.response.error_code)
        _log.error("broker %d answers %s to LeaderAndIsr", broker, code.name)
        return
    known = context.replica_status[broker]
    were_lost = context.replicas_on_offline_dirs.setdefault(broker, set())
    lost, found = [], []
    for topic, partition, error_code in answer.response.partitions:
        topic_partition = TopicPartition(topic, partition)
        if topic_partition in known:
            if error_code == ErrorCode.KAFKA_STORAGE_ERROR and topic_partition not in were_lost:
                lost.append(topic_partition)
            elif error_code == ErrorCode.NONE and topic_partition in were_lost:
                found.append(topic_partition)
    were_lost.update(lost)
    were_lost.difference_update(found)
    if lost:
        _log.warning("broker %d has lost %d replicas with a log directory", broker, len(lost))
        yield from replicas_become_offline(machines, {broker: lost})
    if found and context.is_live(broker):
        yield from replicas_become_online(machines, {broker: found})


def stop_replica_answered(machines: Machines, answer: StopReplicaAnswered) -> Step[None]:
    """Replicas of topics that are being deleted are deleted, or could not be."""
    context, broker = machines.context, answer.broker_id
    if not context.is_current(broker, answer.broker_epoch):
        return
    statuses = context.replica_status[broker]
    asked = [
        TopicPartition(each.topic, each.partition)
        for each in answer.asked
        if each.delete and each.leader_epoch == EPOCH_DURING_DELETE  # else a reassignment has removed it
    ]
    waiting = [each for each in asked if statuses.get(each) is ReplicaStatus.DELETION_STARTED]
    errors = {
        TopicPartition(topic, partition): error_code
        for topic, partition, error_code in answer.response.partitions
    }
    if answer.response.error_code != ErrorCode.NONE:
        code = ErrorCode(answer.response.error_code)
        _log.error("broker %d answers %s to StopReplica", broker, code.name)
        errors = dict.fromkeys(waiting, answer.response.error_code)
    failed = [each for each in waiting if errors.get(each, ErrorCode.NONE) != ErrorCode.NONE]
    deleted = [each for each in waiting if errors.get(each) == ErrorCode.NONE]
    if failed:
        yield from machines.deletions.fail({broker: failed})
    if deleted:
        yield from machines.deletions.complete({broker: deleted})
