"""``--secure`` on this machine: ``security.secure_setup`` with its clock, its name and its random numbers."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from datetime import UTC, datetime

from minikafka.config.loader import Setting
from minikafka.security.directory import SecurityDirectory
from minikafka.security.secure_setup import SecureSetup, default_directory, secure_setup


def make_secure_setup(given: Mapping[str, Setting], directory: str | None = None) -> SecureSetup:
    """What a broker with ``given`` properties needs, made in ``directory`` (beside the data) where it is not
    there. Blocks for some milliseconds. Raises ConfigError."""
    return secure_setup(
        SecurityDirectory(directory or default_directory(given)),
        given,
        machine_name=socket.getfqdn,
        now=datetime.now(UTC),
        new_password=secrets.token_urlsafe,
    )
