"""``minikafka quotas``: what it sets, shows and explains at a real broker, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from minikafka.cli.quotas import entity_text, main, parse_changes, parse_entity
from minikafka.errors import KafkaError
from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing import Broker

DEADLINE_MS = 20_000
Run = Callable[..., Awaitable[tuple[int, list[str], str]]]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as running:
        yield running


@pytest.fixture
def quotas(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command: exit status, standard output's lines, standard error."""

    async def run(*arguments: str) -> tuple[int, list[str], str]:
        status = await asyncio.to_thread(main, [*arguments, "-b", f"127.0.0.1:{broker.port}"])
        output = capsys.readouterr()
        return status, output.out.splitlines(), output.err

    return run


async def test_quotas_are_set_shown_and_removed(quotas: Run) -> None:
    assert await quotas("describe") == (0, ["No quotas are set."], "")
    done = await quotas("alter", "app", "--set", "producer_byte_rate=1MB", "--set", "request_percentage=12.5")
    assert done == (0, ["The quotas of client-id=app are changed."], "")
    await quotas("alter", "user=ANONYMOUS,client-id", "--set", "consumer_byte_rate=2048")
    status, lines, _ = await quotas("--describe")
    assert (status, [line.split() for line in lines]) == (
        0,
        [
            ["ENTITY", "QUOTA", "VALUE"],
            ["client-id=app", "producer_byte_rate", "1000000"],
            ["client-id=app", "request_percentage", "12.5"],
            ["user=ANONYMOUS,client-id", "consumer_byte_rate", "2048"],
        ],
    )
    _, lines, _ = await quotas("describe", "client-id=app", "--json")
    assert json.loads("".join(lines)) == [
        {
            "entity": {"client-id": "app"},
            "quotas": {"producer_byte_rate": 1_000_000, "request_percentage": 12.5},
        }
    ]
    await quotas("alter", "app", "--remove", "producer_byte_rate", "--remove", "request_percentage")
    assert (await quotas("describe", "app"))[1] == ["No quotas are set."]


async def test_addresses_have_a_quota_of_new_connections(quotas: Run) -> None:
    done = await quotas("alter", "ip=127.0.0.9", "--set", "connection_creation_rate=20")
    assert done == (0, ["The quotas of ip=127.0.0.9 are changed."], "")
    await quotas("alter", "ip", "--set", "connection_creation_rate=100")
    for entity, expected in (("ip=127.0.0.9", "20"), ("ip", "100")):
        status, lines, _ = await quotas("describe", entity)
        assert (status, lines[1].split()) == (0, [entity, "connection_creation_rate", expected])
    assert len((await quotas("describe"))[1]) == 3
    await quotas("alter", "ip=127.0.0.9", "--remove", "connection_creation_rate")
    await quotas("alter", "ip", "--remove", "connection_creation_rate")
    assert (await quotas("describe"))[1] == ["No quotas are set."]
    refused = await quotas("alter", "ip=no.such.host", "--set", "connection_creation_rate=1")
    assert refused == (
        1,
        [],
        "minikafka quotas: no.such.host is not a valid IP address. (INVALID_REQUEST)\n",
    )


async def test_a_dry_run_changes_nothing(quotas: Run) -> None:
    done = await quotas("alter", "user", "--set", "producer_byte_rate=1", "--dry-run")
    assert done == (0, ["The quotas of user can be changed."], "")
    assert (await quotas("describe"))[1] == ["No quotas are set."]


async def test_why_shows_the_numbers_of_each_throttle(quotas: Run, broker: Broker) -> None:
    assert (await quotas("why", "app"))[1] == [
        "No broker has throttled client-id=app as far as it remembers."
    ]
    await quotas("alter", "client-id", "--set", "controller_mutation_rate=0.5")
    client = await BrokerClient.connect("127.0.0.1", broker.port, client_id="app", deadline_ms=DEADLINE_MS)
    topic = {
        "name": "t",
        "num_partitions": 10,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    body = {"topics": [topic], "timeout": DEADLINE_MS, "validate_only": False}
    answer = await client.request(ApiKey.CREATE_TOPICS, body, version=5, deadline_ms=DEADLINE_MS)
    await client.close()
    assert answer.throttle_time > 0
    status, (heads, line), _ = await quotas("why", "app")
    assert status == 0 and heads.split()[-1] == "WHY"
    assert f"{answer.throttle_time} ms" in line and "tokens overspent / 0.5 a second" in line
    for entity, count in (("user=ANONYMOUS", 1), ("client-id", 1), ("other", 0)):
        (seen,) = [json.loads("".join((await quotas("why", entity, "--json"))[1]))]
        assert len(seen) == count
        for each in seen:
            assert each["throttle_time_ms"] == answer.throttle_time and each["time"].endswith("Z")


async def test_what_the_broker_refuses_is_said(quotas: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minikafka.cli.quotas.checked_quota", lambda key, value, *, of_address: (None, value))
    status, lines, error = await quotas("alter", "app", "--set", "producer_byte_rate=-1")
    assert (status, lines) == (1, [])
    assert error == (
        "minikafka quotas: Configuration producer_byte_rate must be a finite value more than 0, not -1 "
        "(INVALID_REQUEST)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["alter", "app"], "give --set or --remove"),
        (["alter", "app", "--set", "producer_byte_rate"], "must be QUOTA=VALUE"),
        (["alter", "app", "--set", "producer_byte_rate=-1"], "more than 0, not -1"),
        (["alter", "app", "--set", "producer_byte_rate=fast"], "fast: must be a number of bytes"),
        (["alter", "app", "--set", "request_percentage=1MB"], "request_percentage=1MB: must be a number"),
        (["alter", "app", "--set", "bytes=1"], "Invalid configuration key bytes"),
        (["alter", "app", "--remove", "bytes"], "Invalid configuration key bytes"),
        (["alter", "user=a,b", "--remove", "producer_byte_rate"], "user=a,b: must be like user=NAME"),
        (["why", ""], "ENTITY is empty"),
        (["why", "ip=127.0.0.1"], "the quota of an address is about new connections"),
        (
            ["alter", "ip=::1", "--set", "producer_byte_rate=1"],
            "Invalid configuration key producer_byte_rate",
        ),
        (["alter", "app", "--set", "connection_creation_rate=1"], "key connection_creation_rate"),
        (["describe", "ip="], "ip=: must be like user=NAME"),
    ],
)
def test_bad_usage_is_named_before_anybody_is_asked(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2 and words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "entity"),
    [
        ("app", {"client-id": "app"}),
        ("client-id=user", {"client-id": "user"}),
        ("client-id=a,b=c", {"client-id": "a,b=c"}),
        ("client-id", {"client-id": None}),
        ("user", {"user": None}),
        ("user=ann", {"user": "ann"}),
        ("user=ann,client-id", {"user": "ann", "client-id": None}),
        ("user,client-id=x", {"user": None, "client-id": "x"}),
        ("ip=fe80::1", {"ip": "fe80::1"}),
        ("ip", {"ip": None}),
    ],
)
def test_an_entity_is_read_and_written_the_same(text: str, entity: dict[str, Any]) -> None:
    assert parse_entity(text) == entity
    assert parse_entity(entity_text(entity)) == entity


def test_the_same_quota_twice_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="twice"):
        parse_changes(["producer_byte_rate=1", "producer_byte_rate=2"], [])
    with pytest.raises(ValueError, match="twice"):
        parse_changes(["producer_byte_rate=1"], ["producer_byte_rate"])
    with pytest.raises(KafkaError):
        parse_changes(["producer_byte_rate=inf"], [])
