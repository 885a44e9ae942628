"""Makes or renews a virtual environment for this checkout: ``.environment.py ROOT VENV EXTRAS``.

Called by ``.environment.sh`` when there is something to do; standard library only. A lock file makes calls at
the same time take turns. ``.made-from`` (a copy of pyproject.toml) is written last: an interrupted call is
repeated.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import venv
from pathlib import Path

EXTRAS = {
    "bench,zookeeper": "the load generator (a few MB)",
    "spark,tables": "Spark (about 550 MB to download)",
}
"""Of these pip shows its progress, because they take a while."""


def main(root: Path, directory: Path, extras: str) -> int:
    """Returns the exit status; every failure says in one line what it is."""
    try:
        (root / ".cache").mkdir(exist_ok=True)
        with (root / ".cache" / f"{directory.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if is_current(root, directory):  # another process made it while we waited
                return 0
            with_extras = f", with what {EXTRAS[extras]} needs" if extras in EXTRAS else ""
            print(f"minikafka: setting up {directory.name} (once){with_extras}…", file=sys.stderr, flush=True)
            if not works(directory):
                shutil.rmtree(directory, ignore_errors=True)
                venv.create(directory, with_pip=True, symlinks=True)
            return install(root, directory, extras)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"minikafka: cannot make the virtual environment {directory}: {error}", file=sys.stderr)
        return 1


def is_current(root: Path, directory: Path) -> bool:
    """Whether the environment is made, for this place and from this pyproject.toml."""
    try:
        return (
            (directory / ".made-for").read_text().strip() == str(root)
            and (directory / ".made-from").read_bytes() == (root / "pyproject.toml").read_bytes()
            and (directory / "bin" / "python").exists()
        )
    except FileNotFoundError:
        return False


def works(directory: Path) -> bool:
    """Whether there is an environment with a Python and a pip that start."""
    python = directory / "bin" / "python"
    if not python.exists():
        return False
    check = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    return subprocess.run([python, "-c", check], capture_output=True, check=False).returncode == 0


def install(root: Path, directory: Path, extras: str) -> int:
    """Install the checkout, editable, with ``extras``."""
    made_from = (root / "pyproject.toml").read_bytes()
    target = f"{root}[{extras}]" if extras else str(root)
    command = [directory / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check"]
    if extras not in EXTRAS:
        command.append("--quiet")
    if "dev" in extras.split(","):
        command.append("--no-compile")  # ten thousand modules; Python compiles those that are used
    result = subprocess.run([*command, "--editable", target], stdout=sys.stderr, check=False)
    if result.returncode != 0:
        print(f"minikafka: cannot install into {directory.name}; pip says why above", file=sys.stderr)
        return 1
    (directory / ".made-for").write_text(f"{root}\n")
    partial = directory / ".made-from.tmp"
    partial.write_bytes(made_from)
    partial.replace(directory / ".made-from")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
