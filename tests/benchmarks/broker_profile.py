"""``bin/bench profile [WORKLOAD ...]``: where a broker under load spends its CPU, kept in ``profiles/``.

A fresh broker is loaded by ``minikafka bench`` and meanwhile sampled by py-spy, native functions included.
The workloads are those of ``minikafka bench compare`` of the same names. What the profiles show is in
``profiles/README.md``; the profiles before and after a change are in the file's history.

Shares say where to look, not how fast it is: to take a sample py-spy stops the broker for a moment, and time
in the kernel counts for the system call. ``bin/bench table`` has the speed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from tests.benchmarks import folded_stacks
from tests.benchmarks.broker import ROOT, cpu_seconds, running_broker
from tests.integration.support.process import BrokerProcess

PROFILES = Path(__file__).resolve().parent / "profiles"

SECONDS = 15
SAMPLES_PER_S = 200
LOAD_SECONDS = SECONDS + 8
"""py-spy takes a moment to read the symbols of all libraries."""
WARM_CPU_S = 1.0
"""What the broker uses before the first sample: its imports are done, its connections there."""
ROWS = 25

TOPIC = "profiled"
KEEP_LITTLE = {
    "log.segment.bytes": 1 << 30,
    "log.retention.bytes": 1 << 30,
    "log.retention.check.interval.ms": 1000,
    "log.segment.delete.delay.ms": 0,
}
"""Kafka's segments, but not all of the 10 GB that a run produces."""


class Load(NamedTuple):
    """Arguments of ``minikafka bench``."""

    purpose: str
    arguments: str
    before: str = ""
    """What fills the topic that is read."""
    partitions: int = 1


LOADS = {
    "produce-1k": Load(
        "produce 1 KB, acks=1, linger 5 ms", "produce --record-size 1024 --acks 1 --linger-ms 5"
    ),
    "produce-100": Load(
        "produce 100 B, acks=1, linger 5 ms", "produce --record-size 100 --acks 1 --linger-ms 5"
    ),
    "produce-lz4": Load(
        "produce 1 KB by lz4, half of it repeated",
        "produce --record-size 1024 --acks 1 --linger-ms 5 --compression lz4 --compressibility 0.5",
    ),
    "produce-zstd": Load(
        "produce 1 KB by zstd, most of it repeated",
        "produce --record-size 1024 --acks 1 --linger-ms 5 --compression zstd --compressibility 0.95",
    ),
    "requests-1": Load("one record a request, 1 connection", "requests --record-size 100 --acks 1"),
    "consume-1k": Load(
        "consume 1 KB, warm",
        "consume",
        before="produce --record-size 1024 --acks 1 --linger-ms 5 --records 640000",
        partitions=4,
    ),
}


class CannotProfile(Exception):
    """Why there is no profile, in one line."""


def main(argv: Sequence[str], machine: Mapping[str, Any]) -> int:
    """Take the profiles; ``machine`` is what they depend on. Returns the exit status: 1 when one failed."""
    options = argparse.ArgumentParser(
        prog="bin/bench profile", description=(__doc__ or "").partition("\n\n")[2]
    )
    options.add_argument("names", nargs="*", metavar="WORKLOAD", help=f"{', '.join(LOADS)}; all unless given")
    names = options.parse_args(argv).names
    if unknown := [name for name in names if name not in LOADS]:
        options.error(f"there is no workload {unknown[0]}; there are {', '.join(LOADS)}")
    PROFILES.mkdir(exist_ok=True)
    for name in names or LOADS:
        try:
            text = taken(LOADS[name], machine)
        except CannotProfile as error:
            print(f"bin/bench profile: {name}: {error}", file=sys.stderr)
            return 1
        path = PROFILES / f"{name}.txt"
        path.write_text(text)
        print(f"{text}\nkept in {path.relative_to(ROOT)}\n", flush=True)
    return 0


def taken(load: Load, machine: Mapping[str, Any]) -> str:
    """The text of one profile. Raises CannotProfile."""
    py_spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if py_spy is None:
        raise CannotProfile("needs py-spy: pip install py-spy")
    with (
        tempfile.TemporaryDirectory() as directory,
        running_broker(Path(directory), properties=KEEP_LITTLE) as broker,
    ):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
        admin.create_topics([NewTopic(TOPIC, load.partitions, 1)])[TOPIC].result(60)
        if load.before:
            finished(bench(load.before, broker))
        arguments = f"{load.arguments} --duration {LOAD_SECONDS}"
        running = bench(arguments, broker)
        try:
            wait_until_warm(broker, running)
            stacks = sampled(py_spy, broker, Path(directory) / "stacks.txt")
            said = finished(running)
        finally:
            running.kill()
            running.wait()
    return written(load, arguments, said, folded_stacks.profile(stacks), machine)


def bench(arguments: str, broker: BrokerProcess) -> subprocess.Popen[str]:
    """``minikafka bench``, which has begun."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "minikafka.cli.main", "bench", *arguments.split()),
            *("--target", broker.bootstrap, "--topic", TOPIC),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(load: subprocess.Popen[str]) -> str:
    """What it says when it is over. Raises CannotProfile: it failed."""
    said, _ = load.communicate()
    if load.returncode:
        raise CannotProfile(f"the load failed: {said.strip()}")
    return said


def wait_until_warm(broker: BrokerProcess, load: subprocess.Popen[str]) -> None:
    """Until the broker has worked on this load for a while. Raises CannotProfile: the load ended before."""
    before = cpu_seconds(broker.pid)
    while cpu_seconds(broker.pid) < before + WARM_CPU_S:
        if load.poll() is not None:
            raise CannotProfile(f"the load ended before the broker was warm: {finished(load).strip()}")
        time.sleep(0.05)


def sampled(py_spy: str, broker: BrokerProcess, target: Path) -> str:
    """Folded stacks of the broker's process. Raises CannotProfile: py-spy may not attach, or has nothing."""
    command = [
        py_spy,
        "record",
        "--native",
        "--format",
        "raw",
        "--output",
        str(target),
        "--pid",
        str(broker.pid),
    ]
    limits = ["--rate", str(SAMPLES_PER_S), "--duration", str(SECONDS)]
    done = subprocess.run([*command, *limits], capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join((done.stdout + done.stderr).split())
        if "permission" in said.lower():
            raise CannotProfile(
                "py-spy may not attach to the broker: run this as root, or set kernel.yama.ptrace_scope to 0,"
                " or give the container CAP_SYS_PTRACE"
            )
        raise CannotProfile(f"py-spy failed: {said}")
    return target.read_text()


def written(
    load: Load, arguments: str, said: str, profile: folded_stacks.Profile, machine: Mapping[str, Any]
) -> str:
    """The profile with what it depends on."""
    rate = next(line for line in said.splitlines() if " records/sec " in line)
    facts = {
        "date": machine["date"],
        "commit": machine["commit"],
        "machine": f"{machine['cpu']}, {machine['cpus']} CPUs, {machine['system']}",
        "Python": machine["python"],
        "command": f"minikafka bench {arguments}",
        "before it": load.before and f"minikafka bench {load.before}",
        "it said": rate,
        "samples": f"{profile.busy:,} of threads at work; {profile.waiting:,} of waiting ones are left out",
    }
    own = [share for share in profile.shares if "(minikafka/" in share.function]
    lines = [
        load.purpose,
        "",
        *(
            textwrap.fill(value, 110, initial_indent=f"{name:11}", subsequent_indent=" " * 11)
            for name, value in facts.items()
            if value
        ),
        "",
        "By what each function does itself:",
        *folded_stacks.table(profile.shares, rows=ROWS, by="itself"),
        "",
        "minikafka's own, by what they do and call:",
        *folded_stacks.table(own, rows=ROWS, by="inclusive"),
    ]
    return "\n".join(lines) + "\n"
