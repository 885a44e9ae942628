"""What consumers tell each other through the coordinator. Kafka: ``ConsumerProtocol``.

The metadata of a member and its assignment are opaque to the classic protocol. A coordinator looks into the
metadata of groups of the type "consumer" only to know which topics are in use. All versions begin with those
of version 0 (a version number, then the topics), so no later version needs to be known for that.

Where a group changes between the classic protocol and KIP-848, subscriptions and assignments are read whole,
and assignments written.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from minikafka.named_tuple import NamedTuple

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of groups whose members are consumers."""

_VERSION_AND_COUNT = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")
_INT32 = struct.Struct(">i")

Partitions = Mapping[str, tuple[int, ...]]
"""Partition numbers by topic name."""


class MalformedSubscription(Exception):
    """Metadata that is no subscription of a consumer."""


def read_subscribed_topics(metadata: bytes) -> list[str]:
    """The topics of a ConsumerProtocolSubscription of any version.

    Raises:
        MalformedSubscription: it is something else.
    """
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(metadata)
        position = _VERSION_AND_COUNT.size
        if version < 0 or not 0 <= count <= (len(metadata) - position) // _LENGTH.size:
            raise MalformedSubscription(f"version {version} with {count} topics in {len(metadata)} bytes")
        topics = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            start = position + _LENGTH.size
            position = start + length
            if length < 0 or position > len(metadata):
                raise MalformedSubscription(f"a topic's name of {length} bytes at {start}")
            topics.append(metadata[start:position].decode())
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedSubscription(str(error)) from error
    return topics


class Subscription(NamedTuple):
    """A ConsumerProtocolSubscription. What its version does not have is empty or None."""

    version: int
    topics: tuple[str, ...]
    owned_partitions: Partitions
    rack_id: str | None


class Assignment(NamedTuple):
    """A ConsumerProtocolAssignment."""

    partitions: Partitions
    user_data: bytes


def read_subscription(metadata: bytes) -> Subscription:
    """Of any version; what versions after 3 add is not read.

    Raises:
        MalformedSubscription: it is something else.
    """
    reader = _Reader(metadata)
    version = reader.version()
    topics = tuple(reader.string() for _ in range(reader.count(_LENGTH.size)))
    reader.nullable_bytes()
    owned = reader.partitions() if version >= 1 else {}
    if version >= 2:
        reader.number(_INT32)  # the generation in which it owned them
    rack_id = reader.nullable_string() if version >= 3 else None
    return Subscription(version, topics, owned, rack_id)


def read_assignment(assignment: bytes) -> Assignment:
    """No bytes are an assignment of nothing.

    Raises:
        MalformedSubscription: it is something else.
    """
    if not assignment:
        return Assignment({}, b"")
    reader = _Reader(assignment)
    reader.version()
    return Assignment(reader.partitions(), reader.nullable_bytes() or b"")


def write_assignment(partitions: Partitions, *, version: int) -> bytes:
    """All versions look the same (0 to 3)."""
    chunks = [_VERSION_AND_COUNT.pack(version, len(partitions))]
    for topic, numbers in partitions.items():
        name = topic.encode()
        chunks += [_LENGTH.pack(len(name)), name, _INT32.pack(len(numbers))]
        chunks += [_INT32.pack(number) for number in numbers]
    chunks.append(_INT32.pack(-1))  # no user data
    return b"".join(chunks)


class _Reader:
    """Reads front to back. A count is checked against the bytes that are left before it is used."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self, form: struct.Struct) -> int:
        try:
            (number,) = form.unpack_from(self._data, self._position)
        except struct.error as error:
            raise MalformedSubscription(str(error)) from error
        self._position += form.size
        return int(number)

    def version(self) -> int:
        version = self.number(_LENGTH)
        if version < 0:
            raise MalformedSubscription(f"version {version}")
        return version

    def count(self, element_bytes: int) -> int:
        count = self.number(_INT32)
        if not 0 <= count <= (len(self._data) - self._position) // element_bytes:
            raise MalformedSubscription(f"{count} elements at {self._position} of {len(self._data)} bytes")
        return count

    def take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._data):
            raise MalformedSubscription(f"{length} bytes at {self._position} of {len(self._data)}")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def nullable_string(self) -> str | None:
        length = self.number(_LENGTH)
        try:
            return None if length < 0 else self.take(length).decode()
        except UnicodeDecodeError as error:
            raise MalformedSubscription(str(error)) from error

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise MalformedSubscription(f"no name at {self._position}")
        return text

    def nullable_bytes(self) -> bytes | None:
        length = self.number(_INT32)
        return None if length < 0 else self.take(length)

    def partitions(self) -> dict[str, tuple[int, ...]]:
        partitions: dict[str, tuple[int, ...]] = {}
        for _ in range(self.count(_LENGTH.size + _INT32.size)):
            topic = self.string()
            numbers = tuple(self.number(_INT32) for _ in range(self.count(_INT32.size)))
            partitions[topic] = partitions.get(topic, ()) + numbers
        return partitions
