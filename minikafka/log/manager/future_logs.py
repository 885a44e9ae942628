"""What becomes of the ``-future`` directories that a start finds: half-moved replicas (KIP-113). Pure.

Kafka: ``LogManager.loadLog`` and ``recoverAbandonedFutureLogs``.

=============================================  ==========================================================
the partition has a current log                the move goes on
it has none, and a ``-delete`` directory with  the replacement had begun, and this is the replica: the
the same digits is there                       directory gets its name
it has none, and a log directory is offline    left alone: the current log may be there
it has none, all log directories are there     set aside as ``-stray``: the current log was removed by
                                               somebody, and this may be all that is left of it
one of its others goes on already              removed: the target of the move was changed
=============================================  ==========================================================

Differs from Kafka, which creates an empty current log in the fourth case and cuts the future one to it, and
asks its controller in the second; with ZooKeeper it finds two current logs there and does not start.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple
from uuid import UUID

from minikafka.log.files.names import parse_directory_name
from minikafka.types import TopicPartition


class FoundLog(NamedTuple):
    """A directory with a log, and what the checkpoints of its log directory say about it."""

    directory: str
    topic_partition: TopicPartition
    unique: str
    """The digits in the name; empty for a current log."""
    topic_id: UUID | None
    was_clean: bool
    log_start_offset: int
    recovery_point: int
    high_watermark: int
    first_dirty_offset: int | None = None


class Fate(Enum):
    """What to do with a future log that was found; see the table."""

    GO_ON = auto()
    BECOME_CURRENT = auto()
    LEAVE = auto()
    SET_ASIDE = auto()
    REMOVE = auto()


def decide_fates(
    futures: Iterable[FoundLog],
    *,
    current: Collection[TopicPartition],
    waiting_for_removal: Iterable[str],
    all_are_live: bool,
) -> Sequence[tuple[FoundLog, Fate]]:
    """What to do with each of ``futures``, in this order.

    Args:
        current: the partitions that have a current log.
        waiting_for_removal: the ``-delete`` directories in the live log directories.
        all_are_live: no log directory is offline.
    """
    removed = [parse_directory_name(os.path.basename(path)) for path in waiting_for_removal]
    replaced = {(each.topic_partition, each.unique) for each in removed if each is not None}
    hosted = set(current)
    moving: set[TopicPartition] = set()
    fates: list[tuple[FoundLog, Fate]] = []
    rest: list[FoundLog] = []
    for found in futures:
        at = found.topic_partition
        if at not in hosted and (at, found.unique) in replaced:
            hosted.add(at)
            fates.append((found, Fate.BECOME_CURRENT))
        else:
            rest.append(found)
    for found in rest:
        at = found.topic_partition
        if at in moving:
            fate = Fate.REMOVE
        elif at in hosted:
            moving.add(at)
            fate = Fate.GO_ON
        else:
            fate = Fate.SET_ASIDE if all_are_live else Fate.LEAVE
        fates.append((found, fate))
    return fates
