"""What is to be analysed: log directories, whose they are, and the partitions in them that were asked for.

Everything that can be wrong with the arguments is found here, before Spark does anything: ``InputError`` is
one line for the user. A partition that several directories hold is a replica of each broker; two directories
of the same broker cannot both have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from minikafka.errors import MinikafkaError
from minikafka.log.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    CorruptCheckpoint,
    MetaProperties,
    decode_meta_properties,
    decode_offsets,
)
from minikafka.spark.runtime.storage import Location, LogStorage, join, location
from minikafka.spark.source.log_files import PartitionLog, find_logs
from minikafka.types import TopicPartition


class InputError(MinikafkaError):
    """The arguments cannot be analysed; says why in one line."""


class NamedDirectory(NamedTuple):
    """A log directory as the user gave it."""

    path: str
    broker: int | None = None
    """As the user says; None: as meta.properties says."""


@dataclass(frozen=True)
class LogDirectory:
    """A log directory and the partitions in it that are analysed."""

    path: str
    """Absolute, or a URI: the column ``log_dir``."""
    broker: int | None
    cluster_id: str | None
    logs: dict[TopicPartition, PartitionLog]
    compacted_up_to: dict[TopicPartition, int]
    """How far the broker's cleaner has been."""


def find_directories(named: Sequence[NamedDirectory], topics: Sequence[str] = ()) -> list[LogDirectory]:
    """The directories with their partitions, of ``topics`` where any are given.

    Raises:
        InputError: nothing to analyse, or what was named is not what it should be.
        MinikafkaError: a directory is none of Kafka's, or cannot be read.
    """
    directories = [_open(each) for each in named]
    paths = [directory.path for directory in directories]
    for index, path in enumerate(paths):
        if path in paths[:index]:
            raise InputError(f"{path} is named twice")
    clusters = {directory.cluster_id: directory.path for directory in directories if directory.cluster_id}
    if len(clusters) > 1:
        (one, first), (other, second) = list(clusters.items())[:2]
        raise InputError(f"{first} belongs to cluster {one}, {second} to cluster {other}")
    _check_topics(directories, topics)
    if topics:
        directories = [_only(directory, topics) for directory in directories]
    _check_replicas(directories)
    return directories


def is_replicated(directories: Sequence[LogDirectory]) -> bool:
    """Whether they are of several brokers."""
    return len({directory.broker for directory in directories}) > 1


def known_broker(directory: LogDirectory) -> int:
    """The broker of a directory with replicas of another's partitions."""
    assert directory.broker is not None, directory.path
    return directory.broker


def _open(named: NamedDirectory) -> LogDirectory:
    place = location(named.path)
    storage, path = place.open()
    logs = find_logs(place, storage, path)
    if logs and logs[0].log_dir != place:  # a partition's own directory was named
        place, path = logs[0].log_dir, logs[0].path.rpartition("/")[0]
    meta = _meta_properties(place, storage, path)
    broker = meta.node_id if named.broker is None else named.broker
    if meta.node_id is not None and broker != meta.node_id:
        raise InputError(f"{place.shown()} belongs to broker {meta.node_id}, not to {broker}")
    return LogDirectory(
        place.text,
        broker,
        meta.cluster_id,
        {log.topic_partition: log for log in logs},
        _compacted_up_to(place, storage, path),
    )


def _meta_properties(place: Location, storage: LogStorage, path: str) -> MetaProperties:
    try:
        data = storage.read_bytes(join(path, META_PROPERTIES))
    except FileNotFoundError:  # one of its partitions, copied somewhere
        return MetaProperties(0)
    except OSError as error:
        raise InputError(f"{place.shown(META_PROPERTIES)}: {error.strerror or error}") from error
    return decode_meta_properties(data, path=place.shown(META_PROPERTIES))


def _compacted_up_to(place: Location, storage: LogStorage, path: str) -> dict[TopicPartition, int]:
    name = CLEANER_OFFSET_CHECKPOINT
    try:
        return decode_offsets(storage.read_bytes(join(path, name)), path=place.shown(name))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise CorruptCheckpoint(f"{place.shown(name)}: {error.strerror or error}") from error


def _check_topics(directories: Sequence[LogDirectory], topics: Sequence[str]) -> None:
    shown = ", ".join(directory.path for directory in directories)
    sizes: dict[str, int] = {}
    for directory in directories:
        for (topic, _), log in directory.logs.items():
            sizes[topic] = sizes.get(topic, 0) + sum(segment.size for segment in log.segments)
    if not sizes:
        raise InputError(f"{shown}: there are no partitions")
    for topic in topics:
        if topic not in sizes:
            raise InputError(f"{shown}: there is no topic {topic!r}")
        if sizes[topic] == 0:
            raise InputError(f"{shown}: topic {topic!r} has no data")
    if not any(sizes.values()):
        raise InputError(f"{shown}: none of its topics has data")


def _check_replicas(directories: Sequence[LogDirectory]) -> None:
    holders: dict[TopicPartition, list[LogDirectory]] = {}
    for directory in directories:
        for topic_partition in directory.logs:
            for other in holders.setdefault(topic_partition, []):
                if other.broker is None or directory.broker in (None, other.broker):
                    raise InputError(
                        f"{topic_partition} is in {other.path} and in {directory.path}, which are not known "
                        "to be of two brokers; say whose they are: --brokers 1=DIR,2=DIR"
                    )
            holders[topic_partition].append(directory)


def _only(directory: LogDirectory, topics: Sequence[str]) -> LogDirectory:
    logs = {each: log for each, log in directory.logs.items() if each.topic in topics}
    return LogDirectory(
        directory.path, directory.broker, directory.cluster_id, logs, directory.compacted_up_to
    )
