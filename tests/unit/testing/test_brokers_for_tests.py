"""The brokers of `minikafka.testing`: as real as the process, quick, and gone without a trace."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from minikafka.errors import ConfigError, StartError
from minikafka.testing import Broker, ThreadedBroker


def open_files() -> set[str]:
    """What the process's file descriptors stand for."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}")
        except FileNotFoundError:  # the listing's own
            pass
    return found


@pytest.fixture
def temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """A place of the test's own for temporary files, and what is in it."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    return lambda: os.listdir(directory)


async def round_trip(bootstrap_servers: str) -> list[bytes | None]:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        for i in range(3):
            await producer.send_and_wait("letters", b"%d" % i, partition=0)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap_servers) as consumer:
        consumer.assign([TopicPartition("letters", 0)])
        await consumer.seek_to_beginning()
        return [(await consumer.getone()).value for _ in range(3)]


async def test_a_stock_client_on_the_same_loop() -> None:
    async with Broker() as broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{broker.port}"
        assert await round_trip(broker.bootstrap_servers) == [b"0", b"1", b"2"]


@pytest.mark.timing
async def test_it_is_ready_well_under_a_second() -> None:
    async with Broker():
        pass  # the first start imports the server
    took_s = []
    for _ in range(10):  # a busy machine can make a start slower than it is, not quicker
        start = time.monotonic()
        async with Broker():
            took_s.append(time.monotonic() - start)
        if took_s[-1] < 0.5:
            break
    assert min(took_s) < 0.5


async def test_nothing_is_left_behind(temporary_files: Callable[[], list[str]]) -> None:
    async with Broker() as broker:  # what the first broker of a process loads for good is not counted
        await round_trip(broker.bootstrap_servers)
    gc.collect()
    files, threads, tasks = open_files(), set(threading.enumerate()), asyncio.all_tasks()
    async with Broker() as broker:
        port = broker.port
        assert len(temporary_files()) == 1
        await round_trip(broker.bootstrap_servers)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == tasks
    assert set(threading.enumerate()) <= threads
    assert open_files() <= files
    assert temporary_files() == []
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


async def test_it_goes_when_the_test_fails(temporary_files: Callable[[], list[str]]) -> None:
    with pytest.raises(ZeroDivisionError):
        async with Broker() as broker:
            1 / 0  # noqa: B018
    assert temporary_files() == []
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.port


async def test_several_at_once_know_nothing_of_each_other() -> None:
    async with Broker() as one, Broker() as other:
        assert one.port != other.port
        assert one.server.cluster_id != other.server.cluster_id
        await round_trip(one.bootstrap_servers)
        assert other.server.services.metadata.topic("letters") is None


async def test_configuration_by_kafkas_names() -> None:
    async with Broker(config={"num.partitions": 3, "log.segment.bytes": 1 << 20}) as broker:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            assert await producer.partitions_for("letters") == {0, 1, 2}
        assert broker.server.services.config.log_segment_bytes == 1 << 20


async def test_a_bad_configuration_is_an_error_and_leaves_nothing(
    temporary_files: Callable[[], list[str]],
) -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        await Broker(config={"num.partitions": 0}).start()
    with pytest.raises(ConfigError, match=r"num\.partition\b"):
        await Broker(config={"num.partition": 1}).start()
    assert temporary_files() == []


async def test_a_start_that_fails_leaves_nothing(temporary_files: Callable[[], list[str]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        files, threads = open_files(), set(threading.enumerate())
        with pytest.raises(StartError, match=str(port)):
            await Broker(config={"listeners": f"PLAINTEXT://127.0.0.1:{port}"}).start()
        assert open_files() <= files
        for thread in set(threading.enumerate()) - threads:
            thread.join(10)  # the store's says that its connection is closed, and then ends
        assert set(threading.enumerate()) <= threads
    assert temporary_files() == []


async def test_records_in_a_directory_of_ones_own_outlive_the_broker(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path) as broker:
        await round_trip(broker.bootstrap_servers)
    assert (tmp_path / "letters-0").is_dir()
    async with (
        Broker(data_dir=tmp_path) as broker,
        AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers) as consumer,
    ):
        partition = TopicPartition("letters", 0)
        assert await consumer.end_offsets([partition]) == {partition: 3}


async def test_the_same_object_starts_again() -> None:
    broker = Broker()
    async with broker:
        await round_trip(broker.bootstrap_servers)
        with pytest.raises(RuntimeError, match="already"):
            await broker.start()
    async with broker:
        assert await round_trip(broker.bootstrap_servers) == [b"0", b"1", b"2"]
    await broker.stop()


def test_on_uvloop_and_on_the_standard_loop() -> None:
    import uvloop

    async def story() -> list[bytes | None]:
        async with Broker() as broker:
            return await round_trip(broker.bootstrap_servers)

    for factory in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            assert runner.run(story()) == [b"0", b"1", b"2"]


def test_a_synchronous_client_and_a_threaded_broker(temporary_files: Callable[[], list[str]]) -> None:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka import TopicPartition as At

    threads = set(threading.enumerate())
    with ThreadedBroker(config={"num.partitions": 2}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("letters", b"dear all", partition=1)
        assert producer.flush(60) == 0
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "none"})
        consumer.assign([At("letters", 1, 0)])
        message = consumer.poll(60)
        assert message is not None and message.value() == b"dear all"
        consumer.close()
    assert set(threading.enumerate()) <= threads
    assert temporary_files() == []


def test_kafka_python_and_a_threaded_broker() -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as At

    with ThreadedBroker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        assert producer.send("letters", b"dear all", partition=0).get(60).offset == 0
        producer.close()
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, consumer_timeout_ms=60_000)
        consumer.assign([At("letters", 0)])
        consumer.seek_to_beginning()
        assert next(consumer).value == b"dear all"
        consumer.close()


def test_a_threaded_broker_says_why_it_does_not_start(temporary_files: Callable[[], list[str]]) -> None:
    threads = set(threading.enumerate())
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        ThreadedBroker(config={"num.partitions": "many"}).start()
    assert set(threading.enumerate()) <= threads
    assert temporary_files() == []


def test_a_threaded_broker_goes_when_the_test_fails(temporary_files: Callable[[], list[str]]) -> None:
    threads = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError), ThreadedBroker():
        1 / 0  # noqa: B018
    assert set(threading.enumerate()) <= threads
    assert temporary_files() == []
