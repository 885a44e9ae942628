"""Configuration from a file, the environment and the command line, and which of them wins."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.config.broker import BROKER_CONFIG_KEYS, BrokerConfig
from minikafka.config.loader import configured, environment_name, load, parse_setting, parse_toml
from minikafka.errors import ConfigError

KAFKAS_OWN_FILE = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.ms=1000
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
"""
"""The settings of the server.properties that Kafka comes with (4.0, and a line of 3.x)."""


def write(directory: Path, text: str, name: str = "server.properties") -> str:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_nothing_given_means_the_defaults() -> None:
    assert load().config == BrokerConfig()


def test_kafkas_own_file_makes_a_broker_and_names_what_has_no_effect(tmp_path: Path) -> None:
    loaded = load(path=write(tmp_path, KAFKAS_OWN_FILE))
    assert loaded.config.log_dirs == ("/tmp/kraft-combined-logs",)
    assert [str(listener) for listener in loaded.config.endpoints()] == ["PLAINTEXT://:9092"]
    assert loaded.unknown == ()
    assert loaded.without_effect() == [
        "controller.quorum.bootstrap.servers",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "process.roles",
    ]


def test_a_typo_in_a_file_is_reported_with_what_was_meant(tmp_path: Path) -> None:
    (unknown,) = load(path=write(tmp_path, "\nlog.segment.byte=5\n")).unknown
    assert str(unknown).endswith(
        "server.properties:2: log.segment.byte is not a property of minikafka and is ignored; "
        "did you mean log.segment.bytes?"
    )


def test_the_command_line_beats_the_environment_and_that_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "num.partitions=1\ndefault.replication.factor=1\nfetch.max.bytes=1025\n")
    environment = {"MINIKAFKA_NUM_PARTITIONS": "2", "MINIKAFKA_DEFAULT_REPLICATION_FACTOR": "2", "HOME": "/"}
    config = load(path=path, environment=environment, settings=[parse_setting("num.partitions=3")]).config
    assert (config.num_partitions, config.default_replication_factor, config.fetch_max_bytes) == (3, 2, 1025)


def test_a_stronger_place_beats_another_name_in_a_weaker_one(tmp_path: Path) -> None:
    path = write(tmp_path, "log.retention.ms=5\nlog.dirs=/a\nnode.id=1\n")
    settings = [parse_setting(text) for text in ("log.retention.hours=1", "log.dir=/b", "broker.id=2")]
    config = load(path=path, settings=settings).config
    assert (config.log_retention_ms, config.log_retention_hours) == (None, 1)
    assert (config.log_dirs, config.node_id) == (("/b",), 2)


def test_toml_with_dotted_and_nested_keys(tmp_path: Path) -> None:
    text = """
    node.id = 7
    log.dirs = ["/a", "/b"]
    auto.create.topics.enable = false
    "max.connections" = 5
    "max.connections.per.ip" = 3
    [log.segment]
    bytes = 2000000
    [log.cleaner]
    min.cleanable.ratio = 0.25
    """
    config = load(path=write(tmp_path, text, "broker.toml")).config
    assert (config.node_id, config.log_dirs, config.auto_create_topics_enable) == (7, ("/a", "/b"), False)
    assert (config.max_connections, config.max_connections_per_ip) == (5, 3)
    assert (config.log_segment_bytes, config.log_cleaner_min_cleanable_ratio) == (2_000_000, 0.25)


@pytest.mark.parametrize(
    ("text", "settings", "environment", "why"),
    [
        (
            "x\nnum.partitions=0",
            [],
            {},
            r"server\.properties:2: Invalid value 0 for .* num\.partitions: .*at least 1",
        ),
        ("listeners=foo", [], {}, r"server\.properties:1: Invalid value foo for configuration listeners"),
        ("a=\\u1", [], {}, r"server\.properties:1: malformed"),
        (
            "",
            ["num.partition=1"],
            {},
            r"--set: num\.partition is not a property.*did you mean num\.partitions\?",
        ),
        ("", ["num.partitions"], {}, r"--set num\.partitions: must be name=value"),
        ("", ["num.partitions=x"], {}, r"--set: Invalid value x for configuration num\.partitions"),
        ("", [], {"MINIKAFKA_NUM_PARTITION": "1"}, "did you mean MINIKAFKA_NUM_PARTITIONS"),
        (
            "",
            [],
            {"MINIKAFKA_NUM_PARTITIONS": "x"},
            "environment variable MINIKAFKA_NUM_PARTITIONS: Invalid value x",
        ),
        ("node.id=1", ["node.id=1", "broker.id=2"], {}, "must be the same"),
    ],
)
def test_an_error_says_where_it_stands(
    tmp_path: Path, text: str, settings: list[str], environment: dict[str, str], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        load(
            path=write(tmp_path, text),
            environment=environment,
            settings=[parse_setting(setting) for setting in settings],
        )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a = ", "not valid TOML"),
        ("max.connections = 1\nmax.connections.per.ip = 2", "not valid TOML"),
        ("log.dirs = [{a = 1}]", r"log\.dirs must be a string"),
        ("log.dirs = 2020-01-01", r"log\.dirs must be a string"),
    ],
)
def test_toml_that_cannot_be_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load(path=write(tmp_path, text, "broker.toml"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.properties: No such file"):
        load(path=str(tmp_path / "missing.properties"))
    with pytest.raises(ConfigError, match="is a directory"):
        load(path=str(tmp_path))
    with pytest.raises(ConfigError, match="cannot read"):
        load(path="a\0b")
    with pytest.raises(ConfigError, match="larger than"):
        load(path=write(tmp_path, "#" * 1_100_000))


def test_every_property_has_its_own_environment_variable() -> None:
    assert environment_name("log.segment.bytes") == "MINIKAFKA_LOG_SEGMENT_BYTES"
    assert len({environment_name(name) for name in BROKER_CONFIG_KEYS}) == len(BROKER_CONFIG_KEYS)


@given(st.binary(max_size=100) | st.text(alphabet='a.="[]{}\n1,', max_size=40).map(str.encode))
def test_any_bytes_are_toml_or_a_config_error(data: bytes) -> None:
    try:
        parse_toml(data, source="f.toml")
    except ConfigError as error:
        assert str(error).startswith("f.toml: ")


@given(st.dictionaries(st.sampled_from(sorted(BROKER_CONFIG_KEYS)), st.text(max_size=30), max_size=4))
def test_any_values_are_a_configuration_or_a_config_error(properties: dict[str, str]) -> None:
    settings = [parse_setting(f"{name}={value}") for name, value in properties.items()]
    try:
        config = load(settings=settings).config
    except ConfigError:
        return
    assert isinstance(config, BrokerConfig)


def test_what_is_configured_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("log.retention.ms=1\nnode.id=1\nno.property=x\n")
    found = configured(
        path=str(path),
        environment={"MINIKAFKA_NODE_ID": "2"},
        settings=[parse_setting("log.retention.hours=3")],
    )
    assert {name: (each.value, each.origin) for name, each in found.items()} == {
        "node.id": ("2", "environment variable MINIKAFKA_NODE_ID"),
        "log.retention.hours": ("3", "--set"),  # which takes its other name with it
        "no.property": ("x", f"{path}:3"),
    }


def test_properties_of_listeners_have_their_place_and_unknown_listeners_are_named(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "listeners=EXTERNAL://localhost:1\nlistener.security.protocol.map=EXTERNAL:SSL\n"
        "listener.name.external.ssl.keystore.location=/a\n"
        "listener.name.extrenal.ssl.client.auth=required\n",
    )
    loaded = load(path=path, settings=[parse_setting("listener.name.external.ssl.client.auth=required")])
    security = loaded.config.listener_security("EXTERNAL")
    assert (security.ssl_keystore_location, security.ssl_client_auth) == ("/a", "required")
    (unknown,) = loaded.unknown
    assert f"{path}:4: listener.name.extrenal.ssl.client.auth" in str(unknown)
    assert "there is no listener EXTRENAL; there are EXTERNAL" in str(unknown)
    assert "did you mean listener.name.external.ssl.client.auth?" in str(unknown)
    with pytest.raises(ConfigError, match=r"--set: .*listener\.name\.external\.ssl\.client\.auth"):
        load(path=path, settings=[parse_setting("listener.name.external.ssl.client.auth=maybe")])


def test_a_value_that_is_not_utf_8_is_refused_before_it_is_used() -> None:
    """PEM texts and passwords are encoded much later, where no error is expected."""
    setting = parse_setting("ssl.keystore.certificate.chain=\udce5")
    with pytest.raises(ConfigError, match=r"the value of ssl[.]keystore[.]certificate[.]chain is not UTF-8"):
        load(settings=[setting])
