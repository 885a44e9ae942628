"""The SCRAM credentials of users, in the same nodes as their quotas.

Kafka: ``ZkAdminManager.alterUserScramCredentials``, ``UserConfigHandler``; KIP-554.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from minikafka.coordination import paths
from minikafka.deferred import deferred
from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.configs.store import ConfigStore
from minikafka.server.security.scram_credentials import ScramCredentials

if TYPE_CHECKING:
    from minikafka.security.sasl import scram
    from minikafka.security.sasl.scram import ScramCredential
else:
    scram = deferred("minikafka.security.sasl.scram")


class ScramCredentialConfigs:
    """The credentials that are stored, and how they are changed. ``ConfigService`` has its lock and reads the
    nodes."""

    def __init__(self, store: ConfigStore, lock: asyncio.Lock) -> None:
        self._store = store
        self._lock = lock
        self.credentials = ScramCredentials()
        """As they are in the store."""

    def __repr__(self) -> str:
        return f"ScramCredentialConfigs({self.credentials})"

    async def alter(self, user: str, changes: Mapping[str, ScramCredential | None]) -> None:
        """Raises KafkaError: as ``alter_scram_credentials``."""
        async with self._lock:
            self.credentials.read(user, await alter_scram_credentials(self._store, user, changes))


def missing_credential() -> KafkaError:
    """A credential that is to be removed is not there."""
    message = "Attempt to delete a user credential that does not exist"
    return KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)


async def alter_scram_credentials(
    store: ConfigStore, user: str, changes: Mapping[str, ScramCredential | None]
) -> dict[str, str]:
    """Set a user's credentials, mechanism → credential, and remove those whose change is None. Returns what
    is set for the user now, quotas included. Needs no broker: a credential can be made before the first
    starts.

    Raises:
        KafkaError: RESOURCE_NOT_FOUND: a credential to remove is not there; REQUEST_TIMED_OUT: the store
            cannot be reached, or others were faster too often.
    """

    def changed(current: Mapping[str, str]) -> dict[str, str]:
        texts = dict(current)
        for mechanism, credential in changes.items():
            if credential is not None:
                texts[mechanism] = scram.encode_credential(credential)
            elif texts.pop(mechanism, None) is None:
                raise missing_credential()
        return texts

    stored = await store.replace(paths.user_config_path(user), changed, validate_only=False)
    assert stored is not None, "it was to be written"
    return stored
