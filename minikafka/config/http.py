"""The HTTP port: where it listens, whom it answers, and its TLS. minikafka's own; Kafka has JMX for this.

The properties of TLS have the names of a listener's with ``http.`` before them, and mean the same
(``SslConfigs``); TLS is used when there is a key store. ``HttpConfig.http_tls`` gives them under a listener's
names.
"""

import re
from typing import Annotated, Any, Literal

from minikafka.config.definition import HIDDEN, ConfigType, Importance, prop
from minikafka.config.security import SecurityConfig, StoreTypeName
from minikafka.errors import ConfigError

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
