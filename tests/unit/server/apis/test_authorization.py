"""Every request is authorised as in Kafka's table (``authorization_table``), in every version."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from minikafka.coordination.sqlite import SqliteStore
from minikafka.errors import ErrorCode
from minikafka.protocol.control import ControlRequest
from minikafka.protocol.records.records import Record, build_batch
from minikafka.protocol.wire.api_versions import REFUSED, ApiKey
from minikafka.protocol.wire.schema import message_schema
from minikafka.security.acl import SUPPORTED_OPERATIONS, AclOperation, ResourceType, parse_principal
from minikafka.server.apis import HANDLERS
from tests.support.authorization_table import (
    ABSENT,
    DOOMED,
    GROUP,
    MODERN_GROUP,
    NEEDS_NOTHING,
    NEEDS_NOTHING_BEFORE,
    OWNER,
    RULES,
    SPOKEN,
    TOKEN_ID,
    TOPIC,
    TRANSACTIONAL_ID,
    Given,
    Rule,
    filled,
    fitting,
    found_at,
    on_cluster,
    on_group,
    on_topic,
)
from tests.support.fake_authorizer import FakeAuthorizer, Right
from tests.unit.server.conftest import AdminBroker, transacting

NONE, NO_TOPIC = ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED
ASKER = parse_principal("User:asker")


class World:
    """A broker, what the table names, and an authorizer that knows what is allowed at the moment."""

    def __init__(self, broker: AdminBroker) -> None:
        self.broker = broker
        self.authorizer = FakeAuthorizer()
        self.given: dict[Given, Any] = {}
        self.token_id = ""

    async def prepare(self) -> None:
        broker = self.broker
        for key_type, key in ((0, GROUP), (1, TRANSACTIONAL_ID)):
            await broker.ask(ApiKey.FIND_COORDINATOR, 6, {"key_type": key_type, "coordinator_keys": [key]})
        partition = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
        offset = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": ""}
        topics = [{"name": TOPIC, "partitions": [partition | {"committed_leader_epoch": -1}]}]
        await broker.ask(ApiKey.OFFSET_COMMIT, 8, offset | {"group_instance_id": None, "topics": topics})
        await self._join_modern_group()
        await self._begin_transaction()
        await self._create_token()
        record = [Record(0, 0, None, b"v", ())]
        ids = {"producer_id": 999, "producer_epoch": 0, "base_sequence": 0}
        self.given = {
            Given.TOPIC_ID: broker.metadata.topic(TOPIC).topic_id,
            Given.RECORDS: build_batch(record),
            Given.TRANSACTIONAL_RECORDS: build_batch(record, transactional=True, **ids),
        }
        broker.services.authorizer = self.authorizer

    async def _begin_transaction(self) -> None:
        body = {"transactional_id": TRANSACTIONAL_ID, "transaction_timeout": 60_000}
        producer = await self.broker.ask(
            ApiKey.INIT_PRODUCER_ID, 5, body | {"producer_id": -1, "producer_epoch": -1}
        )
        answer = await self.broker.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            {
                "v3_and_below_transactional_id": TRANSACTIONAL_ID,
                "v3_and_below_producer_id": producer.producer_id,
                "v3_and_below_producer_epoch": producer.producer_epoch,
                "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
            },
        )
        at = "results_by_topic_v3_and_below[].results_by_partition[].partition_error_code"
        assert found_at(answer, at) == [NONE]

    async def _create_token(self) -> None:
        body = {"renewers": [], "max_lifetime": -1}
        owner = parse_principal(OWNER)
        answer = await self.broker.ask(ApiKey.CREATE_DELEGATION_TOKEN, 2, body, principal=owner)
        assert answer.error_code == NONE
        self.token_id = answer.token_id

    async def _join_modern_group(self) -> None:
        member = {
            "group_id": MODERN_GROUP,
            "member_id": "member",
            "member_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": 60_000,
            "subscribed_topic_names": [TOPIC],
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": [],
        }
        answer = await self.broker.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, member)
        assert answer.error_code == NONE

    async def ask(
        self, key: ApiKey, version: int, body: Mapping[str, Any] | ControlRequest, *allowed: Right
    ) -> Any:
        """The answer to one who may do this, and nothing else."""
        if self.broker.metadata.topic(DOOMED) is None:
            await self.broker.topics.create_topic(DOOMED)
        if self.broker.metadata.topic(ABSENT) is not None:
            await self.broker.topics.delete_topic(ABSENT)
        self.given[Given.DOOMED_ID] = self.broker.metadata.topic(DOOMED).topic_id
        self.authorizer.allow(
            *(right._replace(name=self.token_id) if right.name == TOKEN_ID else right for right in allowed)
        )
        if isinstance(body, Mapping):
            body = fitting(message_schema(key, version, "request").body, filled(body, self.given))
        return await self.broker.ask(key, version, body, principal=ASKER)


def with_tokens(store: SqliteStore, directory: Path) -> AbstractAsyncContextManager[AdminBroker]:
    return transacting(store, directory, **{"delegation.token.secret.key": "a long secret"})


async def mismatches(world: World, rule: Rule, version: int) -> list[str]:
    def wrong(what: str, found: list[Any]) -> str:
        return f"{rule} version {version}: {what}, but {found}"

    problems = []
    answer = await world.ask(rule.api, version, rule.body, *rule.given)
    if not rule.is_refused(found := found_at(answer, rule.at)):
        problems.append(wrong("not refused without the right", found))
    for right in rule.needs:
        answer = await world.ask(rule.api, version, rule.body, *rule.given, right)
        if not rule.is_allowed(found := found_at(answer, rule.at)):
            problems.append(wrong(f"refused with {right}", found))
    return problems


async def test_each_request_is_refused_without_its_right_and_not_with_it(
    store: SqliteStore, tmp_path: Path
) -> None:
    async with with_tokens(store, tmp_path) as broker:
        world = World(broker)
        await world.prepare()
        problems = [
            problem
            for rule in RULES
            for version in rule.spoken()
            for problem in await mismatches(world, rule, version)
        ]
        assert not problems, "\n".join(problems)


def test_no_api_and_no_version_is_missing_in_the_table() -> None:
    named = {rule.api for rule in RULES}
    assert named | NEEDS_NOTHING.keys() | REFUSED.keys() == set(HANDLERS)
    assert not named & NEEDS_NOTHING.keys()
    for api in named:
        versions = {version for rule in RULES if rule.api is api for version in rule.spoken()}
        first, _ = NEEDS_NOTHING_BEFORE.get(api, (SPOKEN[api].min, ""))
        assert versions == set(range(first, SPOKEN[api].max + 1)), api


async def test_what_may_not_be_described_does_not_tell_whether_it_exists(
    store: SqliteStore, tmp_path: Path
) -> None:
    async with with_tokens(store, tmp_path) as broker:
        world = World(broker)
        await world.prepare()
        asked = {"topics": [{"name": name, "topic_id": None} for name in (TOPIC, ABSENT)]}
        body = asked | {"allow_auto_topic_creation": True, "include_topic_authorized_operations": True}
        there, absent = (await world.ask(ApiKey.METADATA, 12, body)).topics
        for topic in (there, absent):
            assert topic.error_code == NO_TOPIC
            assert topic.topic_id is None and not topic.partitions
        assert broker.metadata.topic(ABSENT) is None, "nobody may create it"
        topic_id = world.given[Given.TOPIC_ID]
        by_id = body | {"topics": [{"name": None, "topic_id": topic_id}]}
        (topic,) = (await world.ask(ApiKey.METADATA, 12, by_id)).topics
        assert (topic.error_code, topic.name, topic.topic_id) == (NO_TOPIC, None, topic_id)
        doomed = {"topics": [{"name": None, "topic_id": world.given[Given.DOOMED_ID]}], "timeout": 0}
        for allowed, name in (((), None), ((on_topic(AclOperation.DESCRIBE, DOOMED),), DOOMED)):
            (deleted,) = (await world.ask(ApiKey.DELETE_TOPICS, 6, doomed, *allowed)).responses
            assert (deleted.error_code, deleted.name) == (NO_TOPIC, name)


async def test_operations_are_those_that_are_allowed(store: SqliteStore, tmp_path: Path) -> None:
    async with with_tokens(store, tmp_path) as broker:
        world = World(broker)
        await world.prepare()
        rights = [on_topic(AclOperation.DESCRIBE), on_topic(AclOperation.WRITE)]
        body = {
            "topics": [{"name": TOPIC, "topic_id": None}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
            "include_cluster_authorized_operations": True,
        }
        answer = await world.ask(ApiKey.METADATA, 8, body, *rights, on_cluster(AclOperation.ALTER))
        assert answer.topics[0].topic_authorized_operations == 1 << 8 | 1 << 4
        assert answer.cluster_authorized_operations == 0, "it may not describe the cluster"
        cluster = {
            "include_cluster_authorized_operations": True,
            "endpoint_type": 1,
            "include_fenced_brokers": False,
        }
        on_all = [Right(each, *on_cluster(each)[1:]) for each in SUPPORTED_OPERATIONS[ResourceType.CLUSTER]]
        described = await world.ask(ApiKey.DESCRIBE_CLUSTER, 2, cluster, *on_all)
        assert described.cluster_authorized_operations == sum(1 << each.operation for each in on_all)
        group = {"groups": [GROUP], "include_authorized_operations": True}
        (known,) = (await world.ask(ApiKey.DESCRIBE_GROUPS, 5, group, on_group(AclOperation.DESCRIBE))).groups
        assert known.authorized_operations == 1 << 8


async def test_what_is_only_filtered_is_not_logged_as_denied(store: SqliteStore, tmp_path: Path) -> None:
    async with with_tokens(store, tmp_path) as broker:
        world = World(broker)
        await world.prepare()
        everything = {
            "topics": None,
            "allow_auto_topic_creation": True,
            "include_topic_authorized_operations": False,
        }
        for key, version, body in (
            (ApiKey.METADATA, 12, everything),
            (ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []}),
        ):
            await world.ask(key, version, body)
            assert world.authorizer.asked and not world.authorizer.logged_denials
        named = everything | {"topics": [{"name": TOPIC, "topic_id": None}]}
        await world.ask(ApiKey.METADATA, 12, named)
        assert world.authorizer.logged_denials == [on_topic(AclOperation.DESCRIBE)]


async def test_cve_2018_1288_a_client_that_says_it_is_a_replica_is_no_follower(
    store: SqliteStore, tmp_path: Path
) -> None:
    """CVE-2018-1288: it gets no records, moves no high watermark, and has no follower's place in memory."""
    async with with_tokens(store, tmp_path) as broker:
        world = World(broker)
        await world.prepare()
        rule = next(each for each in RULES if each.api is ApiKey.FETCH and each.given)
        for version in rule.spoken():
            answer = await world.ask(ApiKey.FETCH, version, rule.body, *rule.given)
            (partition,) = found_at(answer, "responses[].partitions[]")
            assert (partition.error_code, partition.high_watermark) == (NO_TOPIC, -1)
            assert not partition.records
        assert set(world.authorizer.asked) == {on_cluster(AclOperation.CLUSTER_ACTION)}


async def test_cve_2018_17196_a_transaction_is_asked_about_before_the_topic(
    store: SqliteStore, tmp_path: Path
) -> None:
    """CVE-2018-17196: transactional records without a transactional id are in nobody's transaction."""
    async with with_tokens(store, tmp_path) as broker:
        world = World(broker)
        await world.prepare()
        rule = next(each for each in RULES if each.api is ApiKey.PRODUCE and each.given)
        for version in rule.spoken():
            body = {**rule.body, "transactional_id": None}
            answer = await world.ask(ApiKey.PRODUCE, version, body, *rule.given, *rule.needs)
            assert found_at(answer, rule.at) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]


async def test_a_partition_without_the_right_spoils_no_other(store: SqliteStore, tmp_path: Path) -> None:
    async with with_tokens(store, tmp_path) as broker:
        await broker.topics.create_topic("other")
        world = World(broker)
        await world.prepare()
        data = [{"index": 0, "records": Given.RECORDS}]
        topics = [{"name": name, "partition_data": data} for name in ("other", TOPIC)]
        body = {"transactional_id": None, "acks": -1, "timeout": 1000, "topic_data": topics}
        answer = await world.ask(ApiKey.PRODUCE, 12, body, on_topic(AclOperation.WRITE))
        assert {
            topic.name: [each.error_code for each in topic.partition_responses] for topic in answer.responses
        } == {"other": [NO_TOPIC], TOPIC: [NONE]}


async def test_each_fetch_of_a_session_is_authorised(store: SqliteStore, tmp_path: Path) -> None:
    async with with_tokens(store, tmp_path) as broker:
        world = World(broker)
        await world.prepare()
        rule = next(each for each in RULES if each.api is ApiKey.FETCH and not each.given)
        assert isinstance(rule.body, Mapping)
        begun = await world.ask(ApiKey.FETCH, 12, {**rule.body, "session_epoch": 0}, *rule.needs)
        assert begun.session_id and found_at(begun, rule.at) == [NONE]
        again = {**rule.body, "session_id": begun.session_id, "topics": []}
        denied = await world.ask(ApiKey.FETCH, 12, {**again, "session_epoch": 1})
        assert found_at(denied, rule.at) == [NO_TOPIC]
        still_denied = await world.ask(ApiKey.FETCH, 12, {**again, "session_epoch": 2})
        assert found_at(still_denied, rule.at) == [NO_TOPIC]
        allowed = await world.ask(ApiKey.FETCH, 12, {**again, "session_epoch": 3}, *rule.needs)
        assert found_at(allowed, rule.at) in ([], [NONE])
