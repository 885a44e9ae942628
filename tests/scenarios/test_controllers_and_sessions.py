"""R13 and R14: controllers that do not know yet that they are deposed, and brokers whose sessions expire."""

from __future__ import annotations

import asyncio
import random

import pytest

from minikafka.coordination import paths
from minikafka.errors import ErrorCode
from minikafka.protocol.control import (
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    StopReplicaPartition,
    StopReplicaRequest,
)
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.replication.partition_replicas import IsrPhase
from minikafka.server.apis.control import handle_leader_and_isr, handle_stop_replica
from minikafka.testing.simulation.scenarios.administrator import TOPIC_RESOURCE, alter_config
from minikafka.testing.simulation.simulation import CLIENT
from minikafka.types import ElectionType
from tests.scenarios.support import TOPIC, A, B, C, Cluster, D, play

STORE_DELAY_MS = 200


def _states_written_by(cluster: Cluster, node_id: int) -> int:
    """How many writes of the partition's state by a broker have taken effect."""
    path = paths.partition_state_path("story", 0)
    return sum(
        f" broker-{node_id}: wrote to the store" in line and path in line for line in cluster.simulation.trace
    )


def test_r13_a_controller_that_was_paused_for_longer_than_its_session_writes_nothing_more() -> None:
    """KAFKA-6082: it stops between reading the state of a partition and electing a leader. When it continues,
    its successor has elected one, and so much more has happened."""

    async def story(cluster: Cluster) -> None:
        await cluster.produce(5, at=A)
        cluster.delay_to_store(D, STORE_DELAY_MS)
        cluster.kill(A)
        await cluster.pause(STORE_DELAY_MS * 5 // 2)  # D is in the middle of it
        assert cluster.state.leader == A
        cluster.broker(D).pause()
        cluster.expire(D)
        await cluster.until_leads(B)
        await cluster.start(A)
        await cluster.until_isr(A, B, C)
        written, version = _states_written_by(cluster, D), cluster.state_version
        cluster.broker(D).resume()
        tree = cluster.simulation.store.tree
        await cluster.until(lambda: paths.broker_path(D) in tree.nodes, "D is registered again")
        await cluster.pause(3_000)
        assert (_states_written_by(cluster, D), cluster.state_version) == (written, version)
        assert not cluster.broker(D).server.services.controller.is_controller

    play(story)


def test_r13_what_a_deposed_controller_has_sent_to_the_store_fails_when_it_arrives() -> None:
    """KAFKA-6082, I14: its session lives, so nothing but the controller epoch can tell its writes apart."""

    async def story(cluster: Cluster) -> None:
        await cluster.produce(5, at=A)
        cluster.delay_to_store(D, STORE_DELAY_MS)
        version = cluster.state_version
        cluster.kill(C)
        # D reads who is there, what each of them says, and the state of the partition; then it writes.
        await cluster.pause(STORE_DELAY_MS * 7 // 2)
        await _depose(cluster)
        await cluster.until(lambda: cluster.controller not in (None, D), "there is another controller")
        assert cluster.controller is not None
        cluster.delay_to_store(cluster.controller, 1_000)  # only D writes the state meanwhile
        await cluster.pause(STORE_DELAY_MS)
        assert cluster.state_version == version
        await cluster.until(lambda: cluster.state.isr == (A, B), "C is removed")
        assert cluster.state.controller_epoch == 2
        assert _states_written_by(cluster, D) == 1  # the first one
        assert cluster.session_id(D) != 0
        assert not cluster.broker(D).server.services.controller.is_controller

    play(story)


def test_r13_a_controller_elects_no_leader_that_has_left_the_isr_since_it_read_the_state() -> None:
    """B, who leads, asks it to remove A. While that is on the way to the store it is asked for the preferred
    leader, A, and reads that A is in sync."""

    async def story(cluster: Cluster) -> None:
        await cluster.produce(5, at=A)
        cluster.kill(A)
        await cluster.until_leads(B)
        await cluster.start(A)
        await cluster.until_isr(A, B, C)
        cluster.part(A, B)
        await cluster.produce(1, at=B, acks=1)
        cluster.delay_to_store(D, STORE_DELAY_MS)
        await cluster.until(
            lambda: cluster.partition(B).replication.isr.phase is IsrPhase.PENDING_SHRINK, "B asks"
        )
        version = cluster.state_version
        await cluster.pause(STORE_DELAY_MS * 9 // 2)  # the removal of A is being written soon
        asking = asyncio.create_task(_elect_preferred(cluster))
        await cluster.until(lambda: cluster.state_version > version, "the state is written")
        assert cluster.state.isr == (B, C) and not asking.done()
        await cluster.produce(5, at=B)
        await asking
        assert cluster.state.leader == B
        cluster.join(A, B)
        await cluster.until_isr(A, B, C)
        cluster.expect_same_logs(A, B, C)

    play(story)


async def _elect_preferred(cluster: Cluster) -> None:
    body = {
        "election_type": ElectionType.PREFERRED,
        "topic_partitions": [{"topic": TOPIC, "partitions": [0]}],
        "timeout": 5_000,
    }
    await cluster.client.request(cluster.broker(D).address, ApiKey.ELECT_LEADERS, body)


@pytest.mark.parametrize(
    ("controller_age", "broker_age", "code"),
    [(1, 0, ErrorCode.STALE_CONTROLLER_EPOCH), (0, 1, ErrorCode.STALE_BROKER_EPOCH)],
    ids=["controller", "broker"],
)
def test_r13_what_was_meant_for_another_time_is_not_done(
    controller_age: int, broker_age: int, code: ErrorCode
) -> None:
    """KIP-380: C's replica was to be deleted. The request was under way until its controller had a successor,
    or C had been restarted, and the replica is wanted again."""

    async def story(cluster: Cluster) -> None:
        await cluster.produce(5, at=A)
        services = cluster.broker(C).server.services
        late = StopReplicaRequest(
            controller_id=D,
            controller_epoch=services.replica_manager.controller_epoch - controller_age,
            broker_epoch=services.broker_epoch - broker_age,
            partitions=(StopReplicaPartition(TOPIC, 0, cluster.state.leader_epoch, delete=True),),
        )
        assert (await handle_stop_replica(services, None, late)).error_code == code
        await cluster.produce(5, at=A)
        await cluster.until_logs("C: e0[0..9]")

    play(story)


def test_r13_a_late_leader_and_isr_does_not_take_the_isr_back() -> None:
    """A has removed C since the controller sent it. Where A believed it, it would wait for C, who is away,
    with a version that it cannot change the ISR with."""

    async def story(cluster: Cluster) -> None:
        await cluster.produce(5, at=A)
        services, partition = cluster.broker(A).server.services, cluster.partition(A)
        late = LeaderAndIsrPartition(
            TOPIC, partition.topic_id, 0, services.replica_manager.controller_epoch, A,
            cluster.state.leader_epoch, (A, B, C), partition.partition_epoch, (A, B, C),
        )  # fmt: skip
        cluster.part(A, C)
        await cluster.produce(1, at=A, acks=1)
        await cluster.until_isr(A, B)
        request = LeaderAndIsrRequest(D, late.controller_epoch, services.broker_epoch, (late,), ())
        await handle_leader_and_isr(services, None, request)
        assert set(partition.isr) == {A, B}
        await cluster.produce(1, at=A)

    play(story)


async def _depose(cluster: Cluster) -> None:
    """Delete ``/controller``, as an operator would to have another one elected."""
    host = cluster.simulation.network.host(CLIENT)
    store = await cluster.simulation.open_store(host, cluster.broker(A).clock, rng=random.Random(1))
    await store.delete(paths.CONTROLLER)
    await store.close()


@pytest.mark.parametrize("is_registered", [False, True], ids=["before registering", "after registering"])
def test_r14_a_broker_whose_session_expires_twice_while_it_becomes_a_follower_recovers(
    is_registered: bool,
) -> None:
    """KAFKA-2729, KAFKA-9307: B leads, and has a change of the ISR under way, when its session expires; when
    A is elected, and B is about to register again, or about to hear of A, it expires once more. B learns who
    leads; when it leads again, it knows the version of the state, so that it can change the ISR."""

    async def story(cluster: Cluster) -> None:
        await cluster.produce(5, at=B)
        cluster.part(B, C)
        cluster.send(at=B, acks=1)
        cluster.delay_to_store(B, STORE_DELAY_MS)
        change = cluster.partition(B).replication.isr
        await cluster.until(lambda: change.in_flight is not None, "B proposes to remove C")
        cluster.delay(D, B, STORE_DELAY_MS)
        first = cluster.session_id(B)
        cluster.expire(B)
        await cluster.until_leads(A)
        await cluster.until(lambda: cluster.session_id(B) > first, "B has another session")
        second = cluster.session_id(B)
        tree = cluster.simulation.store.tree
        if is_registered:
            await cluster.until(lambda: paths.broker_path(B) in tree.nodes, "B is registered")
            await cluster.pause(STORE_DELAY_MS // 2)
        assert cluster.partition(B).is_leader  # the news is under way
        cluster.expire(B)
        await cluster.until(lambda: cluster.session_id(B) > second, "B has a third session")
        cluster.join(B, C)
        await cluster.until_isr(A, B, C)
        assert cluster.partition(A).partition_epoch == cluster.state_version
        cluster.kill(A)
        await cluster.until_leads(B)
        cluster.part(B, C)
        cluster.send(at=B, acks=1)
        await cluster.until_isr(B)
        cluster.join(B, C)
        await cluster.until_isr(B, C)
        assert cluster.partition(B).partition_epoch == cluster.state_version
        await cluster.start(A)
        await cluster.until_isr(A, B, C)
        cluster.expect_same_logs(A, B, C)

    play(story, replicas=(B, A, C))


START_MS = 60
"""A start in the simulation takes about so long, until the broker hears of changes."""


def test_r14_a_topic_is_configured_while_a_broker_starts() -> None:
    """At whatever moment. The controller is slow to say what to follow: what the broker had read before it
    opened its logs, and heard before it hosted their partitions, was told to no log (seed 402966)."""

    async def story(cluster: Cluster) -> None:
        await cluster.produce(1, at=A)
        address = cluster.broker(A).address
        for after_ms in range(0, START_MS, 4):
            cluster.kill(C)
            await cluster.until(lambda: C not in cluster.state.isr, "the controller knows that C is gone")
            cluster.broker(D).pause()
            start = asyncio.create_task(cluster.start(C))
            await cluster.pause(after_ms)
            wanted = 1 + after_ms // 4 % 2
            entry = ("min.insync.replicas", str(wanted))
            code = await alter_config(cluster.client, address, TOPIC_RESOURCE, TOPIC, [entry])
            assert code == ErrorCode.NONE
            await cluster.pause(2 * START_MS)
            cluster.broker(D).resume()
            await start
            await cluster.until_isr(A, B, C)
            await cluster.pause(100)
            for node_id in (A, B, C):
                obeyed = cluster.partition(node_id).log.config.min_insync_replicas
                assert obeyed == wanted, (node_id, after_ms)

    play(story)
