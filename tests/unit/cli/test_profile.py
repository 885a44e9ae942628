"""``minikafka profile``, and that commands use what it keeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minikafka.cli import bench, broker, completion, groups, main, profile
from minikafka.cli.broker import load_configuration
from minikafka.cli.shared.commands import VARIABLE, ProfileParser, profiles_path
from tests.unit.cli.fake_groups import FakeGroups

Run = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command with no profiles yet: exit status, standard output's lines, standard error."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("MINIKAFKA_PROFILE", raising=False)

    def run(*arguments: str) -> tuple[int, list[str], str]:
        try:
            status = main.main(arguments)
        except SystemExit as ended:
            status = int(ended.code or 0)
        output = capsys.readouterr()
        return status, output.out.splitlines(), output.err

    return run


def address_of(*arguments: str) -> Any:
    return groups.parser().parse_args([*arguments, "list"]).bootstrap_server


def test_the_first_profile_is_used_by_every_command_with_a_bootstrap_server(run: Run) -> None:
    assert run("profile", "set", "test", "-b", "one:9192,two:9192", "--set", "timeout-ms=5000")[0] == 0
    seen = set()
    for path, options in completion.walk(completion.command_parsers()):
        for action in options._actions:
            if "--bootstrap-server" in action.option_strings and action.default is not None:
                assert action.default == "one:9192,two:9192", path
                assert isinstance(options, ProfileParser), path
                seen.add(path[0])
    assert seen >= {"bench", "cluster", "consume", "elect-leaders", "groups", "produce", "quotas", "reassign"}
    assert seen >= {"topics", "transactions"}
    arguments = groups.parser().parse_args(["list"])
    assert (arguments.bootstrap_server, arguments.timeout_ms) == ("one:9192,two:9192", 5000)
    assert bench.parser().parse_args(["run", "w.yaml"]).target is None, "a driver file may name it"


def test_a_command_reaches_the_profiles_cluster(run: Run, talk_to: Callable[[FakeGroups], None]) -> None:
    fake = FakeGroups()
    fake.group("idle")
    talk_to(fake)
    assert run("profile", "set", "test", "--bootstrap-server", "b:9001")[0] == 0
    status, lines, _ = run("groups", "list")
    assert status == 0 and lines[1].split()[0] == "idle"


def test_the_command_line_counts_more_then_the_variable_then_what_is_used(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert address_of() == "localhost:9092"
    run("profile", "set", "one", "-b", "one:1")
    run("profile", "set", "two", "-b", "two:2")
    assert address_of() == "one:1"
    assert run("profile", "use", "two")[0] == 0
    assert address_of() == "two:2"
    monkeypatch.setenv("MINIKAFKA_PROFILE", "one")
    assert address_of() == "one:1"
    assert groups.parser().parse_args(["list", "-b", "c:3"]).bootstrap_server == "c:3"
    assert run("profile", "list")[1] == ["* one  one:1", "  two  two:2"]
    monkeypatch.setenv("MINIKAFKA_PROFILE", "")
    assert address_of() == "localhost:9092"
    monkeypatch.setenv("MINIKAFKA_PROFILE", "three")
    status, _, error = run("groups", "list")
    assert status == 2 and "there is no profile three: there are one, two" in error
    monkeypatch.delenv("MINIKAFKA_PROFILE")
    assert run("profile", "use", "--none")[0] == 0
    assert address_of() == "localhost:9092"


def test_profiles_are_shown_changed_and_removed(run: Run) -> None:
    run("profile", "set", "one", "-b", "one:1", "--set", "isolation-level=read_committed")
    assert profiles_path().stat().st_mode & 0o777 == 0o600
    assert run("profile", "show")[1] == ["isolation-level=read_committed", "bootstrap-server=one:1"]
    assert run("profile", "set", "one", "--unset", "isolation-level")[0] == 0
    assert run("profile", "show", "one")[1] == ["bootstrap-server=one:1"]
    assert run("profile", "remove", "one")[0] == 0
    assert run("profile", "list") == (0, [], "")
    assert run("profile", "show")[0] == 1
    assert address_of() == "localhost:9092"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["set", "a", "--set", "no-such=1"], "the options are "),
        (["set", "a", "--set", "execute=true"], "the options are "),
        (["set", "a", "--set", "timeout-ms=soon"], "--timeout-ms cannot be that"),
        (["set", "a", "-b", "host:port"], "must be HOST:PORT"),
        (["use"], "needs a NAME or --none"),
        (["use", "nosuch"], "there is no profile nosuch"),
        (["set", "a b", "-b", "a:1"], "cannot be called"),
    ],
)
def test_what_cannot_be_is_said_and_not_kept(run: Run, arguments: list[str], says: str) -> None:
    status, _, error = run("profile", *arguments)
    assert status != 0 and says in error
    assert not profiles_path().exists()


def test_a_file_that_is_damaged_is_named(run: Run) -> None:
    profiles_path().parent.mkdir()
    profiles_path().write_text("current = ")
    status, _, error = run("groups", "list")
    assert status == 2 and str(profiles_path()) in error
    assert run("profile", "list")[0] == 1
    assert profile.main(["remove", "x"]) == 1


def test_a_broker_takes_the_variable_for_no_property(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "staging")
    assert load_configuration(broker.parser().parse_args([])).config.node_id == 1
