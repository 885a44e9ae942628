"""A broker's three replication quotas: rates and lists, as its configuration has them."""

from __future__ import annotations

from minikafka.config.broker import broker_config
from minikafka.config.resolution import topic_config
from minikafka.config.topic import ALL, NONE
from minikafka.metrics.sensors import WindowConfig
from minikafka.server.replica.replication_quotas import ReplicationQuotaManager, ReplicationQuotas
from minikafka.types import BrokerId, TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def quota(rate: int | None = None) -> ReplicationQuotaManager:
    made = ReplicationQuotaManager(WindowConfig(11, 1000))
    made.update_rate(rate)
    return made


def test_without_a_rate_nothing_is_exceeded() -> None:
    free = quota()
    free.record(1 << 40, 0)
    assert not free.is_quota_exceeded(0)


def test_a_quota_is_exceeded_from_above_its_rate_until_time_has_made_up_for_it() -> None:
    limited = quota(1000)
    limited.record(1000, 0)
    assert not limited.is_quota_exceeded(0), "the rate itself is allowed"
    limited.record(4000, 0)
    assert limited.is_quota_exceeded(0) and limited.is_quota_exceeded(4999)
    assert not limited.is_quota_exceeded(5000)


def test_what_was_recorded_without_a_rate_counts_when_one_comes() -> None:
    limited = quota()
    limited.record(5000, 0)
    limited.update_rate(1000)
    assert limited.is_quota_exceeded(100)
    limited.update_rate(5000)
    assert not limited.is_quota_exceeded(100)


def test_a_rate_of_zero_stops_after_the_first_byte() -> None:
    stopped = quota(0)
    assert not stopped.is_quota_exceeded(0)
    stopped.record(1, 0)
    assert stopped.is_quota_exceeded(10_999)


def test_the_last_list_of_a_topic_holds() -> None:
    listed = quota()
    assert not listed.is_active
    listed.mark_throttled("t", frozenset({1}))
    assert [listed.is_throttled(each) for each in (T0, T1, U0)] == [False, True, False]
    listed.mark_throttled("t", frozenset({0}))
    assert [listed.is_throttled(each) for each in (T0, T1, U0)] == [True, False, False]
    listed.mark_throttled("t", ALL)
    assert [listed.is_throttled(each) for each in (T0, T1, U0)] == [True, True, False]
    listed.mark_throttled("t", NONE)
    assert not listed.is_throttled(T0) and not listed.is_active


def test_each_side_has_its_list_and_its_rate() -> None:
    config = broker_config({"follower.replication.throttled.rate": "10"})
    quotas = ReplicationQuotas(config, node_id=BrokerId(2))
    lists = {
        "leader.replication.throttled.replicas": "0:1,1:2",
        "follower.replication.throttled.replicas": "0:2,1:1",
    }
    quotas.update_topic("t", topic_config(config, lists))
    assert [quotas.leader.is_throttled(each) for each in (T0, T1)] == [False, True]
    assert [quotas.follower.is_throttled(each) for each in (T0, T1)] == [True, False]
    for each in (quotas.leader, quotas.follower, quotas.alter_log_dirs):
        each.record(11, 0)
    exceeded = [each.is_quota_exceeded(0) for each in (quotas.leader, quotas.follower, quotas.alter_log_dirs)]
    assert exceeded == [False, True, False]


def test_windows_are_configured_for_replication_and_for_log_directories_apart() -> None:
    config = broker_config(
        {
            "replication.quota.window.num": "2",
            "replication.quota.window.size.seconds": "3",
            "alter.log.dirs.replication.quota.window.num": "4",
            "follower.replication.throttled.rate": "0",
            "replica.alter.log.dirs.io.max.bytes.per.second": "0",
        }
    )
    quotas = ReplicationQuotas(config, node_id=BrokerId(1))
    for each in (quotas.follower, quotas.alter_log_dirs):
        each.record(1, 0)
    assert quotas.follower.is_quota_exceeded(5999) and not quotas.follower.is_quota_exceeded(6000)
    assert quotas.alter_log_dirs.is_quota_exceeded(3999) and not quotas.alter_log_dirs.is_quota_exceeded(4000)
