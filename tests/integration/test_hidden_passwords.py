"""A broker with a password in every property that takes one: nothing that it prints, answers, shows or stores
has any of them."""

from __future__ import annotations

import re
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from minikafka.config.broker import BROKER_CONFIG_KEYS, broker_config
from minikafka.config.definition import ConfigType
from minikafka.config.properties import properties_line
from tests.integration.conftest import StartBroker
from tests.integration.support.process import BrokerProcess
from tests.support.certificates import CertificateAuthority

pytestmark = pytest.mark.minikafka_only

NAMES = [name for name, key in BROKER_CONFIG_KEYS.items() if key.type is ConfigType.PASSWORD]
INSTEAD_OF_FILES = {
    "http.ssl.keystore.key",
    "http.ssl.keystore.certificate.chain",
    "http.ssl.truststore.certificates",
}
STARTED_WITH = [name for name in NAMES if name not in INSTEAD_OF_FILES]
"""The HTTP port has its keys in files, with passwords; the repr has all."""
DYNAMIC = "listener.name.plaintext.ssl.truststore.password"
SECRET = re.compile(r"s3cret-[\w.-]+")
"""Each says which property it is of."""


def secret_of(name: str) -> str:
    text = f"s3cret-{name}"
    if name in ("http.basic.auth.users", "http.registry.basic.auth.user.info"):
        return f"u:{text}"
    if name == "trace.otlp.headers":
        return f"api-key={text}"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return f'{module} required username="u" password="{text}";' if name.endswith("jaas.config") else text


def secrets_in(text: str) -> set[str]:
    return set(SECRET.findall(text))


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    listeners = (
        "listener.name.plaintext.ssl.keystore.password",
        "listener.name.plaintext.plain.sasl.jaas.config",
    )
    lines = [properties_line(name, secret_of(name)) for name in (*STARTED_WITH, *listeners)]
    (tmp_path / "elsewhere").write_text("key=s3cret-elsewhere\n")
    authority = CertificateAuthority()
    for kind, made in (("keystore", authority.issue()), ("truststore", authority)):
        store = made.write_pkcs12(tmp_path / f"{kind}.p12", secret_of(f"http.ssl.{kind}.password"))
        lines.append(f"http.ssl.{kind}.location={store}\nhttp.ssl.{kind}.type=PKCS12\n")
    lines += [
        "config.providers=file\n",
        "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider\n",
        f"listener.name.plaintext.ssl.key.password=${{file:{tmp_path}/elsewhere:key}}\n",
        "http.port=0\nhttp.ssl.client.auth=requested\nlog.level=debug\n",
    ]
    file = tmp_path / "server.properties"
    file.write_text("".join(lines))
    return file


@pytest.fixture
def broker(start_broker: StartBroker, config_file: Path) -> Iterator[BrokerProcess]:
    command = [sys.executable, "-m", "minikafka.cli.broker", f"--config={config_file}"]
    yield start_broker(command=command)


def tool(broker: BrokerProcess, *arguments: str) -> str:
    command = [sys.executable, "-m", "minikafka.cli.main", *arguments, "-b", broker.bootstrap]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return ran.stdout + ran.stderr


def alter(broker: BrokerProcess, name: str, value: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    (future,) = admin.incremental_alter_configs([resource]).values()
    error = future.exception(30)
    return "" if error is None else str(error)


def page(broker: BrokerProcess, path: str) -> str:
    (found,) = set(re.findall(r"metrics +(https://\S+)/metrics", broker.log_text()))
    token = {"Authorization": f"Bearer {secret_of('http.bearer.token')}"}
    any_certificate = ssl._create_unverified_context()
    with urllib.request.urlopen(
        urllib.request.Request(f"{found}{path}", headers=token), timeout=30, context=any_certificate
    ) as answer:
        return str(answer.read().decode())


def test_no_password_is_shown_anywhere(broker: BrokerProcess) -> None:
    assert len(NAMES) >= 10
    assert alter(broker, DYNAMIC, secret_of(DYNAMIC)) == ""
    refused = alter(broker, "ssl.keystore.password", secret_of("refused"))
    assert "ssl.keystore.password" in refused
    described = tool(broker, "configs", "--describe", "--broker", "1", "--all")
    for name in (*STARTED_WITH, DYNAMIC, "listener.name.plaintext.ssl.key.password"):
        assert f"  {name}=null sensitive=true " in described
    told = {
        "the log": broker.log_text(),
        "DescribeConfigs": described,
        "what is set dynamically": tool(broker, "configs", "--describe", "--broker", "1"),
        "a refusal": refused,
        "an unknown property": alter(broker, "some.plugin.password", secret_of("plugin")),
        "the page": page(broker, "/"),
        "the status": page(broker, "/status.json"),
        "the metrics": page(broker, "/metrics"),
        "the process list": Path(f"/proc/{broker.pid}/cmdline").read_text(),
    }
    assert {what: secrets_in(text) for what, text in told.items() if secrets_in(text)} == {}


def test_what_is_set_while_it_runs_is_stored_encrypted_and_there_after_a_restart(
    broker: BrokerProcess, config_file: Path
) -> None:
    assert alter(broker, DYNAMIC, secret_of(DYNAMIC)) == ""
    broker.stop()
    stored = b"".join(path.read_bytes() for path in broker.data_dir.rglob("*") if path.is_file())
    assert b"encryptedPassword:" in stored and secrets_in(stored.decode("latin-1")) == set()

    broker.start()
    shown = tool(broker, "configs", "--describe", "--broker", "1")
    assert f"{DYNAMIC}=null sensitive=true synonyms={{DYNAMIC_BROKER_CONFIG:{DYNAMIC}=null}}" in shown
    assert "could not be decoded" not in broker.log_text()

    broker.stop()
    text = config_file.read_text()
    new = "password.encoder.secret=s3cret-new\npassword.encoder.old.secret=s3cret-password.encoder.secret\n"
    config_file.write_text(text + new)
    broker.start()
    assert "encrypted again, with password.encoder.secret" in broker.log_text()

    broker.stop()
    config_file.write_text(text + "password.encoder.secret=s3cret-wrong\npassword.encoder.old.secret=\n")
    broker.start()
    assert f"{DYNAMIC}: Password could not be decoded" in broker.log_text()
    assert secrets_in(broker.log_text()) == set()


def test_without_a_secret_no_password_is_set_while_the_broker_runs(start_broker: StartBroker) -> None:
    broker = start_broker()
    error = alter(broker, DYNAMIC, secret_of(DYNAMIC))
    assert "Password encoder secret not configured" in error and secrets_in(error) == set()


def test_a_configuration_has_no_password_in_its_repr() -> None:
    config = broker_config({name: secret_of(name) for name in NAMES})
    assert secrets_in(repr(config)) == set()
