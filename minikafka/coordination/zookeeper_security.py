"""How ZooKeeper is reached, out of a broker's properties.

Kafka: ``KafkaServer.zkClientConfigFromKafkaConfig``; of the JAAS section ``Client`` there is the property
``zookeeper.sasl.jaas.config``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from minikafka.config.broker import BrokerConfig
from minikafka.config.security import PropertyNames
from minikafka.coordination.store import StoreUnusableError
from minikafka.coordination.zookeeper_session import Login, ZooKeeperSecurity
from minikafka.errors import ConfigError
from minikafka.security.jaas import parse_jaas
from minikafka.security.tls_settings import TlsSettings, client_tls_settings

if TYPE_CHECKING:
    import ssl

DIGEST_LOGIN_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
_TYPES = {".pem": "PEM", ".p12": "PKCS12", ".pfx": "PKCS12"}
"""ZooKeeper's ``KeyStoreFileType.fromFilename``; others are JKS."""


async def zookeeper_security(config: BrokerConfig) -> ZooKeeperSecurity:
    """Raises StoreUnusableError: a property is wrong, or a store cannot be read."""
    try:
        tls_context = None
        if config.zookeeper_ssl_client_enable:
            settings = tls_settings(config)

            def context() -> ssl.SSLContext:
                from minikafka.security.tls import client_context  # with cryptography

                return client_context(settings)

            await asyncio.to_thread(context)  # what is wrong is told at the start
            tls_context = context
        return ZooKeeperSecurity(
            tls_context, _login(config.zookeeper_sasl_jaas_config), config.zookeeper_set_acl
        )
    except ConfigError as error:
        raise StoreUnusableError(str(error)) from None


def tls_settings(config: BrokerConfig) -> TlsSettings:
    """``zookeeper.ssl.…`` as what they are without the prefix. Raises ConfigError."""
    versions = config.zookeeper_ssl_enabled_protocols or (config.zookeeper_ssl_protocol,)
    properties = {
        "ssl.protocol": max(versions),
        "ssl.enabled.protocols": ",".join(versions),
        "ssl.cipher.suites": ",".join(config.zookeeper_ssl_cipher_suites or ()),
        "ssl.endpoint.identification.algorithm": config.zookeeper_ssl_endpoint_identification_algorithm,
    }
    for kind in ("keystore", "truststore"):
        location = getattr(config, f"zookeeper_ssl_{kind}_location")
        if location is not None:
            given = getattr(config, f"zookeeper_ssl_{kind}_type")
            end = location[location.rfind(".") :].lower()
            properties[f"ssl.{kind}.location"] = location
            properties[f"ssl.{kind}.type"] = given or _TYPES.get(end, "JKS")
        password = getattr(config, f"zookeeper_ssl_{kind}_password")
        if password is not None:
            properties[f"ssl.{kind}.password"] = password
    try:
        settings = client_tls_settings(properties)
    except ConfigError as error:
        raise ConfigError(f"the properties zookeeper.ssl.…: {error}") from None
    return settings._replace(
        key_store=settings.key_store._replace(names=PropertyNames("zookeeper.")),
        trust_store=settings.trust_store._replace(names=PropertyNames("zookeeper.")),
    )


def _login(text: str | None) -> Login | None:
    """Raises ConfigError."""
    if text is None:
        return None
    try:
        modules = parse_jaas(text)
    except ConfigError as error:  # which knows of no other property than clients' own
        raise ConfigError(str(error).replace(" sasl.jaas.config:", " zookeeper.sasl.jaas.config:")) from None
    options = modules[0].options
    if len(modules) > 1 or modules[0].login_module != DIGEST_LOGIN_MODULE:
        raise ConfigError(f"zookeeper.sasl.jaas.config: must be one module, {DIGEST_LOGIN_MODULE}")
    for name in ("username", "password"):
        if not options.get(name):
            raise ConfigError(f"zookeeper.sasl.jaas.config: the option {name} is missing")
    try:
        import puresasl  # noqa: F401 - by which kazoo logs in
    except ModuleNotFoundError:
        raise ConfigError(
            "zookeeper.sasl.jaas.config: pure-sasl is not installed: pip install 'minikafka[zookeeper]'"
        ) from None
    return Login(options["username"], options["password"])
