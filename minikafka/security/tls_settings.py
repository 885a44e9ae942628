"""What TLS needs on one side of a connection, out of Kafka's properties: which stores, versions and ciphers.

Kafka: ``DefaultSslEngineFactory.configure``, ``SslConfigs``. Nothing is read here but properties; the files
and OpenSSL are ``tls.py``'s matter.

Where it differs from Kafka: TLS 1.0 and 1.1 are refused by name. A store of the type JKS (Kafka's default)
may be a PKCS #12 file, as with Java, but no real JKS: only Java reads those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minikafka.config.definition import ConfigKey, config_keys, parse_value
from minikafka.config.security import AS_THEY_ARE, PropertyNames, SecurityConfig
from minikafka.errors import ConfigError
from minikafka.named_tuple import NamedTuple

VERSIONS = ("TLSv1.2", "TLSv1.3")
"""Those there are, the oldest first."""

CIPHERS_OF_TLS_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""That OpenSSL offers; they have the same names in Java and in OpenSSL."""

_known: dict[str, ConfigKey] = {}

_CIPHERS = {
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "AES_128_CBC_SHA": "AES128-SHA",
    "AES_256_CBC_SHA": "AES256-SHA",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
}
_KEY_EXCHANGES = {
    "ECDHE_ECDSA": "ECDHE-ECDSA-",
    "ECDHE_RSA": "ECDHE-RSA-",
    "DHE_RSA": "DHE-RSA-",
    "RSA": "",
}


class StoreSettings(NamedTuple):
    """Of a key store or a trust store: a file, or PEM texts. Its repr tells no secret."""

    kind: str
    """``keystore`` or ``truststore``, as in the properties' names."""
    type: str
    location: str | None
    password: str | None
    certificates: str | None
    """PEM: the chain of a key store, the authorities of a trust store."""
    key: str | None = None
    """PEM."""
    key_password: str | None = None
    names: PropertyNames = AS_THEY_ARE
    """For errors."""

    @property
    def is_set(self) -> bool:
        return self.location is not None or self.certificates is not None

    def name_of(self, name: str) -> str:
        """The full name of a property of this store."""
        return self.names.of(f"ssl.{self.kind}.{name}")

    def __repr__(self) -> str:
        place = self.location or ("PEM texts" if self.certificates is not None else "none")
        return f"StoreSettings({self.name_of('type')}={self.type}, {place})"


class TlsSettings(NamedTuple):
    """Two that are equal make the same context, as long as the files stay as they are."""

    key_store: StoreSettings
    trust_store: StoreSettings
    versions: tuple[str, ...]
    """Of ``VERSIONS``, at least one, without a gap."""
    ciphers: tuple[str, ...]
    """OpenSSL's names of those for TLS 1.2; empty: OpenSSL's choice."""
    ciphers_of_tls_1_3: tuple[str, ...]
    """Empty: OpenSSL's choice."""
    client_auth: str
    """``none``, ``requested`` or ``required``."""
    checks_host_name: bool
    """Of a server that is connected to."""
    crl_location: str | None
    allows_dn_changes: bool
    allows_san_changes: bool

    @property
    def files(self) -> tuple[str, ...]:
        """What is read, and read again when it changes."""
        places = (self.key_store.location, self.trust_store.location, self.crl_location)
        return tuple(dict.fromkeys(place for place in places if place is not None))


def client_tls_settings(properties: Mapping[str, str]) -> TlsSettings:
    """Of a client, or a server that is no broker, under the names of Kafka's Java client; those that do not
    begin with ``ssl.`` are ignored.

    Raises:
        ConfigError: names the property and what to do.
    """
    values: dict[str, Any] = {}
    for name, text in properties.items():
        key = _keys().get(name) if name.startswith("ssl.") else None
        if key is not None:
            values[key.attribute] = None if key.nullable and not text.strip() else parse_value(key, text)
    return tls_settings(SecurityConfig(**values))


def tls_settings(security: SecurityConfig, names: PropertyNames = AS_THEY_ARE) -> TlsSettings:
    """Of a listener, and of what connects to others of its name. ``security``: what holds for it. Messages
    call its properties by ``names``.

    Raises:
        ConfigError: names the property and what to do.
    """
    key_store = StoreSettings(
        "keystore",
        security.ssl_keystore_type,
        security.ssl_keystore_location,
        security.ssl_keystore_password,
        security.ssl_keystore_certificate_chain,
        security.ssl_keystore_key,
        security.ssl_key_password,
        names,
    )
    trust_store = StoreSettings(
        "truststore",
        security.ssl_truststore_type,
        security.ssl_truststore_location,
        security.ssl_truststore_password,
        security.ssl_truststore_certificates,
        names=names,
    )
    _check_key_store(key_store)
    _check_trust_store(trust_store)
    versions = _versions(security, names)
    old, new = _ciphers(security.ssl_cipher_suites, names.of("ssl.cipher.suites"))
    if old or new:  # a version for which no cipher is named is not spoken, as with Java
        versions = tuple(each for each in versions if (new if each == "TLSv1.3" else old))
        if not versions:
            raise ConfigError(
                f"{names.of('ssl.cipher.suites')} ({', '.join(security.ssl_cipher_suites)}) has no cipher "
                f"for the versions of {names.of('ssl.enabled.protocols')} "
                f"({', '.join(security.ssl_enabled_protocols)})"
            )
    return TlsSettings(
        key_store=key_store,
        trust_store=trust_store,
        versions=versions,
        ciphers=old,
        ciphers_of_tls_1_3=new,
        client_auth=security.ssl_client_auth,
        checks_host_name=_checks_host_name(security, names),
        crl_location=security.ssl_crl_location,
        allows_dn_changes=security.ssl_allow_dn_changes,
        allows_san_changes=security.ssl_allow_san_changes,
    )


def _keys() -> dict[str, ConfigKey]:
    if not _known:
        _known.update(config_keys(SecurityConfig))
    return _known


def _checks_host_name(security: SecurityConfig, names: PropertyNames) -> bool:
    algorithm = security.ssl_endpoint_identification_algorithm.strip().lower()
    if algorithm not in ("", "https", "none"):
        raise ConfigError(
            f"Invalid value {algorithm} for configuration "
            f"{names.of('ssl.endpoint.identification.algorithm')}: must be https (the host name is checked) "
            "or empty (it is not)"
        )
    return algorithm == "https"


def _versions(security: SecurityConfig, names: PropertyNames) -> tuple[str, ...]:
    enabled = [each for each in security.ssl_enabled_protocols if each]
    for name, values in (("ssl.enabled.protocols", enabled), ("ssl.protocol", [security.ssl_protocol])):
        for value in values:
            if value not in VERSIONS and not (name == "ssl.protocol" and value == "TLS"):
                raise ConfigError(
                    f"Invalid value {value} for configuration {names.of(name)}: must be of "
                    f"{', '.join(VERSIONS)}; older versions of TLS are not safe and not there"
                )
    newest = VERSIONS.index(security.ssl_protocol) if security.ssl_protocol in VERSIONS else len(VERSIONS)
    versions = tuple(each for index, each in enumerate(VERSIONS) if each in enabled and index <= newest)
    if not versions:
        raise ConfigError(
            f"{names.of('ssl.enabled.protocols')} ({', '.join(enabled)}) has no version up to "
            f"{names.of('ssl.protocol')} ({security.ssl_protocol})"
        )
    return versions


def _check_key_store(store: StoreSettings) -> None:
    """Kafka's rules and, where it has words for them, its words (``createKeystore``)."""
    is_pem = store.type == "PEM"
    if store.key is not None:
        if not is_pem:
            raise ConfigError(
                f"SSL private key can be specified only for PEM, but key store type is {store.type}: set "
                f"{store.name_of('type')}=PEM"
            )
        if store.certificates is None:
            raise ConfigError(
                "SSL private key is specified, but certificate chain is not specified: set "
                f"{store.name_of('certificate.chain')}"
            )
        if store.location is not None:
            raise ConfigError(
                f"both {store.name_of('location')} and {store.name_of('key')} are set; set one of them"
            )
    elif store.certificates is not None:
        raise ConfigError(
            "SSL certificate chain is specified, but private key is not specified: set "
            f"{store.name_of('key')}"
        )
    elif is_pem and store.location is not None:
        if store.password is not None:
            raise ConfigError(
                "SSL key store password cannot be specified with PEM format, only key password may be "
                f"specified: set {store.names.of('ssl.key.password')} instead of {store.name_of('password')}"
            )
    elif store.location is None and store.password is not None:
        raise ConfigError(
            "SSL key store is not specified, but key store password is specified: set "
            f"{store.name_of('location')}"
        )
    elif store.location is not None and store.password is None:
        raise ConfigError(
            "SSL key store is specified, but key store password is not specified: set "
            f"{store.name_of('password')}, or {store.name_of('type')}=PEM if it is a PEM file"
        )


def _check_trust_store(store: StoreSettings) -> None:
    """As above (``createTruststore``)."""
    is_pem = store.type == "PEM"
    if store.certificates is not None:
        if not is_pem:
            raise ConfigError(
                "SSL trust store certs can be specified only for PEM, but trust store type is "
                f"{store.type}: set {store.name_of('type')}=PEM"
            )
        if store.location is not None:
            raise ConfigError(
                "Both SSL trust store location and separate trust certificates are specified: set one of "
                f"{store.name_of('location')} and {store.name_of('certificates')}"
            )
    if is_pem and store.password is not None:
        raise ConfigError(
            f"SSL trust store password cannot be specified for PEM format: remove {store.name_of('password')}"
        )
    if not store.is_set and store.password is not None:
        raise ConfigError(
            "SSL trust store is not specified, but trust store password is specified: set "
            f"{store.name_of('location')}"
        )


def _ciphers(names: tuple[str, ...], property_name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """OpenSSL's names of those for TLS 1.2, and those for TLS 1.3."""
    old, new = [], []
    for name in filter(None, names):
        if name in CIPHERS_OF_TLS_1_3:
            new.append(name)
        else:
            cipher = openssl_cipher(name)
            if cipher is None:
                raise ConfigError(
                    f"Invalid value {name} for configuration {property_name}: no such cipher suite is there; "
                    "names are Java's, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
                )
            old.append(cipher)
    return tuple(old), tuple(new)


def openssl_cipher(name: str) -> str | None:
    """OpenSSL's name for the cipher of TLS 1.2 that Java calls ``name``; OpenSSL's own names are taken too.
    None: there is none. Anonymous, export, DES and RC4 ciphers are not there."""
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if exchange in _KEY_EXCHANGES and cipher in _CIPHERS:
        return _KEY_EXCHANGES[exchange] + _CIPHERS[cipher]
    for prefix in sorted(_KEY_EXCHANGES.values(), key=len, reverse=True):
        if name.startswith(prefix) and name.removeprefix(prefix) in _CIPHERS.values():
            return name
    return None
