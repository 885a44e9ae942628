"""``minikafka cluster --brokers auto``: a broker for each core, which share what one machine has."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from minikafka.cli.cluster import command
from minikafka.cli.cluster.supervisor import ChildMember, MemberConfig
from minikafka.config.loader import configured, load
from tests.unit.cli.cluster.test_cluster import Process

GIB = 2**30


def cgroup(directory: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),  # none, as on macOS
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "250000 100000\n"}, 3),  # half of a core is worth a broker
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu.max": "6400000 100000\n"}, 8),  # a quota of more than there is
    ],
)
def test_no_more_brokers_than_affinity_and_quota_have_cores(
    files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert command.usable_cores(cgroup(tmp_path, files)) == cores


def test_memory_is_the_machines_or_the_control_groups(tmp_path: Path) -> None:
    physical = command.usable_memory(tmp_path)
    assert physical == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert command.usable_memory(cgroup(tmp_path / "max", {"memory.max": "max\n"})) == physical
    assert command.usable_memory(cgroup(tmp_path / "new", {"memory.max": "1000000\n"})) == 1_000_000
    old = cgroup(tmp_path / "old", {"memory/memory.limit_in_bytes": "2000000\n"})
    assert command.usable_memory(old) == 2_000_000


@pytest.mark.parametrize("brokers", [1, 2, 8, 64])
@pytest.mark.parametrize("memory", [2 * GIB, 8 * GIB, 64 * GIB])
def test_all_brokers_together_stay_within_half_of_the_memory(brokers: int, memory: int) -> None:
    properties = command.memory_properties(brokers, memory)
    budgets = {name: int(properties.get(name, size)) for name, size in command.BUDGETS.items()}
    assert all(command.BUDGET_MIN <= budgets[name] <= size for name, size in command.BUDGETS.items())
    at_least = command.BUDGET_MIN in budgets.values()
    assert at_least or brokers * (sum(budgets.values()) + command.BROKER_BYTES) <= memory / 2
    assert properties or brokers * (sum(command.BUDGETS.values()) + command.BROKER_BYTES) <= memory / 2


def test_the_defaults_that_are_divided_are_those_of_a_broker() -> None:
    config = load(settings=[]).config
    defaults = {
        "queued.max.request.bytes": config.queued_max_request_bytes,
        "group.max.memory.bytes": config.group_max_memory_bytes,
        "log.cleaner.dedupe.buffer.size": config.log_cleaner_dedupe_buffer_size,
    }
    assert defaults == command.BUDGETS


def test_a_broker_a_core_and_one_view_of_them_all(tmp_path: Path) -> None:
    """An auto-created topic has a partition on each broker, from whichever a client begins."""
    with Process(tmp_path, "--brokers=auto", "--http-port=off") as cluster:
        servers = cluster.bootstrap.split(",")
        assert len(servers) == command.usable_cores()
        admin = AdminClient({"bootstrap.servers": servers[-1]})
        admin.create_topics([NewTopic("orders")], operation_timeout=30)["orders"].result(30)
        partitions = admin.list_topics("orders").topics["orders"].partitions.values()
        assert sorted(each.leader for each in partitions) == list(range(1, len(servers) + 1))
        assert all(len(each.replicas) == 1 for each in partitions)
        described = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")])
        (configs,) = [future.result(30) for future in described.values()]
        assert configs["broker.rack"].value == socket.gethostname()
        ends = admin.list_offsets({TopicPartition("orders", 0): _latest()})
        assert [future.result(30).offset for future in ends.values()] == [0]


def _latest() -> object:
    from confluent_kafka.admin import OffsetSpec

    return OffsetSpec.latest()


def test_one_core_has_one_broker(tmp_path: Path) -> None:
    script = (
        "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        "from minikafka.cli.cluster.command import usable_cores; print(usable_cores())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


def configs_of(tmp_path: Path, *options: str) -> list[MemberConfig]:
    arguments = command.parser().parse_args([f"--data-dir={tmp_path}/data", *options])
    assert command.mistake_in(arguments) == ""
    return command.member_configs(arguments)


def test_what_is_set_counts_and_several_machines_keep_replicas(tmp_path: Path) -> None:
    (given, *_) = configs_of(
        tmp_path, "--brokers=auto", "--port=0", "--set=num.partitions=7", "--set=broker.rack=cellar"
    )
    assert (given.properties["num.partitions"], given.properties["broker.rack"]) == ("7", "cellar")
    assert given.properties["default.replication.factor"] == "1"
    (beside, *_) = configs_of(tmp_path, "--brokers=auto", "--port=0", "--zookeeper=127.0.0.1:2181")
    assert beside.properties["default.replication.factor"] == str(min(3, command.usable_cores()))
    (usual, *_) = configs_of(tmp_path, "--port=0")
    assert not {"num.partitions", "broker.rack", *command.BUDGETS} & usual.properties.keys()


def test_on_fewer_cores_no_records_are_left_out(tmp_path: Path) -> None:
    """A container that was given less runs all brokers that it had: topics are on each of them."""
    cores = command.usable_cores()
    for node_id in range(1, cores + 3):
        (tmp_path / "data" / f"broker-{node_id}").mkdir(parents=True)
    configs = configs_of(tmp_path, "--brokers=auto", "--port=0")
    assert [each.node_id for each in configs] == list(range(1, cores + 3))
    beside = configs_of(tmp_path, "--brokers=auto", "--port=0", "--first-id=50")
    assert len(beside) == cores


async def test_brokers_listen_where_they_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one, other) = configs_of(tmp_path, "--brokers=2", "--listen=127.0.0.1:0")
    assert one.listener == f"PLAINTEXT://127.0.0.1:{one.port}" and one.port != other.port
    (every,) = configs_of(tmp_path, "--brokers=1", "--listen=0.0.0.0:0")
    assert every.address == ("localhost", every.port)
    assert every.advertised == f"{socket.getfqdn()}:{every.port}"
    assert configured(environment={}, settings=every.settings())["listeners"].value == every.listener
    await _answers_at(every, "127.0.0.1")


async def _answers_at(config: MemberConfig, host: str) -> None:
    member = ChildMember(config)
    await member.start()
    try:
        socket.create_connection((host, config.port), timeout=10).close()
    finally:
        await member.stop()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--brokers=many"], "--brokers many: must be from 1 to 100, or auto"),
        (["--listen=localhost:x"], "--listen localhost:x: must be HOST or HOST:PORT"),
        (["--listen=localhost:65534"], "--listen 65534: must be from 0 to"),
        (["--listen=localhost", "--port=1"], "say the same thing twice"),
    ],
)
def test_bad_usage(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(options)
    assert said in capsys.readouterr().err


def test_a_host_that_is_not_this_machine_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([f"--data-dir={tmp_path}", "--listen=192.0.2.1"]) == 1
    said = capsys.readouterr().err
    assert "broker 1 cannot listen on port 9092 of 192.0.2.1: " in said and "--listen chooses others" in said
    assert command.main([f"--data-dir={tmp_path}", "--listen=no.such.host.invalid"]) == 1
    assert "--listen no.such.host.invalid: cannot be resolved" in capsys.readouterr().err
