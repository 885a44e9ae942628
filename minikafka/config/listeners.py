"""Where a broker listens: Kafka's listeners, and the HTTP port.

Listeners: where a broker listens, and what it tells clients to connect to.

Kafka: ``EndPoint``, ``SocketServerConfigs.listenerListToEndPoints``, ``KafkaConfig``'s checks. A listener is
``NAME://host:port``; the name maps to a security protocol through ``listener.security.protocol.map``.

The HTTP port: where it listens, whom it answers, and its TLS. minikafka's own; Kafka has JMX for this.

The properties of TLS have the names of a listener's with ``http.`` before them, and mean the same
(``SslConfigs``); TLS is used when there is a key store. ``HttpConfig.http_tls`` gives them under a listener's
names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

from minikafka.config.definition import HIDDEN, ConfigType, Importance, prop
from minikafka.config.security import SecurityConfig, StoreTypeName
from minikafka.errors import ConfigError

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's, by the numbers that UpdateMetadata has for them: the place in this tuple."""

_LISTENER = re.compile(
    r"(?P<name>[^:/]+)://(?P<host>\[[0-9a-zA-Z:.%_-]*\]|[0-9a-zA-Z.%_-]*):(?P<port>[0-9]{1,5})"
)
_LOOPBACK = re.compile(r"127(\.[0-9]{1,3}){3}")
_META_ADDRESSES = frozenset({"0.0.0.0", "::", "0:0:0:0:0:0:0:0"})


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``. A name other than ``localhost`` may be any machine's."""
    return host in ("localhost", "::1") or _LOOPBACK.fullmatch(host) is not None


class Listener(NamedTuple):
    """One listener. An empty ``host`` means all interfaces; port 0 lets the system choose."""

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"

    @property
    def is_wildcard(self) -> bool:
        """Whether the host is no address that a client could connect to."""
        return not self.host or self.host in _META_ADDRESSES

    @property
    def is_unprotected(self) -> bool:
        """Whether other machines reach it, and need not say who they are."""
        return not (self.protocol.startswith("SASL") or is_loopback(self.host))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """``NAME:PROTOCOL,…`` (``listener.security.protocol.map``) as listener name → protocol.

    Raises:
        ConfigError: an entry that is not of this form, an unknown protocol, a name twice.
    """
    protocols: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, separator, protocol = entry.rpartition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not separator or not name:
            raise _invalid("listener.security.protocol.map", entry, "must be LISTENER_NAME:PROTOCOL")
        if protocol not in SECURITY_PROTOCOLS:
            raise _invalid(
                "listener.security.protocol.map",
                entry,
                f"the protocol must be one of {', '.join(SECURITY_PROTOCOLS)}",
            )
        if protocols.setdefault(name, protocol) != protocol:
            raise _invalid(
                "listener.security.protocol.map", entry, f"{name} is already mapped to {protocols[name]}"
            )
    return protocols


def parse_listeners(
    property_name: str,
    values: Sequence[str],
    *,
    protocols: dict[str, str],
    left_out: Sequence[str] = (),
    distinct_ports: bool = True,
) -> tuple[Listener, ...]:
    """``NAME://host:port`` texts as listeners, those whose name is in ``left_out`` left out.

    ``distinct_ports`` holds for addresses that are bound, not for advertised ones. Two listeners may share a
    port when one address is IPv4 and the other IPv6.

    Raises:
        ConfigError: names the property, the listener and what is wrong with it.
    """
    skipped = {name.upper() for name in left_out}
    listeners: list[Listener] = []
    for value in values:
        listener = _parse(property_name, value)
        if listener.name in skipped:
            continue
        protocol = protocols.get(listener.name)
        if protocol is None:
            raise _invalid(
                property_name,
                value,
                f"listener.security.protocol.map has no security protocol for {listener.name}",
            )
        if any(other.name == listener.name for other in listeners):
            raise _invalid(property_name, value, "each listener must have a different name")
        clash = next((other for other in listeners if distinct_ports and _same_port(other, listener)), None)
        if clash is not None:
            raise _invalid(
                property_name, value, f"{clash} has the same port; each listener must have its own"
            )
        listeners.append(listener._replace(protocol=protocol))
    if not listeners:
        raise ConfigError(
            f"Invalid value {','.join(values)!r} for configuration {property_name}: no listener left"
        )
    return tuple(listeners)


def _parse(property_name: str, value: str) -> Listener:
    match = _LISTENER.fullmatch(value)
    if match is None:
        raise _invalid(
            property_name,
            value,
            "must be NAME://host:port, for example PLAINTEXT://localhost:9092 or PLAINTEXT://[::1]:9092",
        )
    host = match["host"]
    if host.startswith("["):
        host = host[1:-1]
        if not _is_ip(host, version=6):
            raise _invalid(property_name, value, f"[{host}] is not an IPv6 address")
    port = int(match["port"])
    if port > 65535:
        raise _invalid(property_name, value, "the port must be 0 to 65535")
    return Listener(match["name"].strip().upper(), host, port)


def _is_ip(host: str, *, version: int) -> bool:
    import ipaddress  # 3 ms that few listeners need

    try:
        return ipaddress.ip_address(host).version == version
    except ValueError:
        return False


def _same_port(first: Listener, second: Listener) -> bool:
    if first.port != second.port or first.port == 0:
        return False
    one_of_each = (_is_ip(first.host, version=4) and _is_ip(second.host, version=6)) or (
        _is_ip(first.host, version=6) and _is_ip(second.host, version=4)
    )
    return not one_of_each


def _invalid(property_name: str, value: str, why: str) -> ConfigError:
    return ConfigError(f"Invalid value {value} for configuration {property_name}: {why}")


INT, STRING, LIST, PASSWORD = ConfigType.INT, ConfigType.STRING, ConfigType.LIST, ConfigType.PASSWORD
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

_TLS_PREFIX = "http_ssl_"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750, section 2.1."""


class HttpConfig(SecurityConfig, frozen=True, kw_only=True):
    """A field is the property's name with underscores for dots.

    Not a kind of ``SecurityConfig``: ``BrokerConfig`` has the fields of both, and only one base of a msgspec
    struct may have fields.
    """

    http_port: (
        Annotated[
            int,
            prop(
                INT,
                MEDIUM,
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
            STRING,
            MEDIUM,
            "The address that the HTTP port listens on; empty: all. Beyond this machine it wants "
            "http.bearer.token or http.basic.auth.users, and http.ssl.keystore.location.",
        ),
    ] = "127.0.0.1"
    http_allowed_hosts: Annotated[
        tuple[str, ...],
        prop(
            LIST,
            MEDIUM,
            "Names that the HTTP port is asked under, besides localhost, http.host, the address of the "
            "connection and the hosts that listeners advertise; *: any, which lets other sites' pages read "
            "it through a browser (DNS rebinding).",
        ),
    ] = ()

    # Who may read.

    http_bearer_token: (
        Annotated[
            str,
            prop(
                PASSWORD,
                MEDIUM,
                "The token that readers of the HTTP port show (Authorization: Bearer TOKEN); several with "
                "commas, so that they can be changed one after the other.",
            ),
        ]
        | None
    ) = None
    http_basic_auth_users: (
        Annotated[
            str,
            prop(
                PASSWORD,
                MEDIUM,
                "Users that may read the HTTP port, with their passwords: NAME:PASSWORD, several with "
                r"commas; a comma in a password is written \,.",
            ),
        ]
        | None
    ) = None

    # TLS (``SslConfigs``).

    http_ssl_protocol: Annotated[str, prop(STRING, LOW, "As ssl.protocol, for the HTTP port.")] = "TLSv1.3"
    http_ssl_enabled_protocols: Annotated[
        tuple[str, ...], prop(LIST, LOW, "As ssl.enabled.protocols, for the HTTP port.")
    ] = ("TLSv1.2", "TLSv1.3")
    http_ssl_cipher_suites: Annotated[
        tuple[str, ...], prop(LIST, LOW, "As ssl.cipher.suites, for the HTTP port.")
    ] = ()
    http_ssl_client_auth: Annotated[
        Literal["none", "requested", "required"],
        prop(STRING, MEDIUM, "Whether readers of the HTTP port show a certificate; probes too, if required."),
    ] = "none"
    http_ssl_keystore_type: Annotated[
        StoreTypeName, prop(STRING, MEDIUM, "The kind of the HTTP port's key store: PEM or PKCS12.")
    ] = "JKS"
    http_ssl_keystore_location: (
        Annotated[
            str, prop(STRING, HIGH, "The file with the HTTP port's key and certificate; with it, HTTPS.")
        ]
        | None
    ) = None
    http_ssl_keystore_password: (
        Annotated[str, prop(PASSWORD, HIGH, "The password of the HTTP port's key store.")] | None
    ) = None
    http_ssl_keystore_key: (
        Annotated[str, prop(PASSWORD, HIGH, "The HTTP port's private key itself, PEM (PKCS #8).")] | None
    ) = None
    http_ssl_keystore_certificate_chain: (
        Annotated[str, prop(PASSWORD, HIGH, "The HTTP port's certificates themselves, PEM.")] | None
    ) = None
    http_ssl_key_password: (
        Annotated[str, prop(PASSWORD, HIGH, "The password of the HTTP port's private key.")] | None
    ) = None
    http_ssl_truststore_type: Annotated[
        StoreTypeName, prop(STRING, MEDIUM, "The kind of the HTTP port's trust store: PEM or PKCS12.")
    ] = "JKS"
    http_ssl_truststore_location: (
        Annotated[str, prop(STRING, HIGH, "The file with the authorities of readers' certificates.")] | None
    ) = None
    http_ssl_truststore_password: (
        Annotated[str, prop(PASSWORD, HIGH, "The password of the HTTP port's trust store.")] | None
    ) = None
    http_ssl_truststore_certificates: (
        Annotated[str, prop(PASSWORD, HIGH, "The authorities of readers' certificates themselves, PEM.")]
        | None
    ) = None
    http_ssl_crl_location: (
        Annotated[str, prop(STRING, LOW, "As ssl.crl.location, for readers of the HTTP port.")] | None
    ) = None

    def http_tls(self) -> SecurityConfig | None:
        """The HTTP port's TLS under a listener's names; None: plain HTTP.

        Raises:
            ConfigError: something is said about TLS, and there is no key store.
        """
        values: dict[str, Any] = {}
        struct = HttpConfig
        for field, default in zip(struct.__struct_fields__, struct.__struct_defaults__, strict=True):
            if field.startswith(_TLS_PREFIX) and (value := getattr(self, field)) != default:
                values[field.removeprefix("http_")] = value
        if values.keys() & {"ssl_keystore_location", "ssl_keystore_key"}:
            return SecurityConfig(**values)
        if values:
            name = f"http.{min(values).replace('_', '.')}"
            raise ConfigError(
                f"{name} is set, but the HTTP port has no key store: set http.ssl.keystore.location, or "
                "http.ssl.keystore.key and http.ssl.keystore.certificate.chain"
            )
        return None

    def http_scheme(self) -> str:
        """What addresses of the port begin with."""
        return "http" if self.http_tls() is None else "https"

    def http_bearer_tokens(self) -> tuple[str, ...]:
        """Raises ConfigError: a token with characters that none can have."""
        tokens = tuple(filter(None, (part.strip() for part in (self.http_bearer_token or "").split(","))))
        if not all(map(_TOKEN.fullmatch, tokens)):
            raise ConfigError(
                f"Invalid value {HIDDEN} for configuration http.bearer.token: a token has letters, digits "
                "and -._~+/ only, and = at its end"
            )
        return tokens

    def http_basic_users(self) -> tuple[tuple[str, str], ...]:
        """Names and passwords. Raises ConfigError: an entry without one of them, or a name twice."""
        users: list[tuple[str, str]] = []
        for entry in re.split(r"(?<!\\),", self.http_basic_auth_users or ""):
            name, separator, password = entry.strip().replace("\\,", ",").partition(":")
            if not name and not separator:
                continue
            if not name or not password or name in dict(users):
                raise ConfigError(
                    f"Invalid value {HIDDEN} for configuration http.basic.auth.users: must be NAME:PASSWORD, "
                    "several with commas, each name once"
                )
            users.append((name, password))
        return tuple(users)


def check_http(config: HttpConfig) -> None:
    """Raises ConfigError: names the property and what is wrong."""
    config.http_tls()
    config.http_bearer_tokens()
    config.http_basic_users()
