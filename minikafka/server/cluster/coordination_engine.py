"""Which store a broker uses, and what it needs to find there.

Kafka: ``KafkaServer.initZkClient``. With ``zookeeper.connect`` it is ZooKeeper, for brokers on several
machines; else a SQLite file, for those of one. Kafka's persistent nodes are created when they are missing, so
that everything above may rely on them, and Kafka's tools find what they expect.
"""

from __future__ import annotations

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.coordination import paths
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import (
    CoordinationStore,
    CreateOp,
    NodeExistsError,
    StoreUnusableError,
    parent_of,
)


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
        from minikafka.coordination.zookeeper import ZooKeeperStore
        from minikafka.coordination.zookeeper_security import zookeeper_security
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
