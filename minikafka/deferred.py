"""Modules that are imported when something of theirs is first used.

A broker that waits for its first topic does nothing with codecs, coordinators or pages, and importing them is
much of its start and of its memory. So a module that needs one of these writes

    if TYPE_CHECKING:
        from minikafka.coordinator.group import shard
    else:
        shard = deferred("minikafka.coordinator.group.shard")

and uses ``shard.GroupShard`` as ever; type checkers and import contracts see an import. Packages of others
that several modules use are here, to be imported from here. The first use costs the import, on the thread
that it happens on. What an idle broker must not have loaded: ``tests/integration/test_idle_broker.py``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["cramjam", "crc32c", "deferred", "re2"]


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


def deferred(name: str) -> Any:
    """The module ``name``. ImportError comes at its first use, too."""
    return DeferredModule(name)


if TYPE_CHECKING:
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
