"""What a shard of the group coordinator wants is done in order, and never for a leadership that is over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minikafka.config.topic import TopicConfig
from minikafka.coordinator.group.messages import (
    Answer,
    Complete,
    Effects,
    GroupOperation,
    OperationKind,
    Park,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.segment.fetch_data import FetchIsolation
from minikafka.protocol.records.batch import read_header
from minikafka.protocol.records.compression import CompressionType
from minikafka.server.coordinator.hosted_shard import RequestTicket
from tests.unit.server.groups import AT, Asked, Coordinator, NotedAppend, committed
from tests.unit.server.replicas import LAG_MS, state_of

SESSION = GroupOperation(OperationKind.SESSION, "g", "m")
JOIN = GroupOperation(OperationKind.JOIN, "g")


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    made = Coordinator(tmp_path)
    made.lead()
    made.groups.told.clear()
    yield made
    made.close()


def test_an_answer_goes_to_the_request_that_waits_for_it(coordinator: Coordinator) -> None:
    assert coordinator.ask(Answer(None, "welcome")).answers == ["welcome"]


def test_what_a_shard_refuses_is_the_answer(coordinator: Coordinator) -> None:
    answers: list[Any] = []

    def refuse(groups: Any, ticket: Any, now_ms: int) -> Any:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "who?")

    coordinator.shard.ask(refuse, RequestTicket(answers.append))
    assert [each.code for each in answers] == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_bug_in_one_request_is_its_answer_and_the_next_is_served_after_a_reload(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Any] = []

    def fail(groups: Any, ticket: Any, now_ms: int) -> Any:
        raise ZeroDivisionError

    coordinator.shard.ask(fail, RequestTicket(answers.append))
    assert [each.code for each in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert "ZeroDivisionError" in caplog.text
    coordinator.supervisor.run()
    assert coordinator.ask(Answer(None, 1)).answers == [1]


class BrokenAppend(NotedAppend):
    """Has a bug in what follows when it is committed."""

    __slots__ = ()

    def committed(self, now_ms: int) -> Effects:
        raise ZeroDivisionError


def test_a_bug_after_the_commit_leaves_no_client_without_an_answer(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Asked()
    notes: list[Any] = []
    write = BrokenAppend(
        notes, committed(5), then=[Answer(asked.ticket, "done"), NotedAppend(notes, committed(6))]
    )
    coordinator.ask(write)
    coordinator.fetched(1)
    assert asked.codes == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert "ZeroDivisionError" in caplog.text
    assert notes == [("written", 5), (ErrorCode.UNKNOWN_SERVER_ERROR, 5)], "and nothing else is written"
    coordinator.supervisor.run()
    assert coordinator.ask(Answer(None, 1)).answers == [1]


def test_a_bug_in_the_middle_of_the_effects_is_the_answer(coordinator: Coordinator) -> None:
    asked = coordinator.ask("no effect", Answer(None, "never"))
    assert asked.codes == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert "no effect" not in asked.answers[0].message, "what went wrong is for our log"


def test_a_refusal_that_cannot_be_written_costs_no_reload(coordinator: Coordinator) -> None:
    def refuse(groups: Any, ticket: Any, now_ms: int) -> Any:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def fail(result: Any) -> None:
        raise ValueError("no such field")

    coordinator.shard.ask(refuse, RequestTicket(fail))
    assert coordinator.ask(Answer(None, 2)).answers == [2]


def test_a_write_is_written_at_once_and_committed_when_the_replicas_have_it(coordinator: Coordinator) -> None:
    notes: list[Any] = []
    asked = coordinator.ask(NotedAppend(notes, committed(5)))
    assert notes == [("written", 5)]
    coordinator.fetched(0)
    assert notes == [("written", 5)]
    coordinator.fetched(1)
    assert notes == [("written", 5), ("committed", 5)] and asked.answers == []


def test_writes_are_committed_in_the_order_of_the_log(coordinator: Coordinator) -> None:
    """Also when the second one itself moves the high watermark past the first."""
    notes: list[Any] = []
    coordinator.ask(NotedAppend(notes, committed(10)))
    clock, alone = coordinator.replicas.clock, state_of(AT, isr=[1], version=1)
    clock.advance(LAG_MS + 1)
    partition = coordinator.replicas.partition(AT)
    partition.make_leader(alone, now_ms=clock.monotonic_ms())  # and the first one is not woken
    coordinator.ask(NotedAppend(notes, committed(20)))
    assert notes == [("written", 10), ("written", 20), ("committed", 10), ("committed", 20)]


def test_a_write_that_too_few_replicas_have_in_time_has_failed(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, offsets_commit_timeout_ms="300")
    coordinator.lead()
    notes: list[Any] = []
    coordinator.ask(NotedAppend(notes, committed(5)))
    coordinator.replicas.pass_time(299)
    assert notes == [("written", 5)]
    coordinator.replicas.pass_time(1)
    assert notes == [("written", 5), (ErrorCode.REQUEST_TIMED_OUT, 5)]
    coordinator.fetched(1)
    assert len(notes) == 2
    coordinator.close()


def test_a_write_without_enough_replicas_has_changed_nothing(tmp_path: Path) -> None:
    coordinator = Coordinator(
        tmp_path, config=TopicConfig(cleanup_policy=("compact",), min_insync_replicas=2)
    )
    coordinator.lead(isr=[1])
    notes: list[Any] = []
    coordinator.ask(NotedAppend(notes, committed(5)))
    assert notes == [(ErrorCode.NOT_ENOUGH_REPLICAS, 5)]
    assert coordinator.replicas.partition(AT).log.log_end_offset == 0
    coordinator.close()


def test_a_write_that_no_batch_of_the_topic_may_be_fails_as_too_large(tmp_path: Path) -> None:
    coordinator = Coordinator(
        tmp_path, config=TopicConfig(cleanup_policy=("compact",), max_message_bytes=100)
    )
    coordinator.lead()
    notes: list[Any] = []
    coordinator.ask(NotedAppend(notes, committed(5, group="g" * 100)))
    assert notes == [(ErrorCode.MESSAGE_TOO_LARGE, 5)]
    coordinator.close()


def test_the_records_of_one_write_are_one_batch_in_the_configured_codec(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, offsets_topic_compression_codec="4")
    coordinator.lead()
    coordinator.ask(NotedAppend([], committed(5), committed(6, group="h")))
    log = coordinator.replicas.partition(AT).log
    header = read_header(
        log.read(0, max_bytes=1000, min_one_message=True, isolation=FetchIsolation.LOG_END).records
    )
    assert (header.record_count, header.compression, header.producer_id) == (2, CompressionType.ZSTD, -1)
    coordinator.close()


def test_with_flush_messages_a_write_is_committed_when_it_is_flushed(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, config=TopicConfig(cleanup_policy=("compact",), flush_messages=1))
    coordinator.lead(isr=[1], replicas=[1])
    notes: list[Any] = []

    async def story() -> None:
        coordinator.ask(NotedAppend(notes, committed(5)))
        assert notes == [("written", 5)]
        for done in (await coordinator.replicas.disk_work.wait()).waiting:
            done.set_result(None)
        await asyncio.sleep(0)
        assert notes == [("written", 5), ("committed", 5)]

    asyncio.run(story())
    coordinator.close()


def test_a_session_that_is_renewed_expires_once_and_late(coordinator: Coordinator) -> None:
    coordinator.ask(Park(SESSION, 1000), Park(JOIN, 1500))
    coordinator.replicas.pass_time(900)
    coordinator.ask(Park(SESSION, 1000))
    coordinator.replicas.pass_time(900)
    assert coordinator.groups.told == [("expired", JOIN)]
    coordinator.replicas.pass_time(200)
    assert coordinator.groups.told == [("expired", JOIN), ("expired", SESSION)]


def test_a_session_that_is_renewed_for_a_shorter_time_expires_when_that_is_over(
    coordinator: Coordinator,
) -> None:
    coordinator.ask(Park(SESSION, 10_000))
    coordinator.ask(Park(SESSION, 1000))
    assert coordinator.service.parked.heartbeat.delayed == 1
    coordinator.replicas.pass_time(1000)
    assert coordinator.groups.told == [("expired", SESSION)]
    coordinator.replicas.pass_time(10_000)
    assert coordinator.groups.told == [("expired", SESSION)]


def test_what_is_complete_never_expires(coordinator: Coordinator) -> None:
    coordinator.ask(Park(SESSION, 1000), Complete(SESSION), Complete(JOIN))
    coordinator.replicas.pass_time(2000)
    assert coordinator.groups.told == []
    assert coordinator.service.parked.heartbeat.delayed == 0


def test_a_delay_of_nothing_is_over_after_the_effects_that_it_came_with(coordinator: Coordinator) -> None:
    notes: list[Any] = []
    coordinator.groups.answers_to["expired"] = lambda: [NotedAppend(notes, committed(6))]
    coordinator.ask(Park(SESSION, 0), NotedAppend(notes, committed(5)))
    assert notes == [("written", 5), ("written", 6)]


def test_a_request_that_comes_in_the_middle_of_anothers_effects_waits_for_them(
    coordinator: Coordinator,
) -> None:
    order: list[Any] = []

    class Connection:
        """Its next request is handled as soon as it has its answer."""

        def answer(self, result: Any) -> None:
            coordinator.ask(NotedAppend(order, committed(2)))

    ticket = RequestTicket(Connection().answer)
    coordinator.shard.ask(
        lambda groups, ticket, now_ms: [Answer(ticket, "first"), NotedAppend(order, committed(1))], ticket
    )
    assert order == [("written", 1), ("written", 2)]


def test_when_another_broker_leads_those_who_wait_hear_so(coordinator: Coordinator) -> None:
    shard, groups, notes = coordinator.shard, coordinator.groups, list[Any]()
    parked = coordinator.ask(Park(JOIN, 60_000))
    groups.waits.append(parked.ticket)
    committing = coordinator.ask(NotedAppend(notes, committed(5), then=[]))
    coordinator.follow()
    assert parked.codes == [ErrorCode.NOT_COORDINATOR]
    assert notes == [("written", 5), (ErrorCode.NOT_LEADER_OR_FOLLOWER, 5)] and committing.answers == []
    assert coordinator.service.parked.rebalance.delayed == 0
    coordinator.replicas.pass_time(60_000)
    assert groups.told == []
    answers: list[Any] = []
    shard.ask(lambda groups, ticket, now_ms: [], RequestTicket(answers.append))
    assert [each.code for each in answers] == [ErrorCode.NOT_COORDINATOR]


def test_a_shard_that_is_over_writes_nothing_into_the_log_of_the_next(coordinator: Coordinator) -> None:
    notes: list[Any] = []
    coordinator.ask(NotedAppend(notes, committed(5), then=[NotedAppend(notes, committed(6))]))
    coordinator.lead(epoch=1, load=False)
    coordinator.fetched(1)
    assert notes == [("written", 5), ("committed", 5), (ErrorCode.NOT_LEADER_OR_FOLLOWER, 6)]
    assert coordinator.replicas.partition(AT).log.log_end_offset == 1


def test_an_answer_that_cannot_be_written_keeps_no_other(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(result: Any) -> None:
        raise ValueError("no such field")

    coordinator.shard.ask(lambda groups, ticket, now_ms: [Answer(ticket, 1)], RequestTicket(fail))
    assert "no such field" in caplog.text
    assert coordinator.ask(Answer(None, 2)).answers == [2]
