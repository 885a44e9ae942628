"""``minikafka``: finds subcommands, says what there is, costs little."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

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


OF_EXTRAS = (
    "confluent_kafka", "deltalake", "fastavro", "google.protobuf", "grpc_tools", "hdrh", "kazoo",
    "opentelemetry", "plotly", "puresasl", "pyarrow", "pyiceberg", "pyspark", "yaml",
)  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ("completion bash", 0, "_minikafka_words"),
        ("profile set staging -b kafka1:9092 --set timeout-ms=5000", 0, "staging"),
        ("bench latency", 1, "pip install 'minikafka[bench]'"),
        ("export logs -o lake", 1, "pip install 'minikafka[spark]'"),
        ("import lake --data-dir logs --topic t", 1, "pip install 'minikafka[spark]'"),
        ("analyze logs", 1, "pip install 'minikafka[spark]'"),
        ("compact logs --topic t", 1, "pip install 'minikafka[spark]'"),
        ("why table orders --format delta -o lake", 1, "pip install 'minikafka[tables]'"),
    ],
)
def test_without_the_extras_commands_work_or_say_what_is_missing(
    arguments: str, status: int, said: str, tmp_path: Path
) -> None:
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({OF_EXTRAS}))\nfrom minikafka.cli.main import main\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code + "sys.exit(main(sys.argv[1:]))", *arguments.split()],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"XDG_CONFIG_HOME": str(tmp_path)},
        timeout=60,
    )
    assert (result.returncode, said in result.stdout + result.stderr) == (status, True), result.stderr
    assert "Traceback" not in result.stderr
