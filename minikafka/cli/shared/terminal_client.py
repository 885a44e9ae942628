"""What ``minikafka produce`` and ``minikafka consume`` have in common: aiokafka's client at a terminal.

Its log lines are kept off the terminal; its errors become one line each.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minikafka.cli.shared.commands import CommandError

_ESCAPED = {"t": "\t", "n": "\n", "0": "\0", "\\": "\\"}

_NUMBER = re.compile(r"^\[Error -?\d+\] ")
"""In front of the name of an error."""

CLIENT_ID = "minikafka"
STOP_DEADLINE_S = 10.0
"""For what is still on its way when the command ends."""


@contextmanager
def client_errors() -> Iterator[None]:
    """Raises CommandError for aiokafka's errors."""
    from aiokafka.errors import KafkaError  # type: ignore[import-untyped]

    logging.getLogger("aiokafka").addHandler(logging.NullHandler())  # else Python prints what is logged
    try:
        yield
    except KafkaError as error:
        text = _NUMBER.sub("", str(error)).strip() or type(error).__name__
        if "AuthorizationFailed" in type(error).__name__:
            text += " (no ACL allows it, or one denies it: minikafka why-denied says which)"
        raise CommandError(text) from None


async def client_options(command_config: str) -> dict[str, Any]:
    """What aiokafka's clients are to be told of ``--command-config``. Raises ConfigError."""
    if not command_config:
        return {}
    from minikafka.cli.shared.client_properties import aiokafka_options, read_client_properties

    return await asyncio.to_thread(lambda: aiokafka_options(read_client_properties(command_config)))


def unescape(text: str) -> str:
    r"""``\t``, ``\n``, ``\0`` and ``\\`` as a shell's user writes them."""
    return re.sub(r"\\([tn0\\])", lambda match: _ESCAPED[match[1]], text)
