"""AlterClientQuotas and DescribeClientQuotas in every version: what is set, found, kept, refused."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from minikafka.config.client_quotas import QuotaType
from minikafka.coordination import paths
from minikafka.errors import ErrorCode
from minikafka.network.limits import ConnectionLimits
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.server.client_quotas import apply_ip_quota

ALTER, DESCRIBE = ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.DESCRIBE_CLIENT_QUOTAS
EXACT, DEFAULT, ANY = 0, 1, 2
Entity = dict[str, str | None]

both_versions = pytest.mark.parametrize("version", range(SUPPORTED[ALTER].max + 1))


def entry(entity: Entity, **quotas: float | None) -> dict[str, Any]:
    """``quotas``: None removes."""
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [
            {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
            for key, value in quotas.items()
        ],
    }


async def alter(
    broker: Any, *entries: dict[str, Any], version: int = 1, validate_only: bool = False
) -> list[tuple[ErrorCode, str | None]]:
    answer = await broker.ask(ALTER, version, {"entries": list(entries), "validate_only": validate_only})
    for sent, got in zip(entries, answer.entries, strict=True):
        assert sorted(part["entity_type"] for part in sent["entity"]) == [
            part.entity_type for part in got.entity
        ]
    return [(ErrorCode(each.error_code), each.error_message) for each in answer.entries]


async def describe(
    broker: Any, *components: tuple[str, int, str | None], version: int = 1, strict: bool = False
) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    body = {
        "components": [
            {"entity_type": kind, "match_type": match_type, "match": match}
            for kind, match_type, match in components
        ],
        "strict": strict,
    }
    answer = await broker.ask(DESCRIBE, version, body)
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    return {
        tuple((part.entity_type, part.entity_name) for part in each.entity): {
            value.key: value.value for value in each.values
        }
        for each in answer.entries
    }


async def stored(broker: Any, path: str) -> dict[str, str]:
    return dict(json.loads((await broker.store.get(path)).data)["config"])


@both_versions
async def test_what_is_set_is_found_kept_in_kafkas_form_and_survives_a_restart(
    admin_broker: Any, version: int
) -> None:
    outcomes = await alter(
        admin_broker,
        entry({"client-id": "a b/c"}, producer_byte_rate=1024.0, request_percentage=200.0),
        entry({"user": "ANONYMOUS", "client-id": None}, consumer_byte_rate=2048.0),
        entry({"user": None}, controller_mutation_rate=0.5),
        version=version,
    )
    assert outcomes == [(ErrorCode.NONE, None)] * 3
    found = await describe(admin_broker, version=version)
    assert found == {
        (("client-id", "a b/c"),): {"producer_byte_rate": 1024, "request_percentage": 200},
        (("client-id", None), ("user", "ANONYMOUS")): {"consumer_byte_rate": 2048},
        (("user", None),): {"controller_mutation_rate": 0.5},
    }
    assert await stored(admin_broker, "/config/clients/a%20b%2Fc") == {
        "producer_byte_rate": "1024",
        "request_percentage": "200.0",
    }
    assert await stored(admin_broker, "/config/users/ANONYMOUS/clients/<default>") == {
        "consumer_byte_rate": "2048"
    }
    assert await stored(admin_broker, "/config/users/<default>") == {"controller_mutation_rate": "0.5"}
    changes = [
        paths.decode_config_change(
            (await admin_broker.store.get(f"{paths.CONFIG_CHANGES}/{name}")).data, name
        )
        for name in await admin_broker.store.children(paths.CONFIG_CHANGES)
    ]
    assert changes[0] == "brokers/<default>", "what the first broker of a cluster sets for all"
    assert changes[1:] == ["clients/a%20b%2Fc", "users/ANONYMOUS/clients/<default>", "users/<default>"]
    await admin_broker.stop()
    again = await admin_broker.restarted()
    assert await describe(again, version=version) == found
    assert again.services.client_quotas.client("ANONYMOUS", "a b/c").sensors.keys() == {
        quota for quota in QuotaType if not quota.is_of_addresses
    }
    await again.stop()


async def test_quotas_are_removed_one_by_one_and_the_node_with_the_last(admin_broker: Any) -> None:
    entity: Entity = {"client-id": "c"}
    await alter(admin_broker, entry(entity, producer_byte_rate=1.0, consumer_byte_rate=2.0))
    await alter(admin_broker, entry(entity, producer_byte_rate=None, request_percentage=None))
    assert await stored(admin_broker, "/config/clients/c") == {"consumer_byte_rate": "2"}
    await alter(admin_broker, entry(entity, consumer_byte_rate=None))
    assert await describe(admin_broker) == {}
    assert await admin_broker.store.children("/config/clients") == []
    assert not admin_broker.services.client_quotas.client("ANONYMOUS", "c").is_limited


async def test_a_rate_of_an_address_is_stored_as_kafkas_and_holds_at_once(admin_broker: Any) -> None:
    await alter(admin_broker, entry({"ip": "10.0.0.1"}, connection_creation_rate=1.0))
    await alter(admin_broker, entry({"ip": None}, connection_creation_rate=3.0))
    assert await stored(admin_broker, "/config/ips/10.0.0.1") == {"connection_creation_rate": "1"}
    assert await stored(admin_broker, "/config/ips/<default>") == {"connection_creation_rate": "3"}
    assert await describe(admin_broker, ("ip", ANY, None)) == {
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 1},
        (("ip", None),): {"connection_creation_rate": 3},
    }
    limits = ConnectionLimits(
        max_connections=99, max_connections_per_ip=99, max_connections_per_ip_overrides={}, burst_s=1
    )
    admin_broker.services.configs.client_quotas.follow(partial(apply_ip_quota, limits))
    assert [limits.admit("10.0.0.1").refusal is None for _ in range(2)] == [True, False]
    assert [limits.admit("10.0.0.2").refusal is None for _ in range(4)] == [True] * 3 + [False]
    await alter(admin_broker, entry({"ip": "10.0.0.1"}, connection_creation_rate=None))
    assert await admin_broker.store.children("/config/ips") == ["<default>"]


async def test_sessions_of_a_user_are_ended_by_who_may_alter_the_cluster(admin_broker: Any) -> None:
    ended: list[str] = []
    admin_broker.services.close_sessions = lambda user, *, but: ended.append(user)
    outcomes = await alter(
        admin_broker,
        entry({"sessions": "mallory"}, kill=1.0),
        entry({"sessions": "mallory", "user": "u"}, kill=1.0),
        entry({"sessions": "mallory"}, kill=None),
        entry({"sessions": None}, kill=1.0),
    )
    assert [code.name for code, _ in outcomes] == ["NONE", *["INVALID_REQUEST"] * 3]
    assert ended == ["mallory"]
    await alter(admin_broker, entry({"sessions": "bob"}, kill=1.0), validate_only=True)
    admin_broker.services.authorizer = Mock(is_allowed=Mock(return_value=False))
    ((code, message),) = await alter(admin_broker, entry({"sessions": "bob"}, kill=1.0))
    assert code.name == "CLUSTER_AUTHORIZATION_FAILED" and "ALTER" in message
    assert ended == ["mallory"]


async def test_a_users_other_properties_stay(admin_broker: Any) -> None:
    path = "/config/users/ann"
    await admin_broker.store.create(path, paths.encode_config({"SCRAM-SHA-256": "secret"}))
    await alter(admin_broker, entry({"user": "ann"}, producer_byte_rate=5.0))
    assert await stored(admin_broker, path) == {"SCRAM-SHA-256": "secret", "producer_byte_rate": "5"}
    await alter(admin_broker, entry({"user": "ann"}, producer_byte_rate=None))
    assert await stored(admin_broker, path) == {"SCRAM-SHA-256": "secret"}
    assert await describe(admin_broker) == {}


async def test_what_is_stored_and_cannot_be_used_is_left_out_and_named(
    admin_broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    stored_by_another_client = {"producer_byte_rate": "-5", "consumer_byte_rate": "7"}
    await admin_broker.store.create("/config/clients/c", paths.encode_config(stored_by_another_client))
    await admin_broker.stop()
    again = await admin_broker.restarted()
    assert await describe(again) == {(("client-id", "c"),): {"consumer_byte_rate": 7}}
    assert "producer_byte_rate=-5 of client-id c cannot be used and is ignored" in caplog.text
    await again.stop()


async def test_only_validating_checks_and_writes_nothing(admin_broker: Any) -> None:
    outcomes = await alter(
        admin_broker,
        entry({"client-id": "c"}, producer_byte_rate=1.0),
        entry({"client-id": "d"}, producer_byte_rate=-1.0),
        validate_only=True,
    )
    assert [code.name for code, _ in outcomes] == ["NONE", "INVALID_REQUEST"]
    assert await describe(admin_broker) == {}
    assert await admin_broker.store.children("/config/clients") == []


@both_versions
async def test_what_cannot_be_is_refused_by_name_and_changes_nothing(admin_broker: Any, version: int) -> None:
    twice = entry({"client-id": "twice"}, producer_byte_rate=1.0)
    doubled = entry({"client-id": "f"}, producer_byte_rate=1.0)
    doubled["ops"] *= 2
    outcomes = await alter(
        admin_broker,
        entry({"client-id": "a"}, producer_byte_rate=-5.0, consumer_byte_rate=7.0),
        entry({"client-id": "b"}, consumer_byte_rate=math.nan),
        entry({"client-id": "c"}, bytes=1.0),
        entry({"group": "d"}, producer_byte_rate=1.0),
        entry({"client-id": ""}, producer_byte_rate=1.0),
        entry({}, producer_byte_rate=1.0),
        entry({"ip": "127.0.0.1"}, producer_byte_rate=1.0),
        doubled,
        twice,
        twice,
        entry({"client-id": "good"}, producer_byte_rate=1.0),
        version=version,
    )
    assert [code.name for code, _ in outcomes] == ["INVALID_REQUEST"] * 10 + ["NONE"]
    for (_, message), words in zip(
        outcomes,
        [
            "producer_byte_rate must be a finite value more than 0, not -5",
            "consumer_byte_rate must be a finite value more than 0, not nan",
            "Invalid configuration key bytes",
            "Unhandled client quota entity type: group",
            "Empty client-id not supported",
            "Invalid empty client quota entity",
            "Invalid configuration key producer_byte_rate",
            "Duplicate quota key producer_byte_rate",
            "Ignoring duplicate entity client-id twice",
        ],
        strict=False,
    ):
        assert message is not None and words in message
    assert await describe(admin_broker) == {(("client-id", "good"),): {"producer_byte_rate": 1}}


@both_versions
async def test_filters_find_exactly_what_they_want(admin_broker: Any, version: int) -> None:
    entities: list[Entity] = [
        {"user": "u"},
        {"user": None},
        {"client-id": "c"},
        {"user": "u", "client-id": "c"},
    ]
    await alter(admin_broker, *(entry(entity, producer_byte_rate=1.0) for entity in entities))

    async def found(*components: tuple[str, int, str | None], strict: bool = False) -> list[int]:
        described = await describe(admin_broker, *components, version=version, strict=strict)
        return sorted(entities.index(dict(entity)) for entity in described)

    assert await found() == [0, 1, 2, 3]
    assert await found(("user", EXACT, "u")) == [0, 3]
    assert await found(("user", EXACT, "u"), strict=True) == [0]
    assert await found(("user", DEFAULT, None)) == [1]
    assert await found(("user", ANY, None)) == [0, 1, 3]
    assert await found(("user", ANY, None), ("client-id", ANY, None)) == [3]
    assert await found(("ip", ANY, None)) == []


@both_versions
async def test_a_filter_that_means_nothing_is_refused_as_a_whole(admin_broker: Any, version: int) -> None:
    for component, code in (
        (("group", ANY, None), ErrorCode.UNSUPPORTED_VERSION),
        (("user", EXACT, None), ErrorCode.INVALID_REQUEST),
    ):
        kind, match_type, match = component
        body = {
            "components": [{"entity_type": kind, "match_type": match_type, "match": match}],
            "strict": False,
        }
        answer = await admin_broker.ask(DESCRIBE, version, body)
        assert (answer.error_code, answer.entries) == (code, None)
        assert answer.error_message


# Controller mutations, and why


def create(*names: str, partitions: int = 1, validate_only: bool = False) -> dict[str, Any]:
    topics = [
        {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        for name in names
    ]
    return {"topics": topics, "timeout": 10_000, "validate_only": validate_only}


async def test_strict_mutations_are_refused_once_the_bucket_is_overspent(admin_broker: Any) -> None:
    """The burst is 11 seconds' worth: 11 partitions at one a second."""
    await alter(admin_broker, entry({"client-id": "test"}, controller_mutation_rate=1.0))
    answer = await admin_broker.ask(ApiKey.CREATE_TOPICS, 7, create("v", partitions=500, validate_only=True))
    assert answer.throttle_time == 0, "what is only validated costs nothing"
    answer = await admin_broker.ask(ApiKey.CREATE_TOPICS, 6, create("a", "b", "c", partitions=10))
    results = [(topic.name, ErrorCode(topic.error_code).name) for topic in answer.topics]
    assert results == [("a", "NONE"), ("b", "NONE"), ("c", "THROTTLING_QUOTA_EXCEEDED")]
    assert answer.topics[2].error_message == "The throttling quota has been exceeded."
    assert 0 < answer.throttle_time <= 9000 and admin_broker.muted_ms == [answer.throttle_time]
    more = {
        "topics": [{"name": "a", "count": 11, "assignments": None}],
        "timeout": 10_000,
        "validate_only": False,
    }
    answer = await admin_broker.ask(ApiKey.CREATE_PARTITIONS, 3, more)
    assert [each.error_code for each in answer.results] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert answer.throttle_time > 0
    delete = {"topics": [{"name": "a", "topic_id": None}], "timeout": 10_000}
    answer = await admin_broker.ask(ApiKey.DELETE_TOPICS, 6, delete)
    assert [each.error_code for each in answer.responses] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert admin_broker.metadata.topic("c") is None and admin_broker.metadata.topic("a") is not None


async def test_before_clients_knew_the_error_everything_is_done_and_they_wait(admin_broker: Any) -> None:
    await alter(admin_broker, entry({"client-id": "test"}, controller_mutation_rate=1.0))
    answer = await admin_broker.ask(ApiKey.CREATE_TOPICS, 5, create("a", "b", "c", partitions=10))
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.NONE] * 3
    assert 0 < answer.throttle_time <= 19_000
    more = {
        "topics": [{"name": "a", "count": 11, "assignments": None}],
        "timeout": 10_000,
        "validate_only": False,
    }
    answer = await admin_broker.ask(ApiKey.CREATE_PARTITIONS, 2, more)
    assert answer.results[0].error_code == ErrorCode.NONE and answer.throttle_time > 0
    answer = await admin_broker.ask(ApiKey.DELETE_TOPICS, 4, {"topic_names": ["a"], "timeout": 10_000})
    assert answer.responses[0].error_code == ErrorCode.NONE and answer.throttle_time > 0


async def test_topics_that_come_by_themselves_cost_tokens_and_no_client_waits(admin_broker: Any) -> None:
    await alter(admin_broker, entry({"client-id": "test"}, controller_mutation_rate=0.1))
    wanted = [{"name": name, "topic_id": None} for name in ("a", "b", "c")]
    body = {
        "topics": wanted,
        "allow_auto_topic_creation": True,
        "include_topic_authorized_operations": False,
    }
    answer = await admin_broker.ask(ApiKey.METADATA, 12, body)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.NONE] * 3
    assert answer.throttle_time == 0 and admin_broker.muted_ms == []
    answer = await admin_broker.ask(ApiKey.CREATE_TOPICS, 6, create("d"))
    assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED, "1.1 tokens, and 3 were spent"


@both_versions
async def test_why_a_client_was_throttled_is_asked_for_with_an_entity_type_of_its_own(
    admin_broker: Any, version: int
) -> None:
    await alter(admin_broker, entry({"client-id": "test"}, controller_mutation_rate=1.0))
    assert await describe(admin_broker, ("throttle", ANY, None), version=version) == {}
    answer = await admin_broker.ask(ApiKey.CREATE_TOPICS, 5, create("a", partitions=20))
    (found,) = (
        await describe(admin_broker, ("client-id", EXACT, "test"), ("throttle", ANY, None), version=version)
    ).items()
    entity, values = found
    assert entity == (
        ("user", "ANONYMOUS"),
        ("client-id", "test"),
        ("throttle", "controller_mutation_rate#1"),
    )
    assert values["throttle_time_ms"] == answer.throttle_time
    assert -9 <= values["observed"] < 0 and values["bound"] == 1 and values["window_ms"] == 0
    assert abs(values["at_ms"] - admin_broker.clock.now_ms()) < 60_000
    assert await describe(admin_broker, ("client-id", EXACT, "other"), ("throttle", ANY, None)) == {}


@both_versions
async def test_a_swap_that_cannot_be_is_refused_and_nothing_is_stored(
    admin_broker: Any, version: int
) -> None:
    """``minikafka compact`` asks for it with an entity type of its own; what it refuses is told in words."""
    malformed = [
        entry({"compaction": "t-0"}, swap_in=1.0),
        entry({"compaction": "../etc:7"}, swap_in=1.0),
        entry({"compaction": None}, swap_in=1.0),
        entry({"compaction": "t-0:7", "user": "me"}, swap_in=1.0),
        entry({"compaction": "t-0.00-delete:7"}, swap_in=1.0),
    ]
    for code, message in await alter(admin_broker, *malformed, version=version):
        assert code is ErrorCode.INVALID_REQUEST and "is alone and named" in (message or "")
    for wrong in ({"swap_in": None}, {"producer_byte_rate": 1.0}, {"swap_in": 1.0, "swap_out": 1.0}):
        ((code, message),) = await alter(
            admin_broker, entry({"compaction": "t-0:7"}, **wrong), version=version
        )
        assert code is ErrorCode.INVALID_REQUEST and "is swap_in" in (message or "")
    for validate_only in (True, False):
        ((code, message),) = await alter(
            admin_broker,
            entry({"compaction": "nowhere-0:7"}, swap_in=1.0),
            version=version,
            validate_only=validate_only,
        )
        assert (code, message) == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "this broker has no log of nowhere-0",
        )
    assert await describe(admin_broker) == {}


async def test_answers_have_kafkas_order(admin_broker: Any) -> None:
    """As Kafka 4.4.0 answers, whatever the order of the request."""
    quotas = {
        "request_percentage": 20.0,
        "consumer_byte_rate": 200.0,
        "controller_mutation_rate": 3.0,
        "producer_byte_rate": 100.0,
    }
    body = {"entries": [entry({"user": "u", "client-id": "c"}, **quotas)], "validate_only": False}
    altered = (await admin_broker.ask(ALTER, 1, body)).entries[0]
    everything = {"components": [], "strict": False}
    described = (await admin_broker.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, everything)).entries[0]
    for each in (altered, described):
        assert [part.entity_type for part in each.entity] == ["client-id", "user"]
    assert [value.key for value in described.values] == [
        "producer_byte_rate",
        "consumer_byte_rate",
        "controller_mutation_rate",
        "request_percentage",
    ]
