"""SCRAM: the RFC's own exchange, another library on the other side, and those who cheat."""

from __future__ import annotations

import base64
import hashlib

import pytest
import scramp
from hypothesis import given
from hypothesis import strategies as st

from minikafka.security.jaas import sasl_client
from minikafka.security.sasl import SaslClient, SaslError
from minikafka.security.scram import (
    HASHES,
    MESSAGE_BYTES_MAX,
    ScramClient,
    ScramCredential,
    ScramServer,
    ScramUser,
    decode_credential,
    encode_credential,
    make_credential,
    unknown_user_credential,
)

SALT = b"a salt of twenty-six bytes"
MECHANISMS = tuple(HASHES)
CREDENTIALS = {name: make_credential(name, "pencil", salt=SALT, iterations=4096) for name in MECHANISMS}


def server_of(mechanism: str = "SCRAM-SHA-256", *, nonce: str = "servers-nonce") -> ScramServer:
    def find(name: str, is_token: bool) -> ScramUser | None:
        if is_token:
            return ScramUser(CREDENTIALS[mechanism], "owner", 1234) if name == "token" else None
        return ScramUser(CREDENTIALS[mechanism], name) if name in ("user", "a,b=c") else None

    return ScramServer(
        mechanism,
        find,
        nonce=nonce,
        unknown_user=lambda name: unknown_user_credential(
            mechanism, name, secret=b"secret", salt_bytes=len(SALT), iterations=4096
        ),
    )


def client_of(mechanism: str = "SCRAM-SHA-256", **options: str) -> SaslClient:
    options = {"username": "user", "password": "pencil"} | options
    return sasl_client(mechanism, options, nonce=lambda: "clients-nonce")


def run(client: SaslClient, server: ScramServer) -> None:
    answer: bytes | None = client.first()
    while answer is not None:
        answer = client.next(server.evaluate(answer))


def test_the_example_of_rfc_7677() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    last = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert client.next(first) == final
    assert client.next(last) is None
    assert client.is_complete

    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = make_credential("SCRAM-SHA-256", "pencil", salt=salt, iterations=4096)
    server = ScramServer(
        "SCRAM-SHA-256",
        lambda name, is_token: ScramUser(credential, name),
        nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        unknown_user=lambda name: credential,
    )
    assert server.evaluate(client.first()) == first
    assert server.evaluate(final) == last
    assert server.authorization_id == "user"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_both_sides_are_ours(mechanism: str) -> None:
    client, server = client_of(mechanism), server_of(mechanism)
    run(client, server)
    assert client.is_complete and server.is_complete
    assert (server.authorization_id, server.expires_at_ms, server.token_id) == ("user", None, "")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_one_side_is_scramp(mechanism: str) -> None:
    theirs = scramp.ScramClient([mechanism], "user", "pencil")
    server = server_of(mechanism)
    theirs.set_server_first(server.evaluate(theirs.get_client_first().encode()).decode())
    theirs.set_server_final(server.evaluate(theirs.get_client_final().encode()).decode())
    assert server.is_complete

    stored = CREDENTIALS[mechanism]
    known = (stored.salt, stored.stored_key, stored.server_key, stored.iterations)
    their_server = scramp.ScramMechanism(mechanism).make_server(lambda name: known)
    ours = client_of(mechanism)
    their_server.set_client_first(ours.first().decode())
    final = ours.next(their_server.get_server_first().encode())
    assert final is not None
    their_server.set_client_final(final.decode())
    assert ours.next(their_server.get_server_final().encode()) is None
    assert ours.is_complete


def test_names_are_escaped() -> None:
    client, server = client_of(username="a,b=c"), server_of()
    assert client.first().startswith(b"n,,n=a=2Cb=3Dc,")
    run(client, server)
    assert server.authorization_id == "a,b=c"


def test_a_delegation_token_logs_its_owner_in() -> None:
    client, server = client_of(username="token", tokenauth="true"), server_of()
    assert server.may_take_long(client.first())
    run(client, server)
    assert (server.authorization_id, server.expires_at_ms, server.token_id) == ("owner", 1234, "token")


@pytest.mark.parametrize("options", [{"username": "token"}, {"username": "user", "tokenauth": "true"}])
def test_a_token_is_no_user_and_a_user_no_token(options: dict[str, str]) -> None:
    with pytest.raises(SaslError):
        run(client_of(**options), server_of())


@pytest.mark.parametrize("options", [{"password": "wrong"}, {"username": "nobody"}])
def test_an_unknown_user_sees_what_a_wrong_password_sees(options: dict[str, str]) -> None:
    client, server = client_of(**options), server_of()
    challenge = server.evaluate(client.first())
    assert challenge.endswith(b",i=4096")
    final = client.next(challenge)
    assert final is not None
    with pytest.raises(SaslError) as caught:
        server.evaluate(final)
    assert caught.value.told is None
    assert not server.is_complete


def test_an_unknown_user_is_not_let_in_whatever_it_proves() -> None:
    mechanism = "SCRAM-SHA-256"
    server = ScramServer(
        mechanism, lambda name, is_token: None, nonce="n", unknown_user=lambda name: CREDENTIALS[mechanism]
    )
    with pytest.raises(SaslError, match="no such user"):
        run(client_of(), server)
    assert not server.is_complete


def test_the_salt_of_an_unknown_user_stays() -> None:
    challenges = {
        server_of().evaluate(client_of(username=name).first()) for name in ("nobody", "nobody", "somebody")
    }
    assert len(challenges) == 2
    salt = base64.b64decode(sorted(challenges)[0].split(b",")[1][2:])
    assert len(salt) == len(SALT)


def test_cve_2024_56128_the_nonce_is_that_of_the_first_message() -> None:
    """A proof for the nonces of another exchange that was listened to is worth nothing."""
    client, listened_to = client_of(), server_of(nonce="old")
    final = client.next(listened_to.evaluate(client.first()))
    assert final is not None
    victim = server_of(nonce="new")
    victim.evaluate(client_of().first())
    with pytest.raises(SaslError, match="Invalid client nonce"):
        victim.evaluate(final)


def test_cve_2017_12610_nobody_becomes_somebody_else() -> None:
    with pytest.raises(SaslError, match="authorization id that is different"):
        server_of().evaluate(b"n,a=admin,n=user,r=nonce")
    assert server_of().evaluate(b"n,a=user,n=user,r=nonce").startswith(b"r=nonceservers-nonce,")


@pytest.mark.parametrize(
    "first", [b"y,,n=user,r=nonce", b"p=tls-unique,,n=user,r=nonce", b"n,,m=x,n=user,r=nonce"]
)
def test_what_is_not_there_cannot_be_asked_for(first: bytes) -> None:
    with pytest.raises(SaslError, match="client first"):
        server_of().evaluate(first)


def test_messages_that_are_too_long_are_not_read() -> None:
    """Reading one of half a megabyte would hold up the loop for 0.1 s, and anybody can send it."""
    longest = MESSAGE_BYTES_MAX - len(b"n,,n=,r=nonce")
    assert server_of().evaluate(b"n,,n=%b,r=nonce" % (b"x" * longest))
    server = server_of()
    with pytest.raises(SaslError, match="4097 bytes, more than 4096"):
        server.evaluate(b"n,,n=%b,r=nonce" % (b"x" * (longest + 1)))
    with pytest.raises(SaslError, match="a message when the authentication is"):
        server.evaluate(client_of().first())


def test_a_downgrade_of_the_channel_binding_is_found() -> None:
    client, server = client_of(), server_of()
    final = client.next(server.evaluate(client.first()))
    assert final is not None
    with pytest.raises(SaslError, match="channel binding"):
        server.evaluate(final.replace(b"c=biws", b"c=" + base64.b64encode(b"y,,")))


def test_a_stolen_store_plays_no_client() -> None:
    """Stored and server key are no client key: a proof made of them is refused."""
    mechanism = "SCRAM-SHA-256"
    server, credential = server_of(), CREDENTIALS[mechanism]
    server.evaluate(b"n,,n=user,r=nonce")
    for key in (credential.stored_key, credential.server_key, bytes(32)):
        proof = base64.b64encode(key)
        fresh = server_of()
        fresh.evaluate(b"n,,n=user,r=nonce")
        with pytest.raises(SaslError):
            fresh.evaluate(b"c=biws,r=nonceservers-nonce,p=" + proof)


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (b"r=others-nonce,s=c2FsdA==,i=4096", "nonce"),
        (b"r=clients-nonce,s=c2FsdA==,i=4096", "nonce"),
        (b"r=clients-nonce+,s=c2FsdA==,i=4095", "iterations"),
        (b"r=clients-nonce+,s=c2FsdA==,i=1000001", "iterations"),
        (b"r=clients-nonce+,s=c2FsdA==,i=9999999999", "iterations"),
        (b"r=clients-nonce+,s=,i=4096", "server first"),
        (b"e=unknown-user", "server first"),
        (b"", "server first"),
    ],
)
def test_a_client_does_not_trust_the_server(challenge: bytes, reason: str) -> None:
    with pytest.raises(SaslError, match=reason):
        client_of().next(challenge)


def test_a_server_that_does_not_know_the_password_is_found() -> None:
    client, server = client_of(), server_of()
    client.next(server.evaluate(client.first()))
    with pytest.raises(SaslError, match="server signature"):
        client.next(b"v=" + base64.b64encode(hashlib.sha256(b"").digest()))
    assert not client.is_complete


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_credentials_are_texts_as_kafka_has_them(mechanism: str) -> None:
    text = encode_credential(CREDENTIALS[mechanism])
    assert text.startswith(f"salt={base64.b64encode(SALT).decode()},stored_key=")
    assert text.endswith(",iterations=4096")
    assert decode_credential(mechanism, text) == CREDENTIALS[mechanism]


@pytest.mark.parametrize(
    "text",
    ["", "salt=c2FsdA==", "salt=c2FsdA==,stored_key=s3cret,server_key=a2V5,iterations=4096",
     "salt=c2FsdA==,stored_key=a2V5,server_key=a2V5,iterations=x"],
)  # fmt: skip
def test_damaged_credentials_are_no_credentials(text: str) -> None:
    with pytest.raises(ValueError, match="credential") as caught:
        decode_credential("SCRAM-SHA-256", text)
    assert "s3cret" not in str(caught.value)


def test_too_few_stored_iterations_let_nobody_in() -> None:
    weak = ScramCredential(SALT, bytes(32), bytes(32), 1000)
    server = ScramServer(
        "SCRAM-SHA-256",
        lambda name, is_token: ScramUser(weak, name),
        nonce="n",
        unknown_user=lambda name: weak,
    )
    with pytest.raises(SaslError, match="fewer than 4096"):
        server.evaluate(b"n,,n=user,r=nonce")


def test_secrets_are_in_no_repr() -> None:
    client, server = client_of(), server_of()
    run(client, server)
    assert "pencil" not in f"{client} {server}"
    assert repr(CREDENTIALS["SCRAM-SHA-256"]) == "ScramCredential(4096 iterations)"


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_random_bytes_fail_as_they_should(first: bytes, final: bytes) -> None:
    with pytest.raises(SaslError):
        server_of().evaluate(first)
    server = server_of()
    server.evaluate(b"n,,n=user,r=nonce")
    with pytest.raises(SaslError):
        server.evaluate(final)
    with pytest.raises(SaslError):
        server.evaluate(final)
