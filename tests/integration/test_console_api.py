"""The console's API on real brokers: the whole cluster from any of them, while one of them is away, where
clients log in, beside Apache Kafka; and what it refuses."""

from __future__ import annotations

import base64
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import confluent_kafka
import pytest

from minikafka.cli.reassign import command as reassign
from minikafka.security.jaas import PLAIN_LOGIN_MODULE
from tests.integration.conftest import StartBroker, StartCluster
from tests.integration.support import confluent
from tests.integration.support.cluster import ProcessCluster
from tests.integration.support.console import running_console
from tests.integration.support.process import BrokerProcess, KafkaProcess
from tests.integration.support.records import Record
from tests.support.certificates import CertificateAuthority
from tests.support.ports import free_port
from tests.support.schema_registry import SchemaRegistry

USER, PASSWORD = "ops", "a-password"
OPS = {"authorization": "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()}
ONE_GROUP_PARTITION = {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}
DAY = {"retention.ms": 24 * 3_600_000}
DEADLINE_S = 60


class Answer(NamedTuple):
    status: int
    text: str

    @property
    def document(self) -> Any:
        assert self.status == 200, self
        return json.loads(self.text)


class Api:
    """Of one HTTP port."""

    def __init__(self, port: int, headers: Mapping[str, str] | None = None) -> None:
        self.port = port
        self.headers = dict(headers or {})

    def ask(self, path: str, body: object = None, **headers: str) -> Answer:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers=self.headers | {name.replace("_", "-"): value for name, value in headers.items()},
        )
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                return Answer(answer.status, answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read().decode())

    def get(self, path: str) -> Any:
        return self.ask(path).document

    def change(self, path: str, **body: object) -> Answer:
        return self.ask(path, body, content_type="application/json")


def http_port(broker: BrokerProcess) -> int:
    return int(broker.properties["http.port"])


def commit(bootstrap: str, group: str, topic: str, *offsets: int) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    at = [confluent_kafka.TopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]

    def is_done() -> bool:
        try:
            consumer.commit(offsets=at, asynchronous=False)
        except confluent_kafka.KafkaException as error:
            assert error.args[0].code() == confluent_kafka.KafkaError.NOT_COORDINATOR, error
            return False
        return True

    confluent.wait_until(is_done, "the offsets are committed")
    consumer.close()


def texts(answer: Any) -> list[str]:
    return [each["value"]["text"] for each in answer["messages"]]


@pytest.fixture
def cluster(start_cluster: StartCluster) -> ProcessCluster:
    properties = {
        **ONE_GROUP_PARTITION,
        "http.basic.auth.users": f"{USER}:{PASSWORD}",
        "http.admin": "true",
        "auto.leader.rebalance.enable": "false",
    }
    return start_cluster(properties=properties)


@pytest.mark.minikafka_only
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_whole_cluster_from_any_broker_also_when_one_is_killed(cluster: ProcessCluster) -> None:
    apis = {node_id: Api(http_port(broker), OPS) for node_id, broker in cluster.brokers.items()}
    confluent.make_topic(cluster.bootstrap, "orders", partitions=3, replicas=3, config=DAY)
    for partition in range(3):
        records = [Record(b"k%d" % number, b'{"n":%d}' % number) for number in range(10)]
        confluent.write(cluster.bootstrap, "orders", records, partition=partition)
    commit(cluster.bootstrap, "packing", "orders", 4, 5, 6)

    for node_id, api in apis.items():
        found = api.get("cluster")
        assert found["asked_of"] == node_id
        assert [(each["node_id"], each["is_alive"], each["why_not"]) for each in found["brokers"]] == [
            (number, True, None) for number in (1, 2, 3)
        ]
        assert sum(each["is_controller"] for each in found["brokers"]) == 1
        assert all(each["log_bytes"] > 0 and each["started_at_ms"] > 0 for each in found["brokers"])
        assert {each["page"] for each in found["brokers"]} == {
            f"http://127.0.0.1:{other.port}/" for other in apis.values()
        }
        (orders,) = api.get("topics?filter=order")["topics"]
        assert (orders["partitions"], orders["replication_factor"], orders["records"]) == (3, 3, 30)
        assert len(api.get("messages?topic=orders&from=earliest")["messages"]) == 30
        (packing,) = api.get("groups")["groups"]
        assert (packing["group_id"], packing["state"], packing["lag"]) == ("packing", "Empty", 15)

    topic = apis[1].get("topic?name=orders")
    assert [each["high_watermark"] for each in topic["partitions"]] == [10, 10, 10]
    assert topic["groups"] == ["packing"]
    retention = next(each for each in topic["configs"] if each["name"] == "retention.ms")
    assert (retention["value"], retention["source"]) == ("86400000", "DYNAMIC_TOPIC_CONFIG")
    assert [(each["name"], each["source"]) for each in retention["synonyms"]] == [
        ("retention.ms", "DYNAMIC_TOPIC_CONFIG"),
        ("log.retention.ms", "STATIC_BROKER_CONFIG"),
        ("log.retention.hours", "DEFAULT_CONFIG"),
    ]

    reset_offsets(apis[2])
    watch_lag(apis[3])
    assert apis[2].get("reassignments") == {"reassignments": [], "left_out": 0}
    refused = apis[2].change("reassignments/cancel", topic="orders", partition=0)
    assert refused.status == 409 and "not being reassigned" in refused.text
    kinds = {(each["broker"], each["kind"]) for each in apis[1].get("events?newest=1000")["events"]}
    assert {(1, "started"), (2, "started"), (3, "started")} <= kinds
    assert apis[1].get("purgatory?broker=3")["broker"] == 3

    cluster.brokers[3].kill()
    survive(apis[1])


def reset_offsets(api: Api) -> None:
    """First only shown, then done; and not what has no sense."""
    plan = api.change("group/reset", group_id="packing", topic="orders", to="earliest").document
    assert [(each["from"], each["to"]) for each in plan["changes"]] == [(4, 0), (5, 0), (6, 0)]
    assert plan["is_done"] is False
    assert offsets_of(api) == [4, 5, 6]
    done = api.change(
        "group/reset", group_id="packing", topic="orders", partitions=[1], to="by:-2", dry_run=False
    )
    assert done.document["is_done"] is True
    assert offsets_of(api) == [4, 3, 6]
    beyond = api.change("group/reset", group_id="packing", to="offset:99").document["changes"]
    assert [(each["to"], each["note"]) for each in beyond] == [(10, "99 is behind the log's end")] * 3
    for body, status in (
        ({"group_id": "nobody", "to": "earliest"}, 404),
        ({"group_id": "packing", "topic": "orders", "to": "tomorrow"}, 400),
        ({"group_id": "packing", "to": "earliest", "partitions": [0]}, 400),
        ({"group_id": "packing", "to": "earliest", "topic": "nowhere"}, 404),
        ({"group": "packing"}, 400),
    ):
        assert api.change("group/reset", **body).status == status, body


def offsets_of(api: Api) -> list[int]:
    return [each["committed"] for each in api.get("group?id=packing")["offsets"]]


def watch_lag(api: Api) -> None:
    """Who is looked at has a history soon."""
    confluent.wait_until(lambda: api.get("group?id=packing")["lag_history"], "the lag is sampled")
    assert api.get("group?id=packing")["lag_history"][-1][1] == 17


def survive(api: Api) -> None:
    """Broker 3 is gone: everything is still there, and says what is not."""

    def third() -> Any:
        return api.get("cluster")["brokers"][2]

    def gone() -> bool:
        return not third()["is_alive"]

    confluent.wait_until(lambda: third()["why_not"], "the answer from before the kill is not kept any more")
    found = third()
    if found["is_alive"]:  # its session still lives
        assert "cannot connect" in found["why_not"], found
        assert found["version"] is None
    confluent.wait_until(gone, "broker 3 is not registered")
    assert third()["why_not"] == "it is not registered"
    confluent.wait_until(
        lambda: api.get("cluster")["under_replicated_partitions"] >= 3, "the ISRs are smaller"
    )
    assert len(api.get("messages?topic=orders&from=earliest")["messages"]) == 30
    assert api.get("events")["not_answered"] == {"3": "it is not registered"}
    reasons = api.get("why?subject=partition&topic=orders&partition=0&sample_ms=100")["reasons"]
    assert any(each["code"].startswith("under-replicated") for each in reasons), reasons
    assert api.ask("purgatory?broker=3").status == 502


@pytest.mark.minikafka_only
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_reassignment_shows_what_is_left_and_is_cancelled(cluster: ProcessCluster, tmp_path: Path) -> None:
    api = Api(http_port(cluster.brokers[2]), OPS)
    confluent.make_topic(cluster.bootstrap, "moved", replicas=2)
    confluent.write(cluster.bootstrap, "moved", [Record(None, os.urandom(50_000)) for _ in range(60)])
    (before,) = api.get("topic?name=moved")["partitions"]
    kept, gone = before["replicas"]
    (coming,) = {1, 2, 3} - {kept, gone}
    plan = {"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [kept, coming]}]}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    named = ["--reassignment-json-file", str(path), "-b", cluster.bootstrap]
    assert reassign.main(["execute", *named, "--throttle", "1000", "--no-wait"]) == 0

    (move,) = api.get("reassignments")["reassignments"]
    assert (move["topic"], move["partition"], move["adding"], move["removing"]) == (
        "moved",
        0,
        [coming],
        [gone],
    )
    assert 0 < move["bytes_left"] <= move["bytes_total"]
    assert move["bytes_total"] == before["bytes"] > 3_000_000

    def rate() -> int | None:
        (now,) = api.get("reassignments")["reassignments"]
        return now["bytes_per_s"]  # type: ignore[no-any-return]

    confluent.wait_until(lambda: rate() is not None, "it was looked at twice")
    answer = api.get("why?subject=reassignment&topic=moved&partition=0&sample_ms=300")
    assert answer["reasons"][0]["code"].startswith("reassignment.")
    assert api.change("reassignments/cancel", topic="moved", partition=0).document == {"is_done": True}
    confluent.wait_until(lambda: not api.get("reassignments")["reassignments"], "nothing is under way")

    def replicas() -> list[int]:
        (now,) = api.get("topic?name=moved")["partitions"]
        return now["replicas"]  # type: ignore[no-any-return]

    confluent.wait_until(lambda: replicas() == [kept, gone], "the replicas are as they were")


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(properties={"http.port": free_port(), **ONE_GROUP_PARTITION})


@pytest.mark.minikafka_only
def test_messages_are_found_and_followed(broker: BrokerProcess) -> None:
    api = Api(http_port(broker))
    confluent.make_topic(broker.bootstrap, "log")
    records = [
        Record(b"even" if number % 2 == 0 else b"odd", b"line %d" % number, headers=[("n", b"%d" % number)])
        for number in range(100)
    ]
    confluent.write(broker.bootstrap, "log", records)

    newest = api.get("messages?topic=log&limit=3&from=last:3")
    assert texts(newest) == ["line 97", "line 98", "line 99"]
    assert (newest["is_end"], newest["stopped_by"]) == (True, "limit")
    confluent.write(broker.bootstrap, "log", [Record(None, b"\xff\x00")])
    tail = api.get(f"messages?topic=log&next={newest['next']}")
    (found,) = tail["messages"]
    assert (found["offset"], found["key"], found["value"]["format"]) == (100, None, "hex")
    assert (tail["is_end"], tail["stopped_by"]) == (True, "end")

    assert texts(api.get("messages?topic=log&from=offset:10&limit=2")) == ["line 10", "line 11"]
    assert texts(api.get("messages?topic=log&from=earliest&key=odd&limit=2")) == ["line 1", "line 3"]
    assert texts(api.get("messages?topic=log&from=earliest&header=n%3D42")) == ["line 42"]
    none = api.get("messages?topic=log&from=earliest&contains=nothing")
    assert (none["messages"], none["scanned"], none["is_end"]) == ([], 101, True)
    first = api.get("messages?topic=log&from=earliest&limit=1")["messages"][0]
    at_ms = first["timestamp_ms"]
    assert texts(api.get(f"messages?topic=log&from=time:{at_ms}&limit=1")) == ["line 0"]
    assert texts(api.get("messages?topic=log&from=time:4102444800000")) == []

    for query, status in (
        ("topic=nowhere", 404),
        ("topic=log&partition=1", 404),
        ("topic=log&from=yesterday", 400),
        ("topic=log&limit=100000", 400),
        ("topic=log&next=7:1", 400),
        ("topic=log&format=xml", 400),
        ("topic=log&format=avro", 400),
        ("topic=log&registry=http://169.254.169.254/", 400),
    ):
        assert api.ask(f"messages?{query}").status == status, query


@pytest.mark.minikafka_only
def test_avro_is_shown_by_the_registry_that_is_configured(start_broker: StartBroker) -> None:
    with SchemaRegistry() as registry:
        order = {"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}]}
        registry.pages["/schemas/ids/7"] = {"schema": json.dumps(order)}
        broker = start_broker(properties={"http.port": free_port(), "http.registry.url": registry.url})
        api = Api(http_port(broker))
        confluent.make_topic(broker.bootstrap, "orders")
        framed = [b"\0\0\0\0\7\6pen", b"\0\0\0\0\x08\6pen"]
        confluent.write(broker.bootstrap, "orders", [Record(b"k", value) for value in framed])
        for format in ("auto", "avro"):
            values = [
                each["value"]
                for each in api.get(f"messages?topic=orders&from=earliest&format={format}")["messages"]
            ]
            assert [(each["format"], each["text"]) for each in values] == [
                ("avro", '{"item": "pen"}'),
                ("hex", framed[1].hex()),
            ]
        assert values[1]["why_not"] == "schema 8: the registry says 404"
        assert registry.asked == ["/schemas/ids/7", "/schemas/ids/8"]
        assert api.ask("messages?topic=orders&registry=http://127.0.0.1:1").status == 400


@pytest.mark.minikafka_only
def test_read_committed_sees_no_aborted_records_and_nobody_sees_markers(broker: BrokerProcess) -> None:
    api = Api(http_port(broker))
    confluent.make_topic(broker.bootstrap, "paid")
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "tx"})
    producer.init_transactions()
    for value, ends in (
        (b"aborted", producer.abort_transaction),
        (b"committed", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce("paid", value)
        producer.flush()
        ends()
    assert texts(api.get("messages?topic=paid&from=earliest&read_committed=true")) == ["committed"]
    assert texts(api.get("messages?topic=paid&from=earliest")) == ["aborted", "committed"]
    assert api.get("messages?topic=paid&from=earliest")["is_end"]


@pytest.mark.minikafka_only
def test_a_group_with_members_is_not_reset_and_shows_who_reads_what(start_broker: StartBroker) -> None:
    properties = {"http.basic.auth.users": f"{USER}:{PASSWORD}", "http.admin": "true"}
    broker = start_broker(properties={"http.port": free_port(), **ONE_GROUP_PARTITION, **properties})
    api = Api(http_port(broker), OPS)
    confluent.make_topic(broker.bootstrap, "orders")
    confluent.write(broker.bootstrap, "orders", [Record(None, b"x")])
    config = {"bootstrap.servers": broker.bootstrap, "auto.offset.reset": "earliest", "client.id": "packer"}
    consumer = confluent_kafka.Consumer({**config, "group.id": "packing"})
    consumer.subscribe(["orders"])
    try:
        confluent.wait_until(lambda: consumer.poll(0.5) is not None, "a record is consumed")
        (member,) = api.get("group?id=packing")["members"]
        assert (member["client_id"], member["assignment"]) == ("packer", [["orders", [0]]])
        (listed,) = api.get("groups")["groups"]
        assert (listed["members"], listed["state"]) == (1, "Stable")
        refused = api.change("group/reset", group_id="packing", topic="orders", to="latest", dry_run=False)
        assert refused.status == 409 and "Stable with 1 members" in refused.text
    finally:
        consumer.close()


@pytest.mark.minikafka_only
def test_changes_are_refused_to_strangers_other_sites_and_where_they_are_off(
    start_broker: StartBroker,
) -> None:
    users = {"http.basic.auth.users": f"{USER}:{PASSWORD}"}
    off = start_broker(properties={"http.port": free_port(), **users})
    on = start_broker(properties={"http.port": free_port(), "http.admin": "true", **users})
    wanted = {"group_id": "g", "to": "earliest"}

    refused = Api(http_port(off), OPS).change("group/reset", **wanted)
    assert refused == Answer(403, "http.admin is not true\n")
    assert Api(http_port(off), OPS).get("cluster")["can"]["change"] == "http.admin is not true"
    assert Api(http_port(on)).change("group/reset", **wanted).status == 401

    ops = Api(http_port(on), OPS)
    assert ops.get("cluster")["can"]["change"] is True
    own, json_type = f"http://127.0.0.1:{ops.port}", "application/json"
    assert ops.ask("group/reset", wanted, content_type=json_type, origin=own).status == 404  # no such group
    for headers in (
        {"content_type": json_type, "origin": "http://evil.example"},
        {"content_type": json_type, "origin": own, "sec_fetch_site": "cross-site"},
        {"content_type": "text/plain", "origin": own},
    ):
        assert ops.ask("group/reset", wanted, **headers).status == 403, headers
    assert ops.ask("group/reset").status == 405
    assert ops.ask("topics", {}).status == 405
    assert ops.change("group/reset", group_id="x" * 70_000, to="earliest").status == 413


@pytest.mark.minikafka_only
def test_where_clients_log_in_the_console_does_too_and_readers_see_what_they_may(
    start_broker: StartBroker,
) -> None:
    jaas = f'{PLAIN_LOGIN_MODULE} required username="broker" password="b-secret" user_broker="b-secret";'
    secured = {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{free_port()},PLAINTEXT://127.0.0.1:{free_port()}",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:broker;User:ANONYMOUS",
    }
    closed = start_broker(properties={**secured, "http.port": free_port()})
    api = Api(http_port(closed))
    confluent.make_topic(closed.bootstrap, "secrets")
    confluent.write(closed.bootstrap, "secrets", [Record(None, b"a secret")])
    assert [each["name"] for each in api.get("topics")["topics"]] == ["secrets"]
    found = api.get("cluster")
    assert found["brokers"][0]["why_not"] is None
    assert "authorized" in found["can"]["messages"]
    refused = api.ask("messages?topic=secrets")
    assert refused.status == 403 and "secret" not in refused.text
    access = api.get("access")
    assert access["acls"] is None and "readers of this page" in access["why_no_acls"]
    closed.close()

    secured["listeners"] = f"SASL_PLAINTEXT://127.0.0.1:{free_port()},PLAINTEXT://127.0.0.1:{free_port()}"
    shown = {"http.messages": "true", "http.basic.auth.users": f"{USER}:{PASSWORD}"}
    opened = start_broker(properties={**secured, **shown, "http.port": free_port()})
    api = Api(http_port(opened), OPS)
    confluent.make_topic(opened.bootstrap, "secrets")
    confluent.write(opened.bootstrap, "secrets", [Record(None, b"a secret")])
    assert texts(api.get("messages?topic=secrets&from=earliest")) == ["a secret"]
    access = api.get("access")
    assert (access["acls"], access["why_no_acls"]) == ([], None)
    assert Api(http_port(opened)).ask("topics").status == 401


# Beside a cluster


@pytest.fixture
def kafka(tmp_path: Path, java_class_path: str) -> Iterator[KafkaProcess]:
    broker = KafkaProcess(tmp_path / "kafka", classpath=java_class_path)
    confluent.is_patient = True
    broker.start()
    yield broker
    confluent.is_patient = False
    broker.close()


@pytest.mark.java
@pytest.mark.minikafka_only
def test_the_command_serves_apache_kafka(kafka: KafkaProcess) -> None:
    confluent.make_topic(kafka.bootstrap, "orders", partitions=2)
    confluent.write(kafka.bootstrap, "orders", [Record(b"k", b'{"n":1}', headers=[("h", b"v")])] * 3)
    commit(kafka.bootstrap, "packing", "orders", 1)
    with running_console(kafka.bootstrap) as address:
        port = urlsplit(address).port
        assert address.startswith("http:") and port is not None
        look_at_kafka(Api(port))


@pytest.mark.minikafka_only
def test_the_command_with_tls_is_for_who_has_a_certificate(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    confluent.make_topic(broker.bootstrap, "orders")
    confluent.write(broker.bootstrap, "orders", [Record(None, b"1")] * 3)
    commit(broker.bootstrap, "packing", "orders", 1)
    authority = CertificateAuthority()
    authority.issue("console", hosts=("127.0.0.1",)).write_pem(tmp_path / "console.pem")
    authority.write_pem(tmp_path / "ca.pem")
    tls = tmp_path / "tls.properties"
    tls.write_text(
        f"ssl.keystore.type=PEM\nssl.keystore.location={tmp_path / 'console.pem'}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={tmp_path / 'ca.pem'}\n"
        "ssl.client.auth=required\n"
    )
    without_certificate = ssl.create_default_context(cadata=authority.pem())
    ops = ssl.create_default_context(cadata=authority.pem())
    ops.load_cert_chain(authority.issue("ops").write_pem(tmp_path / "ops.pem"))
    with running_console(broker.bootstrap, f"--http-tls={tls}", "--admin") as address:
        assert address.startswith("https:")
        wanted = {"group_id": "packing", "topic": "orders", "to": "earliest", "dry_run": False}
        request = urllib.request.Request(
            f"{address}api/group/reset",
            data=json.dumps(wanted).encode(),
            headers={"content-type": "application/json"},
        )
        with pytest.raises((OSError, urllib.error.URLError)):
            urllib.request.urlopen(request, timeout=DEADLINE_S, context=without_certificate).close()
        with urllib.request.urlopen(request, timeout=DEADLINE_S, context=ops) as answer:
            assert [(each["from"], each["to"]) for each in json.load(answer)["changes"]] == [(1, 0)]


def look_at_kafka(api: Api) -> None:
    found = api.get("cluster")
    assert (found["software"], found["asked_of"]) == (None, None)
    (broker,) = found["brokers"]
    assert (broker["is_alive"], broker["why_not"], broker["version"]) == (True, None, None)
    assert broker["log_bytes"] > 0
    orders = next(each for each in api.get("topics")["topics"] if each["name"] == "orders")
    assert (orders["partitions"], orders["records"], orders["bytes"] > 0) == (2, 3, True)
    topic = api.get("topic?name=orders")
    assert topic["groups"] == ["packing"]
    assert any(each["documentation"] for each in topic["configs"])
    messages = api.get("messages?topic=orders&from=earliest")
    assert texts(messages) == ['{"n":1}'] * 3
    assert messages["messages"][0]["headers"][0][0] == "h"
    (group,) = api.get("groups")["groups"]
    assert (group["group_id"], group["lag"], group["members"]) == ("packing", 2, 0)
    assert [each["lag"] for each in api.get("group?id=packing")["offsets"]] == [2]
    assert api.get("reassignments")["reassignments"] == []
    assert "SECURITY_DISABLED" in api.get("access")["why_no_acls"]
    assert list(api.get("events")["not_answered"]) == ["1"]
    assert api.ask("purgatory?broker=1").status == 400
    assert "well" in api.get("why?subject=partition&topic=orders&partition=0&sample_ms=100")["sentence"]
    refused = api.change("group/reset", group_id="packing", to="earliest")
    assert (refused.status, refused.text) == (403, "--admin is not given\n")
