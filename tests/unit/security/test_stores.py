"""Key stores and trust stores, whole and damaged; and the contexts that are made of them."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minikafka.errors import ConfigError
from minikafka.security.tls import (
    KeyStore,
    check_trusts_itself,
    client_context,
    load_key_store,
    load_revocation_lists,
    load_trust_store,
    server_context,
    server_side,
)
from minikafka.security.tls_settings import StoreSettings, TlsSettings, client_tls_settings
from tests.support.certificates import (
    EXPIRED,
    CertificateAuthority,
    rsa_key,
)

PASSWORD = "a password"
AUTHORITY = CertificateAuthority()
BROKER = AUTHORITY.issue("broker", hosts=["localhost", "10.0.0.1"])


def key_store(**properties: str) -> StoreSettings:
    return made(**properties).key_store


def made(**properties: str) -> TlsSettings:
    """``keystore_type="PEM"`` is ``ssl.keystore.type``."""
    return client_tls_settings({f"ssl.{name.replace('_', '.')}": text for name, text in properties.items()})


def loaded(settings: StoreSettings) -> KeyStore:
    store = load_key_store(settings)
    assert store is not None
    return store


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """The server's side of a connection in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    served = server.wrap_bio(to_server, to_client, server_side=True)
    asking = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    sides = [asking, served]
    while sides:
        side = sides.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            sides.append(side)
    return served


class TestKeyStores:
    def test_pem_texts_and_files_encrypted_or_not(self, tmp_path: Path) -> None:
        texts = key_store(
            keystore_type="PEM",
            keystore_key=BROKER.key_pem(PASSWORD),
            keystore_certificate_chain=BROKER.chain_pem(),
            key_password=PASSWORD,
        )
        file = BROKER.write_pem(tmp_path / "broker.pem")
        encrypted = BROKER.write_pem(tmp_path / "encrypted.pem", password=PASSWORD)
        stores = [
            loaded(texts),
            loaded(key_store(keystore_type="PEM", keystore_location=str(file))),
            loaded(key_store(keystore_type="PEM", keystore_location=str(encrypted), key_password=PASSWORD)),
        ]
        assert stores[0] == stores[1] == stores[2]
        assert stores[0].alternative_names == {"localhost", "10.0.0.1"}
        assert b"PRIVATE" not in repr(stores[0]).encode()
        assert repr(stores[0]) == "KeyStore(CN=broker)"

    def test_the_order_within_a_file_does_not_matter(self, tmp_path: Path) -> None:
        middle = CertificateAuthority("middle", issuer=AUTHORITY)
        broker = middle.issue("broker")
        path = tmp_path / "store.pem"
        path.write_text(middle.pem() + "# a remark\n" + broker.chain_pem() + broker.key_pem())
        store = loaded(key_store(keystore_type="PEM", keystore_location=str(path)))
        assert store.chain.startswith(broker.chain_pem().encode()[:200])

    def test_pkcs12(self, tmp_path: Path) -> None:
        middle = CertificateAuthority("middle", issuer=AUTHORITY)
        broker = middle.issue("broker", key=rsa_key())
        path = str(broker.write_pkcs12(tmp_path / "broker.p12", PASSWORD))
        for kind in ("PKCS12", "JKS"):  # Java's JKS reads both
            store = loaded(key_store(keystore_type=kind, keystore_location=path, keystore_password=PASSWORD))
            assert store.chain.count(b"BEGIN CERTIFICATE") == 2

    def test_what_openssl_writes(self, tmp_path: Path) -> None:
        traditional = BROKER.key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        path = tmp_path / "openssl.pem"
        path.write_bytes(traditional + BROKER.chain_pem().encode())
        assert loaded(key_store(keystore_type="PEM", keystore_location=str(path))).expires_ms > 0
        source = BROKER.write_pem(tmp_path / "broker.pem")
        store = tmp_path / "openssl.p12"
        exporting = [
            "openssl",
            "pkcs12",
            "-export",
            "-in",
            source,
            "-out",
            store,
            "-passout",
            f"pass:{PASSWORD}",
        ]
        subprocess.run(exporting, check=True, timeout=60)
        assert loaded(
            key_store(keystore_type="PKCS12", keystore_location=str(store), keystore_password=PASSWORD)
        ).alternative_names == {"localhost", "10.0.0.1"}

    @pytest.mark.parametrize(
        ("content", "properties", "why"),
        [
            (None, {"keystore_type": "PEM"}, r"cannot read .*\(ssl\.keystore\.location\): No such file"),
            (b"", {"keystore_type": "PEM"}, "is no PEM file"),
            (b"\xfe\xed\xfe\xed\0\0", {"keystore_type": "PEM"}, "keytool -importkeystore"),
            (b"\xfe\xed\xfe\xed\0\0", {"keystore_type": "JKS", "keystore_password": "x"}, "keytool -importk"),
            (
                b"\xce\xce\xce\xce\0\0",
                {"keystore_type": "PKCS12", "keystore_password": "x"},
                "is a JKS store",
            ),
            (b"-----BEGIN X", {"keystore_password": "x"}, r"is a PEM file; set ssl\.keystore\.type=PEM"),
            (b"hello", {"keystore_type": "PKCS12", "keystore_password": "x"}, "is no PKCS #12 file"),
            (
                b"\x30\x80",
                {"keystore_type": "PKCS12", "keystore_password": "x"},
                "is ssl.keystore.password right",
            ),
            (
                BROKER.pkcs12(PASSWORD),
                {"keystore_type": "PKCS12", "keystore_password": "wrong"},
                r"is ssl\.keystore\.password right\?",
            ),
            (AUTHORITY.pkcs12(PASSWORD), {"keystore_password": PASSWORD}, "there is no private key in it"),
            (BROKER.chain_pem().encode(), {"keystore_type": "PEM"}, "there is no private key in it"),
            (BROKER.key_pem().encode(), {"keystore_type": "PEM"}, "there are no certificates in it"),
            (
                (BROKER.key_pem() + AUTHORITY.pem()).encode(),
                {"keystore_type": "PEM"},
                "has no certificate for its private key",
            ),
            (
                (BROKER.key_pem(PASSWORD) + BROKER.chain_pem()).encode(),
                {"keystore_type": "PEM"},
                r"is encrypted; set ssl\.key\.password",
            ),
            (
                (BROKER.key_pem(PASSWORD) + BROKER.chain_pem()).encode(),
                {"keystore_type": "PEM", "key_password": "wrong"},
                r"is ssl\.key\.password right\?",
            ),
            (
                b"-----BEGIN PRIVATE KEY-----\nrubbish\n-----END PRIVATE KEY-----\n",
                {"keystore_type": "PEM"},
                "the private key cannot be read",
            ),
            (
                BROKER.key_pem().encode() + b"-----BEGIN CERTIFICATE-----\nxx\n-----END CERTIFICATE-----\n",
                {"keystore_type": "PEM"},
                "a certificate cannot be read",
            ),
        ],
    )
    def test_what_cannot_be_used_is_named(
        self, content: bytes | None, properties: dict[str, str], why: str, tmp_path: Path
    ) -> None:
        path = tmp_path / "store"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError, match=why) as raised:
            load_key_store(key_store(keystore_location=str(path), **properties))
        assert PASSWORD not in str(raised.value)
        assert "PRIVATE KEY-----\nM" not in str(raised.value)

    def test_a_directory_and_a_huge_file_are_no_stores(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="cannot read"):
            load_key_store(key_store(keystore_type="PEM", keystore_location=str(tmp_path)))
        huge = tmp_path / "huge"
        with open(huge, "wb") as file:
            file.truncate(1 << 40)
        with pytest.raises(ConfigError, match="is larger than"):
            load_key_store(key_store(keystore_type="PEM", keystore_location=str(huge)))

    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.data())
    def test_a_damaged_store_is_an_error_of_one_kind(self, tmp_path: Path, data: st.DataObject) -> None:
        whole = data.draw(
            st.sampled_from([BROKER.pkcs12(PASSWORD), (BROKER.key_pem() + BROKER.chain_pem()).encode()])
        )
        position = data.draw(st.integers(0, len(whole) - 1))
        damaged = whole[:position] + data.draw(st.binary(max_size=3)) + whole[position + 1 :]
        path = tmp_path / "store"
        path.write_bytes(damaged)
        properties = (
            {"keystore_type": "PEM"}
            if whole.startswith(b"---")
            else {"keystore_type": "PKCS12", "keystore_password": PASSWORD}
        )
        try:
            load_key_store(key_store(keystore_location=str(path), **properties))
        except ConfigError:
            pass


class TestTrust:
    def test_pem_and_pkcs12(self, tmp_path: Path) -> None:
        other = CertificateAuthority("another")
        both = made(truststore_type="PEM", truststore_certificates=AUTHORITY.pem() + other.pem())
        assert len(load_trust_store(both.trust_store) or []) == 2
        path = AUTHORITY.write_pkcs12(tmp_path / "trust.p12", PASSWORD)
        store = made(
            truststore_type="PKCS12", truststore_location=str(path), truststore_password=PASSWORD
        ).trust_store
        assert load_trust_store(store) == [AUTHORITY.certificate.public_bytes(Encoding.DER)]
        assert load_trust_store(made().trust_store) is None

    def test_revocation_lists(self, tmp_path: Path) -> None:
        path = tmp_path / "lists.pem"
        path.write_text(AUTHORITY.revocation_list() + CertificateAuthority("b").revocation_list(BROKER))
        assert load_revocation_lists(str(path)).count(b"BEGIN") == 2
        path.write_text(AUTHORITY.pem())
        with pytest.raises(
            ConfigError, match=r"has no certificate revocation list, PEM \(ssl\.crl\.location\)"
        ):
            load_revocation_lists(str(path))
        path.write_text("-----BEGIN X509 CRL-----\nrubbish\n-----END X509 CRL-----\n")
        with pytest.raises(ConfigError, match="a revocation list cannot be read"):
            load_revocation_lists(str(path))


def pem(authority: CertificateAuthority, **properties: str) -> TlsSettings:
    credential = authority.issue("broker")
    return made(
        keystore_type="PEM",
        keystore_key=credential.key_pem(),
        keystore_certificate_chain=credential.chain_pem(),
        truststore_type="PEM",
        truststore_certificates=authority.pem(),
        **properties,
    )


class TestContexts:
    def test_a_listener_needs_a_key_store(self) -> None:
        with pytest.raises(ConfigError, match=r"needs a key store: set ssl\.keystore\.location"):
            server_context(made())

    def test_a_trust_store_that_is_set_must_be_there_though_clients_need_no_certificate(self) -> None:
        settings = pem(AUTHORITY)
        gone = settings.trust_store._replace(certificates=None, location="/nowhere/trust.pem")
        missing = settings._replace(trust_store=gone)
        assert missing.client_auth == "none"
        with pytest.raises(
            ConfigError, match=r"cannot read /nowhere/trust\.pem \(ssl\.truststore\.location\)"
        ):
            server_context(missing)

    def test_only_the_given_authorities_are_trusted(self) -> None:
        server = server_context(pem(AUTHORITY))
        handshake(server, client_context(pem(AUTHORITY)))
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(server, client_context(pem(CertificateAuthority("another"))))
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(server, client_context(made()))  # the system's do not know ours

    def test_an_intermediate_authority_may_be_the_trusted_one(self) -> None:
        middle = CertificateAuthority("middle", issuer=AUTHORITY)
        client = client_context(made(truststore_type="PEM", truststore_certificates=middle.pem()))
        assert handshake(server_context(pem(middle)), client).version() == "TLSv1.3"

    def test_ciphers(self) -> None:
        name = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
        server = server_context(pem(AUTHORITY, cipher_suites=name))
        chosen = handshake(server, client_context(pem(AUTHORITY))).cipher()
        assert chosen is not None and chosen[:2] == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2")

    @pytest.mark.skipif(hasattr(ssl.SSLContext, "set_ciphersuites"), reason="this Python can choose")
    def test_ciphers_of_tls_1_3_that_cannot_be_chosen_alone(self) -> None:
        with pytest.raises(
            ConfigError, match="name TLS_AES_128_GCM_SHA256, TLS_CHACHA20_POLY1305_SHA256 too"
        ):
            server_context(pem(AUTHORITY, cipher_suites="TLS_AES_256_GCM_SHA384"))

    def test_brokers_that_would_not_trust_each_other(self) -> None:
        settings = pem(AUTHORITY, client_auth="required")
        check_trusts_itself(settings, server_context(settings))
        foreign = settings._replace(trust_store=pem(CertificateAuthority("another")).trust_store)
        with pytest.raises(ConfigError, match="brokers would not connect to each other"):
            check_trusts_itself(foreign, server_context(foreign))

    def test_a_new_key_store_is_for_the_same_name(self) -> None:
        def side(name: str, hosts: list[str]) -> KeyStore:
            credential = AUTHORITY.issue(name, hosts=hosts)
            return server_side(
                made(
                    keystore_type="PEM",
                    keystore_key=credential.key_pem(),
                    keystore_certificate_chain=credential.chain_pem(),
                )
            )[1]

        old = side("broker", ["a", "b"])
        side("broker", ["a", "b", "c"]).check_replaces(old, allows_dn=False, allows_san=False)
        with pytest.raises(
            ConfigError, match=r"DistinguishedName does not match: existing=CN=broker, new=CN=x"
        ):
            side("x", ["a", "b"]).check_replaces(old, allows_dn=False, allows_san=False)
        side("x", ["a", "b"]).check_replaces(old, allows_dn=True, allows_san=False)
        with pytest.raises(ConfigError, match="SubjectAltNames do not match: existing=a, b, new=a"):
            side("broker", ["a"]).check_replaces(old, allows_dn=False, allows_san=False)
        side("broker", ["a"]).check_replaces(old, allows_dn=False, allows_san=True)

    def test_an_expired_key_store_still_makes_a_context(self) -> None:
        """As in Kafka: clients refuse it, and the broker warns."""
        credential = AUTHORITY.issue("broker", valid=EXPIRED)
        settings = made(
            keystore_type="PEM",
            keystore_key=credential.key_pem(),
            keystore_certificate_chain=credential.chain_pem(),
        )
        with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
            handshake(server_context(settings), client_context(pem(AUTHORITY)))
