"""Clients that have logged in: with frames that mean nothing, and with logins again from all sides."""

from __future__ import annotations

import random
import struct
import time
from contextlib import ExitStack
from functools import partial

from minikafka.config.client_quotas import KILL, SESSIONS
from minikafka.protocol.wire.api_versions import ApiKey
from tests.hostile.attacks.group_members import make_coordinator
from tests.hostile.attacks.http import page
from tests.hostile.attacks.security_apis import ALLOW, LITERAL, READ
from tests.hostile.bystander import TOPIC
from tests.hostile.secured import USER, Peer, make_scram_user, secured
from tests.integration.support.process import BrokerProcess

FETCH = {
    "replica_id": -1,
    "max_wait": 600_000,
    "min_bytes": 1 << 30,
    "max_bytes": 1 << 30,
    "isolation_level": 0,
    "topics": [
        {
            "topic": TOPIC,
            "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}],
        }
    ],
}
JOIN = {
    "group_id": "parked",
    "session_timeout": 600_000,
    "rebalance_timeout": 600_000,
    "member_id": "",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b""}],
}
GROWTH_BYTES_MAX = 160 * 1024 * 1024
SESSION_MS = 2_000


def frames(listener: str, broker: BrokerProcess, short: bool) -> str:
    """Each API in some version with a body of random bytes, and with one that is cut off. A connection lives
    for one of them; whatever comes of it, the next client is served."""
    rng = random.Random(20)
    before, count = broker.resident_bytes(), 0
    for _ in range(1 if short else 20):
        for key in ApiKey:
            body = rng.choice((rng.randbytes(rng.randrange(200)), bytes(rng.randrange(40)), b"\x7f" * 40))
            with Peer(listener) as peer:
                if listener.startswith("SASL"):
                    assert peer.log_in("PLAIN") == 0
                peer.send_bytes(struct.pack(">hhih", key, rng.randrange(20), count, -1) + body)
                count += 1
    grown = broker.resident_bytes() - before
    assert grown < GROWTH_BYTES_MAX, f"{grown >> 20} MB are held for {count} frames"
    with Peer("SASL_PLAINTEXT") as peer:
        assert peer.log_in("PLAIN") == 0
    return f"{count} frames"


def login_storm(broker: BrokerProcess, short: bool) -> str:
    """All connections log in again as often as they may, which is once a second, all at the same time."""
    count, rounds = (20, 1) if short else (300, 8)
    with ExitStack() as held:
        peers = [held.enter_context(Peer("SASL_PLAINTEXT")) for _ in range(count)]
        for peer in peers:
            assert peer.log_in("SCRAM-SHA-256") == 0
        for _ in range(rounds):
            for peer in peers:
                assert peer.log_in("SCRAM-SHA-256") == 0
            if not short:
                time.sleep(1)
    return f"{count} connections logged in {rounds} times more"


def parked(broker: BrokerProcess, short: bool) -> str:
    """Fetches and joins wait for minutes when the sessions of their user are ended: all of them are gone at
    once, with what they held."""
    before, count = broker.resident_bytes(), 20 if short else 500
    with Peer("PLAINTEXT") as admin, ExitStack() as held:
        created = admin.ask(ApiKey.CREATE_ACLS, 2, {"creations": [may_read(2, TOPIC), may_read(3, "parked")]})
        assert {each.error_code for each in created.results} == {0}
        peers = [held.enter_context(Peer("SASL_PLAINTEXT")) for _ in range(count)]
        for index, peer in enumerate(peers):
            assert peer.log_in("PLAIN") == 0
            if index % 2:
                peer.send(ApiKey.FETCH, 4, FETCH)
            else:
                peer.send(ApiKey.JOIN_GROUP, 2, JOIN)
        assert not any(peer.is_answered() for peer in peers), "a request was not parked"
        kill = {
            "entity": [{"entity_type": SESSIONS, "entity_name": USER}],
            "ops": [{"key": KILL, "value": 1.0, "remove": False}],
        }
        body = {"entries": [kill], "validate_only": False}
        (killed,) = admin.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, body).entries
        assert killed.error_code == 0
        for peer in peers:
            assert peer.is_closed(), "a session that was ended is still served"
    grown = broker.resident_bytes() - before
    assert grown < GROWTH_BYTES_MAX, f"{grown >> 20} MB are held for {count} sessions that were ended"
    return f"{count} parked requests ended"


def expired(broker: BrokerProcess, short: bool) -> str:
    """Fetches wait for minutes, and their clients go on when their sessions are over: each is closed without
    an answer, as Kafka does (KIP-368), and its fetch waits no more."""
    before, count = broker.resident_bytes(), 20 if short else 100
    with Peer("PLAINTEXT") as admin, ExitStack() as held:
        created = admin.ask(ApiKey.CREATE_ACLS, 2, {"creations": [may_read(2, TOPIC)]})
        assert {each.error_code for each in created.results} == {0}
        peers = []
        for _ in range(count):
            peers.append(held.enter_context(Peer("SASL_PLAINTEXT")))
            assert peers[-1].log_in("PLAIN") == 0
            peers[-1].send(ApiKey.FETCH, 4, FETCH)
        admin.ask(ApiKey.API_VERSIONS, 0, {})  # by when the fetches are handled
        waiting = delayed_fetches(broker)
        assert waiting >= count, f"{waiting} of {count} fetches wait"
        time.sleep(SESSION_MS / 1000)
        admin.ask(ApiKey.API_VERSIONS, 0, {})  # by when the broker's timers have gone off
        for peer in peers:
            peer.send(ApiKey.METADATA, 4, {"topics": [], "allow_auto_topic_creation": False})
        for peer in peers:
            assert peer.is_closed(), "a session that is over is still served"
        assert delayed_fetches(broker) <= waiting - count, "a fetch waits on for a client that is gone"
        killed = sample(broker, "kafka_network_socketserver_expiredconnectionskilledcount")
        assert killed == count
    grown = broker.resident_bytes() - before
    assert grown < GROWTH_BYTES_MAX, f"{grown >> 20} MB are held for {count} sessions that are over"
    return f"{count} parked requests of sessions that were over"


def delayed_fetches(broker: BrokerProcess) -> int:
    return sample(
        broker, 'kafka_server_delayedoperationpurgatory_numdelayedoperations{delayedOperation="Fetch"}'
    )


def sample(broker: BrokerProcess, series: str) -> int:
    """Of the broker's metrics."""
    lines = page(broker, "/metrics").decode().splitlines()
    (value,) = [line.removeprefix(series) for line in lines if line.startswith(f"{series} ")]
    return int(float(value))


def may_read(resource_type: int, name: str) -> dict[str, object]:
    """An ACL for the attacker."""
    return {
        "resource_type": resource_type,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": f"User:{USER}",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }


ATTACKS = [
    secured(
        "parked requests of sessions that are ended",
        parked,
        prepare=make_coordinator,
        group_initial_rebalance_delay_ms=600_000,
    ),
    secured("parked requests of sessions that are over", expired, connections_max_reauth_ms=SESSION_MS),
    secured("random frames of a user without a right", partial(frames, "SASL_PLAINTEXT")),
    secured("random frames of a user with all rights", partial(frames, "PLAINTEXT")),
    secured("re-authentications of many connections", login_storm, prepare=make_scram_user),
]
