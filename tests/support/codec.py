"""Requests and responses for a test that plays the broker: all steps at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minikafka.protocol.wire import codec, fast_paths
from minikafka.protocol.wire.codec import AnyBody, RequestHeader
from minikafka.protocol.wire.fast_paths import FetchPartitionResponse, ProducePartitionResponse
from minikafka.steps import finish
from minikafka.types import Buffer


def decode_request(header: RequestHeader, frame: Buffer) -> Any:
    return finish(codec.decode_request(header, frame))


def encode_response(*, api_key: int, api_version: int, correlation_id: int, body: AnyBody) -> bytes:
    return finish(
        codec.encode_response(
            api_key=api_key, api_version=api_version, correlation_id=correlation_id, body=body
        )
    )


def produce_response(
    header: RequestHeader, partitions: Sequence[ProducePartitionResponse], **options: Any
) -> bytes:
    return finish(fast_paths.produce_response(header, partitions, **options))


def fetch_response(
    header: RequestHeader, partitions: Sequence[FetchPartitionResponse], **options: Any
) -> list[Buffer]:
    return finish(fast_paths.fetch_response(header, partitions, **options))
