"""Which topics may exist: names, partition counts, replication factors, manual assignments. Pure checks.

Kafka: ``Topic.java`` (names), ``ReplicationControlManager`` (counts, factors, assignments). Error codes are
Kafka's, and so is what the messages say, because admin clients show them as they are. Every function raises a
``KafkaError``; none changes anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from minikafka.errors import ErrorCode, KafkaError
from minikafka.types import TOPIC_NAME_LENGTH_MAX, BrokerId, ReplicaAssignment, is_topic_name

PARTITIONS_PER_REQUEST_MAX = 10_000
"""``ReplicationControlManager.MAX_PARTITIONS_PER_BATCH``: what one request may create in all."""

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""A KRaft controller's own log. Kafka lets no client create it, its tools read such a directory specially."""


def is_internal(name: str) -> bool:
    """Whether the broker itself keeps its state in the topic (``Topic.isInternal``)."""
    return name in INTERNAL_TOPICS


def validate_topic_name(name: str) -> None:
    """Check a name.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION, and why.
    """
    if is_topic_name(name):
        return
    if not name:
        why = "the empty string is not allowed"
    elif name in (".", ".."):
        why = f"'{name}' is not allowed"
    elif len(name) > TOPIC_NAME_LENGTH_MAX:
        why = f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
    else:
        why = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")


def validate_no_collision(name: str, existing: Iterable[str]) -> None:
    """Two names that differ only in '.' and '_' would share their metrics.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION, naming the first of ``existing`` that is in the way.
    """
    if "." not in name and "_" not in name:
        return
    unified = name.replace(".", "_")
    for other in existing:
        if other != name and other.replace(".", "_") == unified:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
            )


def validate_partition_count(partitions: int) -> None:
    """Raises:
    KafkaError: INVALID_PARTITIONS for a count below 1, POLICY_VIOLATION above what a request may create.
    """
    if partitions < 1:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    validate_request_total(partitions)


def validate_request_total(partitions: int) -> None:
    """Raises:
    KafkaError: POLICY_VIOLATION when one request would create more partitions than Kafka lets it.
    """
    if partitions > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions per request: {partitions}, at most "
            f"{PARTITIONS_PER_REQUEST_MAX} are allowed.",
        )


def validate_replication_factor(replication_factor: int, *, brokers: int) -> None:
    """Raises:
    KafkaError: INVALID_REPLICATION_FACTOR below 1 or above the number of live brokers.
    """
    if replication_factor < 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if replication_factor > brokers:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor "
            f"of {replication_factor} cannot be reached because only {brokers} broker(s) are registered.",
        )


def validate_new_assignment(
    assignments: Mapping[int, Sequence[int]], *, brokers: Collection[BrokerId]
) -> list[tuple[BrokerId, ...]]:
    """A manual assignment of a new topic, as replicas by partition.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT.
    """
    validate_request_total(len(assignments))
    if sorted(assignments) != list(range(len(assignments))):
        raise _invalid_assignment("partitions should be a consecutive 0-based integer sequence")
    replication_factor = len(assignments[0])
    return [
        _validate_replicas(assignments[partition], brokers=brokers, replication_factor=replication_factor)
        for partition in range(len(assignments))
    ]


def validate_added_assignment(
    assignments: Sequence[Sequence[int]],
    *,
    additional: int,
    replication_factor: int,
    brokers: Collection[BrokerId],
) -> list[tuple[BrokerId, ...]]:
    """A manual assignment of ``additional`` partitions of a topic that exists.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT.
    """
    if len(assignments) != additional:
        raise _invalid_assignment(
            f"Attempted to add {additional} additional partition(s), but only {len(assignments)} "
            "assignment(s) were specified."
        )
    return [
        _validate_replicas(replicas, brokers=brokers, replication_factor=replication_factor)
        for replicas in assignments
    ]


def validate_reassignment(
    replicas: Sequence[int],
    *,
    current: ReplicaAssignment,
    brokers: Collection[BrokerId],
    allow_replication_factor_change: bool,
) -> tuple[BrokerId, ...]:
    """The brokers that a partition is to be moved to. One that it leaves or stays on may be dead; one that it
    comes to must live (``KafkaController.validateReplicas``).

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT; INVALID_REPLICATION_FACTOR when they are not as many as before
            and that is not allowed (KIP-860).
    """
    if not replicas:
        raise _invalid_assignment("The manual partition assignment includes an empty replica list.")
    for replica in sorted(replicas):
        if replicas.count(replica) > 1:
            raise _invalid_assignment(
                f"The manual partition assignment includes the broker {replica} more than once."
            )
        if replica not in brokers and replica not in current.origin:
            raise _invalid_assignment(
                f"The manual partition assignment includes broker {replica}, but no such broker is alive."
            )
    replication_factor = len(current.target)
    if len(replicas) != replication_factor and not allow_replication_factor_change:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {replication_factor} to {len(replicas)}",
        )
    return tuple(BrokerId(replica) for replica in replicas)


def _validate_replicas(
    replicas: Sequence[int], *, brokers: Collection[BrokerId], replication_factor: int
) -> tuple[BrokerId, ...]:
    if not replicas:
        raise _invalid_assignment("The manual partition assignment includes an empty replica list.")
    for replica in sorted(replicas):
        if replica not in brokers:
            raise _invalid_assignment(
                f"The manual partition assignment includes broker {replica}, "
                "but no such broker is registered."
            )
        if replicas.count(replica) > 1:
            raise _invalid_assignment(
                f"The manual partition assignment includes the broker {replica} more than once."
            )
    if len(replicas) != replication_factor:
        raise _invalid_assignment(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this "
            f"is not consistent with previous partitions, which have {replication_factor} replica(s)."
        )
    return tuple(BrokerId(replica) for replica in replicas)


def _invalid_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
