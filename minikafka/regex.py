"""Regular expressions that clients send, with the syntax of RE2.

Kafka compiles them with RE2/J. ``re`` would follow a hostile pattern for hours; RE2 matches in linear time,
and so does this. Nothing is captured, because RE2 copies the positions of all groups for every state: 5,000
groups and a long name took minutes. What is wrong with a pattern is remembered like a compiled one, so a
caller may compile where nothing waits, and ask again where it matters.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from minikafka.deferred import re2
from minikafka.errors import ErrorCode, KafkaError

LENGTH_MAX = 2_000
"""Characters. Kafka has no bound; longer patterns are lists of names, which a client can subscribe to."""

PROGRAM_BYTES_MAX = 1 << 18
"""What one compiled pattern may take; RE2's own default is 8 MiB. The slowest found to compile within it, 50
times any Unicode letter, took 20 ms."""


def compile_regex(regex: str, *, name: str) -> Any:
    """A pattern, as ``re`` has them, without groups. ``name`` is for the error.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION.
    """
    if len(regex) > LENGTH_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"{name} has {len(regex)} characters; {LENGTH_MAX} are allowed.",
        )
    pattern, reason = _compiled(regex)
    if reason is not None:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"{name} `{regex}` is not a valid regular expression: {reason}.",
        )
    return pattern


@lru_cache(maxsize=32)
def _compiled(regex: str) -> tuple[Any, str | None]:
    """The pattern, or what is wrong with it."""
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = PROGRAM_BYTES_MAX
    try:
        return re2.compile(regex, options), None
    except re2.error as error:
        reason = error.args[0]
        return None, reason.decode(errors="replace") if isinstance(reason, bytes) else str(error)
