"""``minikafka acls`` at a real broker: Kafka's texts, what it adds, finds, removes and refuses."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from minikafka.cli.acls import main
from minikafka.testing import Broker

Run = Callable[..., Awaitable[tuple[int, list[str], str]]]
SECURE = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(config=SECURE) as running:
        yield running


@pytest.fixture
def acls(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command: exit status, standard output's lines, standard error."""

    async def run(*arguments: str) -> tuple[int, list[str], str]:
        status = await asyncio.to_thread(main, [*arguments, "-b", f"127.0.0.1:{broker.port}"])
        output = capsys.readouterr()
        return status, output.out.splitlines(), output.err

    return run


def topic(name: str, kind: str = "LITERAL") -> str:
    return f"ResourcePattern(resourceType=TOPIC, name={name}, patternType={kind})"


def entry(operation: str, who: str = "alice", host: str = "*", permission: str = "ALLOW") -> str:
    return f"(principal=User:{who}, host={host}, operation={operation}, permissionType={permission})"


async def test_acls_are_added_listed_and_removed_with_kafkas_words(acls: Run) -> None:
    alice = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
    assert await acls("--add", *alice) == (
        0,
        [f"Adding ACLs for resource `{topic('orders')}`: ", f" \t{entry('READ')}", ""],
        "",
    )
    _, lines, _ = await acls("add", *alice, "--operation", "write")
    assert lines == [
        f"Acl (pattern={topic('orders')}, entry={entry('READ')}) already exists.",
        f"Adding ACLs for resource `{topic('orders')}`: ",
        f" \t{entry('WRITE')}",
        "",
    ]
    await acls("--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--topic", "orders")
    _, lines, _ = await acls("--list", "--topic", "orders")
    assert lines == [
        f"Current ACLs for resource `{topic('orders')}`:",
        f"\t{entry('READ')}",
        f"\t{entry('WRITE')}",
        f"\t{entry('ALL', 'bob', '10.0.0.1', 'DENY')}",
        "",
    ]
    _, lines, _ = await acls("--list", "--principal", "User:bob", "--principal", "User:carol")
    assert lines == [
        "ACLs for principal `User:bob`",
        f"Current ACLs for resource `{topic('orders')}`:",
        f"\t{entry('ALL', 'bob', '10.0.0.1', 'DENY')}",
        "",
        "ACLs for principal `User:carol`",
    ]
    assert (await acls("--remove", *alice, "--force"))[:2] == (0, [])
    _, lines, _ = await acls("list", "--principal", "User:alice", "--json")
    assert json.loads("\n".join(lines)) == [
        {
            "resourceType": "TOPIC",
            "name": "orders",
            "patternType": "LITERAL",
            "principal": "User:alice",
            "host": "*",
            "operation": "WRITE",
            "permissionType": "ALLOW",
        }
    ]


async def test_a_producer_and_a_consumer_get_what_they_need(acls: Run) -> None:
    await acls(
        *("--add", "--allow-principal", "User:alice", "--producer", "--idempotent", "--consumer"),
        *("--topic", "orders", "--group", "billing", "--transactional-id", "app"),
    )
    _, lines, _ = await acls("--list")
    assert lines == [
        f"Current ACLs for resource `{topic('orders')}`:",
        *(f"\t{entry(operation)}" for operation in ("READ", "WRITE", "CREATE", "DESCRIBE")),
        "",
        "Current ACLs for resource `ResourcePattern(resourceType=GROUP, name=billing, patternType=LITERAL)`:",
        f"\t{entry('READ')}",
        "",
        "Current ACLs for resource `ResourcePattern(resourceType=CLUSTER, name=kafka-cluster, "
        "patternType=LITERAL)`:",
        f"\t{entry('IDEMPOTENT_WRITE')}",
        "",
        "Current ACLs for resource `ResourcePattern(resourceType=TRANSACTIONAL_ID, name=app, "
        "patternType=LITERAL)`:",
        f"\t{entry('WRITE')}",
        f"\t{entry('DESCRIBE')}",
        "",
    ]


async def test_what_is_said_of_a_topic_by_any_pattern_is_found_and_removed(acls: Run) -> None:
    for name, kind in (("orders", "literal"), ("ord", "prefixed"), ("*", "literal"), ("other", "literal")):
        await acls(
            *("--add", "--allow-principal", "User:alice", "--topic", name, "--resource-pattern-type", kind)
        )
    match = ("--topic", "orders", "--resource-pattern-type", "match")
    _, lines, _ = await acls("--list", *match)
    assert [line for line in lines if line.startswith("Current")] == [
        f"Current ACLs for resource `{topic('*')}`:",
        f"Current ACLs for resource `{topic('ord', 'PREFIXED')}`:",
        f"Current ACLs for resource `{topic('orders')}`:",
    ]
    await acls("--remove", *match, "--force")
    _, lines, _ = await acls("--list")
    assert [line for line in lines if line.startswith("Current")] == [
        f"Current ACLs for resource `{topic('other')}`:"
    ]


async def test_nothing_is_removed_without_a_yes(acls: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    await acls("--add", "--allow-principal", "User:alice", "--topic", "orders")
    question = f"Are you sure you want to delete all ACLs for resource filter `{topic('orders')}`? (y/n)"
    for answer in ("n\n", ""):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        assert await acls("--remove", "--topic", "orders") == (0, [question], "")
    assert (await acls("--list"))[1]
    monkeypatch.setattr("sys.stdin", io.StringIO("Y\n"))
    await acls("--remove", "--topic", "orders")
    assert (await acls("--list"))[1] == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("--add --topic a", "You must specify one of: --allow-principal, --deny-principal"),
        ("--add --allow-principal User:a", "You must provide at least one resource"),
        ("--add --allow-principal alice --topic a", "expected a string in format principalType:principal"),
        ("--add --allow-principal User:a --topic a --operation Fly", "there is no operation Fly"),
        (
            "--add --allow-principal User:a --group a --operation Write",
            "ResourceType GROUP only supports operations [ALL, READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, "
            "ALTER_CONFIGS]",
        ),
        ("--add --list", "unrecognized arguments: --list"),
        ("--list --allow-principal User:a", 'Option "[list]" can\'t be used with option "[allow-principal]"'),
        (
            "--add --producer --topic a --operation Read --allow-principal User:a",
            'Option "[producer]" can\'t be used with option "[operation]"',
        ),
        ("--add --producer --allow-principal User:a --group g", "With --producer you must specify a --topic"),
        ("--add --consumer --allow-principal User:a --topic a", "With --consumer you must specify a --topic"),
        ("--add --idempotent --allow-principal User:a", "only available if --producer is set"),
        ("--remove --topic a --principal User:a", "only available if --list is set"),
        (
            "--add --topic a --allow-principal User:a --resource-pattern-type match",
            "A '--resource-pattern-type' value of 'MATCH' is not valid when adding acls.",
        ),
    ],
)
def test_bad_usage_is_refused_before_a_broker_is_asked(
    given: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(given.split())
    assert caught.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


async def test_without_an_authorizer_the_broker_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    async with Broker() as broker:
        status = await asyncio.to_thread(main, ["--list", "-b", f"127.0.0.1:{broker.port}"])
    assert status == 1
    assert capsys.readouterr().err == (
        "minikafka acls: No Authorizer is configured on the broker (SECURITY_DISABLED)\n"
    )
