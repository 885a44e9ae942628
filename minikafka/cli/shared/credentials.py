"""Credentials on the command line: where a password comes from, and SCRAM credentials as a client sets and
sees them (KIP-554).

No password must be on a command line, which every process sees. It is taken from a file that only its owner
may read (``--password-file``), the variable ``MINIKAFKA_PASSWORD``, or a prompt on a terminal, in this order.
No message has a part of it, and it stays here: what is sent is salt and salted password. Kafka:
``UserScramCredentialUpsertion``, ``KafkaAdminClient.alterUserScramCredentials``.
"""

from __future__ import annotations

import argparse
import getpass
import os
import secrets
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from minikafka.cli.shared.admin_client import AdminClient, raise_error
from minikafka.cli.shared.commands import CommandError, error_of
from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.security.scram import ITERATIONS_MIN, salted_password

VARIABLE = "MINIKAFKA_PASSWORD"
"""Not a property of brokers: ``config.loader.NOT_PROPERTIES``."""

PASSWORD_BYTES_MAX = 64 * 1024
"""A password is a line; a larger file is something else, given by mistake."""

_OTHERS_MAY_READ = stat.S_IRWXG | stat.S_IRWXO

ITERATIONS_DEFAULT = ITERATIONS_MIN
"""``ConfigCommand.DefaultScramIterations`` is the least that a broker takes."""
ITERATIONS_MAX = 16384
"""``ScramCredentialUpsertion``'s bound in the broker (``ScramControlManager.MAX_ITERATIONS``)."""
SALT_BYTES = 24
"""Kafka's: about as long as ``ScramFormatter.secureRandomBytes`` makes them."""


def add_password_option(options: argparse.ArgumentParser) -> None:
    """``--password-file``."""
    options.add_argument(
        "--password-file",
        metavar="FILE",
        help=f"where the password is; its owner alone may read it (without: {VARIABLE}, or a prompt)",
    )


def read_password(file: str | None, *, whose: str, confirms: bool = False) -> str:
    """The password from ``file``, the environment or the terminal. ``confirms``: a prompt asks twice.

    Raises:
        CommandError: there is none, it is empty, or others may read the file.
    """
    if file is not None:
        return read_password_file(file)
    password = os.environ.get(VARIABLE)
    if password is not None:
        if not password:
            raise CommandError(f"{VARIABLE} is empty")
        return password
    if not sys.stdin.isatty():
        raise CommandError(
            f"there is no password of {whose}: give --password-file, set {VARIABLE}, or ask on a terminal"
        )
    password = getpass.getpass(f"Password of {whose}: ")
    if not password:
        raise CommandError("the password is empty")
    if confirms and getpass.getpass("Again: ") != password:
        raise CommandError("the two passwords are not the same")
    return password


def read_password_file(name: str) -> str:
    """Raises CommandError: it cannot be read, is empty, or others may read it."""
    try:
        with open(name, "rb") as file:  # what is checked is what is read
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_mode & _OTHERS_MAY_READ:
                raise CommandError(f"others than its owner may use {name}: chmod 600 {name}")
            data = file.read(PASSWORD_BYTES_MAX + 1)
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror or error}") from None
    if len(data) > PASSWORD_BYTES_MAX:
        raise CommandError(
            f"{name} has more than {PASSWORD_BYTES_MAX} bytes, so it is not the file of a password"
        )
    try:
        password = data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise CommandError(f"{name} is not UTF-8") from None
    if not password:
        raise CommandError(f"{name} is empty")
    return password


class ScramMechanism(IntEnum):
    """The numbers are the wire's (``ScramMechanism.type``)."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        return self.name.replace("_", "-")


MECHANISMS: Mapping[str, ScramMechanism] = {each.mechanism_name: each for each in ScramMechanism}
"""By Kafka's names."""


class SaltedPassword(NamedTuple):
    """What a credential is made of on the client's side. The salted password is as good as the password."""

    mechanism: ScramMechanism
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"SaltedPassword({self.mechanism.mechanism_name}, iterations={self.iterations})"


def salted(mechanism: ScramMechanism, iterations: int, password: str) -> SaltedPassword:
    """With a new salt (RFC 5802's Hi). The password's UTF-8 as it is: Kafka does not normalise it. Takes a
    few milliseconds for each thousand iterations.

    Raises:
        ValueError: iterations out of bounds.
    """
    check_iterations(mechanism, iterations)
    salt = secrets.token_bytes(SALT_BYTES)
    key = salted_password(mechanism.mechanism_name, password, salt, iterations)
    return SaltedPassword(mechanism, iterations, salt, key)


def check_iterations(mechanism: ScramMechanism, iterations: int) -> None:
    """Raises ValueError, in Kafka's words."""
    if iterations < ITERATIONS_DEFAULT:
        raise ValueError(
            f"Iterations {iterations} is less than the minimum {ITERATIONS_DEFAULT} required for "
            f"{mechanism.mechanism_name}"
        )
    if iterations > ITERATIONS_MAX:
        raise ValueError(
            f"Iterations {iterations} is greater than the maximum {ITERATIONS_MAX} allowed for "
            f"{mechanism.mechanism_name}"
        )


async def describe_users(
    admin: AdminClient, users: Sequence[str] = ()
) -> dict[str, dict[ScramMechanism, int]]:
    """DescribeUserScramCredentials: user → mechanism → iterations, sorted; ``users`` (none: all) without
    credentials are left out. Raises KafkaError."""
    answer = await admin.ask_any(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": [{"name": name} for name in users] or None}
    )
    raise_error(answer)
    found = {}
    for result in sorted(answer.results, key=lambda each: str(each.user)):
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        raise_error(result)
        found[str(result.user)] = {
            ScramMechanism(info.mechanism): int(info.iterations) for info in result.credential_infos
        }
    return found


async def alter_users(
    admin: AdminClient,
    *,
    upsertions: Iterable[tuple[str, SaltedPassword]] = (),
    deletions: Iterable[tuple[str, ScramMechanism]] = (),
) -> None:
    """AlterUserScramCredentials, asked of the controller as Kafka's client does. Raises the first refusal as
    KafkaError."""
    body = {
        "deletions": [{"name": user, "mechanism": int(mechanism)} for user, mechanism in deletions],
        "upsertions": [
            {
                "name": user,
                "mechanism": int(each.mechanism),
                "iterations": each.iterations,
                "salt": each.salt,
                "salted_password": each.salted_password,
            }
            for user, each in upsertions
        ],
    }
    answer = await admin.ask_controller(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, body)
    for result in answer.results:
        error = error_of(result.error_code, result.error_message)
        if error is not None:
            raise error
