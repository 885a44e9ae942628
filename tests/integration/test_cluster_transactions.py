"""Read-process-write on a cluster whose leaders and coordinators are killed under it: each record that was
read is written exactly once, and each transaction is there as a whole or not at all.

Of 40,000 records confluent-kafka copies 36,000, as two members of one group; aiokafka and kafka-python,
which are slow, copy 2,000 each. All write to the same partitions.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_BEGINNING, IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from minikafka.server.runtime.java_hash import java_abs, string_hash
from tests.integration.conftest import StartCluster
from tests.integration.support import confluent
from tests.integration.support.cluster import ProcessCluster
from tests.integration.support.confluent import wait_until
from tests.integration.support.copier import Copier, Outcome
from tests.integration.support.exactly_once import (
    QUIET,
    Aiokafka,
    Confluent,
    KafkaPython,
    ReadProcessWrite,
)
from tests.integration.support.records import Record

pytestmark = pytest.mark.minikafka_only

ROUNDS = 1
PARTITIONS = 3
OFFSETS_TOPIC, TRANSACTION_TOPIC = "__consumer_offsets", "__transaction_state"
PROPERTIES = {
    "offsets.topic.num.partitions": PARTITIONS,
    "transaction.state.log.num.partitions": PARTITIONS,
    "group.initial.rebalance.delay.ms": 0,
}
TARGET = "copied"
SHARES: dict[str, tuple[type[ReadProcessWrite], int, int]] = {
    "for-confluent-kafka": (Confluent, 2, 36_000),
    "for-aiokafka": (Aiokafka, 1, 2_000),
    "for-kafka-python": (KafkaPython, 1, 2_000),
}
"""By source: who copies it, how many of them, and how many records there are."""
RECORDS = sum(records for *_, records in SHARES.values())
TOPICS = (*SHARES, TARGET, OFFSETS_TOPIC, TRANSACTION_TOPIC)
DEADLINE_S = 120.0


def coordinates(key: str) -> int:
    """The partition of its topic that has a group or a transactional id."""
    return java_abs(string_hash(key)) % PARTITIONS


SUBJECT = "for-confluent-kafka"
ROLES: dict[str, tuple[str, int]] = {
    "partition leader": (TARGET, 0),
    "group coordinator": (OFFSETS_TOPIC, coordinates(SUBJECT)),
    "transaction coordinator": (TRANSACTION_TOPIC, coordinates(f"{SUBJECT}-0")),
}
"""Who leads this partition has the role."""


def leader(cluster: ProcessCluster, topic: str, partition: int) -> int:
    state = cluster.store.state(topic, partition)
    return -1 if state is None else int(state.leader)


def leads_nothing(cluster: ProcessCluster, node_id: int) -> bool:
    return all(
        leader(cluster, topic, partition) not in (node_id, -1)
        for topic in TOPICS
        for partition in range(PARTITIONS)
    )


def wait_until_whole(cluster: ProcessCluster) -> None:
    for topic in TOPICS:
        for partition in range(PARTITIONS):

            def is_whole(topic: str = topic, partition: int = partition) -> bool:
                state = cluster.store.state(topic, partition)
                return state is not None and len(state.isr) == len(cluster.brokers)

            wait_until(is_whole, f"the ISR of {topic}-{partition} is whole", deadline_s=60)


class CommittedReader:
    """All partitions of the target at read_committed, from the beginning."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = confluent.make_consumer(
            bootstrap, isolation_level="read_committed", fetch_wait_max_ms=50, logger=QUIET
        )
        self._consumer.assign([TopicPartition(TARGET, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
        self.found: dict[tuple[int, int], bytes] = {}
        """Values by partition and offset."""

    def __len__(self) -> int:
        return len(self.found)

    def read(self) -> None:
        for message in self._consumer.consume(1_000, 0.05):
            error = message.error()
            assert error is None or error.retriable(), error
            if error is None:
                place = (message.partition() or 0, message.offset() or 0)
                assert place not in self.found, f"{place} came twice"
                self.found[place] = message.value() or b""

    def close(self) -> None:
        self._consumer.close()


class Chaos:
    """The copiers at work, what they are given, and what of it is read."""

    def __init__(self, cluster: ProcessCluster, reader: CommittedReader, copiers: list[Copier]) -> None:
        self.cluster = cluster
        self.reader = reader
        self.copiers = copiers
        self.written = 0

    def write(self, share: int, shares: int) -> None:
        """A share of all numbers."""
        first = 0
        for source, (_, _, records) in SHARES.items():
            for partition in range(PARTITIONS):
                numbers = range(first + records * share // shares, first + records * (share + 1) // shares)
                mine = [Record(None, b"%d" % n, (), None) for n in numbers if n % PARTITIONS == partition]
                confluent.write(
                    self.cluster.bootstrap, source, mine, partition=partition, enable_idempotence=True
                )
                self.written += len(mine)
            first += records

    def read_until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while not condition():
            self.reader.read()
            failures = [each.failure for each in self.copiers if each.failure]
            assert not failures, failures
            assert time.monotonic() < end, (
                f"not within {DEADLINE_S} s: {what}; {len(self.reader)} of {self.written}; {self.copiers}"
            )

    def read_all(self) -> None:
        self.read_until(lambda: len(self.reader) >= self.written, "all is copied")


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_read_process_write_while_leaders_and_coordinators_are_killed(start_cluster: StartCluster) -> None:
    cluster = start_cluster(properties=PROPERTIES)
    bootstrap = cluster.bootstrap
    for topic in (*SHARES, TARGET):
        confluent.make_topic(bootstrap, topic, partitions=PARTITIONS, replicas=3)
        cluster.wait_until_led(topic, partitions=PARTITIONS)
    with contextlib.ExitStack() as stack:
        reader = stack.enter_context(contextlib.closing(CommittedReader(bootstrap)))
        copiers = [
            stack.enter_context(
                Copier(
                    client(bootstrap, source, TARGET, transactional_id=f"{source}-{number}"),
                    partitions=PARTITIONS,
                )
            )
            for source, (client, copiers, _) in SHARES.items()
            for number in range(copiers)
        ]
        chaos = Chaos(cluster, reader, copiers)
        shares = ROUNDS * len(ROLES) + 1
        chaos.write(0, shares)
        chaos.read_all()
        for share, (role, place) in enumerate(list(ROLES.items()) * ROUNDS, 1):
            wait_until_whole(cluster)
            before = len(reader)
            chaos.write(share, shares)
            chaos.read_until(lambda before=before: len(reader) > before, "copying goes on")
            victim = leader(cluster, *place)
            killed = time.monotonic()
            cluster.brokers[victim].kill()
            at_kill = chaos.written - len(reader)
            assert at_kill, "the kill is to find transactions under way"
            chaos.read_until(lambda victim=victim: leads_nothing(cluster, victim), f"{victim} leads nothing")
            cluster.brokers[victim].start()
            chaos.read_all()
            print(f"{role}: broker {victim}, {at_kill} left, copied {time.monotonic() - killed:.1f} s later")
    print("\n".join(map(repr, copiers)))
    check(cluster, reader, copiers)


def check(cluster: ProcessCluster, reader: CommittedReader, copiers: list[Copier]) -> None:
    places = defaultdict(list)
    for (partition, offset), value in sorted(reader.found.items()):
        name, number = value.decode().split()
        places[int(number)].append(f"{name} at {partition}:{offset}")
    twice = {number: where for number, where in places.items() if len(where) > 1}
    assert not twice, f"{len(twice)} are there twice: {dict(list(twice.items())[:10])}"
    assert sorted(places) == list(range(RECORDS)), "each number is there"
    attempts = {name: attempt for copier in copiers for name, attempt in copier.attempts.items()}
    seen = Counter(value.split()[0].decode() for value in reader.found.values())
    for name, attempt in attempts.items():
        wanted = {
            Outcome.COMMITTED: (attempt.records,),
            Outcome.ABORTED: (0,),
            Outcome.UNKNOWN: (0, attempt.records),
        }[attempt.outcome]
        assert seen[name] in wanted, f"{name}: {attempt}, but {seen[name]} are there"
    outcomes = {each.outcome for each in attempts.values()}
    assert outcomes >= {Outcome.COMMITTED, Outcome.ABORTED}
    wait_until_whole(cluster)
    client = confluent.admin(cluster.bootstrap)
    for partition in range(PARTITIONS):
        at = TopicPartition(TARGET, partition)
        last_stable, end = (
            client.list_offsets({at: OffsetSpec.latest()}, isolation_level=isolation)[at]
            .result(confluent.DEADLINE_S)
            .offset
            for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        )
        assert last_stable == end, f"a transaction in {at} has not ended"
        one, two, three = (
            cluster.log_below(each, TARGET, end, partition=partition) for each in cluster.brokers
        )
        assert one == two == three, f"the replicas of {at} differ below {end}"
    again = CommittedReader(cluster.bootstrap)
    wait_until(lambda: again.read() or len(again) >= RECORDS, "all is read again")
    again.close()
    assert again.found == reader.found
