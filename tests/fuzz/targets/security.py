"""Who is it: logins, tokens, keys, certificates, stores, and the rules that map their names."""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any, Final

from minikafka.errors import ConfigError
from minikafka.security.acl import (
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    by_name,
    parse_principal,
    parse_super_users,
)
from minikafka.security.certificate_principal import NoMatchingRule, SslPrincipalMapper, subject_name
from minikafka.security.directory import check_host, check_name
from minikafka.security.jaas import parse_jaas
from minikafka.security.oauthbearer import (
    ClaimRules,
    InvalidTokenError,
    JwtValidator,
    OAuthBearerServer,
    UnsecuredValidator,
    parse_jwks,
)
from minikafka.security.password_encoder import PasswordEncoder
from minikafka.security.sasl import PlainServer, SaslError
from minikafka.security.scram import (
    ScramClient,
    ScramServer,
    ScramUser,
    decode_credential,
    encode_credential,
    make_credential,
)
from minikafka.security.tls import load_key_store, load_revocation_lists, load_trust_store
from minikafka.security.tls_settings import StoreSettings
from minikafka.testing.simulation.disk import SimulatedDisk
from tests.fuzz.target import Target

_NOW_MS: Final = 1_700_000_000_000
_MECHANISM: Final = "SCRAM-SHA-256"
_SECRET: Final = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def _by_first(readers: tuple[Callable[[bytes], object], ...], data: bytes) -> object:
    """The first byte says which reader."""
    return readers[data[0] % len(readers)](data[1:]) if data else None


# Logins


@cache
def _credential() -> Any:
    return make_credential(_MECHANISM, "secret", salt=b"0123456789abcdef", iterations=4096)


def _scram_server(data: bytes) -> object:
    """A conversation: the messages of a client, with NUL between them."""
    server = ScramServer(
        _MECHANISM,
        lambda name, is_token: ScramUser(_credential(), name) if name == "alice" else None,
        nonce="server",
        unknown_user=lambda name: _credential(),
    )
    for message in data.split(b"\0"):
        server.may_take_long(message)
        server.evaluate(message)
    assert not server.is_complete, "a proof was guessed"
    return server


def _scram_client(data: bytes) -> object:
    """What a server answers. More iterations than the least are wanted of a thread, and cost what they
    cost."""
    client = ScramClient(_MECHANISM, "alice", "secret", nonce="client")
    for message in data.split(b"\0"):
        if message.rpartition(b"i=")[2][:5] > b"4096":
            return None
        client.next(message)
    assert not client.is_complete
    return client


def _plain(data: bytes) -> object:
    server = PlainServer(lambda user, password: user == "alice" and password == "secret")
    server.evaluate(data)
    return server.authorization_id


def _credential_text(data: bytes) -> object:
    return decode_credential(_MECHANISM, _text(data))


def _encoded_password(data: bytes) -> object:
    text = _text(data)
    if re.search(r"iterations:\s*\+?0*[\d_]{5,}", text):
        return None  # as many as are set take as long as they take
    return _encoder().decode(text)


def _encoder() -> PasswordEncoder:
    return PasswordEncoder("secret", random_bytes=random.Random(0).randbytes)


# Tokens


@cache
def _jwks() -> Any:
    key = {
        "kty": "oct",
        "alg": "HS256",
        "kid": "1",
        "k": base64.urlsafe_b64encode(_SECRET).rstrip(b"=").decode(),
    }
    return parse_jwks(json.dumps({"keys": [key]}).encode())[0]


def _rules() -> ClaimRules:
    return ClaimRules(required_scopes=("read",), audiences=("kafka",), issuer="issuer")


def _token(data: bytes) -> object:
    validate = JwtValidator(_rules(), keys=_jwks, now_ms=lambda: _NOW_MS)
    return validate(data.decode("latin-1"))


def _unsecured(data: bytes) -> object:
    """The claims of a token, whose frame is put around them."""
    claims = base64.urlsafe_b64encode(data).rstrip(b"=").decode()
    return UnsecuredValidator({}, now_ms=lambda: _NOW_MS)(f"eyJhbGciOiJub25lIn0.{claims}.")


def _bearer(data: bytes) -> object:
    return OAuthBearerServer(UnsecuredValidator({}, now_ms=lambda: _NOW_MS)).evaluate(data)


def _signed(claims: dict[str, Any]) -> bytes:
    from joserfc import jwt

    return jwt.encode({"alg": "HS256", "kid": "1"}, claims, _jwks()[0].key).encode()


_CLAIMS: Final = {"sub": "alice", "exp": 2_000_000_000, "iat": 1_600_000_000, "scope": "read", "aud": "kafka"}


def _token_seeds() -> Iterable[bytes]:
    return [_signed(_CLAIMS), _signed({**_CLAIMS, "iss": "issuer"}), b"eyJhbGciOiJub25lIn0.e30."]


def _jwks_seeds() -> Iterator[bytes]:
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    yield json.dumps({"keys": [{"kty": "oct", "k": "AAAA" * 20, "alg": "HS256"}]}).encode()
    for key in (ECKey.generate_key("P-256"), OKPKey.generate_key("Ed25519"), RSAKey.generate_key(2048)):
        yield json.dumps({"keys": [{**key.as_dict(private=False), "use": "sig", "kid": "1"}]}).encode()


# Certificates and stores


def _stored(kind: str, store: str, data: bytes) -> object:
    """A store of PEM texts, with the chain and the key apart by NUL; or a file."""
    load = load_key_store if kind == "keystore" else load_trust_store
    if store == "texts":
        chain, _, key = data.decode(errors="replace").partition("\0")
        return load(StoreSettings(kind, "PEM", None, None, chain, key, None))
    disk = SimulatedDisk(rng=random.Random(0)).mount()
    disk.make_directory("/etc")
    disk.write_atomically("/etc/store", data)
    return load(StoreSettings(kind, store, "/etc/store", "secret", None), files=disk)


def _revoked(data: bytes) -> object:
    disk = SimulatedDisk(rng=random.Random(0)).mount()
    disk.make_directory("/etc")
    disk.write_atomically("/etc/list", data)
    return load_revocation_lists("/etc/list", files=disk)


_STORES: Final[tuple[Callable[[bytes], object], ...]] = (
    partial(_stored, "keystore", "texts"),
    partial(_stored, "truststore", "texts"),
    partial(_stored, "keystore", "PEM"),
    partial(_stored, "truststore", "PEM"),
    partial(_stored, "keystore", "PKCS12"),
    partial(_stored, "truststore", "PKCS12"),
    _revoked,
)


@cache
def _identity() -> tuple[bytes, bytes, bytes, bytes]:
    """A certificate as PEM and DER, its key as PEM, and both in a PKCS #12 store. Derived from nothing random
    but the key, whose content no reader looks into."""
    from datetime import UTC, datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import pkcs12
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [
        (NameOID.COMMON_NAME, "a, b"),
        (NameOID.ORGANIZATION_NAME, "o"),
        (NameOID.EMAIL_ADDRESS, "a@b"),
    ]
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2040, 1, 1, tzinfo=UTC))
        .sign(key, SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    quick = serialization.PrivateFormat.PKCS12.encryption_builder().kdf_rounds(1).build(b"secret")
    return (
        certificate.public_bytes(pem),
        certificate.public_bytes(serialization.Encoding.DER),
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain),
        pkcs12.serialize_key_and_certificates(b"n", key, certificate, None, quick),
    )


def _store_seeds() -> Iterable[bytes]:
    certificate, _, key, store = _identity()
    return [
        b"\0" + certificate + b"\0" + key,
        b"\1" + certificate * 2,
        b"\2" + key + certificate,
        b"\3" + certificate,
        b"\4" + store,
        b"\5" + store,
        b"\6-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n",
    ]


def _principal_rules(data: bytes) -> object:
    """Rules, and after a NUL the name that they are for."""
    rules, _, name = data.decode(errors="replace").partition("\0")
    return SslPrincipalMapper(rules).name(name)


def _rule_seeds() -> Iterable[bytes]:
    return [
        b"RULE:^CN=(.*?),OU=(.*?)$/$1@$2/L,RULE:^.*[Cc]N=([a-zA-Z0-9.]*).*$/$1/,DEFAULT\0CN=alice,OU=x",
        b"DEFAULT\0CN=alice",
        b"RULE:^CN=(.*)$/a\\/$1/U\0CN=alice",
    ]


_NAMES: Final[tuple[Callable[[bytes], object], ...]] = (
    lambda data: parse_principal(_text(data)),
    lambda data: parse_super_users(_text(data)),
    lambda data: check_name(_text(data)),
    lambda data: check_host(_text(data)),
    lambda data: [by_name(kind, _text(data)) for kind in (ResourceType, PatternType)],
    lambda data: [by_name(kind, _text(data)) for kind in (AclOperation, AclPermissionType)],
)


def _login_seeds() -> Iterable[bytes]:
    return [
        b"n,,n=alice,r=client\0c=biws,r=clientserver,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        b"n,a=alice,n=alice,r=client,tokenauth=true",
        b"n,,n=a=2Cb=3D,r=x",
    ]


TARGETS: Final = (
    Target(
        "jaas",
        lambda data: parse_jaas(_text(data)),
        (ConfigError,),
        lambda: [
            b'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" '
            b'password="b\\"\\061";',
            b"a.B optional /* x */ user_a='1' // y\n; c.D sufficient;",
        ],
        1024,
    ),
    Target("scram-server", _scram_server, (SaslError,), _login_seeds, 1024),
    Target(
        "scram-client",
        _scram_client,
        (SaslError,),
        lambda: [
            b"r=clientserver,s=MDEyMzQ1Njc4OWFiY2RlZg==,i=4096\0v=AAAA",
            b"r=clientx,s=AA==,i=4096\0e=no",
        ],
        512,
    ),
    Target(
        "plain", _plain, (SaslError,), lambda: [b"\0alice\0secret", b"alice\0alice\0secret", b"\0a\0b"], 512
    ),
    Target(
        "credential",
        _credential_text,
        (ValueError,),
        lambda: [encode_credential(_credential()).encode()],
        512,
    ),
    Target(
        "encoded-password", _encoded_password, (ConfigError,), lambda: [_encoder().encode("p").encode()], 1024
    ),
    Target("token", _token, (InvalidTokenError,), _token_seeds, 2048),
    Target("token-claims", _unsecured, (InvalidTokenError,), lambda: [json.dumps(_CLAIMS).encode()], 1024),
    Target(
        "bearer",
        _bearer,
        (SaslError,),
        lambda: [b"n,a=alice,\1auth=Bearer eyJhbGciOiJub25lIn0.e30.\1x=y\1\1", b"n,,\1auth=Bearer a\1\1"],
        1024,
    ),
    Target("jwks", parse_jwks, (ValueError,), _jwks_seeds, 2048),
    Target("stores", partial(_by_first, _STORES), (ConfigError,), _store_seeds),
    Target("certificate-name", subject_name, (ValueError,), lambda: [_identity()[1]], 2048),
    Target("principal-rules", _principal_rules, (ConfigError, NoMatchingRule), _rule_seeds, 8192),
    Target(
        "names-of-users",
        partial(_by_first, _NAMES),
        (ConfigError,),
        lambda: [
            b"\0User:alice",
            b"\1User:a;User:b",
            b"\2alice",
            b"\3example.org",
            b"\3::1",
            b"\4topic",
            b"\5READ",
        ],
        256,
    ),
)
