"""Why a group does not read as it should: from facts to reasons."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.cli.groups import GroupMember
from minikafka.cli.why.answer import Reason
from minikafka.cli.why.group import GroupFacts, ReadPartition, answer_of
from minikafka.types import TopicPartition

AT = TopicPartition("orders", 0)
READER = GroupMember("m-1", None, "billing-1", "/10.0.0.7", {"orders": [0]})


def event(kind: str, why: str, ago_ms: int = 1_000) -> dict[str, Any]:
    return {"ago_ms": ago_ms, "kind": kind, "why": why, "member_id": "m-9", "client_id": "billing-9"}


def classic(**more: Any) -> dict[str, Any]:
    given = {
        "type": "classic",
        "state_for_ms": 12_000,
        "leader": "m-1",
        "rebalance_timeout_ms": 300_000,
        "join_left_ms": 288_000,
        "sync_left_ms": 30_000,
        "history": [event("rebalance", "member m-9 has failed")],
        "members": [member("m-1", has_joined=True), member("m-2", has_joined=False)],
    }
    return given | more


def member(member_id: str, **more: Any) -> dict[str, Any]:
    return {
        "member_id": member_id,
        "client_id": f"client-{member_id}",
        "host": "/10.0.0.7",
        "has_joined": True,
        "must_sync": False,
        "session_timeout_ms": 45_000,
        "heard_ms_ago": 2_000,
        "state": "STABLE",
        "must_revoke": [],
        "revocation_left_ms": None,
    } | more


def facts(state: str = "Stable", **more: Any) -> GroupFacts:
    given: dict[str, Any] = {"group": "g", "type": "classic", "state": state, "members": [READER]}
    return GroupFacts(**given | more)


def first(found: GroupFacts) -> Reason:
    return answer_of(found).reasons[0]


def test_a_group_that_keeps_up_is_well() -> None:
    found = answer_of(facts(read=[ReadPartition(at=AT, committed=9, end=9, reader=READER)]))
    assert not found.reasons and "group g is well" in found.sentence


# Rebalances


def test_a_rebalance_waits_for_a_member_to_join_again() -> None:
    reason = first(facts("PreparingRebalance", document=classic()))
    assert reason.code == "group.joining.waits"
    assert reason.sentence == (
        "group g rebalances, because member m-9 has failed: it has waited for 12 s for client-m-2 on "
        "10.0.0.7 to join again (max.poll.interval.ms); after 4 min 48 s it goes on without them"
    )
    assert [each["member"] for each in reason.evidence["waits for"]] == ["m-2"]


def test_a_first_rebalance_waits_for_more_members() -> None:
    document = classic(members=[member("m-1")], join_left_ms=2_000)
    assert "another 2.0 s for more" in first(facts("PreparingRebalance", document=document)).sentence


def test_a_rebalance_waits_for_the_leaders_assignment() -> None:
    reason = first(facts("CompletingRebalance", document=classic()))
    assert reason.code == "group.syncing" and "its leader, client-m-1 on 10.0.0.7" in reason.sentence


def test_a_group_of_kip_848_waits_for_what_a_member_must_give_back() -> None:
    holding = member("m-2", must_revoke=["orders-3"], revocation_left_ms=40_000)
    document = {
        "type": "consumer",
        "history": [],
        "epoch": 5,
        "assignment_epoch": 5,
        "members": [holding, member("m-3", state="UNRELEASED_PARTITIONS")],
    }
    reason = first(facts("Reconciling", document=document))
    assert reason.code == "group.reconciling.revocation"
    assert "client-m-2 on 10.0.0.7 has to give back orders-3; it is removed in 40 s" in reason.sentence
    assert [each["member"] for each in reason.evidence["wait for partitions"]] == ["m-3"]


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"])
def test_without_diagnostics_a_rebalance_has_no_cause(state: str) -> None:
    assert first(facts(state)).sentence.startswith("group g rebalances: ")


def test_many_rebalances_in_a_short_time() -> None:
    history = [event("rebalance", f"reason {number}", ago_ms=60_000 - number) for number in range(3)]
    reason = first(facts(document=classic(history=history)))
    assert reason.code == "group.rebalances-often"
    assert "3 times in the last 1 min, the last time because reason 2" in reason.sentence
    assert not answer_of(facts(document=classic(history=history[:2]))).reasons


# Members


def test_who_was_thrown_out_and_why() -> None:
    history = [event("removed", "no heartbeat for session.timeout.ms = 6000")]
    reason = first(facts(document=classic(history=history)))
    assert reason.code == "group.member-removed"
    assert "(billing-9) 1.0 s ago: no heartbeat for session.timeout.ms = 6000" in reason.sentence


def test_an_empty_group_says_how_its_last_member_went() -> None:
    found = facts("Empty", members=[], document=classic(history=[event("left", "the end")]))
    assert [each.code for each in answer_of(found).reasons] == ["group.empty"]
    assert "(billing-9) left 1.0 s ago: the end" in answer_of(found).sentence


# Lag


def lagging(**more: Any) -> Reason:
    given: dict[str, Any] = {"at": AT, "committed": 100, "end": 1_100, "reader": READER, "last_stable": 1_100}
    return first(facts(read=[ReadPartition(**given | more)], sample_ms=2_000))


def test_it_will_have_caught_up() -> None:
    reason = lagging(produced=200, consumed=400, next_record_age_ms=60_000)
    assert reason.code == "group.lags.catching-up"
    assert reason.sentence == (
        "group g lags by 1000 records; orders-0 has 1000 of them, the oldest written 1 min ago: billing-1 on "
        "10.0.0.7 reads 200 records/s, and 100 are written; it will have caught up in about 10 s"
    )


def test_it_never_will() -> None:
    assert lagging(produced=400, consumed=200).code == "group.lags.too-slow"


def test_its_reader_stands_still() -> None:
    reason = lagging(produced=0, consumed=0, committed_ms_ago=90_000)
    assert reason.code == "group.lags.stuck" and "the last time 1 min 30 s ago" in reason.sentence


def test_an_open_transaction_keeps_it_from_reading_on() -> None:
    reason = lagging(last_stable=100, produced=0, consumed=0)
    assert reason.code == "group.lags.transaction" and "minikafka why fetch orders:0" in reason.sentence


def test_nobody_reads_it() -> None:
    assert lagging(reader=None).code == "group.lags.no-reader"


def test_the_partition_that_lags_most_comes_first() -> None:
    read = [
        ReadPartition(at=TopicPartition("orders", 1), committed=0, end=5, reader=READER),
        ReadPartition(at=AT, committed=0, end=50, reader=READER),
    ]
    reason = first(facts(read=read))
    assert [row["lag"] for row in reason.evidence["partitions"]] == [50, 5]
    assert "lags by 55 records; orders-0 has 50" in reason.sentence
