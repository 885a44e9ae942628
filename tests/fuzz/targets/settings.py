"""What people write: properties and TOML, listeners, options of commands and of Spark; and HTTP requests."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any, Final

from minikafka.cli.acls import parse_resource, parse_user
from minikafka.cli.dump_log.command import parser as dump_log_parser
from minikafka.cli.groups import parse_datetime, parse_duration, parse_topic
from minikafka.cli.main import SUBCOMMANDS, load
from minikafka.cli.quotas import parse_changes, parse_entity
from minikafka.cli.reassign.plan import parse_election_partitions, parse_plan, parse_topics
from minikafka.cli.shared.commands import (
    CommandError,
    parse_addresses,
    parse_broker_list,
    parse_bytes,
    with_action_first,
)
from minikafka.cli.topics import parse_assignment, parse_configs
from minikafka.config.definition import config_keys, format_value, parse_value
from minikafka.config.listeners import parse_listeners, parse_protocol_map
from minikafka.config.loader import ConfigProviders, parse_setting, parse_toml
from minikafka.config.loader import load as load_config
from minikafka.config.properties import parse_properties, properties_line
from minikafka.config.topic import TopicConfig
from minikafka.errors import ConfigError, KafkaError
from minikafka.regex import compile_regex
from minikafka.server.http.server import HttpRequest, HttpResponse, HttpServer, _Conversation
from minikafka.server.runtime.event_loop import Supervisor
from minikafka.spark.source.options import KNOWN_OPTIONS, BadOption, Reading, parse_options
from tests.fuzz.target import Target

_READINGS: Final = tuple(Reading)


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def _by_first(readers: tuple[Callable[[str], object], ...], data: bytes) -> object:
    """The first byte says which reader."""
    return readers[data[0] % len(readers)](_text(data[1:])) if data else None


# Configuration


def _properties(data: bytes) -> object:
    """What is read can be written, and is read again as it was."""
    properties = parse_properties(data, source="file")
    for each in properties:
        (again,) = parse_properties(properties_line(each.name, each.value).encode(), source="file")
        assert (again.name, again.value) == (each.name, each.value)
    return properties


def _broker_config(data: bytes) -> object:
    """A broker's settings, one a line, as ``--set`` has them."""
    return load_config(settings=[parse_setting(line) for line in _text(data).split("\n")])


def _config_seeds() -> Iterable[bytes]:
    return [
        b"num.partitions=3\nlog.retention.ms=-1\nlisteners=PLAINTEXT://:9092,SSL://[::1]:9093",
        b"listener.security.protocol.map=A:PLAINTEXT,B:SASL_SSL\nlisteners=A://h:1,B://:2\ninter.broker.listener.name=A",
        b"log.cleanup.policy=compact,delete\ncompression.type=zstd\nleader.replication.throttled.rate=5",
        b"super.users=User:a;User:b\nssl.principal.mapping.rules=RULE:^CN=(.*)$/$1/L\nhttp.hosts=a,b",
        b"sasl.enabled.mechanisms=PLAIN\nconfig.providers=file\nconfig.providers.file.class=x\nssl.client.auth=required",
    ]


def _topic_config(text: str) -> object:
    """``name=value``; the value that is read is shown as a text that reads as the same."""
    name, _, value = text.partition("=")
    key = config_keys(TopicConfig).get(name)
    if key is None:
        return None
    parsed = parse_value(key, value)
    shown = format_value(key, parsed)
    assert shown is None or parse_value(key, shown) == parsed
    return parsed


_CONFIGS: Final[tuple[Callable[[str], object], ...]] = (
    lambda text: parse_toml(text.encode("utf-8", "surrogateescape"), source="file"),
    parse_protocol_map,
    lambda text: parse_listeners(
        "listeners", text.split(","), protocols={"PLAINTEXT": "PLAINTEXT", "A": "SSL"}
    ),
    _topic_config,
    lambda text: ConfigProviders(
        {"config.providers": "env", "config.providers.env.class": _ENV_PROVIDER}, environment={"A": "b"}
    ).resolve("name", text),
)

_ENV_PROVIDER: Final = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"


def _setting_seeds() -> Iterator[bytes]:
    yield b'\0log.dirs = "/d"\n[a]\nb = [1, 2.5, true]\n'
    yield b"\1A:PLAINTEXT,B:SASL_SSL"
    yield b"\2PLAINTEXT://host:9092,A://[::1]:9093,A://:0"
    yield b"\4a${env:A}b${env:C}${file:/x:y}"
    for name, key in config_keys(TopicConfig).items():
        yield f"\3{name}={format_value(key, key.default)}".encode()


# Commands


@cache
def _parsers() -> dict[str, argparse.ArgumentParser]:
    parsers = {"dump-log": dump_log_parser()}
    for name, (module, _) in SUBCOMMANDS.items():
        make = getattr(load(module), "parser", None)
        if make is not None and name != "cluster":
            with contextlib.suppress(TypeError):
                parsers[name] = make()
    return parsers


def _command(data: bytes) -> object:
    """A command line, an argument a line. It is refused by argparse, which says why and exits with 2."""
    name, *arguments = _text(data).split("\n")
    parser = _parsers().get(name)
    if parser is None:
        return None
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            return parser.parse_args(
                with_action_first(arguments, ("create", "list", "describe", "delete", "alter"))
            )
        except SystemExit as ended:
            assert ended.code in (0, 2)
    return None


def _command_seeds() -> Iterator[bytes]:
    for name, parser in _parsers().items():
        options = _options_of(parser)
        yield "\n".join([name, *options]).encode()
        for option in options:
            yield "\n".join([name, option, "1"]).encode()


def _options_of(parser: argparse.ArgumentParser) -> list[str]:
    """Of the parser and of its actions, those behind the names of the actions."""
    found = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, each in action.choices.items():
                found += [name, *_options_of(each)]
        else:
            found += action.option_strings[-1:]
    return [option for option in found if option not in ("--help", "-h")]


_VALUES: Final[tuple[Callable[[str], object], ...]] = (
    parse_datetime,
    parse_duration,
    parse_topic,
    parse_bytes,
    parse_addresses,
    parse_broker_list,
    parse_entity,
    parse_user,
    parse_resource,
    parse_assignment,
    parse_plan,
    parse_topics,
    parse_election_partitions,
    lambda text: parse_configs(text.split("\n")),
    lambda text: parse_changes(text.split("\n"), ()),
)


def _value_seeds() -> Iterable[bytes]:
    texts = (
        "2026-02-03T04:05:06.789+01:00",
        "P1DT2H30M4.5S",
        "orders:0,1",
        "64MiB",
        "[::1]:9092,host",
        "1,2,3",
        "user=a,client-id=b",
        "User:alice",
        "topic:orders",
        "1:2,2:1",
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","/d"]}]}',
        '{"version":1,"topics":[{"topic":"t"}]}',
        '{"partitions":[{"topic":"t","partition":0}]}',
        "retention.ms=5",
        "producer_byte_rate=5MB",
    )
    return [bytes([place]) + text.encode() for place, text in enumerate(texts)]


# Spark


def _spark(data: bytes) -> object:
    """Options, ``name=value`` a line; the first byte says what they are for."""
    if not data:
        return None
    given = dict(line.partition("=")[::2] for line in _text(data[1:]).split("\n"))
    return parse_options(given, _READINGS[data[0] % len(_READINGS)])


def _spark_seeds() -> Iterator[bytes]:
    for first in range(len(_READINGS)):
        head = bytes([first]) + b"path=/d\n"
        yield head + b"subscribe=a,b\nstartingOffsets=earliest\nsplitBytes=1000\nlatest=logEnd"
        yield (
            head + b'assign={"a":[0,1]}\nstartingOffsets={"a":{"0":23,"1":-2}}\nendingOffsets={"a":{"0":-1}}'
        )
        yield head + b"subscribePattern=a.*\nstartingTimestamp=5\nisolation=read_committed\nonCorrupt=skip"
        for name in KNOWN_OPTIONS:
            yield head + name.encode() + b"=true"


# HTTP


async def _converse(data: bytes) -> None:
    server = HttpServer(supervisor=Supervisor())

    async def page(request: HttpRequest) -> HttpResponse:
        return HttpResponse.text(f"{request.path} {sorted(request.query.items())}")

    for path in ("/", "/metrics", "/status.json"):
        server.add(path, page)
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport = _Transport()
    protocol.connection_made(transport)
    reader.feed_data(data)
    reader.feed_eof()
    loop = asyncio.get_running_loop()
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    await _Conversation(server, reader, writer).run()
    writer.close()


class _Transport(asyncio.Transport):
    """Takes what is written to it, and tells of no socket."""

    _is_closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1)

    def write(self, data: Any) -> None:
        assert data is not None

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        pass


def _http(data: bytes) -> object:
    """What a client sends, to the end of its stream: every exception but OSError is one too many."""
    return asyncio.run(_converse(data))


def _http_seeds() -> Iterable[bytes]:
    return [
        b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n"
        b"HEAD /%73?a=b&c HTTP/1.1\r\nhost: 127.0.0.1:80\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\nexpect: 100-continue\r\n\r\nabc",
        b"GET //[ HTTP/1.1\r\nhost: a\r\nauthorization: Basic YTpi\r\n"
        b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        b"GET http://h/x HTTP/1.0\r\n\r\n",
    ]


TARGETS: Final = (
    Target(
        "properties",
        _properties,
        (ConfigError,),
        lambda: [b"a=b\n# c\n! d\n e\\\n  f : g\\u00e4\\t\n", b"k\\ 1  v\r\nx\\:y=", b"\\ud83d\\ude00=1"],
        512,
    ),
    Target("broker-config", _broker_config, (ConfigError,), _config_seeds, 512),
    Target("settings", partial(_by_first, _CONFIGS), (ConfigError,), _setting_seeds, 512),
    Target("command", _command, (), _command_seeds, 300),
    Target(
        "command-values",
        partial(_by_first, _VALUES),
        (ValueError, CommandError, ConfigError, KafkaError),
        _value_seeds,
    ),
    Target("spark-options", _spark, (BadOption,), _spark_seeds),
    Target("http", _http, (OSError,), _http_seeds, 2048),
    Target(
        "regex",
        lambda data: compile_regex(data.decode(errors="replace"), name="regex"),
        (KafkaError,),
        lambda: [b"a.*b", b"(a|b)+[^c]{2,5}\\pL", b"(?i)x", b"\\Qa.b\\E"],
        256,
    ),
)
