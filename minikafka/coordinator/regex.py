"""Regular expressions that clients send, with the syntax of RE2.

Kafka compiles them with RE2/J. ``re`` would follow a hostile pattern for hours; RE2 matches in linear time,
and so does this.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from minikafka.deferred import re2
from minikafka.errors import ErrorCode, KafkaError

PROGRAM_BYTES_MAX = 1 << 20
"""What one compiled pattern may take. RE2's own default is 8 MiB."""


def compile_regex(regex: str, *, name: str) -> Any:
    """A pattern, as ``re`` has them. ``name`` is for the error.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION.
    """
    try:
        return _compiled(regex)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"{name} `{regex}` is not a valid regular expression: {reason}.",
        ) from error


@lru_cache(maxsize=32)
def _compiled(regex: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PROGRAM_BYTES_MAX
    return re2.compile(regex, options)
