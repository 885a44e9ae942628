"""What the parent and its worker processes say to each other: one JSON line a message.

A worker reads its job, prepares, answers ``Ready``, reads ``Go``, and sends ``Interval`` for each of its
flows about twice a second until ``Done``. The end of its input means that the parent is gone: it ends too.
What a worker has reported counts if it is killed, so that the counts of a failed run are those up to then.
"""

from __future__ import annotations

import msgspec

from minikafka.loadgen.workload import Stretch, Workload

REPORT_INTERVAL_S = 0.5

PRODUCED, CONSUMED, END_TO_END = "produce", "consume", "end-to-end"
CONNECTED, REQUESTED = "connect", "request"
JOINED, COMMITTED = "join", "commit"
"""Names of flows. Records are CONSUMED without stamps, and END_TO_END with them."""

TopicOffsets = dict[str, list[int]]
"""Topic → an offset for each partition."""


class ProduceJob(msgspec.Struct, tag="produce"):
    """``numbers``: which producers of all ``producers`` this process runs."""

    bootstrap: str
    workload: Workload
    topics: list[str]
    numbers: list[int]
    is_stamped: bool
    is_timed: bool = True
    """False: the stamps say ``UNTIMED``."""
    schedule: list[Stretch] = []
    records: int = 0
    """For this process; 0: until the time is over."""
    security: dict[str, str] = {}
    """librdkafka's properties of TLS and SASL, in every job. Passwords among them: no report has them."""


class ConsumeJob(msgspec.Struct, tag="consume"):
    """``assignments``: for each consumer, topic, partition and where to start."""

    bootstrap: str
    workload: Workload
    assignments: list[list[tuple[str, int, int]]]
    is_stamped: bool
    security: dict[str, str] = {}


class ConnectJob(msgspec.Struct, tag="connect"):
    """Open ``numbers`` of all connections; ask on them, as one of ``processes``, by the schedule."""

    bootstrap: str
    workload: Workload
    numbers: list[int]
    processes: int
    schedule: list[Stretch] = []
    security: dict[str, str] = {}


class GroupJob(msgspec.Struct, tag="group"):
    """``members``: the group of each member to run."""

    bootstrap: str
    workload: Workload
    topics: list[str]
    members: list[str]
    security: dict[str, str] = {}


Job = ProduceJob | ConsumeJob | ConnectJob | GroupJob


class Go(msgspec.Struct, tag="go"):
    """Time zero, CLOCK_MONOTONIC."""

    start_ns: int


class ReadTo(msgspec.Struct, tag="read-to"):
    """To consumers: nothing more comes; you are done at these offsets, or at the deadline."""

    ends: TopicOffsets
    deadline_ns: int


class Stop(msgspec.Struct, tag="stop"):
    """Come to an end now, and report."""


Command = Go | ReadTo | Stop


class Ready(msgspec.Struct, tag="ready"):
    """The job is understood and its clients exist."""


class Interval(msgspec.Struct, tag="interval"):
    """What happened since the last one of the flow. ``measured_*`` leave the warm-up out."""

    flow: str
    at_ns: int
    records: int = 0
    bytes: int = 0
    failed: int = 0
    measured_records: int = 0
    measured_bytes: int = 0
    first_ns: int = 0
    """When the first measured one of all began; 0 before there is one."""
    last_ns: int = 0
    histogram: str = ""
    """Latencies of the measured ones (``histogram.Latencies.encoded``)."""


class Done(msgspec.Struct, tag="done"):
    """The worker's end. ``failure``: why it came early; ``counts``: what there is to reconcile."""

    failure: str | None = None
    counts: dict[str, int] = {}


Report = Ready | Interval | Done

job_decoder = msgspec.json.Decoder(Job)
command_decoder = msgspec.json.Decoder(Command)
report_decoder = msgspec.json.Decoder(Report)


def encoded(message: Job | Command | Report) -> bytes:
    """As one line."""
    return msgspec.json.encode(message) + b"\n"
