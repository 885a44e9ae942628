"""Consumers of one worker process, each on a thread, because librdkafka's waiting is per consumer.

Records with a stamp are timed one by one, and each must lie behind those before it of its partition: those
that do not are counted as out of order. Records without are only counted, in big batches. The last offsets of
a partition may hold none (compaction, transaction markers): there its end is where librdkafka says it is.
"""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from minikafka.loadgen.histogram import Recorder
from minikafka.loadgen.messages import (
    CONSUMED,
    END_TO_END,
    ConsumeJob,
    Done,
    Go,
    ReadTo,
    Ready,
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
