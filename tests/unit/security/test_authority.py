"""The certificate authority: what its certificates hold for, and what a strict verifier says of them."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from minikafka.errors import ConfigError
from minikafka.security.directory import (
    AUTHORITY_LIFETIME,
    BROKER_LIFETIME,
    CLIENT_LIFETIME,
    CertificateAuthority,
    Issued,
    Revocation,
    key_store_pkcs12,
    trust_store_pkcs12,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
AUTHORITY = CertificateAuthority.create(now=NOW)


def certificate(issued: Issued) -> x509.Certificate:
    return x509.load_pem_x509_certificate(issued.certificate)


def policy(at: datetime) -> PolicyBuilder:
    trusted = Store([x509.load_pem_x509_certificate(AUTHORITY.certificate)])
    return PolicyBuilder().store(trusted).time(at)


@pytest.mark.parametrize("host", ["kafka.example.com", "localhost"])
def test_a_broker_is_who_its_name_says(host: str) -> None:
    issued = AUTHORITY.issue_broker("broker-1", ["Kafka.Example.com."], now=NOW)
    verifier = policy(NOW).build_server_verifier(x509.DNSName(host))
    assert verifier.verify(certificate(issued), [])


@pytest.mark.parametrize("address", ["10.1.2.3", "127.0.0.1", "::1", "fd00::5"])
def test_a_broker_is_reached_by_address(address: str) -> None:
    from ipaddress import ip_address

    issued = AUTHORITY.issue_broker("broker-1", ["10.1.2.3", "[fd00:0::5]"], now=NOW)
    verifier = policy(NOW).build_server_verifier(x509.IPAddress(ip_address(address)))
    assert verifier.verify(certificate(issued), [])


def test_a_broker_is_no_one_else() -> None:
    issued = AUTHORITY.issue_broker("broker-1", ["kafka.example.com"], now=NOW)
    with pytest.raises(VerificationError):
        policy(NOW).build_server_verifier(x509.DNSName("other.example.com")).verify(certificate(issued), [])


def test_a_client_cannot_pose_as_a_broker() -> None:
    """The common name is a host's, and old clients looked there."""
    issued = AUTHORITY.issue_client("localhost", now=NOW)
    with pytest.raises(VerificationError):
        policy(NOW).build_server_verifier(x509.DNSName("localhost")).verify(certificate(issued), [])
    usages = certificate(issued).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert x509.oid.ExtendedKeyUsageOID.SERVER_AUTH not in usages


def test_a_clients_common_name_is_its_user() -> None:
    names = certificate(AUTHORITY.issue_client("alice", now=NOW)).subject
    assert [name.value for name in names] == ["alice"]
    assert [name.oid for name in names] == [NameOID.COMMON_NAME]


def test_certificates_end() -> None:
    issued = AUTHORITY.issue_broker("broker-1", [], now=NOW)
    name = x509.DNSName("localhost")
    for at in (NOW - timedelta(minutes=59), NOW + BROKER_LIFETIME - timedelta(minutes=1)):
        policy(at).build_server_verifier(name).verify(certificate(issued), [])
    for at in (NOW - timedelta(hours=2), NOW + BROKER_LIFETIME + timedelta(minutes=1)):
        with pytest.raises(VerificationError):
            policy(at).build_server_verifier(name).verify(certificate(issued), [])
    assert AUTHORITY.issue_client("alice", now=NOW).not_after == NOW + CLIENT_LIFETIME


def test_no_certificate_outlives_its_authority() -> None:
    late = NOW + AUTHORITY_LIFETIME - timedelta(days=3)
    assert AUTHORITY.issue_client("alice", now=late).not_after == AUTHORITY.not_after
    with pytest.raises(ConfigError, match="the certificate authority has expired on 2036-02-27"):
        AUTHORITY.issue_client("alice", now=NOW + AUTHORITY_LIFETIME)


def test_an_issued_certificate_issues_none() -> None:
    issued = AUTHORITY.issue_broker("broker-1", [], now=NOW)
    forged = CertificateAuthority.load(issued.key, issued.certificate).issue_broker("evil", [], now=NOW)
    with pytest.raises(VerificationError):
        policy(NOW).build_server_verifier(x509.DNSName("localhost")).verify(
            certificate(forged), [certificate(issued)]
        )


def test_revoked_serials_are_on_the_list_which_the_authority_has_signed() -> None:
    bad, good = (AUTHORITY.issue_client(name, now=NOW) for name in ("bad", "good"))
    crl = x509.load_pem_x509_crl(AUTHORITY.revocation_list([Revocation(bad.serial, NOW)], now=NOW))
    issuer = x509.load_pem_x509_certificate(AUTHORITY.certificate)
    assert crl.is_signature_valid(issuer.public_key())  # type: ignore[arg-type]
    assert crl.get_revoked_certificate_by_serial_number(bad.serial) is not None
    assert crl.get_revoked_certificate_by_serial_number(good.serial) is None
    assert crl.next_update_utc == AUTHORITY.not_after


def handshake(client: Issued, *, revoked: list[Revocation]) -> None:
    """A TLS 1.3 handshake in memory, with OpenSSL's strictest checks on both sides. Raises ssl.SSLError."""
    now = datetime.now(UTC)
    broker = AUTHORITY.issue_broker("broker-1", [], now=now)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client_side = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context, issued in ((server_side, broker), (client_side, client)):
        load_chain(context, issued)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_verify_locations(cadata=AUTHORITY.certificate.decode())
    server_side.verify_mode = ssl.CERT_REQUIRED
    server_side.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    load_crl(server_side, AUTHORITY.revocation_list(revoked, now=now))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client_side.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server_side.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(3):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass


def load_chain(context: ssl.SSLContext, issued: Issued) -> None:
    from tempfile import NamedTemporaryFile

    with NamedTemporaryFile() as file:
        file.write(issued.key + issued.certificate)
        file.flush()
        context.load_cert_chain(file.name)


def load_crl(context: ssl.SSLContext, crl: bytes) -> None:
    from tempfile import NamedTemporaryFile

    with NamedTemporaryFile() as file:
        file.write(crl)
        file.flush()
        context.load_verify_locations(file.name)


def test_openssl_takes_a_client_until_it_is_revoked() -> None:
    now = datetime.now(UTC)
    authority_is_valid_now = now < AUTHORITY.not_after
    assert authority_is_valid_now
    client = AUTHORITY.issue_client("alice", now=now)
    handshake(client, revoked=[])
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate revoked"):
        handshake(client, revoked=[Revocation(client.serial, now)])


def test_pkcs12() -> None:
    issued = AUTHORITY.issue_client("alice", now=NOW)
    store = key_store_pkcs12("alice", issued.key, issued.certificate, AUTHORITY.certificate, password="p4ss")
    key, found, others = pkcs12.load_key_and_certificates(store, b"p4ss")
    assert key is not None and found is not None
    assert found.serial_number == issued.serial and len(others) == 1
    with pytest.raises(ValueError, match="password"):
        pkcs12.load_key_and_certificates(store, b"wrong")
    trusted = pkcs12.load_pkcs12(trust_store_pkcs12(AUTHORITY.certificate, password="p4ss"), b"p4ss")
    assert len(trusted.additional_certs) == 1


def test_an_authority_is_what_it_was_when_it_is_loaded_again() -> None:
    again = CertificateAuthority.load(AUTHORITY.key, AUTHORITY.certificate)
    issued = again.issue_broker("broker-1", [], now=NOW)
    policy(NOW).build_server_verifier(x509.DNSName("localhost")).verify(certificate(issued), [])


def test_a_key_of_another_authority_is_refused() -> None:
    other = CertificateAuthority.create(now=NOW)
    with pytest.raises(ConfigError, match="not the one of its certificate"):
        CertificateAuthority.load(other.key, AUTHORITY.certificate)
    with pytest.raises(ConfigError, match="no private key in PEM"):
        CertificateAuthority.load(b"nonsense", AUTHORITY.certificate)


@pytest.mark.parametrize(
    "name", ["", "a" * 65, "../../etc/passwd", ".", "..", "a/b", "CN=admin", "a,CN=b", "é", "a\n", "-x"]
)
def test_names_that_are_no_names(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a name"):
        AUTHORITY.issue_client(name, now=NOW)


@pytest.mark.parametrize(
    "host", ["", "*", "*.example.com", "a b", "http://a", "a:9092", "a..b", "300.1.2.3", "x" * 64, "é.de"]
)
def test_hosts_that_are_no_hosts(host: str) -> None:
    with pytest.raises(ConfigError, match="neither a host name nor an address"):
        AUTHORITY.issue_broker("broker-1", [host], now=NOW)


def test_a_private_key_is_in_no_repr() -> None:
    assert repr(AUTHORITY).startswith("CertificateAuthority(CN=minikafka authority ")
