"""How long a start waits for the coordination store."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.clock import ManualClock
from minikafka.coordination.store import ConnectionLossError, SessionExpiredError
from minikafka.server.cluster import coordination_store
from minikafka.server.cluster.coordination_store import StorePatience

SESSION_TIMEOUT_MS = 6_000


class Store:
    """Which answers as the test says."""

    session_timeout_ms = SESSION_TIMEOUT_MS

    def __init__(self, clock: ManualClock, *answers: tuple[int, Exception | None]) -> None:
        self._clock = clock
        self._answers = list(answers)
        self.sessions = 0

    async def start_session(self) -> int:
        self.sessions += 1
        return self.sessions

    async def work(self) -> str:
        after_ms, error = self._answers.pop(0)
        self._clock.advance(after_ms)
        if error is not None:
            raise error
        return "done"


LOST, EXPIRED = ConnectionLossError("no answer"), SessionExpiredError("session 1 has expired")


async def waited_for(*answers: tuple[int, Exception | None]) -> str:
    clock = ManualClock()
    store: Any = Store(clock, *answers)
    return await StorePatience(store, clock).until_connected("the features", store.work)


@pytest.fixture(autouse=True)
def _without_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordination_store, "RETRY_PAUSE_MS", 0)


async def test_one_request_that_takes_longer_than_a_session_is_asked_again() -> None:
    assert await waited_for((SESSION_TIMEOUT_MS + 1, LOST), (10, None)) == "done"


async def test_a_session_that_expires_begins_the_patience_again() -> None:
    late = SESSION_TIMEOUT_MS - 1
    assert await waited_for((10, LOST), (late, EXPIRED), (late, LOST), (10, None)) == "done"


async def test_a_store_that_stays_away_is_given_up() -> None:
    with pytest.raises(ConnectionLossError):
        await waited_for((10, LOST), (SESSION_TIMEOUT_MS, LOST), (10, None))
