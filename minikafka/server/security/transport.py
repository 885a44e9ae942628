"""What the broker's listeners and its connections to other brokers have of TLS, kept as the stores are now.

Kafka: ``SslFactory``, ``SslChannelBuilder``, the SSL part of ``DynamicListenerConfig`` (KIP-226), and
``SslEngineValidator``. Stores are read in a thread: at the start, before a client's change of the
configuration is stored, and when a file has changed. A new store takes the place of the old one for the
connections that begin from then on. One that cannot be used is told in a line, and the old one stays; so is
one that is for another name (``ssl.allow.dn.changes``, ``ssl.allow.san.changes``), or that brokers would not
trust among themselves.

Where it differs from Kafka: files are looked at every few seconds; Kafka looks when a client alters the
configuration.

**To the other brokers** it goes by the protocol of the listener that brokers use, as its own client. Kafka:
``ChannelBuilders.clientChannelBuilder`` of the inter-broker listener, ``JaasContext``. A connection has what
is configured when it is made: new stores, another password or mechanism hold from the next connection on. The
key store of the listener is what this broker shows, its trust store what it believes, and the options
``username`` and ``password`` of the listener's JAAS configuration are whom it logs in as.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.config.listeners import Listener
from minikafka.config.security import jaas_config_name, jaas_configs, listener_property_names
from minikafka.deferred import deferred
from minikafka.errors import ConfigError, InvariantError, StartError
from minikafka.named_tuple import NamedTuple
from minikafka.network.addresses import format_address
from minikafka.network.broker_client import BrokerClient, BrokerUnavailable
from minikafka.network.client_security import ClientSecurity, jaas_options, sasl_login
from minikafka.security.acl import ANONYMOUS, KafkaPrincipal
from minikafka.security.certificate_principal import SslPrincipalMapper
from minikafka.security.tls_settings import TlsSettings, tls_settings
from minikafka.server.cluster.broker_connection import Connect

if TYPE_CHECKING:
    import ssl

    from minikafka.network.client_security import SaslLogin
    from minikafka.security import tls
    from minikafka.security.tls import KeyStore
else:
    tls = deferred("minikafka.security.tls", at_start_or_never=True)

logger = logging.getLogger(__name__)

WATCH_SECONDS = 3.0
"""How often files are looked at. A change is read when the next look finds the file as the last one did: who
writes a store in several steps is not caught in the middle."""

EXPIRY_WARNING_MS = 14 * 24 * 3_600_000

Stamps = tuple[tuple[int, int, int] | None, ...]
"""Of each file inode, size and time of the last change (ns); None: it is not there."""

ClientContext = Callable[[str], "ssl.SSLContext"]
"""The current context of a listener, for connections that this broker makes (``TransportSecurity``)."""


class _Loaded(NamedTuple):
    settings: TlsSettings
    stamps: Stamps
    server: ssl.SSLContext
    client: ssl.SSLContext | None
    """Of the listener that brokers use among themselves."""
    key_store: KeyStore


class ListenerTransport:
    """TLS of one listener: the acceptor's ``TlsListener``."""

    def __init__(self, listener: Listener, config: BrokerConfig) -> None:
        """Raises ConfigError: the rules for principals are none."""
        self.name = listener.name
        self._has_sasl = listener.protocol.startswith("SASL")
        self.is_inter_broker = listener.name == config.inter_broker_listener()
        rules = config.listener_security(listener.name).ssl_principal_mapping_rules
        self._mapper = SslPrincipalMapper(rules)
        self._loaded: _Loaded | None = None

    def __repr__(self) -> str:
        return f"ListenerTransport({self.name}, {self._loaded and self._loaded.key_store})"

    @property
    def loaded(self) -> _Loaded:
        if self._loaded is None:
            raise InvariantError(f"the stores of {self.name} have not been read")
        return self._loaded

    @property
    def key_store(self) -> KeyStore:
        """The one that new connections get."""
        return self.loaded.key_store

    def context(self) -> ssl.SSLContext:
        """For a connection that is accepted now."""
        return self.loaded.server

    def client_context(self) -> ssl.SSLContext:
        """For a connection to another broker that begins now.

        Raises:
            InvariantError: brokers do not use this listener among themselves.
        """
        client = self.loaded.client
        if client is None:
            raise InvariantError(f"brokers do not use the listener {self.name} among themselves")
        return client

    def principal(self, certificate: bytes | None) -> KafkaPrincipal:
        """With SASL on top, the certificate is not who the peer is. Raises ValueError: no rule matches."""
        return ANONYMOUS if self._has_sasl else self._mapper.principal(certificate)

    def settings(self, config: BrokerConfig) -> TlsSettings:
        """What ``config`` says of this listener. Raises ConfigError."""
        names = listener_property_names(self.name, "ssl.", config.originals)
        return tls_settings(config.listener_security(self.name), names)

    def load(self, settings: TlsSettings) -> _Loaded:
        """Blocks.

        Raises:
            ConfigError: a store cannot be used at all, or not in place of the one that is there.
        """
        stamps = _stamps(settings.files)
        try:
            server, key_store = tls.server_side(settings)
            client = tls.client_context(settings) if self.is_inter_broker else None
            if client is not None:
                tls.check_trusts_itself(settings, server)
            if self._loaded is not None:
                key_store.check_replaces(
                    self._loaded.key_store,
                    allows_dn=settings.allows_dn_changes,
                    allows_san=settings.allows_san_changes,
                )
        except ConfigError as error:
            raise ConfigError(f"listener {self.name}: {error}") from None
        return _Loaded(settings, stamps, server, client, key_store)

    def use(self, loaded: _Loaded) -> None:
        """From the next connection on."""
        self._loaded = loaded


class TransportSecurity:
    """All of a broker's listeners with TLS."""

    def __init__(self, config: BrokerConfig, *, clock: Clock) -> None:
        """
        Raises:
            StartError: rules for principals that are none.
        """
        self._clock = clock
        self._config = config
        try:
            self.listeners = {
                listener.name: ListenerTransport(listener, config)
                for listener in config.endpoints()
                if listener.protocol.endswith("SSL")
            }
        except ConfigError as error:
            raise StartError(str(error)) from None
        self._checked: dict[str, _Loaded] = {}
        """By listener: for what a client is about to set."""
        self._refused: dict[str, tuple[TlsSettings, Stamps]] = {}
        """By listener: what was found unusable and told."""
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"TransportSecurity({list(self.listeners.values())})"

    def client_context(self, listener_name: str) -> ssl.SSLContext:
        """The current one for connections to other brokers' listeners of this name."""
        return self.listeners[listener_name].client_context()

    async def load(self) -> None:
        """At the start.

        Raises:
            StartError: a store cannot be used.
        """
        try:
            for listener in self.listeners.values():
                settings = listener.settings(self._config)
                listener.use(await asyncio.to_thread(listener.load, settings))
                if settings.client_auth != "none" and not settings.trust_store.is_set:
                    logger.warning(
                        "listener %s takes client certificates of any authority that this system trusts; "
                        "set %s",
                        listener.name,
                        settings.trust_store.name_of("location"),
                    )
                self._warn_of_expiry(listener)
        except ConfigError as error:
            raise StartError(str(error)) from None

    async def check(self, config: BrokerConfig) -> None:
        """Whether ``config`` can be used; its stores are kept for ``apply``.

        Raises:
            ConfigError: a store cannot be used.
        """
        for listener in self.listeners.values():
            settings = listener.settings(config)
            self._checked.pop(listener.name, None)
            if not await self._is_current(listener, settings):
                self._checked[listener.name] = await asyncio.to_thread(listener.load, settings)

    def apply(self, config: BrokerConfig) -> None:
        """``config`` holds from now on. Stores that ``check`` has not seen are read soon."""
        self._config = config
        for listener in self.listeners.values():
            checked = self._checked.pop(listener.name, None)
            if checked is not None and checked.settings == listener.settings(config):
                self._use(listener, checked)
            else:
                self._changed.set()

    async def watch(self) -> None:
        """Until cancelled: read what has changed."""
        seen: dict[str, Stamps] = {}
        while True:
            try:
                async with asyncio.timeout(WATCH_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            for listener in self.listeners.values():
                await self._look(listener, seen)

    async def _look(self, listener: ListenerTransport, seen: dict[str, Stamps]) -> None:
        try:
            settings = listener.settings(self._config)
        except ConfigError as error:
            logger.error("listener %s goes on as before: %s", listener.name, error)
            return
        stamps = await asyncio.to_thread(_stamps, settings.files)
        is_steady = seen.get(listener.name, listener.loaded.stamps) == stamps
        seen[listener.name] = stamps
        known = listener.loaded.settings, listener.loaded.stamps
        if (settings, stamps) == known:
            self._refused.pop(listener.name, None)
            return
        if not is_steady or self._refused.get(listener.name) == (settings, stamps):
            return
        try:
            loaded = await asyncio.to_thread(listener.load, settings)
        except ConfigError as error:
            self._refused[listener.name] = settings, stamps
            logger.error("new stores are not used, connections get the old ones: %s", error)
            return
        if settings == listener.settings(self._config):  # else the next look is about the new ones
            self._use(listener, loaded)

    async def _is_current(self, listener: ListenerTransport, settings: TlsSettings) -> bool:
        if settings != listener.loaded.settings:
            return False
        return await asyncio.to_thread(_stamps, settings.files) == listener.loaded.stamps

    def _use(self, listener: ListenerTransport, loaded: _Loaded) -> None:
        listener.use(loaded)
        self._refused.pop(listener.name, None)
        logger.info("listener %s has new stores; new connections get %s", listener.name, loaded.key_store)
        self._warn_of_expiry(listener)

    def _warn_of_expiry(self, listener: ListenerTransport) -> None:
        left_ms = listener.key_store.expires_ms - self._clock.now_ms()
        if left_ms < EXPIRY_WARNING_MS:
            logger.warning(
                "the certificate of listener %s (%s) %s",
                listener.name,
                listener.key_store,
                "has expired" if left_ms <= 0 else f"expires in {left_ms / 86_400_000:.1f} days",
            )


def _stamps(files: Iterable[str]) -> Stamps:
    return tuple(map(_stamp, files))


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


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
