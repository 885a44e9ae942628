"""The APIs, a file for each family of them.

Each API has one function, ``handle_`` and the name of its key: what it does, and which of its versions differ
how. ``HANDLERS`` is the list of all of them. A file is imported when the first of its APIs is asked for, or
soon after the broker's start. Those APIs that this broker does not have share ``refusal``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

from minikafka.protocol.wire.api_versions import ANSWERED, BETWEEN_BROKERS, REFUSED, ApiKey

_FAMILIES: Final = {
    "acls": (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS),
    "api_versions": (ApiKey.API_VERSIONS,),
    "client_quotas": (ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS),
    "cluster": (
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.UNREGISTER_BROKER,
    ),
    "configs": (
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.LIST_CONFIG_RESOURCES,
    ),
    "consumer_groups": (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE),
    "control": (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    ),
    "credentials": (
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    ),
    "fetch": (ApiKey.FETCH,),
    "groups": (
        ApiKey.FIND_COORDINATOR,
        ApiKey.LIST_GROUPS,
        ApiKey.DELETE_GROUPS,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.DESCRIBE_GROUPS,
    ),
    "partition_offsets": (ApiKey.DELETE_RECORDS, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH),
    "log_dirs": (ApiKey.ALTER_REPLICA_LOG_DIRS, ApiKey.DESCRIBE_LOG_DIRS),
    "metadata": (ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS),
    "offsets": (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.TXN_OFFSET_COMMIT, ApiKey.OFFSET_DELETE),
    "produce": (ApiKey.PRODUCE,),
    "share_groups": (
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ),
    "streams_groups": (ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE),
    "telemetry": (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY),
    "topics": (
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ),
    "transactions": (
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.WRITE_TXN_MARKERS,
    ),
}  # fmt: skip
"""The files, and the APIs in each."""
_MODULES: Final = {key: f"{__name__}.{family}" for family, keys in _FAMILIES.items() for key in keys}


class _Handlers(Mapping[ApiKey, Any]):
    """The function that answers each API."""

    def __init__(self) -> None:
        self._keys: Final = ANSWERED.keys() | BETWEEN_BROKERS.keys()

    def __getitem__(self, key: ApiKey) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        if key in REFUSED:
            return import_module(f"{__name__}.refusal").handle
        return getattr(import_module(_MODULES[key]), f"handle_{key.name.lower()}")

    def __iter__(self) -> Iterator[ApiKey]:
        return iter(sorted(self._keys))

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def modules(self) -> list[str]:
        """The names of all files."""
        return sorted({f"{__name__}.refusal", *_MODULES.values()})


HANDLERS: Final = _Handlers()
