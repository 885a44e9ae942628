"""How many bytes all connections together may hold for requests and responses under way.

Kafka's ``SimpleMemoryPool`` behind ``queued.max.request.bytes``; here responses that wait count too, because
we have them in memory where Kafka has them in files (sendfile). One half is for requests that have not
arrived in full, the other for responses that cannot leave.

**Requests.** What counts is what has arrived, not what a frame's size announces. All connections of an
address may hold ``ADDRESS_SHARE`` of the half. A connection may collect more of a frame while it holds no
more than a part of what its address may still take, 1/``CONNECTION_SHARES`` (the *dynamic threshold* of
shared-memory switches, Choudhury and Hahne 1998). So n connections that take what they can get have 1/(n+4)
each, and four times as much is left for those that come: six of them leave 40 MB of 102, one hundred 4 MB,
and other addresses have theirs besides.

A frame may be larger than any share. So one connection at a time may *overdraw*: its frame grows to its end
without being counted any further, while the others over their share wait in line. That way the line always
moves, and the overdraft is at most one request. Who overdraws and does not send is closed
(``Connection.sweep``).

Connections that have not logged in count there too, and besides have a much smaller share among themselves
(CVE-2022-34917), with an overdraft of their own. What comes in one piece, as logins do, takes nothing of it;
who sends a piece of a frame for which it has no room at all is closed.

What is read at once may hold many whole frames. When they have to wait, because their connection has requests
under way, the chunk counts as well; it cannot be sent back, so who brings one when nothing is left is closed,
but for the one that overdraws.

**Responses.** They are there before they can be refused. So requests whose answers may be far larger than
themselves wait while there is no room (``has_room``): consumers' fetches below the others, so that peers
which do not read their records leave room for metadata. Their answers are cut to a part of what is left
(``answer_bytes_max``). All others, a produce or a heartbeat, are answered in a few bytes and never wait.

A connection that was told to wait stands in line and is woken, first come first served, when something was
given back.
"""

from __future__ import annotations

from collections.abc import Callable

ADDRESS_SHARE = 0.8
"""Of the requests' half, for all connections of one address: behind a NAT are a hundred clients, and still
others have something."""

LOGIN_SHARE = 1 / 4
"""Of the requests' half, for all connections that have not logged in: 32 MB, or 64 messages of
``sasl.server.max.receive.size`` at once, where one of SCRAM has 100 bytes and a token a few kilobytes."""

LOGIN_ADDRESS_SHARE = 0.5
"""Of that, for all of one address."""

CONNECTION_SHARES = 4
"""Few enough for a connection alone to collect 20 MB, where clients send 1 MB (``max.request.size``); and who
comes when a hundred have taken what they can still gets 0.8 MB."""

RECORDS_SHARE = 0.75
"""Of the responses' half, for what consumers fetch."""

ANSWERS_MIN = 4
"""An answer takes at most this part of what is left for records."""

ANSWER_BYTES_MIN = 64 * 1024
"""What an answer may have at the least: one that holds nothing would be asked for again and again."""

WAKES_PER_TURN = 256
"""Connections that are looked at in one turn of the loop, about 1 ms."""


class _Share:
    """Bytes of requests that have not arrived in full, by address."""

    __slots__ = ("_address_bytes_max", "_by_address", "bytes_max", "held_bytes")

    def __init__(self, bytes_max: int, *, address_share: float) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self._address_bytes_max = int(bytes_max * address_share)
        self._by_address: dict[str, int] = {}

    def adjust(self, change_bytes: int, address: str) -> None:
        self.held_bytes += change_bytes
        of_address = self._by_address.get(address, 0) + change_bytes
        assert of_address >= 0, (address, of_address)
        if of_address:
            self._by_address[address] = of_address
        else:
            self._by_address.pop(address, None)

    def left_bytes(self, address: str) -> int:
        """What a connection from there may still take, at most; negative when too much is taken."""
        of_address = self._address_bytes_max - self._by_address.get(address, 0)
        return min(of_address, self.bytes_max - self.held_bytes)


class MemoryBudget:
    """Counts bytes; owned by one event loop.

    ``call_soon`` is the loop's: the ones in line are woken from there and not from inside of ``adjust``, so
    that one connection's progress never runs another one's handlers in the middle of its own.
    """

    __slots__ = (
        "_call_soon",
        "_frames",
        "_logins",
        "_overdrawers",
        "_record_bytes_max",
        "_response_bytes_max",
        "_to_wake",
        "_waiting",
        "_wake_is_scheduled",
        "response_bytes",
    )

    def __init__(self, bytes_max: int, *, call_soon: Callable[..., object]) -> None:
        if bytes_max < 2:
            raise ValueError(f"a memory budget of {bytes_max} bytes")
        self._frames = _Share(bytes_max // 2, address_share=ADDRESS_SHARE)
        self._logins = _Share(int(bytes_max // 2 * LOGIN_SHARE), address_share=LOGIN_ADDRESS_SHARE)
        """Of those in ``_frames`` what connections hold that have not logged in."""
        self._response_bytes_max = bytes_max - self._frames.bytes_max
        self._record_bytes_max = int(self._response_bytes_max * RECORDS_SHARE)
        self._call_soon = call_soon
        self._waiting: dict[Callable[[], None], None] = {}
        self._to_wake = 0
        self._wake_is_scheduled = False
        self._overdrawers: dict[bool, object] = {}
        """One of those that have not logged in (True), and one of the others."""
        self.response_bytes = 0
        """Of responses that wait for an earlier one or for the peer."""

    def __repr__(self) -> str:
        return (
            f"MemoryBudget(requests {self.frame_bytes} of {self._frames.bytes_max} bytes, "
            f"logins {self.login_bytes} of {self._logins.bytes_max}, "
            f"responses {self.response_bytes} of {self._response_bytes_max}, {len(self._waiting)} waiting)"
        )

    @property
    def frame_bytes(self) -> int:
        """Of requests that have not arrived in full, without what is overdrawn."""
        return self._frames.held_bytes

    @property
    def login_bytes(self) -> int:
        """Of these, what connections hold that have not logged in."""
        return self._logins.held_bytes

    @property
    def used_bytes(self) -> int:
        return self.frame_bytes + self.response_bytes

    @property
    def waiting(self) -> int:
        """How many wait for something to be left."""
        return len(self._waiting)

    @property
    def answer_bytes_max(self) -> int:
        """How large an answer should be whose size is ours to choose."""
        left_bytes = self._record_bytes_max - self.response_bytes
        return max(left_bytes // ANSWERS_MIN, ANSWER_BYTES_MIN)

    def adjust_frame(self, change_bytes: int, address: str, *, before_login: bool = False) -> None:
        """A connection from ``address`` has collected bytes, or gives them back."""
        self._frames.adjust(change_bytes, address)
        if before_login:
            self._logins.adjust(change_bytes, address)
        if change_bytes < 0:
            self._schedule_wake()

    def logged_in(self, held_bytes: int, address: str) -> None:
        """A connection that holds ``held_bytes`` of a frame counts among the others from now on."""
        self._logins.adjust(-held_bytes, address)
        self._schedule_wake()

    def adjust_responses(self, change_bytes: int) -> None:
        """A connection holds more or fewer bytes of responses."""
        self.response_bytes += change_bytes
        assert self.response_bytes >= 0, self
        if change_bytes < 0 and self.response_bytes < self._response_bytes_max:
            self._schedule_wake()

    def has_room(self, *, for_records: bool) -> bool:
        """Whether a request may be handled whose answer may be large."""
        bytes_max = self._record_bytes_max if for_records else self._response_bytes_max
        return self.response_bytes < bytes_max

    def may_collect(self, held_bytes: int, address: str, *, before_login: bool = False) -> bool:
        """Whether a connection that holds ``held_bytes`` of a frame is within its share."""
        return held_bytes * CONNECTION_SHARES <= self.left_bytes(address, before_login=before_login)

    def left_bytes(self, address: str, *, before_login: bool = False) -> int:
        """What connections from ``address`` may still take; negative when they hold too much."""
        left_bytes = self._frames.left_bytes(address)
        return min(left_bytes, self._logins.left_bytes(address)) if before_login else left_bytes

    def may_overdraw(self, who: object, *, before_login: bool = False) -> bool:
        """Whether ``who`` may go on beyond its share: the one that asked first, until ``settle``."""
        return self._overdrawers.setdefault(before_login, who) is who

    def is_overdrawn_by(self, who: object) -> bool:
        """Whether an overdraft is that of ``who``."""
        return any(each is who for each in self._overdrawers.values())

    def settle(self, who: object) -> None:
        """``who`` has what it wanted: the overdraft, if one was its, is free."""
        for kind, overdrawer in self._overdrawers.items():
            if overdrawer is who:
                del self._overdrawers[kind]
                self._schedule_wake()
                return

    def wait(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` once something was given back. The same ``wake`` stands in line only once."""
        self._waiting[wake] = None

    def forget(self, wake: Callable[[], None]) -> None:
        """Leave the line."""
        self._waiting.pop(wake, None)

    def _schedule_wake(self) -> None:
        self._to_wake = len(self._waiting)
        if self._to_wake and not self._wake_is_scheduled:
            self._wake_is_scheduled = True
            self._call_soon(self._wake)

    def _wake(self) -> None:
        """Those for whom it is still too little stand in line again, behind the others."""
        self._wake_is_scheduled = False
        for _ in range(min(self._to_wake, WAKES_PER_TURN)):
            if not self._waiting:
                return
            self._to_wake -= 1
            wake = next(iter(self._waiting))
            del self._waiting[wake]
            wake()
        if self._to_wake and not self._wake_is_scheduled:
            self._wake_is_scheduled = True
            self._call_soon(self._wake)
