"""Members of consumer groups for benchmarks: one connection each, and no more work than the protocol asks.

A stock client spends so much time on itself that two cores hold a few hundred of them. These members say what
a consumer says, byte for byte: find the coordinator, join, sync, heartbeat.
"""

from __future__ import annotations

import asyncio
from typing import Any

from minikafka.errors import ErrorCode
from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.wire.api_versions import ApiKey

DEADLINE_MS = 60_000
REBALANCE_TIMEOUT_MS = 60_000
SESSION_TIMEOUT_MS = 45_000
RETRY_S = 0.05

SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x05bench\xff\xff\xff\xff"
"""Version 0 of the consumer protocol: the topic ``bench``, no user data."""

_LATER = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


async def connect(host: str, port: int) -> BrokerClient:
    return await BrokerClient.connect(host, port, client_id="bench", deadline_ms=DEADLINE_MS)


async def coordinator_of(bootstrap: str, group_id: str) -> tuple[str, int]:
    """Host and port, once there is one."""
    host, _, port = bootstrap.partition(":")
    client = await connect(host, int(port))
    try:
        while True:
            body = {"key_type": 0, "coordinator_keys": [group_id]}
            answer = await client.request(ApiKey.FIND_COORDINATOR, body, deadline_ms=DEADLINE_MS, version=4)
            found = answer.coordinators[0]
            if found.error_code == ErrorCode.NONE:
                return found.host, found.port
            await asyncio.sleep(RETRY_S)
    finally:
        await client.close()


async def asked(client: BrokerClient, key: ApiKey, body: dict[str, Any]) -> Any:
    """The answer, once the coordinator is there; other errors are the caller's."""
    while True:
        answer = await client.request(key, body, deadline_ms=DEADLINE_MS)
        if answer.error_code not in _LATER:
            return answer
        await asyncio.sleep(RETRY_S)


class Member:
    """One member of a group of the classic protocol; ``join`` first."""

    def __init__(self, client: BrokerClient, group_id: str) -> None:
        self._client = client
        self._group_id = group_id
        self.member_id = ""
        self.generation = -1
        self._settled = asyncio.Condition()
        self._settled_in = -1

    async def join(self) -> None:
        """Join and sync, again and again until the group is whole."""
        while not await self._join_once():
            pass
        async with self._settled:
            self._settled_in = self.generation
            self._settled.notify_all()

    async def settled_after(self, generation: int) -> None:
        """Until it has its assignment of a later generation."""
        async with self._settled:
            await self._settled.wait_for(lambda: self._settled_in > generation)

    async def _join_once(self) -> bool:
        body = {
            "group_id": self._group_id,
            "session_timeout": SESSION_TIMEOUT_MS,
            "rebalance_timeout": REBALANCE_TIMEOUT_MS,
            "member_id": self.member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
        }
        joined = await asked(self._client, ApiKey.JOIN_GROUP, body)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return False
        if joined.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        assert joined.error_code == ErrorCode.NONE, ErrorCode(joined.error_code)
        self.member_id, self.generation = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == self.member_id:
            assignments = [{"member_id": each.member_id, "assignment": b"x"} for each in joined.members]
        synced = await asked(
            self._client,
            ApiKey.SYNC_GROUP,
            {
                "group_id": self._group_id,
                "generation_id": self.generation,
                "member_id": self.member_id,
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": assignments,
            },
        )
        assert synced.error_code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS), synced
        return bool(synced.error_code == ErrorCode.NONE)

    async def heartbeat(self) -> ErrorCode:
        body = {"group_id": self._group_id, "generation_id": self.generation, "member_id": self.member_id}
        answer = await self._client.request(ApiKey.HEARTBEAT, body, deadline_ms=DEADLINE_MS)
        return ErrorCode(answer.error_code)

    async def live(self, interval_s: float) -> None:
        """Heartbeats, and joins when the group rebalances, until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            if await self.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
                await self.join()
