"""``minikafka why-denied``: the rule that decides, or the missing one and the command that adds it."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from minikafka.cli import acls
from minikafka.cli.acls import Question, parse_resource, parse_user, why_denied
from minikafka.security.acl import AclOperation
from minikafka.testing import Broker

Ask = Callable[..., Awaitable[list[str]]]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:root",
    }
    async with Broker(config=config) as running:
        yield running


@pytest.fixture
def address(broker: Broker) -> str:
    return f"127.0.0.1:{broker.port}"


@pytest.fixture
def ask(address: str, capsys: pytest.CaptureFixture[str]) -> Ask:
    """The answer's lines."""

    async def run(*arguments: str) -> list[str]:
        assert await asyncio.to_thread(why_denied, [*arguments, "-b", address]) == 0
        return capsys.readouterr().out.splitlines()

    return run


@pytest.fixture
def do(capsys: pytest.CaptureFixture[str]) -> Callable[[str], Awaitable[None]]:
    """Carries out a proposed command."""

    async def run(line: str) -> None:
        minikafka, name, *arguments = shlex.split(line)
        assert (minikafka, name) == ("minikafka", "acls")
        if "--remove" in arguments:
            arguments.append("--force")
        assert await asyncio.to_thread(acls.main, arguments) == 0
        capsys.readouterr()

    return run


Do = Callable[[str], Awaitable[None]]


@pytest.mark.parametrize(
    ("operation", "resource", "options"),
    [
        ("Read", "topic:orders", "--topic orders"),
        ("describe-configs", "topic:it's", "--topic 'it'\"'\"'s'"),
        ("DELETE", "group:billing", "--group billing"),
        ("IdempotentWrite", "cluster", "--cluster"),
        ("Write", "transactional-id:app", "--transactional-id app"),
        ("Describe", "delegation-token:t1", "--delegation-token t1"),
        ("CreateTokens", "user:User:bob", "--user-principal User:bob"),
    ],
)
async def test_what_is_proposed_makes_it_allowed(
    ask: Ask, do: Do, address: str, operation: str, resource: str, options: str
) -> None:
    reason, command = await ask("alice", operation, resource)
    assert reason.startswith("User:alice may not ") and reason.endswith(": no ACL allows it. This adds one:")
    assert command.endswith(f" {options} -b {address}")
    await do(command)
    allowed, rule = await ask("alice", operation, resource)
    assert "User:alice may " in allowed and allowed.endswith("because an ACL allows it:")
    assert "principal=User:alice, host=*" in rule


async def test_the_denial_is_named_with_the_command_that_removes_it(ask: Ask, do: Do, address: str) -> None:
    deny = "minikafka acls --add --deny-principal User:* --operation All --topic ord"
    await do(f"{deny} --resource-pattern-type prefixed -b {address}")
    lines = await ask("User:alice", "read", "topic:orders", "--host", "10.0.0.1")
    removal = lines[3]
    assert lines == [
        "User:alice may not Read Topic orders from 10.0.0.1, because an ACL denies it:",
        "    (pattern=ResourcePattern(resourceType=TOPIC, name=ord, patternType=PREFIXED), "
        "entry=(principal=User:*, host=*, operation=ALL, permissionType=DENY))",
        "This removes it:",
        "    minikafka acls --remove --deny-principal 'User:*' --operation All --topic ord "
        f"--resource-pattern-type prefixed -b {address}",
        "Even then no ACL would allow it. Ask again when it is removed.",
    ]
    await do(removal)
    _, addition = await ask("User:alice", "read", "topic:orders", "--host", "10.0.0.1")
    assert "--allow-host 10.0.0.1" in addition
    await do(addition)
    lines = await ask("alice", "read", "topic:orders")
    assert lines[0] == "User:alice may not Read Topic orders: no ACL allows it. This adds one:"
    assert lines[2].startswith("From 10.0.0.1 it is allowed, by (pattern=")


async def test_a_super_user_may_do_anything(ask: Ask) -> None:
    assert await ask("root", "alter", "cluster") == [
        "User:root may Alter the cluster: a super user (super.users) may do anything."
    ]


async def test_who_may_use_what_no_acl_speaks_of(capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    async with Broker(config=config) as broker:
        asked = ["alice", "Read", "topic:orders", "-b", f"127.0.0.1:{broker.port}"]
        assert await asyncio.to_thread(why_denied, asked) == 0
    assert capsys.readouterr().out == (
        "User:alice may Read Topic orders: no ACL speaks of it, and allow.everyone.if.no.acl.found is true.\n"
    )


async def test_without_an_authorizer_everybody_may(capsys: pytest.CaptureFixture[str]) -> None:
    async with Broker() as broker:
        asked = ["alice", "Read", "topic:orders", "-b", f"127.0.0.1:{broker.port}"]
        assert await asyncio.to_thread(why_denied, asked) == 0
    assert capsys.readouterr().out.startswith("Everybody may do everything")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("alice fly topic:a", "there is no operation fly"),
        ("alice write group:a", "no request needs Write on a Group; there are Read, Delete, Describe"),
        ("alice read orders", "orders: must be cluster, or one of topic:NAME, group:NAME"),
        ("User: read topic:a", "USER has no name"),
        (":x read topic:a", "expected a string in format principalType:principalName but got :x"),
    ],
)
def test_bad_usage(given: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        why_denied(given.split())
    assert message in " ".join(capsys.readouterr().err.split())


def test_what_may_not_be_asked_is_said() -> None:
    question = Question(parse_user("alice"), AclOperation.READ, parse_resource("topic:orders"))
    lines = question.explain([], None, host=None)
    assert lines[0] == "User:alice may not Read Topic orders: no ACL allows it. This adds one:"
    assert lines[-1] == (
        "The brokers' super.users and allow.everyone.if.no.acl.found may say something else; that needs "
        "DescribeConfigs on the cluster."
    )
