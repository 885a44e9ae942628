"""How librdkafka's idempotent producer comes to write a record twice, on Apache Kafka as on ours.

The leader writes a record, and its answer is lost with the connection. When the record and two others come
again, all on their way at once, the leader lacks replicas for the first two, and has them for the third: this
it refuses for its sequence number. So Kafka does it: min.insync.replicas comes before the look at sequence
numbers (``Partition.appendRecordsToLeader``), and a gap is refused (``ProducerAppendInfo.checkSequence``).
librdkafka then raises its epoch, and sends what it has no answer for as new (confluentinc/librdkafka#4953).
Chaos knows such duplicates by their traces (``tests.chaos.epoch_raises``): here brokers of both kinds leave
them.

Java's producer has another fault of the kind: a leader that knows nothing of it refuses its first batches for
want of replicas, and takes one from behind them. What is before that is tried again until its delivery
time-out (``tests.chaos.give_ups``).

librdkafka's transactional producer can lose a record that it has told as written. When a transaction is
aborted, a record of it that waits to be sent again is purged, and its sequence number is given to the next
record, in the same epoch. If it had been written, the leader takes the next for the same batch once more, and
answers with the offset of the one that was aborted (``tests.chaos.producers``).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from minikafka.errors import ErrorCode
from minikafka.protocol.records.batch import iterate_headers
from minikafka.testing.history import Operation, Outcome, check, read_history
from tests.chaos.give_ups import given_up, is_given_up
from tests.chaos.refusals import refusals_of
from tests.chaos.run import JVM_TERMINATED, read_all
from tests.integration.support import confluent, java
from tests.integration.support.cluster import ProcessCluster, ZooKeeperEngine
from tests.integration.support.produce_gate import ProduceGate
from tests.integration.support.wire import RawClient, batch
from tests.support.ports import free_port
from tests.support.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.minikafka_only

TOPIC = "records"
PURGED_WITHIN_MS = 8_000
LEADER, FOLLOWER = 1, 2
CONTROLLER_S = 10
"""How long one client looks for the controller."""
Kind = str


@pytest.fixture(params=[pytest.param("kafka", marks=pytest.mark.java), "ours"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Whose brokers these are."""
    return str(request.param)


@pytest.fixture
def gate() -> Iterator[ProduceGate]:
    with closing(ProduceGate(free_port())) as gate:
        yield gate


@pytest.fixture
def cluster(
    kind: Kind, gate: ProduceGate, tmp_path: Path, zookeeper_server: ZooKeeperServer
) -> Iterator[ProcessCluster]:
    """Two brokers; clients come to the first through the gate."""
    cluster = ProcessCluster(
        tmp_path,
        ZooKeeperEngine(zookeeper_server, tmp_path.name),
        brokers=2,
        properties={
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "auto.leader.rebalance.enable": "false",
            "zookeeper.session.timeout.ms": 30_000,  # a JVM starts slowly beside others; none is killed here
        },
        own_properties={
            LEADER: {
                "listeners": f"PLAINTEXT://127.0.0.1:{gate.target}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{gate.port}",
            }
        },
        of_kafka=[LEADER, FOLLOWER] if kind == "kafka" else [],
    )
    with closing(cluster):
        yield cluster.start()


def require_replicas(cluster: ProcessCluster, count: int) -> None:
    """Set min.insync.replicas, and wait until the leader, which has no follower, goes by it."""
    entry = ConfigEntry("min.insync.replicas", str(count), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])

    def is_set() -> bool:
        admin = confluent.admin(cluster.bootstrap)
        done = admin.incremental_alter_configs([resource], request_timeout=CONTROLLER_S)[resource]
        try:
            done.result(confluent.DEADLINE_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TIMED_OUT:
                raise
            return False  # the follower was the controller, and this client waits for it
        return True

    confluent.wait_until(is_set, "the other controller is asked")
    expected = ErrorCode.NOT_ENOUGH_REPLICAS if count > 1 else ErrorCode.NONE

    def is_so() -> bool:
        with RawClient(cluster.brokers[LEADER].port) as client:
            return client.produce(TOPIC, 0, batch([b"probe"])).error == expected

    confluent.wait_until(is_so, f"min.insync.replicas is {count}")


def copies(cluster: ProcessCluster) -> list[tuple[int, int, int]]:
    """(producer epoch, sequence, offset) of each batch of a producer in the leader's log."""
    data = b"".join(path.read_bytes() for path in cluster.brokers[LEADER].files(TOPIC, ".log"))
    return [
        (header.producer_epoch, header.base_sequence, header.base_offset)
        for _, header in iterate_headers(data)
        if header.producer_id >= 0
    ]


def sender(cluster: ProcessCluster, told: dict[bytes, int]) -> tuple[Producer, Callable[[bytes], None]]:
    """An idempotent producer with a request for each record, and what sends one."""
    producer = confluent.make_producer(
        cluster.bootstrap, enable_idempotence=True, batch_num_messages=1, linger_ms=0
    )

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        told[message.value()] = message.offset()

    def send(value: bytes) -> None:
        producer.produce(TOPIC, value, partition=0, on_delivery=delivered)

    return producer, send


def refused_batches(cluster: ProcessCluster) -> list[dict[str, Any]]:
    """What ``minikafka events`` tells of them."""
    done = subprocess.run(
        [*(sys.executable, "-m", "minikafka.cli.main", "events", "-b", cluster.bootstrap), "--json"],
        capture_output=True,
        text=True,
        timeout=confluent.DEADLINE_S,
        check=True,
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return [each["event"] for each in told if each["kind"] == "refused_batch"]


def test_a_raised_epoch_writes_again_what_was_written(
    kind: Kind, cluster: ProcessCluster, gate: ProduceGate
) -> None:
    cluster.make_topic(TOPIC, **{"min.insync.replicas": 1})
    cluster.brokers[FOLLOWER].stop()
    confluent.wait_until(lambda: cluster.isr(TOPIC) == (LEADER,), "the leader is alone")
    told: dict[bytes, int] = {}
    producer, send = sender(cluster, told)
    send(b"v0")
    assert producer.flush(confluent.DEADLINE_S) == 0

    gate.hold()
    send(b"v1")
    gate.wait_for(1)
    gate.let_pass(1, answered=False)
    require_replicas(cluster, 2)
    gate.cut()
    send(b"v2")
    send(b"v3")
    gate.wait_for(3)
    gate.let_pass(2)
    require_replicas(cluster, 1)
    gate.let_pass(1)
    gate.release()
    assert producer.flush(confluent.DEADLINE_S) == 0
    producer.close()

    assert gate.answers[:5] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ]
    count = confluent.latest(cluster.bootstrap, TOPIC)
    values = {each.offset: each.value for each in confluent.read(cluster.bootstrap, TOPIC, count)}
    written = copies(cluster)
    assert [(epoch, sequence, values[offset]) for epoch, sequence, offset in written] == [
        (0, 0, b"v0"),
        (0, 1, b"v1"),
        (1, 0, b"v1"),
        (1, 1, b"v2"),
        (1, 2, b"v3"),
    ]
    assert told[b"v1"] == written[2][2]
    lines = cluster.brokers[LEADER].log_text().splitlines()
    (refusal,) = refusals_of(LEADER, lines, is_kafka=kind == "kafka")
    assert (refusal.sequence, refusal.last_sequence) == (3, 1)
    assert written[1][2] < refusal.log_end_offset <= written[2][2]
    if kind == "ours":
        assert refusal.producer_epoch == 0
        (event,) = refused_batches(cluster)
        assert event["cause"] in cluster.brokers[LEADER].log_text()
        assert (event["topic"], event["producer_id"]) == (TOPIC, refusal.producer_id)
        assert (event["sequence"], event["last_sequence"]) == (3, 1)


def test_the_next_record_has_the_sequence_number_of_one_that_an_abort_has_purged(
    cluster: ProcessCluster, gate: ProduceGate
) -> None:
    cluster.make_topic(TOPIC, **{"min.insync.replicas": 1})
    cluster.brokers[FOLLOWER].stop()
    confluent.wait_until(lambda: cluster.isr(TOPIC) == (LEADER,), "the leader is alone")
    told: dict[bytes, int | str] = {}
    lost: list[Any] = []  # connections, as it has noticed

    def delivered(error: Any, message: Any) -> None:
        told[message.value()] = message.offset() if error is None else error.name()

    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "transactional.id": "purging",
        "retry.backoff.ms": PURGED_WITHIN_MS,
        "retry.backoff.max.ms": PURGED_WITHIN_MS,
        "error_cb": lost.append,
    }
    producer = Producer(settings)

    def begin(value: bytes) -> None:
        producer.begin_transaction()
        producer.produce(TOPIC, value, partition=0, on_delivery=delivered)

    producer.init_transactions(confluent.DEADLINE_S)
    begin(b"v0")
    producer.commit_transaction(confluent.DEADLINE_S)
    gate.hold()
    begin(b"v1")
    gate.wait_for(1)
    gate.let_pass(1, answered=False)

    def has_noticed() -> bool:
        producer.poll(0)
        return bool(lost)

    lost.clear()
    gate.cut()
    confluent.wait_until(has_noticed, "it knows that the connection is cut")
    producer.abort_transaction(confluent.DEADLINE_S)
    gate.release()
    begin(b"v2")
    producer.commit_transaction(confluent.DEADLINE_S)
    producer.close()

    assert told == {b"v0": 0, b"v1": "_PURGE_QUEUE", b"v2": 2}
    read = confluent.read(cluster.bootstrap, TOPIC, 1, isolation_level="read_committed")
    assert [(each.offset, each.value) for each in read] == [(0, b"v0")]
    assert copies(cluster) == [(0, 0, 0), (0, -1, 1), (0, 1, 2), (0, -1, 3), (0, -1, 4)], "v2 is nowhere"


def test_a_leader_that_has_started_again_knows_the_last_batch_of_a_producer(
    kind: Kind, cluster: ProcessCluster
) -> None:
    """A snapshot has no more. One that was in flight before it is refused when it comes again, and Java's
    producer and librdkafka raise their epochs then (``tests.chaos.epoch_raises``)."""
    cluster.make_topic(TOPIC, **{"min.insync.replicas": 1})
    cluster.brokers[FOLLOWER].stop()
    confluent.wait_until(lambda: cluster.isr(TOPIC) == (LEADER,), "the leader is alone")
    now_ms = int(time.time() * 1000)

    def send(sequence: int) -> tuple[int, int]:
        numbered = batch(
            [b"v"], base_timestamp=now_ms, producer_id=4711, producer_epoch=0, base_sequence=sequence
        )
        with RawClient(cluster.brokers[LEADER].port) as client:
            answer = client.produce(TOPIC, 0, numbered)
        return answer.error, answer.base_offset

    none, out_of_order = int(ErrorCode.NONE), int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert [send(0), send(1)] == [(none, 0), (none, 1)]
    assert send(0) == (none, 0), "it is known while the leader is up"
    cluster.brokers[LEADER].stop()
    cluster.brokers[LEADER].start()
    confluent.wait_until(lambda: send(1) == (none, 1), "the last one is known")
    assert send(0)[0] == out_of_order
    lines = cluster.brokers[LEADER].log_text().splitlines()
    (refusal,) = refusals_of(LEADER, lines, is_kafka=kind == "kafka")
    assert (refusal.sequence, refusal.last_sequence, refusal.log_end_offset) == (0, 1, 2)


REQUEST_TIMEOUT_MS, DELIVERY_TIMEOUT_MS = 10_000, 12_000
"""Of Java's producer. A request must not be given up while it is held."""


@pytest.mark.java
def test_javas_producer_gives_up_what_is_before_its_first_sequence_in_a_log(
    kind: Kind, cluster: ProcessCluster, gate: ProduceGate, tmp_path: Path
) -> None:
    cluster.make_topic(TOPIC, **{"min.insync.replicas": 1})
    cluster.brokers[FOLLOWER].stop()
    confluent.wait_until(lambda: cluster.isr(TOPIC) == (LEADER,), "the leader is alone")
    require_replicas(cluster, 2)
    gate.hold()

    path = tmp_path / "producer-7-java-idempotent.jsonl"
    program = java.command(java.class_path(java.CLIENT_VERSIONS[-1]))
    program[1:1] = [
        f"-Dchaos.request.timeout.ms={REQUEST_TIMEOUT_MS}",
        f"-Dchaos.delivery.timeout.ms={DELIVERY_TIMEOUT_MS}",
    ]
    arguments = ("producer", "idempotent", cluster.bootstrap, TOPIC, "1", str(path), "1")
    with subprocess.Popen([*program, "ChaosClient", *arguments]) as client:
        try:
            gate.wait_for(3)
            gate.let_pass(2)
            require_replicas(cluster, 1)
            gate.let_pass(1)
            gate.release()
            confluent.wait_until(lambda: _goes_on(path), "it gives up, and goes on")
            client.terminate()
            assert client.wait(confluent.DEADLINE_S) in (0, JVM_TERMINATED)
        finally:
            client.kill()

    assert gate.answers[:3] == [
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NONE,
    ]
    assert gate.answers.count(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) >= 10, "it has tried again and again"
    lines = cluster.brokers[LEADER].log_text().splitlines()
    refusals = list(refusals_of(LEADER, lines, is_kafka=kind == "kafka"))
    assert refusals[0].sequence == 0 and refusals[0].last_sequence >= 2, "a batch may have two records"
    if kind == "ours":
        assert len(refusals) == len(set(refusals)), "the same is told once"

    cluster.brokers[FOLLOWER].start()
    read_all(cluster.bootstrap, [TOPIC], tmp_path, partitions=1)
    operations = [
        each for name in ("final", "final-committed") for each in read_history(tmp_path / f"{name}.jsonl")
    ]
    operations += read_history(path)
    of_kafka = [LEADER, FOLLOWER] if kind == "kafka" else []
    for broker in cluster.brokers.values():
        broker.stop()
    told = given_up(operations, tmp_path, of_kafka=of_kafka)
    assert any(each.value.endswith("-1") for each in told), "the first record"
    assert all(each.refusal is not None for each in told)
    assert check(_without_probes(operations)).is_valid


def _goes_on(path: Path) -> bool:
    """Whether a record was given up, and one that was sent after that acknowledged."""
    operations = list(read_history(path))
    ended_ms = [each.completed_ms or 0 for each in operations if is_given_up(each)]
    return any(
        each.outcome is Outcome.OK and each.invoked_ms > min(ended_ms) for each in operations if ended_ms
    )


def _without_probes(operations: list[Operation]) -> list[Operation]:
    """``require_replicas`` has written records that are in no history."""
    for each in operations:
        each.records = tuple(record for record in each.records if record.value != "probe")
    return operations
