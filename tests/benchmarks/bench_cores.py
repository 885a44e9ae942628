"""``minikafka cluster --brokers auto``: what a broker for each core brings, and what it costs.

Two ways to see it. On the cores that this machine has: one broker and one for each core, by turns, with one
producer process of ``cost_client.c`` for each broker. And beyond: 1, 2, 4 and 8 brokers that each may use a
small part of a core (a control group's quota), so that brokers and not the machine are what there is too
little of, as on a machine of eight cores; it needs the right to make control groups, and is left out with a
line without it.

Asked: the aggregate rate of n brokers at least 0.9 n times that of one under the same limit, and no more of
their CPU for a GB than 1.1 times of one's.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from minikafka.cli.cluster.command import usable_cores
from tests.benchmarks.bench_cost import build
from tests.benchmarks.broker import ROOT, cpu_seconds

SIZE = 1024
RECORDS, QUICK_RECORDS = 150_000, 40_000
"""Of each broker, without a limit."""
LIMITED_RECORDS, QUICK_LIMITED_RECORDS = 80_000, 6_000
"""With a limit. A turn lasts seconds, so that the start of eight producers is no part of it that counts."""
ROUNDS, QUICK_ROUNDS = 4, 2
LIMITED_BROKERS = (1, 2, 4, 8)
CORE_SHARE = 0.08
"""Of a core, for each broker: eight of them leave more than half of two cores to the producers."""
PERIOD_US = 20_000
CPU_GROUPS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
SETTINGS = ("linger.ms=5", "acks=1")
START_S, ADMIN_S = 60.0, 60.0
RATE_ASKED, COST_ASKED = 0.9, 1.1

Row = dict[str, Any]


class Turn(NamedTuple):
    megabytes_s: float
    core_s_a_gigabyte: float


def run(quick: bool) -> list[Row]:
    """Rates and costs of one broker and of several."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        client = build(Path(directory))
        rows += measure(Path(directory) / "all", client, (1, usable_cores()), quick=quick)
        if group_parent() is None:
            print(
                "cores: no right to make control groups: more brokers than cores are left out",
                file=sys.stderr,
            )
        else:
            rows += measure(
                Path(directory) / "limited", client, LIMITED_BROKERS, quick=quick, share=CORE_SHARE
            )
    return rows


def measure(
    directory: Path, client: Path, counts: tuple[int, ...], *, quick: bool, share: float | None = None
) -> Iterator[Row]:
    """All numbers of brokers in turns; each has its cluster only while it is its turn."""
    if share is None:
        records = QUICK_RECORDS if quick else RECORDS
    else:
        records = QUICK_LIMITED_RECORDS if quick else LIMITED_RECORDS
    turns: dict[int, list[Turn]] = {count: [] for count in counts}
    for number in range(QUICK_ROUNDS if quick else ROUNDS):
        for count in counts:
            with cluster(directory / f"{number}-{count}", count) as (bootstrap, pids), limited(pids, share):
                turns[count].append(turn(client, bootstrap, pids, records))
    one = turns[counts[0]]
    for count in counts:
        rates = [
            many.megabytes_s / single.megabytes_s for many, single in zip(turns[count], one, strict=True)
        ]
        costs = [
            many.core_s_a_gigabyte / single.core_s_a_gigabyte
            for many, single in zip(turns[count], one, strict=True)
        ]
        rate, cost = statistics.median(rates), statistics.median(costs)
        yield {
            "brokers": count,
            "of a core each": "all" if share is None else f"{share:g}",
            "MB/s": round(statistics.median(each.megabytes_s for each in turns[count]), 1),
            "rate / one": round(rate, 2),
            "low": round(min(rates), 2),
            "high": round(max(rates), 2),
            "core-s a GB": round(statistics.median(each.core_s_a_gigabyte for each in turns[count]), 2),
            "cost / one": round(cost, 2),
            "asked": "-" if share is None else f">= {RATE_ASKED * count:g}, <= {COST_ASKED}",
            "ok": True if share is None else rate >= RATE_ASKED * count and cost <= COST_ASKED,
        }


@contextlib.contextmanager
def cluster(directory: Path, count: int) -> Iterator[tuple[str, list[int]]]:
    """``minikafka cluster`` as a person starts it: its bootstrap servers, and the brokers' processes."""
    command = [
        str(ROOT / "bin" / "minikafka"), "cluster",
        f"--brokers={'auto' if count == usable_cores() else count}",
        f"--data-dir={directory}", "--port=0", "--http-port=off", "--set=default.replication.factor=1",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if line.startswith("stop it"):
                break
        found = re.search(r"bootstrap servers +(\S+)", said)
        assert found is not None, said
        yield found[1], [int(pid) for pid in re.findall(r"broker \d+ .*process (\d+)", said)]
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def limited(pids: list[int], share: float | None) -> Iterator[None]:
    """Each in a control group of its own that gives it ``share`` of a core."""
    parent = group_parent()
    if share is None or parent is None:
        yield
        return
    groups = []
    try:
        for pid in pids:
            group = parent / f"minikafka-bench-{pid}"
            group.mkdir()
            groups.append(group)
            quota = int(PERIOD_US * share)
            if (group / "cpu.max").exists():
                (group / "cpu.max").write_text(f"{quota} {PERIOD_US}")
            else:
                (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
            (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for group, pid in zip(groups, pids, strict=False):
            with contextlib.suppress(OSError):  # the process has ended, then
                (parent / "cgroup.procs").write_text(str(pid))
            group.rmdir()


def group_parent() -> Path | None:
    """Where control groups with a CPU quota can be made."""
    for parent in CPU_GROUPS:
        is_one = (parent / "cpu.cfs_quota_us").exists() or "cpu" in _controllers(parent)
        if is_one and os.access(parent, os.W_OK):
            return parent
    return None


def _controllers(parent: Path) -> list[str]:
    path = parent / "cgroup.subtree_control"
    return path.read_text().split() if path.exists() else []


def turn(client: Path, bootstrap: str, pids: list[int], records: int) -> Turn:
    """One producer process a broker, all to one topic with a partition on each: together."""
    count = len(pids)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(f"cores-{number}", count, 1) for number in (0, 1)]
    for future in admin.create_topics(topics, operation_timeout=ADMIN_S).values():
        future.result(ADMIN_S)

    def produce(topic: str, records: int) -> None:
        numbers = (count, SIZE, records, 0, 0)
        subprocess.run(
            [str(client), "produce", bootstrap, topic, *map(str, numbers), *SETTINGS],
            check=True,
            capture_output=True,
        )

    produce("cores-0", records // 10)  # connections, and what a first request loads
    before, began = sum(map(cpu_seconds, pids)), time.monotonic()
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(lambda _: produce("cores-1", records), range(count)))
    seconds, core_s = time.monotonic() - began, sum(map(cpu_seconds, pids)) - before
    gigabytes = records * count * SIZE / 1e9
    return Turn(gigabytes * 1e3 / seconds, core_s / gigabytes)


if __name__ == "__main__":
    print(json.dumps(run("--quick" in sys.argv), indent=2))
