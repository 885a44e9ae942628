"""``ShareMember``: a consumer of a share group (KIP-932), step by step; ``ShareRun``: some, under faults.

Kafka's client: ``ShareMembershipManager``, ``ShareConsumeRequestManager``. Members heartbeat, fetch what
nothing else holds, and accept, release or reject it, in a request of its own or with their next fetch. Some
go without a word, some hold records for longer than their lock.

Checked by ``Promises``, of the leader that the store names and that knows it, in one epoch and one life:

    S1   nothing is delivered to two members within a lock
    S2   nothing that was acknowledged, and answered, comes again
    S3   each record is settled in the end: accepted, rejected, or delivered as often as the limit says
    S4   no delivery count is over the limit
    S5   an acknowledgement counts only of the member that holds the record

A broker that closes a connection gives back what its member held (``ShareSession``), and the member hears of
it later. So S1 and S5 are broken only when both sessions go on.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from minikafka.coordination import paths
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.cluster.topic_validation import SHARE_GROUP_STATE_TOPIC
from minikafka.testing.broker import Property
from minikafka.testing.simulation.client import OF_SHARES, PASSING, Address, SimulatedClient, check
from minikafka.testing.simulation.invariants import hosted_partitions
from minikafka.testing.simulation.scenarios.administrator import (
    Administrator,
    alter_config,
    draw_moves,
    every_topic_is_whole,
    until_moved,
)
from minikafka.testing.simulation.scenarios.cluster_run import CONFIG as CLUSTER_CONFIG
from minikafka.testing.simulation.scenarios.cluster_run import ClusterRun
from minikafka.testing.simulation.scenarios.faults import carry_out, draw_steps
from minikafka.testing.simulation.scenarios.plan import TOPIC, Action, Fault, Plan, Producer, Role, Step
from minikafka.testing.simulation.simulation import Simulation

GROUP = "shares"
LOCK_MS, DELIVERIES_MAX, HEARTBEAT_MS = 5_000, 5, 500
CONFIG: dict[str, Property] = {
    "group.share.record.lock.duration.ms": LOCK_MS,
    "group.share.min.record.lock.duration.ms": LOCK_MS,
    "group.share.delivery.count.limit": DELIVERIES_MAX,
    "group.share.session.timeout.ms": 6_000,
    "group.share.min.session.timeout.ms": 6_000,
    "group.share.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.share.min.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.share.initialize.retry.interval.ms": 1_000,
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.min.isr": 2,
}
MEMBERS = (2, 3, 5)
MOVED = (TOPIC, SHARE_GROUP_STATE_TOPIC)
"""What an administrator moves."""
PAUSE_MS = (0, 600)
SETTLED_WITHIN_MS = 120_000
RECORDS_MAX = 12
GONE_SHARE, LATE_SHARE, PIGGYBACK_SHARE = 0.03, 0.03, 0.5
GROUP_RESOURCE = 32
"""``ConfigResource.Type.GROUP``."""
ACCEPT, RELEASE, REJECT = 1, 2, 3
KINDS = (ACCEPT, ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT)

_OF_MEMBERS = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
"""It joins again."""
_OF_SESSIONS = frozenset(
    {
        ErrorCode.INVALID_RECORD_STATE,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""It begins another session: its lock was over, its broker is back and knows little yet, or what the broker
wrote of it was not answered in time."""


class Term(NamedTuple):
    """A leader, in one epoch and one life of its broker: locks are in its memory."""

    leader: int
    epoch: int
    life: int


@dataclass(eq=False)
class Session:
    """Of a member with a leader, on one connection."""

    member: str
    epoch: int = 0


class Held(NamedTuple):
    session: Session
    term: Term
    lock_until: float
    """At the earliest."""


class _Suspicion(NamedTuple):
    since: float
    what: str
    silent: set[Session]
    """That have not gone on since."""


@dataclass
class Promises:
    """What members were given and told, and whether it agrees. Times are the loop's."""

    held: dict[int, Held] = field(default_factory=dict)
    settled: dict[int, float] = field(default_factory=dict)
    """When the answer to an acknowledgement was there."""
    uncertain: set[int] = field(default_factory=set)
    """Accepted or rejected, and no answer says whether that counts."""
    failures: int = 0
    """Fetches without an answer: any record may have been delivered once more."""
    _counts: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The highest delivery count, and the failures until then."""
    _suspicions: list[_Suspicion] = field(default_factory=list)

    def delivered(self, offset: int, count: int, held: Held | None, asked_at: float, now: float) -> None:
        """``held``: by whom now; None where the leader may be another one. Raises InvariantError."""
        if not 1 <= count <= DELIVERIES_MAX:
            raise InvariantError(f"S4: offset {offset} is delivered for the {count}th time")
        if count >= self._counts.get(offset, (0, 0))[0]:
            self._counts[offset] = (count, self.failures)
        if held is None:
            return
        settled = self.settled.get(offset)
        if settled is not None and settled < asked_at:
            raise InvariantError(f"S2: offset {offset} was acknowledged and came again, to {held}")
        self.uncertain.discard(offset)  # it did not count
        before = self.held.get(offset)
        if before is not None and before.term == held.term and now < before.lock_until:
            what = f"S1: offset {offset} is locked for {before}, and given to {held}"
            self._suspicions.append(_Suspicion(now, what, {before.session, held.session}))
        self.held[offset] = held

    def held_by_others(
        self, session: Session, term: Term | None, offsets: Iterable[int], now: float
    ) -> list[Held]:
        """Those that hold some of ``offsets`` in this term; ``session`` does not then."""
        found = [self.held[offset] for offset in offsets if offset in self.held]
        return [
            each
            for each in found
            if each.session is not session and each.term == term and now < each.lock_until
        ]

    def acknowledged(
        self, session: Session, offsets: Collection[int], others: Iterable[Held], now: float
    ) -> None:
        """It counts; ``others`` were ``held_by_others`` when it was asked for, in a term that lasts. One that
        has begun to acknowledge since may have come first, and what is settled may be acknowledged again."""
        still = [self.held.get(offset) for offset in offsets]
        for other in others:
            if other not in still:
                continue
            what = f"S5: {session} acknowledged some of {sorted(offsets)}, which are locked for {other}"
            self._suspicions.append(_Suspicion(now, what, {other.session}))

    def went_on(self, session: Session, asked_at: float) -> None:
        """It was asked then, and has answered. Raises InvariantError."""
        for suspicion in self._suspicions:
            if asked_at >= suspicion.since:
                suspicion.silent.discard(session)
                if not suspicion.silent:
                    raise InvariantError(suspicion.what)

    def let_go(self, session: Session) -> None:
        """It is over."""
        self.held = {offset: each for offset, each in self.held.items() if each.session is not session}
        self._suspicions = [each for each in self._suspicions if session not in each.silent]

    def check_nothing_is_lost(self, end_offset: int) -> None:
        """When all is settled. Raises InvariantError."""
        lost = []
        for offset in range(end_offset):
            count, failures = self._counts.get(offset, (0, 0))
            may_be_archived = count + self.failures - failures >= DELIVERIES_MAX
            if offset not in self.settled and offset not in self.uncertain and not may_be_archived:
                lost.append(offset)
        if lost:
            raise InvariantError(f"S3: offsets {lost} are settled, and no member did that")


class ShareMember:
    """Until all is settled."""

    def __init__(self, run: ShareRun, number: int) -> None:
        self._run = run
        self._promises = run.promises
        self._name = f"share-member-{number}"
        self._rng = run.simulation.rng(self._name)
        self._client = SimulatedClient(run.addresses, client_id=self._name)
        self._id = str(UUID(int=self._rng.getrandbits(128), version=4))
        self._epoch = 0
        self._coordinator: Address | None = None
        self._heard_s = 0.0
        self._is_heard = False
        """Whether its last heartbeat was answered: else that may have said what is not said twice."""
        self._topic_id: UUID | None = None
        """None: it has no assignment."""

    async def work(self) -> None:
        """Raises KafkaError: an answer that no share group gives; InvariantError."""
        while not self._run.is_settled:
            client = SimulatedClient(self._run.addresses, client_id=self._name)
            session = Session(self._name)
            try:
                await self._live(client, session)
            except BrokerUnavailable:
                self._coordinator = None
            except KafkaError as error:
                self._understand(error)
            self._promises.let_go(session)
            await client.close()
            await asyncio.sleep(self._rng.randint(*PAUSE_MS) / 1000)

    def _understand(self, error: KafkaError) -> None:
        """Raises KafkaError."""
        if error.code in _OF_MEMBERS:
            self._epoch, self._topic_id = 0, None
        elif error.code not in PASSING | _OF_SESSIONS:
            raise error
        self._coordinator = None

    async def _live(self, client: SimulatedClient, session: Session) -> None:
        """One session. Raises KafkaError, BrokerUnavailable, InvariantError."""
        leader, address = -1, None
        riding: dict[int, int] = {}
        """What is acknowledged with the next fetch."""
        while not self._run.is_settled:
            await self._heartbeat()
            if self._topic_id is None:
                await asyncio.sleep(HEARTBEAT_MS / 1000)
                continue
            if address is None:
                leader = await client.leader(TOPIC, 0)
                address = (f"broker-{leader}", 9092)
            offsets = await self._fetch(client, address, leader, session, riding)
            riding = {}
            await asyncio.sleep(self._rng.randint(*PAUSE_MS) / 1000)
            dice = self._rng.random()
            if dice < GONE_SHARE:
                return
            if dice < GONE_SHARE + LATE_SHARE:
                await asyncio.sleep(LOCK_MS / 1000)
            kinds = {each: self._rng.choice(KINDS) for each in offsets}
            if self._rng.random() < PIGGYBACK_SHARE:
                riding = kinds
            elif kinds:
                await self._acknowledge(client, address, leader, session, kinds)

    async def _heartbeat(self) -> None:
        """When it is due. Raises KafkaError, BrokerUnavailable."""
        now_s = self._run.simulation.loop.time()
        if self._epoch and now_s - self._heard_s < HEARTBEAT_MS / 1000:
            return
        if self._coordinator is None:
            self._coordinator = await self._client.find_coordinator(GROUP)
        body = {
            "group_id": GROUP,
            "member_id": self._id,
            "member_epoch": self._epoch,
            "rack_id": None,
            "subscribed_topic_names": None if self._epoch and self._is_heard else [TOPIC],
        }
        self._is_heard = False
        answer = await self._client.request(self._coordinator, ApiKey.SHARE_GROUP_HEARTBEAT, body)
        check(answer.error_code, answer.error_message)
        self._epoch, self._heard_s, self._is_heard = answer.member_epoch, now_s, True
        if answer.assignment is not None:
            topics = answer.assignment.topic_partitions
            self._topic_id = topics[0].topic_id if topics else None

    async def _fetch(
        self,
        client: SimulatedClient,
        address: Address,
        leader: int,
        session: Session,
        kinds: dict[int, int],
    ) -> list[int]:
        """What it holds now."""
        run, loop = self._run, self._run.simulation.loop
        asked_at, term = loop.time(), run.term()
        body = self._body(session, kinds) | {
            "max_wait": 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": self._rng.randint(1, RECORDS_MAX),
            "batch_size": 4,
            "share_acquire_mode": self._rng.randrange(2),
            "forgotten_topics_data": [],
        }
        others = self._promises.held_by_others(session, term, kinds, asked_at)
        final = self._begins_to_settle(session, kinds)
        try:
            answer = await client.request(address, ApiKey.SHARE_FETCH, body)
        except BrokerUnavailable:
            self._promises.failures += 1
            raise
        check(answer.error_code, answer.error_message)
        self._goes_on(session, asked_at)
        held = None
        lasting = self._lasting(term, leader)
        if lasting is not None:
            held = Held(session, lasting, asked_at + (LOCK_MS - 1) / 1000)  # brokers count whole ms
        offsets = []
        failure: KafkaError | None = None
        for topic in answer.responses:
            for partition in topic.partitions:
                for first, last, count in partition.acquired_records:
                    for offset in range(first, last + 1):
                        self._promises.delivered(offset, count, held, asked_at, loop.time())
                        offsets.append(offset)
                if kinds and partition.acknowledge_error_code == ErrorCode.NONE:
                    self._has_settled(final)
                    if lasting is not None:
                        self._promises.acknowledged(session, kinds, others, loop.time())
                for code in (partition.error_code, partition.acknowledge_error_code):
                    if code != ErrorCode.NONE:
                        failure = KafkaError(ErrorCode(code), partition.error_message)
        if failure is not None:
            raise failure
        return offsets

    async def _acknowledge(
        self,
        client: SimulatedClient,
        address: Address,
        leader: int,
        session: Session,
        kinds: dict[int, int],
    ) -> None:
        asked_at, term = self._run.simulation.loop.time(), self._run.term()
        body = self._body(session, kinds)
        others = self._promises.held_by_others(session, term, kinds, asked_at)
        final = self._begins_to_settle(session, kinds)
        answer = await client.request(address, ApiKey.SHARE_ACKNOWLEDGE, body)
        check(answer.error_code, answer.error_message)
        self._goes_on(session, asked_at)
        (found,) = answer.responses[0].partitions
        check(found.error_code, found.error_message)
        self._has_settled(final)
        if self._lasting(term, leader) is not None:
            self._promises.acknowledged(session, kinds, others, self._run.simulation.loop.time())

    def _lasting(self, term: Term | None, leader: int) -> Term | None:
        """The term in which a request was made of ``leader``, if it is the leader's and has not ended."""
        is_there = term is not None and term.leader == leader and self._run.term() == term
        return term if is_there else None

    def _begins_to_settle(self, session: Session, kinds: dict[int, int]) -> set[int]:
        """What it accepts or rejects."""
        for offset in kinds:
            held = self._promises.held.get(offset)
            if held is not None and held.session is session:
                del self._promises.held[offset]
        final = {offset for offset, kind in kinds.items() if kind != RELEASE}
        self._promises.uncertain |= final - self._promises.settled.keys()
        return final

    def _has_settled(self, final: set[int]) -> None:
        now = self._run.simulation.loop.time()
        self._promises.uncertain -= final
        self._promises.settled |= dict.fromkeys(final, now)

    def _goes_on(self, session: Session, asked_at: float) -> None:
        self._promises.went_on(session, asked_at)
        session.epoch += 1

    def _body(self, session: Session, kinds: dict[int, int]) -> dict[str, Any]:
        batches = [
            {"first_offset": offset, "last_offset": offset, "acknowledge_types": [kind]}
            for offset, kind in sorted(kinds.items())
        ]
        partition = {"partition_index": 0, "acknowledgement_batches": batches}
        return {
            "group_id": GROUP,
            "member_id": self._id,
            "share_session_epoch": session.epoch,
            "is_renew_ack": False,
            "topics": [{"topic_id": self._topic_id, "partitions": [partition]}],
        }


class ShareRun(ClusterRun):
    """A topic of one partition, which a group shares from its start. It is moved meanwhile, and so is what
    is known of the group."""

    def __init__(self, simulation: Simulation, plan: Plan) -> None:
        super().__init__(simulation, plan)
        self.promises = Promises()
        self.is_settled = False
        self._members: list[asyncio.Task[None]] = []

    async def play(self) -> None:
        await self.start()
        await self._read_from_the_start()
        self.produce()
        self._members = [
            asyncio.create_task(ShareMember(self, number).work()) for number in range(self.plan.share_members)
        ]
        administrator = asyncio.create_task(Administrator(self).work())
        await carry_out(self, self.plan.steps)
        await administrator
        await until_moved(self, MOVED)
        await self.finish()
        await self._settle()

    async def _read_from_the_start(self) -> None:
        """``share.auto.offset.reset``."""
        entries = [("share.auto.offset.reset", "earliest")]
        check(await alter_config(self.client, self.addresses[0], GROUP_RESOURCE, GROUP, entries))

    def _is_whole(self) -> bool:
        """Of every topic: what is known of the group can be lost, too."""
        return every_topic_is_whole(self)

    def raise_what_failed(self) -> None:
        super().raise_what_failed()
        for member in self._members:
            if member.done():
                member.result()

    async def _settle(self) -> None:
        """Raises InvariantError."""
        end_offset = await self.client.log_end(TOPIC, 0, deadline_ms=SETTLED_WITHIN_MS)
        deadline = self.simulation.loop.time() + SETTLED_WITHIN_MS / 1000
        while not await self._has_settled(end_offset):
            self.raise_what_failed()
            if self.simulation.loop.time() > deadline:
                raise InvariantError(f"S3: not all of {end_offset} are settled in {SETTLED_WITHIN_MS} ms")
            await asyncio.sleep(0.5)
        self.is_settled = True
        await asyncio.gather(*self._members)
        self.promises.check_nothing_is_lost(end_offset)

    async def _has_settled(self, end_offset: int) -> bool:
        """By what is persisted; its start offset is that before the last write, whose records it counts."""
        state = self.simulation.store.tree.get(paths.topic_path(TOPIC)).data
        topic_id = paths.decode_topic(TOPIC, state).topic_id
        assert topic_id is not None
        partitions = [{"partition": 0, "leader_epoch": -1}]
        body = {"group_id": GROUP, "topics": [{"topic_id": topic_id, "partitions": partitions}]}
        try:
            key = f"{GROUP}:{paths.uuid_to_text(topic_id)}:0"
            address = await self.client.find_coordinator(key, OF_SHARES)
            answer = await self.client.request(address, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, body)
            (found,) = answer.results[0].partitions
            check(found.error_code, found.error_message)
        except BrokerUnavailable:
            return False
        except KafkaError as error:
            if error.code not in PASSING:
                raise
            return False
        return bool(found.start_offset + found.delivery_complete_count == end_offset)

    def term(self) -> Term | None:
        """The present one; None while the store and the leader do not agree on it."""
        data = self.simulation.store.tree.get(paths.partition_state_path(TOPIC, 0)).data
        state = paths.decode_partition_state(TOPIC, 0, data)
        leader = self.simulation.brokers.get(state.leader)
        if leader is None:
            return None
        for partition in hosted_partitions(leader):
            if partition.topic_partition == (TOPIC, 0) and partition.leader_epoch == state.leader_epoch:
                return Term(leader.node_id, state.leader_epoch, leader.process.number)
        return None


def draw_shares(seed: int, rng: random.Random) -> Plan:
    """Four brokers, of which three have each partition."""
    brokers = range(1, 5)
    steps = tuple(_at_share_coordinators(each) for each in draw_steps(rng, brokers))
    return Plan(
        scenario="shares", seed=seed, brokers=len(brokers), partitions=1, replicas=3,
        config=CLUSTER_CONFIG | CONFIG, producers=(Producer(partition=0, pause_ms=rng.choice((60, 150))),),
        share_members=rng.choice(MEMBERS), steps=steps,
        actions=_draw_moves(rng, brokers) if rng.random() < 0.5 else (),
    )  # fmt: skip


def _draw_moves(rng: random.Random, brokers: Sequence[int]) -> tuple[Action, ...]:
    return tuple(
        msgspec.structs.replace(action, topic=rng.choice(MOVED)) for action in draw_moves(rng, brokers, 1)
    )


def _at_share_coordinators(step: Step) -> Step:
    """There are no transactions."""

    def aimed(fault: Fault) -> Fault:
        if fault.aim is not Role.TRANSACTION_COORDINATOR:
            return fault
        return msgspec.structs.replace(fault, aim=Role.SHARE_COORDINATOR)

    return msgspec.structs.replace(step, faults=tuple(map(aimed, step.faults)))
