"""``minikafka users``: in the store before a broker starts; passwords that nobody sees."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from minikafka.cli.shared.commands import CommandError
from minikafka.cli.shared.credentials import MECHANISMS, VARIABLE, read_password, salted
from minikafka.cli.users import main
from minikafka.coordination import paths
from minikafka.coordination.sqlite import SqliteStore
from minikafka.security.scram import decode_credential, make_credential
from minikafka.system_clock import SystemClock

PASSWORD = "correct horse"


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    file.chmod(0o600)
    return file


@pytest.fixture
def users(tmp_path: Path, password_file: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[int, str, str]:
        status = main([*arguments, "--coordination", f"sqlite:///{tmp_path}/store.sqlite"])
        output = capsys.readouterr()
        assert PASSWORD not in output.out + output.err
        return status, output.out, output.err

    return run


async def stored(tmp_path: Path, user: str) -> dict[str, str]:
    store = await SqliteStore.open(f"{tmp_path}/store.sqlite", clock=SystemClock(), session_timeout_ms=10_000)
    try:
        path = f"{paths.USER_CONFIGS}/{user}"
        return paths.decode_config((await store.get(path)).data, path)
    finally:
        await store.close()


def test_a_user_is_made_changed_listed_and_removed_before_any_broker(
    users: Any, tmp_path: Path, password_file: Path
) -> None:
    made = users("create", "ann b", "--password-file", str(password_file))
    assert made == (0, "Created the user ann b (SCRAM-SHA-512).\n", "")
    texts = asyncio.run(stored(tmp_path, "ann%20b"))
    credential = decode_credential("SCRAM-SHA-512", texts["SCRAM-SHA-512"])
    again = make_credential("SCRAM-SHA-512", PASSWORD, salt=credential.salt, iterations=4096)
    assert credential == again, "the broker finds the right password right"

    status, _, error = users("create", "ann b", "--password-file", str(password_file))
    assert status == 1 and "already has a password for SCRAM-SHA-512: change-password" in error
    both = ("--mechanism", "SCRAM-SHA-256", "--iterations", "8192", "--password-file", str(password_file))
    assert users("create", "ann b", *both)[0] == 0
    assert users("change-password", "ann b", "--password-file", str(password_file)) == (
        0,
        "Changed the password of ann b (SCRAM-SHA-256, SCRAM-SHA-512).\n",
        "",
    )
    assert [line.split() for line in users("list")[1].splitlines()] == [
        ["USER", "MECHANISM", "ITERATIONS"],
        ["ann", "b", "SCRAM-SHA-256", "8192"],
        ["ann", "b", "SCRAM-SHA-512", "4096"],
    ]
    assert users("delete", "ann b")[0] == 0
    assert users("list")[1] == "There are no users.\n"
    status, _, error = users("delete", "ann b")
    assert status == 1 and "there is no user ann b" in error


def test_a_password_comes_from_a_file_of_its_owner_or_the_environment(
    password_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_password(str(password_file), whose="ann") == PASSWORD
    password_file.chmod(0o640)
    with pytest.raises(CommandError, match="others than its owner may use") as error:
        read_password(str(password_file), whose="ann")
    assert f"chmod 600 {password_file}" in str(error.value)
    monkeypatch.setenv(VARIABLE, "from the environment")
    assert read_password(None, whose="ann") == "from the environment"
    monkeypatch.setenv(VARIABLE, "")
    with pytest.raises(CommandError, match="is empty"):
        read_password(None, whose="ann")
    monkeypatch.delenv(VARIABLE)
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        with pytest.raises(CommandError, match="there is no password of ann: give --password-file"):
            read_password(None, whose="ann")


def test_the_salted_password_is_in_no_repr() -> None:
    made = salted(MECHANISMS["SCRAM-SHA-256"], 4096, PASSWORD)
    assert repr(made) == "SaltedPassword(SCRAM-SHA-256, iterations=4096)"


@pytest.mark.parametrize("action", [["list"], ["delete", "ann"], ["change-password", "ann"]])
def test_a_wrong_path_is_an_error_and_makes_no_store(users: Any, tmp_path: Path, action: list[str]) -> None:
    status, _, error = users(*action)
    assert status == 1
    assert f"there is no store at {tmp_path}/store.sqlite" in error
    assert not (tmp_path / "store.sqlite").exists()


@pytest.mark.parametrize("url", ["sqlite:///", "zookeeper://", "/data/store.sqlite"])
def test_a_store_that_is_none_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--coordination", url]) == 1
    assert "must be sqlite:///PATH or zookeeper://HOST:PORT/CHROOT" in capsys.readouterr().err
