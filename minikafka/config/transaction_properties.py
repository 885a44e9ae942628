"""The broker properties of the transaction coordinator, its topic, and the check of transactional writes.

Kafka: ``TransactionLogConfig``, ``TransactionStateManagerConfig``.

Where it differs from Kafka: ``transaction.state.log.replication.factor`` is 3 at most, not 3, unless it is
set (see ``server.coordinator.topic``). ``transaction.two.phase.commit.enable`` is not there: it belongs to
version 6 of InitProducerId, which Kafka 4.1 holds back.
"""

from typing import Annotated

from minikafka.config.definition import SHORT_MAX, ConfigType, Importance, UpdateMode, prop
from minikafka.config.group_properties import GroupProperties

SHORT, INT, BOOLEAN = ConfigType.SHORT, ConfigType.INT, ConfigType.BOOLEAN
HIGH, LOW = Importance.HIGH, Importance.LOW


class TransactionProperties(GroupProperties, frozen=True, kw_only=True):
    """A field is the property's name with underscores for dots."""

    transaction_max_timeout_ms: Annotated[
        int,
        prop(INT, HIGH, "The longest timeout that a transactional producer may ask for.", ge=1),
    ] = 15 * 60_000
    transactional_id_expiration_ms: Annotated[
        int,
        prop(INT, HIGH, "How long a transactional id is remembered that begins no transaction.", ge=1),
    ] = 7 * 24 * 3_600_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: Annotated[
        int,
        prop(INT, LOW, "How often transactions are looked for that have timed out, to abort them.", ge=1),
    ] = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: Annotated[
        int, prop(INT, LOW, "How often transactional ids are looked for that have expired.", ge=1)
    ] = 3_600_000
    transaction_state_log_num_partitions: Annotated[
        int, prop(INT, HIGH, "Partitions of the transaction topic when it is made.", ge=1)
    ] = 50
    transaction_state_log_replication_factor: Annotated[
        int,
        prop(
            SHORT,
            HIGH,
            "Replicas of the transaction topic. When it is set, transactional producers wait until so many "
            "brokers are there; unset: 3, or as many as there are when the topic is made.",
            ge=1,
            le=SHORT_MAX,
        ),
    ] = 3
    transaction_state_log_min_isr: Annotated[
        int,
        prop(
            INT,
            HIGH,
            "The min.insync.replicas of the transaction topic when it is made; its number of replicas, "
            "where that is less.",
            ge=1,
        ),
    ] = 2
    transaction_state_log_segment_bytes: Annotated[
        int, prop(INT, HIGH, "The segment size of the transaction topic when it is made.", ge=1)
    ] = 100 * 1024 * 1024
    transaction_state_log_load_buffer_size: Annotated[
        int,
        prop(INT, HIGH, "How many bytes of the transaction topic are read at once to load it.", ge=1),
    ] = 5 * 1024 * 1024
    transaction_partition_verification_enable: Annotated[
        bool,
        prop(
            BOOLEAN,
            LOW,
            "Whether a transactional write is checked with the coordinator of its transaction (KIP-890).",
            update=UpdateMode.CLUSTER_WIDE,
        ),
    ] = True
    add_partitions_to_txn_retry_backoff_ms: Annotated[
        int,
        prop(
            INT,
            HIGH,
            "How long a producer's write waits before its partition is added to the transaction again, when "
            "the transaction before is not over yet.",
            ge=1,
        ),
    ] = 20
    add_partitions_to_txn_retry_backoff_max_ms: Annotated[
        int,
        prop(
            INT,
            HIGH,
            "For how long it is tried again before the producer hears that transactions are concurrent.",
            ge=0,
        ),
    ] = 100
