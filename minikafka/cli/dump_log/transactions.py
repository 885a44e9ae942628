"""``dump-log --transaction-log-decoder``: the records of ``__transaction_state`` in words.

Kafka: ``DumpLogSegments.TransactionLogMessageParser``. The JSON is Kafka's: types and versions are strings,
fields have the names of its schemas, a tagged field that has its default is left out.
"""

from __future__ import annotations

from typing import Any, Final

from minikafka.protocol.internal.transaction_record_codec import KEY_VERSION, read_key, read_value

_FIELDS: Final = (
    ("producerId", "producer_id", None),
    ("previousProducerId", "previous_producer_id", -1),
    ("nextProducerId", "next_producer_id", -1),
    ("producerEpoch", "producer_epoch", None),
    ("transactionTimeoutMs", "transaction_timeout_ms", None),
    ("transactionStatus", "transaction_status", None),
    ("transactionPartitions", "transaction_partitions", None),
    ("transactionLastUpdateTimestampMs", "transaction_last_update_timestamp_ms", None),
    ("transactionStartTimestampMs", "transaction_start_timestamp_ms", None),
    ("clientTransactionVersion", "client_transaction_version", 0),
)
"""Kafka's name and order, ours, and the default of a tagged field."""


def decoded_record(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """``key`` and ``value`` as objects; the value of a tombstone is None.

    Raises:
        UnreadableTransactionRecord: the record cannot be decoded, and why.
    """
    transactional_id = read_key(key).transactional_id
    item: dict[str, Any] = {
        "key": {"type": str(KEY_VERSION), "data": {"transactionalId": transactional_id}},
        "value": None,
    }
    if value is not None:
        version, body = read_value(value, transactional_id=transactional_id)
        item["value"] = {"version": str(version), "data": _data(body)}
    return item


def _data(body: Any) -> dict[str, Any]:
    shown = {}
    for name, attribute, default in _FIELDS:
        if default is not None and getattr(body, attribute, default) == default:
            continue
        value = getattr(body, attribute)
        if attribute == "transaction_partitions" and value is not None:
            value = [{"topic": each.topic, "partitionIds": list(each.partition_ids)} for each in value]
        shown[name] = value
    return shown
