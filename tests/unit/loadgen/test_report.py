"""What is made of the intervals of many workers: flows, checks, lines."""

from __future__ import annotations

from minikafka.loadgen.messages import Interval, Latencies, Recorder, encoded, report_decoder
from minikafka.loadgen.report import Check, FlowBuilder, Result, advance, consumed, produced

SECOND = 10**9


def latencies(*values_us: int) -> str:
    counted = Latencies()
    for value in values_us:
        counted.add(value)
    return counted.encoded()


def test_a_flow_is_the_sum_of_its_workers() -> None:
    builder = FlowBuilder("produce")
    for worker in (0, 1):
        for second in range(1, 4):
            builder.add(
                Interval(
                    "produce",
                    second * SECOND - 1,
                    records=100,
                    bytes=100_000,
                    measured_records=0 if second == 1 else 100,
                    measured_bytes=0 if second == 1 else 100_000,
                    first_ns=0 if second == 1 else SECOND,
                    last_ns=0 if second == 1 else second * SECOND,
                    histogram="" if second == 1 else latencies(*[1000 + worker] * 100),
                )
            )
    flow = builder.build(0)
    assert (flow.records, flow.bytes, flow.failed) == (600, 600_000, 0)
    assert (flow.seconds, flow.records_per_s, flow.mb_per_s) == (2.0, 200.0, 0.2)
    assert [point.records for point in flow.points] == [200, 200, 200]
    assert flow.latency is not None and flow.latency.count == 400
    assert flow.text().startswith(
        "produce: 600 records, 200.0 records/sec (0.20 MB/sec), 1.00 ms avg latency"
    )
    assert flow.text().endswith("1.00 ms 99.99th.")


def test_a_recorder_counts_the_warm_up_and_does_not_measure_it() -> None:
    recorder = Recorder("produce", measured_from_ns=5 * SECOND)
    recorder.count(began_ns=4 * SECOND, now_ns=9 * SECOND, size=10)
    recorder.count(began_ns=6 * SECOND, now_ns=7 * SECOND, size=10)
    recorder.fail()
    interval = recorder.take(8 * SECOND)
    assert (interval.records, interval.measured_records, interval.failed) == (2, 1, 1)
    assert (interval.first_ns, interval.last_ns) == (6 * SECOND, 7 * SECOND)
    assert interval.histogram == latencies(1_000_000)
    assert recorder.take(9 * SECOND).records == 0
    assert report_decoder.decode(encoded(interval)) == interval


def test_a_throughput_is_what_ended_in_the_time_measured() -> None:
    recorder = Recorder("produce", measured_from_ns=5 * SECOND, is_by_end=True)
    recorder.count(began_ns=1 * SECOND, now_ns=4 * SECOND, size=10, records=100)
    recorder.count(began_ns=4 * SECOND, now_ns=6 * SECOND, size=10, records=100)
    recorder.count(began_ns=6 * SECOND, now_ns=7 * SECOND, size=10, records=100)
    interval = recorder.take(8 * SECOND)
    assert (interval.records, interval.measured_records) == (300, 200)
    assert (interval.first_ns, interval.last_ns) == (5 * SECOND, 7 * SECOND)


def test_acknowledged_records_are_offsets() -> None:
    before, after = {"t": [5, 0]}, {"t": [7, 3]}
    assert advance(before, after) == 5
    assert produced("run", acked=5, unknown=0, before=before, after=after).holds
    assert not produced("run", acked=6, unknown=0, before=before, after=after).holds, "lost"
    assert not produced("run", acked=4, unknown=0, before=before, after=after).holds, "another client's"
    assert produced("run", acked=3, unknown=2, before=before, after=after).holds
    assert not produced("run", acked=2, unknown=2, before=before, after=after).holds
    assert not produced("run", acked=6, unknown=2, before=before, after=after).holds, "acked and lost"


def result(*, checks: list[Check], problems: list[str]) -> Result:
    return Result(
        workload="w",
        target="t",
        started_at="",
        seconds=1,
        settings={},
        flows=[],
        checks=checks,
        problems=problems,
        usage=None,
        facts={"seconds to create topics": 0.25},
    )


def test_a_result_is_well_when_all_counts_agree() -> None:
    good, bad = consumed(expected=3, seen=3), consumed(expected=3, seen=2)
    assert result(checks=[good], problems=[]).is_ok
    compacted = consumed(expected=3, seen=2, compacted=["prices"])
    assert compacted.text().startswith("records consumed, at most one an offset: 2, not reconciled with 3: ")
    assert result(checks=[compacted], problems=[]).is_ok
    assert not consumed(expected=3, seen=4, compacted=["prices"]).holds
    assert not result(checks=[good, bad], problems=[]).is_ok
    failed = result(checks=[bad], problems=["it died"])
    assert not failed.is_ok
    assert failed.lines() == [
        "seconds to create topics: 0.25",
        "records consumed = records expected: 2 DIFFERS from 3",
        "problem: it died",
    ]
