"""The topology of a streams application and its tasks, as assignors and checks of topics take them
(KIP-1071).

Kafka: ``StreamsTopology``, ``TasksTuple``. A subtopology reads topics; it has as many tasks as the largest of
them has partitions, and each task reads one partition of each.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


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
