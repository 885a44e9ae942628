"""What security costs, beside Apache Kafka and beside a broker without it.

Each ratio is the median of neighbouring turns in one run, with the interval that has the true one
with 95 %; ``ours`` and ``theirs`` are the medians of both sides, ``CPU a request`` is the ratio of what the
brokers used. On a machine with other work only ratios say something, and of the crowd nothing does. Parts,
of which ``ONLY=tls,logins`` picks some:

``tls``
    Records of 1 KB over TLS 1.3, produced (linger 5 ms) and consumed by librdkafka, beside Apache Kafka.
    Asked: as fast. The row ``cipher`` says what was agreed on.
``authorized``
    One record a request, on 1 and on 50 connections that have logged in, with 10,000 ACLs, beside a broker of
    this tree that asks nobody. Asked: 0.97 times as many requests a second.
``logins``
    Logins a second by SCRAM-SHA-512 and TLS (``logins``), beside Apache Kafka. Asked: as many.
``crowd``
    1,000 clients log in in one moment, with the right or a wrong password, with and without TLS: the longest
    that an acknowledged record of another client takes meanwhile, which is due each millisecond. Asked: no
    more than 250 ms. A crowd that another broker meets, with this one idle, says what of it is the machine's.
``open``
    A broker without security, beside that of the tree ``BASELINE=/path``, such as a worktree of an earlier
    commit: requests a second, the time of a start, resident memory 10 s later. Asked: as fast, as soon, as
    small. Both in the environment of this process: packages of others that differ are none of a broker's
    doing. Left out without ``BASELINE``.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from tests.benchmarks.broker import NO_HTTP, ROOT, cpu_seconds, resident_mb
from tests.benchmarks.logins import log_in
from tests.benchmarks.paired_produce import WORKLOADS, Load, in_turns, median_interval
from tests.benchmarks.secured_brokers import PASSWORD, USER, ApacheKafka, SecuredBroker, running
from tests.hostile.bystander import Bystander
from tests.integration.support.process import BrokerProcess

Row = dict[str, Any]

TOPIC = "bench"
RECORDS, RECORD_BYTES, TLS_ROUNDS = 500_000, 1024, 7
ACLS = 10_000
TURNS, TURN_SECONDS = 60, 0.3
LOGIN_ROUNDS, LOGIN_SECONDS, LOGIN_CLIENTS = 9, 4.0, 16
CROWD, CROWD_ROUNDS, CROWD_MS_MAX = 1_000, 7, 250
STARTS, IDLE_SECONDS, IDLE_ROUNDS = 15, 10.0, 5


def run(quick: bool) -> list[Row]:
    """Rows of ratios and of delays."""
    parts: dict[str, Callable[[bool], Iterator[Row]]] = {
        "tls": tls,
        "authorized": authorized,
        "logins": logins,
        "crowd": crowd,
        "open": open_broker,
    }
    wanted = [name for name in os.environ.get("ONLY", "").split(",") if name] or list(parts)
    if unknown := [name for name in wanted if name not in parts]:
        raise SystemExit(f"ONLY={unknown[0]}: there are {', '.join(parts)}")
    return [row for name in wanted for row in parts[name](quick)]


def ratio_row(name: str, ours: Sequence[float], theirs: Sequence[float], asked: str) -> Row:
    """``asked`` begins with ``>=`` or ``<=``."""
    ratio, low, high = median_interval([our / their for our, their in zip(ours, theirs, strict=True)])
    bound = float(asked.split()[1])
    return {
        "name": name,
        "ratio": round(ratio, 3),
        "low": round(low, 3),
        "high": round(high, 3),
        "ours": round(statistics.median(ours), 3),
        "theirs": round(statistics.median(theirs), 3),
        "asked": asked,
        "ok": ratio >= bound if asked.startswith(">=") else ratio <= bound,
    }


@contextlib.contextmanager
def beside_kafka() -> Iterator[tuple[SecuredBroker, SecuredBroker]]:
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
        running(Path(directory) / "minikafka") as ours,
        running(Path(directory) / "kafka", ApacheKafka) as theirs,
    ):
        yield ours, theirs


def client(module: str, *arguments: object) -> Any:
    """What a client in a process of its own prints last. Raises RuntimeError: it failed."""
    command = [sys.executable, "-m", f"tests.benchmarks.{module}", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{module} failed: {done.stderr}{done.stdout}")
    return json.loads(done.stdout.splitlines()[-1])


def tls(quick: bool) -> Iterator[Row]:
    records = RECORDS // (5 if quick else 1)
    rates: dict[tuple[str, SecuredBroker], list[float]] = {}

    def turn(workload: str, broker: SecuredBroker, topic: str) -> None:
        settings = json.dumps(broker.client_settings())
        measured = client(
            "produce_client", workload, broker.bootstrap("SSL"), topic,
            f"--records={records}", f"--size={RECORD_BYTES}", f"--settings={settings}",
        )  # fmt: skip
        rates.setdefault((workload, broker), []).append(records * RECORD_BYTES / measured["seconds"] / 1e6)

    with beside_kafka() as brokers:
        ours, theirs = brokers
        for number in range(
            -1, 3 if quick else TLS_ROUNDS
        ):  # the JVM warms up in the first, which is left out
            topic = f"tls-{number}"
            for each in brokers:
                each.create_topic(topic)
            for workload in ("linger", "consume"):
                for each in brokers if number % 2 else reversed(brokers):
                    turn(workload, each, topic)
            for each in brokers:
                each.admin.delete_topics([topic])[topic].result(60)
        for name, workload in (("produce", "linger"), ("consume", "consume")):
            mine, kafkas = rates[workload, ours][1:], rates[workload, theirs][1:]
            yield ratio_row(f"TLS, {name} 1 KB, MB/s / Kafka", mine, kafkas, ">= 1.0")
        yield {"cipher": "of minikafka", "agreed": ours.cipher()}
        yield {"cipher": "of Apache Kafka", "agreed": theirs.cipher()}


def authorized(quick: bool) -> Iterator[Row]:
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with (
        tempfile.TemporaryDirectory() as directory,
        running(Path(directory) / "secured", properties=properties) as secured,
        running(Path(directory) / "open") as unsecured,
    ):
        secured.create_acls(ACLS, TOPIC)
        for each in (secured, unsecured):
            each.create_topic(TOPIC)
        for workload in WORKLOADS[:2]:
            with contextlib.ExitStack() as stack:
                loads = {
                    "ours": Load(
                        secured.ports["SASL_PLAINTEXT"], secured.pid, workload, TOPIC,
                        log_in=lambda peer: log_in(peer, USER, PASSWORD),
                    ),
                    "theirs": Load(unsecured.ports["PLAINTEXT"], unsecured.pid, workload, TOPIC),
                }  # fmt: skip
                for load in loads.values():
                    stack.callback(load.close)
                yield requests_row(f"10,000 ACLs, {workload.name} / open", loads, quick=quick)


def requests_row(name: str, loads: dict[str, Load], *, quick: bool) -> Row:
    for load in loads.values():
        load.turn(1.0)  # the interpreter gets to know the code
    turns = list(in_turns(loads, times=15 if quick else TURNS, seconds=TURN_SECONDS))
    ours, theirs = ([each[side].requests_per_s for each in turns] for side in ("ours", "theirs"))
    cpu = statistics.median(each["ours"].cpu_us / each["theirs"].cpu_us for each in turns)
    return ratio_row(name, ours, theirs, ">= 0.97") | {"CPU a request": round(cpu, 3)}


def logins(quick: bool) -> Iterator[Row]:
    rates: dict[SecuredBroker, list[float]] = {}
    shares: dict[SecuredBroker, list[float]] = {}
    with beside_kafka() as brokers:
        ours, theirs = brokers
        for number in range(-1, 3 if quick else LOGIN_ROUNDS):  # the JVM warms up in the first
            for each in brokers if number % 2 else reversed(brokers):
                before = cpu_seconds(each.pid)
                done = client(
                    "logins", "rate", each.ports["SASL_SSL"], USER, PASSWORD,
                    f"--clients={LOGIN_CLIENTS}", f"--seconds={LOGIN_SECONDS}", f"--ca={each.ca}",
                )  # fmt: skip
                if done["refused"]:
                    raise RuntimeError(f"{done['refused']} logins were refused")
                rates.setdefault(each, []).append(done["let_in"] / done["seconds"])
                shares.setdefault(each, []).append((cpu_seconds(each.pid) - before) / done["let_in"] * 1000)
    yield ratio_row(
        "SCRAM-SHA-512 and TLS, logins a second / Kafka", rates[ours][1:], rates[theirs][1:], ">= 1.0"
    )
    yield {
        "name": "CPU of the broker for a login, ms",
        "ours": round(statistics.median(shares[ours][1:]), 2),
        "theirs": round(statistics.median(shares[theirs][1:]), 2),
    }


def crowd(quick: bool) -> Iterator[Row]:
    with (
        tempfile.TemporaryDirectory() as directory,
        running(Path(directory) / "one") as broker,
        running(Path(directory) / "other") as other,
    ):
        for protocol in ("SASL_SSL", "SASL_PLAINTEXT"):
            for name, password, meets in (
                ("right", PASSWORD, broker),
                ("wrong", "wrong", broker),
                ("right, of another broker", PASSWORD, other),
            ):
                worst, seconds = [], []
                for _ in range(2 if quick else CROWD_ROUNDS):
                    arguments = [f"--clients={CROWD}"]
                    if protocol == "SASL_SSL":
                        arguments.append(f"--ca={meets.ca}")
                    with Bystander(broker.process) as bystander:
                        done = client("logins", "crowd", meets.ports[protocol], USER, password, *arguments)
                    if done["let_in" if password == PASSWORD else "refused"] != CROWD:
                        raise RuntimeError(f"what became of the logins: {done}")
                    worst.append(bystander.report.worst_ms)
                    seconds.append(done["seconds"])
                delay = statistics.median(worst)
                is_ours = meets is broker
                yield {
                    "1,000 log in at once": f"{protocol}, password {name}",
                    "longest delay, ms": delay,
                    "least": min(worst),
                    "most": max(worst),
                    "logged in after, s": round(statistics.median(seconds), 2),
                    "asked": f"<= {CROWD_MS_MAX}" if is_ours else "-",
                    "ok": delay <= CROWD_MS_MAX if is_ours else "-",
                }


def open_broker(quick: bool) -> Iterator[Row]:
    baseline = os.environ.get("BASELINE")
    if not baseline:
        print("security: without BASELINE=/path/to/other/tree the part 'open' is left out", file=sys.stderr)
        return
    trees = {"ours": ROOT, "theirs": Path(baseline).resolve()}
    commands = {
        side: ["env", f"PYTHONPATH={tree}", sys.executable, "-P", "-m", "minikafka.cli.broker", NO_HTTP]
        for side, tree in trees.items()
    }
    yield from beside_baseline(commands, quick=quick)
    yield starts(commands, 3 if quick else STARTS)
    yield memory(commands, 1 if quick else IDLE_ROUNDS)


@contextlib.contextmanager
def both(commands: dict[str, list[str]]) -> Iterator[dict[str, BrokerProcess]]:
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        brokers = {}
        for side, command in commands.items():
            brokers[side] = broker = BrokerProcess(Path(directory) / side, command=command)
            broker.start()
            stack.callback(broker.kill)
        yield brokers


def beside_baseline(commands: dict[str, list[str]], *, quick: bool) -> Iterator[Row]:
    with both(commands) as brokers:
        for broker in brokers.values():
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)
        for workload in WORKLOADS[:2]:
            loads = {side: Load(each.port, each.pid, workload, TOPIC) for side, each in brokers.items()}
            yield requests_row(f"open, {workload.name} / baseline", loads, quick=quick)
            for load in loads.values():
                load.close()


def starts(commands: dict[str, list[str]], count: int) -> Row:
    seconds: dict[str, list[float]] = {side: [] for side in commands}
    for number in range(-1, count):  # the first one keeps the byte code, and does not count
        for side in commands if number % 2 else reversed(commands):
            with tempfile.TemporaryDirectory() as directory:
                broker = BrokerProcess(Path(directory) / "data", command=commands[side])
                began = time.perf_counter()
                broker.start()
                if number >= 0:
                    seconds[side].append(time.perf_counter() - began)
                broker.kill()
    return ratio_row("open, start to first ApiVersions, s / baseline", *seconds.values(), "<= 1.03")


def memory(commands: dict[str, list[str]], rounds: int) -> Row:
    resident: dict[str, list[float]] = {side: [] for side in commands}
    for _ in range(rounds):
        with both(commands) as brokers:
            time.sleep(IDLE_SECONDS)
            for side, broker in brokers.items():
                resident[side].append(resident_mb(broker.pid))
    return ratio_row("open, resident after 10 s, MB / baseline", *resident.values(), "<= 1.03")
