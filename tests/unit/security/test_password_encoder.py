"""Passwords in the store: encrypted, and as Kafka has them."""

from __future__ import annotations

import secrets

import pytest

from minikafka.errors import ConfigError
from minikafka.security.password_encoder import PasswordEncoder

PASSWORD = "pässword 🔑,a:b"


def encoder(secret: str = "s3cret", **parameters: object) -> PasswordEncoder:
    return PasswordEncoder(secret, random_bytes=secrets.token_bytes, **parameters)  # type: ignore[arg-type]


@pytest.mark.parametrize("cipher", ["AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"])
@pytest.mark.parametrize("key_length", [128, 256])
def test_what_is_encoded_is_decoded_by_another_broker_with_the_secret(cipher: str, key_length: int) -> None:
    ours = encoder(cipher_algorithm=cipher, key_length=key_length, iterations=1024)
    text = ours.encode(PASSWORD)
    assert text != ours.encode(PASSWORD), "each has a salt of its own"
    assert PASSWORD not in text and "s3cret" not in text
    assert encoder().decode(text) == PASSWORD, "the text has the parameters"
    assert ours.decode(text) == PASSWORD


def test_kafkas_fields_are_all_there() -> None:
    fields = dict(each.split(":", 1) for each in encoder(iterations=1024).encode("x").split(","))
    assert fields.keys() == {
        "keyFactoryAlgorithm",
        "cipherAlgorithm",
        "keyLength",
        "salt",
        "iterations",
        "encryptedPassword",
        "passwordLength",
        "initializationVector",
    }
    assert (fields["keyFactoryAlgorithm"], fields["keyLength"]) == ("PBKDF2WithHmacSHA512", "128")


def test_another_secret_or_a_damaged_text_is_refused_and_shows_nothing() -> None:
    text = encoder(iterations=1024).encode(PASSWORD)
    damaged = [
        text.replace("keyLength:128", "keyLength:129"),
        text.replace("iterations:1024", "iterations:99999999999"),
        text.replace("passwordLength:15", "passwordLength:16"),
        text.replace("salt:", "salz:"),
        text.replace("AES/CBC", "DES/CBC"),
        "plain text",
        "",
    ]
    for each, secret in [(text, "other"), *((each, "s3cret") for each in damaged)]:
        with pytest.raises(ConfigError, match="Password could not be decoded") as error:
            encoder(secret).decode(each)
        assert PASSWORD not in str(error.value) and error.value.__cause__ is None
