"""Who appends, and so how much has to be checked (Kafka's ``AppendOrigin``)."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from minikafka.log.producers.verification_state import VerificationGuard
from minikafka.protocol.records.batch import BatchHeader
from minikafka.types import Buffer

TRANSACTION_VERSION_UNKNOWN: Final = -1
"""A marker whose transaction version is not known: replicated, or read back from the log."""


class AppendOrigin(Enum):
    """The source of an append."""

    REPLICATION = "replication"
    """A follower copies what its leader has validated, or recovery replays the log: nothing is refused for
    its sequence, and a stale epoch is tolerated."""

    COORDINATOR = "coordinator"
    """A group or transaction coordinator of this broker: epochs are checked, sequences are not (offset
    commits have none)."""

    CLIENT = "client"
    """A producer: everything is checked."""


class CheckedBatch(NamedTuple):
    """One whole batch in the topic's codec, whose records are as they should be."""

    records: Buffer
    header: BatchHeader
    max_timestamp: int
    """Of its records, as they have it."""


class AppendTerms(NamedTuple):
    """What else a leader is told with a batch."""

    origin: AppendOrigin
    verification_guard: VerificationGuard | None = None
    """Of the check that lets a transaction begin here (KIP-890)."""
    transaction_version: int = TRANSACTION_VERSION_UNKNOWN
    """Of a marker, where its coordinator has told."""
    checked: CheckedBatch | None = None
    """The batch, where it was checked before."""


BY_CLIENT: Final = AppendTerms(AppendOrigin.CLIENT)
BY_COORDINATOR: Final = AppendTerms(AppendOrigin.COORDINATOR)
