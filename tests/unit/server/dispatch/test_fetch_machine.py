"""Fetch on the fast path is Fetch on the slow one, byte for byte, whatever changes between requests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from minikafka.errors import KafkaError
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import encode_request
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.dispatch.repeated_fetch import RepeatedFetch
from minikafka.types import Offset, TopicPartition
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
from tests.unit.server.replicas import OTHER, TP, batch

USUAL = {
    "replica_state": {"replica_id": -1, "replica_epoch": -1}, "replica_id": -1, "max_wait": 0,
    "session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": "",
}  # fmt: skip
USUAL_PARTITION = {"last_fetched_epoch": -1, "log_start_offset": -1}


class FetchMachine(TwoBrokers):
    """Two consumers without sessions, each with a connection, and someone who writes."""

    def __init__(self) -> None:
        super().__init__()
        for at in (TP, OTHER):
            self.someone_writes(at, records=3, size=1)
        for connection, version in enumerate((13, 16)):
            self.fetch(
                connection=connection, client="a", version=version, offsets=(0, 0), leader_epochs=(-1, -1),
                topic_of_before=False, times=3, max_bytes=1 << 20, min_bytes=1, isolation_level=0,
            )  # fmt: skip

    @rule(
        connection=st.integers(0, 1),
        client=CLIENTS,
        version=st.sampled_from([12, 13, 16]),
        offsets=st.tuples(st.integers(0, 4), st.integers(0, 4)),
        leader_epochs=st.tuples(st.integers(-1, 1), st.sampled_from([-1])),
        max_bytes=st.sampled_from([1, 200, 1 << 20]),
        min_bytes=st.sampled_from([0, 1]),
        isolation_level=st.integers(0, 1),
        topic_of_before=st.sampled_from([False, False, False, True]),
        times=st.integers(1, 3),
    )
    def fetch(
        self,
        connection: int,
        client: str,
        version: int,
        offsets: tuple[int, int],
        leader_epochs: tuple[int, int],
        topic_of_before: bool,
        times: int,
        **limits: int,
    ) -> None:
        partitions = [
            USUAL_PARTITION
            | {
                "partition": index,
                "fetch_offset": offset,
                "current_leader_epoch": -1 if epoch < 0 else self.epoch - epoch,
                "partition_max_bytes": 1 << 20,
            }
            for index, (offset, epoch) in enumerate(zip(offsets, leader_epochs, strict=True))
        ]
        topic = {
            "topic": TP.topic,
            "topic_id": self.id_of(self.topic_number - topic_of_before),
            "partitions": partitions,
        }
        body: dict[str, Any] = USUAL | limits | {"topics": [topic]}
        frame = encode_request(
            api_key=ApiKey.FETCH, api_version=version, correlation_id=times, client_id=client, body=body
        )[4:]
        for _ in range(times):
            self.serve(connection, frame)

    @rule(at=PLACES, records=st.sampled_from([1, 3]), size=st.sampled_from([1, 200]))
    def someone_writes(self, at: TopicPartition, records: int, size: int) -> None:
        for each in self.both:
            partition = each.replicas.manager.partitions.get(at)
            if partition is not None and partition.is_leader:
                try:
                    each.replicas.append(batch(records, size), at)
                except KafkaError:  # too large, as the topic is configured
                    continue

    @rule(at=PLACES, offset=st.integers(0, 2))
    def records_are_deleted(self, at: TopicPartition, offset: int) -> None:
        for each in self.both:
            partition = each.replicas.manager.partitions.get(at)
            if partition is not None and partition.is_leader and offset <= partition.log.high_watermark:
                each.replicas.manager.delete_records(at, Offset(offset))


TestFetch = FetchMachine.TestCase
TestFetch.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_the_machine_takes_the_fast_path() -> None:
    """Else it would hold the slow path equal to itself."""
    with story_of(FetchMachine) as story:
        fast, slow = (each.connections[0].memory for each in story.both)
        assert isinstance(fast, RepeatedFetch) and fast.epoch == story.fast.fast_paths.epoch
        assert slow is None


@pytest.mark.parametrize("kind", CHANGES)
def test_each_change_is_noticed_by_the_next_request(kind: str) -> None:
    a_change_is_noticed(FetchMachine, kind)


def test_a_client_that_was_forgotten_is_known_again_after_the_next_request() -> None:
    with story_of(FetchMachine) as story:
        story.idle_clients_are_forgotten()
        assert story.took_slow_path == len(story.last)


def test_who_loses_the_right_is_refused_by_the_next_request() -> None:
    a_right_is_lost(FetchMachine, Right(AclOperation.READ, ResourceType.TOPIC, TP.topic))
