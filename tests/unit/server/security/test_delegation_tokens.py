"""Delegation tokens: how long they hold, who may change them, and what other brokers know of them."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from minikafka.clock import ManualClock
from minikafka.config.broker import BrokerConfig
from minikafka.coordination import paths
from minikafka.coordination.sqlite import SqliteStore
from minikafka.errors import ErrorCode, KafkaError
from minikafka.security.acl import KafkaPrincipal
from minikafka.security.jaas import sasl_client
from minikafka.security.scram import ScramServer
from minikafka.server.security.authentication import read_login_secret
from minikafka.server.security.delegation_tokens import DelegationTokens

ALICE, BOB, CAROL = (KafkaPrincipal("User", name) for name in ("al/ice", "bob", "carol"))
HOUR_MS = 3_600_000
CONFIG = BrokerConfig(
    delegation_token_max_lifetime_ms=10 * HOUR_MS, delegation_token_expiry_time_ms=2 * HOUR_MS
)


class Brokers:
    """Two, on one store and one clock."""

    def __init__(self, store: SqliteStore, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self.one, self.other = (
            DelegationTokens(
                store, secret_key="secret", config=lambda: CONFIG, clock=clock, rng=random.Random(seed)
            )
            for seed in (1, 2)
        )


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    store = await SqliteStore.open(str(tmp_path / "store"), clock=ManualClock(), background=False)
    await store.start_session()
    yield Brokers(store, ManualClock())
    await store.close()


async def refused(change: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await change  # type: ignore[misc]
    return caught.value.code


async def test_a_token_is_stored_as_kafka_does_without_its_hmac(brokers: Brokers) -> None:
    token = await brokers.one.create(ALICE, BOB, (CAROL,), max_lifetime_ms=-1)
    now_ms = brokers.clock.now_ms()
    data = (await brokers.store.get(f"/delegation_token/tokens/{token.token_id}")).data
    assert json.loads(data) == {
        "version": 3,
        "owner": "User%3Aal%2Fice",
        "tokenRequester": "User%3Abob",
        "renewers": ["User%3Acarol"],
        "issueTimestamp": now_ms,
        "maxTimestamp": now_ms + 10 * HOUR_MS,
        "expiryTimestamp": now_ms + 2 * HOUR_MS,
        "tokenId": token.token_id,
    }
    (change,) = await brokers.store.children(paths.DELEGATION_TOKEN_CHANGES)
    changed = await brokers.store.get(f"{paths.DELEGATION_TOKEN_CHANGES}/{change}")
    assert paths.decode_delegation_token_change(changed.data) == token.token_id
    await brokers.other.load()
    assert list(brokers.other.all()) == [token]
    assert brokers.other.hmac(token.token_id) == brokers.one.hmac(token.token_id)


async def test_lifetimes_are_bounded(brokers: Brokers) -> None:
    token = await brokers.one.create(ALICE, ALICE, (), max_lifetime_ms=HOUR_MS)
    assert (token.max_ms, token.expires_ms) == (token.issued_ms + HOUR_MS,) * 2
    token = await brokers.one.create(ALICE, ALICE, (), max_lifetime_ms=100 * HOUR_MS)
    hmac = brokers.one.hmac(token.token_id)
    for _ in range(6):
        brokers.clock.advance(HOUR_MS + HOUR_MS // 2)
        expires_ms = await brokers.one.renew(hmac, ALICE, period_ms=100 * HOUR_MS)
    assert expires_ms == token.max_ms
    brokers.clock.advance(HOUR_MS + 1)
    assert await refused(brokers.one.renew(hmac, ALICE, period_ms=-1)) is ErrorCode.DELEGATION_TOKEN_EXPIRED


async def test_who_may_change_a_token(brokers: Brokers) -> None:
    token = await brokers.one.create(ALICE, BOB, (CAROL,), max_lifetime_ms=-1)
    hmac = brokers.one.hmac(token.token_id)
    mismatch, unknown = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert await refused(brokers.one.renew(hmac, BOB, period_ms=-1)) is mismatch
    assert await refused(brokers.one.expire(hmac, BOB, period_ms=-1)) is mismatch
    assert await refused(brokers.one.renew(b"", ALICE, period_ms=-1)) is unknown
    assert await brokers.one.expire(hmac, CAROL, period_ms=1) == brokers.clock.now_ms() + 1
    await brokers.one.expire(hmac, ALICE._replace(token_id="another"), period_ms=-1)
    assert await refused(brokers.one.renew(hmac, ALICE, period_ms=-1)) is unknown
    assert await brokers.store.children(paths.DELEGATION_TOKENS) == []


async def test_what_another_broker_removed_is_gone_here(brokers: Brokers) -> None:
    token = await brokers.one.create(ALICE, ALICE, (), max_lifetime_ms=-1)
    hmac = brokers.one.hmac(token.token_id)
    await brokers.other.load()
    await brokers.other.expire(hmac, ALICE, period_ms=-1)
    unknown = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert await refused(brokers.one.renew(hmac, ALICE, period_ms=-1)) is unknown
    assert brokers.one.find("SCRAM-SHA-256", token.token_id) is None


async def test_a_damaged_token_lets_nobody_in(brokers: Brokers) -> None:
    token = await brokers.one.create(ALICE, ALICE, (), max_lifetime_ms=-1)
    await brokers.store.set(
        paths.delegation_token_path(token.token_id), b'{"owner": "User:root"}', version=-1
    )
    await brokers.one.reload(token.token_id)
    assert list(brokers.one.all()) == []


async def test_a_token_logs_in_until_it_expires(brokers: Brokers) -> None:
    token = await brokers.one.create(ALICE, ALICE, (), max_lifetime_ms=-1)
    password = base64.b64encode(brokers.one.hmac(token.token_id)).decode()
    options = {"username": token.token_id, "password": password, "tokenauth": "true"}
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        server = ScramServer(
            mechanism,
            lambda name, is_token, of=mechanism: brokers.one.find(of, name),  # type: ignore[misc]
            nonce="nonce",
            unknown_user=lambda name: pytest.fail("it is known"),
        )
        client = sasl_client(mechanism, options, nonce=lambda: "mine")
        message: bytes | None = client.first()
        while message is not None:
            message = client.next(server.evaluate(message))
        assert (server.authorization_id, server.expires_at_ms) == ("al/ice", token.expires_ms)
    brokers.clock.advance(2 * HOUR_MS + 1)
    assert brokers.one.find("SCRAM-SHA-256", token.token_id) is None


async def test_secrets_are_in_no_repr_and_in_no_error(brokers: Brokers) -> None:
    assert "secret" not in f"{brokers.one!r}"
    damaged = paths.DamagedNodeError("/config/users/alice", "damaged", b"stored_key=s3cret")
    assert "s3cret" not in str(damaged)


async def test_all_brokers_have_one_login_secret(brokers: Brokers) -> None:
    first = await read_login_secret(brokers.store, random.Random(1))
    assert len(first) == 32
    assert await read_login_secret(brokers.store, random.Random(2)) == first
