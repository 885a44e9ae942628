"""``bin/bench profile``: from py-spy's samples to shares, and what it says where there can be none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import __main__ as bench
from tests.benchmarks import broker_profile, folded_stacks
from tests.benchmarks.folded_stacks import Share
from tests.integration.support.process import BrokerProcess

LOOP = "main (minikafka/cli/broker.py:88);uv_run (core.c:464)"
SERVE = f"{LOOP};Connection._serve (minikafka/network/connection.py:276)"
APPEND = f"{SERVE};UnifiedLog.append (minikafka/log/unified_log.py:125)"
GROW = f"{SERVE};UnifiedLog.append (minikafka/log/unified_log.py:131)"
STACKS = f"""\
{APPEND};pwritev64v2 (libc.so.6) 30
{APPEND};pwritev64v2 (libc.so.6);0x7f5897c9af16 (libc.so.6) 10
{APPEND} 8
{GROW};0x7f5 (libc.so.6);realloc (libc.so.6);0x7f6 (libc.so.6) 2
{SERVE};walk (minikafka/a.py:7);walk (minikafka/a.py:9);walk (minikafka/a.py:7) 40
0x7f5897d1e8ec (libc.so.6);0x7f5897c9e1f5 (libm.so.6) 10
{LOOP};epoll_pwait (libc.so.6) 65
_worker (concurrent/futures/thread.py:81);PyThread_acquire_lock_timed (libpython.so);0x7f5 (libc.so.6) 35
"""


def shares_by_name(profile: folded_stacks.Profile) -> dict[str, Share]:
    return {share.function: share for share in profile.shares}


def test_samples_become_shares_of_the_time_at_work() -> None:
    profile = folded_stacks.profile(STACKS)
    assert (profile.busy, profile.waiting) == (100, 100)
    shares = shares_by_name(profile)
    assert shares["pwritev64v2 (libc.so.6)"][1:] == (0.4, 0.4)
    assert shares["UnifiedLog.append (minikafka/log/unified_log.py)"][1:] == (0.08, 0.5)  # both of its lines
    assert shares["main (minikafka/cli/broker.py)"][1:] == (0, 0.9)
    assert sum(share.itself for share in profile.shares) == pytest.approx(1)


def test_what_has_no_symbol_counts_for_its_caller() -> None:
    shares = shares_by_name(folded_stacks.profile(STACKS))
    assert shares["realloc (libc.so.6)"][1:] == (0.02, 0.02)
    assert shares["(no symbol) (libm.so.6)"][1:] == (0.1, 0.1)  # there is no caller with a name
    assert not [name for name in shares if "0x" in name]


def test_a_function_that_calls_itself_is_in_a_sample_once() -> None:
    assert shares_by_name(folded_stacks.profile(STACKS))["walk (minikafka/a.py)"][1:] == (0.4, 0.4)


def test_threads_that_wait_are_no_work() -> None:
    names = shares_by_name(folded_stacks.profile(STACKS))
    assert not [name for name in names if name.startswith(("epoll_pwait", "_worker", "PyThread"))]
    nothing = folded_stacks.profile(f"{LOOP};epoll_pwait (libc.so.6) 3\n")
    assert nothing == ([], 0, 3)


@pytest.mark.parametrize("line", ["main (a.py:1)", "main (a.py:1) many", "7"])
def test_what_is_no_folded_stack_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="no folded stack"):
        folded_stacks.profile(f"{STACKS}{line}\n")


def test_a_table_has_the_largest_first() -> None:
    shares = [
        Share("b (b.py)", 0.25, 0.3),
        Share("a (a.py)", 0.25, 0.25),
        Share("small (a.py)", 0.0004, 0.0004),
        Share("outer (a.py)", 0.0, 1.0),
        Share("c (c.py)", 0.5, 0.5),
    ]
    assert folded_stacks.table(shares, rows=3, by="itself") == [
        " itself  inclusive  function",
        " 50.0 %     50.0 %  c (c.py)",
        " 25.0 %     25.0 %  a (a.py)",
        " 25.0 %     30.0 %  b (b.py)",
    ]
    assert [line[20:] for line in folded_stacks.table(shares, rows=9, by="inclusive")] == [
        "function",
        "outer (a.py)",
        "c (c.py)",
        "b (b.py)",
        "a (a.py)",
    ]


MACHINE = {
    "date": "2026-11-22T17:00:00+00:00",
    "commit": "a685261",
    "cpu": "CPU",
    "cpus": 2,
    "system": "Linux",
    "python": "CPython 3.11.7",
}


def test_a_profile_says_what_it_is_of() -> None:
    said = "run 1 s | produce 5\nproduce: 9 records, 3.0 records/sec (1 MB/sec)\nrun: offsets advanced\n"
    load = broker_profile.Load("produce a little", "produce", before="produce --records 7")
    text = broker_profile.written(load, "produce --duration 3", said, folded_stacks.profile(STACKS), MACHINE)
    assert text.startswith("produce a little\n\ndate       2026-11-22T17:00:00+00:00\ncommit     a685261\n")
    assert "command    minikafka bench produce --duration 3\n" in text
    assert "before it  minikafka bench produce --records 7\n" in text
    assert "it said    produce: 9 records, 3.0 records/sec (1 MB/sec)\n" in text
    assert "samples    100 of threads at work; 100 of waiting ones are left out\n" in text
    by_itself, _, own = text.partition("minikafka's own")
    assert " 40.0 %     40.0 %  pwritev64v2 (libc.so.6)\n" in by_itself
    assert "  8.0 %     50.0 %  UnifiedLog.append (minikafka/log/unified_log.py)\n" in own
    assert "pwritev64v2" not in own


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (
            "echo 'Error: Permission Denied: Try again' >&2; exit 1",
            "may not attach to the broker: run this as root",
        ),
        ("echo 'Error: no such\nprocess' >&2; exit 1", "py-spy failed: Error: no such process"),
    ],
)
def test_a_py_spy_that_fails_is_one_line(tmp_path: Path, script: str, why: str) -> None:
    py_spy = tmp_path / "py-spy"
    py_spy.write_text(f"#!/bin/sh\n{script}\n")
    py_spy.chmod(0o755)

    class Broker(BrokerProcess):
        pid = 1

    with pytest.raises(broker_profile.CannotProfile, match=why) as caught:
        broker_profile.sampled(str(py_spy), Broker(tmp_path), tmp_path / "stacks.txt")
    assert "\n" not in str(caught.value)


def test_profiles_are_none_of_the_benchmarks(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--list"]) == 0
    listed = capsys.readouterr().out.split()
    assert "table" in listed
    assert "profile" not in listed
    with pytest.raises(SystemExit) as exited:
        bench.main(["profile", "dancing"])
    assert exited.value.code == 2
    assert "there is no workload dancing; there are produce-1k" in capsys.readouterr().err
