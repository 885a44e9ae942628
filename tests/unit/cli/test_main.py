"""``minikafka``: finds subcommands, says what there is, costs little."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

from minikafka import __version__
from minikafka.cli import main as cli
from minikafka.cli.main import SUBCOMMANDS, main


def test_help_lists_every_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name}" in out for name in SUBCOMMANDS)


def test_nothing_is_bad_usage_and_shows_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: minikafka" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "hint"),
    [("topic", "did you mean topics?"), ("dumplog", "did you mean dump-log?"), ("zzz", "there are")],
)
def test_an_unknown_subcommand_gets_a_suggestion(
    name: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name]) == 2
    captured = capsys.readouterr()
    assert hint in captured.err and captured.out == ""


def test_the_rest_of_the_line_goes_to_the_subcommand(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    module = types.SimpleNamespace(main=lambda argv: seen.append(list(argv)) or 7)
    monkeypatch.setattr(cli, "import_module", lambda name: module)
    assert main(["topics", "--list", "--json"]) == 7
    assert seen == [["--list", "--json"]]


def test_help_imports_next_to_nothing() -> None:
    code = "import sys; from minikafka.cli.main import main; main(['--version']); print(*sorted(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.startswith(f"minikafka {__version__}")
    heavy = {"asyncio", "msgspec", "uvloop", "rich", "argparse", "logging"}
    assert heavy.isdisjoint(result.stdout.split())
