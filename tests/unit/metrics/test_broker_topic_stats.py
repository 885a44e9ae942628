"""Traffic is counted by topic, and no count is ever lost."""

from __future__ import annotations

from minikafka.metrics.broker_stats import BrokerTopicStats
from minikafka.metrics.request_metrics import RequestCounter


def test_the_total_is_the_sum_of_the_topics_and_of_what_is_not_here() -> None:
    stats = BrokerTopicStats()
    stats.host("a").bytes_in += 3
    stats.host("b").bytes_in += 4
    stats.of("nowhere").failed_produce_requests += 1
    total = stats.total()
    assert (total.bytes_in, total.failed_produce_requests) == (7, 1)


def test_a_topic_that_goes_takes_its_series_and_leaves_its_counts_in_the_total() -> None:
    stats = BrokerTopicStats()
    stats.host("gone").messages_in += 5
    stats.forget("gone")
    assert dict(stats.topics) == {}
    assert stats.total().messages_in == 5
    assert stats.host("gone").messages_in == 0  # one of the same name starts at 0
    assert stats.total().messages_in == 5


def test_all_partitions_of_a_topic_share_one_count() -> None:
    stats = BrokerTopicStats()
    assert stats.host("a") is stats.host("a")
    assert stats.of("a") is stats.host("a")


def test_forgetting_an_unknown_topic_does_nothing() -> None:
    stats = BrokerTopicStats()
    stats.forget("never seen")
    assert stats.total().messages_in == 0


def test_what_a_tally_has_counts_for_the_topic_and_stays_when_the_topic_goes() -> None:
    stats, counter = BrokerTopicStats(), RequestCounter()
    topic = stats.host("a")
    topic.produce_requests += 1
    topic.messages_in += 10
    tally = topic.tally(counter)
    assert topic.tally(counter) is tally and topic.tally(RequestCounter()) is not tally
    tally.until_timed -= 2
    tally.bytes_in += 700
    tally.further_records += 3
    names = ("produce_requests", "messages_in", "bytes_in", "fetch_requests")
    for _ in range(2):
        assert [topic.value(name) for name in names] == [3, 15, 700, 0]
        assert [stats.total().value(name) for name in names] == [3, 15, 700, 0]
    stats.forget("a")
    assert [stats.total().value(name) for name in names] == [3, 15, 700, 0]
    assert [stats.host("a").value(name) for name in names] == [0, 0, 0, 0]
    assert counter.count == counter.total == 2
