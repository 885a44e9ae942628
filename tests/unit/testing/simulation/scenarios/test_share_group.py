"""What members of a share group may not be given or told, one violation at a time."""

from __future__ import annotations

import pytest

from minikafka.errors import InvariantError
from minikafka.testing.simulation.scenarios.share_group import (
    DELIVERIES_MAX,
    Held,
    Promises,
    Session,
    Term,
)

TERM = Term(leader=1, epoch=0, life=0)


@pytest.fixture
def promises() -> Promises:
    return Promises()


def given(promises: Promises, session: Session, now: float, *, count: int = 1, term: Term = TERM) -> None:
    """Offset 7, locked for 5 s."""
    held = Held(session, term, now + 5)
    promises.delivered(7, count, held, asked_at=now, now=now)


def acknowledged(promises: Promises, session: Session, now: float) -> None:
    others = promises.held_by_others(session, TERM, [7], now)
    promises.acknowledged(session, [7], others, now)


def test_a_lock_may_run_out(promises: Promises) -> None:
    a, b = Session("a"), Session("b")
    given(promises, a, 0)
    given(promises, b, 5, count=2)
    promises.went_on(a, 6)
    promises.went_on(b, 6)
    acknowledged(promises, b, 7)


def test_a_record_is_not_given_to_two(promises: Promises) -> None:
    a, b = Session("a"), Session("b")
    given(promises, a, 0)
    given(promises, b, 1)
    promises.went_on(b, 2)
    with pytest.raises(InvariantError, match=r"^S1: "):
        promises.went_on(a, 2)


def test_what_a_session_had_that_is_over_may_be_given_to_another(promises: Promises) -> None:
    a, b = Session("a"), Session("b")
    given(promises, a, 0)
    given(promises, b, 1)
    promises.let_go(a)
    promises.went_on(b, 2)


def test_what_was_acknowledged_does_not_come_again(promises: Promises) -> None:
    promises.settled[7] = 1
    given(promises, Session("a"), 1)  # it had been on its way
    with pytest.raises(InvariantError, match=r"^S2: "):
        given(promises, Session("a"), 2)


@pytest.mark.parametrize("others_go_on", [True, False])
def test_an_acknowledgement_of_one_who_does_not_hold_the_record_does_not_count(
    promises: Promises, others_go_on: bool
) -> None:
    a, b = Session("a"), Session("b")
    given(promises, b, 0)
    acknowledged(promises, a, 1)
    if not others_go_on:
        promises.let_go(b)  # the leader may have known before b did
        return
    with pytest.raises(InvariantError, match=r"^S5: "):
        promises.went_on(b, 2)


def test_it_counts_when_the_other_has_settled_the_record_meanwhile(promises: Promises) -> None:
    """The request was on its way for long. Below the start offset any member may acknowledge."""
    a, b = Session("a"), Session("b")
    given(promises, b, 0)
    others = promises.held_by_others(a, TERM, [7], 1)
    del promises.held[7]  # b acknowledges it
    promises.acknowledged(a, [7], others, 2)
    promises.went_on(b, 3)


@pytest.mark.parametrize(("term", "now"), [(Term(leader=2, epoch=1, life=0), 1), (TERM, 5)])
def test_it_counts_under_another_leader_and_when_the_other_lock_is_over(
    promises: Promises, term: Term, now: float
) -> None:
    a, b = Session("a"), Session("b")
    given(promises, b, 0, term=term)
    acknowledged(promises, a, now)
    promises.went_on(b, now + 1)


def test_nothing_is_delivered_too_often(promises: Promises) -> None:
    given(promises, Session("a"), 0, count=DELIVERIES_MAX)
    with pytest.raises(InvariantError, match=r"^S4: "):
        given(promises, Session("a"), 9, count=DELIVERIES_MAX + 1)


def test_each_record_is_settled_by_members(promises: Promises) -> None:
    promises.settled[0] = 1
    promises.uncertain.add(1)
    promises.delivered(2, DELIVERIES_MAX, None, asked_at=0, now=0)
    promises.check_nothing_is_lost(3)
    with pytest.raises(InvariantError, match=r"^S3: offsets \[3\]"):
        promises.check_nothing_is_lost(4)
