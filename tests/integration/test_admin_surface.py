"""Configurations of groups, of client metrics and of loggers, and the cluster's features, by clients that
know them."""

from __future__ import annotations

import logging
import os
import struct

import pytest
from confluent_kafka import Consumer, Producer

from tests.integration.conftest import StartBroker
from tests.integration.support import confluent, java, wire
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import Record

SESSION = "consumer.session.timeout.ms"
SASL_HANDSHAKE, ILLEGAL_SASL_STATE = 17, 34


def test_kafka_python_configures_groups_subscriptions_and_loggers(broker: BrokerProcess, topic: str) -> None:
    from kafka import KafkaAdminClient
    from kafka.admin import ConfigResource, ConfigResourceType

    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    group = f"group of {topic}"

    def described(kind: ConfigResourceType, name: str) -> str:
        return str(
            admin.describe_configs([ConfigResource(kind, name)], include_synonyms=True, config_filter="all")
        )

    try:
        wanted = ConfigResource(ConfigResourceType.GROUP, group, {SESSION: "50000"})
        admin.alter_configs([wanted], validate_only=True)
        assert group not in str(admin.list_config_resources([ConfigResourceType.GROUP]))
        admin.alter_configs([wanted])
        assert group in str(admin.list_config_resources([ConfigResourceType.GROUP]))
        assert "50000" in described(ConfigResourceType.GROUP, group)
        assert "group.consumer.session.timeout.ms" in described(ConfigResourceType.GROUP, group)
        refused = admin.alter_configs([ConfigResource(ConfigResourceType.GROUP, group, {SESSION: "1"})])
        assert "group.consumer.min.session.timeout.ms" in str(refused)
        admin.reset_configs([ConfigResource(ConfigResourceType.GROUP, group, [SESSION])])
        assert group not in str(admin.list_config_resources([ConfigResourceType.GROUP]))

        subscription = ConfigResource(ConfigResourceType.CLIENT_METRICS, topic, {"match": "client_id=none"})
        admin.alter_configs([subscription])
        assert topic in str(admin.list_config_resources([ConfigResourceType.CLIENT_METRICS]))
        assert "client_id=none" in described(ConfigResourceType.CLIENT_METRICS, topic)
        admin.reset_configs([ConfigResource(ConfigResourceType.CLIENT_METRICS, topic, ["match"])])
        assert topic not in str(admin.list_config_resources([ConfigResourceType.CLIENT_METRICS]))
        assert "root" in described(ConfigResourceType.BROKER_LOGGER, "1")
        assert "metadata.version" in str(admin.describe_features())
    finally:
        admin.close()


def test_librdkafka_has_nothing_to_say_while_nothing_is_subscribed(broker: BrokerProcess) -> None:
    lines: list[logging.LogRecord] = []
    logger = logging.getLogger("librdkafka in a quiet cluster")
    logger.setLevel(logging.DEBUG)
    logger.addFilter(lambda line: lines.append(line) is None and False)
    producer = Producer({"bootstrap.servers": broker.bootstrap}, logger=logger)
    producer.produce("quiet", b"x")
    assert producer.flush(60) == 0
    producer.poll(1)  # nothing announces that nothing is said
    assert [line.getMessage() for line in lines] == []


@pytest.mark.minikafka_only
def test_librdkafka_sends_the_metrics_that_it_is_asked_for(start_broker: StartBroker) -> None:
    from kafka import KafkaAdminClient
    from kafka.admin import ConfigResource, ConfigResourceType

    broker = start_broker(properties={"log.level": "debug"})
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        settings = {"metrics": "*", "interval.ms": "200", "match": "client_id=watched"}
        admin.alter_configs([ConfigResource(ConfigResourceType.CLIENT_METRICS, "all", settings)])
    finally:
        admin.close()
    confluent.make_topic(broker.bootstrap, "t")
    confluent.write(broker.bootstrap, "t", [Record(None, b"x")])
    complaints: list[object] = []
    watched = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "watched",
            "error_cb": complaints.append,
        }
    )
    quiet = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "unwatched",
            "group.id": "g",
            "error_cb": complaints.append,
        }
    )
    try:
        quiet.list_topics("t", timeout=60)

        def sent() -> bool:
            watched.produce("t", b"y")
            watched.poll(0.05)
            return (
                "'client_id': 'watched'" in broker.log_text() and "metrics: org.apache" in broker.log_text()
            )

        confluent.wait_until(sent, "metrics of the watched client")
        assert "'client_id': 'unwatched'" not in broker.log_text()
        assert not complaints
    finally:
        watched.flush(60)
        quiet.close()


@pytest.mark.java
def test_kafkas_tools_configure_groups_and_client_metrics(
    broker: BrokerProcess, topic: str, java_class_path: str
) -> None:
    def tool(name: str, *arguments: str) -> str:
        return java.tool(java_class_path, name, "--bootstrap-server", broker.bootstrap, *arguments)

    configs, of_group = "kafka.admin.ConfigCommand", ("--entity-type", "groups", "--entity-name", topic)
    tool(configs, "--alter", *of_group, "--add-config", f"{SESSION}=50000")
    assert f"{SESSION}=50000" in tool(configs, "--describe", *of_group)
    tool(configs, "--alter", *of_group, "--delete-config", SESSION)
    assert f"{SESSION}=50000" not in tool(configs, "--describe", *of_group)

    metrics = "org.apache.kafka.tools.ClientMetricsCommand"
    tool(
        metrics, "--alter", "--name", topic, "--metrics", "org.apache.kafka.consumer.", "--interval", "60000"
    )
    assert topic in tool(metrics, "--list")
    described = tool(metrics, "--describe", "--name", topic)
    assert "interval.ms=60000" in described and "metrics=org.apache.kafka.consumer." in described
    tool(metrics, "--delete", "--name", topic)
    assert topic not in tool(metrics, "--list")


@pytest.mark.java
@pytest.mark.minikafka_only
def test_kafkas_tools_are_refused_what_is_not_there(broker: BrokerProcess, java_class_path: str) -> None:
    """Where the connection closes, each of them tries again for a minute and then says that it timed out."""

    def said(name: str, *arguments: str) -> str:
        ended = java.ask_tool(java_class_path, name, "--bootstrap-server", broker.bootstrap, *arguments)
        return ended.out + ended.err

    tools = "org.apache.kafka.tools"
    assert "No Authorizer is configured on the broker" in said(f"{tools}.AclCommand", "--list")
    tokens = said(f"{tools}.DelegationTokenCommand", "--describe", "--command-config", os.devnull)
    assert "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels" in tokens


@pytest.mark.minikafka_only
def test_a_client_that_asks_without_looking_is_answered_on_the_same_connection(broker: BrokerProcess) -> None:
    with wire.RawClient(broker.port) as client:
        handshake = client.call(SASL_HANDSHAKE, 0, wire.string("PLAIN"))
        assert handshake == struct.pack(">hi", ILLEGAL_SASL_STATE, 0)  # as Kafka's on a plain listener
        assert client.api_versions()
