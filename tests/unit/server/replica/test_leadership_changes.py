"""What the controller says is done, one partition at a time, unless it is out of date."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.control import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    UNNAMED_LISTENER,
    LeaderAndIsrPartition,
    ListenerEndpoint,
    LiveBroker,
    UpdateMetadataRequest,
)
from minikafka.server.cluster.metadata_cache import PartitionMetadata, TopicMetadata
from minikafka.server.replica.delayed_operations import DelayedProduce, UncommittedAppend
from minikafka.server.replica.replica_fetchers import InitialFetchState, LeaderEndpoint
from minikafka.testing.simulation.disk import failing
from minikafka.types import NO_LEADER, LeaderEpoch, Offset, TopicPartition
from tests.unit.server.disk import Disk
from tests.unit.server.replicas import (
    BROKER_EPOCH,
    LISTENER,
    OTHER,
    THREE,
    TOPIC_ID,
    TP,
    TWO,
    Replicas,
    code,
    leader_batches,
    run,
    state_of,
)

NONE, STALE = ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def replicas(tmp_path: Path, disk: Disk) -> Iterator[Replicas]:
    made = Replicas(tmp_path, files=disk)
    yield made
    disk.fault = None
    made.close()


# Which partitions are here


def test_leaders_followers_and_others_are_told_apart(replicas: Replicas) -> None:
    replicas.lead(TP)
    replicas.follow(OTHER)
    replicas.broker_started(TWO, BROKER_EPOCH)
    manager = replicas.manager
    assert manager.partition(TP) is manager.hosted(TP)
    assert code(manager.partition, OTHER) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert manager.hosted(OTHER).leader_id == TWO
    nowhere = TopicPartition("nowhere", 0)
    assert code(manager.hosted, nowhere) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_of_other_brokers_is_led_elsewhere_and_not_unknown(replicas: Replicas) -> None:
    partition = PartitionMetadata(
        partition=0, leader=TWO, leader_epoch=LeaderEpoch(0), replicas=(TWO,), isr=(TWO,)
    )
    replicas.metadata.put_topic(TopicMetadata(name="orders", topic_id=TOPIC_ID, partitions=(partition,)))
    assert code(replicas.manager.hosted, TP) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_before_the_controller_has_told_no_partition_is_unknown(replicas: Replicas) -> None:
    """A client asks a broker that was restarted for what it led before."""
    replicas.metadata.controller_id = NO_LEADER
    assert code(replicas.manager.hosted, TP) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    replicas.broker_started(TWO, BROKER_EPOCH)
    assert code(replicas.manager.hosted, TP) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Controllers


def test_a_deposed_controller_is_not_obeyed(replicas: Replicas) -> None:
    replicas.lead(epoch=3, controller_epoch=5)
    assert replicas.become(state_of(epoch=9), controller_epoch=4) == [STALE]
    assert replicas.stop_replica(controller_epoch=4, delete=True) is STALE
    assert code(replicas.manager.accept_controller_epoch, 4) is STALE
    assert replicas.partition().leader_epoch == 3
    replicas.manager.accept_controller_epoch(6)
    assert replicas.become(state_of(epoch=9), controller_epoch=5) == [STALE]
    assert replicas.manager.controller_epoch == 6


# Leader epochs, topic ids, assignments


def test_each_partition_is_refused_for_its_own_reason(replicas: Replicas) -> None:
    replicas.lead(TP, epoch=3)
    assert replicas.become(
        state_of(TP, epoch=2),
        state_of(OTHER),
        state_of(TopicPartition("orders", 2), replicas=[2, 3], leader=2),
        state_of(TP, epoch=4, topic_id=UUID(int=9)),
        state_of(TP, epoch=3, leader=2),
    ) == [STALE, NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INCONSISTENT_TOPIC_ID, STALE]
    assert replicas.partition(TP).leader_epoch == 3 and replicas.partition(OTHER).is_leader
    assert TopicPartition("orders", 2) not in replicas.manager.partitions


def test_a_controller_may_say_the_same_again(replicas: Replicas) -> None:
    """It does so after a failover: its epoch goes into the state node with the next ISR."""
    replicas.lead(epoch=3)
    replicas.lead(epoch=3, controller_epoch=8)
    assert replicas.partition().controller_epoch == 8
    replicas.follow(OTHER, epoch=3, controller_epoch=8)
    replicas.follow(OTHER, epoch=3, controller_epoch=9)
    assert replicas.partition(OTHER).controller_epoch == 9
    assert replicas.fetchers.calls.count(("add", OTHER)) == 1, "its fetcher continues undisturbed"


def test_what_a_new_epoch_tells_the_log_is_noted_for_the_disk_thread(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[TopicPartition] = []
    monkeypatch.setattr(replicas.disk_work, "flush_closed", lambda log: noted.append(log.topic_partition))
    replicas.lead(epoch=3)
    replicas.lead(epoch=3)
    replicas.follow(OTHER, epoch=3)
    assert noted == [TP]
    replicas.lead(epoch=4)
    assert noted == [TP, TP]


# Followers


def test_a_follower_begins_at_its_log_end_with_the_new_leader(replicas: Replicas) -> None:
    partition = replicas.lead(epoch=0)
    replicas.append()
    replicas.follow(epoch=1)
    assert replicas.fetchers.fetching == {
        TP: InitialFetchState(TOPIC_ID, LeaderEndpoint(TWO, "broker-2", 9092), LeaderEpoch(1), Offset(1))
    }
    assert not partition.is_leader and partition.leader_epoch_start_offset is None
    assert (partition.isr, partition.replication.followers) == ((), {})


def test_a_log_without_any_epoch_begins_at_its_high_watermark(replicas: Replicas) -> None:
    log = replicas.follow(epoch=0).log
    log.append_as_follower(leader_batches(3, epoch=-1))
    replicas.follow(epoch=1)
    assert replicas.fetchers.fetching[TP].init_offset == 0


def test_the_fetcher_stops_before_anything_changes_and_begins_when_all_has(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = replicas.follow(leader=2, epoch=0)
    seen: list[tuple[str, int]] = []

    def look(what: str) -> Any:
        return lambda *_: seen.append((what, partition.leader_epoch))

    monkeypatch.setattr(replicas.fetchers, "remove", look("remove"))
    monkeypatch.setattr(replicas.manager.parked, "leadership_changed", look("wake"))
    monkeypatch.setattr(replicas.fetchers, "add", look("add"))
    replicas.follow(leader=3, epoch=1)
    assert seen == [("remove", 0), ("wake", 1), ("add", 1)]


def test_what_it_led_a_broker_that_leaves_does_not_follow(replicas: Replicas) -> None:
    replicas.lead(TP, epoch=0)
    replicas.follow(OTHER, leader=2, epoch=0)
    replicas.manager.is_leaving = True
    replicas.follow(TP, leader=2, epoch=1)
    replicas.follow(TP, leader=2, epoch=1)
    replicas.follow(OTHER, leader=3, epoch=1)
    assert list(replicas.fetchers.fetching) == [OTHER]
    assert code(replicas.manager.partition, TP) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_leader_does_not_fetch(replicas: Replicas) -> None:
    replicas.follow(epoch=0)
    replicas.lead(epoch=1)
    assert replicas.fetchers.fetching == {}


def test_r5_the_same_leader_in_a_later_epoch_is_fetched_from_again(replicas: Replicas) -> None:
    """KAFKA-7164: it may have lost records in between."""
    replicas.follow(leader=2, epoch=3)
    replicas.follow(leader=2, epoch=5)
    assert replicas.fetchers.calls.count(("add", TP)) == 2
    assert replicas.fetchers.fetching[TP].current_leader_epoch == 5


def test_without_a_leader_nothing_is_fetched_and_nothing_is_led(replicas: Replicas) -> None:
    partition = replicas.lead(epoch=0)
    replicas.become(state_of(leader=-1, epoch=1))
    assert not partition.is_leader and partition.leader_epoch == 1
    assert replicas.fetchers.fetching == {}


def test_a_leader_whose_address_comes_later_is_fetched_from_then(replicas: Replicas) -> None:
    replicas.become(state_of(leader=2, epoch=0), live_leaders=())
    assert replicas.fetchers.fetching == {} and replicas.partition().leader_id == TWO
    replicas.follow(leader=2, epoch=0)
    assert replicas.fetchers.fetching[TP].leader.node_id == TWO


def test_a_leader_is_reached_by_the_listener_of_this_broker_and_where_it_is_now(replicas: Replicas) -> None:
    """Kafka's LeaderAndIsr has one address of a leader, of the listener that the controller uses."""

    def reached(told: ListenerEndpoint, epoch: int) -> tuple[str, int]:
        leaders = (LiveBroker(TWO, -1, (told._replace(listener_name=UNNAMED_LISTENER),)),)
        replicas.become(state_of(leader=2, epoch=epoch), live_leaders=leaders)
        leader = replicas.fetchers.fetching[TP].leader
        return leader.host, leader.port

    ours, other = ListenerEndpoint(LISTENER, "inside", 9092), ListenerEndpoint("OLD", "outside", 9093)
    replicas.metadata.update(
        UpdateMetadataRequest(THREE, 1, BROKER_EPOCH, (), (LiveBroker(TWO, 7, (ours, other)),))
    )
    assert reached(ours, epoch=0) == ("inside", 9092)
    assert reached(other, epoch=1) == ("inside", 9092), "the controller's listener is another one"
    assert reached(ours._replace(port=9999), epoch=2) == ("inside", 9999), "it has moved"
    replicas.metadata.update(UpdateMetadataRequest(THREE, 1, BROKER_EPOCH, (), ()))
    assert reached(ours, epoch=3) == ("inside", 9092), "the metadata do not have it yet"


def test_idle_fetchers_end_with_each_request(replicas: Replicas) -> None:
    replicas.lead()
    assert replicas.fetchers.calls[-1] == ("end_idle",)
    run(replicas.manager.close())
    assert replicas.fetchers.is_closed


def test_what_a_full_request_does_not_name_is_set_aside_and_kept(
    replicas: Replicas, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replicas.follow(TP)
    replicas.lead(OTHER)
    written = leader_batches(3)
    replicas.partition(TP).append_as_follower(written, current_leader_epoch=LeaderEpoch(0))
    pending = replicas.fetch(OTHER, TP, rack="r")
    with caplog.at_level(logging.WARNING):
        assert replicas.become(state_of(OTHER, epoch=1), is_full=True) == [NONE]
    assert TP not in replicas.manager.partitions and TP not in replicas.fetchers.fetching
    assert OTHER in replicas.manager.partitions and not pending.is_waiting
    (stray,) = tmp_path.glob("orders-0*")
    assert stray.name.endswith("-stray") and (stray / f"{0:020d}.log").read_bytes() == written
    assert "orders-0 is no replica of this broker any more" in caplog.text and stray.name in caplog.text
    assert "remove it yourself" in caplog.text and "orders-1" not in caplog.text
    replicas.clock.advance(10 * replicas.config.file_delete_delay_ms)
    assert replicas.log_manager.take_removals() == [], "a stray is never removed"
    assert replicas.become(state_of(TP, epoch=2), is_full=False) == [NONE], "it may come back, empty"
    assert replicas.partition(TP).log.log_end_offset == 0


def test_a_request_that_is_not_full_sets_nothing_aside(replicas: Replicas) -> None:
    replicas.lead(TP)
    replicas.become(state_of(OTHER))
    assert TP in replicas.manager.partitions


def test_a_full_request_makes_room_for_a_new_topic_of_an_old_name(replicas: Replicas, tmp_path: Path) -> None:
    replicas.lead(TP)
    replicas.append(at=TP)
    newer = UUID(int=8, version=4)
    assert replicas.become(state_of(TP, topic_id=newer)) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert replicas.become(state_of(TP, topic_id=newer), is_full=True) == [NONE]
    assert replicas.partition(TP).topic_id == newer and replicas.partition(TP).log.log_end_offset == 0
    assert len(list(tmp_path.glob("orders-0.*-stray"))) == 1


def test_a_stray_that_is_being_moved_is_set_aside_in_both_directories(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path / "a", others=[tmp_path / "b"])
    source = Path(replicas.lead(TP).log.directory).parent
    target = tmp_path / ("b" if source.name == "a" else "a")
    replicas.manager.alter_log_dir(TP, str(target))
    replicas.become(state_of(OTHER), is_full=True)
    for directory in (source, target):
        assert [path.name[-6:] for path in directory.glob("orders-0*")] == ["-stray"]
    assert replicas.log_manager.future_logs == {}
    replicas.close()


# What waits


def test_a_deposed_leader_answers_everybody_who_waits(replicas: Replicas) -> None:
    replicas.lead(epoch=0)
    pending = replicas.fetch()
    replicas.follow(epoch=1)
    assert not pending.is_waiting
    assert replicas.answer[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


# Disks


def test_a_leader_that_was_moved_away_stops_when_everybody_hears_of_its_successor(replicas: Replicas) -> None:
    replicas.lead(epoch=3)
    write = UncommittedAppend(TP, replicas.append(acks=-1))
    told: list[str] = []
    DelayedProduce(replicas.manager, [write], lambda: told.append("producer"), timeout_ms=1000).wait()
    replicas.manager.resign_moved_leaders(
        [state_of(leader=TWO, epoch=4, isr=(TWO, THREE), replicas=(TWO, THREE))]
    )
    assert told == ["producer"]
    assert write.error is not None and write.error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (replicas.partition().leader_id, replicas.partition().leader_epoch) == (TWO, 4)
    assert replicas.stop_replica(delete=True, leader_epoch=LeaderEpoch(4)) is NONE


@pytest.mark.parametrize(
    "other",
    [
        state_of(leader=TWO, epoch=4),
        state_of(leader=TWO, epoch=3, replicas=(TWO, THREE)),
        state_of(leader=-1, epoch=4, replicas=(TWO, THREE)),
        state_of(leader=LEADER_DURING_DELETE, epoch=4, replicas=(TWO, THREE)),
        state_of(leader=TWO, epoch=4, replicas=(TWO, THREE), topic_id=UUID(int=9)),
        state_of(OTHER, leader=TWO, epoch=4, replicas=(TWO, THREE)),
    ],
    ids=["still a replica", "no later epoch", "no leader", "being deleted", "another topic", "not here"],
)
def test_nothing_else_that_everybody_hears_ends_a_leader(
    replicas: Replicas, other: LeaderAndIsrPartition
) -> None:
    replicas.lead(epoch=3)
    replicas.manager.resign_moved_leaders([other])
    assert replicas.manager.partition(TP).leader_epoch == 3


def test_a_log_that_cannot_be_made_is_a_storage_error_of_its_partition(
    replicas: Replicas, disk: Disk
) -> None:
    disk.fault = failing("create", "/orders-0/")
    assert replicas.become(state_of(TP), state_of(OTHER)) == [ErrorCode.KAFKA_STORAGE_ERROR, NONE]
    assert code(replicas.manager.hosted, TP) is ErrorCode.KAFKA_STORAGE_ERROR
    disk.fault = None
    assert replicas.become(state_of(TP, epoch=1, is_new=False)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert replicas.become(state_of(TP, epoch=1)) == [NONE], "a new topic's log cannot be on a failed disk"
    assert replicas.stop_replica(delete=True, leader_epoch=EPOCH_DURING_DELETE) is NONE


def test_partitions_of_a_failed_directory_are_offline_and_not_fetched(
    replicas: Replicas, tmp_path: Path
) -> None:
    replicas.follow(TP)
    lost = replicas.manager.take_directory_offline(str(tmp_path), reason="smoke")
    assert lost == [TP] and replicas.fetchers.fetching == {}
    assert replicas.become(state_of(TP, epoch=1, is_new=False)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert replicas.stop_replica() is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_leader_epoch_that_cannot_be_written_is_not_taken(replicas: Replicas, disk: Disk) -> None:
    partition = replicas.follow(epoch=0)
    disk.fault = failing("write", "leader-epoch-checkpoint")
    assert replicas.become(state_of(epoch=1)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert not partition.is_leader and partition.leader_epoch == 0


# StopReplica


def test_a_stopped_replica_is_not_fetched_any_more_but_stays(replicas: Replicas) -> None:
    replicas.follow(epoch=3)
    assert replicas.stop_replica(leader_epoch=LeaderEpoch(3)) is NONE
    assert replicas.fetchers.fetching == {} and TP in replicas.manager.partitions


def test_a_deleted_replica_is_gone_with_its_log(replicas: Replicas) -> None:
    replicas.lead(epoch=3)
    directory = Path(replicas.partition().log.directory)
    pending = replicas.fetch()
    assert replicas.stop_replica(delete=True, leader_epoch=EPOCH_DURING_DELETE) is NONE
    assert TP not in replicas.manager.partitions and not directory.exists()
    assert not pending.is_waiting
    assert replicas.answer[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_stop_of_an_earlier_epoch_is_fenced(replicas: Replicas) -> None:
    replicas.lead(epoch=3)
    stop = replicas.stop_replica
    assert stop(delete=True, leader_epoch=LeaderEpoch(2)) is ErrorCode.FENCED_LEADER_EPOCH
    assert stop(leader_epoch=LeaderEpoch(4)) is NONE, "the controller is ahead"
    assert stop() is NONE, "an old controller names no epoch"
    assert stop(delete=True, leader_epoch=LeaderEpoch(3)) is NONE


def test_a_partition_that_is_not_here_is_easily_stopped_and_a_log_left_over_is_deleted(
    replicas: Replicas,
) -> None:
    assert replicas.stop_replica() is NONE
    directory = Path(replicas.log_manager.get_or_create(TP, topic_id=TOPIC_ID, is_new=True).directory)
    assert replicas.stop_replica(delete=True) is NONE
    assert not directory.exists()


def test_a_directory_that_cannot_be_renamed_is_a_storage_error(replicas: Replicas, disk: Disk) -> None:
    replicas.lead()
    disk.fault = failing("rename", "orders-0")
    assert replicas.stop_replica(delete=True) is ErrorCode.KAFKA_STORAGE_ERROR
    assert TP not in replicas.manager.partitions
