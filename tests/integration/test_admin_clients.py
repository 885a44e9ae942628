"""Topics, their configuration, their partitions and the cluster, through every admin client there is."""

from __future__ import annotations

import pytest
from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.integration.support import confluent, java
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import EPOCH_MS, Record

WAIT_S = 60


class TestConfluent:
    def error_of(self, future: object) -> str:
        with pytest.raises(KafkaException) as caught:
            future.result(WAIT_S)  # type: ignore[attr-defined]
        name: str = caught.value.args[0].name()
        return name

    def test_topics(self, broker: BrokerProcess, topic: str) -> None:
        admin = confluent.admin(broker.bootstrap)
        confluent.make_topic(broker.bootstrap, topic, partitions=3, config={"retention.ms": 3_600_000})
        again = admin.create_topics([NewTopic(topic, 3, 1)])[topic]
        assert self.error_of(again) == "TOPIC_ALREADY_EXISTS"
        assert self.error_of(admin.create_topics([NewTopic("a/b", 1, 1)])["a/b"]) == "TOPIC_EXCEPTION"
        assert self.error_of(admin.create_topics([NewTopic("x", 1, 3)])["x"]) == "INVALID_REPLICATION_FACTOR"
        assert self.error_of(admin.create_topics([NewTopic("x", 0, 1)])["x"]) == "INVALID_PARTITIONS"
        bad = NewTopic("x", 1, 1, config={"retention.ms": "soon"})
        assert self.error_of(admin.create_topics([bad])["x"]) == "INVALID_CONFIG"
        only_checked = admin.create_topics([NewTopic("checked", 1, 1)], validate_only=True)["checked"]
        only_checked.result(WAIT_S)
        assert "checked" not in admin.list_topics(timeout=WAIT_S).topics

        metadata = admin.list_topics(topic, timeout=WAIT_S)
        assert sorted(metadata.topics[topic].partitions) == [0, 1, 2]
        (node,) = metadata.brokers.values()
        described = admin.describe_topics(TopicCollection([topic]))[topic].result(WAIT_S)
        assert [partition.leader.id for partition in described.partitions] == [node.id] * 3
        assert [[replica.id for replica in partition.isr] for partition in described.partitions] == [
            [node.id]
        ] * 3
        assert len({str(described.topic_id)}) == 1 and not described.is_internal

        admin.create_partitions([NewPartitions(topic, 5)])[topic].result(WAIT_S)
        assert (
            self.error_of(admin.create_partitions([NewPartitions(topic, 2)])[topic]) == "INVALID_PARTITIONS"
        )
        confluent.wait_until(
            lambda: len(admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions) == 5,
            "5 partitions",
        )
        confluent.write(broker.bootstrap, topic, [Record(None, b"in the new one")], partition=4)

        admin.delete_topics([topic])[topic].result(WAIT_S)
        assert self.error_of(admin.delete_topics([topic])[topic]) == "UNKNOWN_TOPIC_OR_PART"
        confluent.wait_until(
            lambda: topic not in admin.list_topics(timeout=WAIT_S).topics, "gone from the list"
        )
        confluent.wait_until(lambda: not broker.partition_dir(topic, 4).exists(), "gone from the disk")

    def test_a_topic_of_the_same_name_is_a_new_topic(self, broker: BrokerProcess, topic: str) -> None:
        admin = confluent.admin(broker.bootstrap)
        ids = set()
        for generation in range(3):
            confluent.make_topic(broker.bootstrap, topic)
            ids.add(str(admin.describe_topics(TopicCollection([topic]))[topic].result(WAIT_S).topic_id))
            assert confluent.latest(broker.bootstrap, topic) == 0
            value = b"generation %d" % generation
            assert confluent.write(broker.bootstrap, topic, [Record(None, value)]) == [0]
            assert confluent.read(broker.bootstrap, topic, 1)[0].value == value
            admin.delete_topics([topic])[topic].result(WAIT_S)
        assert len(ids) == 3

    def config_of(self, admin: AdminClient, resource: ConfigResource, name: str) -> ConfigEntry:
        entry: ConfigEntry = admin.describe_configs([resource])[resource].result(WAIT_S)[name]
        return entry

    def test_topic_configs_take_effect_at_once(self, broker: BrokerProcess, topic: str) -> None:
        admin = confluent.admin(broker.bootstrap)
        confluent.make_topic(broker.bootstrap, topic, config={"max.message.bytes": 1_000})
        with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
            confluent.write(broker.bootstrap, topic, [Record(None, bytes(2_000))])
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entry = self.config_of(admin, resource, "max.message.bytes")
        assert (entry.value, ConfigSource(entry.source)) == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
        assert not entry.is_read_only and not entry.is_sensitive

        def change(name: str, value: str | None, operation: AlterConfigOpType) -> object:
            entry = ConfigEntry(name, value, incremental_operation=operation)
            wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
            return admin.incremental_alter_configs([wanted])[wanted]

        change("max.message.bytes", "5000", AlterConfigOpType.SET).result(WAIT_S)  # type: ignore[attr-defined]
        confluent.write(broker.bootstrap, topic, [Record(None, bytes(2_000))])
        change("max.message.bytes", None, AlterConfigOpType.DELETE).result(WAIT_S)  # type: ignore[attr-defined]
        entry = self.config_of(admin, resource, "max.message.bytes")
        assert (entry.value, ConfigSource(entry.source)) == ("1048588", ConfigSource.DEFAULT_CONFIG)
        change("cleanup.policy", "compact", AlterConfigOpType.APPEND).result(WAIT_S)  # type: ignore[attr-defined]
        assert self.config_of(admin, resource, "cleanup.policy").value == "delete,compact"
        change("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT).result(WAIT_S)  # type: ignore[attr-defined]
        assert self.config_of(admin, resource, "cleanup.policy").value == "compact"
        assert self.error_of(change("segment.bytes", "-7", AlterConfigOpType.SET)) == "INVALID_CONFIG"
        assert self.error_of(change("no.such.thing", "1", AlterConfigOpType.SET)) == "INVALID_CONFIG"

        old_style = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "1000000"})
        with pytest.deprecated_call():
            admin.alter_configs([old_style])[old_style].result(WAIT_S)
        assert self.config_of(admin, resource, "retention.ms").value == "1000000"
        assert self.config_of(admin, resource, "cleanup.policy").value == "delete", (
            "AlterConfigs replaces all"
        )

    def test_broker_configs(self, broker: BrokerProcess) -> None:
        admin = confluent.admin(broker.bootstrap)
        resource = ConfigResource(ResourceType.BROKER, str(self.node_id(admin)))
        assert self.config_of(admin, resource, "log.segment.bytes").value == str(64 * 1024 * 1024)
        assert self.config_of(admin, resource, "log.dirs").is_read_only

    def node_id(self, admin: AdminClient) -> int:
        (node,) = admin.describe_cluster().result(WAIT_S).nodes
        node_id: int = node.id
        return node_id

    def test_cluster(self, broker: BrokerProcess) -> None:
        admin = confluent.admin(broker.bootstrap)
        cluster = admin.describe_cluster().result(WAIT_S)
        assert len(cluster.cluster_id) == 22
        (node,) = cluster.nodes
        assert (node.port, cluster.controller.id) == (broker.port, node.id)

    def test_offsets(self, broker: BrokerProcess, topic: str) -> None:
        records = [Record(None, b"x", (), EPOCH_MS + time) for time in (10, 30, 20)]
        confluent.make_topic(broker.bootstrap, topic)
        confluent.write_one_batch_each(broker.bootstrap, topic, records)
        admin = confluent.admin(broker.bootstrap)
        at = TopicPartition(topic, 0)
        found = {}
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp()):
            result = admin.list_offsets({at: spec}, isolation_level=IsolationLevel.READ_COMMITTED)[at]
            found[type(spec).__name__] = (result.result(WAIT_S).offset, result.result(WAIT_S).timestamp)
        by_time = admin.list_offsets({at: OffsetSpec.for_timestamp(EPOCH_MS + 15)})[at].result(WAIT_S)
        assert sorted(found.values()) == [(0, -1), (1, EPOCH_MS + 30), (3, -1)]
        assert (by_time.offset, by_time.timestamp) == (1, EPOCH_MS + 30)


async def test_aiokafka(broker: BrokerProcess, topic: str) -> None:
    from aiokafka import AIOKafkaProducer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        created = await admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"segment.ms": "60000"})])
        assert created.topic_errors[0][1] == 0
        again = await admin.create_topics([NewTopic(topic, 2, 1)])
        assert again.topic_errors[0][1] == 36, "TOPIC_ALREADY_EXISTS"
        assert topic in await admin.list_topics()
        (described,) = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 2
        await admin.create_partitions({topic: NewPartitions(4)})
        (described,) = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 4

        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.ms": "70000"})])
        (answer,) = await admin.describe_configs([resource])
        ((_, _, _, _, entries),) = answer.resources
        assert {entry[0]: entry[1] for entry in entries}["segment.ms"] == "70000"

        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            for i in range(10):
                await producer.send_and_wait(topic, b"%d" % i, partition=0)
        deleted = await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(6)})
        assert deleted == {TopicPartition(topic, 0): 6}
        cluster = await admin.describe_cluster()
        assert [node["port"] for node in cluster["brokers"]] == [broker.port]
        gone = await admin.delete_topics([topic])
        assert gone.topic_error_codes[0][1] == 0
        assert topic not in await admin.list_topics()
    finally:
        await admin.close()


def test_kafka_python(broker: BrokerProcess, topic: str) -> None:
    from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
    from kafka.errors import TopicAlreadyExistsError

    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        new_topic = NewTopic(
            topic, num_partitions=2, replication_factor=1, topic_configs={"segment.ms": "60000"}
        )
        admin.create_topics([new_topic])
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics([new_topic])
        admin.wait_for_topics([topic])
        (described,) = admin.describe_topics([topic])
        assert len(described["partitions"]) == 2
        admin.create_partitions({topic: 4})
        (described,) = admin.describe_topics([topic])
        assert len(described["partitions"]) == 4

        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.ms": "70000"})
        admin.alter_configs([resource])
        configs = admin.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all"
        )
        assert "70000" in str(configs)

        with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            for i in range(10):
                producer.send(topic, b"%d" % i, partition=0).get(timeout=WAIT_S)
        at = TopicPartition(topic, 0)
        admin.delete_records({at: 6})
        assert confluent.earliest(broker.bootstrap, topic) == 6
        assert "10" in str(admin.list_partition_offsets({at: -1}))
        assert topic in str(admin.describe_log_dirs())
        assert topic in str(admin.describe_topic_partitions([topic]))
        assert str(broker.port) in str(admin.describe_cluster())
        admin.describe_producers([at])
        admin.delete_topics([topic])
        confluent.wait_until(lambda: topic not in str(admin.list_topics()), "gone from the list")
    finally:
        admin.close()


@pytest.mark.java
def test_java(broker: BrokerProcess, topic: str, java_class_path: str) -> None:
    """The story is in java/src/main/java/Client.java."""
    assert java.run(java_class_path, "Client", "admin", broker.bootstrap, topic).endswith("ok\n")


def test_kcat_lists_and_queries(broker: BrokerProcess, topic: str) -> None:
    import json
    import subprocess

    records = [Record(None, b"x", (), EPOCH_MS + time) for time in (0, 100, 200)]
    confluent.make_topic(broker.bootstrap, topic)
    confluent.write_one_batch_each(broker.bootstrap, topic, records)
    listed = subprocess.run(["kcat", "-b", broker.bootstrap, "-L", "-J"], capture_output=True, check=True)
    topics = {entry["topic"]: entry for entry in json.loads(listed.stdout)["topics"]}
    assert [partition["partition"] for partition in topics[topic]["partitions"]] == [0]
    command = ["kcat", "-b", broker.bootstrap, "-Q", "-t", f"{topic}:0:{EPOCH_MS + 50}"]
    queried = subprocess.run(command, capture_output=True, check=True, text=True)
    assert queried.stdout.strip() == f"{topic} [0] offset 1"
