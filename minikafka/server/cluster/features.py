"""The features of a cluster, and the level at which each stands.

Kafka: ``BrokerFeatures``, ``Feature``, ``TransactionVersion``, ``GroupVersion``, ``ShareVersion``,
``EligibleLeaderReplicasVersion``, ``FinalizedFeatures``; KIP-584, KIP-1022. A broker supports each feature in
a range of levels, and the cluster has agreed on one of them (its finalized level). UpdateFeatures moves it
(``server.apis.cluster``), ``server.cluster.finalized_features`` keeps it in the store and hears of changes,
and ApiVersions tells clients. A new cluster has the levels of a new cluster of Kafka 4.4.

| feature | levels | what they bring |
|---|---|---|
| ``eligible.leader.replicas.version`` | 0 to 1 | eligible leader replicas (KIP-966); always 1 |
| ``group.version`` | 0 to 1 | 1: the consumer protocol of groups (KIP-848) |
| ``kraft.version`` | 0 to 1 | nothing here: Kafka's tools take the levels of a release as a whole; always 1 |
| ``metadata.version`` | 7 to 33 | nothing here: Kafka's tools know a release by it; always 33, that of 4.4 |
| ``share.version`` | 0 to 2 | 1: share groups (KIP-932); 2: their dead letter queues (KIP-1191) |
| ``streams.version`` | 0 to 1 | 1: streams groups (KIP-1071) |
| ``transaction.version`` | 0 to 2 | 1: records of newer format; 2: the second protocol (KIP-890) |

Clients are told the ranges of 4.4, whatever a level means here. Three levels are never lowered: two of them
Kafka does not lower either, because metadata might be lost; eligible leader replicas it lets one switch off.

Level 0 is that of a feature that is not there: its APIs are answered with UNSUPPORTED_VERSION. A producer
that knows the second version of the transaction protocol chooses it at ``transaction.version`` 2; the first
is always served. Java's producer looks at the level (``TransactionManager``); librdkafka, aiokafka and
kafka-python do not. A release that ``api.versions`` imitates has levels of its own
(``protocol.wire.releases``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from minikafka.named_tuple import NamedTuple
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.releases import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    METADATA_VERSION,
    SHARE_GROUP_APIS,
    STREAMS_GROUP_APIS,
    TRANSACTION_VERSION,
)

KRAFT_VERSION: Final = "kraft.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"

DEAD_LETTER_QUEUES: Final = 2
"""The level of ``share.version`` from which on share groups have them (``supportsShareGroupDLQ``)."""

NO_LEVEL: Final = 0
"""Of a feature that is switched off, or that the cluster does not have."""

FIRST_EPOCH: Final = 0
"""Of a cluster that has changed no level. More than -1, of a client that has heard of none."""


class SupportedLevels(NamedTuple):
    """What a broker knows of a feature, and the level that a new cluster has."""

    min: int
    max: int
    default: int


FEATURES: Final[Mapping[str, SupportedLevels]] = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: SupportedLevels(0, 1, 1),
    GROUP_VERSION: SupportedLevels(0, 1, 1),
    KRAFT_VERSION: SupportedLevels(0, 1, 1),
    METADATA_VERSION: SupportedLevels(7, 33, 33),
    SHARE_VERSION: SupportedLevels(0, 2, 2),
    STREAMS_VERSION: SupportedLevels(0, 1, 1),
    TRANSACTION_VERSION: SupportedLevels(0, 2, 2),
}
"""In alphabetical order."""

NEVER_LOWERED: Final = frozenset({ELIGIBLE_LEADER_REPLICAS_VERSION, KRAFT_VERSION, METADATA_VERSION})
"""See the module header."""

DEFAULT_LEVELS: Final[Mapping[str, int]] = {name: levels.default for name, levels in FEATURES.items()}

LEVELS_OF_KAFKA_3_9: Final[Mapping[str, int]] = {
    name: levels.default if name in NEVER_LOWERED else levels.min for name, levels in FEATURES.items()
}
"""What can be switched off is."""

APIS: Final[Mapping[ApiKey, str]] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: GROUP_VERSION,
    ApiKey.CONSUMER_GROUP_DESCRIBE: GROUP_VERSION,
    **dict.fromkeys(SHARE_GROUP_APIS, SHARE_VERSION),
    **dict.fromkeys(STREAMS_GROUP_APIS, STREAMS_VERSION),
}
"""Which feature an API belongs to; those of a feature that is switched off are refused."""


class FinalizedFeatures:
    """The levels as this broker knows them: ``Services.features``. Ask each time; a level may change."""

    def __init__(self, levels: Mapping[str, int] = DEFAULT_LEVELS, *, epoch: int = FIRST_EPOCH) -> None:
        self._levels = dict(levels)
        self._epoch = epoch

    def __repr__(self) -> str:
        return f"FinalizedFeatures({self._levels}, epoch {self._epoch})"

    @property
    def epoch(self) -> int:
        """Rises with each change of a level."""
        return self._epoch

    def level(self, name: str) -> int:
        """``NO_LEVEL`` of a feature that the cluster does not have."""
        return self._levels.get(name, NO_LEVEL)

    def levels(self) -> Mapping[str, int]:
        """Of the features that are not switched off, as Kafka tells them."""
        return {name: level for name, level in self._levels.items() if level != NO_LEVEL}

    def all_levels(self) -> Mapping[str, int]:
        """Of those that are switched off, too."""
        return self._levels

    def replace(self, levels: Mapping[str, int], *, epoch: int) -> None:
        """Take in what the cluster has agreed on."""
        self._levels = dict(levels)
        self._epoch = epoch
