"""``minikafka certs``: what it makes, what it says, and what it refuses."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import pkcs12

from minikafka.cli.certs import main
from minikafka.security.directory import SecurityDirectory

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def certs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command on one directory, ``days`` after the start: exit status, standard output and error."""

    def run(*arguments: str, days: int = 0) -> tuple[int, str, str]:
        given = [*arguments, "--dir", str(tmp_path / "security")]
        status = main(given, now=lambda: START + timedelta(days=days))
        output = capsys.readouterr()
        return status, output.out, output.err

    return run


def test_from_an_authority_to_a_revoked_client(certs: Run, tmp_path: Path) -> None:
    assert certs("init")[0] == 0
    status, out, _ = certs("broker", "kafka2.example.com", "10.0.0.6")
    assert status == 0 and "kafka2.example.com, 10.0.0.6, localhost, 127.0.0.1, ::1" in out
    status, out, _ = certs("client", "alice", "--listener", "kafka2.example.com:9093")
    files = tmp_path / "security" / "clients" / "alice"
    assert status == 0 and f"kcat -F {files}/librdkafka.conf" in out
    assert "bootstrap.servers=kafka2.example.com:9093" in (files / "client.properties").read_text()
    assert certs("revoke", "alice")[0] == 0
    listed = json.loads(certs("list", "--json")[1])
    assert [(each["kind"], each["name"], each["state"]) for each in listed] == [
        ("broker", "kafka2.example.com", "valid"),
        ("client", "alice", "revoked"),
    ]
    assert certs("revoke", "alice") == (
        1,
        "",
        "minikafka certs: alice has no certificate to revoke: "
        f"{tmp_path}/security has none that is valid of this name\n",
    )


def test_files_for_a_user_of_a_secure_broker(certs: Run, tmp_path: Path) -> None:
    certs("init")
    status, _, err = certs("user", "alice")
    assert status == 1 and "start it first" in err
    SecurityDirectory(tmp_path / "security").write_broker_file("broker-1", "address", "localhost:9092\n")
    status, out, _ = certs("user", "alice")
    files = tmp_path / "security" / "users" / "alice"
    assert status == 0
    assert f"minikafka users create alice --password-file {files}/password --command-config" in out
    password = (files / "password").read_text().strip()
    assert password not in out and len(password) >= 40
    assert f"sasl.password={password}" in (files / "librdkafka.conf").read_text()
    certs("user", "alice")
    assert (files / "password").read_text().strip() == password, "it is not replaced unasked"
    assert certs("user", "../alice")[0] == 1


def test_a_monthly_job_renews_what_ends_soon(certs: Run) -> None:
    certs("init")
    certs("client", "alice")
    assert certs("renew") == (0, "nothing ends within 30 days\n", "")
    assert "alice, ends 2028-02-09" in certs("renew", days=345)[1]
    assert certs("renew", days=345)[1] == "nothing ends within 30 days\n"


def test_the_list_for_people(certs: Run) -> None:
    certs("init")
    assert "no certificate yet" in certs("list")[1]
    certs("broker", "::1", "--name", "second")
    out = certs("list", days=1000)[1]
    assert "second" in out and "expired" in out and "2028-06-03" in out


def test_nothing_is_overwritten_unasked(certs: Run) -> None:
    certs("init")
    status, _, err = certs("init")
    assert status == 1 and "useless: choose another directory" in err
    certs("client", "alice")
    status, _, err = certs("client", "alice")
    assert status == 1 and "--overwrite" in err
    assert certs("client", "alice", "--overwrite")[0] == 0
    certs("broker", "kafka2.example.com")
    status, _, err = certs("broker", "kafka2.example.com")
    assert status == 1 and "--overwrite" in err


def test_pkcs12_stores_are_under_the_password_in_the_file(certs: Run, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("p4ss word\n")
    password.chmod(0o600)
    certs("init")
    assert certs("client", "alice", "--pkcs12-password-file", str(password))[0] == 0
    store = tmp_path / "security" / "clients" / "alice" / "keystore.p12"
    assert pkcs12.load_key_and_certificates(store.read_bytes(), b"p4ss word")[0] is not None
    password.write_text("")
    status, _, err = certs("client", "bob", "--pkcs12-password-file", str(password))
    assert status == 1 and f"{password} is empty" in err
    password.chmod(0o644)
    status, _, err = certs("client", "bob", "--pkcs12-password-file", str(password))
    assert status == 1 and f"others than its owner may use {password}" in err
    status, _, err = certs("client", "bob", "--pkcs12-password-file", str(tmp_path / "none"))
    assert status == 1 and "No such file" in err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("client", "a/b"), "cannot be a name"),
        (("client", "a" * 65), "cannot be a name"),
        (("broker", "*.example.com"), "neither a host name nor an address"),
        (("renew", "bob"), "there is no certificate for bob"),
        (("revoke", "bob"), "bob has no certificate to revoke"),
    ],
)
def test_what_is_refused(certs: Run, arguments: tuple[str, ...], told: str) -> None:
    certs("init")
    status, out, err = certs(*arguments)
    assert (status, out) == (1, "") and told in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("file", "told"),
    [("ca.key", "is no private key in PEM"), ("ca.pem", "authority's certificate is none in PEM")],
)
def test_an_authority_that_is_damaged_says_which_file(
    certs: Run, tmp_path: Path, file: str, told: str
) -> None:
    certs("init")
    (tmp_path / "security" / file).write_text("rubbish")
    status, out, err = certs("client", "alice")
    assert (status, out) == (1, "") and told in err and err.count("\n") == 1 and "http" not in err


def test_a_file_in_the_place_of_the_directory(certs: Run, tmp_path: Path) -> None:
    (tmp_path / "security").write_text("")
    status, out, err = certs("init")
    assert (status, out) == (1, "") and err.endswith(
        f"{tmp_path / 'security'}: File exists: choose another\n"
    )


def test_a_directory_that_may_not_be_looked_into(
    certs: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", denied)
    for arguments in (("list",), ("client", "alice"), ("init",)):
        status, out, err = certs(*arguments)
        assert (status, out) == (1, "") and err.count("\n") == 1
        assert err.endswith(f"{tmp_path / 'security'}: Permission denied: choose another\n")


def test_without_an_authority(certs: Run) -> None:
    for arguments in (("list",), ("client", "alice"), ("renew",), ("revoke", "alice")):
        status, _, err = certs(*arguments)
        assert status == 1 and "make one with `minikafka certs init`" in err


def test_bad_usage(certs: Run) -> None:
    for arguments in (
        ("client", "alice", "--listener", "nonsense:port"),
        ("broker",),
        ("client",),
        ("nothing",),
    ):
        with pytest.raises(SystemExit) as ended:
            certs(*arguments)
        assert ended.value.code == 2
