"""Steps of stories that are not in the tour."""

from __future__ import annotations

from minikafka.cli.tour.stage import Cell, Log, PartitionPicture, Picture, Replica, Span, Step, Supposition
from minikafka.types import BrokerId, LeaderEpoch, PartitionState, ReplicaAssignment

ISR = (BrokerId(1), BrokerId(2))


def a_log(*texts: str, high_watermark: int, epoch: int = 0) -> Log:
    end = len(texts)
    cells = tuple(Cell(offset, epoch, text) for offset, text in enumerate(texts))
    return Log(0, high_watermark, high_watermark, end, end * 10, (Span(epoch, 0, end),), cells)


def a_long_log(*spans: Span, high_watermark: int, size_bytes: int) -> Log:
    """With more records than are shown one by one."""
    return Log(0, high_watermark, high_watermark, spans[-1].end, size_bytes, spans, None)


def a_step(*replicas: Replica, number: int = 1, suppositions: tuple[Supposition, ...] = ()) -> Step:
    state = PartitionState(BrokerId(1), LeaderEpoch(0), ISR, controller_epoch=1)
    partition = PartitionPicture("story-0", state, ReplicaAssignment(ISR), replicas)
    picture = Picture(1_234.0, 4, 1, (3,), (), (partition,), ())
    return Step(number, "Something happens", "Because it does.", ("a fact",), picture, suppositions)
