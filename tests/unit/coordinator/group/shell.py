"""A shell for tests of the group coordinator: carries out effects in order, on a manual clock.

It stands for ``server.coordinator.group_service``. The part under test (a ``GroupShard``, ``ClassicGroups``,
…) is given as its ``expired``; requests go through ``ask``. Appends are written and committed at once, unless
the test says ``refuse`` (the log takes nothing) or ``hold`` (written, but the high watermark stays below them
until ``commit`` or ``fail``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from minikafka.clock import ManualClock
from minikafka.coordinator.group.messages import (
    Answer,
    Append,
    Complete,
    ComputeAssignment,
    DeleteShareStates,
    Effects,
    GroupOperation,
    InitializeShareStates,
    Park,
)
from minikafka.errors import KafkaError
from minikafka.protocol.internal.group_records import GroupRecord


class Asked:
    """A ticket: a request that was sent, and what came back."""

    def __init__(self, request: Any) -> None:
        self.request = request
        self.answers: list[Any] = []

    def __repr__(self) -> str:
        return f"Asked({self.request!r}, answers={self.answers!r})"

    @property
    def waits(self) -> bool:
        return not self.answers

    @property
    def answer(self) -> Any:
        """The one answer; a KafkaError where the request was refused."""
        assert len(self.answers) == 1, f"{len(self.answers)} answers to {self.request!r}"
        return self.answers[0]


class FakeShell:
    """See the module header. ``expired`` may be set after it is made."""

    def __init__(self, expired: Callable[[GroupOperation, int], Effects] | None = None) -> None:
        self.clock = ManualClock()
        self.expired = expired
        self.asked: list[Asked] = []
        self.log: list[GroupRecord] = []
        """All records that were written, in order."""
        self.appends: list[Append] = []
        """All appends that were asked for, refused ones too."""
        self.uncommitted: deque[Append] = deque()
        self.parked: dict[GroupOperation, int] = {}
        """Delayed operations, with the time at which they expire."""
        self.hold = False
        self.refuse: KafkaError | None = None
        self.share_questions: list[InitializeShareStates | DeleteShareStates] = []
        """What the share coordinator is asked, until the test answers."""
        self.computations: list[ComputeAssignment] = []
        """Assignments that are worked out beside, until the test has them done (``compute``)."""

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def ask(self, call: Callable[[Any, Any, int], Effects], request: Any) -> Asked:
        """Send ``request`` to ``call``, for example ``shard.join_group``."""
        asked = Asked(request)
        self.asked.append(asked)
        try:
            effects = call(request, asked, self.now_ms)
        except KafkaError as error:
            asked.answers.append(error)
        else:
            self.carry_out(effects)
        return asked

    def carry_out(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Answer(ticket, result):
                    assert isinstance(ticket, Asked)
                    assert ticket.waits, f"a second answer to {ticket.request!r}: {result!r}"
                    ticket.answers.append(result)
                case Append():
                    self._append(effect)
                case Park(operation, timeout_ms):
                    self.parked[operation] = self.now_ms + timeout_ms
                case Complete(operation):
                    self.parked.pop(operation, None)
                case ComputeAssignment():
                    self.computations.append(effect)
                case InitializeShareStates() | DeleteShareStates():
                    self.share_questions.append(effect)

    def compute(self, *, fails: bool = False) -> None:
        """The next assignment is worked out, or fails."""
        each = self.computations.pop(0)
        self.carry_out(each.done(None if fails else each.compute(), self.now_ms))

    def commit(self) -> None:
        """The high watermark passes all that is written."""
        while self.uncommitted:
            self.carry_out(self.uncommitted.popleft().committed(self.now_ms))

    def fail(self, error: KafkaError) -> None:
        """What is written does not get committed in time."""
        while self.uncommitted:
            self.carry_out(self.uncommitted.popleft().failed(error, self.now_ms))

    def advance(self, duration_ms: int) -> None:
        """Let time pass; what expires on the way does so at its own time, in order."""
        end_ms = self.now_ms + duration_ms
        while True:
            due = min(self.parked.items(), key=lambda item: item[1], default=None)
            if due is None or due[1] > end_ms:
                break
            operation, deadline_ms = due
            self.clock.advance(max(deadline_ms - self.now_ms, 0))
            self.expire(operation)
        self.clock.advance(end_ms - self.now_ms)

    def expire(self, operation: GroupOperation) -> None:
        """The time of ``operation`` is up, now."""
        assert self.expired is not None
        del self.parked[operation]
        self.carry_out(self.expired(operation, self.now_ms))

    def unanswered(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.waits]

    def _append(self, append: Append) -> None:
        self.appends.append(append)
        if self.refuse is not None:
            self.carry_out(append.failed(self.refuse, self.now_ms))
            return
        self.log.extend(append.records)
        self.carry_out(append.written(self.now_ms))
        self.uncommitted.append(append)
        if not self.hold:
            self.commit()
