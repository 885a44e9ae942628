"""From the last release to the present code and back: the directories of a broker, and a cluster that is
rolled while it serves. The release is taken out of the repository's history, by the commit that
``CHANGELOG.md`` names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.integration.conftest import StartBroker, assert_no_traceback
from tests.integration.support import confluent
from tests.integration.support.clients import Client
from tests.integration.support.cluster import ProcessCluster, SqliteEngine
from tests.integration.support.load import Load
from tests.integration.support.records import numbered
from tests.integration.support.release import ROOT, broker_command, unpack_last_release

pytestmark = pytest.mark.minikafka_only

PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
}
RECORDS = 200
COMMITTED = 20


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the last release's broker."""
    return broker_command(unpack_last_release(tmp_path_factory.mktemp("release")))


class Contents:
    """What one broker after the other leaves: in each round records, a transaction that commits and one that
    does not, an offset of a group, a user and an ACL."""

    def __init__(self) -> None:
        self._rounds = 0

    def add(self, bootstrap: str) -> None:
        """One more round."""
        number = self._rounds
        self._rounds += 1
        confluent.make_topic(bootstrap, f"plain-{number}", config={"segment.bytes": 1 << 20})
        for topic in {f"plain-{number}", "plain-0"}:
            records = [numbered(each, size=3000) for each in range(RECORDS)]
            confluent.write(bootstrap, topic, records, compression_type=("zstd", "lz4")[number % 2])
        self._transactions(bootstrap, number)
        consumer = confluent.make_consumer(bootstrap, group_id=f"group-{number}")
        consumer.commit(offsets=[TopicPartition("plain-0", 0, 17 + number)], asynchronous=False)
        consumer.close()
        admin = confluent.admin(bootstrap)
        user = UserScramCredentialUpsertion(
            f"user-{number}", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret"
        )
        for done in (
            *admin.alter_user_scram_credentials([user]).values(),
            *admin.create_acls([_acl(number)]).values(),
        ):
            done.result(confluent.DEADLINE_S)

    def check(self, bootstrap: str) -> None:
        """All rounds are there, for a client of whatever broker this is."""
        for number in range(self._rounds):
            count = RECORDS * (self._rounds if number == 0 else 1)
            found = confluent.read(bootstrap, f"plain-{number}", count)
            expected = [numbered(each, size=3000) for each in range(RECORDS)] * (count // RECORDS)
            assert [(one.key, one.value) for one in found] == [(one.key, one.value) for one in expected]
            consumer = confluent.make_consumer(bootstrap, group_id=f"group-{number}")
            (committed,) = consumer.committed([TopicPartition("plain-0", 0)], timeout=confluent.DEADLINE_S)
            consumer.close()
            assert committed.offset == 17 + number
        values = confluent.read(
            bootstrap, "transactional", COMMITTED * self._rounds, isolation_level="read_committed"
        )
        assert {one.value for one in values} == {b"committed %d" % each for each in range(self._rounds)}
        admin = confluent.admin(bootstrap)
        names = [f"user-{number}" for number in range(self._rounds)]
        for user in admin.describe_user_scram_credentials(names).values():
            assert [one.iterations for one in user.result(confluent.DEADLINE_S).scram_credential_infos] == [
                4096
            ]
        every = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        assert set(admin.describe_acls(every).result(confluent.DEADLINE_S)) == set(
            map(_acl, range(self._rounds))
        )

    def _transactions(self, bootstrap: str, number: int) -> None:
        if number == 0:
            confluent.make_topic(bootstrap, "transactional")
        producer = confluent.make_producer(bootstrap, transactional_id="one", linger_ms=0)
        producer.init_transactions(confluent.DEADLINE_S)
        for value, end in (
            (b"aborted", producer.abort_transaction),
            (b"committed %d" % number, producer.commit_transaction),
        ):
            producer.begin_transaction()
            for _ in range(COMMITTED):
                producer.produce("transactional", value=value)
            producer.flush(confluent.DEADLINE_S)
            end(confluent.DEADLINE_S)


def _acl(number: int) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        f"plain-{number}",
        ResourcePatternType.LITERAL,
        f"User:user-{number}",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )


def test_a_directory_goes_to_the_present_code_and_back(start_broker: StartBroker, release: list[str]) -> None:
    """Twice, the first time with clean stops and the second after SIGKILL, so that each recovers the other's
    logs."""
    broker = start_broker(properties=PROPERTIES, command=release)
    contents = Contents()
    contents.add(broker.bootstrap)
    for kills in (False, True):
        for command in (broker_command(ROOT), release):
            if kills:
                broker.kill()
            else:
                assert broker.stop() == 0
            broker.command = command
            broker.start()
            contents.check(broker.bootstrap)
            contents.add(broker.bootstrap)
    contents.check(broker.bootstrap)


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path, release: list[str]) -> Iterator[ProcessCluster]:
    """Of the release, on SQLite."""
    made = ProcessCluster(tmp_path, SqliteEngine(tmp_path), command=release)
    request.node.brokers = list(made.brokers.values())
    yield made.start()
    made.close()
    for broker in made.brokers.values():
        assert_no_traceback(broker)


def test_a_cluster_is_rolled_to_the_present_code_under_load(
    cluster: ProcessCluster, clients: dict[str, Client]
) -> None:
    topics = ("one", "two")
    for topic in topics:
        cluster.make_topic(topic)
    with Load(cluster.bootstrap, topics) as load:
        for broker in cluster.brokers.values():
            assert broker.stop() == 0
            broker.command = broker_command(ROOT)
            broker.start()
            cluster.wait_until_whole(*topics)
    load.check(cluster.bootstrap, clients["kafka-python"])
