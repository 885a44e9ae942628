"""Members of all stock clients join, leave, are killed and paused while records flow, and so do brokers.

What must hold: every acknowledged record reaches a member; each generation of a group gives each partition to
one member; what was committed is there after a coordinator's death and move. Who owned what is read from the
coordinator's own log, ``__consumer_offsets``, which has every generation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from tests.integration.conftest import StartCluster
from tests.integration.support import confluent
from tests.integration.support.cluster import SESSION_TIMEOUT_MS, ProcessCluster
from tests.integration.support.group_log import owners_by_generation, owners_over_time
from tests.integration.support.group_member import SESSION_TIMEOUT_MS as MEMBER_TIMEOUT_MS
from tests.integration.support.group_member import MemberProcess
from tests.integration.support.spread_load import SpreadLoad

pytestmark = pytest.mark.minikafka_only

TOPIC, PARTITIONS = "records", 8
RECORDS_A_SECOND = 62
"""In each partition: whatever befalls a member, some are on their way to it."""
CLASSIC = ("confluent", "aiokafka", "kafka-python", "kcat")
MOVING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
REBALANCED_S = MEMBER_TIMEOUT_MS / 1000 + 90

StartMember = Callable[[str, str, str], MemberProcess]


@pytest.fixture
def start_member(tmp_path: Path) -> Iterator[StartMember]:
    """``start_member(client, bootstrap, group)``; all are killed at the end."""
    started: list[MemberProcess] = []

    def start(client: str, bootstrap: str, group: str) -> MemberProcess:
        member = MemberProcess(client, bootstrap, group, TOPIC, tmp_path / f"{group}-{len(started)}.out")
        started.append(member)
        return member

    yield start
    for member in started:
        member.resume()
        member.kill()


def make_cluster(start_cluster: StartCluster) -> ProcessCluster:
    properties = {
        "group.initial.rebalance.delay.ms": 200,
        "group.consumer.heartbeat.interval.ms": 1_000,
        "group.consumer.min.heartbeat.interval.ms": 1_000,
        "group.consumer.session.timeout.ms": MEMBER_TIMEOUT_MS,
        "group.consumer.min.session.timeout.ms": MEMBER_TIMEOUT_MS,
        "offsets.topic.num.partitions": 4,
        "log.cleaner.enable": False,  # the whole story stays in __consumer_offsets
    }
    cluster = start_cluster(properties=properties)
    confluent.make_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, replicas=3)
    return cluster


def steady_load(cluster: ProcessCluster) -> SpreadLoad:
    return SpreadLoad(
        cluster.bootstrap, TOPIC, partitions=PARTITIONS, records_a_second=PARTITIONS * RECORDS_A_SECOND
    )


def reads_on(member: MemberProcess) -> None:
    """Wait until it gets records that it did not have."""
    before = member.written_bytes()
    confluent.wait_until(
        lambda: member.written_bytes() > before,
        f"{member} reads; it says {member.errors()[-500:]}",
        deadline_s=REBALANCED_S,
    )


def committed(cluster: ProcessCluster, group: str) -> dict[int, int]:
    """Committed offsets by partition, as confluent-kafka's admin client sees them."""
    asked = ConsumerGroupTopicPartitions(
        group, [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    )
    client = confluent.admin(cluster.bootstrap)
    found = client.list_consumer_group_offsets([asked])[group].result(90).topic_partitions
    assert found is not None
    return {each.partition: each.offset for each in found}


def coordinator_of(cluster: ProcessCluster, group: str) -> int | None:
    """None while it moves: librdkafka asks once, and gives the error to its caller."""
    client = confluent.admin(cluster.bootstrap)
    try:
        coordinator = client.describe_consumer_groups([group])[group].result(90).coordinator
    except KafkaException as error:
        if error.args[0].code() in MOVING:
            return None
        raise
    assert coordinator is not None
    return int(coordinator.id)


def coordinator_now(cluster: ProcessCluster, group: str, *, other_than: int | None = None) -> int:
    """Wait until there is one, and another than ``other_than``."""
    found: list[int | None] = []

    def is_there() -> bool:
        found.append(coordinator_of(cluster, group))
        return found[-1] not in (None, other_than)

    confluent.wait_until(
        is_there, f"a coordinator other than {other_than}", deadline_s=SESSION_TIMEOUT_MS / 1000 + 60
    )
    assert found[-1] is not None
    return found[-1]


def described(cluster: ProcessCluster, group: str) -> str:
    """Who has which partitions, as the coordinator says."""
    found = confluent.admin(cluster.bootstrap).describe_consumer_groups([group])[group].result(90)
    members = {
        each.member_id: [
            sorted(part.partition for part in assignment.topic_partitions)
            for assignment in (each.assignment, each.target_assignment)
            if assignment is not None
        ]
        for each in found.members
    }
    return f"{found.state.name}, coordinator {found.coordinator.id}, assigned and to be assigned {members}"


def until_all_is_read(
    cluster: ProcessCluster, load: SpreadLoad, group: str, members: list[MemberProcess]
) -> None:
    """Wait until every acknowledged record has reached a member; a failure says which has not, where it lies,
    what is committed and what the members said."""

    def not_read() -> set[bytes]:
        return load.acked.keys() - {value for each in members for value in each.values()}

    try:
        confluent.wait_until(lambda: not not_read(), f"every record has reached {group}", deadline_s=60)
    except AssertionError as late:
        missing = sorted((*load.acked[value], value) for value in not_read())
        said = "\n".join(f"{each} running {each.is_running}: {each.errors()[-2_000:]}" for each in members)
        raise AssertionError(
            f"{late}: {len(missing)} not read, as (partition, offset, value): {missing[:20]}; "
            f"committed {committed(cluster, group)}; {described(cluster, group)}\n{said}"
        ) from late


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_members_of_all_clients_come_and_go(start_cluster: StartCluster, start_member: StartMember) -> None:
    cluster = make_cluster(start_cluster)
    groups: dict[str, list[MemberProcess]] = {"classic": [], "next": []}
    with steady_load(cluster) as load:
        for client in CLASSIC:
            groups["classic"].append(start_member(client, cluster.bootstrap, "classic"))
        for _ in range(3):
            groups["next"].append(start_member("confluent-consumer", cluster.bootstrap, "next"))
        for member in (*groups["classic"], *groups["next"]):
            reads_on(member)

        # One of each is killed, one pauses past its session and comes back, one more joins, one leaves.
        for members, another in ((groups["classic"], "confluent"), (groups["next"], "confluent-consumer")):
            killed, paused, *_ = members
            killed.kill()
            paused.pause()
            members.append(joined := start_member(another, cluster.bootstrap, members[2].group))
            reads_on(joined)
            paused.resume()
            reads_on(paused)
        for members in groups.values():
            members[2].leave()
            reads_on(members[-1])

        # The coordinator of each group dies, comes back, and is stopped cleanly.
        for group, members in groups.items():
            coordinator = coordinator_now(cluster, group)
            before = committed(cluster, group)
            cluster.brokers[coordinator].kill()
            coordinator_now(cluster, group, other_than=coordinator)
            after = committed(cluster, group)
            assert all(after[partition] >= offset for partition, offset in before.items()), (before, after)
            reads_on(members[-1])
            cluster.brokers[coordinator].start()
            cluster.wait_until_whole(TOPIC)
            moved = coordinator_now(cluster, group)
            cluster.brokers[moved].stop()
            reads_on(members[-1])
            cluster.brokers[moved].start()
            cluster.wait_until_whole(TOPIC)
    for group, members in groups.items():
        until_all_is_read(cluster, load, group, members)
        for member in members:
            if member.is_running:
                member.leave()
    generations = owners_by_generation(cluster, "classic")
    assert len(generations) >= 5, generations
    assert owners_over_time(cluster, "next") > 5


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_group_changes_its_protocol_while_it_reads(
    start_cluster: StartCluster, start_member: StartMember
) -> None:
    """One member after the other is replaced by one of the other protocol, there and back."""
    cluster = make_cluster(start_cluster)
    members: list[MemberProcess] = []

    def replace_with(client: str) -> None:
        members.append(start_member(client, cluster.bootstrap, "changing"))
        reads_on(members[-1])
        if len(members) > 2:
            members[-3].leave()
            reads_on(members[-1])

    with steady_load(cluster) as load:
        kinds = []
        for client in (
            "confluent",
            "kafka-python",
            *["confluent-consumer"] * 3,
            "aiokafka",
            "confluent",
            "kcat",
        ):
            replace_with(client)
            kinds.append(group_type(cluster, "changing"))
    assert kinds == ["classic"] * 2 + ["consumer"] * 4 + ["classic"] * 2, kinds
    until_all_is_read(cluster, load, "changing", members)
    assert owners_over_time(cluster, "changing") > 5


def group_type(cluster: ProcessCluster, group: str) -> str:
    client = confluent.admin(cluster.bootstrap)  # its answer dies with it
    listed = client.list_consumer_groups().result(90)
    assert not listed.errors, listed.errors
    return next(each.type.name.lower() for each in listed.valid if each.group_id == group)
