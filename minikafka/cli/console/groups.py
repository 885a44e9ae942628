"""``api/groups``, ``api/group`` and ``api/group/reset``: groups of any type, how far they have come and since
when they lag, and their offsets set elsewhere.

The lag of groups that were looked at lately is sampled, so that the page can draw it: at most
``WATCHED_MAX`` of them, until no reader has looked for ``HISTORY_MS``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from minikafka.cli.console.cluster import ClusterView
from minikafka.cli.console.exchange import Query, Refusal, Shared, in_order, parse_number
from minikafka.cli.groups import NO_OFFSET, GroupAdmin, GroupDescription, Target, plan_resets
from minikafka.cli.share import SHARE, ShareAdmin
from minikafka.cli.shared.commands import error_of, explain
from minikafka.cli.streams import STREAMS, StreamsAdmin
from minikafka.config.definition import LONG_MAX
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.types import TopicPartition

logger = logging.getLogger(__name__)

KEEP_S: Final = 2.0
COMMITTED_GROUPS_MAX: Final = 1_000
"""Groups whose offsets are asked for; of more there is no lag, and a topic does not name them."""
COUNTED_GROUPS_MAX: Final = 1_000
"""Groups whose members are counted to sort by them: those that lag most; others are sorted last."""
COLUMNS: Final = frozenset(("group_id", "type", "protocol", "state", "coordinator", "members", "lag"))
"""That the list may be sorted by."""
MEMBERS_MAX: Final = 500
OFFSETS_MAX: Final = 1_000
RESET_PARTITIONS_MAX: Final = 10_000

WATCHED_MAX: Final = 20
SAMPLE_S: Final = 5.0
"""As often as consumers commit by default (auto.commit.interval.ms)."""
HISTORY_MS: Final = 15 * 60_000
SAMPLES_MAX: Final = 180

_DESCRIBE: Final = {
    "classic": (ApiKey.DESCRIBE_GROUPS, "groups"),
    "consumer": (ApiKey.CONSUMER_GROUP_DESCRIBE, "group_ids"),
    SHARE: (ApiKey.SHARE_GROUP_DESCRIBE, "group_ids"),
    STREAMS: (ApiKey.STREAMS_GROUP_DESCRIBE, "group_ids"),
}

Offsets = Mapping[TopicPartition, int]


class KnownGroup(NamedTuple):
    """As ListGroups has it; brokers of old say neither type nor state."""

    group_id: str
    type: str
    protocol: str
    state: str
    coordinator: int


class Overview(NamedTuple):
    """All groups by id, sorted, and what the first ``COMMITTED_GROUPS_MAX`` have committed."""

    groups: dict[str, KnownGroup]
    committed: dict[str, Offsets]
    """Of share groups the start offsets."""


class GroupsView:
    """See the module header. ``close`` it."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._overview = Shared(self._load, keep_s=KEEP_S)
        self._histories: dict[str, _History] = {}
        """The one that was looked at last is the last."""
        self._sampler: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"GroupsView({len(self._histories)} watched)"

    async def close(self) -> None:
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.cancel()
            await asyncio.gather(sampler, return_exceptions=True)

    async def groups(self, query: Query) -> dict[str, Any]:
        """Those that lag most first, or as ``sort`` says. Raises Refusal: there is no such column."""
        wanted, limit, order = query.text("filter"), query.limit(), query.order(COLUMNS)
        overview = await self._overview.get()
        found = [each for each in overview.groups.values() if wanted in each.group_id]
        lags = await self._lags(
            {
                each.group_id: overview.committed[each.group_id]
                for each in found
                if each.group_id in overview.committed
            }
        )
        found.sort(key=lambda each: (-(lags.get(each.group_id) or 0), each.group_id))
        members: dict[str, int] = {}
        if order is not None:
            column, is_descending = order
            if column == "members":
                members = await self._members(found[:COUNTED_GROUPS_MAX])
            values = {"members": members.get, "lag": lags.get}.get(column)
            found = in_order(
                found,
                lambda each: getattr(each, column) if values is None else values(each.group_id),
                is_descending=is_descending,
            )
        shown = found[:limit]
        members = members or await self._members(shown)
        return {
            "groups": [
                {
                    **each._asdict(),
                    "members": members.get(each.group_id),
                    "lag": lags.get(each.group_id),
                }
                for each in shown
            ],
            "left_out": len(found) - len(shown),
        }

    async def of_topic(self, topic: str) -> list[str]:
        """The groups that have committed offsets in it; empty where we may not ask."""
        try:
            overview = await self._overview.get()
        except (KafkaError, BrokerUnavailable):
            return []
        return [
            group
            for group, committed in overview.committed.items()
            if any(at.topic == topic for at in committed)
        ]

    async def group(self, query: Query) -> dict[str, Any]:
        """Raises KafkaError: GROUP_ID_NOT_FOUND."""
        group_id = query.needed("id")
        admin, found = await self._describe(group_id)
        self._watch(group_id)
        committed = await admin.committed(group_id)
        readers = {
            TopicPartition(topic, partition): member.member_id
            for member in found.members
            for topic, partitions in member.assignment.items()
            for partition in partitions
        }
        at_all = sorted(committed.keys() | readers.keys())
        shown = at_all[:OFFSETS_MAX]
        ends = await self._view.ends(shown)
        offsets = []
        for at in shown:
            offset, end = committed.get(at), ends[at].high_watermark
            offsets.append(
                {
                    "topic": at.topic,
                    "partition": at.partition,
                    "committed": offset,
                    "log_start_offset": ends[at].log_start_offset,
                    "high_watermark": end,
                    "lag": None if offset is None or end is None else max(0, end - offset),
                    "member_id": readers.get(at),
                }
            )
        history = self._histories.get(group_id)
        return {
            "group_id": group_id,
            "type": found.type,
            "state": found.state,
            "protocol": found.assignor,
            "coordinator": found.coordinator.node_id,
            "members": [
                {
                    "member_id": each.member_id,
                    "instance_id": each.instance_id,
                    "client_id": each.client_id,
                    "host": each.host,
                    "assignment": sorted(each.assignment.items()),
                }
                for each in found.members[:MEMBERS_MAX]
            ],
            "members_left_out": max(0, len(found.members) - MEMBERS_MAX),
            "offsets": offsets,
            "offsets_left_out": len(at_all) - len(shown),
            "lag_history": [] if history is None else list(history.samples),
        }

    async def reset(self, body: bytes) -> dict[str, Any]:
        """Raises Refusal: 400, or 409 where the group has members."""
        try:
            wanted = msgspec.json.decode(body, type=ResetBody)
        except msgspec.DecodeError as error:
            raise Refusal(400, f"the body: {error}") from None
        target = parse_target(wanted.to)
        admin, found = await self._describe(wanted.group_id)
        if not found.is_inactive:
            raise Refusal(
                409,
                f"group {wanted.group_id} is {found.state} with {len(found.members)} members: its offsets "
                "can be set when it has none",
            )
        partitions = await self._partitions(admin, wanted)
        resets = await plan_resets(admin, wanted.group_id, partitions, target)
        if not wanted.dry_run and resets:
            offsets = {TopicPartition(each.topic, each.partition): each.new for each in resets}
            refused = await admin.commit(wanted.group_id, offsets)
            self._overview.forget()
            for at, refusal in refused.items():
                done = len(offsets) - len(refused)
                raise Refusal(409, f"{done} of {len(offsets)} offsets are set; {at}: {explain(refusal)}")
        return {
            "changes": [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "from": each.current,
                    "to": each.new,
                    "note": each.note,
                }
                for each in resets
            ],
            "is_done": not wanted.dry_run,
        }

    async def _partitions(self, admin: GroupAdmin, wanted: ResetBody) -> list[TopicPartition]:
        if wanted.topic is None:
            if wanted.partitions is not None:
                raise Refusal(400, "partitions are of a topic: name it")
            partitions = await admin.partitions_of(wanted.group_id)
        else:
            there = (await self._view.snapshot()).topic(wanted.topic).partitions
            numbers = [each.partition for each in there] if wanted.partitions is None else wanted.partitions
            partitions = [TopicPartition(wanted.topic, number) for number in sorted(set(numbers))]
        if not partitions:
            raise Refusal(400, f"group {wanted.group_id} has no offsets: name a topic")
        if len(partitions) > RESET_PARTITIONS_MAX:
            raise Refusal(400, f"{len(partitions)} partitions are too many at once ({RESET_PARTITIONS_MAX})")
        return partitions

    async def _describe(self, group_id: str) -> tuple[GroupAdmin, GroupDescription]:
        """By whom the group is asked further. Raises KafkaError: GROUP_ID_NOT_FOUND."""
        known = (await self._overview.get()).groups.get(group_id)
        if known is None:
            self._overview.forget()  # it may have come since
            known = (await self._overview.get()).groups.get(group_id)
        if known is None:  # to ask for its coordinator would make __consumer_offsets, where there is none
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"no broker knows a group {group_id}")
        if known.type == SHARE:
            shares = self._view.admin_of(ShareAdmin)
            return shares, await shares.describe(group_id)
        if known.type == STREAMS:
            streams = self._view.admin_of(StreamsAdmin)
            return streams, await streams.describe(group_id)
        return self._view.admin, await self._view.admin.describe(group_id)

    # All of them

    async def _load(self) -> Overview:
        snapshot = await self._view.snapshot()
        body: dict[str, Any] = {"states_filter": [], "types_filter": []}
        answers = await self._view.of_brokers(
            snapshot.alive(),
            lambda node_id: self._view.admin.ask_loaded(node_id, ApiKey.LIST_GROUPS, body),
        )
        if answers and all(isinstance(each, str) for each in answers.values()):
            raise BrokerUnavailable(f"no broker lists its groups: {next(iter(answers.values()))}")
        found = {
            each.group_id: KnownGroup(
                each.group_id,
                (getattr(each, "group_type", "") or "classic").lower(),
                each.protocol_type,
                getattr(each, "group_state", ""),
                node_id,
            )
            for node_id, answer in answers.items()
            if not isinstance(answer, str)
            for each in answer.groups
        }
        groups = dict(sorted(found.items()))
        committed = await self._committed(list(groups.values())[:COMMITTED_GROUPS_MAX])
        return Overview(groups, {group: committed[group] for group in groups if group in committed})

    async def _committed(self, groups: Sequence[KnownGroup]) -> dict[str, Offsets]:
        """One request for each coordinator and kind; what is refused is left out."""
        shares = _by_coordinator(each for each in groups if each.type == SHARE)
        others = _by_coordinator(each for each in groups if each.type != SHARE)
        answers = await asyncio.gather(
            self._view.of_brokers(others, lambda node_id: self._committed_at(node_id, others[node_id])),
            self._view.of_brokers(shares, lambda node_id: self._share_starts_at(node_id, shares[node_id])),
        )
        found: dict[str, Offsets] = {}
        for by_broker in answers:
            for answer in by_broker.values():
                found |= {} if isinstance(answer, str) else answer
        return found

    async def _committed_at(self, node_id: int, groups: Sequence[str]) -> dict[str, Offsets]:
        body = {
            "group_id": groups[0],  # until v7, which takes one
            "topics": None,
            "groups": [
                {"group_id": each, "member_id": None, "member_epoch": -1, "topics": None} for each in groups
            ],
            "require_stable": False,
        }
        answer = await self._view.admin.ask_broker(node_id, ApiKey.OFFSET_FETCH, body)
        if not hasattr(answer, "groups"):
            return {groups[0]: _offsets(answer.topics)}
        return {
            each.group_id: _offsets(each.topics)
            for each in answer.groups
            if each.error_code == ErrorCode.NONE
        }

    async def _share_starts_at(self, node_id: int, groups: Sequence[str]) -> dict[str, Offsets]:
        body = {"groups": [{"group_id": each, "topics": None} for each in groups]}
        answer = await self._view.admin.ask_broker(node_id, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, body)
        return {
            each.group_id: {
                TopicPartition(topic.topic_name, partition.partition_index): int(partition.start_offset)
                for topic in each.topics
                for partition in topic.partitions
                if partition.error_code == ErrorCode.NONE and partition.start_offset != NO_OFFSET
            }
            for each in answer.groups
            if each.error_code == ErrorCode.NONE
        }

    async def _lags(self, committed: Mapping[str, Offsets]) -> dict[str, int | None]:
        """None: the end of a log that the group reads is not known."""
        ends = await self._view.ends(sorted({at for each in committed.values() for at in each}))
        lags: dict[str, int | None] = {}
        for group, offsets in committed.items():
            lag: int | None = 0
            for at, offset in offsets.items():
                end = ends[at].high_watermark
                lag = None if lag is None or end is None else lag + max(0, end - offset)
            lags[group] = lag
        return lags

    async def _members(self, groups: Sequence[KnownGroup]) -> dict[str, int]:
        """How many each group has; what is refused is left out."""
        wanted: dict[tuple[int, str], list[str]] = {}
        for each in groups:
            kind = each.type if each.type in _DESCRIBE else "classic"
            wanted.setdefault((each.coordinator, kind), []).append(each.group_id)
        answers = await asyncio.gather(*(self._members_at(*key, ids) for key, ids in wanted.items()))
        return {group: count for found in answers for group, count in found.items()}

    async def _members_at(self, node_id: int, kind: str, ids: Sequence[str]) -> dict[str, int]:
        api_key, field = _DESCRIBE[kind]
        body: dict[str, Any] = {field: list(ids), "include_authorized_operations": False}
        if kind == STREAMS:
            body["include_topology_description"] = False
        try:
            answer = await self._view.admin.ask_broker(node_id, api_key, body)
        except (KafkaError, BrokerUnavailable):
            return {}
        return {
            each.group_id: len(each.members) for each in answer.groups if error_of(each.error_code) is None
        }

    # Lag over time

    def _watch(self, group_id: str) -> None:
        history = self._histories.pop(group_id, None) or _History(deque(maxlen=SAMPLES_MAX))
        self._histories[group_id] = history._replace(looked_at_ms=self._view.clock.now_ms())
        while len(self._histories) > WATCHED_MAX:
            del self._histories[next(iter(self._histories))]
        if self._sampler is None or self._sampler.done():
            self._sampler = asyncio.create_task(self._sample())

    async def _sample(self) -> None:
        """Until no reader has looked at any group for a while."""
        while self._histories:
            try:
                await self._take_samples()
            except (KafkaError, BrokerUnavailable) as error:
                logger.debug("no lag of the groups that are looked at: %s", error)
            await asyncio.sleep(SAMPLE_S)
            oldest_ms = self._view.clock.now_ms() - HISTORY_MS
            self._histories = {
                group: each for group, each in self._histories.items() if each.looked_at_ms >= oldest_ms
            }

    async def _take_samples(self) -> None:
        known = (await self._overview.get()).groups
        watched = [known[group] for group in self._histories if group in known]
        lags = await self._lags(await self._committed(watched))
        now_ms = self._view.clock.now_ms()
        for group, lag in lags.items():
            history = self._histories.get(group)
            if history is not None and lag is not None:
                while history.samples and history.samples[0][0] < now_ms - HISTORY_MS:
                    history.samples.popleft()
                history.samples.append((now_ms, lag))


class _History(NamedTuple):
    samples: deque[tuple[int, int]]
    """When (ms since 1970), and how many records."""
    looked_at_ms: int = 0


class ResetBody(msgspec.Struct, forbid_unknown_fields=True):
    """Of a POST to ``api/group/reset``."""

    group_id: str
    to: str
    topic: str | None = None
    """None: all that the group has offsets of."""
    partitions: list[int] | None = None
    dry_run: bool = True


def parse_target(text: str) -> Target:
    """``earliest``, ``latest``, ``offset:N``, ``time:MS``, ``by:-N``. Raises Refusal."""
    kind, _, value = text.partition(":")
    match kind:
        case "earliest" if not value:
            return Target("earliest")
        case "latest" if not value:
            return Target("latest")
        case "offset":
            return Target("offset", parse_number("to: offset", value, most=LONG_MAX))
        case "time":
            return Target("time", parse_number("to: time", value, most=LONG_MAX))
        case "by":
            number = value.removeprefix("+")
            return Target("shift", parse_number("to: by", number, least=-LONG_MAX, most=LONG_MAX))
    raise Refusal(400, "to: must be earliest, latest, offset:N, time:MS or by:±N")


def _by_coordinator(groups: Iterable[KnownGroup]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for each in groups:
        found.setdefault(each.coordinator, []).append(each.group_id)
    return found


def _offsets(topics: Any) -> Offsets:
    return {
        TopicPartition(topic.name, each.partition_index): int(each.committed_offset)
        for topic in topics
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE and each.committed_offset != NO_OFFSET
    }
