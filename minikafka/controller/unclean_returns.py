"""Brokers that come back from an unclean stop: what they held counts less from then on (KIP-966).

Kafka: ``ReplicationControlManager.handleUncleanBrokerShutdown`` of KRaft. A process that was killed has lost
nothing, a machine that lost power may have; a broker cannot tell them apart, and so neither does anybody
else.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

import msgspec

from minikafka.controller.effects import Step, VersionedState
from minikafka.controller.leader_election import after_unclean_return
from minikafka.controller.machines import Machines
from minikafka.controller.request_batch import ControllerBrokerRequestBatch
from minikafka.controller.states import PartitionStatus
from minikafka.controller.store_access import read_states, write_states
from minikafka.types import NO_LEADER, BrokerId, PartitionState, TopicPartition, joined

_log = logging.getLogger(__name__)


def distrust_unclean_returns(machines: Machines, returned: Collection[BrokerId]) -> Step[None]:
    """Of ``returned``, those whose stop was not clean are eligible no more; see ``after_unclean_return``."""
    context = machines.context
    unclean = [broker for broker in returned if not context.brokers[broker].clean_start]
    affected = [
        each
        for each, current in context.leadership.items()
        if _after(current.state, unclean) is not None and not context.is_to_be_deleted(each.topic)
    ]
    batch = ControllerBrokerRequestBatch(context)
    while affected:
        affected = yield from _rewrite(machines, affected, unclean, batch)
    yield from batch.send()


def _rewrite(
    machines: Machines,
    partitions: Collection[TopicPartition],
    unclean: Collection[BrokerId],
    batch: ControllerBrokerRequestBatch,
) -> Step[list[TopicPartition]]:
    """Returns those whose state somebody else has written in the meantime."""
    context = machines.context
    current = yield from read_states(partitions)
    changed: dict[TopicPartition, VersionedState] = {}
    for each, versioned in current.items():
        state = _after(versioned.state, unclean)
        if state is not None and versioned.state.controller_epoch <= context.epoch:
            state = msgspec.structs.replace(state, controller_epoch=context.epoch)
            changed[each] = VersionedState(state, versioned.version)
    versions = yield from write_states(changed)
    for each, version in versions.items():
        state = changed[each].state
        _log.info("%s: brokers %s are back after an unclean stop: %s", each, joined(unclean), state)
        context.leadership[each] = VersionedState(state, version)
        if state.leader == NO_LEADER:
            machines.partitions.change([each], PartitionStatus.OFFLINE)
        else:
            told = [broker for broker in context.online_replicas(each) if broker not in unclean]
            batch.add_leader_and_isr(told, each)
    return [each for each in changed if each not in versions]


def _after(state: PartitionState, unclean: Collection[BrokerId]) -> PartitionState | None:
    changed = None
    for broker in unclean:
        after = after_unclean_return(changed or state, broker)
        changed = after or changed
    return changed
