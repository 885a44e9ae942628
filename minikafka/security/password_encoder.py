"""Passwords as the store has them, encrypted with ``password.encoder.secret``.

Kafka: ``EncryptingPasswordEncoder``, ``CipherParamsEncoder`` (3.9, where configurations are in ZooKeeper),
whose texts are read here and the other way round: ``name:value,…``, binary values in base64.

A key takes about 4 ms (PBKDF2, 4096 iterations), so what has been encoded or decoded is remembered: a
broker's configuration has a handful of passwords. No error has a password, a secret or a key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable

from minikafka.errors import ConfigError

KEY_FACTORY_ALGORITHM_DEFAULT = "PBKDF2WithHmacSHA512"
_HASHES = {
    "PBKDF2WithHmacSHA512": "sha512",
    "PBKDF2WithHmacSHA256": "sha256",
    "PBKDF2WithHmacSHA1": "sha1",
}
_CBC, _GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"

SALT_BYTES = 256
"""Kafka's."""
_IV_BYTES = {_CBC: 16, _GCM: 12}
_TAG_BITS = 128
ITERATIONS_MAX = 10_000_000
"""A stored text must not keep a broker busy for longer than a few seconds."""


class PasswordEncoder:
    """Encodes with one secret; decodes what it has encoded, whatever the parameters were.

    ``random_bytes``: so many, for salts and initialisation vectors (``secrets.token_bytes``).
    """

    def __init__(
        self,
        secret: str,
        *,
        random_bytes: Callable[[int], bytes],
        key_factory_algorithm: str | None = None,
        cipher_algorithm: str = _CBC,
        key_length: int = 128,
        iterations: int = 4096,
    ) -> None:
        self._secret = secret.encode()
        self._random_bytes = random_bytes
        self._key_factory_algorithm = key_factory_algorithm or KEY_FACTORY_ALGORITHM_DEFAULT
        self._cipher_algorithm = cipher_algorithm
        self._key_length = key_length
        self._iterations = iterations
        self._known: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"PasswordEncoder({self._cipher_algorithm}, {self._iterations} iterations)"

    def encode(self, password: str) -> str:
        """The text to store. Two of one password differ."""
        salt = self._random_bytes(SALT_BYTES)
        iv = self._random_bytes(_IV_BYTES[self._cipher_algorithm])
        key = self._key(self._key_factory_algorithm, salt, self._iterations, self._key_length)
        fields = {
            "keyFactoryAlgorithm": self._key_factory_algorithm,
            "cipherAlgorithm": self._cipher_algorithm,
            "keyLength": str(self._key_length),
            "salt": _to_base64(salt),
            "iterations": str(self._iterations),
            "encryptedPassword": _to_base64(_encrypt(self._cipher_algorithm, key, iv, password.encode())),
            "passwordLength": str(_java_length(password)),
            "initializationVector": _to_base64(iv),
        }
        if self._cipher_algorithm == _GCM:
            fields["authenticationTagLength"] = str(_TAG_BITS)
        text = ",".join(f"{name}:{value}" for name, value in fields.items())
        self._known[text] = password
        return text

    def decode(self, text: str) -> str:
        """The password in a stored text.

        Raises:
            ConfigError: it is no such text, or of another secret.
        """
        known = self._known.get(text)
        if known is not None:
            return known
        try:
            password = self._decoded(dict(each.partition(":")[::2] for each in text.split(",")))
        except (KeyError, ValueError, binascii.Error):  # what cryptography says of it may have a part of it
            raise ConfigError(
                "Password could not be decoded: password.encoder.secret is not the one that it was encoded "
                "with, or it is damaged"
            ) from None
        self._known[text] = password
        return password

    def _decoded(self, fields: dict[str, str]) -> str:
        """Raises KeyError, ValueError."""
        cipher, iterations = fields["cipherAlgorithm"], int(fields["iterations"])
        if cipher not in _IV_BYTES or not 0 < iterations <= ITERATIONS_MAX:
            raise ValueError(cipher)
        algorithm = fields.get("keyFactoryAlgorithm", KEY_FACTORY_ALGORITHM_DEFAULT)
        salt, iv = _from_base64(fields["salt"]), _from_base64(fields["initializationVector"])
        key = self._key(algorithm, salt, iterations, int(fields["keyLength"]))
        password = _decrypt(cipher, key, iv, _from_base64(fields["encryptedPassword"])).decode()
        if _java_length(password) != int(fields["passwordLength"]):
            raise ValueError("length")
        return password

    def _key(self, algorithm: str, salt: bytes, iterations: int, length_bits: int) -> bytes:
        """Raises KeyError, ValueError."""
        if length_bits not in (128, 192, 256):
            raise ValueError(length_bits)
        return hashlib.pbkdf2_hmac(_HASHES[algorithm], self._secret, salt, iterations, length_bits // 8)


def _encrypt(cipher_algorithm: str, key: bytes, iv: bytes, data: bytes) -> bytes:
    # here, because few brokers have dynamic passwords
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CBC
    from cryptography.hazmat.primitives.padding import PKCS7

    if cipher_algorithm == _GCM:
        return AESGCM(key).encrypt(iv, data, None)
    padder = PKCS7(AES.block_size).padder()
    encryptor = Cipher(AES(key), CBC(iv)).encryptor()
    return encryptor.update(padder.update(data) + padder.finalize()) + encryptor.finalize()


def _decrypt(cipher_algorithm: str, key: bytes, iv: bytes, data: bytes) -> bytes:
    """Raises ValueError."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CBC
    from cryptography.hazmat.primitives.padding import PKCS7

    if cipher_algorithm == _GCM:
        try:
            return AESGCM(key).decrypt(iv, data, None)
        except InvalidTag:
            raise ValueError("tag") from None
    decryptor = Cipher(AES(key), CBC(iv)).decryptor()
    unpadder = PKCS7(AES.block_size).unpadder()
    return unpadder.update(decryptor.update(data) + decryptor.finalize()) + unpadder.finalize()


def _java_length(text: str) -> int:
    """UTF-16 units, as ``String.length``."""
    return len(text.encode("utf-16-le")) // 2


def _to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
