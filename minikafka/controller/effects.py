"""What the controller wants done, as values; the shell (``server.controller.loop``) does it.

A step of the controller is a generator (``Step``): it yields an effect and is sent what came of it. So the
order of reads, writes and requests is written down where it is decided, as in Kafka's single controller
thread, and a test drives a step with a dictionary for a store.

    effect                  what is sent back
    ReadBrokers             dict[BrokerId, LiveBroker]: the registered brokers
    ReadTopics              list[str]: the names of all topics, sorted
    ReadAssignments         dict[str, TopicRecord]: those of the asked topics that exist
    ReadPartitionStates     dict[TopicPartition, VersionedState]: those that exist
    CreatePartitionStates   dict[TopicPartition, int]: the versions of those created; the others existed
    WritePartitionStates    dict[TopicPartition, int]: the new versions; the others were written by others
    AssignTopicIds          None
    ReadTopicConfigs        dict[str, ElectionConfig]: of all asked topics
    ReadTopicDeletions      list[str]: the topics that are to be deleted
    DeleteTopicNodes        None: the topic's nodes, its configuration and the request to delete it are gone
    DropTopicDeletions      None
    WriteAssignments        list[TopicPartition]: those written; the others were not what was expected
    ReadReassignments       dict[TopicPartition, tuple[BrokerId, ...]]: what the admin node asks for
    LeaveReassignments      None: the admin node asks for no more than that; it is gone when that is nothing
    Remind                  None: the event comes when the time is over
    TakePreferredElections  list[TopicPartition]: what was asked for; the node is gone
    TakeIsrChanges          list[TopicPartition]: what leaders have announced; the announcements are gone
    TakeLogDirEvents        list[BrokerId]: brokers that lost a log directory; the announcements are gone
    Send…                   None: the request waits in that broker's channel

Every write is guarded by the controller's epoch. Where the guard fails, or the session ends, the shell closes
the generator in the middle: the controller is none any more, and nothing that it remembers counts. An effect
on a store that cannot be reached is tried until it can, or the session ends.

Steps ask the store by the functions below, which have the types of the answers (Kafka: the calls of
``KafkaZkClient``). Nothing is asked about nothing: an empty question has an empty answer.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from minikafka.controller.events import Event
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.control import LeaderAndIsrPartition, LiveBroker, StopReplicaPartition
from minikafka.types import BrokerId, PartitionState, ReplicaAssignment, TopicPartition

T = TypeVar("T")


class TopicRecord(msgspec.Struct, frozen=True):
    """A topic as the store has it. ``topic_id`` is None when a Kafka from before topic ids has made it."""

    topic_id: UUID | None
    partitions: dict[int, ReplicaAssignment]


class VersionedState(msgspec.Struct, frozen=True):
    """A partition's state and the version of its node.

    ``written_at`` is the zxid of its last write. A leader whose registration is newer than the state that
    names it has been away in between, even when no controller has seen that.
    """

    state: PartitionState
    version: int
    written_at: int = 0


class ElectionConfig(msgspec.Struct, frozen=True):
    """What elections need to know of a topic's configuration."""

    unclean_leader_election: bool = False
    min_insync_replicas: int = 1


# Reading and writing the store
class ReadBrokers(msgspec.Struct, frozen=True):
    """``/brokers/ids``."""


class ReadTopics(msgspec.Struct, frozen=True):
    """``/brokers/topics``."""


class ReadAssignments(msgspec.Struct, frozen=True):
    """``/brokers/topics/T`` of each topic."""

    topics: tuple[str, ...]


class ReadPartitionStates(msgspec.Struct, frozen=True):
    """``…/partitions/P/state`` of each partition."""

    partitions: tuple[TopicPartition, ...]
    is_watched: bool = False
    """The next write of each state comes as ``ReassignmentIsrChanged``, once."""


class CreatePartitionStates(msgspec.Struct, frozen=True):
    """First states of new partitions, with the nodes above them."""

    states: Mapping[TopicPartition, PartitionState]


class WritePartitionStates(msgspec.Struct, frozen=True):
    """New states; each is written only if its node still has the version that stands beside it."""

    states: Mapping[TopicPartition, VersionedState]


class AssignTopicIds(msgspec.Struct, frozen=True):
    """Give ids to topics that have none; ``ReadAssignments`` shows them afterwards."""

    topics: tuple[str, ...]


class ReadTopicConfigs(msgspec.Struct, frozen=True):
    """The configurations of topics, with the brokers' defaults."""

    topics: tuple[str, ...]


class ReadTopicDeletions(msgspec.Struct, frozen=True):
    """``/admin/delete_topics``."""


class DeleteTopicNodes(msgspec.Struct, frozen=True):
    """A topic whose replicas are all gone leaves the store."""

    topic: str


class DropTopicDeletions(msgspec.Struct, frozen=True):
    """Forget the request to delete topics that do not exist, or that may not be deleted."""

    topics: tuple[str, ...]


class AssignmentChange(NamedTuple):
    """``expected`` is what the controller has read, ``new`` what is to stand in its place."""

    expected: ReplicaAssignment
    new: ReplicaAssignment


class WriteAssignments(msgspec.Struct, frozen=True):
    """New assignments in the topics' nodes; each is written only over what was expected there."""

    changes: Mapping[TopicPartition, AssignmentChange]


class ReadReassignments(msgspec.Struct, frozen=True):
    """``/admin/reassign_partitions``; its next write comes as ``ReassignmentsAsked``."""


class LeaveReassignments(msgspec.Struct, frozen=True):
    """What is left of ``/admin/reassign_partitions``."""

    replicas: Mapping[TopicPartition, tuple[BrokerId, ...]]


class Remind(msgspec.Struct, frozen=True):
    """``event`` shall come in ``after_ms``; not to the next controller."""

    event: Event
    after_ms: int


class TakePreferredElections(msgspec.Struct, frozen=True):
    """``/admin/preferred_replica_election``; its next write comes as ``PreferredElectionsAsked``."""


class TakeIsrChanges(msgspec.Struct, frozen=True):
    """``/isr_change_notification``."""


class TakeLogDirEvents(msgspec.Struct, frozen=True):
    """``/log_dir_event_notification``."""


# Requests to brokers. The shell adds the controller's id and epoch, and the broker's epoch.
class SendLeaderAndIsr(msgspec.Struct, frozen=True):
    """The answer comes as ``LeaderAndIsrAnswered``."""

    to: BrokerId
    partitions: tuple[LeaderAndIsrPartition, ...]
    live_leaders: tuple[LiveBroker, ...]
    is_full: bool = False


class SendUpdateMetadata(msgspec.Struct, frozen=True):
    """To several brokers the same. The answer does not matter."""

    to: tuple[BrokerId, ...]
    partitions: tuple[LeaderAndIsrPartition, ...]
    live_brokers: tuple[LiveBroker, ...]
    is_full: bool = False


class SendStopReplica(msgspec.Struct, frozen=True):
    """The answer comes as ``StopReplicaAnswered``."""

    to: BrokerId
    partitions: tuple[StopReplicaPartition, ...]


Effect = (
    ReadBrokers
    | ReadTopics
    | ReadAssignments
    | ReadPartitionStates
    | CreatePartitionStates
    | WritePartitionStates
    | AssignTopicIds
    | ReadTopicConfigs
    | ReadTopicDeletions
    | DeleteTopicNodes
    | DropTopicDeletions
    | WriteAssignments
    | ReadReassignments
    | LeaveReassignments
    | Remind
    | TakePreferredElections
    | TakeIsrChanges
    | TakeLogDirEvents
    | SendLeaderAndIsr
    | SendUpdateMetadata
    | SendStopReplica
)


Step = Generator[Effect, Any, T]
"""A part of a step, or a whole one: what it yields is done, what it returns is a ``T``."""


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
