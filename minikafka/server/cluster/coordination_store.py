"""The store of this broker: which it is, what its failures mean, and how it tells what others have changed.

**Which store** a broker uses, and what it needs to find there. Kafka: ``KafkaServer.initZkClient``. With
``zookeeper.connect`` it is ZooKeeper, for brokers on several machines; else a SQLite file, for those of one.
Kafka's persistent nodes are created when they are missing, so that everything above may rely on them, and
Kafka's tools find what they expect.

**What a failing store means to a client** is mapped once, here.

**Patience.** A store that does not answer for a moment ends no start: it is asked again for as long as a
session without connection lives (Kafka: ``KafkaZkClient.retryRequestUntilConnected``). Nor does a session
that expires meanwhile: another one begins, and ``SessionKeeper`` renews what the first one had. Many reads
are made at once, but not too many (``CONCURRENT_READS_MAX``).

**Changes of others** are heard of by notifications that they leave in the store. Kafka:
``ZkNodeChangeNotificationListener``. A broker that changes something leaves a sequential node that names it;
every broker reads the ones it has not seen, in order, and then what they name. Nodes that are older than 15
minutes are removed by any broker that sees them when there is a new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.coordination import paths
from minikafka.coordination.paths import DamagedNodeError
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import (
    ConnectionLossError,
    CoordinationStore,
    CreateOp,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    StoreError,
    StoreUnusableError,
    WatchEvent,
    parent_of,
)
from minikafka.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_PAUSE_MS = 500
"""Between two questions to a store that does not answer."""

CONCURRENT_READS_MAX = 100
"""A task costs the loop 0.05 ms, and no other task gets a turn while they all start."""

NOTIFICATIONS_EXPIRATION_MS = 15 * 60 * 1000
"""``ZkNodeChangeNotificationListener``'s changeExpirationMs."""

NOTIFICATIONS_PAUSE_MS = 1000
"""While the store cannot be reached."""


def store_name(config: BrokerConfig) -> str:
    """The store in messages: ``zookeeper HOSTS/CHROOT``, or the path of the file."""
    if config.zookeeper_connect is not None:
        return f"zookeeper {config.zookeeper_connect}"
    return config.coordination_path()


async def open_store(config: BrokerConfig, *, clock: Clock) -> CoordinationStore:
    """Open the configured store and start a session. ``create_top_level_paths`` next.

    Raises:
        StoreUnusableError: it cannot be used without an operator's help.
        ConnectionLossError: it cannot be reached now.
    """
    session_timeout_ms = config.zookeeper_session_timeout_ms
    if config.zookeeper_connect is None:
        return await SqliteStore.open(
            config.coordination_path(), clock=clock, session_timeout_ms=session_timeout_ms
        )
    return await _open_zookeeper(config, config.zookeeper_connect)


async def _open_zookeeper(config: BrokerConfig, connect: str) -> CoordinationStore:
    try:  # here, because kazoo is an extra
        from minikafka.coordination.zookeeper import ZooKeeperStore, zookeeper_security
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kazoo":
            raise
        raise StoreUnusableError("kazoo is not installed: pip install 'minikafka[zookeeper]'") from error
    return await ZooKeeperStore.open(
        connect,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        security=await zookeeper_security(config),
    )


async def create_top_level_paths(store: CoordinationStore) -> None:
    """``KafkaZkClient.createTopLevelPaths``, in one write unless another broker does it too.
    Raises StoreError."""
    parents = dict.fromkeys(parent_of(path) for path in paths.PERSISTENT_PATHS)
    wanted = [*(path for path in parents if path != "/"), *paths.PERSISTENT_PATHS]
    missing = [path for path in wanted if await store.exists(path) is None]
    try:
        if missing:
            await store.multi([CreateOp(path) for path in missing])
    except NodeExistsError:  # another broker starts with us
        for path in paths.PERSISTENT_PATHS:
            await store.ensure_path(path)


class StorePatience:
    """For one start."""

    def __init__(self, store: CoordinationStore, clock: Clock) -> None:
        self._store = store
        self._patience_ms = store.session_timeout_ms
        self._clock = clock

    def __repr__(self) -> str:
        return f"StorePatience({self._patience_ms} ms)"

    async def until_connected(self, what: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do ``work``, from its beginning whenever the connection is lost or the session has expired: it must
        bear to be done twice.

        Raises:
            ConnectionLossError: the store was away for longer than a session lives. Whatever ``work`` raises.
        """
        patient_until_ms = None  # a request alone may take as long as a session lives
        while True:
            try:
                await self._store.start_session()  # unless one lives
                return await work()
            except (ConnectionLossError, SessionExpiredError) as error:
                now_ms = self._clock.monotonic_ms()
                if patient_until_ms is None or isinstance(error, SessionExpiredError):
                    patient_until_ms = now_ms + self._patience_ms
                elif now_ms >= patient_until_ms:
                    raise
                logger.warning("%s: waiting for the coordination store: %s", what, error)
                await asyncio.sleep(RETRY_PAUSE_MS / 1000)


async def gather_some(reads: Iterator[Coroutine[Any, Any, T]]) -> list[T]:
    """What ``reads`` return, in their order."""
    results: list[T] = []
    while some := list(islice(reads, CONCURRENT_READS_MAX)):
        results += await asyncio.gather(*some)
    return results


@contextmanager
def mapped_store_failures(
    what: str, *, unreachable: ErrorCode = ErrorCode.REQUEST_TIMED_OUT
) -> Iterator[None]:
    """A ``StoreError`` within becomes a ``KafkaError``; ``what`` names the work that failed.

    Raises:
        KafkaError: ``unreachable`` while the store cannot be reached (by default what Kafka answers while its
            controller cannot), UNKNOWN_SERVER_ERROR for anything else, which is logged; with its traceback
            unless the store says by itself that it is unusable.
    """
    try:
        yield
    except (ConnectionLossError, SessionExpiredError) as error:
        logger.warning("%s: the coordination store cannot be reached: %s", what, error)
        raise KafkaError(unreachable, f"{what}: the coordination store cannot be reached.") from error
    except StoreError as error:
        is_bug = not isinstance(error, StoreUnusableError)
        logger.error("%s: the coordination store failed: %s", what, error, exc_info=is_bug)
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: the coordination store failed: {error}"
        ) from error


class ChangeNotifications:
    """``begin`` before that which changes is loaded, then ``run`` as a task."""

    def __init__(
        self,
        store: CoordinationStore,
        directory: str,
        *,
        clock: Clock,
        what: str,
        apply: Callable[[str, bytes], Awaitable[None]],
    ) -> None:
        """``apply`` is given the path and the data of each notification. A ``DamagedNodeError`` of it is
        logged, and the next one applied; any other ``StoreError`` has it called again. ``what`` changes, for
        the log."""
        self._store = store
        self._directory = directory
        self._clock = clock
        self._what = what
        self._apply = apply
        self._last_seen = ""
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"ChangeNotifications({self._directory}, last seen {self._last_seen or 'none'})"

    def _notice(self, event: WatchEvent) -> None:
        self._changed.set()

    async def begin(self) -> None:
        """What there is now is known once what they speak of is loaded. Raises StoreError."""
        await self._store.ensure_path(self._directory)
        names = await self._store.children(self._directory, watch=self._notice)
        self._last_seen = names[-1] if names else ""

    def look_again(self) -> None:
        """The watch went with the old session."""
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._catch_up()
            except StoreError as error:
                logger.warning("%s wait for the coordination store: %s", self._what, error)
                await asyncio.sleep(NOTIFICATIONS_PAUSE_MS / 1000)
                self._changed.set()

    async def _catch_up(self) -> None:
        names = await self._store.children(self._directory, watch=self._notice)
        for name in names:
            path = f"{self._directory}/{name}"
            try:
                node = await self._store.get(path)
            except NoNodeError:
                continue
            if name > self._last_seen:
                try:
                    await self._apply(path, node.data)
                except DamagedNodeError as error:
                    logger.error("%s; the notification is ignored", error)
                self._last_seen = name
            if self._clock.now_ms() - node.stat.created_ms > NOTIFICATIONS_EXPIRATION_MS:
                await self._remove(path)

    async def _remove(self, path: str) -> None:
        try:
            await self._store.delete(path)
        except NoNodeError:
            return
