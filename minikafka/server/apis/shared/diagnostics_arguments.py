"""The arguments of diagnostics, for the kinds of documents (``apis.diagnostics``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minikafka.errors import ErrorCode, KafkaError
from minikafka.types import TopicPartition


def take(arguments: Mapping[str, str], *, required: Iterable[str] = (), optional: Iterable[str] = ()) -> None:
    """Raises KafkaError: INVALID_REQUEST when one is missing, or one is there that the kind does not know."""
    required = tuple(required)
    known = (*required, *optional)
    for name in required:
        if name not in arguments:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"These diagnostics need {name}=…")
    for name in arguments:
        if name not in known:
            takes = ", ".join(known) or "none"
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unknown argument {name!r}; these diagnostics take {takes}"
            )


def partition_of(arguments: Mapping[str, str]) -> TopicPartition:
    """``topic=NAME`` and ``partition=NUMBER``. Raises KafkaError: INVALID_REQUEST for anything else."""
    take(arguments, required=("topic", "partition"))
    number = arguments["partition"]
    if not number.isascii() or not number.isdigit() or len(number) > 10:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"partition={number}: must be a partition's number")
    return TopicPartition(arguments["topic"], int(number))
