"""Offsets that a producer commits with its transaction: who may, and from when on they are seen (KIP-447)."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.coordinator.group.messages import EndTransaction, OffsetToCommit, TxnOffsetCommit
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import GroupMetadataKey, GroupRecord
from minikafka.protocol.records.records import ControlRecordType
from tests.unit.coordinator.group.classic.driver import Members
from tests.unit.coordinator.group.consumer.world import FakeConsumer, World, settle
from tests.unit.coordinator.group.offsets.test_group_offsets import (
    MINUTE_MS,
    RETENTION_MINUTES,
    Story,
    tombstone,
)
from tests.unit.coordinator.group.shell import Asked

UNSTABLE = "UNSTABLE_OFFSET_COMMIT"
COORDINATOR_EPOCH = 3


class TransactionStory(Story):
    """With a producer that commits offsets."""

    def commit_in_transaction(
        self, *offsets: tuple[str, int, int], producer_id: int = 7, metadata: str = "", **options: Any
    ) -> Asked:
        request = TxnOffsetCommit(
            **{
                "group_id": "g",
                "producer_id": producer_id,
                "producer_epoch": 2,
                "version": 5,
                "offsets": tuple(
                    OffsetToCommit(topic=topic, partition=partition, offset=offset, metadata=metadata)
                    for topic, partition, offset in offsets
                ),
                **options,
            }
        )
        return self.shell.ask(self.offsets.commit_transactional, request)

    def end(self, *, is_commit: bool = True, producer_id: int = 7) -> Asked:
        request = EndTransaction(
            producer_id=producer_id,
            producer_epoch=2,
            coordinator_epoch=COORDINATOR_EPOCH,
            is_commit=is_commit,
            transaction_version=2,
            timeout_ms=1000,
        )

        def call(request: EndTransaction, ticket: Any, now_ms: int) -> Any:
            return self.offsets.end_transaction(request, ticket)

        return self.shell.ask(call, request)

    def stable(self) -> dict[str, int | str]:
        return self.visible(require_stable=True)


@pytest.fixture
def story() -> TransactionStory:
    return TransactionStory()


@pytest.fixture
def world() -> World:
    return World(orders=4)


def code_of(asked: Asked) -> ErrorCode:
    assert isinstance(asked.answer, KafkaError)
    return asked.answer.code


# What is written


def test_the_batch_is_the_producers_and_shows_the_guard_of_its_check(story: TransactionStory) -> None:
    guard = object()
    asked = story.commit_in_transaction(("t", 0, 5), verification_guard=guard)
    assert asked.answer.errors == (ErrorCode.NONE,)
    (append,) = story.shell.appends
    assert append.transaction is not None
    assert (append.transaction.producer_id, append.transaction.producer_epoch) == (7, 2)
    assert append.transaction.verification_guard is guard and append.transaction.marker is None
    (record,) = append.records
    assert record.value is not None


@pytest.mark.parametrize(
    ("is_commit", "kind"), [(True, ControlRecordType.COMMIT), (False, ControlRecordType.ABORT)]
)
def test_a_marker_is_the_transaction_coordinators(
    story: TransactionStory, is_commit: bool, kind: ControlRecordType
) -> None:
    assert story.end(is_commit=is_commit).answer is None
    (append,) = story.shell.appends
    assert append.records == () and append.timeout_ms == 1000
    assert append.transaction is not None and append.transaction.marker is not None
    assert append.transaction.marker == (kind, COORDINATOR_EPOCH)
    assert (append.transaction.producer_id, append.transaction.producer_epoch) == (7, 2)
    assert append.transaction.transaction_version == 2


def test_offsets_whose_metadata_are_too_large_write_nothing(story: TransactionStory) -> None:
    asked = story.commit_in_transaction(("t", 0, 5), metadata="12345")
    assert asked.answer.errors == (ErrorCode.OFFSET_METADATA_TOO_LARGE,)
    assert story.shell.appends == [] and story.stable() == {}


# When it is seen


def test_a_transactions_offsets_are_seen_when_its_marker_is_replicated(story: TransactionStory) -> None:
    story.commit(("t", 0, 1))
    story.shell.hold = True
    asked = story.commit_in_transaction(("t", 0, 5), ("t", 1, 6))
    assert asked.waits and story.visible() == {"t-0": 1} and story.stable() == {"t-0": UNSTABLE}
    story.shell.commit()
    assert asked.answer.errors == (ErrorCode.NONE, ErrorCode.NONE)
    assert story.visible() == {"t-0": 1} and story.stable() == {"t-0": UNSTABLE}
    ended = story.end()
    assert ended.waits and story.visible() == {"t-0": 1} and story.stable() == {"t-0": UNSTABLE}
    story.shell.commit()
    assert ended.answer is None
    assert story.stable() == {"t-0": 5, "t-1": 6}


def test_an_aborted_transaction_changes_nothing(story: TransactionStory) -> None:
    story.commit(("t", 0, 1))
    story.commit_in_transaction(("t", 0, 5))
    story.end(is_commit=False)
    assert story.stable() == {"t-0": 1}


def test_the_markers_of_two_producers_end_their_own(story: TransactionStory) -> None:
    story.commit_in_transaction(("t", 0, 5), producer_id=7)
    story.commit_in_transaction(("t", 0, 6), producer_id=8)
    story.end(producer_id=8)
    assert story.visible() == {"t-0": 6} and story.stable() == {"t-0": UNSTABLE}
    story.end(producer_id=7)
    assert story.stable() == {"t-0": 6}, "the newer record counts, not the newer marker"


def test_a_marker_that_the_log_refuses_ends_nothing(story: TransactionStory) -> None:
    story.commit_in_transaction(("t", 0, 5))
    story.shell.refuse = KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    assert code_of(story.end()) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    story.shell.refuse = None
    story.commit(("t", 1, 1))
    assert story.stable() == {"t-1": 1} and story.offsets.has_offsets("g")
    story.end()
    assert story.stable() == {"t-0": 5, "t-1": 1}


@pytest.mark.parametrize("later", ["marker", "marker of another", "commit"])
def test_a_marker_that_was_not_confirmed_in_time_counts_all_the_same(
    story: TransactionStory, later: str
) -> None:
    """It is in the log, and whatever is committed behind it shows that it is committed too. Its own sender
    tries again; that finds nothing left to end."""
    story.commit_in_transaction(("t", 0, 5))
    story.shell.hold = True
    ended = story.end(is_commit=True)
    story.shell.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    assert code_of(ended) is ErrorCode.REQUEST_TIMED_OUT
    assert story.visible() == {}, "not before the high watermark is known to have passed it"
    story.shell.hold = False
    if later == "marker":
        story.end(is_commit=True)
    elif later == "commit":
        story.commit(("u", 0, 1))
    else:
        story.commit_in_transaction(("u", 0, 1), producer_id=8)
        story.end(producer_id=8)
    assert story.stable()["t-0"] == 5


def test_what_a_producer_commits_behind_a_marker_is_the_next_transaction(story: TransactionStory) -> None:
    story.commit_in_transaction(("t", 0, 5))
    story.shell.hold = True
    story.end(is_commit=True)
    story.commit_in_transaction(("t", 1, 6))
    story.shell.commit()
    assert story.visible() == {"t-0": 5}
    story.end(is_commit=False)
    story.shell.commit()
    assert story.stable() == {"t-0": 5}


# Who may


@pytest.mark.parametrize(("generation", "code"), [(0, ErrorCode.ILLEGAL_GENERATION), (-1, ErrorCode.NONE)])
def test_a_group_that_is_not_there(story: TransactionStory, generation: int, code: ErrorCode) -> None:
    asked = story.commit_in_transaction(("t", 0, 5), generation=generation)
    if code:
        assert code_of(asked) is code and "g" not in story.groups
    else:
        assert asked.answer.errors == (code,) and "g" in story.groups


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION),  # producers do not know the other
        (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID),
        (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_what_the_group_refuses_is_told(story: TransactionStory, refused: ErrorCode, told: ErrorCode) -> None:
    story.group().refuses = KafkaError(refused)
    assert code_of(story.commit_in_transaction(("t", 0, 5), generation=1, member_id="m")) is told
    assert story.shell.appends == []


def test_a_commit_of_a_transaction_is_no_heartbeat(story: TransactionStory) -> None:
    group = story.group()
    story.commit_in_transaction(("t", 0, 5), generation=1, member_id="m")
    assert group.heard == []


@pytest.mark.parametrize(
    ("reported", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_what_the_log_refuses_becomes_an_error_of_a_coordinator(
    story: TransactionStory, reported: ErrorCode, told: ErrorCode
) -> None:
    story.shell.refuse = KafkaError(reported)
    assert code_of(story.commit_in_transaction(("t", 0, 5))) is told
    assert story.stable() == {} and not story.offsets.has_offsets("g")


# What goes


def test_offsets_that_wait_for_a_marker_keep_their_group(story: TransactionStory) -> None:
    story.group(is_empty=True)
    story.commit(("t", 0, 1))
    story.commit_in_transaction(("t", 0, 5))
    story.shell.advance(RETENTION_MINUTES * MINUTE_MS)
    assert story.expire() == []
    story.end(is_commit=False)
    assert story.expire() == [tombstone("t", 0), GroupRecord(GroupMetadataKey("g"), None)]


def test_deleting_a_group_deletes_what_waits_for_a_marker(story: TransactionStory) -> None:
    story.commit_in_transaction(("t", 0, 5))
    assert story.write(story.offsets.delete_groups_offsets("g")) == [tombstone("t", 0)]
    assert not story.offsets.has_offsets("g")
    story.end()
    assert story.stable() == {}


def test_deleting_an_offset_behind_the_marker_deletes_it(story: TransactionStory) -> None:
    story.commit_in_transaction(("t", 0, 5), ("t", 1, 6))
    story.shell.hold = True
    story.end()
    story.delete(("t", 0))
    story.shell.commit()
    assert story.stable() == {"t-1": 6}


# Members


def classic_error(members: Members, member_id: str, generation: int) -> ErrorCode:
    try:
        members.group.check_offset_commit(
            member_id=member_id,
            group_instance_id=None,
            generation_or_member_epoch=generation,
            version=5,
            is_transactional=True,
        )
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_a_classic_group_checks_the_generation_but_does_not_wait_for_its_rebalance() -> None:
    """A producer that says nothing of its consumer is from before KIP-447 and is believed."""
    members = Members()
    leader, follower = members.stable(None, None)
    assert classic_error(members, follower, 1) is ErrorCode.NONE
    assert classic_error(members, follower, 0) is ErrorCode.ILLEGAL_GENERATION
    assert classic_error(members, "nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert classic_error(members, "", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert classic_error(members, "", -1) is ErrorCode.NONE
    members.join(leader)
    members.join(follower)
    assert members.state == "CompletingRebalance"
    assert classic_error(members, follower, 2) is ErrorCode.NONE


def test_a_transaction_need_not_say_who_reads_and_its_versions_are_its_own(world: World) -> None:
    settle(FakeConsumer(world, "a", "orders"))

    def commit(member_id: str, epoch: int) -> None:
        world.group.check_offset_commit(
            member_id=member_id,
            group_instance_id=None,
            generation_or_member_epoch=epoch,
            version=3,
            is_transactional=True,
        )

    commit("", -1)
    commit("a", 1)
    for member_id, epoch, code in (
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", -1, ErrorCode.STALE_MEMBER_EPOCH),
    ):
        with pytest.raises(KafkaError) as refused:
            commit(member_id, epoch)
        assert refused.value.code is code
