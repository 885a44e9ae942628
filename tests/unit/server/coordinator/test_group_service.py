"""Shards of the group coordinator come and go with the leadership of their partitions."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from minikafka.coordinator.group.messages import Answer, Effects
from minikafka.errors import ErrorCode, KafkaError
from minikafka.metrics import coordinator_names as names
from minikafka.metrics.coordinator_names import GROUP_METRICS
from minikafka.server.coordinator.hosted_shard import ShardState
from minikafka.server.coordinator.service import max_and_avg_samples
from minikafka.server.runtime.java_hash import java_abs, string_hash, to_int
from minikafka.types import TopicPartition
from tests.unit.server.groups import AT, Asked, Coordinator, NotedAppend, committed
from tests.unit.server.replicas import TP
from tests.unit.server.virtual_time import in_virtual_time, passing


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    made = Coordinator(tmp_path, offsets_topic_num_partitions="1")
    yield made
    made.close()


def ask(coordinator: Coordinator) -> ErrorCode:
    asked = Asked()
    coordinator.service.ask("g", lambda groups, ticket, now_ms: [Answer(ticket, "here")], asked.ticket)
    (code,) = asked.codes
    return code


def code_of_shards(coordinator: Coordinator) -> ErrorCode:
    try:
        list(coordinator.service.shards())
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_groups_of_a_partition_that_is_led_elsewhere_are_not_here(coordinator: Coordinator) -> None:
    assert ask(coordinator) is ErrorCode.NOT_COORDINATOR
    coordinator.follow(epoch=0)
    assert ask(coordinator) is ErrorCode.NOT_COORDINATOR
    assert list(coordinator.service.shards()) == []


def test_a_partition_that_is_led_here_is_loaded_and_then_served(coordinator: Coordinator) -> None:
    coordinator.lead(load=False)
    assert ask(coordinator) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert code_of_shards(coordinator) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    coordinator.supervisor.run()
    assert ask(coordinator) is ErrorCode.NONE
    assert list(coordinator.service.shards()) == [coordinator.groups]


def test_the_time_from_leadership_until_the_groups_are_served_is_measured(coordinator: Coordinator) -> None:
    def load_times() -> list[float]:
        now_ms = coordinator.replicas.clock.monotonic_ms()
        samples = max_and_avg_samples(
            coordinator.metrics, GROUP_METRICS, names.GROUPS_LOAD_TIMES, now_ms=now_ms
        )
        return [each.value for each in samples]

    assert all(map(math.isnan, load_times())), "nothing was loaded"
    coordinator.lead()
    assert load_times() == [0, 0]
    coordinator.follow()
    coordinator.lead(epoch=2, load=False)
    coordinator.replicas.clock.advance(30)
    coordinator.supervisor.run()
    assert load_times() == [30, 15]


def test_a_change_of_the_isr_is_no_change_of_the_coordinator(coordinator: Coordinator) -> None:
    coordinator.lead()
    coordinator.lead(isr=[1, 2], version=1)
    assert len(coordinator.made) == 1 and ask(coordinator) is ErrorCode.NONE


def test_a_partition_is_loaded_again_when_it_comes_back(
    coordinator: Coordinator,
) -> None:
    coordinator.lead()
    coordinator.ask(NotedAppend([], committed(5)))
    coordinator.follow(epoch=1)
    assert ask(coordinator) is ErrorCode.NOT_COORDINATOR
    coordinator.lead(epoch=2)
    assert coordinator.groups.offsets == [5] and ask(coordinator) is ErrorCode.NONE


def test_a_newer_epoch_during_a_load_restarts_it(coordinator: Coordinator) -> None:
    coordinator.lead(load=False)
    coordinator.lead(epoch=1, load=False)
    first, second = coordinator.made
    coordinator.supervisor.run()
    assert first.told == [] and second.told == ["loaded"]


def test_a_partition_that_failed_is_tried_again_in_the_next_epoch(coordinator: Coordinator) -> None:
    coordinator.lead(load=False)
    coordinator.shard.fail()
    coordinator.supervisor.run()
    assert ask(coordinator) is ErrorCode.NOT_COORDINATOR and code_of_shards(coordinator) is ErrorCode.NONE
    coordinator.lead(epoch=1)
    assert ask(coordinator) is ErrorCode.NONE


def test_a_deleted_partition_is_unloaded(coordinator: Coordinator) -> None:
    coordinator.lead()
    shard = coordinator.shard
    assert coordinator.replicas.stop_replica(AT, delete=True, leader_epoch=-2) == ErrorCode.NONE
    assert shard.state is ShardState.CLOSED and ask(coordinator) is ErrorCode.NOT_COORDINATOR


def test_other_topics_are_none_of_its_business(coordinator: Coordinator) -> None:
    coordinator.replicas.lead(TP)
    assert coordinator.made == []


def test_every_shard_hears_of_deleted_topics(coordinator: Coordinator) -> None:
    coordinator.lead()
    coordinator.service.topics_deleted({"orders": UUID(int=1)})
    assert coordinator.groups.told == ["loaded", ("topics_deleted", {"orders": UUID(int=1)})]


@pytest.mark.parametrize(
    ("group_id", "hashed"),
    [("", 0), ("hello", 99162322), ("\U0001f600", 1772899), ("polygenelubricants", -(2**31))],
)
def test_groups_are_spread_by_javas_hash(coordinator: Coordinator, group_id: str, hashed: int) -> None:
    assert string_hash(group_id) == hashed
    assert coordinator.service.topic.partition_for(group_id) == 0
    assert java_abs(to_int(hashed)) == (0 if hashed == -(2**31) else hashed)
    assert TopicPartition("__consumer_offsets", 0) == AT


def test_now_and_then_every_shard_looks_for_expired_offsets(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, offsets_retention_check_interval_ms="1000")
    ((_, chore),) = coordinator.supervisor.tasks
    coordinator.lead()

    @in_virtual_time
    async def story() -> None:
        task = asyncio.ensure_future(chore())
        await passing(3_500)
        task.cancel()

    story()
    assert coordinator.groups.told == ["loaded", "clean_up", "clean_up", "clean_up"]
    coordinator.close()


def test_what_a_bug_has_touched_is_read_from_the_log_again(coordinator: Coordinator) -> None:
    coordinator.lead()
    coordinator.ask(NotedAppend([], committed(5)))
    waiting = Asked()
    coordinator.groups.waits.append(waiting.ticket)

    def fail() -> Effects:
        raise ZeroDivisionError

    coordinator.groups.answers_to["topics_deleted"] = fail
    coordinator.service.topics_deleted({"orders": UUID(int=1)})
    assert waiting.codes == [ErrorCode.NOT_COORDINATOR]
    assert ask(coordinator) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    coordinator.supervisor.run()
    assert len(coordinator.made) == 2
    assert coordinator.groups.offsets == [5] and ask(coordinator) is ErrorCode.NONE
