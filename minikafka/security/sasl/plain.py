"""PLAIN (RFC 4616): a name and a password, as they are.

Kafka: ``PlainSaslServer``, ``PlainServerCallbackHandler``, ``PlainSaslClient``.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping

from minikafka.security.sasl.mechanism import SaslError, shown_name

MECHANISM = "PLAIN"
USER_OPTION_PREFIX = "user_"
"""Of the options of ``PlainLoginModule`` that have the users of a broker: ``user_NAME="password"``."""

CheckPassword = Callable[[str, str], bool]
"""Called with a user and what it says is its password."""

_INVALID = "Authentication failed: Invalid username or password"


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

    mechanism = MECHANISM

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
