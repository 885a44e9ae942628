"""``minikafka certs``: an authority of one's own, certificates for brokers and clients, and their end.

What keytool and openssl do for Apache Kafka. It works on a security directory (``security.directory``), that
of ``minikafka-broker --secure`` or one without a broker, and asks no broker: a running one reads its key
store and the list of revoked certificates again when they change.

Exit status: 0 when all was done, 1 when something cannot be, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from minikafka.cli.shared.commands import FAILURE, OK, parse_addresses
from minikafka.cli.shared.credentials import read_password_file
from minikafka.errors import ConfigError, MinikafkaError
from minikafka.security.directory import (
    PASSWORD_FILE,
    RENEWED_BEFORE,
    Certificate,
    SecurityDirectory,
    check_host,
    check_name,
)
from minikafka.security.secure_setup import ADMIN_USER

PROG = "minikafka certs"
DEFAULT_DIRECTORY = "minikafka-data-security"
"""That of ``minikafka-broker --secure`` with its default data directory."""

_EPILOG = """\
The client NAME is the user NAME on a listener of protocol SSL: its common name is the principal's name there.
"""


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka certs``."""
    options = argparse.ArgumentParser(
        prog=PROG,
        description="A certificate authority, and certificates for brokers and clients.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    actions = options.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("init", help="make an authority", allow_abbrev=False)
    broker = actions.add_parser(
        "broker", help="a certificate for a broker on another machine", allow_abbrev=False
    )
    broker.add_argument(
        "hosts", nargs="+", metavar="HOST", help="names and addresses under which clients reach it"
    )
    broker.add_argument("--name", metavar="NAME", help="what to call it here (the first HOST)")
    client = actions.add_parser(
        "client", help="a certificate for a client, and its files", allow_abbrev=False
    )
    client.add_argument("name", metavar="NAME", help="the user's name")
    client.add_argument(
        "--listener",
        default="localhost:9093",
        metavar="HOST:PORT",
        help="the SSL listener that its files name (localhost:9093)",
    )
    user = actions.add_parser(
        "user", help="files and a password for a user of the secure broker here", allow_abbrev=False
    )
    user.add_argument("name", metavar="NAME")
    renew = actions.add_parser(
        "renew", help="new certificates for those that end soon, or for NAMEs", allow_abbrev=False
    )
    renew.add_argument(
        "names", nargs="*", metavar="NAME", help=f"all that end within {RENEWED_BEFORE.days} days"
    )
    revoke = actions.add_parser("revoke", help="let brokers refuse a name's certificates", allow_abbrev=False)
    revoke.add_argument("name", metavar="NAME")
    listing = actions.add_parser("list", help="what was issued, and until when", allow_abbrev=False)
    listing.add_argument("--json", action="store_true", help="print JSON")
    for each in (broker, client):
        each.add_argument(
            "--overwrite", action="store_true", help="replace the certificate that there is for this name"
        )
    for each in (broker, client, renew):
        each.add_argument(
            "--pkcs12-password-file",
            metavar="FILE",
            help="PKCS12 stores too, under the password in FILE; its owner alone may read it",
        )
    for each in actions.choices.values():
        each.add_argument(
            "--dir", default=DEFAULT_DIRECTORY, metavar="DIR", help=f"where it all is ({DEFAULT_DIRECTORY})"
        )
    return options


def main(argv: Sequence[str] | None = None, *, now: Callable[[], datetime] | None = None) -> int:
    """Run an action. Returns the exit status. ``now``: the time, UTC; that of the machine unless given."""
    options = parser()
    arguments = options.parse_args(argv)
    if arguments.action == "client":
        try:
            parse_addresses(arguments.listener, option="--listener")
        except ValueError as error:
            options.error(str(error))
    moment = datetime.now(UTC) if now is None else now()
    try:
        _ACTIONS[arguments.action](arguments, SecurityDirectory(arguments.dir), moment)
    except MinikafkaError as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return FAILURE
    return OK


def _init(arguments: argparse.Namespace, directory: SecurityDirectory, now: datetime) -> None:
    directory.create(now=now)
    print(f"authority            {directory.authority_file}")
    print(f"its key              {directory.path / 'ca.key'} (keep it secret: brokers trust what it signs)")


def _broker(arguments: argparse.Namespace, directory: SecurityDirectory, now: datetime) -> None:
    name = arguments.name or check_host(arguments.hosts[0]).replace(":", "-").strip("-")
    password = _pkcs12_password(arguments)
    issued = directory.issue_broker(
        name, arguments.hosts, now=now, replace=arguments.overwrite, pkcs12_password=password
    )
    _say_issued(issued, directory.broker_directory(name))
    print(f"holds for            {', '.join(issued.hosts)}")
    print("its properties       ssl.keystore.type=PEM, ssl.keystore.location=…/keystore.pem,")
    print("                     ssl.truststore.type=PEM, ssl.truststore.location=…/ca.pem,")
    print("                     ssl.crl.location=…/crl.pem")


def _client(arguments: argparse.Namespace, directory: SecurityDirectory, now: datetime) -> None:
    name = arguments.name
    issued = directory.issue_client(
        name, now=now, replace=arguments.overwrite, pkcs12_password=_pkcs12_password(arguments)
    )
    directory.write_client_files(directory.login(name, arguments.listener))
    files = directory.client_directory(name)
    _say_issued(issued, files)
    for label, text in client_lines(files):
        print(f"{label:<20} {text}")


def _user(arguments: argparse.Namespace, directory: SecurityDirectory, now: datetime) -> None:
    name, admin = check_name(arguments.name), directory.user_directory(ADMIN_USER)
    servers = directory.bootstrap_servers()
    if not servers:
        raise ConfigError(f"{directory.path} is of no broker that was started with --secure: start it first")
    password = directory.password(name, secrets.token_urlsafe)
    directory.write_client_files(directory.login(name, servers, password))
    files = directory.user_directory(name)
    print(f"files in             {files}")
    for label, text in client_lines(files):
        print(f"{label:<20} {text}")
    create = f"minikafka users create {name} --password-file {files / PASSWORD_FILE}"
    print(f"let it in            {create} --command-config {admin / 'client.properties'}")


def client_lines(files: Path) -> list[tuple[str, str]]:
    """What is told of the files of a client or user, as (label, text)."""
    return [
        ("Java, Kafka's tools", f"--command-config {files / 'client.properties'}"),
        ("kcat, librdkafka", f"kcat -F {files / 'librdkafka.conf'}"),
        ("Python", f"{files / 'kafka_clients.py'}"),
    ]


def _renew(arguments: argparse.Namespace, directory: SecurityDirectory, now: datetime) -> None:
    renewed = directory.renew(arguments.names, now=now, pkcs12_password=_pkcs12_password(arguments))
    for each in renewed:
        print(f"renewed              {each.name}, ends {each.not_after:%Y-%m-%d}")
    if not renewed:
        print(f"nothing ends within {RENEWED_BEFORE.days} days")


def _revoke(arguments: argparse.Namespace, directory: SecurityDirectory, now: datetime) -> None:
    revoked = directory.revoke(arguments.name, now=now)
    several = f" ({len(revoked)} certificates)" if len(revoked) > 1 else ""
    print(f"revoked              {arguments.name}{several}")
    print(f"brokers read         {directory.revoked_file} (ssl.crl.location); elsewhere copy it")


def _list(arguments: argparse.Namespace, directory: SecurityDirectory, now: datetime) -> None:
    certificates = directory.certificates()
    if arguments.json:
        print(json.dumps([_as_json(each, now) for each in certificates], indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=str(directory.path), title_justify="left")
    for column in ("kind", "name", "state", "ends", "hosts", "serial"):
        table.add_column(column, overflow="fold")
    for each in certificates:
        state = each.state(now)
        style = {"revoked": "red", "expired": "dim"}.get(state)
        ends = f"{each.not_after:%Y-%m-%d}"
        table.add_row(each.kind, each.name, state, ends, ", ".join(each.hosts), each.serial[:16], style=style)
    width = None if sys.stdout.isatty() else 160
    Console(width=width).print(table if certificates else f"{directory.path}: no certificate yet")


def _as_json(certificate: Certificate, now: datetime) -> dict[str, object]:
    return {
        "kind": certificate.kind,
        "name": certificate.name,
        "state": certificate.state(now),
        "hosts": list(certificate.hosts),
        "serial": certificate.serial,
        "not_before": certificate.not_before.isoformat(),
        "not_after": certificate.not_after.isoformat(),
        "revoked_at": None if certificate.revoked_at is None else certificate.revoked_at.isoformat(),
    }


def _say_issued(issued: Certificate, files: Path) -> None:
    print(f"{issued.kind:<20} {issued.name}, ends {issued.not_after:%Y-%m-%d}")
    print(f"files in             {files}")


def _pkcs12_password(arguments: argparse.Namespace) -> str | None:
    """Raises CommandError: the file cannot be read, is empty, or not its owner's alone."""
    path: str | None = arguments.pkcs12_password_file
    return None if path is None else read_password_file(path)


_ACTIONS: dict[str, Callable[[argparse.Namespace, SecurityDirectory, datetime], None]] = {
    "init": _init,
    "broker": _broker,
    "client": _client,
    "user": _user,
    "renew": _renew,
    "revoke": _revoke,
    "list": _list,
}


if __name__ == "__main__":
    sys.exit(main())
