"""``GroupMember``: a consumer of a classic group, step by step, and what must hold for a group.

Kafka's client: ``ConsumerCoordinator``. Members join, are given partitions by the first of them, read from
what is committed, commit, and join again whenever the coordinator says so. Checked (I13): in a generation a
partition has one owner, and what was committed with success is not forgotten: the next owner begins there or
later.

``ConsumerGroupMember``: a consumer of a group of the next generation (KIP-848), step by step.

Kafka's client: ``ConsumerMembershipManager``, ``ConsumerHeartbeatRequestManager``. There is no generation
that all members share: each has an epoch and hears in its own heartbeats what to give back and what it got.
Checked (I13): in an epoch a partition has one owner, and what was committed with success is not forgotten.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing.broker import Property
from minikafka.testing.history.operations import Kind, Partition, Record
from minikafka.testing.history.recorder import REFUSED, TRIES_MAX, Reader
from minikafka.testing.simulation.client import OFFSETS_VERSION, SimulatedClient, check
from minikafka.testing.simulation.scenarios.plan import TOPIC, Member

if TYPE_CHECKING:
    from minikafka.testing.simulation.scenarios.swarm import SwarmRun


GROUP = "group"
SESSION_MS = 6_000
"""``group.min.session.timeout.ms``."""
PAUSE_MS = 200
COMMIT_SHARE = 0.4
"""After how many of its rounds a member commits."""
LEAVE_SHARE = 0.01
"""After how many it is gone without a word, and comes back as another member; a static one as the same."""
AWAY_MS = (0, 2 * SESSION_MS // 3)
"""How long a static member is gone: it comes back within its session."""

AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""What a member joins again after. Anything else is a finding."""


class GroupOffsets:
    """What a group was told of its commits, and who owned what."""

    def __init__(self) -> None:
        self._committed: dict[int, int] = {}
        self._unknown: dict[int, set[int]] = {}
        """Commits without an answer: a late one may yet take effect, after a later one."""
        self._owners: dict[tuple[int, int], str] = {}

    def least(self, partition: int) -> int:
        """Where a member must begin now, or later."""
        return min(self._committed.get(partition, 0), *self._unknown.get(partition, ()), 1 << 62)

    def asked(self, partition: int, offset: int) -> None:
        """A commit is sent."""
        self._unknown.setdefault(partition, set()).add(offset)

    def answered(self, partition: int, offset: int, *, is_committed: bool) -> None:
        """That commit was carried out, or refused."""
        self._unknown[partition].discard(offset)
        if is_committed:
            self._committed[partition] = offset

    def told(self, partition: int, offset: int) -> None:
        """A member was told this: it does not go back, but for a commit without an answer that comes late."""
        self._committed[partition] = offset

    def owned(self, generation: int, partition: int, member: str) -> None:
        """Raises AssertionError."""
        owner = self._owners.setdefault((generation, partition), member)
        assert owner == member, (
            f"I13: {member} and {owner} own partition {partition} in generation {generation}"
        )


class GroupMember:
    """One member, until the run stops."""

    def __init__(self, run: SwarmRun, number: int, plan: Member) -> None:
        self._run = run
        self._instance_id = f"instance-{number}" if plan.is_static else None
        self._name = f"member-{number}"
        self._rng = run.simulation.rng(self._name)
        self._client = SimulatedClient(run.addresses, client_id=self._name)
        self._coordinator: tuple[str, int] | None = None
        self._id = ""
        self._generation = -1
        self._readers: dict[int, Reader] = {}

    async def work(self) -> None:
        """Raises KafkaError: an answer that no group gives; AssertionError."""
        while not self._run.is_stopping:
            try:
                await self._join()
                await self._read()
            except BrokerUnavailable:
                self._coordinator = None
            except KafkaError as error:
                if error.code not in AGAIN:
                    raise
                if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                    self._id = ""
                self._coordinator = None
            await asyncio.sleep(PAUSE_MS / 1000)

    async def look(self) -> None:
        """Be told where the group is, without joining it. Raises KafkaError, BrokerUnavailable,
        AssertionError."""
        tries = 0
        while True:
            try:
                await self._committed(list(range(self._run.plan.partitions)))
                return
            except (KafkaError, BrokerUnavailable) as error:
                tries += 1
                if tries == TRIES_MAX or (isinstance(error, KafkaError) and error.code not in AGAIN):
                    raise
                self._coordinator = None
                await asyncio.sleep(PAUSE_MS / 1000)

    async def _ask(self, key: ApiKey, body: dict[str, Any], **options: Any) -> Any:
        if self._coordinator is None:
            metadata = await self._client.metadata([])
            broker = self._rng.choice(metadata.brokers)
            wanted = {"key_type": 0, "coordinator_keys": [GROUP], "key": GROUP}
            answer = await self._client.request((broker.host, broker.port), ApiKey.FIND_COORDINATOR, wanted)
            (found,) = answer.coordinators
            check(found.error_code)
            self._coordinator = (found.host, found.port)
        return await self._client.request(self._coordinator, key, body, **options)

    async def _join(self) -> None:
        """Raises KafkaError, BrokerUnavailable."""
        body = {
            "group_id": GROUP,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": SESSION_MS // 2,
            "member_id": self._id,
            "group_instance_id": self._instance_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "all", "metadata": b""}],
            "reason": None,
        }
        joined = await self._ask(ApiKey.JOIN_GROUP, body)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._id = joined.member_id
            joined = await self._ask(ApiKey.JOIN_GROUP, {**body, "member_id": self._id})
        check(joined.error_code)
        self._id, self._generation = joined.member_id, joined.generation_id
        shares: dict[str, list[int]] = {}
        # A static leader that has come back finds its group as it was, and divides nothing (KIP-814).
        if joined.leader == self._id and not joined.skip_assignment:
            shares = {member.member_id: [] for member in joined.members}
            for partition in range(self._run.plan.partitions):
                shares[list(shares)[partition % len(shares)]].append(partition)
        synced = await self._ask(
            ApiKey.SYNC_GROUP,
            {
                **self._identity(),
                "protocol_type": "consumer",
                "protocol_name": "all",
                "assignments": [
                    {"member_id": member, "assignment": msgspec.json.encode(share)}
                    for member, share in shares.items()
                ],
            },
        )
        check(synced.error_code)
        mine = msgspec.json.decode(bytes(synced.assignment), type=list[int]) if synced.assignment else []
        for partition in mine:
            self._run.group.owned(self._generation, partition, self._instance_id or self._id)
        positions = await self._committed(mine)
        self._run.recorder.seek(self._name, [Partition(TOPIC, partition) for partition in mine])
        self._readers = {
            partition: self._run.recorder.reader(
                self._name, self._client, TOPIC, partition, position=position, group=GROUP
            )
            for partition, position in positions.items()
        }

    def _identity(self) -> dict[str, Any]:
        return {
            "group_id": GROUP,
            "generation_id": self._generation,
            "member_id": self._id,
            "group_instance_id": self._instance_id,
        }

    async def _committed(self, partitions: list[int]) -> dict[int, int]:
        """Where to begin. Raises KafkaError, BrokerUnavailable, AssertionError."""
        if not partitions:
            return {}
        least = {partition: self._run.group.least(partition) for partition in partitions}
        topics = [{"name": TOPIC, "partition_indexes": partitions}]
        wanted = {"group_id": GROUP, "member_id": None, "member_epoch": -1, "topics": topics}
        async with self._run.recorder.operation(self._name, Kind.FETCH_COMMITTED, group=GROUP) as told:
            body = {"groups": [wanted], "require_stable": True}
            answer = await self._ask(ApiKey.OFFSET_FETCH, body, version=OFFSETS_VERSION)
            (of_group,) = answer.groups
            check(of_group.error_code)
            found = of_group.topics[0].partitions
            for each in found:
                check(each.error_code)
            told.records = tuple(Record(TOPIC, each.partition_index, each.committed_offset) for each in found)
        positions = {}
        for each in found:
            offset, partition = max(each.committed_offset, 0), each.partition_index
            assert offset >= least[partition], (
                f"I13: {GROUP} had committed {least[partition]} of partition {partition}, and is told "
                f"{each.committed_offset}"
            )
            self._run.group.told(partition, offset)
            positions[partition] = offset
        return positions

    async def _read(self) -> None:
        """Until the group is balanced again. Raises KafkaError, BrokerUnavailable, AssertionError."""
        while not self._run.is_stopping:
            for partition, reader in self._readers.items():
                try:
                    await reader.poll()
                except (KafkaError, BrokerUnavailable) as error:
                    await reader.recover(error)
                    if not isinstance(error, KafkaError) or error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                        raise
                self._run.read_by_group.add((GROUP, partition))
            if self._rng.random() < COMMIT_SHARE:
                await self._commit()
            check((await self._ask(ApiKey.HEARTBEAT, self._identity())).error_code)
            if self._rng.random() < LEAVE_SHARE:
                self._id = ""
                if self._instance_id is not None:
                    await asyncio.sleep(self._rng.randint(*AWAY_MS) / 1000)
                return
            await asyncio.sleep(PAUSE_MS / 1000)

    async def _commit(self) -> None:
        group = self._run.group
        committed = {partition: reader.position for partition, reader in self._readers.items()}
        if not committed:
            return
        partitions = [
            {
                "partition_index": partition,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": None,
            }
            for partition, offset in committed.items()
        ]
        identity = self._identity()
        identity["generation_id_or_member_epoch"] = identity.pop("generation_id")
        body = {**identity, "topics": [{"name": TOPIC, "partitions": partitions}]}
        for partition, offset in committed.items():
            group.asked(partition, offset)
        records = tuple(Record(TOPIC, partition, offset) for partition, offset in committed.items())
        async with self._run.recorder.operation(self._name, Kind.COMMIT, records=records, group=GROUP):
            answer = await self._ask(ApiKey.OFFSET_COMMIT, body, version=OFFSETS_VERSION)
            codes = {each.partition_index: ErrorCode(each.error_code) for each in answer.topics[0].partitions}
            for partition, offset in committed.items():
                code = codes[partition]
                if code is ErrorCode.NONE or code in REFUSED:
                    group.answered(partition, offset, is_committed=code is ErrorCode.NONE)
            for code in codes.values():
                check(code)


CONSUMER_GROUP = "consumer-group"
REBALANCE_MS = 3_000
HEARTBEAT_MS = 500
CONSUMER_GROUP_CONFIG: dict[str, Property] = {
    "group.consumer.min.session.timeout.ms": 6_000,
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.min.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
}
"""As short as a classic session here."""
CONSUMER_PAUSE_MS = 250
"""After how many of its rounds a member commits."""
CONSUMER_LEAVE_SHARE = 0.02
"""After how many it goes, half of the times without a word."""
JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH = 0, -1, -2

_FENCED = frozenset(
    {
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""Not a member any more, or not yet: it joins with what it is now."""
_STALE = frozenset({ErrorCode.STALE_MEMBER_EPOCH})
"""The next heartbeat brings the epoch."""


class ConsumerGroupMember:
    """One member, until the run stops."""

    def __init__(self, run: SwarmRun, number: int, plan: Member, offsets: GroupOffsets) -> None:
        self._run = run
        self._offsets = offsets
        self._name = f"consumer-member-{number}"
        self._rng = run.simulation.rng(self._name)
        self._client = SimulatedClient(run.addresses, client_id=self._name)
        self._coordinator: tuple[str, int] | None = None
        self._instance_id = f"instance-{number}" if plan.is_static else None
        self._id = self._new_id()
        self._epoch = JOIN_EPOCH
        self._readers: dict[int, Reader] = {}
        self._told: set[int] | None = None
        """What it has said that it owns, and was heard to say."""
        self._heard_s = 0.0
        self._topic_id: UUID | None = None

    def _new_id(self) -> str:
        return str(UUID(int=self._rng.getrandbits(128), version=4))

    async def work(self) -> None:
        """Raises KafkaError: an answer that no group gives; AssertionError."""
        while not self._run.is_stopping:
            try:
                await self._round()
            except BrokerUnavailable:
                self._coordinator = None
            except KafkaError as error:
                if error.code in _FENCED:
                    self._forget()
                elif error.code not in AGAIN and error.code not in _STALE:
                    raise
                else:
                    self._coordinator = None
            await asyncio.sleep(CONSUMER_PAUSE_MS / 1000)

    async def look(self) -> None:
        """Be told where the group is, without joining it. Raises KafkaError, BrokerUnavailable,
        AssertionError."""
        tries = 0
        while True:
            try:
                await self._committed(list(range(self._run.plan.partitions)))
                return
            except (KafkaError, BrokerUnavailable) as error:
                tries += 1
                if tries == TRIES_MAX or (isinstance(error, KafkaError) and error.code not in AGAIN):
                    raise
                self._coordinator = None
                await asyncio.sleep(CONSUMER_PAUSE_MS / 1000)

    def _forget(self) -> None:
        """Owns nothing, and joins."""
        self._epoch, self._readers, self._told = JOIN_EPOCH, {}, None

    async def _round(self) -> None:
        """Raises KafkaError, BrokerUnavailable, AssertionError."""
        now_s = self._run.simulation.loop.time()
        if self._epoch == JOIN_EPOCH or self._told != set(self._readers) or self._is_due(now_s):
            await self._heartbeat()
        for partition, reader in list(self._readers.items()):
            try:
                await reader.poll()
            except (KafkaError, BrokerUnavailable) as error:
                await reader.recover(error)
                continue  # a leader that is away is no reason to leave the group
            self._run.read_by_group.add((CONSUMER_GROUP, partition))
        if self._rng.random() < COMMIT_SHARE:
            await self._commit(self._positions(self._readers))
        if self._rng.random() < CONSUMER_LEAVE_SHARE:
            await self._leave()

    @staticmethod
    def _positions(readers: dict[int, Reader]) -> dict[int, int]:
        return {partition: reader.position for partition, reader in readers.items()}

    def _is_due(self, now_s: float) -> bool:
        return now_s - self._heard_s >= HEARTBEAT_MS / 1000

    async def _ask(self, key: ApiKey, body: dict[str, Any], **options: Any) -> Any:
        if self._coordinator is None:
            metadata = await self._client.metadata([])
            broker = self._rng.choice(metadata.brokers)
            wanted = {"key_type": 0, "coordinator_keys": [CONSUMER_GROUP], "key": CONSUMER_GROUP}
            answer = await self._client.request((broker.host, broker.port), ApiKey.FIND_COORDINATOR, wanted)
            (found,) = answer.coordinators
            check(found.error_code)
            self._coordinator = (found.host, found.port)
        return await self._client.request(self._coordinator, key, body, **options)

    async def _heartbeat(self) -> None:
        owned = sorted(self._readers)
        self._topic_id = self._topic_id or await self._find_topic_id()
        # All that it is, when it joins and after an answer that was lost: what that said is said again.
        is_full = self._epoch == JOIN_EPOCH or self._told is None
        says_owned = is_full or self._told != set(owned)
        self._told = None
        body = {
            "group_id": CONSUMER_GROUP,
            "member_id": self._id,
            "member_epoch": self._epoch,
            "instance_id": self._instance_id,
            "rack_id": None,
            "rebalance_timeout": REBALANCE_MS if is_full else -1,
            "subscribed_topic_names": [TOPIC] if is_full else None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": (
                ([{"topic_id": self._topic_id, "partitions": owned}] if owned else []) if says_owned else None
            ),
        }
        answer = await self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, body)
        check(answer.error_code, answer.error_message)
        self._heard_s = self._run.simulation.loop.time()
        self._epoch = answer.member_epoch
        self._told = set(owned)
        if answer.assignment is not None:
            topics = answer.assignment.topic_partitions
            await self._take([partition for topic in topics for partition in topic.partitions])

    async def _take(self, assigned: list[int]) -> None:
        """Give back what is not assigned any more, with its position; begin what is new where it was
        committed. The next heartbeat says so."""
        for partition in assigned:
            self._offsets.owned(self._epoch, partition, self._instance_id or self._id)
        given_back = {number: each for number, each in self._readers.items() if number not in assigned}
        self._readers = {number: each for number, each in self._readers.items() if number in assigned}
        try:
            await self._commit(self._positions(given_back))
            positions = await self._committed([each for each in assigned if each not in self._readers])
        except (KafkaError, BrokerUnavailable):
            # Without positions it can own nothing new. As nothing is said of an assignment twice, it comes
            # back as another member.
            await self._go(LEAVE_EPOCH if self._instance_id is None else LEAVE_STATIC_EPOCH)
            raise
        recorder = self._run.recorder
        recorder.seek(self._name, [Partition(TOPIC, partition) for partition in positions])
        for partition, position in positions.items():
            self._readers[partition] = recorder.reader(
                self._name, self._client, TOPIC, partition, position=position, group=CONSUMER_GROUP
            )

    async def _find_topic_id(self) -> UUID:
        metadata = await self._client.metadata([TOPIC])
        (topic,) = metadata.topics
        check(topic.error_code)
        found: UUID = topic.topic_id
        return found

    async def _committed(self, partitions: list[int]) -> dict[int, int]:
        """Where to begin. Raises KafkaError, BrokerUnavailable, AssertionError."""
        if not partitions:
            return {}
        least = {partition: self._offsets.least(partition) for partition in partitions}
        topics = [{"name": TOPIC, "partition_indexes": partitions}]
        is_member = self._epoch > JOIN_EPOCH
        wanted = {
            "group_id": CONSUMER_GROUP,
            "member_id": self._id if is_member else None,
            "member_epoch": self._epoch if is_member else -1,
            "topics": topics,
        }
        async with self._run.recorder.operation(
            self._name, Kind.FETCH_COMMITTED, group=CONSUMER_GROUP
        ) as told:
            body = {"groups": [wanted], "require_stable": True}
            answer = await self._ask(ApiKey.OFFSET_FETCH, body, version=OFFSETS_VERSION)
            (of_group,) = answer.groups
            check(of_group.error_code)
            found = of_group.topics[0].partitions
            for each in found:
                check(each.error_code)
            told.records = tuple(Record(TOPIC, each.partition_index, each.committed_offset) for each in found)
        positions = {}
        for each in found:
            offset, partition = max(each.committed_offset, 0), each.partition_index
            assert offset >= least[partition], (
                f"I13: {CONSUMER_GROUP} had committed {least[partition]} of partition {partition}, and "
                f"{self._name} is told {each.committed_offset}"
            )
            positions[partition] = offset
        return positions

    async def _commit(self, positions: dict[int, int]) -> None:
        """Raises KafkaError, BrokerUnavailable."""
        if not positions:
            return
        partitions = [
            {
                "partition_index": partition,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": None,
            }
            for partition, offset in positions.items()
        ]
        body = {
            "group_id": CONSUMER_GROUP,
            "generation_id_or_member_epoch": self._epoch,
            "member_id": self._id,
            "group_instance_id": self._instance_id,
            "topics": [{"name": TOPIC, "partitions": partitions}],
        }
        for partition, offset in positions.items():
            self._offsets.asked(partition, offset)
        records = tuple(Record(TOPIC, partition, offset) for partition, offset in positions.items())
        async with self._run.recorder.operation(
            self._name, Kind.COMMIT, records=records, group=CONSUMER_GROUP
        ):
            answer = await self._ask(ApiKey.OFFSET_COMMIT, body, version=OFFSETS_VERSION)
            codes = {each.partition_index: ErrorCode(each.error_code) for each in answer.topics[0].partitions}
            for partition, offset in positions.items():
                code = codes[partition]
                if code is ErrorCode.NONE or code in REFUSED:
                    self._offsets.answered(partition, offset, is_committed=code is ErrorCode.NONE)
            for code in codes.values():
                check(code)

    async def _leave(self) -> None:
        """Without a word, or with one; static members come back as what they were."""
        if self._rng.random() < 0.5:
            await self._go(LEAVE_EPOCH if self._instance_id is None else LEAVE_STATIC_EPOCH)
        else:
            self._id = self._new_id() if self._instance_id is None else self._id
            self._forget()

    async def _go(self, epoch: int) -> None:
        body = {
            "group_id": CONSUMER_GROUP, "member_id": self._id, "member_epoch": epoch,
            "instance_id": self._instance_id, "rack_id": None, "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None, "server_assignor": None, "topic_partitions": None,
        }  # fmt: skip
        self._id = self._new_id()
        self._forget()
        try:
            await self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, body)
        except BrokerUnavailable:
            self._coordinator = None
