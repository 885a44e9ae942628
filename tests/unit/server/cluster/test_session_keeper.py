"""What a broker gives up when its session expires, and what it starts over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from minikafka.coordination.store import (
    ConnectionLossError,
    SessionEvent,
    SessionExpiredError,
    SessionListener,
    SessionState,
)
from minikafka.errors import StartError
from minikafka.server.cluster.registration import RETRY_PAUSE_MS, SessionKeeper
from tests.unit.server.virtual_time import in_virtual_time, passing


class Sessions:
    """The sessions of a store, as the test wants them."""

    def __init__(self) -> None:
        self.session_id = 1
        self.is_away = False
        self._listeners: list[SessionListener] = []

    def add_session_listener(self, listener: SessionListener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: None

    async def start_session(self) -> int:
        if self.is_away:
            raise ConnectionLossError("no answer")
        self.session_id += 1
        return self.session_id

    def expire(self) -> None:
        self._tell(SessionState.EXPIRED)

    def disconnect(self) -> None:
        self._tell(SessionState.DISCONNECTED)

    def _tell(self, state: SessionState) -> None:
        for listener in self._listeners:
            listener(SessionEvent(state, self.session_id))


class Kept:
    """A keeper at work, with a note of whatever was renewed."""

    def __init__(self) -> None:
        self.sessions = Sessions()
        self.keeper = SessionKeeper(self.sessions)  # type: ignore[arg-type]
        self.renewed: list[tuple[str, int]] = []
        """With the session's id."""
        self.keeper.on_new_session(self.register)
        self.keeper.on_new_session(self.watch)
        self.refusals: list[Exception] = []
        self.task = asyncio.create_task(self.keeper.run())

    async def register(self) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.renewed.append(("register", self.sessions.session_id))

    async def watch(self) -> None:
        self.renewed.append(("watch", self.sessions.session_id))

    async def lead(self) -> None:
        """For as long as the session lasts that there is now."""
        async with self.keeper.lasting(await self.keeper.ready()):
            await asyncio.Event().wait()


@in_virtual_time
async def test_there_is_no_role_before_the_broker_is_registered() -> None:
    kept = Kept()
    waiting = asyncio.create_task(kept.keeper.ready())
    await passing(1000)
    assert not waiting.done()
    await kept.keeper.established()
    assert await waiting == 1
    assert kept.renewed == []  # the first session's registration is the start's own


@in_virtual_time
async def test_when_the_session_expires_roles_end_and_everything_starts_over() -> None:
    kept = Kept()
    await kept.keeper.established()
    leading = asyncio.create_task(kept.lead())
    await passing(10)
    kept.sessions.disconnect()
    await passing(10)
    assert not leading.done()  # the session may still live
    kept.sessions.expire()
    with pytest.raises(SessionExpiredError):
        await leading
    assert await kept.keeper.ready() == 2
    assert kept.renewed == [("register", 2), ("watch", 2)]


@in_virtual_time
async def test_what_is_meant_for_an_old_session_does_not_begin() -> None:
    kept = Kept()
    await kept.keeper.established()
    kept.sessions.expire()
    with pytest.raises(SessionExpiredError):
        async with kept.keeper.lasting(1):
            pytest.fail("the session is over")
    await kept.keeper.ready()
    with pytest.raises(SessionExpiredError):
        async with kept.keeper.lasting(1):
            pytest.fail("there is another session by now")


@in_virtual_time
async def test_who_is_stopped_by_its_owner_is_not_told_of_a_session() -> None:
    kept = Kept()
    await kept.keeper.established()
    leading = asyncio.create_task(kept.lead())
    await passing(10)
    leading.cancel()
    await asyncio.wait([leading])
    assert leading.cancelled()
    leading = asyncio.create_task(kept.lead())
    await passing(10)
    kept.sessions.expire()
    leading.cancel()  # both at once
    await asyncio.wait([leading])
    assert leading.cancelled()


@in_virtual_time
async def test_what_ended_before_the_session_did_is_left_alone() -> None:
    kept = Kept()
    await kept.keeper.established()

    async def lead_and_go_on() -> str:
        async with kept.keeper.lasting(1):
            await asyncio.sleep(1)
        await asyncio.sleep(10)
        return "done"

    task = asyncio.create_task(lead_and_go_on())
    await passing(2000)
    kept.sessions.expire()
    assert await task == "done"


@in_virtual_time
async def test_a_session_that_ends_while_the_broker_registers_is_begun_again() -> None:
    kept = Kept()
    await kept.keeper.established()
    register = kept.register

    async def expire_once() -> None:
        await register()
        if kept.sessions.session_id == 2:
            kept.sessions.expire()

    kept.keeper._renewals[0] = expire_once
    kept.sessions.expire()
    assert await kept.keeper.ready() == 3
    assert kept.renewed == [("register", 2), ("watch", 2), ("register", 3), ("watch", 3)]
    await passing(5000)
    assert kept.sessions.session_id == 3  # and that was all


@in_virtual_time
async def test_a_session_that_ends_before_the_start_was_over_is_begun_again() -> None:
    kept = Kept()
    kept.sessions.expire()
    await kept.keeper.established()
    assert await kept.keeper.ready() == 2
    assert kept.renewed == [("register", 2), ("watch", 2)]


@in_virtual_time
async def test_a_store_that_is_away_or_a_place_that_is_taken_is_tried_again() -> None:
    kept = Kept()
    await kept.keeper.established()
    kept.sessions.is_away = True
    kept.refusals = [StartError("broker id 1 is taken"), ConnectionLossError("no answer")]
    kept.sessions.expire()
    await passing(10 * RETRY_PAUSE_MS)
    assert not kept.task.done()
    kept.sessions.is_away = False
    await passing(4 * RETRY_PAUSE_MS)
    assert kept.renewed[-2:] == [("register", kept.sessions.session_id), ("watch", kept.sessions.session_id)]
    assert await kept.keeper.ready() == kept.sessions.session_id
