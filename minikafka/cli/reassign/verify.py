"""``minikafka reassign verify``, ``cancel``, ``list`` and ``remove-throttles``: what became of plans.

Kafka: ``ReassignPartitionsCommand.verifyAssignment``, ``cancelAssignment``, ``clearAllThrottles``. As
there, a throttle is removed only when nothing moves in the whole cluster, and then from all brokers,
because nobody knows which were involved; and from the topics of the plan. What else is set is stale: it is
named and left, because somebody may have wanted it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from minikafka.cli.reassign.plan import Plan
from minikafka.cli.reassign.progress import Seen, describe_reassignment, ids, look, moving_rows
from minikafka.cli.reassign.throttle import Throttle, find_throttles, remove_throttles
from minikafka.cli.shared.admin_client import RETRY_BACKOFF_S, AdminClient
from minikafka.cli.shared.commands import FAILURE, OK, CommandError, explain
from minikafka.cli.shared.quantities import format_bytes
from minikafka.config.resource import ConfigResourceType
from minikafka.types import TopicPartition


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
    """Remove the throttle of ``topics`` if nothing moves any more; name what stays, and why."""
    throttles = await find_throttles(admin)
    if not throttles:
        return
    everything = await look(admin, [], everywhere=True)
    if not everything.is_quiet:
        count = len(moving_rows(everything, None))
        print(
            f"{count} {'is' if count == 1 else 'are'} still moving in the cluster, so the throttle stays; "
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
    """Remove every throttle there is. What moves goes on at full speed."""
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
        print(f"Replica {partition} on broker {broker} stays in {move.now}.")
    topics = {each.topic for each in (*active, *(each for each, _ in dirs))} | topics_of(plan or [])
    await settle_throttles(admin, topics, preserve=preserve_throttles)
    return OK


async def _until_gone(admin: AdminClient, partitions: Sequence[TopicPartition]) -> None:
    """Raises CommandError: the controller has not taken them back in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + admin.timeout_ms / 1000
    while left := [each for each in await admin.reassignments() if each in partitions]:
        if loop.time() >= deadline:
            raise CommandError(f"cancelled, but not taken back within {admin.timeout_ms} ms: {_names(left)}")
        await asyncio.sleep(RETRY_BACKOFF_S)


def _names(partitions: Sequence[TopicPartition]) -> str:
    return ",".join(map(str, partitions))
