"""Produce on the fast path is Produce on the slow one, byte for byte, whatever changes between requests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import encode_request
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.dispatch.repeated_produce import RepeatedProduce
from minikafka.types import TopicPartition
from tests.support.fake_authorizer import Right
from tests.unit.server.dispatch.two_brokers import (
    CHANGES,
    CLIENTS,
    PLACES,
    TwoBrokers,
    a_change_is_noticed,
    a_right_is_lost,
    story_of,
)
from tests.unit.server.replicas import TP, batch

FIRST_WITH_TOPIC_IDS = 13
USUAL: dict[str, Any] = {
    "at": TP, "acks": 1, "records": 1, "size": 1, "compression": CompressionType.NONE,
    "topic_of_before": False, "times": 3,
}  # fmt: skip


class ProduceMachine(TwoBrokers):
    """Two producers, each with a connection, and a follower that sometimes fetches."""

    def __init__(self) -> None:
        super().__init__()
        for connection, version in enumerate((7, 13)):
            self.produce(connection=connection, client="a", version=version, **USUAL)

    @rule(
        connection=st.integers(0, 1),
        client=CLIENTS,
        at=PLACES,
        version=st.sampled_from([3, 7, 7, 8, 12, 13, 13]),
        acks=st.sampled_from([0, 1, 1, -1, -1]),
        records=st.sampled_from([1, 1, 3]),
        size=st.sampled_from([1, 200]),
        compression=st.sampled_from(
            [CompressionType.NONE, CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD]
        ),
        topic_of_before=st.sampled_from([False, False, False, True]),
        times=st.integers(1, 4),
    )
    def produce(
        self,
        connection: int,
        client: str,
        at: TopicPartition,
        version: int,
        acks: int,
        records: int,
        size: int,
        compression: CompressionType,
        topic_of_before: bool,
        times: int,
    ) -> None:
        topic_id = self.id_of(self.topic_number - topic_of_before)
        data = [{"index": at.partition, "records": batch(records, size, compression)}]
        topic = {"topic_id": topic_id} if version >= FIRST_WITH_TOPIC_IDS else {"name": at.topic}
        body = {
            "transactional_id": None,
            "acks": acks,
            "timeout": 10_000,
            "topic_data": [topic | {"partition_data": data}],
        }
        frame = encode_request(
            api_key=ApiKey.PRODUCE, api_version=version, correlation_id=times, client_id=client, body=body
        )[4:]
        for _ in range(times):
            self.serve(connection, frame)

    @rule(at=PLACES)
    def the_follower_fetches(self, at: TopicPartition) -> None:
        """So acks=-1 is answered."""
        self.let_follower_fetch(at)


TestProduce = ProduceMachine.TestCase
TestProduce.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_the_machine_takes_the_fast_path() -> None:
    """Else it would hold the slow path equal to itself."""
    with story_of(ProduceMachine) as story:
        fast, slow = (each.connections[0].memory for each in story.both)
        assert isinstance(fast, RepeatedProduce) and fast.epoch == story.fast.fast_paths.epoch
        assert slow is None


@pytest.mark.parametrize("kind", CHANGES)
def test_each_change_is_noticed_by_the_next_request(kind: str) -> None:
    a_change_is_noticed(ProduceMachine, kind)


def test_a_client_that_was_forgotten_is_known_again_after_the_next_request() -> None:
    with story_of(ProduceMachine) as story:
        story.idle_clients_are_forgotten()
        assert story.took_slow_path == len(story.last)


def test_who_loses_the_right_is_refused_by_the_next_request() -> None:
    a_right_is_lost(ProduceMachine, Right(AclOperation.WRITE, ResourceType.TOPIC, TP.topic))
