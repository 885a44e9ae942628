"""``--secure`` on this machine: ``security.secure_setup`` with its clock, its name and its random numbers.

**The first users** are there before a broker begins: without one, no admin could log in to make another.
Kafka: ``kafka-configs.sh --zookeeper … --alter --add-config SCRAM-…`` before the first start (3.9), and
``kafka-storage.sh format --add-scram`` (KIP-900). The credentials are where both look for them:
``/config/users/NAME``.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from minikafka.config.loader import Setting
from minikafka.coordination import paths
from minikafka.coordination.store import BadVersionError, CoordinationStore, NodeExistsError, NoNodeError
from minikafka.errors import StartError
from minikafka.security.client_files import MECHANISM
from minikafka.security.directory import SecurityDirectory
from minikafka.security.scram import (
    ITERATIONS_MIN,
    decode_credential,
    encode_credential,
    make_credential,
)
from minikafka.security.secure_setup import SecureSetup, default_directory, secure_setup
from minikafka.server.runtime.log_io import LogIo

if TYPE_CHECKING:
    from minikafka.security.secure_setup import FirstUser

SALT_BYTES = 26
"""About what ``ScramFormatter.secureRandomBytes`` makes."""
WRITE_ATTEMPTS_MAX = 10
"""The brokers of a cluster may all begin with the same users at once."""


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


async def ensure_users(store: CoordinationStore, users: Sequence[FirstUser], *, log_io: LogIo) -> None:
    """Write the credentials of ``users`` that are not in the store.

    Raises:
        StartError: one that must match has another password there. StoreError.
    """
    for user in users:
        await _ensure(store, user, log_io)


async def _ensure(store: CoordinationStore, user: FirstUser, log_io: LogIo) -> None:
    path = f"{paths.USER_CONFIGS}/{paths.sanitize(user.name)}"
    for _ in range(WRITE_ATTEMPTS_MAX):
        try:
            node = await store.get(path)
        except NoNodeError:
            node = None
        properties = {} if node is None else paths.decode_config(node.data, path)
        if MECHANISM in properties:
            matches = partial(_is_password, properties[MECHANISM], user.password)
            if user.must_match and not await log_io.run(matches):
                raise StartError(
                    f"the user {user.name} is in the store with another password than in the security "
                    "directory, which is not that of this cluster: give the right one with --security-dir, "
                    "or, if it is lost, delete its users (minikafka users delete NAME --coordination URL)"
                )
            return
        properties[MECHANISM] = await log_io.run(partial(_credential, user.password))
        try:
            if node is None:
                await store.create(path, paths.encode_config(properties))
            else:
                await store.set(path, paths.encode_config(properties), version=node.stat.version)
            return
        except (NodeExistsError, BadVersionError):  # another broker has just done so
            continue
    raise StartError(f"{path} in the store changes all the time: the user {user.name} cannot be written")


def _credential(password: str) -> str:
    salt = os.urandom(SALT_BYTES)
    return encode_credential(make_credential(MECHANISM, password, salt=salt, iterations=ITERATIONS_MIN))


def _is_password(text: str, password: str) -> bool:
    try:
        stored = decode_credential(MECHANISM, text)
    except ValueError:
        return False
    made = make_credential(MECHANISM, password, salt=stored.salt, iterations=stored.iterations)
    return hmac.compare_digest(made.stored_key, stored.stored_key)
