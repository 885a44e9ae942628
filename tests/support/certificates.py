"""Certificates for tests: an authority, and what it issues, as objects, PEM text or PKCS #12 bytes.

    authority = CertificateAuthority()
    server = authority.issue("broker", hosts=("localhost", "127.0.0.1"))
    client = authority.issue("alice")
    late = authority.issue("broker", valid=EXPIRED)
    key_store = server.write_pem(tmp_path / "broker.pem")
    trust_store = authority.write_pem(tmp_path / "ca.pem")

Elliptic curve keys, unless RSA is asked for: they are made in a millisecond, RSA's in a tenth of a second.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Validity(NamedTuple):
    """From and until when, in days from now."""

    from_days: float
    until_days: float


VALID = Validity(-1, 30)
EXPIRED = Validity(-30, -1)
NOT_YET_VALID = Validity(1, 30)


class Credential(NamedTuple):
    """A key with its certificate, and the certificates of the authorities between it and the root."""

    key: PrivateKey
    certificate: x509.Certificate
    chain: tuple[x509.Certificate, ...] = ()

    def key_pem(self, password: str | None = None) -> str:
        """PKCS #8, encrypted where there is a password."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, _encryption(password)).decode()

    def chain_pem(self) -> str:
        return "".join(each.public_bytes(Encoding.PEM).decode() for each in (self.certificate, *self.chain))

    def pkcs12(self, password: str | None, *, name: str = "test") -> bytes:
        return pkcs12.serialize_key_and_certificates(
            name.encode(), self.key, self.certificate, self.chain, _encryption(password)
        )

    def write_pem(self, path: Path, *, password: str | None = None) -> Path:
        """Key and certificates in one file, as Kafka's PEM key stores have them (KIP-651)."""
        path.write_text(self.key_pem(password) + self.chain_pem())
        return path

    def write_pkcs12(self, path: Path, password: str) -> Path:
        path.write_bytes(self.pkcs12(password))
        return path


class CertificateAuthority:
    """Signs certificates with a key of its own; with ``issuer`` it is an authority under another one."""

    def __init__(self, name: str = "Test CA", *, issuer: CertificateAuthority | None = None) -> None:
        self.key: PrivateKey = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._issuer = issuer
        signer = issuer or self
        builder = _builder(self.name, signer.name, self.key, Validity(-365, 365)).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        builder = builder.add_extension(_key_usage(is_authority=True), critical=True)
        self.certificate = _identified(builder, self.key, signer.key).sign(signer.key, hashes.SHA256())

    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def write_pem(self, path: Path) -> Path:
        path.write_text(self.pem())
        return path

    def pkcs12(self, password: str) -> bytes:
        """A trust store as keytool -importcert makes it, but for the attribute that marks trusted entries."""
        return pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(self.certificate, b"ca")], _encryption(password)
        )

    def write_pkcs12(self, path: Path, password: str) -> Path:
        path.write_bytes(self.pkcs12(password))
        return path

    def issue(
        self,
        common_name: str = "broker",
        *,
        hosts: Sequence[str] = ("localhost", "127.0.0.1", "::1"),
        subject: x509.Name | None = None,
        valid: Validity = VALID,
        usages: Sequence[x509.ObjectIdentifier] = (
            ExtendedKeyUsageOID.SERVER_AUTH,
            ExtendedKeyUsageOID.CLIENT_AUTH,
        ),
        key: PrivateKey | None = None,
    ) -> Credential:
        """A certificate for both sides of a connection. ``subject`` instead of ``CN=common_name``;
        ``hosts``: its alternative names, addresses or DNS names."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        subject = subject or x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        builder = _builder(subject, self.name, key, valid)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(is_authority=False), critical=True)
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = _identified(builder, key, self.key).sign(self.key, hashes.SHA256())
        return Credential(key, certificate, () if self._issuer is None else (self.certificate,))

    def revocation_list(self, *revoked: Credential, valid: Validity = VALID) -> str:
        """A list (CRL) of certificates that hold no longer, PEM."""
        now = datetime.now(UTC)
        builder = x509.CertificateRevocationListBuilder(
            issuer_name=self.name,
            last_update=now + timedelta(days=valid.from_days),
            next_update=now + timedelta(days=valid.until_days),
        )
        for credential in revoked:
            entry = x509.RevokedCertificateBuilder(
                serial_number=credential.certificate.serial_number,
                revocation_date=now - timedelta(hours=1),
            ).build()
            builder = builder.add_revoked_certificate(entry)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: PrivateKey, valid: Validity
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now + timedelta(days=valid.from_days),
        not_valid_after=now + timedelta(days=valid.until_days),
    )


def _identified(
    builder: x509.CertificateBuilder, key: PrivateKey, signer: PrivateKey
) -> x509.CertificateBuilder:
    """With the identifiers of both keys, which strict verifiers (OpenSSL's X509_STRICT) ask for."""
    return builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
    ).add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=not is_authority,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _encryption(password: str | None) -> KeySerializationEncryption:
    return NoEncryption() if password is None else BestAvailableEncryption(password.encode())
