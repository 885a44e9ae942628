"""Why a produce waits, was refused, throttled or a duplicate: from facts to reasons."""

from __future__ import annotations

from typing import Any

from minikafka.cli.cluster.describe import ReplicaState
from minikafka.cli.quotas import SeenThrottle
from minikafka.cli.why.produce import ProduceFacts, answer_of
from minikafka.config.client_quotas import QuotaType
from minikafka.metrics.sensors import Throttle
from tests.unit.cli.why import test_fetch, test_partition
from tests.unit.cli.why.test_partition import AT, NOW_MS


def facts(**more: Any) -> ProduceFacts:
    given: dict[str, Any] = {
        "at": AT,
        "partition": test_partition.facts(),
        "fetch": test_fetch.facts(),
        "now_ms": NOW_MS,
    }
    return ProduceFacts(**given | more)


def refusal(**more: Any) -> dict[str, Any]:
    given = {
        "kind": "produce",
        "about": "orders-0",
        "error": "MESSAGE_TOO_LARGE",
        "message": "the batch has 2000000 bytes, more than max.message.bytes",
        "user": "ANONYMOUS",
        "client_id": "loader",
        "host": "10.0.0.7",
        "count": 3,
        "first_ms_ago": 9_000,
        "last_ms_ago": 4_000,
        "broker": 1,
    }
    return given | more


def codes(found: ProduceFacts) -> list[str]:
    return [reason.code for reason in answer_of(found).reasons]


def test_nothing_is_wrong() -> None:
    assert codes(facts()) == []


def test_it_waits_for_the_replica_that_holds_the_high_watermark() -> None:
    held = test_fetch.facts(high_watermark=40, followers=[test_fetch.follower(3, 40)])
    waiting = [
        {"waited_ms": 2_000, "left_ms": 28_000, "required_offset": 45},
        {"waited_ms": 1_000, "left_ms": 29_000, "required_offset": 50},
    ]
    found = answer_of(facts(fetch=held, waiting=waiting))
    assert [each.code for each in found.reasons] == ["produce.waits"]
    assert "waiting in orders-0: 2 produces with acks=all, the longest for 2.0 s" in found.sentence
    assert "replica 3 is waited for" in found.sentence


def test_a_small_isr_refuses_what_comes_now() -> None:
    partition = test_partition.facts(1, (1,), out_of_sync=[ReplicaState(2, "5 records behind")])
    assert codes(facts(partition=partition)) == ["under-min-isr"]


def test_what_was_refused_lately_and_to_whom() -> None:
    found = answer_of(facts(refusals=[refusal(), refusal(client_id="other", last_ms_ago=5_000)]))
    assert [each.code for each in found.reasons] == ["produce.refused.message-too-large"]
    assert "loader was refused 3 times to write to orders-0, the last time 4.0 s ago" in found.sentence
    assert "more than max.message.bytes" in found.sentence
    other = answer_of(facts(refusals=[refusal()], client_id="other"))
    assert not other.reasons, "it was not refused anything"
    assert codes(facts(refusals=[refusal(last_ms_ago=3_600_000)])) == []


def test_an_error_without_a_message_is_explained() -> None:
    found = facts(refusals=[refusal(error="OUT_OF_ORDER_SEQUENCE_NUMBER", message="", count=1)])
    assert "refused once" in answer_of(found).sentence
    assert "a batch before it is missing" in answer_of(found).sentence


def test_a_throttle_names_its_quota() -> None:
    throttle = Throttle(
        quota=QuotaType.PRODUCE,
        user="",
        client_id="loader",
        observed=2_000.0,
        bound=1_000.0,
        window_ms=10_000,
        throttle_time_ms=10_000,
        at_ms=NOW_MS - 3_000,
    )
    found = answer_of(facts(throttles=[SeenThrottle(2, throttle)]))
    assert [each.code for each in found.reasons] == ["produce.throttled"]
    assert "loader was throttled by broker 2 3.0 s ago for 10 s" in found.sentence


def test_a_duplicate_is_nothing_to_worry_about() -> None:
    duplicates = {"count": 2, "last_ms_ago": 500, "producer_id": 7, "offset": 40}
    partition = test_partition.facts(document=test_partition.document() | {"duplicates": duplicates})
    found = answer_of(facts(partition=partition))
    assert [each.code for each in found.reasons] == ["produce.duplicate"]
    assert "2 batches came to orders-0 again" in found.sentence and "nothing is there twice" in found.sentence


def test_what_is_not_known_is_not_claimed() -> None:
    known = answer_of(facts())
    assert "none was refused" in known.sentence
    assert "refused" not in answer_of(facts(), ["what was refused lately"]).sentence
