"""`minikafka why` in situations that were made on real brokers: it reads the right reason. The brokers are
shared by all tests, and go one after the other at the end."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from minikafka.cli import quotas
from minikafka.cli.reassign import command as reassign
from minikafka.cli.why.command import main
from minikafka.testing import ThreadedBroker, ThreadedCluster
from tests.integration.conftest import StartBroker
from tests.integration.support import confluent
from tests.integration.support.console import running_console
from tests.integration.support.wire import RawClient, batch

pytestmark = [pytest.mark.minikafka_only]

LAG_TIME_MAX_MS = 4_000
"""Long enough to ask command and page while a replica is waited for."""
SESSION_TIMEOUT_MS = 1_000

POSITIONAL = {
    "group": "group",
    "topic": "topic",
    "transaction": "transactional_id",
    "client": "client_id",
    "broker": "broker",
}
"""What the one argument of a subject is called by the page, where it is not a partition."""


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
        "zookeeper.session.timeout.ms": 4_000,
    }
    with ThreadedCluster(config=config) as cluster:
        yield cluster


class Why:
    """Questions to a cluster, asked by the command."""

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str], page: str, *options: str) -> None:
        """``page``: where a console of the same cluster listens. ``options``: more, of the command."""
        self._options = ["-b", bootstrap, *options]
        self._capsys = capsys
        self._page = page

    def __call__(self, *question: str) -> dict[str, Any]:
        """The answer, as --json has it."""
        self._capsys.readouterr()
        assert main([*question, *self._options, "--json"]) == 0, self._capsys.readouterr().err
        found: dict[str, Any] = json.loads(self._capsys.readouterr().out)
        return found

    def both(self, *question: str) -> dict[str, Any]:
        """The command's answer, which has the same reasons as the page's: of what stands still meanwhile."""
        answer, on_page = self(*question), self.on_page(*question)
        assert codes(on_page) == codes(answer), on_page
        return answer

    def on_page(self, *question: str) -> dict[str, Any]:
        """What the page shows where a person asks the same."""
        with urllib.request.urlopen(f"{self._page}api/why?{urlencode(query_of(*question))}") as response:
            found: dict[str, Any] = json.load(response)
        return found


def query_of(subject: str, *arguments: str) -> dict[str, str]:
    """What the page asks where a person enters what the command is given."""
    query, left = {"subject": subject}, list(arguments)
    while left:
        name = left.pop(0)
        if name == "--read-committed":
            query["read_committed"] = "true"
        elif name.startswith("--"):
            query[name[2:].replace("-", "_")] = left.pop(0)
        elif ":" in name:
            query["topic"], _, query["partition"] = name.partition(":")
        elif subject == "partition":
            query["question"] = name
        else:
            query[POSITIONAL.get(subject, "topic")] = name
    return query


@pytest.fixture(scope="module")
def page(cluster: ThreadedCluster) -> Iterator[str]:
    with running_console(cluster.bootstrap_servers) as address:
        yield address


@pytest.fixture
def why(cluster: ThreadedCluster, page: str, capsys: pytest.CaptureFixture[str]) -> Why:
    return Why(cluster.bootstrap_servers, capsys, page)


def code(answer: dict[str, Any]) -> str:
    """Of the reason that weighs most."""
    assert answer["reasons"], answer
    return str(answer["reasons"][0]["code"])


def is_because(answer: dict[str, Any], code: str) -> bool:
    """Whether it is the reason that weighs most. One who waits for it may find none at first."""
    return codes(answer)[:1] == [code]


def codes(answer: dict[str, Any]) -> list[str]:
    return [str(reason["code"]) for reason in answer["reasons"]]


def make(cluster: ThreadedCluster, topic: str, *replicas: list[int], **config: str) -> None:
    wanted = NewTopic(topic, len(replicas), replica_assignment=list(replicas), config=config)
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    client.create_topics([wanted])[topic].result(confluent.DEADLINE_S)
    for number, each in enumerate(replicas):
        cluster.wait_until(lambda at=number, isr=each: set(cluster.isr_of(topic, at)) == set(isr))
    for address in cluster.bootstrap_servers.split(","):  # any of them may be asked
        one = AdminClient({"bootstrap.servers": address})
        cluster.wait_until(lambda one=one: topic in one.list_topics(timeout=10).topics)


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
    answer = why.both("fetch", "paid:0", "--read-committed")
    assert code(answer) == "fetch.lso.open"
    assert "get nothing from offset 3 on: the transaction of payments" in answer["sentence"]
    assert code(why.both("fetch", "paid:0")) == "fetch.nothing-there"
    producer.commit_transaction()
    cluster.wait_until(lambda: is_because(why("fetch", "paid:0", "--read-committed"), "fetch.nothing-there"))


def test_a_replica_holds_the_high_watermark(cluster: ThreadedCluster, why: Why) -> None:
    behind, other = followers(cluster)
    make(cluster, "held", [1, 2, 3])
    write(cluster, "held", 2)
    with dropped(cluster, behind, 1):
        write(cluster, "held", 5, acks=1)
        # The other follower is a moment behind, too.
        cluster.wait_until(lambda: f"replica {behind} is waited for" in why("fetch", "held:0")["sentence"])
        answer = why.both("fetch", "held:0")
        assert code(answer) == "fetch.hw.replica", answer
        assert answer["reasons"][0]["evidence"]["log end offset"] == 7
        cluster.wait_until(lambda: set(cluster.isr_of("held", 0)) == {1, other})
        assert code(why.both("fetch", "held:0")) == "fetch.nothing-there", "it is out of the ISR"
        answer = why.both("partition", "held:0", "under-replicated")
        assert code(answer) == "under-replicated.behind" and "records behind" in answer["sentence"]
    cluster.wait_until(lambda: len(cluster.isr_of("held", 0)) == 3)


def followers(cluster: ThreadedCluster) -> tuple[int, int]:
    """Of broker 1, that which is not the controller first: a leader that does not hear from the controller
    cannot change its ISR."""
    return (2, 3) if cluster.controller == 3 else (3, 2)


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
        assert why.both("group", "billing", "--sample-ms", "0")["reasons"] == []
        write(cluster, "sold", 7)
        answer = why.both("group", "billing", "--sample-ms", "200")
        assert code(answer) == "group.lags.stuck"
        assert "lags by 7 records; sold-0 has 7 of them" in answer["sentence"]
        assert "billing-1 on 127.0.0.1 has committed nothing in 200 ms" in answer["sentence"]
        (row,) = answer["reasons"][0]["evidence"]["partitions"]
        assert 0 <= row["next record ms ago"] < 60_000 and row["committed ms ago"] is not None
    assert code(why.both("group", "billing", "--sample-ms", "0")) == "group.empty"


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
            return is_because(why("group", "crowd", "--sample-ms", "0"), "group.joining.waits")

        cluster.wait_until(waits)
        answer = why.both("group", "crowd", "--sample-ms", "0")
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
        return is_because(why("group", group, "--sample-ms", "0"), "group.empty")

    cluster.wait_until(is_gone)
    said = why.both("group", group, "--sample-ms", "0")["sentence"]
    assert "the last member (silent) was removed" in said and "no heartbeat" in said


# A produce, a client


def test_a_produce_waits_for_a_replica(cluster: ThreadedCluster, why: Why) -> None:
    make(cluster, "waits", [1, 2, 3])
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "loader"}
    producer = confluent_kafka.Producer(settings)
    behind, _ = followers(cluster)
    with dropped(cluster, behind, 1):
        producer.produce("waits", b"one", partition=0)
        producer.poll(0)
        cluster.wait_until(lambda: is_because(why("produce", "waits:0"), "produce.waits"))
        # At first it may be the other follower, which has just begun to fetch.
        cluster.wait_until(lambda: f"replica {behind} is waited for" in why("produce", "waits:0")["sentence"])
        said = why.both("produce", "waits:0")["sentence"]
        assert "waiting in waits-0: 1 produce with acks=all" in said
    assert producer.flush(confluent.DEADLINE_S) == 0


def test_a_produce_that_was_refused_and_its_client(cluster: ThreadedCluster, why: Why) -> None:
    make(cluster, "keyed", [1, 2, 3], **{"cleanup.policy": "compact"})
    refused: list[Any] = []
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "keyless"}
    producer = confluent_kafka.Producer(settings)
    producer.produce("keyed", b"no key", partition=0, on_delivery=lambda error, _: refused.append(error))
    producer.flush(confluent.DEADLINE_S)
    assert refused[0] is not None
    answer = why.both("produce", "keyed:0", "--client-id", "keyless")
    assert code(answer) == "produce.refused.invalid-record"
    assert answer["sentence"].startswith("keyless was refused once to write to keyed-0")
    assert code(why.both("produce", "keyed")) == "produce.refused.invalid-record"
    assert code(why.both("client", "keyless")) == "client.refused"
    assert why.both("client", "another")["reasons"] == []


def test_a_producer_that_was_throttled(cluster: ThreadedCluster, why: Why) -> None:
    make(cluster, "flood", [1, 2, 3])
    set_quota = ["alter", "client-id=greedy", "--set", "producer_byte_rate=100"]
    assert quotas.main([*set_quota, "-b", cluster.bootstrap_servers]) == 0
    write(cluster, "flood", 300, **{"client.id": "greedy", "linger.ms": 0})
    write(cluster, "flood", 1, **{"client.id": "greedy"})
    answer = why.both("produce", "flood:0")
    assert code(answer) == "produce.throttled" and "because of producer_byte_rate" in answer["sentence"]
    assert code(why.both("client", "greedy")) == "client.throttled"


def test_a_batch_that_came_twice(cluster: ThreadedCluster, why: Why) -> None:
    make(cluster, "twice", [1, 2, 3])
    records = batch([b"again"], producer_id=4711, producer_epoch=0, base_sequence=0)
    with RawClient(int(cluster.bootstrap_servers.split(",")[0].rpartition(":")[2])) as client:
        assert client.produce("twice", 0, records) == client.produce("twice", 0, records)
    answer = why.both("produce", "twice:0")
    assert code(answer) == "produce.duplicate"
    assert "1 batch came to twice-0 again" in answer["sentence"] and "offset 0" in answer["sentence"]


# Transactions, topics, reassignments


def test_a_transaction_that_is_open_and_one_that_has_ended(cluster: ThreadedCluster, why: Why) -> None:
    make(cluster, "booked", [1, 2, 3])
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "booking"}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("booked", b"open", partition=0)
    producer.flush()
    answer = why.both("transaction", "booking")
    assert code(answer) == "transaction.ongoing"
    (row,) = answer["reasons"][0]["evidence"]["partitions"]
    assert row == {"partition": "booked-0", "leader": 1, "open from offset": 0}
    producer.commit_transaction()
    cluster.wait_until(lambda: is_because(why("transaction", "booking"), "transaction.none"))
    never_used = why.both("transaction", "never-used")
    assert (
        code(never_used) == "transaction.unknown"
        and "transactions list" in never_used["reasons"][0]["remedy"]
    )


def test_a_reassignment_under_a_throttle(cluster: ThreadedCluster, why: Why, tmp_path: Path) -> None:
    make(cluster, "moved", [1, 2])
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for _ in range(60):
        producer.produce("moved", os.urandom(50_000), b"key", partition=0)
    assert producer.flush(confluent.DEADLINE_S) == 0
    assert why.both("reassignment", "moved:0", "--sample-ms", "0")["reasons"] == []
    plan = {"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [1, 3]}]}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    named = ["--reassignment-json-file", str(path), "-b", cluster.bootstrap_servers]
    assert reassign.main(["execute", *named, "--throttle", "1000", "--no-wait"]) == 0

    sentences: list[str] = []

    def is_throttled(asked: Callable[..., dict[str, Any]]) -> bool:
        answer = asked("reassignment", "moved:0", "--sample-ms", "300")
        if not is_because(answer, "reassignment.throttled"):
            return False  # a chunk has come between its two looks
        sentences.append(answer["sentence"])
        return True

    for asked in (why, why.on_page):
        cluster.wait_until(partial(is_throttled, asked))
        said = sentences[-1]
        assert "under the throttle of 1.00 kB/s" in said and "are left" in said
    assert reassign.main(["cancel", "--all", "-b", cluster.bootstrap_servers]) == 0


# A partition


def test_what_retention_and_the_log_cleaner_wait_for(cluster: ThreadedCluster, why: Why) -> None:
    make(cluster, "logged", [1, 2, 3], **{"cleanup.policy": "compact,delete"})
    write(cluster, "logged", 3)
    assert code(why.both("partition", "logged:0", "not-deleted")) == "not-deleted.young"
    assert code(why.both("partition", "logged:0", "not-compacted")) == "not-compacted.active-segment"
    growing = why.both("partition", "logged:0", "growing", "--sample-ms", "50")
    assert code(growing) == "not-growing"
    uneven = why.both("partition", "sold:0", "unevenly-read", "--sample-ms", "50")
    assert code(uneven) == "uneven.not-read"


def test_a_broker_tells_how_it_started_and_how_it_is(cluster: ThreadedCluster, why: Why) -> None:
    answer = why("broker", "1")
    assert all(reason["code"].startswith("broker.") for reason in answer["reasons"]), "a busy machine shows"
    assert answer["unknown"] == []
    assert code(why.both("broker", "77")) == "broker.unknown"


def test_a_partition_that_only_one_reader_stands_still_at(cluster: ThreadedCluster, why: Why) -> None:
    make(cluster, "uneven", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    reader = consumer(cluster, "uneven")
    reader.commit(offsets=[TopicPartition("uneven", 2, 1)], asynchronous=False)
    stop = threading.Event()

    def commit_on() -> None:
        """Two of the three partitions are read, a record every 10 ms; the third was at some time."""
        for offset in itertools.count(1):
            read = [TopicPartition("uneven", partition, offset) for partition in (0, 1)]
            reader.commit(offsets=read, asynchronous=False)
            if stop.wait(0.01):
                return

    thread = threading.Thread(target=commit_on)
    thread.start()
    try:
        cluster.wait_until(
            lambda: is_because(
                why("partition", "uneven:2", "unevenly-read", "--sample-ms", "300"), "uneven.read-unevenly"
            )
        )
        answer = why.both("partition", "uneven:2", "unevenly-read", "--sample-ms", "300")
        assert code(answer) == "uneven.read-unevenly"
        assert "0 records were read of it" in answer["sentence"] and "its reader lags" in answer["sentence"]
        assert why.both("partition", "uneven:0", "unevenly-read", "--sample-ms", "300")["reasons"] == []
    finally:
        stop.set()
        thread.join()
        reader.close()


def test_a_broker_that_gets_too_little_of_the_processor(
    start_broker: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker()
    process = broker.process
    assert process is not None
    stop = threading.Event()

    def hold_up() -> None:
        """It gets about half of the time, 60 ms in a piece."""
        while not stop.wait(0.06):
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.06)
            process.send_signal(signal.SIGCONT)

    with running_console(broker.bootstrap) as page:
        thread = threading.Thread(target=hold_up)
        thread.start()
        try:
            answer = Why(broker.bootstrap, capsys, page).both("broker", "1")
        finally:
            stop.set()
            thread.join()
    (late,) = [each for each in answer["reasons"] if each["code"] == "broker.loop-late"]
    assert "broker 1 is slow now: its event loop was held up for" in late["sentence"]
    assert "other processes have the processor" in late["sentence"]


def test_partitions_of_a_broker_that_has_died(cluster: ThreadedCluster, why: Why) -> None:
    make(cluster, "alone", [3])
    make(cluster, "gone", [3, 1])
    assert code(why.both("topic", "gone")) == "topic.made-again"
    make(cluster, "three", [3, 1, 2], **{"min.insync.replicas": "3"})
    assert why.both("partition", "three:0")["reasons"] == []
    cluster.kill(3)
    cluster.wait_until(lambda: "not-preferred.broker-away" in codes(why("partition", "three:0")))
    answer = why.both("partition", "three:0")
    assert codes(answer) == ["under-min-isr", "under-replicated.broker-away", "not-preferred.broker-away"]
    assert "2 of 3 replicas are in sync: 3: its broker is not registered" in answer["sentence"]
    cluster.wait_until(lambda: is_because(why("partition", "alone:0"), "offline.no-replica"))
    assert code(why.both("fetch", "alone:0")) == "offline.no-replica"
    answer = why.both("broker", "3")
    assert code(answer) == "broker.left" and "nothing answers at its address" in answer["sentence"]
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    client.delete_topics(["gone"], operation_timeout=0.2)  # the answer comes when it is done, so in vain
    cluster.wait_until(lambda: is_because(why("topic", "gone"), "topic.broker-away"))
    assert "broker 3, which has a replica" in why.both("topic", "gone")["sentence"]
    cluster.start(3)
    cluster.wait_until(lambda: why("topic", "gone")["reasons"] == [])
    cluster.wait_until(lambda: len(cluster.isr_of("three", 0)) == 3)
    answer = why.both("partition", "three:0", "not-preferred")
    assert code(answer) == "not-preferred.not-automatic"


# What the page is not asked


def test_no_table_is_opened_for_a_reader_of_the_page(page: str) -> None:
    query = {"subject": "table", "topic": "t", "format": "delta", "output": "/etc"}
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{page}api/why?{urlencode(query)}")
    with refused.value as answer:
        assert answer.code == 400
        assert "only the command answers it, minikafka why table" in answer.read().decode()


# A client, on a broker that knows users


def test_a_client_that_cannot_log_in_and_one_that_is_denied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ThreadedBroker(secure=True) as broker:
        broker.add_user("alice", "right")
        config = tmp_path / "admin.properties"
        admin = broker.client_config()
        config.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
            f"ssl.truststore.location={admin['ssl.ca.location']}\nssl.truststore.type=PEM\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{admin["sasl.username"]}" password="{admin["sasl.password"]}";\n'
        )

        def asked(*question: str) -> dict[str, Any]:
            connection = ["-b", broker.bootstrap_servers, "--command-config", str(config)]
            capsys.readouterr()
            assert main([*question, *connection, "--json"]) == 0, capsys.readouterr().err
            found: dict[str, Any] = json.loads(capsys.readouterr().out)
            return found

        def try_as(password: str) -> None:
            client = AdminClient(broker.client_config("alice", password))
            with contextlib.suppress(confluent_kafka.KafkaException):
                client.list_topics("secret", timeout=3)

        with (
            contextlib.suppress(ssl.SSLError),
            socket.create_connection(("127.0.0.1", broker.port)) as client,
        ):
            ssl.create_default_context().wrap_socket(client, server_hostname="localhost")
        answer = asked("client", "--host", "127.0.0.1")
        assert code(answer) == "client.login"
        assert "the TLS handshake failed" in answer["sentence"]
        try_as("wrong")
        answer = asked("client", "--user", "alice")
        assert code(answer) == "client.login" and "alice" in answer["sentence"]
        try_as("right")
        answer = asked("client", "--user", "alice")
        assert code(answer) == "client.denied", answer
        assert "User:alice at 127.0.0.1 was denied DESCRIBE on Topic secret" in answer["sentence"]
        assert "minikafka why-denied User:alice DESCRIBE topic:secret" in answer["reasons"][0]["remedy"]
