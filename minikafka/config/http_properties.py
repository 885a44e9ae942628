"""The broker's properties for its HTTP port. minikafka's own: Kafka has JMX for this."""

from typing import Annotated

import msgspec

from minikafka.config.definition import ConfigType, Importance, prop


class HttpProperties(msgspec.Struct, frozen=True, kw_only=True):
    """Where status, metrics and health are read; a part of ``BrokerConfig``."""

    http_port: (
        Annotated[
            int,
            prop(
                ConfigType.INT,
                Importance.MEDIUM,
                "The port of the status page, /metrics, /healthz and /readyz; 0: any free one; unset: none.",
                ge=0,
                le=65535,
            ),
        ]
        | None
    ) = None
    http_host: Annotated[
        str,
        prop(
            ConfigType.STRING,
            Importance.MEDIUM,
            "The address that the HTTP port listens on; empty: all. Whoever reaches it may read.",
        ),
    ] = "127.0.0.1"
