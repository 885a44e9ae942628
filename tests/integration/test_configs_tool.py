"""Kafka's own kafka-configs against us, and ours beside it: topics, brokers, users' quotas, addresses."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.integration.conftest import StartBroker
from tests.integration.support import confluent, java
from tests.integration.support.process import BrokerProcess
from tests.integration.support.wire import RawClient

Tool = Callable[..., str]


@pytest.fixture
def kafkas(broker: BrokerProcess, java_class_path: str) -> Tool:
    def run(*arguments: str) -> str:
        return java.tool(
            java_class_path, "kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, *arguments
        )

    return run


@pytest.fixture
def ours(broker: BrokerProcess) -> Tool:
    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "minikafka.cli.main", "configs", *arguments, "-b", broker.bootstrap]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run


@pytest.mark.java
def test_both_tools_say_the_same_about_topics_and_brokers(
    broker: BrokerProcess, kafkas: Tool, ours: Tool, topic: str
) -> None:
    confluent.make_topic(broker.bootstrap, topic)
    about_topic = ("--entity-type", "topics", "--entity-name", topic)
    added = kafkas(
        "--alter", "--add-config", "cleanup.policy=[compact,delete],retention.ms=7000", *about_topic
    )
    assert added.splitlines()[-1] == f"Completed updating config for topic {topic}."
    assert ours("--describe", *about_topic) == kafkas("--describe", *about_topic)
    ours("--alter", "--topic", topic, "--delete-config", "cleanup.policy")
    described = kafkas("--describe", *about_topic)
    assert "cleanup.policy" not in described and "retention.ms=7000" in described

    ours("--alter", "--broker", "1", "--add-config", "message.max.bytes=2000000")
    for about in (
        ("--broker", "1"),
        ("--entity-type", "brokers", "--entity-default"),
        ("--topic", topic, "--all"),
    ):
        assert ours("--describe", *about) == kafkas("--describe", *about)
    kafkas("--alter", "--broker", "1", "--delete-config", "message.max.bytes")
    assert "message.max.bytes" not in ours("--describe", "--broker", "1")


@pytest.mark.java
def test_both_tools_say_the_same_about_quotas_and_addresses(kafkas: Tool, ours: Tool) -> None:
    both = ("--entity-type", "users", "--entity-name", "ann", "--entity-type", "clients", "--entity-default")
    kafkas("--alter", "--add-config", "producer_byte_rate=20000000,request_percentage=12.5", *both)
    kafkas("--alter", "--add-config", "connection_creation_rate=1000", "--ip", "10.1.2.3")
    ours("--alter", "--add-config", "connection_creation_rate=2000", "--ip", "10.1.2.4")
    for about in (both, ("--ip", "10.1.2.3"), ("--ip", "10.1.2.4")):
        assert sorted_values(ours("--describe", *about)) == sorted_values(kafkas("--describe", *about))
    assert "connection_creation_rate=2000.0" in kafkas("--describe", "--ip", "10.1.2.4")
    ours("--alter", "--delete-config", "producer_byte_rate,request_percentage", *both)
    kafkas("--alter", "--delete-config", "connection_creation_rate", "--ip", "10.1.2.4")
    ours("--alter", "--delete-config", "connection_creation_rate", "--ip", "10.1.2.3")
    assert "connection_creation_rate" not in ours("--describe", "--entity-type", "ips")


def sorted_values(text: str) -> list[str]:
    """The words of quota lines; the tools' maps have no order."""
    return sorted(word.strip(",") for line in text.splitlines() if "Quota" in line for word in line.split())


@pytest.mark.java
def test_both_tools_set_and_see_scram_users(start_broker: StartBroker, java_class_path: str) -> None:
    broker = start_broker()
    about = ("--bootstrap-server", broker.bootstrap, "--entity-type", "users", "--entity-name", "ann")
    credential = "SCRAM-SHA-256=[iterations=8192,password=by-kafka]"
    java.tool(java_class_path, "kafka.admin.ConfigCommand", "--alter", "--add-config", credential, *about)
    command = [sys.executable, "-m", "minikafka.cli.main", "configs"]
    at = ("-b", broker.bootstrap)
    subprocess.run(
        [*command, "--alter", "--add-config", "SCRAM-SHA-512=[iterations=5000]", "--user", "ann", *at],
        check=True,
        env=broker.environment() | {"MINIKAFKA_PASSWORD": "by-us"},
        timeout=60,
    )
    texts = [
        java.tool(java_class_path, "kafka.admin.ConfigCommand", "--describe", *about),
        subprocess.run(
            [*command, "--describe", "--user", "ann", "-b", broker.bootstrap],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout,
    ]
    for text in texts:
        assert (
            "SCRAM credential configs for user-principal 'ann' are SCRAM-SHA-256=iterations=8192, "
            "SCRAM-SHA-512=iterations=5000"
        ) in text


def test_an_address_over_its_rate_waits_and_is_closed(start_broker: StartBroker) -> None:
    broker = start_broker(properties={"quota.window.num": 1})
    set_rate = ["--alter", "--ip", "127.0.0.1", "--add-config", "connection_creation_rate=2"]
    command = [sys.executable, "-m", "minikafka.cli.main", "configs", *set_rate, "-b", broker.bootstrap]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    held = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(4)]
    try:
        held[-1].settimeout(20)
        assert held[-1].recv(1) == b"", "closed without an answer"
        assert "connection_creation_rate" in broker.log_text()
    finally:
        for each in held:
            each.close()


def test_connections_over_the_brokers_rate_are_answered_later(start_broker: StartBroker) -> None:
    broker = start_broker(properties={"quota.window.num": 1, "max.connection.creation.rate": 4})
    began = time.monotonic()
    clients = [RawClient(broker.port, timeout_s=20) for _ in range(8)]
    try:
        assert all(client.api_versions() for client in clients)
        assert time.monotonic() - began > 0.5, "the burst is four; the others come at four a second"
    finally:
        for client in clients:
            client.close()
