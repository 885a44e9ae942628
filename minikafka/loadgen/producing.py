"""Producers of one worker process: by a schedule (open loop), or as fast as the target takes it.

Open loop: a record is due when the schedule says, whatever the target does meanwhile; it is handed over late
if it must be, and its latency counts from when it was due. Between records the loop looks for
acknowledgements every ``PAUSE_MAX_S``, which is how late one can be seen.

As fast as it goes: batches of equal records for one partition after the other, because calling librdkafka
once a record would take a core by itself.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from minikafka.loadgen.messages import PRODUCED, Done, ProduceJob, Ready, Recorder
from minikafka.loadgen.payloads import UNTIMED, Pool, make_pool, stamped
from minikafka.loadgen.station import Reachability, Station, client_config
from minikafka.loadgen.workload import due_times

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
