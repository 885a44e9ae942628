"""Members of consumer groups in one worker process: they join, hold their partitions, and commit.

Each member is a consumer on a thread. Joining is timed from subscribing to the first assignment; then it
commits about once a second, or as often as ``rate`` says for all members together, and each commit is timed
from when it was due until it is answered. ``group.protocol=consumer`` among the consumer's properties makes
them KIP-848 members.
"""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

from minikafka.loadgen.histogram import Recorder
from minikafka.loadgen.messages import COMMITTED, JOINED, Done, GroupJob, Ready
from minikafka.loadgen.station import Reachability, Station, client_config

POLL_S = 0.05
COMMITS_PER_S = 1.0
JOIN_DEADLINE_S = 60.0

CONFIG = {"enable.auto.commit": False, "auto.offset.reset": "earliest"}


class Member:
    """One member and its thread; the lock guards its recorders."""

    def __init__(self, job: GroupJob, group: str, reachability: Reachability) -> None:
        self.group = group
        self.joined = Recorder(JOINED, measured_from_ns=0)
        self.committed = Recorder(COMMITTED, measured_from_ns=0)
        self.lock = threading.Lock()
        self.assigned: set[tuple[str, int]] = set()
        self.is_over = self.is_stable = False
        self.error: str | None = None
        self._topics = job.topics
        self._reachability = reachability
        self._began_ns = 0
        workload = job.workload
        members = workload.groups * workload.consumers
        interval_s = members / workload.rate if workload.rate else 1 / COMMITS_PER_S
        self._commit_interval_ns = int(interval_s * 1e9)
        self._consumer = Consumer(
            client_config(
                job.bootstrap,
                reachability,
                CONFIG,
                job.security,
                workload.consumer_config,
                {"group.id": group},
                is_consumer=True,
            )
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self, *, measured_from_ns: int) -> None:
        self.committed.measured_from_ns = measured_from_ns
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        self._began_ns = time.monotonic_ns()
        self._consumer.subscribe(self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke)
        next_commit_ns = 0
        try:
            while not self.is_over:
                message = self._consumer.poll(POLL_S)
                if message is not None and message.error() is None:
                    self._reachability.answered()
                if self.assigned and time.monotonic_ns() >= next_commit_ns:
                    next_commit_ns = next_commit_ns or time.monotonic_ns()
                    self._commit(next_commit_ns)
                    next_commit_ns += self._commit_interval_ns
            self._consumer.close()
        except KafkaException as error:
            self.error = error.args[0].str()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if not self.is_stable:
            with self.lock:
                self.joined.count(began_ns=self._began_ns, now_ns=time.monotonic_ns(), size=0)
        self.is_stable = True
        self.assigned |= {(each.topic, each.partition) for each in partitions}
        self._reachability.answered()

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if not self.is_over:
            self.assigned -= {(each.topic, each.partition) for each in partitions}

    def _commit(self, due_ns: int) -> None:
        """Commit offset 0 of every partition: nothing need be there to be consumed."""
        offsets = [TopicPartition(*place, 0) for place in sorted(self.assigned)]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            with self.lock:
                self.committed.fail()
            if not error.args[0].retriable() and not error.args[0].name().startswith("REBALANCE"):
                raise
            return
        self._reachability.answered()
        with self.lock:
            self.committed.count(began_ns=due_ns, now_ns=time.monotonic_ns(), size=0)


class Grouping:
    """One job of members; ``run`` does it."""

    def __init__(self, job: GroupJob, station: Station) -> None:
        self._job = job
        self._station = station
        self._reachability = Reachability(job.bootstrap, job.workload.give_up_s)
        self._members = [Member(job, group, self._reachability) for group in job.members]

    def run(self) -> None:
        """Join and commit until told to stop; leave when all others have said what they hold."""
        self._station.send(Ready())
        start_ns = self._station.wait_for_go()
        if start_ns is None:
            return
        workload = self._job.workload
        measured_from_ns = start_ns + int(workload.warmup_s * 1e9)
        for member in self._members:
            member.start(measured_from_ns=measured_from_ns)
        failure = None
        while failure is None and not self._station.is_stopped:
            self._report(is_last=False)
            self._station.command()
            failure = self._failure(start_ns)
            time.sleep(POLL_S)
        counts: dict[str, int] = {}
        for member in self._members:
            name = f"assigned {member.group}"
            counts[name] = counts.get(name, 0) + len(member.assigned)
        self._report(is_last=True)
        self._station.send(Done(failure=failure, counts=counts))
        self._station.wait_for_end()
        for member in self._members:
            member.is_over = True
        for member in self._members:
            member.join()

    def _failure(self, start_ns: int) -> str | None:
        for member in self._members:
            if member.error is not None:
                return f"a member of {member.group} failed: {member.error}"
        waiting = sum(not member.is_stable for member in self._members)
        if waiting and time.monotonic_ns() - start_ns > JOIN_DEADLINE_S * 1e9:
            return f"{waiting} members had no assignment after {JOIN_DEADLINE_S:g} s"
        return self._reachability.failure()

    def _report(self, *, is_last: bool) -> None:
        for member in self._members:
            member.lock.acquire()
        try:
            recorders = [each for member in self._members for each in (member.joined, member.committed)]
            if is_last:
                self._station.report(recorders)
            else:
                self._station.report_if_due(recorders)
        finally:
            for member in self._members:
                member.lock.release()
