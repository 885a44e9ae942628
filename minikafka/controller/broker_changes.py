"""Brokers come, go, come back (also from an unclean stop), or tell new addresses.

Kafka: ``KafkaController.processBrokerChange``, ``onBrokerStartup``, ``onBrokerFailure``,
``onReplicasBecomeOffline``, ``processBrokerModification``.

What is registered is compared with what is known, by id and epoch (KIP-380): a broker with a new epoch has
died and come back, though it was never seen away. It fails first and starts then.

Where it differs from Kafka:
- Those that are gone are not live any more from the beginning of the step, so they are not elected.
- Endpoints and racks are compared here, because one watch tells of both.
- A partition whose ISR has grown between its election, which failed, and the removal of its leader is elected
  once more, where Kafka leaves it without a leader until something else happens.
- A reassignment that waits for a broker is looked at when it comes, but not begun again: its leader knows of
  it, and the broker hears of it with all that it has.

**After an unclean stop** what a broker held counts less (KIP-966). Kafka:
``ReplicationControlManager.handleUncleanBrokerShutdown`` of KRaft. A process that was killed has lost
nothing, a machine that lost power may have; a broker cannot tell them apart, and so the controller does not.
They leave the ISRs and are eligible no more, and where no other is left, the partition waits for its last
known leader. Where it differs: Kafka marks that election as unclean (the leader has to recover, KIP-704).
Here it is one from the ISR, which never becomes empty.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

import msgspec

from minikafka.controller.context import ControllerContext, PartitionStatus, Replicas, ReplicaStatus
from minikafka.controller.effects import Step, VersionedState, read_brokers, read_states, write_states
from minikafka.controller.machines import Machines
from minikafka.controller.partition_state_machine import (
    ElectionStrategy,
    after_unclean_shutdown,
    known_brokers_only,
)
from minikafka.controller.reassignment import finish_caught_up
from minikafka.controller.request_batch import ControllerBrokerRequestBatch
from minikafka.types import NO_LEADER, BrokerId, PartitionState, TopicPartition, joined

_log = logging.getLogger(__name__)


def handle_unclean_shutdowns(
    machines: Machines,
    returned: Mapping[TopicPartition, Collection[BrokerId]],
    *,
    announce: bool = True,
) -> Step[None]:
    """``returned`` replicas have stopped uncleanly: they are in sync and eligible no more; see
    ``after_unclean_shutdown``. Without ``announce`` no broker is told: the caller tells them all."""
    context = machines.context
    affected = [
        each
        for each, brokers in returned.items()
        if each in context.leadership
        and after_unclean_shutdown(context.leadership[each].state, brokers) is not None
        and not context.is_to_be_deleted(each.topic)
    ]
    batch = ControllerBrokerRequestBatch(context)
    while affected:
        affected = yield from _rewrite(machines, {each: returned[each] for each in affected}, batch)
    if announce:
        yield from batch.send()


def _rewrite(
    machines: Machines,
    returned: Mapping[TopicPartition, Collection[BrokerId]],
    batch: ControllerBrokerRequestBatch,
) -> Step[list[TopicPartition]]:
    """Returns those whose state another writer has changed in the meantime."""
    context = machines.context
    current = yield from read_states(returned)
    changed: dict[TopicPartition, VersionedState] = {}
    for each, versioned in current.items():
        before = known_brokers_only(versioned.state, context.assignments[each].replicas)
        state = after_unclean_shutdown(before, returned[each])
        if state is not None and versioned.state.controller_epoch <= context.epoch:
            state = msgspec.structs.replace(state, controller_epoch=context.epoch)
            changed[each] = VersionedState(state, versioned.version)
    versions = yield from write_states(changed)
    for each, version in versions.items():
        state = changed[each].state
        _log_distrust(each, returned[each], current[each].state, state)
        context.leadership[each] = VersionedState(state, version)
        if state.leader == NO_LEADER:
            machines.partitions.change([each], PartitionStatus.OFFLINE)
        else:
            told = [broker for broker in context.online_replicas(each) if broker not in returned[each]]
            batch.add_leader_and_isr(told, each)
    return [each for each in changed if each not in versions]


def _log_distrust(
    topic_partition: TopicPartition,
    returned: Collection[BrokerId],
    before: PartitionState,
    after: PartitionState,
) -> None:
    text = f"{topic_partition}: brokers {joined(returned)} are back after an unclean shutdown: {after}"
    if set(returned).issuperset((*before.isr, *before.eligible)):
        _log.warning("%s; no replica is sure to hold all that was committed", text)
    else:
        _log.info("%s", text)


def broker_change(machines: Machines) -> Step[None]:
    """Something under ``/brokers/ids`` has changed."""
    context = machines.context
    registered = yield from read_brokers()
    known = dict(context.brokers)
    new = {each: broker for each, broker in registered.items() if each not in known}
    dead = [each for each in known if each not in registered]
    bounced = {
        each: broker
        for each, broker in registered.items()
        if each in known and broker.epoch != known[each].epoch
    }
    modified = [
        each
        for each, broker in registered.items()
        if each in known and each not in bounced and broker != known[each]
    ]
    _forget(context, dead)
    context.brokers.update({each: registered[each] for each in modified})
    unclean = [each for each, broker in (new | bounced).items() if not broker.clean_start]
    if unclean:  # before anything else is written, which would make them look as if they had come before it
        yield from handle_unclean_shutdowns(machines, dict.fromkeys(context.leadership, unclean))
    if new:
        context.brokers.update(new)
        yield from _broker_startup(machines, sorted(new))
    if bounced:
        _forget(context, bounced)
        yield from _broker_failure(machines, sorted(bounced))
        context.brokers.update(bounced)
        yield from _broker_startup(machines, sorted(bounced))
    if dead:
        yield from _broker_failure(machines, sorted(dead))
    elif modified and not new and not bounced:
        yield from machines.send_update_metadata(context.brokers)


def _forget(context: ControllerContext, brokers: Collection[BrokerId]) -> None:
    for broker in brokers:
        del context.brokers[broker]
        context.shutting_down.discard(broker)
        context.replicas_on_offline_dirs.pop(broker, None)


def _broker_startup(machines: Machines, started: Collection[BrokerId]) -> Step[None]:
    """``started`` are live, and know nothing yet."""
    context = machines.context
    _log.info("new brokers: %s", joined(started))
    existing = [broker for broker in context.brokers if broker not in started]
    yield from machines.send_update_metadata(existing)
    yield from machines.send_update_metadata(
        started, machines.partitions_to_show(), is_full=context.is_complete
    )
    yield from replicas_become_online(machines, context.replicas_on(started), full_for=started)


def replicas_become_online(
    machines: Machines, replicas: Replicas, *, full_for: Collection[BrokerId] = ()
) -> Step[None]:
    """Replicas are there (again): they hear what to do, may be elected, may be what a reassignment has waited
    for, or can be deleted at last.

    ``full_for`` are brokers of which these are all replicas.
    """
    context = machines.context
    undeleted = {
        broker: [
            each
            for each in partitions
            if context.replica_status[broker][each] is not ReplicaStatus.DELETION_SUCCESSFUL
        ]
        for broker, partitions in replicas.items()
    }
    yield from machines.replicas.change(undeleted, ReplicaStatus.ONLINE, full_for=full_for)
    yield from machines.partitions.trigger_online_state_change()
    yield from finish_caught_up(machines, _targets_on(context, undeleted))
    to_be_deleted = [
        topic
        for topic in dict.fromkeys(each.topic for partitions in undeleted.values() for each in partitions)
        if context.is_to_be_deleted(topic)
    ]
    if to_be_deleted:
        yield from machines.deletions.resume_for(to_be_deleted)


def _targets_on(context: ControllerContext, brokers: Collection[BrokerId]) -> list[TopicPartition]:
    """The partitions that are being reassigned to ``brokers``, or stay there."""
    return [
        each
        for each in context.being_reassigned
        if any(broker in brokers for broker in context.assignments[each].target)
    ]


def _broker_failure(machines: Machines, failed: Collection[BrokerId]) -> Step[None]:
    """``failed`` are not live any more."""
    _log.info("brokers %s are gone", list(failed))
    yield from replicas_become_offline(machines, machines.context.replicas_on(failed))


def replicas_become_offline(machines: Machines, replicas: Replicas) -> Step[None]:
    """Replicas are away, with their brokers or their log directories: others lead, the ISRs shrink."""
    context = machines.context
    staying, to_be_deleted = _split_by_deletion(context, replicas)
    leaderless = [
        each
        for each in context.leadership
        if context.has_offline_leader(each) and not context.is_to_be_deleted(each.topic)
    ]
    machines.partitions.change(leaderless, PartitionStatus.OFFLINE)
    changes = yield from machines.partitions.trigger_online_state_change()
    yield from machines.replicas.change(staying, ReplicaStatus.OFFLINE, just_elected=changes.elected)
    yield from _elect_from_last_isrs(machines, [each for each in leaderless if each not in changes.elected])
    if to_be_deleted:
        yield from machines.deletions.fail(to_be_deleted)
    if not staying and not changes.elected:
        yield from machines.send_update_metadata(context.brokers)  # no broker has heard who is gone


def _elect_from_last_isrs(machines: Machines, leaderless: Collection[TopicPartition]) -> Step[None]:
    """A leader may have expanded its ISR just before it died, after no leader could be elected."""
    context = machines.context
    electable = [
        each
        for each in leaderless
        if any(context.is_online(member, each) for member in context.leadership[each].state.isr)
    ]
    if electable:
        yield from machines.partitions.elect(electable, ElectionStrategy.OFFLINE)


def _split_by_deletion(
    context: ControllerContext, replicas: Replicas
) -> tuple[dict[BrokerId, list[TopicPartition]], dict[BrokerId, list[TopicPartition]]]:
    """Those that stay, and those of topics to be deleted."""
    staying: dict[BrokerId, list[TopicPartition]] = {}
    to_be_deleted: dict[BrokerId, list[TopicPartition]] = {}
    for broker, partitions in replicas.items():
        for each in partitions:
            side = to_be_deleted if context.is_to_be_deleted(each.topic) else staying
            side.setdefault(broker, []).append(each)
    return staying, to_be_deleted
