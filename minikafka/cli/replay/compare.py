"""Where an answer differs from the one that was recorded, and the names that a cluster gives by itself.

Topic ids, producer ids, member ids and fetch sessions are other ones in another cluster. The first answer
that has such a name where the recording has another one teaches which stands for which; from then on requests
say it the new way, and an answer that breaks the rule is a difference.

What depends on the place and the moment is not compared: addresses, racks, cluster ids, throttling, times
that brokers read off their clocks, and the wording of errors unless it is asked for. When a Fetch gets more
or fewer records than the recorded one, because it came a little sooner or later, it is counted and not held
against the broker, as long as what both have is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from minikafka.cli.replay.recording import records_in, with_producer_ids, with_records
from minikafka.errors import ErrorCode, MinikafkaError
from minikafka.protocol.wire.api_versions import ApiKey

NAMES: Final[Mapping[str, str]] = {
    "topic_id": "topic",
    "producer_id": "producer",
    "member_id": "member",
    "leader": "member",
    "member_ids": "member",
    "session_id": "session",
    "acquisition_session_id": "session",
    "node_id": "broker",
    "broker_id": "broker",
    "leader_id": "broker",
    "controller_id": "broker",
    "replica_nodes": "broker",
    "isr_nodes": "broker",
    "offline_replicas": "broker",
    "eligible_leader_replicas": "broker",
    "last_known_elr": "broker",
    "preferred_read_replica": "broker",
    "replicas": "broker",
    "coordinator_id": "broker",
}
"""Field → what kind of name it has."""

NOT_COMPARED: Final = frozenset(
    (
        "throttle_time",
        "host",
        "port",
        "rack",
        "cluster_id",
        "node_endpoints",
        "client_host",
        "log_append_time",
        "transaction_start_time",
        "last_timestamp",
        "acquisition_lock_timeout",
        "log_dir",
        "size",
        "total_bytes",
        "usable_bytes",
        "finalized_features_epoch",
    )
)
TEXTS: Final = frozenset(("error_message", "message", "batch_index_error_message", "documentation"))
"""Compared only when it is asked for."""
AT_THE_MOMENT: Final = frozenset(("records", "high_watermark", "last_stable_offset", "aborted_transactions"))
"""Of a partition in a Fetch."""

NOT_READY: Final = frozenset(
    (
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
)
"""By which a broker puts a client off, which asks again soon."""
MAY_COME_TRUE: Final = NOT_READY | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS}
"""What may go away soon in a cluster where something was just made."""

_IDENTITY: Final = (
    "name", "topic_name", "topic", "group_id", "transactional_id", "resource_name", "key", "user",
    "topic_id", "partition_index", "partition", "index", "member_id", "api_key", "node_id", "broker_id",
    "producer_id", "resource_type", "error_code",
)  # fmt: skip
"""By which two lists of the same things are laid side by side, in whatever order they are."""
_SETS: Final = frozenset(("isr_nodes", "offline_replicas", "eligible_leader_replicas", "last_known_elr"))
_NOTHING: Final = (None, "", -1, UUID(int=0))
"""And 0, where it is a session of fetches: a broker and a producer may have it for an id."""


class Difference(NamedTuple):
    """One field of one answer."""

    path: str
    """``topics[t].partitions[0].error_code``."""
    recorded: Any
    answered: Any


class Absent:
    """In place of what one of the answers has not."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT: Final = Absent()


class Names:
    """Recorded name → the replayed cluster's."""

    def __init__(self, brokers: Mapping[int, int]) -> None:
        self._known: dict[tuple[str, Any], Any] = {("broker", old): new for old, new in brokers.items()}

    def of(self, kind: str, connection: int, value: Any) -> Any:
        """What stands for a recorded name; itself while that is not known."""
        return self._known.get(self._place(kind, connection, value), value)

    def learn(self, kind: str, connection: int, recorded: Any, answered: Any) -> bool:
        """Returns whether ``answered`` may stand for ``recorded``."""
        if any(each in _NOTHING or (each == 0 and kind == "session") for each in (recorded, answered)):
            return bool(recorded == answered)
        if kind == "producer" and recorded == answered == 0:
            return True  # it may stand in an answer that has an error, and nothing else
        place = self._place(kind, connection, recorded)
        return bool(self._known.setdefault(place, answered) == answered)

    def _place(self, kind: str, connection: int, value: Any) -> tuple[str, Any]:
        return kind, (connection, value) if kind == "session" else value

    def producer_ids(self) -> dict[int, int]:
        return {old: new for (kind, old), new in self._known.items() if kind == "producer"}

    def in_request(self, body: Any, connection: int) -> Any:
        """A recorded request as it is to be sent."""
        ids = self.producer_ids()
        body = self._said(body, connection)
        return with_records(body, lambda data: with_producer_ids(data, ids)) if ids else body

    def _said(self, body: Any, connection: int, name: str = "") -> Any:
        if isinstance(body, dict):
            return {field: self._said(value, connection, field) for field, value in body.items()}
        if isinstance(body, list):
            return [self._said(each, connection, name) for each in body]
        kind = NAMES.get(name)
        return body if kind is None else self.of(kind, connection, body)


class Comparison:
    """Of all answers of a recording. ``ignored`` are further fields that are not compared."""

    def __init__(self, names: Names, *, ignored: Sequence[str] = (), texts: bool = False) -> None:
        self._names = names
        self._ignored = NOT_COMPARED | set(ignored) | (frozenset() if texts else TEXTS)
        self._connection = 0
        self._is_fetch = False
        self.later_or_sooner = 0
        """Partitions of Fetches with more or fewer records than when it was recorded."""

    def differences(self, key: ApiKey, connection: int, recorded: Any, answered: Any) -> list[Difference]:
        """And learns names."""
        self._connection = connection
        self._is_fetch = key in (ApiKey.FETCH, ApiKey.SHARE_FETCH)
        return list(self._of("", "", recorded, answered))

    def _of(self, path: str, name: str, recorded: Any, answered: Any) -> Iterator[Difference]:
        if isinstance(recorded, dict) and isinstance(answered, dict):
            yield from self._of_dicts(path, recorded, answered)
        elif isinstance(recorded, list) and isinstance(answered, list):
            yield from self._of_lists(path, name, recorded, answered)
        elif (kind := NAMES.get(name)) is not None:
            if not self._names.learn(kind, self._connection, recorded, answered):
                yield Difference(path, recorded, answered)
        elif name == "records":
            if records_or_bytes(recorded) != records_or_bytes(answered):
                yield Difference(path, records_or_bytes(recorded), records_or_bytes(answered))
        elif recorded != answered:
            yield Difference(path, _readable(name, recorded), _readable(name, answered))

    def _of_dicts(
        self, path: str, recorded: Mapping[str, Any], answered: Mapping[str, Any]
    ) -> Iterator[Difference]:
        ignored = self._ignored
        is_part_of_fetch = self._is_fetch and "records" in recorded and "records" in answered
        if is_part_of_fetch and _is_start_of_other(recorded["records"], answered["records"]):
            ignored = ignored | AT_THE_MOMENT
            self.later_or_sooner += 1
        for name in [*recorded, *(each for each in answered if each not in recorded)]:
            if name not in ignored:
                below = f"{path}.{name}" if path else name
                yield from self._of(below, name, recorded.get(name, ABSENT), answered.get(name, ABSENT))

    def _of_lists(
        self, path: str, name: str, recorded: Sequence[Any], answered: Sequence[Any]
    ) -> Iterator[Difference]:
        if not any(isinstance(each, dict) for each in (*recorded, *answered)):
            yield from self._of_values(path, name, recorded, answered)
            return
        theirs = {self._identity(each, recorded=False): each for each in answered}
        for each in recorded:
            identity = self._identity(each, recorded=True)
            other = theirs.pop(identity, ABSENT)
            yield from self._of_entries(f"{path}[{_shown(identity)}]", each, other)
        for identity, other in theirs.items():
            yield from self._of_entries(f"{path}[{_shown(identity)}]", ABSENT, other)

    def _of_values(
        self, path: str, name: str, recorded: Sequence[Any], answered: Sequence[Any]
    ) -> Iterator[Difference]:
        kind = NAMES.get(name)
        if kind is not None:
            recorded = [self._names.of(kind, self._connection, each) for each in recorded]
        if name in _SETS:
            recorded, answered = sorted(recorded), sorted(answered)
        if list(recorded) != list(answered):
            yield Difference(path, recorded, answered)

    def _of_entries(self, path: str, recorded: Any, answered: Any) -> Iterator[Difference]:
        if recorded is not ABSENT and answered is not ABSENT:
            yield from self._of(path, "", recorded, answered)
            return
        there = answered if recorded is ABSENT else recorded
        if self._is_fetch and not _has_error(there):
            self.later_or_sooner += 1  # a session leaves out partitions without news
            return
        yield Difference(path, recorded, answered)

    def _identity(self, entry: Any, *, recorded: bool) -> tuple[Any, ...]:
        if not isinstance(entry, dict):
            return (entry,)
        found: list[Any] = []
        for name in _IDENTITY:
            value = entry.get(name)
            if value is None or value == "":
                continue
            if name == "topic_id" and found:
                continue  # it has a name
            if recorded and (kind := NAMES.get(name)) is not None:
                value = self._names.of(kind, self._connection, value)
            if name == "error_code" and found:
                continue
            found.append(value)
        return tuple(map(_hashable, found))


def _hashable(value: Any) -> Any:
    return value if value.__hash__ else repr(value)


def _shown(identity: tuple[Any, ...]) -> str:
    return ", ".join(map(str, identity))


def _has_error(entry: Any) -> bool:
    if isinstance(entry, dict):
        return bool(entry.get("error_code")) or any(map(_has_error, entry.values()))
    return isinstance(entry, list) and any(map(_has_error, entry))


def error_codes(entry: Any) -> Iterator[int]:
    """All error codes in a body, 0 as well, but for that of a whole with parts of which each has its own."""
    if isinstance(entry, list):
        for each in entry:
            yield from error_codes(each)
    if not isinstance(entry, dict):
        return
    below = [code for each in entry.values() for code in error_codes(each)]
    yield from below
    own = [value for name, value in entry.items() if name.endswith("error_code")]
    yield from (code for code in own if code or not below)


def was_put_off(answer: Any) -> bool:
    """Whether nothing was done but to tell the client to ask again."""
    codes = list(error_codes(answer))
    return bool(codes) and all(code in NOT_READY for code in codes)


def may_come_true(recorded: Any, answered: Any) -> bool:
    """Whether an answer has errors which the recorded one has not and which may be gone when it is asked
    again."""
    new = {code for code in error_codes(answered) if code} - set(error_codes(recorded))
    return bool(new) and all(code in MAY_COME_TRUE for code in new)


def records_or_bytes(data: Any) -> Any:
    """Records as a consumer sees them; what cannot be read as it is."""
    if not isinstance(data, bytes):
        return [] if data is None else data
    try:
        return records_in(data)
    except MinikafkaError:
        return data


def _is_start_of_other(one: Any, other: Any) -> bool:
    """Whether both have the same records as far as the shorter one goes, and not the same number."""
    one, other = records_or_bytes(one), records_or_bytes(other)
    if not (isinstance(one, list) and isinstance(other, list)) or len(one) == len(other):
        return False
    count = min(len(one), len(other))
    return bool(one[:count] == other[:count])


def _readable(name: str, value: Any) -> Any:
    if name == "error_code" and isinstance(value, int):
        try:
            return ErrorCode(value).name
        except ValueError:
            return value
    return value
