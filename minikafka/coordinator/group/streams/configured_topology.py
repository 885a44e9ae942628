"""A topology with the topics as they are: how many tasks it has, which internal topics are to be created.

Kafka: ``InternalTopicManager``, ``ConfiguredTopology``, ``ConfiguredSubtopology``. A repartition topic has as
many partitions as the tasks have that write it, unless the application says how many; a changelog has as many
as its subtopology has tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from minikafka.coordinator.group.streams.tasks import Subtopology, TopicInfo, Topology

MISSING_SOURCE_TOPICS = 1
INCORRECTLY_PARTITIONED_TOPICS = 2
MISSING_INTERNAL_TOPICS = 3


class ConfiguredSubtopology(msgspec.Struct, frozen=True, kw_only=True):
    """Internal topics by name, with the partitions that they have or shall have."""

    number_of_tasks: int
    source_topics: tuple[str, ...]
    repartition_source_topics: Mapping[str, TopicInfo]
    state_changelog_topics: Mapping[str, TopicInfo]


class ConfiguredTopology(msgspec.Struct, frozen=True, kw_only=True):
    """``subtopologies`` by id, None where source topics are missing; ``status``: the code and the detail of
    what keeps the application from running."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    internal_topics_to_create: Mapping[str, TopicInfo] = {}
    status: tuple[int, str] | None = None


def configure(topology: Topology, partition_counts: Mapping[str, int]) -> ConfiguredTopology:
    """``partition_counts``: of the topics that are there, by name."""
    subtopologies = topology.subtopologies
    missing = sorted(
        {name for each in subtopologies.values() for name in each.source_topics} - partition_counts.keys()
    )
    if missing:
        detail = f"Source topics {', '.join(missing)} are missing."
        return ConfiguredTopology(
            epoch=topology.epoch, subtopologies=None, status=(MISSING_SOURCE_TOPICS, detail)
        )
    counts = _repartition_counts(subtopologies.values(), partition_counts)
    configured = {
        subtopology_id: _configured(each, counts) for subtopology_id, each in sorted(subtopologies.items())
    }
    to_create: dict[str, TopicInfo] = {}
    wrong = []
    for each in configured.values():
        for topic in (*each.repartition_source_topics.values(), *each.state_changelog_topics.values()):
            if topic.name not in partition_counts:
                to_create[topic.name] = topic
            elif partition_counts[topic.name] != topic.partitions:
                wrong.append(
                    f"Existing topic {topic.name} has {partition_counts[topic.name]} partitions, it must "
                    f"have {topic.partitions}."
                )
    status = None
    if wrong:
        to_create, status = {}, (INCORRECTLY_PARTITIONED_TOPICS, " ".join(wrong))
    elif to_create:
        status = (MISSING_INTERNAL_TOPICS, f"Internal topics are missing: [{', '.join(to_create)}]")
    return ConfiguredTopology(
        epoch=topology.epoch, subtopologies=configured, internal_topics_to_create=to_create, status=status
    )


def _repartition_counts(
    subtopologies: Iterable[Subtopology], partition_counts: Mapping[str, int]
) -> dict[str, int]:
    """The partitions of all topics that are read, in as many rounds as repartition topics follow another."""
    each_one = list(subtopologies)
    counts = dict(partition_counts)
    for each in each_one:
        counts |= {
            topic.name: topic.partitions for topic in each.repartition_source_topics if topic.partitions
        }
    for _ in each_one:
        for each in each_one:
            if number := _number_of_tasks(each, counts):
                for name in each.repartition_sink_topics:
                    counts.setdefault(name, number)
    return counts


def _number_of_tasks(subtopology: Subtopology, counts: Mapping[str, int]) -> int:
    repartition = (topic.name for topic in subtopology.repartition_source_topics)
    return max((counts.get(name, 0) for name in (*subtopology.source_topics, *repartition)), default=0)


def _configured(subtopology: Subtopology, counts: Mapping[str, int]) -> ConfiguredSubtopology:
    number = _number_of_tasks(subtopology, counts)
    return ConfiguredSubtopology(
        number_of_tasks=number,
        source_topics=subtopology.source_topics,
        repartition_source_topics={
            topic.name: msgspec.structs.replace(topic, partitions=counts.get(topic.name, number))
            for topic in subtopology.repartition_source_topics
        },
        state_changelog_topics={
            topic.name: msgspec.structs.replace(topic, partitions=number)
            for topic in subtopology.state_changelog_topics
        },
    )
