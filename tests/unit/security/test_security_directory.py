"""The security directory: what is in it, who may read it, and that nothing is lost or replaced unasked."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from minikafka.config.properties import parse_properties
from minikafka.errors import ConfigError
from minikafka.security.directory import BROKER_LIFETIME, RENEWED_BEFORE, SecurityDirectory

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def directory(tmp_path: Path) -> SecurityDirectory:
    made = SecurityDirectory(tmp_path / "security")
    made.create(now=NOW)
    return made


def modes(path: Path) -> dict[str, str]:
    return {
        str(each.relative_to(path)): oct(stat.S_IMODE(each.stat().st_mode))
        for each in [path, *path.rglob("*")]
    }


def serials(crl: Path) -> set[str]:
    return {f"{each.serial_number:x}" for each in x509.load_pem_x509_crl(crl.read_bytes())}


def test_all_of_it_is_the_owners_alone(directory: SecurityDirectory) -> None:
    directory.issue_broker("broker-1", ["kafka.example.com"], now=NOW)
    directory.issue_client("alice", now=NOW, pkcs12_password="p4ss")
    directory.write_client_files(directory.login("alice", "kafka.example.com:9093"))
    password = directory.password("admin", lambda: "s3cret")
    directory.write_client_files(directory.login("admin", "kafka.example.com:9092", password))
    for name, mode in modes(directory.path).items():
        assert mode == ("0o700" if (directory.path / name).is_dir() else "0o600"), name


def test_an_authority_is_never_replaced(directory: SecurityDirectory) -> None:
    before = (directory.path / "ca.key").read_bytes()
    with pytest.raises(ConfigError, match="has a certificate authority"):
        directory.create(now=NOW)
    assert not directory.ensure_authority(now=NOW)
    assert (directory.path / "ca.key").read_bytes() == before


def test_a_certificate_is_replaced_when_that_is_asked_for(directory: SecurityDirectory) -> None:
    first = directory.issue_client("alice", now=NOW)
    with pytest.raises(ConfigError, match=r"there is a certificate for alice, .* --overwrite"):
        directory.issue_client("alice", now=NOW)
    assert directory.issue_client("alice", now=NOW, replace=True).serial != first.serial


def test_a_client_cannot_have_a_brokers_name(directory: SecurityDirectory) -> None:
    directory.issue_broker("broker-1", [], now=NOW)
    with pytest.raises(ConfigError, match="broker-1 is the name of a broker"):
        directory.issue_client("broker-1", now=NOW, replace=True)


def test_a_brokers_certificate_is_kept_while_it_serves(directory: SecurityDirectory) -> None:
    assert directory.ensure_broker("broker-1", ["kafka.example.com"], now=NOW)
    assert not directory.ensure_broker("broker-1", ["KAFKA.example.com"], now=NOW)
    assert directory.ensure_broker("broker-1", ["10.0.0.5"], now=NOW), "it lacks the address"
    found = directory.current("broker-1")
    assert found is not None
    assert {"kafka.example.com", "10.0.0.5", "localhost"} <= set(found.hosts)
    almost = NOW + BROKER_LIFETIME - RENEWED_BEFORE
    assert not directory.ensure_broker("broker-1", [], now=almost - timedelta(hours=1))
    assert directory.ensure_broker("broker-1", [], now=almost), "it ends soon"
    (directory.broker_directory("broker-1") / "keystore.pem").unlink()
    assert directory.ensure_broker("broker-1", [], now=almost), "its file is gone"


def test_renewal_of_what_is_due(directory: SecurityDirectory) -> None:
    directory.issue_broker("broker-1", ["kafka.example.com"], now=NOW)
    directory.issue_client("alice", now=NOW)
    directory.issue_client("mallory", now=NOW)
    directory.revoke("mallory", now=NOW)
    later = NOW + timedelta(days=340)
    assert directory.renew([], now=NOW) == []
    assert [each.name for each in directory.renew([], now=later)] == ["alice"]
    renewed = directory.renew(["broker-1"], now=later)[0]
    assert renewed.hosts[0] == "kafka.example.com"
    key_store = (directory.broker_directory("broker-1") / "keystore.pem").read_bytes()
    assert f"{x509.load_pem_x509_certificates(key_store)[0].serial_number:x}" == renewed.serial
    with pytest.raises(ConfigError, match="mallory is revoked"):
        directory.renew(["broker-1", "mallory"], now=later)
    with pytest.raises(ConfigError, match="there is no certificate for bob"):
        directory.renew(["bob"], now=later)


def test_a_pkcs12_store_is_not_left_behind_by_a_renewal(directory: SecurityDirectory) -> None:
    directory.issue_client("alice", now=NOW, pkcs12_password="p4ss")
    with pytest.raises(ConfigError, match="--pkcs12-password-file"):
        directory.renew(["alice"], now=NOW)
    before = (directory.client_directory("alice") / "keystore.p12").read_bytes()
    directory.renew(["alice"], now=NOW, pkcs12_password="p4ss")
    assert (directory.client_directory("alice") / "keystore.p12").read_bytes() != before


def test_all_certificates_of_a_name_are_revoked(directory: SecurityDirectory) -> None:
    """A renewal does not end the certificate before it."""
    directory.issue_broker("broker-1", [], now=NOW)
    first = directory.issue_client("alice", now=NOW)
    second = directory.renew(["alice"], now=NOW)[0]
    other = directory.issue_client("bob", now=NOW)
    assert {each.serial for each in directory.revoke("alice", now=NOW)} == {first.serial, second.serial}
    assert serials(directory.revoked_file) == {first.serial, second.serial}
    assert serials(directory.broker_directory("broker-1") / "crl.pem") == {first.serial, second.serial}
    directory.revoke("bob", now=NOW)
    assert other.serial in serials(directory.revoked_file) and len(serials(directory.revoked_file)) == 3
    with pytest.raises(ConfigError, match="alice has no certificate to revoke"):
        directory.revoke("alice", now=NOW)


def test_what_two_do_at_once_is_not_lost(directory: SecurityDirectory) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as threads:
        names = [f"client-{number}" for number in range(12)]
        list(threads.map(lambda name: directory.issue_client(name, now=NOW), names))
    assert {each.name for each in directory.certificates()} == set(names)


def test_a_password_is_made_once(directory: SecurityDirectory) -> None:
    assert directory.password("admin", lambda: "first") == "first"
    assert SecurityDirectory(directory.path).password("admin", lambda: "second") == "first"


def test_client_files_are_what_each_client_reads(directory: SecurityDirectory) -> None:
    password = directory.password("admin", lambda: 'we"ird\\')
    login = directory.login("admin", "kafka.example.com:9092", password)
    directory.write_client_files(login)
    files = Path(login.directory)
    java = {
        each.name: each.value
        for each in parse_properties((files / "client.properties").read_bytes(), source="client.properties")
    }
    assert java["sasl.jaas.config"].endswith('username="admin" password="we\\"ird\\\\";')
    assert java["ssl.truststore.certificates"] == directory.authority_file.read_text()
    assert 'sasl.password=we"ird\\\n' in (files / "librdkafka.conf").read_text()
    module: dict[str, object] = {"__file__": str(files / "kafka_clients.py")}
    exec((files / "kafka_clients.py").read_text(), module)
    settings = module["for_kafka_python"]()  # type: ignore[operator]
    assert settings["sasl_plain_password"] == 'we"ird\\'
    assert settings["ssl_cafile"] == str(files / "ca.pem")


def test_files_that_hold_are_left_alone(directory: SecurityDirectory) -> None:
    login = directory.login("admin", "a:9092", directory.password("admin", lambda: "p"))
    directory.write_client_files(login)
    file = Path(login.directory) / "client.properties"
    before = file.stat().st_ino
    directory.write_client_files(login)
    assert file.stat().st_ino == before
    directory.write_client_files(login._replace(bootstrap_servers="b:9092"))
    assert "bootstrap.servers=b:9092" in file.read_text()


def test_a_password_is_in_no_repr(directory: SecurityDirectory) -> None:
    assert "s3cret" not in repr(directory.login("admin", "a:9092", "s3cret"))


def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(ConfigError, match="chmod 700"):
        SecurityDirectory(open_to_all).create(now=NOW)


def test_a_directory_of_another_user_is_refused(
    directory: SecurityDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who made it has the authority's key."""
    owner = directory.path.stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    with pytest.raises(ConfigError, match="another user's"):
        directory.ensure_authority(now=NOW)


def test_a_directory_without_an_authority_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="minikafka certs init"):
        SecurityDirectory(tmp_path / "none").issue_client("alice", now=NOW)
    assert not (tmp_path / "none").exists()
