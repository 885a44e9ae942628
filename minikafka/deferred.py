"""Modules that are imported when something of theirs is first used, or soon after the start.

A broker that waits for its first topic does nothing with codecs, coordinators or pages, and importing them is
much of its start. So a module that needs one of these writes

    if TYPE_CHECKING:
        from minikafka.coordinator.group import shard
    else:
        shard = deferred("minikafka.coordinator.group.shard")

and uses ``shard.GroupShard`` as ever; type checkers and import contracts see an import. Packages of others
that several modules use are here, to be imported from here. The first use costs the import, on the thread
that it happens on. A running broker loads those of its own package in the background (``own_modules``), right
after its start: hours later an upgrade may have replaced their files. Left out are those that the start uses
or not at all, as TLS where no listener has it. Other packages are not loaded until they are used. What an
idle broker must not have loaded: ``tests/integration/test_idle_broker.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["cramjam", "crc32c", "deferred", "own_modules", "re2", "shutil", "tempfile"]

_OWN_PACKAGE = "minikafka."


class DeferredModule:
    """Stands for a module. Once used it has the module's own dictionary: it is as fast, and what is replaced
    in the one is replaced in the other."""

    __slots__ = ("__dict__", "_name")

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"DeferredModule({self._name!r})"

    def __getattr__(self, attribute: str) -> Any:
        module = import_module(self._name)  # waits for another thread that is about it
        self.__dict__ = module.__dict__
        return getattr(module, attribute)


_own: list[str] = []


def deferred(name: str, *, at_start_or_never: bool = False) -> Any:
    """The module ``name``. ImportError comes at its first use, too.

    ``at_start_or_never``: whether it is used is settled, and so it is loaded, when a broker has started.
    """
    if name.startswith(_OWN_PACKAGE) and not at_start_or_never:
        _own.append(name)
    return DeferredModule(name)


def own_modules() -> Iterator[str]:
    """The names of this package's modules that were deferred and are not loaded yet, also by those that the
    caller imports meanwhile."""
    for name in _own:  # which grows
        if name not in sys.modules:
            yield name


if TYPE_CHECKING:
    import shutil
    import tempfile

    import cramjam
    import crc32c
    import re2
else:
    cramjam = deferred("cramjam")
    """1.8 MB."""
    crc32c = deferred("crc32c")
    """3.3 MB and 15 ms, most of it the standard library's email package, for the sake of its version."""
    re2 = deferred("re2")
    """2.5 MB."""
    shutil = deferred("shutil")
    """2 ms, most of it the codecs of archives."""
    tempfile = deferred("tempfile")
    """3 ms with ``shutil``."""
