"""One file per API, with the name of its key: what it does, which versions differ how, and one ``handle``.

``HANDLERS`` is the list of all of them. A file is imported when its API is first
asked for, or soon after the broker's start. Those APIs that
this broker does not have share ``refusal``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

from minikafka.protocol.wire.api_versions import ANSWERED, BETWEEN_BROKERS, REFUSED, ApiKey


class _Handlers(Mapping[ApiKey, Any]):
    """The ``handle`` of each file."""

    def __init__(self) -> None:
        self._keys: Final = ANSWERED.keys() | BETWEEN_BROKERS.keys()

    def __getitem__(self, key: ApiKey) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return import_module(_module_of(key)).handle

    def __iter__(self) -> Iterator[ApiKey]:
        return iter(sorted(self._keys))

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def modules(self) -> list[str]:
        """The names of all files."""
        return sorted({_module_of(key) for key in self._keys})


def _module_of(key: ApiKey) -> str:
    name = "refusal" if key in REFUSED else key.name.lower()
    return f"{__name__}.{_FAMILIES.get(name, name)}"


_FAMILIES: Final = {
    "add_partitions_to_txn": "transactions",
    "alter_client_quotas": "client_quotas",
    "alter_user_scram_credentials": "scram_credentials",
    "consumer_group_heartbeat": "consumer_groups",
    "create_acls": "acls",
    "delete_topics": "topics",
    "describe_configs": "configs",
    "describe_delegation_token": "delegation_tokens",
    "describe_log_dirs": "log_dirs",
    "describe_quorum": "cluster",
    "elect_leaders": "reassignments",
    "find_coordinator": "groups",
    "get_telemetry_subscriptions": "telemetry",
    "join_group": "classic_groups",
    "list_offsets": "partition_offsets",
    "offset_fetch": "offsets",
    "sasl_handshake": "sasl",
}
"""Files with the name of their family."""
HANDLERS: Final = _Handlers()
