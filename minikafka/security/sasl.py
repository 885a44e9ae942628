"""SASL: what both sides of every mechanism are, what can go wrong in an authentication, and the simplest
mechanism, PLAIN. The others are ``scram`` and ``oauthbearer``. All are state machines, of the server and of
the client: bytes in, bytes out. Which client logs in with which options: ``jaas.sasl_client``.

Kafka: ``javax.security.sasl.{SaslServer,SaslClient}``,
``org.apache.kafka.common.security.{plain,scram,oauthbearer}``.

**PLAIN** (RFC 4616): a name and a password, as they are. Kafka: ``PlainSaslServer``,
``PlainServerCallbackHandler``, ``PlainSaslClient``.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Protocol

from minikafka.errors import MinikafkaError

NAME_SHOWN_CHARS_MAX = 64
"""Of what a peer says is its name."""

PLAIN = "PLAIN"
USER_OPTION_PREFIX = "user_"
"""Of the options of ``PlainLoginModule`` that have the users of a broker: ``user_NAME="password"``."""

CheckPassword = Callable[[str, str], bool]
"""Called with a user and what it says is its password."""

_INVALID = "Authentication failed: Invalid username or password"


class SaslServer(Protocol):
    """One authentication of one connection, for one mechanism."""

    @property
    def is_complete(self) -> bool:
        """Whether the client has proved who it is."""
        ...

    authorization_id: str
    """Its name, when it has."""
    expires_at_ms: int | None
    """When what it proved that with expires, in milliseconds since the Unix epoch."""
    token_id: str
    """Of the delegation token that it used."""

    def may_take_long(self, response: bytes) -> bool:
        """Whether ``evaluate`` may compute for milliseconds: then it is called in a thread."""
        ...

    def evaluate(self, response: bytes) -> bytes:
        """The answer to what the client sent.

        Raises:
            SaslError: the authentication failed; nothing else may be called afterwards.
        """
        ...


class SaslClient(Protocol):
    """One authentication. What ``first`` returns is sent; then what ``next`` returns for each answer, until
    that is None."""

    mechanism: str
    is_complete: bool
    """Whether the server has proved what it has to."""

    def first(self) -> bytes:
        """The first message."""
        ...

    def next(self, challenge: bytes) -> bytes | None:
        """What to send after the server's answer ``challenge``; None: nothing more.

        Of SCRAM it derives a key, which takes milliseconds: call it in a thread.

        Raises:
            SaslError: the server could not prove what it should, or does not speak the mechanism.
        """
        ...


def shown_name(name: str) -> str:
    """A peer's own text as a log may have it."""
    return repr(name if len(name) <= NAME_SHOWN_CHARS_MAX else f"{name[:NAME_SHOWN_CHARS_MAX]}…")


class SaslError(MinikafkaError):
    """The proof failed. ``reason`` is for our log. ``told`` is what the peer may read, None for no more than
    that the credentials are not good: whether a user exists is not told (Kafka: ``SaslException`` and
    ``SaslAuthenticationException``). Neither has a secret in it."""

    def __init__(self, reason: str, *, told: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.told = told


class PlainUsers:
    """The users that the options of a broker's login module name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._digests = {
            name.removeprefix(USER_OPTION_PREFIX): _digest(password)
            for name, password in options.items()
            if name.startswith(USER_OPTION_PREFIX)
        }

    def __repr__(self) -> str:
        return f"PlainUsers({', '.join(sorted(self._digests))})"

    def __len__(self) -> int:
        return len(self._digests)

    def check(self, user: str, password: str) -> bool:
        """Whether it is this user's password. Takes as long for a user that does not exist, and for a
        password that is right at its beginning (CVE-2021-38153)."""
        expected = self._digests.get(user)
        is_right = hmac.compare_digest(_digest(password), _NOBODY if expected is None else expected)
        return is_right and expected is not None


def _digest(password: str) -> bytes:
    """Of equal length for all passwords, which a comparison in constant time needs."""
    return hashlib.sha256(password.encode("utf-8", "surrogatepass")).digest()


_NOBODY = _digest("")


def _malformed(message: str) -> SaslError:
    """What is wrong with the message itself, which its sender may know."""
    return SaslError(message, told=message)


class PlainServer:
    """``SaslServer``. The message is ``[authorization id] NUL user NUL password``."""

    def __init__(self, check: CheckPassword) -> None:
        self._check = check
        self.is_complete = False
        self.authorization_id = ""
        self.expires_at_ms: int | None = None
        self.token_id = ""

    def __repr__(self) -> str:
        return f"PlainServer({'complete' if self.is_complete else 'waiting'})"

    def may_take_long(self, response: bytes) -> bool:
        return False

    def evaluate(self, response: bytes) -> bytes:
        if self.is_complete:
            raise SaslError("a message after the last one")
        try:
            text = response.decode()
        except UnicodeDecodeError:
            raise SaslError("Invalid SASL/PLAIN response: it is no UTF-8", told=_INVALID) from None
        count = text.count("\0") + 1
        if count != 3:
            raise _malformed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {count}")
        authorization_id, user, password = text.split("\0")
        if not user:
            raise _malformed("Authentication failed: username not specified")
        if not password:
            raise _malformed("Authentication failed: password not specified")
        if not self._check(user, password):
            raise SaslError(
                f"Invalid password of user {shown_name(user)}, or no such user",
                told=_INVALID,
            )
        if authorization_id not in ("", user):  # CVE-2017-12610
            raise _malformed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.authorization_id = user
        self.is_complete = True
        return b""


class PlainClient:
    """``SaslClient``."""

    mechanism = PLAIN

    def __init__(self, username: str, password: str) -> None:
        """Neither may have a NUL in it, which separates them."""
        self._message = f"\0{username}\0{password}".encode()
        self.is_complete = False

    def __repr__(self) -> str:
        return f"PlainClient({'complete' if self.is_complete else 'waiting'})"

    def first(self) -> bytes:
        return self._message

    def next(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise SaslError("the server answered PLAIN with a challenge, which that mechanism has none of")
        self.is_complete = True
        return None
