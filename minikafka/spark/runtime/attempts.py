"""What is left of attempts at tasks that do not count.

Spark starts a task again when its executor is lost, and a second time where one is slow
(``spark.speculation``). The attempt that does not count is told to end, and Spark does not wait for it: a
Python process goes on until it reads or writes next, and one whose executor was killed until it notices. So
each attempt has files of its own, and who clears up expects new ones to appear meanwhile.
"""

from __future__ import annotations

import errno

from minikafka.files import Files

REMOVALS_MAX = 10
"""An attempt makes a handful of files, so far fewer are enough."""


def remove_attempts(files: Files, directory: str) -> None:
    """Remove a directory in which an attempt may still be writing; one that is not there is fine.

    Raises OSError: the disk's, or files keep appearing.
    """
    for left in reversed(range(REMOVALS_MAX)):
        try:
            files.remove_tree(directory)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT) or not left:
                raise
