"""Who may connect, how they prove who they are, and what they may do: the security properties of a broker.

Kafka: ``BrokerSecurityConfigs``, ``SslConfigs``, ``SaslConfigs``, ``SecurityConfig``,
``DelegationTokenManagerConfigs``, ``OAuthBearerConfigs``. ``BrokerConfig`` has them for all listeners. A
listener may have its own value for most: ``listener.name.NAME.property``, and for SASL
``listener.name.NAME.MECHANISM.property`` (KIP-103); ``listener_property`` takes such a name apart, and
``BrokerConfig.listener_security`` puts together what holds for one listener.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from minikafka.config.definition import (
    HIDDEN,
    LONG_MAX,
    ConfigKey,
    ConfigType,
    Importance,
    UpdateMode,
    prop,
)
from minikafka.named_tuple import NamedTuple

BOOLEAN, STRING, INT, LONG, LIST, CLASS, PASSWORD, DOUBLE = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
    ConfigType.CLASS,
    ConfigType.PASSWORD,
    ConfigType.DOUBLE,
)
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
PER_BROKER, CLUSTER_WIDE = UpdateMode.PER_BROKER, UpdateMode.CLUSTER_WIDE

SecurityProtocolName = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
StoreTypeName = Literal["JKS", "PKCS12", "PEM"]

SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""Those there are here. Kafka has GSSAPI too."""
KERBEROS = "GSSAPI"
DEFAULT_SASL_MECHANISM = "SCRAM-SHA-512"
"""Kafka's default is GSSAPI (Kerberos), which is not there; a name that works is better than one that
cannot."""

LISTENER_PREFIX = "listener.name."


class SecurityConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A field is the property's name with underscores for dots. Alone it is what holds for one listener."""

    # Between brokers.

    security_inter_broker_protocol: Annotated[
        SecurityProtocolName,
        prop(
            STRING,
            MEDIUM,
            "The security protocol of the listener that brokers use among themselves; not together with "
            "inter.broker.listener.name.",
        ),
    ] = "PLAINTEXT"

    # Authorization (``AclAuthorizer``).

    authorizer_class_name: Annotated[
        str,
        prop(
            STRING,
            LOW,
            "Who decides what a client may do: kafka.security.authorizer.AclAuthorizer or "
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer, which are the same here; empty: "
            "everybody may do anything.",
        ),
    ] = ""
    super_users: Annotated[
        str, prop(STRING, MEDIUM, "Principals that may do anything: User:NAME, several with semicolons.")
    ] = ""
    allow_everyone_if_no_acl_found: Annotated[
        bool,
        prop(BOOLEAN, MEDIUM, "Whether everybody may use a resource that no ACL speaks of."),
    ] = False

    # TLS (``SslConfigs``).

    ssl_protocol: Annotated[
        str, prop(STRING, MEDIUM, "The newest version of TLS: TLSv1.3 or TLSv1.2.", update=PER_BROKER)
    ] = "TLSv1.3"
    ssl_enabled_protocols: Annotated[
        tuple[str, ...],
        prop(LIST, MEDIUM, "The versions of TLS that may be used.", update=PER_BROKER),
    ] = ("TLSv1.2", "TLSv1.3")
    ssl_cipher_suites: Annotated[
        tuple[str, ...],
        prop(
            LIST, MEDIUM, "The cipher suites that may be used, under Java's names; empty: OpenSSL's choice.",
            update=PER_BROKER,
        ),
    ] = ()  # fmt: skip
    ssl_client_auth: Annotated[
        Literal["none", "requested", "required"],
        prop(STRING, MEDIUM, "Whether clients show a certificate.", update=PER_BROKER),
    ] = "none"
    ssl_keystore_type: Annotated[
        StoreTypeName,
        prop(STRING, MEDIUM, "The kind of the key store: PEM or PKCS12.", update=PER_BROKER),
    ] = "JKS"
    ssl_keystore_location: (
        Annotated[str, prop(STRING, HIGH, "The file with key and certificate.", update=PER_BROKER)] | None
    ) = None
    ssl_keystore_password: (
        Annotated[str, prop(PASSWORD, HIGH, "The key store's password.", update=PER_BROKER)] | None
    ) = None
    ssl_keystore_key: (
        Annotated[str, prop(PASSWORD, HIGH, "The private key itself, PEM (PKCS #8).", update=PER_BROKER)]
        | None
    ) = None
    ssl_keystore_certificate_chain: (
        Annotated[str, prop(PASSWORD, HIGH, "The certificates themselves, PEM.", update=PER_BROKER)] | None
    ) = None
    ssl_key_password: (
        Annotated[str, prop(PASSWORD, HIGH, "The password of the private key.", update=PER_BROKER)] | None
    ) = None
    ssl_truststore_type: Annotated[
        StoreTypeName,
        prop(STRING, MEDIUM, "The kind of the trust store: PEM or PKCS12.", update=PER_BROKER),
    ] = "JKS"
    ssl_truststore_location: (
        Annotated[
            str, prop(STRING, HIGH, "The file with the authorities that are trusted.", update=PER_BROKER)
        ]
        | None
    ) = None
    ssl_truststore_password: (
        Annotated[str, prop(PASSWORD, HIGH, "The trust store's password.", update=PER_BROKER)] | None
    ) = None
    ssl_truststore_certificates: (
        Annotated[str, prop(PASSWORD, HIGH, "The trusted authorities themselves, PEM.", update=PER_BROKER)]
        | None
    ) = None
    ssl_crl_location: (
        Annotated[
            str,
            prop(
                STRING,
                LOW,
                "A file with certificate revocation lists, PEM; it is read again when it changes. "
                "minikafka's own.",
                update=PER_BROKER,
            ),
        ]
        | None
    ) = None
    ssl_endpoint_identification_algorithm: Annotated[
        str,
        prop(
            STRING, LOW, "https: a broker that is connected to must show a certificate of its host name; "
            "empty: any name.", update=PER_BROKER,
        ),
    ] = "https"  # fmt: skip
    ssl_principal_mapping_rules: Annotated[
        str,
        prop(STRING, LOW, "How the name in a client's certificate becomes a principal: DEFAULT, RULE:…"),
    ] = "DEFAULT"
    ssl_allow_dn_changes: Annotated[
        bool, prop(BOOLEAN, LOW, "Whether a new key store may have another distinguished name.")
    ] = False
    ssl_allow_san_changes: Annotated[
        bool, prop(BOOLEAN, LOW, "Whether a new key store may lack alternative names of the old one.")
    ] = False

    # SASL (``BrokerSecurityConfigs``, ``SaslConfigs``).

    sasl_enabled_mechanisms: Annotated[
        tuple[str, ...],
        prop(
            LIST,
            MEDIUM,
            "The mechanisms that clients may use: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.",
            update=PER_BROKER,
        ),
    ] = (DEFAULT_SASL_MECHANISM,)
    sasl_mechanism_inter_broker_protocol: Annotated[
        str, prop(STRING, MEDIUM, "The mechanism that brokers use among themselves.", update=PER_BROKER)
    ] = DEFAULT_SASL_MECHANISM
    sasl_jaas_config: (
        Annotated[
            str,
            prop(
                PASSWORD,
                MEDIUM,
                "The login module and its options, in the syntax of JAAS; for one mechanism of a listener as "
                "listener.name.NAME.MECHANISM.sasl.jaas.config.",
                update=PER_BROKER,
            ),
        ]
        | None
    ) = None
    sasl_server_callback_handler_class: (
        Annotated[
            str,
            prop(
                CLASS,
                MEDIUM,
                "Who checks what clients log in with. No Java class is loaded: for OAUTHBEARER the names of "
                "Kafka's own are known, OAuthBearerValidatorCallbackHandler and, for tokens without a "
                "signature, OAuthBearerUnsecuredValidatorCallbackHandler, each with its package.",
            ),
        ]
        | None
    ) = None
    sasl_server_max_receive_size: Annotated[
        int, prop(INT, MEDIUM, "The largest request before a client has proved who it is.", ge=1)
    ] = 524_288
    connections_max_reauth_ms: Annotated[
        int,
        prop(LONG, MEDIUM, "After how long a SASL client must prove again who it is; 0: never.", ge=0),
    ] = 0
    connection_failed_authentication_delay_ms: Annotated[
        int, prop(INT, LOW, "How long after a failed authentication the connection is closed.", ge=0)
    ] = 100
    sasl_oauthbearer_jwks_endpoint_url: (
        Annotated[str, prop(STRING, MEDIUM, "Where the keys of the issuer are: a file: or https: URL.")]
        | None
    ) = None
    sasl_oauthbearer_jwks_endpoint_refresh_ms: Annotated[
        int, prop(LONG, LOW, "How often the issuer's keys are read again.", ge=1)
    ] = 3_600_000
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: Annotated[
        int, prop(LONG, LOW, "How soon the issuer's keys are asked for again after a failure.", ge=1)
    ] = 100
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: Annotated[
        int, prop(LONG, LOW, "The longest pause between two such tries.", ge=1)
    ] = 10_000
    sasl_oauthbearer_token_endpoint_url: (
        Annotated[
            str, prop(STRING, MEDIUM, "Where a broker that logs in gets its token: a file: or https: URL.")
        ]
        | None
    ) = None
    sasl_oauthbearer_scope_claim_name: Annotated[
        str, prop(STRING, LOW, "The claim of a token that has its scopes.")
    ] = "scope"
    sasl_oauthbearer_sub_claim_name: Annotated[
        str, prop(STRING, LOW, "The claim of a token that has the principal's name.")
    ] = "sub"
    sasl_oauthbearer_expected_audience: (
        Annotated[tuple[str, ...], prop(LIST, LOW, "Audiences; a token must be for one of them.")] | None
    ) = None
    sasl_oauthbearer_expected_issuer: (
        Annotated[str, prop(STRING, LOW, "The issuer that a token must be from.")] | None
    ) = None
    sasl_oauthbearer_allow_unverified_audience: Annotated[
        bool,
        prop(
            BOOLEAN,
            MEDIUM,
            "Whether tokens for any audience, or for none, are accepted where "
            "sasl.oauthbearer.expected.audience is not set; else it must be.",
        ),
    ] = False
    sasl_oauthbearer_allow_unverified_issuer: Annotated[
        bool,
        prop(
            BOOLEAN,
            MEDIUM,
            "Whether tokens of any issuer are accepted where sasl.oauthbearer.expected.issuer is not set; "
            "else it must be.",
        ),
    ] = False
    sasl_oauthbearer_clock_skew_seconds: Annotated[
        int, prop(INT, LOW, "By how much the clocks of issuer and broker may differ.", ge=0)
    ] = 30

    # Delegation tokens (KIP-48).

    delegation_token_secret_key: (
        Annotated[str, prop(PASSWORD, MEDIUM, "Makes and checks tokens; the same on all brokers.")] | None
    ) = None
    delegation_token_max_lifetime_ms: Annotated[
        int, prop(LONG, MEDIUM, "How long a token can be renewed.", ge=1)
    ] = 7 * 24 * 3_600_000
    delegation_token_expiry_time_ms: Annotated[
        int, prop(LONG, MEDIUM, "How long a token holds without renewal.", ge=1)
    ] = 24 * 3_600_000
    delegation_token_expiry_check_interval_ms: Annotated[
        int, prop(LONG, LOW, "How often expired tokens are removed.", ge=1, le=LONG_MAX)
    ] = 3_600_000

    # To ZooKeeper (``ZkConfigs``, as of 3.9). ``zookeeper.sasl.jaas.config`` is minikafka's own: Kafka has
    # the section ``Client`` of a JAAS file, which Java is told of on its command line.

    zookeeper_set_acl: Annotated[
        bool,
        prop(
            BOOLEAN,
            HIGH,
            "Whether only brokers may write the nodes that they make in ZooKeeper; needs a login there, by "
            "zookeeper.sasl.jaas.config or by a certificate.",
        ),
    ] = False
    zookeeper_sasl_jaas_config: (
        Annotated[
            str,
            prop(
                PASSWORD,
                MEDIUM,
                "How brokers log in to ZooKeeper (SASL/DIGEST-MD5): "
                "org.apache.zookeeper.server.auth.DigestLoginModule required username=… password=…;",
            ),
        ]
        | None
    ) = None
    zookeeper_ssl_client_enable: Annotated[
        bool, prop(BOOLEAN, MEDIUM, "Whether connections to ZooKeeper are made with TLS.")
    ] = False
    zookeeper_ssl_keystore_location: (
        Annotated[str, prop(STRING, MEDIUM, "The file with the key and certificate to show to ZooKeeper.")]
        | None
    ) = None
    zookeeper_ssl_keystore_password: (
        Annotated[str, prop(PASSWORD, MEDIUM, "That key store's password.")] | None
    ) = None
    zookeeper_ssl_keystore_type: (
        Annotated[StoreTypeName, prop(STRING, MEDIUM, "Its kind; unset: by the end of the file's name.")]
        | None
    ) = None
    zookeeper_ssl_truststore_location: (
        Annotated[str, prop(STRING, MEDIUM, "The file with the authorities that ZooKeeper is trusted by.")]
        | None
    ) = None
    zookeeper_ssl_truststore_password: (
        Annotated[str, prop(PASSWORD, MEDIUM, "That trust store's password.")] | None
    ) = None
    zookeeper_ssl_truststore_type: (
        Annotated[StoreTypeName, prop(STRING, MEDIUM, "Its kind; unset: by the end of the file's name.")]
        | None
    ) = None
    zookeeper_ssl_protocol: Annotated[
        str, prop(STRING, LOW, "The version of TLS to ZooKeeper: TLSv1.2 or TLSv1.3.")
    ] = "TLSv1.2"
    zookeeper_ssl_enabled_protocols: (
        Annotated[
            tuple[str, ...],
            prop(LIST, LOW, "The versions of TLS to ZooKeeper; unset: that of zookeeper.ssl.protocol."),
        ]
        | None
    ) = None
    zookeeper_ssl_cipher_suites: (
        Annotated[
            tuple[str, ...],
            prop(LIST, LOW, "The cipher suites to ZooKeeper, under Java's names; unset: OpenSSL's choice."),
        ]
        | None
    ) = None
    zookeeper_ssl_endpoint_identification_algorithm: Annotated[
        str,
        prop(STRING, LOW, "https: ZooKeeper must show a certificate of its host name; empty: any name."),
    ] = "HTTPS"

    def __repr__(self) -> str:
        """What is not as by default, without the values, which may be passwords."""
        fields = msgspec.structs.fields(SecurityConfig)
        told = ", ".join(each.name for each in fields if getattr(self, each.name) != each.default)
        return f"SecurityConfig({told})"

    @property
    def has_authorizer(self) -> bool:
        return bool(self.authorizer_class_name.strip())


PER_LISTENER_KEYS = frozenset(
    f"ssl.{name}"
    for name in (
        "key.password",
        "keystore.certificate.chain",
        "keystore.key",
        "keystore.location",
        "keystore.password",
        "keystore.type",
        "truststore.certificates",
        "truststore.location",
        "truststore.password",
        "truststore.type",
    )
)
"""What a running broker changes for single listeners only (``SslConfigs.RECONFIGURABLE_CONFIGS``)."""

LISTENER_KEYS_EXTRA = ("max.connections", "max.connection.creation.rate")
"""Properties outside of ``SecurityConfig`` that a listener may have its own value for."""

LOGIN_KEY_PREFIXES = ("sasl.", "connections.max.reauth.", "connection.failed.authentication.")
"""How clients log in. A listener's own values change while the broker runs, for the logins that begin
afterwards. Kafka takes such a change too, and uses it from its next start on."""

_NOT_OF_LISTENERS = ("security.inter.broker.protocol", "authorizer.class.name", "super.users")
_NOT_OF_LISTENERS_PREFIXES = ("delegation.token.", "allow.everyone.", "zookeeper.")


class ListenerProperty(NamedTuple):
    """``listener.name.<listener>.[<mechanism>.]<name>``; the listener in capitals, the mechanism likewise."""

    listener: str
    mechanism: str | None
    name: str


def listener_property(name: str) -> ListenerProperty | None:
    """``name`` taken apart; None when it is no listener's property."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    listener, _, rest = name[len(LISTENER_PREFIX) :].partition(".")
    mechanism, _, tail = rest.partition(".")
    if mechanism.upper() in SASL_MECHANISMS:
        return ListenerProperty(listener.upper(), mechanism.upper(), tail)
    return ListenerProperty(listener.upper(), None, rest)


def may_be_of_listener(name: str) -> bool:
    """Whether a listener can have its own value of the security property ``name``."""
    return name not in _NOT_OF_LISTENERS and not name.startswith(_NOT_OF_LISTENERS_PREFIXES)


def jaas_configs(listener: str, originals: Mapping[str, str]) -> dict[str, str]:
    """Mechanism → JAAS text for one listener: its own for the mechanism, or ``sasl.jaas.config`` of the
    listener, or that of the broker, for every mechanism that has none of its own (key ``""``)."""
    found: dict[str, str] = {}
    if text := originals.get("sasl.jaas.config"):
        found[""] = text
    for name, text in originals.items():
        parts = listener_property(name)
        if parts is not None and parts.listener == listener.upper() and parts.name == "sasl.jaas.config":
            found[parts.mechanism or ""] = text
    return found


def jaas_config_name(listener: str, mechanism: str, originals: Mapping[str, str]) -> str:
    """The property that ``jaas_configs`` has the text of ``mechanism`` from; where none is set, the one to
    set."""
    of_listener = f"{LISTENER_PREFIX}{listener.lower()}."
    own = f"{of_listener}{mechanism.lower()}.sasl.jaas.config"
    for_all = (f"{of_listener}sasl.jaas.config", "sasl.jaas.config")
    set_names = {name.lower() for name in originals}
    return next((name for name in (own, *for_all) if name in set_names), own)


class PropertyNames(NamedTuple):
    """How messages call the properties that hold for a listener: as they are set."""

    prefix: str = ""
    plain: frozenset[str] = frozenset()
    """Of these the listener has no value of its own, but the broker has one."""

    def of(self, name: str) -> str:
        """``name`` as it is set; where it is not, as the others of its kind are."""
        return name if name in self.plain else f"{self.prefix}{name}"


AS_THEY_ARE = PropertyNames()
"""Of properties without a prefix."""


def listener_property_names(listener: str, kind: str, originals: Mapping[str, str]) -> PropertyNames:
    """Of the properties that begin with ``kind`` (``ssl.``, ``sasl.``)."""
    own = {
        parts.name
        for name in originals
        if (parts := listener_property(name)) is not None
        and (parts.listener, parts.mechanism) == (listener.upper(), None)
        and parts.name.startswith(kind)
    }
    if not own:
        return AS_THEY_ARE
    return PropertyNames(f"{LISTENER_PREFIX}{listener.lower()}.", frozenset(originals) - own)


def shown(key: ConfigKey | None, text: str | None) -> str | None:
    """``text`` as logs may have it; the value of a property that is not known may be a secret."""
    is_secret = key is None or key.type is PASSWORD
    return HIDDEN if is_secret and text is not None else text
