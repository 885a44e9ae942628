"""Users that are in the store before a broker begins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from minikafka.coordination import paths
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import CoordinationStore
from minikafka.errors import StartError
from minikafka.security.scram import decode_credential, make_credential
from minikafka.security.secure_setup import FirstUser
from minikafka.server.cluster.coordination_store import create_top_level_paths
from minikafka.server.runtime.log_io import LogIo
from minikafka.server.security.secure_broker import ensure_users
from minikafka.system_clock import SystemClock

MECHANISM = "SCRAM-SHA-512"
ADMIN = FirstUser("admin", "admin's", must_match=False)
BROKER = FirstUser("broker", "broker's", must_match=True)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[CoordinationStore]:
    opened = await SqliteStore.open(str(tmp_path / "store"), clock=SystemClock(), session_timeout_ms=60_000)
    await create_top_level_paths(opened)
    yield opened
    await opened.close()


@pytest.fixture
async def log_io() -> AsyncIterator[LogIo]:
    made = LogIo()
    yield made
    made.close()


async def stored(store: CoordinationStore, user: str) -> dict[str, str]:
    path = f"/config/users/{user}"
    return paths.decode_config((await store.get(path)).data, path)


def is_of(text: str, password: str) -> bool:
    credential = decode_credential(MECHANISM, text)
    return credential == make_credential(
        MECHANISM, password, salt=credential.salt, iterations=credential.iterations
    )


async def test_they_are_where_kafka_looks_for_them(store: CoordinationStore, log_io: LogIo) -> None:
    await ensure_users(store, [ADMIN, BROKER], log_io=log_io)
    for user in (ADMIN, BROKER):
        properties = await stored(store, user.name)
        assert list(properties) == [MECHANISM]
        assert is_of(properties[MECHANISM], user.password)
        assert decode_credential(MECHANISM, properties[MECHANISM]).iterations == 4096


async def test_a_password_that_was_changed_since_is_left(store: CoordinationStore, log_io: LogIo) -> None:
    await ensure_users(store, [ADMIN], log_io=log_io)
    before = await stored(store, "admin")
    await ensure_users(store, [ADMIN._replace(password="another")], log_io=log_io)
    assert await stored(store, "admin") == before


async def test_another_directorys_broker_is_refused(store: CoordinationStore, log_io: LogIo) -> None:
    await ensure_users(store, [BROKER], log_io=log_io)
    await ensure_users(store, [BROKER], log_io=log_io)
    with pytest.raises(StartError, match="the user broker is in the store with another password") as raised:
        await ensure_users(store, [BROKER._replace(password="s3cret")], log_io=log_io)
    assert "s3cret" not in str(raised.value)


async def test_what_else_is_configured_for_a_user_stays(store: CoordinationStore, log_io: LogIo) -> None:
    await store.create("/config/users/admin", paths.encode_config({"producer_byte_rate": "1"}))
    await ensure_users(store, [ADMIN], log_io=log_io)
    assert (await stored(store, "admin")).keys() == {"producer_byte_rate", MECHANISM}


async def test_brokers_that_begin_at_once_agree(store: CoordinationStore, log_io: LogIo) -> None:
    async with asyncio.TaskGroup() as starting:
        for _ in range(3):
            starting.create_task(ensure_users(store, [ADMIN, BROKER], log_io=log_io))
    assert is_of((await stored(store, "broker"))[MECHANISM], BROKER.password)
