"""Transactions of stock clients: all or nothing, once, whatever becomes of who writes and of who
coordinates."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

from tests.integration.conftest import StartBroker, StartCluster, serving
from tests.integration.support import confluent, java, wire
from tests.integration.support.confluent import wait_until
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import Record
from tests.integration.support.transactional import (
    PRODUCERS,
    READERS,
    Fenced,
    Reader,
    TransactionalProducer,
)

COMMITTED, UNCOMMITTED = Reader.committed, Reader.uncommitted
KINDS = pytest.mark.parametrize("kind", list(PRODUCERS))
TRANSACTIONAL = 0x10
"""In the attributes of a batch."""

PROPERTIES = {
    "transaction.state.log.num.partitions": 5,
    "offsets.topic.num.partitions": 5,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}


@pytest.fixture(scope="module")
def txn_broker(tmp_path_factory: pytest.TempPathFactory, make_broker: StartBroker) -> Iterator[BrokerProcess]:
    with serving(
        make_broker(tmp_path_factory.mktemp("transactions") / "data", properties=PROPERTIES)
    ) as broker:
        yield broker


Make = Callable[..., TransactionalProducer]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes producers of a kind, which end with the test."""
    made: list[TransactionalProducer] = []

    def make(kind: str, bootstrap: str, transactional_id: str, **arguments: int) -> TransactionalProducer:
        made.append(PRODUCERS[kind](bootstrap, transactional_id, **arguments))
        return made[-1]

    yield make
    for producer in made:
        producer.close()


def begun_with_little_time(make: Make, kind: str, bootstrap: str, topic: str) -> TransactionalProducer:
    """A producer whose transaction has one record and is aborted after a second; or after ten, if a busy
    machine needed more than one for the record."""
    for timeout_ms in (1_000, 10_000):
        producer = make(kind, bootstrap, topic, timeout_ms=timeout_ms)
        try:
            producer.begin()
            producer.send(topic, b"too late")
        except Fenced:
            continue
        return producer
    raise AssertionError("no record within ten seconds")


def write(producer: TransactionalProducer, topic: str, *values: bytes, commit: bool = True) -> None:
    """One transaction."""
    producer.begin()
    for value in values:
        producer.send(topic, value)
    if commit:
        producer.commit()
    else:
        producer.abort()


def committed(bootstrap: str, group: str) -> dict[int, int]:
    """The group's offsets by partition, as an admin client is told; those of open transactions are not."""
    client = confluent.admin(bootstrap)
    asked = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = asked[group].result(confluent.DEADLINE_S).topic_partitions
    return {each.partition: each.offset for each in found}


@KINDS
def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    txn_broker: BrokerProcess, kind: str, topic: str, make: Make
) -> None:
    bootstrap = txn_broker.bootstrap
    confluent.make_topic(bootstrap, topic)
    producer = make(kind, bootstrap, topic)
    write(producer, topic, b"a", b"b")
    write(producer, topic, b"x", b"y", commit=False)
    write(producer, topic, b"c")
    for name, read in READERS.items():
        assert read(bootstrap, topic, 3, COMMITTED) == [b"a", b"b", b"c"], name
        assert read(bootstrap, topic, 5, UNCOMMITTED) == [b"a", b"b", b"x", b"y", b"c"], name


@KINDS
def test_an_open_transaction_keeps_back_what_comes_after_it(
    txn_broker: BrokerProcess, kind: str, topic: str, make: Make
) -> None:
    bootstrap = txn_broker.bootstrap
    confluent.make_topic(bootstrap, topic)
    producer = make(kind, bootstrap, topic)
    producer.begin()
    producer.send(topic, b"open")
    confluent.write(bootstrap, topic, [Record(None, b"plain", (), None)])
    assert READERS[kind](bootstrap, topic, 2, UNCOMMITTED) == [b"open", b"plain"]
    reader = Reader(bootstrap, topic)
    try:
        for _ in range(5):
            assert reader.poll() == []
        producer.commit()
        wait_until(lambda: reader.poll() == [b"open", b"plain"], f"{reader}")
    finally:
        reader.close()


@KINDS
def test_a_transaction_spans_topics(txn_broker: BrokerProcess, kind: str, topic: str, make: Make) -> None:
    bootstrap = txn_broker.bootstrap
    topics = [f"{topic}-{number}" for number in range(3)]
    for each in topics:
        confluent.make_topic(bootstrap, each)
    producer = make(kind, bootstrap, topic)
    for outcome in (producer.abort, producer.commit):
        producer.begin()
        for each in topics:
            producer.send(each, outcome.__name__.encode())
        outcome()
    for each in topics:
        assert READERS[kind](bootstrap, each, 1, COMMITTED) == [b"commit"]


@pytest.mark.java
def test_the_java_producer_speaks_the_second_version_of_the_protocol(
    txn_broker: BrokerProcess, java_class_path: str, topic: str
) -> None:
    bootstrap = txn_broker.bootstrap
    confluent.make_topic(bootstrap, topic)
    lines = "".join(f"{topic}\t{number}\t{'abort' if number % 3 == 2 else 'commit'}\n" for number in range(9))
    java.run(java_class_path, "Client", "transact", bootstrap, topic, stdin=lines)
    wanted = [b"%d" % number for number in range(9) if number % 3 != 2]
    assert READERS["confluent-kafka"](bootstrap, topic, 6, COMMITTED) == wanted
    if not txn_broker.is_reference:
        found = transactions(bootstrap, "describe", "--transactional-id", topic)
        assert found["producer_epoch"] >= 9, "it rises with every transaction (KIP-890)"


class Copier:
    """Reads numbers from one topic, writes their squares to another and commits how far it has come, ten
    numbers a transaction: each transaction has both or neither."""

    BATCH = 10

    def __init__(self, make: Make, kind: str, bootstrap: str, source: str, target: str) -> None:
        self._kind = kind
        self._bootstrap = bootstrap
        self._source = source
        self._target = target
        self.producer = make(kind, bootstrap, f"copier-{source}")

    def position(self) -> int:
        return committed(self._bootstrap, self._source).get(0, 0)

    def process(self) -> None:
        """Read a batch, write it; nothing is decided yet."""
        begin = self.position()
        end = begin + self.BATCH
        numbers = READERS[self._kind](self._bootstrap, self._source, end, COMMITTED)[begin:end]
        self.producer.begin()
        for number in numbers:
            self.producer.send(self._target, b"%d" % int(number) ** 2)
        self.producer.send_offsets({(self._source, 0): end}, self._source)


@KINDS
def test_read_process_write_is_exactly_once(
    txn_broker: BrokerProcess, kind: str, topic: str, make: Make
) -> None:
    bootstrap = txn_broker.bootstrap
    source, target = f"{topic}-in", f"{topic}-out"
    for each in (source, target):
        confluent.make_topic(bootstrap, each)
    confluent.write(bootstrap, source, [Record(None, b"%d" % number, (), None) for number in range(40)])
    copier = Copier(make, kind, bootstrap, source, target)
    copier.process()
    copier.producer.commit()
    copier.process()
    assert copier.position() == 10, "an offset of an open transaction is not there yet"
    copier.producer.abort()
    assert copier.position() == 10
    copier.process()  # and is lost with its process; the next one has its transaction aborted
    for _ in range(3):
        copier = Copier(make, kind, bootstrap, source, target)
        copier.process()
        copier.producer.commit()
    assert copier.position() == 40
    values = READERS[kind](bootstrap, target, 40, COMMITTED)
    assert values == [b"%d" % number**2 for number in range(40)]


@KINDS
def test_a_zombie_is_fenced(txn_broker: BrokerProcess, kind: str, topic: str, make: Make) -> None:
    bootstrap = txn_broker.bootstrap
    confluent.make_topic(bootstrap, topic)
    zombie = make(kind, bootstrap, topic)
    zombie.begin()
    zombie.send(topic, b"of the zombie")
    successor = make(kind, bootstrap, topic)
    with pytest.raises(Fenced):
        zombie.commit()
    write(successor, topic, b"of its successor")
    assert READERS[kind](bootstrap, topic, 1, COMMITTED) == [b"of its successor"]


@KINDS
def test_a_transaction_that_takes_too_long_is_aborted(
    txn_broker: BrokerProcess, kind: str, topic: str, make: Make
) -> None:
    bootstrap = txn_broker.bootstrap
    confluent.make_topic(bootstrap, topic)
    slow = begun_with_little_time(make, kind, bootstrap, topic)
    confluent.write(bootstrap, topic, [Record(None, b"plain", (), None)])
    reader = Reader(bootstrap, topic)
    try:
        wait_until(lambda: reader.poll() == [b"plain"], f"{reader}")
    finally:
        reader.close()
    with pytest.raises(Fenced):
        slow.commit()


def test_a_longer_timeout_than_allowed_is_refused(txn_broker: BrokerProcess, topic: str, make: Make) -> None:
    with pytest.raises(Exception, match=r"(?i)transaction.*timeout"):
        make("confluent-kafka", txn_broker.bootstrap, topic, timeout_ms=15 * 60_000 + 1)


@KINDS
def test_a_transaction_outlives_its_coordinator(
    start_broker: StartBroker, kind: str, topic: str, make: Make
) -> None:
    broker = start_broker(properties=PROPERTIES)
    confluent.make_topic(broker.bootstrap, topic)
    producer = make(kind, broker.bootstrap, topic)
    for outcome in (producer.commit, producer.abort, producer.commit):
        producer.begin()
        producer.send(topic, b"before")
        broker.kill()
        broker.start()
        producer.send(topic, b"after")
        outcome()
    values = READERS[kind](broker.bootstrap, topic, 4, COMMITTED)
    assert values == [b"before", b"after"] * 2


@pytest.mark.minikafka_only
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_another_broker_becomes_the_coordinator(start_cluster: StartCluster, make: Make) -> None:
    cluster = start_cluster(properties=PROPERTIES)
    cluster.make_topic("orders")
    producer = make("confluent-kafka", cluster.bootstrap, "t")
    write(producer, "orders", b"first")
    for number in range(2):
        producer.begin()
        producer.send("orders", b"before %d" % number)
        victim = int(listed(cluster.bootstrap)["t"]["coordinator"])
        cluster.brokers[victim].kill()
        producer.send("orders", b"after %d" % number)
        producer.commit()
        cluster.brokers[victim].start()
        cluster.wait_until_whole("orders", "__transaction_state")
    values = READERS["aiokafka"](cluster.bootstrap, "orders", 5, COMMITTED)
    assert values == [b"first", b"before 0", b"after 0", b"before 1", b"after 1"]


# Operators


def transactions(bootstrap: str, *arguments: str) -> Any:
    """``minikafka transactions``; what it prints as JSON."""
    return minikafka(bootstrap, "transactions", *arguments, *(["--json"] if arguments[0] != "abort" else []))


def minikafka(bootstrap: str, *arguments: str) -> Any:
    """A command of ``minikafka``; what it prints, if it is JSON."""
    command = [sys.executable, "-m", "minikafka.cli.main", *arguments, "-b", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if "--json" in arguments else None


def listed(bootstrap: str) -> dict[str, Any]:
    return {each["transactional_id"]: each for each in transactions(bootstrap, "list")}


@pytest.mark.minikafka_only
def test_an_operator_sees_what_producers_do(txn_broker: BrokerProcess, topic: str, make: Make) -> None:
    bootstrap = txn_broker.bootstrap
    confluent.make_topic(bootstrap, topic, partitions=2)
    producer = make("confluent-kafka", bootstrap, topic, timeout_ms=50_000)
    describe = ("describe", "--transactional-id", topic)
    assert listed(bootstrap)[topic]["state"] == "Empty"
    producer.begin()
    producer.send(topic, b"open", 1)
    found = transactions(bootstrap, *describe)
    assert (found["state"], found["timeout_ms"], found["partitions"]) == ("Ongoing", 50_000, [[topic, 1]])
    assert listed(bootstrap)[topic]["producer_id"] == found["producer_id"]
    known = transactions(bootstrap, "describe-producers", "--topic", topic, "--partition", "1")
    assert [(each["producer_id"], each["transaction_start_offset"]) for each in known] == [
        (found["producer_id"], 0)
    ]
    hanging = ("find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
    assert transactions(bootstrap, *hanging) == [], "its coordinator will end it"
    producer.commit()
    wait_until(lambda: transactions(bootstrap, *describe)["state"] == "CompleteCommit", "it is over")


@pytest.mark.minikafka_only
def test_the_lag_of_a_read_committed_group_ends_where_a_transaction_is_open(
    txn_broker: BrokerProcess, topic: str, make: Make
) -> None:
    bootstrap = txn_broker.bootstrap
    confluent.make_topic(bootstrap, topic)
    producer = make("confluent-kafka", bootstrap, topic)
    write(producer, topic, b"a")
    producer.begin()
    producer.send(topic, b"open")
    group = ("--group", topic)
    minikafka(bootstrap, "groups", "reset-offsets", *group, "--topic", topic, "--to-earliest", "--execute")
    lags = []
    for level in ("read_uncommitted", "read_committed"):
        described = minikafka(bootstrap, "groups", "describe", *group, "--isolation-level", level, "--json")
        (position,) = described[0]["positions"]
        lags.append((position["log_end"], position["lag"]))
    assert lags == [(3, 3), (2, 2)], "a record and its marker; then the record of the open one"


def late_write(broker: BrokerProcess, topic: str) -> None:
    """A record of a transaction that is over: it begins another, of which the coordinator knows nothing."""
    found = transactions(broker.bootstrap, "describe", "--transactional-id", topic)
    records = wire.batch(
        [b"late"],
        attributes=TRANSACTIONAL,
        producer_id=found["producer_id"],
        producer_epoch=found["producer_epoch"],
        base_sequence=0,
    )
    with wire.RawClient(broker.port) as client:
        assert client.produce(topic, 0, records, transactional_id=topic).error == 0


@pytest.mark.minikafka_only
def test_a_transaction_that_hangs_is_found_and_ended(
    start_broker: StartBroker, topic: str, make: Make
) -> None:
    # It is not checked that a transaction has the partition, as before Kafka 3.6: so one can hang.
    broker = start_broker(properties=PROPERTIES | {"transaction.partition.verification.enable": "false"})
    bootstrap = broker.bootstrap
    confluent.make_topic(bootstrap, topic)
    begun_with_little_time(make, "confluent-kafka", bootstrap, topic)
    wait_until(lambda: listed(bootstrap)[topic]["state"] == "CompleteAbort", "the time is up")
    late_write(broker, topic)
    confluent.write(bootstrap, topic, [Record(None, b"plain", (), None)])
    hanging = ("find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
    wait_until(lambda: transactions(bootstrap, *hanging), "it hangs")
    (found,) = transactions(bootstrap, *hanging)
    reader = Reader(bootstrap, topic)
    try:
        assert reader.poll() == []
        place = ("--topic", topic, "--partition", "0")
        start = str(found["transaction_start_offset"])
        transactions(bootstrap, "abort", *place, "--start-offset", start)
        wait_until(lambda: reader.poll() == [b"plain"], f"{reader}")
    finally:
        reader.close()
    assert transactions(bootstrap, *hanging) == []
