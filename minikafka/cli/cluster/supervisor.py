"""The brokers of a running ``minikafka cluster``: in what state each is; starts, stops and kills single ones.

Invariants:
- What is done to one broker is done one thing after the other; different brokers do not wait for each other.
- A broker that ends by itself is reported; one that was stopped or killed on request is not, the request is.
- ``ended`` resolves when the last broker has ended by itself. While one was taken down on request the cluster
  is kept, because its broker may be wanted again.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Sequence
from contextlib import suppress

from minikafka.cli.cluster.members import Member
from minikafka.errors import MinikafkaError, StartError


class BrokerLife(enum.Enum):
    """What a broker of the cluster does."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    KILLED = "killed"
    ENDED = "ended by itself"


class ControlError(MinikafkaError):
    """What was asked for cannot be done; the message is for the person who asked."""


class _Supervised:
    def __init__(self, member: Member) -> None:
        self.member = member
        self.life = BrokerLife.STARTING
        self.turn = asyncio.Lock()
        self.watch: asyncio.Task[None] | None = None


class ClusterSupervisor:
    """All brokers of one cluster. ``say`` gets a line for each broker that ends by itself."""

    def __init__(self, members: Sequence[Member], say: Callable[[str], None]) -> None:
        self._brokers = {each.config.node_id: _Supervised(each) for each in members}
        self._say = say
        self.ended = asyncio.Event()

    def __repr__(self) -> str:
        lives = ", ".join(f"{node_id} {each.life.value}" for node_id, each in self._brokers.items())
        return f"ClusterSupervisor({lives})"

    async def start_all(self) -> list[str | None]:
        """Start every broker. Returns their status pages, None: nowhere. Raises StartError."""
        return await asyncio.gather(*map(self._start_in_turn, self._brokers.values()))

    async def _start_in_turn(self, broker: _Supervised) -> str | None:
        async with broker.turn:  # a request at the control socket may be early
            return await self._start(broker)

    async def start(self, node_id: int) -> str:
        """Start a broker that is down, with its port and its directory. Returns a sentence about it.

        Raises:
            ControlError: there is no such broker, or it runs. StartError: it cannot start.
        """
        broker = self._find(node_id)
        async with broker.turn:
            if broker.life is BrokerLife.RUNNING:
                raise ControlError(f"broker {node_id} is running")
            page = await self._start(broker)
        told = f"broker {node_id} was started: {broker.member.where}"
        return told if page is None else f"{told}, status page {page}"

    async def stop(self, node_id: int) -> str:
        """Stop a broker cleanly. Returns a sentence about it. Raises ControlError."""
        broker = self._find(node_id)
        async with broker.turn:
            await self._begin_ending(broker)
            broker.life = BrokerLife.STOPPING
            await broker.member.stop()
            broker.life = BrokerLife.STOPPED
        return f"broker {node_id} was stopped"

    async def kill(self, node_id: int) -> str:
        """End a broker as a crash would. Returns a sentence about it. Raises ControlError."""
        broker = self._find(node_id)
        async with broker.turn:
            if not broker.member.can_be_killed:
                raise ControlError(
                    f"broker {node_id} shares a process with the others (--in-process): "
                    "it can only be stopped"
                )
            await self._begin_ending(broker)
            broker.member.kill()
            await broker.member.ended()
            broker.life = BrokerLife.KILLED
        return f"broker {node_id} was killed"

    async def stop_all(self, *, last: int) -> None:
        """One after the other, so that each finds one that takes over what it leads; ``last`` is the last."""
        for node_id, broker in sorted(self._brokers.items(), key=lambda each: each[0] == last):
            await _cancel(broker.watch)
            await broker.member.stop()
            self._brokers[node_id].life = BrokerLife.STOPPED

    def kill_all(self) -> None:
        """End everything at once."""
        for broker in self._brokers.values():
            broker.member.kill()

    def _find(self, node_id: int) -> _Supervised:
        found = self._brokers.get(node_id)
        if found is None:
            there = ", ".join(map(str, self._brokers))
            raise ControlError(f"there is no broker {node_id}: the brokers of this cluster are {there}")
        return found

    async def _start(self, broker: _Supervised) -> str | None:
        broker.life = BrokerLife.STARTING
        try:
            await broker.member.start()
        except StartError:
            await broker.member.stop()  # it may hang instead of having ended
            broker.life = BrokerLife.STOPPED
            raise
        broker.life = BrokerLife.RUNNING
        broker.watch = asyncio.create_task(self._watch(broker))
        return await broker.member.status_page()

    async def _begin_ending(self, broker: _Supervised) -> None:
        if broker.life is not BrokerLife.RUNNING:
            raise ControlError(f"broker {broker.member.config.node_id} is not running ({broker.life.value})")
        await _cancel(broker.watch)

    async def _watch(self, broker: _Supervised) -> None:
        sentence = await broker.member.ended()
        broker.life = BrokerLife.ENDED
        self._say(sentence)
        if all(each.life is BrokerLife.ENDED for each in self._brokers.values()):
            self.ended.set()


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
