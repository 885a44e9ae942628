"""``--command-config``: a file of client properties, for our own connections, for aiokafka and librdkafka.

Kafka: the ``--command-config`` of its scripts. A file may have Java's names or librdkafka's, whose few that
differ are turned into Java's (``read_client_properties``); everything else here goes by Java's. A password is
in the file, or where its config providers say (KIP-421: another file, an environment variable), never on a
command line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minikafka.config.loader import resolve_properties
from minikafka.config.properties import parse_properties
from minikafka.errors import ConfigError
from minikafka.network.client_security import (
    CLIENT_CREDENTIALS,
    ClientSecurity,
    client_security,
    jaas_options,
    read_stores,
)
from minikafka.security.tls_settings import client_tls_settings

if TYPE_CHECKING:
    from minikafka.network.client_security import SaslLogin

FILE_BYTES_MAX = 1024 * 1024
"""Such a file has some lines; with certificates in it, some KiB."""

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}

_OAUTH_NAMES = {
    "sasl.oauthbearer.client.credentials.client.id": ("sasl.oauthbearer.client.id",),
    "sasl.oauthbearer.client.credentials.client.secret": ("sasl.oauthbearer.client.secret",),
}


def read_client_properties(path: str) -> dict[str, str]:
    """The properties of a file under Java's names.

    Raises:
        ConfigError: it cannot be read, or has what cannot be done; no secret is in it.
    """
    properties = {
        each.name: each.value for each in parse_properties(read_bounded(path), source=path) if each.name
    }
    return _with_java_names(resolve_properties(properties, environment=os.environ))


def read_bounded(path: str) -> bytes:
    """A file of properties or PEM. Raises ConfigError: it cannot be read, or is too large for that."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{path} has more than {FILE_BYTES_MAX} bytes: it is no file of properties")
    return data


def _with_java_names(properties: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's names as Java's. What is there under Java's name counts more. Raises ConfigError."""
    java = dict(properties)

    def taken(*names: str) -> str | None:
        return next((value for name in names if (value := java.pop(name, None))), None)

    if taken("enable.ssl.certificate.verification") in ("false", "0"):
        raise ConfigError(
            "enable.ssl.certificate.verification=false would trust anybody: set ssl.ca.location, or "
            "ssl.endpoint.identification.algorithm=none if only the host name does not fit"
        )
    if (brokers := taken("metadata.broker.list")) is not None:
        java.setdefault("bootstrap.servers", brokers)
    if (mechanism := taken("sasl.mechanisms")) is not None:
        java.setdefault("sasl.mechanism", mechanism)
    username, password = taken("sasl.username"), taken("sasl.password")
    module = _LOGIN_MODULES.get(java.get("sasl.mechanism", "").upper())
    if username is not None and module is not None:
        java.setdefault(
            "sasl.jaas.config",
            f"{module} required username={_quoted(username)} password={_quoted(password or '')};",
        )
    for name, others in _OAUTH_NAMES.items():
        if (value := taken(*others)) is not None:
            java.setdefault(name, value)
    if java.get("ssl.endpoint.identification.algorithm") == "none":
        java["ssl.endpoint.identification.algorithm"] = ""
    _take_certificates(java, taken("ssl.ca.location"), taken("ssl.ca.pem"))
    _take_key(
        java,
        chain=taken("ssl.certificate.pem") or _text_of(taken("ssl.certificate.location")),
        key=taken("ssl.key.pem") or _text_of(taken("ssl.key.location")),
    )
    return java


def _take_certificates(java: dict[str, str], location: str | None, pem: str | None) -> None:
    if location is None and pem is None:
        return
    java["ssl.truststore.type"] = "PEM"
    if location is not None:
        java["ssl.truststore.location"] = location
    elif pem is not None:
        java["ssl.truststore.certificates"] = pem


def _take_key(java: dict[str, str], *, chain: str | None, key: str | None) -> None:
    if chain is not None and key is not None:
        java["ssl.keystore.type"] = "PEM"
        java["ssl.keystore.certificate.chain"], java["ssl.keystore.key"] = chain, key
    elif chain is not None or key is not None:
        raise ConfigError("ssl.certificate.location and ssl.key.location belong together: set both")
    elif (
        "ssl.keystore.location" in java
    ):  # librdkafka's are all of PKCS #12, Java's of this kind unless named
        java.setdefault("ssl.keystore.type", "PKCS12")


def _text_of(path: str | None) -> str | None:
    return None if path is None else read_bounded(path).decode("ascii", "replace")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


# aiokafka


def aiokafka_options(properties: Mapping[str, str]) -> dict[str, Any]:
    """What ``AIOKafkaProducer`` and ``AIOKafkaConsumer`` are called with. Reads the stores.

    Raises:
        ConfigError: names the property.
    """
    security = client_security(properties)
    options: dict[str, Any] = {"security_protocol": security.protocol}
    if security.tls_context is not None:
        options["ssl_context"] = read_stores(client_tls_settings(properties))
    if security.login is not None:
        options |= _aiokafka_login(security.login, properties)
    return options


def _aiokafka_login(login: SaslLogin, properties: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {"sasl_mechanism": login.mechanism}
    if login.token is None:
        jaas = _plain_login(login.mechanism, properties, "aiokafka")
        return options | {"sasl_plain_username": jaas["username"], "sasl_plain_password": jaas["password"]}
    from aiokafka.abc import AbstractTokenProvider  # type: ignore[import-untyped]

    source = login.token

    class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
        async def token(self) -> str:
            return await source()

    return options | {"sasl_oauth_token_provider": TokenProvider()}


def _plain_login(mechanism: str, properties: Mapping[str, str], client: str) -> Mapping[str, str]:
    """``username`` and ``password``, for a library that knows nothing else. Raises ConfigError."""
    options = jaas_options(properties.get("sasl.jaas.config"), mechanism)
    if options.get("tokenauth", "").lower() == "true":
        raise ConfigError(f"{client}, which does the work here, cannot log in by a delegation token")
    return options


# librdkafka


def librdkafka_options(properties: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's configuration of the same connection. Reads the trust store when that is PKCS #12.

    Raises:
        ConfigError: names the property, or what librdkafka cannot do.
    """
    security = client_security(properties)
    options = {"security.protocol": security.protocol.lower()}
    if security.tls_context is not None:
        options |= _librdkafka_tls(properties)
    if security.login is not None:
        options |= _librdkafka_login(security, properties)
    return options


def _librdkafka_login(security: ClientSecurity, properties: Mapping[str, str]) -> dict[str, str]:
    assert security.login is not None
    mechanism = security.login.mechanism
    options = {"sasl.mechanism": mechanism}
    if mechanism != "OAUTHBEARER":
        jaas = _plain_login(mechanism, properties, "librdkafka")
        return options | {"sasl.username": jaas["username"], "sasl.password": jaas["password"]}
    jaas = {
        **jaas_options(properties.get("sasl.jaas.config"), mechanism),
        **{option: properties[name] for name, option in CLIENT_CREDENTIALS.items() if name in properties},
    }
    url = properties.get("sasl.oauthbearer.token.endpoint.url")
    if url is None:
        return options | {
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": f"principal={jaas['unsecuredLoginStringClaim_sub']}",
        }
    if url.startswith("file:"):
        raise ConfigError(
            "sasl.oauthbearer.token.endpoint.url: librdkafka, which does the work here, reads no token from "
            "a file; set an https: URL"
        )
    options |= {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.id": jaas["clientId"],
        "sasl.oauthbearer.client.secret": jaas["clientSecret"],
    }
    return options | ({"sasl.oauthbearer.scope": jaas["scope"]} if "scope" in jaas else {})


def _librdkafka_tls(properties: Mapping[str, str]) -> dict[str, str]:
    import ssl

    from minikafka.security.tls import load_key_store, load_trust_store  # with cryptography

    settings = client_tls_settings(properties)
    options = {"ssl.endpoint.identification.algorithm": "https" if settings.checks_host_name else "none"}
    authorities = load_trust_store(settings.trust_store)
    if authorities is not None:
        options["ssl.ca.pem"] = "".join(map(ssl.DER_cert_to_PEM_cert, authorities))
    key_store = load_key_store(settings.key_store)
    if key_store is not None:
        options["ssl.certificate.pem"] = key_store.chain.decode()
        options["ssl.key.pem"] = key_store.key.decode()
    return options
