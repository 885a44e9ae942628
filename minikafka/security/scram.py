"""SCRAM-SHA-256 and -512 (RFC 5802, 7677): both sides prove that they know a password without telling it.

Kafka: ``ScramSaslServer``, ``ScramSaslClient``, ``ScramMessages``, ``ScramFormatter``,
``ScramCredentialUtils``; KIP-84, KIP-48 (``tokenauth=true``: the name is a delegation token's id).

    client first    n,,n=user,r=client nonce[,tokenauth=true]
    server first    r=client nonce + server nonce,s=salt,i=iterations
    client final    c=biws,r=both nonces,p=proof
    server final    v=server signature

Invariants:
- The nonce of the last message is the one that this server has sent (CVE-2024-56128), and ``c`` is the header
  that the client began with.
- An unknown user is answered like a known one: with a salt that stays the same, and a proof that is computed
  and compared. What stands for its credential is ``unknown_user_credential``.
- Signatures and proofs are compared in constant time.
- A client takes 4,096 to 1,000,000 iterations: fewer would make its password cheap to guess for a server that
  is none, more would keep it busy.

Why not the library scramp, which the tests hold both sides against: it refuses extensions with a name of more
than a letter (Kafka's ``tokenauth``) and salts below 12 bytes, and normalises passwords (SASLprep), which
Kafka does not; what is left is the standard library's ``hmac`` and ``pbkdf2_hmac``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from enum import Enum
from typing import Final

import msgspec

from minikafka.named_tuple import NamedTuple
from minikafka.security.sasl import SaslError, shown_name

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash of each mechanism."""

ITERATIONS_MIN: Final = 4096
"""``ScramMechanism.minIterations``."""
ITERATIONS_MAX: Final = 1_000_000
"""That a client computes: a second or so."""

MESSAGE_BYTES_MAX: Final = 4096
"""Of a client: names and nonces have some dozens. Half a megabyte, as a frame may have, takes 0.1 s to be
read, and all connections wait for that."""

TOKEN_AUTH: Final = "tokenauth"

_SASL_NAME = "(?:[^=,\0]|=2C|=3D)+"
_PRINTABLE = "[!-+\\--~]{1,1024}"
_BASE64 = "[a-zA-Z0-9/+]+={0,2}"
_EXTENSIONS = "(?P<extensions>(?:,[A-Za-z]+=[^,\0]+)*)"
_CLIENT_FIRST: Final = re.compile(
    f"(?P<gs2>n,(?:a=(?P<authzid>{_SASL_NAME}))?,)"
    f"(?P<bare>n=(?P<name>{_SASL_NAME}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS})"
)
_SERVER_FIRST: Final = re.compile(
    f"r=(?P<nonce>[!-+\\--~]{{1,2048}}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,10}}){_EXTENSIONS}"
)
_CLIENT_FINAL: Final = re.compile(
    f"(?P<without_proof>c=(?P<channel>{_BASE64}),r=(?P<nonce>[!-+\\--~]{{1,2048}}){_EXTENSIONS})"
    f",p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL: Final = re.compile(f"(?:e=(?P<error>[^=,\0]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


class ScramCredential(msgspec.Struct, frozen=True):
    """What a server keeps of a password; no password can be told from it, and no client be played."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential({self.iterations} iterations)"


class ScramUser(NamedTuple):
    """What a server finds for a name. ``owner``: who that is, if the name is a delegation token's id."""

    credential: ScramCredential
    owner: str
    expires_at_ms: int | None = None


FindUser = Callable[[str, bool], ScramUser | None]
"""Called with a name, and whether it is the id of a delegation token."""


# Keys
def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """RFC 5802's ``Hi``. Takes about a microsecond an iteration: for a thread."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """What a server keeps, of a salted password."""
    stored_key = hashlib.new(HASHES[mechanism], _mac(mechanism, salted, b"Client Key")).digest()
    return ScramCredential(salt, stored_key, _mac(mechanism, salted, b"Server Key"), iterations)


def make_credential(mechanism: str, password: str, *, salt: bytes, iterations: int) -> ScramCredential:
    """What a server keeps, of a password. For a thread (``salted_password``)."""
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def unknown_user_credential(
    mechanism: str, name: str, *, secret: bytes, salt_bytes: int, iterations: int
) -> ScramCredential:
    """In the place of that of a user that does not exist: the same whenever ``secret`` is, and with keys that
    nothing is the proof of."""
    seed = hmac.digest(secret, name.encode("utf-8", "surrogatepass"), "sha512")
    salt = b""
    while len(salt) < salt_bytes:
        salt += hmac.digest(seed, b"salt" + salt, "sha512")
    keys = _mac(mechanism, seed, b"stored key"), _mac(mechanism, seed, b"server key")
    return ScramCredential(salt[:salt_bytes], *keys, iterations)


def _mac(mechanism: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, HASHES[mechanism])


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


# As texts
def encode_credential(credential: ScramCredential) -> str:
    """As the store has it (``ScramCredentialUtils.credentialToString``)."""
    salt, stored_key, server_key = map(
        _to_base64, (credential.salt, credential.stored_key, credential.server_key)
    )
    return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={credential.iterations}"


def decode_credential(mechanism: str, text: str) -> ScramCredential:
    """Raises ValueError: it is no such text; the message has nothing of it."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    if fields.keys() != {"salt", "stored_key", "server_key", "iterations"}:
        raise ValueError("a credential is salt=…,stored_key=…,server_key=…,iterations=…")
    if not re.fullmatch("[0-9]{1,10}", fields["iterations"]):
        raise ValueError("the iterations of a credential are no number")
    try:
        salt, stored_key, server_key = (
            base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
    except binascii.Error:
        raise ValueError("a credential has a key that is no base64") from None
    size = hashlib.new(HASHES[mechanism]).digest_size
    if not (salt and len(stored_key) == len(server_key) == size):
        raise ValueError(f"the keys of a credential for {mechanism} must have {size} bytes")
    return ScramCredential(salt, stored_key, server_key, int(fields["iterations"]))


def _to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslError("Invalid SCRAM message format: it has no base64 where there should be some") from None


def _match(pattern: re.Pattern[str], message: bytes, what: str) -> re.Match[str]:
    try:
        match = pattern.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise SaslError(f"Invalid SCRAM {what} message format")
    return match


def _extensions(text: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in text.split(",") if part)


def _escape(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescape(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


# The server
class _State(Enum):
    CLIENT_FIRST = "waits for the client's first message"
    CLIENT_FINAL = "waits for the client's proof"
    COMPLETE = "complete"
    FAILED = "failed"


class ScramServer:
    """``SaslServer``."""

    def __init__(
        self,
        mechanism: str,
        find_user: FindUser,
        *,
        nonce: str,
        unknown_user: Callable[[str], ScramCredential],
    ) -> None:
        """``nonce``: fresh and random, of printable characters other than a comma. ``unknown_user`` gives
        what is used for a name that ``find_user`` does not find; there is no proof for it."""
        self._mechanism = mechanism
        self._find_user = find_user
        self._nonce = nonce
        self._unknown_user = unknown_user
        self._state = _State.CLIENT_FIRST
        self._credential: ScramCredential | None = None
        self._is_known = False
        self._name = ""
        self._gs2_header = b""
        self._auth_message = ""
        self.authorization_id = ""
        self.expires_at_ms: int | None = None
        self.token_id = ""

    def __repr__(self) -> str:
        return f"ScramServer({self._mechanism}, {self._state.value})"

    @property
    def is_complete(self) -> bool:
        return self._state is _State.COMPLETE

    def may_take_long(self, response: bytes) -> bool:
        """The keys of a delegation token are derived when it is first used."""
        return self._state is _State.CLIENT_FIRST and b",tokenauth=" in response

    def evaluate(self, response: bytes) -> bytes:
        state, self._state = self._state, _State.FAILED
        if len(response) > MESSAGE_BYTES_MAX:
            raise SaslError(f"a message of {len(response)} bytes, more than {MESSAGE_BYTES_MAX}")
        match state:
            case _State.CLIENT_FIRST:
                answer = self._first(response)
                self._state = _State.CLIENT_FINAL
            case _State.CLIENT_FINAL:
                answer = self._final(response)
                self._state = _State.COMPLETE
            case _:
                raise SaslError(f"a message when the authentication is {state.value}")
        return answer

    def _first(self, response: bytes) -> bytes:
        message = _match(_CLIENT_FIRST, response, "client first")
        self._name = name = _unescape(message["name"])
        if message["authzid"] is not None and _unescape(message["authzid"]) != name:  # CVE-2017-12610
            told = (
                "Authentication failed: Client requested an authorization id that is different from username"
            )
            raise SaslError(told, told=told)
        is_token = _extensions(message["extensions"]).get(TOKEN_AUTH, "").lower() == "true"
        user = self._find_user(name, is_token)
        self._is_known = user is not None
        if user is None:
            credential = self._unknown_user(name)
        else:
            credential = user.credential
            self.authorization_id = user.owner
            self.expires_at_ms = user.expires_at_ms
            self.token_id = name if is_token else ""
        if credential.iterations < ITERATIONS_MIN:
            raise SaslError(
                f"the credential of {shown_name(name)} has {credential.iterations} iterations, fewer than "
                f"{ITERATIONS_MIN}: set its password again"
            )
        self._credential = credential
        self._gs2_header = message["gs2"].encode()
        self._nonce = message["nonce"] + self._nonce
        server_first = f"r={self._nonce},s={_to_base64(credential.salt)},i={credential.iterations}"
        self._auth_message = f"{message['bare']},{server_first}"
        return server_first.encode()

    def _final(self, response: bytes) -> bytes:
        message = _match(_CLIENT_FINAL, response, "client final")
        if not hmac.compare_digest(message["nonce"], self._nonce):  # CVE-2024-56128
            raise SaslError(
                "Invalid client nonce in the final client message. (librdkafka before 2.6.1 sends its own "
                "twice there, and must be upgraded)"
            )
        if _from_base64(message["channel"]) != self._gs2_header:
            raise SaslError("the final client message has another channel binding than the first")
        credential, mechanism = self._credential, self._mechanism
        assert credential is not None
        self._credential = None
        auth_message = f"{self._auth_message},{message['without_proof']}".encode()
        signature = _mac(mechanism, credential.stored_key, auth_message)
        proof = _from_base64(message["proof"])
        if len(proof) != len(signature):
            raise SaslError("Invalid SCRAM client final message format: the length of the proof")
        stored_key = hashlib.new(HASHES[mechanism], _xor(proof, signature)).digest()
        is_right = hmac.compare_digest(stored_key, credential.stored_key)
        if not (is_right and self._is_known):
            raise SaslError(f"Invalid password of user {shown_name(self._name)}, or no such user")
        return f"v={_to_base64(_mac(mechanism, credential.server_key, auth_message))}".encode()


# The client
class ScramClient:
    """``SaslClient``."""

    def __init__(
        self, mechanism: str, username: str, password: str, *, nonce: str, is_token: bool = False
    ) -> None:
        """``nonce``: fresh and random, of printable characters other than a comma. ``is_token``: the name is
        the id of a delegation token, and the password its HMAC in base64."""
        self.mechanism = mechanism
        self.is_complete = False
        self._password = password
        self._nonce = nonce
        extensions = f",{TOKEN_AUTH}=true" if is_token else ""
        self._bare = f"n={_escape(username)},r={nonce}{extensions}"
        self._expected: bytes | None = None

    def __repr__(self) -> str:
        return f"ScramClient({self.mechanism}, {'complete' if self.is_complete else 'waiting'})"

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def next(self, challenge: bytes) -> bytes | None:
        if self._expected is None:
            return self._final(challenge)
        message = _match(_SERVER_FINAL, challenge, "server final")
        if message["error"] is not None:
            raise SaslError(f"Sasl authentication using {self.mechanism} failed: {message['error']}")
        if not hmac.compare_digest(_from_base64(message["signature"]), self._expected):
            raise SaslError("Invalid server signature in server final message")
        self.is_complete = True
        return None

    def _final(self, challenge: bytes) -> bytes:
        message = _match(_SERVER_FIRST, challenge, "server first")
        nonce, iterations = message["nonce"], int(message["iterations"])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise SaslError("Invalid server nonce: does not start with client nonce")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise SaslError(
                f"Requested iterations {iterations} are not between {ITERATIONS_MIN} and {ITERATIONS_MAX}, "
                f"which are what {self.mechanism} may have"
            )
        salt = _from_base64(message["salt"])
        salted = salted_password(self.mechanism, self._password, salt, iterations)
        client_key = _mac(self.mechanism, salted, b"Client Key")
        stored_key = hashlib.new(HASHES[self.mechanism], client_key).digest()
        without_proof = f"c=biws,r={nonce}"
        auth_message = f"{self._bare},{challenge.decode()},{without_proof}".encode()
        proof = _xor(client_key, _mac(self.mechanism, stored_key, auth_message))
        server_key = _mac(self.mechanism, salted, b"Server Key")
        self._expected = _mac(self.mechanism, server_key, auth_message)
        return f"{without_proof},p={_to_base64(proof)}".encode()
