"""The documents that ``apis.diagnostics`` answers with: what a broker knows, by kind.

What has a field in an answer of Kafka's is not in here again. By kind:

- ``broker``: how this broker started and how it is now: its event loop, garbage, disks and requests. The loop
  is measured for ``PROBES`` × ``PROBE_MS`` while the answer is awaited; that needs no HTTP port, and costs
  nothing when it is not asked for.
- ``counters``: how long this broker has run, what it has served since then, and what it holds. What a console
  asks of every broker every few seconds: cheap, and nothing is measured for it.
- ``refusals``: what it has refused lately, the newest first: produces, logins, and operations that no ACL
  allows.
- ``events``: what it has decided of late (``server.runtime.event_recorder``). A document is one page: the
  oldest events after ``after`` that the filters let through, ``limit`` of them at most. Who wants all asks
  again with the ``last_sequence`` of the answer until ``is_last``; who follows, from time to time after that.
  With ``newest`` instead of ``limit`` it is the last page.
- ``partition``: how one replica stands here: ISR, log, retention and compaction. What the followers have, the
  leader says in DescribeQuorum already; here is which of them the high watermark waits for, what keeps the
  oldest segment, and what the log cleaner thinks.
- ``waiting``: which produces and fetches wait for one partition, since when, and until when at most.
- ``purgatory``: what waits under which key since when until when, and the timing wheel. Of each purgatory
  those entries are looked at that have been watched for longest, ``ENTRIES_SEEN_MAX`` of them, and ``limit``
  of the operations are listed, those with the least time left first. So it costs the same whether a thousand
  or a million wait.
- ``group``: what the coordinator of a group waits for, whom it has lost, what its last rebalances were for.
  DescribeGroups and ConsumerGroupDescribe tell state, members and assignments; here is since when, until
  when, whom a rebalance waits for, when each member was heard of, when offsets were committed, and the
  history.
- ``topic-deletion``: how far the deletion of a topic is; only the controller knows.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from minikafka import __version__
from minikafka.coordinator.group.classic_group import ClassicGroup, ClassicMember
from minikafka.coordinator.group.consumer.consumer_group import ConsumerGroup, ConsumerGroupMember
from minikafka.coordinator.group.messages import GroupOperation, OperationKind
from minikafka.coordinator.group.shard import GroupShard
from minikafka.errors import ErrorCode, KafkaError
from minikafka.flight_recorder import EventFilter, ShownEvent, decode_event, event_filter, show
from minikafka.log.cleanable_log import CleanableLog
from minikafka.log.segment.fetch_data import FetchIsolation
from minikafka.log.segment.segment import LogSegment
from minikafka.log.unified_log import UnifiedLog
from minikafka.metrics.broker_stats import Refusal, Refused, RefusedKind
from minikafka.metrics.request_metrics import Phase, RequestMetrics, quantiles
from minikafka.network.addresses import format_address
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.purgatory import DelayedOperation, DelayedOperationPurgatory
from minikafka.server.coordinator.hosted_shard import HostedShard, operation_text
from minikafka.server.replica.delayed_operations import DelayedFetch, DelayedProduce
from minikafka.server.replica.partition import Partition
from minikafka.server.runtime.process import full_collections
from minikafka.server.services import Services
from minikafka.steps import ELEMENTS_A_STEP, Steps
from minikafka.system_clock import thread_cpu_ns
from minikafka.types import TopicPartition

PROBES: Final = 20
PROBE_MS: Final = 25
"""Between two probes of the event loop."""
_SHARES: Final = (0.5, 0.99, 1.0)

_LOGS_AT_ONCE: Final = 500
"""Whose sizes are added up before others have a turn: less than a millisecond."""

_REFUSED_KINDS: Final = {each.value: each for each in RefusedKind}

WAITING_MAX: Final = 100
"""Produces, and fetches, of one partition; a person reads no more, and the others wait for the same."""

ENTRIES_SEEN_MAX: Final = 2_000
"""Of one purgatory: they are put into a list at once, which takes 0.2 ms."""
LISTED: Final = 100
LISTED_MAX: Final = 1_000
KEYS_SHOWN: Final = 5
"""Of one operation; a fetch of a thousand partitions waits under a thousand."""
TEXT_MAX: Final = 300

GROUP_MEMBERS_MAX: Final = 500
GROUP_COMMITS_MAX: Final = 5_000

REPLICAS_MAX: Final = 1_000
"""Of a topic that is deleted, of those that are not yet."""

Purgatory = DelayedOperationPurgatory[Any]


def take(arguments: Mapping[str, str], *, required: Iterable[str] = (), optional: Iterable[str] = ()) -> None:
    """Raises KafkaError: INVALID_REQUEST when one is missing, or one is there that the kind does not know."""
    required = tuple(required)
    known = (*required, *optional)
    for name in required:
        if name not in arguments:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"These diagnostics need {name}=…")
    for name in arguments:
        if name not in known:
            takes = ", ".join(known) or "none"
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unknown argument {name!r}; these diagnostics take {takes}"
            )


def partition_of(arguments: Mapping[str, str]) -> TopicPartition:
    """``topic=NAME`` and ``partition=NUMBER``. Raises KafkaError: INVALID_REQUEST for anything else."""
    take(arguments, required=("topic", "partition"))
    number = arguments["partition"]
    if not number.isascii() or not number.isdigit() or len(number) > 10:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"partition={number}: must be a partition's number")
    return TopicPartition(arguments["topic"], int(number))


def broker(services: Services, arguments: Mapping[str, str]) -> Steps[Any]:
    """Raises KafkaError: INVALID_REQUEST."""
    take(arguments)
    loop = yield from _loop(services)
    directories = [*services.log_manager.live_directories]
    free = yield from services.scheduler.apart(lambda: [_free_bytes(each) for each in directories])
    replicas = services.replica_manager
    offline = services.log_manager.offline_directories
    return {
        "broker": int(services.node_id),
        "start": _start(services),
        "loop": loop,
        "garbage": _garbage(services),
        "disk": {
            "flushes": _times(services.log_flushes.quantiles_ms(_SHARES), services.log_flushes.count),
            "directories": [
                *(
                    {"path": path, "offline": None, "free_bytes": each}
                    for path, each in zip(directories, free, strict=True)
                ),
                *({"path": path, "offline": why, "free_bytes": None} for path, why in offline.items()),
            ],
        },
        "requests": _requests(services),
        "partitions": {
            "hosted": len(replicas.partitions),
            "led": sum(each.is_leader for each in replicas.partitions.values()),
        },
        "waiting": {"produce": replicas.parked.produce.delayed, "fetch": replicas.parked.fetch.delayed},
    }


def _start(services: Services) -> dict[str, Any] | None:
    phases = services.start_phases
    if phases is None:
        return None
    return {
        "ago_ms": max(services.clock.monotonic_ms() - phases.began_ms, 0),
        "total_ms": phases.total_ms,
        "phases": [{"name": name, "ms": ms} for name, ms in phases.phases],
        "was_clean": services.log_manager.was_clean,
        "logs": len(services.log_manager.logs),
    }


def _loop(services: Services) -> Steps[dict[str, Any]]:
    """How late short timers fire, and how much of the time its thread computes."""
    loop, clock = asyncio.get_running_loop(), services.clock
    began_ns, began_cpu_ns = clock.monotonic_ns(), thread_cpu_ns()
    late_ms = []
    for _ in range(PROBES):
        due: asyncio.Future[None] = loop.create_future()
        due_ns = clock.monotonic_ns() + PROBE_MS * 1_000_000
        loop.call_later(PROBE_MS / 1000, _fire, due)
        yield due
        late_ms.append(max(clock.monotonic_ns() - due_ns, 0) / 1_000_000)
    elapsed_ns = max(clock.monotonic_ns() - began_ns, 1)
    return {
        "measured_ms": elapsed_ns // 1_000_000,
        "late_ms": _times(quantiles(late_ms, _SHARES), PROBES),
        "busy_share": min((thread_cpu_ns() - began_cpu_ns) / elapsed_ns, 1.0),
    }


def _fire(due: asyncio.Future[None]) -> None:
    if not due.done():
        due.set_result(None)


def _garbage(services: Services) -> list[dict[str, Any]]:
    now_ms = services.clock.monotonic_ms()
    return [
        {"ago_ms": max(now_ms - each.at_ms, 0), "duration_ms": each.duration_ms} for each in full_collections
    ]


def _free_bytes(path: str) -> int | None:
    """None: it cannot be told. In a thread."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _requests(services: Services) -> list[dict[str, Any]]:
    metrics = services.request_metrics
    kinds = (metrics.of(ApiKey.PRODUCE), metrics.fetch_consumer, metrics.fetch_follower)
    return [_request(each) for each in kinds]


def _request(metrics: RequestMetrics) -> dict[str, Any]:
    by_phase = {each.name.lower(): quantiles(metrics.timed.of(each), (0.99,))[0] for each in Phase}
    slowest = max(by_phase, key=by_phase.__getitem__)
    return {
        "name": metrics.name,
        "timed": len(metrics.timed),
        "p50_ms": quantiles(metrics.timed.totals(), (0.5,))[0],
        "p99_ms": quantiles(metrics.timed.totals(), (0.99,))[0],
        "slowest_phase": slowest,
        "slowest_phase_p99_ms": by_phase[slowest],
        "throttled": metrics.throttled,
    }


def _times(found: list[float], count: int) -> dict[str, Any]:
    p50, p99, longest = found
    return {"count": count, "p50": p50, "p99": p99, "max": longest}


def counters(services: Services, arguments: Mapping[str, str]) -> Steps[Any]:
    """Raises KafkaError: INVALID_REQUEST."""
    take(arguments)
    stats = services.replica_manager.stats.total()
    log_bytes = 0
    for count, log in enumerate(list(services.log_manager.logs.values()), start=1):
        log_bytes += log.size_bytes
        if count % _LOGS_AT_ONCE == 0:
            yield
    yield
    now_ms, phases = services.clock.now_ms(), services.start_phases
    uptime_ms = None if phases is None else max(services.clock.monotonic_ms() - phases.began_ms, 0)
    return {
        "broker": int(services.node_id),
        "version": __version__,
        "at_ms": now_ms,
        "started_at_ms": None if uptime_ms is None else now_ms - uptime_ms,
        "page": _page(services),
        "connections": services.connection_count(),
        "requests": sum(each.count for each in services.request_metrics if each.parent is None),
        "in_bytes": stats.value("bytes_in"),
        "out_bytes": stats.value("bytes_out"),
        "log_bytes": log_bytes,
    }


def _page(services: Services) -> str | None:
    """Where this broker's own page is; None: nowhere."""
    own = next((each for each in services.metadata.brokers() if each.node_id == services.node_id), None)
    if own is None or own.http is None:
        return None
    return f"{services.config.http_scheme()}://{format_address(*own.http)}/"


def refusals(services: Services, arguments: Mapping[str, str]) -> Steps[Any]:
    """``what``: only of this kind; ``about``: only about this, or what begins with it and a dash.
    Raises KafkaError: INVALID_REQUEST."""
    take(arguments, optional=("what", "about"))
    what = arguments.get("what")
    if what is not None and what not in _REFUSED_KINDS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"what={what}: there are {', '.join(_REFUSED_KINDS)}")
    about, now_ms = arguments.get("about"), services.clock.now_ms()
    entries = [*services.produce_refusals.newest_first(), *services.security_metrics.refusals.newest_first()]
    found = []
    for count, (refused, refusal) in enumerate(entries, start=1):
        of_kind = what is None or refused.kind is _REFUSED_KINDS[what]
        if of_kind and (about is None or refused.about == about or refused.about.startswith(f"{about}-")):
            found.append(_entry(refused, refusal, now_ms))
        if count % ELEMENTS_A_STEP == 0:
            yield
    return {"broker": int(services.node_id), "refusals": found}


def _entry(refused: Refused, refusal: Refusal, now_ms: int) -> dict[str, Any]:
    return {
        "kind": refused.kind.value,
        "about": refused.about,
        "error": refused.error,
        "message": refusal.message,
        "user": refused.user,
        "client_id": refused.client_id,
        "host": refused.host,
        "count": refusal.count,
        "first_ms_ago": max(now_ms - refusal.first_ms, 0),
        "last_ms_ago": max(now_ms - refusal.last_ms, 0),
    }


class EventsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the events of one broker."""

    broker: int
    at_ms: int
    """The broker's clock now."""
    events: list[ShownEvent]
    """The oldest first."""
    last_sequence: int
    """What to ask for the events after, for the next page."""
    is_last: bool
    """Whether the page goes up to now."""
    first_at_ms: int | None
    """Of the oldest event that is still kept; None: there is none."""
    is_on: bool
    """Whether anything is recorded (``event.recorder.max.bytes``)."""


def events(services: Services, arguments: Mapping[str, str]) -> Steps[EventsDocument]:
    """See the module header. Raises KafkaError: INVALID_REQUEST."""
    return (yield from describe_events(services, event_filter(arguments)))


def describe_events(services: Services, wanted: EventFilter) -> Steps[EventsDocument]:
    """In steps."""
    ring = services.recorder.ring
    first = ring.first
    found: list[ShownEvent] = []
    last, is_last = max(wanted.after, ring.last_sequence), True
    lines = ring.after(wanted.after)
    for count, line in enumerate(reversed(lines) if wanted.is_newest else lines, start=1):
        recorded = decode_event(line)
        if recorded is not None and wanted.matches(recorded):
            if len(found) == wanted.limit:
                if not wanted.is_newest:
                    last, is_last = found[-1].sequence, False
                break
            found.append(show(services.node_id, recorded))
        if count % ELEMENTS_A_STEP == 0:
            yield
    if wanted.is_newest:
        found.reverse()
    return EventsDocument(
        broker=services.node_id,
        at_ms=services.clock.now_ms(),
        events=found,
        last_sequence=last,
        is_last=is_last,
        first_at_ms=None if first is None else first.sequence // 1000,
        is_on=ring.bytes_max > 0,
    )


def partition(services: Services, arguments: Mapping[str, str]) -> Steps[Any]:
    """Raises KafkaError: INVALID_REQUEST, and that the broker has no replica of it that is online."""
    hosted = services.replica_manager.hosted(partition_of(arguments))
    yield
    return {
        "broker": int(services.node_id),
        "now_ms": services.clock.now_ms(),
        "is_leader": hosted.is_leader,
        "leader": int(hosted.leader_id),
        "leader_epoch": int(hosted.leader_epoch),
        "isr": _isr(services, hosted),
        "log": _log(hosted.log),
        "oldest_segment": _oldest(hosted.log),
        "duplicates": _duplicates(hosted.log, services.clock.now_ms()),
        "compaction": _compaction(services, hosted.log) if hosted.log.config.compact else None,
    }


def _isr(services: Services, partition: Partition) -> dict[str, Any] | None:
    """None on a follower."""
    if not partition.is_leader:
        return None
    isr, now_ms = partition.replication.isr, services.clock.monotonic_ms()
    return {
        "committed": list(isr.committed),
        "phase": isr.phase.value,
        "proposed": None if isr.in_flight is None else list(isr.in_flight.isr),
        "eligible": list(isr.eligible),
        "effective_min": partition.effective_min_isr,
        "may_commit": isr.may_commit(partition.effective_min_isr),
        "waits_for": [
            int(each.broker_id)
            for each in partition.replication.followers.values()
            if each.log_end_offset < partition.log.log_end_offset
            and partition.is_waited_for(each.broker_id, now_ms)
        ],
    }


def _log(log: UnifiedLog) -> dict[str, Any]:
    return {
        "start": int(log.log_start_offset),
        "last_stable": int(log.last_stable_offset),
        "high_watermark": int(log.high_watermark),
        "end": int(log.log_end_offset),
        "segments": len(log.segments),
        "bytes": log.size_bytes,
        "cleanup_policy": list(log.config.cleanup_policy),
        "retention_ms": log.config.retention_ms,
        "retention_bytes": log.config.retention_bytes,
        "segment_ms": log.config.segment_ms,
        "segment_bytes": log.config.segment_bytes,
    }


def _duplicates(log: UnifiedLog, now_ms: int) -> dict[str, Any] | None:
    found = log.producers.duplicates
    if found is None:
        return None
    return {
        "count": found.count,
        "last_ms_ago": max(now_ms - found.last_ms, 0),
        "producer_id": found.last_producer_id,
        "offset": found.last_offset,
    }


def _oldest(log: UnifiedLog) -> dict[str, Any]:
    """What retention looks at first."""
    segment = log.segments[0]
    is_active = len(log.segments) == 1
    return {
        "base_offset": int(segment.base_offset),
        "end_offset": int(log.log_end_offset if is_active else log.segments[1].base_offset),
        "bytes": segment.size,
        "newest_timestamp_ms": _newest_timestamp(segment),
        "is_active": is_active,
    }


def _newest_timestamp(segment: LogSegment) -> int | None:
    """None: its file cannot be read."""
    try:
        return segment.largest_timestamp()
    except (KafkaError, OSError):
        return None


def _compaction(services: Services, log: UnifiedLog) -> dict[str, Any]:
    at, compactions = log.topic_partition, services.compactions
    document: dict[str, Any] = {
        "enabled": services.config.log_cleaner_enable,
        "in_progress": compactions is not None and any(each is log for each in compactions.in_progress),
        "given_up": compactions is not None and any(each is log for each in compactions.uncleanable),
        "moving": at in services.log_manager.future_logs,
        "min_dirty_ratio": log.config.min_cleanable_dirty_ratio,
        "min_lag_ms": log.config.min_compaction_lag_ms,
        "max_lag_ms": log.config.max_compaction_lag_ms,
        "unreadable": None,
    }
    try:
        cleanable = CleanableLog(log, now_ms=services.clock.now_ms())
    except (KafkaError, OSError) as error:
        return document | {"unreadable": str(error)}
    end = cleanable.first_uncleanable_offset
    floor = log.segments[max(log.segments.floor_index(log.last_stable_offset), 0)].base_offset
    if end == log.segments[len(log.segments) - 1].base_offset:
        ends_at = "active segment"
    else:
        ends_at = "last stable offset" if end == floor else "min.compaction.lag.ms"
    return document | {
        "first_dirty_offset": int(cleanable.first_dirty_offset),
        "end_offset": int(end),
        "ends_at": ends_at,
        "dirty_ratio": cleanable.dirty_ratio,
        "dirty_bytes": cleanable.dirty_bytes,
        "cleanable_bytes": cleanable.total_bytes,
        "overdue_ms": cleanable.overdue_ms,
        "is_due": cleanable.is_due,
    }


def waiting(services: Services, arguments: Mapping[str, str]) -> Steps[Any]:
    """Raises KafkaError: INVALID_REQUEST, and that the broker has no replica of it that is online."""
    hosted = services.replica_manager.hosted(partition_of(arguments))
    yield
    parked, at = services.replica_manager.parked, hosted.topic_partition
    now_ms = services.clock.monotonic_ms()
    return {
        "broker": int(services.node_id),
        "produce": [_produce(each, at, now_ms) for each in parked.produce.waiting_for(at, WAITING_MAX)],
        "fetch": [_fetch(each, at, now_ms) for each in parked.fetch.waiting_for(at, WAITING_MAX)],
    }


def _produce(operation: DelayedOperation, at: TopicPartition, now_ms: int) -> dict[str, Any]:
    """Also those of coordinators and of markers, which wait in the same way."""
    assert isinstance(operation, DelayedProduce)
    return _waited(operation, now_ms) | {"required_offset": operation.required_offset(at)}


def _fetch(operation: DelayedOperation, at: TopicPartition, now_ms: int) -> dict[str, Any]:
    assert isinstance(operation, DelayedFetch)
    params = operation.params
    return _waited(operation, now_ms) | {
        "replica": int(params.replica_id),
        "fetch_offset": operation.fetch_offset(at),
        "min_bytes": params.min_bytes,
        "max_wait_ms": params.max_wait_ms,
        "read_committed": params.isolation is FetchIsolation.TXN_COMMITTED,
    }


def _waited(operation: DelayedOperation, now_ms: int) -> dict[str, Any]:
    left_ms = max(operation.expiration_ms - now_ms, 0)
    return {"waited_ms": max(operation.delay_ms - left_ms, 0), "left_ms": left_ms}


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


def group(services: Services, arguments: Mapping[str, str]) -> Steps[Any]:
    """Raises KafkaError: INVALID_REQUEST; that this broker does not coordinate the group, or not yet;
    GROUP_ID_NOT_FOUND."""
    take(arguments, required=("group",))
    group_id = arguments["group"]
    hosted = services.groups.hosted_shard_of(group_id)
    shard = hosted.check_active()
    found = shard.group(group_id)
    if found is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    yield
    now_ms, monotonic_ms = services.clock.now_ms(), services.clock.monotonic_ms()
    look = _Look(hosted, services, now_ms=now_ms, monotonic_ms=monotonic_ms)
    document: dict[str, Any] = {
        "broker": int(services.node_id),
        "now_ms": now_ms,
        "history": look.history(group_id),
    }
    if isinstance(found, ClassicGroup):
        document |= look.classic(found)
    elif isinstance(found, ConsumerGroup):
        document |= look.consumer(found)
    else:
        document |= {"type": "other", "members": []}
    document["commits"] = yield from _commits(shard, group_id, now_ms)
    return document


class _Look:
    """At one group, at one moment."""

    def __init__(
        self, hosted: HostedShard[GroupShard], services: Services, *, now_ms: int, monotonic_ms: int
    ) -> None:
        self._hosted = hosted
        self._services = services
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def history(self, group_id: str) -> list[dict[str, Any]]:
        return [
            {
                "ago_ms": max(self._now_ms - each.at_ms, 0),
                "kind": each.kind.value,
                "why": each.why,
                "member_id": each.member_id,
                "client_id": each.client_id,
            }
            for each in self._services.groups.counts.history.of(group_id)
        ]

    def classic(self, group: ClassicGroup) -> dict[str, Any]:
        since_ms = group.state_timestamp_ms
        members = sorted(group.members.values(), key=lambda each: each.awaiting_join is not None)
        return {
            "type": "classic",
            "state": group.state.value,
            "state_for_ms": None if since_ms is None else max(self._now_ms - since_ms, 0),
            "generation": group.generation,
            "leader": group.leader,
            "rebalance_timeout_ms": group.rebalance_timeout_ms if group.members else None,
            "join_left_ms": self._left_ms(group.join_operation),
            "sync_left_ms": self._left_ms(group.sync_operation),
            "members": [self._classic_member(group, each) for each in members[:GROUP_MEMBERS_MAX]],
        }

    def _classic_member(self, group: ClassicGroup, member: ClassicMember) -> dict[str, Any]:
        return {
            "member_id": member.member_id,
            "client_id": member.client_id,
            "host": member.client_host,
            "instance_id": member.group_instance_id,
            "has_joined": member.awaiting_join is not None,
            "must_sync": member.member_id in group.pending_syncs,
            "session_timeout_ms": member.session_timeout_ms,
            "rebalance_timeout_ms": member.rebalance_timeout_ms,
            "heard_ms_ago": self._heard_ms_ago(group.group_id, member.member_id, member.session_timeout_ms),
        }

    def consumer(self, group: ConsumerGroup) -> dict[str, Any]:
        members = sorted(
            group.members.values(), key=lambda each: each.is_reconciled_to(group.assignment_epoch)
        )
        return {
            "type": "consumer",
            "state": group.state,
            "epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
            "computing": group.computing_epoch >= 0,
            "members": [self._consumer_member(group, each) for each in members[:GROUP_MEMBERS_MAX]],
        }

    def _consumer_member(self, group: ConsumerGroup, member: ConsumerGroupMember) -> dict[str, Any]:
        classic = member.metadata.classic_member_metadata
        timeout_ms = (
            self._hosted.shard.consumer_session_timeout_ms(group.group_id)
            if classic is None
            else classic.session_timeout_ms
        )
        revocation = GroupOperation(OperationKind.REVOCATION, group.group_id, member.member_id)
        return {
            "member_id": member.member_id,
            "client_id": member.metadata.client_id,
            "host": member.metadata.client_host,
            "instance_id": member.metadata.instance_id,
            "state": member.state.name,
            "epoch": member.epoch,
            "must_revoke": self._named(member.pending_revocation),
            "revocation_left_ms": self._left_ms(revocation),
            "session_timeout_ms": timeout_ms,
            "rebalance_timeout_ms": member.metadata.rebalance_timeout_ms,
            "heard_ms_ago": self._heard_ms_ago(group.group_id, member.member_id, timeout_ms),
        }

    def _named(self, partitions: Mapping[UUID, frozenset[int]]) -> list[str]:
        named = []
        for topic_id, numbers in partitions.items():
            topic = self._services.metadata.topic_by_id(topic_id)
            name = topic_id if topic is None else topic.name
            named += [f"{name}-{number}" for number in sorted(numbers)]
        return named

    def _left_ms(self, operation: GroupOperation) -> int | None:
        expiration_ms = self._hosted.expiration_ms(operation)
        return None if expiration_ms is None else max(expiration_ms - self._monotonic_ms, 0)

    def _heard_ms_ago(self, group_id: str, member_id: str, timeout_ms: int) -> int | None:
        """A session begins again with each heartbeat. None: it is not watched now, because the member waits
        for the coordinator."""
        left_ms = self._left_ms(GroupOperation(OperationKind.SESSION, group_id, member_id))
        return None if left_ms is None else max(timeout_ms - left_ms, 0)


def _commits(shard: GroupShard, group_id: str, now_ms: int) -> Steps[list[dict[str, Any]]]:
    commits: list[dict[str, Any]] = []
    committed = {topic: dict(partitions) for topic, partitions in shard.offsets_of(group_id).items()}
    for topic, partitions in committed.items():
        for number, each in partitions.items():
            if len(commits) >= GROUP_COMMITS_MAX:
                return commits
            ago_ms = max(now_ms - each.commit_timestamp_ms, 0)
            commits.append({"topic": topic, "partition": number, "offset": each.offset, "ago_ms": ago_ms})
            if len(commits) % ELEMENTS_A_STEP == 0:
                yield
    return commits


def topic_deletion(services: Services, arguments: Mapping[str, str]) -> Steps[Any]:
    """Raises KafkaError: INVALID_REQUEST; NOT_CONTROLLER."""
    take(arguments, required=("topic",))
    topic = arguments["topic"]
    context = services.controller.context if services.controller.is_controller else None
    if context is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, f"broker {services.node_id} is not the controller")
    left: list[dict[str, Any]] = []
    done = 0
    is_deleted = context.is_to_be_deleted(topic)
    partitions = [each for each in context.assignments if each.topic == topic] if is_deleted else []
    for count, at in enumerate(partitions, start=1):
        assignment = context.assignments.get(at)  # it may be gone by now
        for broker in () if assignment is None else assignment.replicas:
            status = context.replica_status.get(broker, {}).get(at)
            state = "unknown" if status is None else status.name
            if state == "DELETION_SUCCESSFUL":
                done += 1
            elif len(left) < REPLICAS_MAX:
                is_alive = context.is_live(broker)
                left.append(
                    {"partition": at.partition, "broker": int(broker), "state": state, "alive": is_alive}
                )
        if count % ELEMENTS_A_STEP == 0:
            yield
    return {
        "broker": int(services.node_id),
        "known": topic in context.topics,
        "to_be_deleted": is_deleted,
        "waits_for_reassignment": topic in context.topics_waiting_for_deletion,
        "ineligible": topic in context.topics_ineligible_for_deletion,
        "started": topic in context.topics_with_deletion_started,
        "enabled": services.config.delete_topic_enable,
        "deleted_replicas": done,
        "replicas_left": left,
    }
