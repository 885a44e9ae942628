"""Writes ``messages.jsonl``, what this broker knows of Kafka's messages, from the clients' jars of releases.

::

    mvn dependency:get -Dartifact=org.apache.kafka:kafka-clients:4.4.0
    mvn dependency:get -Dartifact=org.apache.kafka:kafka-clients:3.9.1
    python -m minikafka.protocol.wire.message_definitions kafka-clients-4.4.0.jar kafka-clients-3.9.1.jar

The second is the last with ZooKeeper: what a controller and its brokers tell each other is only there. A jar
has Kafka's message definitions (``clients/src/main/resources/common/message``), which Kafka
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

from minikafka.protocol.wire.api_versions import BETWEEN_BROKERS
from minikafka.protocol.wire.schema import MESSAGES, MessageDefinition

_FOLDER = "common/message/"
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
_LISTENER = "broker"
"""Messages of the listener that clients and brokers use; the controllers of KRaft have their own."""
_ZOOKEEPER_LISTENER = "zkBroker"
"""The same, of a broker on ZooKeeper."""


class _Listed(msgspec.Struct):
    """A request's head."""

    name: str
    type: str
    listeners: tuple[str, ...] = ()


def definitions(jar: Path, *, retired_after: Path | None = None) -> list[MessageDefinition]:
    """The requests and responses of a broker's listener, by api key. Of those of a broker on ZooKeeper, in
    the jar ``retired_after``, the ones between controller and broker, which are in no later one.

    Raises:
        OSError, zipfile.BadZipFile: it cannot be read. ValueError: it has no message definitions.
    """
    found = _served(jar, _LISTENER)
    if retired_after is not None:
        on_zookeeper = _served(retired_after, _ZOOKEEPER_LISTENER)
        found += [each for each in on_zookeeper if each.api_key in BETWEEN_BROKERS]
    return sorted(found, key=lambda each: (each.api_key, each.type))


def _served(jar: Path, listener: str) -> list[MessageDefinition]:
    texts = list(_texts(jar))
    heads = [msgspec.json.decode(text, type=_Listed) for text in texts]
    served = {head.name.removesuffix("Request") for head in heads if listener in head.listeners}
    found = [
        msgspec.json.decode(text, type=MessageDefinition)
        for text, head in zip(texts, heads, strict=True)
        if head.type in ("request", "response")
        and head.name.removesuffix("Response").removesuffix("Request") in served
    ]
    if not found:
        raise ValueError(f"{jar} has no message definitions in {_FOLDER}: it must be a kafka-clients jar")
    return found


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
    parser.add_argument("jar", type=Path, help="kafka-clients-VERSION.jar of the newest release")
    parser.add_argument("jar_of_3_9", type=Path, help="kafka-clients-3.9.1.jar")
    arguments = parser.parse_args()
    try:
        messages = definitions(arguments.jar, retired_after=arguments.jar_of_3_9)
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        parser.error(str(error))
    MESSAGES.write_bytes(encode(messages))
    parser.exit(0, f"{MESSAGES}: {len(messages)} messages\n")


if __name__ == "__main__":
    main()
