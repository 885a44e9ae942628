"""A heartbeat on the fast path is one on the slow path, byte for byte, whatever happens to the group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast
from uuid import UUID

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from minikafka.config.client_quotas import QuotaEntity, QuotaType
from minikafka.coordinator.group.environment import (
    ConsumerGroupSettings,
    ShareGroupSettings,
    StreamsGroupSettings,
)
from minikafka.coordinator.group.messages import (
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from minikafka.coordinator.group.shard import GroupShard
from minikafka.errors import ErrorCode, KafkaError
from minikafka.metrics.coordinator_names import GROUP_METRICS
from minikafka.metrics.sensors import Metrics
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import encode_request
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.assembly import BrokerGroupSettings, CachedTopics
from minikafka.server.coordinator.group_service import GroupService
from minikafka.server.coordinator.hosted_shard import RequestTicket
from minikafka.server.coordinator.service import CoordinatorTopic, load_time_sensor, offsets_topic
from minikafka.server.dispatch.repeated_heartbeat import RepeatedHeartbeat
from tests.support.fake_authorizer import Right
from tests.unit.coordinator.group.classic.driver import subscription
from tests.unit.server.dispatch.two_brokers import (
    CHANGES,
    CLIENTS,
    EVERYONE,
    OneBroker,
    TwoBrokers,
    a_change_is_noticed,
    a_right_is_lost,
    between_requests,
    seen,
    story_of,
)
from tests.unit.server.groups import AT, ManualSupervisor
from tests.unit.server.replicas import TP, state_of

CLASSIC, MODERN = "classic", "modern"
GROUPS_TOPIC_ID = UUID(int=77, version=4)
MEMBERS = st.integers(0, 2)
SESSION_MS = 10_000
CORRELATION_ID = slice(4, 8)


class CoordinatingBroker(OneBroker):
    """All groups are here while it leads the partition of ``__consumer_offsets``."""

    PROPERTIES: ClassVar = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
    SEEN_REQUESTS = (ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT)

    def __init__(self, loop: asyncio.AbstractEventLoop, directory: Path, *, has_fast_paths: bool) -> None:
        super().__init__(loop, directory, has_fast_paths=has_fast_paths)
        config, replicas = self.services.config, self.replicas
        self.group_settings = ConsumerGroupSettings()
        self.loads = ManualSupervisor()
        self.results: list[list[Any]] = []
        """Of all that was asked by ``ask``."""
        self._uuids = 0
        settings = BrokerGroupSettings(
            config,
            consumer_group=lambda group_id: self.group_settings,
            share_group=lambda group_id: ShareGroupSettings(),
            streams_group=lambda group_id: StreamsGroupSettings(),
        )
        image = CachedTopics(replicas.metadata)
        self.groups = GroupService(
            config=config,
            replicas=replicas.manager,
            topic=CoordinatorTopic(
                offsets_topic(config), config=config, metadata=replicas.metadata, topics=cast(Any, None)
            ),
            new_shard=lambda counts, memory_bytes: GroupShard(
                counts, settings=settings, topics=image, new_uuid=self._new_uuid, memory_bytes=memory_bytes
            ),
            timer=replicas.timer,
            log_io=cast(Any, replicas.log_io),
            supervisor=cast(Any, self.loads),
            load_time=load_time_sensor(Metrics(), GROUP_METRICS, now_ms=0),
        )
        self.groups.start()
        self.services.groups = self.groups

    def _new_uuid(self) -> UUID:
        self._uuids += 1
        return UUID(int=self._uuids, version=4)

    def ask(self, request: Any, call: str) -> list[Any]:
        """``call`` of the group's shard. What it answers, now or later."""
        results: list[Any] = []
        self.results.append(results)
        self.groups.ask(
            request.group_id,
            lambda shard, ticket, now_ms: getattr(shard, call)(request, ticket, now_ms),
            RequestTicket(results.append),
        )
        return results

    def seen(self) -> dict[str, Any]:
        shards = self.groups.hosted_shards()
        return super().seen() | {
            "results": repr(self.results),
            "shards": [(each.state, each.leader_epoch, each.shard.list_groups()) for each in shards],
            "sessions": self.groups.parked.heartbeat.delayed,
        }


class ClassicMember(msgspec.Struct):
    """``joined``: its last JoinGroup's answer, once it is there."""

    instance: str | None
    group: str = CLASSIC
    joined: list[Any] = []
    member_id: str = ""
    generation: int = -1
    others: tuple[str, ...] = ()

    def hear(self) -> None:
        """What the last join brought."""
        for result in self.joined:
            if isinstance(result, JoinGroupResult) and result.member_id:
                self.member_id, self.generation = result.member_id, result.generation
                self.others = tuple(each.member_id for each in result.members)
        self.joined = []


class HeartbeatMachine(TwoBrokers):
    """Three members of a classic group and three of a KIP-848 group. Two connections for their heartbeats;
    all else comes by other ones."""

    BROKER = CoordinatingBroker
    both: Sequence[CoordinatingBroker]

    def __init__(self) -> None:
        super().__init__()
        self.heartbeats = 0
        self.epochs = [0, 0, 0]
        """Of the KIP-848 group's members, as they know them."""
        self.members = [ClassicMember(None), ClassicMember(None), ClassicMember("i")]
        self.lead(isr=(1,))
        self.all_loads_end()
        self.settle(CLASSIC)
        self.consumer_heartbeat(
            connection=1, who=0, client="a", version=1, says="join", times=1, group=MODERN
        )
        self.consumer_heartbeat(connection=1, who=0, client="a", version=1, says="all", times=1, group=MODERN)
        self.consumer_heartbeat(connection=1, who=0, client="a", version=1, says="", times=3, group=MODERN)
        self.heartbeat(connection=0, who=0, client="a", version=4, late=0, times=3, group=CLASSIC)

    def serve(self, connection: int, frame: bytes) -> None:
        self.heartbeats += 1
        correlation_id = self.heartbeats.to_bytes(4)
        super().serve(
            connection, frame[: CORRELATION_ID.start] + correlation_id + frame[CORRELATION_ID.stop :]
        )

    def send(self, connection: int, key: ApiKey, version: int, client: str, times: int, **body: Any) -> None:
        frame = encode_request(
            api_key=key, api_version=version, correlation_id=0, client_id=client, body=body
        )[4:]
        for _ in range(times):
            self.serve(connection, frame)

    # Heartbeats

    @rule(
        connection=st.integers(0, 1),
        who=MEMBERS,
        client=CLIENTS,
        version=st.sampled_from([0, 2, 3, 4, 4]),
        late=st.sampled_from([0, 0, 0, 1, -1]),
        times=st.integers(1, 3),
        group=st.sampled_from([CLASSIC, CLASSIC, CLASSIC, MODERN, ""]),
    )
    def heartbeat(
        self, connection: int, who: int, client: str, version: int, late: int, times: int, group: str
    ) -> None:
        """``late``: by so many generations."""
        member = self.members[who]
        member.hear()
        self.send(
            connection,
            ApiKey.HEARTBEAT,
            version,
            client,
            times,
            group_id=group,
            member_id=member.member_id,
            generation_id=member.generation - late,
            group_instance_id=member.instance,
        )

    @rule(
        connection=st.integers(0, 1),
        who=MEMBERS,
        client=CLIENTS,
        version=st.sampled_from([0, 1, 1]),
        says=st.sampled_from(["", "", "", "all", "join", "leave", "late", "no topics"]),
        times=st.integers(1, 3),
        group=st.sampled_from([MODERN, MODERN, MODERN, CLASSIC]),
    )
    def consumer_heartbeat(
        self, connection: int, who: int, client: str, version: int, says: str, times: int, group: str
    ) -> None:
        epoch, owned = self.standing(who, group)
        joins, tells_all = says == "join", says in ("all", "join")
        names: list[str] | None = [TP.topic] if tells_all else None
        body: dict[str, Any] = {
            "group_id": group,
            "member_id": f"member-{who}",
            "member_epoch": 0 if joins else -1 if says == "leave" else epoch - (says == "late"),
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": 30_000 if tells_all else -1,
            "subscribed_topic_names": [] if says == "no topics" else names,
            "server_assignor": None,
            "topic_partitions": [] if joins else owned if tells_all else None,
        }
        if version:
            body["subscribed_topic_regex"] = None
        self.send(connection, ApiKey.CONSUMER_GROUP_HEARTBEAT, version, client, times, **body)

    def standing(self, who: int, group: str) -> tuple[int, list[dict[str, Any]]]:
        """The epoch of a member, and what it may own, as the last answer to it said."""
        try:
            described = self.both[0].groups.shard_of(group).describe_consumer_group(group)
        except KafkaError:  # it goes on as before
            return self.epochs[who], []
        for member in described.members:
            if member.member_id == f"member-{who}":
                self.epochs[who] = member.member_epoch
                owned = member.assignment.items()
                return member.member_epoch, [
                    {"topic_id": topic_id, "partitions": sorted(partitions)} for topic_id, partitions in owned
                ]
        return self.epochs[who], []

    # What happens to the groups

    def ask(self, request: Any, call: str) -> list[Any]:
        first, _ = [each.ask(request, call) for each in self.both]
        return first

    def join(self, member: ClassicMember) -> None:
        member.hear()
        request = JoinGroup(
            group_id=member.group,
            member_id=member.member_id,
            group_instance_id=member.instance,
            client_id="a",
            client_host="/::1",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=(("range", subscription(TP.topic)),),
            requires_known_member_id=member.instance is None,
            supports_skipping_assignment=True,
        )
        member.joined = self.ask(request, "join_group")

    def sync(self, member: ClassicMember) -> None:
        member.hear()
        self.ask(
            SyncGroup(
                group_id=member.group,
                generation=member.generation,
                member_id=member.member_id,
                group_instance_id=member.instance,
                assignments=dict.fromkeys(member.others, b""),
            ),
            "sync_group",
        )

    def settle(self, group: str) -> None:
        """All members join, and have their assignments. A new one has to ask twice."""
        for member in [*self.members, *self.members]:
            member.group = group
            self.join(member)
        self.pass_time(1)
        for member in self.members:
            self.sync(member)

    def pass_time(self, duration_ms: int) -> None:
        for each in self.both:
            each.replicas.pass_time(duration_ms)

    @rule(group=st.sampled_from([CLASSIC, CLASSIC, CLASSIC, MODERN]))
    @between_requests
    def all_members_rebalance(self, group: str) -> None:
        self.settle(group)

    @rule(who=MEMBERS)
    @between_requests
    def a_member_joins(self, who: int) -> None:
        self.join(self.members[who])

    @rule(who=MEMBERS)
    @between_requests
    def a_member_has_its_assignment(self, who: int) -> None:
        self.sync(self.members[who])

    @rule()
    @between_requests
    def a_static_member_restarts(self) -> None:
        """Who has its member id still is fenced."""
        restarted = self.members[2]
        restarted.hear()
        self.join(msgspec.structs.replace(restarted, member_id="", joined=[]))

    @rule(who=MEMBERS)
    @between_requests
    def a_member_leaves(self, who: int) -> None:
        member = self.members[who]
        member.hear()
        self.ask(LeaveGroup(member.group, (LeavingMember(member.member_id, member.instance),)), "leave_group")

    @rule()
    @between_requests
    def sessions_expire(self) -> None:
        self.pass_time(ConsumerGroupSettings().session_timeout_ms)

    @rule(
        session_timeout_ms=st.sampled_from([45_000, 60_000]),
        heartbeat_interval_ms=st.sampled_from([5_000, 10_000]),
    )
    @between_requests
    def the_groups_are_configured(self, **values: int) -> None:
        for each in self.both:
            each.group_settings = ConsumerGroupSettings(**values)

    @rule(who=st.sampled_from([EVERYONE, QuotaEntity(None, "b")]), bound=st.sampled_from([None, 10.0, 1e9]))
    def a_request_quota_changes(self, who: QuotaEntity, bound: float | None) -> None:
        """All others do not count for heartbeats."""
        self.a_quota_changes(who, None if bound is None else QuotaType.REQUEST, bound or 0.0)

    # What happens to the coordinator

    def lead(self, *, leader: int = 1, isr: tuple[int, ...]) -> None:
        self.epoch += 1
        state = state_of(
            AT, leader=leader, epoch=self.epoch, topic_id=GROUPS_TOPIC_ID, isr=isr, replicas=[1, 2]
        )
        for each in self.both:
            assert each.replicas.become(state) == [ErrorCode.NONE]

    @rule(leader=st.sampled_from([1, 1, 2]), loads=st.booleans(), isr=st.sampled_from([(1,), (1, 2)]))
    @between_requests
    def the_coordinator_is_elected(self, leader: int, loads: bool, isr: tuple[int, ...]) -> None:
        """With a follower in the ISR all that is written waits for it."""
        self.lead(leader=leader, isr=isr if leader == 1 else (2,))
        if loads:
            self.all_loads_end()

    @rule()
    @between_requests
    def the_coordinator_has_loaded(self) -> None:
        self.all_loads_end()

    def all_loads_end(self) -> None:
        for each in self.both:
            each.loads.run()

    @rule()
    @between_requests
    def the_follower_fetches(self) -> None:
        self.let_follower_fetch(AT)


TestHeartbeat = HeartbeatMachine.TestCase
TestHeartbeat.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_the_machine_takes_the_fast_path() -> None:
    """Else it would hold the slow path equal to itself."""
    with story_of(HeartbeatMachine) as story:
        for fast, slow in zip(*(each.connections for each in story.both), strict=True):
            memory = fast.memory
            assert isinstance(memory, RepeatedHeartbeat) and memory.epoch == story.fast.fast_paths.epoch
            assert memory._answered is not None and slow.memory is None


EVENTS: dict[str, Callable[[HeartbeatMachine], None]] = {
    "a member joins again": lambda story: story.a_member_joins(1),
    "a member leaves": lambda story: story.a_member_leaves(1),
    "this member leaves": lambda story: story.a_member_leaves(0),
    "the group rebalances": lambda story: story.all_members_rebalance(CLASSIC),
    "members join the other group": lambda story: story.all_members_rebalance(MODERN),
    "a static member restarts": lambda story: story.a_static_member_restarts(),
    "sessions expire": lambda story: story.sessions_expire(),
    "the interval changes": lambda story: story.the_groups_are_configured(heartbeat_interval_ms=10_000),
    "the coordinator moves": lambda story: story.the_coordinator_is_elected(2, False, (2,)),
    "the coordinator loads": lambda story: story.the_coordinator_is_elected(1, False, (1,)),
    "the coordinator has loaded": lambda story: story.the_coordinator_is_elected(1, True, (1,)),
    "a request quota is exceeded": lambda story: story.a_request_quota_changes(EVERYONE, 10.0),
    "the topic is deleted": lambda story: story.delete(),
}
"""Most of them change the answers."""


@pytest.mark.parametrize("event", EVENTS)
def test_after_each_event_the_answers_are_the_same(event: str) -> None:
    with story_of(HeartbeatMachine) as story:
        EVENTS[event](story)
        story.the_last_requests_come_again(times=2)


def test_the_same_heartbeat_in_another_version_has_its_own_answer() -> None:
    """These three have the same fields, and only the first has no throttle time in its answer."""
    with story_of(HeartbeatMachine) as story:
        for version in (0, 1, 2, 0):
            story.heartbeat(connection=0, who=0, client="a", version=version, late=0, times=2, group=CLASSIC)


def test_heartbeats_that_wait_for_a_follower_are_answered_the_same() -> None:
    """The second and the third on the fast path, and like the first: they wait for what it had written."""
    with story_of(HeartbeatMachine) as story:
        story.the_coordinator_is_elected(1, True, (1, 2))
        asked, slow = len(story.fast.answers), story.fast.slow_path_requests
        story.consumer_heartbeat(
            connection=1, who=1, client="a", version=1, says="join", times=3, group=MODERN
        )
        assert story.fast.slow_path_requests == slow + 1
        answers = story.fast.answers[asked:]
        assert [seen(each) for each in answers] == ["waits"] * 3
        story.are_indistinguishable()
        story.let_follower_fetch(AT)
        assert "waits" not in [seen(each) for each in answers]


@pytest.mark.parametrize("kind", CHANGES)
def test_each_change_is_noticed_by_the_next_request(kind: str) -> None:
    a_change_is_noticed(HeartbeatMachine, kind)


def test_who_loses_the_right_is_refused_by_the_next_request() -> None:
    read = partial(Right, AclOperation.READ, ResourceType.GROUP)
    a_right_is_lost(HeartbeatMachine, read(CLASSIC), read(MODERN))
