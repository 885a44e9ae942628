"""A broker comes up, goes down and comes up again; when it cannot, one line says why and nothing stays."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from minikafka.config.resource import Alteration, AlterOperation, ConfigResource, ConfigResourceType
from minikafka.coordination import paths
from minikafka.coordination.store import ConnectionLossError
from minikafka.errors import InvariantError, StartError
from minikafka.server import cluster_membership
from minikafka.server.broker import Broker
from minikafka.server.cluster import coordination_store
from minikafka.server.cluster.features import FinalizedFeatureStore
from minikafka.server.cluster_membership import ClusterMembership
from minikafka.server.config_service import ConfigService
from minikafka.server.config_store import ConfigChangeListener
from minikafka.server.controller.store import ControllerStore
from minikafka.server.security.acl_authorizer import AclStore
from minikafka.testing.simulation.disk import failing
from tests.unit.server.disk import Disk
from tests.unit.server.running import Held, append, held, log_of, make_broker, running, topics_of, until
from tests.unit.server.virtual_store import stores


@pytest.fixture
async def before() -> Held:
    """What this process holds without a broker; the first store and executor of a process leave some."""
    return held()


async def settled(before: Held) -> None:
    """Nothing is held that was not held before. Threads end a moment after they were told to."""
    for _ in range(1000):
        if held().is_within(before):
            return
        await asyncio.sleep(0)
        for thread in threading.enumerate():
            if thread.name.startswith("minikafka"):
                await asyncio.to_thread(thread.join, 5)
    assert held().is_within(before), (held(), before)


async def start_error(broker: Broker) -> str:
    with pytest.raises(StartError) as caught:
        await broker.start()
    text = str(caught.value)
    assert text and "\n" not in text
    return text


async def test_a_new_log_directory_is_durable_before_anything_is_flushed_in_it(tmp_path: Path) -> None:
    disk, here = Disk(), threading.get_ident()
    async with running(tmp_path / "d", disk=disk):
        first, thread = disk.fsyncs[0]
        assert first == str(tmp_path) and thread != here
        disk.fsyncs.clear()
    async with running(tmp_path / "d", disk=disk):
        assert str(tmp_path) not in {path for path, _ in disk.fsyncs}, "it was there already"


async def test_a_cluster_that_migrates_to_kraft_is_left_as_it_is(tmp_path: Path, before: Held) -> None:
    state = {"version": 0, "kraft_controller_id": 3000, "kraft_controller_epoch": 7}
    state |= {"kraft_metadata_offset": 99, "kraft_metadata_epoch": 7}
    async with stores(tmp_path) as store:
        await store.create(paths.MIGRATION, msgspec.json.encode(state))
    url = f"sqlite:///{tmp_path / 'store.sqlite'}"
    text = await start_error(make_broker(tmp_path / "d", coordination=url))
    assert "the cluster migrates to KRaft" in text and "deleting /controller and /migration" in text
    async with stores(tmp_path) as store:
        assert await store.children("/") == ["migration"]
    await settled(before)


async def test_records_and_topics_are_there_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path / "d") as first:
        created = await topics_of(first).create_topic("t", partitions=2)
        append(first, "t", 1)
    assert (tmp_path / "d" / ".kafka_cleanshutdown").exists()
    async with running(tmp_path / "d") as again:
        assert not (tmp_path / "d" / ".kafka_cleanshutdown").exists()
        assert again.cluster_id == first.services.cluster_id
        topic = again.services.metadata.topic("t")
        assert topic is not None and topic.topic_id == created.topic_id
        assert log_of(again, "t", 1).log_end_offset == 1
        assert topic.partitions[0].leader_epoch >= 1  # a new election


async def test_a_broker_that_has_started_serves_everything_it_leads(tmp_path: Path) -> None:
    """No client has to ask twice after a start: it ends when the controller has said what to lead."""
    async with running(tmp_path / "d") as first:
        await topics_of(first).create_topic("t", partitions=50)
    for _ in range(3):
        async with running(tmp_path / "d") as again:
            for partition in range(50):
                append(again, "t", partition)


async def test_a_broker_without_a_controller_is_up_and_serves_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cluster_membership, "INITIAL_METADATA_TIMEOUT_MS", 10)

    async def wait_for_ever(*args: object, **kwargs: object) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(ControllerStore, "topics", wait_for_ever)
        broker = make_broker(tmp_path)
        await broker.start()
    assert "no metadata received from the controller" in caplog.text
    assert broker.services.metadata.brokers() == () and broker.port > 0
    await broker.stop()


@pytest.mark.parametrize("is_written", [True, False], ids=["the answer is lost", "the request is lost"])
async def test_a_store_that_does_not_answer_for_a_moment_ends_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_written: bool
) -> None:
    register = cluster_membership.register_broker
    attempts = []

    async def lose_the_first(*arguments: Any, **options: Any) -> int:
        attempts.append(arguments)
        if len(attempts) > 1 or is_written:
            epoch = await register(*arguments, **options)
        if len(attempts) == 1:
            raise ConnectionLossError("no answer")
        return epoch

    monkeypatch.setattr(cluster_membership, "register_broker", lose_the_first)
    monkeypatch.setattr(coordination_store, "RETRY_PAUSE_MS", 1)
    async with running(tmp_path) as broker:
        assert "the registration: waiting for the coordination store: no answer" in caplog.text
        (known,) = broker.services.metadata.brokers()
        assert known.node_id == broker.node_id and len(attempts) == 2


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (Broker, "_join_cluster"),
        (ConfigChangeListener, "begin"),
        (ConfigService, "load"),
        (FinalizedFeatureStore, "load"),
        (AclStore, "load"),
        (ClusterMembership, "_register"),
    ],
    ids=["cluster id", "configuration changes", "configuration", "features", "ACLs", "registration"],
)
async def test_a_session_that_expires_during_the_start_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: type, name: str
) -> None:
    """In which the broker is registered, and has the watches that it had in the first one."""
    step, attempts = getattr(where, name), []

    async def expire_after_the_first(*arguments: Any) -> Any:
        done = await step(*arguments)
        attempts.append(arguments)
        if len(attempts) == 1:
            store = cast(Any, broker)._store
            await store._submit(store._client.end_session)
            await store.get(paths.CLUSTER_ID)  # says that it has expired
        return done

    monkeypatch.setattr(where, name, expire_after_the_first)
    monkeypatch.setattr(coordination_store, "RETRY_PAUSE_MS", 1)
    authorizer = "kafka.security.authorizer.AclAuthorizer"
    store = {"coordination": f"sqlite:///{tmp_path}/store"}
    broker = make_broker(
        tmp_path / "1", authorizer_class_name=authorizer, super_users="User:ANONYMOUS", **store
    )
    await broker.start()
    try:
        assert len(attempts) >= 2
        async with running(tmp_path / "2", node_id=2, **store) as other:
            await until(broker, lambda: len(broker.services.metadata.brokers()) == 2, "both are registered")
            every_broker = ConfigResource(ConfigResourceType.BROKER, "")
            retention = Alteration("log.retention.ms", AlterOperation.SET, "12345")
            await other.services.configs.alter_incrementally(every_broker, [retention])
            await until(
                broker, lambda: broker.services.config.log_retention_ms == 12345, "it hears of changes"
            )
    finally:
        await broker.stop()


async def test_a_store_that_stays_away_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(*arguments: Any, **options: Any) -> int:
        raise ConnectionLossError("no answer")

    monkeypatch.setattr(cluster_membership, "register_broker", lose)
    monkeypatch.setattr(coordination_store, "RETRY_PAUSE_MS", 100)
    # Long enough that a slow machine does not lose the session first, which ends the start as well.
    broker = make_broker(tmp_path, zookeeper_session_timeout_ms=2_000)
    assert "no answer" in await start_error(broker)


async def test_a_stop_leaves_no_task_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    async with running(tmp_path / "warm"):
        pass
    await asyncio.to_thread(lambda: None)
    before = held()
    async with running(tmp_path / "d") as broker:
        await topics_of(broker).create_topic("t", partitions=3)
        append(broker, "t")
        _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        assert held() != before
    writer.close()
    await asyncio.gather(writer.wait_closed(), return_exceptions=True)
    await broker.stop()  # again: nothing to do
    await settled(before)


async def test_a_broker_that_does_not_run_says_so(tmp_path: Path) -> None:
    broker = make_broker(tmp_path)
    for look in (lambda: broker.services, lambda: broker.port, lambda: broker.cluster_id):
        with pytest.raises(InvariantError, match="not"):
            look()
    await broker.stop()


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


async def test_what_cannot_start_says_why_in_one_line_and_lets_go(tmp_path: Path, taken_port: int) -> None:
    async with running(tmp_path / "d") as broker:
        await topics_of(broker).create_topic("t")
        locked = await start_error(make_broker(tmp_path / "d"))
        assert "locked: another broker" in locked and str(tmp_path / "d") in locked
        append(broker, "t")  # the one that runs is not disturbed
    await asyncio.to_thread(lambda: None)
    before = held()

    port = await start_error(make_broker(tmp_path / "d", listeners=f"PLAINTEXT://127.0.0.1:{taken_port}"))
    assert str(taken_port) in port
    await settled(before)

    cluster = await start_error(make_broker(tmp_path / "d", cluster_id="AAAAAAAAAAAAAAAAAAAAAA"))
    assert "AAAAAAAAAAAAAAAAAAAAAA" in cluster and broker.services.cluster_id in cluster
    await settled(before)

    node = await start_error(make_broker(tmp_path / "d", node_id=9))
    assert "--set node.id=1" in node
    await settled(before)

    (tmp_path / "file").write_text("in the way")
    unusable = await start_error(make_broker(tmp_path / "file" / "d"))
    assert str(tmp_path / "file" / "d") in unusable
    await settled(before)

    async with running(tmp_path / "d") as again:  # and after all that:
        assert log_of(again, "t").log_end_offset == 1


async def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    disk = Disk()
    disk.fault = failing("write", "meta.properties", errno.EROFS)
    text = await start_error(make_broker(tmp_path / "d", disk=disk))
    assert "no log directory can be used" in text and "Read-only file system" in text


async def test_a_damaged_store(tmp_path: Path) -> None:
    async with running(tmp_path / "d"):
        pass
    await asyncio.to_thread(lambda: None)
    before = held()
    for path in (tmp_path / "d").glob("coordination.sqlite*"):
        path.write_bytes(b"not a database, but long enough to be taken for one" * 40)
    text = await start_error(make_broker(tmp_path / "d"))
    assert "coordination.sqlite" in text
    await settled(before)


async def test_the_loop_never_waits_for_the_disk(tmp_path: Path) -> None:
    """Creating, leading, appending, deleting and starting again: every fsync is another thread's."""
    disk, here = Disk(), threading.get_ident()
    async with running(tmp_path / "d", disk=disk) as broker:
        await topics_of(broker).create_topic("t", partitions=40)
        append(broker, "t")
        log_of(broker, "t").roll()
        await topics_of(broker).create_topic("gone", partitions=5)
        await topics_of(broker).delete_topic("gone")
        epochs = {log_of(broker, "t", n).directory + "/leader-epoch-checkpoint" for n in range(40)}
        await until(broker, lambda: epochs <= {path for path, _ in disk.fsyncs}, "the epochs are durable")
    disk.fsyncs.clear()
    async with running(tmp_path / "d", disk=disk) as broker:
        await until(broker, lambda: epochs <= {path for path, _ in disk.fsyncs}, "the new epochs are durable")
    assert [path for path, thread in disk.fsyncs if thread == here] == []


async def test_an_http_port_that_was_asked_for_and_is_taken_is_a_start_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = await start_error(make_broker(tmp_path / "d", http_port=port))
    assert text.startswith(f"cannot listen on 127.0.0.1:{port} (http.port): Address already in use")


async def test_the_usual_http_port_is_done_without_when_it_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = make_broker(tmp_path / "d", usual_http_port=port)
        await broker.start()
        assert broker.http_address is None
        await broker.stop()
    assert f"http.port is not set: cannot listen on 127.0.0.1:{port}" in caplog.text
