"""What Kafka's ssl properties come to, and what is wrong with those that cannot be meant."""

from __future__ import annotations

import pytest

from minikafka.config.security import SecurityConfig, listener_property_names
from minikafka.errors import ConfigError
from minikafka.security.tls_settings import (
    TlsSettings,
    client_tls_settings,
    openssl_cipher,
    tls_settings,
)

PEM_STORE = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/broker.pem"}


def test_defaults() -> None:
    settings = client_tls_settings({"bootstrap.servers": "x", "ssl.unknown": "y"})
    assert settings.versions == ("TLSv1.2", "TLSv1.3")
    assert settings.ciphers == settings.ciphers_of_tls_1_3 == ()
    assert settings.checks_host_name
    assert not settings.key_store.is_set and not settings.trust_store.is_set
    assert settings.files == ()


def test_a_listener_and_a_client_with_the_same_properties_have_the_same() -> None:
    security = SecurityConfig(
        ssl_keystore_type="PEM", ssl_keystore_location="/broker.pem", ssl_crl_location="/crl"
    )
    of_listener = tls_settings(security)
    assert of_listener == client_tls_settings({**PEM_STORE, "ssl.crl.location": "/crl"})
    assert of_listener.files == ("/broker.pem", "/crl")


def test_an_empty_value_is_unset_and_an_empty_algorithm_checks_no_name() -> None:
    settings = client_tls_settings({"ssl.keystore.location": "", "ssl.endpoint.identification.algorithm": ""})
    assert settings.key_store.location is None
    assert not settings.checks_host_name


@pytest.mark.parametrize(
    ("properties", "versions"),
    [
        ({"ssl.enabled.protocols": "TLSv1.3"}, ("TLSv1.3",)),
        ({"ssl.enabled.protocols": "TLSv1.3,TLSv1.2"}, ("TLSv1.2", "TLSv1.3")),
        ({"ssl.protocol": "TLSv1.2"}, ("TLSv1.2",)),
        ({"ssl.protocol": "TLS"}, ("TLSv1.2", "TLSv1.3")),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, ("TLSv1.3",)),
        ({"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}, ("TLSv1.2",)),
    ],
)
def test_versions(properties: dict[str, str], versions: tuple[str, ...]) -> None:
    assert client_tls_settings(properties).versions == versions


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "TLSv1.1 for configuration ssl.enabled.protocols"),
        ({"ssl.enabled.protocols": "SSLv3"}, "not safe"),
        ({"ssl.protocol": "TLSv1"}, "TLSv1 for configuration ssl.protocol"),
        (
            {"ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.3"},
            "has no version up to ssl.protocol",
        ),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_RC4_128_MD5"}, "no such cipher suite"),
        (
            {"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384", "ssl.enabled.protocols": "TLSv1.2"},
            "has no cipher for the versions",
        ),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "must be https"),
        ({"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"}, r"set ssl\.keystore\.type=PEM"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.key": "k"}, "certificate chain is not specified"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "c"}, "private key is not specified"),
        (
            {**PEM_STORE, "ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"},
            "both ssl.keystore.location and ssl.keystore.key are set",
        ),
        ({**PEM_STORE, "ssl.keystore.password": "p"}, r"set ssl\.key\.password instead"),
        ({"ssl.keystore.password": "p"}, "key store is not specified, but key store password"),
        ({"ssl.keystore.location": "/x.p12"}, "key store password is not specified"),
        ({"ssl.truststore.certificates": "c"}, r"set ssl\.truststore\.type=PEM"),
        (
            {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": "c",
                "ssl.truststore.location": "/x",
            },
            "Both SSL trust store location and separate trust certificates",
        ),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/x", "ssl.truststore.password": "p"},
            "cannot be specified for PEM format",
        ),
        ({"ssl.truststore.password": "p"}, "trust store is not specified, but trust store password"),
        ({"ssl.keystore.type": "BKS"}, "String must be one of: JKS, PKCS12, PEM"),
    ],
)
def test_what_cannot_be_meant(properties: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        client_tls_settings(properties)


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        (["ssl.keystore.location"], r"set ssl\.keystore\.password, or ssl\.keystore\.type"),
        (
            ["listener.name.external.ssl.keystore.location"],
            r"set listener\.name\.external\.ssl\.keystore\.password, or listener\.name\.external\.ssl\.",
        ),
        (
            ["listener.name.EXTERNAL.ssl.keystore.location", "ssl.keystore.type"],
            r"set listener\.name\.external\.ssl\.keystore\.password, or ssl\.keystore\.type",
        ),
        (["ssl.keystore.location", "listener.name.other.ssl.keystore.type"], r"set ssl\.keystore\.password"),
        (
            ["ssl.keystore.location", "listener.name.external.sasl.jaas.config"],
            r"set ssl\.keystore\.password",
        ),
    ],
)
def test_errors_name_properties_as_they_are_set(properties: list[str], why: str) -> None:
    names = listener_property_names("EXTERNAL", "ssl.", dict.fromkeys(properties, "x"))
    with pytest.raises(ConfigError, match=why):
        tls_settings(SecurityConfig(ssl_keystore_location="/x"), names)


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("AES128-SHA", "AES128-SHA"),
        ("TLS_DH_anon_WITH_AES_128_CBC_SHA", None),
        ("TLS_RSA_WITH_NULL_SHA", None),
        ("aNULL", None),
        ("ALL:@SECLEVEL=0", None),
    ],
)
def test_ciphers_have_javas_names(java: str, openssl: str | None) -> None:
    assert openssl_cipher(java) == openssl


def test_no_secret_is_in_a_repr() -> None:
    settings: TlsSettings = client_tls_settings(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": "SECRET-KEY",
            "ssl.keystore.certificate.chain": "chain",
            "ssl.key.password": "SECRET-PASSWORD",
        }
    )
    security = SecurityConfig(ssl_key_password="SECRET-PASSWORD", sasl_jaas_config="SECRET-JAAS")
    assert "SECRET" not in repr(settings) + str(settings.key_store) + repr(security)
    assert "ssl_key_password" in repr(security)
