"""PLAIN: who is let in, and who is not."""

from __future__ import annotations

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.security.jaas import sasl_client
from minikafka.security.sasl import PlainServer, PlainUsers, SaslError

USERS = PlainUsers({"user_alice": "s3cret", "user_bob": "other", "username": "alice", "password": "no"})


def test_a_client_of_ours_is_let_in() -> None:
    server = PlainServer(USERS.check)
    client = sasl_client("PLAIN", {"username": "alice", "password": "s3cret"}, nonce=str)
    assert client.next(server.evaluate(client.first())) is None
    assert client.is_complete and server.is_complete
    assert server.authorization_id == "alice"


@pytest.mark.parametrize(
    "message",
    [
        b"\0alice\0wrong",
        b"\0alice\0s3cre",
        b"\0alice\0s3cret\0",
        b"\0alice\0other",
        b"\0mallory\0s3cret",
        b"\0mallory\0",
        b"\0\0s3cret",
        b"alice\0s3cret",
        b"",
        b"\0alice\0\xff",
        b"\0username\0alice",
    ],
)
def test_others_are_not(message: bytes) -> None:
    server = PlainServer(USERS.check)
    with pytest.raises(SaslError) as caught:
        server.evaluate(message)
    assert not server.is_complete
    assert "s3cret" not in f"{caught.value} {caught.value.told}"


def test_cve_2017_12610_nobody_becomes_somebody_else() -> None:
    server = PlainServer(USERS.check)
    with pytest.raises(SaslError, match="authorization id that is different"):
        server.evaluate(b"bob\0alice\0s3cret")
    assert not server.is_complete
    same = PlainServer(USERS.check)
    same.evaluate(b"alice\0alice\0s3cret")
    assert same.is_complete


def test_an_unknown_user_is_told_what_a_wrong_password_is() -> None:
    told = []
    for message in (b"\0alice\0wrong", b"\0mallory\0wrong"):
        with pytest.raises(SaslError) as caught:
            PlainServer(USERS.check).evaluate(message)
        told.append(caught.value.told)
    assert told == ["Authentication failed: Invalid username or password"] * 2


def test_cve_2021_38153_comparisons_take_as_long_whatever_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each compares two digests of one length, in constant time; so does a user who does not exist."""
    compared: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def noted(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    for password in ("s3cret", "s3cre", "x", "x" * 10_000):
        assert USERS.check("alice", password) == (password == "s3cret")
        assert not USERS.check("mallory", password)
    assert compared == [(32, 32)] * 8


def test_passwords_are_in_no_repr() -> None:
    client = sasl_client("PLAIN", {"username": "alice", "password": "s3cret"}, nonce=str)
    assert "s3cret" not in f"{USERS} {client} {PlainServer(USERS.check)}"


@given(st.binary(max_size=200))
def test_random_bytes_fail_as_they_should(message: bytes) -> None:
    with pytest.raises(SaslError):
        PlainServer(USERS.check).evaluate(message)
