"""One workload: what is sent, read or opened, how fast and for how long. Every subcommand fills one of these,
or a file of the OpenMessaging Benchmark does.

| kind | clients | what is timed |
|---|---|---|
| PRODUCE | producers | due (or handed over, without a rate) → acknowledged |
| STREAM | producers and consumers | that, and due → consumed |
| CONSUME | consumers, of records that are produced before | nothing: records a second |
| CONNECTIONS | clients that ask for metadata | opening → first answer; due → answer |
| GROUPS | members of consumer groups that commit | subscribing → assignment; commits |

Consumers of STREAM and CONSUME are assigned their partitions, so that no rebalance is measured as a stall.

When records are due says a schedule: an open loop's timetable, which the target cannot slow down. It is a
list of stretches of constant rate, so a fixed rate is one stretch and a recording of real traffic is many.
Several producers share a schedule by taking every n-th record of it.

The records that a producer sends are a pool of keys and values, the same for the same seed, used in a circle.
A record that is to be timed begins with a stamp: the moment at which it was due. ``UNTIMED`` is the stamp of
records that are only counted (a backlog).

Sizes, keys and compressibility are distributions, as people write them. Numbers: ``1024`` or ``fixed:1024``,
``uniform:LOW-HIGH``, ``normal:MEAN,DEVIATION``, ``lognormal:MEDIAN,SIGMA``. Keys: ``none``,
``sequential:COUNT`` (one after the other), ``uniform:COUNT``, ``zipf:COUNT,EXPONENT``. Dice are an argument,
so that a seed gives the same records again.

Workload files have the shape of the OpenMessaging Benchmark's YAML; driver files for Kafka are its, too. A
file of OMB's runs as it is; what this generator does not do is refused by name rather than passed over. Where
it differs: consumers of a subscription are assigned their partitions instead of forming a group;
``producerRate: 0`` is as fast as the target takes it, without OMB's search for a balanced rate;
``consumerBacklogSizeGB`` is produced before the clock starts. Beyond OMB's keys, ``messageSize`` and
``keyDistributor`` take this generator's distributions too.
"""

from __future__ import annotations

import bisect
import csv
import difflib
import io
import itertools
import math
import random
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from minikafka.deferred import deferred
from minikafka.errors import UNDECODABLE, ConfigError

if TYPE_CHECKING:
    import yaml
else:
    yaml = deferred("yaml")

PRODUCERS_MAX = 10_000
CLIENTS_MAX = 100_000
PARTITIONS_MAX = 100_000
DURATION_S = 10.0
"""Of a run that says neither how long nor how many."""
TOPIC_NAME_MAX = 200
"""Of a workload's name in that of its topics, for which Kafka has 249 characters."""

_NO_TOPIC_CHARACTER = re.compile(r"[^a-zA-Z0-9._-]")

KEYS_MAX = 10_000_000
"""Zipf's table takes 8 bytes a key."""

SIGMA_MAX = 50.0
"""Beyond, floats have no room for the tail."""

POOL_RECORDS = 16_384
POOL_BYTES_MAX = 64 * 1024 * 1024
"""Big records make a smaller pool, of ``POOL_RECORDS_MIN`` at least."""
POOL_RECORDS_MIN = 16

SIZE_MAX = 100 * 1024 * 1024
STAMP = struct.Struct(">Q")
UNTIMED = 0

BYTES_PER_GB = 1024**3
OMB_KEYS = 10_000
"""How many keys KEY_ROUND_ROBIN and RANDOM_NANO choose from, as in OMB."""

_KEY_DISTRIBUTORS = {
    "NO_KEY": "none",
    "KEY_ROUND_ROBIN": f"sequential:{OMB_KEYS}",
    "RANDOM_NANO": f"uniform:{OMB_KEYS}",
}
_NUMBERS = {
    "topics": 1,
    "partitionsPerTopic": 1,
    "subscriptionsPerTopic": 1,
    "consumerPerSubscription": 1,
    "producersPerTopic": 1,
    "producerRate": 0,
    "consumerBacklogSizeGB": 0,
    "testDurationMinutes": 0,
    "warmupDurationMinutes": 0,
    "randomBytesRatio": 0,
    "randomizedPayloadPoolSize": 0,
}
"""Keys whose values are numbers, and the least that each may be."""
_OTHERS = ("name", "messageSize", "useRandomizedPayloads", "payloadFile", "keyDistributor")
_NEUTRAL = {
    "messageRateReceivedForSubscription": 100,
    "producerStartRate": None,
    "acceptableBacklog": None,
    "producerIncrementRate": 0,
    "producerIncrementSeconds": None,
    "producerPauseBeforeDrain": 0,
    "producerPauseDuringDrain": 0,
}
"""Keys of OMB's that are understood only with the value that changes nothing; None: any."""

_DRIVER_CONFIGS = ("commonConfig", "producerConfig", "consumerConfig", "topicConfig")
_DRIVER_IGNORED = ("name", "driverClass", "reset")
_JAVA_ONLY = frozenset(
    {
        "buffer.memory",
        "default.api.timeout.ms",
        "key.deserializer",
        "key.serializer",
        "max.poll.records",
        "value.deserializer",
        "value.serializer",
    }
)
"""Properties of Kafka's Java clients that librdkafka has nothing like; the others have the same names."""


class Kind(Enum):
    """See the module header."""

    PRODUCE = "produce"
    STREAM = "stream"
    CONSUME = "consume"
    CONNECTIONS = "connections"
    GROUPS = "groups"


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a run. ``rate`` 0: as fast as the target takes it."""

    name: str
    kind: Kind
    topic: str | None = None
    """Its name; with several topics the start of their names. None: made up for the run."""
    topics: int = 1
    partitions: int = 1
    replication_factor: int = 1
    topic_config: dict[str, str] = {}
    keeps_topics: bool = False

    producers: int = 1
    subscriptions: int = 1
    """How many times every record is consumed."""
    consumers: int = 1
    """Of each subscription; members of each group; connections."""
    groups: int = 1
    processes: int = 0
    """Of each kind of worker; 0: as many as there are cores, and not more than clients."""

    record_size: str = "1024"
    keys: str = "none"
    compressibility: str = "0"
    payload: bytes | None = None
    seed: int = 1

    rate: float = 0.0
    recording: list[Stretch] = []
    """A recorded rate, instead of ``rate`` and ``duration_s``."""
    duration_s: float = 0.0
    records: int = 0
    """How many; 0: as many as the duration takes."""
    warmup_s: float = 0.0
    """Sent and counted, but not measured; before ``duration_s``."""
    backlog_bytes: int = 0
    """Produced before the consumers start."""

    in_flight_max: int = 50_000
    """Records that a producer without a rate has under way: half of librdkafka's default queue."""
    producer_config: dict[str, str] = {}
    consumer_config: dict[str, str] = {}
    give_up_s: float = 5.0
    """How long no broker may be reachable before the run ends."""
    drain_s: float = 60.0
    """How long consumers may need for the rest, after the last record was produced."""

    def schedule(self) -> list[Stretch]:
        """When records (or requests) are due; empty when nothing is but the target's own speed."""
        if self.recording:
            return self.recording
        if not self.rate:
            return []
        if self.records:
            return [Stretch(self.records / self.rate, self.records)]
        return steady(self.rate, self.warmup_s + self.duration_s)

    def topic_names(self, run_id: str) -> list[str]:
        """``run_id`` tells this run's topics from those of others."""
        made_up = _NO_TOPIC_CHARACTER.sub("-", self.name)[:TOPIC_NAME_MAX]
        name = self.topic or f"bench-{made_up}-{run_id}"
        return [name] if self.topics == 1 else [f"{name}-{number}" for number in range(self.topics)]


def checked(workload: Workload) -> Workload:
    """The workload with its duration filled in. Raises ConfigError: names the option that cannot be."""
    for name, value, low, high in (
        ("--topics", workload.topics, 1, PARTITIONS_MAX),
        ("--partitions", workload.partitions, 1, PARTITIONS_MAX),
        ("--replication-factor", workload.replication_factor, 1, 1000),
        ("--producers", workload.producers, 1, PRODUCERS_MAX),
        ("--subscriptions", workload.subscriptions, 1, CLIENTS_MAX),
        ("--consumers", workload.consumers, 1, CLIENTS_MAX),
        ("--groups", workload.groups, 1, CLIENTS_MAX),
        ("--processes", workload.processes, 0, 1000),
        ("--rate", workload.rate, 0, 100_000_000),
        ("--duration", workload.duration_s, 0, 10**8),
        ("--records", workload.records, 0, 10**12),
        ("--warm-up", workload.warmup_s, 0, 10**6),
        ("--in-flight", workload.in_flight_max, 1, 10_000_000),
        ("--give-up-after", workload.give_up_s, 0.1, 10**6),
    ):
        if not low <= value <= high:
            raise ConfigError(f"{name} {value:g}: must be from {low:g} to {high:g}")
    if workload.kind is Kind.CONSUME and not workload.records and workload.topic is None:
        raise ConfigError("--records 0: say how many records to produce before, or --topic that has some")
    if workload.duration_s or workload.recording or workload.records:
        return workload
    return msgspec.structs.replace(workload, duration_s=DURATION_S)


class Stretch(msgspec.Struct, frozen=True):
    """``records`` evenly over ``seconds``; of ``record_bytes`` each, where that is known."""

    seconds: float
    records: int
    record_bytes: int | None = None


Schedule = Sequence[Stretch]


def steady(rate: float, seconds: float) -> list[Stretch]:
    """``rate`` records a second."""
    return [Stretch(seconds, round(rate * seconds))]


def record_count(schedule: Schedule) -> int:
    return sum(stretch.records for stretch in schedule)


def duration_s(schedule: Schedule) -> float:
    return sum(stretch.seconds for stretch in schedule)


def due_times(schedule: Schedule, *, first: int, step: int) -> Iterator[tuple[int, int | None]]:
    """Records ``first``, ``first + step``, …: nanoseconds since the start, and the size where it is known."""
    number, before, start_s = first, 0, 0.0
    for stretch in schedule:
        while number < before + stretch.records:
            share = (number - before) / stretch.records
            yield round((start_s + share * stretch.seconds) * 1e9), stretch.record_bytes
            number += step
        before += stretch.records
        start_s += stretch.seconds


def parse_recording(text: str, *, name: str, speed: float = 1.0) -> list[Stretch]:
    """A recorded rate: rows of seconds, records and maybe bytes, as CSV (with or without a heading) or JSON.

    ``seconds`` is how long the row's stretch lasted; JSON is a list of such rows or of objects with these
    keys. ``speed`` 2 replays it in half the time.

    Raises:
        ConfigError: names ``name`` and the row.
    """
    rows = _json_rows(text, name) if text.lstrip().startswith(("[", "{")) else _csv_rows(text)
    stretches = []
    for place, row in rows:
        try:
            seconds, records, *more = (float(cell) for cell in row)
        except (TypeError, ValueError, OverflowError):
            raise ConfigError(f"{name}, {place}: must be seconds,records or seconds,records,bytes") from None
        numbers = (seconds, records, *more)
        if len(numbers) > 3 or not all(map(math.isfinite, numbers)) or seconds <= 0 or min(numbers) < 0:
            raise ConfigError(f"{name}, {place}: seconds must be above 0, records and bytes from 0")
        size = round(more[0] / records) if more and records else None
        stretches.append(Stretch(seconds / speed, round(records), size))
    if not record_count(stretches):
        raise ConfigError(f"{name}: has no records to replay")
    return stretches


def _csv_rows(text: str) -> Iterator[tuple[str, Sequence[Any]]]:
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        is_heading = number == 1 and row and row[0].strip().lower() == "seconds"
        if row and not is_heading and not row[0].startswith("#"):
            yield f"line {number}", row


def _json_rows(text: str, name: str) -> Iterator[tuple[str, Sequence[Any]]]:
    try:
        rows = msgspec.json.decode(text)
    except UNDECODABLE as error:
        raise ConfigError(f"{name}: is no JSON: {error}") from None
    if not isinstance(rows, list):
        raise ConfigError(f"{name}: must be a list of rows")
    for number, row in enumerate(rows, start=1):
        if isinstance(row, dict):
            row = [row.get("seconds"), row.get("records"), *([row["bytes"]] if "bytes" in row else [])]
        yield f"row {number}", row if isinstance(row, list) else []


class Shape(NamedTuple):
    """A kind of distribution: what its numbers are called, and what draws one from them."""

    names: tuple[str, ...]
    draw: Callable[..., float]
    """Of the dice and the numbers."""
    middles: int = 1
    """How many of the numbers, from the first on, are such as are drawn."""
    separator: str = ","


SHAPES = {
    "fixed": Shape(("VALUE",), lambda rng, value: value),
    "uniform": Shape(("LOW", "HIGH"), random.Random.uniform, middles=2, separator="-"),
    "normal": Shape(("MEAN", "DEVIATION"), random.Random.normalvariate),
    "lognormal": Shape(
        ("MEDIAN", "SIGMA"), lambda rng, median, sigma: median * rng.lognormvariate(0.0, sigma)
    ),
}


class Distribution(NamedTuple):
    """One of the shapes with its numbers."""

    shape: Shape
    numbers: tuple[float, ...]


def parse_distribution(name: str, text: str, *, low: float, high: float) -> Distribution:
    """See the module header; samples are kept from ``low`` to ``high``.

    Raises:
        ConfigError: it cannot be; names ``name``.
    """
    kind, found, rest = text.strip().partition(":")
    if not found:
        kind, rest = "fixed", kind
    shape = SHAPES.get(kind)
    if shape is None:
        raise ConfigError(f"{name} {text}: must be a number, or fixed:, uniform:, normal: or lognormal:")
    numbers = _numbers(name, text, rest, shape.names, separator=shape.separator)
    middles = numbers[: shape.middles]
    if sorted(middles) != list(middles):
        raise ConfigError(f"{name} {text}: LOW is above HIGH")
    if any(not low <= middle <= high for middle in middles):
        raise ConfigError(f"{name} {text}: must be from {low:g} to {high:g}")
    if kind == "lognormal" and numbers[1] > SIGMA_MAX:
        raise ConfigError(f"{name} {text}: SIGMA must be from 0 to {SIGMA_MAX:g}")
    return Distribution(shape, numbers)


def sample(distribution: Distribution, rng: random.Random, *, low: float, high: float) -> float:
    """One number, pulled to ``low`` or ``high`` where it lies outside."""
    return min(max(distribution.shape.draw(rng, *distribution.numbers), low), high)


def key_picker(name: str, text: str, rng: random.Random) -> Callable[[int], bytes | None]:
    """A function from a record's number to its key. Raises ConfigError, which names ``name``."""
    kind, _, rest = text.strip().partition(":")
    match kind:
        case "none":
            return lambda number: None
        case "sequential" | "uniform":
            (count,) = _numbers(name, text, rest, ["COUNT"])
            keys = _checked_count(name, text, count)
            if kind == "sequential":
                return lambda number: b"key-%d" % (number % keys)
            return lambda number: b"key-%d" % rng.randrange(keys)
        case "zipf":
            count, exponent = _numbers(name, text, rest, ["COUNT", "EXPONENT"])
            table = _zipf_table(_checked_count(name, text, count), exponent)
            return lambda number: b"key-%d" % bisect.bisect_left(table, rng.random() * table[-1])
        case _:
            raise ConfigError(f"{name} {text}: must be none, sequential:, uniform: or zipf:")


def _zipf_table(keys: int, exponent: float) -> Sequence[float]:
    """The sums of the weights 1 / rank ** exponent."""
    return list(itertools.accumulate(rank**-exponent for rank in range(1, keys + 1)))


def _checked_count(name: str, text: str, count: float) -> int:
    if not 1 <= count <= KEYS_MAX or count != int(count):
        raise ConfigError(f"{name} {text}: COUNT must be a whole number from 1 to {KEYS_MAX}")
    return int(count)


def _numbers(
    name: str, text: str, rest: str, wanted: Sequence[str], *, separator: str = ","
) -> tuple[float, ...]:
    parts = rest.split(separator)
    try:
        numbers = tuple(float(part) for part in parts)
    except ValueError:
        numbers = ()
    if len(numbers) != len(wanted) or not all(0 <= number < math.inf for number in numbers):
        shape = f"{text.partition(':')[0]}:" if ":" in text else ""
        raise ConfigError(f"{name} {text}: must be {shape}{separator.join(wanted)}, numbers from 0")
    return numbers


class Pool(msgspec.Struct, frozen=True):
    """``keys[i]`` and ``values[i]`` are record ``i`` modulo the length of the pool."""

    keys: list[bytes | None]
    values: list[bytes]

    @property
    def is_keyed(self) -> bool:
        return self.keys[0] is not None


def make_pool(
    *, record_size: str, keys: str, compressibility: str, seed: int, payload: bytes | None = None
) -> Pool:
    """Records by the given distributions; ``payload`` is every value when it is given.

    Raises:
        ConfigError: a distribution cannot be; it names the option.
    """
    rng = random.Random(seed)
    pick = key_picker("--keys", keys, rng)
    if payload is not None:
        return Pool([pick(number) for number in range(POOL_RECORDS)], [payload] * POOL_RECORDS)
    draw = value_maker(record_size, compressibility, rng)
    pool = Pool([], [])
    size = 0
    while len(pool.values) < POOL_RECORDS and (size < POOL_BYTES_MAX or len(pool.values) < POOL_RECORDS_MIN):
        pool.keys.append(pick(len(pool.values)))
        pool.values.append(draw())
        size += len(pool.values[-1])
    return pool


def value_maker(record_size: str, compressibility: str, rng: random.Random) -> Callable[[], bytes]:
    """What draws one value after the other: of the size, and that share of it one repeated byte."""
    sizes = parse_distribution("--record-size", record_size, low=0, high=SIZE_MAX)
    shares = parse_distribution("--compressibility", compressibility, low=0, high=1)

    def draw() -> bytes:
        size = round(sample(sizes, rng, low=0, high=SIZE_MAX))
        repeated = round(size * sample(shares, rng, low=0, high=1))
        return rng.randbytes(size - repeated) + b"x" * repeated

    return draw


def mean_size(record_size: str, payload: bytes | None) -> int:
    """Bytes of an average record, 1 at least."""
    values = make_pool(
        record_size=record_size, keys="none", compressibility="1", seed=0, payload=payload
    ).values
    return max(sum(map(len, values)) // len(values), 1)


def stamped(value: bytes, due_ns: int) -> bytes:
    """The value with its first bytes replaced by the stamp; a smaller one grows to the stamp's size."""
    return STAMP.pack(due_ns) + value[STAMP.size :]


def stamp_of(value: bytes | None) -> int:
    """When the record was due, ``UNTIMED`` for one without a stamp."""
    return STAMP.unpack_from(value)[0] if value is not None and len(value) >= STAMP.size else UNTIMED


def parse_workload(
    text: str, *, name: str, driver: str | None, read_bytes: Callable[[str], bytes]
) -> tuple[Workload, str | None]:
    """A workload file, and a driver file when there is one; also the driver's bootstrap.servers.

    Raises:
        ConfigError: one line that names the file (``name``) and the key.
    """
    keys = _mapping(text, name)
    known = {*_NUMBERS, *_OTHERS, *_NEUTRAL}
    for key, value in keys.items():
        _check_key(key, value, known, name)
    numbers = {key: float(keys.get(key, least)) for key, least in _NUMBERS.items()}
    if not numbers["testDurationMinutes"]:
        raise ConfigError(f"{name}: testDurationMinutes is missing, or 0")
    common, settings = _driver(driver) if driver is not None else ({}, {})
    topics = int(numbers["topics"])
    has_consumers = keys.get("subscriptionsPerTopic", 1) != 0
    workload = Workload(
        name=str(keys.get("name", name)),
        kind=Kind.STREAM if has_consumers else Kind.PRODUCE,
        topics=topics,
        partitions=int(numbers["partitionsPerTopic"]),
        producers=int(numbers["producersPerTopic"]) * topics,
        subscriptions=max(int(numbers["subscriptionsPerTopic"]), 1),
        consumers=int(numbers["consumerPerSubscription"]) * topics,
        rate=numbers["producerRate"],
        duration_s=numbers["testDurationMinutes"] * 60,
        warmup_s=numbers["warmupDurationMinutes"] * 60,
        backlog_bytes=int(numbers["consumerBacklogSizeGB"] * BYTES_PER_GB),
        drain_s=max(60.0, numbers["testDurationMinutes"] * 60),
        keys=_checked_keys(str(keys.get("keyDistributor", "NO_KEY")), name),
        record_size=_checked_size(str(keys.get("messageSize", 1024)), name),
        compressibility=_compressibility(keys, numbers["randomBytesRatio"]),
        payload=_payload(keys, name, read_bytes),
        **settings,
    )
    return checked(workload), common.get("bootstrap.servers")


def _mapping(text: str, name: str) -> dict[str, Any]:
    try:
        keys = yaml.safe_load(text)
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        where = f", line {place.line + 1}" if place is not None else ""
        raise ConfigError(f"{name}{where}: is no YAML: {getattr(error, 'problem', error)}") from None
    if not isinstance(keys, dict):
        raise ConfigError(f"{name}: must be keys and values")
    return {str(key): value for key, value in keys.items()}


def _check_key(key: str, value: object, known: set[str], name: str) -> None:
    if key not in known:
        close = difflib.get_close_matches(key, sorted(known), n=1)
        raise ConfigError(f"{name}: there is no key {key}" + (f"; did you mean {close[0]}?" if close else ""))
    if key in _NEUTRAL:
        if not (_NEUTRAL[key] is None or value == _NEUTRAL[key]):
            raise ConfigError(f"{name}: {key} {value} is not supported, only {_NEUTRAL[key]}")
        return
    if key in _NUMBERS:
        least = 0 if key == "subscriptionsPerTopic" else _NUMBERS[key]
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        if not least <= number < math.inf:
            raise ConfigError(f"{name}: {key} {value}: must be a number from {least}")
    if key == "useRandomizedPayloads" and not isinstance(value, bool):
        raise ConfigError(f"{name}: {key} {value}: must be true or false")


def _checked_keys(text: str, name: str) -> str:
    keys = _KEY_DISTRIBUTORS.get(text, text)
    try:
        key_picker("keyDistributor", keys, random.Random(0))
    except ConfigError as error:
        others = ", ".join(_KEY_DISTRIBUTORS)
        raise ConfigError(f"{name}: {error}, or {others}") from None
    return keys


def _checked_size(text: str, name: str) -> str:
    try:
        parse_distribution("messageSize", text, low=0, high=SIZE_MAX)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
    return text


def _compressibility(keys: Mapping[str, Any], random_share: float) -> str:
    """OMB's payloads are all one file, or of that share of random bytes."""
    if keys.get("useRandomizedPayloads"):
        return f"{1 - min(random_share, 1.0) if 'randomBytesRatio' in keys else 0:g}"
    return "0"


def _payload(keys: Mapping[str, Any], name: str, read_bytes: Callable[[str], bytes]) -> bytes | None:
    path = keys.get("payloadFile")
    if path is None or keys.get("useRandomizedPayloads"):
        return None
    try:
        payload = read_bytes(str(path))
    except OSError as error:
        raise ConfigError(f"{name}: payloadFile {path}: {error.strerror}") from None
    size = keys.get("messageSize")
    if isinstance(size, int) and len(payload) < size:
        raise ConfigError(f"{name}: payloadFile {path} has {len(payload)} bytes, messageSize {size}")
    return payload[:size] if isinstance(size, int) else payload


def _driver(text: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Its common properties, and fields of a workload."""
    keys = _mapping(text, "the driver file")
    configs: dict[str, dict[str, str]] = {name: {} for name in _DRIVER_CONFIGS}
    settings: dict[str, Any] = {}
    for key, value in keys.items():
        if key in configs:
            configs[key] = _properties(key, value)
        elif key == "replicationFactor":
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"the driver file: replicationFactor {value}: must be a number from 1")
            settings["replication_factor"] = value
        elif key not in _DRIVER_IGNORED:
            raise ConfigError(f"the driver file: there is no key {key}")
    common = {name: value for name, value in configs["commonConfig"].items() if name != "bootstrap.servers"}
    settings["producer_config"] = common | configs["producerConfig"]
    settings["consumer_config"] = {
        name: value
        for name, value in (common | configs["consumerConfig"]).items()
        if name not in ("auto.offset.reset", "enable.auto.commit", "group.id")  # assigned from known offsets
    }
    settings["topic_config"] = configs["topicConfig"]
    return configs["commonConfig"], settings


def _properties(key: str, value: object) -> dict[str, str]:
    """Lines of ``name=value``, as librdkafka calls them."""
    properties = {}
    for line in str(value or "").splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, found, setting = line.partition("=")
        if not found:
            raise ConfigError(f"the driver file: {key}: {line.strip()}: must be NAME=VALUE")
        if name.strip() not in _JAVA_ONLY:
            properties[name.strip()] = setting.strip()
    return properties
