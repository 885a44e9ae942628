"""A worker process: reads one job from standard input, does it, and reports on standard output.

``python -m minikafka.loadgen.worker``; the parent is ``runner.Fleet``.

Producers send by a schedule (open loop), or as fast as the target takes it. Open loop: a record is due when
the schedule says, whatever the target does meanwhile; it is handed over late if it must be, and its latency
counts from when it was due. Between records the loop looks for acknowledgements every ``PAUSE_MAX_S``, which
is how late one can be seen. As fast as it goes: batches of equal records for one partition after the other,
because calling librdkafka once a record would take a core by itself.

Consumers are each on a thread, because librdkafka's waiting is per consumer. Those that are assigned
partitions read to an end. Records with a stamp are timed one by one, and each must lie behind those before it
of its partition: those that do not are counted as out of order. Records without are only counted, in big
batches. The last offsets of a partition may hold none (compaction, transaction markers): there its end is
where librdkafka says it is.

Members of groups join, hold their partitions, and commit. Joining is timed from subscribing to the first
assignment; then a member commits about once a second, or as often as ``rate`` says for all members together,
and each commit is timed from when it was due until it is answered. ``group.protocol=consumer`` among the
consumer's properties makes them KIP-848 members.

Connections are opened one after the other, then asked for metadata by a schedule. A connection is a
librdkafka client; opening it is timed until its first answer. The requests are an open loop on the
connections in turn: one that is answered late makes the next ones late, and their latency says so.
"""

from __future__ import annotations

import gc
import itertools
import resource
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from minikafka.loadgen.messages import (
    COMMITTED,
    CONNECTED,
    CONSUMED,
    END_TO_END,
    JOINED,
    PRODUCED,
    REQUESTED,
    ConnectJob,
    ConsumeJob,
    Done,
    Go,
    GroupJob,
    ProduceJob,
    ReadTo,
    Ready,
    Recorder,
    TopicOffsets,
    job_decoder,
)
from minikafka.loadgen.station import Reachability, Station, client_config, standard_station
from minikafka.loadgen.workload import UNTIMED, Pool, due_times, make_pool, stamp_of, stamped

BATCH_RECORDS = 500
BY_KEY = -1
"""librdkafka's partitioner decides."""
COUNTED_TOGETHER = 50
"""A clock and a histogram for every record would take as long as librdkafka does."""
CONNECT_S = 30.0
PAUSE_MAX_S = 0.0005
LAG_CHECK_RECORDS = 64
"""While the loop is behind its schedule, it looks up from sending this often."""

Failed = Callable[[int, KafkaError | None, Message], None]

POLL_S = 0.1
FETCH_RECORDS = 5_000
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

ANSWER_TIMEOUT_S = 10.0
SLEEP_MAX_S = 0.1

COLLECT_AFTER_OBJECTS = 200_000
"""Python looks for garbage in cycles after so many objects; by default after 700. A consumer's batch is
thousands of messages, none of them in a cycle, and going through them again and again was a tenth of the CPU
time of consuming."""


class Producing:
    """One job of producing; ``run`` does it."""

    def __init__(self, job: ProduceJob, station: Station) -> None:
        workload = job.workload
        self._job = job
        self._station = station
        self._reachability = Reachability(job.bootstrap, workload.give_up_s)
        config = client_config(job.bootstrap, self._reachability, job.security, workload.producer_config)
        self._clients = [Producer(config) for _ in job.numbers]
        self._pool: Pool = make_pool(
            record_size=workload.record_size,
            keys=workload.keys,
            compressibility=workload.compressibility,
            seed=workload.seed + job.numbers[0],
            payload=workload.payload,
        )
        self._places = [
            (topic, partition) for partition in range(workload.partitions) for topic in job.topics
        ]
        self._recorder = Recorder(PRODUCED, measured_from_ns=0, is_by_end=not job.schedule)
        self._handed = self._failed = self._seen_total = 0
        self._first_error = ""

    def run(self) -> None:
        """Until the schedule, the records or the time are over, or the target is gone."""
        for client in self._clients:  # their connections are not to be measured
            client.list_topics(self._job.topics[0], timeout=CONNECT_S)
        self._station.send(Ready())
        start_ns = self._station.wait_for_go()
        if start_ns is None:
            return
        self._recorder.measured_from_ns = start_ns + int(self._job.workload.warmup_s * 1e9)
        if self._job.schedule:
            self._run_by_schedule(start_ns)
        else:
            self._run_unpaced(start_ns)
        self._flush()
        self._finish()

    def _run_by_schedule(self, start_ns: int) -> None:
        """Producers and partitions take turns, record by record; each record of this process in its turn."""
        job = self._job
        keys, values = self._pool.keys, self._pool.values
        for index, (offset_ns, size) in enumerate(self._dues()):
            due_ns = start_ns + offset_ns
            if not self._wait_until(due_ns, index):
                return
            client, place = self._turn(index)
            topic, partition = self._places[place]
            value = values[index % len(values)]
            if size is not None:
                value = sized(value, size)
            if job.is_stamped:
                value = stamped(value, due_ns)
            key = keys[index % len(keys)]
            delivered = partial(self._delivered, due_ns)
            while True:
                try:
                    client.produce(
                        topic, value, key, partition if key is None else BY_KEY, on_delivery=delivered
                    )
                    break
                except BufferError:  # the queue is full: the record gets later
                    client.poll(0.01)
                    if not self._tick():
                        return
                except KafkaException as error:  # too large, above all
                    self._fail(error.args[0])
                    break
            self._handed += 1

    def _dues(self) -> Any:
        workload = self._job.workload
        merged = [
            due_times(self._job.schedule, first=number, step=workload.producers)
            for number in self._job.numbers
        ]
        if len(merged) == 1:
            return merged[0]
        # Neighbours of one process alternate; equal rates make equal lengths but for one.
        return (due for dues in itertools.zip_longest(*merged) for due in dues if due is not None)

    def _turn(self, index: int) -> tuple[Producer, int]:
        clients = len(self._clients)
        number = self._job.numbers[index % clients] + index // clients * self._job.workload.producers
        return self._clients[index % clients], number % len(self._places)

    def _wait_until(self, due_ns: int, index: int) -> bool:
        """False when the run is over before."""
        if index % LAG_CHECK_RECORDS == 0:
            self._poll()
        while (left_ns := due_ns - time.monotonic_ns()) > 0:
            self._poll()
            if not self._tick():
                return False
            time.sleep(min(left_ns / 1e9, PAUSE_MAX_S))
        return index % LAG_CHECK_RECORDS != 0 or self._tick()

    def _run_unpaced(self, start_ns: int) -> None:
        job, workload = self._job, self._job.workload
        end_ns = start_ns + int((workload.warmup_s + workload.duration_s) * 1e9) if not job.records else None
        in_flight_max = workload.in_flight_max
        even = -(-job.records // len(self._places)) or BATCH_RECORDS
        batch_records = max(min(BATCH_RECORDS, in_flight_max // 2, len(self._pool.values), even), 1)
        pool_starts = range(0, len(self._pool.values) - batch_records + 1, batch_records)
        prepared = {start: self._batch(start, batch_records) for start in pool_starts}
        starts = itertools.cycle(pool_starts)
        places = itertools.cycle(self._places[job.numbers[0] % len(self._places) :] + self._places)
        left = job.records
        while self._tick() and (end_ns is None or time.monotonic_ns() < end_ns):
            for client in self._clients:
                if len(client) + batch_records > in_flight_max:
                    client.poll(0.001)
                    continue
                client.poll(0)
                topic, partition = next(places)
                start = next(starts)
                sent_ns = time.monotonic_ns()
                batch = prepared[start]
                if job.is_stamped and job.is_timed:
                    batch = self._batch(start, batch_records, stamp_ns=sent_ns)
                if job.records and left < len(batch):
                    batch = batch[:left]
                outcome = BatchOutcome(self._recorder, self._delivered, sent_ns, batch)
                try:
                    taken = client.produce_batch(
                        topic,
                        batch,
                        BY_KEY if self._pool.is_keyed else partition,
                        on_delivery=outcome.delivered,
                    )
                except BufferError:  # librdkafka's own limits are lower than ours
                    client.poll(0.01)
                    continue
                outcome.left = taken
                done = taken + self._refused(batch) if taken < len(batch) else taken
                self._handed += done
                left -= done
                if job.records and not left:
                    return

    def _batch(self, start: int, records: int, *, stamp_ns: int = UNTIMED) -> list[dict[str, Any]]:
        pairs = zip(
            self._pool.keys[start : start + records], self._pool.values[start : start + records], strict=True
        )
        return [
            {"value": stamped(value, stamp_ns) if self._job.is_stamped else value, "key": key}
            for key, value in pairs
        ]

    def _refused(self, batch: list[dict[str, Any]]) -> int:
        """Count the records that librdkafka will never take; those that its queue had no room for may come
        again."""
        errors = [error for record in batch if (error := record.pop("_error", None)) is not None]
        final = [error for error in errors if error.code() != KafkaError._QUEUE_FULL]
        for error in final:
            self._fail(error)
        return len(final)

    def _fail(self, error: KafkaError) -> None:
        self._failed += 1
        self._recorder.fail()
        self._first_error = self._first_error or error.str()

    def _delivered(self, began_ns: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._fail(error)
            return
        self._recorder.count(began_ns=began_ns, now_ns=time.monotonic_ns(), size=len(message))

    def _poll(self) -> None:
        for client in self._clients:
            client.poll(0)

    def _tick(self) -> bool:
        """Report, listen, look whether brokers are there. False: it is over."""
        self._station.report_if_due([self._recorder])
        self._station.command()
        if self._recorder.total > self._seen_total:
            self._seen_total = self._recorder.total
            self._reachability.answered()
        return not self._station.is_stopped and self._reachability.failure() is None

    def _flush(self) -> None:
        """Until every record is answered, or no broker can answer."""
        while sum(map(len, self._clients)):
            for client in self._clients:
                client.poll(0.01 / len(self._clients))
            if not self._tick():
                return

    def _finish(self) -> None:
        self._station.report([self._recorder])
        unknown = self._handed - self._recorder.total - self._failed
        failure = self._reachability.failure()
        if failure is None and self._first_error:
            failure = f"{self._failed} records were not delivered: {self._first_error}"
        self._station.send(
            Done(
                failure=failure,
                counts={"acked": self._recorder.total, "failed": self._failed, "unknown": unknown},
            )
        )


class BatchOutcome:
    """Neighbours of a batch are acknowledged together: they are counted, and timed, some at a time.

    ``left``: how many are still to be answered; the producer sets it to those that librdkafka took, before it
    polls for answers.
    """

    __slots__ = ("_mean_size", "_on_failure", "_recorder", "_sent_ns", "_waiting", "left")

    def __init__(
        self, recorder: Recorder, on_failure: Failed, sent_ns: int, batch: list[dict[str, Any]]
    ) -> None:
        self._recorder = recorder
        self._on_failure = on_failure
        self._sent_ns = sent_ns
        self._mean_size = sum(len(record["value"]) for record in batch) / len(batch)
        self._waiting = 0
        self.left = len(batch)

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """librdkafka's callback."""
        self.left -= 1
        if error is None:
            self._waiting += 1
        else:
            self._on_failure(self._sent_ns, error, message)
        if self._waiting >= COUNTED_TOGETHER or (not self.left and self._waiting):
            self._recorder.count(
                records=self._waiting,
                began_ns=self._sent_ns,
                now_ns=time.monotonic_ns(),
                size=round(self._waiting * self._mean_size),
            )
            self._waiting = 0


def sized(value: bytes, size: int) -> bytes:
    """Cut or repeated to that size."""
    return (value * (size // max(len(value), 1) + 1) if len(value) < size else value)[:size]


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
            found = [] if first is None else [first, *self._consumer.consume(FETCH_RECORDS, 0)]
        else:
            found = self._consumer.consume(FETCH_RECORDS, POLL_S)
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


class Connecting:
    """One job of connecting; ``run`` does it."""

    def __init__(self, job: ConnectJob, station: Station) -> None:
        self._job = job
        self._station = station
        self._reachability = Reachability(job.bootstrap, job.workload.give_up_s)
        self._opened = Recorder(CONNECTED, measured_from_ns=0)
        self._asked = Recorder(REQUESTED, measured_from_ns=0)
        self._clients: list[Producer] = []
        self._failure: str | None = None

    def run(self) -> None:
        """Open all, ask for as long as the schedule lasts, then report."""
        self._station.send(Ready())
        start_ns = self._station.wait_for_go()
        if start_ns is None:
            return
        self._open()
        if self._failure is None:
            self._ask()
        self._station.report([self._opened, self._asked])
        self._station.send(Done(failure=self._failure, counts={"opened": len(self._clients)}))

    def _open(self) -> None:
        config = client_config(
            self._job.bootstrap, self._reachability, self._job.security, self._job.workload.producer_config
        )
        for _ in self._job.numbers:
            began_ns = time.monotonic_ns()
            client = Producer(config)
            if not self._answers(client, self._opened, began_ns) or not self._should_continue():
                return
            self._clients.append(client)

    def _ask(self) -> None:
        """The schedule begins when the connections of this process are open."""
        start_ns = time.monotonic_ns()
        self._asked.measured_from_ns = start_ns + int(self._job.workload.warmup_s * 1e9)
        dues = due_times(self._job.schedule, first=self._job.numbers[0], step=self._job.processes)
        for index, (offset_ns, _) in enumerate(dues):
            due_ns = start_ns + offset_ns
            while (left_ns := due_ns - time.monotonic_ns()) > 0:
                time.sleep(min(left_ns / 1e9, SLEEP_MAX_S))
                if not self._should_continue():
                    return
            client = self._clients[index % len(self._clients)]
            if not self._answers(client, self._asked, due_ns) or not self._should_continue():
                return

    def _answers(self, client: Producer, recorder: Recorder, began_ns: int) -> bool:
        """False when it does not: the run is over then."""
        try:
            client.list_topics(timeout=ANSWER_TIMEOUT_S)
        except KafkaException as error:
            recorder.fail()
            name = "connection" if recorder is self._opened else "request"
            self._failure = (
                f"{name} {recorder.total + 1} of this process was not answered: {error.args[0].str()}"
            )
            return False
        self._reachability.answered()
        recorder.count(began_ns=began_ns, now_ns=time.monotonic_ns(), size=0)
        return True

    def _should_continue(self) -> bool:
        self._station.report_if_due([self._opened, self._asked])
        self._station.command()
        self._failure = self._failure or self._reachability.failure()
        return not self._station.is_stopped and self._failure is None


def main() -> int:
    """Do the job. Returns the exit status."""
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER_OBJECTS)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # each connection is a descriptor, and more
    job = job_decoder.decode(sys.stdin.buffer.readline())
    station = standard_station()
    try:
        match job:
            case ProduceJob():
                Producing(job, station).run()
            case ConsumeJob():
                Consuming(job, station).run()
            case ConnectJob():
                Connecting(job, station).run()
            case GroupJob():
                Grouping(job, station).run()
    except KafkaException as error:  # a property that librdkafka refuses, above all
        station.send(Done(failure=error.args[0].str()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
