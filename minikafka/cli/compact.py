"""``minikafka compact``: keeps the newest record of each key in a log directory's closed segments. Uses
Spark.

Without ``--bootstrap-server`` no broker may hold the directory, which is locked until the end. With it,
the broker that has the directory keeps serving, says how its topics are configured, and puts the new
segments in at the end. Which broker that is says ``meta.properties``; the swap is asked for with
AlterClientQuotas and an entity type of our own (``server.apis.client_quotas``), which other brokers than
minikafka's refuse. What may be compacted, and what is retained, is what the broker's own cleaner does
(``minikafka.log.cleaner``); ``minikafka.spark.compact.job`` says how.

A directory does not know how its topics are configured: without a broker, ``--config`` says what is not
Kafka's default, and naming a topic says that it is a compacted one.

Exit status: 0 done; 1 it cannot be done or the broker refused it, in one line; 2 bad usage.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from minikafka.cli.groups import table
from minikafka.cli.shared.admin_client import AdminClient
from minikafka.cli.shared.commands import (
    DEFAULT_TIMEOUT_MS,
    Address,
    CommandError,
    add_command_config_option,
    as_json,
    ended_by_signals,
    error_of,
    explain,
    parse_timeout,
    take_connection,
)
from minikafka.config.broker import broker_config
from minikafka.config.client_quotas import COMPACTION, SWAP_IN
from minikafka.config.resolution import topic_config
from minikafka.config.resource import ConfigResourceType
from minikafka.config.topic import TOPIC_CONFIG_KEYS, TopicConfig
from minikafka.errors import KafkaError, MinikafkaError
from minikafka.files import OsFiles
from minikafka.log.checkpoint import META_PROPERTIES, read_meta_properties
from minikafka.metrics.series import BATCHES, BYTES, OUTPUT_BYTES, PARTITIONS, RECORDS, REMOVED_RECORDS
from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.spark.runtime.job import FAILURE, INTERRUPTED, OK, Job, JobError, add_job_options, run_job
from minikafka.spark.runtime.session import check_pyspark
from minikafka.types import TopicPartition
from minikafka.units import format_bytes

if TYPE_CHECKING:
    from minikafka.network.client_security import ClientSecurity
    from minikafka.spark.compact.job import Compacted


SWAP_TIMEOUT_MS = 600_000
"""A swap waits for fsyncs of a directory, and for its turn on a busy disk thread."""

T = TypeVar("T")

PROG = "minikafka compact"
CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")

_PARTITION = re.compile(r"(?P<topic>[^:]+)(?::(?P<partition>[0-9]{1,10}))?")


# The broker that has the directory


class BrokerOfDirectory:
    """The broker that holds a log directory. Every call makes its own connection, and waits."""

    def __init__(
        self,
        addresses: Sequence[Address],
        log_directory: str,
        *,
        timeout_ms: int,
        security: ClientSecurity | None = None,
    ) -> None:
        """Raises CommandError: the directory does not say whose it is; CorruptCheckpoint, OSError."""
        meta = read_meta_properties(OsFiles(), log_directory)
        if meta is None or meta.node_id is None:
            path = os.path.join(log_directory, META_PROPERTIES)
            raise CommandError(f"{path} does not name a broker: no broker has this directory")
        self._addresses = addresses
        self._security = security
        self._meta = meta
        self._node_id = meta.node_id
        self._timeout_ms = timeout_ms

    def topic_configs(self, topics: Sequence[str]) -> dict[str, TopicConfig]:
        """How the topics are configured.

        Raises:
            KafkaError: what the broker says. BrokerUnavailable: it is not there. CommandError: it is of
            another
                cluster, or a topic is not compacted.
        """
        return self._ask(lambda client: self._topic_configs(client, topics), self._timeout_ms)

    def put_in(self, at: TopicPartition, manifest_id: str) -> None:
        """Have the broker put in what is prepared for ``at``. Raises KafkaError: why not;
        BrokerUnavailable."""
        self._ask(lambda client: self._put_in(client, f"{at}:{manifest_id}"), SWAP_TIMEOUT_MS)

    def _ask(self, question: Callable[[AdminClient], Awaitable[T]], timeout_ms: int) -> T:
        async def ask() -> T:
            async with AdminClient(
                self._addresses,
                client_id="minikafka-compact",
                timeout_ms=timeout_ms,
                security=self._security,
            ) as client:
                return await question(client)

        return asyncio.run(ask())

    async def _topic_configs(self, client: AdminClient, topics: Sequence[str]) -> dict[str, TopicConfig]:
        cluster_id = (await client.nodes()).cluster_id
        if self._meta.cluster_id not in (None, cluster_id):
            raise CommandError(
                f"the directory belongs to cluster {self._meta.cluster_id}, and the broker to {cluster_id}"
            )
        resources = [
            {"resource_type": ConfigResourceType.TOPIC, "resource_name": topic, "configuration_keys": None}
            for topic in topics
        ]
        body = {"resources": resources, "include_synonyms": False, "include_documentation": False}
        answer = await client.ask_broker(self._node_id, ApiKey.DESCRIBE_CONFIGS, body)
        return {result.resource_name: _topic_config(result) for result in answer.results}

    async def _put_in(self, client: AdminClient, name: str) -> None:
        entry = {
            "entity": [{"entity_type": COMPACTION, "entity_name": name}],
            "ops": [{"key": SWAP_IN, "value": 1.0, "remove": False}],
        }
        body = {"entries": [entry], "validate_only": False}
        answer = await client.ask_broker(self._node_id, ApiKey.ALTER_CLIENT_QUOTAS, body)
        for result in answer.entries:
            error = error_of(result.error_code, result.error_message)
            if error is not None:
                raise error


def _topic_config(result: Any) -> TopicConfig:
    """Raises KafkaError, CommandError."""
    error = error_of(result.error_code, result.error_message)
    if error is not None:
        raise error
    texts = {
        each.name: each.value
        for each in result.configs
        if each.name in TOPIC_CONFIG_KEYS and each.value is not None
    }
    config = topic_config(broker_config({}), texts)
    if not config.compact:
        raise CommandError(
            f"cleanup.policy of topic {result.resource_name} is {','.join(config.cleanup_policy)}: "
            "compaction would remove records that it keeps"
        )
    return config


# The command


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka compact``."""
    options = argparse.ArgumentParser(
        prog=PROG,
        description="Keep the newest record of each key in the closed segments of a log directory.",
        allow_abbrev=False,
    )
    options.add_argument("directory", metavar="DIR", help="a log directory on this machine")
    options.add_argument(
        "--topic",
        action="append",
        required=True,
        type=_wanted,
        metavar="TOPIC[:PARTITION]",
        help="what to compact; may be given several times",
    )
    options.add_argument(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        help="a broker holds the directory: ask it for the configuration and, at the end, for the swap",
    )
    add_command_config_option(options)
    options.add_argument(
        "--config",
        action="append",
        default=[],
        type=_setting,
        metavar="NAME=VALUE",
        help="a property of the topics, like min.compaction.lag.ms=60000, where no broker is asked",
    )
    options.add_argument("--compression", choices=CODECS, help="of all batches; as they are unless given")
    options.add_argument("--dry-run", action="store_true", help="only show what it would save")
    options.add_argument(
        "--no-verify", action="store_true", help="do not compare each key's newest record before the swap"
    )
    options.add_argument("--json", action="store_true", help="print JSON")
    options.add_argument(
        "--timeout-ms",
        type=parse_timeout,
        default=DEFAULT_TIMEOUT_MS,
        metavar="MS",
        help=f"how long to wait for an answer of the broker ({DEFAULT_TIMEOUT_MS})",
    )
    add_job_options(options)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Compact. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    try:
        take_connection(arguments)
    except ValueError as error:
        options.error(str(error))
    if arguments.config and arguments.addresses:
        options.error("--config is for a directory without a broker: with --bootstrap-server it is asked")
    directory = os.path.realpath(arguments.directory)
    broker, configs = None, {}
    try:
        check_pyspark()
        _check_directory(directory)
        settings = topic_config(broker_config({}), dict(arguments.config))
        if arguments.addresses:
            broker = BrokerOfDirectory(
                arguments.addresses,
                directory,
                timeout_ms=arguments.timeout_ms,
                security=arguments.security,
            )
            configs = broker.topic_configs(list(dict.fromkeys(topic for topic, _ in arguments.topic)))
    except KafkaError as error:
        print(f"{PROG}: {explain(error)}", file=sys.stderr)
        return FAILURE
    except MinikafkaError as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return FAILURE
    except OSError as error:  # of meta.properties
        print(f"{PROG}: {error.filename}: {error.strerror}", file=sys.stderr)
        return FAILURE
    except KeyboardInterrupt:
        return INTERRUPTED

    def config(topic: str) -> TopicConfig:
        return configs.get(topic, settings)

    with ended_by_signals():
        return run_job("compact", arguments, lambda job: _compact(job, directory, arguments, config, broker))


def _compact(
    job: Job,
    directory: str,
    arguments: argparse.Namespace,
    config: Callable[[str], TopicConfig],
    broker: BrokerOfDirectory | None,
) -> int:
    from minikafka.spark.compact.job import Request, compact

    codec = arguments.compression
    request = Request(
        log_directory=directory,
        wanted=tuple(arguments.topic),
        config=config,
        codec=None if codec is None else CompressionType.of_name(codec),
        dry_run=arguments.dry_run,
        verify=not arguments.no_verify,
        put_in=None if broker is None else broker.put_in,
    )
    try:
        done = compact(
            job.spark, request, files=OsFiles(), now_ms=time.time_ns() // 1_000_000, phase=job.progress.phase
        )
    except KafkaError as error:  # its words and its name
        raise JobError(explain(error)) from error
    _count(job, done)
    print(as_json(done) if arguments.json else _text(done, dry_run=arguments.dry_run))
    return OK


def _count(job: Job, done: Sequence[Compacted]) -> None:
    for each in done:
        if not each.skipped:
            job.counters.add(PARTITIONS, 1, topic=each.topic)
            job.counters.add(RECORDS, each.records_kept + each.records_dropped, topic=each.topic)
            job.counters.add(BATCHES, each.batches, topic=each.topic)
            job.counters.add(REMOVED_RECORDS, each.records_dropped, topic=each.topic)
            job.counters.add(BYTES, each.bytes_before, topic=each.topic)
            job.counters.add(OUTPUT_BYTES, each.bytes_after, topic=each.topic)


def _text(done: Sequence[Compacted], *, dry_run: bool) -> str:
    heads = ("PARTITION", "UP TO", "SEGMENTS", "BYTES", "SAVES" if dry_run else "SAVED", "RECORDS", "REMOVED")
    rows = [
        (
            f"{each.topic}-{each.partition}",
            str(each.end_offset),
            f"{each.segments_before} → {each.segments_after}",
            f"{format_bytes(each.bytes_before)} → {format_bytes(each.bytes_after)}",
            f"{100 * (1 - each.bytes_after / max(each.bytes_before, 1)):.0f} %",
            f"{each.records_kept + each.records_dropped:,}",
            f"{each.records_dropped:,}",
        )
        for each in done
        if not each.skipped
    ]
    skipped = [
        f"{each.topic}-{each.partition}: nothing to compact: {each.skipped}" for each in done if each.skipped
    ]
    return "\n".join([*table(heads, rows), *skipped])


def _check_directory(directory: str) -> None:
    """Raises JobError: new segments cannot take the place of old ones there."""
    if not os.path.isdir(directory):
        what = "is a file, not a log directory" if os.path.exists(directory) else "does not exist"
        raise JobError(f"{directory} {what}")


def _wanted(text: str) -> tuple[str, int | None]:
    match = _PARTITION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not TOPIC or TOPIC:PARTITION")
    return match["topic"], None if match["partition"] is None else int(match["partition"])


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name.strip(), value.strip()
