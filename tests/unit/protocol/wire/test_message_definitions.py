"""Message definitions are taken from a jar of Kafka's clients."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from minikafka.protocol.wire import message_definitions
from minikafka.protocol.wire.message_definitions import definitions, encode
from minikafka.protocol.wire.schema import MESSAGES

REQUEST = """// Licensed to the Apache Software Foundation
{
  "apiKey": 17, "type": "request", "listeners": ["broker", "controller"], "name": "SaslHandshakeRequest",
  // Version 1 supports SASL_AUTHENTICATE.
  "validVersions": "0-1", "flexibleVersions": "none",
  "fields": [ { "name": "Mechanism", "type": "string", "versions": "0+", "about": "http://of.the.client" } ]
}"""
RESPONSE = """{
  "apiKey": 17, "type": "response", "name": "SaslHandshakeResponse", "validVersions": "0-1",
  "flexibleVersions": "none", "fields": [
    { "name": "ErrorCode", "type": "int16", "versions": "0+", "about": "The error code." } ]
}"""
LEADER_AND_ISR = """{
  "apiKey": 4, "type": "request", "listeners": ["zkBroker"], "name": "LeaderAndIsrRequest",
  "validVersions": "0-7", "flexibleVersions": "4+", "fields": [] }"""
OF_CONTROLLERS = """{ "apiKey": 52, "type": "request", "listeners": ["controller"], "name": "VoteRequest",
  "validVersions": "0-2", "flexibleVersions": "0+", "fields": [] }"""
DATA = """{ "type": "data", "name": "LeaderChangeMessage", "validVersions": "0-1", "fields": [] }"""


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    path = tmp_path / "kafka-clients.jar"
    with zipfile.ZipFile(path, "w") as archive:
        texts = {"b": RESPONSE, "a": REQUEST, "c": OF_CONTROLLERS, "d": DATA}
        for name, text in texts.items():
            archive.writestr(f"common/message/{name}.json", text)
        archive.writestr("common/message/README.md", "about the messages")
    return path


def test_a_line_for_each_message_of_the_brokers_listener(jar: Path) -> None:
    assert encode(definitions(jar)).decode().splitlines() == [
        '{"apiKey":17,"type":"request","name":"SaslHandshakeRequest","validVersions":"0-1",'
        '"flexibleVersions":"none","fields":[{"name":"Mechanism","type":"string","versions":"0+"}]}',
        '{"apiKey":17,"type":"response","name":"SaslHandshakeResponse","validVersions":"0-1",'
        '"flexibleVersions":"none","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"}]}',
    ]


def test_of_the_last_release_with_zookeeper_only_what_later_ones_lack(jar: Path, tmp_path: Path) -> None:
    old = tmp_path / "kafka-clients-3.9.1.jar"
    request = REQUEST.replace('"broker"', '"broker", "zkBroker"').replace('"0-1"', '"0-0"')
    with zipfile.ZipFile(old, "w") as archive:
        archive.writestr("common/message/a.json", request)
        archive.writestr("common/message/b.json", LEADER_AND_ISR)
    found = definitions(jar, retired_after=old)
    assert [(each.api_key, each.type, each.valid_versions) for each in found] == [
        (4, "request", "0-7"),
        (17, "request", "0-1"),
        (17, "response", "0-1"),
    ]


def test_what_is_no_such_jar_is_said_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = MESSAGES.read_bytes()
    path = tmp_path / "other.jar"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "")
    monkeypatch.setattr(sys, "argv", ["message_definitions", str(path), str(path)])
    with pytest.raises(SystemExit, match="2"):
        message_definitions.main()
    assert "other.jar has no message definitions" in capsys.readouterr().err
    assert MESSAGES.read_bytes() == before
