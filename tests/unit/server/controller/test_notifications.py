"""What others leave in the store for the controller: read, watched, and taken away when it is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.controller.events import (
    IsrChangesAnnounced,
    LogDirEventsAnnounced,
    PreferredElectionsAsked,
    ReassignmentsAsked,
    TopicDeletionsChanged,
)
from minikafka.coordination import paths
from minikafka.types import BrokerId
from tests.unit.server.controller_term import A0, A1, ONE, TWO, ControllerTerm, controller_term
from tests.unit.server.virtual_time import in_virtual_time

THREE = BrokerId(3)
REASSIGN, ELECT = paths.REASSIGN_PARTITIONS, paths.PREFERRED_REPLICA_ELECTION
BOTH = {A0: (THREE, ONE), A1: (TWO, THREE)}


async def ask(term: ControllerTerm, path: str, data: bytes) -> None:
    """As an operator does: with a node, or over the one that is there."""
    if await term.theirs.exists(path) is None:
        await term.theirs.create(path, data)
    else:
        await term.theirs.set(path, data)


@in_virtual_time
async def test_deletions_are_read_and_watched(tmp_path: Path) -> None:
    async with controller_term(tmp_path) as term:
        assert await term.store.notifications.topic_deletions() == []
        await term.theirs.create(paths.delete_topic_path("a"))
        assert await term.heard() == [TopicDeletionsChanged()]
        assert await term.store.notifications.topic_deletions() == ["a"]


@in_virtual_time
async def test_announcements_are_taken_away_and_damaged_ones_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with controller_term(tmp_path) as term:
        assert await term.store.notifications.take_isr_changes() == []
        assert await term.store.notifications.take_log_dir_events() == []
        for data in (paths.encode_partitions([A1]), b"{", paths.encode_partitions([A1, A0])):
            await term.theirs.create(paths.ISR_CHANGE_PREFIX, data, sequential=True)
        for data in (paths.encode_log_dir_event(2), b"}", paths.encode_log_dir_event(1)):
            await term.theirs.create(paths.LOG_DIR_EVENT_PREFIX, data, sequential=True)
        assert set(await term.heard()) == {IsrChangesAnnounced(), LogDirEventsAnnounced()}
        assert await term.store.notifications.take_isr_changes() == [A0, A1]
        assert await term.store.notifications.take_log_dir_events() == [ONE, TWO]
        assert "isr_change_0000000001" in caplog.text and "log_dir_event_0000000001" in caplog.text
        assert (
            await term.store.notifications.take_isr_changes()
            == []
            == await term.store.notifications.take_log_dir_events()
        )


# /admin/reassign_partitions


@in_virtual_time
async def test_reassignments_are_told_of_when_the_node_comes_changes_and_goes(tmp_path: Path) -> None:
    async with controller_term(tmp_path) as term:
        read = term.store.notifications.reassignments
        assert await read() == {}
        await ask(term, REASSIGN, paths.encode_reassignment({A0: (TWO,)}))
        assert await term.heard() == [ReassignmentsAsked()]
        assert await read() == {A0: (TWO,)}
        await ask(term, REASSIGN, paths.encode_reassignment(BOTH))
        assert await term.heard() == [ReassignmentsAsked()]
        assert await read() == BOTH
        await term.theirs.delete(REASSIGN)
        assert await term.heard() == [ReassignmentsAsked()]
        assert await read() == {}
        await ask(term, REASSIGN, paths.encode_reassignment(BOTH))
        assert await term.heard() == [ReassignmentsAsked()]


@in_virtual_time
async def test_what_is_done_leaves_the_node_and_the_last_one_takes_it_away(tmp_path: Path) -> None:
    async with controller_term(tmp_path) as term:
        noted = term.store.notifications
        await ask(term, REASSIGN, paths.encode_reassignment(BOTH))
        await noted.reassignments()
        await noted.leave_reassignments({A1: BOTH[A1]})
        left = (await term.theirs.get(REASSIGN)).data
        assert paths.decode_reassignment(left) == {A1: BOTH[A1]}
        await noted.leave_reassignments({})  # without reading again what it has written itself
        assert await term.theirs.exists(REASSIGN) is None
        await noted.leave_reassignments({A0: BOTH[A0]})  # it was not asked for
        assert await term.theirs.exists(REASSIGN) is None


@in_virtual_time
async def test_what_stays_is_not_written_again(tmp_path: Path) -> None:
    """Each write would be an event, which would lead to the next write."""
    async with controller_term(tmp_path) as term:
        await ask(term, REASSIGN, paths.encode_reassignment(BOTH))
        await term.store.notifications.reassignments()
        await term.store.notifications.leave_reassignments(BOTH)
        assert await term.heard() == []
        assert (await term.theirs.get(REASSIGN)).stat.version == 0


@pytest.mark.parametrize("left", [{}, {A0: BOTH[A0]}])
@pytest.mark.parametrize("is_new_node", [False, True])
@in_virtual_time
async def test_what_was_asked_for_since_it_was_read_is_not_lost(
    tmp_path: Path, is_new_node: bool, left: dict[object, object]
) -> None:
    async with controller_term(tmp_path) as term:
        noted = term.store.notifications
        await ask(term, REASSIGN, paths.encode_reassignment({A0: BOTH[A0]}))
        assert await noted.reassignments() == {A0: BOTH[A0]}
        if is_new_node:
            await term.theirs.delete(REASSIGN)
        await ask(term, REASSIGN, paths.encode_reassignment(BOTH))
        await noted.leave_reassignments(left)  # type: ignore[arg-type]
        assert paths.decode_reassignment((await term.theirs.get(REASSIGN)).data) == BOTH
        assert set(await term.heard()) == {ReassignmentsAsked()}
        assert await noted.reassignments() == BOTH


@in_virtual_time
async def test_a_damaged_request_is_no_request_is_named_once_and_stays_for_its_author(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with controller_term(tmp_path) as term:
        noted = term.store.notifications
        await ask(term, REASSIGN, paths.encode_reassignment(BOTH))
        await noted.reassignments()
        await ask(term, REASSIGN, b'{"version":1,"partitions":[{"topic":"a"')
        for _ in range(2):
            assert await noted.reassignments() == {}
            await noted.leave_reassignments({})
            await noted.leave_reassignments({A0: BOTH[A0]})
        assert len([each for each in caplog.messages if REASSIGN in each]) == 1
        assert (await term.theirs.get(REASSIGN)).stat.version == 1
        await term.heard()
        await ask(term, REASSIGN, paths.encode_reassignment(BOTH))
        assert await term.heard() == [ReassignmentsAsked()]
        assert await noted.reassignments() == BOTH


# /admin/preferred_replica_election


@in_virtual_time
async def test_elections_that_are_asked_for_are_taken_and_the_next_ones_are_heard_of(tmp_path: Path) -> None:
    async with controller_term(tmp_path) as term:
        take = term.store.notifications.take_preferred_elections
        assert await take() == []
        for partitions in ([A1, A0], [A1]):
            await ask(term, ELECT, paths.encode_partitions(partitions))
            assert await term.heard() == [PreferredElectionsAsked()]
            assert await take() == sorted(partitions)
            assert await term.theirs.exists(ELECT) is None
            assert await term.heard() == [PreferredElectionsAsked()]  # of its own deletion
            assert await take() == []


@in_virtual_time
async def test_a_damaged_request_for_elections_makes_room_for_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with controller_term(tmp_path) as term:
        await ask(term, ELECT, b"A0")
        assert await term.store.notifications.take_preferred_elections() == []
        assert ELECT in caplog.text
        assert await term.theirs.exists(ELECT) is None
