"""The command line of ``minikafka console``: whom it shows what."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from minikafka.cli.console.command import main, parse_users, permissions_of, take_tls
from minikafka.cli.shared.commands import CommandError

SECURITY = object()


def permissions(*, has_users: bool = False, **given: Any) -> tuple[bool, bool, bool]:
    arguments = argparse.Namespace(
        **{"messages": None, "admin": False, "security": None, "http_host": "127.0.0.1"} | given
    )
    found = permissions_of(arguments, has_users=has_users)
    return found.messages is True, found.change is True, found.access is True


def test_who_needs_no_credentials_for_the_cluster_needs_none_for_the_page() -> None:
    assert permissions() == (True, False, True)
    assert permissions(messages=False) == (False, False, True)


def test_what_our_own_credentials_open_is_not_open_to_everybody() -> None:
    assert permissions(security=SECURITY) == (False, False, False)
    assert permissions(security=SECURITY, messages=True) == (True, False, False)
    assert permissions(security=SECURITY, has_users=True) == (True, False, True)
    assert permissions(http_host="0.0.0.0") == (False, False, False)
    assert permissions(http_host="0.0.0.0", has_users=True, admin=True) == (True, True, True)


def test_users_are_lines_of_a_file() -> None:
    assert parse_users("# ours\nops:se:cret\n\n dev:x\n", "users") == [("ops", "se:cret"), ("dev", "x")]
    for text in ("", "ops", "ops:", ":secret"):
        with pytest.raises(CommandError):
            parse_users(text, "users")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--admin"], "give --users"),
        (["--http-tls", "/nowhere/tls.properties"], "cannot read /nowhere/tls.properties"),
        (["--registry-user", "file"], "give --registry"),
        (["--registry", "file:///etc/passwd"], "must be a URL"),
        (["--http-port", "70000"], "from 0 to 65535"),
    ],
)
def test_bad_usage_is_told(arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "-b", "localhost:9092"])
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_a_cluster_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-b", "127.0.0.1:1", "--http-port", "0"]) == 1
    assert "127.0.0.1:1: cannot connect" in capsys.readouterr().err


def test_a_page_with_tls_needs_a_key(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    for text, why in (
        ("ssl.client.auth=required\n", "no key store"),
        ("ssl.keystore.location=x.pem\nhttp.port=1\n", "http.port is none of the properties of TLS"),
        ("ssl.keystore.location=x.pem\nssl.keystore.type=JCEKS\n", "JCEKS"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=why):
            take_tls(str(file))
    file.write_text("ssl.keystore.location=x.pem\nssl.keystore.type=PEM\nssl.client.auth=required\n")
    assert take_tls(str(file)).client_auth == "required"
