"""Subscriptions of consumers, read as far as a coordinator needs them."""

from __future__ import annotations

import io
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_writer

from minikafka.protocol.internal.consumer_protocol import MalformedSubscription, read_subscribed_topics


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@given(topics=st.lists(st.text(min_size=1, max_size=20), max_size=5), user_data=st.none() | st.binary())
def test_topics_are_read_from_subscriptions_of_all_versions(
    version: int, topics: list[str], user_data: bytes | None
) -> None:
    schema = import_module(f"kio.schema.consumer_protocol_subscription.v{version}.data")
    subscription = schema.ConsumerProtocolSubscription(
        topics=tuple(topics), user_data=user_data, **({"owned_partitions": ()} if version > 0 else {})
    )
    buffer = io.BytesIO()
    entity_writer(schema.ConsumerProtocolSubscription)(buffer, subscription)
    assert read_subscribed_topics(version.to_bytes(2, "big") + buffer.getvalue()) == topics


@given(st.binary(max_size=40))
def test_anything_else_is_malformed_and_nothing_worse(metadata: bytes) -> None:
    try:
        topics = read_subscribed_topics(metadata)
    except MalformedSubscription:
        return
    assert sum(len(topic.encode()) + 2 for topic in topics) <= len(metadata) - 6


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\0\0",
        b"\xff\xff\0\0\0\0",
        b"\0\0\xff\xff\xff\xff",
        b"\0\0\x7f\xff\xff\xff",
        b"\0\0\0\0\0\1\0\2a",
    ],
)
def test_what_is_cut_off_or_out_of_range_is_malformed(metadata: bytes) -> None:
    with pytest.raises(MalformedSubscription):
        read_subscribed_topics(metadata)
