"""``minikafka console``: the console in a process of its own, for any Kafka cluster, Apache Kafka's too.

It asks the cluster as the user of ``--command-config``; all readers of its port see what that user may see.
So it listens on this machine only unless told otherwise. Where the cluster wants credentials, messages and
ACLs are for readers who have some, too (``--users``, or client certificates by ``--http-tls``); messages for
all when that is said (``--messages``).

Exit status: 0 when it was ended by a signal, 1 when no broker can be reached or the port is taken, 2 for bad
usage.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from minikafka.cli.console.cluster import TIMEOUT_MS, Connection
from minikafka.cli.console.decoding import Registry
from minikafka.cli.console.pages import Console, Permissions
from minikafka.cli.shared.commands import (
    OK,
    CommandError,
    ProfileParser,
    add_connection_options,
    read_text,
    run,
    take_connection,
    typed_connection,
)
from minikafka.config.broker import is_registry_url
from minikafka.config.listeners import is_loopback
from minikafka.errors import ConfigError
from minikafka.network.addresses import format_address
from minikafka.server.http import status
from minikafka.server.http.pages import CONSOLE_PREFIX
from minikafka.server.http.server import (
    CONNECTIONS_MAX,
    AllowedHosts,
    Credentials,
    HttpRequest,
    HttpResponse,
    HttpServer,
)
from minikafka.server.runtime.event_loop import Restart, Supervisor
from minikafka.system_clock import SystemClock

if TYPE_CHECKING:
    from minikafka.security.tls_settings import TlsSettings
    from minikafka.server.http.server import HttpTls

PROG: Final = "minikafka console"
HTTP_PORT: Final = 9403
"""Brokers' are counted from here on (9404 is that of broker 1)."""
UNENCRYPTED: Final = (
    f"{PROG}: takes passwords from other machines without TLS: anyone on the way can read them (--http-tls)"
)


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka console``."""
    options = ProfileParser(
        prog=PROG,
        description="Serve the console for a cluster, Apache Kafka's too: brokers, topics, messages, groups, "
        "ACLs. A broker of minikafka has it on its own HTTP port.",
        allow_abbrev=False,
    )
    options.add_argument(
        "--http-host", metavar="ADDRESS", default="127.0.0.1", help="listen on this address (127.0.0.1)"
    )
    options.add_argument(
        "--http-port", metavar="PORT", type=_port, default=HTTP_PORT, help=f"0: any free one ({HTTP_PORT})"
    )
    options.add_argument(
        "--allowed-host",
        metavar="NAME",
        action="append",
        default=[],
        help="a name that the page is asked under, besides this machine's own; may be repeated",
    )
    options.add_argument(
        "--users", metavar="FILE", help="only for these users: a file with a line NAME:PASSWORD for each"
    )
    options.add_argument(
        "--http-tls",
        metavar="FILE",
        help="serve https by the properties of this file: ssl.keystore.location and others, as Kafka has "
        "them; with ssl.client.auth=required only who has a certificate that ssl.truststore.location trusts",
    )
    options.add_argument(
        "--messages",
        action=argparse.BooleanOptionalAction,
        help="show keys and values of records; unless given: with --users, or where the cluster takes "
        "everybody",
    )
    options.add_argument(
        "--admin", action="store_true", help="let readers who log in reset offsets and cancel reassignments"
    )
    options.add_argument(
        "--registry",
        metavar="URL",
        help="the schema registry to decode Avro and Protobuf by, like http://localhost:8081; it needs the "
        "extra console",
    )
    options.add_argument(
        "--registry-user", metavar="FILE", help="who asks the registry: a file with the line NAME:PASSWORD"
    )
    add_connection_options(options, timeout_ms=TIMEOUT_MS)
    return options


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text[:6]) > 65535:
        raise argparse.ArgumentTypeError(f"{text}: must be from 0 to 65535")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    try:
        take_connection(arguments)
        arguments.tls = take_tls(arguments.http_tls) if arguments.http_tls else None
        if arguments.admin and not _authenticates(arguments):
            raise ValueError(
                "--admin is for readers who log in: give --users FILE, or --http-tls FILE with "
                "ssl.client.auth=required"
            )
        if arguments.registry_user and not arguments.registry:
            raise ValueError("--registry-user is for a registry: give --registry URL")
        if arguments.registry is not None and not is_registry_url(arguments.registry):
            raise ValueError(f"--registry {arguments.registry}: must be a URL like http://localhost:8081")
    except ValueError as error:
        options.error(str(error))
    return run(PROG, _serve(arguments))


def take_tls(name: str) -> TlsSettings:
    """What a file of ``--http-tls`` says. Raises ValueError: it cannot be read, or is no good."""
    from minikafka.cli.shared.client_properties import read_client_properties
    from minikafka.security.tls_settings import client_tls_settings

    try:
        properties = read_client_properties(name)
        others = sorted(each for each in properties if not each.startswith("ssl."))
        if others:
            raise ConfigError(f"{others[0]} is none of the properties of TLS, which begin with ssl.")
        found = client_tls_settings(properties)
        if not found.key_store.is_set:
            raise ConfigError(
                "there is no key store: set ssl.keystore.location, or ssl.keystore.key and "
                "ssl.keystore.certificate.chain"
            )
    except ConfigError as error:
        raise ValueError(f"--http-tls {name}: {error}") from None
    return found


def _authenticates(arguments: argparse.Namespace) -> bool:
    """Whether its readers must show who they are."""
    return bool(arguments.users) or _wants_certificates(arguments.tls)


def _wants_certificates(settings: TlsSettings | None) -> bool:
    return settings is not None and settings.client_auth == "required"


async def _begun_tls(settings: TlsSettings) -> HttpTls:
    """Raises CommandError: what is wrong with the stores."""
    from minikafka.security.tls import server_context
    from minikafka.server.http.server import HttpTls

    tls = HttpTls(lambda: server_context(settings), settings.files, name="HTTP")
    try:
        await tls.begin()
    except ConfigError as error:
        raise CommandError(f"--http-tls: {error}") from None
    return tls


async def _serve(arguments: argparse.Namespace) -> int:
    users = parse_users(read_text(arguments.users), arguments.users) if arguments.users else []
    registry = None
    if arguments.registry is not None:
        name = arguments.registry_user
        ((user, password), *_) = parse_users(read_text(name), name) if name else [("", "")]
        registry = Registry(arguments.registry, f"{user}:{password}" if user else None)
    connection = Connection(arguments.addresses, arguments.security, timeout_ms=arguments.timeout_ms)
    console = Console(
        connection,
        clock=SystemClock(),
        permissions=permissions_of(arguments, has_users=_authenticates(arguments)),
        registry=registry,
        options=typed_connection(arguments),
    )
    supervisor = Supervisor()
    tls = None if arguments.tls is None else await _begun_tls(arguments.tls)
    server = HttpServer(
        supervisor=supervisor,
        connections_max=CONNECTIONS_MAX,
        hosts=AllowedHosts((arguments.http_host, *arguments.allowed_host)),
        credentials=Credentials(tokens=(), users=users) if users else None,
        tls=tls,
        wants_certificates=_wants_certificates(arguments.tls),
    )
    server.add("/", _page)
    server.add_below(CONSOLE_PREFIX, console, close=console.close)
    try:
        await console.begin()
        await server.start(arguments.http_host, arguments.http_port)
        assert server.address is not None
        host, port = server.address
        if tls is not None:
            supervisor.start("http-tls", tls.watch, restart=Restart.ALWAYS)
        elif users and not is_loopback(arguments.http_host):
            print(UNENCRYPTED, file=sys.stderr)
        scheme = "http" if tls is None else "https"
        print(f"{scheme}://{format_address(host or 'localhost', port)}/ (Ctrl-C ends it)", flush=True)
        await _until_signal()
    finally:
        await server.close()
        await supervisor.stop()
    return OK


async def _page(request: HttpRequest) -> HttpResponse:
    return status.page()


async def _until_signal() -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    await ended.wait()


def permissions_of(arguments: argparse.Namespace, *, has_users: bool) -> Permissions:
    """What ``--messages`` and ``--admin`` say, and where they are not given what is prudent. ``has_users``:
    readers have shown a password or a certificate."""
    why = None
    if not has_users and arguments.security is not None:
        why = "the cluster is reached by --command-config, and readers of this page do not authenticate"
    elif not has_users and not is_loopback(arguments.http_host):
        why = "this page answers other machines without authentication"
    messages: bool | str = why is None or f"{why}: --users or --messages"
    if arguments.messages is not None:
        messages = arguments.messages or "--no-messages"
    return Permissions(messages, arguments.admin or "--admin is not given", why is None or f"{why}: --users")


def parse_users(text: str, name: str) -> list[tuple[str, str]]:
    """``NAME:PASSWORD`` a line. Raises CommandError: a line that is none, or no user at all."""
    users = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        user, _, password = line.strip().partition(":")
        if not user or not password:
            raise CommandError(f"{name}, line {number}: must be NAME:PASSWORD")
        users.append((user, password))
    if not users:
        raise CommandError(f"{name} has no users")
    return users


if __name__ == "__main__":
    sys.exit(main())
