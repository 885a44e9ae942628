"""A broker's place in the store: its registration, its session, and the election of the controller.

**Registration.** The cluster's id, and the broker's entry under ``/brokers/ids``. The entry is ephemeral: it
goes with the broker's session, and its czxid is the broker epoch. Kafka:
``KafkaServer.getOrGenerateClusterId``, ``KafkaZkClient.registerBroker``.

**Session** (``SessionKeeper``). It expires when the process was stopped for longer than its timeout, when the
machine slept, or when the store was out of reach. Then the broker's registration is gone, its watches are,
and it is the controller no more. The order is Kafka's (``ZooKeeperClient``'s session handlers,
``KafkaController``'s ``Expire`` and ``RegisterBrokerAndReelect``): roles are told to end first (``lasting``),
then a new session begins, the broker registers, and the owners of watches set them again. A role may still be
tidying up meanwhile; its writes name the old controller epoch, so they do no harm. States:

    NONE --established--> LIVE --EXPIRED--> LOST --start_session, hooks--> LIVE (another id)

**Election** of the controller: one ephemeral node, and an epoch that only the winner may raise. Both are
written in one ``multi``, so the holder of ``/controller`` has also raised ``/controller_epoch``, and the
version of that node is what guards all of its writes. Kafka: ``KafkaController.elect``,
``KafkaZkClient.registerControllerAndIncrementControllerEpoch``.

**Migration to KRaft** (KIP-866). No broker of this project can be in a cluster that migrates, nor writes what
marks a migration, so a cluster that has never begun one has none of it. Kafka 3.9: ``ZkMigrationClient``,
``KafkaZkClient.registerKRaftControllerAsZkController``, ``ZkMigrationLeadershipState``.

- ``/migration`` is made by the KRaft controllers when they first look at the tree, with -1 in all fields. It
  names a controller once that has copied the cluster's metadata.
- ``/controller`` is taken from the brokers by the KRaft controller before it copies anything. Its node is not
  ephemeral, and has the epoch of that controller, which is -1 for a broker.

So a ``/migration`` that names none is no migration yet: KRaft controllers wait until all brokers have
registered with them, which ours never do. One that names a controller stays when the cluster goes back to
ZooKeeper, until it is deleted, as Kafka's documentation has it.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from minikafka.clock import Clock
from minikafka.coordination import paths
from minikafka.coordination.paths import ControllerRegistration
from minikafka.coordination.store import (
    NO_OWNER,
    BadVersionError,
    CoordinationStore,
    CreateOp,
    DeleteOp,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    Op,
    SessionEvent,
    SessionExpiredError,
    SessionState,
    SetOp,
    StoreError,
    WatchEvent,
)
from minikafka.errors import StartError
from minikafka.flight_recorder import Record, SessionChanged, not_recorded
from minikafka.named_tuple import NamedTuple
from minikafka.types import BrokerId

logger = logging.getLogger(__name__)

REGISTRATION_RETRY_MS = 500
"""How often a broker looks whether the entry in its place has gone."""

RETRY_PAUSE_MS = 500
"""Between tries to begin a session with a store that does not answer."""

INITIAL_CONTROLLER_EPOCH = 0
"""``KafkaController.InitialControllerEpoch``: below that of the first controller."""

_WHY_NO_MIGRATION = (
    "the cluster migrates to KRaft: {found}. Brokers of minikafka know no KRaft: replace them by those of "
    "Apache Kafka before the migration, or go back to ZooKeeper, which ends with deleting /controller and "
    "/migration"
)


async def agree_on_cluster_id(
    store: CoordinationStore, *, configured: str | None, stored: str | None, rng: random.Random
) -> str:
    """The cluster's id: what the store says; in a new store what is configured, else what the log directories
    say, else a new one, which goes into the store.

    Raises:
        StartError: ``cluster.id`` is configured and the store belongs to another cluster.
    """
    wanted = configured or stored or _random_cluster_id(rng)
    await store.ensure_path(paths.CLUSTER_ID.rpartition("/")[0])
    try:
        await store.create(paths.CLUSTER_ID, paths.encode_cluster_id(wanted))
    except NodeExistsError:
        node = await store.get(paths.CLUSTER_ID)
        known = paths.decode_cluster_id(node.data)
        if configured is not None and known != configured:
            raise StartError(
                f"cluster.id is {configured}, but the coordination store belongs to cluster {known}"
            ) from None
        return known
    return wanted


def _random_cluster_id(rng: random.Random) -> str:
    """16 random bytes as Kafka prints a Uuid: base64url without padding."""
    return base64.urlsafe_b64encode(rng.getrandbits(128).to_bytes(16, "big")).rstrip(b"=").decode("ascii")


async def register_broker(
    store: CoordinationStore, node_id: BrokerId, registration: paths.BrokerRegistration, *, patience_ms: int
) -> int:
    """Write the broker's ephemeral entry. Returns the broker epoch.

    What an earlier process of this broker left is replaced at once, the controllership too: it named the log
    directories that are locked by this process now, so it is gone, although its session may last for a while.
    An entry of anybody else is given ``patience_ms`` to go.

    ``/brokers/ids`` is written too, so that its version rises with each registration: see ``IsrManager``.
    What is registered stays known when the broker is gone, see ``known_brokers``.

    Raises:
        StartError: the entry belongs to a broker that is alive. StoreError: the store's.
    """
    path, data = paths.broker_path(node_id), paths.encode_broker(registration)
    waited_ms = 0
    while True:
        try:
            await store.multi(_registration(path, data))
        except NodeExistsError:
            is_registered = await _replace(store, node_id, data, registration.directory_ids)
        else:
            is_registered = True
        if is_registered:
            stat = await store.exists(path)
            if stat is not None and stat.ephemeral_owner == store.session_id:
                await _remember(store, node_id, data)
                return stat.czxid
        if waited_ms >= patience_ms:
            raise StartError(
                f"broker id {node_id} is taken: {await _holder(store, path)} is registered with it ({path}); "
                f"give this broker another node.id, or stop that one"
            )
        if waited_ms == 0:
            logger.warning("%s is registered by another session; waiting for that to end", path)
        await asyncio.sleep(REGISTRATION_RETRY_MS / 1000)
        waited_ms += REGISTRATION_RETRY_MS


async def _remember(store: CoordinationStore, node_id: BrokerId, data: bytes) -> None:
    path = paths.known_broker_path(node_id)
    try:
        await store.set(path, data)
    except NoNodeError:
        await store.ensure_path(paths.KNOWN_BROKERS)
        try:
            await store.create(path, data)
        except NodeExistsError:  # another process with this id was as fast; it has not lost its session yet
            await store.set(path, data)


async def known_brokers(store: CoordinationStore) -> dict[BrokerId, paths.BrokerRegistration]:
    """The last registration of each broker, alive or not, but for those that were unregistered. One whose
    JSON cannot be read is left out. Raises StoreError."""
    try:
        names = await store.children(paths.KNOWN_BROKERS)
    except NoNodeError:
        return {}
    known = {}
    for node_id in sorted(int(name) for name in names if name.isdigit()):
        try:
            node = await store.get(paths.known_broker_path(node_id))
            known[BrokerId(node_id)] = paths.decode_broker(node_id, node.data)
        except paths.DamagedNodeError as error:
            logger.error("%s; the broker is left out", error)
        except NoNodeError:  # unregistered meanwhile
            continue
    return known


async def unregister_broker(store: CoordinationStore, node_id: BrokerId) -> bool:
    """Forget a broker that is gone; whether it was known. Raises StoreError."""
    try:
        await store.delete(paths.known_broker_path(node_id))
    except NoNodeError:
        return False
    return True


def _registration(path: str, data: bytes) -> list[Op]:
    return [CreateOp(path, data, ephemeral=True), SetOp(paths.BROKER_IDS, b"")]


async def _replace(
    store: CoordinationStore, node_id: BrokerId, data: bytes, directory_ids: tuple[str, ...]
) -> bool:
    """Put ``data`` in the place of an entry of our own, in one write. False: it is not ours, or gone."""
    path = paths.broker_path(node_id)
    try:
        node = await store.get(path)
        earlier = paths.decode_broker(node_id, node.data)
    except (NoNodeError, paths.DamagedNodeError):
        return False
    owner = node.stat.ephemeral_owner
    if owner != store.session_id and not set(earlier.directory_ids) & set(directory_ids):
        return False
    ops: list[Op] = [DeleteOp(path, node.stat.version), *_registration(path, data)]
    controller = await store.exists(paths.CONTROLLER)
    if controller is not None and controller.ephemeral_owner == owner != store.session_id:
        ops.append(DeleteOp(paths.CONTROLLER, controller.version))
    try:
        await store.multi(ops)
    except (NoNodeError, BadVersionError, NodeExistsError):
        return False
    return True


async def _holder(store: CoordinationStore, path: str) -> str:
    try:
        registration = paths.decode_broker(0, (await store.get(path)).data)
    except (NoNodeError, paths.DamagedNodeError):
        return "another broker"
    return "a broker at " + ", ".join(str(endpoint) for endpoint in registration.endpoints)


class SessionKeeper:
    """Owns the session from the first registration on."""

    def __init__(
        self, store: CoordinationStore, *, first_session_id: int | None = None, record: Record = not_recorded
    ) -> None:
        """``first_session_id``: of the session in which the start began, by default the present one."""
        self._store = store
        self._first_id = store.session_id if first_session_id is None else first_session_id
        self._record = record
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
        """The broker is registered for the first time: the session counts from now on, if it is the one that
        the start began with. Else that one's watches are gone, and ``run`` renews everything first."""
        if self._store.session_id == self._first_id:
            await self._begin_life()
        else:
            self._expired.set()

    async def _begin_life(self) -> None:
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
        self._record(SessionChanged(is_lost=True))
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
            self._record(SessionChanged(is_lost=False))
            await self._begin_life()
            return


class Election(NamedTuple):
    """A won election."""

    controller_epoch: int
    epoch_version: int
    """Of ``/controller_epoch``, as this controller wrote it."""


async def elect(store: CoordinationStore, *, node_id: BrokerId, clock: Clock) -> Election:
    """Wait until this broker is the controller.

    Raises:
        MigratesToKRaftError: a KRaft controller has taken the place of the brokers'. StoreError.
    """
    while True:
        moved = asyncio.Event()

        def changed(event: WatchEvent, moved: asyncio.Event = moved) -> None:
            moved.set()

        holder = await store.exists(paths.CONTROLLER, watch=changed)
        if holder is not None and holder.ephemeral_owner == store.session_id:
            await _give_up(store, holder)
            continue
        if holder is not None:
            if holder.ephemeral_owner == NO_OWNER:
                await _refuse_lasting_controller(store)
            await moved.wait()
            continue
        won = await _try(store, node_id=node_id, clock=clock)
        if won is not None:
            return won


async def _refuse_lasting_controller(store: CoordinationStore) -> None:
    """The node of a broker goes with its session; that of a KRaft controller stays."""
    try:
        node = await store.get(paths.CONTROLLER)
    except NoNodeError:
        return
    refuse_kraft_controller(paths.decode_controller(node.data))


async def _give_up(store: CoordinationStore, holder: NodeStat) -> None:
    """A node of our own session that no controller uses: its creation was written and the answer lost, or we
    stopped leading and could not delete it."""
    try:
        await store.delete(paths.CONTROLLER, holder.version)
    except (NoNodeError, BadVersionError):
        return


async def _try(store: CoordinationStore, *, node_id: BrokerId, clock: Clock) -> Election | None:
    """None: another broker was faster."""
    epoch, version = await _current_epoch(store)
    registration = paths.ControllerRegistration(node_id, clock.now_ms())
    try:
        results = await store.multi(
            [
                CreateOp(paths.CONTROLLER, paths.encode_controller(registration), ephemeral=True),
                SetOp(paths.CONTROLLER_EPOCH, paths.encode_controller_epoch(epoch + 1), version),
            ]
        )
    except (NodeExistsError, BadVersionError):
        return None
    stat = results[1]
    assert isinstance(stat, NodeStat)
    return Election(epoch + 1, stat.version)


async def _current_epoch(store: CoordinationStore) -> tuple[int, int]:
    """The epoch of the last controller, and the version of its node."""
    while True:
        try:
            node = await store.get(paths.CONTROLLER_EPOCH)
        except NoNodeError:
            try:
                data = paths.encode_controller_epoch(INITIAL_CONTROLLER_EPOCH)
                await store.create(paths.CONTROLLER_EPOCH, data)
            except NodeExistsError:
                continue
            return INITIAL_CONTROLLER_EPOCH, 0
        return paths.decode_controller_epoch(node.data), node.stat.version


async def current_controller(store: CoordinationStore) -> BrokerId | None:
    """The broker that is the controller now; None when there is none. Raises StoreError."""
    try:
        node = await store.get(paths.CONTROLLER)
    except NoNodeError:
        return None
    return paths.decode_controller(node.data).broker_id


class MigratesToKRaftError(StartError):
    """The brokers of this cluster follow a KRaft controller, or will."""


def refuse_kraft_controller(controller: ControllerRegistration) -> None:
    """Raises MigratesToKRaftError: what holds ``/controller`` is no broker."""
    if controller.kraft_controller_epoch >= 0:
        found = (
            f"{paths.CONTROLLER} is held by the KRaft controller {controller.broker_id} of epoch "
            f"{controller.kraft_controller_epoch}"
        )
        raise MigratesToKRaftError(_WHY_NO_MIGRATION.format(found=found))


async def refuse_migration(store: CoordinationStore) -> None:
    """At the start of a broker, before it writes anything.

    Raises:
        MigratesToKRaftError: the migration has begun. StoreError.
    """
    try:
        refuse_kraft_controller(paths.decode_controller((await store.get(paths.CONTROLLER)).data))
    except NoNodeError:
        pass  # no controller at the moment
    try:
        state = paths.decode_migration((await store.get(paths.MIGRATION)).data)
    except NoNodeError:
        return
    if state.kraft_controller_id >= 0 or state.kraft_metadata_offset >= 0:
        found = (
            f"{paths.MIGRATION} names the KRaft controller {state.kraft_controller_id} of epoch "
            f"{state.kraft_controller_epoch}, and the metadata up to offset {state.kraft_metadata_offset}"
        )
        raise MigratesToKRaftError(_WHY_NO_MIGRATION.format(found=found))
