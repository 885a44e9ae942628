"""Passwords on their way into the store and out of it."""

from __future__ import annotations

import pytest

from minikafka.config.broker import broker_config
from minikafka.errors import KafkaError
from minikafka.server.config_store import StoredPasswords

NAME = "listener.name.external.ssl.key.password"
OTHER = "listener.name.external.ssl.keystore.location"


def passwords(secret: str | None = "one", old: str | None = None) -> StoredPasswords:
    given = {"password.encoder.secret": secret, "password.encoder.old.secret": old}
    texts = {name: value for name, value in given.items() if value is not None}
    return StoredPasswords(broker_config(texts | {"password.encoder.iterations": "1024"}))


async def test_only_what_is_a_password_is_encrypted_and_what_did_not_change_stays() -> None:
    ours = passwords()
    stored = await ours.encoded({NAME: "secret", OTHER: "/a"}, {})
    assert stored[OTHER] == "/a" and "secret" not in stored[NAME]
    assert await ours.decoded(stored) == ({NAME: "secret", OTHER: "/a"}, {})
    assert await ours.encoded({NAME: "secret", OTHER: "/b"}, stored) == stored | {OTHER: "/b"}
    assert (await ours.encoded({NAME: "another"}, stored))[NAME] != stored[NAME]


async def test_what_another_secret_has_encrypted_is_told_and_kept_until_it_is_set_again() -> None:
    stored = await passwords().encoded({NAME: "secret"}, {})
    theirs = passwords("two")
    texts, failures = await theirs.decoded(stored)
    assert texts == stored and failures.keys() == {NAME} and "secret" not in failures[NAME].split()[-1]
    assert await theirs.encoded(texts, stored) == stored
    again = await theirs.encoded({NAME: "new"}, stored)
    assert await theirs.decoded(again) == ({NAME: "new"}, {})


async def test_the_old_secret_still_reads_and_asks_for_a_new_encryption() -> None:
    stored = await passwords().encoded({NAME: "secret"}, {})
    assert not await passwords().is_outdated(stored)
    ours = passwords("two", old="one")
    assert await ours.is_outdated(stored)
    texts, failures = await ours.decoded(stored)
    assert (texts, failures) == ({NAME: "secret"}, {})
    again = await ours.encoded(texts, stored)
    assert not await ours.is_outdated(again)
    assert await passwords("two").decoded(again) == ({NAME: "secret"}, {})


async def test_without_a_secret_a_password_is_refused_and_nothing_else() -> None:
    ours = passwords(None)
    assert await ours.encoded({OTHER: "/a"}, {}) == {OTHER: "/a"}
    with pytest.raises(KafkaError, match="Password encoder secret not configured") as error:
        await ours.encoded({NAME: "secret-text"}, {})
    assert "secret-text" not in str(error.value)
