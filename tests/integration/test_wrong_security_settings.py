"""Security settings that cannot work: the start says in one line which, and what to do, without a secret."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.certificates import EXPIRED, NOT_YET_VALID, CertificateAuthority

pytestmark = pytest.mark.minikafka_only

SECRET = "topsecret"
WAIT_S = 60

SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
FILE_PROVIDER = {
    "config.providers": "file",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
}
OPEN = {"listeners": "PLAINTEXT://localhost:0"}
TLS = {
    "listeners": "SSL://localhost:0",
    "security.inter.broker.protocol": "SSL",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "{stores}/broker.pem",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": "{stores}/ca.pem",
}
PKCS12 = TLS | {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "{stores}/broker.p12"}
SCRAM_LOGIN = "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config"
SASL = {"listeners": "SASL_PLAINTEXT://localhost:0", "security.inter.broker.protocol": "SASL_PLAINTEXT"}
SCRAM = SASL | {SCRAM_LOGIN: f'{SCRAM_MODULE} required username="broker" password="{SECRET}";'}
TOKENS = SCRAM | {"sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER"}
ACLS = OPEN | {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
ZOOKEEPER = OPEN | {"zookeeper.connect": "localhost:1"}


class Wrong(NamedTuple):
    settings: Mapping[str, str]
    said: tuple[str, ...]
    """Parts of the line."""


CASES = {
    "no key store": Wrong(
        {"listeners": "SSL://localhost:0", "security.inter.broker.protocol": "SSL"},
        ("has no key store: set ssl.keystore.location and ssl.keystore.type (PEM or PKCS12)",),
    ),
    "a key store that is not there": Wrong(
        TLS | {"ssl.keystore.location": "{stores}/none.pem"},
        ("cannot read {stores}/none.pem", "ssl.keystore.location", "No such file"),
    ),
    "a trust store that is not there": Wrong(
        TLS | {"ssl.truststore.location": "{stores}/none.pem"},
        ("cannot read {stores}/none.pem", "ssl.truststore.location", "No such file"),
    ),
    "a key store that is a directory": Wrong(
        TLS | {"ssl.keystore.location": "{stores}"}, ("cannot read {stores}", "Is a directory")
    ),
    "a wrong password of a key store": Wrong(
        PKCS12 | {"ssl.keystore.password": SECRET},
        ("{stores}/broker.p12: cannot be read as PKCS #12", "ssl.keystore.password right?"),
    ),
    "no password of a key store": Wrong(
        PKCS12, ("key store password is not specified", "ssl.keystore.password, or", "ssl.keystore.type=PEM")
    ),
    "a wrong password of a key": Wrong(
        TLS | {"ssl.keystore.location": "{stores}/encrypted.pem", "ssl.key.password": SECRET},
        ("{stores}/encrypted.pem: the private key cannot be decrypted", "ssl.key.password right?"),
    ),
    "no password of a key": Wrong(
        TLS | {"ssl.keystore.location": "{stores}/encrypted.pem"},
        ("{stores}/encrypted.pem: the private key is encrypted; set", "ssl.key.password"),
    ),
    "a JKS store": Wrong(
        PKCS12 | {"ssl.keystore.location": "{stores}/broker.jks", "ssl.keystore.password": SECRET},
        ("{stores}/broker.jks: is a JKS store", "keytool -importkeystore", "-deststoretype PKCS12"),
    ),
    "a key store without a certificate": Wrong(
        TLS | {"ssl.keystore.location": "{stores}/key.pem"},
        ("{stores}/key.pem: there are no certificates in it",),
    ),
    "a certificate for another key": Wrong(
        TLS | {"ssl.keystore.location": "{stores}/mixed.pem"},
        ("{stores}/mixed.pem: has no certificate for its private key",),
    ),
    "no PEM in a PEM store": Wrong(
        TLS | {"ssl.truststore.location": "{stores}/notes.txt"},
        ("{stores}/notes.txt: is no PEM file", "ssl.truststore.type=PKCS12"),
    ),
    "an expired certificate": Wrong(
        TLS | {"ssl.keystore.location": "{stores}/expired.pem"},
        ("{stores}/expired.pem", "ssl.keystore.location", "certificate has expired"),
    ),
    "a certificate that does not hold yet": Wrong(
        TLS | {"ssl.keystore.location": "{stores}/early.pem"},
        ("{stores}/early.pem", "certificate is not yet valid"),
    ),
    "brokers that do not trust each other": Wrong(
        {name: value for name, value in TLS.items() if "truststore" not in name},
        ("brokers would not connect to each other", "ssl.truststore.location is not set"),
    ),
    "a list of revoked certificates that is not there": Wrong(
        TLS | {"ssl.crl.location": "{stores}/none.crl"},
        ("cannot read {stores}/none.crl (ssl.crl.location)",),
    ),
    "a version of TLS that is not safe": Wrong(
        TLS | {"ssl.enabled.protocols": "TLSv1.1"}, ("TLSv1.1", "ssl.enabled.protocols", "TLSv1.2, TLSv1.3")
    ),
    "an unknown cipher suite": Wrong(
        TLS | {"ssl.cipher.suites": "ROT13"}, ("ROT13", "ssl.cipher.suites", "names are Java's")
    ),
    "a mapping rule without its end": Wrong(
        TLS | {"ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1"},
        ("ssl.principal.mapping.rules", "RULE:pattern/replacement/"),
    ),
    "a mapping rule that is no pattern": Wrong(
        TLS | {"ssl.principal.mapping.rules": "RULE:^CN=(.*$/$1/"},
        ("ssl.principal.mapping.rules", "missing )", "RE2"),
    ),
    "Kerberos": Wrong(
        SCRAM | {"sasl.enabled.mechanisms": "GSSAPI"},
        ("sasl.enabled.mechanisms", "Kerberos is not there", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
    ),
    "an unknown mechanism": Wrong(
        SCRAM | {"sasl.enabled.mechanisms": "SCRAM-SHA-1"},
        ("SCRAM-SHA-1", "sasl.enabled.mechanisms", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
    ),
    "the brokers' mechanism is not enabled": Wrong(
        SCRAM | {"sasl.enabled.mechanisms": "SCRAM-SHA-256"},
        ("sasl.mechanism.inter.broker.protocol (SCRAM-SHA-512) must be included in sasl.enabled.mechanisms",),
    ),
    "brokers without a login": Wrong(SASL, ("sasl.jaas.config is not set", SCRAM_LOGIN, SCRAM_MODULE)),
    "PLAIN without users": Wrong(
        SCRAM | {"sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN"},
        ("has no users: set listener.name.sasl_plaintext.plain.sasl.jaas.config", "user_NAME="),
    ),
    "a login without its semicolon": Wrong(
        SASL | {SCRAM_LOGIN: f'{SCRAM_MODULE} required username="broker" password="{SECRET}"'},
        ("not terminated by semi-colon", SCRAM_LOGIN),
    ),
    "another mechanism's login": Wrong(
        SASL | {SCRAM_LOGIN: f'{PLAIN_MODULE} required username="broker" password="{SECRET}";'},
        (f"must be {SCRAM_MODULE}, not {PLAIN_MODULE}", SCRAM_LOGIN),
    ),
    "tokens without keys to check them": Wrong(
        TOKENS, ("OAUTHBEARER", "needs sasl.oauthbearer.jwks.endpoint.url")
    ),
    "keys at no URL": Wrong(
        TOKENS | {"sasl.oauthbearer.jwks.endpoint.url": "issuer/keys"},
        ("issuer/keys", "sasl.oauthbearer.jwks.endpoint.url", "a file: or an https: URL"),
    ),
    "a class of one's own": Wrong(
        TOKENS | {"sasl.server.callback.handler.class": "com.example.Mine"},
        ("com.example.Mine", "sasl.server.callback.handler.class", "no Java class is loaded"),
    ),
    "two ways to name the brokers' listener": Wrong(
        TLS | {"inter.broker.listener.name": "SSL"},
        ("Only one of inter.broker.listener.name and security.inter.broker.protocol should be set",),
    ),
    "brokers on a listener that is not there": Wrong(
        OPEN | {"inter.broker.listener.name": "INSIDE"}, ("INSIDE", "inter.broker.listener.name")
    ),
    "a listener without a protocol": Wrong(
        {"listeners": "EXTERNAL://localhost:0"},
        ("listener.security.protocol.map has no security protocol for EXTERNAL",),
    ),
    "super users without a type": Wrong(
        ACLS | {"super.users": "admin"}, ("super.users=admin", "principalType:principalName")
    ),
    "an authorizer of one's own": Wrong(
        OPEN | {"authorizer.class.name": "com.example.Mine"},
        ("authorizer.class.name=com.example.Mine: must be kafka.security.authorizer.AclAuthorizer or",),
    ),
    "a password in a file that is not there": Wrong(
        PKCS12 | FILE_PROVIDER | {"ssl.keystore.password": "${file:/nowhere/secrets:password}"},
        ("ssl.keystore.password", "cannot read /nowhere/secrets: No such file"),
    ),
    "a password under another name": Wrong(
        PKCS12 | FILE_PROVIDER | {"ssl.keystore.password": "${file:{stores}/secrets:pasword}"},
        ("ssl.keystore.password", "{stores}/secrets has no pasword"),
    ),
    "a login to ZooKeeper that is none": Wrong(
        ZOOKEEPER | {"zookeeper.sasl.jaas.config": f"Digest password={SECRET}"},
        ("configuration zookeeper.sasl.jaas.config", "the control flag must be one of required"),
    ),
    "protected nodes without a login": Wrong(
        ZOOKEEPER | {"zookeeper.set.acl": "true"},
        ("zookeeper.set.acl is true", "set zookeeper.sasl.jaas.config, or zookeeper.ssl.client.enable"),
    ),
    "an HTTP port with a store that is not there": Wrong(
        OPEN | {"http.ssl.keystore.type": "PEM", "http.ssl.keystore.location": "{stores}/none.pem"},
        ("cannot read {stores}/none.pem (http.ssl.keystore.location)",),
    ),
    "a user of the HTTP port without a password": Wrong(
        OPEN | {"http.basic.auth.users": SECRET}, ("http.basic.auth.users: must be NAME:PASSWORD",)
    ),
    "a listener's property with a typo": Wrong(
        TLS | {"listener.name.ssl.ssl.client.aut": "required"},
        ("listener.name.ssl.ssl.client.aut is not a property", "mean listener.name.ssl.ssl.client.auth?"),
    ),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("stores")
    authority = CertificateAuthority()
    broker, other = authority.issue(), authority.issue()
    authority.write_pem(directory / "ca.pem")
    broker.write_pem(directory / "broker.pem")
    broker.write_pem(directory / "encrypted.pem", password="sesame")
    broker.write_pkcs12(directory / "broker.p12", "sesame")
    authority.issue(valid=EXPIRED).write_pem(directory / "expired.pem")
    authority.issue(valid=NOT_YET_VALID).write_pem(directory / "early.pem")
    (directory / "key.pem").write_text(broker.key_pem())
    (directory / "mixed.pem").write_text(broker.key_pem() + other.chain_pem())
    (directory / "broker.jks").write_bytes(bytes.fromhex("feedfeed00000002") + bytes(40))
    (directory / "notes.txt").write_text("ask Ann for the certificate")
    (directory / "secrets").write_text(f"password={SECRET}\n")
    return directory


@pytest.mark.parametrize("name", CASES)
def test_the_start_says_what_is_wrong(name: str, stores: Path, tmp_path: Path) -> None:
    settings, said = CASES[name]
    given = [
        f"--set={each}={value.replace('{stores}', str(stores))}" for each, value in settings.items()
    ]  # on a command line only here: each of these passwords is wrong
    done = subprocess.run(
        [sys.executable, "-m", "minikafka.cli.broker", f"--data-dir={tmp_path / 'data'}", *given],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=os.environ | {"MINIKAFKA_HTTP_PORT": "0"},
    )
    assert done.returncode == 1, done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("minikafka-broker: ")]
    assert len(lines) == 1 and done.stderr.endswith(lines[0] + "\n"), done.stderr
    for part in said:
        assert part.replace("{stores}", str(stores)) in lines[0]
    assert "Traceback" not in done.stderr
    assert SECRET not in done.stdout + done.stderr
