"""OAUTHBEARER: tokens that hold, and every way in which one does not."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey

from minikafka.errors import ConfigError
from minikafka.security.jaas import sasl_client
from minikafka.security.oauthbearer import (
    MESSAGE_BYTES_MAX,
    BearerToken,
    ClaimRules,
    InvalidTokenError,
    JwtValidator,
    OAuthBearerServer,
    UnknownKeyError,
    UnsecuredValidator,
    parse_jwks,
    unsecured_token,
)
from minikafka.security.sasl import SaslError

NOW_S = 1_700_000_000
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
STRANGER = RSAKey.generate_key(2048, {"kid": "rsa"})
JWKS, COMPLAINTS = parse_jwks(json.dumps(KeySet([RSA, EC]).as_dict(private=False)).encode())
CLAIMS = {"sub": "alice", "iss": "https://issuer", "aud": "kafka", "iat": NOW_S, "exp": NOW_S + 60}
RULES = ClaimRules(issuer="https://issuer", audiences=("kafka", "other"), clock_skew_ms=30_000)


def validate(token: str, rules: ClaimRules = RULES, *, now_s: float = NOW_S) -> BearerToken:
    return JwtValidator(rules, keys=lambda: JWKS, now_ms=lambda: int(now_s * 1000))(token)


def signed(key: Any = RSA, algorithm: str = "RS256", **changed: Any) -> str:
    claims = {name: value for name, value in (CLAIMS | changed).items() if value is not None}
    return jwt.encode({"alg": algorithm, "kid": key.kid}, claims, key, algorithms=[algorithm])


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("key", "algorithm"), [(RSA, "RS256"), (RSA, "RS512"), (RSA, "PS256"), (EC, "ES256")]
)
def test_a_token_that_holds(key: Any, algorithm: str) -> None:
    token = validate(signed(key, algorithm, scope="read write"))
    assert token == BearerToken("alice", (NOW_S + 60) * 1000, frozenset({"read", "write"}))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"exp": NOW_S - 31}, "expired"),
        ({"exp": None}, "exp"),
        ({"exp": "soon"}, "no time"),
        ({"exp": True}, "no time"),
        ({"exp": 1e300}, "no time"),
        ({"iat": None}, "iat"),
        ({"iat": NOW_S + 31}, "holds in"),
        ({"nbf": NOW_S + 31}, "holds in"),
        ({"nbf": NOW_S + 20, "exp": NOW_S + 10}, "before it holds"),
        ({"iss": "https://mallory"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "somebody"}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": 7}, "audience"),
        ({"sub": None}, "principal's name"),
        ({"sub": " "}, "principal's name"),
        ({"sub": 7}, "principal's name"),
        ({"scope": {"a": 1}}, "scope"),
    ],
)
def test_claims_that_do_not_hold(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidTokenError, match=reason):
        validate(signed(**changed))


def test_clocks_may_differ_by_the_skew() -> None:
    validate(signed(exp=NOW_S - 29, iat=NOW_S - 60))
    validate(signed(iat=NOW_S + 29, nbf=NOW_S + 29))
    validate(signed(aud=["x", "other"]))


def test_an_audience_must_be_expected_and_scopes_and_names_may_be_other_claims() -> None:
    with pytest.raises(InvalidTokenError, match=r"sasl\.oauthbearer\.expected\.audience"):
        validate(signed(), ClaimRules())
    assert validate(signed(), ClaimRules(allows_any_audience=True)).principal_name == "alice"
    rules = ClaimRules(sub_claim="client_id", scope_claim="scp", required_scopes=("kafka",))
    token = signed(aud=None, client_id="bob", scp=["kafka"])
    assert validate(token, rules).principal_name == "bob"
    with pytest.raises(InvalidTokenError, match="lacks the scope kafka"):
        validate(signed(aud=None, client_id="bob"), rules)


def test_alg_none_is_no_signature() -> None:
    for name in ("none", "None", "NONE", ""):
        unsigned = f"{part({'alg': name, 'kid': 'rsa'})}.{part(CLAIMS)}."
        with pytest.raises(InvalidTokenError, match="not supported"):
            validate(unsigned)


def test_a_public_key_is_no_secret() -> None:
    """Key confusion: HS256 with the public key, as PEM or as its modulus, for the secret."""
    public = RSA.as_dict(private=False)
    for secret in (RSA.as_pem(private=False), base64.urlsafe_b64decode(public["n"] + "==")):
        import hashlib
        import hmac

        signing_input = f"{part({'alg': 'HS256', 'kid': 'rsa'})}.{part(CLAIMS)}"
        mac = hmac.digest(secret, signing_input.encode(), hashlib.sha256)
        forged = f"{signing_input}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
        with pytest.raises(InvalidTokenError, match="HS256 is no algorithm of the key"):
            validate(forged)


def test_algorithms_are_those_of_the_key() -> None:
    token = signed(EC, "ES256")
    header = part({"alg": "RS256", "kid": "ec"})
    with pytest.raises(InvalidTokenError, match="RS256 is no algorithm of the key"):
        validate(f"{header}.{token.partition('.')[2]}")


def test_a_strangers_signature_is_none() -> None:
    with pytest.raises(UnknownKeyError):
        validate(signed(STRANGER))
    with pytest.raises(UnknownKeyError, match="kid"):
        validate(signed(RSAKey.generate_key(2048, {"kid": "new"})))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_changed_token_is_none(place: int) -> None:
    parts = signed().split(".")
    parts[place] = parts[place][:-2] + ("AA" if not parts[place].endswith("AA") else "BB")
    with pytest.raises(InvalidTokenError):
        validate(".".join(parts))


def test_a_critical_header_that_is_not_understood_refuses() -> None:
    token = signed()
    header = part({"alg": "RS256", "kid": "rsa", "crit": ["exp2"], "exp2": 1})
    with pytest.raises(InvalidTokenError):
        validate(f"{header}.{token.partition('.')[2]}")


@given(st.text(max_size=200) | st.from_regex(r"[\w-]{1,40}\.[\w-]{1,40}\.[\w-]{0,40}", fullmatch=True))
def test_random_texts_are_no_tokens(text: str) -> None:
    with pytest.raises(InvalidTokenError):
        validate(text)
    with pytest.raises(InvalidTokenError):
        UnsecuredValidator({}, now_ms=lambda: 0)(text)


def test_keys_that_cannot_be_used_are_left_out() -> None:
    weak = {"kty": "oct", "k": part("x"), "kid": "weak"}
    encryption = RSA.as_dict(private=False) | {"use": "enc"}
    short = RSA.as_dict(private=False) | {"n": "AQAB"}
    unknown = {"kty": "LWE"}
    good = OctKey.generate_key(256, {"kid": "secret"}).as_dict(private=True)
    data = json.dumps({"keys": [weak, encryption, short, unknown, 7, good]}).encode()
    keys, complaints = parse_jwks(data)
    assert [key.key_id for key in keys] == ["secret"]
    assert keys[0].algorithms == ("HS256", "HS384", "HS512")
    assert len(complaints) == 5
    for damaged in (b"", b"[]", b'{"keys": 1}', b"\xff", b"[" * 100_000):
        with pytest.raises(ValueError, match="JSON"):
            parse_jwks(damaged)


# The exchange


def run(token: str, **extensions: str) -> OAuthBearerServer:
    server = OAuthBearerServer(lambda text: validate(text))
    options = {f"unsecuredLoginExtension_{name}": value for name, value in extensions.items()}
    client = sasl_client("OAUTHBEARER", options, nonce=str, token=token)
    answer: bytes | None = client.first()
    while answer is not None:
        answer = client.next(server.evaluate(answer))
    assert client.is_complete
    return server


def test_a_client_of_ours_is_let_in() -> None:
    server = run(signed(), traceId="123")
    assert server.is_complete
    assert (server.authorization_id, server.expires_at_ms) == ("alice", (NOW_S + 60) * 1000)


def test_a_refused_token_is_answered_as_rfc_7628_says() -> None:
    server = OAuthBearerServer(lambda text: validate(text))
    client = sasl_client("OAUTHBEARER", {}, nonce=str, token=signed(STRANGER))
    challenge = server.evaluate(client.first())
    assert json.loads(challenge) == {"status": "invalid_token"}
    last = client.next(challenge)
    assert last == b"\x01"
    with pytest.raises(SaslError, match="refused") as caught:
        server.evaluate(last)
    assert json.loads(caught.value.told or "") == {"status": "invalid_token"}
    assert not server.is_complete and not client.is_complete


def test_there_is_no_second_try_after_a_refusal() -> None:
    server = OAuthBearerServer(lambda text: validate(text))
    server.evaluate(sasl_client("OAUTHBEARER", {}, nonce=str, token=signed(STRANGER)).first())
    with pytest.raises(SaslError):
        server.evaluate(sasl_client("OAUTHBEARER", {}, nonce=str, token=signed()).first())
    assert not server.is_complete


def test_cve_2017_12610_nobody_becomes_somebody_else() -> None:
    message = f"n,a=admin,\x01auth=Bearer {signed()}\x01\x01".encode()
    server = OAuthBearerServer(lambda text: validate(text))
    with pytest.raises(SaslError, match="authorization id"):
        server.evaluate(message)
    assert not server.is_complete


def test_messages_that_are_too_long_are_not_read() -> None:
    extensions = b"a=b\x01" * (MESSAGE_BYTES_MAX // 4)
    with pytest.raises(SaslError, match="bytes, more than"):
        OAuthBearerServer(lambda text: validate(text)).evaluate(b"n,,\x01" + extensions + b"\x01")


@pytest.mark.parametrize("place", [0, 1])
def test_a_token_of_deep_json_is_refused(place: int) -> None:
    """Neither its header nor what is signed in it makes the stack overflow."""
    parts = signed().split(".")
    deep = '{"alg":"RS256","sub":' + "[" * 20_000 + "]" * 20_000 + "}"
    parts[place] = base64.urlsafe_b64encode(deep.encode()).rstrip(b"=").decode()
    with pytest.raises(InvalidTokenError):
        validate(".".join(parts))


@given(st.binary(max_size=200))
def test_random_bytes_fail_as_they_should(message: bytes) -> None:
    with pytest.raises(SaslError):
        OAuthBearerServer(lambda text: validate(text)).evaluate(message)


# Without a signature


def test_the_unsecured_mechanism_as_kafka_has_it() -> None:
    options = {
        "unsecuredLoginStringClaim_sub": "carol",
        "unsecuredLoginListClaim_scope": "|a|b",
        "unsecuredLoginNumberClaim_weight": "2.5",
        "unsecuredLoginLifetimeSeconds": "10",
    }
    token = unsecured_token(options, now_s=NOW_S)
    found = UnsecuredValidator({"unsecuredValidatorRequiredScope": "a"}, now_ms=lambda: NOW_S * 1000)(token)
    assert found == BearerToken("carol", (NOW_S + 10) * 1000, frozenset({"a", "b"}))
    with pytest.raises(InvalidTokenError, match="expired"):
        UnsecuredValidator({}, now_ms=lambda: (NOW_S + 11) * 1000)(token)
    with pytest.raises(InvalidTokenError, match="scope c"):
        UnsecuredValidator({"unsecuredValidatorRequiredScope": "c"}, now_ms=lambda: NOW_S * 1000)(token)
    with pytest.raises(InvalidTokenError, match="not supported"):
        validate(token)


def test_options_that_cannot_be_are_named() -> None:
    with pytest.raises(ConfigError, match="unsecuredLoginStringClaim_sub"):
        unsecured_token({}, now_s=0)
    with pytest.raises(ConfigError, match="unsecuredLoginLifetimeSeconds"):
        unsecured_token({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginLifetimeSeconds": "x"}, now_s=0)
    with pytest.raises(ConfigError, match="unsecuredValidatorAllowableClockSkewMs"):
        UnsecuredValidator({"unsecuredValidatorAllowableClockSkewMs": "-1"}, now_ms=lambda: 0)
