"""What is logged when a leader does not say where its partitions end."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest

from minikafka.server.cluster.metadata_cache import PartitionMetadata, TopicMetadata
from minikafka.server.http.coordinator_metrics import LeaderOffsets
from minikafka.testing import Broker
from minikafka.types import BrokerId, LeaderEpoch, TopicPartition

ELSEWHERE = BrokerId(2)


async def test_why_a_leader_does_not_answer_is_said_in_words(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with Broker() as broker:
        services = broker.server.services
        told = PartitionMetadata(
            partition=0,
            leader=ELSEWHERE,
            leader_epoch=LeaderEpoch(7),
            replicas=(ELSEWHERE,),
            isr=(ELSEWHERE,),
        )
        services.metadata.put_topic(TopicMetadata(name="far", topic_id=UUID(int=1), partitions=(told,)))
        monkeypatch.setattr(services.metadata, "is_alive", lambda node_id: True)
        assert await LeaderOffsets(services).high_watermarks([TopicPartition("far", 0)]) == {}
    (line,) = (each for each in caplog.messages if each.startswith("the lag of groups"))
    assert line.startswith("the lag of groups in partitions of broker 2 is not known: ")
    assert "(" not in line and "broker 2" in line.partition("known: ")[2]
