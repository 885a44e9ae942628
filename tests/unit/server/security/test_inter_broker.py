"""How a broker reaches the others: what is configured when a connection is made."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from minikafka.config.broker import BrokerConfig, broker_config
from minikafka.errors import ConfigError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.network.client_security import ClientSecurity
from minikafka.server.security.transport import InterBrokerConnect

MODULES = "org.apache.kafka.common.security"
PLAIN = f"{MODULES}.plain.PlainLoginModule required username=broker password=%s user_broker=x;"
SCRAM = f"{MODULES}.scram.ScramLoginModule required username=broker password=%s;"


class Others:
    """The other brokers: notes how they are connected to."""

    def __init__(self) -> None:
        self.securities: list[ClientSecurity] = []

    async def connect(self, host: str, port: int, *, security: ClientSecurity, **options: Any) -> Any:
        self.securities.append(security)
        if security.tls_context is not None:
            await security.tls_context()


def config(protocol: str = "SASL_SSL", **changed: str) -> BrokerConfig:
    properties = {
        "listeners": f"SECURE://localhost:9093,{protocol}://localhost:9094",
        "listener.security.protocol.map": f"SECURE:{protocol},{protocol}:{protocol}",
        "inter.broker.listener.name": "SECURE",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/nothing/reads/it.pem",
        "listener.name.secure.plain.sasl.jaas.config": PLAIN % "first",
        "listener.name.secure.scram-sha-512.sasl.jaas.config": SCRAM % "other",
    }
    return broker_config(properties | {name.replace("__", "."): value for name, value in changed.items()})


async def test_the_listeners_protocol_mechanism_and_stores() -> None:
    others, asked = Others(), []

    def client_context(listener: str) -> ssl.SSLContext:
        asked.append(listener)
        return ssl.create_default_context()

    connect = InterBrokerConnect(others.connect, config, client_context=client_context)
    for _ in range(2):
        await connect("localhost", 9093, client_id="test", deadline_ms=1000)
    assert [each.protocol for each in others.securities] == ["SASL_SSL"] * 2
    login = others.securities[0].login
    assert login is not None and login.mechanism == "PLAIN"
    assert others.securities[1].login is login, "what does not change is kept"
    assert asked == ["SECURE"] * 2, "each connection has the stores of its time"


async def test_another_mechanism_holds_from_the_next_connection_on() -> None:
    others, now = Others(), config("SASL_PLAINTEXT")
    connect = InterBrokerConnect(others.connect, lambda: now, client_context=None)
    await connect("localhost", 9093, client_id="test", deadline_ms=1000)
    now = config("SASL_PLAINTEXT", sasl__mechanism__inter__broker__protocol="SCRAM-SHA-512")
    await connect("localhost", 9093, client_id="test", deadline_ms=1000)
    logins = [each.login for each in others.securities]
    assert [each and each.mechanism for each in logins] == ["PLAIN", "SCRAM-SHA-512"]
    now = config("SASL_PLAINTEXT", listener__name__secure__plain__sasl__jaas__config=f"{PLAIN};")
    with pytest.raises(BrokerUnavailable, match=r"broker localhost:9093: .*sasl\.jaas\.config"):
        await connect("localhost", 9093, client_id="test", deadline_ms=1000)


async def test_tls_alone_needs_no_login() -> None:
    others = Others()
    connect = InterBrokerConnect(
        others.connect, lambda: config("SSL"), client_context=lambda listener: ssl.create_default_context()
    )
    await connect("localhost", 9093, client_id="test", deadline_ms=1000)
    assert others.securities[0].login is None


def test_brokers_that_cannot_log_in_to_each_other_do_not_start() -> None:
    def without_login() -> BrokerConfig:
        return config("SASL_PLAINTEXT", listener__name__secure__plain__sasl__jaas__config="")

    with pytest.raises(ConfigError, match=r"listener\.name\.secure\.plain\.sasl\.jaas\.config"):
        InterBrokerConnect(Others().connect, without_login, client_context=None)


def test_no_password_is_shown() -> None:
    connect = InterBrokerConnect(Others().connect, config, client_context=None)
    assert "first" not in repr(connect)
