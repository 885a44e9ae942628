"""A change of a KIP-848 group: worked out on a copy, written, and taken in when it is in the log.

``GroupDraft`` is the working out. It applies each record to a copy of the group at once, with the code that
will apply it when it is written or loaded, so what follows is decided on the state that the group will have.
``GroupChange`` is the append. The shell writes it, or hears that it cannot, before it asks anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from minikafka.coordinator.group.classic.classic_group import ClassicGroup
from minikafka.coordinator.group.consumer.consumer_group import ConsumerGroup
from minikafka.coordinator.group.effects import (
    Answer,
    Append,
    Effect,
    Effects,
    GroupOperation,
    Park,
    coordinator_error,
)
from minikafka.errors import KafkaError
from minikafka.protocol.internal.group_records import GroupRecord, Key, Value

RETRY_MS = 500
"""After which a fencing whose append failed is tried again (Kafka: ``CoordinatorTimerImpl``)."""


class GroupDraft:
    """A group, and the records that change it."""

    def __init__(self, group: ConsumerGroup, *, replaces: ClassicGroup | None = None) -> None:
        """``replaces``: a group of the classic protocol that ends with this change."""
        self.origin = group
        self.group = group
        self.replaces = replaces
        self.becomes: ClassicGroup | None = None
        """A group of the classic protocol that comes in the place of this one."""
        self.records = [] if replaces is None else replaces.tombstones()
        self._is_copy = False

    def write(self, key: Key, value: Value | None) -> None:
        if not self._is_copy:
            self.group = self.group.copy()
            self._is_copy = True
        record = GroupRecord(key, value)
        self.group.apply(record)
        self.records.append(record)


class GroupChange(Append):
    """``replay`` takes each record in. Answers that depend on the change wait until it is committed, also
    those of requests that come after it and change nothing: what they tell may be lost with this leader."""

    __slots__ = ("_after", "_before", "_group", "_is_written", "_replay", "_retry", "answers")

    def __init__(
        self,
        records: Iterable[GroupRecord],
        *,
        group: Callable[[], ConsumerGroup | None],
        before: Callable[[int], Effects],
        replay: Callable[[GroupRecord, int], None],
        after: Callable[[int], Effects],
        answer: Answer | None = None,
        retry: GroupOperation | None = None,
    ) -> None:
        """``group`` is the group once the change is written; ``before`` and ``after`` surround the taking in;
        ``retry`` expires again if the change does not come."""
        super().__init__(tuple(records))
        self._group = group
        self._replay = replay
        self._before = before
        self._after = after
        self._retry = retry
        self._is_written = False
        self.answers = [] if answer is None else [answer]

    def written(self, now_ms: int) -> Effects:
        self._is_written = True
        effects = self._before(now_ms)
        for record in self.records:
            self._replay(record, now_ms)
        if group := self._group():
            group.uncommitted = self
        return effects + self._after(now_ms)

    def committed(self, now_ms: int) -> Effects:
        self._is_settled()
        return [*self.answers]

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        self._is_settled()
        effects: list[Effect] = [Answer(answer.ticket, coordinator_error(error)) for answer in self.answers]
        if self._retry is not None and not self._is_written:
            effects.append(Park(self._retry, RETRY_MS))
        return effects

    def _is_settled(self) -> None:
        group = self._group()
        if group is not None and group.uncommitted is self:
            group.uncommitted = None
