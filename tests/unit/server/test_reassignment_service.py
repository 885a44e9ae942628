"""Requests to move partitions: checked, and written into the topics' nodes, each for itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from minikafka.coordination import paths
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import ConnectionLossError
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.control import ListenerEndpoint, LiveBroker, UpdateMetadataRequest
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.topic_service import ReassignmentService
from minikafka.server.topic_store import ATTEMPTS_MAX
from minikafka.types import BrokerId, ReplicaAssignment, TopicPartition
from tests.unit.server.virtual_store import stores
from tests.unit.server.virtual_time import in_virtual_time

ONE, TWO, THREE, FOUR = map(BrokerId, (1, 2, 3, 4))
A0, A1, A2 = (TopicPartition("a", number) for number in range(3))
OLD = ReplicaAssignment((ONE, TWO))
MOVING = ReplicaAssignment((THREE, ONE, TWO), adding=(THREE,), removing=(TWO,))
ID = UUID(int=7)


class Cluster:
    """A store with topics, and the service of a broker that knows 1, 2 and 3 to live."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        metadata = MetadataCache()
        endpoints = (ListenerEndpoint("PLAINTEXT", "localhost", 9092),)
        live = tuple(LiveBroker(each, 70 + each, endpoints, None) for each in (ONE, TWO, THREE))
        metadata.update(UpdateMetadataRequest(ONE, 1, 70, (), live))
        self.service = ReassignmentService(store=store, metadata=metadata)

    async def put(self, name: str, *partitions: ReplicaAssignment) -> None:
        data = paths.encode_topic(paths.TopicAssignment(ID, dict(enumerate(partitions))))
        path = paths.topic_path(name)
        if await self.store.exists(path) is None:
            await self.store.ensure_path(path)
        await self.store.set(path, data)

    async def stored(self, name: str = "a") -> list[ReplicaAssignment]:
        decoded = paths.decode_topic(name, (await self.store.get(paths.topic_path(name))).data)
        assert decoded.topic_id == ID
        return list(decoded.partitions.values())

    async def version(self, name: str = "a") -> int:
        return (await self.store.get(paths.topic_path(name))).stat.version

    async def alter(self, targets: dict[TopicPartition, Any], **options: Any) -> dict[TopicPartition, Any]:
        """The error code of each, None for none."""
        outcomes = await self.service.alter(targets, **options)
        assert list(outcomes) == list(targets)
        assert all(error is None or error.code.value for error in outcomes.values())
        return {each: error and error.code for each, error in outcomes.items()}


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[Cluster]:
    async with stores(directory) as store:
        await store.ensure_path(paths.TOPICS)
        await store.ensure_path(paths.DELETE_TOPICS)
        made = Cluster(store)
        await made.put("a", OLD, OLD, OLD)
        yield made


@in_virtual_time
async def test_the_way_to_the_target_is_written_and_is_under_way_from_then_on(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        assert await made.alter({A0: (THREE, ONE)}) == {A0: None}
        assert await made.stored() == [MOVING, OLD, OLD]
        assert await made.service.ongoing() == {A0: MOVING}
        assert await made.service.ongoing([A0, A1, TopicPartition("x", 0)]) == {A0: MOVING}
        assert await made.service.ongoing([A1]) == {}
        assert await made.service.ongoing([]) == {}


@in_virtual_time
async def test_several_partitions_of_a_topic_are_one_write(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        before = await made.version()
        await made.put("b", OLD)
        b0 = TopicPartition("b", 0)
        outcomes = await made.alter({A0: (THREE, ONE), b0: (TWO, THREE), A2: (THREE, ONE)})
        assert outcomes == {A0: None, b0: None, A2: None}
        assert await made.stored() == [MOVING, OLD, MOVING]
        assert await made.version() == before + 1
        assert list(await made.service.ongoing()) == [A0, A2, b0]


@pytest.mark.parametrize(
    ("at", "target", "code"),
    [
        (TopicPartition("x", 0), (ONE,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("a", 3), (ONE,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("a", -1), (ONE,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("x", 0), None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("doomed", 0), (ONE, THREE), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (A1, (), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (A1, (ONE, TWO, ONE), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (A1, (ONE, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (A1, (ONE, FOUR), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (A1, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
@in_virtual_time
async def test_a_request_that_cannot_be_has_its_error_and_keeps_back_no_other(
    tmp_path: Path, at: TopicPartition, target: Any, code: ErrorCode
) -> None:
    async with cluster(tmp_path) as made:
        await made.put("doomed", OLD)
        await made.store.ensure_path(paths.delete_topic_path("doomed"))
        assert await made.alter({at: target, A0: (THREE, ONE)}) == {at: code, A0: None}
        assert await made.stored() == [MOVING, OLD, OLD]
        assert await made.stored("doomed") == [OLD]


@in_virtual_time
async def test_a_dead_broker_may_stay_but_not_come(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        half_dead = ReplicaAssignment((ONE, FOUR))
        await made.put("a", half_dead, OLD)
        outcomes = await made.alter({A0: (FOUR, TWO), A1: (ONE, FOUR)})
        assert outcomes == {A0: None, A1: ErrorCode.INVALID_REPLICA_ASSIGNMENT}
        assert await made.stored() == [half_dead.reassign_to((FOUR, TWO)), OLD]


@in_virtual_time
async def test_what_is_requested_twice_or_is_there_already_is_no_write(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.put("a", MOVING, OLD)
        before = await made.version()
        assert await made.alter({A0: (THREE, ONE), A1: (ONE, TWO)}) == {A0: None, A1: None}
        assert (await made.stored(), await made.version()) == ([MOVING, OLD], before)


@in_virtual_time
async def test_another_order_is_another_preferred_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        assert await made.alter({A0: (TWO, ONE)}) == {A0: None}
        assert await made.stored() == [ReplicaAssignment((TWO, ONE)), OLD, OLD]
        assert await made.service.ongoing() == {}


@in_virtual_time
async def test_a_reassignment_is_taken_back_and_what_it_added_stays_named_until_it_is_stopped(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as made:
        await made.put("a", MOVING)
        assert await made.alter({A0: None}) == {A0: None}
        (back,) = await made.stored()
        assert (back.target, back.adding, back.removing) == (OLD.replicas, (THREE,), (THREE,))
        assert await made.service.ongoing() == {A0: back}
        assert await made.alter({A0: None}) == {A0: None}
        assert await made.stored() == [back]


@in_virtual_time
async def test_another_target_takes_the_place_of_the_first(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.put("a", MOVING)
        assert await made.alter({A0: (TWO, ONE)}) == {A0: None}
        given_up = ReplicaAssignment((TWO, ONE, THREE), adding=(THREE,), removing=(THREE,))
        assert await made.stored() == [given_up]


@in_virtual_time
async def test_another_number_of_replicas_can_be_forbidden_and_counts_from_where_it_goes(
    tmp_path: Path,
) -> None:
    """KIP-860."""
    async with cluster(tmp_path) as made:
        growing = OLD.reassign_to((ONE, TWO, THREE))
        await made.put("a", OLD, OLD, growing)
        requests = {A0: (THREE,), A1: (ONE, THREE), A2: (TWO, ONE, THREE)}
        outcomes = await made.alter(requests, allow_replication_factor_change=False)
        assert outcomes == {A0: ErrorCode.INVALID_REPLICATION_FACTOR, A1: None, A2: None}
        error = (await made.service.alter({A0: (THREE,)}, allow_replication_factor_change=False))[A0]
        assert error is not None and "from 2 to 1" in error.message
        assert await made.alter({A0: (THREE,)}) == {A0: None}


class Racing:
    """A store in which another client writes first, so many times."""

    def __init__(self, made: Cluster, times: int) -> None:
        self._made, self._set, self.times = made, made.store.set, times

    async def set(self, path: str, data: bytes, version: int = -1) -> Any:
        if self.times:
            self.times -= 1
            grown = [*await self._made.stored(), OLD]
            theirs = paths.encode_topic(paths.TopicAssignment(ID, dict(enumerate(grown))))
            await self._set(path, theirs)
        return await self._set(path, data, version)


@in_virtual_time
async def test_a_lost_race_is_run_again_upon_what_the_other_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path) as made:
        racing = Racing(made, ATTEMPTS_MAX - 1)
        monkeypatch.setattr(made.store, "set", racing.set)
        assert await made.alter({A0: (THREE, ONE), A1: ()}) == {
            A0: None,
            A1: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        }
        assert racing.times == 0
        stored = await made.stored()
        assert (stored[0], len(stored)) == (MOVING, 3 + ATTEMPTS_MAX - 1)
        racing.times = ATTEMPTS_MAX
        assert await made.alter({A2: (THREE, ONE)}) == {A2: ErrorCode.REQUEST_TIMED_OUT}
        assert (await made.stored())[2] == OLD


@in_virtual_time
async def test_a_store_that_is_away_is_a_time_out_of_each_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path) as made:

        async def away(*args: Any, **options: Any) -> Any:
            raise ConnectionLossError("no answer")

        with monkeypatch.context() as patch:
            patch.setattr(made.store, "set", away)
            assert await made.alter({A0: (THREE, ONE)}) == {A0: ErrorCode.REQUEST_TIMED_OUT}
        with monkeypatch.context() as patch:
            patch.setattr(made.store, "get", away)
            assert await made.alter({A0: None}) == {A0: ErrorCode.REQUEST_TIMED_OUT}
            with pytest.raises(KafkaError) as caught:
                await made.service.ongoing()
            assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


@in_virtual_time
async def test_a_damaged_topic_has_its_error_and_spoils_no_other(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.store.ensure_path(paths.topic_path("b"))
        b0 = TopicPartition("b", 0)
        await made.store.set(paths.topic_path("b"), b"no json")
        outcomes = await made.alter({b0: (ONE,), A0: (THREE, ONE)})
        assert outcomes == {b0: ErrorCode.UNKNOWN_SERVER_ERROR, A0: None}
        assert await made.service.ongoing() == {A0: MOVING}
