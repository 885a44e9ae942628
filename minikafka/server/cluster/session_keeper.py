"""The broker's session with the coordination store: what starts over when it has expired.

Kafka: ``ZooKeeperClient``'s session handlers and ``KafkaController``'s ``Expire`` and
``RegisterBrokerAndReelect``. A session expires when the process was stopped for longer than its timeout, when
the machine slept, or when the store was out of reach. Then the broker's registration is gone, its watches
are, and it is the controller no more. The order is Kafka's: roles are told to end first (``lasting``), then a
new session begins, the broker registers, and the owners of watches set them again. A role may still be
tidying up meanwhile; its writes name the old controller epoch, so they do no harm.

States: NONE --established--> LIVE --EXPIRED--> LOST --start_session, hooks--> LIVE (another id)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from minikafka.coordination.store import (
    CoordinationStore,
    SessionEvent,
    SessionExpiredError,
    SessionState,
    StoreError,
)
from minikafka.errors import StartError

logger = logging.getLogger(__name__)

RETRY_PAUSE_MS = 500
"""Between tries to begin a session with a store that does not answer."""


class SessionKeeper:
    """Owns the session from the first registration on."""

    def __init__(self, store: CoordinationStore) -> None:
        self._store = store
        self._renewals: list[Callable[[], Awaitable[None]]] = []
        self._live_id = 0
        self._expired_id = 0
        self._changed = asyncio.Condition()
        self._expired = asyncio.Event()
        self._guarded: dict[asyncio.Task[object], int] = {}
        store.add_session_listener(self._session_changed)

    def __repr__(self) -> str:
        return f"SessionKeeper(session {self._live_id or 'none'})"

    def on_new_session(self, renew: Callable[[], Awaitable[None]]) -> None:
        """``renew`` is awaited for each session after the first, in the order of these calls."""
        self._renewals.append(renew)

    async def established(self) -> None:
        """The broker is registered for the first time: the session counts from now on."""
        async with self._changed:
            if self._store.session_id != self._expired_id:  # else ``run`` begins another one
                self._live_id = self._store.session_id
                self._changed.notify_all()

    async def ready(self) -> int:
        """Wait for a session in which the broker is registered. Returns its id."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._live_id != 0)
            return self._live_id

    @asynccontextmanager
    async def lasting(self, session_id: int) -> AsyncIterator[None]:
        """What is done in here ends when that session does.

        Raises:
            SessionExpiredError: it has ended.
        """
        if self._live_id != session_id:
            raise SessionExpiredError(f"session {session_id} has expired")
        task = asyncio.current_task()
        assert task is not None
        self._guarded[task] = session_id
        try:
            yield
        except asyncio.CancelledError:
            if self._guarded.get(task) != session_id and task.uncancel() == 0:
                raise SessionExpiredError(f"session {session_id} has expired") from None
            raise
        finally:
            self._guarded.pop(task, None)

    def _session_changed(self, event: SessionEvent) -> None:
        if event.state is not SessionState.EXPIRED:
            return
        self._expired_id = event.session_id
        self._expired.set()
        if self._live_id == event.session_id:
            self._live_id = 0
            guarded, self._guarded = self._guarded, {}
            for task in guarded:
                task.cancel()

    async def run(self) -> None:
        """Until cancelled: restart whenever the session has expired."""
        while True:
            await self._expired.wait()
            self._expired.clear()
            if self._live_id == 0:
                await self._restart_session()

    async def _restart_session(self) -> None:
        while True:
            try:
                session_id = await self._store.start_session()
                for renew in self._renewals:
                    await renew()
            except (StoreError, StartError) as error:  # StartError: another broker has taken our place
                logger.warning("cannot begin a coordination session: %s", error)
                await asyncio.sleep(RETRY_PAUSE_MS / 1000)
                continue
            if session_id == self._expired_id:
                continue
            logger.warning("the coordination session had expired; the broker is registered again")
            await self.established()
            return
