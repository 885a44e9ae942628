"""``minikafka-broker``: reads the configuration, runs one broker, and stops it cleanly on SIGTERM or SIGINT.

Exit status: 0 after a clean stop, 1 when the broker cannot start or fails, 2 for bad usage. What an operator
did wrong is one line, never a traceback. A second signal ends the process at once, as a crash would.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence

import msgspec

from minikafka import __version__
from minikafka.config.broker import BROKER_CONFIG_KEYS, BrokerConfig, names_of_one_thing
from minikafka.config.definition import format_value
from minikafka.config.loader import Loaded, Setting, load, parse_setting
from minikafka.errors import ConfigError, StartError

FAILURE = 1
USAGE_ERROR = 2

HTTP_PORT_BASE = 9403
"""The HTTP port is this and the broker's id, where nothing says otherwise: 9404 for broker 1, where Kafka's
metrics are usually found, and brokers on one machine have one each."""

OFF = "off"

_EPILOG = """\
Properties have Kafka's names. They come from --set, environment variables (MINIKAFKA_LOG_SEGMENT_BYTES for
log.segment.bytes), the file, and defaults, in this order. --properties lists them all.
"""


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka-broker``."""
    options = argparse.ArgumentParser(
        prog="minikafka-broker",
        description="A Kafka-compatible broker. By default on localhost:9092, data in ./minikafka-data.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
    options.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error")
    options.add_argument("--properties", action="store_true", help="list all properties and leave")
    options.add_argument("--version", action="version", version=f"minikafka {__version__}")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run a broker until a signal stops it. Returns the exit status."""
    arguments = parser().parse_args(argv)
    if arguments.properties:
        print(properties_text())
        return 0
    try:
        if not arguments.in_memory:
            return _run(load_configuration(arguments), with_http=arguments.http_port != OFF)
        from minikafka.cli.temporary_directory import TemporaryDirectory

        with TemporaryDirectory() as directory:
            arguments.data_dir = directory.path
            return _run(
                load_configuration(arguments),
                with_http=arguments.http_port != OFF,
                temporary_directory=directory.path,
            )
    except (ConfigError, StartError) as error:
        print(f"minikafka-broker: {error}", file=sys.stderr)
        return FAILURE


def load_configuration(arguments: argparse.Namespace) -> Loaded:
    """The configuration that the command line, the environment and the file together make.

    Raises:
        ConfigError: a property, its value, and where it stands; or an option and a --set that contradict.
    """
    given = [parse_setting(text) for text in arguments.set]
    settings: list[Setting] = []
    if arguments.port is not None:
        if not _is_port(arguments.port):
            raise ConfigError(f"--port {arguments.port}: must be a number from 0 to 65535")
        settings.append(Setting("listeners", f"PLAINTEXT://localhost:{arguments.port}", "--port"))
        settings.append(Setting("advertised.listeners", "", "--port"))
    if arguments.http_port not in (None, OFF):
        if not _is_port(arguments.http_port):
            raise ConfigError(f"--http-port {arguments.http_port}: must be a number from 0 to 65535, or off")
        settings.append(Setting("http.port", arguments.http_port, "--http-port"))
    if arguments.data_dir is not None:
        settings.append(Setting("log.dirs", arguments.data_dir, "--data-dir"))
    if arguments.log_level is not None:
        settings.append(Setting("log.level", arguments.log_level.lower(), "--log-level"))
    for setting in settings:
        twice = next((other for other in given if other.name in names_of_one_thing(setting.name)), None)
        if twice is not None:
            raise ConfigError(
                f"{setting.origin} and --set {twice.name}={twice.value} say the same thing twice"
            )
    loaded = load(path=arguments.config, environment=os.environ, settings=[*given, *settings])
    if arguments.http_port == OFF:
        return Loaded(msgspec.structs.replace(loaded.config, http_port=None), loaded.unknown)
    return loaded


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


def _run(loaded: Loaded, *, with_http: bool, temporary_directory: str | None = None) -> int:
    # All that is imported stays. Looking for garbage in it finds next to none: 60 times meanwhile 10 ms, once
    # at the end, if it were not frozen, 20 ms.
    gc.disable()
    from minikafka.cli.logs import configure_logging
    from minikafka.cli.run_broker import run_broker

    gc.freeze()
    gc.enable()
    config: BrokerConfig = loaded.config
    configure_logging(level=config.log_level, format=config.log_format)
    return run_broker(
        config,
        unknown=loaded.unknown,
        temporary_directory=temporary_directory,
        usual_http_port=usual_http_port(config) if with_http else None,
    )


if __name__ == "__main__":
    sys.exit(main())
