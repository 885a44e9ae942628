"""`minikafka why` in situations that were made on real brokers: it reads the right reason. The brokers are
shared by all tests, and go one after the other at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from minikafka.cli.why.command import main
from minikafka.testing import ThreadedCluster
from tests.integration.support import confluent

pytestmark = [pytest.mark.minikafka_only, pytest.mark.timeout(200)]

LAG_TIME_MAX_MS = 1_500
SESSION_TIMEOUT_MS = 1_000

Why = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    config = {
        "replica.lag.time.max.ms": LAG_TIME_MAX_MS,
        "min.insync.replicas": 2,
        "group.min.session.timeout.ms": 100,
        "group.consumer.min.session.timeout.ms": SESSION_TIMEOUT_MS,
        "group.consumer.session.timeout.ms": SESSION_TIMEOUT_MS,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.heartbeat.interval.ms": 100,
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "auto.leader.rebalance.enable": False,
        "zookeeper.session.timeout.ms": 1_500,
    }
    with ThreadedCluster(config=config) as cluster:
        yield cluster


@pytest.fixture
def why(cluster: ThreadedCluster, capsys: pytest.CaptureFixture[str]) -> Why:
    """The answer to a question, as --json has it."""

    def ask(*question: str) -> dict[str, Any]:
        capsys.readouterr()
        assert main([*question, "-b", cluster.bootstrap_servers, "--json"]) == 0, capsys.readouterr().err
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return ask


def code(answer: dict[str, Any]) -> str:
    """Of the reason that weighs most."""
    assert answer["reasons"], answer
    return str(answer["reasons"][0]["code"])


def make(cluster: ThreadedCluster, topic: str, *replicas: list[int], **config: str) -> None:
    wanted = NewTopic(topic, len(replicas), replica_assignment=list(replicas), config=config)
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    client.create_topics([wanted])[topic].result(confluent.DEADLINE_S)
    for number, each in enumerate(replicas):
        cluster.wait_until(lambda at=number, isr=each: set(cluster.isr_of(topic, at)) == set(isr))


def write(cluster: ThreadedCluster, topic: str, count: int, *, partition: int = 0, **config: Any) -> None:
    def check(error: object, _: object) -> None:
        assert error is None, error

    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, **config})
    for number in range(count):
        producer.produce(topic, b"%d" % number, b"key", partition=partition, on_delivery=check)
    assert producer.flush(confluent.DEADLINE_S) == 0


def consumer(cluster: ThreadedCluster, group: str, **config: Any) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **config,
        }
    )


# A fetch


def test_a_consumer_waits_behind_an_open_transaction(cluster: ThreadedCluster, why: Why) -> None:
    make(cluster, "paid", [1, 2, 3])
    write(cluster, "paid", 3)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "payments"}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("paid", b"open", partition=0)
    producer.flush()
    answer = why("fetch", "paid:0", "--read-committed")
    assert code(answer) == "fetch.lso.open"
    assert "get nothing from offset 3 on: the transaction of payments" in answer["sentence"]
    assert code(why("fetch", "paid:0")) == "fetch.nothing-there"
    producer.commit_transaction()
    cluster.wait_until(lambda: code(why("fetch", "paid:0", "--read-committed")) == "fetch.nothing-there")


def test_a_replica_holds_the_high_watermark(cluster: ThreadedCluster, why: Why) -> None:
    make(cluster, "held", [1, 2, 3])
    write(cluster, "held", 2)
    with dropped(cluster, 3, 1):
        write(cluster, "held", 5, acks=1)
        answer = why("fetch", "held:0")
        assert code(answer) == "fetch.hw.replica", answer
        assert "replica 3 is waited for" in answer["sentence"]
        assert answer["reasons"][0]["evidence"]["log end offset"] == 7
        cluster.wait_until(lambda: cluster.isr_of("held", 0) == (1, 2))
        assert code(why("fetch", "held:0")) == "fetch.nothing-there", "it is out of the ISR"
        answer = why("partition", "held:0", "under-replicated")
        assert code(answer) == "under-replicated.behind" and "records behind" in answer["sentence"]
    cluster.wait_until(lambda: len(cluster.isr_of("held", 0)) == 3)


@contextmanager
def dropped(cluster: ThreadedCluster, source: int, target: int) -> Iterator[None]:
    cluster.drop(source, target)
    try:
        yield
    finally:
        cluster.heal()


# A group


def test_a_group_lags_because_its_reader_stands_still(cluster: ThreadedCluster, why: Why) -> None:
    make(cluster, "sold", [1, 2, 3], [2, 3, 1])
    write(cluster, "sold", 10)
    write(cluster, "sold", 5, partition=1)
    with closing(consumer(cluster, "billing", **{"client.id": "billing-1"})) as reader:
        reader.subscribe(["sold"])
        read_to_end(reader, 15)
        reader.commit(asynchronous=False)
        assert why("group", "billing", "--sample-ms", "0")["reasons"] == []
        write(cluster, "sold", 7)
        answer = why("group", "billing", "--sample-ms", "200")
        assert code(answer) == "group.lags.stuck"
        assert "lags by 7 records; sold-0 has 7 of them" in answer["sentence"]
        assert "billing-1 on 127.0.0.1 has committed nothing in 200 ms" in answer["sentence"]
        (row,) = answer["reasons"][0]["evidence"]["partitions"]
        assert 0 <= row["next record ms ago"] < 60_000 and row["committed ms ago"] is not None
    assert code(why("group", "billing", "--sample-ms", "0")) == "group.empty"


def read_to_end(reader: confluent_kafka.Consumer, count: int) -> None:
    deadline = time.monotonic() + confluent.DEADLINE_S
    while count and time.monotonic() < deadline:
        count -= len([each for each in reader.consume(count, 0.2) if each.error() is None])
    assert not count


def test_a_rebalance_waits_for_the_member_that_does_not_poll(cluster: ThreadedCluster, why: Why) -> None:
    make(cluster, "slow", [1, 2, 3])
    write(cluster, "slow", 1)

    def ignore(*_: object) -> None:
        """With a callback librdkafka waits for ``poll`` before it joins again."""

    with (
        closing(consumer(cluster, "crowd", **{"client.id": "busy"})) as busy,
        closing(consumer(cluster, "crowd", **{"client.id": "late"})) as late,
    ):
        busy.subscribe(["slow"], on_assign=ignore, on_revoke=ignore)
        read_to_end(busy, 1)
        late.subscribe(["slow"])

        def waits() -> bool:
            late.poll(0.1)
            answer = why("group", "crowd", "--sample-ms", "0")
            return bool(answer["reasons"]) and code(answer) == "group.joining.waits"

        cluster.wait_until(waits)
        answer = why("group", "crowd", "--sample-ms", "0")
        assert "for busy on 127.0.0.1 to join again (max.poll.interval.ms)" in answer["sentence"]
        busy.unsubscribe()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_is_silent_is_thrown_out(cluster: ThreadedCluster, why: Why, protocol: str) -> None:
    topic, group = f"kept-{protocol}", f"thrown-{protocol}"
    make(cluster, topic, [1, 2, 3])
    write(cluster, topic, 1)
    config: dict[str, Any] = {
        "client.id": "silent",
        "group.instance.id": "silent",
        "group.protocol": protocol,
    }
    if protocol == "classic":
        config["session.timeout.ms"] = SESSION_TIMEOUT_MS
    with closing(consumer(cluster, group, **config)) as silent:  # a static member does not leave
        silent.subscribe([topic])
        read_to_end(silent, 1)

    def is_gone() -> bool:
        answer = why("group", group, "--sample-ms", "0")
        return bool(answer["reasons"]) and code(answer) == "group.empty"

    cluster.wait_until(is_gone)
    said = why("group", group, "--sample-ms", "0")["sentence"]
    assert "the last member (silent) was removed" in said and "no heartbeat" in said


# A partition


def test_what_retention_and_the_log_cleaner_wait_for(cluster: ThreadedCluster, why: Why) -> None:
    make(cluster, "logged", [1, 2, 3], **{"cleanup.policy": "compact,delete"})
    write(cluster, "logged", 3)
    assert code(why("partition", "logged:0", "not-deleted")) == "not-deleted.young"
    assert code(why("partition", "logged:0", "not-compacted")) == "not-compacted.active-segment"
    growing = why("partition", "logged:0", "growing", "--sample-ms", "50")
    assert code(growing) == "not-growing"
    uneven = why("partition", "sold:0", "unevenly-read", "--sample-ms", "50")
    assert code(uneven) == "uneven.not-read"


def test_partitions_of_a_broker_that_has_died(cluster: ThreadedCluster, why: Why) -> None:
    make(cluster, "alone", [3])
    make(cluster, "three", [3, 1, 2], **{"min.insync.replicas": "3"})
    assert why("partition", "three:0")["reasons"] == []
    cluster.kill(3)
    cluster.wait_until(lambda: cluster.leader_of("three", 0) in (1, 2))
    answer = why("partition", "three:0")
    codes = [reason["code"] for reason in answer["reasons"]]
    assert codes == ["under-min-isr", "under-replicated.broker-away", "not-preferred.broker-away"]
    assert "2 of 3 replicas are in sync: 3: its broker is not registered" in answer["sentence"]
    cluster.wait_until(lambda: code(why("partition", "alone:0")) == "offline.no-replica")
    assert code(why("fetch", "alone:0")) == "offline.no-replica"
    cluster.start(3)
    cluster.wait_until(lambda: len(cluster.isr_of("three", 0)) == 3)
    answer = why("partition", "three:0", "not-preferred")
    assert code(answer) == "not-preferred.not-automatic"
