"""``minikafka bench``: what it refuses, and what its options come to."""

from __future__ import annotations

import argparse
import re
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from minikafka.cli import bench
from minikafka.errors import ConfigError
from minikafka.loadgen import runner
from minikafka.loadgen.comparison import SUITES, Comparison, Contestant, Turn, alternate
from minikafka.loadgen.messages import ConnectJob
from minikafka.loadgen.runner import Fleet, WorkerError
from minikafka.loadgen.targets import (
    Address,
    KafkaRecipe,
    MinikafkaRecipe,
    MockRecipe,
    node_settings,
    parse_target,
)
from minikafka.loadgen.workload import Kind, Workload, checked
from tests.benchmarks import bench_table


def workload(*argv: str) -> Workload:
    arguments = bench.parser().parse_args(argv)
    return bench.workload_of(argv[0], arguments)


def test_without_the_extra_it_says_in_one_line_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def find_spec(module: str) -> ModuleSpec | None:
        return None if module in ("hdrh", "yaml") else ModuleSpec(module, None)

    monkeypatch.setattr(bench, "find_spec", find_spec)
    assert bench.main(["produce"]) == 1
    said = capsys.readouterr().err
    assert said == "minikafka bench: needs hdrhistogram, pyyaml: pip install 'minikafka[bench]'\n"


@pytest.mark.parametrize("name", bench.PURPOSES)
def test_every_subcommand_has_defaults_that_can_be(name: str, tmp_path: Path) -> None:
    recording = tmp_path / "r.csv"
    recording.write_text("1,5\n")
    found = workload(name, *([str(recording)] if name == "replay" else []))
    assert isinstance(found.kind, Kind) and found.name == name
    assert found.duration_s or found.records or found.recording


def test_options_become_the_workload() -> None:
    found = workload(
        "requests", "--producers", "50", "--duration", "2min", "--record-size", "10KB", "--acks", "all",
        "--producer-property", "batch.num.messages=2", "--topic-config", "retention.ms=5",
    )  # fmt: skip
    assert (found.kind, found.producers, found.duration_s) == (Kind.PRODUCE, 50, 120)
    assert found.record_size == "10000"
    assert found.producer_config["acks"] == "all"
    assert found.producer_config["batch.num.messages"] == "2"
    assert found.topic_config == {"retention.ms": "5"}


@pytest.mark.parametrize(
    ("text", "recipe"),
    [
        ("localhost:9092", Address("localhost:9092")),
        ("a:1,b:2", Address("a:1,b:2")),
        ("minikafka:9092", Address("minikafka:9092")),
        ("kafka:9092", Address("kafka:9092")),
        ("minikafka", MinikafkaRecipe()),
        ("mock", MockRecipe()),
        ("kafka:maven:4.1.0", KafkaRecipe("kafka:maven:4.1.0", version="4.1.0")),
    ],
)
def test_targets_are_addresses_or_recipes(text: str, recipe: object) -> None:
    assert parse_target(text) == recipe


def test_a_release_of_kafka_is_a_directory_with_its_jars(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="so it is no Kafka release"):
        parse_target(f"kafka:{tmp_path}")
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-4.1.0.jar").touch()
    assert parse_target(f"kafka:{tmp_path}") == KafkaRecipe(f"kafka:{tmp_path}", directory=str(tmp_path))


def test_the_nodes_of_a_kafka_cluster_know_each_other() -> None:
    settings = node_settings(2, 9002, [7001, 7002, 7003], data=Path("/d"))
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:7001,2@127.0.0.1:7002,3@127.0.0.1:7003"
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:9002,CONTROLLER://127.0.0.1:7002"
    assert settings["offsets.topic.replication.factor"] == "3"


def test_the_suite_can_be_run_and_has_a_figure_for_each_measure() -> None:
    for entry in SUITES.values():
        if entry.workload is not None:
            checked(entry.workload)
        for measure in entry.measures:
            assert (entry.purpose, measure.name) in bench_table.ASKED


def test_the_table_says_what_was_asked_and_what_failed() -> None:
    from minikafka.loadgen.comparison import row

    key = "produce 1 KB, acks=1, linger 5 ms"
    lines = bench_table.table(
        [row(key, "rate", "records/s", [200], [100])], [row(key, "rate", "records/s", [200], [None])]
    )
    assert lines[2] == (
        f"| {key}: rate, records/s | 200 | 100 | failed | 2 (2 – 2) ×, asked >= 1.2 | failed |"
    )
    assert bench_table.holds(1.2, ">= 1.2") and not bench_table.holds(1.3, "<= 1.2")
    assert bench_table.holds(9, "") and not bench_table.holds(None, "")


def test_an_argument_that_argparse_refuses_is_bad_usage() -> None:
    with pytest.raises(SystemExit) as caught:
        bench.main(["produce", "--rate", "fast"])
    assert caught.value.code == 2
    assert isinstance(bench.parser(), argparse.ArgumentParser)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("replay", "--rate"), ("replay", "--duration"), ("replay", "--records"), ("replay", "--in-flight"),
        ("consume", "--rate"), ("produce", "--consumer-property"), ("groups", "--producer-property"),
    ],
)  # fmt: skip
def test_an_option_that_would_do_nothing_is_refused(
    name: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bench.parser().parse_args([name, *(["FILE"] if name == "replay" else []), option, "1"])
    assert f"unrecognized arguments: {option} 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("produce", "(10, or what --records takes)"), ("soak", "(1h, or what --records takes)"),
        ("consume", "(each record once; else"), ("groups", "2h (10)"),
    ],
)  # fmt: skip
def test_the_help_says_how_long_a_run_is(name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main([name, "--help"])
    assert said in " ".join(capsys.readouterr().out.split())


def test_a_topic_that_is_named_is_consumed_as_it_is() -> None:
    assert workload("consume").records == 1_000_000
    assert workload("consume", "--topic", "orders").records == 0
    assert workload("consume", "--topic", "orders", "--records", "5").records == 5


def test_brokers_that_run_already_cannot_be_restarted(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["compare", "localhost:1", "mock", "--suite", "start,acks-all"]) == 2
    said = capsys.readouterr().err
    assert said == "minikafka bench: --suite start,acks-all: cannot be run with localhost:1 and mock\n"


def test_a_report_that_cannot_be_written_is_said_before_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["produce", "--json", "/nowhere/r.json"]) == 2
    assert capsys.readouterr().err == (
        "minikafka bench: --json /nowhere/r.json: there is no such directory\n"
    )


def test_a_target_that_does_not_start_loses_only_its_turn() -> None:
    broken = Contestant("broken", MinikafkaRecipe("/bin/false"))
    *turns, comparison = alternate((broken, broken), {"start": SUITES["start"]}, rounds=1, duration_s=1)
    assert [turn.problem for turn in turns if isinstance(turn, Turn)] == [
        "a broker ended with 1 while starting: it said nothing"
    ] * 2
    assert isinstance(comparison, Comparison) and not comparison.is_ok


def test_a_command_that_cannot_be_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "no-command"
    file.touch()
    assert bench.main(["start", f"minikafka:{file}"]) == 1
    assert capsys.readouterr().err == f"minikafka bench: cannot run {file}: Permission denied\n"


def test_a_made_up_topic_has_a_name_that_kafka_takes() -> None:
    named = Workload(name="2 topics @ 1kb: größer/" + "x" * 300, kind=Kind.PRODUCE, topics=2)
    for name in named.topic_names("0123abcd"):
        assert re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name)


def test_a_worker_that_is_killed_while_it_speaks_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    program = 'import os; os.write(1, b\'{"type":"rea\'); os._exit(9)'
    monkeypatch.setattr(runner, "module_command", lambda module: [sys.executable, "-c", program])
    job = ConnectJob("localhost:1", checked(Workload(name="w", kind=Kind.CONNECTIONS)), [0], 1)
    with Fleet() as fleet, pytest.raises(WorkerError, match=r"^a worker process ended with 9$"):
        fleet.launch([job])
