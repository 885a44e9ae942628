"""How a client reaches a secured broker: by TLS or not, by which SASL mechanism, as whom.

Kafka: ``ClientUtils.createChannelBuilder``, ``SaslClientCallbackHandler``. Made once out of Java's client
properties, used for every connection: the stores are read when the first connection needs them, in a thread.

Nothing here shows a password, a token or a key, in no ``repr`` and no error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from minikafka.config.listeners import SECURITY_PROTOCOLS
from minikafka.config.security import SASL_MECHANISMS
from minikafka.errors import ConfigError
from minikafka.network.sasl_login import SaslLogin
from minikafka.security.jaas import jaas_module
from minikafka.security.tls_settings import TlsSettings, client_tls_settings

if TYPE_CHECKING:
    import ssl

TlsContext = Callable[[], Awaitable["ssl.SSLContext"]]
"""The context for the next connection. Raises ConfigError: a store cannot be read."""


class ClientSecurity:
    """What every connection of a client does before its first request."""

    def __init__(
        self, protocol: str, *, tls_context: TlsContext | None = None, login: SaslLogin | None = None
    ) -> None:
        self.protocol = protocol
        self.tls_context = tls_context
        """None: without TLS."""
        self.login = login
        """None: without SASL."""

    def __repr__(self) -> str:
        return f"ClientSecurity({self.protocol}{'' if self.login is None else f', {self.login.mechanism}'})"


def client_security(properties: Mapping[str, str]) -> ClientSecurity:
    """Of Java's client properties (``client.properties``); those that have nothing to do with it are ignored.

    Raises:
        ConfigError: names the property, and what to do.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise ConfigError(
            f"Invalid value {protocol} for configuration security.protocol: must be one of "
            f"{', '.join(SECURITY_PROTOCOLS)}"
        )
    tls_context = None
    if protocol.endswith("SSL"):
        tls_context = once_made(client_tls_settings(properties))
    login = None
    if protocol.startswith("SASL"):
        mechanism = sasl_mechanism(properties)
        options = jaas_options(properties.get("sasl.jaas.config"), mechanism)
        url = properties.get("sasl.oauthbearer.token.endpoint.url")
        credentials = {
            option: properties[name] for name, option in CLIENT_CREDENTIALS.items() if name in properties
        }
        login = sasl_login(mechanism, {**options, **credentials}, token_endpoint_url=url)
    return ClientSecurity(protocol, tls_context=tls_context, login=login)


CLIENT_CREDENTIALS = {
    "sasl.oauthbearer.client.credentials.client.id": "clientId",
    "sasl.oauthbearer.client.credentials.client.secret": "clientSecret",
    "sasl.oauthbearer.scope": "scope",
}
"""Kafka 4.1 has as properties (KIP-1139) what was a JAAS option before."""


def sasl_mechanism(properties: Mapping[str, str]) -> str:
    """``sasl.mechanism``, which has no default here: Kafka's is GSSAPI. Raises ConfigError."""
    mechanism = properties.get("sasl.mechanism", "").strip().upper()
    if mechanism in SASL_MECHANISMS:
        return mechanism
    known = ", ".join(SASL_MECHANISMS)
    if not mechanism:
        raise ConfigError(f"security.protocol is one of SASL: set sasl.mechanism to one of {known}")
    why = "Kerberos is not supported; " if mechanism == "GSSAPI" else ""
    raise ConfigError(
        f"Invalid value {mechanism} for configuration sasl.mechanism: {why}must be one of {known}"
    )


def jaas_options(text: str | None, mechanism: str) -> Mapping[str, str]:
    """The options of the login module in ``sasl.jaas.config``. Raises ConfigError."""
    if text is None or not text.strip():
        if mechanism == "OAUTHBEARER":  # whose token may be in a file, which is a property of its own
            return {}
        module = {"PLAIN": "plain.PlainLoginModule"}.get(mechanism, "scram.ScramLoginModule")
        raise ConfigError(
            f"sasl.jaas.config is not set, and {mechanism} needs it: sasl.jaas.config="
            f'org.apache.kafka.common.security.{module} required username="…" password="…";'
        )
    return jaas_module(text, mechanism).options


def sasl_login(
    mechanism: str, options: Mapping[str, str], *, token_endpoint_url: str | None = None
) -> SaslLogin:
    """The login of a client, or of a broker that is one. Raises ConfigError."""
    if mechanism != "OAUTHBEARER":
        return SaslLogin(mechanism, options)
    from minikafka.network.bearer_tokens import token_source  # with urllib: 30 ms that few need

    return SaslLogin(mechanism, options, token=token_source(options, token_endpoint_url))


# TLS


def once_made(settings: TlsSettings) -> TlsContext:
    """The context of these settings, made when it is first asked for; a failure is tried again."""
    made: ssl.SSLContext | None = None

    async def context() -> ssl.SSLContext:
        nonlocal made
        if made is None:
            made = await asyncio.to_thread(read_stores, settings)
        return made

    return context


def read_stores(settings: TlsSettings) -> ssl.SSLContext:
    """The context of a client. Reads files. Raises ConfigError."""
    from minikafka.security.tls import client_context  # with ssl and cryptography: 50 ms that few need

    return client_context(settings)
