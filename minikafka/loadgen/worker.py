"""A worker process: hears one job on standard input, does it, and reports on standard output.

``python -m minikafka.loadgen.worker``; the parent is ``fleet``.
"""

from __future__ import annotations

import gc
import resource
import sys

from confluent_kafka import KafkaException

from minikafka.loadgen.messages import ConnectJob, ConsumeJob, Done, GroupJob, ProduceJob, job_decoder
from minikafka.loadgen.station import standard_station

COLLECT_AFTER_OBJECTS = 200_000
"""Python looks for garbage in cycles after so many objects; by default after 700. A consumer's batch is
thousands of messages, none of them in a cycle, and going through them again and again was a tenth of the CPU
time of consuming."""


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
                from minikafka.loadgen.connecting import Connecting

                Connecting(job, station).run()
            case GroupJob():
                from minikafka.loadgen.grouping import Grouping

                Grouping(job, station).run()
    except KafkaException as error:  # a property that librdkafka refuses, above all
        station.send(Done(failure=error.args[0].str()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
