"""Compiles ``minikafka/protocol/records/record_scan.c`` where there is a compiler: hatchling's build hook.

An editable installation (every ``bin/`` command makes one) gets the library beside its source; a wheel
contains it and is then one for this kind of machine (``cp311-abi3-…``, any CPython from 3.11 on). Without a
compiler, without Python's headers, or with MINIKAFKA_PURE=1 there is no library, the wheel is
``py3-none-any``, and the broker does the same in Python. ``minikafka-broker --version`` says which it has.

setuptools finds the compiler and its arguments. pyproject.toml has the source's SHA-256, so that who pulls
another source gets environments that are made again (``.environment.sh`` compares pyproject.toml).
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("minikafka", "protocol", "records", "record_scan.c")
CPYTHON = "cp311"
"""The first whose stable ABI has what the source uses."""


class CompileRecordScan(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Raises RuntimeError: the source is not the one of pyproject.toml."""
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        if (found := hashlib.sha256((root / SOURCE).read_bytes()).hexdigest()) != self.config["sha256"]:
            raise RuntimeError(f'pyproject.toml: {SOURCE} has changed; write sha256 = "{found}"')
        into = (root / SOURCE).parent if version == "editable" else Path(self.directory) / "compiled"
        library = compiled(root, into)
        if library is None:
            self.app.display_warning("minikafka: not compiled: records are checked in Python")
        elif version != "editable":
            build_data["pure_python"] = False
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"{CPYTHON}-abi3-{platform}"
            build_data["force_include"][str(library)] = str(SOURCE.parent / library.name)


def compiled(root: Path, into: Path) -> Path | None:
    """The library, in ``into``; None, and no library there, when it cannot be compiled."""
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    extension = Extension(SOURCE.stem, [str(root / SOURCE)], py_limited_api=True, optional=True)
    with tempfile.TemporaryDirectory() as directory:
        command = build_ext(Distribution({"ext_modules": [extension]}))
        command.build_lib = command.build_temp = directory
        command.ensure_finalized()
        built = Path(command.get_ext_fullpath(extension.name))
        target = into / built.name
        if os.environ.get("MINIKAFKA_PURE") != "1" and sys.implementation.name == "cpython":
            command.run()  # it is optional: what goes wrong is printed
        if not built.exists():
            target.unlink(missing_ok=True)
            return None
        into.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f"{target.name}.{os.getpid()}")  # of who compiles at the same time
        beside.write_bytes(built.read_bytes())
        beside.replace(target)
    return target
