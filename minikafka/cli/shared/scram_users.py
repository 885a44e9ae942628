"""SCRAM credentials as a client sets and sees them (KIP-554).

Kafka: ``UserScramCredentialUpsertion``, ``KafkaAdminClient.alterUserScramCredentials``. The password stays
here: what is sent is salt and salted password.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from minikafka.cli.shared.admin_client import AdminClient, raise_error
from minikafka.cli.shared.commands import error_of
from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.security.sasl.scram import ITERATIONS_MIN, salted_password

ITERATIONS_DEFAULT = ITERATIONS_MIN
"""``ConfigCommand.DefaultScramIterations`` is the least that a broker takes."""
ITERATIONS_MAX = 16384
"""``ScramCredentialUpsertion``'s bound in the broker (``ScramControlManager.MAX_ITERATIONS``)."""
SALT_BYTES = 24
"""Kafka's: about as long as ``ScramFormatter.secureRandomBytes`` makes them."""


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
