"""``minikafka-broker``: reads the configuration, runs one broker, and stops it cleanly on SIGTERM or SIGINT.

Exit status: 0 after a clean stop, 1 when the broker cannot start or fails, 2 for bad usage. What an operator
did wrong is one line, never a traceback.

The first signal stops the broker cleanly, also in the middle of its start. The second ends the process at
once; the data is then as after a crash. uvloop is used where it is installed. A broker that is ready says
where it listens, where its data is, and how to try it.

The directory behind ``--in-memory`` goes with the process. It lies in ``/dev/shm``, which is memory, where
there is one with room to spare (containers often have 64 MiB of it, which a broker fills in a second), and in
the usual place for temporary files otherwise. A process that is killed with SIGKILL cannot remove it; the
next broker does, because the lock is no longer held.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # until the server is imported, too: see _run

import argparse
import asyncio
import fcntl
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import msgspec

from minikafka import __version__
from minikafka.config.broker import BROKER_CONFIG_KEYS, BrokerConfig, names_of_one_thing
from minikafka.config.definition import format_value
from minikafka.config.listeners import Listener
from minikafka.config.loader import Loaded, Setting, UnknownProperty, configured, load, parse_setting
from minikafka.deferred import shutil, tempfile
from minikafka.errors import ConfigError, StartError
from minikafka.network.addresses import format_address
from minikafka.server.runtime.process import FullCollections, keep_freed_memory, raise_limit
from minikafka.system_clock import SystemClock

if TYPE_CHECKING:
    from minikafka.security.secure_setup import SecureSetup
    from minikafka.server.cluster.metadata_cache import Endpoint
    from minikafka.server.http.pages import ConsoleApi, ConsoleHost

logger = logging.getLogger("minikafka.cli.broker")

LAST_LABEL = "stop it"
STATUS_PAGE_LABEL = "status page"

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

SHARED_MEMORY = "/dev/shm"
ROOM_BYTES = 1024 * 1024 * 1024
"""Free memory file system that makes it worth using: one segment of Kafka's default size."""

_PREFIX = "minikafka-"
_LOCK = ".in-memory"

FAILURE = 1
USAGE_ERROR = 2

HTTP_PORT_BASE = 9403
"""The HTTP port is this and the broker's id, where nothing says otherwise: 9404 for broker 1, where Kafka's
metrics are usually found, and brokers on one machine have one each."""

OFF = "off"
DEFAULT_PORT = 9092

_WIDTH = 78
_EPILOG = """\
Properties have Kafka's names. They come from --set, environment variables (MINIKAFKA_LOG_SEGMENT_BYTES for
log.segment.bytes), the file, and defaults, in this order. --properties lists them all.
"""


# What is said at the start


def banner_lines(
    *,
    node_id: int,
    listening: Sequence[str],
    addresses: Sequence[str],
    open_address: str | None,
    unprotected: Sequence[str] = (),
    directories: Sequence[str],
    temporary: bool,
    status_page: str | None = None,
    metrics: str | None = None,
    admin_files: str | None = None,
) -> list[tuple[str, str]]:
    """The banner as (label, text); an empty label continues the line above.

    ``listening``: what the sockets are bound to; ``addresses``: what clients are told to connect to,
    ``host:port``; ``open_address``: the one of these where they need no configuration. ``unprotected``: those
    of ``listening`` that other machines reach without authentication. ``status_page``: where it is.
    ``metrics``: where they are, or why nowhere. ``admin_files``: the directory with what the administrator of
    a secure broker connects with.
    """
    data = ", ".join(directories)
    if open_address is not None and admin_files is None:
        produce, consume = (
            f"kcat -b {open_address} -t greetings -P",
            f"kcat -b {open_address} -t greetings -C -e",
        )
    else:  # a kcat of before 2025 cannot log in by SCRAM to a server that is careful
        options = f"greetings --command-config {admin_files}/client.properties"
        if admin_files is None:  # the user's own; README says what is in it
            options = f"greetings -b {addresses[0]} --command-config client.properties"
        produce, consume = (
            f"minikafka produce {options}",
            f"minikafka consume {options} --from-beginning --until-end",
        )
    lines = [
        ("", f"minikafka {__version__}, broker {node_id}"),
        ("listening on", ", ".join(listening)),
        ("advertised as", ", ".join(addresses)),
        ("data in", f"{data} (temporary: gone when the broker stops)" if temporary else data),
        ("try it", f"echo hello | {produce}"),
        ("", consume),
        (LAST_LABEL, "Ctrl-C"),
    ]
    if metrics is not None:
        lines.insert(4, ("metrics", metrics))
    if status_page is not None:
        lines.insert(4, (STATUS_PAGE_LABEL, status_page))
    if admin_files is not None:
        lines[-3:-3] = admin_lines(admin_files)
    if unprotected:
        where = ", ".join(unprotected)
        told = f"no authentication: anyone who can reach {where} can read and delete everything"
        lines.insert(3, ("warning", told))
    return lines


def admin_lines(files: str) -> list[tuple[str, str]]:
    """Of the administrator of a secure broker, whose files are in the directory ``files``."""
    return [
        ("user admin", "may do anything; others may do what an ACL allows"),
        ("its files", f"{files}/client.properties (Java, --command-config)"),
        ("", f"{files}/librdkafka.conf (kcat -F)"),
        ("", f"{files}/kafka_clients.py (Python)"),
    ]


def http_url(address: tuple[str, int] | None, path: str, *, scheme: str) -> str | None:
    """A page of the HTTP server at ``address``, as one asks for it on this machine; None: there is none.
    ``scheme``: http or https."""
    if address is None:
        return None
    host, port = address
    return f"{scheme}://{format_address(host or 'localhost', port)}{path}"


def status_page_in(lines: Sequence[str]) -> str | None:
    """Where the status page is, by the banner among what a broker has printed.

    Returns None when it has none.

    Raises:
        LookupError: the banner is not there, or not whole yet.
    """
    if not any(line.startswith(f"{LAST_LABEL} ") for line in lines):
        raise LookupError("there is no banner")
    found = [line for line in lines if line.startswith(f"{STATUS_PAGE_LABEL} ")]
    return found[-1].removeprefix(STATUS_PAGE_LABEL).strip() if found else None


def print_banner(lines: Sequence[tuple[str, str]], stream: TextIO | None = None) -> None:
    """Print to ``stream`` (standard output): a panel on a terminal, plain lines elsewhere."""
    out = stream or sys.stdout
    texts = [
        text if not label and index == 0 else f"{label:<13} {text}"
        for index, (label, text) in enumerate(lines)
    ]
    if not out.isatty():
        print("\n".join(texts), file=out, flush=True)
        return
    from rich.console import Console
    from rich.panel import Panel
    from rich.text import Text

    body = Text("\n").join(
        Text.assemble((f"{label:<13} ", "dim"), (text, "bold" if label == "listening on" else ""))
        for label, text in lines[1:]
    )
    Console(file=out).print(Panel(body, title=lines[0][1], title_align="left", expand=False))


# Running


def run_broker(
    config: BrokerConfig,
    *,
    unknown: Sequence[UnknownProperty] = (),
    without_effect: Sequence[str] = (),
    temporary_directory: str | None = None,
    usual_http_port: int | None = None,
    secure: SecureSetup | None = None,
) -> int:
    """Run a broker with ``config`` until it is stopped. Returns the exit status.

    ``temporary_directory`` is removed when a second signal leaves the caller no time to. ``usual_http_port``:
    see ``Broker``. ``secure``: what ``--secure`` has made, and ``config`` has the settings of.

    Raises:
        ConfigError, StartError: the broker cannot start, and why.
    """
    for unknown_property in unknown:
        logger.warning(str(unknown_property))
    if without_effect:
        logger.info(
            "set, and without effect here (docs/reference/kafka-properties.md says why): %s",
            ", ".join(without_effect),
        )
    raise_limit()
    keep_freed_memory()
    directories = [str(Path(directory).absolute()) for directory in config.log_dirs]
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(config, directories, temporary_directory, usual_http_port, secure))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(
    config: BrokerConfig,
    directories: list[str],
    temporary_directory: str | None,
    usual_http_port: int | None,
    secure: SecureSetup | None,
) -> int:
    from minikafka.server.broker import Broker  # see ``_run``

    stopped = _stop_on_signals(temporary_directory)
    first_users = () if secure is None else secure.first_users
    broker = Broker(
        config, usual_http_port=usual_http_port, first_users=first_users, make_console=_make_console
    )
    start = asyncio.ensure_future(broker.start())
    await asyncio.wait({start, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if not start.done():
        start.cancel()
    try:
        await start
    except asyncio.CancelledError:
        logger.info("stopped while starting")
        return 0
    full_collections = FullCollections(SystemClock())
    full_collections.begin()
    failed = broker.failure
    scheme = config.http_scheme()
    try:
        print_banner(
            banner_lines(
                node_id=config.node_id,
                listening=[_address(listener) for listener in broker.bound],
                unprotected=[_address(listener) for listener in broker.unprotected],
                addresses=[format_address(*endpoint) for endpoint in broker.listeners.values()],
                open_address=_open_address(broker.bound, broker.listeners),
                directories=directories,
                status_page=http_url(broker.http_address, "/", scheme=scheme),
                metrics=http_url(broker.http_address, "/metrics", scheme=scheme)
                or _why_no_metrics(config=config, usual_port=usual_http_port),
                temporary=temporary_directory is not None,
                admin_files=None
                if secure is None
                else secure.write_admin_files(format_address(*broker.listeners[secure.listener])),
            )
        )
        ends: set[asyncio.Future[Any]] = {stopped, failed}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await broker.stop()
        full_collections.end()
    if stopped.done():
        return 0
    print(f"minikafka-broker: stopped because of a failure: {failed.result()!r}", file=sys.stderr)
    return FAILURE


def _make_console(host: ConsoleHost) -> ConsoleApi:
    from minikafka.cli.console.pages import console_of_broker  # at the first request for it

    return console_of_broker(host)


def _open_address(bound: Sequence[Listener], advertised: Mapping[str, Endpoint]) -> str | None:
    """Where clients connect that are not told how to log in; None: nowhere."""
    names = [each.name for each in bound if each.protocol == "PLAINTEXT" and each.name in advertised]
    return format_address(*advertised[names[0]]) if names else None


def _address(listener: Listener) -> str:
    address = format_address(listener.host or "*", listener.port)
    return f"{address} (all interfaces)" if listener.is_wildcard else address


def _stop_on_signals(temporary_directory: str | None) -> asyncio.Future[None]:
    """A future that the first signal resolves; the second ends the process."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    def handle(signal_number: signal.Signals) -> None:
        if not stopped.done():
            logger.info("stopping", extra={"signal": signal_number.name})
            stopped.set_result(None)
            return
        logger.warning("ending at once", extra={"signal": signal_number.name})
        if temporary_directory is not None:
            shutil.rmtree(temporary_directory, ignore_errors=True)
        os._exit(128 + signal_number)

    for number in _SIGNALS:
        loop.add_signal_handler(number, handle, number)
    return stopped


def _why_no_metrics(*, config: BrokerConfig, usual_port: int | None) -> str | None:
    if usual_port is not None and config.http_port is None:
        return f"nowhere: port {usual_port} is taken (--http-port)"
    return None


# The directory of a broker in memory


class TemporaryDirectory:
    """A context manager that makes a directory and removes it. ``path`` is where it is."""

    def __init__(self, parent: str | None = None) -> None:
        """``parent`` overrides where it is made."""
        self._parent = parent or _parent()
        self._lock = -1
        self.path = ""

    def __enter__(self) -> TemporaryDirectory:
        """Raises StartError when there is no place for it."""
        try:
            remove_abandoned(self._parent)
            self.path = tempfile.mkdtemp(prefix=_PREFIX, dir=self._parent)
            self._lock = os.open(os.path.join(self.path, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError as error:
            raise StartError(
                f"cannot make a temporary directory in {self._parent}: {error.strerror}"
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_abandoned(parent: str) -> None:
    """Remove the directories of brokers that died without doing so."""
    for name in sorted(os.listdir(parent)):
        lock_path = os.path.join(parent, name, _LOCK)
        if not name.startswith(_PREFIX) or not os.path.isfile(lock_path):
            continue
        try:
            lock = os.open(lock_path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # another user's, or just gone
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(os.path.join(parent, name), ignore_errors=True)
        except BlockingIOError:  # its broker lives
            pass
        finally:
            os.close(lock)


def _parent() -> str:
    try:
        room = os.statvfs(SHARED_MEMORY)
    except OSError:
        return tempfile.gettempdir()
    if room.f_bavail * room.f_frsize >= ROOM_BYTES and os.access(SHARED_MEMORY, os.W_OK):
        return SHARED_MEMORY
    return tempfile.gettempdir()


# The command


class _Help(argparse.RawDescriptionHelpFormatter):
    """As wide as the terminal. Argparse asks for that when an option is declared: 2 ms of a start."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_WIDTH)

    def format_help(self) -> str:
        self._width = shutil.get_terminal_size().columns - 2
        return super().format_help()


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka-broker``."""
    options = argparse.ArgumentParser(
        prog="minikafka-broker",
        description="A Kafka-compatible broker. By default on localhost:9092, data in ./minikafka-data.",
        epilog=_EPILOG,
        formatter_class=_Help,
        allow_abbrev=False,
    )
    options.add_argument(
        "--config", metavar="FILE", help="a server.properties, or TOML when it ends in .toml"
    )
    options.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="set a property; may be repeated",
    )
    options.add_argument(
        "--port", metavar="PORT", help="listen on localhost:PORT (0: any free port), instead of listeners"
    )
    options.add_argument(
        "--listen",
        metavar="ADDRESS",
        help="listen on HOST or HOST:PORT (9092), instead of listeners; 0.0.0.0 is every interface",
    )
    options.add_argument(
        "--secure",
        action="store_true",
        help="TLS, users with passwords, and nothing allowed that no ACL allows; makes certificates and the "
        "user admin the first time, and prints the files that clients need",
    )
    options.add_argument(
        "--security-dir",
        metavar="DIR",
        help="keep certificates and passwords of --secure in DIR (beside the data: its path and -security)",
    )
    options.add_argument(
        "--http-port",
        metavar="PORT",
        help="serve the status page, /metrics, /healthz and /readyz on 127.0.0.1:PORT, instead of http.port "
        f"({HTTP_PORT_BASE} + node.id when neither is given and it is free); 0: any free port, off: none",
    )
    where = options.add_mutually_exclusive_group()
    where.add_argument("--data-dir", metavar="DIR", help="keep records in DIR, instead of log.dirs")
    where.add_argument(
        "--in-memory",
        action="store_true",
        help="keep records in a temporary directory that goes with the broker",
    )
    options.add_argument(
        "--api-versions",
        metavar="RELEASE",
        help="look like this release of Kafka to clients: 3.9, 4.1 or 4.4, instead of api.versions",
    )
    options.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error")
    options.add_argument("--properties", action="store_true", help="list all properties and exit")
    options.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    return options


class _Version(argparse.Action):
    """Says also what the installation found, which only this asks."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from minikafka.protocol.records.records import IS_COMPILED

        checked = "by compiled code" if IS_COMPILED else "in Python (installed without a C compiler)"
        print(f"minikafka {__version__}\nrecords are checked {checked}")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run a broker until a signal stops it. Returns the exit status."""
    arguments = parser().parse_args(argv)
    if arguments.properties:
        try:
            print(properties_text(), flush=True)
        except BrokenPipeError:  # `| head` has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    try:
        if not arguments.in_memory:
            return _start(arguments)
        from minikafka.cli.broker import TemporaryDirectory

        with TemporaryDirectory() as directory:
            arguments.data_dir = directory.path
            if arguments.secure:
                arguments.data_dir = os.path.join(directory.path, "data")
            return _start(arguments, temporary_directory=directory.path)
    except (ConfigError, StartError) as error:
        print(f"minikafka-broker: {error}", file=sys.stderr)
        return FAILURE


def _start(arguments: argparse.Namespace, *, temporary_directory: str | None = None) -> int:
    given = command_line_settings(arguments)
    secure = make_secure(arguments, given) if arguments.secure else None
    settings = [*given, *(() if secure is None else secure.settings)]
    return _run(
        load_configuration(arguments, settings),
        with_http=arguments.http_port != OFF,
        temporary_directory=temporary_directory,
        secure=secure,
    )


def make_secure(arguments: argparse.Namespace, given: Sequence[Setting]) -> SecureSetup:
    """Certificates, users and properties of ``--secure``. Raises ConfigError."""
    from minikafka.server.security.secure_broker import make_secure_setup  # an open broker does without

    return make_secure_setup(
        configured(path=arguments.config, environment=os.environ, settings=given), arguments.security_dir
    )


def load_configuration(arguments: argparse.Namespace, settings: Sequence[Setting] | None = None) -> Loaded:
    """The configuration that the command line, the environment and the file together make.

    ``settings``: those of the command line, if there are more than ``arguments`` say.

    Raises:
        ConfigError: a property, its value, and where it stands; or an option and a --set that contradict.
    """
    if settings is None:
        settings = command_line_settings(arguments)
    loaded = load(path=arguments.config, environment=os.environ, settings=settings)
    if arguments.http_port == OFF:
        return Loaded(msgspec.structs.replace(loaded.config, http_port=None), loaded.unknown)
    return loaded


def command_line_settings(arguments: argparse.Namespace) -> list[Setting]:
    """Raises ConfigError: an option is no good, or contradicts a --set or another option."""
    given = [parse_setting(text) for text in arguments.set]
    settings: list[Setting] = []
    if arguments.security_dir is not None and not arguments.secure:
        raise ConfigError("--security-dir is for --secure: give both, or neither")
    protocol = "SASL_SSL" if arguments.secure else "PLAINTEXT"
    if arguments.port is not None:
        if arguments.listen is not None:
            raise ConfigError("--port and --listen say the same thing twice: --listen takes HOST:PORT")
        if not _is_port(arguments.port):
            raise ConfigError(f"--port {arguments.port}: must be a number from 0 to 65535")
        settings.append(Setting("listeners", f"{protocol}://localhost:{arguments.port}", "--port"))
        settings.append(Setting("advertised.listeners", "", "--port"))
    if arguments.listen is not None:
        host, port = parse_listen(arguments.listen)
        settings.append(Setting("listeners", str(Listener(protocol, host, port)), "--listen"))
        if all(each.name != "advertised.listeners" for each in given):
            settings.append(Setting("advertised.listeners", "", "--listen"))
    if arguments.http_port not in (None, OFF):
        if not _is_port(arguments.http_port):
            raise ConfigError(f"--http-port {arguments.http_port}: must be a number from 0 to 65535, or off")
        settings.append(Setting("http.port", arguments.http_port, "--http-port"))
    if arguments.data_dir is not None:
        settings.append(Setting("log.dirs", arguments.data_dir, "--data-dir"))
    if arguments.api_versions is not None:
        settings.append(Setting("api.versions", arguments.api_versions, "--api-versions"))
    if arguments.log_level is not None:
        settings.append(Setting("log.level", arguments.log_level.lower(), "--log-level"))
    for setting in settings:
        twice = next((other for other in given if other.name in names_of_one_thing(setting.name)), None)
        if twice is not None:
            raise ConfigError(
                f"{setting.origin} and --set {twice.name}={twice.value} say the same thing twice"
            )
    return [*given, *settings]


def parse_listen(text: str) -> tuple[str, int]:
    """``HOST``, ``HOST:PORT``, ``[v6]``, ``[v6]:PORT`` or an IPv6 address; empty for every interface. Raises
    ConfigError."""
    host, port = text, str(DEFAULT_PORT)
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        if rest:
            port = rest.removeprefix(":") if rest.startswith(":") else ""
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not _is_port(port):
        raise ConfigError(f"--listen {text}: must be HOST or HOST:PORT, with a port from 0 to 65535")
    listener = Listener("", host.strip(), int(port))
    return ("" if listener.is_wildcard else listener.host), listener.port


def usual_http_port(config: BrokerConfig) -> int | None:
    """Where to serve HTTP when nothing is said about it; None for a broker id that leaves no port."""
    port = HTTP_PORT_BASE + config.node_id
    return port if port <= 65535 else None


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text[:6]) <= 65535


def properties_text() -> str:
    """Every property with its default, what is allowed, and what it is for."""
    parts = []
    for key in BROKER_CONFIG_KEYS.values():
        default = format_value(key, key.default)
        facts = f"default: {'none' if default is None else default or 'empty'}"
        if allowed := key.allowed():
            facts += f"; allowed: {allowed}"
        parts.append(f"{key.name}\n    {key.documentation}\n    {facts}; update: {key.update_mode.value}")
    return "\n".join(parts)


def _run(
    loaded: Loaded, *, with_http: bool, temporary_directory: str | None, secure: SecureSetup | None
) -> int:
    # Here most of what a broker consists of is imported, and kept. Looking for garbage in it finds next to
    # none: 60 times meanwhile 10 ms, once at the end, if it were not frozen, 20 ms; and in what this module
    # imports 15 ms.
    gc.disable()
    import_module("minikafka.server.broker")
    from minikafka.cli.logs import configure_logging

    gc.freeze()
    gc.enable()
    config: BrokerConfig = loaded.config
    configure_logging(level=config.log_level, format=config.log_format)
    return run_broker(
        config,
        unknown=loaded.unknown,
        without_effect=loaded.without_effect(),
        temporary_directory=temporary_directory,
        usual_http_port=usual_http_port(config) if with_http else None,
        secure=secure,
    )


if __name__ == "__main__":
    sys.exit(main())
