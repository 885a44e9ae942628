"""What a broker knows of itself, asked by DescribeConfigs (``server.apis.diagnostics``)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minikafka.config.resource import DIAGNOSTICS
from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import ApiKey


async def ask(broker: Any, kind: str, *keys: str, version: int = 4) -> Any:
    wanted = {"resource_type": DIAGNOSTICS, "resource_name": kind, "configuration_keys": list(keys)}
    body = {"resources": [wanted], "include_synonyms": False}
    (result,) = (await broker.ask(ApiKey.DESCRIBE_CONFIGS, version, body)).results
    return result


async def test_a_kind_is_one_property_of_json(admin_broker: Any) -> None:
    result = await ask(admin_broker, "purgatories")
    assert result.error_code == ErrorCode.NONE
    (config,) = result.configs
    assert (config.name, config.read_only, config.is_sensitive) == ("purgatories", True, False)
    assert {"name": "Produce", "delayed": 0, "watched": 0} in json.loads(config.value)


@pytest.mark.parametrize(
    ("kind", "keys", "named"),
    [
        ("no-such", (), "purgatories"),
        ("purgatories", ("colour=red",), "colour"),
        ("purgatories", ("colour",), "'colour'"),
        ("purgatories", ("a=1", "a=2"), "'a=2'"),
        ("partition", ("topic=orders",), "partition=…"),
        ("partition", ("topic=orders", "partition=first"), "partition=first"),
        ("waiting", ("topic=orders", "partition=0", "colour=red"), "'colour'"),
        ("group", (), "group=…"),
    ],
)
async def test_a_wrong_question_says_what_there_is(
    admin_broker: Any, kind: str, keys: tuple[str, ...], named: str
) -> None:
    result = await ask(admin_broker, kind, *keys)
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert named in result.error_message


async def test_before_version_4_there_is_no_such_type(admin_broker: Any) -> None:
    result = await ask(admin_broker, "purgatories", version=3)
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert "Unsupported resource type 120" in result.error_message


async def test_what_is_longer_than_a_string_of_the_protocol_comes_in_parts(
    admin_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from minikafka.server.apis import diagnostics

    long = [{"who": "é" * 99, "number": number} for number in range(1_000)]

    def kind(services: Any, arguments: Any) -> Any:
        yield
        return long

    monkeypatch.setattr(diagnostics, "KINDS", {"long": kind})
    result = await ask(admin_broker, "long")
    assert [config.name for config in result.configs][:3] == ["long", "long.1", "long.2"]
    assert json.loads("".join(config.value for config in result.configs)) == long
