"""Whole subscriptions and assignments of consumers, against kio's own."""

from __future__ import annotations

import importlib
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_writer

from minikafka.protocol.internal.consumer_protocol import (
    Assignment,
    MalformedSubscription,
    read_assignment,
    read_subscribed_topics,
    read_subscription,
    write_assignment,
)

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
PARTITIONS = st.dictionaries(NAMES, st.lists(st.integers(0, 1_000), max_size=4).map(tuple), max_size=3)
VERSIONS = [0, 1, 2, 3]


def kio_module(name: str, version: int) -> Any:
    return importlib.import_module(f"kio.schema.consumer_protocol_{name}.v{version}.data")


def written(entity: Any, version: int) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return version.to_bytes(2, "big") + buffer.getvalue()


def kio_partitions(module: Any, partitions: dict[str, tuple[int, ...]]) -> tuple[Any, ...]:
    return tuple(
        module.TopicPartition(topic=topic, partitions=numbers) for topic, numbers in partitions.items()
    )


@pytest.mark.parametrize("version", VERSIONS)
@given(
    topics=st.lists(NAMES, max_size=4).map(tuple),
    owned=PARTITIONS,
    rack_id=st.none() | NAMES,
    user_data=st.none() | st.binary(max_size=5),
)
def test_subscriptions_of_every_version_are_read(
    version: int,
    topics: tuple[str, ...],
    owned: dict[str, tuple[int, ...]],
    rack_id: str | None,
    user_data: bytes | None,
) -> None:
    module = kio_module("subscription", version)
    fields: dict[str, Any] = {"topics": topics, "user_data": user_data}
    if version >= 1:
        fields["owned_partitions"] = kio_partitions(module, owned)
    if version >= 2:
        fields["generation_id"] = 7
    if version >= 3:
        fields["rack_id"] = rack_id
    metadata = written(module.ConsumerProtocolSubscription(**fields), version)
    subscription = read_subscription(metadata)
    assert (subscription.version, subscription.topics) == (version, topics)
    assert subscription.owned_partitions == (owned if version >= 1 else {})
    assert subscription.rack_id == (rack_id if version >= 3 else None)
    assert read_subscribed_topics(metadata) == list(topics)


@pytest.mark.parametrize("version", VERSIONS)
@given(partitions=PARTITIONS)
def test_assignments_are_written_as_kafka_writes_them_and_read_again(
    version: int, partitions: dict[str, tuple[int, ...]]
) -> None:
    module = kio_module("assignment", version)
    entity = module.ConsumerProtocolAssignment(
        assigned_partitions=kio_partitions(module, partitions), user_data=None
    )
    assignment = write_assignment(partitions, version=version)
    assert assignment == written(entity, version)
    assert read_assignment(assignment) == Assignment(partitions, b"")


def test_no_bytes_assign_nothing() -> None:
    assert read_assignment(b"") == Assignment({}, b"")


@given(data=st.binary(max_size=40))
def test_what_is_neither_is_said_to_be_malformed(data: bytes) -> None:
    for read in (read_subscription, read_assignment):
        try:
            read(data)
        except MalformedSubscription:
            pass


def test_a_count_is_not_believed() -> None:
    with pytest.raises(MalformedSubscription):
        read_subscription(bytes.fromhex("0001 7fffffff 0000"))
    with pytest.raises(MalformedSubscription):
        read_assignment(bytes.fromhex("0001 00000001 0001 61 7fffffff"))
