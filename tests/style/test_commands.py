"""What the commands in bin/ say on a machine that cannot run them, without setting anything up."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

BIN = Path(__file__).resolve().parents[2] / "bin"
TOOLS = ("sh", "dirname", "cmp")

OLD = "#!/bin/sh\nexit 1\n"
"""A Python that is too old: every ``-c`` check fails."""
CRIPPLED = "#!/bin/sh\ncase $2 in *ensurepip*) exit 1 ;; esac\nexit 0\n"
"""A new enough Python without its venv package, as Debian ships it."""
RECORDING = '#!/bin/sh\ncase $1 in -c) exit 0 ;; esac\necho "$@"\nexit 1\n'
"""A good Python, which shows how the environment would be made."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the commands, and a ``path`` directory with nothing but what they need."""
    shutil.copytree(BIN, tmp_path / "a checkout" / "bin")
    (tmp_path / "path").mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / "path" / tool).symlink_to(found)
    return tmp_path / "a checkout"


def run(
    checkout: Path, *, pythons: dict[str, str], command: str = "minikafka", **env: str
) -> tuple[int, str]:
    path = checkout.parent / "path"
    for name, script in pythons.items():
        (path / name).write_text(script)
        (path / name).chmod(0o755)
    result = subprocess.run(
        [checkout / "bin" / command, "--version"],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={"PATH": str(path), **env},
    )
    return result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("pythons", "why"),
    [
        ({}, "needs Python 3.11 or newer, and finds none"),
        ({"python3": OLD}, "needs Python 3.11 or newer, and {path}/python3 is older"),
        ({"python3": CRIPPLED}, "{path}/python3 cannot make virtual environments: install its venv package"),
    ],
)
def test_without_a_usable_python_it_says_so_in_one_line(
    checkout: Path, pythons: dict[str, str], why: str
) -> None:
    status, output = run(checkout, pythons=pythons)
    assert status == 1
    assert len(output.splitlines()) == 1
    assert f"minikafka: {why.format(path=checkout.parent / 'path')}" in output


def test_a_newer_python_beside_an_old_one_is_found(checkout: Path) -> None:
    status, output = run(checkout, pythons={"python3": OLD, "python3.12": RECORDING})
    root = checkout.resolve()
    assert output == f"{root}/bin/.environment.py {root} {root}/.venv zookeeper\n"
    assert status == 1


def test_the_python_that_is_asked_for_is_used(checkout: Path) -> None:
    _, output = run(checkout, pythons={"python3": RECORDING, "mine": OLD}, PYTHON="mine")
    assert "path/mine is older" in output


def test_tests_and_checks_have_an_environment_of_their_own(checkout: Path) -> None:
    _, output = run(checkout, pythons={"python3": RECORDING}, command="check")
    assert output.endswith("/.venv-dev dev,bench\n")


def test_an_environment_that_is_made_is_used_as_it_is(checkout: Path) -> None:
    root = checkout.resolve()
    (root / "pyproject.toml").write_text("x")
    venv = root / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text('#!/bin/sh\necho "$@"\n')
    os.chmod(venv / "bin" / "python", 0o755)
    (venv / ".made-from").write_text("x")
    (venv / ".made-for").write_text(f"{root}\n")
    assert run(checkout, pythons={}) == (0, "-P -m minikafka.cli.main --version\n")
    (root / "pyproject.toml").write_text("changed")
    assert run(checkout, pythons={})[0] == 1
    (root / "pyproject.toml").write_text("x")
    (venv / ".made-for").write_text("/elsewhere\n")
    assert run(checkout, pythons={})[0] == 1
