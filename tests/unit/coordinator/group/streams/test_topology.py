"""A topology with the topics as they are: tasks, partitions of internal topics, and what is wrong."""

from __future__ import annotations

import pytest

from minikafka.coordinator.group.streams.topology import (
    ConfiguredTopology,
    CopartitionGroup,
    Subtopology,
    TopicInfo,
    Topology,
    check_topology,
    configure,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import (
    StreamsCopartitionGroup,
    StreamsGroupTopologyValue,
    StreamsSubtopology,
    StreamsTopicInfo,
)


def topology(*subtopologies: Subtopology) -> Topology:
    return Topology(3, {each.subtopology_id: each for each in subtopologies})


def read(name: str, *sources: str, to: tuple[str, ...] = (), log: str | None = None) -> Subtopology:
    return Subtopology(
        subtopology_id=name,
        source_topics=sources,
        repartition_sink_topics=to,
        state_changelog_topics=() if log is None else (TopicInfo(log),),
    )


def through(
    name: str,
    *topics: TopicInfo,
    sources: tuple[str, ...] = (),
    to: tuple[str, ...] = (),
    together: bool = False,
) -> Subtopology:
    group = CopartitionGroup(sources, (), tuple(topic.name for topic in topics))
    return Subtopology(
        subtopology_id=name,
        source_topics=sources,
        repartition_sink_topics=to,
        repartition_source_topics=topics,
        copartition_groups=(group,) if together else (),
    )


def created(configured: ConfiguredTopology) -> dict[str, int]:
    return {name: topic.partitions for name, topic in configured.internal_topics_to_create.items()}


def tasks(configured: ConfiguredTopology) -> dict[str, int]:
    assert configured.subtopologies is not None
    return {key: each.number_of_tasks for key, each in configured.subtopologies.items()}


def test_a_changelog_has_the_partitions_of_the_largest_source() -> None:
    configured = configure(topology(read("0", "small", "large", log="log")), {"small": 2, "large": 5})
    assert (tasks(configured), created(configured)) == ({"0": 5}, {"log": 5})
    assert configured.status == (3, "Internal topics are missing: log")
    assert configure(topology(read("0", "t", log="log")), {"t": 2, "log": 2}).status is None


def test_repartition_topics_follow_each_other_in_any_order() -> None:
    last = through("0", TopicInfo("second"))
    middle = through("1", TopicInfo("first"), to=("second",))
    configured = configure(topology(last, middle, read("2", "t", to=("first",))), {"t": 4})
    assert tasks(configured) == {"0": 4, "1": 4, "2": 4}
    assert created(configured) == {"first": 4, "second": 4}


def test_a_repartition_topic_has_the_partitions_that_the_application_says() -> None:
    configured = configure(topology(read("0", "t", to=("r",)), through("1", TopicInfo("r", 7))), {"t": 2})
    assert (tasks(configured), created(configured)) == ({"0": 2, "1": 7}, {"r": 7})


def test_what_is_read_together_has_equally_many_partitions() -> None:
    joined = through("1", TopicInfo("r"), sources=("u",), together=True)
    configured = configure(topology(read("0", "t", to=("r",)), joined), {"t": 2, "u": 6})
    assert created(configured) == {"r": 6}
    wrong = through("1", TopicInfo("r", 5), sources=("u",), together=True)
    configured = configure(topology(read("0", "t", to=("r",)), wrong), {"t": 2, "u": 6})
    assert configured.status == (
        2,
        "Number of partitions [5] of repartition topic [r] doesn't match number of partitions [6] of the "
        "source topic.",
    )
    two = through("1", sources=("t", "u"), together=True)
    configured = configure(topology(two), {"t": 2, "u": 6})
    assert configured.status == (
        2,
        "Following topics do not have the same number of partitions: [{t=2, u=6}]",
    )
    derived = through("2", TopicInfo("q"), TopicInfo("r"), together=True)
    configured = configure(
        topology(read("0", "t", to=("q",)), read("1", "u", to=("r",)), derived), {"t": 2, "u": 6}
    )
    assert created(configured) == {"q": 6, "r": 6}


def test_what_is_missing_or_wrong_is_named() -> None:
    configured = configure(topology(read("0", "b", "a")), {})
    assert (configured.subtopologies, configured.status) == (None, (1, "Source topics a, b are missing."))
    configured = configure(topology(read("0", "t", log="log")), {"t": 2, "log": 3})
    assert configured.status == (
        2,
        "Existing topic log has different number of partitions: expected 2, found 3",
    )


@pytest.mark.parametrize(
    ("subtopologies", "says"),
    [
        ((through("0", TopicInfo("r")),), "never used as a sink topic"),
        (
            (through("0", TopicInfo("r"), to=("q",)), through("1", TopicInfo("q"), to=("r",))),
            "There may be loops in the topology",
        ),
    ],
)
def test_partitions_that_depend_on_themselves_are_refused(
    subtopologies: tuple[Subtopology, ...], says: str
) -> None:
    with pytest.raises(KafkaError, match=says) as error:
        configure(topology(*subtopologies), {})
    assert error.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


@pytest.mark.parametrize(
    ("subtopology", "says"),
    [
        (
            StreamsSubtopology(
                subtopology_id="0",
                source_topics=("t",),
                state_changelog_topics=(StreamsTopicInfo("log", 2, 0),),
            ),
            "Changelog topic log must have an undefined partition count, but it is set to 2.",
        ),
        (StreamsSubtopology(subtopology_id="0"), "Subtopology 0 does not contain any source topics"),
        (
            StreamsSubtopology(
                subtopology_id="0",
                source_topics=("t",),
                copartition_groups=(StreamsCopartitionGroup((1,)),),
            ),
            "A copartition group of subtopology 0 has the index 1, of 1 source topics.",
        ),
    ],
)
def test_a_topology_that_makes_no_sense_is_refused(subtopology: StreamsSubtopology, says: str) -> None:
    with pytest.raises(KafkaError) as error:
        check_topology(StreamsGroupTopologyValue(1, (subtopology,)))
    assert (error.value.code, error.value.message) == (ErrorCode.STREAMS_INVALID_TOPOLOGY, says)
