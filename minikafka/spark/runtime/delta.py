"""What delta-rs says of an error, as one line: it draws causes below each other, and answers of S3 as XML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from minikafka.spark.runtime.session import JobError

_CAUSE: Final = re.compile(r"^\s*(?:\x1b\[\d+m)?↳(?:\x1b\[\d+m)?\s*(?P<words>.+)$", re.MULTILINE)
_ANSWER: Final = re.compile(r"<Code>(?P<code>\w+)</Code>\s*<Message>(?P<words>[^<]*)</Message>")


@contextmanager
def delta_errors(what: str) -> Iterator[None]:
    """What delta-rs and its object stores raise, as one line behind ``what``. Raises JobError."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, ValueError) as error:
        raise JobError(f"{what}: {delta_words(error)}") from error


def delta_words(error: Exception) -> str:
    """The first line and the last cause, or in its place what the store has answered."""
    text = str(error)
    words = [" ".join(text.split("\n")[0].split()) or type(error).__name__]
    if answer := _ANSWER.search(text):
        words.append(f"{answer['words'].strip()} ({answer['code']})")
    elif causes := _CAUSE.findall(text):
        words.append(causes[-1].strip())
    return ": ".join(words)
