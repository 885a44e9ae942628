"""`minikafka produce`, `consume` and `groups` as processes, against a broker: pipes, signals, groups."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import partial

import pytest
from confluent_kafka import Consumer

from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import Record

DEADLINE_S = 90
MINIKAFKA = [sys.executable, "-m", "minikafka.cli.main"]


def run(broker: BrokerProcess, *arguments: str, lines: bytes = b"") -> tuple[int, bytes, bytes]:
    """Exit status, standard output and standard error of a command."""
    done = subprocess.run(
        [*MINIKAFKA, *arguments, "-b", broker.bootstrap], input=lines, capture_output=True, timeout=DEADLINE_S
    )
    return done.returncode, done.stdout, done.stderr


def begin(broker: BrokerProcess, *arguments: str) -> subprocess.Popen[bytes]:
    """As a terminal starts it: with a Ctrl-C that is not ignored, as it is by what runs in the background."""
    return subprocess.Popen(
        [*MINIKAFKA, *arguments, "-b", broker.bootstrap],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_lines_become_records_and_come_back(broker: BrokerProcess, topic: str, codec: str) -> None:
    confluent.make_topic(broker.bootstrap, topic)
    written = run(
        broker,
        "produce",
        topic,
        "-K",
        ":",
        "-H",
        "from=test",
        "--compression",
        codec,
        lines=b"a:1\nb:2\nplain\n",
    )
    assert written == (0, b"", b"")
    assert run(broker, "consume", topic, "--from-beginning", "-e") == (0, b"1\n2\nplain\n", b"")
    assert run(broker, "consume", topic, "-o", "-2", "-e")[1] == b"2\nplain\n"
    assert run(broker, "consume", topic, "-o", "1", "-c", "1", "--print", "offset,key,value")[1] == (
        b"Offset:1\tb\t2\n"
    )
    _, out, _ = run(broker, "consume", topic, "--from-beginning", "-e", "--json")
    first = json.loads(out.splitlines()[0])
    assert (first["offset"], first["key"], first["value"], first["headers"]) == (
        0,
        "a",
        "1",
        [["from", "test"]],
    )


def test_a_topic_is_read_whole_from_all_its_partitions(broker: BrokerProcess, topic: str) -> None:
    confluent.make_topic(broker.bootstrap, topic, partitions=3)
    lines = b"".join(b"%d\n" % number for number in range(20_000))
    assert run(broker, "produce", topic, lines=lines)[0] == 0
    _, out, _ = run(broker, "consume", topic, "--from-beginning", "--until-end")
    assert sorted(out.splitlines()) == sorted(lines.splitlines())
    assert run(broker, "consume", topic, "--timeout-ms", "300") == (0, b"", b"")


def test_what_cannot_be_is_one_clear_line(broker: BrokerProcess, topic: str) -> None:
    confluent.make_topic(broker.bootstrap, topic)
    for arguments, says in (
        (("consume", "no-such-topic"), b"there is no topic no-such-topic"),
        (("consume", topic, "-p", "9"), f"there is no partition {topic}-9".encode()),
        (("produce", topic, "-p", "9"), f"there is no partition {topic}-9".encode()),
        (("produce", topic), b"MessageSizeTooLargeError"),
    ):
        status, out, error = run(broker, *arguments, lines=b"x" * 3_000_000)
        assert (status, out, error.count(b"\n")) == (1, b"", 1), error
        assert says in error


def test_ctrl_c_ends_both_and_what_was_typed_is_written(broker: BrokerProcess, topic: str) -> None:
    confluent.make_topic(broker.bootstrap, topic)
    consumer, producer = begin(broker, "consume", topic, "--from-beginning"), begin(broker, "produce", topic)
    assert consumer.stdout is not None and producer.stdin is not None
    producer.stdin.write(b"typed\n")
    producer.stdin.flush()
    assert consumer.stdout.readline() == b"typed\n", "each line is written and shown as it comes"
    for process in (consumer, producer):
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=DEADLINE_S) == (b"", b"")
        assert process.returncode == 130


def test_a_reader_that_goes_ends_the_consumer_quietly(broker: BrokerProcess, topic: str) -> None:
    confluent.make_topic(broker.bootstrap, topic)
    confluent.write(broker.bootstrap, topic, [Record(None, b"%d" % number * 100) for number in range(5_000)])
    with begin(broker, "consume", topic, "--from-beginning", "-e") as consumer:
        assert consumer.stdout is not None and consumer.stderr is not None
        consumer.stdout.readline()
        consumer.stdout.close()
        assert consumer.wait(DEADLINE_S) == 1
        assert consumer.stderr.read() == b""


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_shown_reset_and_deleted(broker: BrokerProcess, topic: str, protocol: str) -> None:
    confluent.make_topic(broker.bootstrap, topic, partitions=2)
    for partition in (0, 1):
        records = [Record(None, b"%d" % number) for number in range(10)]
        confluent.write(broker.bootstrap, topic, records, partition=partition)
    group = f"{topic} {protocol}"
    settings = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    member = Consumer({"bootstrap.servers": broker.bootstrap, "client.id": "app", **settings})
    member.subscribe([topic])
    seen: list[object] = []

    def all_read() -> bool:
        message = member.poll(0.2)
        if message is not None and message.error() is None:
            seen.append(message)
        return len(seen) == 20

    confluent.wait_until(all_read, "20 records")
    member.commit(asynchronous=False)
    described = json.loads(run(broker, "groups", "describe", "--group", group, "--json")[1])
    assert (described[0]["group"]["type"], described[0]["group"]["state"]) == (protocol, "Stable")
    assert [(each["committed"], each["lag"], each["client_id"]) for each in described[0]["positions"]] == [
        (10, 0, "app")
    ] * 2
    reset = ("groups", "reset-offsets", "--group", group, "--topic", topic, "--shift-by", "-3")
    status, _, error = run(broker, *reset, "--execute")
    assert status == 1 and b"while the group has no members" in error
    member.close()

    assert run(broker, *reset)[0] == 0
    assert b"NEW-OFFSET" in run(broker, *reset, "--execute")[1]
    assert [
        line.split()[-6:-3]
        for line in run(broker, "groups", "describe", "--group", group)[1].splitlines()[2:]
    ] == [[b"7", b"10", b"3"]] * 2
    status, out, _ = run(broker, "consume", topic, "-g", group, "--max-messages", "6")
    assert (status, sorted(out.split())) == (0, [b"7", b"7", b"8", b"8", b"9", b"9"])
    assert group in run(broker, "groups", "list")[1].decode()
    assert run(broker, "groups", "delete", "--group", group)[0] == 0
    assert group not in run(broker, "groups", "list")[1].decode()
