"""What a step asks of the store, with the types of the answers.

Kafka: the calls of ``KafkaZkClient``. Nothing is asked about nothing: an empty question has an empty answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minikafka.controller.effects import (
    AssignmentChange,
    AssignTopicIds,
    CreatePartitionStates,
    DeleteTopicNodes,
    DropTopicDeletions,
    ElectionConfig,
    LeaveReassignments,
    ReadAssignments,
    ReadBrokers,
    ReadPartitionStates,
    ReadReassignments,
    ReadTopicConfigs,
    ReadTopicDeletions,
    ReadTopics,
    Step,
    TakeIsrChanges,
    TakeLogDirEvents,
    TakePreferredElections,
    TopicRecord,
    VersionedState,
    WriteAssignments,
    WritePartitionStates,
)
from minikafka.protocol.control import LiveBroker
from minikafka.types import BrokerId, PartitionState, TopicPartition


def read_brokers() -> Step[dict[BrokerId, LiveBroker]]:
    brokers: dict[BrokerId, LiveBroker] = yield ReadBrokers()
    return brokers


def read_topics() -> Step[list[str]]:
    topics: list[str] = yield ReadTopics()
    return topics


def read_topic_records(topics: Iterable[str]) -> Step[dict[str, TopicRecord]]:
    """Those of ``topics`` that exist. Topics from before topic ids are given some."""
    records = yield from _read_assignments(topics)
    nameless = tuple(topic for topic, record in records.items() if record.topic_id is None)
    if nameless:
        yield AssignTopicIds(nameless)
        named = yield from _read_assignments(nameless)
        for topic in nameless:
            del records[topic]
        records |= {topic: record for topic, record in named.items() if record.topic_id is not None}
    return records


def _read_assignments(topics: Iterable[str]) -> Step[dict[str, TopicRecord]]:
    asked = tuple(topics)
    if not asked:
        return {}
    records: dict[str, TopicRecord] = yield ReadAssignments(asked)
    return records


def read_states(
    partitions: Iterable[TopicPartition], *, is_watched: bool = False
) -> Step[dict[TopicPartition, VersionedState]]:
    asked = tuple(partitions)
    if not asked:
        return {}
    states: dict[TopicPartition, VersionedState] = yield ReadPartitionStates(asked, is_watched)
    return states


def create_states(states: Mapping[TopicPartition, PartitionState]) -> Step[dict[TopicPartition, int]]:
    """The versions of those that did not exist."""
    if not states:
        return {}
    versions: dict[TopicPartition, int] = yield CreatePartitionStates(states)
    return versions


def write_states(states: Mapping[TopicPartition, VersionedState]) -> Step[dict[TopicPartition, int]]:
    """The new versions of those that no other writer has changed since they were read at ``version``."""
    if not states:
        return {}
    versions: dict[TopicPartition, int] = yield WritePartitionStates(states)
    return versions


def read_election_configs(topics: Iterable[str]) -> Step[dict[str, ElectionConfig]]:
    asked = tuple(dict.fromkeys(topics))
    if not asked:
        return {}
    configs: dict[str, ElectionConfig] = yield ReadTopicConfigs(asked)
    return configs


def read_topic_deletions() -> Step[list[str]]:
    topics: list[str] = yield ReadTopicDeletions()
    return topics


def drop_topic_deletions(topics: Iterable[str]) -> Step[None]:
    dropped = tuple(topics)
    if dropped:
        yield DropTopicDeletions(dropped)


def delete_topic_nodes(topic: str) -> Step[None]:
    yield DeleteTopicNodes(topic)


def write_assignments(changes: Mapping[TopicPartition, AssignmentChange]) -> Step[list[TopicPartition]]:
    """Those of ``changes`` that the store has now: another writer has changed the others."""
    different = {each: change for each, change in changes.items() if change.expected != change.new}
    if not different:
        return list(changes)
    written: list[TopicPartition] = yield WriteAssignments(different)
    done = set(written)
    return [each for each in changes if each in done or each not in different]


def read_reassignments() -> Step[dict[TopicPartition, tuple[BrokerId, ...]]]:
    replicas: dict[TopicPartition, tuple[BrokerId, ...]] = yield ReadReassignments()
    return replicas


def leave_reassignments(replicas: Mapping[TopicPartition, tuple[BrokerId, ...]]) -> Step[None]:
    yield LeaveReassignments(replicas)


def take_preferred_elections() -> Step[list[TopicPartition]]:
    partitions: list[TopicPartition] = yield TakePreferredElections()
    return partitions


def take_isr_changes() -> Step[list[TopicPartition]]:
    partitions: list[TopicPartition] = yield TakeIsrChanges()
    return partitions


def take_log_dir_events() -> Step[list[BrokerId]]:
    brokers: list[BrokerId] = yield TakeLogDirEvents()
    return brokers
