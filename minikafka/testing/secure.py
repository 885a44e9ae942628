"""What tests do with a secured broker or cluster: client settings, users and ACLs.

The broker is what ``minikafka-broker --secure`` starts. Users and ACLs are made as an administrator makes
them, by requests over TLS.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from minikafka.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from minikafka.config.loader import Setting
    from minikafka.network.broker_client import BrokerClient
    from minikafka.security.acl import AclBinding
    from minikafka.security.client_files import Login
    from minikafka.security.secure_setup import SecureSetup

ADMIN = "admin"
DEADLINE_MS = 30_000
POLL_S = 0.01
SCRAM_SHA_512 = 2
"""``ScramMechanism`` in requests."""

Address = tuple[str, int]


class SecureAccess:
    """Of one broker or cluster. Made before it starts."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._passwords: dict[str, str] = {}
        self._setup: SecureSetup | None = None

    def __repr__(self) -> str:
        return f"SecureAccess({self._directory!r}, users {sorted(self._passwords)})"

    def setup(self, given: Mapping[str, Setting]) -> SecureSetup:
        """What a broker with ``given`` properties is started with. Raises ConfigError."""
        from minikafka.server.security.secure_broker import make_secure_setup

        made = self._setup = make_secure_setup(given, self._directory)
        self._passwords |= {user.name: user.password for user in made.first_users}
        return made

    def client_config(
        self, servers: str, user: str = ADMIN, password: str | None = None, *, client: str = "confluent-kafka"
    ) -> dict[str, Any]:
        """See ``Broker.client_config``."""
        from minikafka.security.client_files import CLIENT_SETTINGS

        if client not in CLIENT_SETTINGS:
            raise ValueError(f"there is no client {client!r}, there are {', '.join(CLIENT_SETTINGS)}")
        return dict(CLIENT_SETTINGS[client](self._login(servers, user, password)))

    def _login(self, servers: str, user: str, password: str | None = None) -> Login:
        if self._setup is None:
            raise RuntimeError("the broker has not been started")
        known = self._passwords.get(user) if password is None else password
        if known is None:
            raise ValueError(f"there is no user {user!r}: add_user makes one, or say a password")
        # The authority's certificate, all that a user needs of a directory, is in its root.
        return self._setup.directory.login(user, servers, known)._replace(
            directory=str(self._setup.directory.path)
        )

    async def add_user(self, brokers: Sequence[Address], name: str, password: str | None = None) -> str:
        """Returns the password, when the user can log in at all ``brokers``."""
        from minikafka.protocol.wire.api_versions import ApiKey
        from minikafka.security.client_files import MECHANISM
        from minikafka.security.scram import ITERATIONS_MIN, salted_password

        password = secrets.token_urlsafe() if password is None else password
        salt = os.urandom(16)
        salted = await asyncio.to_thread(salted_password, MECHANISM, password, salt, ITERATIONS_MIN)
        upsertion = {
            "name": name,
            "mechanism": SCRAM_SHA_512,
            "iterations": ITERATIONS_MIN,
            "salt": salt,
            "salted_password": salted,
        }
        body = {"deletions": [], "upsertions": [upsertion]}
        client = await self._connect(brokers[0])
        try:
            answer = await client.request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, body, deadline_ms=DEADLINE_MS)
        finally:
            await client.close()
        _raise_error(answer.results[0])
        self._passwords[name] = password
        async with asyncio.timeout(DEADLINE_MS / 1000):
            for broker in brokers:
                while not await self._can_log_in(broker, name):  # noqa: ASYNC110 - brokers do not tell
                    await asyncio.sleep(POLL_S)
        return password

    async def _can_log_in(self, broker: Address, user: str) -> bool:
        from minikafka.network.broker_client import BrokerUnavailable

        try:
            client = await self._connect(broker, user)
        except BrokerUnavailable:
            return False
        await client.close()
        return True

    async def add_acl(self, brokers: Sequence[Address], binding: AclBinding) -> None:
        """Returns when all ``brokers`` know it."""
        from minikafka.protocol.wire.api_versions import ApiKey

        pattern, entry = binding
        creation = {
            "resource_type": pattern.resource_type,
            "resource_name": pattern.name,
            "resource_pattern_type": pattern.pattern_type,
            "principal": entry.principal,
            "host": entry.host,
            "operation": entry.operation,
            "permission_type": entry.permission_type,
        }
        client = await self._connect(brokers[0])
        try:
            answer = await client.request(
                ApiKey.CREATE_ACLS, {"creations": [creation]}, deadline_ms=DEADLINE_MS
            )
        finally:
            await client.close()
        _raise_error(answer.results[0])
        wanted = {
            "resource_type_filter": pattern.resource_type,
            "resource_name_filter": pattern.name,
            "pattern_type_filter": pattern.pattern_type,
            "principal_filter": entry.principal,
            "host_filter": entry.host,
            "operation": entry.operation,
            "permission_type": entry.permission_type,
        }
        async with asyncio.timeout(DEADLINE_MS / 1000):
            for broker in brokers:
                client = await self._connect(broker)
                try:
                    while not await _is_known(client, wanted):  # noqa: ASYNC110 - brokers do not tell
                        await asyncio.sleep(POLL_S)
                finally:
                    await client.close()

    async def _connect(self, broker: Address, user: str = ADMIN) -> BrokerClient:
        from minikafka.network.broker_client import BrokerClient
        from minikafka.network.client_security import client_security
        from minikafka.security.client_files import java_settings

        security = client_security(java_settings(self._login("{}:{}".format(*broker), user)))
        return await BrokerClient.connect(
            *broker, client_id="minikafka-testing", deadline_ms=DEADLINE_MS, security=security
        )


async def _is_known(client: BrokerClient, wanted: Mapping[str, Any]) -> bool:
    from minikafka.protocol.wire.api_versions import ApiKey

    answer = await client.request(ApiKey.DESCRIBE_ACLS, wanted, deadline_ms=DEADLINE_MS)
    _raise_error(answer)
    return bool(answer.resources)


def _raise_error(outcome: Any) -> None:
    if outcome.error_code != ErrorCode.NONE:
        raise KafkaError(ErrorCode(outcome.error_code), outcome.error_message)


def acl_binding(
    user: str,
    operation: str,
    *,
    topic: str | None = None,
    group: str | None = None,
    transactional_id: str | None = None,
    cluster: bool = False,
    prefixed: bool = False,
    deny: bool = False,
    host: str = "*",
) -> AclBinding:
    """See ``Broker.add_acl``."""
    from minikafka.security.acl import (
        CLUSTER_NAME,
        AccessControlEntry,
        AclBinding,
        AclOperation,
        AclPermissionType,
        PatternType,
        ResourcePattern,
        ResourceType,
    )

    named = {
        ResourceType.TOPIC: topic,
        ResourceType.GROUP: group,
        ResourceType.TRANSACTIONAL_ID: transactional_id,
        ResourceType.CLUSTER: CLUSTER_NAME if cluster else None,
    }
    given = [(kind, name) for kind, name in named.items() if name is not None]
    if len(given) != 1:
        raise ValueError("an ACL is of one of topic, group, transactional_id and cluster")
    name = operation.strip().upper().replace(" ", "_").replace("-", "_")
    try:
        wanted = AclOperation[name]
    except KeyError:
        raise ValueError(
            f"there is no operation {operation!r}, there are "
            f"{', '.join(each.name for each in AclOperation if each > AclOperation.ANY)}"
        ) from None
    pattern_type = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
    return AclBinding(
        ResourcePattern(*given[0], pattern_type),
        AccessControlEntry(f"User:{user}", host, wanted, permission),
    )
