"""``minikafka reassign verify``, ``cancel``, ``list`` and ``remove-throttles``: what became of plans.

Kafka: ``ReassignPartitionsCommand.verifyAssignment``, ``cancelAssignment``, ``clearAllThrottles``. As
there, a throttle is removed only when nothing moves in the whole cluster, and then from all brokers,
because it is not known which were involved; and from the topics of the plan. What else is set is stale: it is
named and left, because it may be wanted.

Throttles of reassignments: worked out, set, found and removed.

Kafka: ``ReassignPartitionsCommand.calculateProposedMoveMap``, ``modifyReassignmentThrottle``,
``clearAllThrottles`` (KIP-73, KIP-113). A throttle is a rate on brokers plus a list of replicas on topics: on
the leaders' side every replica that a partition has now (any of them may lead), on the followers' side those
that it gets.

A rate that is left on a broker when nothing moves any more is a trap: it does nothing until a replica falls
behind that is still in a list. So a throttle without a reassignment is called stale, and named.

A broker's own configurations are changed by asking that broker. One that is down keeps what it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from minikafka.cli.reassign.plan import Plan
from minikafka.cli.reassign.progress import Seen, describe_reassignment, ids, look, moving_rows
from minikafka.cli.shared.admin_client import RETRY_BACKOFF_S, AdminClient, broker_resource, topic_resource
from minikafka.cli.shared.commands import FAILURE, OK, CommandError, explain, format_bytes
from minikafka.config.definition import ConfigSource
from minikafka.config.resource import ConfigResource, ConfigResourceType
from minikafka.types import ReplicaAssignment, TopicPartition

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"

BROKER_CONFIGS = (LEADER_RATE, FOLLOWER_RATE, LOG_DIRS_RATE)
TOPIC_CONFIGS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)


class Throttle(NamedTuple):
    """One throttle property that is set."""

    resource: ConfigResource
    name: str
    value: str

    def __str__(self) -> str:
        kind = "topic" if self.resource.type == ConfigResourceType.TOPIC else "broker"
        whose = f"{kind} {self.resource.name}" if self.resource.name else "all brokers"
        return f"{whose}: {self.name}={self.value}"


class ReplicaMoves(NamedTuple):
    """Between which brokers one partition is copied."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]


def moves_of(
    planned: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
    under_way: Mapping[TopicPartition, ReplicaAssignment],
) -> dict[TopicPartition, ReplicaMoves]:
    """What moves once ``planned`` is under way too; ``current``: the replicas of what is planned now."""
    moves = {
        partition: ReplicaMoves(tuple(assignment.origin), tuple(assignment.adding))
        for partition, assignment in under_way.items()
    }
    for partition, replicas in planned.items():
        sources = moves[partition].sources if partition in moves else tuple(current[partition])
        targets = tuple(replica for replica in replicas if replica not in sources)
        moves[partition] = ReplicaMoves(sources, targets)
    return moves


def replica_lists(
    moves: Mapping[TopicPartition, ReplicaMoves],
) -> dict[ConfigResource, dict[str, str | None]]:
    """The topics' configurations: ``partition:broker`` lists for both sides."""
    topics: dict[str, dict[str, list[str]]] = {}
    for partition, (sources, targets) in sorted(moves.items()):
        lists = topics.setdefault(partition.topic, {name: [] for name in TOPIC_CONFIGS})
        lists[LEADER_REPLICAS] += [f"{partition.partition}:{broker}" for broker in sources]
        lists[FOLLOWER_REPLICAS] += [f"{partition.partition}:{broker}" for broker in targets]
    return {
        topic_resource(topic): {name: ",".join(replicas) for name, replicas in lists.items()}
        for topic, lists in topics.items()
    }


def brokers_of(moves: Mapping[TopicPartition, ReplicaMoves]) -> list[int]:
    """All brokers that send or receive, sorted."""
    return sorted({broker for move in moves.values() for broker in (*move.sources, *move.targets)})


async def set_throttle(
    admin: AdminClient, moves: Mapping[TopicPartition, ReplicaMoves], *, bytes_per_s: int
) -> list[int]:
    """Throttle what ``moves``. Returns brokers that are not there, and are not throttled when they come."""
    await admin.alter_configs(replica_lists(moves))
    rates: dict[str, str | None] = dict.fromkeys((LEADER_RATE, FOLLOWER_RATE), str(bytes_per_s))
    return await _set_on(admin, brokers_of(moves), rates)


async def set_log_dirs_throttle(admin: AdminClient, brokers: Iterable[int], *, bytes_per_s: int) -> list[int]:
    """Throttle moves between the directories of ``brokers``. Returns as ``set_throttle``."""
    return await _set_on(admin, sorted(set(brokers)), {LOG_DIRS_RATE: str(bytes_per_s)})


async def _set_on(admin: AdminClient, brokers: Sequence[int], rates: Mapping[str, str | None]) -> list[int]:
    live = (await admin.nodes()).brokers
    for node_id in brokers:
        if node_id in live:
            await admin.alter_configs({broker_resource(node_id): rates}, node_id=node_id)
    return [node_id for node_id in brokers if node_id not in live]


async def find_throttles(admin: AdminClient) -> list[Throttle]:
    """Every throttle that is set on a topic, or on a broker that is there."""
    topics = dict.fromkeys(partition.topic for partition in await admin.partitions())
    described = await admin.configs([topic_resource(topic) for topic in topics], TOPIC_CONFIGS)
    for node_id in (await admin.nodes()).brokers:
        described |= await admin.configs([broker_resource(node_id)], BROKER_CONFIGS, node_id=node_id)
    found = []
    for resource, values in described.items():
        for name, value in values.items():
            if value.is_set and value.value:
                for_all = value.source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
                found.append(Throttle(broker_resource(None) if for_all else resource, name, value.value))
    return list(dict.fromkeys(found))


async def remove_throttles(admin: AdminClient, throttles: Iterable[Throttle]) -> None:
    """Remove each of ``throttles``."""
    changes: dict[ConfigResource, dict[str, str | None]] = {}
    for throttle in throttles:
        changes.setdefault(throttle.resource, {})[throttle.name] = None
    topics = {each: names for each, names in changes.items() if each.type == ConfigResourceType.TOPIC}
    await admin.alter_configs(topics)
    for resource, names in changes.items():
        if resource.type == ConfigResourceType.BROKER:
            node_id = int(resource.name) if resource.name else None
            await admin.alter_configs({resource: names}, node_id=node_id)


async def verify(admin: AdminClient, plan: Plan, *, preserve_throttles: bool) -> int:
    """Say of each partition of ``plan`` where it is, and see to the throttles. Returns the exit status: 0
    when everything is where it is to be."""
    seen = await look(admin, plan, everywhere=False)
    print("Status of partition reassignment:")
    status = report(plan, seen, done_too=True)
    await settle_throttles(admin, topics_of(plan), preserve=preserve_throttles)
    return status


def report(plan: Plan, seen: Seen, *, done_too: bool) -> int:
    """A line for each partition and directory that is not (or, ``done_too``, that is) as planned."""
    status = OK
    for planned in sorted(plan):
        is_done, line = _partition_line(planned.partition, planned.replicas, seen)
        if done_too or not is_done:
            print(line)
        status = status if is_done else FAILURE
    for (partition, broker), move in sorted(seen.dir_moves.items()):
        if move.is_done:
            line = f"Replica {partition} on broker {broker} is in {move.path}."
        elif move.is_under_way:
            line = (
                f"Replica {partition} on broker {broker} is still being moved "
                f"from {move.now} to {move.path}, {format_bytes(move.left_bytes or 0)} left."
            )
        else:
            where = f"is in {move.now}" if move.now else "cannot be found"
            line = f"Replica {partition} on broker {broker} {where}, and is not being moved to {move.path}."
        if done_too or not move.is_done:
            print(line)
        status = status if move.is_done else FAILURE
    return status


def _partition_line(partition: TopicPartition, replicas: Sequence[int], seen: Seen) -> tuple[bool, str]:
    if partition in seen.under_way:
        left = seen.left_bytes.get(partition)
        text = f"Reassignment of partition {partition} is still in progress: "
        text += describe_reassignment(seen, partition)
        return False, text + (f", {format_bytes(left)} left." if left is not None else ".")
    now = seen.partitions.get(partition)
    if now is None:
        return False, f"There is no partition {partition}."
    if now.replicas == tuple(replicas):
        return True, f"Reassignment of partition {partition} is completed."
    return False, (
        f"There is no active reassignment of partition {partition}, "
        f"but replica set is {ids(now.replicas)} rather than {ids(replicas)}."
    )


async def settle_throttles(admin: AdminClient, topics: set[str], *, preserve: bool) -> None:
    """Remove the throttle of ``topics`` if nothing moves any more; name what is kept, and why."""
    throttles = await find_throttles(admin)
    if not throttles:
        return
    everything = await look(admin, [], everywhere=True)
    if not everything.is_quiet:
        count = len(moving_rows(everything, None))
        print(
            f"{count} {'is' if count == 1 else 'are'} still moving in the cluster, so the throttle is kept; "
            "`minikafka reassign verify` removes it when all is done."
        )
        return
    mine = [
        each
        for each in throttles
        if each.resource.type == ConfigResourceType.BROKER or each.resource.name in topics
    ]
    if not preserve and mine:
        await remove_throttles(admin, mine)
        brokers = [each.resource.name for each in mine if each.resource.type == ConfigResourceType.BROKER]
        whose = [
            f"brokers {', '.join(dict.fromkeys(name or '(all)' for name in brokers))}" if brokers else "",
            f"topics {', '.join(sorted(topics))}" if len(mine) > len(brokers) else "",
        ]
        print(f"Removed the throttle of {' and '.join(filter(None, whose))}.")
        throttles = [each for each in throttles if each not in mine]
    name_stale(throttles)


def topics_of(plan: Plan) -> set[str]:
    return {each.partition.topic for each in plan}


def name_stale(throttles: Sequence[Throttle]) -> None:
    """Throttles although nothing moves."""
    if throttles:
        print("Stale: nothing is being reassigned, and yet there is a throttle:")
        _print_throttles(throttles)
        print("`minikafka reassign remove-throttles` removes what is stale.")


def _print_throttles(throttles: Sequence[Throttle]) -> None:
    for throttle in throttles:
        print(f"  {throttle}")


async def remove_all_throttles(admin: AdminClient) -> int:
    """Remove every throttle there is. What moves continues at full speed."""
    throttles = await find_throttles(admin)
    await remove_throttles(admin, throttles)
    print("Removed:" if throttles else "There is no throttle.")
    _print_throttles(throttles)
    return OK


async def list_moves(admin: AdminClient) -> int:
    """Everything that moves now."""
    seen = await look(admin, [], everywhere=True)
    rows = moving_rows(seen, None)
    print("Current partition reassignments:" if rows else "No partition reassignments found.")
    for name, what, left in rows:
        print(f"{name}: {what}{'' if left is None else f', {format_bytes(left)} left'}")
    if not rows:
        name_stale(await find_throttles(admin))
    return OK


async def cancel(admin: AdminClient, plan: Plan | None, *, preserve_throttles: bool) -> int:
    """Take back what of ``plan`` (None: of everything) is under way. Returns when it is back."""
    seen = await look(admin, plan or [], everywhere=plan is None)
    mine = None if plan is None else {each.partition for each in plan}
    active = [each for each in seen.under_way if mine is None or each in mine]
    dirs = {key: move for key, move in seen.dir_moves.items() if move.is_under_way}
    if not active and not dirs:
        print("None of the specified partition reassignments are active.")
    if active:
        refused = await admin.reassign(dict.fromkeys(active))
        if refused:
            lines = "".join(f"\n  {each}: {explain(error)}" for each, error in sorted(refused.items()))
            raise CommandError(f"the cluster refused to cancel{lines}")
        await _until_gone(admin, active)
        print(f"Successfully cancelled partition reassignment{'s' * (len(active) > 1)} for: {_names(active)}")
    for (partition, broker), move in dirs.items():
        errors = await admin.move_between_dirs(broker, {partition: move.now or ""})
        if errors:
            raise CommandError(f"{partition} on broker {broker}: {explain(errors[partition])}")
        print(f"Replica {partition} on broker {broker} is kept in {move.now}.")
    topics = {each.topic for each in (*active, *(each for each, _ in dirs))} | topics_of(plan or [])
    await settle_throttles(admin, topics, preserve=preserve_throttles)
    return OK


async def _until_gone(admin: AdminClient, partitions: Sequence[TopicPartition]) -> None:
    """Raises CommandError: the controller has not taken them back in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + admin.timeout_ms / 1000
    while left := [each for each in await admin.reassignments() if each in partitions]:
        if loop.time() >= deadline:
            raise CommandError(f"cancelled, but not rolled back within {admin.timeout_ms} ms: {_names(left)}")
        await asyncio.sleep(RETRY_BACKOFF_S)


def _names(partitions: Sequence[TopicPartition]) -> str:
    return ",".join(map(str, partitions))
