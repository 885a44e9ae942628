"""Whatever members, the log and the clock do, in any order: a group keeps its promises.

Clients here know no better than real ones: they act on the answers that they have got, may ask again while an
answer is due, and may come back as another member.
"""

from __future__ import annotations

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minikafka.coordinator.group.classic_group import ClassicGroup, current_record, group_from_record
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import GroupMetadataKey, GroupMetadataValue
from tests.unit.coordinator.group.classic.driver import Members, subscription
from tests.unit.coordinator.group.shell import Asked

PROTOCOLS = [
    (("range", subscription("t")),),
    (("range", subscription("t", "u")), ("sticky", b"x")),
    (("sticky", b"y"), ("range", subscription("t"))),
]
LOG_ERRORS = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.MESSAGE_TOO_LARGE]


class Client(msgspec.Struct):
    """One consumer. ``generation`` and ``assigns_to`` are of the last join that was answered, ``synced`` is
    the last generation in which it has got an assignment."""

    instance: str | None
    member_id: str = ""
    generation: int = -1
    synced: int = -1
    assigns_to: tuple[str, ...] = ()
    joins: list[Asked] = []
    syncs: list[tuple[int, Asked]] = []


class ClassicGroupMachine(RuleBasedStateMachine):
    @initialize(
        delay_ms=st.sampled_from([0, 3_000]), max_size=st.sampled_from([2, 100]), rounds=st.integers(0, 4)
    )
    def begin(self, delay_ms: int, max_size: int, rounds: int) -> None:
        self.settings = {"group_initial_rebalance_delay_ms": delay_ms, "group_max_size": max_size}
        self.members = Members(**self.settings)
        self.clients = [Client("i"), Client(None), Client("j"), Client(None), Client(None), Client("i")]
        self.generation = 0
        self.owners: dict[tuple[int, bytes], str] = {}
        for _ in range(rounds):
            self.clients_do_what_is_due(4, True, 3_000)

    # What clients do

    @rule(index=st.integers(0, 5), protocols=st.sampled_from(PROTOCOLS), id_first=st.booleans())
    def join(self, index: int, protocols: tuple[tuple[str, bytes], ...], id_first: bool) -> None:
        self._join(self.clients[index], protocols, id_first=id_first)

    def _join(self, client: Client, protocols: tuple[tuple[str, bytes], ...], *, id_first: bool) -> None:
        asked = self.members.join(
            client.member_id,
            instance=client.instance,
            protocols=protocols,
            id_first=id_first and client.instance is None,
            skips=id_first,
        )
        client.joins.append(asked)

    @rule(count=st.integers(1, 6), all_is_well=st.booleans(), then_ms=st.sampled_from([0, 3_000]))
    def clients_do_what_is_due(self, count: int, all_is_well: bool, then_ms: int) -> None:
        if all_is_well:
            self.the_log_takes_or_refuses(None)
            self.replicas_catch_up()
        for client in self.clients[:count]:
            self._hear()
            if client.joins or client.syncs:
                continue
            if client.member_id and client.generation > client.synced:
                self._sync(client, 0)
            elif not client.member_id or client.generation < 0 or self._must_join(client):
                self._join(client, PROTOCOLS[0], id_first=True)
        self.members.advance(then_ms)

    @rule(index=st.sampled_from([0, 2, 5]))
    def a_static_member_restarts(self, index: int) -> None:
        self.clients[index].member_id = ""

    @rule(index=st.integers(0, 5), turn=st.integers(0, 5))
    def sync(self, index: int, turn: int) -> None:
        self._sync(self.clients[index], turn)

    def _sync(self, client: Client, turn: int) -> None:
        members = client.assigns_to
        assignments = {id: b"%d" % ((at + turn) % len(members)) for at, id in enumerate(members)}
        asked = self.members.sync(client.member_id, client.generation, assignments, instance=client.instance)
        client.syncs.append((client.generation, asked))

    @rule(index=st.integers(0, 5))
    def heartbeat(self, index: int) -> None:
        self._must_join(self.clients[index])

    def _must_join(self, client: Client) -> bool:
        error = self.members.heartbeat(client.member_id, client.generation, instance=client.instance)
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.member_id = ""
        return error is not ErrorCode.NONE

    @rule(index=st.integers(0, 5), by_instance=st.booleans())
    def leave(self, index: int, by_instance: bool) -> None:
        client = self.clients[index]
        by_instance = by_instance and client.instance is not None
        self.members.leave(("" if by_instance else client.member_id, client.instance))

    # What happens around them

    @rule(duration_ms=st.sampled_from([1, 3_000, 9_000, 30_000, 60_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.members.advance(duration_ms)

    @rule(error=st.sampled_from([None, *LOG_ERRORS]))
    def the_log_takes_or_refuses(self, error: ErrorCode | None) -> None:
        self.members.shell.refuse = None if error is None else KafkaError(error)

    @rule()
    def replicas_fall_behind(self) -> None:
        self.members.shell.hold = True

    @rule()
    def replicas_catch_up(self) -> None:
        self.members.shell.hold = False
        self.members.shell.commit()

    @rule(error=st.sampled_from(LOG_ERRORS))
    def commits_take_too_long(self, error: ErrorCode) -> None:
        self.members.shell.fail(KafkaError(error))

    @precondition(lambda self: self.members.shell.log)
    @rule(lost=st.booleans())
    def another_coordinator_takes_over(self, lost: bool) -> None:
        """It may never have got what was not committed."""
        old = self.members
        for ticket in old.classic.waiting():
            assert isinstance(ticket, Asked) and ticket.waits
            ticket.answers.append(KafkaError(ErrorCode.NOT_COORDINATOR))
        self._hear()
        uncommitted = sum(len(append.records) for append in old.shell.uncommitted) if lost else 0
        self.members = Members(**self.settings)
        self.members.uuids = old.uuids
        self.members.shell.clock.advance(old.shell.now_ms - self.members.shell.now_ms)
        self.members.shell.log = old.shell.log[: len(old.shell.log) - uncommitted]
        for record in self.members.shell.log:
            assert isinstance(record.key, GroupMetadataKey)
            assert isinstance(record.value, GroupMetadataValue)
            self.members.classic.replay(record.key, record.value, self.members.shell.now_ms)
        self.members.shell.carry_out(self.members.classic.loaded(self.members.shell.now_ms))
        self.generation = 0  # a generation that was not stored does not come again from the log

    # What holds

    @invariant()
    def members_and_timers_are_in_order(self) -> None:
        self.members.validate()

    @invariant()
    def who_waits_is_known_to_the_group(self) -> None:
        assert {id(ticket) for ticket in self.members.classic.waiting()} == {
            id(asked) for asked in self.members.shell.unanswered()
        }

    @invariant()
    def generations_only_rise(self) -> None:
        group = self._group()
        assert group is None or group.generation >= self.generation
        self.generation = 0 if group is None else group.generation

    @invariant()
    def a_partition_has_one_owner_in_a_generation(self) -> None:
        self._hear()

    @invariant()
    def commits_of_other_generations_are_refused(self) -> None:
        group = self._group()
        if group is None:
            return
        for client in self.clients:
            for generation in range(group.generation):
                try:
                    group.check_offset_commit(
                        member_id=client.member_id,
                        group_instance_id=client.instance,
                        generation_or_member_epoch=generation,
                        version=9,
                    )
                except KafkaError:
                    continue
                raise AssertionError(f"{client} commits as of {generation}: {group}")

    @invariant()
    def the_log_says_what_a_stable_group_is(self) -> None:
        group = self._group()
        if group is None or group.listed().state != "Stable":
            return
        value = self.members.shell.log[-1].value
        assert isinstance(value, GroupMetadataValue)
        read = current_record(group_from_record("g", value)).value
        now = current_record(group).value
        assert isinstance(read, GroupMetadataValue) and isinstance(now, GroupMetadataValue)
        since = read.current_state_timestamp_ms
        assert msgspec.structs.replace(now, current_state_timestamp_ms=since) == read

    def teardown(self) -> None:
        """If no client does anything any more, all are answered and the group becomes empty."""
        if not hasattr(self, "members"):
            return
        self.members.shell.refuse = None
        self.members.shell.hold = False
        self.members.shell.commit()
        self.members.advance(60 * 60_000)
        assert not self.members.shell.unanswered()
        group = self._group()
        assert group is None or group.is_empty

    def _group(self) -> ClassicGroup | None:
        return self.members.group if "g" in self.members.groups else None

    def _hear(self) -> None:
        """Clients read the answers that have come."""
        for client in self.clients:
            for asked in [asked for asked in client.joins if not asked.waits]:
                client.joins.remove(asked)
                self._hear_join(client, asked)
            for generation, asked in [sync for sync in client.syncs if not sync[1].waits]:
                client.syncs.remove((generation, asked))
                if isinstance(asked.answer, KafkaError) or asked.answer.error is not ErrorCode.NONE:
                    client.generation = -1
                    continue
                client.synced = generation
                if asked.answer.assignment:
                    owner = client.instance or asked.request.member_id
                    assert self.owners.setdefault((generation, asked.answer.assignment), owner) == owner

    def _hear_join(self, client: Client, asked: Asked) -> None:
        result = asked.answer
        if isinstance(result, KafkaError):
            return
        match result.error:
            case ErrorCode.NONE | ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = result.member_id
                client.generation = result.generation
                client.synced = min(client.synced, client.generation - 1)
                assert result.leader or result.error is ErrorCode.MEMBER_ID_REQUIRED
                client.assigns_to = tuple(member.member_id for member in result.members)
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_INSTANCE_ID:
                client.member_id = ""


TestClassicGroup = ClassicGroupMachine.TestCase
TestClassicGroup.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
