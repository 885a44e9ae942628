"""What the subcommands that talk to a cluster have in common: addresses, how the brokers are reached there,
profiles, quantities, actions, errors, exit status.

Exit status: 0 when all went well, 1 when a broker refused something or cannot be reached, 2 for bad usage.

Named addresses and settings that commands use when they are not given are profiles, in ``profiles.toml`` of
the user. The file is in ``$XDG_CONFIG_HOME/minikafka`` (``~/.config/minikafka``) and only its owner may read
it::

    current = "local"

    [profiles.local]
    bootstrap-server = "localhost:9192"
    timeout-ms = "5000"

A setting is the long name of an option. What is on the command line counts more than the profile, and
``MINIKAFKA_PROFILE`` more than ``current``; empty, it means no profile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from minikafka.config.definition import INT_MAX
from minikafka.errors import ConfigError, ErrorCode, KafkaError, MinikafkaError

if TYPE_CHECKING:
    from minikafka.network.client_security import ClientSecurity


VARIABLE = "MINIKAFKA_PROFILE"
"""Not a property of brokers: ``config.loader.NOT_PROPERTIES``."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
"""What TOML allows as a key without quotes."""

_UNITS: Final = {
    "": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_BYTES: Final = re.compile(r"(\d+)\s*([a-z]*?)(?:/s)?", re.IGNORECASE | re.ASCII)

DEFAULT_PORT = 9092
DEFAULT_TIMEOUT_MS = 30_000
OK, FAILURE = 0, 1
INTERRUPTED = 130
"""What a shell makes of a command that SIGINT ended."""

Address = tuple[str, int]

_WORDS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "delegation.token.secret.key is not set on the brokers",
}
"""For errors of responses that have no message."""


# Profiles


class ProfileError(MinikafkaError):
    """A profile is missing or cannot be read; the message is for the person at the terminal."""


class ProfileSetting(str):
    """The value of an option that a profile has given, and not the command line."""


class DefaultValue(str):
    """The value of an option that neither the command line nor a profile has given."""


class Profiles:
    """What the file has. Change ``current`` and ``by_name``, then ``save``."""

    def __init__(self, current: str | None, by_name: dict[str, dict[str, str]]) -> None:
        self.current = current
        self.by_name = by_name

    def __repr__(self) -> str:
        return f"Profiles(current={self.current}, {', '.join(self.by_name)})"

    @classmethod
    def load(cls) -> Profiles:
        """Of the file; empty when there is none. Raises ProfileError."""
        path = profiles_path()
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return cls(None, {})
        except (OSError, UnicodeDecodeError) as error:
            raise ProfileError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
        import tomllib

        try:
            found = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ProfileError(f"{path}: {error}") from None
        profiles = found.get("profiles", {})
        if not isinstance(profiles, dict) or not all(isinstance(each, dict) for each in profiles.values()):
            raise ProfileError(f"{path}: a profile must be a table like [profiles.local]")
        by_name = {
            name: {key: str(value) for key, value in settings.items()} for name, settings in profiles.items()
        }
        current = found.get("current")
        return cls(None if current is None else str(current), by_name)

    def save(self) -> None:
        """Replace the file as a whole. Raises ProfileError."""
        path = profiles_path()
        lines = [] if self.current is None else [f"current = {json.dumps(self.current)}"]
        for name, settings in sorted(self.by_name.items()):
            lines += ["", f"[profiles.{name}]"]
            lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]
        new = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(
                os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
            ) as file:
                file.write("\n".join(lines).lstrip("\n") + "\n")
            new.replace(path)
        except OSError as error:
            raise ProfileError(f"cannot write {path}: {error.strerror}") from None

    def find(self, name: str) -> dict[str, str]:
        """The settings of a profile. Raises ProfileError: there is none of that name."""
        if name not in self.by_name:
            there = f"there are {', '.join(sorted(self.by_name))}" if self.by_name else "there are none yet"
            raise ProfileError(f"there is no profile {name}: {there} ({profiles_path()})")
        return self.by_name[name]

    def chosen(self) -> str | None:
        """The profile that commands use now, by its name; None: none."""
        variable = os.environ.get(VARIABLE)
        return self.current if variable is None else variable or None


def profiles_path() -> Path:
    """Where the profiles of this user are."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "minikafka" / "profiles.toml"


def check_name(name: str) -> None:
    """Raises ProfileError: a profile cannot be called this."""
    if not _NAME.fullmatch(name):
        raise ProfileError(f"a profile cannot be called {name}: letters, digits, - and _ are possible")


def chosen_settings() -> Mapping[str, str]:
    """The settings of the profile that commands use now. Raises ProfileError."""
    profiles = Profiles.load()
    name = profiles.chosen()
    return {} if name is None else profiles.find(name)


class ProfileParser(argparse.ArgumentParser):
    """A parser of a command that talks to a cluster: its options take their defaults from the profile.

    ``settings`` are the options of which this holds: those with a value and a default other than None, so
    that a profile never turns on what a command does not do by itself. Subparsers are of this class too.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.settings: dict[str, argparse.Action] = {}
        super().__init__(*args, **kwargs)

    def add_argument(self, *args: Any, **kwargs: Any) -> argparse.Action:
        action = super().add_argument(*args, **kwargs)
        has_default = isinstance(action.default, (str, int, float)) and not isinstance(action.default, bool)
        if not action.option_strings or action.nargs is not None or not has_default:
            return action
        names = [each.removeprefix("--") for each in action.option_strings if each.startswith("--")]
        self.settings |= dict.fromkeys(names, action)
        try:
            given = chosen_settings()
        except ProfileError as error:
            self.error(str(error))
        for name in names:
            if name in given:
                action.default = ProfileSetting(
                    given[name]
                )  # as text: argparse converts it as it does what is typed
        return action


# Quantities


def parse_bytes(text: str) -> int:
    """``1000000``, ``50MB`` (of 10⁶ bytes), ``64MiB`` (of 2²⁰). Raises ValueError."""
    match = _BYTES.fullmatch(text.strip())
    factor = _UNITS.get(match[2].lower()) if match is not None else None
    if match is None or factor is None:
        raise ValueError(f"{text}: must be a number of bytes like 1000000, 50MB or 64MiB")
    return int(match[1]) * factor


DEFAULT_BOOTSTRAP: Final = DefaultValue(f"localhost:{DEFAULT_PORT}")


# Connections and errors


class CommandError(MinikafkaError):
    """The command cannot do what it was asked; the message is for the person who asked."""


def add_connection_options(options: argparse.ArgumentParser, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
    """``--bootstrap-server``, ``--command-config`` and ``--timeout-ms``, which is ``timeout_ms`` unless
    given."""
    add_bootstrap_option(options)
    options.add_argument(
        "--timeout-ms",
        "--timeout",
        type=parse_timeout,
        default=timeout_ms,
        metavar="MS",
        help=f"how long to wait for each answer ({timeout_ms})",
    )


def add_bootstrap_option(options: argparse.ArgumentParser) -> None:
    """``--bootstrap-server`` and ``--command-config``, for commands to which ``--timeout-ms`` means something
    else or nothing."""
    options.add_argument(
        "--bootstrap-server",
        "-b",
        default=DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT",
        help=f"any broker of the cluster, or several with commas (bootstrap.servers of --command-config; "
        f"without that file {DEFAULT_BOOTSTRAP})",
    )
    add_command_config_option(options)


def add_command_config_option(options: argparse.ArgumentParser) -> None:
    """``--command-config`` alone. Its default is a text, so that a profile can have it."""
    options.add_argument(
        "--command-config",
        default="",
        metavar="FILE",
        help="client properties as Kafka's tools have them: bootstrap.servers, security.protocol, "
        "sasl.jaas.config, ssl.…",
    )


def take_connection(arguments: argparse.Namespace) -> None:
    """``--bootstrap-server`` and ``--command-config`` as ``arguments.addresses`` and ``arguments.security``
    (None: in plain text).

    Raises:
        ValueError: what is wrong with either, or that none of them has an address.
    """
    properties = take_properties(arguments)
    security = take_security(arguments, properties)
    bootstrap = bootstrap_of(arguments.bootstrap_server, arguments.command_config, properties)
    is_given = bootstrap is arguments.bootstrap_server
    option = "--bootstrap-server" if is_given else f"bootstrap.servers in {arguments.command_config}:"
    arguments.addresses = [] if bootstrap is None else parse_addresses(bootstrap, option=option)
    arguments.security = security


def bootstrap_of(
    given: str | None,
    command_config: str,
    properties: Mapping[str, str],
    *,
    option: str = "--bootstrap-server",
) -> str | None:
    """The brokers to ask: those of the command line, else those of the file, else those of the profile. Of a
    profile that has both the option counts more than its file. Without a file it is the option's default,
    which is None for a command that can do without a broker; no file of a profile changes that.

    Raises:
        ValueError: a file is given, and no address.
    """
    is_typed = given is not None and not isinstance(given, DefaultValue | ProfileSetting)
    is_of_same_profile = isinstance(given, ProfileSetting) and isinstance(command_config, ProfileSetting)
    may_do_without = given is None and isinstance(command_config, ProfileSetting)
    if not command_config or is_typed or is_of_same_profile or may_do_without:
        return given
    servers = properties.get("bootstrap.servers", "").strip()
    if servers:
        return ",".join(each.strip().rpartition("://")[2] for each in servers.split(","))
    if isinstance(given, ProfileSetting):
        return given
    raise ValueError(f"no broker is named: give {option}, or set bootstrap.servers in {command_config}")


def typed_connection(arguments: argparse.Namespace) -> str:
    """What a command that another one advises needs in order to reach the same brokers as the same user:
    the connection options that were on the command line, each with a space in front."""
    given = (("-b", arguments.bootstrap_server), ("--command-config", arguments.command_config))
    return "".join(
        f" {option} {shlex.quote(value)}"
        for option, value in given
        if value and not isinstance(value, DefaultValue | ProfileSetting)
    )


def take_properties(arguments: argparse.Namespace) -> dict[str, str]:
    """Those of ``--command-config``; none without it. Raises ValueError."""
    if not arguments.command_config:
        return {}
    from minikafka.cli.shared.client_properties import read_client_properties

    try:
        return read_client_properties(arguments.command_config)
    except ConfigError as error:
        raise ValueError(f"--command-config {arguments.command_config}: {error}") from None


def take_security(arguments: argparse.Namespace, properties: Mapping[str, str]) -> ClientSecurity | None:
    """How ``properties``, those of ``--command-config``, say that brokers are reached; None: in plain text.
    Raises ValueError."""
    if not arguments.command_config:
        return None
    from minikafka.network.client_security import client_security

    try:
        return client_security(properties)
    except ConfigError as error:
        raise ValueError(f"--command-config {arguments.command_config}: {error}") from None


def with_action_first(arguments: Sequence[str], actions: Sequence[str]) -> list[str]:
    """``--create`` and its like, as Kafka's scripts have them, turned into the subcommand."""
    flags = [each for each in arguments if each.startswith("--") and each.removeprefix("--") in actions]
    if not flags:
        return list(arguments)
    rest = [argument for argument in arguments if argument not in flags]
    return [*(flag.removeprefix("--") for flag in flags[:1]), *rest, *flags[1:]]


def run(prog: str, work: Coroutine[Any, Any, int]) -> int:
    """Run a command to its end, and say on standard error what went wrong. Returns the exit status."""
    try:
        return asyncio.run(work)
    except KafkaError as error:
        print(f"{prog}: {explain(error)}", file=sys.stderr)
    except MinikafkaError as error:
        print(f"{prog}: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone
        sys.stderr.close()
    return FAILURE


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP (unless ``nohup`` ignores it) raise SystemExit while the body runs, so that it
    cleans up; the status is a shell's for such an end."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # once is enough
        sys.exit(128 + number)

    ends = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    for number in ends:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ends:
            signal.signal(number, signal.SIG_DFL)


def explain(error: KafkaError) -> str:
    """The broker's own words when it has any, and the error's name."""
    if error.message is None and (words := _WORDS.get(error.code)):
        return f"{words} ({error.code.name})"
    return f"{error.message} ({error.code.name})" if error.message else error.code.name


def error_of(code: int, message: str | None = None) -> KafkaError | None:
    """An error code of a response as an exception; None for NONE."""
    if code == ErrorCode.NONE:
        return None
    known = code in ErrorCode.__members__.values()
    return KafkaError(ErrorCode(code) if known else ErrorCode.UNKNOWN_SERVER_ERROR, message)


def parse_timeout(text: str) -> int:
    """Milliseconds. Raises ArgumentTypeError: they are none, or leave no time for an answer."""
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:11]) <= INT_MAX:
        raise argparse.ArgumentTypeError(f"{text}: must be milliseconds, from 1 to {INT_MAX}")
    return int(text)


def parse_addresses(text: str, *, option: str = "--bootstrap-server") -> list[Address]:
    """``host``, ``host:port`` or ``[v6]:port``, one or more with commas between. Raises ValueError: none
    of these, and which ``option`` it was."""
    addresses = []
    for each in text.split(","):
        host, separator, port = each.strip().rpartition(":")
        if not separator or each.strip().endswith("]"):
            host, port = each.strip(), str(DEFAULT_PORT)
        host = host.strip("[]")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) <= 65535:
            raise ValueError(f"{option} {text}: must be HOST:PORT")
        addresses.append((host, int(port)))
    return addresses


def parse_broker_list(text: str) -> list[int]:
    """``1,2,3`` as broker ids. Raises ValueError: not numbers, or one of them twice."""
    try:
        brokers = [int(each) for each in text.split(",")]
    except ValueError:
        raise ValueError(f"--broker-list {text}: must be broker ids like 1,2,3") from None
    if len(set(brokers)) < len(brokers):
        raise ValueError(f"--broker-list {text}: names a broker twice")
    return brokers


def read_text(name: str) -> str:
    """A file's text, or standard input's for ``-``. Raises CommandError."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None


def write_text(name: str, text: str) -> None:
    """Write a file. Raises CommandError."""
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {name}: {error.strerror or error}") from None


def as_json(value: Any) -> str:
    """For people and programs: two spaces of indentation."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
