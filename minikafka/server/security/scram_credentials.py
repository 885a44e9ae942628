"""The SCRAM credentials of all users, as they are in the store, for those who log in and those who ask.

Kafka: ``CredentialProvider``, ``ScramCredentialUtils.createCache``. In memory; who reads the store tells it
(``server.configs``).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from minikafka.deferred import deferred

if TYPE_CHECKING:
    from minikafka.security import scram
    from minikafka.security.scram import ScramCredential
else:
    scram = deferred("minikafka.security.scram")

logger = logging.getLogger(__name__)

SALT_BYTES = 26
"""Of a user that does not exist, where no user does: as long as those that Kafka makes."""


class ScramCredentials:
    """See the module header."""

    def __init__(self) -> None:
        self._users: dict[str, dict[str, ScramCredential]] = {}
        self._usual: dict[str, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return f"ScramCredentials({len(self._users)} users)"

    def users(self) -> list[str]:
        """Those that have a credential, sorted."""
        return sorted(self._users)

    def of(self, user: str) -> Mapping[str, ScramCredential]:
        """Mechanism → credential."""
        return self._users.get(user, {})

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        return self._users.get(user, {}).get(mechanism)

    def usual(self, mechanism: str) -> tuple[int, int]:
        """The length of the salt and the iterations that most users have: what to answer for one that does
        not exist."""
        found = self._usual.get(mechanism)
        if found is None:
            counts = Counter(
                (len(each[mechanism].salt), each[mechanism].iterations)
                for each in self._users.values()
                if mechanism in each
            )
            found = counts.most_common(1)[0][0] if counts else (SALT_BYTES, scram.ITERATIONS_MIN)
            self._usual[mechanism] = found
        return found

    def read(self, user: str, properties: Mapping[str, str]) -> None:
        """This is in the user's node now."""
        credentials = {}
        for mechanism in scram.HASHES:
            if mechanism not in properties:
                continue
            try:
                credentials[mechanism] = scram.decode_credential(mechanism, properties[mechanism])
            except ValueError as error:
                logger.error("%s of user %s cannot be used and is ignored: %s", mechanism, user, error)
        if credentials == self._users.get(user, {}):
            return
        self._usual.clear()
        if credentials:
            self._users[user] = credentials
        else:
            del self._users[user]
