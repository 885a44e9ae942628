"""``minikafka topics``: its options, what it asks a broker, and what it prints."""

from __future__ import annotations

import asyncio
import json
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.cli import topics as topics
from minikafka.cli.shared.commands import Address
from minikafka.cli.topics import TopicAdmin, main, parse_assignment
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.api_versions import ApiKey

OK, ABSENT = 0, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class FakeClient:
    """Answers as told, and remembers what it was asked."""

    def __init__(self, answers: dict[int, Any]) -> None:
        self.answers = answers
        self.asked: list[tuple[int, dict[str, Any]]] = []

    async def request(self, api_key: int, body: dict[str, Any], *, deadline_ms: int) -> Any:
        self.asked.append((api_key, dict(body)))
        answer = self.answers[api_key]
        if isinstance(answer, KafkaError):
            raise answer
        return answer.pop(0) if isinstance(answer, list) else answer

    async def close(self) -> None:
        await asyncio.sleep(0)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    fake = FakeClient({})

    async def connect(addresses: list[Address], *, timeout_ms: int, security: None) -> TopicAdmin:
        return TopicAdmin(fake, timeout_ms=timeout_ms)  # type: ignore[arg-type]

    monkeypatch.setattr(topics.TopicAdmin, "connect", connect)
    return fake


def result(code: int = OK, message: str | None = None, **fields: Any) -> SimpleNamespace:
    return SimpleNamespace(error_code=code, error_message=message, **fields)


def metadata(*names: str, code: int = OK) -> SimpleNamespace:
    partition = SimpleNamespace(partition_index=0, leader_id=1, replica_nodes=(1, 2), isr_nodes=(1,))
    return SimpleNamespace(
        topics=[
            result(
                code, name=name, topic_id=uuid.UUID(int=1), is_internal=name[0] == "_", partitions=[partition]
            )
            for name in names
        ]
    )


def page(
    topic: str,
    partition: int,
    *,
    elr: tuple[int, ...] = (),
    last_known_elr: tuple[int, ...] = (),
    following: str | None = None,
) -> SimpleNamespace:
    """Of DescribeTopicPartitions; ``following`` is the topic that the next one begins with."""
    described = SimpleNamespace(
        partition_index=partition, eligible_leader_replicas=elr, last_known_elr=last_known_elr
    )
    cursor = None if following is None else SimpleNamespace(topic_name=following, partition_index=0)
    return SimpleNamespace(topics=[SimpleNamespace(name=topic, partitions=[described])], next_cursor=cursor)


def test_create_asks_for_what_the_options_say(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    client.answers[ApiKey.CREATE_TOPICS] = SimpleNamespace(topics=[result()])
    assert (
        main(["create", "--partitions", "3", "orders", "--config", "retention.ms=5", "--config", "a=b=c"])
        == 0
    )
    ((_, body),) = client.asked
    assert body["topics"] == [
        {
            "name": "orders",
            "num_partitions": 3,
            "replication_factor": -1,
            "assignments": [],
            "configs": [{"name": "retention.ms", "value": "5"}, {"name": "a", "value": "b=c"}],
        }
    ]
    assert capsys.readouterr().out == "Created topic orders.\n"


def test_the_options_of_kafka_topics_sh_work(client: FakeClient) -> None:
    client.answers[ApiKey.CREATE_TOPICS] = SimpleNamespace(topics=[result()])
    assert (
        main(["--bootstrap-server", "h:1", "--create", "--topic", "a", "--replica-assignment", "1:2,2:1"])
        == 0
    )
    ((_, body),) = client.asked
    assert body["topics"][0]["assignments"] == [
        {"partition_index": 0, "broker_ids": [1, 2]},
        {"partition_index": 1, "broker_ids": [2, 1]},
    ]


def test_the_brokers_words_are_shown_and_the_others_go_on(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    client.answers[ApiKey.CREATE_TOPICS] = SimpleNamespace(
        topics=[result(int(ErrorCode.INVALID_PARTITIONS), "Number of partitions must be larger than 0.")]
    )
    assert main(["create", "a", "b"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"minikafka topics: {name}: Number of partitions must be larger than 0. (INVALID_PARTITIONS)"
        for name in ("a", "b")
    ]


@pytest.mark.parametrize(
    ("arguments", "api_key", "field", "code"),
    [
        (["create", "a", "--if-not-exists"], ApiKey.CREATE_TOPICS, "topics", ErrorCode.TOPIC_ALREADY_EXISTS),
        (
            ["delete", "a", "--if-exists"],
            ApiKey.DELETE_TOPICS,
            "responses",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
    ],
)
def test_what_is_there_already_or_not_at_all_can_be_fine(
    client: FakeClient, arguments: list[str], api_key: ApiKey, field: str, code: ErrorCode
) -> None:
    client.answers[api_key] = SimpleNamespace(**{field: [result(int(code))]})
    assert main(arguments) == 0
    assert main(arguments[:2]) == 1


def test_list_is_sorted_and_can_leave_out_internal_topics(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    client.answers[ApiKey.METADATA] = metadata("b", "__consumer_offsets", "a")
    assert main(["list", "--exclude-internal"]) == 0
    assert capsys.readouterr().out == "a\nb\n"
    assert main(["--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ["__consumer_offsets", "a", "b"]
    client.answers[ApiKey.METADATA] = metadata()
    assert main(["list"]) == 0
    assert capsys.readouterr().out == ""


def test_describe_prints_what_kafka_topics_sh_prints(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    client.answers[ApiKey.METADATA] = metadata("a")
    configs = [
        SimpleNamespace(name="retention.ms", value="5", config_source=1),
        SimpleNamespace(name="segment.bytes", value="9", config_source=5),
    ]
    client.answers[ApiKey.DESCRIBE_CONFIGS] = SimpleNamespace(
        results=[result(resource_name="a", configs=configs)]
    )
    client.answers[ApiKey.DESCRIBE_TOPIC_PARTITIONS] = page("a", 0, elr=(2,), last_known_elr=())
    assert main(["describe", "a"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Topic: a\tTopicId: AAAAAAAAAAAAAAAAAAAAAQ\tPartitionCount: 1\t"
        "ReplicationFactor: 2\tConfigs: retention.ms=5",
        "\tTopic: a\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1\tElr: 2\tLastKnownElr: ",
    ]
    assert main(["describe", "--json"]) == 0
    (described,) = json.loads(capsys.readouterr().out)
    assert described["partitions"] == [
        {"partition": 0, "leader": 1, "replicas": [1, 2], "isr": [1], "elr": [2], "last_known_elr": []}
    ]
    assert [body["topics"] for key, body in client.asked if key == ApiKey.METADATA] == [
        [{"name": "a", "topic_id": None}],
        None,
    ]
    assert not any(body.get("allow_auto_topic_creation") for _, body in client.asked)


def test_describe_shows_the_last_known_leader_and_asks_for_page_after_page(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    client.answers[ApiKey.METADATA] = metadata("a", "b")
    client.answers[ApiKey.DESCRIBE_CONFIGS] = SimpleNamespace(results=[])
    pages = [page("a", 0, last_known_elr=(2,), following="b"), page("b", 0, elr=(1, 2))]
    client.answers[ApiKey.DESCRIBE_TOPIC_PARTITIONS] = pages
    assert main(["describe"]) == 0
    shown = [line.partition("Isr: 1")[2] for line in capsys.readouterr().out.splitlines() if "Isr" in line]
    assert shown == ["\tElr: \tLastKnownElr: 2", "\tElr: 1,2\tLastKnownElr: "]
    assert client.asked[-1][1]["cursor"] == {"topic_name": "b", "partition_index": 0}


def test_describe_at_a_broker_without_eligible_replicas(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    client.answers[ApiKey.METADATA] = metadata("a")
    client.answers[ApiKey.DESCRIBE_CONFIGS] = SimpleNamespace(results=[])
    client.answers[ApiKey.DESCRIBE_TOPIC_PARTITIONS] = KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    assert main(["describe", "a"]) == 0
    assert capsys.readouterr().out.endswith("\tIsr: 1\tElr: N/A\tLastKnownElr: N/A\n")


def test_describe_of_a_topic_that_is_not_there(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    client.answers[ApiKey.METADATA] = metadata("a", code=ABSENT)
    assert main(["describe", "a"]) == 1
    assert (
        capsys.readouterr().err
        == "minikafka topics: a: there is no such topic (UNKNOWN_TOPIC_OR_PARTITION)\n"
    )
    assert main(["describe", "a", "--if-exists"]) == 0


def test_alter_changes_configs_and_partitions(client: FakeClient) -> None:
    client.answers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = SimpleNamespace(responses=[result()])
    client.answers[ApiKey.CREATE_PARTITIONS] = SimpleNamespace(results=[result()])
    arguments = [
        "alter",
        "a",
        "--config",
        "retention.ms=5",
        "--delete-config",
        "segment.bytes",
        "--partitions",
        "4",
    ]
    assert main(arguments) == 0
    (_, alter), (_, partitions) = client.asked
    assert alter["resources"][0]["configs"] == [
        {"name": "retention.ms", "config_operation": 0, "value": "5"},
        {"name": "segment.bytes", "config_operation": 1, "value": None},
    ]
    assert partitions["topics"] == [{"name": "a", "count": 4, "assignments": None}]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["crate"],
        ["create"],
        ["alter", "a"],
        ["list", "--partitions", "3"],
        ["create", "a", "--delete-config", "x"],
        ["create", "a", "--config", "x"],
        ["create", "a", "--partitions", "x"],
        ["create", "a", "--replica-assignment", "1:x"],
        ["create", "a", "--replica-assignment", "1:2", "--partitions", "1"],
        ["alter", "a", "--config", "x=y", "--replica-assignment", "1:2"],
        ["list", "--bootstrap-server", "localhost:x"],
        ["--list", "--delete"],
    ],
)
def test_bad_usage_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert "usage: minikafka topics" in capsys.readouterr().err


def test_no_broker_there_is_one_line(unused_tcp_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "-b", f"127.0.0.1:{unused_tcp_port}"]) == 1
    error = capsys.readouterr().err
    assert f"127.0.0.1:{unused_tcp_port}" in error and len(error.splitlines()) == 1


def test_no_assignment_is_none() -> None:
    assert parse_assignment(None) is None
