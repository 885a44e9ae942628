"""The configuration of a transaction coordinator. Kafka: ``TransactionConfig``."""

from __future__ import annotations

from typing import Protocol


class TransactionSettings(Protocol):
    """Read anew at each use: some change while the broker runs."""

    transaction_max_timeout_ms: int
    transactional_id_expiration_ms: int
    transaction_version: int
    """The cluster's feature level, 0 to 2: the format of the records (0 for level 0, else 1), and whether the
    coordinator's own aborts follow the second version of the protocol (KIP-890)."""
