"""Responses that come later than their requests were handled, and the order in which all of them leave.

The waiting half of Kafka's ``RequestChannel``: a handler that has parked its operation returns a
``PendingResponse``; the code that finishes the operation completes it. No I/O here: what may leave is
collected in ``ResponseQueue.out``.

States of a ``PendingResponse``::

    WAITING ──complete()──▶ COMPLETE ──the connection closes first──▶ GONE
       ├──────abandon()───▶ ABANDONED
       └──────the connection closes──▶ GONE

``complete`` and ``abandon`` work before the handler has returned too. When GONE both do nothing, because a
parked operation cannot know; any other second resolution is our bug. Everything belongs to the event loop.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Protocol

from minikafka.errors import InvariantError
from minikafka.steps import Steps
from minikafka.types import Buffer

logger = logging.getLogger(__name__)

PENDING_RESPONSES_MAX = 1000
"""Requests parked on one connection. Java clients have 5 in flight; librdkafka by default as many as it
likes, and a thousand keep it as fast as it gets, at about 1 KB of parked state each."""

PENDING_BYTES_MAX = 64 * 1024 * 1024
"""Responses that one connection waits for or holds back. Above one default Fetch (fetch.max.bytes, 50 MiB),
so that a consumer's fetch leaves room for its other requests; a second such fetch waits for the first."""


class PendingState(Enum):
    """See the module header."""

    WAITING = "waiting"
    COMPLETE = "complete"
    ABANDONED = "abandoned"
    GONE = "gone"


# Looked up once: a member of an Enum costs 0.1 µs each time.
_WAITING, _COMPLETE, _ABANDONED, _GONE = PendingState


class ResponseObserver(Protocol):
    """Told of the stations of one response, in this order; of none that it does not come to."""

    def completed(self) -> None:
        """There is an answer."""
        ...

    def left(self) -> None:
        """All earlier answers of the connection have left."""
        ...

    def sent(self) -> None:
        """The transport has it."""
        ...


class BothObservers:
    """Two observers of one response, told in this order."""

    __slots__ = ("_first", "_second")

    def __init__(self, first: ResponseObserver, second: ResponseObserver) -> None:
        self._first = first
        self._second = second

    def completed(self) -> None:
        self._first.completed()
        self._second.completed()

    def left(self) -> None:
        self._first.left()
        self._second.left()

    def sent(self) -> None:
        self._first.sent()
        self._second.sent()


class PendingResponse:
    """Resolved exactly once, by ``complete`` or by ``abandon``.

    ``expected_bytes`` is an upper bound of the response's size where the handler knows one (a Fetch: its max
    bytes); the connection takes no further requests while the pending ones together expect too much.
    ``on_closed`` is called once when the connection closes first: cancel the parked operation there.
    ``observer`` may be set before the response is added to the queue of its connection.
    """

    __slots__ = ("_queue", "buffers", "expected_bytes", "observer", "on_closed", "size_bytes", "state")

    def __init__(self, *, expected_bytes: int = 0, on_closed: Callable[[], None] | None = None) -> None:
        self.expected_bytes = expected_bytes
        self.on_closed = on_closed
        self.observer: ResponseObserver | None = None
        self.state = _WAITING
        self.buffers: Sequence[Buffer] = ()
        self.size_bytes = 0
        self._queue: ResponseQueue | None = None

    def __repr__(self) -> str:
        return f"PendingResponse({self.state.value}, {self.size_bytes} bytes)"

    @property
    def is_waiting(self) -> bool:
        """Whether the response is still owed."""
        return self.state is _WAITING

    def complete(self, buffers: Sequence[Buffer]) -> None:
        """Here is the response; it leaves when all earlier ones have. Empty: no response to this request.

        The buffers belong to the connection from here on and must not change.

        Raises:
            InvariantError: it was resolved before.
        """
        if self._resolve(_COMPLETE):
            self.buffers = buffers
            self.size_bytes = sum(map(len, buffers))
            if self.observer is not None:
                self.observer.completed()
            if self._queue is not None:
                self._queue.completed(self)

    def abandon(self) -> None:
        """There will be no response: the connection closes, so that its client tries elsewhere.

        Raises:
            InvariantError: it was resolved before.
        """
        if self._resolve(_ABANDONED) and self._queue is not None:
            self._queue.abandoned()

    def _resolve(self, state: PendingState) -> bool:
        if self.state is _WAITING:
            self.state = state
            self.on_closed = None  # nothing is parked any more, and it refers back to this
            return True
        if self.state is _GONE:
            return False
        raise InvariantError(f"{self!r} cannot become {state.value}: it was resolved before")

    def attach(self, queue: ResponseQueue) -> None:
        """For the queue that waits for this."""
        self._queue = queue

    def connection_closed(self) -> None:
        """For the queue: this is not waited for any more. A failing ``on_closed`` is logged, no more."""
        was_waiting = self.is_waiting
        self.state = _GONE
        self.buffers = ()
        self._queue = None
        on_closed, self.on_closed = self.on_closed, None
        if was_waiting and on_closed is not None:
            try:
                on_closed()
            except Exception:
                logger.exception("a parked operation could not be cancelled")


class UnfinishedRequest:
    """A request that is handled in steps, and will have been handled later. Its connection handles no other
    request meanwhile. It is handled to its end even if the connection closes, as Kafka's are.

    ``answer_may_be_large``: far larger than the request. ``on_end`` is called once, when ``result`` is there;
    never after ``cancel``.
    """

    __slots__ = (
        "_error",
        "_result",
        "answer_may_be_large",
        "has_ended",
        "longest_step_ns",
        "on_end",
        "spent_ns",
        "steps",
        "waits_for",
    )

    def __init__(self, steps: Steps[Any], *, answer_may_be_large: bool = False) -> None:
        self.steps = steps
        """Those that are left, which may be put into others until the next one is taken."""
        self.answer_may_be_large = answer_may_be_large
        self._result: Any = None
        self._error: Exception | None = None
        self.has_ended = False
        self.waits_for: Any = None
        """A future; the next step can be taken when it is done."""
        self.on_end: Callable[[], None] = _nothing
        self.longest_step_ns = 0
        self.spent_ns = 0
        """How long its other steps have taken; kept by the code that takes them."""

    def step(self) -> bool:
        """Take the next one. Returns whether another can be taken now."""
        if self.has_ended:
            return False
        try:
            self.waits_for = next(self.steps)
            return self.waits_for is None
        except StopIteration as end:
            self._result = end.value
        except Exception as error:  # noqa: BLE001  # ``result`` raises it
            self._error = error
        self.has_ended, self.waits_for = True, None
        on_end, self.on_end = self.on_end, _nothing
        on_end()
        return False

    def result(self) -> Any:
        """What came of it. Raises what the steps raised."""
        if self._error is not None:
            raise self._error
        return self._result

    def cancel(self) -> None:
        """It is not waited for any more. Idempotent, and harmless when it has ended."""
        if not self.has_ended:
            self.has_ended = True
            self.on_end = _nothing
            self.steps.close()


def _nothing() -> None:
    pass


class ResponseQueue:
    """The responses that one connection owes, and those that may leave now (``out``, ``out_bytes``).

    ``changed`` is called when a parked response was completed, ``abandoned`` when one never will be.
    """

    __slots__ = (
        "_changed",
        "_waiting",
        "abandoned",
        "expected_bytes",
        "observers",
        "out",
        "out_bytes",
        "queued_bytes",
    )

    def __init__(self, *, changed: Callable[[], None], abandoned: Callable[[], None]) -> None:
        self._changed = changed
        self.abandoned = abandoned
        self._waiting: deque[PendingResponse] = deque()
        self.expected_bytes = 0
        """Of those that are not complete."""
        self.queued_bytes = 0
        """Of those that are, behind one that is not."""
        self.out: list[Buffer] = []
        self.out_bytes = 0
        self.observers: list[ResponseObserver] = []
        """Of what is in ``out``."""

    def __len__(self) -> int:
        """Requests that are not answered, or whose answers wait for an earlier one."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether no more requests should be handled before some of these responses have left."""
        return len(self._waiting) >= PENDING_RESPONSES_MAX or (
            self.expected_bytes + self.queued_bytes >= PENDING_BYTES_MAX
        )

    def add(self, result: PendingResponse | Sequence[Buffer]) -> bool:
        """The next request's response. Returns whether responses wait, and ``is_full``."""
        if isinstance(result, tuple) or not isinstance(result, PendingResponse):  # the usual kind first
            if not self._waiting:
                self.out += result
                for buffer in result:
                    self.out_bytes += len(buffer)
                return False
            buffers, result = result, PendingResponse()
            result.complete(buffers)
        result.attach(self)
        self._waiting.append(result)
        if result.state is _COMPLETE:
            self.queued_bytes += result.size_bytes
            self._drain()
        elif result.state is _ABANDONED:
            self.abandoned()
        else:
            self.expected_bytes += result.expected_bytes
        return len(self._waiting) > 0 and self.is_full

    def completed(self, response: PendingResponse) -> None:
        """A response that was added waiting is there now."""
        self.expected_bytes -= response.expected_bytes
        self.queued_bytes += response.size_bytes
        self._drain()
        self._changed()

    def tell_observers(self) -> None:
        """What was in ``out`` was handed to the transport."""
        observers, self.observers = self.observers, []
        for observer in observers:
            observer.sent()

    def close(self) -> None:
        """Nothing of this is owed any more; ``out`` stays. Those still waiting are told."""
        waiting, self._waiting = self._waiting, deque()
        self.expected_bytes = self.queued_bytes = 0
        for response in waiting:
            response.connection_closed()

    def _drain(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0].state is _COMPLETE:
            response = waiting.popleft()
            self.queued_bytes -= response.size_bytes
            self.out_bytes += response.size_bytes
            self.out += response.buffers
            response.buffers = ()
            if response.observer is not None:
                response.observer.left()
                self.observers.append(response.observer)
