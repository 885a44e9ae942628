"""Two brokers of Apache Kafka 3.9 and two of this project in one cluster on ZooKeeper: what a controller of
either kind begins, one of the other kind goes on with; each leads and follows the other.

Brokers 1 and 3 are Apache Kafka's, 2 and 4 are ours. ``hand_over`` stops one kind in the middle of things
until the other has become controller; then the old controller wakes up, deposed, or is started again if it
was killed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.support.mixed_cluster import (
    Kind,
    MixedCluster,
    is_whole,
    mixed_cluster,
    until,
)

pytestmark = [pytest.mark.java, pytest.mark.minikafka_only]

KINDS: dict[int, Kind] = {1: "kafka", 2: "ours", 3: "kafka", 4: "ours"}
OTHER: dict[Kind, Kind] = {"kafka": "ours", "ours": "kafka"}


@pytest.fixture(scope="module", params=[1, 2], ids=["Kafka first", "ours first"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MixedCluster]:
    directory = tmp_path_factory.mktemp("mixed")
    with mixed_cluster(directory, KINDS, first=request.param) as running:
        yield running


@pytest.fixture(autouse=True)
def _repaired(cluster: MixedCluster) -> Iterator[None]:
    """One test that fails fails alone."""
    yield
    cluster.repair()


def values(count: int, name: str = "v", *, size: int = 0) -> list[bytes]:
    return [f"{name}-{number}".encode().ljust(size, b".") for number in range(count)]


def hand_over(cluster: MixedCluster, *, kill: bool = False) -> None:
    cluster.hand_over(cluster.of_kind(OTHER[cluster.kinds[cluster.controller()]]), kill=kill)


def test_a_throttled_reassignment_goes_on_under_the_other_controller(cluster: MixedCluster) -> None:
    """From one broker of each kind to the others; a second one is cancelled when its controller is dead."""
    cluster.create("moves", [[1, 2], [2, 1]])
    for partition in (0, 1):
        cluster.produce("moves", values(40, size=50_000), partition=partition)
    cluster.throttle("moves", 400_000)
    cluster.reassign("moves", {0: [3, 4], 1: [4, 3]})
    cluster.wait_until("moves", lambda states: all(len(each.replicas) == 4 for each in states.values()))
    hand_over(cluster)
    cluster.throttle("moves", None)
    cluster.wait_until(
        "moves",
        lambda states: is_whole(states) and [states[0].replicas, states[1].replicas] == [[3, 4], [4, 3]],
    )
    for partition in (0, 1):
        cluster.wait_until_equal("moves", partition, (3, 4))
        until(lambda: not cluster.log(1, "moves", 0) and not cluster.log(2, "moves", 1), "old replicas go")
    cluster.throttle("moves", 100_000)
    cluster.reassign("moves", {0: [1, 2]})
    cluster.wait_until("moves", lambda states: len(states[0].replicas) == 4)
    hand_over(cluster, kill=True)
    cluster.reassign("moves", {0: None})
    cluster.wait_until(
        "moves", lambda states: bool(states) and states[0].replicas == [3, 4] and is_whole(states)
    )
    cluster.throttle("moves", None)
    cluster.produce("moves", values(5, "later"), partition=0)
    cluster.wait_until_equal("moves", 0, (3, 4))


def test_a_topic_is_deleted_under_the_other_controller_with_brokers_that_were_down(
    cluster: MixedCluster,
) -> None:
    """One of each kind is down when the topic is deleted, and finds it gone when it comes back."""
    cluster.create("gone", [[1, 2, 3, 4], [4, 3, 2, 1]])
    cluster.produce("gone", values(10), partition=0)
    cluster.produce("gone", values(10), partition=1)
    down = [3, 4]
    cluster.kill(*down)
    cluster.wait_until(
        "gone", lambda states: all(not {3, 4} & {each.leader, *each.isr} for each in states.values())
    )
    cluster.delete("gone")
    hand_over(cluster)
    cluster.start(*down)
    cluster.wait_until("gone", lambda states: not states)
    for node_id in KINDS:
        until(lambda node_id=node_id: not cluster.log(node_id, "gone", 0), f"{node_id} has no log of it")  # type: ignore[misc]
    until(lambda: cluster.is_gone("gone"), "the deletion is over")
    cluster.create("gone", [[2, 3]])
    cluster.produce("gone", values(3, "again"), partition=0)
    cluster.wait_until_equal("gone", 0, (2, 3))


def test_followers_leave_the_isr_and_an_unclean_leader_cuts_the_other_kind(cluster: MixedCluster) -> None:
    """A paused follower of each kind is behind, and leaves the ISR of a leader of the other kind. That leader
    is killed, and only an unclean election gives the partition a leader; what was written without it is cut
    off."""
    if cluster.controller() != 4:
        cluster.hand_over((4,))
    cluster.kill(1)  # Kafka's broker tells of ISRs to the controller that it found first, until that answers
    cluster.start(1)
    cluster.create("cut", [[1, 2], [4, 3]])
    for partition in (0, 1):
        cluster.produce("cut", values(10), partition=partition)
        cluster.wait_until_equal("cut", partition, cluster.partitions("cut", 1)[partition].replicas)
    cluster.pause([2, 3])
    for partition in (0, 1):  # the answer to a follower's last Fetch, which it finds when it wakes up
        cluster.produce("cut", values(1, "behind"), partition=partition, acks="1")
    until(
        lambda: [each.isr for each in cluster.partitions("cut", 1).values()] == [[1], [4]],
        "the leaders shrink the ISRs",
        seen=lambda: (cluster.controller(), cluster.partitions("cut", 1), cluster.partitions("cut", 4)),
    )
    for partition in (0, 1):
        cluster.produce("cut", values(5, "alone"), partition=partition)
    cluster.kill(1, 4)
    cluster.go_on([2, 3])
    cluster.wait_until("cut", lambda states: all(each.leader == -1 for each in states.values()))
    cluster.elect("cut", (0, 1), unclean=True)
    cluster.wait_until("cut", lambda states: [states[0].leader, states[1].leader] == [2, 3])
    for partition in (0, 1):
        cluster.produce("cut", values(3, "after"), partition=partition)
    cluster.start(1, 4)
    cluster.wait_until_whole("cut")
    for partition, replicas in ((0, (1, 2)), (1, (4, 3))):
        cluster.wait_until_equal("cut", partition, replicas)
        newest = set(cluster.newest_values(replicas[0], "cut", partition).values())
        assert {b"after-0", b"after-1", b"after-2", b"v-3"} <= newest
        assert not any((value or b"").startswith(b"alone") for value in newest)
    hand_over(cluster)
    cluster.elect("cut", (0, 1))
    cluster.wait_until("cut", lambda states: [states[0].leader, states[1].leader] == [1, 4])


def test_groups_and_transactions_go_on_when_all_brokers_of_one_kind_are_killed(
    cluster: MixedCluster,
) -> None:
    """Each group and each transactional id has a coordinator of the other kind then, with all it knew."""
    cluster.create("orders", [[1, 2, 3], [2, 3, 4], [3, 4, 1], [4, 1, 2]])
    names = ("a", "b")

    def work(step: str) -> None:
        for name in names:
            cluster.transact("orders", f"tx-{name}", values(8, f"{step}-{name}"))
        wanted = sorted(each for name in names for each in values(8, f"{step}-{name}"))
        for name in names:
            assert sorted(cluster.consume("orders", f"group-{name}", len(wanted))) == wanted

    work("first")
    for kind, other in OTHER.items():
        for topic in ("orders", "__consumer_offsets", "__transaction_state"):
            cluster.wait_until_whole(topic)
        cluster.kill(*cluster.of_kind(kind))
        work(f"on {other} alone")
        cluster.start(*cluster.of_kind(kind))


def test_a_follower_takes_what_the_other_kind_has_compacted(cluster: MixedCluster) -> None:
    """Ours compacts at once, Kafka's later: their replicas differ in bytes, and are the same by key."""
    configs = {
        "cleanup_policy": "compact",
        "segment_bytes": 1024 * 1024,
        "min_cleanable_dirty_ratio": 0.01,
        "max_compaction_lag_ms": 1_000,
    }
    cluster.create("keys", [[1, 2], [2, 1]], **configs)
    for partition in (0, 1):
        for name in ("a", "b", "c"):
            cluster.produce("keys", values(50, name, size=30_000), partition=partition)
    until(
        lambda: all(len(cluster.log(2, "keys", partition)) < 2_500_000 for partition in (0, 1)),
        "ours has compacted",
    )
    cluster.reassign("keys", {0: [1, 4], 1: [2, 3]})
    cluster.wait_until(
        "keys",
        lambda states: is_whole(states) and states[0].replicas == [1, 4] and states[1].replicas == [2, 3],
    )
    wanted = {b"%d" % number: f"c-{40 + number}".encode().ljust(30_000, b".") for number in range(10)}
    for partition, replicas in ((0, (1, 4)), (1, (2, 3))):
        for node_id in replicas:
            until(
                lambda node_id=node_id, partition=partition: (  # type: ignore[misc]
                    cluster.newest_values(node_id, "keys", partition) == wanted
                ),
                f"{node_id} has the newest of each key",
            )


def test_a_broker_of_each_kind_loses_a_log_directory(cluster: MixedCluster) -> None:
    """The other kind takes over what was led there, and a client sees the replicas as out of sync."""
    cluster.create("disk", [[1, 2], [4, 3]])
    for partition in (0, 1):
        cluster.produce("disk", values(10), partition=partition)
    cluster.lose_directory(1, "disk", 0)
    cluster.lose_directory(4, "disk", 1)
    cluster.wait_until(
        "disk", lambda states: [states[0].leader, states[1].leader] == [2, 3] and states[0].isr == [2]
    )
    for partition in (0, 1):
        cluster.produce("disk", values(5, "later"), partition=partition)
    assert all(cluster.brokers[node_id].is_running() for node_id in KINDS)
