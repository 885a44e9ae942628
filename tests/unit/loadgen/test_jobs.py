"""A workload is dealt out to processes without anything lost or done twice."""

from __future__ import annotations

from minikafka.loadgen.messages import encoded, job_decoder
from minikafka.loadgen.runner import connect_jobs, consume_jobs, group_jobs, produce_jobs
from minikafka.loadgen.workload import Kind, Workload

WORKLOAD = Workload(
    name="w", kind=Kind.STREAM, producers=5, consumers=3, subscriptions=2, groups=2, processes=2
)


def test_every_producer_and_record_has_one_process() -> None:
    workload = Workload(name="w", kind=Kind.PRODUCE, producers=5, processes=2, records=1003)
    jobs = produce_jobs("b", workload, ["t"], is_stamped=False)
    assert sorted(number for job in jobs for number in job.numbers) == [0, 1, 2, 3, 4]
    assert sum(job.records for job in jobs) == 1003


def test_every_subscription_reads_every_partition_once() -> None:
    jobs = consume_jobs("b", WORKLOAD, {"t": [0, 10, 20, 30], "u": [5]}, is_stamped=True)
    assert len(jobs) == 2
    places = sorted(place for job in jobs for share in job.assignments for place in share)
    assert places == sorted(2 * [("t", 0, 0), ("t", 1, 10), ("t", 2, 20), ("t", 3, 30), ("u", 0, 5)])
    assert sum(len(job.assignments) for job in jobs) == 6


def test_consumers_without_a_partition_do_not_exist() -> None:
    jobs = consume_jobs("b", WORKLOAD, {"t": [0]}, is_stamped=True)
    assert sum(len(job.assignments) for job in jobs) == 2


def test_connections_and_members_are_dealt_out_too() -> None:
    connections = connect_jobs("b", WORKLOAD)
    assert sorted(number for job in connections for number in job.numbers) == [0, 1, 2]
    members = [member for job in group_jobs("b", WORKLOAD, ["t"], run_id="r") for member in job.members]
    assert sorted(members) == ["bench-r-0"] * 3 + ["bench-r-1"] * 3


def test_a_job_survives_its_journey() -> None:
    for job in produce_jobs("b", WORKLOAD, ["t"], is_stamped=True):
        assert job_decoder.decode(encoded(job)) == job
