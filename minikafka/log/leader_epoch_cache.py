"""At which offset each leader epoch began in this log: how replicas find where they diverge.

Kafka's class: ``LeaderEpochFileCache`` (KIP-101, KIP-279, KIP-320). Kept in the text file
``leader-epoch-checkpoint``: version 0, a count, lines ``epoch startOffset``.

Invariants
- Epochs and start offsets both strictly increase.
- Every epoch that was assigned is in the file before ``assign`` returns (KAFKA-7415), so a process that dies
  loses none.
- The recovery point rises above an epoch's first record only when the file that names the epoch is durable:
  ``take_unsynced`` hands it to the flush that makes the records durable (``UnifiedLog.begin_flush``).

What a power cut leaves. ``assign`` does not wait for the disk, where Kafka's fsyncs: on an event loop that
is 2 ms for each of a thousand partitions. Until the disk thread has fsynced the file, a moment later, a start
may find
- the file torn, empty, or with zeros in it, because its name reached the disk before its bytes, or because it
  was written in place (``Files.overwrite``: short files, most of what starting and electing 20,000 leaders
  waits for). Every line ends with a newline and the second one counts the entries, so nothing that is not
  whole is read;
- a whole file that is older than the log: it lacks the newest epochs, or still has some that a truncation had
  removed. Those that it lacks and that have records lie above the recovery point, where recovery assigns them
  again. After every unclean stop all entries are then held against the batches (``recovery``).
Where the file is not whole or disagrees with a batch, all epochs are read from the headers of all batches.

So after a start each epoch that has a record begins and ends where the records say. One without records
(elected, never wrote) may be lost: nothing can diverge by it, and the next election takes a larger epoch,
because the store fsynced this one before the leader learned of it.

What a start leaves to later. Each restart of a leader that has written nothing meanwhile finds its last
epoch without a record, and drops it from memory only (``begin_before``): the next epoch is assigned a moment
later and replaces the file anyhow. With 20,000 partitions that was two fifths of a clean start's loading.
Until then the file *is behind*: it names an epoch that begins at the log end, as that of a leader which has
not written does. No record comes in between, because ``written_epoch`` is None while the file is behind.

Different from Kafka, besides: a file whose entries do not increase is damaged, not silently repaired.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from minikafka.errors import InvariantError
from minikafka.files import Files
from minikafka.log.checkpoint import (
    LEADER_EPOCH_CHECKPOINT,
    CorruptCheckpoint,
    EpochEntry,
    encode_leader_epochs,
    read_leader_epochs,
)
from minikafka.named_tuple import NamedTuple
from minikafka.types import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset

__all__ = ["UNDEFINED", "CorruptCheckpoint", "EpochEndOffset", "EpochEntry", "LeaderEpochCache"]


class EpochEndOffset(NamedTuple):
    """The end offset of an epoch; both fields are -1 when it is not known."""

    epoch: LeaderEpoch
    end_offset: Offset


UNDEFINED = EpochEndOffset(NO_EPOCH, NO_OFFSET)
"""The epoch is not known here; a follower falls back to its high watermark."""


class LeaderEpochCache:
    """The leader epochs of one partition's log.

    Raises:
        CorruptCheckpoint: from the constructor. ``reset`` removes the file; construct again and assign.
    """

    def __init__(self, directory: str, files: Files) -> None:
        self._path = os.path.join(directory, LEADER_EPOCH_CHECKPOINT)
        self._files = files
        entries = read_leader_epochs(files, self._path)
        self._epochs = [entry.epoch for entry in entries]
        self._starts = [entry.start_offset for entry in entries]
        self._is_durable = True
        self._is_behind = False
        """The file has entries that were dropped since; see the header."""

    def __repr__(self) -> str:
        return f"LeaderEpochCache({self._path!r}, {self.entries()})"

    @staticmethod
    def reset(directory: str, files: Files) -> None:
        """Remove the file, for a loader that found it damaged."""
        files.remove(os.path.join(directory, LEADER_EPOCH_CHECKPOINT))

    # Looking

    def entries(self) -> list[EpochEntry]:
        return list(map(EpochEntry, self._epochs, self._starts))

    def __bool__(self) -> bool:
        return bool(self._epochs)

    @property
    def latest_epoch(self) -> LeaderEpoch | None:
        return LeaderEpoch(self._epochs[-1]) if self._epochs else None

    @property
    def written_epoch(self) -> int | None:
        """The latest epoch, when the file agrees: a batch of it may be appended without ``assign``."""
        return self._epochs[-1] if self._epochs and not self._is_behind else None

    @property
    def earliest_entry(self) -> EpochEntry | None:
        return EpochEntry(self._epochs[0], self._starts[0]) if self._epochs else None

    def epoch_for_offset(self, offset: int) -> LeaderEpoch | None:
        """The epoch of the record at ``offset``; None when that is before all known epochs."""
        index = bisect_right(self._starts, offset)
        return LeaderEpoch(self._epochs[index - 1]) if index else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Where ``epoch`` ended: the start of the next one, the log's end for the latest, or ``UNDEFINED``.

        An unknown epoch is answered with the largest smaller one and its end (KIP-279). An epoch before all
        known ones is answered with itself and the start of the first: those records are gone already.
        """
        epochs = self._epochs
        if epoch == NO_EPOCH or not epochs or epoch > epochs[-1]:
            return UNDEFINED
        if epoch == epochs[-1]:
            return EpochEndOffset(LeaderEpoch(epoch), Offset(log_end_offset))
        higher = bisect_right(epochs, epoch)
        found = epochs[higher - 1] if higher else epoch
        return EpochEndOffset(LeaderEpoch(found), Offset(self._starts[higher]))

    # Changing

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Epoch ``epoch`` begins at ``start_offset``. In the file on return, durable when what
        ``take_unsynced`` names has been fsynced. Returns whether anything changed.

        Entries that this contradicts (a later epoch, or one that begins at or after it) are dropped.
        """
        if epoch < 0 or start_offset < 0:
            raise InvariantError(f"{self._path}: epoch {epoch} cannot begin at offset {start_offset}")
        epochs, starts = self._epochs, self._starts
        if epochs and epochs[-1] == epoch and starts[-1] <= start_offset:
            if self._is_behind:
                self._write()
            return False
        keep = min(bisect_left(epochs, epoch), bisect_left(starts, start_offset))
        self._epochs = [*epochs[:keep], epoch]
        self._starts = [*starts[:keep], start_offset]
        try:
            self._write()
        except OSError:
            self._epochs, self._starts = epochs, starts
            raise
        return True

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop the epochs that begin at or above ``end_offset``; returns whether there were any."""
        if not self._drop_from(end_offset):
            return False
        self._write()
        return True

    def begin_before(self, end_offset: int) -> None:
        """For a loader, of a log that ends there: drop the epochs that begin at or above ``end_offset``, and
        leave the file to the next change, see the header."""
        if self._drop_from(end_offset):
            self._is_behind = True

    def _drop_from(self, end_offset: int) -> bool:
        keep = bisect_left(self._starts, end_offset)
        if keep == len(self._starts):
            return False
        self._epochs, self._starts = self._epochs[:keep], self._starts[:keep]
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """The log now starts at ``start_offset``: its epoch begins there, earlier ones go."""
        index = bisect_right(self._starts, start_offset) - 1
        if index < 0 or (index == 0 and self._starts[0] == start_offset):
            return False
        self._epochs = self._epochs[index:]
        self._starts = [start_offset, *self._starts[index + 1 :]]
        self._write()
        return True

    def clear(self) -> None:
        """Forget all epochs, durably."""
        if self._epochs or self._is_behind:
            self._epochs, self._starts = [], []
            self._write_durably()

    def take_unsynced(self) -> str | None:
        """The file, when it waits for its fsync; the caller sees to that, and to the directory's. An fsync
        that fails is never tried again, so the file counts as durable from here on."""
        if self._is_durable:
            return None
        self._is_durable = True
        return self._path

    def update_directory(self, directory: str) -> None:
        """The partition's directory was renamed; an fsync that is under way may miss the file."""
        self._path = os.path.join(directory, LEADER_EPOCH_CHECKPOINT)
        self._is_durable = False

    def take_over(self, other: LeaderEpochCache) -> None:
        """Have the same epochs as the cache of a log with the same records."""
        self.replace(other.entries())

    def replace(self, entries: Sequence[EpochEntry]) -> None:
        """Have these epochs; what ``assign`` says of the file holds here too."""
        if self._is_behind or self.entries() != list(entries):
            self._epochs = [entry.epoch for entry in entries]
            self._starts = [entry.start_offset for entry in entries]
            self._write()

    def _encode(self) -> bytes:
        return encode_leader_epochs(map(EpochEntry, self._epochs, self._starts))

    def _write_durably(self) -> None:
        self._files.write_atomically(self._path, self._encode())
        self._is_durable = True
        self._is_behind = False

    def _write(self) -> None:
        """Write the file without waiting for the disk: survives the process, perhaps not a power cut."""
        self._files.overwrite(self._path, self._encode())
        self._is_durable = self._is_behind = False
