"""One file of client properties, under Java's names or librdkafka's, for every client that we use."""

from __future__ import annotations

import argparse
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer

from minikafka.cli import bench, compact, groups
from minikafka.cli.shared.client_properties import (
    aiokafka_options,
    librdkafka_options,
    read_client_properties,
)
from minikafka.cli.shared.commands import VARIABLE, Profiles, take_connection
from minikafka.errors import ConfigError
from minikafka.network.client_security import client_security
from minikafka.security.jaas import jaas_module
from minikafka.security.tls_settings import client_tls_settings
from tests.support.certificates import CertificateAuthority

SECRET = 'a "long" \\ secret'
Write = Callable[[str], dict[str, str]]
JAVA = """\
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="alice" password="secret";
ssl.truststore.location={store}
ssl.truststore.type=PKCS12
ssl.truststore.password=changeit
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_one(text: str) -> dict[str, str]:
        path = tmp_path / "client.properties"
        path.write_text(text)
        return read_client_properties(str(path))

    return write_one


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority()


def test_javas_names_reach_every_client(
    write: Write, authority: CertificateAuthority, tmp_path: Path
) -> None:
    properties = write(JAVA.format(store=authority.write_pkcs12(tmp_path / "ca.p12", "changeit")))
    security = client_security(properties)
    assert security.login is not None
    assert (security.protocol, security.login.mechanism) == ("SASL_SSL", "SCRAM-SHA-512")

    options = aiokafka_options(properties)
    context = options.pop("ssl_context")
    assert isinstance(context, ssl.SSLContext) and context.check_hostname
    assert [dict(pair[0] for pair in each["subject"]) for each in context.get_ca_certs()] == [
        {"commonName": "Test CA"}
    ]
    assert options == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "secret",
    }

    config = librdkafka_options(properties)
    assert config == {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "secret",
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.ca.pem": authority.pem(),
    }
    assert Producer(config | {"log_level": 0}) is not None, "librdkafka takes it"


def test_librdkafkas_names_mean_the_same(
    write: Write, authority: CertificateAuthority, tmp_path: Path
) -> None:
    alice = authority.issue("alice")
    (tmp_path / "alice.key").write_text(alice.key_pem("key password"))
    (tmp_path / "alice.crt").write_text(alice.chain_pem())
    properties = write(
        "security.protocol=sasl_ssl\n"
        "sasl.mechanisms=PLAIN\n"
        "sasl.username=alice\n"
        f"sasl.password={SECRET.replace(chr(92), chr(92) * 2)}\n"
        f"ssl.ca.location={authority.write_pem(tmp_path / 'ca.pem')}\n"
        f"ssl.certificate.location={tmp_path / 'alice.crt'}\n"
        f"ssl.key.location={tmp_path / 'alice.key'}\n"
        "ssl.key.password=key password\n"
        "ssl.endpoint.identification.algorithm=none\n"
    )
    assert jaas_module(properties["sasl.jaas.config"], "PLAIN").options == {
        "username": "alice",
        "password": SECRET,
    }
    assert not client_tls_settings(properties).checks_host_name
    assert aiokafka_options(properties)["sasl_plain_password"] == SECRET
    back = librdkafka_options(properties)
    assert back["sasl.password"] == SECRET
    assert back["ssl.ca.pem"] == authority.pem()
    assert back["ssl.certificate.pem"] == alice.chain_pem()
    assert "PRIVATE KEY" in back["ssl.key.pem"]


async def test_a_token_is_got_when_aiokafka_asks_for_one(write: Write, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a.b.c")
    properties = write(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url={(tmp_path / 'token').as_uri()}\n"
    )
    provider = aiokafka_options(properties)["sasl_oauth_token_provider"]
    assert await provider.token() == "a.b.c"
    with pytest.raises(ConfigError, match="librdkafka, which does the work here, reads no token from a file"):
        librdkafka_options(properties)


def test_a_token_endpoint_is_librdkafkas_matter(write: Write) -> None:
    properties = write(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanisms=OAUTHBEARER\nsasl.oauthbearer.method=oidc\n"
        "sasl.oauthbearer.client.id=me\nsasl.oauthbearer.client.secret=mine\n"
        "sasl.oauthbearer.token.endpoint.url=https://issuer.example/token\n"
    )
    assert client_security(properties).login is not None
    config = librdkafka_options(properties)
    assert (config["sasl.oauthbearer.method"], config["sasl.oauthbearer.client.secret"]) == ("oidc", "mine")


def test_a_password_may_stand_elsewhere(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALICES", "from the environment")
    properties = write(
        "config.providers=env\n"
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=alice\n"
        "sasl.password=${env:ALICES}\n"
    )
    assert aiokafka_options(properties)["sasl_plain_password"] == "from the environment"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("enable.ssl.certificate.verification=false", "would trust anybody: set ssl.ca.location"),
        ("ssl.certificate.pem=x", "belong together: set both"),
        ("ssl.ca.location=/x\nsecurity.protocol=SSL", "/x"),
    ],
)
def test_what_cannot_be_done_is_an_error(write: Write, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as failure:
        aiokafka_options(write(text))
    assert complaint in str(failure.value)


def test_a_delegation_token_is_for_our_own_connections_alone(write: Write) -> None:
    properties = write(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="id" password="hmac" tokenauth="true";\n'
    )
    assert client_security(properties).login is not None
    with pytest.raises(ConfigError, match="cannot log in by a delegation token"):
        aiokafka_options(properties)


WITHOUT_LOGIN = "security.protocol=SSL\n"


@pytest.mark.parametrize(
    ("line", "options", "expected"),
    [
        ("bootstrap.servers=a:1, b:2\n", [], [("a", 1), ("b", 2)]),
        ("bootstrap.servers=SSL://a:1\n", [], [("a", 1)]),
        ("metadata.broker.list=a:1\n", [], [("a", 1)]),
        ("bootstrap.servers=a:1\n", ["-b", "c:3"], [("c", 3)]),
        ("", ["-b", "c:3"], [("c", 3)]),
    ],
)
def test_the_brokers_are_those_of_the_file_unless_the_command_line_names_some(
    tmp_path: Path, line: str, options: list[str], expected: list[tuple[str, int]]
) -> None:
    path = tmp_path / "client.properties"
    path.write_text(WITHOUT_LOGIN + line)
    arguments = groups.parser().parse_args(["list", "--command-config", str(path), *options])
    take_connection(arguments)
    assert arguments.addresses == expected and arguments.security.protocol == "SSL"


def test_an_address_in_the_file_that_is_none_is_named_by_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "client.properties"
    path.write_text(WITHOUT_LOGIN + "bootstrap.servers=a:x\n")
    with pytest.raises(SystemExit):
        groups.main(["list", "--command-config", str(path)])
    assert f"bootstrap.servers in {path}: a:x: must be HOST:PORT" in capsys.readouterr().err


def test_what_the_file_logs_in_with_goes_to_no_broker_that_is_not_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "client.properties"
    path.write_text(WITHOUT_LOGIN)
    for main in (groups.main, bench.main):
        with suppress(SystemExit):
            main(["list" if main is groups.main else "produce", "--command-config", str(path)])
        said = capsys.readouterr().err
        assert "no broker is named: give --" in said and f"or set bootstrap.servers in {path}" in said


def test_a_profile_counts_less_than_a_file_that_is_typed_and_more_than_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    path = tmp_path / "client.properties"
    path.write_text(WITHOUT_LOGIN + "bootstrap.servers=file:1\n")

    def address(*options: str, main: Callable[[], argparse.ArgumentParser] = groups.parser) -> object:
        arguments = main().parse_args([*options])
        take_connection(arguments)
        return arguments.addresses and arguments.addresses[0][0]

    assert address("list") == "localhost"
    profile = {"bootstrap-server": "profile:1"}
    Profiles("p", {"p": profile}).save()
    assert address("list") == "profile"
    assert address("list", "--command-config", str(path)) == "file"
    Profiles("p", {"p": profile | {"command-config": str(path)}}).save()
    assert address("list") == "profile"
    Profiles("p", {"p": {"command-config": str(path)}}).save()
    assert address("list") == "file"
    offline = ["/data", "--topic", "t"]
    assert address(*offline, main=compact.parser) == [], "a profile names no broker that holds a directory"
    assert address(*offline, "--command-config", str(path), main=compact.parser) == "file"


def test_a_file_that_is_not_there_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        groups.main(["list", "--command-config", "/nowhere/client.properties"])
    assert exit.value.code == 2
    assert "--command-config /nowhere/client.properties: cannot read" in capsys.readouterr().err
