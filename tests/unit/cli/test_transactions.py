"""``minikafka transactions``: what it shows, what it finds hanging, what it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from minikafka.cli.transactions import main
from minikafka.clock import ManualClock
from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.types import TopicPartition
from tests.unit.cli.conftest import cells
from tests.unit.cli.fake_transactions import FakeProducer, FakeTransaction, FakeTransactions

T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
MINUTE_MS = 60_000


@pytest.fixture
def cluster(talk_to: Callable[[FakeTransactions], None]) -> FakeTransactions:
    """A topic with two partitions, and a producer at work in the first of them."""
    fake = FakeTransactions()
    fake.topic("orders", (1, 2), (2, 1))
    fake.transactions = {
        "payments": FakeTransaction(3, 100, partitions=(T0,)),
        "audit": FakeTransaction(2, 200, state="Empty", start_ms=-1),
    }
    fake.producers = {T0: [FakeProducer(100, start_offset=40)], T1: [FakeProducer(100)]}
    talk_to(fake)
    return fake


@pytest.fixture
def transactions(cluster: FakeTransactions, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command: exit status, standard output's lines, standard error."""

    def run(*arguments: str, now_ms: int = 20 * MINUTE_MS) -> tuple[int, list[str], str]:
        clock = ManualClock(now_ms)
        status = main([*arguments, "-b", "b:9001"], clock=clock)
        output = capsys.readouterr()
        return status, output.out.splitlines(), output.err

    return run


def test_all_transactional_ids_of_all_coordinators(transactions: Any) -> None:
    status, lines, _ = transactions("list")
    assert status == 0
    assert cells(lines) == [
        ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"],
        ["audit", "2", "200", "Empty"],
        ["payments", "3", "100", "Ongoing"],
    ]


def test_filters_go_to_the_brokers(transactions: Any, cluster: FakeTransactions) -> None:
    transactions("--list", "--duration-filter", "5000", "--transactional-id-pattern", "pay.*")
    asked = cluster.requests(ApiKey.LIST_TRANSACTIONS)
    assert [(each.duration_filter, each.transactional_id_pattern) for each in asked] == [(5000, "pay.*")] * 3


def test_what_one_is_doing_and_for_how_long(transactions: Any, cluster: FakeTransactions) -> None:
    cluster.moves = 2
    _, lines, _ = transactions("describe", "--transactional-id", "payments", now_ms=5_000)
    assert cells(lines)[1] == ["3", "payments", "100", "7", "Ongoing", "60000", "1000", "4000", "orders-0"]
    _, lines, _ = transactions("describe", "--transactional-id", "audit")
    assert cells(lines)[1] == ["2", "audit", "200", "7", "Empty", "60000", "None", "None"]


def test_one_that_there_is_not(transactions: Any) -> None:
    status, lines, complaint = transactions("describe", "--transactional-id", "unknown")
    assert (status, lines) == (1, [])
    assert "TRANSACTIONAL_ID_NOT_FOUND" in complaint


def test_the_producers_that_a_partition_knows(transactions: Any, cluster: FakeTransactions) -> None:
    partition = ("--topic", "orders", "--partition", "0")
    _, lines, _ = transactions("describe-producers", *partition)
    assert cells(lines)[1] == ["100", "7", "4", "9", "2000", "40"]
    _, lines, _ = transactions("describe-producers", *partition, "--json")
    (found,) = json.loads("\n".join(lines))
    assert (found["producer_id"], found["transaction_start_offset"]) == (100, 40)
    transactions("describe-producers", *partition, "--broker-id", "2")
    assert [node for node, key, _ in cluster.asked if key is ApiKey.DESCRIBE_PRODUCERS] == [1, 1, 2]
    status, _, complaint = transactions("describe-producers", *partition, "--broker-id", "3")
    assert (status, "NOT_LEADER_OR_FOLLOWER" in complaint) == (1, True)


def test_a_transaction_that_its_coordinator_will_end_does_not_hang(transactions: Any) -> None:
    assert transactions("find-hanging", "--topic", "orders") == (0, [], "")


@pytest.mark.parametrize(
    "why", ["the id is gone", "the id writes elsewhere", "the id has another producer id"]
)
def test_one_that_its_coordinator_will_not_end_hangs(
    why: str, transactions: Any, cluster: FakeTransactions
) -> None:
    if why == "the id is gone":
        del cluster.transactions["payments"]
    elif why == "the id writes elsewhere":
        cluster.transactions["payments"] = FakeTransaction(3, 100, partitions=(T1,))
    else:
        cluster.transactions["payments"] = FakeTransaction(3, 101, partitions=(T0,))
    _, lines, _ = transactions("find-hanging", "--topic", "orders")
    assert cells(lines)[1:] == [["orders", "0", "100", "7", "4", "40", "2000", "19"]]


def test_a_young_transaction_is_not_looked_at(transactions: Any, cluster: FakeTransactions) -> None:
    cluster.transactions.clear()
    wanted = ("find-hanging", "--topic", "orders")
    assert transactions(*wanted, now_ms=15 * MINUTE_MS) == (0, [], "")
    assert len(transactions(*wanted, "--max-transaction-timeout", "10", now_ms=15 * MINUTE_MS)[1]) == 2


def test_the_replicas_of_one_broker_are_looked_at(transactions: Any, cluster: FakeTransactions) -> None:
    cluster.transactions.clear()
    assert len(transactions("find-hanging", "--broker-id", "2")[1]) == 2
    assert transactions("find-hanging", "--broker-id", "3") == (0, [], "")
    assert {node for node, key, _ in cluster.asked if key is ApiKey.DESCRIBE_PRODUCERS} == {2}


def test_one_that_hangs_is_ended_by_its_start(transactions: Any, cluster: FakeTransactions) -> None:
    abort = ("abort", "--topic", "orders", "--partition", "0", "--start-offset", "40")
    assert transactions(*abort) == (0, [], "")
    ((marker,),) = [each.markers for each in cluster.requests(ApiKey.WRITE_TXN_MARKERS)]
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (100, 7, 4)
    assert marker.transaction_result is False
    status, _, complaint = transactions(*abort)
    assert (status, "no open transaction of orders-0 starts at offset 40" in complaint) == (1, True)


def test_one_that_hangs_is_ended_by_its_producer(transactions: Any, cluster: FakeTransactions) -> None:
    producer = ("--producer-id", "100", "--producer-epoch", "7", "--coordinator-epoch", "-1")
    assert transactions("abort", "--topic", "orders", "--partition", "0", *producer) == (0, [], "")
    ((marker,),) = [each.markers for each in cluster.requests(ApiKey.WRITE_TXN_MARKERS)]
    assert marker.coordinator_epoch == 0, "never a coordinator's marker: no epoch is less"


def test_a_refused_marker_is_told(transactions: Any, cluster: FakeTransactions) -> None:
    cluster.refuses_markers = ErrorCode.INVALID_PRODUCER_EPOCH
    abort = ("abort", "--topic", "orders", "--partition", "0", "--start-offset", "40")
    status, _, complaint = transactions(*abort)
    assert (status, "INVALID_PRODUCER_EPOCH" in complaint) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("find-hanging",),
        ("find-hanging", "--broker-id", "1", "--partition", "0"),
        ("abort", "--topic", "orders", "--partition", "0"),
        ("abort", "--topic", "orders", "--partition", "0", "--producer-id", "100"),
        ("describe",),
        ("describe-producers", "--topic", "orders"),
    ],
)
def test_bad_usage_is_told_before_anything_is_asked(
    arguments: tuple[str, ...], transactions: Any, cluster: FakeTransactions
) -> None:
    with pytest.raises(SystemExit) as raised:
        transactions(*arguments)
    assert (raised.value.code, cluster.asked) == (2, [])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("find-hanging", "--topic", "nothing"), "there is no topic nothing"),
        (("find-hanging", "--topic", "orders", "--partition", "9"), "there is no partition orders-9"),
        (("describe-producers", "--topic", "orders", "--partition", "9"), "there is no partition orders-9"),
    ],
)
def test_what_there_is_not(arguments: tuple[str, ...], complaint: str, transactions: Any) -> None:
    status, _, told = transactions(*arguments)
    assert status == 1
    assert complaint in told
