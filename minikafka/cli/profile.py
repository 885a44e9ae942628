"""``minikafka profile``: keeps addresses and settings of clusters, so that they need not be repeated.

Exit status: 0 when all went well, 1 when there is no such profile, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from minikafka.cli.shared.commands import (
    FAILURE,
    OK,
    VARIABLE,
    ProfileError,
    Profiles,
    check_name,
    parse_addresses,
    profiles_path,
)

PROG = "minikafka profile"
ADDRESS = "bootstrap-server"

_EPILOG = f"""\
A setting is the name of an option with a value: timeout-ms=5000 stands for --timeout-ms 5000 of every command
that has it. Options on the command line count more; {VARIABLE}=NAME chooses a profile for one shell or one
command, {VARIABLE}= none.
"""


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka profile``."""
    options = argparse.ArgumentParser(
        prog=PROG,
        description="Addresses and settings of clusters, by name.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    actions = options.add_subparsers(dest="action", required=True, metavar="ACTION")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=text, description=text, allow_abbrev=False)

    setting = add("set", "make a profile or change it; the first one is used from then on")
    setting.add_argument("name", metavar="NAME")
    setting.add_argument(
        "--bootstrap-server", "-b", metavar="HOST:PORT", help="a broker, or several with commas"
    )
    setting.add_argument(
        "--set", action="append", default=[], metavar="OPTION=VALUE", help="a setting; may be repeated"
    )
    setting.add_argument(
        "--unset", action="append", default=[], metavar="OPTION", help="forget a setting; may be repeated"
    )
    use = add("use", "use a profile from now on")
    use.add_argument("name", metavar="NAME", nargs="?")
    use.add_argument("--none", action="store_true", help="use no profile")
    add("list", "the profiles; * is the one in use")
    add("show", "what a profile has").add_argument(
        "name", metavar="NAME", nargs="?", help="the one in use, unless given"
    )
    add("remove", "forget a profile").add_argument("name", metavar="NAME")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run an action. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    if arguments.action == "use" and (arguments.name is None) != arguments.none:
        options.error("use: needs a NAME or --none")
    try:
        if arguments.action == "set":
            arguments.settings = _settings(arguments)
    except ValueError as error:
        options.error(str(error))
    try:
        return _run(arguments, Profiles.load())
    except ProfileError as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return FAILURE


def _run(arguments: argparse.Namespace, profiles: Profiles) -> int:
    name: Any = getattr(arguments, "name", None)
    match arguments.action:
        case "set":
            check_name(name)
            settings = profiles.by_name.setdefault(name, {})
            settings |= arguments.settings
            for each in arguments.unset:
                settings.pop(each, None)
            if profiles.current is None and len(profiles.by_name) == 1:
                profiles.current = name
            profiles.save()
            print(f"Profile {name} is in {profiles_path()}.")
        case "use":
            if name is not None:
                profiles.find(name)
            profiles.current = name
            profiles.save()
            print("No profile is used now." if name is None else f"Profile {name} is used from now on.")
        case "list":
            for each, settings in sorted(profiles.by_name.items()):
                mark = "*" if each == profiles.chosen() else " "
                print(f"{mark} {each}  {settings.get(ADDRESS, '')}".rstrip())
        case "show":
            chosen = name or profiles.chosen()
            if chosen is None:
                raise ProfileError("no profile is in use")
            for key, value in profiles.find(chosen).items():
                print(f"{key}={value}")
        case _:
            profiles.find(name)
            del profiles.by_name[name]
            if profiles.current == name:
                profiles.current = None
            profiles.save()
            print(f"Profile {name} is removed.")
    return OK


def _settings(arguments: argparse.Namespace) -> dict[str, str]:
    """What is set, checked against the options that commands have. Raises ValueError."""
    given = {}
    for each in arguments.set:
        key, separator, value = each.partition("=")
        if not separator:
            raise ValueError(f"--set {each}: must be OPTION=VALUE")
        given[key.removeprefix("--")] = value
    if given:
        known = _known_settings()
        for key, value in given.items():
            _check(key, value, known)
    if arguments.bootstrap_server is not None:
        given[ADDRESS] = arguments.bootstrap_server
    if ADDRESS in given:
        parse_addresses(given[ADDRESS])
    arguments.unset = [each.removeprefix("--") for each in arguments.unset]
    return given


def _known_settings() -> dict[str, list[argparse.Action]]:
    from minikafka.cli.completion import command_parsers, walk
    from minikafka.cli.shared.commands import ProfileParser

    known: dict[str, list[argparse.Action]] = {}
    for _, options in walk(command_parsers()):
        if isinstance(options, ProfileParser):
            for name, action in options.settings.items():
                known.setdefault(name, []).append(action)
    return known


def _check(key: str, value: str, known: dict[str, list[argparse.Action]]) -> None:
    """Raises ValueError: no command has the option, or none of those that have it takes the value."""
    if key not in known:
        raise ValueError(f"--set {key}={value}: the options are {', '.join(sorted(known))}")
    if not value.isprintable() or not any(_takes(action, value) for action in known[key]):
        raise ValueError(f"--set {key}={value}: --{key} cannot be that")


def _takes(action: argparse.Action, value: str) -> bool:
    convert: Any = action.type or str
    try:
        converted = convert(value)
    except (ValueError, TypeError, argparse.ArgumentTypeError):
        return False
    return action.choices is None or converted in action.choices


if __name__ == "__main__":
    sys.exit(main())
