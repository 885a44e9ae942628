"""The topology of a streams application (KIP-1071), its tasks, and the topics that it needs.

Kafka: ``StreamsTopology``, ``TasksTuple``. A subtopology reads topics; it has as many tasks as the largest of
them has partitions, and each task reads one partition of each. ``Tasks`` is what assignors, reconciliation
and checks of topics take.

``configure`` says how many tasks there are, and which internal topics are to be created. Kafka:
``InternalTopicManager``, ``RepartitionTopics``, ``CopartitionedTopicsEnforcer``, ``ChangelogTopics``,
``ConfiguredTopology``. A repartition topic has as many partitions as the application says, else as the
largest topic that is read where it is written; topics that are read together (copartitioned) have equally
many. A changelog has as many partitions as its subtopology has tasks: those of the largest topic it reads.
What takes longest is linear in the size of the topology.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import msgspec

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import StreamsGroupTopologyValue, StreamsSubtopology

MISSING_SOURCE_TOPICS = 1
INCORRECTLY_PARTITIONED_TOPICS = 2
MISSING_INTERNAL_TOPICS = 3
"""Codes of a heartbeat's status (KIP-1071)."""


class TopicInfo(msgspec.Struct, frozen=True):
    """An internal topic; 0 partitions: to be derived, 0 replicas: the broker's default."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(msgspec.Struct, frozen=True):
    """Topics that must have the same number of partitions, by name."""

    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    repartition_source_topics: tuple[str, ...] = ()


class Subtopology(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the topology that shares no state with the others."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[TopicInfo, ...] = ()
    state_changelog_topics: tuple[TopicInfo, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()


class Topology(msgspec.Struct, frozen=True):
    """``subtopologies`` by id."""

    epoch: int
    subtopologies: Mapping[str, Subtopology]


class Tasks(msgspec.Struct, frozen=True):
    """Tasks by role: partition numbers by subtopology id, and no subtopology without any."""

    active: Mapping[str, frozenset[int]] = {}
    standby: Mapping[str, frozenset[int]] = {}
    warmup: Mapping[str, frozenset[int]] = {}


class ConfiguredSubtopology(msgspec.Struct, frozen=True, kw_only=True):
    """Internal topics by name, with the partitions that they have or shall have."""

    number_of_tasks: int
    source_topics: tuple[str, ...]
    repartition_source_topics: Mapping[str, TopicInfo]
    state_changelog_topics: Mapping[str, TopicInfo]


class ConfiguredTopology(msgspec.Struct, frozen=True, kw_only=True):
    """``subtopologies`` by id, None where the topics are not as they must be; ``status``: the code and the
    detail of what keeps the application from running."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    internal_topics_to_create: Mapping[str, TopicInfo] = {}
    status: tuple[int, str] | None = None


class _Unfit(Exception):
    """The topics are not as the topology needs them."""

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(detail)
        self.status = (code, detail)


def check_topology(topology: StreamsGroupTopologyValue) -> None:
    """Whether a topology that a member brings makes sense by itself (Kafka: ``throwIfInvalidTopology``).

    Raises:
        KafkaError: STREAMS_INVALID_TOPOLOGY.
    """
    for each in topology.subtopologies:
        for topic in each.state_changelog_topics:
            if topic.partitions != 0:
                raise _invalid(
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}."
                )
        if not each.source_topics and not each.repartition_source_topics:
            raise _invalid(f"Subtopology {each.subtopology_id} does not contain any source topics")
        _check_indices(each)


def _check_indices(each: StreamsSubtopology) -> None:
    for group in each.copartition_groups:
        for name in ("source_topics", "source_topic_regex", "repartition_source_topics"):
            count = len(getattr(each, name))
            for index in getattr(group, name):
                if not 0 <= index < count:
                    raise _invalid(
                        f"A copartition group of subtopology {each.subtopology_id} has the index {index}, "
                        f"of {count} {name.replace('_', ' ')}."
                    )


def configure(topology: Topology, partition_counts: Mapping[str, int]) -> ConfiguredTopology:
    """``partition_counts``: of the topics that are there, by name.

    Raises:
        KafkaError: STREAMS_INVALID_TOPOLOGY: it cannot be said how many partitions a topic shall have.
    """
    try:
        counts = _decided_counts(topology, partition_counts)
        configured = {
            subtopology_id: _configured(each, counts)
            for subtopology_id, each in sorted(topology.subtopologies.items())
        }
        missing = _missing(configured.values(), partition_counts)
    except _Unfit as unfit:
        return ConfiguredTopology(epoch=topology.epoch, subtopologies=None, status=unfit.status)
    status = None
    if missing:
        status = (MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {', '.join(sorted(missing))}")
    return ConfiguredTopology(
        epoch=topology.epoch, subtopologies=configured, internal_topics_to_create=missing, status=status
    )


def _decided_counts(topology: Topology, partition_counts: Mapping[str, int]) -> dict[str, int]:
    """Of all topics that are read."""
    subtopologies = list(topology.subtopologies.values())
    missing = {name for each in subtopologies for name in each.source_topics} - partition_counts.keys()
    if missing:
        raise _Unfit(MISSING_SOURCE_TOPICS, f"Source topics {', '.join(sorted(missing))} are missing.")
    fixed: dict[str, int] = {}
    derived: set[str] = set()
    for each in subtopologies:
        for topic in each.repartition_source_topics:
            if topic.partitions:
                fixed[topic.name] = topic.partitions
            else:
                derived.add(topic.name)
    derived -= fixed.keys()
    counts = {name: partition_counts[name] for each in subtopologies for name in each.source_topics} | fixed
    _derive(subtopologies, derived, counts)
    for each in subtopologies:
        for group in each.copartition_groups:
            names = {*group.source_topics, *group.repartition_source_topics}
            _copartition(names, fixed, derived, counts)
    return counts


def _derive(subtopologies: list[Subtopology], derived: set[str], counts: dict[str, int]) -> None:
    """Put into ``counts`` how many partitions the topics shall have of which nothing is said: a subtopology
    has its tasks when all that it reads is known, a topic its partitions when all are known that write it."""
    writers: dict[str, int] = dict.fromkeys(derived, 0)
    readers: dict[str, list[int]] = {}
    waits_for = []
    for number, each in enumerate(subtopologies):
        unknown = {topic.name for topic in each.repartition_source_topics} & derived
        waits_for.append(len(unknown))
        for name in unknown:  # any order
            readers.setdefault(name, []).append(number)
        for name in {*each.repartition_sink_topics} & derived:  # any order
            writers[name] += 1
    if not all(writers.values()):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics, because a repartition source "
            "topic is never used as a sink topic."
        )
    ready = deque(number for number, left in enumerate(waits_for) if not left)
    largest = dict.fromkeys(derived, 0)
    known = 0
    while ready:
        each = subtopologies[ready.popleft()]
        known += 1
        tasks = _number_of_tasks(each, counts)
        for name in {*each.repartition_sink_topics} & derived:  # any order
            largest[name] = max(largest[name], tasks)
            writers[name] -= 1
            if writers[name] == 0:
                counts[name] = largest[name]
                for reader in readers.get(name, ()):
                    waits_for[reader] -= 1
                    if waits_for[reader] == 0:
                        ready.append(reader)
    if known < len(subtopologies):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics. There may be loops in the "
            "topology that cannot be resolved."
        )


def _copartition(
    names: set[str], fixed: Mapping[str, int], derived: set[str], counts: dict[str, int]
) -> None:
    """Topics that are read together have equally many partitions: those of the topics that are there already,
    else those that the application says, else the most that one of them has."""
    external = names - fixed.keys() - derived
    if external:
        wanted = _same({name: counts[name] for name in external})
    elif said := {name: count for name, count in fixed.items() if name in names}:
        wanted = _same(said)
    else:
        wanted = max((counts[name] for name in names), default=0)
    for name in sorted(names - external):
        if name in fixed and fixed[name] != wanted:
            raise _Unfit(
                INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{fixed[name]}] of repartition topic [{name}] doesn't match number of "
                f"partitions [{wanted}] of the source topic.",
            )
        counts[name] = wanted


def _same(counts: Mapping[str, int]) -> int:
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name}={count}" for name, count in sorted(counts.items()))
        raise _Unfit(
            INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{shown}}}]",
        )
    return next(iter(counts.values()))


def _number_of_tasks(subtopology: Subtopology, counts: Mapping[str, int]) -> int:
    repartition = (topic.name for topic in subtopology.repartition_source_topics)
    return max((counts[name] for name in (*subtopology.source_topics, *repartition)), default=0)


def _configured(subtopology: Subtopology, counts: Mapping[str, int]) -> ConfiguredSubtopology:
    number = _number_of_tasks(subtopology, counts)
    return ConfiguredSubtopology(
        number_of_tasks=number,
        source_topics=subtopology.source_topics,
        repartition_source_topics={
            topic.name: msgspec.structs.replace(topic, partitions=counts[topic.name])
            for topic in subtopology.repartition_source_topics
        },
        state_changelog_topics={
            topic.name: msgspec.structs.replace(topic, partitions=number)
            for topic in subtopology.state_changelog_topics
        },
    )


def _missing(
    subtopologies: Iterable[ConfiguredSubtopology], partition_counts: Mapping[str, int]
) -> dict[str, TopicInfo]:
    """The internal topics that are not there; the others must be as they shall be."""
    missing: dict[str, TopicInfo] = {}
    for each in subtopologies:
        for topic in (*each.repartition_source_topics.values(), *each.state_changelog_topics.values()):
            found = partition_counts.get(topic.name)
            if found is None:
                missing[topic.name] = topic
            elif found != topic.partitions:
                raise _Unfit(
                    INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {topic.name} has different number of partitions: expected "
                    f"{topic.partitions}, found {found}",
                )
    return missing


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, reason)
