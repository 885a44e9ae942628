"""Members of groups, step by step: ``GroupMember``, a consumer of a classic group, and
``ConsumerGroupMember``, of a group of the next generation (KIP-848). ``AnyMember`` is what both do, with what
must hold for a group (I13).

Kafka's clients: ``ConsumerCoordinator``; ``ConsumerMembershipManager``, ``ConsumerHeartbeatRequestManager``.

Members of a classic group join, are given partitions by the first of them, read from what is committed,
commit, and join again whenever the coordinator says so. In a generation a partition has one owner, and what
was committed with success is not forgotten: the next owner begins there or later.

With KIP-848 there is no generation that all members share: each has an epoch and hears in its own heartbeats
what to give back and what it got. In an epoch a partition has one owner, and what was committed with success
is not forgotten.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

import msgspec

from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing.broker import Property
from minikafka.testing.history import Kind, Partition, Record
from minikafka.testing.history_recorder import REFUSED, TRIES_MAX, Reader
from minikafka.testing.simulation.client import OFFSETS_VERSION, SimulatedClient, check, positions_body
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


class AnyMember(ABC):
    """What members of both protocols do: ask the coordinator, commit, read on from what is committed."""

    group: ClassVar[str]
    pause_ms: ClassVar[int]

    def __init__(self, run: SwarmRun, name: str, instance_id: str | None, offsets: GroupOffsets) -> None:
        self._run = run
        self._offsets = offsets
        self._name = name
        self._rng = run.simulation.rng(name)
        self._client = SimulatedClient(run.addresses, client_id=name)
        self._coordinator: tuple[str, int] | None = None
        self._instance_id = instance_id
        self._id = ""
        self._readers: dict[int, Reader] = {}

    async def work(self) -> None:
        """Until the run stops. Raises KafkaError: an answer that no group gives; AssertionError."""
        while not self._run.is_stopping:
            try:
                await self._live()
            except BrokerUnavailable:
                self._coordinator = None
            except KafkaError as error:
                self._understand(error)
            await asyncio.sleep(self.pause_ms / 1000)

    @abstractmethod
    async def _live(self) -> None:
        """For a while. Raises KafkaError, BrokerUnavailable, AssertionError."""

    @abstractmethod
    def _understand(self, error: KafkaError) -> None:
        """What it means for this member. Raises KafkaError: it is none that passes."""

    @property
    @abstractmethod
    def _epoch_or_generation(self) -> int: ...

    @property
    def _asks_as_a_member(self) -> bool:
        """When it asks for positions; where not, it is answered whatever it is."""
        return False

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
                await asyncio.sleep(self.pause_ms / 1000)

    async def _find_coordinator(self) -> tuple[str, int]:
        if self._coordinator is None:
            self._coordinator = await self._client.find_coordinator(self.group)
        return self._coordinator

    async def _ask(self, key: ApiKey, body: dict[str, Any], **options: Any) -> Any:
        return await self._client.request(await self._find_coordinator(), key, body, **options)

    def _owns(self, partitions: Iterable[int]) -> None:
        """It is told so. Raises AssertionError."""
        for partition in partitions:
            self._offsets.owned(self._epoch_or_generation, partition, self._instance_id or self._id)

    async def _begin_at_what_is_committed(self, partitions: list[int]) -> dict[int, Reader]:
        """Raises KafkaError, BrokerUnavailable, AssertionError."""
        positions = await self._committed(partitions)
        recorder = self._run.recorder
        recorder.seek(self._name, [Partition(TOPIC, partition) for partition in positions])
        return {
            partition: recorder.reader(
                self._name, self._client, TOPIC, partition, position=position, group=self.group
            )
            for partition, position in positions.items()
        }

    async def _committed(self, partitions: list[int]) -> dict[int, int]:
        """Where to begin. Raises KafkaError, BrokerUnavailable, AssertionError."""
        if not partitions:
            return {}
        least = {partition: self._offsets.least(partition) for partition in partitions}
        is_member = self._asks_as_a_member
        async with self._run.recorder.operation(self._name, Kind.FETCH_COMMITTED, group=self.group) as told:
            found = await self._client.fetch_positions(
                await self._find_coordinator(), self.group, TOPIC, partitions,
                member_id=self._id if is_member else None,
                member_epoch=self._epoch_or_generation if is_member else -1,
            )  # fmt: skip
            told.records = tuple(Record(TOPIC, partition, offset) for partition, offset in found.items())
        positions = {partition: max(offset, 0) for partition, offset in found.items()}
        for partition, offset in positions.items():
            assert offset >= least[partition], (
                f"I13: {self.group} had committed {least[partition]} of partition {partition}, and "
                f"{self._name} is told {offset}"
            )
            self._offsets.told(partition, offset)
        return positions

    @staticmethod
    def _positions(readers: dict[int, Reader]) -> dict[int, int]:
        return {partition: reader.position for partition, reader in readers.items()}

    async def _commit(self, positions: dict[int, int]) -> None:
        """Raises KafkaError, BrokerUnavailable."""
        if not positions:
            return
        body = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self._epoch_or_generation,
            "member_id": self._id,
            "group_instance_id": self._instance_id,
            "topics": [{"name": TOPIC, "partitions": positions_body(positions)}],
        }
        for partition, offset in positions.items():
            self._offsets.asked(partition, offset)
        records = tuple(Record(TOPIC, partition, offset) for partition, offset in positions.items())
        async with self._run.recorder.operation(self._name, Kind.COMMIT, records=records, group=self.group):
            answer = await self._ask(ApiKey.OFFSET_COMMIT, body, version=OFFSETS_VERSION)
            codes = {each.partition_index: ErrorCode(each.error_code) for each in answer.topics[0].partitions}
            for partition, offset in positions.items():
                code = codes[partition]
                if code is ErrorCode.NONE or code in REFUSED:
                    self._offsets.answered(partition, offset, is_committed=code is ErrorCode.NONE)
            for code in codes.values():
                check(code)


class GroupMember(AnyMember):
    """One member of a classic group."""

    group, pause_ms = GROUP, PAUSE_MS

    def __init__(self, run: SwarmRun, number: int, plan: Member, offsets: GroupOffsets) -> None:
        super().__init__(run, f"member-{number}", f"instance-{number}" if plan.is_static else None, offsets)
        self._generation = -1

    @property
    def _epoch_or_generation(self) -> int:
        return self._generation

    async def _live(self) -> None:
        await self._join()
        await self._read()

    def _understand(self, error: KafkaError) -> None:
        # A join that was given up, and came late over a slow link, may have taken the place of the next one.
        is_fenced_by_itself = error.code is ErrorCode.FENCED_INSTANCE_ID and self._instance_id is not None
        if error.code not in AGAIN and not is_fenced_by_itself:
            raise error
        if is_fenced_by_itself or error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._id = ""
        self._coordinator = None

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
        self._owns(mine)
        self._readers = await self._begin_at_what_is_committed(mine)

    def _identity(self) -> dict[str, Any]:
        return {
            "group_id": GROUP,
            "generation_id": self._generation,
            "member_id": self._id,
            "group_instance_id": self._instance_id,
        }

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
                await self._commit(self._positions(self._readers))
            check((await self._ask(ApiKey.HEARTBEAT, self._identity())).error_code)
            if self._rng.random() < LEAVE_SHARE:
                self._id = ""
                if self._instance_id is not None:
                    await asyncio.sleep(self._rng.randint(*AWAY_MS) / 1000)
                return
            await asyncio.sleep(PAUSE_MS / 1000)


class ConsumerGroupMember(AnyMember):
    """One member of a group of the next generation."""

    group, pause_ms = CONSUMER_GROUP, CONSUMER_PAUSE_MS

    def __init__(self, run: SwarmRun, number: int, plan: Member, offsets: GroupOffsets) -> None:
        instance_id = f"instance-{number}" if plan.is_static else None
        super().__init__(run, f"consumer-member-{number}", instance_id, offsets)
        self._id = self._new_id()
        self._epoch = JOIN_EPOCH
        self._told: set[int] | None = None
        """What it has said that it owns, and was heard to say."""
        self._heard_s = 0.0
        self._topic_id: UUID | None = None

    def _new_id(self) -> str:
        return str(UUID(int=self._rng.getrandbits(128), version=4))

    @property
    def _epoch_or_generation(self) -> int:
        return self._epoch

    @property
    def _asks_as_a_member(self) -> bool:
        return self._epoch > JOIN_EPOCH

    def _understand(self, error: KafkaError) -> None:
        if error.code in _FENCED:
            self._forget()
        elif error.code in AGAIN or error.code in _STALE:
            self._coordinator = None
        else:
            raise error

    def _forget(self) -> None:
        """Owns nothing, and joins."""
        self._epoch, self._readers, self._told = JOIN_EPOCH, {}, None

    async def _live(self) -> None:
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

    def _is_due(self, now_s: float) -> bool:
        return now_s - self._heard_s >= HEARTBEAT_MS / 1000

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
        self._owns(assigned)
        given_back = {number: each for number, each in self._readers.items() if number not in assigned}
        self._readers = {number: each for number, each in self._readers.items() if number in assigned}
        try:
            await self._commit(self._positions(given_back))
            self._readers |= await self._begin_at_what_is_committed(
                [each for each in assigned if each not in self._readers]
            )
        except (KafkaError, BrokerUnavailable):
            # Without positions it can own nothing new. As nothing is said of an assignment twice, it comes
            # back as another member.
            await self._go(LEAVE_EPOCH if self._instance_id is None else LEAVE_STATIC_EPOCH)
            raise

    async def _find_topic_id(self) -> UUID:
        metadata = await self._client.metadata([TOPIC])
        (topic,) = metadata.topics
        check(topic.error_code)
        found: UUID = topic.topic_id
        return found

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
