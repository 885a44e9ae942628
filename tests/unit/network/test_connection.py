"""A connection on a transport in memory: order, bounds, budget, muting, closing. No sockets, no time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.errors import InvariantError, PeerProtocolError
from minikafka.network import connection as connection_module
from minikafka.network import responses as responses_module
from minikafka.network.connection import FRAMES_PER_TURN, Connection, PendingResponse, Result
from minikafka.network.frame_reader import LARGE_FRAMES_MAX
from minikafka.network.limits import ANSWER_BYTES_MIN, WAKES_PER_TURN
from minikafka.network.responses import UnfinishedRequest
from minikafka.steps import Steps
from minikafka.types import Buffer
from tests.unit.network.support import Wire, echo, framed


class Desk:
    """A handler: ``p…`` is parked, ``n…`` gets no response, ``!…`` breaks the protocol, ``?…`` our code."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.parked: dict[bytes, PendingResponse] = {}
        self.cancelled: list[bytes] = []
        self.expected_bytes = 0

    def __call__(self, connection: Connection, frame: Buffer) -> Result:
        content = bytes(frame)
        self.seen.append(content)
        match content[:1]:
            case b"p":
                pending = PendingResponse(
                    expected_bytes=self.expected_bytes, on_closed=lambda: self.cancelled.append(content)
                )
                self.parked[content] = pending
                return pending
            case b"n":
                return None
            case b"!":
                raise PeerProtocolError("that is no Kafka request")
            case b"?":
                raise ZeroDivisionError("a bug")
        return (framed(content),)

    def answer(self, content: bytes) -> None:
        self.parked.pop(content).complete((framed(content),))


# Order


def test_one_chunk_is_answered_in_one_write() -> None:
    wire = Wire(echo)
    wire.send(b"a", b"b", b"c")
    assert len(wire.transport.writes) == 1
    assert wire.sent() == [b"a", b"b", b"c"]


def test_a_pending_response_holds_back_the_later_ones() -> None:
    desk = Desk()
    wire = Wire(desk)
    wire.send(b"a", b"p1", b"b", b"n", b"p2", b"c")
    assert wire.sent() == [b"a"]
    desk.answer(b"p2")
    assert wire.sent() == []
    desk.answer(b"p1")
    assert len(wire.transport.writes) == 1
    assert wire.sent() == [b"p1", b"b", b"p2", b"c"]
    wire.send(b"d")
    assert wire.sent() == [b"d"]
    assert wire.connection.held_bytes == wire.budget.used_bytes == 0


def test_a_response_may_be_complete_before_the_handler_returns() -> None:
    def at_once(connection: Connection, frame: Buffer) -> Result:
        pending = PendingResponse(expected_bytes=5)
        pending.complete((framed(bytes(frame)),))
        return pending

    wire = Wire(at_once)
    wire.send(b"a", b"b")
    assert wire.sent() == [b"a", b"b"]


def test_a_request_that_completes_an_earlier_one_of_its_connection() -> None:
    desk = Desk()

    def produce(connection: Connection, frame: Buffer) -> Result:
        if bytes(frame) == b"finish p1":
            desk.answer(b"p1")
        return desk(connection, frame)

    wire = Wire(produce)
    wire.send(b"a", b"p1", b"b", b"finish p1", b"c")
    assert len(wire.transport.writes) == 1
    assert wire.sent() == [b"a", b"p1", b"b", b"finish p1", b"c"]


def in_steps(count: int, frame: Buffer) -> UnfinishedRequest:
    """The echo of ``frame``, after as many steps."""

    def work() -> Steps[Result]:
        for _ in range(count):
            yield
        return (framed(bytes(frame)),)

    return UnfinishedRequest(work())


class Slow:
    """A handler that echoes, ``s…`` in steps."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.begun: list[UnfinishedRequest] = []

    def __call__(self, connection: Connection, frame: Buffer) -> Result:
        self.seen.append(bytes(frame))
        if bytes(frame[:1]) != b"s":
            return (framed(bytes(frame)),)
        self.begun.append(in_steps(2, frame))
        return self.begun[-1]


def test_a_request_in_steps_lets_the_later_ones_wait() -> None:
    slow = Slow()
    wire = Wire(slow)
    wire.send(b"a", b"s1", b"b", b"s2", b"c")
    assert (slow.seen, wire.sent()) == ([b"a", b"s1"], [b"a"])
    assert wire.budget.used_bytes >= len(b"s1"), "its frame counts while it is worked on"
    while slow.begun[0].step():
        assert slow.seen == [b"a", b"s1"]
    assert slow.seen == [b"a", b"s1", b"b", b"s2"]
    while slow.begun[1].step():
        pass
    assert wire.sent() == [b"s1", b"b", b"s2", b"c"]
    assert wire.connection.held_bytes == wire.budget.used_bytes == 0


def test_a_request_in_steps_is_handled_to_its_end_when_its_client_is_gone() -> None:
    """As Kafka does: a producer with acks=0 may close as soon as it has sent."""
    slow = Slow()
    wire = Wire(slow)
    wire.send(b"s1", b"b")
    wire.connection.connection_lost(None)
    assert wire.budget.used_bytes == len(b"s1"), "and counts until then"
    while slow.begun[0].step():
        pass
    assert slow.begun[0].has_ended and slow.seen == [b"s1"]
    assert wire.budget.used_bytes == 0


def test_a_promise_of_a_client_that_is_gone_is_cancelled() -> None:
    cancelled = []

    def work() -> Steps[Result]:
        yield
        return PendingResponse(on_closed=lambda: cancelled.append(True))

    begun: list[UnfinishedRequest] = []

    def handle(connection: Connection, frame: Buffer) -> Result:
        begun.append(UnfinishedRequest(work()))
        return begun[0]

    wire = Wire(handle)
    wire.send(b"a")
    wire.connection.connection_lost(None)
    while begun[0].step():
        pass
    assert cancelled == [True]


def test_a_request_whose_steps_fail_closes_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    def work() -> Steps[Result]:
        yield
        raise ZeroDivisionError("a bug")

    begun: list[UnfinishedRequest] = []

    def handle(connection: Connection, frame: Buffer) -> Result:
        begun.append(UnfinishedRequest(work()))
        return begun[-1]

    wire = Wire(handle)
    wire.send(b"a", b"b")
    while begun[0].step():
        pass
    assert len(begun) == 1 and "a request failed" in caplog.text
    assert wire.transport.is_closing() and wire.budget.used_bytes == 0


def test_an_empty_completion_answers_nothing() -> None:
    desk = Desk()
    wire = Wire(desk)
    wire.send(b"p1", b"a")
    desk.parked[b"p1"].complete(())
    assert wire.sent() == [b"a"]


def test_a_response_is_resolved_once() -> None:
    pending = PendingResponse()
    pending.complete(())
    for again in (lambda: pending.complete(()), pending.abandon):
        with pytest.raises(InvariantError, match="resolved before"):
            again()


@given(
    kinds=st.lists(st.sampled_from("anp"), max_size=30),
    rng=st.randoms(use_true_random=False),
    cuts=st.lists(st.integers(1, 30), max_size=10),
)
def test_any_completion_order_keeps_request_order(
    kinds: list[str], rng: Callable[..., object], cuts: list[int]
) -> None:
    desk = Desk()
    wire = Wire(desk)
    contents = [f"{kind}{index}".encode() for index, kind in enumerate(kinds)]
    stream = b"".join(map(framed, contents))
    sent: list[bytes] = []
    for cut in [*cuts, len(stream)]:
        if stream[:cut]:
            wire.connection.data_received(stream[:cut])
        stream = stream[cut:]
        parked = list(desk.parked)
        rng.shuffle(parked)  # type: ignore[attr-defined]
        for content in parked[: len(parked) // 2]:
            desk.answer(content)
        sent += wire.sent()
    for content in list(desk.parked):
        desk.answer(content)
    sent += wire.sent()
    assert sent == [content for content in contents if not content.startswith(b"n")]
    assert wire.budget.used_bytes == 0


def test_large_responses_are_not_gathered_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "WRITE_BYTES", 100)
    wire = Wire(echo)
    wire.send(*[b"x" * 60] * 4)
    assert [len(write) for write in wire.transport.writes] == [128, 128]


# Bounds


def test_a_peer_that_does_not_read_is_not_read_from() -> None:
    desk = Desk()
    wire = Wire(desk)
    wire.transport.peer_reads = False
    wire.send(b"x" * 990)
    assert wire.transport.reading
    wire.send(b"y" * 990)
    assert not wire.transport.reading
    assert wire.connection.held_bytes == wire.transport.get_write_buffer_size() > 1000
    wire.transport.peer_catches_up()
    assert wire.transport.reading
    assert wire.budget.used_bytes == 0


def test_a_slow_peer_stops_the_handling_in_the_middle_of_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "WRITE_BYTES", 500)
    desk = Desk()
    wire = Wire(desk)
    wire.transport.peer_reads = False
    wire.send(*[b"x" * 496] * 10)
    assert len(desk.seen) == 3, "two fill the transport, the third is over its mark"
    wire.transport.peer_catches_up()
    assert len(desk.seen) == 10
    assert len(wire.sent()) == 10


def test_parked_requests_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses_module, "PENDING_RESPONSES_MAX", 3)
    desk = Desk()
    wire = Wire(desk)
    wire.send(b"p0", b"p1", b"p2", b"p3", b"a")
    assert desk.seen == [b"p0", b"p1", b"p2"]
    assert not wire.transport.reading
    desk.answer(b"p1")
    assert len(desk.seen) == 3, "it still waits for the first"
    desk.answer(b"p0")
    assert desk.seen[3:] == [b"p3", b"a"]
    desk.answer(b"p2")
    desk.answer(b"p3")
    assert wire.sent() == [b"p0", b"p1", b"p2", b"p3", b"a"]
    assert wire.transport.reading


def test_responses_that_are_expected_or_held_back_are_bounded_in_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(responses_module, "PENDING_BYTES_MAX", 100)
    desk = Desk()
    desk.expected_bytes = 60
    wire = Wire(desk)
    wire.send(b"p0", b"p1", b"p2")
    assert desk.seen == [b"p0", b"p1"], "two of them may be 120 bytes"
    desk.answer(b"p1")
    assert desk.seen[2:] == [b"p2"], "one was small"
    desk.parked[b"p2"].complete((b"x" * 200,))
    wire.send(b"a")
    assert len(desk.seen) == 3, "a large one is held back by the first"
    assert wire.connection.held_bytes == 200 + len(framed(b"p1")) + len(framed(b"a"))
    desk.answer(b"p0")
    assert desk.seen[3:] == [b"a"]
    assert wire.connection.held_bytes == 0


def test_one_busy_connection_leaves_others_their_turn() -> None:
    desk = Desk()
    wire = Wire(desk)
    wire.send(*[b"a"] * (2 * FRAMES_PER_TURN + 1))
    assert len(desk.seen) == FRAMES_PER_TURN
    assert not wire.transport.reading
    assert wire.loop.turn() == 1
    assert len(desk.seen) == 2 * FRAMES_PER_TURN
    assert wire.loop.turn() == 1
    assert wire.loop.turn() == 0
    assert len(wire.sent()) == 2 * FRAMES_PER_TURN + 1
    assert wire.transport.reading


# When a request came


def test_a_frame_that_has_to_wait_is_known_by_when_it_came() -> None:
    seen: list[tuple[bytes, int]] = []
    now_ns = 0

    def look(connection: Connection, frame: Buffer) -> Result:
        seen.append((bytes(frame), connection.received_ns))
        return None

    wire = Wire(look, now_ns=lambda: now_ns)
    wire.send(b"alone")
    now_ns = 5
    wire.send(b"first", b"second")
    now_ns = 7
    wire.send(b"alone again")
    wire.connection.mute()
    now_ns = 9
    wire.send(b"muted")
    now_ns = 11
    wire.send(b"muted too")
    now_ns = 20
    wire.connection.unmute()
    wire.send(b"in time")
    assert seen == [
        (b"alone", 0),
        (b"first", 5),
        (b"second", 5),
        (b"alone again", 0),
        (b"muted", 9),
        (b"muted too", 9),
        (b"in time", 0),
    ]


def test_frames_that_wait_for_their_turn_came_with_the_others() -> None:
    seen: list[int] = []

    def look(connection: Connection, frame: Buffer) -> Result:
        seen.append(connection.received_ns)
        return None

    wire = Wire(look, now_ns=iter(range(3, 100)).__next__)
    wire.send(*[b"a"] * (FRAMES_PER_TURN + 2))
    wire.loop.turn()
    wire.send(b"b")
    assert seen == [3] * (FRAMES_PER_TURN + 2) + [0]


# The budget of all connections


def test_what_has_arrived_counts_until_it_is_handled_not_what_is_announced() -> None:
    wire = Wire(echo, budget_bytes=10_000)
    stream = framed(b"x" * 5000)
    wire.connection.data_received(stream[:10])
    assert wire.budget.used_bytes == 6, "ten bytes less the size"
    wire.connection.data_received(stream[10:-1])
    assert wire.budget.used_bytes == 4999
    wire.connection.data_received(stream[-1:])
    assert wire.budget.used_bytes == 0
    assert wire.sent() == [b"x" * 5000]


def test_a_large_frame_is_received_where_it_stays_and_small_ones_follow() -> None:
    frames: list[Buffer] = []

    def keep(connection: Connection, frame: Buffer) -> Result:
        frames.append(frame)
        return echo(connection, frame)

    wire = Wire(keep)
    large = b"x" * 500_000
    stream = b"".join(map(framed, (b"small", large, b"and small")))
    wire.receive(stream[:1_000])
    assert isinstance(wire.transport.get_protocol(), asyncio.BufferedProtocol) and wire.transport.reading
    wire.receive(stream[1_000:300_000])
    assert wire.budget.used_bytes == 300_000 - len(framed(b"small")) - 4
    wire.connection.mute()
    assert not wire.transport.reading
    wire.connection.unmute()
    wire.receive(stream[300_000:])
    assert wire.sent() == frames == [b"small", large, b"and small"]
    assert wire.transport.get_protocol() is wire.connection and wire.transport.reading
    assert wire.budget.used_bytes == 0


def test_a_large_frame_whose_peer_is_gone_leaves_its_memory_to_others() -> None:
    first = Wire(echo)
    wires = [first, *(Wire(echo, like=first) for _ in range(LARGE_FRAMES_MAX + 1))]

    def is_in_place(wire: Wire) -> bool:
        wire.receive(framed(b"x" * 500_000)[:1_000])
        return isinstance(wire.transport.get_protocol(), asyncio.BufferedProtocol)

    assert [is_in_place(wire) for wire in wires[:-1]] == [True] * LARGE_FRAMES_MAX + [False]
    used_bytes = first.budget.used_bytes
    receiver = cast(asyncio.BufferedProtocol, first.transport.get_protocol())
    receiver.connection_lost(None)
    assert first.owner.closed == [first.connection]
    assert first.budget.used_bytes == used_bytes - 996
    assert is_in_place(wires[-1])


def test_a_handler_may_close_the_connection_of_a_large_frame() -> None:
    def refuse(connection: Connection, frame: Buffer) -> Result:
        connection.close()
        return None

    wire = Wire(refuse)
    wire.receive(framed(b"x" * 500_000))
    assert wire.transport.is_closing() and wire.budget.used_bytes == 0


def test_peers_that_announce_much_and_send_nothing_take_nothing_from_the_others() -> None:
    first = Wire(echo, budget_bytes=5000)
    for _ in range(20):
        Wire(echo, like=first).connection.data_received(framed(b"x" * 4000)[:9])
    first.send(b"a")
    assert first.sent() == [b"a"]


def test_frames_that_do_not_come_to_an_end_leave_room_for_others() -> None:
    """Six take what they can get of the 5,000 bytes that an address has for requests: a tenth each."""
    first = Wire(echo, budget_bytes=12_500)
    attackers = [first, *(Wire(echo, like=first) for _ in range(5))]
    stream = framed(b"x" * 100_000)
    sent = 0
    while sent < 3000:
        for wire in attackers:
            if wire.transport.reading:
                wire.connection.data_received(stream[sent : sent + 10])
        sent += 10
    (overdraws,) = [wire for wire in attackers if wire.transport.reading]
    held_bytes = [wire.connection.held_bytes for wire in attackers]
    assert min(held_bytes) >= 490, held_bytes
    assert max(held_bytes) <= 520, f"the overdraft does not count: {held_bytes}"
    assert overdraws.connection._reader.buffered_bytes == 3000 - 4
    honest = Wire(echo, like=first)
    for _ in range(3):
        honest.send(b"a" * 5000, b"b")
        assert honest.sent() == [b"a" * 5000, b"b"], "what comes in one piece takes nothing"
        slow = framed(b"y" * 350)
        for start in range(0, len(slow), 100):
            assert honest.transport.reading
            honest.connection.data_received(slow[start : start + 100])
        assert honest.sent() == [b"y" * 350]


def test_an_address_has_a_share_whatever_the_number_of_its_connections() -> None:
    first = Wire(echo, budget_bytes=20_000)
    stream = framed(b"x" * 100_000)
    for _ in range(500):
        wire = Wire(echo, like=first)
        wire.connection.data_received(stream[:4])
        for start in range(4, 1004, 2):
            if wire.transport.reading:
                wire.connection.data_received(stream[start : start + 2])
    assert 7900 <= first.budget.frame_bytes <= 8000 + 500 * 2, "4/5, and one piece of each"
    elsewhere = Wire(echo, like=first, host="10.0.0.2")
    begun = framed(b"y" * 200)
    for start in range(0, len(begun), 8):
        assert elsewhere.transport.reading
        elsewhere.connection.data_received(begun[start : start + 8])
    assert elsewhere.sent() == [b"y" * 200]


def test_frames_that_grew_together_beyond_their_shares_finish_one_after_another() -> None:
    first = Wire(echo, budget_bytes=2000)
    wires = [first, *(Wire(echo, like=first) for _ in range(2))]
    large = framed(b"x" * 1500)
    for wire in wires:
        wire.connection.data_received(large[:84])
    assert all(wire.transport.reading for wire in wires)
    for wire in wires:
        wire.connection.data_received(large[84:504])
    for turn in range(3):
        (goes_on,) = [wire for wire in wires[turn:] if wire.transport.reading][:1]
        goes_on.connection.data_received(large[504:])
        assert goes_on.sent() == [b"x" * 1500]
        if turn == 0:
            assert [wire.transport.reading for wire in wires] == [True, False, False], "one at a time"
        first.loop.turn()
    assert all(wire.transport.reading for wire in wires)
    assert first.budget.used_bytes == 0
    assert first.budget.waiting == 0


def test_one_alone_may_send_a_frame_larger_than_the_budget() -> None:
    wire = Wire(echo, budget_bytes=1000)
    large = framed(b"x" * 5000)
    for start in range(0, len(large), 100):
        assert wire.transport.reading
        wire.connection.data_received(large[start : start + 100])
    assert wire.sent() == [b"x" * 5000]
    assert wire.budget.used_bytes == 0


def test_who_has_overdrawn_lets_others_do_so_also_when_the_budget_was_free_again_meanwhile() -> None:
    first = Wire(echo, budget_bytes=2000)
    second, third, fourth = (Wire(echo, like=first) for _ in range(3))
    large = framed(b"x" * 1500)
    second.connection.data_received(large[:84])
    first.connection.data_received(large[:604])
    assert first.transport.reading, "it is the one to go on"
    second.lose()
    first.connection.data_received(large[604:])
    assert first.sent() == [b"x" * 1500]
    for wire in (third, fourth):
        wire.connection.data_received(large[:84])
    fourth.connection.data_received(large[84:604])
    assert fourth.transport.reading, "now another is"
    fourth.connection.data_received(large[604:])
    assert fourth.sent() == [b"x" * 1500]


def login(like: Wire | None = None, *, host: str = "10.0.0.1") -> Wire:
    """A connection that has not logged in; all of them have 8,000 bytes, those of one address 4,000."""
    wire = Wire(echo, budget_bytes=64_000, like=like, host=host)
    wire.connection.hand_over(echo, frame_bytes_max=4000, before_login=True)
    return wire


def test_connections_that_have_not_logged_in_hold_little() -> None:
    """CVE-2022-34917. Those for whose first piece there is no room are closed."""
    first = login()
    begun = framed(b"x" * 4000)
    attackers = [first, *(login(first, host=f"10.0.0.{index % 40}") for index in range(400))]
    for wire in attackers:
        wire.connection.data_received(begun[:1004])
        if wire.transport.reading:
            wire.connection.data_received(begun[1004:1504])
    assert first.budget.login_bytes == first.budget.frame_bytes <= 8000
    assert sum(not wire.transport.is_closing() for wire in attackers) <= 9
    newcomer = login(first, host="10.0.9.9")
    newcomer.send(b"n,,n=alice")
    assert newcomer.sent() == [b"n,,n=alice"], "a login that comes in one piece takes nothing"
    user = Wire(echo, like=first)
    large = framed(b"y" * 10_000)
    for start in range(0, len(large), 1000):
        assert user.transport.reading, "who has logged in has the memory of before"
        user.connection.data_received(large[start : start + 1000])
    assert user.sent() == [b"y" * 10_000]
    for wire in attackers:
        wire.lose()
    assert first.budget.login_bytes == first.budget.used_bytes == 0


def test_a_login_of_the_largest_size_comes_in_pieces_while_others_wait() -> None:
    first = login()
    second = login(first)
    largest = framed(b"x" * 4000)
    for wire in (first, second):
        for start in range(0, 1500, 500):
            if wire.transport.reading:
                wire.connection.data_received(largest[start : start + 500])
    assert [wire.transport.reading for wire in (first, second)] == [True, False]
    first.connection.data_received(largest[1500:])
    assert first.sent() == [b"x" * 4000]
    first.loop.turn()
    assert second.transport.reading
    second.connection.data_received(largest[second.connection._reader.buffered_bytes + 4 :])
    assert second.sent() == [b"x" * 4000]
    assert first.budget.login_bytes == first.budget.used_bytes == 0


def test_who_logs_in_no_longer_counts_among_those_who_have_not() -> None:
    peer = login()
    begun = framed(b"x" * 4000)
    peer.connection.data_received(begun[:504])
    assert peer.budget.login_bytes == peer.budget.frame_bytes == 500
    peer.connection.hand_over(echo, frame_bytes_max=100_000)
    assert (peer.budget.login_bytes, peer.budget.frame_bytes) == (0, 500)
    peer.connection.data_received(begun[504:])
    assert peer.sent() == [b"x" * 4000]
    assert peer.budget.used_bytes == 0


def test_whole_frames_that_have_to_wait_count_with_all_of_their_chunk() -> None:
    parked: list[PendingResponse] = []

    def park(connection: Connection, frame: Buffer) -> Result:
        parked.append(PendingResponse())
        connection.mute()
        return parked[-1]

    first = Wire(park, budget_bytes=25_000)
    ahead = b"".join(framed(b"x" * 96) for _ in range(40))
    wires = [first, *(Wire(park, like=first) for _ in range(9))]
    for wire in wires:
        wire.connection.data_received(ahead)
    elsewhere = Wire(park, like=first, host="10.0.0.2")
    elsewhere.connection.data_received(ahead[:1000])
    open_wires = [wire for wire in wires if not wire.transport.is_closing()]
    assert open_wires == wires[:3], "two are within the share of an address, and one overdraws"
    assert first.budget.frame_bytes == 2 * 4000 + 1000
    assert not elsewhere.transport.is_closing(), "another address has its own"
    for wire in open_wires:
        for _ in range(40):
            wire.connection.unmute()
    for response in parked:
        response.complete((framed(b"done"),))
    elsewhere.connection.close()
    assert [len(wire.sent()) for wire in open_wires] == [40, 40, 40]
    assert first.budget.used_bytes == 0
    late = Wire(park, like=first)
    late.connection.data_received(ahead)
    assert not late.transport.is_closing(), "the overdraft is given back"


def test_before_a_login_much_less_may_be_sent_ahead() -> None:
    first = login()
    wires = [first, *(login(first, host=f"10.0.0.{index}") for index in range(20))]
    for wire in wires:
        wire.connection.mute()
        wire.connection.data_received(framed(b"x" * 996))
    assert sum(not wire.transport.is_closing() for wire in wires) <= 9
    assert first.budget.login_bytes <= 9000


class Careful:
    """Answers what begins with an r or an m only when there is room: records, metadata. Others at once."""

    def __init__(self) -> None:
        self.begun: list[UnfinishedRequest] = []

    def __call__(self, connection: Connection, frame: Buffer) -> Result:
        if bytes(frame[:1]) not in (b"r", b"m"):
            return (framed(bytes(frame)),)
        request = UnfinishedRequest(self._answer(connection, bytes(frame)))
        request.step()
        if request.has_ended:
            return cast(Result, request.result())
        self.begun.append(request)
        return request

    def _answer(self, connection: Connection, frame: bytes) -> Steps[Result]:
        if (yield from connection.wait_for_room(for_records=frame[:1] == b"r")):
            return (framed(frame),)
        return None

    def turn(self) -> None:
        for each in list(self.begun):
            if each.waits_for is None or each.waits_for.done():
                each.step()


def test_answers_that_are_not_taken_cut_those_that_may_be_large() -> None:
    first = Wire(echo, budget_bytes=1_000_000)
    first.transport.peer_reads = False
    assert first.connection.answer_bytes_max == 93_750, "a quarter of 3/4 of the half for responses"
    first.send(b"x" * 200_000)
    second = Wire(echo, like=first)
    assert second.connection.answer_bytes_max == ANSWER_BYTES_MIN


def test_answers_that_are_not_taken_stop_only_requests_whose_answers_may_be_large() -> None:
    careful = Careful()
    first = Wire(careful, budget_bytes=1_000_000)
    first.transport.peer_reads = False
    first.send(b"x" * 400_000)
    reader, asker = Wire(careful, like=first), Wire(careful, like=first)
    reader.send(b"r1", b"r2")
    asker.send(b"m1")
    assert reader.sent() == [] and asker.sent() == [b"m1"], "readers leave room for the others"
    third = Wire(careful, like=first)
    third.transport.peer_reads = False
    third.send(b"x" * 100_000)
    asker.send(b"m2")
    assert asker.sent() == []
    producer = Wire(careful, like=first)
    producer.send(b"p1", b"p2")
    assert producer.sent() == [b"p1", b"p2"], "a few bytes are not waited for"
    follower = Wire(careful, like=first)
    follower.connection.is_follower = True
    follower.send(b"r3")
    assert follower.sent() == [b"r3"], "it would leave the ISR"
    third.transport.peer_catches_up()
    first.loop.turn()
    careful.turn()
    assert asker.sent() == [b"m2"] and reader.sent() == []
    first.transport.peer_catches_up()
    first.loop.turn()
    careful.turn()
    careful.turn()
    assert reader.sent() == [b"r1", b"r2"]
    assert first.budget.waiting == first.budget.used_bytes == 0


def test_who_waits_for_room_and_leaves_gets_no_answer() -> None:
    careful = Careful()
    first = Wire(careful, budget_bytes=1_000_000)
    first.transport.peer_reads = False
    first.send(b"x" * 400_000)
    second = Wire(careful, like=first)
    second.send(b"r")
    assert first.budget.waiting == 1
    second.connection.connection_lost(None)
    careful.turn()
    assert careful.begun[0].has_ended and second.sent() == []
    assert first.budget.waiting == 0


def test_a_closed_connection_gives_back_its_share_and_its_place_in_line() -> None:
    first = Wire(echo, budget_bytes=1000)
    second, third = Wire(echo, like=first), Wire(echo, like=first)
    large = framed(b"x" * 1500)
    for wire in (first, second, third):
        wire.connection.data_received(large[:304])
    assert first.budget.waiting == 2
    second.lose()
    assert first.budget.waiting == 1
    first.lose()
    first.loop.turn()
    third.connection.data_received(large[304:])
    assert third.sent() == [b"x" * 1500]
    assert first.budget.used_bytes == 0


def test_many_in_line_are_looked_at_over_several_turns() -> None:
    first = Wire(echo, budget_bytes=1000)
    large = framed(b"x" * 1500)
    wires = [first, *(Wire(echo, like=first) for _ in range(2 * WAKES_PER_TURN))]
    for wire in wires:
        wire.connection.data_received(large[:504])
    first.connection.data_received(large[504:])
    assert first.budget.waiting == 2 * WAKES_PER_TURN
    first.loop.turn()
    assert sum(wire.transport.reading for wire in wires) == 2, "the first, and who overdraws now"
    assert first.loop.turn() == 1
    for wire in wires[1:]:
        assert wire.transport.reading, "in the order in which they came"
        wire.connection.data_received(large[504:])
        while first.loop.turn():
            pass
    assert first.budget.used_bytes == first.budget.waiting == 0


# Muting


def test_a_muted_connection_still_sends_and_goes_on_where_it_was() -> None:
    desk = Desk()
    wire = Wire(desk)
    wire.send(b"p1")
    wire.connection.mute()
    wire.send(b"a")
    desk.answer(b"p1")
    assert wire.sent() == [b"p1"]
    assert not wire.transport.reading
    wire.connection.unmute()
    assert wire.sent() == [b"a"]
    assert wire.transport.reading
    wire.connection.unmute()


def test_muting_inside_a_handler_holds_the_rest_of_the_chunk_for_that_time() -> None:
    seen: list[bytes] = []

    def throttling(connection: Connection, frame: Buffer) -> Result:
        seen.append(bytes(frame))
        connection.mute(500)
        return (framed(bytes(frame)),)

    wire = Wire(throttling)
    wire.send(b"a", b"b")
    assert seen == [b"a"]
    assert wire.sent() == [b"a"], "the throttled response leaves at once (KIP-219)"
    wire.loop.advance(0.4)
    wire.connection.mute(500)
    wire.loop.advance(0.4)
    wire.connection.mute(50)
    wire.loop.advance(0.07)
    assert seen == [b"a"], "the mute that ends last counts"
    wire.loop.advance(0.2)
    assert seen == [b"a", b"b"]


# Errors and closing


@pytest.mark.parametrize(("content", "line"), [(b"!", "no Kafka request"), (b"?", "a request failed")])
def test_a_failed_request_closes_its_connection_after_the_answers_before_it(
    content: bytes, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk()
    wire = Wire(desk)
    wire.send(b"a", b"p1", b"b", content, b"never")
    assert wire.transport.closed
    assert wire.sent() == [b"a"]
    assert desk.cancelled == [b"p1"]
    assert b"never" not in desk.seen
    assert "10.0.0.1:5000" in caplog.text
    assert line in caplog.text
    assert ("ZeroDivisionError" in caplog.text) is (content == b"?")
    desk.parked[b"p1"].complete((framed(b"late"),))
    wire.lose()
    assert wire.sent() == []
    assert len(wire.owner.closed) == 1


def test_a_frame_over_the_limit_closes_with_a_line_that_names_peer_size_and_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wire = Wire(echo, frame_bytes_max=100)
    wire.connection.data_received(framed(b"good") + (101).to_bytes(4, "big") + b"x" * 101)
    assert wire.sent() == [b"good"]
    assert wire.transport.closed
    for part in ("10.0.0.1:5000", "101 bytes", "0 to 100", "socket.request.max.bytes"):
        assert part in caplog.text


def test_a_bad_size_behind_a_held_request_closes_after_it() -> None:
    desk = Desk()
    wire = Wire(desk)
    wire.connection.mute()
    wire.connection.data_received(framed(b"a") + b"\xff\xff\xff\xff")
    assert not wire.transport.closed
    wire.connection.unmute()
    assert wire.sent() == [b"a"]
    assert wire.transport.closed


def test_an_abandoned_response_closes_the_connection() -> None:
    desk = Desk()
    wire = Wire(desk)
    wire.send(b"p1", b"p2")
    desk.parked[b"p2"].abandon()
    assert wire.transport.closed
    assert desk.cancelled == [b"p1"]

    def never(connection: Connection, frame: Buffer) -> Result:
        pending = PendingResponse()
        pending.abandon()
        return pending

    wire = Wire(never)
    wire.send(b"a", b"b")
    assert wire.transport.closed


def test_parked_operations_are_told_once_and_a_failing_one_harms_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk()
    wire = Wire(desk)
    wire.send(b"p1", b"p2", b"p3")

    def fails() -> None:
        raise ZeroDivisionError

    desk.parked[b"p1"].on_closed = fails
    desk.answer(b"p2")
    wire.lose()
    assert desk.cancelled == [b"p3"]
    assert "could not be cancelled" in caplog.text
    for pending in desk.parked.values():
        pending.complete((b"too late",))
    wire.connection.close()
    assert desk.cancelled == [b"p3"]
    assert wire.transport.take() == b""


def test_a_handler_may_close_its_own_connection() -> None:
    def leaving(connection: Connection, frame: Buffer) -> Result:
        if bytes(frame) == b"go":
            connection.close()
        return (framed(bytes(frame)),)

    wire = Wire(leaving)
    wire.send(b"a", b"go", b"b")
    assert wire.sent() == [b"a"]
    assert wire.transport.closed
    wire.connection.data_received(framed(b"late"))
    assert wire.sent() == []


# The sweeper


def swept(wire: Wire, seconds: float) -> str | None:
    """The first reason that a scan every second finds within ``seconds``."""
    for _ in range(int(seconds)):
        wire.loop.advance(1.0)
        reason = wire.connection.sweep(
            wire.loop.time(), idle_seconds_max=60, stalled_seconds_max=10, body_seconds_max=30
        )
        if reason is not None:
            return reason
    return None


def test_idle_means_nothing_received_sent_or_owed() -> None:
    desk = Desk()
    wire = Wire(desk)
    assert swept(wire, 50) is None
    wire.send(b"a")
    assert swept(wire, 60) is None
    wire.send(b"p1")
    assert swept(wire, 1000) is None, "we owe it an answer"
    desk.answer(b"p1")
    assert "connections.max.idle.ms" in (swept(wire, 70) or "")


def test_a_throttled_connection_is_idle_too_and_never_stalled() -> None:
    """KAFKA-12427: who is muted for longer than connections.max.idle.ms is closed, and may come again."""
    first = Wire(echo, budget_bytes=1000)
    second = Wire(echo, like=first)
    for wire in (first, second):
        wire.connection.data_received(framed(b"x" * 1500)[:1104])
    first.connection.mute(50_000)
    assert swept(first, 49) is None, "others wait for its memory, but it cannot send on"
    alone = Wire(echo)
    alone.connection.mute(3_600_000)
    assert swept(alone, 55) is None
    assert "connections.max.idle.ms" in (swept(alone, 10) or "")


def test_a_slow_reader_is_not_idle_and_a_stuck_one_is() -> None:
    wire = Wire(echo)
    wire.transport.peer_reads = False
    wire.send(b"x" * 5000)
    for _ in range(10):
        assert swept(wire, 50) is None
        wire.transport.peer_takes(1)
    assert "idle" in (swept(wire, 100) or "")


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    wire = Wire(echo)
    wire.connection.data_received(framed(b"x" * 500_000)[:1104])
    assert swept(wire, 29) is None
    assert "1100 of the 500000 bytes of a request are here" in (swept(wire, 5) or "")


def test_a_body_that_trickles_is_not_waited_for() -> None:
    wire = Wire(echo)
    wire.connection.data_received(framed(b"x" * 500_000)[:1104])
    reasons = []
    for _ in range(40):
        wire.connection.data_received(b"x")
        reasons.append(swept(wire, 1))
    assert "the remainder has not come" in next(reason for reason in reasons if reason)


def test_a_slow_honest_body_has_its_time() -> None:
    """10 clients share a link of 100 KB/s, and now and then it stands still for a while."""
    wire = Wire(echo)
    large = framed(b"x" * 1_000_000)
    for second in range(100):
        if second % 10:
            wire.connection.data_received(large[: 4 if second == 1 else 11_200])
            large = large[4 if second == 1 else 11_200 :]
        assert swept(wire, 1) is None
    assert large


def test_who_is_not_read_on_is_not_late() -> None:
    wire = Wire(echo)
    wire.connection.data_received(framed(b"x" * 500_000)[:1104])
    wire.connection.mute(25_000)
    assert swept(wire, 25) is None
    assert swept(wire, 28) is None
    assert "the remainder has not come" in (swept(wire, 5) or "")


def test_a_body_that_others_wait_for_has_less_time() -> None:
    first = Wire(echo, budget_bytes=1000)
    second = Wire(echo, like=first)
    for wire in (first, second):
        wire.connection.data_received(framed(b"x" * 1500)[:404])
    assert first.budget.waiting == 1
    assert "400 of the 1500 bytes" in (swept(first, 12) or "")
    assert swept(second, 12) is None


def test_a_reader_that_stalls_with_memory_others_wait_for_is_closed_early() -> None:
    first = Wire(Careful(), budget_bytes=4000)
    first.transport.peer_reads = False
    first.send(b"x" * 2500)
    assert swept(first, 30) is None, "it is not waited for"
    second = Wire(Careful(), like=first)
    second.send(b"r")
    assert "stalled with 2504 bytes" in (swept(first, 12) or "")
    assert swept(second, 12) is None


def test_a_closed_connection_whose_peer_takes_nothing_is_dropped_early() -> None:
    wire = Wire(echo)
    wire.transport.peer_reads = False
    wire.send(b"x" * 500)
    wire.connection.close()
    wire.transport.peer_takes(100)
    assert swept(wire, 10) is None
    assert "last responses" in (swept(wire, 5) or "")


def test_a_connection_says_what_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wire = Wire(Desk())
    wire.send(b"p1")
    wire.connection.mute()
    wire.send(b"a")
    assert repr(wire.connection) == "Connection(test, PLAINTEXT, pending=1, held=1, bytes=5, holds=['muted'])"


@given(st.lists(st.binary(max_size=60), max_size=20))
def test_random_bytes_never_leave_anything_behind(chunks: list[bytes]) -> None:
    wire = Wire(Desk(), frame_bytes_max=50)
    for chunk in chunks:
        if chunk and not wire.transport.closed:
            wire.connection.data_received(chunk)
    wire.lose()
    assert wire.budget.used_bytes == 0
    assert wire.connection.held_bytes == 0
