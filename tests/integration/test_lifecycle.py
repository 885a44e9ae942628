"""Starting and stopping: cleanly, quickly, and with one clear line when it cannot be."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, TopicPartition

from tests.integration.conftest import StartBroker
from tests.integration.support import confluent, wire
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import numbered

STOP_AT_MOST_S = 30.0
"""Half of the fetch's wait, which is not to hold it up, and more than what a loaded machine adds."""


def test_sigterm_stops_cleanly_with_clients_connected(start_broker: StartBroker, topic: str) -> None:
    """Waiting fetches do not hold it up; what was acknowledged is there, and no recovery is due."""
    broker = start_broker()
    confluent.make_topic(broker.bootstrap, topic)
    records = [numbered(i) for i in range(1_000)]
    confluent.write(broker.bootstrap, topic, records)
    waiting = wire.RawClient(broker.port, timeout_s=30)
    waiting.send(wire.request(wire.FETCH, 4, wire.fetch_body(topic, 0, 1_000, max_wait_ms=60_000)))
    idle = wire.RawClient(broker.port)
    idle.api_versions()
    start = time.monotonic()
    code = broker.stop()
    took_s = time.monotonic() - start
    assert code == (143 if broker.is_reference else 0)
    assert took_s < STOP_AT_MOST_S
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()
    (log,) = broker.files(topic, ".log")
    assert all(path.stat().st_size < 10_000 for path in broker.files(topic, "index")), "cut to what they hold"
    before = log.read_bytes()
    broker.start()
    assert log.read_bytes() == before
    stored = confluent.read(broker.bootstrap, topic, 1_000)
    assert [record.content for record in stored] == [record[:3] for record in records]


@pytest.mark.minikafka_only
def test_sigint_stops_as_sigterm_does(start_broker: StartBroker) -> None:
    broker = start_broker()
    assert broker.process is not None
    broker.process.send_signal(signal.SIGINT)
    assert broker.process.wait(STOP_AT_MOST_S) == 0


def test_everything_acknowledged_while_stopping_is_there(start_broker: StartBroker, topic: str) -> None:
    """SIGTERM in the middle of a load: requests are either answered, and then kept, or not answered."""
    broker = start_broker()
    confluent.make_topic(broker.bootstrap, topic)
    acked = 0
    enough = threading.Event()

    def load() -> None:
        nonlocal acked
        with wire.RawClient(broker.port) as client:
            while True:
                answer = client.produce(topic, 0, wire.batch([b"%d" % acked]))
                if answer.error == 6:  # NOT_LEADER_OR_FOLLOWER: what Kafka says before it goes
                    return
                assert (answer.error, answer.base_offset) == (0, acked)
                acked += 1
                if acked == 300:
                    enough.set()

    def load_until_it_hangs_up() -> None:
        try:
            load()
        except ConnectionError:
            pass

    writer = threading.Thread(target=load_until_it_hangs_up)
    writer.start()
    assert enough.wait(30)
    broker.stop()
    writer.join(10)
    assert not writer.is_alive()
    broker.start()
    stored = confluent.latest(broker.bootstrap, topic)
    assert stored in (acked, acked + 1), "the last request may be kept with its answer lost"
    values = [record.value for record in confluent.read(broker.bootstrap, topic, acked)]
    assert values == [b"%d" % i for i in range(acked)]


def test_an_idempotent_producer_outlives_a_restart(start_broker: StartBroker, topic: str) -> None:
    """The same producer goes on after a clean restart: nothing is refused, nothing repeated."""
    broker = start_broker()
    confluent.make_topic(broker.bootstrap, topic)
    config = {"enable_idempotence": True, "linger_ms": 1, "reconnect_backoff_max_ms": 100}
    producer = confluent.make_producer(broker.bootstrap, **config)
    errors: list[object] = []
    for round_number in range(3):
        for i in range(500):
            producer.produce(
                topic,
                b"%d" % (round_number * 500 + i),
                partition=0,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        assert producer.flush(30) == 0
        broker.stop()
        broker.start()
    assert not errors
    values = [record.value for record in confluent.read(broker.bootstrap, topic, 1_500)]
    assert values == [b"%d" % i for i in range(1_500)]
    assert confluent.latest(broker.bootstrap, topic) == 1_500


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_sequences_are_known_after_a_restart(start_broker: StartBroker, topic: str, how: str) -> None:
    """A retry of a batch from before the restart is answered with its first offset; a gap is refused."""
    broker = start_broker()
    confluent.make_topic(broker.bootstrap, topic)

    now_ms = int(time.time() * 1000)

    def send(sequence: int, *, epoch: int = 0) -> wire.Produced:
        batch = wire.batch(
            [b"a", b"b"],
            base_timestamp=now_ms,  # a producer's state is forgotten a day after its last record
            producer_id=4711,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        with wire.RawClient(broker.port) as client:
            return client.produce(topic, 0, batch)

    assert [send(0), send(2), send(4)] == [(0, 0), (0, 2), (0, 4)]
    broker.kill() if how == "kill" else broker.stop()
    broker.start()
    assert send(4) == (0, 4), "a duplicate has the offset that the first had"
    assert send(9).error == 45, "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert send(6) == (0, 6)
    assert send(0, epoch=1) == (0, 8), "a new epoch begins at 0"
    assert send(2).error == 47, "INVALID_PRODUCER_EPOCH"
    assert confluent.latest(broker.bootstrap, topic) == 10


def refused(broker: BrokerProcess, *extra: str, timeout_s: float = 15) -> str:
    """Try to start; returns the one line that it ends with."""
    done = subprocess.run([*broker.arguments(), *extra], capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode not in (0, None)
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("minikafka-broker:")]
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.mark.minikafka_only
class TestAStartThatCannotWork:
    def test_port_taken(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            line = refused(BrokerProcess(tmp_path / "data", port=port))
        assert str(port) in line

    def test_port_taken_leaves_the_directory_clean(self, tmp_path: Path) -> None:
        """The failed start takes nothing with it: the next one needs no recovery and finds all records."""
        broker = BrokerProcess(tmp_path / "data").start()
        confluent.write(broker.bootstrap, "kept", [numbered(i) for i in range(100)])
        broker.stop()
        with socket.create_server(("127.0.0.1", broker.port)):
            refused(broker)
        assert (broker.data_dir / ".kafka_cleanshutdown").exists()
        broker.start()
        assert confluent.latest(broker.bootstrap, "kept") == 100
        broker.stop()

    def test_directory_in_use(self, tmp_path: Path) -> None:
        broker = BrokerProcess(tmp_path / "data").start()
        confluent.write(broker.bootstrap, "unharmed", [numbered(0)])
        line = refused(BrokerProcess(tmp_path / "data"))
        assert str(tmp_path / "data") in line
        confluent.write(broker.bootstrap, "unharmed", [numbered(1)])
        assert confluent.latest(broker.bootstrap, "unharmed") == 2
        assert broker.stop() == 0

    def test_directory_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "data").write_text("precious")
        assert str(tmp_path / "data") in refused(BrokerProcess(tmp_path / "data"))
        assert (tmp_path / "data").read_text() == "precious"

    @pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable for root")
    def test_unwritable_directory(self, tmp_path: Path) -> None:
        (tmp_path / "data").mkdir(mode=0o500)
        assert str(tmp_path / "data") in refused(BrokerProcess(tmp_path / "data"))

    def test_directory_that_cannot_be_made(self) -> None:
        assert "/proc/minikafka" in refused(BrokerProcess(Path("/proc/minikafka")), timeout_s=15)

    def test_another_clusters_directory(self, tmp_path: Path) -> None:
        broker = BrokerProcess(tmp_path / "data").start()
        broker.stop()
        before = (tmp_path / "data" / "meta.properties").read_text()
        line = refused(broker, "--set=cluster.id=AnotherClusterEntirely")
        assert "AnotherClusterEntirely" in line
        assert (tmp_path / "data" / "meta.properties").read_text() == before

    def test_an_unknown_property(self, tmp_path: Path) -> None:
        assert "log.segmnt.bytes" in refused(BrokerProcess(tmp_path / "data"), "--set=log.segmnt.bytes=1")

    def test_a_value_that_cannot_be(self, tmp_path: Path) -> None:
        line = refused(BrokerProcess(tmp_path / "data"), "--set=num.partitions=0")
        assert "num.partitions" in line and "0" in line


@pytest.mark.minikafka_only
def test_the_banner_says_where_and_how(start_broker: StartBroker) -> None:
    broker = start_broker()
    assert str(broker.port) in broker.log_text()
    assert "kcat" in broker.log_text()


@pytest.mark.minikafka_only
def test_in_memory_leaves_nothing(tmp_path: Path) -> None:
    """--in-memory: the records are in a temporary directory, which goes with the broker."""
    broker = BrokerProcess(tmp_path / "unused")
    command = [*broker.command, f"--port={broker.port}", "--in-memory"]
    broker.arguments = lambda: command  # type: ignore[method-assign]
    broker.start()
    confluent.write(broker.bootstrap, "gone", [numbered(0)])
    (line,) = (line for line in broker.log_text().splitlines() if line.startswith("data in "))
    directory = Path(line.split()[2])
    assert (directory / "gone-0").is_dir()
    assert broker.stop(deadline_s=STOP_AT_MOST_S) == 0
    assert not directory.exists()


def test_a_client_that_reads_while_the_broker_restarts_goes_on(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker()
    confluent.make_topic(broker.bootstrap, topic)
    confluent.write(broker.bootstrap, topic, [numbered(0)])
    consumer = confluent.make_consumer(broker.bootstrap, reconnect_backoff_max_ms=100)
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen: list[int] = []

    def read_one() -> bool:
        try:
            message = consumer.poll(0.2)
        except KafkaException:  # while there is no broker
            return False
        if message is not None and message.error() is None:
            seen.append(message.offset() or 0)
        return len(seen) == wanted

    wanted = 1
    confluent.wait_until(read_one, "the first record")
    broker.stop()
    broker.start()
    confluent.write(broker.bootstrap, topic, [numbered(1)])
    wanted = 2
    confluent.wait_until(read_one, "the record after the restart")
    consumer.close()
    assert seen == [0, 1]
