"""A certificate authority of one's own: certificates for brokers and clients, and what has been revoked.

Apache Kafka leaves this to keytool and openssl (its documentation: "Encryption and Authentication using
SSL"). Keys are on the curve P-256, which every client knows and which are made in a millisecond. A broker's
certificate holds for the names that clients connect to, and serves both ways, because brokers connect to
brokers; a client's holds for a client alone, so that no client can pose as a broker. All carry what RFC 5280
demands of a verifier that is strict, as OpenSSL's is for Python 3.13.

Bytes in, bytes out: ``security.directory`` keeps them. ``now`` is an argument, UTC. Keys and serial numbers
come from OpenSSL's generator.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from minikafka.errors import ConfigError
from minikafka.security.certificate_names import broker_hosts, check_name

AUTHORITY_LIFETIME = timedelta(days=3650)
BROKER_LIFETIME = timedelta(days=825)
"""The longest that Apple's verifier, the strictest in use, takes from a server of a private authority."""
CLIENT_LIFETIME = timedelta(days=365)
BACKDATED = timedelta(hours=1)
"""A certificate is valid at once, also on a machine whose clock is behind."""


class Issued(NamedTuple):
    """A new key with its certificate."""

    key: bytes
    """PEM, PKCS #8, not encrypted."""
    certificate: bytes
    """PEM, without the authority's."""
    serial: int
    not_before: datetime
    not_after: datetime


class Revocation(NamedTuple):
    serial: int
    at: datetime


class CertificateAuthority:
    """An authority with its key."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    def __repr__(self) -> str:
        return f"CertificateAuthority({self._certificate.subject.rfc4514_string()})"

    @classmethod
    def create(cls, *, now: datetime) -> CertificateAuthority:
        """A new one. Its name differs from that of any other, so that stores with two can tell them apart."""
        key = ec.generate_private_key(ec.SECP256R1())
        serial = x509.random_serial_number()
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"minikafka authority {serial:040x}"[:32])])
        certificate = (
            _builder(name, name, key.public_key(), serial, now, now + AUTHORITY_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @classmethod
    def load(cls, key: bytes, certificate: bytes) -> CertificateAuthority:
        """From PEM.

        Raises:
            ConfigError: they are not what ``create`` makes, or do not belong together.
        """
        try:
            private = load_pem_private_key(key, password=None)
        except (ValueError, TypeError):  # TypeError: the key is encrypted
            raise ConfigError("the authority's key is no private key in PEM without a password") from None
        try:
            public = x509.load_pem_x509_certificate(certificate)
        except ValueError:
            raise ConfigError("the authority's certificate is none in PEM") from None
        if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != public.public_key():
            raise ConfigError("the authority's key is not the one of its certificate")
        return cls(private, public)

    @property
    def key(self) -> bytes:
        """PEM, PKCS #8, not encrypted."""
        return _key_pem(self._key)

    @property
    def certificate(self) -> bytes:
        """PEM."""
        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def not_after(self) -> datetime:
        return self._certificate.not_valid_after_utc

    def issue_broker(self, name: str, hosts: Sequence[str], *, now: datetime) -> Issued:
        """For a broker that is reached under ``hosts`` and ``LOCAL_NAMES``.

        Raises:
            ConfigError: a name or host cannot be in a certificate.
        """
        alternatives = [_general_name(host) for host in broker_hosts(hosts)]
        return self._issue(
            check_name(name),
            now=now,
            lifetime=BROKER_LIFETIME,
            usages=[ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
            alternatives=x509.SubjectAlternativeName(alternatives),
        )

    def issue_client(self, name: str, *, now: datetime) -> Issued:
        """For a client, whose common name is ``name``. Raises ConfigError: no certificate can have it."""
        return self._issue(
            check_name(name), now=now, lifetime=CLIENT_LIFETIME, usages=[ExtendedKeyUsageOID.CLIENT_AUTH]
        )

    def revocation_list(self, revocations: Iterable[Revocation], *, now: datetime) -> bytes:
        """A CRL, PEM. It holds as long as the authority: brokers read it from a file that is replaced, and a
        list that ran out would refuse everybody."""
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._certificate.subject)
            .last_update(now - BACKDATED)
            .next_update(max(self.not_after, now + timedelta(days=1)))
            .add_extension(self._authority_key_identifier(), critical=False)
            .add_extension(x509.CRLNumber(int(now.timestamp() * 1000)), critical=False)
        )
        for serial, at in revocations:
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(at).build()
            builder = builder.add_revoked_certificate(revoked)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def _issue(
        self,
        name: str,
        *,
        now: datetime,
        lifetime: timedelta,
        usages: list[x509.ObjectIdentifier],
        alternatives: x509.SubjectAlternativeName | None = None,
    ) -> Issued:
        if now >= self.not_after:
            raise ConfigError(
                f"the certificate authority has expired on {self.not_after:%Y-%m-%d}: make a new one"
            )
        key = ec.generate_private_key(ec.SECP256R1())
        serial = x509.random_serial_number()
        not_after = min(now + lifetime, self.not_after)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            _builder(subject, self._certificate.subject, key.public_key(), serial, now, not_after)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(self._authority_key_identifier(), critical=False)
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Issued(
            _key_pem(key),
            certificate.public_bytes(Encoding.PEM),
            serial,
            certificate.not_valid_before_utc,
            certificate.not_valid_after_utc,
        )

    def _authority_key_identifier(self) -> x509.AuthorityKeyIdentifier:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())


def key_store_pkcs12(name: str, key: bytes, certificate: bytes, authority: bytes, *, password: str) -> bytes:
    """Key, certificate and the authority's, from PEM, as a PKCS12 key store."""
    private = load_pem_private_key(key, password=None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    return pkcs12.serialize_key_and_certificates(
        name.encode(),
        private,
        x509.load_pem_x509_certificate(certificate),
        [x509.load_pem_x509_certificate(authority)],
        BestAvailableEncryption(password.encode()),
    )


def trust_store_pkcs12(authority: bytes, *, password: str) -> bytes:
    """The authority's certificate, from PEM, as a PKCS12 trust store with the attribute that Java wants."""
    trusted = pkcs12.PKCS12Certificate(x509.load_pem_x509_certificate(authority), b"authority")
    return pkcs12.serialize_java_truststore([trusted], BestAvailableEncryption(password.encode()))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    serial: int,
    now: datetime,
    not_after: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(serial)
        .not_valid_before(now - BACKDATED)
        .not_valid_after(not_after)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
