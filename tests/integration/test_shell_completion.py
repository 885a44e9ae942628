"""``minikafka completion`` in the shells themselves: what a Tab offers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from minikafka.cli.completion import command_parsers, walk
from tests.support.commands import skip_if_missing

DEADLINE_S = 90
ASK_BASH = """
source "$1"; shift
COMP_WORDS=(minikafka "$@"); COMP_CWORD=$#
_minikafka
printf '%s\\n' "${COMPREPLY[@]}"
"""
ASK_ZSH = """
compdef() {}
compadd() { print -l -- ${(P)2} }
_files() { print -- FILES }
source $1; shift
words=(minikafka "$@"); CURRENT=$(($# + 1))
_minikafka
"""
ASK_FISH = """
source $argv[1]
complete -C (string join ' ' -- minikafka $argv[2..])
"""


def offered(script: Path, shell: str, *typed: str) -> set[str]:
    """What a Tab after ``typed`` offers; its last word may be begun, or empty."""
    skip_if_missing(shell)
    asks = {"bash": [ASK_BASH, "bash"], "zsh": [ASK_ZSH, "zsh"], "fish": [ASK_FISH]}[shell]
    plain = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [shell, *plain, "-c", *asks, str(script), *typed],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd=script.parent,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    begun = typed[-1]
    words = {line.partition("\t")[0] for line in done.stdout.splitlines()} - {""}
    return {word for word in words if word.startswith(begun)}  # zsh's own compadd would choose these


@pytest.fixture(scope="module", params=["bash", "zsh", "fish"])
def script(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    shell: str = request.param
    path = tmp_path_factory.mktemp(shell) / "minikafka"
    printed = subprocess.run(
        [sys.executable, "-m", "minikafka.cli.main", "completion", shell],
        stdout=subprocess.PIPE,
        timeout=DEADLINE_S,
        check=True,
    )
    path.write_bytes(printed.stdout)
    return shell, path


def test_subcommands_options_and_choices_are_offered(script: tuple[str, Path]) -> None:
    shell, path = script
    assert offered(path, shell, "to") == {"topics", "tour"}
    assert offered(path, shell, "cluster", "st") == {"start", "stop"}
    assert offered(path, shell, "groups", "describe", "--mem") == {"--members"}
    assert "--topic" in offered(path, shell, "groups", "-b", "host:1", "reset-offsets", "--")
    assert offered(path, shell, "elect-leaders", "--election-type", "") == {"preferred", "unclean"}
    assert offered(path, shell, "completion", "") >= {"bash", "fish", "zsh"}


def test_a_value_that_is_free_is_no_subcommand(script: tuple[str, Path]) -> None:
    shell, path = script
    assert not offered(path, shell, "produce", "orders", "--key-separator", "") & {"--help", "topics"}


def test_every_option_of_every_command_is_offered(script: tuple[str, Path]) -> None:
    shell, path = script
    known = dict(walk(command_parsers()))
    for words in [("topics",), ("reassign", "execute"), ("bench", "soak"), ("cluster", "kill")]:
        options = {
            each for action in known[words]._actions for each in action.option_strings if each[:2] == "--"
        }
        assert offered(path, shell, *words, "--") == options


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_reader_that_has_seen_enough_is_no_failure(shell: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "minikafka.cli.main", "completion", shell],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.communicate(timeout=DEADLINE_S)[1] == b""
    assert process.returncode == 0
