"""The diagnostics kind ``purgatory``: what waits under which key since when until when, and the timing wheel.

Of each purgatory those entries are looked at that have been watched for longest, ``ENTRIES_SEEN_MAX`` of
them, and ``limit`` of the operations are listed, those with the least time left first. So it costs the same
whether a thousand or a million wait.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final

import msgspec

from minikafka.errors import ErrorCode, KafkaError
from minikafka.purgatory.purgatory import DelayedOperation, DelayedOperationPurgatory
from minikafka.server.coordinator.hosted_shard import operation_text
from minikafka.server.services import Services
from minikafka.steps import ELEMENTS_A_STEP, Steps
from minikafka.types import TopicPartition

ENTRIES_SEEN_MAX: Final = 2_000
"""Of one purgatory: they are put into a list at once, which takes 0.2 ms."""
LISTED: Final = 100
LISTED_MAX: Final = 1_000
KEYS_SHOWN: Final = 5
"""Of one operation; a fetch of a thousand partitions waits under a thousand."""
TEXT_MAX: Final = 300

Purgatory = DelayedOperationPurgatory[Any]


class WaitingOperation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation that waits. Times are wall-clock, in milliseconds since the Unix epoch."""

    keys: list[str]
    """Events on these may complete it; the first of them."""
    keys_left_out: int
    since_ms: int
    """When its time began; of a member's session that is its last heartbeat."""
    until_ms: int
    """Its deadline."""
    waits_for: str


class PurgatoryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One purgatory."""

    name: str
    delayed: int
    """``NumDelayedOperations``: operations that wait."""
    watched: int
    """``PurgatorySize``: entries in watch lists."""
    keys: int
    """Different keys in them."""
    waiting: list[WaitingOperation]
    """Those with the least time left first."""
    waiting_left_out: int
    """How many more wait, whether a filter would let them through or not."""


class WheelLevelDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One level of the timing wheel."""

    tick_ms: int
    counts: list[int]
    """Operations by bucket, from the current one on; each bucket covers ``tick_ms``."""


class PurgatoriesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All that waits on one broker."""

    broker: int
    at_ms: int
    purgatories: list[PurgatoryDocument]
    wheel: list[WheelLevelDocument]
    """The finest level first; all purgatories share it."""


def purgatory(services: Services, arguments: Mapping[str, str]) -> Steps[PurgatoriesDocument]:
    """Arguments: ``name`` (of a purgatory), ``key`` (only operations with that in a key or in what they wait
    for) and ``limit`` (of each purgatory).

    Raises KafkaError: INVALID_REQUEST.
    """
    for argument in arguments:
        if argument not in ("name", "key", "limit"):
            raise _invalid(f"Unknown argument {argument!r}; purgatory takes name, key, limit")
    limit = arguments.get("limit", str(LISTED))
    if not limit.isascii() or not limit.isdigit() or not 0 < int(limit[:9]) <= LISTED_MAX:
        raise _invalid(f"limit={limit}: must be a whole number from 1 to {LISTED_MAX}")
    wanted = all_purgatories(services)
    name = arguments.get("name")
    if name is not None:
        names = [each.name for each in wanted]
        wanted = [each for each in wanted if each.name.lower() == name.lower()]
        if not wanted:
            raise _invalid(f"There is no purgatory {name!r}: there are {', '.join(names)}")
    return (yield from describe_waiting(services, wanted, key=arguments.get("key", ""), limit=int(limit)))


def all_purgatories(services: Services) -> list[Purgatory]:
    """In the order in which they are shown."""
    parked, groups = services.replica_manager.parked, services.groups.parked
    return [
        parked.produce,
        parked.fetch,
        parked.delete_records,
        parked.share_fetch,
        groups.rebalance,
        groups.heartbeat,
        services.transactions.parked,
    ]


def describe_waiting(
    services: Services, wanted: Iterable[Purgatory], *, key: str = "", limit: int = LISTED
) -> Steps[PurgatoriesDocument]:
    """In steps."""
    documents = []
    for each in wanted:
        documents.append((yield from _describe(services, each, key, limit)))
        yield
    levels = services.replica_manager.parked.fetch.timer.levels()
    return PurgatoriesDocument(
        broker=services.node_id,
        at_ms=services.clock.now_ms(),
        purgatories=documents,
        wheel=[WheelLevelDocument(tick_ms=each.tick_ms, counts=each.counts) for each in levels],
    )


def _describe(services: Services, wanted: Purgatory, key: str, limit: int) -> Steps[PurgatoryDocument]:
    operations = wanted.waiting(ENTRIES_SEEN_MAX)
    operations.sort(key=lambda each: each.expiration_ms)
    shown: list[WaitingOperation] = []
    delayed, watched, keys = wanted.delayed, wanted.watched, wanted.keys
    for count, operation in enumerate(operations, start=1):
        if len(shown) == limit:
            break
        if not operation.is_completed:
            row = _row(services, operation)
            if not key or any(key in text for text in (*row.keys, row.waits_for)):
                shown.append(row)
        if count % ELEMENTS_A_STEP == 0:
            yield
    return PurgatoryDocument(
        name=wanted.name,
        delayed=delayed,
        watched=watched,
        keys=keys,
        waiting=shown,
        waiting_left_out=max(0, delayed - len(shown)),
    )


def _row(services: Services, operation: DelayedOperation) -> WaitingOperation:
    clock = services.clock
    until_ms = clock.now_ms() + operation.expiration_ms - clock.monotonic_ms()
    keys = operation.watch_keys
    return WaitingOperation(
        keys=[_cut(key_text(each)) for each in keys[:KEYS_SHOWN]],
        keys_left_out=max(0, len(keys) - KEYS_SHOWN),
        since_ms=until_ms - operation.delay_ms,
        until_ms=until_ms,
        waits_for=_cut(operation.waits_for()),
    )


def key_text(key: Hashable) -> str:
    """A partition, or the operation of a coordinator's shard."""
    if isinstance(key, TopicPartition):
        return str(key)
    return operation_text(key[1]) if isinstance(key, tuple) and len(key) == 2 else str(key)


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
