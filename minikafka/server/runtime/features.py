"""The feature levels of the cluster, as ApiVersions tells clients and UpdateFeatures might change them.

Kafka: ``BrokerFeatures``, ``TransactionVersion``, ``EligibleLeaderReplicasVersion``; KIP-584, KIP-1014. Each
feature stands at one level, that of a new cluster of Kafka 4: ``eligible.leader.replicas.version`` 1
(KIP-966), ``group.version`` 1, the consumer protocol of groups (KIP-848), ``share.version`` 1, share groups
(KIP-932), ``streams.version`` 1, streams groups (KIP-1071), and ``transaction.version`` 2, the second version
of the transaction protocol (KIP-890). A producer that knows this version chooses it when the level is 2; the
others speak the first version, which is always served. Java's producer looks at it (``TransactionManager``);
librdkafka, aiokafka and kafka-python do not. A release that ``api.versions`` imitates has levels of its own
(``protocol.wire.releases``).

Where it differs from Kafka: ``share.version`` 2, with which Kafka 4.4 begins, has dead letter queues
(KIP-1191), which are not here. No level can be lowered. A cluster lowers one to go back to brokers that do
not know it, and there are none such.
"""

from __future__ import annotations

from typing import Final

from minikafka.protocol.wire.releases import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    TRANSACTION_VERSION,
)

SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"
TRANSACTION_VERSION_LEVEL: Final = 2

LEVELS: Final = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: 1,
    GROUP_VERSION: 1,
    SHARE_VERSION: 1,
    STREAMS_VERSION: 1,
    TRANSACTION_VERSION: TRANSACTION_VERSION_LEVEL,
}
"""Of each feature, its only one."""

FINALIZED_FEATURES_EPOCH: Final = 0
"""Rises when a level changes, which none does. A client that has heard of none (-1) takes in what comes with
it."""
