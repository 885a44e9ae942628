"""Which APIs this broker speaks, in which versions: the ranges of Apache Kafka 4.4, or of one it imitates.

Clients infer a broker's release from these ranges, so they come from one release as a whole and never widen
piece by piece. InitProducerId 6 is left out, because 4.4 holds it back (``latestVersionUnstable`` in Kafka's
message JSON). Kafka: ``ApiKeys``, ``ApiVersionsResponse``; KIP-35, KIP-511, KIP-896.

What clients make of it:
- kafka-python (``infer_broker_version_from_api_versions``) takes the newest release it knows of which all is
  here.
- librdkafka (``rdkafka_feature.c``) turns on ApiVersion, MsgVer2, LZ4, ZSTD, OffsetTime, IdempotentProducer,
  BrokerGroupCoordinator and BrokerBalancedConsumer, for which JoinGroup 0 has to be there (KAFKA-19444).
  MsgVer1 and ThrottleTime ask for Fetch 2 or less, which no 4.x broker offers.
- franz-go and kcl (``kversion.VersionGuess``) know a release only if every API of its broker listener is
  here with its newest version.
- Java (``NodeApiVersions``) intersects ranges API by API and looks at no release.

So the APIs that this broker refuses (``REFUSED``) are advertised too. That promises no more than Kafka's
own ranges do: they name streams groups while ``streams.version`` is 0, and each such request is answered with
an error, as is one for delegation tokens without a secret, or for SASL on a listener that has none.

Produce is advertised from version 0, as Kafka 4 does (KAFKA-18659): librdkafka compresses only when version
0 lies in the range of Produce (librdkafka #4956; 7 for zstd), and otherwise sends the batch as it is.
Versions 0 to 2 carry message formats that are gone; a request in one of them is an unsupported version,
which is why ``SUPPORTED`` differs from ``ADVERTISED``.

**Older releases** as their brokers look to clients are what ``api.versions`` chooses from, for those who test
clients. A broker that imitates a release answers ApiVersions with its ranges, bit for bit
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
from enum import IntEnum
from typing import Final

from minikafka.named_tuple import NamedTuple

OWN_SOFTWARE: Final = "minikafka"
"""How our own client names itself in ApiVersions."""

GROUP_VERSION: Final = "group.version"
METADATA_VERSION: Final = "metadata.version"
TRANSACTION_VERSION: Final = "transaction.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"


class ApiKey(IntEnum):
    """Kafka's api keys, by Kafka's names (``ApiKeys.java``)."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94


class VersionRange(NamedTuple):
    """Versions of one API, both ends included."""

    min: int
    max: int


SUPPORTED: Final[dict[ApiKey, VersionRange]] = {
    ApiKey.PRODUCE: VersionRange(3, 13),
    ApiKey.FETCH: VersionRange(4, 18),
    ApiKey.LIST_OFFSETS: VersionRange(1, 11),
    ApiKey.METADATA: VersionRange(0, 13),
    ApiKey.OFFSET_COMMIT: VersionRange(2, 10),
    ApiKey.OFFSET_FETCH: VersionRange(1, 10),
    ApiKey.FIND_COORDINATOR: VersionRange(0, 6),
    ApiKey.JOIN_GROUP: VersionRange(0, 9),
    ApiKey.HEARTBEAT: VersionRange(0, 4),
    ApiKey.LEAVE_GROUP: VersionRange(0, 5),
    ApiKey.SYNC_GROUP: VersionRange(0, 5),
    ApiKey.DESCRIBE_GROUPS: VersionRange(0, 6),
    ApiKey.LIST_GROUPS: VersionRange(0, 5),
    ApiKey.SASL_HANDSHAKE: VersionRange(0, 1),
    ApiKey.API_VERSIONS: VersionRange(0, 5),
    ApiKey.CREATE_TOPICS: VersionRange(2, 7),
    ApiKey.DELETE_TOPICS: VersionRange(1, 6),
    ApiKey.DELETE_RECORDS: VersionRange(0, 2),
    ApiKey.INIT_PRODUCER_ID: VersionRange(0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: VersionRange(2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: VersionRange(0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: VersionRange(0, 4),
    ApiKey.END_TXN: VersionRange(0, 5),
    ApiKey.WRITE_TXN_MARKERS: VersionRange(1, 2),
    ApiKey.TXN_OFFSET_COMMIT: VersionRange(0, 6),
    ApiKey.DESCRIBE_ACLS: VersionRange(1, 3),
    ApiKey.CREATE_ACLS: VersionRange(1, 3),
    ApiKey.DELETE_ACLS: VersionRange(1, 3),
    ApiKey.DESCRIBE_CONFIGS: VersionRange(1, 4),
    ApiKey.ALTER_CONFIGS: VersionRange(0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: VersionRange(1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: VersionRange(1, 5),
    ApiKey.SASL_AUTHENTICATE: VersionRange(0, 2),
    ApiKey.CREATE_PARTITIONS: VersionRange(0, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: VersionRange(1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: VersionRange(1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: VersionRange(1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: VersionRange(1, 3),
    ApiKey.DELETE_GROUPS: VersionRange(0, 3),
    ApiKey.ELECT_LEADERS: VersionRange(0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: VersionRange(0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: VersionRange(0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: VersionRange(0, 0),
    ApiKey.OFFSET_DELETE: VersionRange(0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: VersionRange(0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: VersionRange(0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: VersionRange(0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: VersionRange(0, 0),
    ApiKey.DESCRIBE_QUORUM: VersionRange(0, 2),
    ApiKey.UPDATE_FEATURES: VersionRange(0, 2),
    ApiKey.DESCRIBE_CLUSTER: VersionRange(0, 2),
    ApiKey.DESCRIBE_PRODUCERS: VersionRange(0, 0),
    ApiKey.UNREGISTER_BROKER: VersionRange(0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: VersionRange(0, 0),
    ApiKey.LIST_TRANSACTIONS: VersionRange(0, 2),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: VersionRange(0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: VersionRange(0, 1),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: VersionRange(0, 0),
    ApiKey.PUSH_TELEMETRY: VersionRange(0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: VersionRange(0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: VersionRange(0, 0),
    ApiKey.SHARE_FETCH: VersionRange(1, 2),
    ApiKey.SHARE_ACKNOWLEDGE: VersionRange(1, 2),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: VersionRange(0, 0),
    ApiKey.READ_SHARE_GROUP_STATE: VersionRange(0, 0),
    ApiKey.WRITE_SHARE_GROUP_STATE: VersionRange(0, 1),
    ApiKey.DELETE_SHARE_GROUP_STATE: VersionRange(0, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: VersionRange(0, 1),
    ApiKey.SHARE_GROUP_HEARTBEAT: VersionRange(1, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: VersionRange(1, 1),
    ApiKey.STREAMS_GROUP_HEARTBEAT: VersionRange(0, 1),
    ApiKey.STREAMS_GROUP_DESCRIBE: VersionRange(0, 1),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: VersionRange(0, 1),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: VersionRange(0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: VersionRange(0, 0),
}
"""What requests are served in; the codec reads and writes every one of these."""


REFUSED: Final[dict[ApiKey, VersionRange]] = {
    ApiKey.ADD_RAFT_VOTER: VersionRange(0, 1),
    ApiKey.REMOVE_RAFT_VOTER: VersionRange(0, 0),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: VersionRange(0, 0),
    ApiKey.UNREGISTER_CONTROLLER: VersionRange(0, 0),
}
"""What Kafka's broker listener has and this broker does not: each request is answered with
UNSUPPORTED_VERSION, in its own schema (``server.apis.refusal``). Clients that ask without looking at
ApiVersions (Sarama, kafka-go) would take a closed connection for a broken broker, and try again."""


ANSWERED: Final[dict[ApiKey, VersionRange]] = SUPPORTED | REFUSED
"""What a client gets an answer to, whether it is served or refused."""


ADVERTISED: Final[dict[ApiKey, VersionRange]] = dict(sorted(ANSWERED.items())) | {
    ApiKey.PRODUCE: VersionRange(0, SUPPORTED[ApiKey.PRODUCE].max)
}
"""What ApiVersions answers, in the order of the keys; but for client metrics while there is no
subscription."""


BETWEEN_BROKERS: Final[dict[ApiKey, VersionRange]] = {
    ApiKey.LEADER_AND_ISR: VersionRange(0, 7),
    ApiKey.STOP_REPLICA: VersionRange(0, 4),
    ApiKey.UPDATE_METADATA: VersionRange(0, 8),
    ApiKey.CONTROLLED_SHUTDOWN: VersionRange(0, 3),
    ApiKey.ALTER_PARTITION: VersionRange(2, 3),
    ApiKey.ALLOCATE_PRODUCER_IDS: VersionRange(0, 0),
}
"""Served too, and not advertised to clients: between a controller and its brokers, as on ZooKeeper."""


CONTROL_VALUES: Final = frozenset(
    (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN)
)
"""Those whose bodies are values of ``protocol.control``; their bytes: ``control_bodies``. Version 0 is
that of minikafka 0.2.0."""


FLEXIBLE_SINCE: Final[dict[ApiKey, int]] = {
    ApiKey.LEADER_AND_ISR: 4,
    ApiKey.STOP_REPLICA: 2,
    ApiKey.UPDATE_METADATA: 6,
    ApiKey.CONTROLLED_SHUTDOWN: 3,
    ApiKey.ALTER_PARTITION: 0,
    ApiKey.ALLOCATE_PRODUCER_IDS: 0,
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 6,
    ApiKey.METADATA: 9,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 6,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.JOIN_GROUP: 6,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 4,
    ApiKey.SYNC_GROUP: 4,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.LIST_GROUPS: 3,
    ApiKey.API_VERSIONS: 3,
    ApiKey.CREATE_TOPICS: 5,
    ApiKey.DELETE_TOPICS: 4,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.INIT_PRODUCER_ID: 2,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.END_TXN: 3,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.DESCRIBE_ACLS: 2,
    ApiKey.CREATE_ACLS: 2,
    ApiKey.DELETE_ACLS: 2,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.ALTER_CONFIGS: 2,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
    ApiKey.DESCRIBE_LOG_DIRS: 2,
    ApiKey.SASL_AUTHENTICATE: 2,
    ApiKey.CREATE_PARTITIONS: 2,
    ApiKey.CREATE_DELEGATION_TOKEN: 2,
    ApiKey.RENEW_DELEGATION_TOKEN: 2,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 2,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: 2,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
    ApiKey.ALTER_CLIENT_QUOTAS: 1,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.DESCRIBE_QUORUM: 0,
    ApiKey.UPDATE_FEATURES: 0,
    ApiKey.DESCRIBE_CLUSTER: 0,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.UNREGISTER_BROKER: 0,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.LIST_TRANSACTIONS: 0,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 0,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 0,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: 0,
    ApiKey.PUSH_TELEMETRY: 0,
    ApiKey.LIST_CONFIG_RESOURCES: 0,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
    ApiKey.SHARE_GROUP_HEARTBEAT: 1,
    ApiKey.SHARE_GROUP_DESCRIBE: 1,
    ApiKey.SHARE_FETCH: 1,
    ApiKey.SHARE_ACKNOWLEDGE: 1,
    ApiKey.ADD_RAFT_VOTER: 0,
    ApiKey.REMOVE_RAFT_VOTER: 0,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: 0,
    ApiKey.READ_SHARE_GROUP_STATE: 0,
    ApiKey.WRITE_SHARE_GROUP_STATE: 0,
    ApiKey.DELETE_SHARE_GROUP_STATE: 0,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: 0,
    ApiKey.STREAMS_GROUP_HEARTBEAT: 0,
    ApiKey.STREAMS_GROUP_DESCRIBE: 0,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 0,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: 0,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: 0,
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: 0,
    ApiKey.UNREGISTER_CONTROLLER: 0,
}
"""The first version with compact encodings and tagged fields (KIP-482), and so with request header version
2."""


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
