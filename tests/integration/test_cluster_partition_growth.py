"""A topic grows while it is written to: by each admin client, checked only, and with replicas of one's own
choice. Its producer begins to use the new partitions, and every acknowledged record is read back."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import KafkaException, Message
from confluent_kafka.admin import AdminClient, NewPartitions

from minikafka.coordination import paths
from tests.integration.conftest import StartCluster
from tests.integration.support import confluent
from tests.integration.support.cluster import ProcessCluster

pytestmark = pytest.mark.minikafka_only

TOPIC = "growing"
WAIT_S = 60
PAUSE_S = 0.002


class SpreadLoad:
    """Numbered records to whatever partitions the client knows, for the length of a ``with`` block."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = confluent.make_producer(
            bootstrap,
            acks="all",
            enable_idempotence=True,
            linger_ms=2,
            partitioner="random",
            sticky_partitioning_linger_ms=0,
            topic_metadata_refresh_interval_ms=200,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spread-load")
        self.failures: list[str] = []
        self.acked: dict[int, dict[int, bytes]] = {}
        """Partition → offset → value."""

    def __enter__(self) -> SpreadLoad:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S) == 0

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce(TOPIC, b"%d" % number, on_delivery=self._delivered)
            self._producer.poll(PAUSE_S)
            number += 1

    def _delivered(self, error: Any, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None and offset is not None and value is not None
        self.acked.setdefault(partition, {})[offset] = value

    def wait_until_used(self, partitions: int) -> None:
        confluent.wait_until(lambda: len(self.acked) == partitions, f"{partitions} partitions take records")

    def check(self, bootstrap: str) -> None:
        """All of it is there, once, and nothing else."""
        assert not self.failures, self.failures[:5]
        for partition, by_offset in self.acked.items():
            end = confluent.latest(bootstrap, TOPIC, partition=partition)
            found = confluent.read(bootstrap, TOPIC, end, partition=partition)
            assert {record.offset: record.value for record in found} == by_offset


def replicas(cluster: ProcessCluster) -> list[tuple[int, ...]]:
    """Of each partition, as the store has them."""
    data = cluster.store.get(paths.topic_path(TOPIC))
    assert data is not None
    assignment = paths.decode_topic(TOPIC, data).partitions
    return [tuple(assignment[number].replicas) for number in sorted(assignment)]


def grow_with_confluent(cluster: ProcessCluster) -> None:
    """From 2: to 3, checked only at first, and to 4 with chosen replicas; what is refused changes nothing."""
    client = confluent.admin(cluster.bootstrap)

    def grow(*arguments: Any, **options: Any) -> None:
        client.create_partitions([NewPartitions(TOPIC, *arguments)], **options)[TOPIC].result(WAIT_S)

    grow(3, validate_only=True)
    assert len(replicas(cluster)) == 2
    grow(3)
    grow(4, [[2, 3, 1]])
    for wrong, code in (
        ((4,), "INVALID_PARTITIONS"),
        ((2,), "INVALID_PARTITIONS"),
        ((5, [[1, 2]]), "INVALID_REPLICA_ASSIGNMENT"),
        ((5, [[1, 2, 9]]), "INVALID_REPLICA_ASSIGNMENT"),
        ((5, [[1, 1, 2]]), "INVALID_REPLICA_ASSIGNMENT"),
        ((6, [[1, 2, 3]]), "INVALID_REPLICA_ASSIGNMENT"),
    ):
        with pytest.raises(KafkaException) as refused:
            grow(*wrong)
        assert refused.value.args[0].name() == code, wrong


def grow_with_kafka_python(cluster: ProcessCluster) -> None:
    """From 4: to 5, checked only at first, and to 6 with chosen replicas."""
    from kafka import KafkaAdminClient
    from kafka.errors import InvalidPartitionsError, InvalidReplicationAssignmentError

    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        client.create_partitions({TOPIC: 5}, validate_only=True)
        assert len(replicas(cluster)) == 4
        client.create_partitions({TOPIC: 5})
        client.create_partitions({TOPIC: {"count": 6, "assignments": [[3, 1, 2]]}})
        with pytest.raises(InvalidPartitionsError):
            client.create_partitions({TOPIC: 2})
        with pytest.raises(InvalidReplicationAssignmentError):
            client.create_partitions({TOPIC: {"count": 7, "assignments": [[1, 2, 9]]}})
    finally:
        client.close()


def test_a_topic_grows_under_load(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    confluent.make_topic(cluster.bootstrap, TOPIC, partitions=2, replicas=3)
    with SpreadLoad(cluster.bootstrap) as load:
        load.wait_until_used(2)
        before = replicas(cluster)
        grow_with_confluent(cluster)
        load.wait_until_used(4)
        grow_with_kafka_python(cluster)
        load.wait_until_used(6)
    after = replicas(cluster)
    assert after[:2] == before, "what was there stays where it was"
    assert len(after) == 6 and (after[3], after[5]) == ((2, 3, 1), (3, 1, 2))
    led = leaders(confluent.admin(cluster.bootstrap))
    assert (led[3], led[5]) == (2, 3)
    load.check(cluster.bootstrap)


def leaders(client: AdminClient) -> dict[int, int]:
    found = client.list_topics(TOPIC, timeout=WAIT_S).topics[TOPIC].partitions
    return {number: partition.leader for number, partition in found.items()}
