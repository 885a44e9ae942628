"""Older releases of Apache Kafka as their brokers look to clients: what ``api.versions`` chooses from.

For those who test clients: a broker that imitates a release answers ApiVersions with its ranges, bit for bit
(KIP-35, KIP-511), names the feature levels of a new cluster of that release (KIP-584), takes no request in a
newer version, and answers UNSUPPORTED_VERSION to the APIs that the release had and had switched off. What the
requests do is what they do in 4.4. Each range is what a broker of that release answers with its defaults, in
KRaft mode: of 3.9 too, because its brokers on ZooKeeper offer clients the same and beside it the APIs between
brokers, which no client may use.

Where an imitation differs from its release:
- Versions that Kafka 4 has removed (KIP-896) are advertised for 3.9, and not served: they need message
  formats that are gone. A connection that uses one closes, as on a 4.x broker. Clients of the last ten years
  choose newer ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from minikafka.named_tuple import NamedTuple
from minikafka.protocol.wire.api_versions import ADVERTISED, ApiKey, VersionRange


class Release(NamedTuple):
    """What clients see of one release."""

    advertised: Mapping[ApiKey, VersionRange]
    """In the order of the keys; with the APIs of client metrics."""
    features: Mapping[str, int]
    """The finalized level of each feature."""
    switched_off: frozenset[ApiKey] = frozenset()
    """Advertised, and answered with UNSUPPORTED_VERSION: the level of their feature is 0 by default."""

    def advertises_to(self, software_name: str) -> bool:
        """Whether a client sees this release. The cluster's brokers and our own tools do not: they speak
        every version with each other."""
        return software_name != OWN_SOFTWARE


OWN_SOFTWARE: Final = "minikafka"
"""How our own client names itself in ApiVersions."""

GROUP_VERSION: Final = "group.version"
METADATA_VERSION: Final = "metadata.version"
TRANSACTION_VERSION: Final = "transaction.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"


def _older(changes: Mapping[ApiKey, tuple[int, int] | None]) -> dict[ApiKey, VersionRange]:
    """The ranges of 4.4 with ``changes``; None: the release does not have the API."""
    ranges: dict[ApiKey, VersionRange] = {}
    for key, versions in ADVERTISED.items():
        changed = changes.get(key, versions)
        if changed is not None:
            ranges[key] = VersionRange(*changed)
    return ranges


SHARE_GROUP_APIS: Final = (
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
)
STREAMS_GROUP_APIS: Final = (
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    ApiKey.STREAMS_GROUP_DESCRIBE,
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
)

_4_1: Final = Release(
    advertised=_older(
        {
            ApiKey.LIST_OFFSETS: (1, 10),
            ApiKey.OFFSET_COMMIT: (2, 9),
            ApiKey.OFFSET_FETCH: (1, 9),
            ApiKey.API_VERSIONS: (0, 4),
            ApiKey.WRITE_TXN_MARKERS: (1, 1),
            ApiKey.TXN_OFFSET_COMMIT: (0, 5),
            ApiKey.DESCRIBE_LOG_DIRS: (1, 4),
            ApiKey.DELETE_GROUPS: (0, 2),
            ApiKey.SHARE_FETCH: (1, 1),
            ApiKey.SHARE_ACKNOWLEDGE: (1, 1),
            ApiKey.ADD_RAFT_VOTER: (0, 0),
            ApiKey.WRITE_SHARE_GROUP_STATE: (0, 0),
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (0, 0),
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 0),
            **dict.fromkeys(STREAMS_GROUP_APIS),
            ApiKey.UNREGISTER_CONTROLLER: None,
        }
    ),
    features={
        GROUP_VERSION: 1,
        METADATA_VERSION: 27,
        TRANSACTION_VERSION: 2,
        ELIGIBLE_LEADER_REPLICAS_VERSION: 1,
    },
    switched_off=frozenset(SHARE_GROUP_APIS),
)

_3_9: Final = Release(
    advertised=_older(
        {
            ApiKey.PRODUCE: (0, 11),
            ApiKey.FETCH: (0, 17),
            ApiKey.LIST_OFFSETS: (0, 9),
            ApiKey.METADATA: (0, 12),
            ApiKey.OFFSET_COMMIT: (0, 9),
            ApiKey.OFFSET_FETCH: (0, 9),
            ApiKey.DESCRIBE_GROUPS: (0, 5),
            ApiKey.API_VERSIONS: (0, 4),
            ApiKey.CREATE_TOPICS: (0, 7),
            ApiKey.DELETE_TOPICS: (0, 6),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: (0, 4),
            ApiKey.END_TXN: (0, 4),
            ApiKey.WRITE_TXN_MARKERS: (0, 1),
            ApiKey.TXN_OFFSET_COMMIT: (0, 4),
            ApiKey.DESCRIBE_ACLS: (0, 3),
            ApiKey.CREATE_ACLS: (0, 3),
            ApiKey.DELETE_ACLS: (0, 3),
            ApiKey.DESCRIBE_CONFIGS: (0, 4),
            ApiKey.ALTER_REPLICA_LOG_DIRS: (0, 2),
            ApiKey.DESCRIBE_LOG_DIRS: (0, 4),
            ApiKey.CREATE_DELEGATION_TOKEN: (0, 3),
            ApiKey.RENEW_DELEGATION_TOKEN: (0, 2),
            ApiKey.EXPIRE_DELEGATION_TOKEN: (0, 2),
            ApiKey.DESCRIBE_DELEGATION_TOKEN: (0, 3),
            ApiKey.DELETE_GROUPS: (0, 2),
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 0),
            ApiKey.UPDATE_FEATURES: (0, 1),
            ApiKey.DESCRIBE_CLUSTER: (0, 1),
            ApiKey.LIST_TRANSACTIONS: (0, 1),
            ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 0),
            ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 0),
            ApiKey.LIST_CONFIG_RESOURCES: (0, 0),
            ApiKey.ADD_RAFT_VOTER: (0, 0),
            **dict.fromkeys(SHARE_GROUP_APIS),
            **dict.fromkeys(STREAMS_GROUP_APIS),
            ApiKey.UNREGISTER_CONTROLLER: None,
        }
    ),
    features={METADATA_VERSION: 21},
    switched_off=frozenset({ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE}),
)

OLDER: Final[Mapping[str, Release]] = {"3.9": _3_9, "4.1": _4_1}
"""By the values of ``api.versions``."""
