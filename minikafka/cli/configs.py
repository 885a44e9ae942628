"""``minikafka configs``: show and change what can be configured while a cluster runs.

Kafka: ``kafka-configs.sh`` (``ConfigCommand``, ``ConfigCommandOptions``), its options with their order and
words, and its output. Where it differs: a SCRAM password may come from ``--password-file``, the environment
or a prompt, and is in no message, as no value is that may be a secret; bad usage ends with the status 2.

Requests go where Kafka's own client sends them: those about a broker or its loggers to that broker.

Exit status: 0 when all was done, 1 when something was refused or no broker answers, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from minikafka.cli.groups import GroupAdmin
from minikafka.cli.shared.admin_client import AdminClient, raise_error
from minikafka.cli.shared.client_properties import read_bounded
from minikafka.cli.shared.commands import (
    OK,
    CommandError,
    ProfileParser,
    add_connection_options,
    run,
    take_connection,
    with_action_first,
)
from minikafka.cli.shared.credentials import (
    ITERATIONS_DEFAULT,
    MECHANISMS,
    SaltedPassword,
    ScramMechanism,
    add_password_option,
    alter_users,
    check_iterations,
    describe_users,
    read_password,
    salted,
)
from minikafka.config.client_quotas import CLIENT_ID, IP, USER, MatchType, QuotaType
from minikafka.config.definition import ConfigSource
from minikafka.config.properties import parse_properties
from minikafka.config.resource import ConfigResource, ConfigResourceType
from minikafka.errors import ConfigError, ErrorCode, KafkaError
from minikafka.protocol.wire.api_versions import ApiKey

PROG = "minikafka configs"
ACTIONS = ("describe", "alter")

TOPICS, CLIENTS, USERS, BROKERS = "topics", "clients", "users", "brokers"
BROKER_LOGGERS, IPS, CLIENT_METRICS, GROUPS = "broker-loggers", "ips", "client-metrics", "groups"
ENTITY_TYPES = (TOPICS, CLIENTS, USERS, BROKERS, IPS, CLIENT_METRICS, GROUPS, BROKER_LOGGERS)

_FLAGS = {
    "topic": (TOPICS, "TOPIC"),
    "client": (CLIENTS, "CLIENT-ID"),
    "user": (USERS, "USER"),
    "broker": (BROKERS, "ID"),
    "broker-logger": (BROKER_LOGGERS, "ID"),
    "ip": (IPS, "ADDRESS"),
    "client-metrics": (CLIENT_METRICS, "NAME"),
    "group": (GROUPS, "GROUP"),
}
_DEFAULTS_FLAGS = {
    "client-defaults": CLIENTS,
    "user-defaults": USERS,
    "broker-defaults": BROKERS,
    "ip-defaults": IPS,
}
_WITH_DEFAULTS = frozenset({USERS, CLIENTS, BROKERS, IPS})

_NOT_IN_BRACKETS = r"(?=[^\]]*(?:\[|$))"
_COMMA = re.compile("," + _NOT_IN_BRACKETS)
_EQUALS = re.compile(r"\s*=\s*" + _NOT_IN_BRACKETS)
_BRACKETS = re.compile(r"[\[\]]")
_KEY = re.compile(r"[a-zA-Z0-9._-]*")

CLIENT_NAME = "minikafka-configs"
_SET, _DELETE = 0, 1
_RESOURCES = {
    TOPICS: (ConfigResourceType.TOPIC, ConfigSource.DYNAMIC_TOPIC_CONFIG),
    BROKERS: (ConfigResourceType.BROKER, ConfigSource.DYNAMIC_BROKER_CONFIG),
    BROKER_LOGGERS: (ConfigResourceType.BROKER_LOGGER, None),
    CLIENT_METRICS: (ConfigResourceType.CLIENT_METRICS, ConfigSource.CLIENT_METRICS_CONFIG),
    GROUPS: (ConfigResourceType.GROUP, ConfigSource.GROUP_CONFIG),
}
_SOURCES = {
    ConfigSource.CLIENT_METRICS_CONFIG: "DYNAMIC_CLIENT_METRICS_CONFIG",
    ConfigSource.GROUP_CONFIG: "DYNAMIC_GROUP_CONFIG",
}
"""What Kafka's client calls them where the protocol says otherwise."""
_QUOTA_TYPES = {USERS: USER, CLIENTS: CLIENT_ID, IPS: IP}
_QUOTAS = frozenset(quota.value for quota in QuotaType)
IP_QUOTAS = frozenset({"connection_creation_rate"})
"""``DynamicConfig.Ip.names``."""
_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]{1,9})(?:,|$))?(?:password=(.*))?", re.DOTALL)


# What is asked for


class Entities(NamedTuple):
    """Whose configuration it is. ``types`` has one entry, or users and clients; a name may be missing
    (all), and "" is the default."""

    types: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def type(self) -> str:
        return self.types[0]


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka configs``."""
    options = ProfileParser(
        prog=PROG,
        description="Configuration of topics, brokers, loggers, groups and client metrics; quotas and SCRAM "
        "credentials of users; quotas of clients and addresses. The options of kafka-configs.sh.",
        epilog="A value with commas stands in brackets: k1=v1,k2=[v1,v2]. A credential of a user: "
        "SCRAM-SHA-512=[iterations=8192], with the password from --password-file, MINIKAFKA_PASSWORD or a "
        "prompt.",
        allow_abbrev=False,
    )
    actions = options.add_subparsers(dest="action", required=True, metavar="ACTION")
    describe = actions.add_parser("describe", help="what is set for an entity", allow_abbrev=False)
    describe.add_argument("--all", action="store_true", help="static values and defaults too")
    alter = actions.add_parser("alter", help="set and remove", allow_abbrev=False)
    alter.add_argument("--add-config", metavar="NAME=VALUE,...", help="what to set")
    alter.add_argument("--add-config-file", metavar="FILE", help="a properties file with what to set")
    alter.add_argument("--delete-config", metavar="NAME,...", help="what to remove")
    alter.add_argument("--force", action="store_true", help=argparse.SUPPRESS)  # Kafka's: it asks nothing
    add_password_option(alter)
    for each in actions.choices.values():
        _add_entity_options(each)
        add_connection_options(each)
    return options


def _add_entity_options(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "--entity-type",
        action="append",
        default=[],
        metavar="TYPE",
        help=f"one of {', '.join(ENTITY_TYPES)}; users and clients together",
    )
    options.add_argument(
        "--entity-name", action="append", default=[], metavar="NAME", help="the entity's name"
    )
    options.add_argument(
        "--entity-default",
        action="append_const",
        const="",
        dest="entity_name",
        help="instead of a name: the default of users, clients, brokers or ips",
    )
    for flag, (entity_type, metavar) in _FLAGS.items():
        options.add_argument(
            f"--{flag}", metavar=metavar, help=f"--entity-type {entity_type} --entity-name {metavar}"
        )
    for flag, entity_type in _DEFAULTS_FLAGS.items():
        options.add_argument(
            f"--{flag}", action="store_true", help=f"--entity-type {entity_type} --entity-default"
        )


def entities(arguments: argparse.Namespace) -> Entities:
    """What the options name, checked as in ``ConfigCommandOptions.checkArgs``.

    Raises:
        ValueError: in Kafka's words.
    """
    given = vars(arguments)
    flags = [
        (entity_type, given[flag.replace("-", "_")])
        for flag, (entity_type, _) in _FLAGS.items()
        if given[flag.replace("-", "_")] is not None
    ]
    flags += [
        (entity_type, "") for flag, entity_type in _DEFAULTS_FLAGS.items() if given[flag.replace("-", "_")]
    ]
    if flags and (arguments.entity_type or arguments.entity_name):
        raise ValueError(
            "--entity-{type,name,default} should not be used in conjunction with specific entity flags"
        )
    types = (*arguments.entity_type, *(entity_type for entity_type, _ in flags))
    names = (*arguments.entity_name, *(name for _, name in flags))
    _check_types(types)
    if len(names) > len(types):
        raise ValueError("More entity names specified than entity types")
    for name in filter(None, names):
        if types[0] in (BROKERS, BROKER_LOGGERS) and not _is_integer(name):
            raise ValueError(
                f"The entity name for {types[0]} must be a valid integer broker id, but it is: {name}"
            )
    if "" in names and types[0] not in _WITH_DEFAULTS:
        raise ValueError(f"--entity-default must not be specified with {types[0]}")
    if arguments.action == "describe":
        if types[0] == BROKER_LOGGERS and not names:
            raise ValueError("An entity name must be specified with --describe of broker-loggers")
        return Entities(types, names)
    if len(names) != len(types):
        which = "An entity-name or default entity" if types[0] in _WITH_DEFAULTS else "An entity name"
        raise ValueError(f"{which} must be specified with --alter of {','.join(types)}")
    return Entities(types, names)


def _check_types(types: Sequence[str]) -> None:
    if len(set(types)) < len(types):
        twice = next(each for each in types if types.count(each) > 1)
        raise ValueError(f"Duplicate entity type(s) specified: {twice}")
    for each in types:
        if each not in ENTITY_TYPES:
            raise ValueError(
                f"Invalid entity type {each}, the entity type must be one of {', '.join(ENTITY_TYPES)}"
            )
    if not types:
        raise ValueError("At least one entity type must be specified")
    if len(types) > 1 and set(types) != {USERS, CLIENTS}:
        raise ValueError("Only 'users' and 'clients' entity types may be specified together")


def _is_integer(text: str) -> bool:
    return text.isascii() and text.removeprefix("-").isdigit()


def additions(arguments: argparse.Namespace) -> dict[str, str]:
    """``--add-config`` or ``--add-config-file``.

    Raises:
        ValueError: both, neither and nothing to delete, or not of their form.
    """
    if arguments.add_config is not None and arguments.add_config_file is not None:
        raise ValueError("Only one of --add-config or --add-config-file must be specified")
    if arguments.add_config is None and arguments.add_config_file is None and not arguments.delete_config:
        raise ValueError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with "
            "--alter"
        )
    if arguments.add_config_file is not None:
        found = _of_file(arguments.add_config_file)
    else:
        found = _of_text(arguments.add_config) if arguments.add_config else {}
    for name in found:
        if not _KEY.fullmatch(name):
            raise ValueError(f"Invalid character found for config key: {name}")
    return found


def _of_text(text: str) -> dict[str, str]:
    pairs = [_EQUALS.split(each) for each in _COMMA.split(text)]
    if not all(len(pair) == 2 for pair in pairs):
        raise ValueError(
            'Invalid entity config: all configs to be added must be in the format "key=val" or '
            '"key=[val1,val2]" to group values which contain commas.'
        )
    return {name.strip(): _BRACKETS.sub("", value).strip() for name, value in pairs}


def _of_file(path: str) -> dict[str, str]:
    try:
        return {name: value for name, value, _ in parse_properties(read_bounded(path), source=path)}
    except ConfigError as error:
        raise ValueError(str(error)) from None


def deletions(arguments: argparse.Namespace) -> list[str]:
    """``--delete-config``."""
    return [each.strip() for each in (arguments.delete_config or "").split(",") if each.strip()]


def java_double(value: float) -> str:
    """As Java prints a double: ``1048576.0``, ``1.0E7``."""
    magnitude = abs(value)
    if magnitude == 0 or 1e-3 <= magnitude < 1e7:
        return repr(float(value))
    mantissa, _, exponent = f"{value:.17e}".partition("e")
    for digits in range(17):
        shorter = f"{value:.{digits}e}"
        if float(shorter) == value:
            mantissa, _, exponent = shorter.partition("e")
            break
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def entity_text(parts: Mapping[str, Any]) -> str:
    """An entity of a quota in the words of ``ConfigCommand.describeQuotaConfigs``."""
    words = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
    return ", ".join(
        f"the default {word}" if parts[kind] is None else f"{word} '{parts[kind]}'"
        for kind, word in words.items()
        if kind in parts
    )


class Changes(NamedTuple):
    """What to set and what to remove, by name. The values may be secrets."""

    set: dict[str, str]
    delete: list[str]

    def __repr__(self) -> str:
        return f"Changes(set={list(self.set)}, delete={self.delete})"


class Credential(NamedTuple):
    """What is to become a user's credential; ``password`` is None when it is asked for."""

    mechanism: ScramMechanism
    iterations: int
    password: str | None

    def __repr__(self) -> str:
        return f"Credential({self.mechanism.mechanism_name}, iterations={self.iterations})"


# The command


def main(argv: Sequence[str] | None = None) -> int:
    """Run an action. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(with_action_first(sys.argv[1:] if argv is None else argv, ACTIONS))
    try:
        take_connection(arguments)
        asked = entities(arguments)
        if arguments.action == "describe":
            return run(PROG, _describe(asked, arguments))
        changes = Changes(additions(arguments), deletions(arguments))
        credentials = _check(asked, changes)
        return run(PROG, _alter(asked, changes, credentials, arguments))
    except ValueError as error:
        options.error(str(error))


# Describing


async def _describe(asked: Entities, arguments: argparse.Namespace) -> int:
    async with GroupAdmin.of(arguments, CLIENT_NAME) as admin:
        if asked.type not in _RESOURCES:
            await _describe_quotas(admin, asked)
            if CLIENTS not in asked.types and asked.type == USERS and "" not in asked.names:
                await _describe_credentials(admin, asked.names)
            return OK
        for name in asked.names or await _names(admin, asked.type):
            if name:
                which = "All" if arguments.all else "Dynamic"
                print(f"{which} configs for {asked.type[:-1]} {name} are:")
            else:
                print(f"Default configs for {asked.type} in the cluster are:")
            for entry in await _configs(admin, asked.type, name, describes_all=arguments.all):
                print(f"  {_entry_text(entry)}")
    return OK


async def _names(admin: GroupAdmin, entity_type: str) -> list[str]:
    """All entities of a type; the default of all brokers comes last."""
    match entity_type:
        case "topics":
            return sorted({each.topic for each in await admin.partitions()})
        case "brokers" | "broker-loggers":
            return [*map(str, (await admin.nodes()).brokers), ""]
        case "groups":
            groups = {each.group for each in await admin.groups()}
            return sorted(groups | set(await _listed(admin, ConfigResourceType.GROUP)))
        case _:
            return await _listed(admin, ConfigResourceType.CLIENT_METRICS)


async def _listed(admin: AdminClient, resource_type: ConfigResourceType) -> list[str]:
    """ListConfigResources. In version 0 it knows client metrics only, and no types."""
    answer = await admin.ask_any(ApiKey.LIST_CONFIG_RESOURCES, {"resource_types": [int(resource_type)]})
    raise_error(answer)
    client_metrics = ConfigResourceType.CLIENT_METRICS
    found = getattr(answer, "config_resources", None)
    if found is None:
        found = answer.client_metrics_resources
    return sorted(
        str(getattr(each, "resource_name", None) or each.name)
        for each in found
        if getattr(each, "resource_type", client_metrics) == resource_type
    )


async def _configs(
    admin: AdminClient, entity_type: str, name: str, *, describes_all: bool, synonyms: bool = True
) -> list[Any]:
    """DescribeConfigs of one resource, sorted; without ``describes_all`` only what is set for it."""
    resource_type, source = _RESOURCES[entity_type]
    if resource_type is ConfigResourceType.BROKER and not name:
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    body = {
        "resources": [
            {"resource_type": int(resource_type), "resource_name": name, "configuration_keys": None}
        ],
        "include_synonyms": synonyms,
        "include_documentation": False,
    }
    answer = await _ask(admin, ConfigResource(resource_type, name), ApiKey.DESCRIBE_CONFIGS, body)
    (result,) = answer.results
    raise_error(result)
    wanted = (
        each for each in result.configs if describes_all or source is None or each.config_source == source
    )
    return sorted(wanted, key=lambda each: str(each.name))


async def _ask(admin: AdminClient, resource: ConfigResource, key: ApiKey, body: Mapping[str, Any]) -> Any:
    """A broker answers for itself."""
    if resource.type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER) and resource.name:
        return await admin.ask_broker(int(resource.name), key, body)
    return await admin.ask_any(key, body)


def _entry_text(entry: Any) -> str:
    places = ", ".join(
        f"{_source_name(each.source)}:{each.name}={_java(each.value)}" for each in entry.synonyms
    )
    sensitive = "true" if entry.is_sensitive else "false"
    return f"{entry.name}={_java(entry.value)} sensitive={sensitive} synonyms={{{places}}}"


def _source_name(source: int) -> str:
    try:
        return _SOURCES.get(ConfigSource(source)) or ConfigSource(source).name
    except ValueError:
        return ConfigSource.UNKNOWN.name


def _java(value: str | None) -> str:
    return "null" if value is None else value


async def _quotas(
    admin: AdminClient, asked: Entities
) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    components = []
    for place, entity_type in enumerate(asked.types):
        name = asked.names[place] if place < len(asked.names) else None
        match_type = MatchType.ANY if name is None else MatchType.EXACT if name else MatchType.DEFAULT
        components.append(
            {
                "entity_type": _QUOTA_TYPES[entity_type],
                "match_type": int(match_type),
                "match": name or None,
            }
        )
    answer = await admin.ask_any(ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": components, "strict": True})
    raise_error(answer)
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]


async def _describe_quotas(admin: AdminClient, asked: Entities) -> None:
    for parts, quotas in sorted(await _quotas(admin, asked), key=lambda each: entity_text(each[0])):
        values = ", ".join(f"{key}={java_double(value)}" for key, value in quotas.items())
        print(f"Quota configs for {entity_text(parts)} are {values}")


async def _describe_credentials(admin: AdminClient, users: Sequence[str]) -> None:
    try:
        found = await describe_users(admin, users)
    except KafkaError as error:
        if users or error.code not in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST):
            raise
        return  # an open broker has no credentials
    for user, credentials in found.items():
        texts = ", ".join(
            f"{mechanism.mechanism_name}=iterations={iterations}"
            for mechanism, iterations in sorted(credentials.items())
        )
        print(f"SCRAM credential configs for user-principal '{user}' are {texts}")


# Altering


def _check(asked: Entities, changes: Changes) -> list[Credential]:
    """Whether such an entity can have such properties. Returns the credentials among them.

    Raises:
        ValueError: in Kafka's words, without values.
    """
    names = [*changes.set, *changes.delete]
    if asked.type == IPS:
        unknown = [name for name in names if name not in IP_QUOTAS]
        if unknown:
            raise ValueError(
                "Only connection quota configs can be added for 'ips' using --bootstrap-server. Unexpected "
                f"config names: {','.join(unknown)}"
            )
    if asked.type not in (USERS, CLIENTS):
        return []
    credentials = [name for name in names if name in MECHANISMS]
    is_user = CLIENTS not in asked.types
    unknown = [name for name in names if name not in _QUOTAS and not (is_user and name in MECHANISMS)]
    if unknown:
        what, whom = ("quota and SCRAM credential", USERS) if is_user else ("quota", CLIENTS)
        raise ValueError(
            f"Only {what} configs can be added for '{whom}' using --bootstrap-server. Unexpected config "
            f"names: {', '.join(unknown)}"
        )
    if credentials and "" in asked.names:
        raise ValueError(
            "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials using "
            "--bootstrap-server."
        )
    if credentials and len(credentials) < len(names):
        raise ValueError(
            "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using "
            "--bootstrap-server."
        )
    return [_credential(name, changes.set[name]) for name in credentials if name in changes.set]


def _credential(name: str, text: str) -> Credential:
    """``iterations=N,password=P``, both optional. Raises ValueError, which has no part of the text."""
    match = _CREDENTIAL.fullmatch(text)
    if match is None:
        raise ValueError(
            f"Invalid credential property {name}: must be [iterations=N,password=PASSWORD], without the "
            "password where --password-file, MINIKAFKA_PASSWORD or a prompt gives it"
        )
    iterations = ITERATIONS_DEFAULT if match[1] in (None, "-1") else int(match[1])
    check_iterations(MECHANISMS[name], iterations)
    return Credential(MECHANISMS[name], iterations, match[2] or None)


async def _alter(
    asked: Entities, changes: Changes, credentials: list[Credential], arguments: argparse.Namespace
) -> int:
    async with GroupAdmin.of(arguments, CLIENT_NAME) as admin:
        if asked.type in _RESOURCES:
            await _alter_resource(admin, asked, changes)
        elif any(name in MECHANISMS for name in (*changes.set, *changes.delete)):
            await _alter_credentials(admin, asked.names[0], changes, credentials, arguments.password_file)
        else:
            await _alter_quotas(admin, asked, changes)
    if asked.names[0]:
        print(f"Completed updating config for {asked.type[:-1]} {asked.names[0]}.")
    else:
        print(f"Completed updating default config for {asked.type} in the cluster.")
    return OK


async def _alter_resource(admin: AdminClient, asked: Entities, changes: Changes) -> None:
    name = asked.names[0]
    configs = await _configs(admin, asked.type, name, describes_all=False, synonyms=False)
    known = {str(each.name) for each in configs}
    if asked.type == BROKER_LOGGERS:
        unknown = [each for each in (*changes.delete, *changes.set) if each not in known]
        if unknown:
            raise CommandError(f"Invalid broker logger(s): {','.join(unknown)}")
    _check_deleted(changes, known)
    resource = ConfigResource(_RESOURCES[asked.type][0], name)
    operations = [{"name": each, "config_operation": _DELETE, "value": None} for each in changes.delete]
    operations += [
        {"name": each, "config_operation": _SET, "value": value} for each, value in changes.set.items()
    ]
    resources = [{"resource_type": int(resource.type), "resource_name": name, "configs": operations}]
    answer = await _ask(
        admin,
        resource,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        {"resources": resources, "validate_only": False},
    )
    for response in answer.responses:
        raise_error(response)


def _check_deleted(changes: Changes, known: set[str]) -> None:
    missing = [name for name in changes.delete if name not in known]
    if missing:
        raise CommandError(f"Invalid config(s): {','.join(missing)}")


async def _alter_quotas(admin: AdminClient, asked: Entities, changes: Changes) -> None:
    _check_deleted(changes, {key for _, quotas in await _quotas(admin, asked) for key in quotas})
    operations: list[dict[str, Any]] = []
    for key, text in changes.set.items():
        try:
            operations.append({"key": key, "value": float(text), "remove": False})
        except ValueError:
            raise CommandError(f"Cannot parse quota configuration value for {key}: {text}") from None
    operations += [{"key": key, "value": 0.0, "remove": True} for key in changes.delete]
    entity = [
        {"entity_type": _QUOTA_TYPES[entity_type], "entity_name": name or None}
        for entity_type, name in zip(asked.types, asked.names, strict=True)
    ]
    body = {"entries": [{"entity": entity, "ops": operations}], "validate_only": False}
    answer = await admin.ask_any(ApiKey.ALTER_CLIENT_QUOTAS, body)
    for result in answer.entries:
        raise_error(result)


async def _alter_credentials(
    admin: AdminClient,
    user: str,
    changes: Changes,
    credentials: Sequence[Credential],
    password_file: str | None,
) -> None:
    asked_for = None
    if any(each.password is None for each in credentials):
        asked_for = await asyncio.to_thread(read_password, password_file, whose=user, confirms=True)
    upsertions: list[tuple[str, SaltedPassword]] = []
    for each in credentials:
        password = each.password or asked_for
        assert password, "read_password gives none that is empty"
        made = await asyncio.to_thread(salted, each.mechanism, each.iterations, password)
        upsertions.append((user, made))
    await alter_users(
        admin, upsertions=upsertions, deletions=[(user, MECHANISMS[name]) for name in changes.delete]
    )


if __name__ == "__main__":
    sys.exit(main())
