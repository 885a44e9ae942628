"""How a workload is cut into the jobs of its worker processes."""

from __future__ import annotations

import os

from minikafka.loadgen.messages import ConnectJob, ConsumeJob, GroupJob, ProduceJob, TopicOffsets
from minikafka.loadgen.workload import Workload


def process_count(workload: Workload, clients: int) -> int:
    """As many as asked for, or as there are cores; never more than clients."""
    return max(min(workload.processes or os.cpu_count() or 1, clients), 1)


def produce_jobs(
    bootstrap: str, workload: Workload, topics: list[str], *, is_stamped: bool
) -> list[ProduceJob]:
    """Producers dealt out to processes, and the records of a count with them."""
    processes = process_count(workload, workload.producers)
    schedule = workload.schedule()
    jobs = []
    for index in range(processes):
        numbers = list(range(index, workload.producers, processes))
        records = 0
        if not schedule and workload.records:
            records = sum(_share(workload.records, number, workload.producers) for number in numbers)
            if not records:
                continue
        jobs.append(
            ProduceJob(
                bootstrap=bootstrap,
                workload=workload,
                topics=topics,
                numbers=numbers,
                is_stamped=is_stamped,
                schedule=schedule,
                records=records,
            )
        )
    return jobs


def preload_job(
    bootstrap: str, workload: Workload, topics: list[str], *, records: int, is_stamped: bool
) -> ProduceJob:
    """Records that are there before the run begins, from one process, as fast as they are taken."""
    return ProduceJob(
        bootstrap=bootstrap,
        workload=workload,
        topics=topics,
        numbers=[0],
        is_stamped=is_stamped,
        is_timed=False,
        records=records,
    )


def consume_jobs(
    bootstrap: str, workload: Workload, starts: TopicOffsets, *, is_stamped: bool
) -> list[ConsumeJob]:
    """Every subscription reads every partition; its consumers share them, and processes the consumers."""
    places = [
        (topic, partition, offset)
        for topic, offsets in starts.items()
        for partition, offset in enumerate(offsets)
    ]
    assignments = [
        share
        for _ in range(workload.subscriptions)
        for number in range(workload.consumers)
        if (share := places[number :: workload.consumers])
    ]
    processes = process_count(workload, len(assignments))
    return [
        ConsumeJob(
            bootstrap=bootstrap,
            workload=workload,
            assignments=assignments[index::processes],
            is_stamped=is_stamped,
        )
        for index in range(processes)
    ]


def connect_jobs(bootstrap: str, workload: Workload) -> list[ConnectJob]:
    """Connections dealt out to processes, which take turns in the schedule."""
    processes = process_count(workload, workload.consumers)
    return [
        ConnectJob(
            bootstrap=bootstrap,
            workload=workload,
            numbers=list(range(index, workload.consumers, processes)),
            processes=processes,
            schedule=workload.schedule(),
        )
        for index in range(processes)
    ]


def group_jobs(bootstrap: str, workload: Workload, topics: list[str], *, run_id: str) -> list[GroupJob]:
    """Members dealt out to processes."""
    members = [group for group in group_names(workload, run_id) for _ in range(workload.consumers)]
    processes = process_count(workload, len(members))
    return [
        GroupJob(bootstrap=bootstrap, workload=workload, topics=topics, members=members[index::processes])
        for index in range(processes)
    ]


def group_names(workload: Workload, run_id: str) -> list[str]:
    return [f"bench-{run_id}-{number}" for number in range(workload.groups)]


def _share(total: int, number: int, parts: int) -> int:
    return total // parts + (number < total % parts)
