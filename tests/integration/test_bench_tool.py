"""``minikafka bench`` against real brokers: what it measures is there, and what goes wrong is said.

Nothing here is about how fast anything is: bounds are only those that a pause of the broker makes certain.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.integration.conftest import StartBroker
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess
from tests.integration.test_compaction import (
    BUSY_CLEANER,
    TOPIC,
    fill_the_active_segment,
    keyed_records,
    read_to_end,
    until_compacted,
)
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 240
PAUSE_S, RATE = 2.0, 300
LATE_BY_MS = {"6": {"95": 700, "90": 450}, "24": {"99": 700, "95": 250}}
"""Seconds of the run → percentile → how late it is at least, for each second of the pause."""
FLOWS = ("produce", "end-to-end")

pytestmark = pytest.mark.minikafka_only


def command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "minikafka.cli.main", "bench", *arguments]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end; whatever happens, it prints no traceback."""
    done = subprocess.run(
        command(arguments), cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done


def report(*arguments: str) -> Any:
    """The JSON of a run that went well."""
    done = bench(*arguments, "--json", "-")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def flow(result: Any, name: str) -> Any:
    return next(each for each in result["flows"] if each["name"] == name)


class Running:
    """A run that goes on while the test does something to its broker."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            command([*arguments, "--json", "-"]),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def wait_until_it_runs(self, *flows: str) -> None:
        """Until a line of progress says that the load has begun, and that records of these flows are through:
        only the first line comes within a second."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.startswith("run ") and all(
                f"{flow} " in line and f"{flow} 0:" not in line for flow in flows
            ):
                return
        raise AssertionError(f"the run ended before it began: {self.process.wait()}")

    def result(self) -> tuple[int, Any]:
        output, errors = self.process.communicate(timeout=DEADLINE_S)
        assert "Traceback" not in errors, errors
        assert output, errors
        return self.process.returncode, json.loads(output)


def test_a_pause_of_the_broker_is_a_latency_of_all_that_was_due_in_it(start_broker: StartBroker) -> None:
    broker = start_broker()
    for seconds, late_by_ms in LATE_BY_MS.items():
        with Running(
            "latency", "-t", broker.bootstrap, "--rate", str(RATE), "--duration", seconds, "--warm-up", "0",
            # The queue is full in a moment, so that a record that is due cannot even be handed over.
            "--producer-property", "queue.buffering.max.messages=50",
        ) as run:  # fmt: skip
            run.wait_until_it_runs()
            broker.process.send_signal(signal.SIGSTOP)
            time.sleep(PAUSE_S)
            broker.process.send_signal(signal.SIGCONT)
            status, result = run.result()
        assert status == 0, result
        latencies = [flow(result, name)["latency"] for name in FLOWS]
        late = [each["at_ms"][at] >= PAUSE_S * ms for each in latencies for at, ms in late_by_ms.items()]
        if all(late):
            break  # else a busy machine may have begun the pause when a short run was about to end
    assert all(late), latencies
    for latency in latencies:
        # A third of the short run was paused: of 1,800 records 600 waited up to two seconds, evenly. A busy
        # machine may stop it a little late and wake it a little early: hence 5 % less.
        assert latency["max_ms"] >= PAUSE_S * 950
        assert latency["count"] >= RATE * int(seconds)


def test_what_the_report_counts_is_in_the_log(broker: BrokerProcess, topic: str) -> None:
    result = report(
        "produce", "-t", broker.bootstrap, "--topic", topic, "--partitions", "3", "--records", "5000",
        "--record-size", "uniform:10-500", "--keys", "zipf:100,1.2", "--compression", "lz4",
        "--compressibility", "0.5", "--producers", "2", "--keep-topics", "--pid", str(broker.pid),
    )  # fmt: skip
    assert flow(result, "produce")["records"] == 5000
    client = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    ends = [client.get_watermark_offsets(TopicPartition(topic, each), timeout=30)[1] for each in range(3)]
    client.close()
    assert sum(ends) == 5000 and max(ends) < 5000, "the keys spread them"
    assert result["usage"]["cpu_seconds"] >= 0 and result["usage"]["resident_peak_bytes"] > 10_000_000
    # What is there can be consumed without producing it again, from the one place that says how much it is.
    consumed = report(
        "consume", "-t", broker.bootstrap, "--topic", topic, "--partitions", "3", "--records", "0",
        "--keep-topics", "--duration", "1",
    )  # fmt: skip
    assert flow(consumed, "consume")["records"] % 5000 == 0


def test_a_small_queue_loses_no_count(broker: BrokerProcess) -> None:
    result = report(
        "produce", "-t", broker.bootstrap, "--records", "3001", "--producers", "2", "--processes", "1",
        "--producer-property", "queue.buffering.max.messages=70",
    )  # fmt: skip
    assert flow(result, "produce")["records"] == 3001 == flow(result, "produce")["latency"]["count"]


def test_a_broker_that_dies_leaves_the_counts_up_to_then(start_broker: StartBroker) -> None:
    broker = start_broker()
    with Running(
        "latency", "-t", broker.bootstrap, "--rate", "200", "--duration", "600", "--give-up-after", "1"
    ) as run:
        run.wait_until_it_runs(*FLOWS)
        broker.kill()
        status, result = run.result()
    assert status == 1
    assert flow(result, "produce")["records"] > 0 and flow(result, "end-to-end")["records"] > 0
    assert any("could be reached for 1 s" in problem for problem in result["problems"]), result["problems"]


def test_an_interrupted_run_reports_what_it_has(broker: BrokerProcess) -> None:
    with Running("latency", "-t", broker.bootstrap, "--rate", "200", "--duration", "600") as run:
        run.wait_until_it_runs(*FLOWS)
        run.process.send_signal(signal.SIGINT)
        status, result = run.result()
    assert (status, result["problems"]) == (130, ["interrupted"])
    assert flow(result, "end-to-end")["records"] > 0
    assert all(check["expected"] == check["seen"] for check in result["checks"]), result["checks"]


def test_ctrl_c_before_there_is_any_load_is_told_by_the_status(broker: BrokerProcess) -> None:
    with Running("consume", "-t", broker.bootstrap, "--records", "100000000") as run:
        assert run.process.stderr is not None
        assert any(line.startswith("preload ") for line in run.process.stderr)
        run.process.send_signal(signal.SIGINT)
        output, errors = run.process.communicate(timeout=DEADLINE_S)
    assert (run.process.returncode, output) == (130, "") and "Traceback" not in errors


def test_a_bench_that_is_terminated_leaves_no_broker_and_no_files(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(["latency", "-t", "minikafka", "--duration", "600"]),
        cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert any(line.startswith("run ") for line in process.stderr)
    assert len(brokers_on(tmp_path)) == 1
    process.terminate()
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 128 + signal.SIGTERM
    assert brokers_on(tmp_path) == [] and list(tmp_path.iterdir()) == []


def brokers_on(directory: Path) -> list[str]:
    """Processes that have it in their command lines."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if str(directory) in each.read_text():
                found.append(each.parent.name)
    return found


@pytest.mark.parametrize("pace", [[], ["--rate", "100"]], ids=["unpaced", "paced"])
def test_records_that_are_too_large_are_counted_and_told(pace: list[str]) -> None:
    done = bench("produce", "-t", "mock", "--record-size", "2MB", "--records", "3", *pace)
    assert done.returncode == 1
    assert "produce: 0 records, 3 failed," in done.stdout
    assert "3 records were not delivered: " in done.stdout and "Message size too large" in done.stdout
    assert "offsets advanced = records acked: 0 = 0" in done.stdout


def test_a_topic_that_is_only_read_must_be_there(broker: BrokerProcess, topic: str) -> None:
    done = bench("consume", "-t", broker.bootstrap, "--topic", topic)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"minikafka bench: there is no topic {topic}; ")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert topic not in admin.list_topics(timeout=30).topics


def test_a_run_that_cannot_begin_leaves_no_topic(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(f"{topic}-0", 1, 1)])[f"{topic}-0"].result(90)
    done = bench("produce", "-t", broker.bootstrap, "--topic", topic, "--topics", "2", "--partitions", "3")
    assert done.returncode == 1 and f"topic {topic}-0 has 1 partitions, fewer than" in done.stderr
    left = [name for name in admin.list_topics(timeout=30).topics if name.startswith(topic)]
    assert left == [f"{topic}-0"]


def test_offsets_of_a_compacted_topic_are_not_taken_for_records(
    start_broker: StartBroker, topic: str
) -> None:
    """Few of its records are left, and its last offsets hold none: a transaction that was aborted."""
    broker = start_broker(properties=BUSY_CLEANER)
    confluent.make_topic(broker.bootstrap, topic, config=TOPIC)
    written = keyed_records(keys=2, rounds=4_000, size=300)
    confluent.write(broker.bootstrap, topic, written)
    fill_the_active_segment(broker, topic)
    until_compacted(broker, topic, bytes_max=1_400_000)  # 900,000 are filler
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"never", b"key 0")
    producer.flush(30)
    producer.abort_transaction(30)
    left = len(read_to_end(broker, topic))
    offsets = confluent.latest(broker.bootstrap, topic)
    assert left < offsets / 4
    for seconds in ("1", "5", "25"):  # on a busy machine one pass alone may take a second
        result = report("consume", "-t", broker.bootstrap, "--topic", topic, "--duration", seconds)
        (check,) = result["checks"]
        assert flow(result, "consume")["records"] == check["seen"]
        passes, rest = divmod(check["expected"], offsets)
        if passes > 1:
            break
    assert passes > 1 and rest == 0
    left_by_now = len(read_to_end(broker, topic))  # fewer if the cleaner went on meanwhile
    assert passes * left_by_now <= check["seen"] <= passes * left
    assert check["bound_only"] == f"offsets of {topic}, which is compacted, are no count of its records"


def test_groups_hold_the_partitions_that_there_are(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 6, 1)])[topic].result(90)
    arguments = ["--topic", topic, "--partitions", "4", "--consumers", "2", "--duration", "1"]
    result = report("groups", "-t", broker.bootstrap, *arguments)
    assert all(check["expected"] == check["seen"] for check in result["checks"])


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (
            ["produce", "--timeout", "3"],  # which includes an attempt, also on a busy machine
            1,
            "no broker answers at localhost:{port} within 3 s: Connection refused",
        ),
        (["latency", "-t", "nowhere"], 2, "target nowhere: must be HOST:PORT, minikafka, "),
        (["latency", "-t", "kafka:/nowhere"], 2, "has no libs/kafka_2.*.jar"),
        (["latency", "-t", "minikafka:/nowhere"], 2, "there is no command /nowhere"),
        (["produce", "--record-size", "pareto:3"], 2, "--record-size pareto:3: must be a number, or"),
        (["produce", "--partitions", "0"], 2, "--partitions 0: must be from 1"),
        (["produce", "--duration", "soon"], 2, "--duration soon: must be seconds"),
        (["replay", "/nowhere"], 2, "FILE /nowhere: No such file"),
        (["run", "/nowhere"], 2, "cannot read /nowhere: No such file"),
        (["compare", "mock", "mock", "--suite", "fast"], 2, "--suite fast: there is no such workload"),
        (["start", "localhost:1"], 2, "only a recipe can be started"),
    ],
    ids=lambda value: "-".join(value).replace("/", "") if isinstance(value, list) else "",
)
def test_what_cannot_be_is_one_line(arguments: list[str], status: int, said: str) -> None:
    port = free_port()
    if "-t" not in arguments and arguments[0] == "produce":
        arguments = [*arguments, "-t", f"localhost:{port}"]
    done = bench(*arguments)
    assert done.returncode == status
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert said.format(port=port) in done.stderr


def test_a_property_that_librdkafka_refuses_is_one_line(broker: BrokerProcess) -> None:
    done = bench("produce", "-t", broker.bootstrap, "--producer-property", "no.such=1")
    assert done.returncode == 1
    assert done.stderr == 'minikafka bench: No such configuration property: "no.such"\n'


SMOKE = {
    "produce": ["--records", "2000"],
    "consume": ["--records", "2000", "--subscriptions", "2"],
    "latency": ["--rate", "200", "--warm-up", "0"],
    "fanout": ["--rate", "50", "--subscriptions", "3", "--warm-up", "0"],
    "connections": ["--connections", "5", "--rate", "20"],
    "partitions": ["--partitions", "20", "--rate", "200"],
    "groups": ["--groups", "2", "--consumers", "2", "--partitions", "4"],
    "requests": ["--records", "500", "--producers", "3"],
    "soak": ["--rate", "100", "--warm-up", "0"],
}


@pytest.mark.parametrize("name", SMOKE)
def test_every_workload_runs_and_its_counts_agree(broker: BrokerProcess, name: str) -> None:
    for seconds in ("1", "5", "25"):  # on a busy machine nothing may have gone all the way in a second
        arguments = [*SMOKE[name], "--duration", seconds, "--processes", "1"]
        result = report(name, "-t", broker.bootstrap, *arguments)
        if result["flows"] and all(each["records"] > 0 for each in result["flows"]):
            break
    assert result["flows"] and all(each["records"] > 0 for each in result["flows"])
    assert result["checks"] and all(check["expected"] == check["seen"] for check in result["checks"])


def test_a_recorded_rate_is_replayed(broker: BrokerProcess, tmp_path: Path) -> None:
    recording = tmp_path / "rate.csv"
    recording.write_text("seconds,records,bytes\n1,40,4000\n1,0,0\n1,10,5000\n")
    result = report("replay", "-t", broker.bootstrap, str(recording), "--speed", "2", "--processes", "1")
    sent = flow(result, "produce")
    assert (sent["records"], sent["bytes"]) == (50, 9000)


def test_a_workload_file_runs(broker: BrokerProcess, tmp_path: Path) -> None:
    workload, driver = tmp_path / "workload.yaml", tmp_path / "driver.yaml"
    workload.write_text(
        "name: small\ntopics: 2\npartitionsPerTopic: 2\nmessageSize: 100\nproducerRate: 100\n"
        "subscriptionsPerTopic: 2\nconsumerPerSubscription: 1\nproducersPerTopic: 1\n"
        "consumerBacklogSizeGB: 0.0001\ntestDurationMinutes: 0.02\n"
    )
    driver.write_text(
        f"commonConfig: |\n  bootstrap.servers={broker.bootstrap}\nproducerConfig: |\n  acks=all\n"
    )
    result = report("run", str(workload), "--driver", str(driver))
    backlog = int(0.0001 * 1024**3) // 100
    assert flow(result, "produce")["records"] == 120
    assert flow(result, "end-to-end")["records"] == (backlog + 120) * 2
    assert flow(result, "end-to-end")["latency"]["count"] == 240, "the backlog is counted, not timed"


def test_two_recipes_take_turns(tmp_path: Path) -> None:
    kept, page = tmp_path / "comparison.json", tmp_path / "comparison.html"
    done = bench(
        "compare", "minikafka", "mock", "--suite", "produce-100,start", "--rounds", "1", "--duration", "1",
        "--json", str(kept), "--html", str(page),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "| produce 100 B, acks=1, linger 5 ms: rate, records/s |" in done.stdout
    comparison = json.loads(kept.read_text())
    turns = [(turn["entry"], turn["round"], turn["contestant"]) for turn in comparison["turns"]]
    assert turns == [
        ("produce-100", 0, "minikafka"), ("produce-100", 0, "mock"),
        ("produce-100", 1, "minikafka"), ("produce-100", 1, "mock"),
        ("start", 1, "minikafka"), ("start", 1, "mock"),
    ]  # fmt: skip
    rate = comparison["rows"][0]
    assert rate["ratio"]["median"] == pytest.approx(rate["first_values"][0] / rate["second_values"][0])
    text = page.read_text()
    assert "produce 100 B" not in text and "records a second" in text
    assert 'src="http' not in text and "src='http" not in text, "the page needs nothing else"
