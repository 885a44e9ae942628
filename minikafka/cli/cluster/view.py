"""What ``minikafka cluster`` shows: who lives, who the controller is, who leads what.

Asked of the cluster itself with Metadata, every second. On a terminal a table that is drawn again when
something has changed; elsewhere one line for each thing that has.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from minikafka.errors import KafkaError, PeerProtocolError
from minikafka.network.broker_client import BrokerClient, BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

LOOK_AGAIN_S = 1.0
DEADLINE_MS = 3_000
ROWS_MAX = 40
"""Partitions on a terminal; more do not fit."""

NOBODY = -1


class Seen(NamedTuple):
    """The cluster at one moment."""

    brokers: tuple[int, ...]
    controller: int
    partitions: dict[str, tuple[int, tuple[int, ...]]]
    """``topic-number`` → the leader, who is in sync."""


NOTHING = Seen((), NOBODY, {})


class ClusterView:
    """Shows the cluster whose brokers are at ``addresses``, by id. One that is not alive is shown as down."""

    def __init__(self, addresses: Mapping[int, tuple[str, int]], stream: TextIO | None = None) -> None:
        self._addresses = list(addresses.values())
        self._ids = tuple(addresses)
        self._out = stream or sys.stdout
        self._client: BrokerClient | None = None
        self._seen = NOTHING
        self._live: Live | None = None

    def __repr__(self) -> str:
        return f"ClusterView({self._addresses}, {len(self._seen.partitions)} partitions)"

    @property
    def controller(self) -> int:
        """Who it was when last looked at; -1: nobody."""
        return self._seen.controller

    def begin(self, banner: Sequence[tuple[str, str]]) -> None:
        """Say what has been started."""
        for label, text in banner:
            print(f"{label:<18} {text}", file=self._out, flush=True)
        if self._out.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=self._out), auto_refresh=False)
            self._live.start()

    def end(self) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, line: str) -> None:
        """A line of its own, above the table."""
        if self._live is not None:
            self._live.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=self._out, flush=True)

    async def watch(self) -> None:
        """Show what changes, until cancelled."""
        try:
            while True:
                seen = await self._look()
                if seen is not None and seen != self._seen:
                    before, self._seen = self._seen, seen
                    self._show(before, seen)
                await asyncio.sleep(LOOK_AGAIN_S)
        finally:
            if self._client is not None:
                await self._client.close()

    async def _look(self) -> Seen | None:
        """Ask the broker that answered last; when it does not, another. None: nobody answers now."""
        body = {
            "topics": None,
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        try:
            if self._client is None or not self._client.is_connected:
                self._addresses.append(self._addresses.pop(0))
                self._client = await BrokerClient.connect(
                    *self._addresses[-1], client_id="minikafka-cluster", deadline_ms=DEADLINE_MS
                )
            return _seen(await self._client.request(ApiKey.METADATA, body, deadline_ms=DEADLINE_MS))
        except (BrokerUnavailable, PeerProtocolError, KafkaError):
            return None

    def _show(self, before: Seen, now: Seen) -> None:
        if self._live is not None:
            self._live.update(_table(now, self._ids), refresh=True)
            return
        if before.brokers != now.brokers:
            self.say(f"brokers: {_brokers(now.brokers, self._ids)}")
        if before.controller != now.controller:
            self.say(f"controller: {_leader(now.controller)}")
        for name, (leader, isr) in now.partitions.items():
            if before.partitions.get(name) != (leader, isr):
                self.say(f"{name}: led by {_leader(leader)}, in sync {_ids(isr)}")
        for name in before.partitions:
            if name not in now.partitions:
                self.say(f"{name}: deleted")


def _seen(answer: Any) -> Seen:
    return Seen(
        brokers=tuple(sorted(broker.node_id for broker in answer.brokers)),
        controller=answer.controller_id,
        partitions={
            f"{topic.name}-{partition.partition_index}": (
                partition.leader_id,
                tuple(sorted(partition.isr_nodes)),
            )
            for topic in answer.topics
            for partition in sorted(topic.partitions, key=lambda each: each.partition_index)
        },
    )


def _brokers(alive: Sequence[int], of_cluster: Sequence[int]) -> str:
    """``2 of 3 alive (1, 3), down: 2``: how many and which, since ``3`` alone could be either."""
    down = [each for each in of_cluster if each not in alive]
    known = sorted({*alive, *of_cluster})
    told = f"{len(alive)} of {len(known)} alive ({_ids(alive)})"
    return f"{told}, down: {_ids(down)}" if down else told


def _table(seen: Seen, of_cluster: Sequence[int]) -> Table:
    from rich.table import Table

    table = Table(
        title=f"brokers: {_brokers(seen.brokers, of_cluster)}; controller: {_leader(seen.controller)}",
        title_justify="left",
    )
    for column in ("partition", "leader", "in sync"):
        table.add_column(column)
    for name, (leader, isr) in list(seen.partitions.items())[:ROWS_MAX]:
        table.add_row(name, _leader(leader), _ids(isr))
    if len(seen.partitions) > ROWS_MAX:
        table.add_row(f"and {len(seen.partitions) - ROWS_MAX} more", "", "")
    return table


def _ids(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers)) or "nobody"


def _leader(broker: int) -> str:
    return "nobody" if broker == NOBODY else str(broker)
