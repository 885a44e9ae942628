"""One clear line out of what Spark throws: the error of a Python worker arrives inside three stacks."""

from __future__ import annotations

import re

from minikafka.errors import MinikafkaError

_OURS = re.compile(r"^(?:pyspark\.errors\.\S+: )?minikafka\.[\w.]+: (?P<message>.+)$", re.MULTILINE)
_LAST_OF_TRACEBACK = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(?P<message>\S.*)$", re.MULTILINE
)
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (?P<message>.*?)(?: SQLSTATE: P0001)?$", re.MULTILINE)
_JAVA = re.compile(r"^: (?:[\w.$]+: )?(?P<message>.+)$", re.MULTILINE)
"""Behind py4j's "An error occurred while calling …"."""
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w{5}\s*$")


class JobError(MinikafkaError):
    """A job cannot do what it was asked; the message is for the person who asked."""


def explain(error: BaseException) -> str:
    """What went wrong, in one line: the message of our own error where there is one at the bottom of it."""
    if isinstance(error, MinikafkaError):
        return str(error)
    text = str(error)
    for pattern in (_OURS, _RAISED, _JAVA):
        if match := pattern.search(text):
            return match["message"].strip()
    if matches := list(_LAST_OF_TRACEBACK.finditer(text)):
        return matches[-1]["message"].strip()
    lines = [line.strip() for line in text.split("\n\nJVM stacktrace:")[0].splitlines() if line.strip()]
    return _SQLSTATE.sub("", lines[0]) if lines else type(error).__name__
