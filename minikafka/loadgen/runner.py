"""One workload against one target: topics made, workers started, listened to and ended, counts reconciled.

``run`` yields ``Progress`` while it runs and the ``Result`` at its end. A target that dies in the middle,
Ctrl-C and a worker that fails end the run early; the result then has the counts up to then, and says why.

The course of a run: topics → records that must be there before (a backlog, what CONSUME reads, and for STREAM
one record for each partition, so that its consumers are known to read before the clock starts) → go → the
producers' end → offsets of the target → the consumers' end → checks.

A workload is cut into the jobs of its worker processes. Each worker has a thread here that reads what it says
into one queue. One that ends without ``Done`` counts with what it said before; the last line of its standard
error says why.
"""

from __future__ import annotations

import os
import queue
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import IO

import msgspec

from minikafka.errors import MinikafkaError
from minikafka.loadgen import report
from minikafka.loadgen.messages import (
    CONSUMED,
    END_TO_END,
    JOINED,
    PRODUCED,
    Command,
    ConnectJob,
    ConsumeJob,
    Done,
    Go,
    GroupJob,
    Interval,
    Job,
    ProduceJob,
    ReadTo,
    Ready,
    Report,
    Stop,
    TopicOffsets,
    encoded,
    report_decoder,
)
from minikafka.loadgen.report import Check, Flow, FlowBuilder, Point, Result, Usage, UsageMeter, point
from minikafka.loadgen.targets import Cluster, Target, TargetError, module_command, module_environment
from minikafka.loadgen.workload import Kind, Workload, mean_size

READY_DEADLINE_S = 60.0
STOP_DEADLINE_S = 10.0

PROGRESS_S = 1.0
START_DELAY_S = 0.05
"""From the decision to start until time zero, so that all processes have received of it."""
RUN, PRELOAD_FLOW = "run", "preload"
INTERRUPTED = "interrupted"
"""The problem of a run that ``is_interrupted`` ended."""


# Jobs


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


# Worker processes


class WorkerError(MinikafkaError):
    """A worker cannot do its job; the message is for the person who asked for it."""


class Received(msgspec.Struct, frozen=True):
    """A report, or None for the end of the worker's process."""

    worker: Worker
    report: Report | None


class Worker:
    """One process with one job."""

    def __init__(self, job: Job, received: queue.SimpleQueue[Received]) -> None:
        self.done: Done | None = None
        self.is_ready = self.has_ended = False
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 closed by close()
        self._process = subprocess.Popen(
            module_command("minikafka.loadgen.worker"),
            env=module_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is for the parent, which tells its workers
        )
        self._received = received
        self._send(encoded(job))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def tell(self, command: Command) -> None:
        """A worker that has ended is skipped."""
        self._send(encoded(command))

    def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):  # ended, or closed
            pass

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):  # else it was killed while it spoke
                self._received.put(Received(self, report_decoder.decode(line)))
        self._received.put(Received(self, None))

    def reason(self) -> str:
        """Why it ended without ``Done``."""
        status = self._process.wait(STOP_DEADLINE_S)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"a worker process ended with {status}" + (f": {lines[-1]}" if lines else "")

    def close(self) -> None:
        """End it in whatever way works, and free what it holds here."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join()
        self._process.stdout.close()
        self._errors.close()


class Fleet:
    """All workers of a run. A context manager: at its end every process has ended."""

    def __init__(self, security: dict[str, str] | None = None) -> None:
        """``security``: of every job."""
        self._security = security or {}
        self.workers: list[Worker] = []
        self._received: queue.SimpleQueue[Received] = queue.SimpleQueue()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.close()

    def launch(self, jobs: Sequence[Job]) -> list[Worker]:
        """Start a process for each job, and wait until all are ready. Raises WorkerError: one cannot."""
        launched = []
        for job in jobs:
            secured = msgspec.structs.replace(job, security=self._security)
            launched.append(Worker(secured, self._received))
            self.workers.append(launched[-1])  # one by one: whatever comes, ``__exit__`` ends them
        deadline = time.monotonic() + READY_DEADLINE_S
        while not all(worker.is_ready for worker in launched):
            received = self.receive(max(deadline - time.monotonic(), 0))
            if received is None:
                raise WorkerError(f"the worker processes were not ready after {READY_DEADLINE_S:g} s")
            if received.worker.is_ready:
                continue
            failure = received.worker.done.failure if received.worker.done is not None else None
            raise WorkerError(failure or received.worker.reason())
        return launched

    def receive(self, timeout_s: float) -> Received | None:
        """The next thing that a worker says; what it says of its own state is noted. None: nothing came."""
        try:
            received = self._received.get(timeout=timeout_s)
        except queue.Empty:
            return None
        match received.report:
            case Ready():
                received.worker.is_ready = True
            case Done():
                received.worker.done = received.report
                received.worker.has_ended = True
            case None:
                received.worker.has_ended = True
            case Interval():
                pass
        return received


# A run


class Progress(msgspec.Struct, frozen=True):
    """How the run goes: for each flow the last second, and how many records there were in all."""

    phase: str
    elapsed_s: float
    flows: dict[str, Point]
    totals: dict[str, int]


def run(
    workload: Workload,
    target: Target,
    *,
    timeout_s: float = 10.0,
    is_interrupted: Callable[[], bool] = lambda: False,
) -> Iterator[Progress | Result]:
    """See the module header. ``is_interrupted`` turning true ends the load, and what is under way is counted.

    Raises:
        KeyboardInterrupt: it was interrupted before there was any load.
        TargetError: no broker answers within ``timeout_s``, or the target refuses what the run needs.
        WorkerError: a worker cannot even begin. ConfigError: there is no such process.
    """
    cluster = Cluster(target.bootstrap, timeout_s=timeout_s, security=target.security)
    yield from Run(workload, target, cluster, is_interrupted).go()


class Run:
    """The state of one run."""

    def __init__(
        self,
        workload: Workload,
        target: Target,
        cluster: Cluster,
        is_interrupted: Callable[[], bool],
    ) -> None:
        self._workload = workload
        self._is_interrupted = is_interrupted
        self._target = target
        self._cluster = cluster
        self._run_id = uuid.uuid4().hex[:8]
        self._topics = workload.topic_names(self._run_id)
        self._meter = UsageMeter(target.pids)
        self._fleet = Fleet(target.security)
        self._flows: dict[str, FlowBuilder] = {}
        self._last_second: dict[str, list[Interval]] = {}
        self._started_at = datetime.now(UTC)
        self._start_ns = time.monotonic_ns()
        self._phase = RUN
        self._next_progress_ns = 0
        self._checks: list[Check] = []
        self._problems: list[str] = []
        self._facts: dict[str, float] = {}
        self._usage: Usage | None = None

    def go(self) -> Iterator[Progress | Result]:
        made: list[str] = []
        try:
            if self._workload.kind is not Kind.CONNECTIONS:
                began = time.monotonic()
                made = self._cluster.topics_to_make(self._workload, self._topics)
                self._cluster.create_topics(self._workload, self._topics, made)
                if made:
                    self._facts["seconds to create topics"] = time.monotonic() - began
            with self._fleet:
                yield from self._phases()
                self._usage = self._meter.usage()
        finally:
            if not self._workload.keeps_topics:
                self._clean_up(made)
        yield self._result()

    def _phases(self) -> Iterator[Progress]:
        try:
            match self._workload.kind:
                case Kind.PRODUCE:
                    yield from self._produce()
                case Kind.STREAM:
                    yield from self._stream()
                case Kind.CONSUME:
                    yield from self._consume()
                case Kind.CONNECTIONS:
                    yield from self._connect()
                case Kind.GROUPS:
                    yield from self._form_groups()
        except TargetError as error:
            if not self._flows:
                raise
            self._problems.append(str(error))

    # The kinds of runs

    def _produce(self) -> Iterator[Progress]:
        before = self._cluster.offsets(self._topics)
        producers = self._fleet.launch(self._produce_jobs(is_stamped=False))
        self._start(producers)
        yield from self._until_done(producers)
        self._check_produced(producers, before)

    def _produce_jobs(self, *, is_stamped: bool) -> Sequence[ProduceJob]:
        return produce_jobs(self._target.bootstrap, self._workload, self._topics, is_stamped=is_stamped)

    def _stream(self) -> Iterator[Progress]:
        workload = self._workload
        starts = self._cluster.offsets(self._topics)
        places = workload.topics * workload.partitions
        if workload.backlog_bytes:
            records = workload.backlog_bytes // mean_size(workload.record_size, workload.payload)
            yield from self._preload(max(records, places), is_stamped=True)
        else:
            yield from self._preload(places, is_stamped=True)
        before = self._cluster.offsets(self._topics)
        consumers = self._fleet.launch(
            consume_jobs(self._target.bootstrap, workload, starts, is_stamped=True)
        )
        producers = self._fleet.launch(self._produce_jobs(is_stamped=True))
        self._start(consumers)
        if not workload.backlog_bytes:
            self._phase = PRELOAD_FLOW  # what they read is not the load yet
            primed = report.advance(starts, before) * workload.subscriptions
            yield from self._until(lambda: self._records(END_TO_END) >= primed, consumers)
            self._phase = RUN
        self._start([*consumers, *producers])
        yield from self._until_done(producers, others=consumers)
        after = self._check_produced(producers, before)
        expected = report.advance(starts, after) * workload.subscriptions
        yield from self._drain(consumers, after)
        self._check_consumed(consumers, expected=expected)

    def _consume(self) -> Iterator[Progress]:
        workload = self._workload
        if workload.records:
            yield from self._preload(workload.records, is_stamped=False)
        starts = self._cluster.offsets(self._topics, earliest=True)
        ends = self._cluster.offsets(self._topics)
        if not report.advance(starts, ends):
            raise TargetError(f"topic {self._topics[0]} has no records to consume")
        consumers = self._fleet.launch(
            consume_jobs(self._target.bootstrap, workload, starts, is_stamped=False)
        )
        self._start(consumers)
        yield from self._drain(consumers, ends)
        self._check_consumed(consumers, expected=None)

    def _connect(self) -> Iterator[Progress]:
        workers = self._fleet.launch(connect_jobs(self._target.bootstrap, self._workload))
        self._start(workers)
        yield from self._until_done(workers)
        self._checks.append(
            Check("connections opened = asked for", self._workload.consumers, _count(workers, "opened"))
        )

    def _form_groups(self) -> Iterator[Progress]:
        workload = self._workload
        members = workload.groups * workload.consumers
        workers = self._fleet.launch(
            group_jobs(self._target.bootstrap, workload, self._topics, run_id=self._run_id)
        )
        self._start(workers)
        yield from self._until(lambda: self._records(JOINED) >= members, workers)
        end_ns = time.monotonic_ns() + int((workload.warmup_s + workload.duration_s) * 1e9)
        yield from self._until(lambda: time.monotonic_ns() >= end_ns, workers)
        self._tell(workers, Stop())
        yield from self._until_done(workers)
        partitions = sum(map(len, self._cluster.offsets(self._topics).values()))
        assigned = [_count(workers, f"assigned {name}") for name in group_names(workload, self._run_id)]
        self._checks.append(
            Check(
                "groups whose members hold every partition once = groups",
                workload.groups,
                assigned.count(partitions),
            )
        )

    # Their parts

    def _preload(self, records: int, *, is_stamped: bool) -> Iterator[Progress]:
        """Produce what must be there before; it is checked, but no flow of the report."""
        self._phase = PRELOAD_FLOW
        before = self._cluster.offsets(self._topics)
        job = preload_job(
            self._target.bootstrap, self._workload, self._topics, records=records, is_stamped=is_stamped
        )
        producers = self._fleet.launch([job])
        self._start(producers)
        yield from self._until_done(producers)
        self._check_produced(producers, before)
        self._flows.clear()
        self._last_second.clear()
        self._phase = RUN
        if INTERRUPTED in self._problems:
            raise KeyboardInterrupt
        if self._problems:
            raise TargetError(self._problems.pop())

    def _start(self, workers: Sequence[Worker]) -> None:
        self._meter.begin()
        self._start_ns = time.monotonic_ns() + int(START_DELAY_S * 1e9)
        self._tell(workers, Go(self._start_ns))

    def _tell(self, workers: Sequence[Worker], command: Go | ReadTo | Stop) -> None:
        for worker in workers:
            worker.tell(command)

    def _drain(self, consumers: Sequence[Worker], ends: TopicOffsets) -> Iterator[Progress]:
        workload, is_load = self._workload, self._workload.kind is Kind.CONSUME
        deadline_s = workload.drain_s + (workload.duration_s + workload.warmup_s if is_load else 0)
        self._tell(consumers, ReadTo(ends, time.monotonic_ns() + int(deadline_s * 1e9)))
        yield from self._until_done(consumers, can_be_interrupted=is_load)

    def _until_done(
        self,
        workers: Sequence[Worker],
        *,
        others: Sequence[Worker] = (),
        can_be_interrupted: bool = True,
    ) -> Iterator[Progress]:
        """Until these have said their last word. One of ``others`` that ends stops them."""
        is_told = False
        while not all(worker.has_ended for worker in workers):
            yield from self._listen()
            if is_told:
                continue
            is_told = any(worker.has_ended for worker in others)
            if can_be_interrupted and self._is_interrupted():
                self._note(INTERRUPTED)
                is_told = True
            if is_told:
                self._tell(workers, Stop())

    def _until(self, is_true: Callable[[], bool], workers: Sequence[Worker]) -> Iterator[Progress]:
        """Until that holds, or one of the workers has ended."""
        while not (is_true() or self._is_interrupted() or any(worker.has_ended for worker in workers)):
            yield from self._listen()

    def _listen(self) -> Iterator[Progress]:
        """Take in one report, if one comes soon."""
        received = self._fleet.receive(0.2)
        if received is not None:
            if isinstance(received.report, Interval):
                self._add_interval(received.report)
            elif received.worker.done is None and received.worker.has_ended:
                self._problems.append(received.worker.reason())
            elif received.report is received.worker.done and received.worker.done is not None:
                self._note(received.worker.done.failure)
        now_ns = time.monotonic_ns()
        if now_ns >= self._next_progress_ns:
            self._next_progress_ns = now_ns + int(PROGRESS_S * 1e9)
            self._meter.look()
            yield self._progress(now_ns)

    def _note(self, failure: str | None) -> None:
        if failure is not None and failure not in self._problems:
            self._problems.append(failure)

    def _add_interval(self, interval: Interval) -> None:
        name = interval.flow
        if name not in self._flows:
            self._flows[name] = FlowBuilder(name)
        self._flows[name].add(interval)
        self._last_second.setdefault(name, []).append(interval)

    def _progress(self, now_ns: int) -> Progress:
        elapsed_s = max(now_ns - self._start_ns, 0) / 1e9
        last_second, self._last_second = self._last_second, {}
        return Progress(
            phase=self._phase,
            elapsed_s=elapsed_s,
            flows={name: point(elapsed_s, intervals) for name, intervals in last_second.items()},
            totals={name: flow.records for name, flow in self._flows.items()},
        )

    def _records(self, name: str) -> int:
        return self._flows[name].records if name in self._flows else 0

    # The end

    def _check_produced(self, producers: Sequence[Worker], before: TopicOffsets) -> TopicOffsets:
        """Compare with the target's offsets, and return them. Raises TargetError: it does not say them."""
        if self._problems:
            self._cluster.is_in_doubt = True
        after = self._cluster.offsets(self._topics)
        self._checks.append(
            report.produced(
                self._phase,
                acked=self._records(PRODUCED),
                unknown=_count(producers, "unknown"),
                before=before,
                after=after,
            )
        )
        return after

    def _check_consumed(self, consumers: Sequence[Worker], *, expected: int | None) -> None:
        """``expected`` None: as many as the consumers' passes over their partitions have."""
        if expected is None:
            if INTERRUPTED in self._problems:
                return
            expected = _count(consumers, "expected")
        compacted, seen = self._cluster.compacted(self._topics), _count(consumers, "consumed")
        self._checks.append(report.consumed(expected=expected, seen=seen, compacted=compacted))
        if self._workload.kind is Kind.STREAM:
            self._checks.append(Check("records out of order = 0", 0, _count(consumers, "out of order")))

    def _clean_up(self, made: Sequence[str]) -> None:
        if self._problems:
            self._cluster.is_in_doubt = True
        try:
            self._cluster.delete_topics(made)
        except TargetError as error:
            self._note(str(error))

    def _result(self) -> Result:
        seconds = (datetime.now(UTC) - self._started_at).total_seconds()
        order = [PRODUCED, CONSUMED, END_TO_END]
        names = sorted(self._flows, key=lambda name: order.index(name) if name in order else 0)
        flows: list[Flow] = [self._flows[name].build(self._start_ns) for name in names]
        settings = msgspec.to_builtins(self._workload, enc_hook=str)
        settings["payload"] = None if self._workload.payload is None else len(self._workload.payload)
        return Result(
            workload=self._workload.name,
            target=self._target.name,
            started_at=self._started_at.isoformat(timespec="seconds"),
            seconds=seconds,
            settings=settings,
            flows=flows,
            checks=self._checks,
            problems=self._problems,
            usage=self._usage,
            facts=self._facts,
        )


def _count(workers: Sequence[Worker], name: str) -> int:
    return sum(worker.done.counts.get(name, 0) for worker in workers if worker.done is not None)


def finish(events: Iterator[Progress | Result]) -> Result:
    """The result alone, for callers that show no progress."""
    for event in events:
        if isinstance(event, Result):
            return event
    raise WorkerError("the run ended without a result")
