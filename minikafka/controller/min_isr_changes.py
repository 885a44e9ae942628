"""What a lower ``min.insync.replicas`` takes from the replicas that waited outside of the ISR (KIP-966).

Kafka: ``ReplicationControlManager`` of KRaft, which clears the eligible replicas when the setting changes.
While the ISR was below the old minimum they held all that was committed. From now on the ISR alone is enough
to commit, and what it commits they lack: they must not be eligible again when somebody raises the minimum
later. Where nobody leads nothing is committed, so there they stay.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from minikafka.controller.effects import Step, VersionedState
from minikafka.controller.leader_election import same_leader
from minikafka.controller.machines import Machines
from minikafka.controller.request_batch import ControllerBrokerRequestBatch
from minikafka.controller.store_access import read_election_configs, read_states, write_states
from minikafka.types import NO_LEADER, TopicPartition


def min_isr_change(machines: Machines, topic: str) -> Step[None]:
    """``min.insync.replicas`` of a topic has changed."""
    context = machines.context
    if topic not in context.topics or context.is_to_be_deleted(topic):
        return
    batch = ControllerBrokerRequestBatch(context)
    partitions: Collection[TopicPartition] = context.topics[topic].partitions
    while partitions:
        partitions = yield from _clear_eligible(machines, partitions, batch)
    yield from batch.send()


def _clear_eligible(
    machines: Machines, partitions: Collection[TopicPartition], batch: ControllerBrokerRequestBatch
) -> Step[list[TopicPartition]]:
    """Returns those whose state somebody else has written in the meantime."""
    context = machines.context
    current = yield from read_states(partitions)
    configs = yield from read_election_configs(each.topic for each in current)
    changed: dict[TopicPartition, VersionedState] = {}
    for each, versioned in current.items():
        state = versioned.state
        if (
            state.eligible
            and state.leader != NO_LEADER
            and len(state.isr) >= configs[each.topic].min_insync_replicas
            and state.controller_epoch <= context.epoch
        ):
            cleared = msgspec.structs.replace(same_leader(state), eligible=(), controller_epoch=context.epoch)
            changed[each] = VersionedState(cleared, versioned.version)
    versions = yield from write_states(changed)
    for each, version in versions.items():
        context.leadership[each] = VersionedState(changed[each].state, version)
        batch.add_leader_and_isr(context.online_replicas(each), each)
    return [each for each in changed if each not in versions]
