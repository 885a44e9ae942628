"""The states of a transactional id. Kafka: ``TransactionState``, whose numbers are in the log.

=====================  =====================================================================
to                     from
=====================  =====================================================================
Empty                  Empty, CompleteCommit, CompleteAbort      InitProducerId
Ongoing                Ongoing, Empty, CompleteCommit,
                       CompleteAbort                             partitions are added
PrepareCommit          Ongoing                                   EndTxn
PrepareAbort           Ongoing, PrepareEpochFence, and of the
                       second protocol Empty, CompleteCommit,
                       CompleteAbort                             EndTxn, or a fence
CompleteCommit         PrepareCommit                             all markers are written
CompleteAbort          PrepareAbort                              all markers are written
Dead                   Empty, CompleteCommit, CompleteAbort      the id expires
PrepareEpochFence      Ongoing                                   InitProducerId, time-out
=====================  =====================================================================

PrepareEpochFence and Dead are never anybody's state: an id passes through the one on its way to PrepareAbort,
and ends with the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class TransactionState(Enum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        """As DescribeTransactions and ListTransactions spell it."""
        return _NAMES[self]

    @property
    def is_prepared(self) -> bool:
        """The end is decided; its markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """No transaction is going on: one may begin, or the id expire."""
        return self in _IDLE


_NAMES: Final = {state: state.name.title().replace("_", "") for state in TransactionState}
_IDLE: Final = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)

VALID_PREVIOUS_STATES: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    TransactionState.EMPTY: _IDLE,
    TransactionState.ONGOING: _IDLE | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: (
        _IDLE | {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE}
    ),
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: _IDLE,
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
}

STATE_OF_NAME: Final[Mapping[str, TransactionState]] = {name: state for state, name in _NAMES.items()}
