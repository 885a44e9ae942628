"""Writes ``messages.jsonl``, what this broker knows of Kafka's messages, from the clients' jar of a release.

::

    mvn dependency:get -Dartifact=org.apache.kafka:kafka-clients:4.4.0
    python -m minikafka.protocol.wire.message_definitions kafka-clients-4.4.0.jar

The jar has Kafka's message definitions (``clients/src/main/resources/common/message``), which Kafka
generates its own classes from. Kept is what says how bytes are read and written; texts, and what is for
Kafka's generator, is not.
"""

from __future__ import annotations

import argparse
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from minikafka.protocol.wire.schema import MESSAGES, MessageDefinition

_FOLDER = "common/message/"
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
_LISTENER = "broker"
"""Messages of the listener that clients and brokers use; the controllers of KRaft have their own."""


class _Listed(msgspec.Struct):
    """A request's head."""

    name: str
    type: str
    listeners: tuple[str, ...] = ()


def definitions(jar: Path) -> list[MessageDefinition]:
    """The requests and responses of a broker's listener, by api key.

    Raises:
        OSError, zipfile.BadZipFile: it cannot be read. ValueError: it has no message definitions.
    """
    texts = list(_texts(jar))
    heads = [msgspec.json.decode(text, type=_Listed) for text in texts]
    served = {head.name.removesuffix("Request") for head in heads if _LISTENER in head.listeners}
    found = [
        msgspec.json.decode(text, type=MessageDefinition)
        for text, head in zip(texts, heads, strict=True)
        if head.type in ("request", "response")
        and head.name.removesuffix("Response").removesuffix("Request") in served
    ]
    if not found:
        raise ValueError(f"{jar} has no message definitions in {_FOLDER}: it must be a kafka-clients jar")
    return sorted(found, key=lambda each: (each.api_key, each.type))


def _texts(jar: Path) -> Iterator[str]:
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith(_FOLDER) and name.endswith(".json"):
                yield _COMMENT.sub("", archive.read(name).decode())


def encode(messages: list[MessageDefinition]) -> bytes:
    """One line a message, which begins with its api key and type: a change of one message is one line."""
    lines = []
    for each in messages:
        fields = msgspec.to_builtins(each)
        ordered = {"apiKey": fields.pop("apiKey"), "type": fields.pop("type"), **fields}
        lines.append(msgspec.json.encode(ordered))
    return b"\n".join(lines) + b"\n"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("jar", type=Path, help="kafka-clients-VERSION.jar")
    jar: Path = parser.parse_args().jar
    try:
        messages = definitions(jar)
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        parser.error(f"{jar}: {error}")
    MESSAGES.write_bytes(encode(messages))
    parser.exit(0, f"{MESSAGES}: {len(messages)} messages\n")


if __name__ == "__main__":
    main()
