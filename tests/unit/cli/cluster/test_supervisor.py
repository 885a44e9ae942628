"""What is done to the brokers of a running cluster, one thing after the other."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from minikafka.cli.cluster.supervisor import ClusterSupervisor, ControlError


class FakeMember:
    """Starts when it is let."""

    def __init__(self, node_id: int) -> None:
        self.config = SimpleNamespace(node_id=node_id)
        self.where = f"localhost:{9090 + node_id}"
        self.may_start = asyncio.Event()
        self.starts = 0

    async def start(self) -> None:
        self.starts += 1
        await self.may_start.wait()

    async def status_page(self) -> str | None:
        return None

    async def ended(self) -> str:
        await asyncio.Event().wait()
        raise AssertionError("not reached")

    async def stop(self) -> None:
        pass


async def test_a_broker_that_is_starting_is_not_started_twice() -> None:
    """The second process ended, and the first one went on after the cluster."""
    member = FakeMember(2)
    supervisor = ClusterSupervisor([cast(Any, member)], say=print)
    first = asyncio.create_task(supervisor.start_all())
    await asyncio.sleep(0)
    early = asyncio.create_task(supervisor.start(2))
    await asyncio.sleep(0)
    member.may_start.set()
    assert await first == [None]
    with pytest.raises(ControlError, match="broker 2 is running"):
        await early
    assert member.starts == 1
    await supervisor.stop(2)
