"""The way from one host to another: how long it takes, whether it is cut, and what travels on it in order.

A link is one direction of a pair of hosts. A ``Channel`` is one direction of one connection on a link, as TCP
makes it of packets: what is sent arrives in order, and nothing is lost while the connection lasts. A cut link
holds back what is sent; what was already under way arrives. After the cut has healed TCP sends again, at some
time of its own choosing.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

from minikafka.testing.simulation.loop import NS_PER_MS, Host, VirtualTimeLoop

DELAY_MS = (0.1, 1.0)
"""One way between two hosts of a data centre, with their kernels' share."""
LOOPBACK_DELAY_MS = (0.01, 0.05)
RETRANSMISSION_MS = (0.0, 200.0)
"""How long after the end of a cut the data comes: TCP's smallest retransmission timeout is 200 ms. After long
cuts it can be minutes; a scenario that wants this heals later."""


class Link:
    """From ``source`` to ``target``."""

    __slots__ = (
        "_channels", "_loop", "_on_open", "_random", "_rng", "delay_ms", "is_cut", "refuses", "source",
        "target",
    )  # fmt: skip

    def __init__(self, source: Host, target: Host, *, loop: VirtualTimeLoop, rng: random.Random) -> None:
        self.source = source
        self.target = target
        self.delay_ms = LOOPBACK_DELAY_MS if source is target else DELAY_MS
        self.is_cut = False
        self.refuses = False
        """While cut: new connections are refused at once, instead of waiting for an answer."""
        self._loop = loop
        self._rng = rng
        self._random = rng.random
        self._channels: dict[Channel, None] = {}
        self._on_open: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        state = "cut" if self.is_cut else f"{self.delay_ms[0]:g} to {self.delay_ms[1]:g} ms"
        return f"Link({self.source.name} to {self.target.name}, {state})"

    @property
    def is_open(self) -> bool:
        """Whether what is sent now will arrive."""
        return not self.is_cut and self.target.is_up

    def draw_delay_ns(self) -> int:
        least_ms, most_ms = self.delay_ms
        return round((least_ms + (most_ms - least_ms) * self._random()) * NS_PER_MS)

    def draw_retransmission_ns(self) -> int:
        return round(self._rng.uniform(*RETRANSMISSION_MS) * NS_PER_MS)

    def when_open(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the link is open again, once."""
        self._on_open.append(callback)

    def hold(self, channel: Channel) -> None:
        """``channel`` waits for the link to open."""
        self._channels[channel] = None

    def opened(self) -> None:
        """The cut is over, or the target has power again: everything that waits is sent."""
        if not self.is_open:
            return
        channels, self._channels = self._channels, {}
        for channel in channels:
            channel.release()
        callbacks, self._on_open = self._on_open, []
        for callback in callbacks:
            callback()


class Channel:
    """Messages in order. ``deliver`` is called in the hardware's context, not in a process's."""

    __slots__ = (
        "_deliver", "_held", "_is_closed", "_last_ns", "_loop", "_stuck", "_transmission", "_under_way",
        "link",
    )  # fmt: skip

    def __init__(
        self,
        link: Link,
        deliver: Callable[[Any], None],
        *,
        loop: VirtualTimeLoop,
        stuck: Callable[[], None] | None = None,
    ) -> None:
        """``stuck`` is called when a message has to wait for the link to open."""
        self.link = link
        self._deliver = deliver
        self._stuck = stuck
        self._loop = loop
        self._last_ns = 0
        self._under_way: deque[Any] = deque()
        self._held: list[Any] = []
        self._transmission = 0  # arrivals of an earlier one are void: its messages are sent again
        self._is_closed = False

    @property
    def is_stuck(self) -> bool:
        """Whether messages wait for the link to open."""
        return bool(self._held)

    def send(self, message: Any) -> None:
        if self._is_closed:
            return
        link = self.link
        if self._held or link.is_cut or not link.target.is_up:
            self._hold([message])
        else:
            self._transmit(message, self._loop.now_ns + link.draw_delay_ns())

    def release(self) -> None:
        """The link is open: send what was held."""
        held, self._held = self._held, []
        again_ns = self._loop.now_ns + self.link.draw_retransmission_ns()
        for message in held:
            self._transmit(message, again_ns + self.link.draw_delay_ns())

    def close(self) -> list[Any]:
        """Send nothing more; what is under way arrives. Returns what was held."""
        held, self._held = self._held, []
        self._is_closed = True
        return held

    def _transmit(self, message: Any, when_ns: int) -> None:
        if when_ns > self._last_ns:
            self._last_ns = when_ns
        self._under_way.append(message)
        self._loop.call_at_ns(self._last_ns, self._arrive, self._transmission, context=HARDWARE)

    def _arrive(self, transmission: int) -> None:
        if transmission != self._transmission:
            return
        if self.link.target.is_up:
            self._deliver(self._under_way.popleft())
            return
        self._transmission += 1
        under_way, self._under_way = list(self._under_way), deque()
        if not self._is_closed:  # nothing of it is acknowledged, so all of it will be sent again
            later, self._held = self._held, []
            self._hold(under_way + later)

    def _hold(self, messages: list[Any]) -> None:
        self._held += messages
        self.link.hold(self)
        if self._stuck is not None:
            self._stuck()


HARDWARE = Context()
"""What belongs to no process: wires, kernels, the store's servers."""
