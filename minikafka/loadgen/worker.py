"""A worker process: reads one job from standard input, does it, and reports on standard output.

``python -m minikafka.loadgen.worker``; the parent is ``runner.Fleet``.

Producers and consumers are in ``producing`` and ``consuming``. Connections are here: they are opened one
after the other, then asked for metadata by a schedule. A connection is a librdkafka client; opening it is
timed until its first answer. The requests are an open loop on the connections in turn: one that is answered
late makes the next ones late, and their latency says so.
"""

from __future__ import annotations

import gc
import resource
import sys
import time

from confluent_kafka import KafkaException, Producer

from minikafka.loadgen.messages import (
    CONNECTED,
    REQUESTED,
    ConnectJob,
    ConsumeJob,
    Done,
    GroupJob,
    ProduceJob,
    Ready,
    Recorder,
    job_decoder,
)
from minikafka.loadgen.station import Reachability, Station, client_config, standard_station
from minikafka.loadgen.workload import due_times

ANSWER_TIMEOUT_S = 10.0
PAUSE_MAX_S = 0.1

COLLECT_AFTER_OBJECTS = 200_000
"""Python looks for garbage in cycles after so many objects; by default after 700. A consumer's batch is
thousands of messages, none of them in a cycle, and going through them again and again was a tenth of the CPU
time of consuming."""


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
                time.sleep(min(left_ns / 1e9, PAUSE_MAX_S))
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
                from minikafka.loadgen.producing import Producing

                Producing(job, station).run()
            case ConsumeJob():
                from minikafka.loadgen.consuming import Consuming

                Consuming(job, station).run()
            case ConnectJob():
                from minikafka.loadgen.worker import Connecting

                Connecting(job, station).run()
            case GroupJob():
                from minikafka.loadgen.consuming import Grouping

                Grouping(job, station).run()
    except KafkaException as error:  # a property that librdkafka refuses, above all
        station.send(Done(failure=error.args[0].str()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
