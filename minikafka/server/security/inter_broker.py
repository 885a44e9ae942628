"""How this broker reaches the others: by the protocol of the listener that brokers use, as its own client.

Kafka: ``ChannelBuilders.clientChannelBuilder`` of the inter-broker listener, ``JaasContext``.
A connection has what is configured when it is made: new stores, another password or mechanism hold from the
next connection on. The key store of the listener is what this broker shows, its trust store what it believes,
and the options ``username`` and ``password`` of the listener's JAAS configuration are whom it logs in as.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minikafka.config.broker import BrokerConfig
from minikafka.config.security import jaas_config_name, jaas_configs
from minikafka.errors import ConfigError
from minikafka.network.addresses import format_address
from minikafka.network.broker_client import BrokerClient, BrokerUnavailable
from minikafka.network.client_security import ClientSecurity, jaas_options, sasl_login
from minikafka.server.cluster.broker_connection import Connect

if TYPE_CHECKING:
    import ssl

    from minikafka.network.sasl_login import SaslLogin

ClientContext = Callable[[str], "ssl.SSLContext"]
"""The current context of a listener, for connections that this broker makes (``TransportSecurity``)."""


class InterBrokerConnect:
    """``connect`` with what the listener needs, which is not of plain text. The protocol is that of the
    start: listeners do not change it."""

    def __init__(
        self, connect: Connect, config: Callable[[], BrokerConfig], *, client_context: ClientContext | None
    ) -> None:
        """``config``: as it is now. Raises ConfigError: there is no login, or it is none of its mechanism."""
        self._connect = connect
        self._config = config
        self._listener = listener = config().inter_broker_listener()
        protocol = config().inter_broker_protocol()
        tls_context = None
        if protocol.endswith("SSL") and client_context is not None:
            current = client_context

            async def tls_context() -> ssl.SSLContext:
                return current(listener)

        self._security = ClientSecurity(protocol, tls_context=tls_context)
        self._login_of: tuple[str, ...] = ()
        if protocol.startswith("SASL"):
            self._take_login()

    def __repr__(self) -> str:
        return f"InterBrokerConnect({self._listener}, {self._security})"

    async def __call__(self, host: str, port: int, **options: Any) -> BrokerClient:
        """Raises BrokerUnavailable, also where a changed configuration is no good."""
        try:
            if self._security.login is not None:
                self._take_login()
            return await self._connect(host, port, security=self._security, **options)
        except ConfigError as error:
            raise BrokerUnavailable(f"broker {format_address(host, port)}: {error}") from None

    def _take_login(self) -> None:
        """What is configured now. A login that does not change stays, with the token that it may have."""
        config = self._config()
        listener = config.listener_security(self._listener)
        mechanism = listener.sasl_mechanism_inter_broker_protocol.upper()
        configured = jaas_configs(self._listener, config.originals)
        jaas = configured.get(mechanism, configured.get("", ""))
        name = jaas_config_name(self._listener, mechanism, config.originals)
        url = listener.sasl_oauthbearer_token_endpoint_url
        if (mechanism, jaas, url or "") != self._login_of:
            login = self._made_login(mechanism, jaas, url, name)
            self._security = ClientSecurity(
                self._security.protocol, tls_context=self._security.tls_context, login=login
            )
            self._login_of = (mechanism, jaas, url or "")

    def _made_login(self, mechanism: str, jaas: str, url: str | None, name: str) -> SaslLogin:
        try:
            return sasl_login(mechanism, jaas_options(jaas, mechanism), token_endpoint_url=url)
        except ConfigError as error:
            raise ConfigError(f"{error} (brokers log in to each other by {name})") from None
