"""``--secure``: what makes a broker one that may stand on a network, as ordinary properties.

No Kafka has this; the properties all have. Clients log in by SCRAM-SHA-512 over TLS, brokers do so among
themselves as a user of their own, every request is authorised, and what no ACL allows is denied. Certificates
and passwords come from a ``SecurityDirectory``, and are made the first time.

What is configured besides counts as long as it does not contradict: other mechanisms and other super users
are added to those of here, a listener of protocol SSL may stand beside that of SASL_SSL, and a client's
certificate there makes it the user of its common name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from minikafka.config.broker import BROKER_CONFIG_KEYS, BrokerConfig, broker_config, broker_config_key
from minikafka.config.listeners import Listener, parse_listeners, parse_protocol_map
from minikafka.config.loader import Setting
from minikafka.config.security import LISTENER_PREFIX, listener_property, shown
from minikafka.errors import ConfigError
from minikafka.named_tuple import NamedTuple
from minikafka.security.acl import USER
from minikafka.security.client_files import KEY_STORE_FILE, MECHANISM, Login, jaas_config, properties_text
from minikafka.security.directory import ADDRESS_FILE, SecurityDirectory

ADMIN_USER, BROKER_USER = "admin", "broker"
PROTOCOL = "SASL_SSL"
ORIGIN = "--secure"
PROPERTIES_FILE = "broker.properties"

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
COMMON_NAME_RULES = "RULE:^CN=([^,+]+)$/$1/,DEFAULT"
"""``CN=alice``, as ``minikafka certs`` makes them, is ``User:alice``."""

_PLACES = ("node.id", "broker.id", "log.dirs", "log.dir")

_SAME = {"authorizer.class.name": ("kafka.security.authorizer.AclAuthorizer", AUTHORIZER)}
"""Values that mean the same."""
_MADE_HERE = (
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    "ssl.crl.location",
)


class FirstUser(NamedTuple):
    """A SCRAM user that is to be in the store when the broker begins."""

    name: str
    password: str
    must_match: bool
    """Whether one that is there already must have this password; else it is left as it is."""

    def __repr__(self) -> str:
        return f"FirstUser({self.name!r})"


class SecureSetup(NamedTuple):
    """What a broker is started with."""

    directory: SecurityDirectory
    broker: str
    """Its name there."""
    settings: tuple[Setting, ...]
    """To be added to what is configured; they win."""
    first_users: tuple[FirstUser, ...]
    listener: str
    """The name of that for users and brokers."""
    is_new: bool
    """Whether the authority was made now."""

    def __repr__(self) -> str:  # a setting has a password
        return f"SecureSetup({self.directory}, {self.listener})"

    def login(self, user: str, bootstrap_servers: str) -> Login:
        """How one of the first users connects. Raises ConfigError: the directory has gone."""
        password = next(each.password for each in self.first_users if each.name == user)
        return self.directory.login(user, bootstrap_servers, password)

    def write_admin_files(self, address: str) -> str:
        """The files of the administrator, which name all brokers of the directory, this one by ``address``.

        Returns the directory that they are in. Raises ConfigError: they cannot be written.
        """
        self.directory.write_broker_file(self.broker, ADDRESS_FILE, f"{address}\n")
        login = self.login(ADMIN_USER, self.directory.bootstrap_servers())
        self.directory.write_client_files(login)
        return login.directory


def default_directory(given: Mapping[str, Setting]) -> str:
    """Beside the first log directory, which may hold nothing but partitions."""
    return f"{_place(given).log_dirs[0].rstrip('/')}-security"


def secure_setup(
    directory: SecurityDirectory,
    given: Mapping[str, Setting],
    *,
    machine_name: Callable[[], str],
    now: datetime,
    new_password: Callable[[], str],
) -> SecureSetup:
    """Make what is missing in ``directory``, and say what a broker with ``given`` properties needs of it.

    ``machine_name``: what a listener on all interfaces is advertised as.

    Raises:
        ConfigError: a property contradicts a secure broker, and which; or the directory cannot be used.
    """
    listeners = _listeners(given)
    listener = _own_listener(listeners, given)
    _check_contradictions(given, _fixed(listeners, listener, given))
    hosts = _hosts(listeners, given, machine_name)
    node_id = _place(given).node_id
    is_new = directory.ensure_authority(now=now)
    name = f"broker-{node_id}"
    directory.ensure_broker(name, hosts, now=now)
    users = (
        FirstUser(ADMIN_USER, directory.password(ADMIN_USER, new_password), must_match=False),
        FirstUser(BROKER_USER, directory.password(BROKER_USER, new_password), must_match=True),
    )
    properties = {
        **_fixed(listeners, listener, given),
        "sasl.enabled.mechanisms": _with(given.get("sasl.enabled.mechanisms"), [MECHANISM], ","),
        "super.users": _with(
            given.get("super.users"), [f"{USER}:{ADMIN_USER}", f"{USER}:{BROKER_USER}"], ";"
        ),
        "ssl.keystore.location": str(directory.broker_directory(name) / KEY_STORE_FILE),
        "ssl.truststore.location": str(directory.authority_file),
        "ssl.crl.location": str(directory.revoked_file),
        _jaas_property(listener): jaas_config(BROKER_USER, users[1].password),
    }
    if "ssl.principal.mapping.rules" not in given:
        properties["ssl.principal.mapping.rules"] = COMMON_NAME_RULES
    directory.write_broker_file(
        name,
        PROPERTIES_FILE,
        "# What --secure adds to a broker's configuration; with --config it is the same broker.\n"
        + properties_text(properties),
    )
    settings = tuple(Setting(each, value, ORIGIN) for each, value in properties.items())
    return SecureSetup(directory, name, settings, users, listener.name, is_new)


def _place(given: Mapping[str, Setting]) -> BrokerConfig:
    return broker_config({name: given[name].value for name in _PLACES if name in given})


def _listeners(given: Mapping[str, Setting]) -> tuple[Listener, ...]:
    """Raises ConfigError: one of them lets anybody in, or none is for users."""
    setting = given.get("listeners") or Setting("listeners", f"{PROTOCOL}://localhost:9092", ORIGIN)
    listeners = _parsed(setting, given, distinct_ports=True)
    for each in listeners:
        if each.protocol not in (PROTOCOL, "SSL"):
            raise ConfigError(
                f"{setting.origin}: listeners={setting.value} contradicts --secure: {each} is of protocol "
                f"{each.protocol}, and only {PROTOCOL} and SSL keep strangers out; use "
                f"{PROTOCOL}://{str(each).partition('://')[2]}"
            )
    if not any(each.protocol == PROTOCOL for each in listeners):
        raise ConfigError(
            f"{setting.origin}: listeners={setting.value} contradicts --secure: one of them must be of "
            f"protocol {PROTOCOL}, for users with passwords and for the brokers themselves"
        )
    return listeners


def _parsed(setting: Setting, given: Mapping[str, Setting], *, distinct_ports: bool) -> tuple[Listener, ...]:
    return parse_listeners(
        setting.name,
        _words(setting.value),
        protocols=parse_protocol_map(_text(given, "listener.security.protocol.map")),
        left_out=_words(_text(given, "controller.listener.names")),
        distinct_ports=distinct_ports,
    )


def _own_listener(listeners: Iterable[Listener], given: Mapping[str, Setting]) -> Listener:
    """That of users and brokers: the first of its protocol, unless another is named for brokers."""
    named = given.get("inter.broker.listener.name")
    suitable = [each for each in listeners if each.protocol == PROTOCOL]
    if named is None or not named.value.strip():
        return suitable[0]
    found = [each for each in suitable if each.name == named.value.strip().upper()]
    if not found:
        raise ConfigError(
            f"{named.origin}: inter.broker.listener.name={named.value} contradicts --secure: brokers use a "
            f"listener of protocol {PROTOCOL} ({', '.join(each.name for each in suitable)})"
        )
    return found[0]


def _fixed(listeners: Iterable[Listener], listener: Listener, given: Mapping[str, Setting]) -> dict[str, str]:
    """Properties that have no other value on a secure broker."""
    by_protocol = "security.inter.broker.protocol" in given  # of which Kafka takes one or the other
    return {
        "listeners": ",".join(map(str, listeners)),
        **(
            {"security.inter.broker.protocol": PROTOCOL}
            if by_protocol
            else {"inter.broker.listener.name": listener.name}
        ),
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        "authorizer.class.name": AUTHORIZER,
        "allow.everyone.if.no.acl.found": "false",
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        **{
            f"{LISTENER_PREFIX}{each.name.lower()}.ssl.client.auth": "required"
            for each in listeners
            if each.protocol == "SSL"
        },
    }


def _check_contradictions(given: Mapping[str, Setting], fixed: Mapping[str, str]) -> None:
    """Raises ConfigError for the first property that does."""
    own = {name for name in fixed if name.startswith(LISTENER_PREFIX)}
    for name, setting in given.items():
        parts = listener_property(name)
        plain = name if parts is None or name in own else parts.name
        if plain in _MADE_HERE:
            raise ConfigError(
                f"{setting.origin}: {name}={shown(broker_config_key(name), setting.value)} contradicts "
                "--secure, which uses certificates of its own authority: leave one of them out"
            )
        wanted = fixed.get(plain)
        if wanted is None or plain in ("listeners", "inter.broker.listener.name"):
            continue
        if setting.value.strip().lower() not in (each.lower() for each in _SAME.get(plain, (wanted,))):
            raise ConfigError(
                f"{setting.origin}: {name}={setting.value} contradicts --secure, with which it is {wanted}: "
                "leave one of them out"
            )


def _hosts(
    listeners: Iterable[Listener], given: Mapping[str, Setting], machine_name: Callable[[], str]
) -> tuple[str, ...]:
    """Under which names clients come, each once."""
    hosts = [machine_name() if each.is_wildcard else each.host for each in listeners]
    advertised = given.get("advertised.listeners")
    if advertised is not None and advertised.value.strip():
        hosts += [each.host for each in _parsed(advertised, given, distinct_ports=False)]
    return tuple(dict.fromkeys(filter(None, hosts)))


def _jaas_property(listener: Listener) -> str:
    return f"{LISTENER_PREFIX}{listener.name.lower()}.{MECHANISM.lower()}.sasl.jaas.config"


def _text(given: Mapping[str, Setting], name: str) -> str:
    """What is configured, or the default."""
    if name in given:
        return given[name].value
    default = BROKER_CONFIG_KEYS[name].default
    return ",".join(default) if isinstance(default, tuple) else str(default or "")


def _with(setting: Setting | None, values: Iterable[str], separator: str) -> str:
    given = [] if setting is None else _words(setting.value, separator)
    return separator.join(dict.fromkeys([*given, *values]))


def _words(text: str, separator: str = ",") -> list[str]:
    return [part.strip() for part in text.split(separator) if part.strip()]
