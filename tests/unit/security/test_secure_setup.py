"""``--secure`` as properties: what a broker gets, and what may not stand beside it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from minikafka.config.loader import Setting, load
from minikafka.config.security import jaas_configs
from minikafka.errors import ConfigError
from minikafka.security.directory import SecurityDirectory
from minikafka.security.secure_setup import SecureSetup, default_directory, secure_setup

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
Setup = Callable[..., SecureSetup]


def properties(given: dict[str, str]) -> dict[str, Setting]:
    return {name: Setting(name, value, "--set") for name, value in given.items()}


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    """``secure_setup`` on one directory, with properties given by keyword or as a mapping."""
    passwords = (f"password {number}" for number in itertools.count(1))

    def run(given: dict[str, str] | None = None) -> SecureSetup:
        return secure_setup(
            SecurityDirectory(tmp_path / "security"),
            properties(given or {}),
            machine_name=lambda: "machine.example.com",
            now=NOW,
            new_password=lambda: next(passwords),
        )

    return run


def as_dict(made: SecureSetup) -> dict[str, str]:
    return {each.name: each.value for each in made.settings}


def hosts(made: SecureSetup, broker: str = "broker-1") -> tuple[str, ...]:
    found = made.directory.current(broker)
    assert found is not None
    return found.hosts


def test_a_broker_takes_what_it_is_given(setup: Setup) -> None:
    made = setup({"listeners": "SASL_SSL://kafka.example.com:9094", "node.id": "3"})
    config = load(settings=made.settings).config
    assert str(config.endpoints()[0]) == "SASL_SSL://kafka.example.com:9094"
    assert config.inter_broker_listener() == "SASL_SSL"
    assert config.has_authorizer and not config.allow_everyone_if_no_acl_found
    assert config.super_users == "User:admin;User:broker"
    security = config.listener_security("SASL_SSL")
    assert security.ssl_keystore_location == str(made.directory.path / "brokers/broker-3/keystore.pem")
    assert security.sasl_enabled_mechanisms == ("SCRAM-SHA-512",)
    jaas = jaas_configs("SASL_SSL", config.originals)["SCRAM-SHA-512"]
    assert 'username="broker" password="password 2";' in jaas
    assert hosts(made, "broker-3")[0] == "kafka.example.com"


def test_a_second_start_uses_what_is_there(setup: Setup) -> None:
    first, second = setup(), setup()
    assert (first.is_new, second.is_new) == (True, False)
    assert first.settings == second.settings and first.first_users == second.first_users
    assert first.directory.certificates() == second.directory.certificates()


def test_the_written_file_is_the_same_broker(setup: Setup) -> None:
    made = setup({"listeners": "SASL_SSL://localhost:9092"})
    file = made.directory.path / "brokers" / "broker-1" / "broker.properties"
    loaded = load(path=str(file))
    assert loaded.unknown == ()
    assert loaded.config == load(settings=made.settings).config


def test_the_certificate_holds_for_every_name_that_clients_use(setup: Setup) -> None:
    made = setup(
        {
            "listeners": "SASL_SSL://:9092,SSL://10.0.0.5:9093",
            "advertised.listeners": "SASL_SSL://kafka.example.com:9092,SSL://[fd00::5]:9093",
        }
    )
    expected = ("machine.example.com", "10.0.0.5", "kafka.example.com", "fd00::5")
    assert hosts(made) == (*expected, "localhost", "127.0.0.1", "::1")


def test_certificates_instead_of_passwords_on_a_listener_beside(setup: Setup) -> None:
    made = setup({"listeners": "SASL_SSL://localhost:9092,SSL://localhost:9093"})
    config = load(settings=made.settings).config
    assert config.listener_security("SSL").ssl_client_auth == "required"
    assert config.listener_security("SASL_SSL").ssl_client_auth == "none"


def test_other_names_of_listeners(setup: Setup) -> None:
    made = setup(
        {
            "listeners": "OUTSIDE://localhost:9092,INSIDE://localhost:9093",
            "listener.security.protocol.map": "OUTSIDE:SASL_SSL,INSIDE:SASL_SSL",
            "inter.broker.listener.name": "INSIDE",
        }
    )
    assert made.listener == "INSIDE"
    assert "listener.name.inside.scram-sha-512.sasl.jaas.config" in as_dict(made)


def test_what_is_configured_besides_counts(setup: Setup) -> None:
    made = as_dict(
        setup(
            {
                "super.users": "User:root",
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "security.inter.broker.protocol": "SASL_SSL",
                "ssl.principal.mapping.rules": "DEFAULT",
            }
        )
    )
    assert made["super.users"] == "User:root;User:admin;User:broker"
    assert made["sasl.enabled.mechanisms"] == "OAUTHBEARER,SCRAM-SHA-512"
    assert "inter.broker.listener.name" not in made
    assert "ssl.principal.mapping.rules" not in made


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"listeners": "PLAINTEXT://localhost:9092"}, "only SASL_SSL and SSL keep strangers out"),
        ({"listeners": "SASL_SSL://:9092,SASL_PLAINTEXT://:9093"}, "SASL_PLAINTEXT://:9093 is of protocol"),
        ({"listeners": "SSL://localhost:9092"}, "one of them must be of protocol SASL_SSL"),
        ({"authorizer.class.name": ""}, "authorizer.class.name= contradicts --secure"),
        ({"allow.everyone.if.no.acl.found": "true"}, "contradicts --secure, with which it is false"),
        ({"security.inter.broker.protocol": "PLAINTEXT"}, "contradicts --secure"),
        ({"inter.broker.listener.name": "SSL"}, "brokers use a listener of protocol SASL_SSL"),
        ({"sasl.mechanism.inter.broker.protocol": "PLAIN"}, "with which it is SCRAM-SHA-512"),
        ({"ssl.keystore.location": "/a.p12"}, "ssl.keystore.location=/a.p12 contradicts --secure"),
        ({"listener.name.sasl_ssl.ssl.keystore.type": "PKCS12"}, "with which it is PEM"),
        (
            {
                "listeners": "SASL_SSL://:9092,SSL://:9093",
                "listener.name.ssl.ssl.client.auth": "none",
            },
            "listener.name.ssl.ssl.client.auth=none contradicts --secure, with which it is required",
        ),
    ],
)
def test_contradictions(setup: Setup, tmp_path: Path, given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as raised:
        setup(given)
    assert str(raised.value).startswith("--set: ")
    assert not (tmp_path / "security").exists(), "nothing is made by a start that fails"


def test_a_password_is_in_no_error(setup: Setup) -> None:
    with pytest.raises(ConfigError) as raised:
        setup({"ssl.key.password": "s3cret"})
    assert "s3cret" not in str(raised.value)


def test_a_password_is_in_no_repr(setup: Setup) -> None:
    made = setup()
    assert "password " not in repr(made) + repr(made.first_users)


def test_it_lies_beside_the_data_which_may_hold_nothing_but_partitions() -> None:
    assert default_directory(properties({"log.dirs": "/data/a/,/data/b"})) == "/data/a-security"
    assert default_directory(properties({"log.dir": "x"})) == "x-security"
