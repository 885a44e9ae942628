"""From a format of the command line to the decoder that a transform takes: schema files are read here."""

from __future__ import annotations

from pathlib import Path

from minikafka.spark.export.avro_schema import avro_decoder
from minikafka.spark.export.decoding import (
    BytesDecoder,
    ConfluentDecoder,
    Decoder,
    JsonDecoder,
    StringDecoder,
)
from minikafka.spark.export.formats import Format, Kind
from minikafka.spark.export.json_schema import json_type
from minikafka.spark.export.protobuf_schema import protobuf_decoder
from minikafka.spark.runtime.failures import JobError


def make_decoder(wanted: Format, *, confluent: bool) -> Decoder:
    """``confluent``: what has a schema stands behind a schema registry's prefix.

    Raises:
        JobError: the schema's file is not there, or says nothing that can become a column.
    """
    if wanted.kind is Kind.BYTES:
        return BytesDecoder()
    if wanted.kind is Kind.STRING:
        return StringDecoder()
    assert wanted.schema is not None
    inner: Decoder
    if wanted.kind is Kind.PROTOBUF:
        inner = protobuf_decoder(wanted.schema, confluent=confluent)
    elif wanted.kind is Kind.AVRO:
        inner = avro_decoder(_text(wanted.schema), wanted.schema)
    else:
        inner = JsonDecoder(json_type(_text(wanted.schema), wanted.schema))
    return ConfluentDecoder(inner) if confluent else inner


def _text(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(
            f"cannot read the schema {name}: {getattr(error, 'strerror', None) or error}"
        ) from error
