"""Which format the keys and values of which topic are in, from the command line.

``--value-format avro`` counts for every topic, ``--value-format orders=avro`` for one. ``--value-schema``
goes the same way and names a file; of several messages in a Protobuf file, ``orders.desc#shop.Order`` names
one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from minikafka.spark.runtime.failures import JobError


class Kind(StrEnum):
    """What bytes stand for."""

    BYTES = "bytes"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"

    @property
    def has_schema(self) -> bool:
        return self in (Kind.JSON, Kind.AVRO, Kind.PROTOBUF)


@dataclass(frozen=True, slots=True)
class Format:
    """A kind, and the schema that it needs."""

    kind: Kind
    schema: str | None = None
    """A file's path, with ``#message`` where it is Protobuf's."""

    def __str__(self) -> str:
        return f"{self.kind} {self.schema}" if self.schema else str(self.kind)


@dataclass(frozen=True, slots=True)
class TopicFormat:
    """How the records of a topic are decoded."""

    key: Format
    value: Format


_BY_TOPIC = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})=(?P<text>.*)")


def by_topic(texts: Sequence[str], option: str) -> dict[str | None, str]:
    """``text`` or ``topic=text`` as topic → text; None is every other topic.

    Raises:
        JobError: a topic, or all of them, have it twice.
    """
    found: dict[str | None, str] = {}
    for each in texts:
        match = _BY_TOPIC.fullmatch(each)
        topic, text = (match["topic"], match["text"]) if match else (None, each)
        if topic in found:
            raise JobError(f"{option} is given twice for {topic or 'all topics'}")
        found[topic] = text
    return found


def parse_formats(formats: Sequence[str], schemas: Sequence[str], side: str) -> dict[str | None, Format]:
    """``--<side>-format`` and ``--<side>-schema`` as topic → format; None is every other topic.

    Raises:
        JobError: an unknown format, one without the schema that it needs, or a schema that nothing needs.
    """
    kinds = by_topic(formats, f"--{side}-format")
    files = by_topic(schemas, f"--{side}-schema")
    kinds.setdefault(None, Kind.BYTES)
    found: dict[str | None, Format] = {}
    needed = any(_kind(text, side).has_schema for text in kinds.values())
    for topic in dict.fromkeys((*kinds, *files)):
        kind = _kind(kinds.get(topic, kinds[None]), side)
        if topic in files and not (kind.has_schema or (topic is None and needed)):
            raise JobError(f"--{side}-schema {files[topic]}: the format {kind} needs no schema")
        if kind.has_schema and not files:
            raise JobError(f"--{side}-format {kind} needs --{side}-schema FILE")
        found[topic] = Format(kind, files.get(topic, files.get(None)) if kind.has_schema else None)
    return found


def _kind(text: str, side: str) -> Kind:
    try:
        return Kind(text)
    except ValueError:
        raise JobError(f"--{side}-format {text}: must be one of {', '.join(Kind)}") from None


def format_of(topic: str, formats: Mapping[str | None, Format], side: str) -> Format:
    """The format of this topic. Raises JobError: it needs a schema and has none."""
    found = formats.get(topic, formats[None])
    if found.kind.has_schema and found.schema is None:
        raise JobError(f"--{side}-format {found.kind} of topic {topic} needs --{side}-schema {topic}=FILE")
    return found
