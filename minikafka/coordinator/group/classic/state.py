"""The states of a group of the classic protocol. Kafka: ``ClassicGroupState``.

====================  ===================  ===================  ====================  =====================
state                 JoinGroup            SyncGroup            Heartbeat             OffsetCommit
====================  ===================  ===================  ====================  =====================
EMPTY                 new members only     UNKNOWN_MEMBER_ID    UNKNOWN_MEMBER_ID     without a generation
PREPARING_REBALANCE   parked               REBALANCE_IN_-       REBALANCE_IN_-        of the generation that
                                           PROGRESS             PROGRESS              ends
COMPLETING_REBALANCE  answered, or a new   parked until the     answered              REBALANCE_IN_PROGRESS
                      rebalance            leader's is stored
STABLE                answered, or a new   answered             answered              of this generation
                      rebalance
DEAD                  the group is gone: nobody finds it any more
====================  ===================  ===================  ====================  =====================
"""

from __future__ import annotations

from enum import Enum


class ClassicGroupState(Enum):
    """Values are Kafka's spellings, which clients see."""

    EMPTY = "Empty"
    """No members; offsets may be left. New groups and those that only hold offsets are here, too."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits until all members have joined again, or the rebalance timeout is over."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Waits for the leader's assignment."""
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS_STATES: dict[ClassicGroupState, frozenset[ClassicGroupState]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        {ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY}
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.COMPLETING_REBALANCE}),
    ClassicGroupState.DEAD: frozenset(ClassicGroupState),
}
"""From where each state may be entered."""
