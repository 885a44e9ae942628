"""The package as a zip, for executors on other machines.

    python -m minikafka.spark.package DIR

writes ``minikafka.zip`` and ``main.py`` into DIR. Then what follows ``main.py`` in ``spark-submit --py-files
DIR/minikafka.zip DIR/main.py …`` is what follows ``minikafka`` on a command line. The zip holds minikafka
alone: the libraries that it imports must be installed where executors run.
"""

from __future__ import annotations

import argparse
import marshal
import os
import sys
import zipfile
from collections.abc import Sequence
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path

import minikafka

PACKAGE = Path(minikafka.__file__).parent
"""Where this process has it: a directory, or inside a zip that ``--py-files`` brought."""

ZIP_NAME, ENTRY_POINT_NAME = "minikafka.zip", "main.py"

ENTRY_POINT = '''\
"""minikafka for spark-submit: what follows this file's name is what follows ``minikafka``."""

import sys

from minikafka.cli.main import main

sys.exit(main(sys.argv[1:]))
'''


def is_zipped() -> bool:
    """Whether this process imports the package from a zip, which Spark has sent everywhere already."""
    return not PACKAGE.is_dir()


def write_package(path: Path) -> Path:
    """Write the package as a zip to ``path``, and return it. Raises OSError.

    Byte code goes with it, because Python writes none into a zip: each Python worker would compile every
    module that it imports. Another version of Python takes the sources.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(PACKAGE.rglob("*")):
            if not file.is_file() or "__pycache__" in file.parts:
                continue
            name = file.relative_to(PACKAGE.parent)
            archive.write(file, name)
            if file.suffix == ".py":
                archive.writestr(str(name.with_suffix(".pyc")), _byte_code(file, str(name)))
    return path


def _byte_code(file: Path, name: str) -> bytes:
    """As a .pyc that counts whatever the time of its source is."""
    source = file.read_bytes()
    code = compile(source, name, "exec", dont_inherit=True)
    unchecked_hash = (1).to_bytes(4, "little")
    return b"".join((MAGIC_NUMBER, unchecked_hash, source_hash(source), marshal.dumps(code)))


def main(argv: Sequence[str] | None = None) -> int:
    """Write both files. Returns the exit status."""
    options = argparse.ArgumentParser(
        prog="python -m minikafka.spark.package",
        description=f"Write {ZIP_NAME} and {ENTRY_POINT_NAME} for spark-submit.",
    )
    options.add_argument("directory", metavar="DIR", type=Path, help="where to; made if it is not there")
    directory: Path = options.parse_args(argv).directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        package = write_package(directory / ZIP_NAME)
        entry_point = directory / ENTRY_POINT_NAME
        entry_point.write_text(ENTRY_POINT, encoding="utf-8")
    except OSError as error:
        print(f"minikafka.spark.package: {directory}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"spark-submit --py-files {os.fspath(package)} {os.fspath(entry_point)} export --help")
    return 0


if __name__ == "__main__":
    sys.exit(main())
