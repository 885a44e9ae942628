"""The group APIs in every version, asked of a whole broker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import msgspec
import pytest

from minikafka.coordinator.group.consumer import membership
from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.security.acl import SUPPORTED_OPERATIONS, AclOperation, ResourceType
from minikafka.steps import Steps, each
from tests.support.authorization_table import on_topic
from tests.support.fake_authorizer import FakeAuthorizer
from tests.unit.server.conftest import AdminBroker

GROUP = "readers"
NONE = ErrorCode.NONE


def versions(key: ApiKey) -> Any:
    return pytest.mark.parametrize("version", range(SUPPORTED[key].min, SUPPORTED[key].max + 1))


@pytest.fixture
async def broker(admin_broker: Any) -> Any:
    """With a topic of two partitions, and ready to coordinate."""
    await admin_broker.topics.create_topic("orders", partitions=2)
    await find(admin_broker)
    return admin_broker


async def find(broker: Any) -> None:
    found = await broker.ask(ApiKey.FIND_COORDINATOR, 6, {"key_type": 0, "coordinator_keys": [GROUP]})
    assert found.coordinators[0].error_code == NONE


async def commit(broker: Any, version: int = 9, *, group: str = GROUP, **partition: Any) -> list[ErrorCode]:
    """Offsets 5 of orders 0 and 1, of a partition that is not there, and of a topic that is not there."""

    def offset(index: int) -> dict[str, Any]:
        fields = {"partition_index": index, "committed_offset": 5, "committed_metadata": "m"} | partition
        return fields | ({"committed_leader_epoch": 3} if version >= 6 else {})

    body: dict[str, Any] = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [
            {"name": "orders", "partitions": [offset(0), offset(2), offset(1)]},
            {"name": "nowhere", "partitions": [offset(0)]},
        ],
    }
    if version < 5:
        body["retention_time"] = -1
    if version >= 7:
        body["group_instance_id"] = None
    if version >= 10:
        body["topics"] = by_id(broker, body["topics"])
    answer = await broker.ask(ApiKey.OFFSET_COMMIT, version, body)
    assert [name_in(broker, topic) for topic in answer.topics] == ["orders", "nowhere"]
    return [ErrorCode(each.error_code) for topic in answer.topics for each in topic.partitions]


NO_TOPICS_ID = UUID("00000000-0000-0000-0000-00000000000f")


def by_id(broker: Any, topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As they come since OffsetCommit 10, OffsetFetch 10 and TxnOffsetCommit 6."""
    topic = broker.metadata.topic
    return [
        {"topic_id": known.topic_id if (known := topic(each["name"])) else NO_TOPICS_ID} | each
        for each in topics
    ]


def name_in(broker: Any, topic: Any) -> str:
    """The name of a topic in an answer."""
    if hasattr(topic, "name"):
        return str(topic.name)
    known = broker.metadata.topic_by_id(topic.topic_id)
    return str(known.name) if known else "nowhere"


async def fetch(broker: Any, version: int, topics: Any, *, group: str = GROUP) -> Any:
    """Error of the group, offsets by topic and partition."""
    if version >= 10 and topics is not None:
        topics = by_id(broker, topics)
    body: dict[str, Any] = {"group_id": group, "topics": topics}
    if version >= 9:
        body |= {"member_id": None, "member_epoch": -1}
    if version >= 8:
        body = {"groups": [body]}
    if version >= 7:
        body["require_stable"] = True
    answer = await broker.ask(ApiKey.OFFSET_FETCH, version, body)
    found = answer.groups[0] if version >= 8 else answer
    return getattr(found, "error_code", None), {
        (name_in(broker, topic), each.partition_index): (
            each.committed_offset,
            each.metadata,
            each.error_code,
        )
        for topic in found.topics
        for each in topic.partitions
    }


ASKED = [{"name": "orders", "partition_indexes": [0, 1]}]


@versions(ApiKey.OFFSET_COMMIT)
async def test_what_exists_is_committed_and_the_rest_is_unknown(broker: Any, version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unknown_topic = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else unknown
    assert await commit(broker, version) == [NONE, unknown, NONE, unknown_topic]
    _, found = await fetch(broker, 9, None)
    assert found == {("orders", 0): (5, "m", 0), ("orders", 1): (5, "m", 0)}


@versions(ApiKey.OFFSET_FETCH)
async def test_committed_offsets_are_fetched_by_name_or_all_at_once(broker: Any, version: int) -> None:
    await commit(broker)
    code, found = await fetch(broker, version, [*ASKED, {"name": "nowhere", "partition_indexes": [7]}])
    assert code in (NONE, None)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else NONE
    assert found == {
        ("orders", 0): (5, "m", 0),
        ("orders", 1): (5, "m", 0),
        ("nowhere", 7): (-1, "", unknown),
    }
    if version >= 2:
        code, found = await fetch(broker, version, None)
        assert (code, len(found)) == (NONE, 2)


async def test_an_offset_of_a_topic_that_was_there_before_is_none(broker: Any) -> None:
    await commit(broker, 10)
    await commit(broker, 9, group="by-name")
    named = broker.metadata.topic("orders")
    broker.metadata.put_topic(msgspec.structs.replace(named, topic_id=NO_TOPICS_ID))

    assert await fetch(broker, 10, ASKED) == (NONE, {("orders", n): (-1, "", 0) for n in (0, 1)})
    _, of_names = await fetch(broker, 10, ASKED, group="by-name")
    assert of_names == {("orders", n): (5, "m", 0) for n in (0, 1)}, "committed without an id"
    _, of_name = await fetch(broker, 9, ASKED)
    assert of_name == {("orders", n): (5, "m", 0) for n in (0, 1)}, "who names it cannot mean another"


@versions(ApiKey.OFFSET_FETCH)
async def test_a_group_without_a_coordinator_has_no_offsets(admin_broker: Any, version: int) -> None:
    code, found = await fetch(admin_broker, version, ASKED)
    if version == 1:
        assert found == {("orders", n): (-1, "", ErrorCode.NOT_COORDINATOR) for n in (0, 1)}
    else:
        assert (code, found) == (ErrorCode.NOT_COORDINATOR, {})


async def test_offsets_of_more_partitions_than_are_read_at_once(broker: Any) -> None:
    await commit(broker)
    asked = [{"name": "orders", "partition_indexes": [*range(2, 12_000), 0, 1]}]
    code, found = await fetch(broker, 9, asked)
    assert (code, len(found)) == (NONE, 12_000)
    assert [found["orders", number][0] for number in (0, 1, 2, 11_999)] == [5, 5, -1, -1]
    assert await fetch(broker, 9, [{"name": "orders", "partition_indexes": []}]) == (NONE, {})


async def test_a_group_that_is_named_again_is_answered_once(broker: Any) -> None:
    await commit(broker)
    group = {"group_id": GROUP, "topics": None, "member_id": None, "member_epoch": -1}
    other = group | {"group_id": "other"}
    body = {"groups": [group, other, group], "require_stable": False}
    answer = await broker.ask(ApiKey.OFFSET_FETCH, 9, body)
    assert [each.group_id for each in answer.groups] == [GROUP, "other"]
    body = {"groups": [GROUP, "other", GROUP], "include_authorized_operations": False}
    answer = await broker.ask(ApiKey.DESCRIBE_GROUPS, 5, body)
    assert [each.group_id for each in answer.groups] == [GROUP, "other"]
    body = {"group_ids": [GROUP, "other", GROUP], "include_authorized_operations": False}
    answer = await broker.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, body)
    assert [each.group_id for each in answer.groups] == [GROUP, "other"]


async def test_too_much_metadata_is_refused_for_its_partition(broker: Any) -> None:
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    codes = await commit(broker, committed_metadata="m" * 4097)
    assert [codes[0], codes[2]] == [too_large, too_large]


async def join(broker: Any, version: int, *, group: str = GROUP, member_id: str = "", **fields: Any) -> Any:
    body: dict[str, Any] = {
        "group_id": group,
        "session_timeout": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"subscribed"}],
    }
    if version >= 1:
        body["rebalance_timeout"] = 10_000
    if version >= 5:
        body["group_instance_id"] = None
    if version >= 8:
        body["reason"] = "because " * 100
    return await broker.ask(ApiKey.JOIN_GROUP, version, body | fields)


async def sync(broker: Any, version: int, joined: Any, **fields: Any) -> Any:
    body: dict[str, Any] = {
        "group_id": GROUP,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "assignments": [{"member_id": joined.member_id, "assignment": b"all of it"}],
    }
    if version >= 3:
        body["group_instance_id"] = None
    if version >= 5:
        body |= {"protocol_type": "consumer", "protocol_name": "range"}
    return await broker.ask(ApiKey.SYNC_GROUP, version, body | fields)


async def heartbeat(broker: Any, version: int, joined: Any, **fields: Any) -> ErrorCode:
    body = {"group_id": GROUP, "generation_id": joined.generation_id, "member_id": joined.member_id}
    more = {"group_instance_id": None} if version >= 3 else {}
    answer = await broker.ask(ApiKey.HEARTBEAT, version, body | more | fields)
    return ErrorCode(answer.error_code)


async def member(broker: Any, version: int = 3) -> Any:
    """Of a stable group; the answer to its join."""
    joined = await join(broker, version)
    assert (await sync(broker, 3, joined)).error_code == NONE
    return joined


@pytest.fixture
async def quick_broker(store: Any, tmp_path: Any) -> Any:
    broker = await AdminBroker(
        store,
        tmp_path / "logs",
        {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"},
    ).start()
    await broker.topics.create_topic("orders", partitions=2)
    await find(broker)
    yield broker
    await broker.stop()


@versions(ApiKey.JOIN_GROUP)
async def test_a_member_joins_and_leads(quick_broker: Any, version: int) -> None:
    joined = await join(quick_broker, version)
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = await join(quick_broker, version, member_id=joined.member_id)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (NONE, 1, "range")
    assert joined.leader == joined.member_id and joined.member_id.startswith("test-")
    assert [(each.member_id, each.metadata) for each in joined.members] == [(joined.member_id, b"subscribed")]


@versions(ApiKey.JOIN_GROUP)
async def test_a_join_that_cannot_be_is_refused_with_its_reason(quick_broker: Any, version: int) -> None:
    nameless = await join(quick_broker, version, group="", member_id="who")
    assert (nameless.error_code, nameless.member_id) == (ErrorCode.INVALID_GROUP_ID, "who")
    assert nameless.protocol_name == (None if version >= 7 else "")
    short = await join(quick_broker, version, session_timeout=1)
    assert short.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    unknown = await join(quick_broker, version, member_id="absent")
    assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@versions(ApiKey.SYNC_GROUP)
async def test_a_member_fetches_what_the_leader_brings(quick_broker: Any, version: int) -> None:
    synced = await sync(quick_broker, version, await join(quick_broker, 3))
    assert (synced.error_code, synced.assignment) == (NONE, b"all of it")


async def test_a_sync_names_the_protocol(quick_broker: Any) -> None:
    joined = await join(quick_broker, 3)
    for field in ("protocol_type", "protocol_name"):
        synced = await sync(quick_broker, 5, joined, **{field: None})
        assert synced.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await sync(quick_broker, 5, joined, group_id="")).error_code == ErrorCode.INVALID_GROUP_ID


@versions(ApiKey.HEARTBEAT)
async def test_a_heartbeat_says_whether_all_is_well(quick_broker: Any, version: int) -> None:
    joined = await member(quick_broker)
    assert await heartbeat(quick_broker, version, joined) is NONE
    assert await heartbeat(quick_broker, version, joined, generation_id=9) is ErrorCode.ILLEGAL_GENERATION
    assert await heartbeat(quick_broker, version, joined, member_id="x") is ErrorCode.UNKNOWN_MEMBER_ID
    assert await heartbeat(quick_broker, version, joined, group_id="") is ErrorCode.INVALID_GROUP_ID


@versions(ApiKey.LEAVE_GROUP)
async def test_members_leave(quick_broker: Any, version: int) -> None:
    joined = await member(quick_broker)
    for expected in (NONE, ErrorCode.UNKNOWN_MEMBER_ID):
        leaving: dict[str, Any] = {"member_id": joined.member_id}
        if version >= 3:
            leaving["group_instance_id"] = None
            if version >= 5:
                leaving["reason"] = "enough"
            leaving = {"members": [leaving]}
        answer = await quick_broker.ask(ApiKey.LEAVE_GROUP, version, {"group_id": GROUP} | leaving)
        if version >= 3:
            assert answer.error_code == NONE
            answer = answer.members[0]
        assert answer.error_code == expected


@versions(ApiKey.DESCRIBE_GROUPS)
async def test_groups_are_described(quick_broker: Any, version: int) -> None:
    joined = await member(quick_broker)
    body: dict[str, Any] = {"groups": [GROUP, "absent"]}
    if version >= 3:
        body["include_authorized_operations"] = True
    known, unknown = (await quick_broker.ask(ApiKey.DESCRIBE_GROUPS, version, body)).groups
    assert (known.error_code, known.group_state, known.protocol_type) == (NONE, "Stable", "consumer")
    (only,) = known.members
    assert (only.member_id, only.client_id, only.client_host) == (joined.member_id, "test", "/10.0.0.9")
    assert only.member_assignment == b"all of it"
    not_found = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else NONE
    assert (unknown.error_code, unknown.group_state) == (not_found, "Dead")
    if version >= 3:
        operations = SUPPORTED_OPERATIONS[ResourceType.GROUP]
        assert known.authorized_operations == sum(1 << each for each in operations)


@versions(ApiKey.LIST_GROUPS)
async def test_groups_are_listed_by_state_and_type(quick_broker: Any, version: int) -> None:
    await member(quick_broker)
    await commit(quick_broker, group="simple")

    async def listed(**filters: Any) -> list[str]:
        filters = {"states_filter": [], "types_filter": []} | filters
        wanted = {4: ["states_filter"], 5: ["states_filter", "types_filter"]}.get(version, [])
        answer = await quick_broker.ask(ApiKey.LIST_GROUPS, version, {name: filters[name] for name in wanted})
        assert answer.error_code == NONE
        return sorted(group.group_id for group in answer.groups)

    assert await listed() == [GROUP, "simple"]
    if version >= 4:
        assert await listed(states_filter=["STABLE", "nonsense"]) == [GROUP]
    if version >= 5:
        assert await listed(types_filter=["Classic"]) == [GROUP, "simple"]
        assert await listed(types_filter=["consumer"]) == []


@versions(ApiKey.DELETE_GROUPS)
async def test_only_groups_without_members_are_deleted(quick_broker: Any, version: int) -> None:
    await member(quick_broker)
    await commit(quick_broker, group="simple")
    body = {"groups_names": ["simple", GROUP, "absent", "simple"]}
    answer = await quick_broker.ask(ApiKey.DELETE_GROUPS, version, body)
    assert {each.group_id: ErrorCode(each.error_code) for each in answer.results} == {
        "simple": NONE,
        GROUP: ErrorCode.NON_EMPTY_GROUP,
        "absent": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    if version >= 3:
        assert {each.group_id: each.error_message for each in answer.results} == {
            "simple": None,
            GROUP: "The group is not empty.",
            "absent": "Group absent not found.",
        }
    assert await fetch(quick_broker, 9, None, group="simple") == (NONE, {})
    assert (await quick_broker.ask(ApiKey.DELETE_GROUPS, version, {"groups_names": []})).results == ()


async def test_offsets_are_deleted(broker: Any) -> None:
    await commit(broker)
    body: dict[str, Any] = {
        "group_id": GROUP,
        "topics": [{"name": "orders", "partitions": [{"partition_index": 9}, {"partition_index": 0}]}],
    }
    answer = await broker.ask(ApiKey.OFFSET_DELETE, 0, body)
    assert answer.error_code == NONE
    assert {each.partition_index: each.error_code for each in answer.topics[0].partitions} == {
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        0: NONE,
    }
    assert (await fetch(broker, 9, None))[1].keys() == {("orders", 1)}
    for group, code in (("", ErrorCode.INVALID_GROUP_ID), ("absent", ErrorCode.GROUP_ID_NOT_FOUND)):
        answer = await broker.ask(ApiKey.OFFSET_DELETE, 0, body | {"group_id": group})
        assert (answer.error_code, answer.topics) == (code, ())


async def beat(broker: Any, version: int, **fields: Any) -> Any:
    body: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": "member-1",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": ["orders"],
        "server_assignor": None,
        "topic_partitions": [],
    }
    if version >= 1:
        body["subscribed_topic_regex"] = None
    return await broker.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, body | fields)


@versions(ApiKey.CONSUMER_GROUP_HEARTBEAT)
async def test_a_member_of_a_kip_848_group_is_given_its_partitions(broker: Any, version: int) -> None:
    joined = await beat(broker, version)
    assert (joined.error_code, joined.error_message, joined.heartbeat_interval) == (NONE, None, 5000)
    (topic,) = joined.assignment.topic_partitions
    assert topic.topic_id == broker.metadata.topic("orders").topic_id
    assert list(topic.partitions) == [0, 1]
    unknown = await beat(broker, version, member_id="absent", member_epoch=7)
    assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID and unknown.error_message
    assert (unknown.member_epoch, unknown.assignment) == (0, None)


async def test_a_broker_without_the_consumer_protocol_says_so(broker: Any) -> None:
    services = broker.services
    services.config = msgspec.structs.replace(
        services.config, group_coordinator_rebalance_protocols=("classic",)
    )
    assert (await beat(broker, 1)).error_code == ErrorCode.UNSUPPORTED_VERSION
    described = await broker.ask(
        ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": ["g"], "include_authorized_operations": False}
    )
    assert [group.error_code for group in described.groups] == [ErrorCode.UNSUPPORTED_VERSION]


@pytest.mark.parametrize("changes", [False, True], ids=["at-rest", "rules-change-meanwhile"])
async def test_what_a_regex_matches_is_authorized_a_few_topics_at_a_time(
    broker: Any, changes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And by the rules as they are in the end; the group itself, which has one turn, asks no more."""
    names = ["orders", *(f"orders-{number:02}" for number in range(39))]
    for name in names[1:]:
        await broker.topics.create_topic(name)
    authorizer = FakeAuthorizer()
    monkeypatch.setattr(broker.services, "authorizer", authorizer)
    authorizer.follow(broker.services.fast_paths.drop)
    lost = on_topic(AclOperation.DESCRIBE, names[0])
    authorizer.allow_all_but()
    asked_in_a_step = [0]

    def one_by_one(steps: Steps[Any], *, answer_may_be_large: bool = False) -> Any:
        while True:
            before = len(authorizer.asked)
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            finally:
                asked_in_a_step.append(len(authorizer.asked) - before)
            if changes and asked_in_a_step[-1] and lost not in authorizer.denied:
                authorizer.allow_all_but(lost)

    scheduler = broker.services.scheduler
    monkeypatch.setattr(scheduler, "apart", lambda work: each(lambda _: work(), [None]))
    monkeypatch.setattr(scheduler, "run", one_by_one)
    joined = await beat(broker, 1, subscribed_topic_names=None, subscribed_topic_regex="orders.*")
    assert joined.error_code == NONE
    ids = {topic.topic_id for topic in joined.assignment.topic_partitions}
    assert ids == {broker.metadata.topic(name).topic_id for name in names[1 if changes else 0 :]}
    assert max(asked_in_a_step) <= 16
    topics_asked = [right.name for right in authorizer.asked if right.operation is AclOperation.DESCRIBE]
    assert topics_asked[-len(names) :] == names
    assert changes or len(topics_asked) == len(names), "each is asked about once"


async def test_expressions_are_looked_at_again_in_steps_and_topics_may_come_meanwhile(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group's own turn matches no more than the name that it has not seen before."""
    joined = await beat(broker, 1, subscribed_topic_names=None, subscribed_topic_regex="orders.*|late")
    for number in range(40):
        await broker.topics.create_topic(f"orders-{number:02}")
    matched: list[str] = []
    matched_in_a_step = [0]
    compiled = membership.compile_regex

    def counting(regex: str, *, name: str) -> Any:
        pattern = compiled(regex, name=name)

        def fullmatch(topic: str) -> Any:
            matched.append(topic)
            return pattern.fullmatch(topic)

        return SimpleNamespace(fullmatch=fullmatch)

    async def one_by_one(steps: Steps[Any], *, answer_may_be_large: bool = False) -> Any:
        while True:
            before = len(matched)
            try:
                waits_for = next(steps)
            except StopIteration as end:
                return end.value
            matched_in_a_step.append(len(matched) - before)
            if waits_for is not None:
                await waits_for
            if len(matched) == 20 and broker.metadata.topic("late") is None:
                await broker.topics.create_topic("late")

    monkeypatch.setattr(membership, "compile_regex", counting)
    monkeypatch.setattr(broker.services.scheduler, "finished", one_by_one)
    monkeypatch.setattr(membership, "REGEX_REFRESH_INTERVAL_MS", 0)
    names = ["orders", *(f"orders-{number:02}" for number in range(40)), "late"]
    answer = await beat(broker, 1, member_epoch=1, subscribed_topic_names=None, topic_partitions=None)
    ids = {topic.topic_id for topic in answer.assignment.topic_partitions}
    assert ids == {broker.metadata.topic(name).topic_id for name in names}
    assert max(matched_in_a_step) == 1
    assert (sorted(matched), matched[-1]) == (sorted(names[1:]), "late")
    assert joined.member_epoch < answer.member_epoch


# What members may bring


async def test_a_member_that_tells_too_much_is_refused(broker: Any) -> None:
    """group.max.member.metadata.bytes is 1 MiB."""
    large = [
        {"name": "range", "metadata": bytes(700_000)},
        {"name": "roundrobin", "metadata": bytes(700_000)},
    ]
    before = broker.services.groups.memory_bytes()
    assert (await join(broker, 3, protocols=large)).error_code == ErrorCode.INVALID_REQUEST
    names = [f"{number:030}" for number in range(40_000)]
    refused = await beat(broker, 1, group_id="modern", subscribed_topic_names=names)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "group.max.member.metadata.bytes" in refused.error_message
    assert broker.services.groups.memory_bytes() == before, "nothing of it was kept"
    assert (await join(broker, 3)).error_code == NONE


@pytest.mark.parametrize("modern", [False, True], ids=["classic", "consumer"])
async def test_groups_take_no_more_memory_than_they_may(admin_broker: Any, modern: bool) -> None:
    await admin_broker.stop()
    broker = await admin_broker.restarted(
        **{"group.max.memory.bytes": "4000000", "group.initial.rebalance.delay.ms": "0"}
        | {"offsets.topic.num.partitions": "1"}
    )
    await broker.topics.create_topic("orders", partitions=2)
    await find(broker)

    async def come(number: int, metadata_bytes: int) -> ErrorCode:
        if modern:
            wanted = [f"{topic:09}" for topic in range(metadata_bytes // 9)]
            told = {"member_id": f"member-{number}", "subscribed_topic_names": wanted}
            answer = await beat(broker, 1, group_id=f"group-{number}", **told)
        else:
            told = {"protocols": [{"name": "range", "metadata": bytes(metadata_bytes)}]}
            answer = await join(broker, 3, group=f"group-{number}", **told)
        return ErrorCode(answer.error_code)

    while await come(0, 100_000) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # noqa: ASYNC110
        await asyncio.sleep(0)
    errors = [NONE] + [await come(number, 100_000) for number in range(1, 40)]
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    taken = errors.count(NONE)
    assert errors == [NONE] * taken + [full] * (40 - taken)
    assert 20 <= taken < 40
    assert 100_000 * taken < broker.services.groups.memory_bytes() < 4_000_000
    assert await come(100, 500) is NONE, "one that wants little still gets in"
    if modern:
        left = await beat(broker, 1, group_id="group-0", member_id="member-0", member_epoch=-1)
    else:
        (group,) = (await describe_group(broker, "group-0")).groups
        left = await broker.ask(
            ApiKey.LEAVE_GROUP, 0, {"group_id": "group-0", "member_id": group.members[0].member_id}
        )
    assert left.error_code == NONE
    used = broker.services.groups.memory_bytes()
    assert used < 100_000 * taken, "what has left is not counted"
    await broker.stop()


async def describe_group(broker: Any, group: str) -> Any:
    return await broker.ask(ApiKey.DESCRIBE_GROUPS, 0, {"groups": [group]})


@versions(ApiKey.CONSUMER_GROUP_DESCRIBE)
async def test_kip_848_groups_are_described(broker: Any, version: int) -> None:
    await beat(broker, 1)
    body = {"group_ids": [GROUP, "absent", ""], "include_authorized_operations": True}
    known, unknown, nameless = (await broker.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, version, body)).groups
    assert (known.error_code, known.group_epoch, known.assignor_name) == (NONE, 1, "uniform")
    (only,) = known.members
    assert (only.member_id, list(only.subscribed_topic_names)) == ("member-1", ["orders"])
    (target,) = only.target_assignment.topic_partitions
    assert (target.topic_name, list(target.partitions)) == ("orders", [0, 1])
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


async def test_no_broker_coordinates_before_the_topic_is_there(admin_broker: Any) -> None:
    joined = await join(admin_broker, 9)
    assert joined.error_code == ErrorCode.NOT_COORDINATOR
    listed = await admin_broker.ask(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []})
    assert (listed.error_code, listed.groups) == (NONE, ())
    assert await heartbeat(admin_broker, 4, joined) is ErrorCode.NOT_COORDINATOR
