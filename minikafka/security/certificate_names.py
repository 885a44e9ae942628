"""Names that may stand in a certificate: of users and brokers, of hosts. Without ``cryptography``."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from minikafka.errors import ConfigError

NAME_CHARACTERS_MAX = 64
"""X.520's bound of a common name."""
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
"""Every broker's certificate holds for them too."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]*")
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
HOST_CHARACTERS_MAX = 253


def check_name(name: str) -> str:
    """``name`` of a client or broker, which is a common name, a principal's name and a directory's.

    Raises:
        ConfigError: it cannot be all of these without an escape in one of them.
    """
    if len(name) > NAME_CHARACTERS_MAX or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be a name: 1 to {NAME_CHARACTERS_MAX} letters, digits and . _ @ - are allowed, "
            "the first of them a letter or a digit"
        )
    return name


def check_host(host: str) -> str:
    """``host`` as a certificate has it: a name in lower case without a final dot, or an address in its usual
    form.

    Raises:
        ConfigError: it is neither.
    """
    text = host.strip().removeprefix("[").removesuffix("]")
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        pass
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > HOST_CHARACTERS_MAX or not all(map(_LABEL.fullmatch, labels)) or labels[-1].isdigit():
        raise ConfigError(f"{host!r} is neither a host name nor an address")
    return name


def broker_hosts(hosts: Iterable[str]) -> tuple[str, ...]:
    """All names that a certificate for ``hosts`` holds for, each once. Raises ConfigError."""
    return tuple(dict.fromkeys([*map(check_host, hosts), *LOCAL_NAMES]))
