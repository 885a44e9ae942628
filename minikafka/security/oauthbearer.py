"""OAUTHBEARER (RFC 7628): a token of an issuer that the broker trusts.

Kafka: ``OAuthBearerSaslServer``, ``OAuthBearerSaslClient``, ``OAuthBearerClientInitialResponse``,
``OAuthBearerValidatorCallbackHandler`` (``ValidatorAccessTokenValidator``),
``OAuthBearerUnsecuredValidatorCallbackHandler``, ``OAuthBearerUnsecuredLoginCallbackHandler``; KIP-255,
KIP-768.

    client first    n,,^Aauth=Bearer TOKEN^A[name=value^A]^A
    server          nothing, or {"status":"invalid_token"}, which the client answers with ^A, and then fails

Invariants of ``JwtValidator``:
- The algorithm of a token's header must be one of those of the *key's* type: a public RSA key is never the
  secret of an HMAC, and ``none`` is no algorithm (key confusion, alg=none).
- A token says when it was issued and when it expires, and whom it is for: one with audiences where none are
  expected, and one without where some are, is refused, as by Kafka's jose4j, unless any may be.
- The unsecured validator is another class, which must be chosen by name.

The library joserfc verifies signatures; it is imported when the first token or key set comes.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from minikafka.errors import UNDECODABLE, ConfigError
from minikafka.named_tuple import NamedTuple
from minikafka.security.sasl import SaslError

if TYPE_CHECKING:
    from joserfc.jwk import Key

MECHANISM: Final = "OAUTHBEARER"

TOKEN_CHARS_MAX: Final = 65_536
"""Of a token. Those with hundreds of groups in them have some 20,000."""

MESSAGE_BYTES_MAX: Final = TOKEN_CHARS_MAX + 8192
"""Of a client: a token, and extensions. Half a megabyte of extensions would hold up all threads for 40 ms."""

_SASL_NAME = "(?:[^=,\0]|=2C|=3D)+"
_FIRST: Final = re.compile(
    f"n,(?:a=(?P<authzid>{_SASL_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[!-~ \t\r\n]+\x01)*)\x01"
)
_AUTH: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_.a-zA-Z0-9]+)")
_EXTENSION_NAME: Final = re.compile("[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile("[!-~ \t\r\n]+")
_CONTROL_A: Final = b"\x01"

RSA_BITS_MIN: Final = 2048
"""RFC 7518, section 3.3."""
SECRET_BITS_MIN: Final = 256
"""RFC 7518, section 3.2."""


class BearerToken(NamedTuple):
    """What a valid token says."""

    principal_name: str
    expires_at_ms: int
    scopes: frozenset[str]


class InvalidTokenError(Exception):
    """The token does not hold; the message is for our log and has nothing of its signature."""

    def __init__(self, reason: str, *, missing_scope: str | None = None) -> None:
        super().__init__(reason)
        self.missing_scope = missing_scope


class UnknownKeyError(InvalidTokenError):
    """None of the issuer's keys that are here has signed it; the issuer may have new ones."""


Validate = Callable[[str], BearerToken]
"""Raises InvalidTokenError. May compute for a millisecond."""


# Claims
class ClaimRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a token must say: ``sasl.oauthbearer.*``."""

    scope_claim: str = "scope"
    sub_claim: str = "sub"
    issuer: str | None = None
    audiences: tuple[str, ...] | None = None
    allows_any_audience: bool = False
    """Where none is expected."""
    clock_skew_ms: int = 30_000
    required_scopes: tuple[str, ...] = ()
    needs_issued_at: bool = True

    def check(self, claims: Mapping[str, Any], *, now_ms: int) -> BearerToken:
        """Raises InvalidTokenError."""
        expires_at_ms = _time(claims, "exp")
        if expires_at_ms is None:
            raise InvalidTokenError("No Expiration Time (exp) claim present")
        if now_ms - self.clock_skew_ms >= expires_at_ms:
            raise InvalidTokenError(f"it expired {now_ms - expires_at_ms} ms ago")
        issued_at_ms = _time(claims, "iat")
        if issued_at_ms is None and self.needs_issued_at:
            raise InvalidTokenError("No Issued At (iat) claim present")
        for name, begins_ms in (("iat", issued_at_ms), ("nbf", _time(claims, "nbf"))):
            if begins_ms is None:
                continue
            if begins_ms - self.clock_skew_ms > now_ms:
                raise InvalidTokenError(f"it holds in {begins_ms - now_ms} ms only ({name})")
            if begins_ms >= expires_at_ms:
                raise InvalidTokenError(f"it expires (exp) before it holds ({name})")
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise InvalidTokenError(f"its issuer (iss) is not {self.issuer}")
        self._check_audience(claims.get("aud"))
        scopes = self._scopes(claims)
        for scope in self.required_scopes:
            if scope not in scopes:
                raise InvalidTokenError(
                    f"it lacks the scope {scope}", missing_scope=" ".join(self.required_scopes)
                )
        principal_name = claims.get(self.sub_claim)
        if not isinstance(principal_name, str) or not principal_name.strip():
            raise InvalidTokenError(f"it has no principal's name in its claim {self.sub_claim}")
        return BearerToken(principal_name.strip(), expires_at_ms, scopes)

    def _check_audience(self, audience: object) -> None:
        if self.audiences is None:
            if audience is not None and not self.allows_any_audience:
                raise InvalidTokenError(
                    "it has an audience (aud), and sasl.oauthbearer.expected.audience does not say which are "
                    "expected"
                )
            return
        named = [audience] if isinstance(audience, str) else audience
        if not (isinstance(named, list) and any(each in self.audiences for each in named)):
            raise InvalidTokenError(f"its audience (aud) is none of {', '.join(self.audiences)}")

    def _scopes(self, claims: Mapping[str, Any]) -> frozenset[str]:
        scopes = claims.get(self.scope_claim)
        if scopes is None:
            return frozenset()
        if isinstance(scopes, str):
            return frozenset(scopes.split())
        if isinstance(scopes, list) and all(isinstance(each, str) for each in scopes):
            return frozenset(each.strip() for each in scopes)
        raise InvalidTokenError(f"its claim {self.scope_claim} is neither a text nor a list of texts")


def _time(claims: Mapping[str, Any], name: str) -> int | None:
    """A NumericDate (seconds, with a fraction maybe) in milliseconds."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
        raise InvalidTokenError(f"its claim {name} is no time")
    return int(value * 1000)


# Validators
class KeyKind(NamedTuple):
    """The type of a key in RFC 7518, with its curve where it has one."""

    key_type: str
    curve: str | None = None


ALGORITHMS: Final[Mapping[KeyKind, tuple[str, ...]]] = {
    KeyKind("RSA"): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    KeyKind("EC", "P-256"): ("ES256",),
    KeyKind("EC", "P-384"): ("ES384",),
    KeyKind("EC", "P-521"): ("ES512",),
    KeyKind("OKP", "Ed25519"): ("EdDSA", "Ed25519"),
    KeyKind("oct"): ("HS256", "HS384", "HS512"),
}
"""What a key of each kind may verify. ``none`` is in none of them."""


class VerificationKey(NamedTuple):
    """A key of an issuer. ``key_id`` is None when its set gives none."""

    key_id: str | None
    algorithms: tuple[str, ...]
    key: Key


def parse_jwks(data: bytes) -> tuple[tuple[VerificationKey, ...], list[str]]:
    """The keys of a JSON Web Key Set that can verify signatures; and why others of it are left out.

    Raises:
        ValueError: it is no key set. The message has nothing of its content.
    """
    try:
        raw = msgspec.json.decode(data)
    except UNDECODABLE:
        raise ValueError("it is no JSON") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("keys"), list):
        raise ValueError('a JSON Web Key Set is an object with "keys"')
    keys, complaints = [], []
    for place, entry in enumerate(raw["keys"]):
        try:
            keys.append(_verification_key(entry))
        except ValueError as error:
            complaints.append(f"key {place + 1}: {error}")
    return tuple(keys), complaints


def _verification_key(entry: Any) -> VerificationKey:
    """Raises ValueError: it cannot be used, and why."""
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    if not isinstance(entry, dict):
        raise ValueError("it is no object")
    if entry.get("use", "sig") != "sig":
        raise ValueError("it is not for signatures")
    curve = entry.get("crv")
    kind = KeyKind(str(entry.get("kty")), None if curve is None else str(curve))
    algorithms = ALGORITHMS.get(kind)
    if algorithms is None:
        raise ValueError(f"no algorithm for its kind ({kind.key_type}, {kind.curve})")
    algorithm = entry.get("alg")
    if algorithm is not None:
        algorithms = tuple(each for each in algorithms if each == algorithm)
        if not algorithms:
            raise ValueError("its algorithm (alg) is none of its kind")
    if kind.key_type == "RSA" and len(str(entry.get("n"))) * 6 < RSA_BITS_MIN:
        raise ValueError(f"an RSA key of fewer than {RSA_BITS_MIN} bits")
    if kind.key_type == "oct" and len(str(entry.get("k"))) * 6 < SECRET_BITS_MIN:
        raise ValueError(f"a secret of fewer than {SECRET_BITS_MIN} bits")
    try:
        key = import_key(entry)
    except (JoseError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"it is malformed ({type(error).__name__})") from None
    key_id = entry.get("kid")
    return VerificationKey(key_id if isinstance(key_id, str) else None, algorithms, key)


class JwtValidator:
    """``Validate``: tokens signed with one of the issuer's keys."""

    def __init__(
        self,
        rules: ClaimRules,
        *,
        keys: Callable[[], Sequence[VerificationKey]],
        now_ms: Callable[[], int],
    ) -> None:
        self._rules = rules
        self._keys = keys
        self._now_ms = now_ms

    def __repr__(self) -> str:
        return f"JwtValidator({self._rules})"

    def __call__(self, token: str) -> BearerToken:
        header = _decoded_part(token, 0, parts=3)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not any(algorithm in algorithms for algorithms in ALGORITHMS.values()):
            raise InvalidTokenError("its algorithm (alg) is not supported")
        candidates = [each for each in self._keys() if key_id is None or each.key_id in (None, key_id)]
        if not candidates:
            raise UnknownKeyError("it was signed with a key (kid) that the issuer's key set does not have")
        fitting = [each for each in candidates if algorithm in each.algorithms]
        if not fitting:
            raise InvalidTokenError(f"{algorithm} is no algorithm of the key (kid) that it names")
        claims = self._verified(token, str(algorithm), fitting)
        return self._rules.check(claims, now_ms=self._now_ms())

    def _verified(self, token: str, algorithm: str, keys: Sequence[VerificationKey]) -> Mapping[str, Any]:
        """The claims. Raises InvalidTokenError: no key verifies the signature."""
        import warnings

        from joserfc import jwt
        from joserfc.errors import BadSignatureError, JoseError
        from joserfc.jws import JWSRegistry

        warnings.filterwarnings("ignore", "EdDSA is deprecated")  # the name is, and issuers use it
        registry = JWSRegistry(algorithms=[algorithm], strict_check_header=False)
        registry.max_header_length = registry.max_payload_length = TOKEN_CHARS_MAX
        registry.max_signature_length = TOKEN_CHARS_MAX
        for key in keys:
            try:
                claims: Mapping[str, Any] = jwt.decode(token, key.key, registry=registry).claims
            except BadSignatureError:
                continue
            except (JoseError, ValueError, RecursionError) as error:
                raise InvalidTokenError(f"it is malformed ({type(error).__name__})") from None
            return claims
        raise UnknownKeyError("its signature is not of one of the issuer's keys")


class UnsecuredValidator:
    """``Validate``: tokens without a signature, which anybody can write. For tests of clients; see
    ``is_unsecured``."""

    def __init__(self, options: Mapping[str, str], *, now_ms: Callable[[], int]) -> None:
        """``options`` of the login module, ``unsecuredValidator…``.

        Raises:
            ConfigError: an option has a value that it cannot have.
        """
        skew = options.get("unsecuredValidatorAllowableClockSkewMs", "").strip() or "0"
        if not re.fullmatch("[0-9]{1,10}", skew):
            raise ConfigError(
                "the option unsecuredValidatorAllowableClockSkewMs of sasl.jaas.config must be a number that "
                f"is not negative: {skew}"
            )
        self._rules = ClaimRules(
            scope_claim=options.get("unsecuredValidatorScopeClaimName", "").strip() or "scope",
            sub_claim=options.get("unsecuredValidatorPrincipalClaimName", "").strip() or "sub",
            clock_skew_ms=int(skew),
            required_scopes=tuple(options.get("unsecuredValidatorRequiredScope", "").split()),
            needs_issued_at=False,
        )
        self._now_ms = now_ms

    def __repr__(self) -> str:
        return f"UnsecuredValidator({self._rules})"

    def __call__(self, token: str) -> BearerToken:
        if _decoded_part(token, 0, parts=3).get("alg") != "none" or not token.endswith("."):
            raise InvalidTokenError("an unsecured token has the algorithm (alg) none and no signature")
        claims = dict(_decoded_part(token, 1, parts=3))
        claims.pop("aud", None)  # Kafka's does not look at it
        return self._rules.check(claims, now_ms=self._now_ms())


def _decoded_part(token: str, place: int, *, parts: int) -> Mapping[str, Any]:
    """A part of a token's compact form. Raises InvalidTokenError."""
    texts = token.split(".")
    if len(texts) != parts or len(token) > TOKEN_CHARS_MAX:
        raise InvalidTokenError("it is no signed JSON Web Token in its compact form")
    text = texts[place]
    try:
        decoded = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError, *UNDECODABLE):
        decoded = None
    if not isinstance(decoded, dict):
        raise InvalidTokenError("a part of it is no JSON object")
    return decoded


# The server
class OAuthBearerServer:
    """``SaslServer``."""

    def __init__(self, validate: Validate) -> None:
        self._validate = validate
        self._refused: str | None = None
        self.is_complete = False
        self.authorization_id = ""
        self.expires_at_ms: int | None = None
        self.token_id = ""

    def __repr__(self) -> str:
        return f"OAuthBearerServer({'complete' if self.is_complete else 'waiting'})"

    def may_take_long(self, response: bytes) -> bool:
        return True

    def evaluate(self, response: bytes) -> bytes:
        if self._refused is not None:  # the client's ^A; whatever it is, there is no second try
            raise SaslError(self._refused, told='{"status":"invalid_token"}')
        if self.is_complete:
            raise SaslError("a message after the last one")
        authorization_id, token = _read_first(response)
        try:
            bearer = self._validate(token)
        except InvalidTokenError as error:
            self._refused = f"the token is refused: {error}"
            if error.missing_scope is None:
                return b'{"status":"invalid_token"}'
            return msgspec.json.encode({"status": "insufficient_scope", "scope": error.missing_scope})
        if authorization_id not in ("", bearer.principal_name):
            raise SaslError(
                "Authentication failed: Client requested an authorization id that is different from the "
                "token's principal name",
                told="Authentication failed: Client requested an authorization id that is different from the "
                "token's principal name",
            )
        self.authorization_id = bearer.principal_name
        self.expires_at_ms = bearer.expires_at_ms
        self.is_complete = True
        return b""


def _read_first(message: bytes) -> tuple[str, str]:
    """Authorization id ("" for none) and token of a client's first message."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise SaslError(f"a message of {len(message)} bytes, more than {MESSAGE_BYTES_MAX}")
    try:
        match = _FIRST.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise SaslError("Invalid OAUTHBEARER client first message")
    pairs: dict[str, str] = {}
    for pair in match["pairs"].split("\x01")[:-1]:
        name, _, value = pair.partition("=")
        if pairs.setdefault(name, value) is not value:
            raise SaslError("Invalid OAUTHBEARER client first message: a key is there twice")
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None:
        raise SaslError("Invalid OAUTHBEARER client first message: invalid 'auth' format")
    if auth["scheme"].lower() != "bearer":
        raise SaslError("Invalid scheme in OAUTHBEARER client first message")
    authorization_id = (match["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return authorization_id, auth["token"]


# The client
class OAuthBearerClient:
    """``SaslClient``."""

    mechanism = MECHANISM

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        """Raises ConfigError: an extension that no message can carry."""
        pairs = []
        for name, value in (extensions or {}).items():
            if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
                raise ConfigError(f"the SASL extension {name!r} of OAUTHBEARER cannot be sent")
            pairs.append(f"{name}={value}\x01")
        self._message = f"n,,\x01auth=Bearer {token}\x01{''.join(pairs)}\x01".encode()
        self.is_complete = False

    def __repr__(self) -> str:
        return f"OAuthBearerClient({'complete' if self.is_complete else 'waiting'})"

    def first(self) -> bytes:
        return self._message

    def next(self, challenge: bytes) -> bytes | None:
        if challenge:
            return _CONTROL_A
        self.is_complete = True
        return None


def unsecured_token(options: Mapping[str, str], *, now_s: float) -> str:
    """A token without a signature, of the options ``unsecuredLogin…`` of the login module.

    Raises:
        ConfigError: an option is missing, or has a value that it cannot have.
    """
    claims: dict[str, Any] = {}
    for option, value in options.items():
        kind, _, claim = option.partition("_")
        match kind:
            case "unsecuredLoginStringClaim":
                claims[claim] = value
            case "unsecuredLoginListClaim":
                claims[claim] = value[1:].split(value[0]) if value else []
            case "unsecuredLoginNumberClaim":
                claims[claim] = _number(option, value)
    principal_claim = options.get("unsecuredLoginPrincipalClaimName") or "sub"
    if not isinstance(claims.get(principal_claim), str):
        raise ConfigError(
            f"the option unsecuredLoginStringClaim_{principal_claim}, the name to log in as, is missing in "
            "sasl.jaas.config"
        )
    lifetime_s = _number(
        "unsecuredLoginLifetimeSeconds", options.get("unsecuredLoginLifetimeSeconds") or "3600"
    )
    claims.setdefault("iat", now_s)
    claims.setdefault("exp", now_s + lifetime_s)
    return f"{_encoded_part({'alg': 'none'})}.{_encoded_part(claims)}."


def unsecured_extensions(options: Mapping[str, str]) -> dict[str, str]:
    """The SASL extensions among the options (``unsecuredLoginExtension_NAME``)."""
    prefix = "unsecuredLoginExtension_"
    return {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}


def _number(option: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ConfigError(f"the option {option} of sasl.jaas.config must be a number") from None


def _encoded_part(part: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(part)).rstrip(b"=").decode()
