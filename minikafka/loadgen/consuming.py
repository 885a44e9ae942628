"""Consumers of one worker process, each on a thread, because librdkafka's waiting is per consumer.

Those that are assigned partitions read to an end. Records with a stamp are timed one by one, and each must
lie behind those before it of its partition: those that do not are counted as out of order. Records without
are only counted, in big batches. The last offsets of a partition may hold none (compaction, transaction
markers): there its end is where librdkafka says it is.

Members of groups join, hold their partitions, and commit. Joining is timed from subscribing to the first
assignment; then a member commits about once a second, or as often as ``rate`` says for all members together,
and each commit is timed from when it was due until it is answered. ``group.protocol=consumer`` among the
consumer's properties makes them KIP-848 members.
"""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from minikafka.loadgen.messages import (
    COMMITTED,
    CONSUMED,
    END_TO_END,
    JOINED,
    ConsumeJob,
    Done,
    Go,
    GroupJob,
    ReadTo,
    Ready,
    Recorder,
    TopicOffsets,
)
from minikafka.loadgen.payloads import UNTIMED, stamp_of
from minikafka.loadgen.station import Reachability, Station, client_config

POLL_S = 0.1
BATCH_RECORDS = 5_000
TICK_S = 0.05

CONFIG = {
    "group.id": "minikafka-bench",  # librdkafka wants one; nothing is committed and no group is joined
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "fetch.queue.backoff.ms": 5,  # by default librdkafka rests for 1 s whenever its queue is full
    "queued.min.messages": 50_000,
}
REPEATED_CONFIG = {
    "enable.partition.eof": True,  # not beside producers, where every single record would be followed by one
    "fetch.wait.max.ms": 5,
}
"""Of readers that begin again at the end. librdkafka has one fetch under way at a time, and the last one of a
pass, which waits for more than there is, would hold up the next pass for 500 ms, its default."""

GROUP_POLL_S = 0.05
COMMITS_PER_S = 1.0
JOIN_DEADLINE_S = 60.0

GROUP_CONFIG = {"enable.auto.commit": False, "auto.offset.reset": "earliest"}


class OneConsumer:
    """A consumer and its thread. The lock guards the recorder between the thread and the one that reports."""

    def __init__(
        self, job: ConsumeJob, places: list[tuple[str, int, int]], reachability: Reachability
    ) -> None:
        self.recorder = Recorder(END_TO_END if job.is_stamped else CONSUMED, measured_from_ns=0)
        self.lock = threading.Lock()
        self.out_of_order = 0
        self.error: str | None = None
        self.ends: TopicOffsets | None = None
        self.is_over = self.has_ended_well = False
        self._reachability = reachability
        self._is_stamped = job.is_stamped
        self._starts = {(topic, partition): offset for topic, partition, offset in places}
        self._next = dict(self._starts)
        self._repeats_until_ns = 0
        self._passes = 1
        own_config = CONFIG if job.is_stamped else CONFIG | REPEATED_CONFIG
        config = client_config(
            job.bootstrap,
            reachability,
            own_config,
            job.security,
            job.workload.consumer_config,
            is_consumer=True,
        )
        self._consumer = Consumer(config)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self, *, measured_from_ns: int, repeats_until_ns: int) -> None:
        """Read; from the beginning again and again until ``repeats_until_ns``, where that is not 0."""
        self.recorder.measured_from_ns = measured_from_ns
        self._repeats_until_ns = repeats_until_ns
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    @property
    def is_reading(self) -> bool:
        return self._thread.is_alive()

    def expected(self) -> int:
        """Offsets of all passes, as far as the ends are known: the records, where none has been compacted."""
        if self.ends is None:
            return self.recorder.total
        return self._passes * sum(
            self.ends[topic][partition] - offset for (topic, partition), offset in self._starts.items()
        )

    def _run(self) -> None:
        self._assign()
        while not self.is_over and self.error is None:
            messages = self._messages()
            if messages:
                self._reachability.answered()
                with self.lock:
                    (self._count_stamped if self._is_stamped else self._count)(messages)
            if self._is_at_end() and not self._begin_again():
                break
        self._consumer.close()
        self.has_ended_well = True

    def _assign(self) -> None:
        self._next = dict(self._starts)
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in self._next.items()])

    def _messages(self) -> list[Message]:
        """Those that are there; waits for the first one. Errors are noted, not returned."""
        if self._is_stamped:
            first = self._consumer.poll(POLL_S)
            found = [] if first is None else [first, *self._consumer.consume(BATCH_RECORDS, 0)]
        else:
            found = self._consumer.consume(BATCH_RECORDS, POLL_S)
        messages = []
        for message in found:
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._advance(message)
            elif not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
                self.error = error.str()
        return messages

    def _count_stamped(self, messages: list[Message]) -> None:
        now_ns = time.monotonic_ns()
        for message in messages:
            due_ns = stamp_of(message.value())
            self._follow(message)
            is_timed = due_ns != UNTIMED  # those that are not are counted, and not measured
            self.recorder.count(began_ns=due_ns, now_ns=now_ns, size=len(message), is_timed=is_timed)

    def _count(self, messages: list[Message]) -> None:
        """Without looking at each: librdkafka knows where it is."""
        now_ns = time.monotonic_ns()
        size = sum(map(len, messages))
        self.recorder.count(records=len(messages), began_ns=now_ns, now_ns=now_ns, size=size, is_timed=False)
        for place in self._consumer.position([TopicPartition(*each) for each in self._next]):
            at = place.topic, place.partition
            self._next[at] = max(self._next[at], place.offset)  # below 0 before a partition's first record

    def _follow(self, message: Message) -> None:
        at, offset = _place_of(message)
        if offset < self._next[at]:
            self.out_of_order += 1
        self._next[at] = offset + 1

    def _advance(self, end: Message) -> None:
        at, offset = _place_of(end)
        self._next[at] = max(self._next[at], offset)

    def _is_at_end(self) -> bool:
        ends = self.ends
        return ends is not None and all(
            offset >= ends[topic][partition] for (topic, partition), offset in self._next.items()
        )

    def _begin_again(self) -> bool:
        if time.monotonic_ns() >= self._repeats_until_ns or self._next == self._starts:
            return False
        self._passes += 1
        self._assign()
        return True


def _place_of(message: Message) -> tuple[tuple[str, int], int]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None and partition is not None and offset is not None, "only other errors lack them"
    return (topic, partition), offset


class Consuming:
    """One job of consuming; ``run`` does it."""

    def __init__(self, job: ConsumeJob, station: Station) -> None:
        self._job = job
        self._station = station
        self._reachability = Reachability(job.bootstrap, job.workload.give_up_s)
        self._consumers = [OneConsumer(job, places, self._reachability) for places in job.assignments]
        self._deadline_ns: int | None = None

    def run(self) -> None:
        """Until all that is to come has come, or the deadline, or the target is gone."""
        self._station.send(Ready())
        start_ns = self._station.wait_for_go()
        if start_ns is None:
            return
        workload = self._job.workload
        measured_from_ns = self._measured_from_ns(start_ns)
        repeats_until_ns = 0
        if not self._job.is_stamped and workload.duration_s:
            repeats_until_ns = measured_from_ns + int(workload.duration_s * 1e9)
        for consumer in self._consumers:
            consumer.start(measured_from_ns=measured_from_ns, repeats_until_ns=repeats_until_ns)
        failure = None
        while failure is None and self._should_continue():
            self._report(is_last=False)
            time.sleep(TICK_S)
            failure = self._failure()
        for consumer in self._consumers:
            consumer.is_over = True
        for consumer in self._consumers:
            consumer.join()
        self._report(is_last=True)
        counts = {
            "consumed": sum(consumer.recorder.total for consumer in self._consumers),
            "expected": sum(consumer.expected() for consumer in self._consumers),
            "out of order": sum(consumer.out_of_order for consumer in self._consumers),
        }
        self._station.send(Done(failure=failure or self._failure(), counts=counts))

    def _measured_from_ns(self, start_ns: int) -> int:
        return start_ns + int(self._job.workload.warmup_s * 1e9)

    def _should_continue(self) -> bool:
        command = self._station.command()
        if isinstance(command, Go):  # the producers begin: our own start was only to be there
            for consumer in self._consumers:
                with consumer.lock:
                    consumer.recorder.measured_from_ns = self._measured_from_ns(command.start_ns)
        if isinstance(command, ReadTo):
            self._deadline_ns = command.deadline_ns
            for consumer in self._consumers:
                consumer.ends = command.ends
        return not self._station.is_stopped and any(each.is_reading for each in self._consumers)

    def _failure(self) -> str | None:
        for consumer in self._consumers:
            if consumer.error is not None:
                return f"a consumer failed: {consumer.error}"
            if not consumer.is_reading and not consumer.has_ended_well:
                return "a consumer's thread failed"  # its traceback is in the log of the process
        if self._deadline_ns is not None and time.monotonic_ns() > self._deadline_ns:
            return f"records are missing after {self._job.workload.drain_s:g} s of waiting for the rest"
        return self._reachability.failure()

    def _report(self, *, is_last: bool) -> None:
        """One interval for each consumer."""
        recorders = [consumer.recorder for consumer in self._consumers]
        for consumer in self._consumers:
            consumer.lock.acquire()
        try:
            if is_last:
                self._station.report(recorders)
            else:
                self._station.report_if_due(recorders)
        finally:
            for consumer in self._consumers:
                consumer.lock.release()


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
                GROUP_CONFIG,
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
                message = self._consumer.poll(GROUP_POLL_S)
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
            time.sleep(GROUP_POLL_S)
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
