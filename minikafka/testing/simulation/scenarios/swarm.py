"""``SwarmRun``: what ``swarm_plan`` has drawn is carried out.

Who is there is in modules of their own: ``transactor``, ``group_member`` and ``consumer_group_member``,
``keyed_producer``, ``restricted_client``, ``administrator`` with its ``settings``; consumers are every
scenario's.

Checked, besides what the invariant checker and the judge of histories see: every topic becomes whole and
takes records; every move arrives; what these modules say of themselves."""

from __future__ import annotations

import asyncio
from itertools import product

from minikafka.coordination import paths
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.testing.broker import Property
from minikafka.testing.history.operations import Kind, Record
from minikafka.testing.history.recorder import at_offsets, text
from minikafka.testing.simulation.client import make_batch, pause_or_raise
from minikafka.testing.simulation.invariants import hosted_partitions
from minikafka.testing.simulation.scenarios.administrator import (
    Administrator,
    assignments,
    check_configs,
    check_hosts,
    until_moved,
)
from minikafka.testing.simulation.scenarios.cluster_run import ClusterRun
from minikafka.testing.simulation.scenarios.consumer_group_member import GROUP as CONSUMER_GROUP
from minikafka.testing.simulation.scenarios.consumer_group_member import ConsumerGroupMember
from minikafka.testing.simulation.scenarios.faults import carry_out
from minikafka.testing.simulation.scenarios.group_member import GROUP as CLASSIC_GROUP
from minikafka.testing.simulation.scenarios.group_member import GroupMember, GroupOffsets
from minikafka.testing.simulation.scenarios.keyed_producer import TOPIC_CONFIGS, KeyedProducer
from minikafka.testing.simulation.scenarios.plan import (
    COMPACTED,
    COPIES,
    TOPIC,
    ActionKind,
    GroupProtocol,
    Member,
    Plan,
    Producer,
)
from minikafka.testing.simulation.scenarios.restricted_client import RestrictedClient
from minikafka.testing.simulation.scenarios.settings import lift_limits, log_dirs, secured
from minikafka.testing.simulation.scenarios.swarm_plan import OTHER_TOPICS
from minikafka.testing.simulation.scenarios.transactor import Copier, Transactor
from minikafka.testing.simulation.scenarios.waiting import HEAL_WITHIN_MS, until
from minikafka.testing.simulation.simulation import Simulation


class SwarmRun(ClusterRun):
    """What ``draw_swarm`` has drawn."""

    def __init__(self, simulation: Simulation, plan: Plan) -> None:
        super().__init__(simulation, plan)
        self.group = GroupOffsets()
        self._consumer_group = GroupOffsets()
        self.read_by_group: set[tuple[str, int]] = set()
        """The groups' partitions that members have read lately."""
        self._restricted = RestrictedClient(self) if plan.is_secured else None
        self._keyed = KeyedProducer(self) if plan.keys else None
        self._transactors = [
            (Copier if each.copies else Transactor)(self, number, each)
            for number, each in enumerate(plan.transactors)
        ]

    async def play(self) -> None:
        await self.start()
        self.produce()
        self.consume()
        members = [self._member(number, plan) for number, plan in enumerate(self.plan.members)]
        self._consumers += [asyncio.create_task(member.work()) for member in members]
        administrator = asyncio.create_task(Administrator(self).work())
        await carry_out(self, self.plan.steps)
        await administrator
        await lift_limits(self)
        await until_moved(self, [TOPIC, *OTHER_TOPICS])
        await self.finish()
        check_hosts(self, TOPIC)
        check_configs(self, TOPIC)

    def properties_of(self, node_id: int) -> dict[str, Property]:
        host = f"broker-{node_id}"
        return {
            **super().properties_of(node_id),
            **log_dirs(self.plan),
            **(secured(host) if self.plan.is_secured else {}),
        }

    async def start(self) -> None:
        await super().start()
        if self._keyed is not None:
            await self.client.create_topic(
                COMPACTED, replication_factor=self.plan.replicas, configs=TOPIC_CONFIGS
            )
        if any(each.copies for each in self.plan.transactors):
            await self.client.create_topic(COPIES, replication_factor=self.plan.replicas)
        if self._restricted is not None:
            await self._restricted.give_rights()

    def produce(self) -> None:
        super().produce()
        others = [*self._transactors, self._keyed, self._restricted]
        self._producers += [asyncio.create_task(each.work()) for each in others if each is not None]

    @property
    def written_partitions(self) -> list[tuple[str, int]]:
        has_copies = any(each.copies for each in self.plan.transactors)
        return [*super().written_partitions, *([(COPIES, 0)] if has_copies else [])]

    def _member(self, number: int, plan: Member) -> GroupMember | ConsumerGroupMember:
        if plan.protocol is GroupProtocol.CLASSIC:
            return GroupMember(self, number, plan)
        return ConsumerGroupMember(self, number, plan, self._consumer_group)

    @property
    def _groups(self) -> set[str]:
        names = {GroupProtocol.CLASSIC: CLASSIC_GROUP, GroupProtocol.CONSUMER: CONSUMER_GROUP}
        return {names[member.protocol] for member in self.plan.members}

    async def _produce(self, number: int, plan: Producer) -> None:
        if plan.idempotent and plan.in_flight == 1:
            await super()._produce(number, plan)
        else:
            await PipeliningProducer(self, number, plan).work()

    def _is_whole(self) -> bool:
        """Of every topic: a group's offsets and a topic of the administrator can be lost, too."""
        tree = self.simulation.store.tree
        wanted = {
            (topic, number)
            for topic in tree.children(paths.TOPICS)
            for number in assignments(self, topic)
        }  # fmt: skip
        whole = {
            tuple(partition.topic_partition)
            for broker in self.simulation.brokers.values()
            for partition in hosted_partitions(broker)
            if partition.is_leader and set(partition.isr) == set(partition.replicas)
        }
        return wanted <= whole

    async def finish(self) -> None:
        """And of the other topics, that they are whole or gone."""
        await until(lambda: not self._unsettled(), "other topics are whole or gone")
        await self.until_whole()
        self.read_by_group.clear()
        await until(self._is_read_by_groups, "each group reads every partition")
        if self._restricted is not None:
            await self._restricted.check()
        await super().finish()

    def _is_read_by_groups(self) -> bool:
        self.raise_what_failed()
        return self.read_by_group >= set(product(self._groups, range(self.plan.partitions)))

    async def check_history(self) -> None:
        """And where the groups are, what was copied, and what compaction has left."""
        for protocol in GroupProtocol:
            if any(member.protocol is protocol for member in self.plan.members):
                await self._member(len(self.plan.members), Member(protocol=protocol)).look()
        for transactor in self._transactors:
            await transactor.check()
        if self._keyed is not None:
            await self._keyed.check()
        if any(action.kind is ActionKind.SET_RETENTION for action in self.plan.actions):
            for partition in range(self.plan.partitions):
                await self._note_deleted(partition)
        await super().check_history()

    async def _note_deleted(self, partition: int) -> None:
        """No client is told of what retention deletes."""
        deadline = self.simulation.loop.time() + HEAL_WITHIN_MS / 1000
        while True:
            try:
                start = await self.client.log_start(TOPIC, partition)
                return self.recorder.deleted_below("retention", TOPIC, partition, start)
            except (KafkaError, BrokerUnavailable) as error:
                self.client.forget_leader(TOPIC, partition)
                await pause_or_raise(error, deadline)

    def _unsettled(self) -> set[str]:
        """Of the other topics: what the store has and no broker leads whole, and what is hosted without
        it."""
        names: set[str] = set()
        led: dict[str, set[int]] = {}
        for broker in self.simulation.brokers.values():
            for partition in hosted_partitions(broker):
                topic, number = partition.topic_partition
                if topic in OTHER_TOPICS:
                    names.add(topic)
                    if partition.is_leader and set(partition.isr) == set(partition.replicas):
                        led.setdefault(topic, set()).add(number)
        deleting = set(self.simulation.store.tree.children(paths.DELETE_TOPICS))
        for topic in OTHER_TOPICS:
            if led.get(topic, set()) == set(assignments(self, topic)):
                names.discard(topic)
            elif assignments(self, topic):
                names.add(topic)
        return names | deleting


class PipeliningProducer:
    """Sends several batches without waiting for the answer to the one before; each is tried until it is
    there.

    An idempotent one's are in order and once. A plain one's may be twice, and out of order.
    """

    def __init__(self, run: SwarmRun, number: int, plan: Producer) -> None:
        self._run = run
        self._plan = plan
        self._number = number
        self._name = f"producer-{number}"
        self._client = run.client_of(self._name, plan)
        self._producer_id = self._epoch = -1

    async def work(self) -> None:
        """Until the run stops."""
        run, rng = self._run, self._run.simulation.rng(self._name)
        if self._plan.idempotent:
            self._producer_id, self._epoch = await self._client.init_producer_id()
        sending: dict[int, asyncio.Task[None]] = {}
        count = 0
        while not run.is_stopping:
            # A broker remembers so many batches: none is sent that would make it forget one that is tried.
            while sending and count - min(sending) >= self._plan.in_flight:
                await sending.pop(min(sending))
            sending[count] = asyncio.create_task(self._send(count))
            count += 1
            await run.rest(rng, self._plan.pause_ms, lulls=self._plan.rests)
        await asyncio.gather(*sending.values())

    async def _send(self, count: int) -> None:
        deadline = self._run.simulation.loop.time() + 600
        tries = 0
        while True:
            value = b"%d-%d" % (self._number, count)
            if tries and not self._plan.idempotent:
                value += b"/%d" % tries  # what may be there twice is two records
            tries += 1
            try:
                return await self._try(count, value)
            except (KafkaError, BrokerUnavailable) as error:
                self._client.forget_leader(TOPIC, self._plan.partition)
                code = error.code if isinstance(error, KafkaError) else None
                if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:  # one that is tried again comes before it
                    await asyncio.sleep(0.1)
                else:
                    await pause_or_raise(error, deadline)

    async def _try(self, count: int, value: bytes) -> None:
        """Raises KafkaError, BrokerUnavailable: it may be there all the same."""
        plan, identity, process = self._plan, {}, self._name
        if plan.idempotent:
            identity = {
                "producer_id": self._producer_id, "producer_epoch": self._epoch, "base_sequence": count,
            }  # fmt: skip
        else:
            process = f"{self._name}.{count % plan.in_flight}"  # nothing keeps those of the others in order
        records = (Record(TOPIC, plan.partition, None, text(value)),)
        async with self._run.recorder.operation(
            process, Kind.SEND, records=records, is_durable=plan.acks == -1
        ) as sent:
            batch = make_batch([value], **identity)
            try:
                offset = await self._client.produce(TOPIC, plan.partition, batch, acks=plan.acks)
            except KafkaError as error:
                if error.code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    raise
            else:
                sent.records = at_offsets(records, offset)
