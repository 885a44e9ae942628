"""What a leader knows of one follower: how far it has fetched, and since when it keeps up.

Kafka: ``Replica`` and ``ReplicaState``; KIP-16 (lag is a time, not a number of records).

A fetch at an offset says that the follower holds everything below. It is caught up at the time t when it
has fetched up to where the leader's log ended at t:

====================================================  ==================================
a fetch at an offset                                  makes the last caught-up time
====================================================  ==================================
not below the leader's log end now                    the time of this fetch
not below the leader's log end at the fetch before    the time of the fetch before
below both                                            stay as it was
====================================================  ==================================

The second row is for a busy partition: its log end is always ahead of a follower that keeps up perfectly.

Times are monotonic milliseconds, where Kafka takes the wall clock: setting a clock must not shrink an ISR.
"""

from __future__ import annotations

from typing import Final

from minikafka.types import NO_OFFSET, BrokerId, Offset

NEVER_MS: Final = -(2**62)
"""Before any time: the follower was not caught up since this leader leads."""

NO_BROKER_EPOCH: Final = -1
"""The follower did not say which incarnation of its broker it is (Fetch before version 15)."""


class ReplicaProgress:
    """One follower of one partition. Invariant: the last caught-up time never goes back between resets."""

    __slots__ = (
        "broker_epoch", "broker_id", "last_caught_up_ms", "last_fetch_leader_end_offset", "last_fetch_ms",
        "log_end_offset", "log_start_offset",
    )  # fmt: skip

    def __init__(self, broker_id: BrokerId) -> None:
        self.broker_id = broker_id
        self.log_end_offset = NO_OFFSET
        """-1 until it has fetched from this leader."""
        self.log_start_offset = NO_OFFSET
        self.last_caught_up_ms = NEVER_MS
        self.last_fetch_ms = NEVER_MS
        self.last_fetch_leader_end_offset = NO_OFFSET
        self.broker_epoch = NO_BROKER_EPOCH

    def __repr__(self) -> str:
        return (
            f"ReplicaProgress(broker {self.broker_id}, log_start={self.log_start_offset}, "
            f"log_end={self.log_end_offset}, last_caught_up_ms={self.last_caught_up_ms}, "
            f"last_fetch_ms={self.last_fetch_ms}, broker_epoch={self.broker_epoch})"
        )

    def fetched(
        self,
        *,
        fetch_offset: Offset,
        log_start_offset: Offset,
        leader_end_offset: Offset,
        now_ms: int,
        broker_epoch: int = NO_BROKER_EPOCH,
    ) -> None:
        """The follower fetched at ``fetch_offset`` when the leader's log ended at ``leader_end_offset``."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self.last_fetch_leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.last_fetch_leader_end_offset = max(leader_end_offset, self.last_fetch_leader_end_offset)
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def leader_epoch_began(
        self, *, leader_end_offset: Offset, now_ms: int, was_leading: bool, is_in_sync: bool
    ) -> None:
        """This broker leads in a new epoch, and did or did not lead in the one before.

        A member of the ISR counts as caught up now, so that it has the whole lag time to fetch. Any other
        was never caught up, so that the high watermark does not wait for it.
        """
        self.last_caught_up_ms = now_ms if is_in_sync else NEVER_MS
        if was_leading:
            self.last_fetch_leader_end_offset = leader_end_offset
            self.last_fetch_ms = self.last_caught_up_ms
        else:
            self.log_end_offset = self.log_start_offset = NO_OFFSET
            self.last_fetch_leader_end_offset = NO_OFFSET
            self.last_fetch_ms = NEVER_MS
            self.broker_epoch = NO_BROKER_EPOCH

    def is_caught_up(self, *, leader_end_offset: Offset, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether it holds all that the leader has, or did so within the lag time."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_time_max_ms
