"""``minikafka configs``: what it sets, shows and removes at a real broker, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from minikafka.cli.configs import additions, entities, java_double, main, parser
from minikafka.cli.shared.commands import parse_addresses
from minikafka.cli.topics import TopicAdmin
from minikafka.testing import Broker

Run = Callable[..., Awaitable[tuple[int, list[str], str]]]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as running:
        yield running


@pytest.fixture
def configs(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command: exit status, standard output's lines, standard error."""

    async def run(*arguments: str) -> tuple[int, list[str], str]:
        status = await asyncio.to_thread(main, [*arguments, "-b", f"127.0.0.1:{broker.port}"])
        output = capsys.readouterr()
        return status, output.out.splitlines(), output.err

    return run


async def make_topic(broker: Broker, name: str) -> None:
    address = parse_addresses(f"127.0.0.1:{broker.port}")
    async with await TopicAdmin.connect(address, timeout_ms=20_000) as admin:
        await admin.create(name, partitions=1, replication_factor=1, assignment=None, configs={})


async def test_a_topics_configuration_in_kafkas_words(broker: Broker, configs: Run) -> None:
    await make_topic(broker, "orders")
    set_both = "cleanup.policy=[compact,delete],retention.ms=5000"
    assert await configs("--alter", "--topic", "orders", "--add-config", set_both) == (
        0,
        ["Completed updating config for topic orders."],
        "",
    )
    _, lines, _ = await configs("--describe", "--entity-type", "topics", "--entity-name", "orders")
    assert lines == [
        "Dynamic configs for topic orders are:",
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy="
        "compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}",
        "  retention.ms=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5000, "
        "DEFAULT_CONFIG:log.retention.hours=168}",
    ]
    status, lines, _ = await configs("describe", "--topic", "orders", "--all")
    assert lines[0] == "All configs for topic orders are:" and len(lines) > 20
    await configs("alter", "--topic", "orders", "--delete-config", "retention.ms, cleanup.policy")
    _, lines, _ = await configs("describe", "--entity-type", "topics")
    assert lines == ["Dynamic configs for topic orders are:"]
    status, _, error = await configs("alter", "--topic", "orders", "--delete-config", "retention.ms")
    assert (status, error) == (1, "minikafka configs: Invalid config(s): retention.ms\n")
    status, _, error = await configs("alter", "--topic", "none", "--add-config", "retention.ms=1")
    assert status == 1 and "none" in error


async def test_brokers_their_defaults_and_their_loggers(configs: Run, tmp_path: Path) -> None:
    file = tmp_path / "add.properties"
    file.write_text("log.retention.ms = 2000\n")
    _, lines, _ = await configs("--alter", "--broker-defaults", "--add-config-file", str(file))
    assert lines == ["Completed updating default config for brokers in the cluster."]
    await configs("--alter", "--broker", "1", "--add-config", "log.retention.ms=3000")
    _, lines, _ = await configs("--describe", "--entity-type", "brokers")
    assert lines == [
        "Dynamic configs for broker 1 are:",
        "  log.retention.ms=3000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.retention.ms=3000, "
        "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=2000, DEFAULT_CONFIG:log.retention.hours=168}",
        "Default configs for brokers in the cluster are:",
        "  log.retention.ms=2000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:"
        "log.retention.ms=2000}",
        "  min.insync.replicas=1 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:"
        "min.insync.replicas=1}",
    ]
    logger = "minikafka.server.config_service"
    assert (await configs("--alter", "--broker-logger", "1", "--add-config", f"{logger}=DEBUG"))[0] == 0
    _, lines, _ = await configs("--describe", "--broker-logger", "1")
    assert f"  {logger}=DEBUG sensitive=false synonyms={{}}" in lines
    await configs("--alter", "--broker-logger", "1", "--delete-config", logger)
    status, _, error = await configs("--alter", "--broker-logger", "1", "--add-config", "kafka.no=INFO")
    assert status == 1 and "Invalid broker logger(s): kafka.no" in error


async def test_groups_and_client_metrics(configs: Run) -> None:
    added = "consumer.session.timeout.ms=50000"
    assert (await configs("--alter", "--group", "g", "--add-config", added))[0] == 0
    assert (await configs("--alter", "--client-metrics", "m", "--add-config", "interval.ms=1000"))[0] == 0
    _, lines, _ = await configs("--describe", "--entity-type", "groups")
    assert lines[0] == "Dynamic configs for group g are:"
    assert "{DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000," in lines[1]
    _, lines, _ = await configs("--describe", "--entity-type", "client-metrics")
    assert lines == [
        "Dynamic configs for client-metric m are:",
        "  interval.ms=1000 sensitive=false synonyms={DYNAMIC_CLIENT_METRICS_CONFIG:interval.ms=1000}",
    ]


async def test_quotas_of_users_clients_and_addresses(configs: Run) -> None:
    both = ("--user", "ann", "--client-defaults")
    await configs("--alter", *both, "--add-config", "producer_byte_rate=20000000,request_percentage=12.5")
    await configs("--alter", "--ip", "10.0.0.1", "--add-config", "connection_creation_rate=7")
    await configs("--alter", "--ip-defaults", "--add-config", "connection_creation_rate=9")
    _, lines, _ = await configs("--describe", *both)
    assert lines == [
        "Quota configs for user-principal 'ann', the default client-id are producer_byte_rate=2.0E7, "
        "request_percentage=12.5"
    ]
    _, lines, _ = await configs("--describe", "--entity-type", "ips")
    assert lines == [
        "Quota configs for ip '10.0.0.1' are connection_creation_rate=7.0",
        "Quota configs for the default ip are connection_creation_rate=9.0",
    ]
    await configs("--alter", "--ip", "10.0.0.1", "--delete-config", "connection_creation_rate")
    _, lines, _ = await configs("--describe", "--ip", "10.0.0.1")
    assert lines == []
    status, _, error = await configs(
        "--alter", "--ip", "nowhere", "--add-config", "connection_creation_rate=1"
    )
    assert status == 1 and "nowhere is not a valid IP address" in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--alter --add-config a=1", "At least one entity type must be specified"),
        ("--alter --entity-type topics --add-config a=1", "An entity name must be specified with --alter"),
        ("--alter --entity-type users --add-config a=1", "An entity-name or default entity must be"),
        ("--alter --entity-type topics --entity-default --add-config a=1", "--entity-default must not be"),
        ("--describe --entity-type tpics", "Invalid entity type tpics, the entity type must be one of"),
        ("--describe --entity-type topics --entity-type users", "may be specified together"),
        ("--describe --entity-type users --entity-type users", "Duplicate entity type(s) specified: users"),
        ("--describe --topic a --entity-type topics", "in conjunction with specific entity flags"),
        ("--describe --broker one", "must be a valid integer broker id, but it is: one"),
        ("--describe --entity-type broker-loggers", "An entity name must be specified with --describe"),
        ("--alter --topic t --add-config-file /dev/zero", "/dev/zero has more than 1048576 bytes"),
        ("--alter --topic t", "At least one of --add-config, --add-config-file, or --delete-config"),
        ("--alter --topic t --add-config a", 'must be in the format "key=val"'),
        ("--alter --topic t --add-config a/b=1", "Invalid character found for config key: a/b"),
        ("--alter --ip 1.2.3.4 --add-config producer_byte_rate=1", "Only connection quota configs"),
        ("--alter --client c --add-config SCRAM-SHA-512=[password=s3cret]", "Only quota configs"),
        ("--alter --user u --add-config retention.ms=1", "Only quota and SCRAM credential configs"),
        ("--alter --user-defaults --add-config SCRAM-SHA-512=[password=s3cret]", "is not allowed with User"),
        (
            "--alter --user u --add-config producer_byte_rate=1,SCRAM-SHA-512=[password=s3cret]",
            "Cannot alter both",
        ),
        (
            "--alter --user u --add-config SCRAM-SHA-512=[iterations=7,password=s3cret]",
            "less than the minimum",
        ),
        (
            "--alter --user u --add-config SCRAM-SHA-512=[pass=s3cret]",
            "Invalid credential property SCRAM-SHA-512",
        ),
    ],
)
def test_bad_usage_is_told_in_kafkas_words_and_without_values(
    capsys: pytest.CaptureFixture[str], arguments: str, words: str
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments.split())
    error = capsys.readouterr().err
    assert end.value.code == 2 and words in error and "s3cret" not in error


def test_brackets_group_what_has_commas_and_equals_signs() -> None:
    text = 'a=1, b=[x,y], c=, jaas=[module required user="u" password="p,=q";]'
    arguments = parser().parse_args(["alter", "--broker", "1", "--add-config", text])
    assert additions(arguments) == {
        "a": "1",
        "b": "x,y",
        "c": "",
        "jaas": 'module required user="u" password="p,=q";',
    }
    assert entities(arguments) == (("brokers",), ("1",))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (12.5, "12.5"),
        (1e7, "1.0E7"),
        (1.25e9, "1.25E9"),
        (1e-4, "1.0E-4"),
        (123456.0, "123456.0"),
    ],
)
def test_doubles_look_like_javas(value: float, text: str) -> None:
    assert java_double(value) == text
