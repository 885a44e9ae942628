"""``minikafka record`` and ``replay``: what a stock client has lived through with one broker, another one is
made to live through, and they say the same; or it is shown where they do not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.conftest import StartBroker

pytestmark = pytest.mark.minikafka_only

STORY = """
import sys
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

address = {"bootstrap.servers": sys.argv[1]}
admin = AdminClient(address)
for made in admin.create_topics([NewTopic("t", 3, 1)]).values():
    made.result()
producer = Producer(address | {"transactional.id": "story", "client.id": "writer"})
producer.init_transactions()
producer.begin_transaction()
for number in range(30):
    producer.produce("t", b"in confidence %d" % number, key=b"person %d" % number, headers={"h": b"hush"})
producer.commit_transaction()
consumer = Consumer(address | {"group.id": "g", "auto.offset.reset": "earliest"})
consumer.subscribe(["t"])
left = 30
while left:
    message = consumer.poll(10)
    assert message is not None
    left -= not message.error()
consumer.commit(asynchronous=False)
consumer.close()
"""


def run(*arguments: str | Path, status: int = 0) -> str:
    command = [sys.executable, "-m", "minikafka.cli.main", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == status, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def values(bootstrap: str) -> list[bytes]:
    """Of all records of t."""
    kcat = ("kcat", "-b", bootstrap, "-C", "-e", "-q", "-t", "t", "-o", "beginning")
    return subprocess.run(kcat, capture_output=True, timeout=60, check=True).stdout.splitlines()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory, make_broker: StartBroker) -> Path:
    """Of ``STORY``, on a broker that is gone afterwards."""
    directory = tmp_path_factory.mktemp("recorded")
    broker = make_broker(directory / "broker").start()
    try:
        story: Sequence[str | Path] = (sys.executable, "-c", STORY, "{}")
        said = run("record", directory / "story.jsonl", "-b", broker.bootstrap, "--", *story)
        assert "requests in" in said
        assert sorted(values(broker.bootstrap)) == sorted(b"in confidence %d" % each for each in range(30))
    finally:
        broker.close()
    return directory / "story.jsonl"


def committed_in(recording: Path) -> dict[int, int]:
    """Partition → the offset that the recorded group has committed: behind the transaction's marker where its
    consumer had come to know of it."""
    events = [json.loads(line) for line in recording.read_bytes().splitlines()]
    return {
        partition["partition_index"]: partition["committed_offset"]
        for event in events
        if event.get("api") == "OFFSET_COMMIT" and "topics" in event["body"]
        for topic in event["body"]["topics"]
        for partition in topic["partitions"]
        if "committed_offset" in partition
    }


def test_another_broker_answers_the_same_until_it_has_the_topic_already(
    recording: Path, start_broker: StartBroker
) -> None:
    broker = start_broker()
    said = run("replay", recording, "-b", broker.bootstrap)
    assert "none differ" in said
    said = run("groups", "describe", "--group", "g", "-b", broker.bootstrap)
    committed = [int(line.split()[3]) for line in said.splitlines() if line.startswith("g ")]
    assert 30 <= sum(committed) <= 33
    assert sorted(committed) == sorted(committed_in(recording).values()), "the group has committed here, too"
    said = run("replay", recording, "-b", broker.bootstrap, "--all", status=1)
    assert "topics[t].error_code: recorded 'NONE', now 'TOPIC_ALREADY_EXISTS'" in said


def test_where_a_broker_answers_otherwise_the_request_and_the_field_are_named(
    recording: Path, start_broker: StartBroker
) -> None:
    broker = start_broker(properties={"message.max.bytes": "300"})
    said = json.loads(run("replay", recording, "-b", broker.bootstrap, "--json", status=1))
    first = next(each for each in said["differing"] if each["api"] == "PRODUCE")
    assert first["client_id"] == "writer"
    changed = {each["path"]: each["now"] for each in first["differences"]}
    assert any(
        path.endswith("error_code") and now == "'MESSAGE_TOO_LARGE'" for path, now in changed.items()
    ), changed


def test_no_content_of_a_record_is_in_the_file_unless_it_is_asked_for(
    recording: Path, start_broker: StartBroker, tmp_path: Path
) -> None:
    import base64

    def contents(path: Path) -> bytes:
        events = [json.loads(line) for line in path.read_bytes().splitlines()]
        texts = [
            partition["records"]["$bytes"]
            for event in events
            if event.get("api") == "PRODUCE"
            for topic in event["body"]["topic_data"]
            for partition in topic["partition_data"]
        ]
        return b"".join(map(base64.b64decode, texts))

    assert recording.stat().st_mode & 0o777 == 0o600
    assert contents(recording)
    for private in (b"confidence", b"person", b"hush"):
        assert private not in contents(recording)
    kept = tmp_path / "kept.jsonl"
    story = (sys.executable, "-c", STORY, "{}")
    run("record", kept, "-b", start_broker().bootstrap, "--with-records", "--", *story)
    assert b"in confidence 7" in contents(kept)


def test_until_ctrl_c_only_the_chosen_client_and_topic_are_kept(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker()
    kept = tmp_path / "kept.jsonl"
    options = ("--client-id", "rd*", "--topic", "wanted", "-b", broker.bootstrap)
    command = [sys.executable, "-m", "minikafka.cli.main", "record", str(kept), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as recorder:
        assert recorder.stdout is not None
        try:
            address = recorder.stdout.readline().split()[3].rstrip(".")
            kcat = ("kcat", "-b", address)
            for topic in ("wanted", "other"):
                for client_id in ("rdkafka", "somebody"):
                    write = (*kcat, "-P", "-t", topic, "-X", f"client.id={client_id}")
                    subprocess.run(write, input=b"a\n", timeout=30, check=True)
            listing = subprocess.run([*kcat, "-L", "-J"], capture_output=True, timeout=30, check=True).stdout
            recorder.send_signal(signal.SIGINT)
            assert recorder.wait(30) == 0
        finally:
            recorder.kill()
    assert json.loads(listing)["brokers"][0]["name"] != broker.bootstrap, "they stay with the relay"
    events = [json.loads(line) for line in kept.read_bytes().splitlines()[1:]]
    requests = [each for each in events if each["type"] == "request"]
    assert {each["client_id"] for each in requests} == {"rdkafka"}
    produced = [each["body"]["topic_data"] for each in requests if each["api"] == "PRODUCE"]
    assert len(produced) == 1


def test_bad_files_and_addresses_are_named(start_broker: StartBroker, tmp_path: Path) -> None:
    no_recording = tmp_path / "notes.txt"
    no_recording.write_text("hello\n")
    assert "is not a recording" in run("replay", no_recording, status=1)
    assert "cannot read" in run("replay", tmp_path / "none", status=1)
    broker = start_broker()
    assert "cannot make" in run("record", no_recording, "-b", broker.bootstrap, "--", "true", status=1)
    assert no_recording.read_text() == "hello\n"
    taken = ("--listen", broker.bootstrap, "-b", broker.bootstrap)
    assert "cannot listen" in run("record", tmp_path / "r", *taken, "--", "true", status=1)
    assert "cannot run" in run(
        "record", tmp_path / "s", "-b", broker.bootstrap, "--", str(tmp_path / "no-such-program"), status=1
    )
