"""The experiments with a throttled reassignment that were published for Kafka 2.5: what is moved where, what
is expected, and the table of what came out.

Every partition has one replica and ``FULL_SIZE_BYTES``; the throttle is ``RATE``, as
``minikafka reassign execute --throttle`` sets it. The tests run them at full size under virtual time, and at
a fortieth of it in real time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from minikafka.cli.reassign.command import CopyEstimate
from minikafka.units import format_bytes, format_duration

TOPIC = "moved"
RATE = 300 * 1024
"""Bytes a second."""
FULL_SIZE_BYTES = 200 * 1024 * 1024
"""Of a partition. At ``RATE`` it takes 683 s."""
TWICE = (1.5, 2.05)
"""What two moves may take that share a broker, measured in one move."""
ONCE = (0.97, 1.03)


class Experiment(NamedTuple):
    """Partitions that move, each from one broker to another."""

    name: str
    moves: tuple[tuple[int, int], ...]
    published_s: int | None
    """What was measured with Kafka 2.5; None: only that it is as long as one move."""

    def plan(self, topic: str = TOPIC) -> str:
        """As ``minikafka reassign`` reads it."""
        return plan_of(*([target] for _, target in self.moves), topic=topic)

    def estimate(self, partition_bytes: int) -> CopyEstimate:
        """What is to be said of it beforehand."""
        sources, targets = ({move[side] for move in self.moves} for side in (0, 1))
        return CopyEstimate(partition_bytes * len(self.moves), leaders=len(sources), followers=len(targets))


ONE_MOVE = Experiment("one move", ((1, 3),), 11 * 60 + 3)
SAME_SOURCE = Experiment("two moves from the same broker", ((1, 3), (1, 4)), 19 * 60 + 11)
SAME_TARGET = Experiment("two moves to the same broker", ((1, 3), (2, 3)), 20 * 60 + 35)
NOTHING_SHARED = Experiment("two moves with nothing in common", ((1, 3), (2, 4)), None)


class Outcome(NamedTuple):
    """How an experiment went."""

    experiment: Experiment
    estimate: CopyEstimate
    took_ms: float

    @property
    def estimate_ms(self) -> float:
        duration_ms = self.estimate.duration_ms(RATE)
        assert duration_ms is not None
        return duration_ms


def plan_of(*replicas: Sequence[int], topic: str = TOPIC) -> str:
    """The plan that puts each partition onto these brokers, as ``minikafka reassign`` reads it."""
    partitions = [
        {"topic": topic, "partition": number, "replicas": list(each)} for number, each in enumerate(replicas)
    ]
    return json.dumps({"version": 1, "partitions": partitions})


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Estimates and outcomes side by side; the first is one move, with which the others are compared."""
    one = outcomes[0]
    assert one.experiment is ONE_MOVE and ONE_MOVE.published_s is not None
    rows = [
        ("experiment", "to copy", "estimate", "outcome", "of estimate", "of one move", "Kafka 2.5, full size")
    ]
    for outcome in outcomes:
        experiment = outcome.experiment
        published = "as long as one"
        if experiment.published_s is not None:
            ratio = experiment.published_s / ONE_MOVE.published_s
            published = f"{format_duration(experiment.published_s * 1000)}, {ratio:.2f} of one"
        rows.append(
            (
                experiment.name,
                format_bytes(outcome.estimate.size_bytes),
                format_duration(outcome.estimate_ms),
                format_duration(outcome.took_ms),
                f"{outcome.took_ms / outcome.estimate_ms:.2f}",
                f"{outcome.took_ms / one.took_ms:.2f}",
                published,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
