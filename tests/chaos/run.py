"""A chaos run: five brokers, a store, clients of all kinds and a nemesis; then the history is judged."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic

from minikafka.testing.history import (
    PERMITTED,
    AnomalyKind,
    Kind,
    Operation,
    Outcome,
    Record,
    Report,
    check,
    read_history,
)
from tests.chaos.epoch_raises import KnownDuplicate, known_duplicates
from tests.chaos.give_ups import GivenUp, given_up
from tests.chaos.nemesis import UNHURRIED, Nemesis, Pace
from tests.chaos.programs import Programs
from tests.chaos.recording import Recorder, now_ms
from tests.chaos.surprises import surprises_of
from tests.chaos.world import World, running
from tests.integration.support import confluent
from tests.integration.support.cluster import ProcessCluster

PARTITIONS = 4
TOPICS = {"plain": "records", "idempotent": "records", "transactional": "transactions"}
"""By the role of those that write to them."""

PRODUCERS = (
    ("java", "plain"),
    ("kafka-python", "plain"),
    ("confluent", "idempotent"),
    ("aiokafka", "idempotent"),
    ("kafka-python", "idempotent"),
    ("confluent", "transactional"),
    ("aiokafka", "transactional"),
    ("java", "idempotent"),
    ("java", "transactional"),
    ("kgo", "idempotent"),
    ("kgo", "transactional"),
)
MEMBERS = (
    ("confluent", "classic"),
    ("confluent-static", "static"),
    ("confluent-static", "static"),
    ("confluent-consumer", "consumer"),
    ("confluent-consumer", "consumer"),
    ("aiokafka", "others"),
    ("kafka-python", "others"),
    ("kgo", "kgo"),
    ("java", "classic"),
    ("java-consumer", "consumer"),
)
"""Clients and their groups."""

WHOLE_DEADLINE_S = 90
KINDS = 6
"""Of faults, which a short run has."""
ENOUGH, ENOUGH_DEADLINE_S = 200, 90
"""Records acknowledged, of each role."""
CLIENTS_END_S = 180
"""Longer than Java's delivery.timeout.ms (``ChaosClient``), which the last record may take."""
STACKS_S = 2
"""To write what its threads do takes a client at most so long."""
TOPICS_DEADLINE_S = 60
SHOWN_MAX = 20
"""Records that were given up."""
READ_DEADLINE_S = 120
DRAIN_S = 3
JVM_TERMINATED = 143
"""The exit code of a JVM that has got SIGTERM, whatever it did then."""


class ChaosReport(msgspec.Struct):
    """What came of a run."""

    seed: int
    store: str
    seconds: float
    faults: dict[str, int]
    acknowledged: dict[str, int]
    """Records, by the role of their producers."""
    transactions: int
    polled: int
    judged: Report
    known: list[KnownDuplicate] = []
    """Of the duplicates in ``judged`` those that are librdkafka's doing."""
    unknown: dict[str, int] = {}
    """Records that were sent and not acknowledged, by role: they may be there."""
    given_up: list[GivenUp] = []
    """Those of them that Java's idempotent producer has given up."""
    surprises: dict[str, int] = {}
    """Errors of client libraries that are none of their own kinds, by client."""
    stuck: list[str] = []
    """Clients that did not end when they were asked to, each with the end of what it told: all threads, and
    where they are. What such a one had begun is in no history: records of a producer may look as if none had
    sent them, and its open transaction may hide what is behind."""

    @property
    def is_valid(self) -> bool:
        """Whether there is nothing but what Kafka permits, duplicates that are known, and records whose
        giving up is explained; and every client has ended."""
        return not self._failures() and not self._unexplained() and not self.stuck

    def _unexplained(self) -> list[GivenUp]:
        return [each for each in self.given_up if not each.is_explained]

    def _failures(self) -> dict[AnomalyKind, int]:
        counts = {kind: count for kind, count in self.judged.counts.items() if kind not in PERMITTED}
        if counts.get(AnomalyKind.DUPLICATE) == len(self.known):
            del counts[AnomalyKind.DUPLICATE]
        return counts

    def __str__(self) -> str:
        faults = ", ".join(f"{count} × {name}" for name, count in sorted(self.faults.items()))
        acknowledged = ", ".join(f"{count} {role}" for role, count in sorted(self.acknowledged.items()))
        unknown = ", ".join(f"{count} {role}" for role, count in sorted(self.unknown.items())) or "none"
        surprises = ", ".join(f"{count} of {client}" for client, count in self.surprises.items())
        return (
            f"seed {self.seed}, {self.store}, {self.seconds:.0f} s: {sum(self.faults.values())} faults "
            f"({faults}); {sum(self.acknowledged.values())} records acknowledged ({acknowledged}), "
            f"unknown: {unknown}; "
            f"{self.transactions} transactions committed, {self.polled} records read by groups; "
            + (f"unexpected errors of client libraries: {surprises}; " if surprises else "")
            + "\n".join([self._verdict(), *self.stuck])
        )

    def anomalies(self) -> list[str]:
        """Those that fail the run."""
        failures = self._failures()
        return [str(each) for each in self.judged.anomalies if each.kind in failures]

    def _verdict(self) -> str:
        """Without what Kafka permits."""
        failures, unexplained = self._failures(), self._unexplained()
        known = [str(each) for each in self.known]
        explained = [str(each) for each in self.given_up if each.is_explained]
        if not failures and not unexplained:
            verdict = f"no anomaly; known duplicates: {len(known)}" if known else "no anomaly"
            if explained:
                verdict += f"; known give-ups: {len(explained)}"
            return "\n".join([verdict, *known, *explained[:SHOWN_MAX]])
        found = self.anomalies()
        verdict = f"{self.judged.counts}; given up without a reason: {len(unexplained)}"
        more = [*map(str, unexplained[:SHOWN_MAX]), *known, *explained[:SHOWN_MAX]]
        return "\n".join([verdict, *found, *more])


class Client:
    """A producer or a member, as a process."""

    def __init__(self, directory: Path, name: str, command: Sequence[str]) -> None:
        """``{history}`` in the command is the file where it keeps its history."""
        self.name = name
        history = directory / f"{name}.jsonl"
        self._errors = directory / f"{name}.err"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [each.format(history=history) for each in command],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )

    def check_running(self) -> None:
        code = self._process.poll()
        assert code is None, f"{self.name} ended with {code}:\n{self._errors.read_text()[-3000:]}"

    def ask_to_end(self) -> None:
        self._process.terminate()

    def wait(self) -> str:
        """Until it has ended; empty then. When it does not: that, and where its threads are. Raises
        AssertionError when it ends badly."""
        try:
            code = self._process.wait(CLIENTS_END_S)
        except subprocess.TimeoutExpired:
            # All tell where their threads are, and end; Java goes on.
            self._process.send_signal(signal.SIGQUIT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STACKS_S)
            return f"{self.name} does not end:\n{self._errors.read_text()[-3000:]}"
        assert code in (0, JVM_TERMINATED), (
            f"{self.name} ended with {code}:\n{self._errors.read_text()[-3000:]}"
        )
        return ""

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(60)


def run(
    directory: Path, *, seed: int, seconds: float, store: str, pace: Pace = UNHURRIED, of_kafka: int = 0
) -> ChaosReport:
    """Let it go on for so long, heal, read all, and judge. What was recorded stays in ``directory``.

    ``of_kafka``: how many of the brokers are Apache Kafka 3.9's.

    Raises:
        AssertionError: the cluster did not come back, or a client ended. One that does not end is in the
            report.
    """
    directory.mkdir(parents=True)
    with running(directory, store, of_kafka=of_kafka) as world:
        faults, stuck = _storm(directory, world, seed, seconds, pace)
    return judge(
        directory,
        seed=seed,
        store=store,
        seconds=seconds,
        faults=faults,
        of_kafka=world.of_kafka,
        stuck=stuck,
    )


def _storm(
    directory: Path, world: World, seed: int, seconds: float, pace: Pace
) -> tuple[Counter[str], list[str]]:
    """The faults, by kind; and the clients that did not end."""
    topics, programs, bootstrap = sorted(set(TOPICS.values())), Programs(), world.bootstrap
    _wait_for_controller(world)
    _make_topics(bootstrap, topics)
    clients = [
        *_producers(directory, programs, bootstrap, seed),
        *_members(directory, programs, bootstrap, topics, is_mixed=bool(world.of_kafka)),
    ]
    log = directory / "faults.jsonl"
    nemesis = Nemesis(world, topics=topics, partitions=PARTITIONS, pace=pace, seed=seed, log=log)
    try:
        nemesis.start()
        began = time.monotonic()
        while nemesis.failure is None and not _is_over(time.monotonic() - began, seconds, nemesis):
            time.sleep(1)
            for client in clients:
                client.check_running()
        nemesis.stop()
        nemesis.settle()
        _wait_until_whole(world.cluster, topics)
        _wait_until_enough(directory, clients)
        time.sleep(DRAIN_S)  # members read what was written last
        for client in clients:
            client.ask_to_end()
        stuck = [told for client in clients if (told := client.wait())]
        read_all(bootstrap, topics, directory)
    finally:
        nemesis.abandon()
        for client in clients:
            client.kill()
    return nemesis.counts, stuck


def _wait_for_controller(world: World) -> None:
    """Until every broker knows it. A client of one of Kafka's that does not waits for it in vain."""
    for port in world.links.ports.values():

        def is_known(address: str = f"127.0.0.1:{port}") -> bool:
            try:
                return confluent.admin(address).list_topics(timeout=10).controller_id >= 0
            except KafkaException:  # it does not answer yet, on a machine with much else to do
                return False

        confluent.wait_until(is_known, f"the broker behind {port} knows the controller", deadline_s=60)


def _make_topics(bootstrap: str, topics: Sequence[str]) -> None:
    """A request may be too late for its client, and carried out: then the next one says that it is there."""
    admin = confluent.admin(bootstrap)
    for topic in topics:

        def is_made(topic: str = topic) -> bool:
            new = NewTopic(topic, PARTITIONS, 3)
            try:
                admin.create_topics([new])[topic].result(TOPICS_DEADLINE_S)
            except KafkaException as error:
                print(f"{topic} is not made yet: {error}")
                return error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
            except TimeoutError:
                return False
            return True

        confluent.wait_until(is_made, f"{topic} is made", deadline_s=TOPICS_DEADLINE_S)


def _is_over(so_far_s: float, seconds: float, nemesis: Nemesis) -> bool:
    """On a machine with more to do one fault may take most of the time: others follow, for as long again."""
    return so_far_s >= seconds and (len(nemesis.counts) >= KINDS or so_far_s >= 2 * seconds)


def _producers(directory: Path, programs: Programs, bootstrap: str, seed: int) -> Iterator[Client]:
    for number, (client, role) in enumerate(PRODUCERS):
        where = (bootstrap, TOPICS[role], str(PARTITIONS), "{history}", f"{seed}-{number}")
        if (program := programs.of(client, "producer")) is not None:
            yield Client(directory, f"producer-{number}-{client}-{role}", [*program, role, *where])


def _members(
    directory: Path, programs: Programs, bootstrap: str, topics: list[str], *, is_mixed: bool
) -> Iterator[Client]:
    """Kafka 3.9 has no groups of the consumer protocol on ZooKeeper."""
    for number, (client, group) in enumerate(MEMBERS):
        if is_mixed and group == "consumer":
            continue
        where = (bootstrap, ",".join(topics), group, "{history}")
        if (program := programs.of(client, "member")) is not None:
            yield Client(directory, f"member-{number}-{client}", [*program, *where])


def _wait_until_enough(directory: Path, clients: Sequence[Client]) -> None:
    """A run shows little of a role that has written little: those that write go on after the faults."""
    deadline = time.monotonic() + ENOUGH_DEADLINE_S
    while little := [role for role in sorted(TOPICS) if _acknowledged(directory, role) < ENOUGH]:
        assert time.monotonic() < deadline, f"{little} have not {ENOUGH} records in {ENOUGH_DEADLINE_S} s"
        for client in clients:
            client.check_running()
        time.sleep(1)


def _acknowledged(directory: Path, role: str) -> int:
    """Records so far."""
    return sum(
        b'"kind":"send"' in line and b'"outcome":"ok"' in line
        for path in directory.glob(f"producer-*-{role}.jsonl")
        for line in path.read_bytes().splitlines()
    )


def _wait_until_whole(cluster: ProcessCluster, topics: list[str]) -> None:
    """I16: every replica of every partition is in sync again."""
    deadline = time.monotonic() + WHOLE_DEADLINE_S
    while left := _not_whole(cluster, topics):
        assert time.monotonic() < deadline, f"not whole within {WHOLE_DEADLINE_S} s: {left}"
        time.sleep(0.5)


def _not_whole(cluster: ProcessCluster, topics: list[str]) -> list[str]:
    left = []
    for topic in topics:
        for partition, assignment in cluster.store.partitions(topic).items():
            state = cluster.store.state(topic, partition)
            if state is None or state.leader < 0 or set(state.isr) != set(assignment.replicas):
                left.append(f"{topic}-{partition}: {state}, of {assignment}")
    return left


def read_all(bootstrap: str, topics: list[str], directory: Path, *, partitions: int = PARTITIONS) -> None:
    """Read every partition from its beginning to its end, twice: all, and what is committed."""
    for name, level in (("final", "read_uncommitted"), ("final-committed", "read_committed")):
        recorder = Recorder(directory / f"{name}.jsonl", name)
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": name,
                "isolation.level": level,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        assigned = [TopicPartition(topic, each, 0) for topic in topics for each in range(partitions)]
        consumer.assign(assigned)
        left = {(each.topic, each.partition) for each in assigned}
        deadline = time.monotonic() + READ_DEADLINE_S
        while left:
            assert time.monotonic() < deadline, f"no end of {sorted(left)}"
            invoked_ms, records = now_ms(), []
            for message in consumer.consume(1000, 1.0):
                if message.error() is not None:
                    if message.error().name() == "_PARTITION_EOF":
                        left.discard((message.topic(), message.partition()))
                    continue
                value = message.value().decode()
                records.append(Record(message.topic(), message.partition(), message.offset(), value))
            if records:
                recorder.write(
                    Kind.POLL,
                    invoked_ms,
                    Outcome.OK,
                    records=tuple(records),
                    read_committed=level == "read_committed",
                )
        consumer.close()
        recorder.close()


def history_of(directory: Path) -> list[Operation]:
    """All that was recorded, of all processes."""
    return [
        each
        for path in sorted(directory.glob("*.jsonl"))
        if path.name != "faults.jsonl"
        for each in read_history(path)
    ]


def role_of(process: str) -> str:
    """Of a producer, by its name in the history; after a failure there is a number behind it."""
    return process.partition(".")[0].rpartition("-")[2]


def judge(
    directory: Path,
    *,
    seed: int,
    store: str,
    seconds: float,
    faults: Counter[str],
    of_kafka: Collection[int],
    stuck: Sequence[str] = (),
) -> ChaosReport:
    operations = history_of(directory)
    acknowledged = Counter(
        role_of(each.process) for each in operations if each.kind is Kind.SEND and each.outcome is Outcome.OK
    )
    commits = [
        each for each in operations if each.kind is Kind.COMMIT_TRANSACTION and each.outcome is Outcome.OK
    ]
    polled = sum(len(each.records) for each in operations if each.kind is Kind.POLL and each.group)
    unknown = Counter(
        role_of(each.process)
        for each in operations
        if each.kind is Kind.SEND and each.outcome is Outcome.INFO
    )
    report = ChaosReport(
        seed, store, seconds, dict(faults), dict(acknowledged), len(commits), polled, check(operations)
    )
    report.unknown, report.surprises, report.stuck = dict(unknown), surprises_of(directory), list(stuck)
    report.given_up = given_up(operations, directory, of_kafka=of_kafka)
    report.known = known_duplicates(operations, directory, of_kafka=of_kafka)
    (directory / "report.json").write_text(json.dumps(msgspec.to_builtins(report), indent=1))
    return report
