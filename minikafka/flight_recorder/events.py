"""What is recorded: a struct for each kind of event, with what it is about, what happened, and the cause.

Who decides something calls ``Record`` with one of these; the recorder adds when that was. The fields are the
file's (``storage``): a field may be added with a default, but none may be renamed or change its meaning
without another version of the file.

Strings that clients choose are cut (``cut``), so that no event is large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Final, TypeAlias

import msgspec

TEXT_MAX: Final = 200
"""Characters of a string that a client chose: a client id, a group's name, a reason."""


def cut(text: str) -> str:
    """``text``, or its beginning."""
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"


def _list(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers)) or "none"


class EventOfBroker(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """What all have in common."""

    by_clients: ClassVar[bool] = False
    """Whether clients can cause as many as they like, so that only some of them are kept."""

    @property
    def kind(self) -> str:
        """One of ``KINDS``."""
        return str(self.__struct_config__.tag)

    @property
    def subject(self) -> str:
        """What it happened to."""
        return "broker"

    @property
    def text(self) -> str:
        """What happened, and why, for people."""
        raise NotImplementedError


class EventOfPartition(EventOfBroker, frozen=True, kw_only=True):
    topic: str
    partition: int

    @property
    def subject(self) -> str:
        return f"{self.topic}-{self.partition}"


class BrokerStarted(EventOfBroker, frozen=True, kw_only=True, tag="started"):
    """The logs are loaded; the broker is about to join its cluster."""

    version: str
    was_clean: bool | None
    """Whether the broker had stopped in order before; None: it has not run before."""

    @property
    def text(self) -> str:
        if self.was_clean is None:
            return f"minikafka {self.version} starts for the first time"
        before = "it had stopped in order" if self.was_clean else "it had not stopped in order"
        return f"minikafka {self.version} starts; {before}"


class BrokerStopped(EventOfBroker, frozen=True, kw_only=True, tag="stopped"):
    """In order. A broker that is killed records nothing of that."""

    @property
    def text(self) -> str:
        return "stops in order"


class ControllerChanged(EventOfBroker, frozen=True, kw_only=True, tag="controller"):
    """This broker has become the controller, or is it no more."""

    controller_epoch: int
    is_controller: bool
    cause: str = ""

    @property
    def subject(self) -> str:
        return "controller"

    @property
    def text(self) -> str:
        if self.is_controller:
            return f"is the controller of epoch {self.controller_epoch}"
        return f"no longer the controller of epoch {self.controller_epoch}: {self.cause}"


class ControllerStep(EventOfBroker, frozen=True, kw_only=True, tag="controller_step"):
    """The controller has dealt with something, and changed or sent something for it."""

    step: str
    """Kafka's name of the event (``ControllerState``)."""
    duration_ms: int
    states_written: int = 0
    requests: int = 0
    cause: str = ""

    @property
    def subject(self) -> str:
        return "controller"

    @property
    def text(self) -> str:
        return (
            f"{self.step} took {self.duration_ms} ms: {self.states_written} partition states written, "
            f"{self.requests} requests to brokers; {self.cause}"
        )


class LeaderElected(EventOfPartition, frozen=True, kw_only=True, tag="election"):
    """The controller has written another leader."""

    leader: int
    """-1: none."""
    previous_leader: int = -1
    leader_epoch: int
    isr: tuple[int, ...]
    is_unclean: bool = False
    """The leader was not in the ISR: committed records may be lost."""
    cause: str

    @property
    def text(self) -> str:
        who = "no leader" if self.leader < 0 else f"leader {self.leader}"
        before = "" if self.previous_leader < 0 else f" after {self.previous_leader}"
        unclean = ", unclean: committed records may be lost" if self.is_unclean else ""
        isr = _list(self.isr)
        return f"{who}{before} in epoch {self.leader_epoch}, ISR {isr}{unclean}: {self.cause}"


class IsrChanged(EventOfPartition, frozen=True, kw_only=True, tag="isr"):
    """The ISR is another one; or the leader wanted another one, and it was refused (``is_refused``)."""

    isr: tuple[int, ...]
    previous_isr: tuple[int, ...]
    leader_epoch: int
    is_refused: bool = False
    cause: str

    @property
    def text(self) -> str:
        if self.is_refused:
            return f"ISR stays {_list(self.isr)}: {self.cause}"
        return f"ISR {_list(self.isr)} after {_list(self.previous_isr)}: {self.cause}"


class EpochBegan(EventOfPartition, frozen=True, kw_only=True, tag="epoch"):
    """A broker leads or follows in another leader epoch."""

    leader: int
    """-1: none."""
    leader_epoch: int
    is_leader: bool
    log_end_offset: int
    high_watermark: int

    @property
    def text(self) -> str:
        if self.is_leader:
            role = "leads"
        else:
            role = "waits for a leader" if self.leader < 0 else f"follows {self.leader}"
        ends = f"log end {self.log_end_offset}, high watermark {self.high_watermark}"
        return f"{role} in epoch {self.leader_epoch}; {ends}"


class LogTruncated(EventOfPartition, frozen=True, kw_only=True, tag="truncation"):
    """A follower has dropped records that its leader does not have."""

    from_offset: int
    """Where the log ended before."""
    to_offset: int
    leader: int
    leader_epoch: int
    cause: str

    @property
    def text(self) -> str:
        return f"truncated from {self.from_offset} to {self.to_offset}: {self.cause}"


class GroupRebalanced(EventOfBroker, frozen=True, kw_only=True, tag="rebalance"):
    """A rebalance of a group begins."""

    by_clients: ClassVar[bool] = True

    group: str
    generation: int
    """The generation or epoch that ends."""
    members: int
    cause: str

    @property
    def subject(self) -> str:
        return self.group

    @property
    def text(self) -> str:
        return f"rebalance of generation {self.generation} with {self.members} members: {self.cause}"


class ClientThrottled(EventOfBroker, frozen=True, kw_only=True, tag="throttle"):
    """A client waits because of a quota."""

    by_clients: ClassVar[bool] = True

    user: str
    client_id: str
    quota: str
    throttle_time_ms: int
    cause: str

    @property
    def subject(self) -> str:
        return self.client_id or self.user

    @property
    def text(self) -> str:
        return f"{self.user} throttled for {self.throttle_time_ms} ms by {self.quota}: {self.cause}"


class LogCompacted(EventOfPartition, frozen=True, kw_only=True, tag="cleaner"):
    """A compaction was put in, or was given up (``failure``)."""

    bytes_read: int = 0
    bytes_written: int = 0
    elapsed_ms: int = 0
    failure: str = ""

    @property
    def text(self) -> str:
        if self.failure:
            return f"not compacted: {self.failure}"
        return f"compacted {self.bytes_read} bytes to {self.bytes_written} in {self.elapsed_ms} ms"


class SessionChanged(EventOfBroker, frozen=True, kw_only=True, tag="session"):
    """The session with the coordination store has expired, or another one has begun after that."""

    is_lost: bool

    @property
    def text(self) -> str:
        if self.is_lost:
            return "the session with the coordination store has expired: the broker is not registered"
        return "a new session with the coordination store: the broker is registered again"


class LogDirectoryFailed(EventOfBroker, frozen=True, kw_only=True, tag="log_dir"):
    directory: str
    partitions: int
    cause: str

    @property
    def subject(self) -> str:
        return self.directory

    @property
    def text(self) -> str:
        return f"offline, with {self.partitions} replicas: {self.cause}"


class SlowRequest(EventOfBroker, frozen=True, kw_only=True, tag="slow_request"):
    """A request took longer than ``event.recorder.slow.request.ms``. Times in milliseconds, by phase."""

    by_clients: ClassVar[bool] = True

    request: str
    client_id: str
    connection: str
    duration_ms: int
    queue_ms: int
    local_ms: int
    remote_ms: int
    response_queue_ms: int
    send_ms: int

    @property
    def subject(self) -> str:
        return self.client_id or self.connection

    @property
    def text(self) -> str:
        return (
            f"{self.request} of {self.connection} took {self.duration_ms} ms: in the queue {self.queue_ms}, "
            f"local {self.local_ms}, remote {self.remote_ms}, response queue {self.response_queue_ms}, "
            f"send {self.send_ms}"
        )


class SlowProduce(EventOfPartition, frozen=True, kw_only=True, tag="slow_produce"):
    """A produce with acks=all has waited longer than ``event.recorder.slow.request.ms`` for its replicas."""

    by_clients: ClassVar[bool] = True

    waited_ms: int
    is_committed: bool
    isr: tuple[int, ...]
    cause: str
    """Which replica it waited for, as far as that is known."""

    @property
    def text(self) -> str:
        end = "" if self.is_committed else " and is not committed"
        return f"acks=all waited {self.waited_ms} ms{end}; ISR {_list(self.isr)}: {self.cause}"


class BatchRefused(EventOfPartition, frozen=True, kw_only=True, tag="refused_batch"):
    """A producer's batch had another sequence than the next one (OUT_OF_ORDER_SEQUENCE_NUMBER)."""

    by_clients: ClassVar[bool] = True

    producer_id: int
    producer_epoch: int
    sequence: int
    """The batch's first."""
    last_sequence: int
    """The last one in the log, or tried before in a transaction that begins; -1: none of this epoch."""
    repeats: int = 0
    """How often the same was refused since the event about it before this one."""
    cause: str

    @property
    def text(self) -> str:
        more = f", {self.repeats} times more since the last event" if self.repeats else ""
        return f"a batch is refused, out of order{more}: {self.cause}"


Event: TypeAlias = (
    BrokerStarted
    | BrokerStopped
    | ControllerChanged
    | ControllerStep
    | LeaderElected
    | IsrChanged
    | EpochBegan
    | LogTruncated
    | GroupRebalanced
    | ClientThrottled
    | LogCompacted
    | SessionChanged
    | LogDirectoryFailed
    | SlowRequest
    | SlowProduce
    | BatchRefused
)


KINDS: Final[tuple[str, ...]] = tuple(
    str(each.__struct_config__.tag)
    for each in (
        BrokerStarted,
        BrokerStopped,
        ControllerChanged,
        ControllerStep,
        LeaderElected,
        IsrChanged,
        EpochBegan,
        LogTruncated,
        GroupRebalanced,
        ClientThrottled,
        LogCompacted,
        SessionChanged,
        LogDirectoryFailed,
        SlowRequest,
        SlowProduce,
        BatchRefused,
    )
)
"""Their names, as files and commands have them."""


Record = Callable[[Event], None]
"""Keeps an event. Costs a few microseconds, waits for nothing and never fails."""


def not_recorded(event: Event) -> None:
    """A ``Record`` for where there is no recorder."""


class RecordedEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event and when it was recorded."""

    sequence: int
    """Rises with each event of a broker, also over restarts and when its clock is set back: microseconds
    since the Unix epoch, or one more than the one before. By it the events of several brokers are put into
    one order, which is right as far as their clocks agree, and always right for each of them."""
    at_ms: int
    """The broker's wall clock."""
    left_out: int = 0
    """How many of the kind came since the last one that was kept, and are not."""
    event: Event
