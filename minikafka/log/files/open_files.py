"""Which segment files and indexes are open: a bounded cache of descriptors, shared by all logs of a broker.

Kafka keeps every segment's files open, so the limit on descriptors is a limit on its partitions. Here a file
is opened when it is used and stays open while there is room; the number of partitions is not limited by it.

Invariants: at most ``files_max`` members are open. A member closes only while another one is being opened,
so nobody may keep an open file over a call that can open one. Only the thread that uses the logs comes here;
disk threads open files of their own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar

from minikafka.files import lacks_descriptors

T = TypeVar("T")

OPEN_FILES_MAX = 768
"""For those that say nothing: below the usual soft limit of 1,024."""

_SHARE_TO_CLOSE = 8
"""When the process has no descriptor left, one in so many of the open files is closed."""


class CachedFile(Protocol):
    """Holds at most one descriptor, and opens it again whenever it needs it."""

    was_used: bool
    """Since it was opened, or since the cache looked last; set by its owner, which costs less than a move in
    a list at every append."""

    def close_idle(self) -> None:
        """Let go of the descriptor."""
        ...


class OpenFiles:
    """Closes what has not been used for long, by the clock algorithm ("second chance")."""

    def __init__(self, files_max: int = OPEN_FILES_MAX) -> None:
        self.files_max = files_max
        self._members: OrderedDict[CachedFile, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return f"OpenFiles({len(self)} of {self.files_max})"

    def open(self, member: CachedFile, open_file: Callable[[], T]) -> T:
        """What ``open_file`` returns, which opens the file of ``member``; others may have to close for it.

        Raises:
            OSError: those of ``open_file``.
        """
        while len(self._members) >= self.files_max:
            self._close_one()
        try:
            opened = open_file()
        except OSError as error:
            if not self._members or not lacks_descriptors(error):
                raise
            for _ in range(-(-len(self._members) // _SHARE_TO_CLOSE)):
                self._close_one()
            opened = open_file()
        member.was_used = False
        self._members[member] = None
        return opened

    def forget(self, member: CachedFile) -> None:
        """It was closed by its owner."""
        self._members.pop(member, None)

    def _close_one(self) -> None:
        members = self._members
        while True:  # whoever was used goes to the end as unused, so the second round ends it
            member, _ = members.popitem(last=False)
            if not member.was_used:
                member.close_idle()
                return
            member.was_used = False
            members[member] = None
