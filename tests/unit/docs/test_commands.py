"""The commands that the README and the pages show are commands of today: their parsers take them."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from minikafka.cli import broker
from minikafka.cli import main as minikafka

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SHELL = ("", "sh")
COMMAND = re.compile(r"""(?:^|\||\$\(|"\$\()\s*(?:\$ )?(?:bin/)?(minikafka(?:-broker)?)(?= |$)([^|)]*)""")
RUNS = {"minikafka": minikafka.main, "minikafka-broker": broker.main}
NOT_A_COMMAND = re.compile(r"minikafka \d")
"""The banner's first line, which names the version."""


class Parsed(BaseException):
    """The command line was taken; nothing is run."""


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands in the fenced blocks of a page, with their arguments."""
    blocks = [block for language, block in FENCED.findall(text) if language in SHELL]
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            for name, arguments in COMMAND.findall(line):
                if not NOT_A_COMMAND.match(f"{name}{arguments}"):
                    yield name, shlex.split(arguments, comments=True)


def shown() -> list[Any]:
    return [
        pytest.param(name, arguments, id=f"{page.name}: {name} {' '.join(arguments)}")
        for page in PAGES
        for name, arguments in commands(page.read_text(encoding="utf-8"))
    ]


@pytest.fixture(autouse=True)
def only_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    for method in ("parse_args", "parse_intermixed_args"):
        monkeypatch.setattr(argparse.ArgumentParser, method, parse_and_stop(method))


def parse_and_stop(method: str) -> Callable[..., NoReturn]:
    parse = getattr(argparse.ArgumentParser, method)

    def parse_only(self: argparse.ArgumentParser, *args: Any) -> NoReturn:
        parse(self, *args)
        raise Parsed

    return parse_only


def is_taken(name: str, arguments: list[str]) -> bool:
    """Whether the command's parser takes the arguments."""
    if name == "minikafka" and arguments in (["--help"], ["--version"]):
        return True
    try:
        RUNS[name](arguments)
    except Parsed:
        return True
    except SystemExit as left:
        return left.code == 0
    return False


@pytest.mark.parametrize(("name", "arguments"), shown())
def test_a_shown_command_parses(name: str, arguments: list[str]) -> None:
    assert is_taken(name, arguments)


@pytest.mark.parametrize("arguments", [["topic"], ["topics", "creat"], ["topics", "list", "--jsn"]])
def test_a_command_that_is_not_there_does_not(arguments: list[str]) -> None:
    assert not is_taken("minikafka", arguments)


def test_commands_are_found_after_prompts_and_pipes_and_in_quotes() -> None:
    shell = (
        '$ minikafka topics list   # all\nx | bin/minikafka produce a\neval "$(minikafka completion zsh)"\n'
    )
    text = f"```python\nminikafka no\n```\nminikafka no\n```sh\n{shell}```\n"
    assert list(commands(text)) == [
        ("minikafka", ["topics", "list"]),
        ("minikafka", ["produce", "a"]),
        ("minikafka", ["completion", "zsh"]),
    ]
