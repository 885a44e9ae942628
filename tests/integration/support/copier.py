"""Who copies a topic exactly once with a stock client, and goes on, as the clients' documentation says, when
something fails.

- An error in a transaction: abort it, go back to the committed offsets and read again.
- The abort fails too: another producer with the same transactional id, which ends what the first one left.

A ``Copier`` is one member of a consumer group with one transactional id, in a thread of its own. Each
transaction has a name, which is in every value that it writes: so a reader sees what belongs together.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

from confluent_kafka import KafkaException

from tests.integration.support.exactly_once import CALL_S, ReadProcessWrite


class Outcome(Enum):
    """Of a transaction, as the client knows it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Attempt(NamedTuple):
    """A transaction that was begun, and how many records it wrote or wanted to write."""

    records: int
    outcome: Outcome


class Copier:
    """A ``ReadProcessWrite`` at work, for the length of a ``with`` block. Now and then it changes its mind
    and aborts, or leaves a transaction open and begins again, as a process that has died."""

    PERIOD, ABORTS_AT, DIES_AT = 12, 5, 11

    def __init__(self, client: ReadProcessWrite, *, partitions: int) -> None:
        self.client = client
        self.attempts: dict[str, Attempt] = {}
        self.errors: Counter[str] = Counter()
        self.failure: BaseException | None = None
        self._partitions = partitions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=client.transactional_id, daemon=True)

    def __repr__(self) -> str:
        outcomes = Counter(each.outcome.value for each in self.attempts.values())
        return f"{self.client.transactional_id}: {dict(outcomes)}, errors {dict(self.errors)}"

    def __enter__(self) -> Copier:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(2 * CALL_S)

    def _run(self) -> None:
        try:
            self._renew()
            while not self._stop.is_set():
                self._turn()
            self.client.close()
        except BaseException as error:  # noqa: BLE001 the test shows it
            self.failure = error

    def _turn(self) -> None:
        try:
            numbers = self.client.read()
        except Exception as error:  # noqa: BLE001 each client has its own
            self._note(error)
            self._rewind()
            return
        if numbers:
            name = f"{self.client.transactional_id}/{len(self.attempts)}"
            self.attempts[name] = Attempt(len(numbers), self._transact(name, numbers))

    def _transact(self, name: str, numbers: Sequence[bytes]) -> Outcome:
        outcome = Outcome.ABORTED
        try:
            self.client.begin()
            self.client.write(
                [(int(each) % self._partitions, b"%s %s" % (name.encode(), each)) for each in numbers]
            )
            self.client.send_offsets()
            turn = len(self.attempts) % self.PERIOD
            if turn == self.DIES_AT:
                self._renew()
                self._rewind()
                return outcome
            if turn != self.ABORTS_AT:
                outcome = Outcome.UNKNOWN
                self.client.commit()
                return Outcome.COMMITTED
        except Exception as error:  # noqa: BLE001 each client has its own
            self._note(error)
        try:
            self.client.abort()
            outcome = Outcome.ABORTED
        except Exception as error:  # noqa: BLE001 each client has its own
            self._note(error)
            self._renew()
        self._rewind()
        return outcome

    def _renew(self) -> None:
        self._until_done(self.client.new_producer)

    def _rewind(self) -> None:
        self._until_done(self.client.rewind)

    def _until_done(self, call: Any) -> None:
        while not self._stop.is_set():
            try:
                call()
                return
            except Exception as error:  # noqa: BLE001 each client has its own
                self._note(error)
                self._stop.wait(0.1)

    def _note(self, error: Exception) -> None:
        reason = error.args[0] if isinstance(error, KafkaException) else error
        self.errors[str(reason)[:160] or type(error).__name__] += 1
