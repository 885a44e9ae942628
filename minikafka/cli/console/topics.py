"""``api/topics``, ``api/topic`` and ``api/reassignments``: topics with their sizes; one with partitions,
configurations, groups; replicas on their way, how much is left, when it will be done, and their end.

Rates are of what was counted, or left, at the look before, so the first look has none.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import msgspec

from minikafka.cli.console.cluster import ClusterView, TopicState, by_size
from minikafka.cli.console.exchange import Query, Refusal, in_order
from minikafka.cli.console.groups import GroupsView
from minikafka.cli.reassign.verify import CopyRate, bytes_left, log_dirs_of
from minikafka.cli.shared.admin_client import LogDir, raise_error
from minikafka.config.definition import ConfigSource
from minikafka.config.resource import ConfigResourceType
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.types import ReplicaAssignment, TopicPartition

PARTITIONS_MAX: Final = 1_000
GROUPS_MAX: Final = 200
COUNTED_MAX: Final = 2_000
"""Partitions of a list whose records and bytes are asked for: topics behind that have none."""

COLUMNS: Final = frozenset(
    (
        "name",
        "partitions",
        "replication_factor",
        "offline",
        "under_replicated",
        "under_min_isr",
        "bytes",
        "records",
        "records_per_s",
    )
)
"""That a list may be sorted by: the names of a row's numbers, and its own."""
_COUNTED_COLUMNS: Final = frozenset(("bytes", "records", "records_per_s"))
RATE_MS: Final = 4_000
"""What a rate is over at least: less than the page's look at its list (5 s)."""
RATE_MS_MAX: Final = 60_000
"""And at most: a count that is older is of another time."""
SAMPLES_MAX: Final = 2 * COUNTED_MAX

ROWS_MAX: Final = 500


class TopicsView:
    """The list, and how many records come to its topics: from what was counted the last time."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._samples: dict[str, tuple[_Sample, _Sample]] = {}
        """Of each topic the one before and the last; the topic that was counted last is the last."""

    def __repr__(self) -> str:
        return f"TopicsView({len(self._samples)} counted)"

    async def topics(self, query: Query) -> dict[str, Any]:
        """Those in trouble first, or as ``sort`` says; internal ones last. Sorted by what is counted, the
        topics that are counted are the first ``COUNTED_MAX`` partitions' of all that are found, else of those
        that are shown; ``uncounted`` is how many are not.

        Raises:
            Refusal: there is no such column.
        """
        wanted, limit, order = query.text("filter"), query.limit(), query.order(COLUMNS)
        snapshot = await self._view.snapshot()
        found = sorted(
            (each for each in snapshot.topics.values() if wanted in each.name),
            key=lambda each: (each.is_internal, *_weight(each), each.name),
        )
        if order is not None and order[0] in _COUNTED_COLUMNS:
            rows = _sorted(await self._rows(found), order)[:limit]
        else:
            names = [each["name"] for each in _sorted(map(_plain_row, found), order)[:limit]]
            rows = await self._rows([snapshot.topics[name] for name in names])
        return {
            "topics": rows,
            "left_out": len(found) - len(rows),
            "uncounted": sum(count > COUNTED_MAX for count in _running_counts(found)),
        }

    async def _rows(self, topics: Sequence[TopicState]) -> list[dict[str, Any]]:
        """In the same order, with what is counted."""
        counts = _running_counts(topics)
        counted = [each for each, count in zip(topics, counts, strict=True) if count <= COUNTED_MAX]
        partitions = [
            TopicPartition(topic.name, each.partition) for topic in counted for each in topic.partitions
        ]
        ends, sizes = await asyncio.gather(self._view.ends(partitions), self._view.leader_bytes(counted))
        now_ms = self._view.clock.now_ms()
        rows = []
        for topic in topics:
            at_all = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
            known = [ends[at] for at in at_all if at in ends]
            records = [each.records for each in known]
            written = [each.high_watermark for each in known]
            is_known = len(known) == len(at_all) and None not in records
            rows.append(
                {
                    **_plain_row(topic),
                    "bytes": by_size(sizes, topic),
                    "records": sum(each or 0 for each in records) if is_known else None,
                    "records_per_s": self._rate(
                        topic.name, _Sample(now_ms, sum(each or 0 for each in written))
                    )
                    if is_known
                    else None,
                }
            )
        return rows

    def _rate(self, name: str, now: _Sample) -> float | None:
        """Offsets that the high watermarks have moved, in a second. None: it was not counted before."""
        before, last = self._samples.pop(name, (now, now))
        if now.at_ms - last.at_ms >= RATE_MS:
            before, last = last, now
        self._samples[name] = before, last
        while len(self._samples) > SAMPLES_MAX:
            del self._samples[next(iter(self._samples))]
        took_ms = last.at_ms - before.at_ms
        if not RATE_MS <= took_ms <= RATE_MS_MAX or last.end_offsets < before.end_offsets:
            return None  # or it was deleted and made again
        return (last.end_offsets - before.end_offsets) * 1000 / took_ms


class _Sample(NamedTuple):
    at_ms: int
    end_offsets: int
    """The sum over the partitions."""


def _plain_row(topic: TopicState) -> dict[str, Any]:
    """Without what is counted."""
    return {
        "name": topic.name,
        "is_internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "offline": topic.offline,
        "under_replicated": topic.under_replicated,
        "under_min_isr": topic.under_min_isr,
    }


def _running_counts(topics: Iterable[TopicState]) -> list[int]:
    """Of the partitions up to each, and its own."""
    return list(accumulate(len(each.partitions) for each in topics))


def _sorted(rows: Iterable[dict[str, Any]], order: tuple[str, bool] | None) -> list[dict[str, Any]]:
    """None: as they come. Internal topics are last."""
    if order is None:
        return list(rows)
    column, is_descending = order
    ordered = in_order(rows, lambda each: each[column], is_descending=is_descending)
    return sorted(ordered, key=lambda each: bool(each["is_internal"]))


def _weight(topic: TopicState) -> tuple[bool, bool]:
    return not (topic.offline or topic.under_min_isr), not topic.under_replicated


async def topic(view: ClusterView, groups: GroupsView, query: Query) -> dict[str, Any]:
    """Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION."""
    name = query.needed("name")
    found = (await view.snapshot()).topic(name)
    shown = found.partitions[:PARTITIONS_MAX]
    partitions = [TopicPartition(name, each.partition) for each in shown]
    ends, sizes, configs, readers = await asyncio.gather(
        view.ends(partitions), view.leader_bytes([found]), _configs(view, name), groups.of_topic(name)
    )
    return {
        "name": name,
        "topic_id": None
        if found.topic_id is None
        else urlsafe_b64encode(found.topic_id.bytes).decode().rstrip("="),
        "is_internal": found.is_internal,
        "partitions": [
            {
                "partition": each.partition,
                "leader": each.leader,
                "leader_epoch": each.leader_epoch,
                "replicas": each.replicas,
                "isr": each.isr,
                "log_start_offset": ends[at].log_start_offset,
                "high_watermark": ends[at].high_watermark,
                "bytes": sizes.get(at),
            }
            for each, at in zip(shown, partitions, strict=True)
        ],
        "partitions_left_out": len(found.partitions) - len(shown),
        "configs": configs,
        "groups": readers[:GROUPS_MAX],
        "groups_left_out": max(0, len(readers) - GROUPS_MAX),
    }


async def _configs(view: ClusterView, topic_name: str) -> list[dict[str, Any]]:
    """With sources, documentation and synonyms; nothing where we may not ask."""
    resource = {
        "resource_type": ConfigResourceType.TOPIC,
        "resource_name": topic_name,
        "configuration_keys": None,
    }
    body = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
    try:
        (answer,) = (await view.admin.ask_any(ApiKey.DESCRIBE_CONFIGS, body)).results
        raise_error(answer)
    except (KafkaError, BrokerUnavailable):
        return []
    return [
        {
            "name": each.name,
            "value": each.value,
            "source": _source(each.config_source),
            "is_sensitive": bool(each.is_sensitive),
            "is_read_only": bool(each.read_only),
            "documentation": getattr(each, "documentation", None),
            "synonyms": [
                {"name": synonym.name, "value": synonym.value, "source": _source(synonym.source)}
                for synonym in each.synonyms
            ],
        }
        for each in sorted(answer.configs, key=lambda each: str(each.name))
    ]


def _source(code: int) -> str:
    return ConfigSource(code).name if code in ConfigSource.__members__.values() else str(code)


class CancelBody(msgspec.Struct, forbid_unknown_fields=True):
    """Of a POST to ``api/reassignments/cancel``."""

    topic: str
    partition: int


class ReassignmentsView:
    """See the module header."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._rates: dict[TopicPartition, CopyRate] = {}
        """Of those that were under way at the last look."""

    def __repr__(self) -> str:
        return f"ReassignmentsView({len(self._rates)} under way)"

    async def reassignments(self) -> dict[str, Any]:
        """Raises KafkaError, BrokerUnavailable."""
        admin = self._view.admin
        under_way = await admin.reassignments()
        shown = dict(list(under_way.items())[:ROWS_MAX])
        if not shown:
            self._rates = {}
            return {"reassignments": [], "left_out": 0}
        brokers = (await self._view.snapshot()).alive()
        dirs = await log_dirs_of(admin, brokers, sorted(shown))
        partitions = await admin.partitions(sorted({each.topic for each in shown}))
        left = bytes_left(shown, partitions, dirs)
        now_ms = self._view.clock.now_ms()
        self._rates = {at: self._rates.get(at) or CopyRate() for at in shown}
        rows = []
        for at, assignment in shown.items():
            leader = partitions[at].leader if at in partitions else None
            rows.append(self._row(at, assignment, left[at], _size(dirs, leader, at), now_ms))
        return {"reassignments": rows, "left_out": len(under_way) - len(shown)}

    def _row(
        self,
        at: TopicPartition,
        assignment: ReplicaAssignment,
        left: int | None,
        size: int | None,
        now_ms: int,
    ) -> dict[str, Any]:
        rate = self._rates[at]
        if left is not None:
            rate.record(left, now_ms=now_ms)
        per_s = rate.bytes_per_s
        return {
            "topic": at.topic,
            "partition": at.partition,
            "replicas": assignment.replicas,
            "adding": assignment.adding,
            "removing": assignment.removing,
            "bytes_left": left,
            "bytes_total": None if size is None else size * len(assignment.adding),
            "bytes_per_s": None if per_s is None else round(per_s),
            "seconds_left": round(left / per_s) if per_s and left is not None else None,
        }

    async def cancel(self, body: bytes) -> dict[str, Any]:
        """Raises Refusal, KafkaError: NO_REASSIGNMENT_IN_PROGRESS."""
        try:
            wanted = msgspec.json.decode(body, type=CancelBody)
        except msgspec.DecodeError as error:
            raise Refusal(400, f"the body: {error}") from None
        at = TopicPartition(wanted.topic, wanted.partition)
        if at not in await self._view.admin.reassignments():
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{at} is not being reassigned")
        for refusal in (await self._view.admin.reassign({at: None})).values():
            raise refusal
        self._view.changed()
        return {"is_done": True}


def _size(dirs: dict[int, list[LogDir]], broker: int | None, at: TopicPartition) -> int | None:
    """Of one replica; None: its broker does not say."""
    found = (
        each.replicas[at] for each in dirs.get(-1 if broker is None else broker, ()) if at in each.replicas
    )
    return next((each.size_bytes for each in found if not each.is_future), None)
