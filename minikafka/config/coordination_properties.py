"""The broker's properties for the store of the cluster's state: a SQLite file, or ZooKeeper.

Kafka: ``ZkConfigs`` (as of 3.9). ``coordination`` is minikafka's own. ``zookeeper.session.timeout.ms`` holds
for both stores: it is how long a broker may be silent before the others take it for dead.
"""

from typing import Annotated

from minikafka.config.definition import ConfigType, Importance, prop
from minikafka.config.replication_properties import ReplicationProperties
from minikafka.errors import ConfigError

STRING, INT = ConfigType.STRING, ConfigType.INT
HIGH, MEDIUM = Importance.HIGH, Importance.MEDIUM

SQLITE_SCHEME = "sqlite:///"
COORDINATION_FILE = "coordination.sqlite"


class CoordinationProperties(ReplicationProperties, frozen=True, kw_only=True):
    """Where the cluster keeps its state; a part of ``BrokerConfig``."""

    coordination: (
        Annotated[
            str,
            prop(
                STRING,
                MEDIUM,
                "Where the brokers of one machine keep their state: sqlite:///PATH; unset: in the first log "
                "directory.",
            ),
        ]
        | None
    ) = None
    zookeeper_connect: (
        Annotated[
            str,
            prop(
                STRING,
                HIGH,
                "Where the brokers of several machines keep their state: ZooKeeper servers as host:port with "
                "commas, at the end a /path for a part of their tree; unset: a SQLite file.",
            ),
        ]
        | None
    ) = None
    zookeeper_session_timeout_ms: Annotated[
        int, prop(INT, HIGH, "How long a broker may be silent before it is taken for dead.", ge=1)
    ] = 18_000
    zookeeper_connection_timeout_ms: (
        Annotated[
            int,
            prop(
                INT,
                HIGH,
                "How long to wait for ZooKeeper at the start; unset: zookeeper.session.timeout.ms.",
                ge=1,
            ),
        ]
        | None
    ) = None

    def coordination_path(self) -> str:
        """The file of the embedded store."""
        if self.coordination is None:
            return f"{self.log_dirs[0]}/{COORDINATION_FILE}"
        return self.coordination.removeprefix(SQLITE_SCHEME)


def check_coordination(config: CoordinationProperties) -> None:
    """Raises ConfigError: the store's address is not one, or there are two."""
    url = config.coordination
    if url is None:
        return
    if config.zookeeper_connect is not None:
        raise ConfigError(
            f"coordination ({url}) and zookeeper.connect ({config.zookeeper_connect}) name two stores; "
            "set one of them"
        )
    if not url.startswith(SQLITE_SCHEME) or not url.removeprefix(SQLITE_SCHEME).strip("/"):
        raise ConfigError(f"Invalid value {url} for configuration coordination: must be sqlite:///PATH")
