"""BrokerConfig: relations between properties."""

from __future__ import annotations

import pytest

from minikafka.config.broker import (
    BROKER_CONFIG_KEYS,
    BrokerConfig,
    broker_config,
    effective_retention_ms,
    override_properties,
)
from minikafka.config.definition import INT_MAX
from minikafka.errors import ConfigError


def test_without_properties_a_broker_has_the_defaults() -> None:
    assert broker_config({}) == BrokerConfig()
    assert BrokerConfig().static_properties() == {}
    assert [str(listener) for listener in BrokerConfig().advertised_endpoints()] == [
        "PLAINTEXT://localhost:9092"
    ]


def test_broker_id_and_node_id_are_one() -> None:
    assert broker_config({"broker.id": "3"}).node_id == 3
    assert broker_config({"node.id": "3"}).broker_id == 3
    assert broker_config({"node.id": "3", "broker.id": "3"}).node_id == 3
    with pytest.raises(ConfigError, match=r"node\.id \(3\) and broker\.id \(4\) must be the same"):
        broker_config({"node.id": "3", "broker.id": "4"})


def test_log_dirs_wins_over_log_dir() -> None:
    assert broker_config({"log.dir": "/a"}).log_dirs == ("/a",)
    assert broker_config({"log.dirs": "/b, /c", "log.dir": "/a"}).log_dirs == ("/b", "/c")


def test_retention_in_the_finest_unit_wins() -> None:
    hour_ms = 3_600_000
    assert effective_retention_ms(broker_config({"log.retention.hours": "2"})) == 2 * hour_ms
    assert (
        effective_retention_ms(broker_config({"log.retention.hours": "2", "log.retention.minutes": "5"}))
        == 300_000
    )
    assert effective_retention_ms(broker_config({"log.retention.minutes": "5", "log.retention.ms": "7"})) == 7
    assert effective_retention_ms(broker_config({"log.retention.hours": "-1"})) == -1


def test_an_override_takes_the_other_units_with_it() -> None:
    base = {"log.retention.ms": "5", "num.partitions": "2", "log.flush.scheduler.interval.ms": "9"}
    overridden = override_properties(base, {"log.retention.hours": "1", "log.flush.interval.ms": "3"})
    assert overridden == {
        "log.retention.hours": "1",
        "num.partitions": "2",
        "log.flush.interval.ms": "3",
        "log.flush.scheduler.interval.ms": "9",
    }


def test_a_kraft_configuration_listens_without_its_controller() -> None:
    config = broker_config(
        {
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "advertised.listeners": "PLAINTEXT://example.org:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
            "inter.broker.listener.name": "PLAINTEXT",
        }
    )
    assert [str(listener) for listener in config.endpoints()] == ["PLAINTEXT://:9092"]
    assert [str(listener) for listener in config.advertised_endpoints()] == ["PLAINTEXT://example.org:9092"]
    assert config.inter_broker_listener() == "PLAINTEXT"


def test_the_coordination_store_lies_in_the_first_log_directory_unless_told() -> None:
    assert broker_config({"log.dirs": "/a,/b"}).coordination_path() == "/a/coordination.sqlite"
    assert broker_config({"coordination": "sqlite:////var/c.db"}).coordination_path() == "/var/c.db"


def test_connection_limits_of_single_hosts() -> None:
    config = broker_config({"max.connections.per.ip.overrides": "10.0.0.1:5, [::1]:7"})
    assert config.connection_overrides() == {"10.0.0.1": 5, "::1": 7}


def test_what_code_has_set_counts_as_static() -> None:
    assert BrokerConfig(num_partitions=3, log_dirs=("/a", "/b")).static_properties() == {
        "num.partitions": "3",
        "log.dirs": "/a,/b",
    }
    assert broker_config({"broker.id": "7"}).static_properties() == {"broker.id": "7"}


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"log.dirs": ""}, r"log\.dirs.*without a name"),
        ({"log.dirs": "/a,,/b"}, r"log\.dirs.*without a name"),
        ({"log.dirs": "/a,/a"}, r"log\.dirs.*twice"),
        ({"log.retention.ms": "0"}, r"Invalid value 0 for configuration log\.retention\.ms"),
        ({"log.retention.hours": "0"}, r"log\.retention\.hours"),
        (
            {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"},
            r"more than.*\(8\)",
        ),
        ({"queued.max.request.bytes": "1000"}, r"queued\.max\.request\.bytes.*-1 or at least"),
        ({"max.connections.per.ip": "0"}, r"needs max\.connections\.per\.ip\.overrides"),
        ({"max.connections.per.ip.overrides": "host"}, "must be host:count"),
        ({"max.connections.per.ip.overrides": f"host:{INT_MAX + 1}"}, "must be host:count"),
        ({"coordination": "zookeeper://x"}, "sqlite:///PATH"),
        ({"coordination": "sqlite:///"}, "sqlite:///PATH"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "nonroutable address 0.0.0.0"),
        ({"listeners": "PLAINTEXT://[::]:9092"}, "nonroutable address ::"),
        ({"advertised.listeners": "PLAINTEXT://:9092"}, "a host is missing"),
        ({"advertised.listeners": "SSL://a:9092"}, "no listener is named SSL"),
        (
            {"listeners": "SSL://a:9092"},
            r"the listener SSL://a:9092 \(SSL\) has no key store: set ssl.keystore",
        ),
        (
            {"listeners": "OUT://a:9092", "listener.security.protocol.map": "OUT:SASL_SSL"},
            r"listener\.name\.out\.ssl\.keystore\.location",
        ),
        (
            {"listeners": "SASL_PLAINTEXT://a:9092", "sasl.enabled.mechanisms": "PLAIN,GSSAPI"},
            r"GSSAPI for configuration sasl\.enabled\.mechanisms: Kerberos is not there",
        ),
        (
            {
                "listeners": "SASL_PLAINTEXT://a:9092",
                "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "CRAM-MD5",
            },
            "CRAM-MD5.*can have PLAIN, SCRAM-SHA-256",
        ),
        (
            {"listeners": "SASL_PLAINTEXT://a:9092", "sasl.enabled.mechanisms": ""},
            "needs at least one",
        ),
        (
            {"listeners": "SASL_PLAINTEXT://a:9092", "sasl.enabled.mechanisms": "PLAIN"},
            r"SCRAM-SHA-512\) must be included in sasl\.enabled\.mechanisms",
        ),
        (
            {"security.inter.broker.protocol": "SSL"},
            r"SSL for configuration security\.inter\.broker\.protocol: no listener has it",
        ),
        (
            {"security.inter.broker.protocol": "PLAINTEXT", "inter.broker.listener.name": "PLAINTEXT"},
            r"Only one of inter\.broker\.listener\.name and security\.inter\.broker\.protocol",
        ),
        ({"listener.name.plaintext.node.id": "3"}, "Unknown broker config name"),
        ({"listener.name.plaintext.ssl.client.auth": "maybe"}, "none, requested, required"),
        ({"inter.broker.listener.name": "FOO"}, r"FOO.*must be one of PLAINTEXT"),
        ({"group.consumer.session.timeout.ms": "44999"}, r"at least group\.consumer\.min\.session.*45000"),
        (
            {"group.consumer.heartbeat.interval.ms": "15001"},
            r"at most group\.consumer\.max\.heartbeat.*15000",
        ),
        ({"group.max.session.timeout.ms": "5999"}, r"at least group\.min\.session\.timeout\.ms \(6000\)"),
        (
            {
                "group.consumer.min.session.timeout.ms": "5000",
                "group.consumer.session.timeout.ms": "5000",
            },
            r"heartbeat\.interval\.ms.*less than group\.consumer\.session\.timeout\.ms",
        ),
        ({"group.share.session.timeout.ms": "60001"}, r"at most group\.share\.max\.session.*60000"),
        ({"group.share.record.lock.duration.ms": "14999"}, r"at least group\.share\.min\.record\.lock"),
        ({"group.share.delivery.count.limit": "11"}, r"group\.share\.delivery\.count.*no more than 10"),
        ({"group.share.max.share.sessions": "199"}, r"at least group\.share\.max\.size \(200\)"),
        ({"group.share.assignors": ""}, "exactly one assignor, but found 0"),
        ({"group.consumer.assignors": ""}, "at least one"),
        ({"group.consumer.assignors": "range,range"}, "each assignor once"),
        ({"group.consumer.assignors": "sticky"}, r"group\.consumer\.assignors"),
        ({"offsets.topic.replication.factor": "32768"}, "Not a number of type SHORT"),
        ({"inter.broker.protocol.version": "2.8"}, r"Kafka 3\.9 does.*raise their inter\.broker"),
        ({"inter.broker.protocol.version": "3.8-IV0"}, r"Invalid value 3\.8-IV0.*Kafka 3\.9 does"),
        ({"inter.broker.protocol.version": "4.0"}, "Kafka 4 has no ZooKeeper"),
        ({"inter.broker.protocol.version": "3.x"}, r"must be a release of Apache Kafka, as 3\.9"),
        ({"zookeeper.metadata.migration.enable": "true"}, "there is no KRaft here"),
        ({"foo": "1"}, "Unknown broker config name: foo"),
    ],
)
def test_contradictions_are_refused(properties: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        broker_config(properties)


@pytest.mark.parametrize("version", ["3.9", "3.9-IV0", "3.9.1"])
def test_brokers_speak_as_kafka_3_9_does(version: str) -> None:
    assert broker_config({"inter.broker.protocol.version": version}).inter_broker_protocol_version == version
    assert broker_config({}).inter_broker_protocol_version == "3.9"


def test_an_unset_text_is_no_value() -> None:
    assert broker_config({"advertised.listeners": "", "log.retention.ms": " "}) == broker_config(
        {}
    ).__class__(originals={"advertised.listeners": "", "log.retention.ms": " "})


def test_a_field_is_its_propertys_name_with_underscores() -> None:
    for name, key in BROKER_CONFIG_KEYS.items():
        if name not in ("broker.id", "log.dir"):
            assert key.attribute == name.replace(".", "_")


def test_a_listener_has_its_own_values_and_the_brokers_where_it_has_none() -> None:
    config = broker_config(
        {
            "listeners": "INSIDE://:9092,OUTSIDE://:9093",
            "advertised.listeners": "INSIDE://a:9092,OUTSIDE://a:9093",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SSL",
            "ssl.client.auth": "requested",
            "ssl.keystore.location": "/all.p12",
            "listener.name.outside.ssl.client.auth": "required",
            "listener.name.outside.ssl.keystore.location": "/outside.p12",
            "listener.name.outside.ssl.endpoint.identification.algorithm": "",
        }
    )
    outside, inside = config.listener_security("OUTSIDE"), config.listener_security("inside")
    assert (outside.ssl_client_auth, outside.ssl_keystore_location) == ("required", "/outside.p12")
    assert outside.ssl_endpoint_identification_algorithm == ""
    assert (inside.ssl_client_auth, inside.ssl_keystore_location) == ("requested", "/all.p12")
    assert config.inter_broker_listener() == "INSIDE"


def test_the_listener_for_brokers_is_that_of_their_protocol() -> None:
    properties = {
        "listeners": "PLAINTEXT://a:1,A://a:2,SSL://a:3",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,A:SSL,SSL:SSL",
        "ssl.keystore.location": "/x.p12",
    }
    assert broker_config(properties).inter_broker_listener() == "PLAINTEXT"
    config = broker_config({**properties, "security.inter.broker.protocol": "SSL"})
    assert (config.inter_broker_listener(), config.inter_broker_protocol()) == ("SSL", "SSL")
    config = broker_config({**properties, "inter.broker.listener.name": "a"})
    assert (config.inter_broker_listener(), config.inter_broker_protocol()) == ("A", "SSL")


def test_no_password_is_in_a_repr() -> None:
    config = broker_config(
        {
            "ssl.keystore.password": "SECRET",
            "listener.name.plaintext.ssl.key.password": "SECRET",
            "sasl.jaas.config": "SECRET",
        }
    )
    assert "SECRET" not in repr(config)
    assert "SECRET" not in repr(config.listener_security("PLAINTEXT"))
