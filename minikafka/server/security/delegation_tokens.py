"""Delegation tokens: what a user lets others log in with, for some time (KIP-48, KIP-373).

Kafka: ``DelegationTokenManagerZk``, ``DelegationTokenControlManager``, ``DelegationTokenCache``. A token is
an id and an HMAC of it with ``delegation.token.secret.key``, by which its holder logs in with SCRAM, the id
as user name and the HMAC in base64 as password. The store has all but the HMAC, under ``/delegation_token``;
a notification beside it tells the other brokers.

Invariants: what is known here is in the store; an expired token is refused at login, whether it has been
removed or not.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import random
from collections.abc import Callable, Iterable
from uuid import UUID

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.coordination import paths
from minikafka.coordination.store import (
    BadVersionError,
    CoordinationStore,
    CreateOp,
    DeleteOp,
    NoNodeError,
    Op,
    SetOp,
    StoreError,
)
from minikafka.errors import ConfigError, ErrorCode, KafkaError
from minikafka.named_tuple import NamedTuple
from minikafka.security.acl import KafkaPrincipal, parse_principal
from minikafka.security.scram import ITERATIONS_MIN, ScramCredential, ScramUser, make_credential
from minikafka.server.cluster.coordination_store import mapped_store_failures

logger = logging.getLogger(__name__)

SALT_BITS = 208
WRITE_ATTEMPTS_MAX = 5
"""Lost races before a change gives up."""


class DelegationToken(NamedTuple):
    """Times are milliseconds since the Unix epoch. The HMAC is not in it: see ``DelegationTokens.hmac``."""

    token_id: str
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int

    def has_expired(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expires_ms < now_ms

    def is_owner_or_renewer(self, principal: KafkaPrincipal) -> bool:
        who = (principal.type, principal.name)
        return any((each.type, each.name) == who for each in (self.owner, *self.renewers))


class DelegationTokens:
    """See the module header. There while ``delegation.token.secret.key`` is set."""

    def __init__(
        self,
        store: CoordinationStore,
        *,
        secret_key: str,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._store = store
        self._secret_key = secret_key.encode()
        self._config = config
        self._clock = clock
        self._rng = rng
        self._tokens: dict[str, DelegationToken] = {}
        self._ids_by_hmac: dict[bytes, str] = {}
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        """By mechanism and token id, of the tokens that were used to log in."""

    def __repr__(self) -> str:
        return f"DelegationTokens({len(self._tokens)} tokens)"

    # Reading

    async def load(self) -> None:
        """Read everything. Raises StoreError."""
        await self._store.ensure_path(paths.DELEGATION_TOKENS)
        for token_id in await self._store.children(paths.DELEGATION_TOKENS):
            await self.reload(token_id)

    async def reload(self, token_id: str) -> None:
        """Another broker has changed the token. Raises StoreError."""
        try:
            node = await self._store.get(paths.delegation_token_path(token_id))
            self._set(token_id, _decoded(token_id, node.data))
        except NoNodeError:
            self._set(token_id, None)
        except paths.DamagedNodeError as error:
            logger.error("%s; that token cannot be used to log in", error)
            self._set(token_id, None)

    def all(self) -> Iterable[DelegationToken]:
        """In the order of their creation."""
        return sorted(self._tokens.values(), key=lambda token: (token.issued_ms, token.token_id))

    def hmac(self, token_id: str) -> bytes:
        """A secret: who has it can log in."""
        return hmac.digest(self._secret_key, token_id.encode(), hashlib.sha512)

    def find(self, mechanism: str, token_id: str) -> ScramUser | None:
        """What a login with the token needs; None when there is no such token any more. The first time it
        takes milliseconds, and may be called in a thread."""
        token = self._tokens.get(token_id)
        if token is None or token.has_expired(self._clock.now_ms()):
            return None
        credential = self._credentials.get((mechanism, token_id))
        if credential is None:
            salt = f"{self._rng.getrandbits(SALT_BITS):052x}"[:26].encode()
            password = base64.b64encode(self.hmac(token_id)).decode()
            credential = make_credential(mechanism, password, salt=salt, iterations=ITERATIONS_MIN)
            self._credentials[mechanism, token_id] = credential
        return ScramUser(credential, token.owner.name, token.expires_ms)

    # Changing

    async def create(
        self,
        owner: KafkaPrincipal,
        requester: KafkaPrincipal,
        renewers: tuple[KafkaPrincipal, ...],
        *,
        max_lifetime_ms: int,
    ) -> DelegationToken:
        """A new token. ``max_lifetime_ms`` of 0 or less: as long as the configuration allows.

        Raises:
            KafkaError: REQUEST_TIMED_OUT: the store cannot be reached.
        """
        config, now_ms = self._config(), self._clock.now_ms()
        lifetime_ms = config.delegation_token_max_lifetime_ms
        if max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, max_lifetime_ms)
        token = DelegationToken(
            paths.uuid_to_text(UUID(int=self._rng.getrandbits(128), version=4)),
            owner,
            requester,
            renewers,
            issued_ms=now_ms,
            max_ms=now_ms + lifetime_ms,
            expires_ms=now_ms + min(lifetime_ms, config.delegation_token_expiry_time_ms),
        )
        with mapped_store_failures("creating a delegation token"):
            for parent in (paths.DELEGATION_TOKENS, paths.DELEGATION_TOKEN_CHANGES):
                await self._store.ensure_path(parent)
            path = paths.delegation_token_path(token.token_id)
            await self._store.multi([CreateOp(path, _encoded(token)), _announcement(token.token_id)])
        self._set(token.token_id, token)
        logger.info("created delegation token %s for owner %s", token.token_id, owner)
        return token

    async def renew(self, token_hmac: bytes, principal: KafkaPrincipal, *, period_ms: int) -> int:
        """Let it hold for ``period_ms`` from now, or (0 or less) for as long as the configuration says.
        Returns when it expires.

        Raises:
            KafkaError: DELEGATION_TOKEN_NOT_FOUND, _OWNER_MISMATCH, _EXPIRED; REQUEST_TIMED_OUT.
        """
        longest_ms = self._config().delegation_token_expiry_time_ms
        return await self._change_expiry(
            token_hmac, principal, longest_ms if period_ms <= 0 else min(longest_ms, period_ms)
        )

    async def expire(self, token_hmac: bytes, principal: KafkaPrincipal, *, period_ms: int) -> int:
        """Have it expire in ``period_ms``; below 0: remove it now. Returns when it expires.

        Raises:
            KafkaError: as ``renew``.
        """
        if period_ms >= 0:
            return await self._change_expiry(token_hmac, principal, period_ms)
        token = self._of_hmac(token_hmac, principal)
        with mapped_store_failures("removing a delegation token"):
            await self._remove(token.token_id)
        logger.info("removed delegation token %s of owner %s", token.token_id, token.owner)
        return self._clock.now_ms()

    async def remove_expired(self) -> None:
        """Until cancelled: every ``delegation.token.expiry.check.interval.ms``."""
        while True:
            await asyncio.sleep(self._config().delegation_token_expiry_check_interval_ms / 1000)
            now_ms = self._clock.now_ms()
            for token in list(self._tokens.values()):
                if not token.has_expired(now_ms):
                    continue
                try:
                    await self.reload(token.token_id)  # it may have been renewed on another broker
                    current = self._tokens.get(token.token_id)
                    if current is not None and current.has_expired(now_ms):
                        await self._remove(token.token_id)
                        logger.info(
                            "delegation token %s of owner %s has expired", token.token_id, token.owner
                        )
                except StoreError as error:
                    logger.warning("expired delegation tokens wait for the coordination store: %s", error)
                    break

    async def _change_expiry(self, token_hmac: bytes, principal: KafkaPrincipal, period_ms: int) -> int:
        token_id = self._of_hmac(token_hmac, principal).token_id
        path = paths.delegation_token_path(token_id)
        with mapped_store_failures("changing a delegation token"):
            for _ in range(WRITE_ATTEMPTS_MAX):
                try:
                    node = await self._store.get(path)
                    token = _decoded(token_id, node.data)
                    now_ms = self._clock.now_ms()
                    if token.has_expired(now_ms):
                        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
                    token = token._replace(expires_ms=min(token.max_ms, now_ms + period_ms))
                    change: list[Op] = [SetOp(path, _encoded(token), node.stat.version)]
                    await self._store.multi([*change, _announcement(token_id)])
                except BadVersionError:
                    continue
                except NoNodeError:
                    self._set(token_id, None)
                    raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND) from None
                self._set(token_id, token)
                return token.expires_ms
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "Others changed the same token all the time.")

    async def _remove(self, token_id: str) -> None:
        try:
            path = paths.delegation_token_path(token_id)
            node = await self._store.get(path)
            await self._store.multi([DeleteOp(path, node.stat.version), _announcement(token_id)])
        except (NoNodeError, BadVersionError):
            await self.reload(token_id)  # another broker was faster
            return
        self._set(token_id, None)

    def _of_hmac(self, token_hmac: bytes, principal: KafkaPrincipal) -> DelegationToken:
        """Raises KafkaError: there is none, or who asks may not change it."""
        token = self._tokens.get(self._ids_by_hmac.get(token_hmac, ""))
        if token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        if not token.is_owner_or_renewer(principal):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    def _set(self, token_id: str, token: DelegationToken | None) -> None:
        if token is not None:
            self._tokens[token_id] = token
            self._ids_by_hmac[self.hmac(token_id)] = token_id
            return
        self._tokens.pop(token_id, None)
        self._ids_by_hmac.pop(self.hmac(token_id), None)
        for key in [key for key in self._credentials if key[1] == token_id]:
            del self._credentials[key]


def _announcement(token_id: str) -> CreateOp:
    return CreateOp(paths.DELEGATION_TOKEN_CHANGE_PREFIX, token_id.encode(), sequential=True)


def _encoded(token: DelegationToken) -> bytes:
    return paths.encode_delegation_token(
        paths.StoredToken(
            token.token_id,
            str(token.owner),
            str(token.requester),
            tuple(map(str, token.renewers)),
            token.issued_ms,
            token.max_ms,
            token.expires_ms,
        )
    )


def _decoded(token_id: str, data: bytes) -> DelegationToken:
    """Raises DamagedNodeError."""
    stored = paths.decode_delegation_token(token_id, data)
    try:
        return DelegationToken(
            token_id,
            parse_principal(stored.owner),
            parse_principal(stored.requester),
            tuple(map(parse_principal, stored.renewers)),
            stored.issued_ms,
            stored.max_ms,
            stored.expires_ms,
        )
    except ConfigError as error:
        raise paths.DamagedNodeError(paths.delegation_token_path(token_id), str(error), data) from error
