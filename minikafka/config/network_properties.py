"""The broker's properties for listeners and connections. Kafka: ``SocketServerConfigs``.

Where it differs from Kafka, and why:

- ``listeners`` is ``PLAINTEXT://localhost:9092``, not all interfaces: a broker without authentication
  does not offer itself to the network unless told to.
- ``socket.send.buffer.bytes`` and ``socket.receive.buffer.bytes`` are -1 (the system's choice), not 100 KiB:
  an event loop reads what has arrived in one call, and a fixed size would switch off Linux's autotuning.
- ``queued.max.request.bytes`` has a limit, Kafka's default has none.
"""

from typing import Annotated

from minikafka.config.definition import INT_MAX, ConfigType, Importance, UpdateMode, prop
from minikafka.config.http_properties import HttpProperties

BOOLEAN, STRING, INT, LONG, LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
)
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE

DEFAULT_PROTOCOL_MAP = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"


class NetworkProperties(HttpProperties, frozen=True, kw_only=True):
    """Listeners and connections; a part of ``BrokerConfig``."""

    listeners: Annotated[
        tuple[str, ...],
        prop(LIST, HIGH, "Where to listen: NAME://host:port, several with commas; no host: all interfaces."),
    ] = ("PLAINTEXT://localhost:9092",)
    advertised_listeners: (
        Annotated[
            tuple[str, ...],
            prop(LIST, HIGH, "The addresses that clients are told to connect to; unset: those of listeners."),
        ]
        | None
    ) = None
    listener_security_protocol_map: Annotated[
        str,
        prop(STRING, LOW, "Listener name to security protocol, NAME:PROTOCOL; only PLAINTEXT can be used."),
    ] = DEFAULT_PROTOCOL_MAP
    controller_listener_names: Annotated[
        tuple[str, ...],
        prop(LIST, HIGH, "Listeners of Kafka's KRaft controller. They are left out: there is none here."),
    ] = ()
    inter_broker_listener_name: (
        Annotated[
            str, prop(STRING, MEDIUM, "The listener that brokers use among themselves; unset: PLAINTEXT.")
        ]
        | None
    ) = None
    socket_request_max_bytes: Annotated[
        int, prop(INT, HIGH, "The largest request; a larger one closes its connection.", ge=1)
    ] = 100 * 1024 * 1024
    socket_send_buffer_bytes: Annotated[
        int, prop(INT, HIGH, "SO_SNDBUF of connections; -1 leaves it to the system.", ge=-1)
    ] = -1
    socket_receive_buffer_bytes: Annotated[
        int, prop(INT, HIGH, "SO_RCVBUF of connections; -1 leaves it to the system.", ge=-1)
    ] = -1
    socket_listen_backlog_size: Annotated[
        int, prop(INT, MEDIUM, "How many connections may wait to be accepted.", ge=1)
    ] = 50
    queued_max_request_bytes: Annotated[
        int,
        prop(LONG, MEDIUM, "Bytes of requests in memory before no more are read; -1 for no limit.", ge=-1),
    ] = 256 * 1024 * 1024
    connections_max_idle_ms: Annotated[
        int, prop(LONG, MEDIUM, "A connection without traffic for this long is closed; negative: never.")
    ] = 10 * 60 * 1000
    max_connections: Annotated[
        int, prop(INT, MEDIUM, "The most connections to the broker.", ge=0, update=CLUSTER_WIDE)
    ] = INT_MAX
    max_connections_per_ip: Annotated[
        int, prop(INT, MEDIUM, "The most connections from one address.", ge=0, update=CLUSTER_WIDE)
    ] = INT_MAX
    max_connections_per_ip_overrides: Annotated[
        str,
        prop(STRING, MEDIUM, "max.connections.per.ip for single hosts: host:count,…", update=CLUSTER_WIDE),
    ] = ""
