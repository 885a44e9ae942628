"""``minikafka why table``: why the Iceberg or Delta table of an export lacks records of its topic, and which
of them it will never get.

Where the table is, its own history says: each commit of an export names its offsets (``spark/tables/table``).
Where the topic is, Kafka's APIs say. What retention looks at next, only a broker of minikafka says; else the
earliest time is told. The export itself is not asked: it may run on any machine, or not at all.

What an export reads, and so what a table can have: the log directories of one broker, active segments, too,
up to the high watermark that brokers write down every ``replica.high.watermark.checkpoint.interval.ms``, and
with its default ``--isolation read_committed`` up to the last stable offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from minikafka.cli.groups import ListedOffset
from minikafka.cli.shared.admin_client import PartitionNow, broker_resource
from minikafka.cli.shared.commands import CommandError, explain
from minikafka.cli.why.answer import Answer, Page, Reason, answer, counted
from minikafka.cli.why.cluster import EARLIEST, LATEST, Cluster
from minikafka.errors import KafkaError
from minikafka.log.checkpoint import encode_uuid
from minikafka.named_tuple import NamedTuple
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.types import NO_LEADER, TopicPartition
from minikafka.units import format_bytes, format_duration

if TYPE_CHECKING:
    from minikafka.spark.tables.table import Tables

HISTORY_MAX = 100
"""Commits of the table that are looked through, those of other programs among them."""
COMMITS_MAX = 10
"""Of these, the export's newest by which it is judged how often it commits, and how much."""
STOPPED_MS = 60_000
"""An export that goes on has committed by then: its default is every 10 s."""
LATE = 3.0
"""Times the usual time between two commits after which the next one is overdue."""
UNLIKE = 1.1
"""Two rates that differ by less are the same, as far as can be measured."""
SOON = 0.5
"""The part of retention.ms or retention.bytes that is used up by what the table lacks, from which on it is
said on its own."""
INTERVAL_MS = 10_000
"""Between two runs of an export that goes on, unless --interval says otherwise."""
ROWS_MAX = 20
"""Partitions that are shown, and of which more is asked; those that lack most."""

TOPIC_CONFIGS = ("cleanup.policy", "retention.ms", "retention.bytes")
CHECKPOINT_INTERVAL = "replica.high.watermark.checkpoint.interval.ms"
CHECKPOINT_INTERVAL_MS = 5_000
"""Kafka's default."""

MILD = ("table.behind.newest", "table.behind.next-commit", "table.behind.running", "table.behind.catching-up")
"""Of what is as it should be; below all others."""


class TableCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit of the export."""

    number: int
    ms_ago: int
    offsets: int
    """How many it holds."""
    records: int
    errors: int
    """Of the records, those that went to the errors table."""
    partitions: frozenset[int] = frozenset()
    """Those that it has records of."""


class OtherCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit of another program, which has changed what rows there are."""

    operation: str
    ms_ago: int


class TableNow(msgspec.Struct, frozen=True, kw_only=True):
    """A table as it says itself."""

    name: str
    errors_name: str = ""
    topic_id: str | None = None
    is_upsert: bool = False
    number: int = 0
    """Of the export's last commit; 0: there is none."""
    offsets: Mapping[int, int] = {}
    """Partition → the next offset, of every partition that the export has ever seen."""
    commits: Sequence[TableCommit] = ()
    """The export's last ones, the newest first; none where the table has forgotten them."""
    others: Sequence[OtherCommit] = ()
    """The newest first."""


class TablePartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of the topic, beside the table; None: not known."""

    at: TopicPartition
    position: int | None = None
    """The next offset that the table lacks; None: the table knows nothing of the partition."""
    start: int | None = None
    end: int | None = None
    """The high watermark."""
    stable: int | None = None
    """The last stable offset."""
    log_end: int | None = None
    """The leader's log end, where the table's position is behind the high watermark."""
    replicas: Sequence[int] = ()
    produced: int | None = None
    """Records, between the two looks."""
    next_age_ms: int | None = None
    """Since when the first record that the table lacks is there, by its own timestamp."""
    segment_age_ms: int | None = None
    """The same of the newest record in that record's segment, by which retention.ms goes."""
    log_bytes: int | None = None
    bytes_behind: int | None = None
    """Behind the segment of the first record that the table lacks, by which retention.bytes goes."""

    @property
    def first(self) -> int:
        """The first offset that an export would read."""
        return max(self.position or 0, self.start or 0)

    @property
    def lacks(self) -> int:
        """Records that are committed and not in the table; 0 also where that is not known."""
        return 0 if self.start is None or self.end is None else max(self.end - self.first, 0)

    @property
    def undecided(self) -> int:
        """Of these, those that a transaction holds back. A table that is ahead of the last stable offset was
        exported with ``read_uncommitted``, which waits for none."""
        if self.stable is None or self.end is None or self.first > self.stable:
            return 0
        return max(self.end - self.stable, 0)

    @property
    def lost(self) -> int:
        """Offsets that the table lacks and the log no longer has."""
        return 0 if self.position is None or self.start is None else max(self.start - self.position, 0)


class TableFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was gathered of a table and its topic."""

    topic: str
    table: TableNow
    partitions: Sequence[TablePartition] = ()
    """None of them: there is no such topic."""
    topic_id: str | None = None
    config: Mapping[str, str] = {}
    checkpoint_ms: int = CHECKPOINT_INTERVAL_MS
    has_committed: bool = False
    """Between the two looks."""
    sample_ms: int = 0
    export: str = "minikafka export"
    """The command that continues the table."""
    connection: str = ""

    @property
    def name(self) -> str:
        return f"the table {self.table.name}"

    @property
    def is_other_topic(self) -> bool:
        """Whether the offsets of the table are those of an earlier topic of the name."""
        ids = (self.table.topic_id, self.topic_id)
        return None not in ids and ids[0] != ids[1]

    @property
    def since_ms(self) -> int | None:
        """Since the export's last commit."""
        return self.table.commits[0].ms_ago if self.table.commits else None


class Deadline(NamedTuple):
    """When retention deletes the first record that the table lacks, at the earliest."""

    used: float
    """Of what the property allows; from 1 on it is due."""
    left_ms: float | None
    left_bytes: float | None
    by: str
    """The property with its value."""


# What the table has can no longer be continued


def recreated(facts: TableFacts) -> Sequence[Reason]:
    if not facts.is_other_topic:
        return ()
    return [
        Reason(
            code="table.topic-recreated",
            sentence=f"{facts.name} holds an earlier topic {facts.topic}, which was deleted and created "
            "again, so that its offsets begin again: exports refuse it",
            page=Page.TABLE_EXACTLY_ONCE,
            evidence={
                "topic id of the table": facts.table.topic_id,
                "topic id of the brokers": facts.topic_id,
                "commits": facts.table.number,
                "last commit ms ago": facts.since_ms,
            },
            remedy="export the new topic into another --namespace or -o; the table stays what it is",
        )
    ]


def gone(facts: TableFacts) -> Sequence[Reason]:
    if facts.partitions:
        return ()
    return [
        Reason(
            code="table.topic-gone",
            sentence=f"there is no topic {facts.topic} any more, or it may not be described: {facts.name} "
            "gets no more records",
            page=Page.TABLE_EXACTLY_ONCE,
            evidence={"commits": facts.table.number, "last commit ms ago": facts.since_ms},
            remedy=f"minikafka why topic {facts.topic}{facts.connection} says how far its deletion is",
        )
    ]


def ahead(facts: TableFacts) -> Sequence[Reason]:
    found = [
        each
        for each in facts.partitions
        if each.position is not None and each.log_end is not None and each.position > each.log_end
    ]
    if not found:
        return ()
    first = max(found, key=lambda each: (each.position or 0) - (each.log_end or 0))
    same = facts.topic_id is not None and facts.topic_id == facts.table.topic_id
    or_again = "" if same else ", or the topic was deleted and created again"
    return [
        Reason(
            code="table.ahead",
            sentence=f"{facts.name} has offsets of {first.at} up to {(first.position or 0) - 1}, and its log "
            f"ends at {first.log_end}: its brokers have lost records, as in an unclean leader "
            f"election{or_again}",
            page=Page.TABLE_EXACTLY_ONCE,
            evidence={"partitions": [_row(each, facts) for each in found[:ROWS_MAX]]},
            remedy="an export goes on when the log has passed the table's offsets, and never reads what is "
            "written below them: export into another --namespace or -o",
        )
    ]


# What the table will never have


def lost(facts: TableFacts) -> Sequence[Reason]:
    found = sorted((each for each in facts.partitions if each.lost), key=lambda each: -each.lost)
    if not found:
        return ()
    total, most = sum(each.lost for each in found), found[0]
    more = "" if len(found) == 1 else f" and {counted(len(found) - 1, 'other partition')}"
    return [
        Reason(
            code="table.lost",
            sentence=f"{facts.name} has lost {counted(total, 'record')} for good: the log of {most.at}{more} "
            f"begins at offset {most.start}, and the table ends before {most.position}",
            page=Page.RETENTION,
            evidence={"records that are lost": total, **_retention(facts), **_rows(found, facts)},
            remedy=f"keep records longer: minikafka configs alter --topic {facts.topic} --add-config "
            f"retention.ms=MS{facts.connection}; export more often",
        )
    ]


def will_be_lost(facts: TableFacts) -> Sequence[Reason]:
    late = [each for each in facts.partitions if each.lacks]
    known = [(deadline(each, facts), each) for each in late]
    found = [(when, each) for when, each in known if when is not None and when.used >= SOON]
    if not found:
        return ()
    found.sort(key=lambda each: -each[0].used)
    when, first = found[0]
    is_due = when.used >= 1
    what = f"from offset {first.first} of {first.at} on"
    if is_due:
        how = f"are due for deletion by {when.by}"
    else:
        how = f"will be deleted {_left(when)} by {when.by}"
    return [
        Reason(
            code=f"table.retention.{'due' if is_due else 'soon'}",
            sentence=f"{facts.name} does not have the records {what}, which {how}",
            page=Page.RETENTION,
            evidence={
                **_retention(facts),
                "at the earliest": [
                    {
                        "partition": str(each.at),
                        "from offset": each.first,
                        "lacks": each.lacks,
                        "by": deletes.by,
                        "used": f"{deletes.used:.0%}",
                        "left ms": deletes.left_ms,
                    }
                    for deletes, each in found[:ROWS_MAX]
                ],
            },
            remedy=f"export now: {facts.export}; or keep them longer: minikafka configs alter --topic "
            f"{facts.topic} --add-config {when.by.partition(' ')[0]}=…{facts.connection}",
        )
    ]


def _left(when: Deadline) -> str:
    if when.left_ms is not None:
        return f"in about {format_duration(when.left_ms)} at the earliest"
    return f"when another {format_bytes(int(when.left_bytes or 0))} are written, at the earliest"


def deadline(each: TablePartition, facts: TableFacts) -> Deadline | None:
    """When retention deletes the first record that the table lacks; None: never, or it is not known."""
    if not each.lacks or "delete" not in facts.config.get("cleanup.policy", ""):
        return None
    found = [when for when in (_by_time(each, facts), _by_size(each, facts)) if when is not None]
    return max(found, key=lambda when: when.used, default=None)


def _by_time(each: TablePartition, facts: TableFacts) -> Deadline | None:
    retention_ms = int(facts.config.get("retention.ms", -1))
    age_ms = each.next_age_ms if each.segment_age_ms is None else each.segment_age_ms
    if retention_ms < 0 or age_ms is None:
        return None
    used = age_ms / retention_ms if retention_ms else 1.0
    return Deadline(
        used, max(retention_ms - age_ms, 0), None, f"retention.ms ({format_duration(retention_ms)})"
    )


def _by_size(each: TablePartition, facts: TableFacts) -> Deadline | None:
    """Kafka deletes a segment when those behind it have retention.bytes on their own."""
    retention_bytes = int(facts.config.get("retention.bytes", -1))
    if retention_bytes < 0 or each.log_bytes is None or each.end is None or each.start is None:
        return None
    log_offsets = max(each.end - each.start, 1)
    behind = each.bytes_behind
    if behind is None:
        behind = each.log_bytes * each.lacks // log_offsets
    used = behind / retention_bytes if retention_bytes else 1.0
    left_bytes = max(retention_bytes - behind, 0)
    left_ms = None
    if each.produced and facts.sample_ms:
        bytes_per_ms = each.produced / facts.sample_ms * each.log_bytes / log_offsets
        left_ms = left_bytes / bytes_per_ms if bytes_per_ms else None
    return Deadline(used, left_ms, left_bytes, f"retention.bytes ({format_bytes(retention_bytes)})")


# What the table does not have yet


class Pace(NamedTuple):
    """How an export commits, by its last commits."""

    gap_ms: int | None
    """Between two of them, usually."""
    rate: float | None
    """Offsets in a second."""
    span_ms: int
    """Over which the rate was."""


def pace(commits: Sequence[TableCommit]) -> Pace:
    """``commits``: the newest first."""
    if len(commits) < 2:
        return Pace(None, None, 0)
    times = [each.ms_ago for each in commits]
    gaps_ms = sorted(max(old - new, 0) for new, old in pairwise(times))
    span_ms = times[-1] - times[0]
    # What the oldest holds was gathered before.
    offsets = sum(each.offsets for each in commits[:-1])
    rate = offsets * 1000 / span_ms if span_ms > 0 else None
    return Pace(gaps_ms[(len(gaps_ms) - 1) // 2], rate, max(span_ms, 0))


def uncommitted(facts: TableFacts) -> Sequence[Reason]:
    """The table is made, and nothing was ever committed to it."""
    if facts.table.number or not facts.partitions:
        return ()
    lacks = sum(each.lacks for each in facts.partitions)
    return [
        Reason(
            code="table.no-commit",
            sentence=f"{facts.name} is made, and has no commit: the first run has not ended, or failed, "
            f"while topic {facts.topic} has {counted(lacks, 'record')}",
            page=Page.TABLE_BEHIND,
            evidence=_rows([each for each in facts.partitions if each.lacks], facts),
            remedy=f"see what the export says: {facts.export}",
        )
    ]


def behind(facts: TableFacts) -> Sequence[Reason]:
    if not facts.table.number:
        return ()
    known = [each for each in facts.partitions if not is_left_out(each, facts)]
    late = sorted((each for each in known if each.lacks > each.undecided), key=lambda each: -each.lacks)
    if not late:
        return ()
    total, most = sum(each.lacks - each.undecided for each in late), late[0]
    ages = [each.next_age_ms for each in late if each.next_age_ms is not None]
    age_ms = max(ages, default=None)
    commits = pace(facts.table.commits)
    code, why, remedy = _why_behind(facts, commits, total, age_ms)
    oldest = "" if age_ms is None else f", the oldest written {format_duration(age_ms)} ago"
    has = f"; {most.at} has {most.lacks} of them" if len(facts.partitions) > 1 else ""
    return [
        Reason(
            code=f"table.behind.{code}",
            sentence=f"{facts.name} lacks {counted(total, 'record')} of topic {facts.topic}{oldest}{has}: "
            f"{why}",
            page=Page.TABLE_BEHIND,
            evidence={
                "records that it lacks": total,
                "last commit ms ago": facts.since_ms,
                "commits come every ms": commits.gap_ms,
                "table gets/s": commits.rate,
                "in its last commits, over ms": commits.span_ms or None,
                "written/s": _produced(facts),
                "measured for ms": facts.sample_ms,
                **_retention(facts),
                **_rows(late, facts),
            },
            remedy=remedy,
        )
    ]


def _produced(facts: TableFacts) -> float | None:
    """Records in a second, of all partitions."""
    found = [each.produced for each in facts.partitions if each.produced is not None]
    return sum(found) * 1000 / facts.sample_ms if found and facts.sample_ms else None


def _why_behind(facts: TableFacts, commits: Pace, total: int, age_ms: int | None) -> tuple[str, str, str]:
    """The end of a code, the words, and what to do."""
    since_ms = facts.since_ms
    waits = [each for each in (since_ms, age_ms) if each is not None]
    idle_ms = 0 if facts.has_committed else min(waits, default=None)
    usual = (
        "" if commits.gap_ms is None else f"; before, commits came every {format_duration(commits.gap_ms)}"
    )
    if age_ms is not None and age_ms <= facts.checkpoint_ms + INTERVAL_MS:
        often = (
            ""
            if commits.gap_ms is None
            else f"; the last commits came every {format_duration(commits.gap_ms)}"
        )
        return (
            "newest",
            "an export reads up to the high watermark that brokers write down every "
            f"{format_duration(facts.checkpoint_ms)}, and one that goes on looks every "
            f"{format_duration(INTERVAL_MS)} unless --interval says otherwise{often}",
            "",
        )
    if idle_ms is None or idle_ms > STOPPED_MS:
        last = "when it last committed is not known"
        if since_ms is not None:
            last = f"the export has not committed for {format_duration(since_ms)}"
            if commits.gap_ms is not None and since_ms <= LATE * commits.gap_ms:
                every = format_duration(commits.gap_ms)
                why = f"{last}; its commits come every {every}, and the next one brings them"
                return "next-commit", why, ""
        start = f"start it again, or see what it says: {facts.export}"
        return "stopped", f"{last}{usual}", start
    produced = _produced(facts)
    if commits.rate is None or produced is None:
        return "running", "the export commits, the last time " + _ago(since_ms), ""
    rates = (
        f"the table gets {commits.rate:.3g} records/s (over {format_duration(commits.span_ms)}), and "
        f"{produced:.3g} are written (over {format_duration(facts.sample_ms)})"
    )
    if produced > commits.rate * UNLIKE:
        more = "give it more processors (--master), or export topics on their own (--topics)"
        return "too-slow", f"{rates}; so it falls behind further", more
    if commits.rate > produced * UNLIKE:
        eta_ms = total / (commits.rate - produced) * 1000
        return "catching-up", f"{rates}; it will have caught up in about {format_duration(eta_ms)}", ""
    return "steady", f"{rates}; so it keeps its distance", ""


def _ago(duration_ms: int | None) -> str:
    return "at a time that is not known" if duration_ms is None else f"{format_duration(duration_ms)} ago"


def held_by_transactions(facts: TableFacts) -> Sequence[Reason]:
    found = sorted((each for each in facts.partitions if each.undecided), key=lambda each: -each.undecided)
    if not found:
        return ()
    total, most = sum(each.undecided for each in found), found[0]
    return [
        Reason(
            code="table.behind.transaction",
            sentence=f"{facts.name} does not get {counted(total, 'record')} yet: a transaction in {most.at} "
            f"is open from offset {most.stable} on, and exports stop there (--isolation read_committed)",
            page=Page.LAST_STABLE_OFFSET,
            evidence={"records that it holds back": total, **_rows(found, facts)},
            remedy=f"minikafka why fetch {most.at.topic}:{most.at.partition} --read-committed"
            f"{facts.connection} says whose it is",
        )
    ]


def is_left_out(each: TablePartition, facts: TableFacts) -> bool:
    """Whether runs that could have read what the table lacks did not. The first commit after that was written
    may be of a run that had begun before; of a partition that the table does not know at all it is told."""
    if each.lacks <= each.undecided:
        return False
    if each.next_age_ms is None:
        return each.position is None
    since = commits_since(each.next_age_ms, facts)
    enough = 1 if each.position is None else 2
    return len(since) >= enough and not any(each.at.partition in commit.partitions for commit in since)


def commits_since(age_ms: int, facts: TableFacts) -> Sequence[TableCommit]:
    """Those that came when a record of that age could be read."""
    return [each for each in facts.table.commits if each.ms_ago < age_ms - facts.checkpoint_ms]


def left_out(facts: TableFacts) -> Sequence[Reason]:
    """The partitions that the export does not read."""
    found = [each for each in facts.partitions if is_left_out(each, facts)]
    if not found or not facts.table.number:
        return ()
    total = sum(each.lacks for each in found)
    names = ", ".join(str(each.at) for each in found[:3])
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    is_sure = all(len(commits_since(each.next_age_ms or 0, facts)) > 1 for each in found)
    early = "" if is_sure else "its run had begun before they were written, or "
    return [
        Reason(
            code="table.partitions-left-out",
            sentence=f"{facts.name} lacks {counted(total, 'record')} of {names}{more}, which its last "
            f"commit{'s leave' if is_sure else ' leaves'} out: {early}the broker whose log directories are "
            "exported has no replica of them",
            page=Page.TABLE_BEHIND,
            evidence={
                "last commit ms ago": facts.since_ms,
                "partitions": [
                    {
                        "partition": str(each.at),
                        "lacks": each.lacks,
                        "table's next": each.position,
                        "log start": each.start,
                        "next record ms ago": each.next_age_ms,
                        "replicas": list(each.replicas),
                    }
                    for each in found[:ROWS_MAX]
                ],
            },
            remedy="an export names the log directories of one broker: take one that has a replica of each; "
            "where a transaction has ended just now, the next run brings them",
        )
    ]


# What else is with it


def wrong_records(facts: TableFacts) -> Sequence[Reason]:
    commits = facts.table.commits
    if not commits or not commits[0].errors:
        return ()
    last = commits[0]
    return [
        Reason(
            code="table.errors",
            sentence=f"{facts.name} did not get {last.errors} of the {counted(last.records, 'record')} of "
            f"its last commit: they did not decode, or did not fit, and are in {facts.table.errors_name}",
            page=Page.TABLE_SCHEMAS,
            evidence={
                "commits": [
                    {
                        "commit": each.number,
                        "ms ago": each.ms_ago,
                        "records": each.records,
                        "errors": each.errors,
                    }
                    for each in commits
                ]
            },
            remedy="the column reason of that table says what is wrong with each: another --value-schema or "
            "--key-schema, or another producer",
        )
    ]


def written_by_others(facts: TableFacts) -> Sequence[Reason]:
    others = facts.table.others
    if not others:
        return ()
    times = "" if len(others) == 1 else f", {len(others)} times of late"
    return [
        Reason(
            code="table.written-by-others",
            sentence=f"{facts.name} has other rows than the export wrote: another program has changed it by "
            f"{others[0].operation or 'a commit'} {format_duration(others[0].ms_ago)} ago{times}",
            page=Page.TABLE_EXACTLY_ONCE,
            evidence={
                "changes": [
                    {"operation": each.operation, "ms ago": each.ms_ago} for each in others[:ROWS_MAX]
                ],
                "export's last commit ms ago": facts.since_ms,
            },
            remedy="change a copy of such a table; the export goes on from its own offsets, so what others "
            "removed does not come back",
        )
    ]


def _retention(facts: TableFacts) -> dict[str, Any]:
    def limit(name: str) -> int | None:
        text = facts.config.get(name)
        return None if text is None or int(text) < 0 else int(text)

    age_ms, size = limit("retention.ms"), limit("retention.bytes")
    return {
        "cleanup.policy": facts.config.get("cleanup.policy"),
        "retention.ms": None if age_ms is None else format_duration(age_ms),
        "retention.bytes": None if size is None else format_bytes(size),
    }


def _rows(partitions: Iterable[TablePartition], facts: TableFacts) -> dict[str, Any]:
    return {"partitions": [_row(each, facts) for each in list(partitions)[:ROWS_MAX]]}


def _row(each: TablePartition, facts: TableFacts) -> dict[str, Any]:
    when = deadline(each, facts)
    return {
        "partition": str(each.at),
        "table's next": each.position,
        "log start": each.start,
        "last stable": each.stable,
        "high watermark": each.end,
        "lacks": each.lacks,
        "written/s": None
        if each.produced is None or not facts.sample_ms
        else each.produced * 1000 / facts.sample_ms,
        "next record ms ago": each.next_age_ms,
        "deleted in ms": None if when is None else when.left_ms,
    }


ENDED = (recreated, gone)
"""After these, offsets say nothing."""
LOOKS = (
    ahead,
    lost,
    will_be_lost,
    uncommitted,
    behind,
    left_out,
    held_by_transactions,
    written_by_others,
    wrong_records,
)
"""The one that weighs most first."""


def answer_of(facts: TableFacts, unknown: Sequence[str] = ()) -> Answer:
    ended = [reason for look in ENDED for reason in look(facts)]
    looks = (written_by_others, wrong_records) if ended else LOOKS
    reasons = [*ended, *(reason for look in looks for reason in look(facts))]
    reasons.sort(key=lambda reason: reason.code in MILD)
    has = "every record" if all(each.end is not None for each in facts.partitions) else "every known record"
    otherwise = (
        f"{facts.name} is in step with topic {facts.topic}: it has {has} below the high watermarks; its last "
        f"commit, number {facts.table.number}, was {_ago(facts.since_ms)}"
    )
    return answer(f"table {facts.table.name}", reasons, otherwise=otherwise, unknown=unknown)


# Gathering


async def why(cluster: Cluster, tables: Tables, topic: str, *, sample_ms: int, export: str) -> Answer:
    """``export``: the command that continues the table.

    Raises:
        MinikafkaError: the table cannot be found or read, or is not an export's of the topic; KafkaError,
            BrokerUnavailable: no broker answers.
    """
    facts = await gather(cluster, tables, topic, sample_ms=sample_ms, export=export)
    return answer_of(facts, cluster.unknown)


def read_table(tables: Tables, topic: str, now_ms: int) -> TableNow:
    """What a table says of itself. Reads files, or asks a catalog: it may take seconds.

    Raises:
        MinikafkaError: it is not there, cannot be read, or is not an export's of the topic.
    """
    from minikafka.spark.tables.table import TOPIC_ID, UPSERT, check_topic

    table = tables.table(topic)
    if not table.load():
        raise CommandError(
            f"there is no table {table.name}: minikafka export makes it in its first run; or another "
            "--catalog, --namespace or --output was named then"
        )
    check_topic(table, topic)
    progress = table.progress()
    history = table.history(HISTORY_MAX)
    own = [(each, each.progress) for each in history if each.progress is not None][:COMMITS_MAX]
    topic_id = progress.topic_id if progress is not None else None
    return TableNow(
        name=table.name,
        errors_name=tables.table(topic, errors=True).name,
        topic_id=topic_id or table.properties.get(TOPIC_ID),
        is_upsert=table.properties.get(UPSERT) == "true",
        number=progress.number if progress is not None else 0,
        offsets=progress.offsets if progress is not None else {},
        commits=[
            TableCommit(
                number=said.number,
                ms_ago=max(now_ms - each.time_ms, 0),
                offsets=sum(end - first for first, end in said.ranges.values()),
                records=said.records,
                errors=sum(file.records for file in said.errors),
                partitions=frozenset(said.ranges),
            )
            for each, said in own
        ],
        others=[
            OtherCommit(operation=each.operation, ms_ago=max(now_ms - each.time_ms, 0))
            for each in history
            if each.is_foreign
        ],
    )


class _Look(NamedTuple):
    """Table and topic at one time. The table is read behind the logs' starts and before their ends, so that
    what moves meanwhile seems neither lost nor ahead."""

    table: TableNow
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    stable: Mapping[TopicPartition, int]

    def partition(self, at: TopicPartition) -> TablePartition:
        return TablePartition(
            at=at,
            position=self.table.offsets.get(at.partition),
            start=self.starts.get(at),
            end=self.ends.get(at),
            stable=self.stable.get(at),
        )


async def gather(
    cluster: Cluster, tables: Tables, topic: str, *, sample_ms: int, export: str = "minikafka export"
) -> TableFacts:
    # Nothing else is on this loop that the table could hold up.
    read_table(tables, topic, cluster.clock.now_ms())
    now = await cluster.admin.partitions([topic])
    if not now:
        table = read_table(tables, topic, cluster.clock.now_ms())
        return TableFacts(topic=topic, table=table, export=export, connection=cluster.connection)
    found = await _look(cluster, tables, topic, now)
    before = found
    if sample_ms and any(found.partition(each).lacks for each in now):
        await asyncio.sleep(sample_ms / 1000)
        found = await _look(cluster, tables, topic, now)
    else:
        sample_ms = 0
    for each in now:
        if each not in found.ends or each not in found.starts:
            cluster.unknown.append(
                f"what the table lacks of {each}: its leader does not say; ask minikafka why partition "
                f"{each.topic}:{each.partition}{cluster.connection}"
            )
    partitions = [
        msgspec.structs.replace(
            found.partition(each),
            replicas=now[each].replicas,
            produced=_moved(before.ends, found.ends, each) if sample_ms else None,
        )
        for each in now
    ]
    topic_id = await cluster.topic_id(topic)
    return TableFacts(
        topic=topic,
        table=found.table,
        partitions=await _with_more(cluster, now, partitions),
        topic_id=None if topic_id is None else encode_uuid(topic_id),
        config=await _config(cluster, topic),
        checkpoint_ms=await _checkpoint_ms(cluster, now),
        has_committed=found.table.number > before.table.number,
        sample_ms=sample_ms,
        export=f"{export} --upsert" if found.table.is_upsert else export,
        connection=cluster.connection,
    )


async def _look(cluster: Cluster, tables: Tables, topic: str, partitions: Iterable[TopicPartition]) -> _Look:
    starts = await _offsets(cluster, partitions, EARLIEST)
    table = read_table(tables, topic, cluster.clock.now_ms())
    ends = await _offsets(cluster, partitions, LATEST)
    stable = await _offsets(cluster, partitions, LATEST, is_read_committed=True)
    return _Look(table, starts, ends, {at: min(each, ends.get(at, each)) for at, each in stable.items()})


async def _offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], when: int, *, is_read_committed: bool = False
) -> dict[TopicPartition, int]:
    """Those that can be known."""
    listed = await cluster.admin.list_offsets(partitions, when, is_read_committed=is_read_committed)
    return {at: each.offset for at, each in listed.items() if isinstance(each, ListedOffset)}


def _moved(
    before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int], at: TopicPartition
) -> int | None:
    return max(after[at] - before[at], 0) if at in before and at in after else None


async def _config(cluster: Cluster, topic: str) -> dict[str, str]:
    found = await cluster.topic_values(topic, TOPIC_CONFIGS)
    if not found:
        cluster.unknown.append(
            "when retention deletes what the table lacks: it needs DESCRIBE_CONFIGS on the topic"
        )
    return found


async def _checkpoint_ms(cluster: Cluster, now: Mapping[TopicPartition, PartitionNow]) -> int:
    """Of a broker that leads a partition."""
    leader = next((each.leader for each in now.values() if each.leader != NO_LEADER), None)
    if leader is None:
        return CHECKPOINT_INTERVAL_MS
    try:
        found = await cluster.values(broker_resource(leader), [CHECKPOINT_INTERVAL], node_id=leader)
    except (BrokerUnavailable, KafkaError):
        return CHECKPOINT_INTERVAL_MS
    return int(found.get(CHECKPOINT_INTERVAL, CHECKPOINT_INTERVAL_MS))


async def _with_more(
    cluster: Cluster, now: Mapping[TopicPartition, PartitionNow], partitions: Sequence[TablePartition]
) -> list[TablePartition]:
    """With the age and the segment of what the table lacks, where it lacks most; with the log end where the
    table is ahead."""
    late = sorted((each for each in partitions if each.lacks), key=lambda each: -each.lacks)[:ROWS_MAX]
    more = {each.at: await _with_segment(cluster, now[each.at].leader, each) for each in late}
    for each in partitions:
        if each.position is not None and each.end is not None and each.position > each.end:
            more[each.at] = await _with_log_end(cluster, now[each.at].leader, each)
    return [more.get(each.at, each) for each in partitions]


async def _with_log_end(cluster: Cluster, leader: int, each: TablePartition) -> TablePartition:
    """An export with ``--latest logEnd`` reads above the high watermark, too."""
    try:
        log_end = await cluster.log_end_offset(each.at, leader)
    except (BrokerUnavailable, KafkaError) as error:
        told = explain(error) if isinstance(error, KafkaError) else str(error)
        cluster.unknown.append(f"whether the table is ahead of the log of {each.at}: {told}")
        return each
    return msgspec.structs.replace(each, log_end=log_end)


async def _with_segment(cluster: Cluster, leader: int, each: TablePartition) -> TablePartition:
    age_ms = await cluster.record_age_ms(each.at, each.first)
    document = await cluster.diagnostics(
        "partition", leader, "", topic=each.at.topic, partition=each.at.partition
    )
    if document is None:
        log_bytes = await _log_bytes(cluster, leader, each.at)
        return msgspec.structs.replace(each, next_age_ms=age_ms, log_bytes=log_bytes)
    log, oldest = document["log"], document["oldest_segment"]
    is_oldest = oldest["base_offset"] <= each.first < oldest["end_offset"]
    newest_ms = oldest["newest_timestamp_ms"] if is_oldest else None
    return msgspec.structs.replace(
        each,
        next_age_ms=age_ms,
        segment_age_ms=None if newest_ms is None else max(cluster.clock.now_ms() - newest_ms, 0),
        log_bytes=log["bytes"],
        bytes_behind=log["bytes"] - oldest["bytes"] if is_oldest else None,
    )


async def _log_bytes(cluster: Cluster, leader: int, at: TopicPartition) -> int | None:
    dirs = (await cluster.log_dirs([leader], at)).get(leader)
    sizes = [each.replicas[at].size_bytes for each in dirs or () if at in each.replicas]
    return sizes[0] if sizes else None
