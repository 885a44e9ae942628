"""Why a client cannot log in, is denied, refused or slowed down: from what brokers remember to reasons."""

from __future__ import annotations

import pytest

from minikafka.cli.why.client import ClientFacts, Who, answer_of
from tests.unit.cli.why.test_partition import parses
from tests.unit.cli.why.test_produce import refusal

LOGIN = refusal(
    kind="login",
    about="SASL",
    error="SASL_AUTHENTICATION_FAILED",
    message="Invalid password of user alice, or no such user",
    user="",
    client_id="",
    last_ms_ago=1_000,
)
DENIED = refusal(
    kind="authorization",
    about="READ Topic:secret",
    error="Fetch",
    message="DefaultDeny",
    user="User:bob",
    client_id="report",
    last_ms_ago=2_000,
)
REFUSED = refusal(last_ms_ago=3_000)


def codes(**who: str) -> list[str]:
    facts = ClientFacts(who=Who(**who), refusals=[LOGIN, DENIED, REFUSED])
    return [reason.code for reason in answer_of(facts).reasons]


@pytest.mark.parametrize(
    ("who", "expected"),
    [
        ({}, ["client.login", "client.denied", "client.refused"]),
        ({"user": "alice"}, ["client.login"]),
        ({"user": "User:bob"}, ["client.denied"]),
        ({"user": "ali"}, []),
        ({"client_id": "loader", "user": "ANONYMOUS"}, ["client.refused"]),
        ({"host": "10.0.0.8"}, []),
    ],
)
def test_what_concerns_a_client(who: dict[str, str], expected: list[str]) -> None:
    assert codes(**who) == expected


def test_what_was_last_is_the_answer() -> None:
    old = {**LOGIN, "last_ms_ago": 60_000}
    found = answer_of(ClientFacts(who=Who(), refusals=[DENIED, old]))
    assert [reason.code for reason in found.reasons] == ["client.denied", "client.login"]


def test_a_denial_proposes_the_command_that_explains_it() -> None:
    (reason,) = answer_of(ClientFacts(who=Who(user="bob"), refusals=[DENIED])).reasons
    assert "User:bob at 10.0.0.7 was denied READ on Topic secret (in a request Fetch)" in reason.sentence
    assert reason.remedy == "minikafka why-denied User:bob READ topic:secret" and parses(reason.remedy)


def test_a_login_says_what_was_wrong() -> None:
    (reason,) = answer_of(ClientFacts(who=Who(user="alice"), refusals=[LOGIN])).reasons
    assert "Invalid password of user alice" in reason.sentence
