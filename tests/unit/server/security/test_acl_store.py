"""ACLs in SQLite and ZooKeeper: Kafka's nodes, what others change, what several change at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from minikafka.coordination import paths
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import ConnectionLossError, CoordinationStore
from minikafka.coordination.zookeeper import ZooKeeperStore
from minikafka.errors import ErrorCode, KafkaError
from minikafka.security.acl import (
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from minikafka.security.authorizer_data import AuthorizerData
from minikafka.server.security.acl_authorizer import AclStore
from minikafka.steps import finish
from minikafka.system_clock import SystemClock

DEADLINE_S = 30
ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"
ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
PREFIX = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "app-", PatternType.PREFIXED)


def allow(who: str, pattern: ResourcePattern = ORDERS) -> AclBinding:
    return AclBinding(pattern, AccessControlEntry(who, "*", AclOperation.READ, AclPermissionType.ALLOW))


def only(who: str) -> AclBindingFilter:
    return AclBindingFilter(entry=AccessControlEntryFilter(who))


class Member:
    """The ACLs of one broker, on its own client of the store."""

    def __init__(self, store: CoordinationStore) -> None:
        self.store = store
        self.data = AuthorizerData()
        self.acls = AclStore(store, self.data, clock=SystemClock())
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.acls.follow(self._note)

    def _note(self) -> None:
        async def notify() -> None:
            async with self._changed:
                self._changed.notify_all()

        task = asyncio.ensure_future(notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def start(self) -> Member:
        await self.acls.load()
        self.task = asyncio.create_task(self.acls.run())
        return self

    async def stop(self) -> None:
        assert not self.task.done()
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task

    def may_read(self, who: str, name: str = "orders", kind: ResourceType = ResourceType.TOPIC) -> bool:
        return self.data.decide(who, "10.0.0.1", AclOperation.READ, kind, name).is_allowed

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S), self._changed:
            await self._changed.wait_for(condition)

    @property
    def known(self) -> list[AclBinding]:
        return sorted(finish(self.data.matching(AclBindingFilter())))


Open = Callable[[], Awaitable[CoordinationStore]]


@pytest.fixture(params=["sqlite", "zookeeper"])
async def open_client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    opened: list[CoordinationStore] = []
    server = request.getfixturevalue("zookeeper_server") if request.param == "zookeeper" else None

    async def open_one() -> CoordinationStore:
        store: CoordinationStore
        if server is None:
            store = await SqliteStore.open(str(tmp_path / "store"), clock=SystemClock(), durable=False)
        else:
            store = await ZooKeeperStore.open(server.address + f"/{tmp_path.name}")
        opened.append(store)
        await store.start_session()
        return store

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
async def start_member(open_client: Open) -> AsyncIterator[Callable[[], Awaitable[Member]]]:
    members: list[Member] = []

    async def start() -> Member:
        members.append(await Member(await open_client()).start())
        return members[-1]

    yield start
    for each in members:
        await each.stop()


Start = Callable[[], Awaitable[Member]]


async def test_the_nodes_are_kafkas(start_member: Start) -> None:
    one = await start_member()
    for directory in (
        "/kafka-acl/DelegationToken",
        "/kafka-acl-extended/prefixed/User",
        "/kafka-acl-changes",
        "/kafka-acl-extended-changes",
    ):
        assert await one.store.exists(directory), directory
    assert await one.acls.create([allow(ALICE), allow(ALICE, PREFIX)]) == [None, None]
    node = await one.store.get("/kafka-acl/Topic/orders")
    assert json.loads(node.data) == {
        "version": 1,
        "acls": [{"principal": ALICE, "permissionType": "Allow", "operation": "Read", "host": "*"}],
    }
    assert await one.store.exists("/kafka-acl-extended/prefixed/TransactionalId/app-")
    changed = await one.store.get("/kafka-acl-changes/acl_changes_0000000000")
    assert changed.data == b"TOPIC:orders"
    changed = await one.store.get("/kafka-acl-extended-changes/acl_changes_0000000000")
    assert json.loads(changed.data) == {
        "version": 1,
        "resourceType": "TRANSACTIONAL_ID",
        "name": "app-",
        "patternType": "PREFIXED",
    }


async def test_a_node_goes_with_its_last_acl(start_member: Start) -> None:
    one = await start_member()
    await one.acls.create([allow(ALICE), allow(BOB)])
    ((deleted,),) = await one.acls.delete([only(ALICE)])
    assert (deleted.binding, deleted.error) == (allow(ALICE), None)
    assert one.may_read(BOB) and not one.may_read(ALICE)
    await one.acls.delete([only(BOB)])
    assert await one.store.exists("/kafka-acl/Topic/orders") is None
    assert await one.acls.delete([only(BOB)]) == [[]]
    await one.acls.create([allow(BOB)])
    assert one.may_read(BOB)


async def test_what_one_broker_changes_the_other_decides_by(start_member: Start) -> None:
    one, two = await start_member(), await start_member()
    await one.acls.create([allow(ALICE), allow(BOB, PREFIX)])
    await two.until(lambda: two.may_read(ALICE))
    await two.until(lambda: two.may_read(BOB, "app-7", ResourceType.TRANSACTIONAL_ID))
    await two.acls.delete([only(ALICE)])
    await one.until(lambda: not one.may_read(ALICE))
    assert one.known == two.known == [allow(BOB, PREFIX)]


async def test_what_apache_kafka_writes_is_read(start_member: Start) -> None:
    one = await start_member()
    acls = [
        {"principal": BOB, "permissionType": "Deny", "operation": "All", "host": "10.0.0.1"},
        {"principal": "User:*", "permissionType": "Allow", "operation": "Read", "host": "*"},
        {"principal": "User:*", "permissionType": "Allow", "operation": "Levitate", "host": "*"},
    ]
    await one.store.create("/kafka-acl/Topic/orders", json.dumps({"version": 1, "acls": acls}).encode())
    await one.store.create("/kafka-acl-changes/acl_changes_", b"Topic:orders", sequential=True)
    await one.until(lambda: one.may_read(ALICE))
    assert not one.may_read(BOB)
    late = await start_member()
    assert late.known == one.known
    assert await one.acls.create([allow(CAROL)]) == [None]
    kept = json.loads((await one.store.get("/kafka-acl/Topic/orders")).data)["acls"]
    assert [each["operation"] for each in kept if each["principal"] == "User:*"] == ["Unknown", "Read"]


async def test_brokers_that_change_one_pattern_at_once_lose_nothing(start_member: Start) -> None:
    members = [await start_member() for _ in range(3)]
    names = [f"User:u{number}" for number in range(9)]
    results = await asyncio.gather(
        *(members[number % 3].acls.create([allow(name)]) for number, name in enumerate(names))
    )
    assert results == [[None]] * 9
    for member in members:
        await member.until(lambda member=member: all(map(member.may_read, names)))  # type: ignore[misc]


async def test_an_acl_that_two_filters_find_is_told_once(start_member: Start) -> None:
    one = await start_member()
    await one.acls.create([allow(ALICE), allow(BOB)])
    everything = AclBindingFilter(ResourcePatternFilter(ResourceType.TOPIC))
    first, second, third = await one.acls.delete([only(ALICE), everything, only(BOB)])
    assert [each.binding for each in first] == [allow(ALICE)]
    assert [each.binding for each in second] == [allow(BOB)]
    assert third == []


async def test_the_store_is_not_asked_for_what_no_filter_finds(
    open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Member(await open_client())  # which follows no notification, so all that it reads is for this
    await one.acls.load()
    await one.acls.create([allow(ALICE), allow(BOB, PREFIX)])
    read = []
    get = one.store.get

    async def counting(path: str) -> Any:
        read.append(path)
        return await get(path)

    monkeypatch.setattr(one.store, "get", counting)
    nothing, found = await one.acls.delete([only(CAROL), only(BOB)])
    assert (nothing, [each.binding for each in found]) == ([], [allow(BOB, PREFIX)])
    assert read == [paths.acl_path(PREFIX)]


def many(who: str, count: int = 150) -> list[AclBinding]:
    """On as many topics."""
    return [allow(who, ResourcePattern(ResourceType.TOPIC, f"t{number}")) for number in range(count)]


async def test_the_acls_of_many_patterns_are_written_together(
    start_member: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = await start_member(), await start_member()
    multi, written = alice.store.multi, []

    async def counting(ops: Any) -> Any:
        written.append(len(ops))
        return await multi(ops)

    monkeypatch.setattr(alice.store, "multi", counting)
    assert await alice.acls.create(many(ALICE)) == [None] * 150
    assert written == [128, 128, 44], "a write and a notification for each pattern"
    await bob.until(lambda: bob.data.acl_count == 150)
    ((*deleted,),) = await alice.acls.delete([only(ALICE)])
    assert len(deleted) == 150 and all(each.error is None for each in deleted)
    await bob.until(lambda: bob.data.acl_count == 0)


async def test_where_another_broker_is_faster_with_one_pattern_all_are_changed_nevertheless(
    start_member: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = await start_member(), await start_member()
    assert await alice.acls.create(many(ALICE, 3)) == [None] * 3
    multi, is_overtaken = alice.store.multi, []

    async def overtaken(ops: Any) -> Any:
        if not is_overtaken:
            is_overtaken.append(True)
            await bob.acls.create(many(BOB, 1))
        return await multi(ops)

    monkeypatch.setattr(alice.store, "multi", overtaken)
    ((*deleted,),) = await alice.acls.delete([only(ALICE)])
    assert [each.error for each in deleted] == [None] * 3 and is_overtaken
    assert alice.known == many(BOB, 1)
    await bob.until(lambda: bob.known == many(BOB, 1))


async def test_a_pattern_that_cannot_be_written_is_the_only_one_with_an_error(start_member: Start) -> None:
    member = await start_member()
    bad = ResourcePattern(ResourceType.TOPIC, "a/../b")
    good = [allow(ALICE), allow(BOB), allow(ALICE, PREFIX)]
    errors = await member.acls.create([good[0], allow(ALICE, bad), *good[1:]])
    assert [None if each is None else each.code for each in errors] == [
        None,
        ErrorCode.INVALID_REQUEST,
        None,
        None,
    ]
    assert sorted(member.known) == sorted(good)


async def test_a_filter_that_names_its_pattern_finds_what_was_not_heard_of_yet(
    open_client: Open, start_member: Start
) -> None:
    deaf = Member(await open_client())
    await deaf.acls.load()
    one = await start_member()
    await one.acls.create([allow(ALICE)])
    assert deaf.known == []
    ((deleted,),) = await deaf.acls.delete(
        [AclBindingFilter(ResourcePatternFilter(ResourceType.TOPIC, "orders", PatternType.LITERAL))]
    )
    assert deleted.binding == allow(ALICE)
    await one.until(lambda: not one.may_read(ALICE))


async def test_what_could_not_be_looked_for_is_not_said_to_be_deleted(
    start_member: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was answered like a filter that finds nothing, so that a revoked right seemed gone and was not."""
    member = await start_member()
    await member.acls.create([allow(ALICE), allow(BOB, PREFIX)])
    get, lost = member.store.get, paths.acl_path(ORDERS)

    async def without_orders(path: str, **options: Any) -> Any:
        if path == lost:
            raise ConnectionLossError("the store cannot be reached")
        return await get(path, **options)

    monkeypatch.setattr(member.store, "get", without_orders)
    orders = AclBindingFilter(ResourcePatternFilter(ResourceType.TOPIC, "orders", PatternType.LITERAL))
    elsewhere = AclBindingFilter(ResourcePatternFilter(ResourceType.TOPIC, "other", PatternType.LITERAL))
    exact, nothing, searching = await member.acls.delete([orders, elsewhere, AclBindingFilter()])
    assert isinstance(exact, KafkaError) and isinstance(searching, KafkaError)
    assert exact.code is searching.code and exact.code is not ErrorCode.NONE
    assert nothing == [] and member.known == [allow(ALICE)]
    monkeypatch.undo()
    ((deleted,),) = await member.acls.delete([orders])
    assert not isinstance(deleted, KafkaError) and deleted.binding == allow(ALICE)


async def test_a_new_session_forgets_what_is_gone(open_client: Open, start_member: Start) -> None:
    """Notifications are kept for a quarter of an hour; a broker that was away for longer reads everything."""
    one = await start_member()
    await one.acls.create([allow(ALICE), allow(BOB)])
    other = await open_client()
    await other.delete("/kafka-acl/Topic/orders")  # and nobody says so
    await other.create(paths.acl_path(PREFIX), paths.encode_acls([allow(CAROL).entry]))
    await one.acls.session_began()
    await one.until(lambda: one.known == [allow(CAROL, PREFIX)])


async def test_damaged_acls_are_no_acls_to_start_with(start_member: Start, open_client: Open) -> None:
    one = await start_member()
    await one.store.create("/kafka-acl/Topic/orders", b'{"version":2,"acls":[]}')
    late = Member(await open_client())
    with pytest.raises(paths.DamagedNodeError, match="/kafka-acl/Topic/orders: ACLs of version 2"):
        await late.acls.load()


async def test_notifications_that_name_nothing_are_passed_over(
    start_member: Start, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = await start_member(), await start_member()
    for data in (b"", b"TOPIC", b"NOTHING:x"):
        await one.store.create("/kafka-acl-changes/acl_changes_", data, sequential=True)
    await one.acls.create([allow(ALICE)])
    await two.until(lambda: two.may_read(ALICE))
    assert caplog.text.count("it names no resource") >= 3


async def test_more_acls_than_a_node_holds_are_refused(start_member: Start) -> None:
    one = await start_member()
    await one.acls.create([allow(ALICE)])
    many = [allow(f"User:{'x' * 30_000}{number}") for number in range(40)]
    results = await one.acls.create([*many, allow(BOB, PREFIX)])
    assert results[-1] is None
    error = results[0]
    assert isinstance(error, KafkaError) and error.code is ErrorCode.INVALID_REQUEST
    assert "are too many" in (error.message or "")
    assert one.known == sorted([allow(ALICE), allow(BOB, PREFIX)])
