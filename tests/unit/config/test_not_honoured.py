"""Every property of Kafka 4.4 is known: honoured, accepted without effect, or refused with the reason."""

from __future__ import annotations

import subprocess
import sys

import pytest

from minikafka.config.broker import BROKER_CONFIG_KEYS, broker_config, broker_config_key, is_honoured
from minikafka.config.definition import ConfigSource, ConfigType, UpdateMode
from minikafka.config.group import GROUP_CONFIG_KEYS
from minikafka.config.loader import Setting, load
from minikafka.config.not_honoured import TREATMENTS, kafka_properties, not_honoured_keys, treatment_of
from minikafka.config.resolution import BrokerProperties, check_broker_overrides, describe_broker
from minikafka.config.topic import TOPIC_CONFIG_KEYS
from minikafka.errors import ConfigError, KafkaError


def test_every_property_is_known() -> None:
    known = kafka_properties()
    assert [name for name in known.broker if broker_config_key(name) is None] == []
    unknown = [
        name for name in known.topic if name not in TOPIC_CONFIG_KEYS and not known.topic[name].internal
    ]
    unknown += [name for name in known.group if name not in GROUP_CONFIG_KEYS]
    assert unknown == []


def test_no_property_has_two_kinds_and_every_treatment_is_for_something() -> None:
    for name in BROKER_CONFIG_KEYS.keys() & kafka_properties().broker.keys():
        exact = [each for each in TREATMENTS if name in each.names]
        assert exact == [], f"{name} is honoured"
    for treatment in TREATMENTS:
        for name in treatment.names:
            found = [each for each in not_honoured_keys() if treatment_of(each) is treatment]
            assert any(each == name or (name.endswith(".") and each.startswith(name)) for each in found), name


def test_types_and_what_can_change_are_kafkas() -> None:
    key = broker_config_key("num.io.threads")
    assert key is not None
    assert (key.type, key.default, key.update_mode) == (ConfigType.INT, 8, UpdateMode.CLUSTER_WIDE)
    assert not is_honoured("num.io.threads") and is_honoured("num.partitions")
    for name, kafkas in kafka_properties().broker.items():
        ours = broker_config_key(name)
        assert ours is not None and ours.type.name.lower() == kafkas.type, name


def test_what_changes_nothing_is_accepted_and_named() -> None:
    loaded = load(
        settings=[Setting("num.io.threads", "16", "--set"), Setting("num.partitions", "2", "--set")]
    )
    assert loaded.unknown == () and loaded.without_effect() == ["num.io.threads"]
    loaded = load(environment={"MINIKAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093"})
    assert loaded.without_effect() == ["controller.quorum.voters"]
    with pytest.raises(ConfigError, match=r"num\.io\.threads: Not a number of type INT"):
        broker_config({"num.io.threads": "many"})


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("remote.log.storage.system.enable", "true", "only false can be given here. There is no tiered"),
        ("create.topic.policy.class.name", "com.example.Policy", "it cannot be set here. Plug-ins"),
        ("max.decompressed.message.bytes", "1000", "only 2147483639 can be given"),
        ("process.roles", "controller", "only broker or broker,controller or"),
        ("cordoned.log.dirs", "*", "it cannot be set here"),
        ("listener.name.internal.ssl.engine.factory.class", "com.example.Tls", "listener.name.internal.ssl"),
        ("sasl.oauthbearer.client.credentials.client.secret", "s3cret", r"\[hidden\]"),
    ],
)
def test_what_would_change_results_is_refused(name: str, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as failure:
        load(settings=[Setting(name, text, "--set")])
    assert "s3cret" not in str(failure.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("remote.log.storage.system.enable", "FALSE"),
        ("create.topic.policy.class.name", ""),
        ("process.roles", "broker, controller"),
    ],
)
def test_what_says_no_is_accepted(name: str, text: str) -> None:
    assert load(settings=[Setting(name, text, "--set")]).without_effect() == [name]


def test_while_a_broker_runs_kafkas_rules_hold() -> None:
    properties = BrokerProperties()
    changed = check_broker_overrides(properties, {"num.io.threads": "4"}, per_broker=False)
    entries = {entry.name: entry for entry in describe_broker(changed, changed.effective())}
    threads = entries["num.io.threads"]
    assert (threads.value, threads.source) == ("4", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    for name, text in (("queued.max.requests", "5"), ("cordoned.log.dirs", "a")):
        with pytest.raises(KafkaError, match=name):
            check_broker_overrides(properties, {name: text}, per_broker=True)


def test_describe_lists_all_but_the_internal_ones_with_kafkas_documentation() -> None:
    properties = BrokerProperties()
    entries = describe_broker(properties, properties.effective())
    names = [entry.name for entry in entries]
    assert names == sorted(names) and len(names) == len(set(names))
    known = kafka_properties().broker
    assert {name for name in known if not known[name].internal} <= set(names)
    assert "internal.metadata.log.segment.bytes" not in names
    (threads,) = [entry for entry in entries if entry.name == "num.io.threads"]
    assert (threads.value, threads.type, threads.read_only) == ("8", ConfigType.INT, False)
    assert threads.source is ConfigSource.DEFAULT_CONFIG and "disk I/O" in threads.documentation
    (secret,) = [each for each in entries if each.name.endswith("credentials.client.secret")]
    assert secret.is_sensitive and secret.value is None


def test_a_broker_that_sets_none_starts_without_them() -> None:
    code = (
        "import sys; from minikafka.config.loader import Setting, load; "
        "assert load(settings=[Setting('num.partitions', '2', '--set')]).without_effect() == []; "
        "sys.exit('minikafka.config.not_honoured' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
