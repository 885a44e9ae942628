"""Which tasks the members of a streams group shall have. Kafka: ``TaskAssignor``, ``StickyTaskAssignor``.

Active tasks are shared out evenly, and stay where they are as far as that allows.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from minikafka.coordinator.group.environment import StreamsGroupSettings
from minikafka.coordinator.group.streams.configured_topology import ConfiguredTopology
from minikafka.coordinator.group.streams.tasks import Tasks


class MemberSpec(msgspec.Struct, frozen=True, kw_only=True):
    """``tasks`` is its target until now; offsets are by subtopology and partition."""

    instance_id: str | None
    rack_id: str | None
    process_id: str
    client_tags: Mapping[str, str]
    tasks: Tasks
    task_offsets: Mapping[str, Mapping[int, int]]
    task_end_offsets: Mapping[str, Mapping[int, int]]


def assign(
    members: Mapping[str, MemberSpec], topology: ConfiguredTopology, settings: StreamsGroupSettings
) -> dict[str, Tasks]:
    """The tasks of each member; ``topology`` has all its topics."""
    if not members:
        return {}
    left = {
        (subtopology_id, number)
        for subtopology_id, each in (topology.subtopologies or {}).items()
        for number in range(each.number_of_tasks)
    }
    quota = -(-len(left) // len(members))
    active: dict[str, dict[str, set[int]]] = {member_id: {} for member_id in members}
    load = dict.fromkeys(sorted(members), 0)
    for member_id in load:
        for subtopology_id, numbers in members[member_id].tasks.active.items():
            for number in sorted(numbers):
                if (subtopology_id, number) in left and load[member_id] < quota:
                    left.remove((subtopology_id, number))
                    load[member_id] += 1
                    active[member_id].setdefault(subtopology_id, set()).add(number)
    for subtopology_id, number in sorted(left):
        member_id = min(load, key=load.__getitem__)
        load[member_id] += 1
        active[member_id].setdefault(subtopology_id, set()).add(number)
    return {
        member_id: Tasks({key: frozenset(numbers) for key, numbers in tasks.items()})
        for member_id, tasks in active.items()
    }
