"""Who appends, and so how much has to be checked (Kafka's ``AppendOrigin``)."""

from __future__ import annotations

from enum import Enum


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
