"""The timetable of an open loop, and recordings of real traffic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.errors import ConfigError
from minikafka.loadgen.workload import (
    Stretch,
    due_times,
    duration_s,
    parse_recording,
    record_count,
    steady,
)


def test_a_steady_rate_is_evenly_spaced() -> None:
    dues = [due for due, _ in due_times(steady(4, 1), first=0, step=1)]
    assert dues == [0, 250_000_000, 500_000_000, 750_000_000]


def test_stretches_follow_each_other() -> None:
    recording = [Stretch(1, 2, 10), Stretch(2, 0), Stretch(1, 1)]
    assert list(due_times(recording, first=0, step=1)) == [(0, 10), (500_000_000, 10), (3_000_000_000, None)]
    assert (record_count(recording), duration_s(recording)) == (3, 4)


@given(
    stretches=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 50)), max_size=5),
    producers=st.integers(1, 7),
)
def test_producers_that_share_a_schedule_send_all_of_it_once(
    stretches: list[tuple[int, int]], producers: int
) -> None:
    schedule = [Stretch(seconds, records) for seconds, records in stretches]
    whole = list(due_times(schedule, first=0, step=1))
    shared = [due for number in range(producers) for due in due_times(schedule, first=number, step=producers)]
    assert len(whole) == record_count(schedule)
    assert sorted(due for due, _ in shared) == [due for due, _ in whole]


@pytest.mark.parametrize(
    "text",
    [
        "seconds,records,bytes\n10,1000,50000\n# a comment\n5,0,0\n",
        "10,1000,50000\n5,0,0\n",
        '[[10, 1000, 50000], {"seconds": 5, "records": 0}]',
    ],
)
def test_a_recording_is_csv_or_json(text: str) -> None:
    assert parse_recording(text, name="r") == [Stretch(10, 1000, 50), Stretch(5, 0)]


def test_a_recording_can_be_replayed_faster() -> None:
    assert parse_recording("10,1000", name="r", speed=4) == [Stretch(2.5, 1000)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("1,2\n1,x\n", "r, line 2: must be seconds,records"),
        ("0,2\n", "r, line 1: seconds must be above 0"),
        ("1,2\nnan,2\n", "r, line 2: seconds must be above 0"),
        ("inf,2\n", "r, line 1: seconds must be above 0"),
        ("1,inf\n", "r, line 1: seconds must be above 0"),
        ("1,2,3,4\n", "r, line 1: "),
        ("1,0\n", "r: has no records"),
        ("", "r: has no records"),
        ("[1", "r: is no JSON"),
        ("{}", "r: must be a list"),
        ('[{"records": 1}]', "r, row 1: must be"),
        ("[7]", "r, row 1: must be"),
    ],
)
def test_a_bad_recording_is_said_with_its_row(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_recording(text, name="r")
    assert complaint in str(caught.value)
