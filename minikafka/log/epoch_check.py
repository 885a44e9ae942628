"""Leader epochs held against the batches of a log: what the file says, and what the headers say.

No class of Kafka's: its ``LeaderEpochFileCache`` fsyncs each epoch before use and then trusts its file. Here
the file may be torn after a power cut, or older than the log (``leader_epoch_cache``), and a wrong entry
makes replicas truncate below the high watermark.

Epochs never fall within a log, so an epoch's first and last batch speak for all between them: two look-ups an
entry, by the offset index, and no scan. Compaction may leave an epoch without a batch; nothing contradicts
such an entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from minikafka.log.files.checkpoint import EpochEntry
from minikafka.log.segment.file_records import BatchPlace, CorruptSegment
from minikafka.log.segment.log_segments import LogSegments
from minikafka.types import NO_EPOCH


def find_contradiction(
    entries: Sequence[EpochEntry], segments: LogSegments, *, log_start_offset: int, log_end_offset: int
) -> str | None:
    """Where epochs, all of which begin within the log, disagree with its batches; None when they agree.

    Raises:
        OSError: the disk's.
    """
    spans = [*entries, EpochEntry(NO_EPOCH, log_end_offset)]
    if spans[0].start_offset > log_start_offset:
        spans.insert(0, EpochEntry(NO_EPOCH, log_start_offset))
    try:
        for (epoch, start_offset), (_, end_offset) in pairwise(spans):
            first = _first_batch_from(segments, start_offset)
            if first is None or first.base_offset >= end_offset:
                continue  # compacted away, or an empty log
            if first.base_offset < start_offset and start_offset > log_start_offset:
                return f"epoch {epoch} cannot begin at {start_offset}, inside of batch {first.base_offset}"
            last = _last_batch_below(segments, end_offset)
            for batch in (first, last):
                if batch is not None and batch.leader_epoch not in (epoch, NO_EPOCH):
                    said = f"epoch {epoch} begins at {start_offset}" if epoch >= 0 else "no epoch has begun"
                    return f"{said}, but batch {batch.base_offset} is of epoch {batch.leader_epoch}"
    except CorruptSegment as error:
        return str(error)
    finally:
        segments.release()
    return None


def read_epochs(segments: LogSegments) -> list[EpochEntry]:
    """The epochs in the headers of all batches, of each segment up to its first damage. Raises OSError."""
    entries: list[EpochEntry] = []
    for segment in segments:
        for batch in segment.batches_until_damage():
            if batch.leader_epoch > (entries[-1].epoch if entries else NO_EPOCH):
                entries.append(EpochEntry(batch.leader_epoch, batch.base_offset))
        segment.release()
    return entries


def _first_batch_from(segments: LogSegments, offset: int) -> BatchPlace | None:
    """The first batch that reaches ``offset``."""
    for segment in segments.from_offset(offset):
        found = segment.find_batch(offset)
        if found is not None:
            return found
    return None


def _last_batch_below(segments: LogSegments, offset: int) -> BatchPlace | None:
    """The last batch that begins below ``offset``."""
    for index in range(segments.floor_index(offset - 1), -1, -1):
        found = segments[index].find_last_batch_below(offset)
        if found is not None:
            return found
    return None
