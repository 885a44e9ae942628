"""Named addresses and settings that commands use when they are not given: ``profiles.toml`` of the user.

The file is in ``$XDG_CONFIG_HOME/minikafka`` (``~/.config/minikafka``) and only its owner may read it::

    current = "local"

    [profiles.local]
    bootstrap-server = "localhost:9192"
    timeout-ms = "5000"

A setting is the long name of an option. What is on the command line counts more than the profile, and
``MINIKAFKA_PROFILE`` more than ``current``; empty, it means no profile.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minikafka.errors import MinikafkaError

VARIABLE = "MINIKAFKA_PROFILE"
"""Not a property of brokers: ``config.loader.NOT_PROPERTIES``."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
"""What TOML allows as a key without quotes."""


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
