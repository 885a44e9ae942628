"""The stories of ``minikafka tour``: what each picture has to show, for what the words beside it say."""

from __future__ import annotations

from functools import cache

import pytest

from docs.generator import tour
from minikafka.cli.tour import BY_NAME, STORIES
from minikafka.cli.tour.stage import Log, Step, tell


@cache
def told(name: str) -> tuple[Step, ...]:
    """All steps of a story."""
    steps: list[Step] = []
    tell(BY_NAME[name], steps.append)
    return tuple(steps)


def log(step: Step, broker: int) -> Log:
    found = step.picture.replica(broker).log
    assert found is not None, f"broker {broker} has no log in {step.title!r}"
    return found


def records(step: Step, broker: int) -> list[str]:
    """The values in a log, in the order of their offsets, which begin at 0."""
    cells = log(step, broker).cells or ()
    assert [each.offset for each in cells] == list(range(len(cells)))
    return [each.text for each in cells]


def ends(step: Step, *brokers: int) -> list[tuple[int, int]]:
    """High watermark and log end of each."""
    return [(log(step, each).high_watermark, log(step, each).end) for each in brokers]


def isr(step: Step) -> tuple[int, ...]:
    return step.picture.partitions[0].state.isr


def parked(step: Step, kind: str) -> list[int]:
    """The brokers at which such requests wait."""
    return [each.broker for each in step.picture.waiting if each.what.startswith(kind)]


@pytest.mark.parametrize("name", [each.name for each in STORIES])
def test_each_story_has_steps_in_order_with_a_picture_of_every_replica(name: str) -> None:
    steps = told(name)
    assert [each.number for each in steps] == list(range(1, len(steps) + 1))
    assert len(steps) >= 4
    times = [each.picture.at_ms for each in steps]
    assert times == sorted(times) and times[0] == 0
    for step in steps:
        assert step.title and step.text
        for partition in step.picture.partitions:
            shown = {each.broker for each in partition.replicas}
            assert shown >= set(partition.assignment.replicas)


def test_a_story_is_the_same_whenever_it_is_told() -> None:
    again: list[Step] = []
    tell(BY_NAME["acks-all"], again.append)
    assert tuple(again) == told("acks-all")


def test_the_page_in_the_docs_has_what_is_told() -> None:
    page = tour.tour({each: told(each.name) for each in STORIES})
    assert tour.PATH.read_text(encoding="utf-8") == page, "run: python -m docs.generator.tour"


def test_acks_all_is_parked_from_the_append_to_the_last_fetch_of_the_isr() -> None:
    _, first, appended, copied, half, answered, refused = told("acks-all")
    assert parked(first, "DelayedFetch") == [1, 1]
    assert ends(appended, 1, 2, 3) == [(1, 2), (0, 1), (0, 1)]
    assert ends(copied, 1, 2, 3) == [(1, 2), (1, 2), (1, 2)], "all have it, and it is not committed"
    assert half.picture.replica(1).progress == ((2, 2), (3, 1))
    assert ends(half, 1) == [(1, 2)]
    for step in (appended, copied, half):
        assert parked(step, "DelayedProduce") == [1]
    assert ends(answered, 1, 2, 3) == [(2, 2), (1, 2), (1, 2)], "the followers learn the HW later"
    assert parked(answered, "DelayedProduce") == [] and answered.facts
    assert "NOT_ENOUGH_REPLICAS" in refused.facts[0]
    assert isr(refused) == (1,) and ends(refused, 1) == [(2, 2)]
    assert [refused.picture.replica(each).role for each in (2, 3)] == ["down", "down"]
    assert records(refused, 2) == ["m0", "m1"], "what lies on the disk of a broker that is down"


def test_a_lagging_follower_holds_the_high_watermark_until_it_leaves_the_isr() -> None:
    whole, cut, shrunk, on, back, joined = told("lagging-follower")
    assert ends(whole, 1, 2, 3) == [(2, 2)] * 3
    assert ends(cut, 1, 2, 3) == [(2, 4), (2, 4), (2, 2)] and isr(cut) == (1, 2, 3)
    assert isr(shrunk) == (1, 2) and ends(shrunk, 1, 3) == [(4, 4), (2, 2)]
    assert shrunk.picture.at_ms - cut.picture.at_ms > 3_000
    assert ends(on, 1, 3) == [(6, 6), (2, 2)]
    assert ends(back, 3) == [(6, 6)] and isr(back) == (1, 2)
    assert isr(joined) == (1, 2, 3) and ends(joined, 1, 2, 3) == [(6, 6)] * 3


def supposed(step: Step, broker: int) -> Log:
    """A log of what would have been."""
    (supposition,) = step.suppositions
    assert "not run" in supposition.title
    (found,) = [each.log for each in supposition.replicas if each.broker == broker]
    assert found is not None
    return found


def test_truncating_to_the_high_watermark_would_lose_what_epochs_keep() -> None:
    committed, warned, elected, back = told("lost-record")
    assert ends(committed, 1, 2) == [(2, 2), (1, 2)] and "offset 1" in committed.facts[0]
    assert ends(warned, 2) == [(1, 2)] and log(warned, 2).end == 2
    cut = supposed(warned, 2)
    assert [each.text for each in cut.cells or ()] == ["m0"] and (cut.high_watermark, cut.end) == (1, 1)
    assert elected.picture.partitions[0].state.leader == 2
    assert records(elected, 2) == ["m0", "m1"] and supposed(elected, 2).end == 1
    for broker in (1, 2, 3):
        assert records(back, broker) == ["m0", "m1", "m2"]


def test_logs_with_different_records_at_one_offset_become_the_same_by_epochs() -> None:
    committed, dark, _, both, same = told("diverged-logs")
    assert ends(committed, 1, 2) == [(2, 2)] * 2
    assert dark.picture.down == (1, 2)
    assert (records(dark, 1), records(dark, 2)) == (["m0", "m1"], ["m0"]), "as the power cut left them"
    assert (records(both, 1), records(both, 2)) == (["m0", "m1"], ["m0", "m2"])
    assert ends(both, 1, 2) == [(2, 2)] * 2, "by HW and LEO nothing is wrong"
    assert supposed(both, 1) == log(both, 1), "so cutting to the HW would cut nothing"
    assert records(same, 1) == records(same, 2) == ["m0", "m2"]
    assert log(same, 1).spans == log(same, 2).spans


def test_the_preferred_replica_leads_again_when_it_is_in_sync_and_not_before() -> None:
    steps = told("preferred-election")
    leaders = [step.picture.partitions[0].state.leader for step in steps]
    assert leaders == [1, 2, 2, 2, 1, 1]
    _, _, refused, whole, elected, after = steps
    assert "PREFERRED_LEADER_NOT_AVAILABLE" in refused.facts[0]
    assert 1 not in isr(refused) and log(refused, 1).end < log(refused, 2).end
    assert set(isr(whole)) == {1, 2, 3}
    assert elected.facts[0].endswith("NONE")
    assert len(log(after, 3).spans) == 3 and log(after, 3) == log(after, 1)


def test_a_reassignment_outlives_the_controller_that_began_it() -> None:
    before, begun, dead, copied, resumed, done = told("controller-failover")
    assert before.picture.controller == 4 and before.picture.partitions[0].assignment.adding == ()
    for step in (begun, dead, copied, resumed):
        assignment = step.picture.partitions[0].assignment
        assert (assignment.adding, assignment.removing) == ((5,), (1,))
    assert log(begun, 5).end == 3 and log(dead, 5).end == 5 and 4 in dead.picture.down
    assert log(copied, 5).end == log(copied, 1).end and set(isr(copied)) == {1, 2, 3}
    assert resumed.picture.controller not in (None, 4)
    assert resumed.picture.controller_epoch == before.picture.controller_epoch + 1
    assert resumed.picture.partitions[0].state.leader == 5 and 1 not in isr(resumed)
    last = done.picture.partitions[0]
    assert last.assignment.replicas == (5, 2, 3) and last.assignment.adding == ()
    assert [each.broker for each in last.replicas] == [2, 3, 5], "broker 1 has no replica any more"


def test_a_throttled_move_keeps_the_rate_and_a_higher_one_when_it_is_raised() -> None:
    full, throttled, copying, raised, moved, tidy = told("throttled-move")
    assert "about 1 min 40 s at 2.00 MB/s" in full.facts[0]
    assert len(throttled.facts) == 6
    size = log(full, 1).size_bytes
    assert size > 199_000_000
    for step, (least, most) in ((copying, (36e6, 44e6)), (raised, (130e6, 165e6))):
        assert least < log(step, 3).size_bytes < most, step.title
    assert copying.facts[0] == "in the last 10 s: 20.0 MB, 2.00 MB/s"
    assert float(raised.facts[0].split()[-2]) == pytest.approx(5, rel=0.1)
    assert moved.picture.partitions[0].assignment.replicas == (3,)
    assert [each.broker for each in moved.picture.partitions[0].replicas] == [3]
    assert log(moved, 3).size_bytes > size and len(moved.facts) == 7
    assert tidy.facts == ("throttles that are set: none",)


def test_a_zombie_is_fenced_and_each_order_is_paid_once() -> None:
    opened, aborted, committed, fenced = told("zombie")

    def payments(step: Step) -> Log:
        found = step.picture.replica(1, "payments-0").log
        assert found is not None
        return found

    def texts(step: Step) -> list[str]:
        return [each.text for each in payments(step).cells or ()]

    assert texts(opened) == ["pay 7"]
    assert (payments(opened).high_watermark, payments(opened).stable) == (1, 0)
    assert texts(aborted) == ["pay 7", "ABORT"] and payments(aborted).stable == 2
    assert opened.facts[0].endswith(" 0/0") and aborted.facts[0] != "second instance: producer id/epoch 0/0"
    assert texts(committed) == texts(fenced) == ["pay 7", "ABORT", "pay 7", "COMMIT"]
    assert "a consumer of payments with read_committed has read: nothing" in aborted.facts
    assert "a consumer of payments with read_uncommitted has read: pay 7, pay 7" in fenced.facts
    assert "a consumer of payments with read_committed has read: pay 7" in fenced.facts
    assert "the group billing reads orders on at 1" in committed.facts
    assert fenced.facts[0].endswith("INVALID_PRODUCER_EPOCH")
    assert fenced.facts[1].split()[-1] in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
