"""One broker, unchanged, in a simulated world: what it keeps through kills, power cuts, cuts and pauses."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import aiokafka  # type: ignore[import-untyped]
import pytest

from minikafka.coordination import paths
from minikafka.errors import ErrorCode, KafkaError, StartError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing.simulation import SimulatedBroker, SimulatedClient, SimulatedProducer, Simulation
from minikafka.testing.simulation.client import make_batch
from minikafka.testing.simulation.disk import failing
from minikafka.testing.simulation.loop import HostDiedError
from minikafka.testing.simulation.simulation import STORE
from minikafka.types import TopicPartition

Story = Callable[[Simulation, SimulatedBroker, SimulatedClient], Coroutine[Any, Any, Any]]


def tell(story: Story, *, seed: int = 1, **config: str | int) -> Simulation:
    """Run ``story`` with a broker and a topic ``t`` of two partitions."""

    async def scenario(sim: Simulation) -> None:
        broker = await sim.start_broker(1, {name.replace("_", "."): value for name, value in config.items()})
        client = SimulatedClient([broker.address])
        await client.create_topic("t", partitions=2)
        await story(sim, broker, client)

    sim = Simulation(seed)
    sim.run(scenario)
    return sim


def values(read: list[tuple[int, bytes | None]]) -> list[bytes | None]:
    assert [offset for offset, _ in read] == list(range(len(read)))
    return [value for _, value in read]


def check_logs(broker: SimulatedBroker) -> None:
    for partition in (0, 1):
        broker.server.services.replica_manager.partition(TopicPartition("t", partition)).log.validate()


async def write_for_ever(client: SimulatedClient, written: list[int]) -> None:
    """Numbers into partition 0, one by one; ``written`` has those that were acknowledged."""
    producer = SimulatedProducer(client)
    number = 0
    while True:
        await producer.send("t", 0, [b"%d" % number])
        written.append(number)
        number += 1
        await asyncio.sleep(0.02)


def test_what_was_produced_is_read_back() -> None:
    async def story(sim: Simulation, broker: SimulatedBroker, client: SimulatedClient) -> None:
        for number in range(50):
            assert await client.deliver("t", number % 2, make_batch([b"%d" % number])) == number // 2
        assert await client.produce("t", 0, make_batch([b"silent"]), acks=0) == -1
        await asyncio.sleep(1)
        assert values(await client.read_all("t")) == [*(b"%d" % n for n in range(0, 50, 2)), b"silent"]
        assert await client.log_end("t", 1) == 25
        with pytest.raises(KafkaError) as raised:
            await client.produce("t", 7, make_batch([b"x"]))
        assert raised.value.code == ErrorCode.LEADER_NOT_AVAILABLE

    tell(story)


@pytest.mark.parametrize("seed", range(5))
def test_after_a_kill_everything_is_there(seed: int) -> None:
    async def story(sim: Simulation, broker: SimulatedBroker, client: SimulatedClient) -> None:
        written: list[int] = []
        writer = asyncio.create_task(write_for_ever(client, written))
        for _ in range(3):
            await asyncio.sleep(sim.rng("life").uniform(0.2, 2))
            broker.kill()
            await asyncio.sleep(sim.rng("death").uniform(0.2, 30))
            await broker.start()
            check_logs(broker)
        await asyncio.sleep(1)
        writer.cancel()
        read = values(await client.read_all("t"))
        assert read[: len(written)] == [b"%d" % number for number in written]
        assert len(read) - len(written) in (0, 1), "each once, whatever was tried again"
        assert len(written) > 50

    tell(story, seed=seed)


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_leaves_a_valid_log_and_all_that_was_flushed(seed: int) -> None:
    async def story(sim: Simulation, broker: SimulatedBroker, client: SimulatedClient) -> None:
        written: list[int] = []
        writer = asyncio.create_task(write_for_ever(client, written))
        await asyncio.sleep(sim.rng("life").uniform(1, 3))
        log = broker.server.services.replica_manager.partition(TopicPartition("t", 0)).log
        flushed = log.recovery_point
        broker.power_off()
        writer.cancel()
        await asyncio.sleep(20)
        await broker.start()
        check_logs(broker)
        read = values(await client.read_all("t"))
        assert read == [b"%d" % number for number in range(len(read))]
        assert 0 < flushed <= len(read) <= len(written) + 1
        assert await client.deliver("t", 0, make_batch([b"continues"])) == len(read)

    tell(story, seed=seed, log_flush_interval_ms=300, log_flush_scheduler_interval_ms=200)


@pytest.mark.parametrize("seed", range(5))
def test_with_flush_messages_1_a_power_cut_loses_nothing_that_was_acknowledged(seed: int) -> None:
    async def story(sim: Simulation, broker: SimulatedBroker, client: SimulatedClient) -> None:
        written: list[int] = []
        writer = asyncio.create_task(write_for_ever(client, written))
        await asyncio.sleep(sim.rng("life").uniform(1, 3))
        broker.power_off()
        writer.cancel()
        await asyncio.sleep(20)
        await broker.start()
        check_logs(broker)
        read = values(await client.read_all("t"))
        assert read[: len(written)] == [b"%d" % number for number in written]
        assert len(written) > 30

    tell(story, seed=seed, log_flush_interval_messages=1)


EPOCHS_OF_T0 = "/data/t-0/leader-epoch-checkpoint"


async def ends_of_epochs(broker: SimulatedBroker, client: SimulatedClient, epochs: int) -> list[int]:
    """What the broker tells a replica that asks where each of the first ``epochs`` ends."""
    ends = []
    for epoch in range(epochs):
        wanted = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
        body = {"replica_id": -1, "topics": [{"topic": "t", "partitions": [wanted]}]}
        answer = await client.request(broker.address, ApiKey.OFFSET_FOR_LEADER_EPOCH, body)
        ends.append(answer.topics[0].partitions[0].end_offset)
    return ends


def damaged_epoch_files() -> list[bytes]:
    """What a power cut can leave of a file of three epochs that begin at 0, 12 and 137."""
    whole = b"0\n3\n0 0\n1 12\n2 137\n"
    torn = [whole[:size] for size in range(len(whole))]
    zeros = [whole[:at] + bytes(len(whole) - at) for at in range(0, len(whole), 3)]
    holes = [b"0\n3\n0 0\n\0\0\0\0\n2 137\n", whole + bytes(8)]
    older = [
        b"0\n0\n",
        b"0\n1\n0 0\n",
        b"0\n2\n0 0\n1 12\n",
        b"0\n3\n0 0\n1 12\n2 13\n",
        b"0\n3\n0 0\n1 7\n2 137\n",  # from before a truncation to 12 or below
        b"0\n2\n0 0\n2 137\n",
        b"0\n2\n1 12\n2 137\n",
        b"0\n4\n0 0\n1 12\n2 137\n9 140\n",
    ]
    return [*torn, *zeros, *holes, *older]


@pytest.mark.parametrize("is_flushed", [False, True])
def test_an_epoch_file_that_was_not_whole_on_the_disk_never_counts(is_flushed: bool) -> None:
    """A replica that asks where an epoch ends is told what the records say, whatever the power cut left."""

    async def story(sim: Simulation, broker: SimulatedBroker, client: SimulatedClient) -> None:
        for count in (12, 125, 9):
            for number in range(count):
                await client.deliver("t", 0, make_batch([b"%d" % number]))
            broker.kill()
            await broker.start()
        await broker.stop()  # all records are flushed, and the recovery point says so
        await broker.start()
        broker.kill()
        disk = broker.disk.mount()
        assert disk.read_bytes(EPOCHS_OF_T0).startswith(b"0\n4\n0 0\n1 12\n2 137\n")
        if not is_flushed:
            disk.remove("/data/recovery-point-offset-checkpoint")
        for content in damaged_epoch_files():
            disk = broker.disk.mount()
            disk.write_atomically(EPOCHS_OF_T0, content)
            await broker.start()
            assert await ends_of_epochs(broker, client, 3) == [12, 137, 146], content
            check_logs(broker)
            broker.kill()

    tell(story)


def test_a_clean_stop_leaves_nothing_to_recover() -> None:
    async def story(sim: Simulation, broker: SimulatedBroker, client: SimulatedClient) -> None:
        await client.deliver("t", 0, make_batch([b"x"]))
        await broker.stop()
        broker.disk.power_lost()
        before = len(sim.trace)
        await broker.start()
        check_logs(broker)
        assert values(await client.read_all("t")) == [b"x"]
        assert not [line for line in sim.trace[before:] if "truncated /data/t-0/0000" in line]

    tell(story)


def test_a_start_may_be_killed_at_every_one_of_its_disk_operations() -> None:
    """Recovery after a kill, killed in turn after 1, 2, 3 … operations, and once more from the start."""

    async def story(sim: Simulation, broker: SimulatedBroker, client: SimulatedClient) -> None:
        for number in range(5):
            await client.deliver("t", 0, make_batch([b"%d" % number] * 3))
        broker.kill()
        left = count = 0

        def die(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                broker.kill()

        broker.disk.fault = die
        while True:
            count += 1
            left = count
            try:
                await broker.start()
            except HostDiedError:
                await asyncio.sleep(30)  # its session must end
                continue
            break
        broker.disk.fault = None
        assert count > 30
        check_logs(broker)
        assert len(await client.read_all("t")) == 15

    tell(story)


def test_a_failed_fsync_takes_the_directory_and_with_it_the_broker() -> None:
    async def story(sim: Simulation, broker: SimulatedBroker, client: SimulatedClient) -> None:
        await client.deliver("t", 0, make_batch([b"x"]))
        broker.disk.fault = failing("fsync", code=errno.EIO)
        await asyncio.sleep(120)
        assert not broker.is_running and isinstance(broker.failure, StartError)
        with pytest.raises(BrokerUnavailable):
            await client.metadata()

    tell(story)


def test_a_broker_that_is_cut_off_from_the_store_registers_again() -> None:
    async def story(sim: Simulation, broker: SimulatedBroker, client: SimulatedClient) -> None:
        path = paths.broker_path(broker.server.node_id)
        first = sim.store.tree.get(path).stat
        sim.cut_store(1)
        await asyncio.sleep(30)
        assert sim.store.tree.stat(path) is None
        await client.deliver("t", 0, make_batch([b"needs no store"]))
        sim.heal_store(1)
        await asyncio.sleep(10)
        again = sim.store.tree.get(path).stat
        assert again.czxid > first.czxid and again.ephemeral_owner != first.ephemeral_owner

    tell(story)


def test_a_paused_broker_does_everything_when_it_goes_on() -> None:
    async def story(sim: Simulation, broker: SimulatedBroker, client: SimulatedClient) -> None:
        path = paths.broker_path(broker.server.node_id)
        await client.leader("t", 0)
        broker.pause()
        with pytest.raises(BrokerUnavailable, match="PRODUCE was not answered"):
            await client.produce("t", 0, make_batch([b"late"]))
        await asyncio.sleep(60)
        assert sim.store.tree.stat(path) is None, "its session is over"
        broker.resume()
        await asyncio.sleep(10)
        assert sim.store.tree.stat(path) is not None
        assert values(await client.read_all("t")) == [b"late"], "it was in the kernel's buffer"

    tell(story)


def test_an_isolated_broker_answers_when_the_cut_has_healed() -> None:
    async def story(sim: Simulation, broker: SimulatedBroker, client: SimulatedClient) -> None:
        sim.isolate(1)
        sim.loop.call_later(12, sim.rejoin, 1)
        await client.deliver("t", 0, make_batch([b"x"]))
        assert sim.loop.time() > 12
        read = values(await client.read_all("t"))
        assert set(read) == {b"x"} and len(read) >= 1

    tell(story)


def test_a_wrong_clock_shows_in_the_records_and_nowhere_else() -> None:
    async def story(sim: Simulation, broker: SimulatedBroker, client: SimulatedClient) -> None:
        await client.create_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
        right_ms = broker.clock.now_ms()
        broker.host.clock_skew_ms = -3_600_000
        await client.deliver("stamped", 0, make_batch([b"x"]))
        (record,) = (await client.fetch("stamped", 0, 0)).records
        assert right_ms - 3_600_000 <= record.timestamp < right_ms - 3_590_000

    tell(story)


def test_stock_clients_run_in_it_too() -> None:
    """aiokafka reads the clock and throws dice by itself; the guard gives it the simulated ones. Only the
    time that its compiled codec stamps on records is real, so the records are given theirs."""

    async def story(sim: Simulation, broker: SimulatedBroker, client: SimulatedClient) -> None:
        servers = f"{broker.address[0]}:{broker.address[1]}"
        async with (
            aiokafka.AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True, linger_ms=5) as out,
            aiokafka.AIOKafkaConsumer("t", bootstrap_servers=servers, auto_offset_reset="earliest") as into,
        ):
            sent = [
                await out.send("t", b"%d" % number, partition=0, timestamp_ms=broker.clock.now_ms())
                for number in range(20)
            ]
            broker.kill()
            await asyncio.sleep(5)
            await broker.start()
            assert [(await one).offset for one in sent] == list(range(20))
            assert [(await into.getone()).value for _ in sent] == [b"%d" % number for number in range(20)]

    traces = [tell(story, seed=5).trace for _ in range(2)]
    assert traces[0] == traces[1]


async def eventful(sim: Simulation, broker: SimulatedBroker, client: SimulatedClient) -> None:
    """A bit of everything."""
    written: list[int] = []
    writer = asyncio.create_task(write_for_ever(client, written))
    dice = sim.rng("story")
    for _ in range(12):
        await asyncio.sleep(dice.uniform(0.1, 3))
        match dice.randrange(6):
            case 0:
                broker.kill()
                await asyncio.sleep(dice.uniform(0, 20))
                await broker.start()
            case 1:
                broker.power_off()
                await asyncio.sleep(dice.uniform(0, 20))
                await broker.start()
            case 2:
                broker.pause()
                await asyncio.sleep(dice.uniform(0, 20))
                broker.resume()
            case 3:
                sim.isolate(1)
                await asyncio.sleep(dice.uniform(0, 20))
                sim.rejoin(1)
            case 4:
                sim.network.drop("client", broker.host.name)
                sim.store.disconnect(broker.host.name)
            case 5:
                await broker.restart()
        if writer.done():  # after a power cut its numbers have gaps
            writer.exception()
            writer = asyncio.create_task(write_for_ever(client, written))
    writer.cancel()
    await asyncio.gather(writer, return_exceptions=True)
    check_logs(broker)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_is_the_same_run(seed: int) -> None:
    first, second = tell(eventful, seed=seed), tell(eventful, seed=seed)
    assert len(first.trace) > 100
    assert first.trace == second.trace
    assert first.loop.callbacks_run == second.loop.callbacks_run


def test_another_seed_is_another_run() -> None:
    assert tell(eventful, seed=1).trace != tell(eventful, seed=2).trace


def test_a_run_does_not_depend_on_the_order_of_hashes() -> None:
    code = (
        "import hashlib, sys\n"
        "from tests.sim.test_single_broker import eventful, tell\n"
        "lines = [line for seed in range(2) for line in tell(eventful, seed=seed).trace]\n"
        "print(len(lines), hashlib.sha256('\\n'.join(lines).encode()).hexdigest())\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))},
        ).stdout
        for seed in ("1", "4242")
    ]
    assert runs[0] == runs[1] and runs[0].split()[0] > "100"


def test_the_store_is_a_host_like_any_other() -> None:
    async def story(sim: Simulation, broker: SimulatedBroker, client: SimulatedClient) -> None:
        sim.network.delay(STORE, broker.host.name, 100)
        start = sim.loop.time()
        await client.create_topic("slow")
        assert sim.loop.time() - start > 0.2

    tell(story)
