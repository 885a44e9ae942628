"""The passwords among a broker's dynamic properties: encrypted in the store, plain in memory.

Kafka: ``DynamicBrokerConfig.toPersistentProps``, ``fromPersistentProps``, ``maybeReEncodePasswords`` (3.9).
Without ``password.encoder.secret`` no password can be changed while the broker runs. What has been encrypted
with ``password.encoder.old.secret`` is still read, and is to be written again (``is_outdated``).

A key is derived in a thread, since it takes milliseconds; where there are no passwords nothing is.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from minikafka.config.broker import BrokerConfig, is_password
from minikafka.deferred import deferred
from minikafka.errors import ConfigError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from minikafka.security import password_encoder
    from minikafka.security.password_encoder import PasswordEncoder
else:
    password_encoder = deferred("minikafka.security.password_encoder")


class StoredPasswords:
    """See the module header."""

    def __init__(self, config: BrokerConfig) -> None:
        """``config``: the static one, which has the secrets."""
        self._config = config
        self._current: PasswordEncoder | None = None
        self._old: PasswordEncoder | None = None

    def __repr__(self) -> str:
        return f"StoredPasswords(secret={self._config.password_encoder_secret is not None})"

    async def decoded(self, stored: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """What is stored, with plain passwords; and by name why some of these cannot be had, which have the
        stored text in their place."""
        names = [name for name in stored if is_password(name)]
        if not names:
            return dict(stored), {}
        return await asyncio.to_thread(self._decoded, stored, names)

    async def encoded(self, texts: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
        """``texts`` as they are to be stored in the place of ``stored``: an unchanged password stays the text
        that it is.

        Raises:
            KafkaError: INVALID_REQUEST: there is no secret to encrypt a password with.
        """
        names = [name for name in texts if is_password(name)]
        if not names:
            return dict(texts)
        return await asyncio.to_thread(self._encoded, texts, stored, names)

    async def is_outdated(self, stored: Mapping[str, str]) -> bool:
        """Whether a password is encrypted with the old secret."""
        if self._config.password_encoder_old_secret is None:
            return False
        _, failures = await self.decoded(stored)
        names = [name for name in stored if is_password(name) and name not in failures]
        return bool(names) and await asyncio.to_thread(
            lambda: any(self._with_current(stored[name]) is None for name in names)
        )

    def _encoder(self) -> PasswordEncoder | None:
        if self._current is None and self._config.password_encoder_secret is not None:
            self._current = self._made(self._config.password_encoder_secret)
        return self._current

    def _old_encoder(self) -> PasswordEncoder | None:
        if self._old is None and self._config.password_encoder_old_secret is not None:
            self._old = self._made(self._config.password_encoder_old_secret)
        return self._old

    def _made(self, secret: str) -> PasswordEncoder:
        config = self._config
        return password_encoder.PasswordEncoder(
            secret,
            random_bytes=secrets.token_bytes,
            key_factory_algorithm=config.password_encoder_keyfactory_algorithm,
            cipher_algorithm=config.password_encoder_cipher_algorithm,
            key_length=config.password_encoder_key_length,
            iterations=config.password_encoder_iterations,
        )

    def _decoded(self, stored: Mapping[str, str], names: list[str]) -> tuple[dict[str, str], dict[str, str]]:
        texts, failures = dict(stored), {}
        for name in names:
            try:
                texts[name] = self._plain(stored[name])
            except ConfigError as error:
                failures[name] = str(error)
        return texts, failures

    def _plain(self, text: str) -> str:
        """Raises ConfigError."""
        current, old = self._encoder(), self._old_encoder()
        if current is None:
            raise ConfigError("password.encoder.secret is not set")
        try:
            return current.decode(text)
        except ConfigError:
            if old is None:
                raise
            return old.decode(text)

    def _with_current(self, text: str | None) -> str | None:
        """Decoded with the secret of now; None: it is not of that."""
        current = self._encoder()
        if current is None or text is None:
            return None
        try:
            return current.decode(text)
        except ConfigError:
            return None

    def _encoded(
        self, texts: Mapping[str, str], stored: Mapping[str, str], names: list[str]
    ) -> dict[str, str]:
        """Raises KafkaError."""
        result = dict(texts)
        for name in names:
            there = stored.get(name)
            if there is not None and texts[name] in (there, self._with_current(there)):
                result[name] = there
                continue
            encoder = self._encoder()
            if encoder is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Password encoder secret not configured: {name} can be changed while the broker runs "
                    "when password.encoder.secret is set",
                )
            result[name] = encoder.encode(texts[name])
        return result
