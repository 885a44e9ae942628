"""The options of the data sources: read, checked, as one value; and what Spark's filters say beside them.

Names and meaning are those of Spark's own Kafka source wherever it has them. Stricter than Spark: an option
that is not known, and two that contradict each other, are errors rather than silently ignored.

    path                  log directories, or partitions' own ones: a path or URI, several separated by commas
                          or as a JSON list
    subscribe | subscribePattern | assign
                          topics "a,b"; a regular expression; {"a":[0,1]}. Default: every topic found but for
                          Kafka's internal ones, which are read when they are named
    startingOffsets       earliest | latest | {"a":{"0":23,"1":-2}}; default earliest, latest for a stream
    startingTimestamp, startingOffsetsByTimestamp
                          milliseconds: one for all partitions, or as JSON by partition
    startingOffsetsByTimestampStrategy
                          error | latest: what to do where no record is that young
    endingOffsets, endingTimestamp, endingOffsetsByTimestamp
                          the same for the end (exclusive); default latest; not for a stream
    latest                what "latest" means: see ``Latest``
    isolation             read_uncommitted | read_committed; default read_uncommitted
    onCorrupt             fail | skip | column; default fail. CRCs are checked where records are read: a read
                          of columns that headers know (offset, producer_id, codec …) sees damaged headers,
                          and passes over damaged records without looking
    failOnDataLoss        true | false: records that are wanted and no longer there; default true
    replicas              fail | all: a partition that is found in several directories; default fail
    includeHeaders, includeControlBatches
                          true | false; default false
    columns               "offset,key" or a JSON list; default all
    splitBytes            bytes of a segment that one task reads; default 128 MiB, of headers alone 1 GiB
    maxDecompressedBytes  what the records of one batch may take uncompressed; default 128 MiB
    maxOffsetsPerTrigger  of a stream: how many offsets a micro-batch may advance over; default: all

Filters go in, a narrowed search comes out (pure). Only what skips partitions, segments or batches is taken
from them; Spark evaluates every filter again on the rows that come back, so nothing here needs to be exact,
only never to leave out a row that matches. The search knows topics, partitions, a range of offsets and the
earliest timestamp. (A latest timestamp would skip nothing: an index knows the largest timestamp of a segment,
not the smallest.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from minikafka.errors import MinikafkaError
from minikafka.spark.runtime.storage import Location, UnusableLocation, location
from minikafka.types import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

SPLIT_BYTES: Final = 128 * 1024 * 1024
"""As Spark's ``maxPartitionBytes``: a task costs about a tenth of a second of CPU before it reads."""
HEADER_SPLIT_BYTES: Final = 1024 * 1024 * 1024
"""Where only headers are read, which is some tenths of a second for so many bytes."""
DECOMPRESSED_BYTES_MAX: Final = 128 * 1024 * 1024
_DECOMPRESSED_BYTES_LIMIT: Final = 1 << 30
"""Arrow's offsets have 31 bits."""
_OFFSET_MAX: Final = 2**63 - 1
_PARTITION_DIGITS_MAX: Final = 10

_E = TypeVar("_E", bound=Enum)

_ABOUT_RECORDS: Final = ("isolation", "includeHeaders", "includeControlBatches", "maxDecompressedBytes")
_ENDS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_SELECTIONS: Final = ("subscribe", "subscribePattern", "assign")
KNOWN_OPTIONS: Final = (
    "path",
    *_SELECTIONS,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    *_ENDS,
    "latest",
    "isolation",
    "onCorrupt",
    "failOnDataLoss",
    "replicas",
    "includeHeaders",
    "includeControlBatches",
    "columns",
    "splitBytes",
    "maxDecompressedBytes",
    "maxOffsetsPerTrigger",
)


# ---- filters


@dataclass(frozen=True, slots=True)
class Search:
    """Where rows may be that match all filters; None: anywhere."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first_offset: int | None = None
    end_offset: int | None = None
    timestamp_ms_min: int | None = None

    def includes(self, topic_partition: TopicPartition) -> bool:
        topic, partition = topic_partition
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )


def narrowed(filters: Iterable[Filter]) -> Search:
    """The search that all of ``filters`` leave; those that it cannot use leave it as it is."""
    search = Search()
    for each in filters:
        search = _narrow(search, each)
    return search


def _narrow(search: Search, each: Filter) -> Search:
    values: tuple[Any, ...]
    match each:
        case EqualTo(attribute, value) | EqualNullSafe(attribute, value):
            values = (value,)
        case In(attribute, listed):
            values = tuple(listed)
        case GreaterThan((name,), value) | GreaterThanOrEqual((name,), value):
            return _above(search, name, value, is_open=isinstance(each, GreaterThan))
        case LessThan(("offset",), int(value)):
            return _below(search, value)
        case LessThanOrEqual(("offset",), int(value)):
            return _below(search, value + 1)
        case _:
            return search
    match attribute:
        case ("topic",):
            return replace(search, topics=_both(search.topics, values))
        case ("partition",):
            return replace(search, partitions=_both(search.partitions, values))
        case ("offset",) if values and all(isinstance(value, int) for value in values):
            return _below(_above(search, "offset", min(values), is_open=False), max(values) + 1)
        case ("timestamp",) if values and all(isinstance(value, datetime) for value in values):
            return _above(search, "timestamp", min(values), is_open=False)
    return search


def _both(known: frozenset[Any] | None, values: tuple[Any, ...]) -> frozenset[Any]:
    return frozenset(values) if known is None else known & frozenset(values)


def _above(search: Search, name: str, value: Any, *, is_open: bool) -> Search:
    if name == "offset" and isinstance(value, int):
        first = value + is_open
        return replace(search, first_offset=max(first, search.first_offset or first))
    if name == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
        earliest = int(value.timestamp() // 0.001)  # rounded down: a timestamp in the log is whole ms
        return replace(search, timestamp_ms_min=max(earliest, search.timestamp_ms_min or earliest))
    return search


def _below(search: Search, end: int) -> Search:
    return replace(search, end_offset=end if search.end_offset is None else min(end, search.end_offset))


# ---- options


class BadOption(MinikafkaError, ValueError):
    """An option that cannot be: names it, and says what it may be."""


class Isolation(Enum):
    """What a consumer with that ``isolation.level`` would see."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class OnCorrupt(Enum):
    """What becomes of a damaged piece of a log."""

    FAIL = "fail"
    SKIP = "skip"
    COLUMN = "column"


class Latest(Enum):
    """Up to where "latest" reads. A consumer sees what is below the high watermark, and what a directory
    knows of that is a checkpoint that a running broker writes every five seconds."""

    AUTO = "auto"
    """The checkpoint where nothing was written to the log since; else, or where it does not name the
    partition, the end of the log. The default of a batch read: what lies above the checkpoint of a log at
    rest was never committed, what lies above that of a log in use is mostly a matter of the last seconds."""
    HIGH_WATERMARK = "highWatermark"
    """The checkpoint, always; nothing of a partition that it does not name. The default of a stream, which
    must never have read a record that another leader then replaces. A directory without any such checkpoint
    is read to its end."""
    LOG_END = "logEnd"
    """Whatever the log holds."""


class Replicas(Enum):
    """What becomes of a partition that several of the directories have."""

    FAIL = "fail"
    ALL = "all"


class OffsetLimit(NamedTuple):
    """Where reading starts or ends."""

    option: str
    """Which option says so."""
    everywhere: int | None = None
    """EARLIEST or LATEST, of all partitions."""
    offsets: Mapping[TopicPartition, int] | None = None
    """An offset, EARLIEST or LATEST."""
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] | None = None


class TopicSelection(NamedTuple):
    """Which partitions are read; at most one is set."""

    topics: tuple[str, ...] | None = None
    pattern: re.Pattern[str] | None = None
    partitions: tuple[TopicPartition, ...] | None = None

    def includes(self, topic_partition: TopicPartition) -> bool:
        if self.topics is not None:
            return topic_partition.topic in self.topics
        if self.pattern is not None:
            return self.pattern.fullmatch(topic_partition.topic) is not None
        if self.partitions is not None:
            return topic_partition in self.partitions
        return topic_partition.topic not in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Everything that a user may say."""

    paths: tuple[Location, ...]
    selection: TopicSelection
    starting: OffsetLimit
    ending: OffsetLimit
    latest: Latest = Latest.AUTO
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    on_corrupt: OnCorrupt = OnCorrupt.FAIL
    replicas: Replicas = Replicas.FAIL
    fail_on_data_loss: bool = True
    latest_where_nothing_is_that_young: bool = False
    include_headers: bool = False
    include_control_batches: bool = False
    columns: tuple[str, ...] | None = None
    split_bytes: int = SPLIT_BYTES
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
    offsets_per_trigger_max: int | None = None


class Reading(Enum):
    """What the options are for: some make no sense everywhere, and some defaults differ."""

    RECORDS = "records"
    STREAM = "stream of records"
    HEADERS = "headers"
    """Of batches: read to the end of the log, of all replicas, with damage as rows, unless the options say
    otherwise."""


def parse_options(
    given: Mapping[str, str], reading: Reading = Reading.RECORDS, *, split_bytes: int = SPLIT_BYTES
) -> ReadOptions:
    """The options as Spark hands them over; upper and lower case in names do not matter.

    Args:
        split_bytes: the default of ``splitBytes``.

    Raises:
        BadOption: names the option.
    """
    options = _Options(given)
    stream = reading is Reading.STREAM
    on_corrupt, replicas = OnCorrupt.FAIL, Replicas.FAIL
    if stream:
        options.refuse(_ENDS, "a stream has no end")
        starting_default, latest = LATEST, Latest.HIGH_WATERMARK
    else:
        options.refuse(("maxOffsetsPerTrigger",), "only a stream has triggers")
        starting_default, latest = EARLIEST, Latest.AUTO
    if reading is Reading.HEADERS:
        options.refuse(_ABOUT_RECORDS, "no records are read")
        latest, on_corrupt, replicas = Latest.LOG_END, OnCorrupt.COLUMN, Replicas.ALL
    starting = options.limit("starting", starting_default)
    ending = options.limit("ending", LATEST)
    if not stream:
        _refuse_everywhere(starting, LATEST, "a batch cannot start at the latest offsets")
        _refuse_everywhere(ending, EARLIEST, "a batch cannot end at the earliest offsets")
    strategy = options.text("startingOffsetsByTimestampStrategy") or "error"
    if strategy not in ("error", "latest"):
        raise BadOption(f"startingOffsetsByTimestampStrategy is {strategy!r}; it may be error or latest")
    read = ReadOptions(
        paths=options.paths(),
        selection=options.selection(),
        starting=starting,
        ending=ending,
        latest=options.choice("latest", Latest, latest),
        isolation=options.choice("isolation", Isolation, Isolation.READ_UNCOMMITTED),
        on_corrupt=options.choice("onCorrupt", OnCorrupt, on_corrupt),
        replicas=options.choice("replicas", Replicas, replicas),
        fail_on_data_loss=options.boolean("failOnDataLoss", default=True),
        latest_where_nothing_is_that_young=strategy == "latest",
        include_headers=options.boolean("includeHeaders", default=False),
        include_control_batches=options.boolean("includeControlBatches", default=False),
        columns=options.names("columns"),
        split_bytes=options.number("splitBytes", split_bytes, least=1) or split_bytes,
        decompressed_bytes_max=options.number(
            "maxDecompressedBytes", DECOMPRESSED_BYTES_MAX, least=1, most=_DECOMPRESSED_BYTES_LIMIT
        )
        or DECOMPRESSED_BYTES_MAX,
        offsets_per_trigger_max=options.number("maxOffsetsPerTrigger", None, least=1),
    )
    if stream and read.replicas is Replicas.ALL:
        raise BadOption("replicas is 'all'; the offsets of a stream have room for one replica only")
    return read


def _refuse_everywhere(limit: OffsetLimit, refused: int, why: str) -> None:
    if limit.everywhere == refused or refused in (limit.offsets or {}).values():
        raise BadOption(f"{limit.option}: {why}")


class _Options:
    """What was given, by the names in ``KNOWN_OPTIONS``."""

    def __init__(self, given: Mapping[str, str]) -> None:
        names = {name.lower(): name for name in KNOWN_OPTIONS}
        self._given: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() not in names:
                raise BadOption(f"there is no option {name!r}; there are {', '.join(KNOWN_OPTIONS)}")
            self._given[names[name.lower()]] = str(value)

    def text(self, name: str) -> str | None:
        return self._given.get(name)

    def refuse(self, names: tuple[str, ...], why: str) -> None:
        for name in names:
            if name in self._given:
                raise BadOption(f"{name} cannot be given: {why}")

    def paths(self) -> tuple[Location, ...]:
        text = self.text("path")
        if not text:
            raise BadOption("path is missing: name one or more log directories")
        try:
            paths = tuple(location(each) for each in _list_or_commas("path", text))
        except UnusableLocation as error:
            raise BadOption(f"path: {error}") from None
        for index, path in enumerate(paths):
            if path in paths[:index]:
                raise BadOption(f"path names {path.shown()} twice")
        return paths

    def selection(self) -> TopicSelection:
        named = [name for name in _SELECTIONS if name in self._given]
        if len(named) > 1:
            raise BadOption(f"{' and '.join(named)} contradict each other: give one of them")
        match named:
            case ["subscribe"]:
                return TopicSelection(topics=self.names("subscribe"))
            case ["subscribePattern"]:
                try:
                    return TopicSelection(pattern=re.compile(self._given["subscribePattern"].strip()))
                except (re.error, RecursionError, OverflowError) as error:
                    raise BadOption(f"subscribePattern is no regular expression: {error}") from None
            case ["assign"]:
                return TopicSelection(partitions=_assignment(self._given["assign"]))
        return TopicSelection()

    def limit(self, which: str, default: int) -> OffsetLimit:
        options = (f"{which}Offsets", f"{which}Timestamp", f"{which}OffsetsByTimestamp")
        named = [name for name in options if name in self._given]
        if len(named) > 1:
            raise BadOption(f"{' and '.join(named)} contradict each other: give one of them")
        if not named:
            return OffsetLimit(options[0], default)
        (option,) = named
        text = self._given[option].strip()
        if option == options[0]:
            if text.lower() in ("earliest", "latest"):
                return OffsetLimit(option, EARLIEST if text.lower() == "earliest" else LATEST)
            return OffsetLimit(option, offsets=_by_partition(option, text, least=EARLIEST))
        if option == options[1]:
            return OffsetLimit(option, timestamp_ms=self.number(option, None, least=0))
        return OffsetLimit(option, timestamps_ms=_by_partition(option, text, least=0))

    def choice(self, name: str, kind: type[_E], default: _E) -> _E:
        text = self.text(name)
        if text is None:
            return default
        for each in kind:
            if each.value.lower() == text.strip().lower():
                return each
        raise BadOption(f"{name} is {text!r}; it may be {', '.join(each.value for each in kind)}")

    def boolean(self, name: str, *, default: bool) -> bool:
        text = (self.text(name) or str(default)).strip().lower()
        if text not in ("true", "false"):
            raise BadOption(f"{name} is {text!r}; it may be true or false")
        return text == "true"

    def number(self, name: str, default: int | None, *, least: int, most: int = _OFFSET_MAX) -> int | None:
        text = self.text(name)
        if text is None:
            return default
        if not re.fullmatch(r"\d{1,19}", text.strip(), re.ASCII) or not least <= int(text) <= most:
            raise BadOption(f"{name} is {text!r}; it may be a whole number from {least} to {most}")
        return int(text)

    def names(self, name: str) -> tuple[str, ...] | None:
        text = self.text(name)
        if text is None:
            return None
        names = tuple(each for each in _list_or_commas(name, text) if each)
        if not names:
            raise BadOption(f"{name} names nothing")
        return names


def _list_or_commas(option: str, text: str) -> list[str]:
    if not text.lstrip().startswith("["):
        return [each.strip() for each in text.split(",")]
    listed = _json(option, text)
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise BadOption(f"{option} is no JSON list of strings: {text!r}")
    return listed


def _assignment(text: str) -> tuple[TopicPartition, ...]:
    assigned = _json("assign", text)
    example = 'such as {"a":[0,1]}'
    if not isinstance(assigned, dict) or not assigned:
        raise BadOption(f"assign names no partitions: {text!r}; give JSON {example}")
    partitions = []
    for topic, numbers in assigned.items():
        if not isinstance(numbers, list) or not all(type(each) is int and each >= 0 for each in numbers):
            raise BadOption(f"assign: {topic!r} has no list of partitions; give JSON {example}")
        partitions += [TopicPartition(topic, number) for number in numbers]
    return tuple(partitions)


def _by_partition(option: str, text: str, *, least: int) -> dict[TopicPartition, int]:
    example = 'JSON such as {"a":{"0":23}}'
    if least == EARLIEST:
        example = f"earliest, latest or {example}, where -2 is the earliest and -1 the latest offset"
    topics = _json(option, text) if text.startswith("{") else None
    if not isinstance(topics, dict):
        raise BadOption(f"{option} is {text!r}; it may be {example}")
    found = {}
    for topic, partitions in topics.items():
        for partition, number in partitions.items() if isinstance(partitions, dict) else [("", None)]:
            is_number = partition.isascii() and partition.isdigit()
            if not is_number or len(partition) > _PARTITION_DIGITS_MAX or type(number) is not int:
                raise BadOption(f"{option}: {topic!r} is not understood; it may be {example}")
            if not least <= number <= _OFFSET_MAX:
                raise BadOption(f"{option}: {topic}-{partition} is {number}; the least is {least}")
            found[TopicPartition(topic, int(partition))] = number
    return found


def _json(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadOption(f"{option} is no JSON: {error}: {text!r}") from None
