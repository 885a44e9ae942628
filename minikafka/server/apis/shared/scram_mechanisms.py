"""How requests name SCRAM mechanisms. Kafka: ``org.apache.kafka.clients.admin.ScramMechanism``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TYPES: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
