"""What ``minikafka configs`` is asked: the options of ``kafka-configs.sh``, and what they come to.

Kafka: ``ConfigCommand.ConfigCommandOptions``, its order and its words. A value may be a secret, so no error
has one.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from minikafka.cli.shared.client_properties import read_bounded
from minikafka.cli.shared.commands import add_connection_options
from minikafka.cli.shared.passwords import add_password_option
from minikafka.cli.shared.profiles import ProfileParser
from minikafka.config.properties import parse_properties
from minikafka.errors import ConfigError

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
