"""What a secured broker answers: to the requests of the authorisation table, and to who is not yet in.

The same requests go to Apache Kafka and to this broker, over sockets, with this project's codec. What Kafka
says is kept in ``tests/support/data``, so that a comparison needs no Java; ``python -m
tests.integration.support.security_recording`` records it again.

What a controller and its brokers ask each other is recorded from Kafka 3.9, which has such requests, on
ZooKeeper.

Each set of rights that the table needs belongs to a user of its own, who has them from the start: nothing
waits for a right to be known. The errors are names; of what is left out or not, the number is recorded.
"""

from __future__ import annotations

import json
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from minikafka.errors import ErrorCode
from minikafka.protocol.records.records import Record, build_batch
from minikafka.protocol.wire.api_versions import ANSWERED, BETWEEN_BROKERS, FLEXIBLE_SINCE, ApiKey
from minikafka.protocol.wire.codec import AnyBody, decode_response, encode_request
from minikafka.protocol.wire.schema import message_schema
from minikafka.security.acl import AclOperation, AclPermissionType, PatternType
from tests.integration.support import java
from tests.integration.support.process import BrokerProcess, KafkaOnZooKeeper, KafkaProcess
from tests.support import kafka_control_requests
from tests.support.authorization_table import (
    ABSENT,
    DOOMED,
    GROUP,
    MODERN_GROUP,
    OWNER,
    RULES,
    TOKEN_ID,
    TOPIC,
    TRANSACTIONAL_ID,
    Given,
    Rule,
    filled,
    fitting,
    found_at,
    on_topic,
)
from tests.support.fake_authorizer import Right
from tests.support.ports import free_port
from tests.support.security_exchanges import DESCRIBER, EXCHANGES, NOBODY, WITHOUT_SECRET_KEY, Asked, Exchange
from tests.support.zookeeper import ZooKeeperServer

RECORDED: Final = Path(__file__).resolve().parents[2] / "support" / "data" / "kafka_security.json"
KAFKA_VERSION: Final = "4.4.0"
BETWEEN: Final = "between brokers"
"""The section of Kafka 3.9's answers."""
DEADLINE_S: Final = 60.0
ANSWER_DEADLINE_S: Final = 5.0
"""Kafka does not answer everything."""
PASSWORD: Final = "a long secret"
PLAIN_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_LOGIN: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required"

Found = dict[str, list[str] | int]
"""By versions, ``first-last``: what stood there."""


def rules() -> Iterator[tuple[str, Rule]]:
    """With a name of its own each."""
    seen: dict[str, int] = {}
    for rule in RULES:
        name = str(rule)
        seen[name] = seen.get(name, 0) + 1
        yield (name if seen[name] == 1 else f"{name}-{seen[name]}"), rule


def sets_of_rights() -> dict[frozenset[Right], str]:
    """Who has them."""
    users: dict[frozenset[Right], str] = {frozenset({on_topic(AclOperation.DESCRIBE)}): DESCRIBER}
    users[frozenset()] = NOBODY
    for rule in RULES:
        for rights in cases(rule).values():
            users.setdefault(frozenset(rights), f"user-{len(users)}")
    return users


def cases(rule: Rule) -> dict[str, tuple[Right, ...]]:
    """What who asks may do, by how the recording calls it."""
    return {"without": rule.given} | {
        f"with {right.operation.name} on {right.resource_type.name} {right.name}": (*rule.given, right)
        for right in rule.needs
    }


def broker_properties(port: int, plaintext_port: int, *, with_tokens: bool = True) -> dict[str, str]:
    """What Kafka and this broker have in common."""
    users = ["admin", OWNER.removeprefix("User:"), *sets_of_rights().values()]
    plain = " ".join(f'user_{user}="{PASSWORD}"' for user in users)
    tokens = {"delegation.token.secret.key": "a longer secret"} if with_tokens else {}
    return tokens | {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{plaintext_port}",
        "advertised.listeners": f"SASL_PLAINTEXT://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{plaintext_port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN_LOGIN} {plain};",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM_LOGIN};",
        "super.users": "User:admin;User:ANONYMOUS",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "connection.failed.authentication.delay.ms": "0",
        "group.initial.rebalance.delay.ms": "0",
    }


def kafka_properties(port: int, plaintext_port: int, **options: bool) -> dict[str, str]:
    properties = broker_properties(port, plaintext_port, **options)
    controller = free_port()
    return properties | {
        "listeners": f"{properties['listeners']},CONTROLLER://127.0.0.1:{controller}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": ",".join(
            f"{listener}:{protocol}"
            for listener, protocol in (
                ("CONTROLLER", "PLAINTEXT"),
                ("PLAINTEXT", "PLAINTEXT"),
                ("SASL_PLAINTEXT", "SASL_PLAINTEXT"),
            )
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    }


class Closed(ConnectionError):
    """The broker hung up instead of an answer."""


class Client:
    """A connection that speaks with this project's codec."""

    def __init__(self, port: int, *, deadline_s: float = DEADLINE_S) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=deadline_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._socket.close()

    def ask(self, key: ApiKey, version: int, body: AnyBody) -> Any:
        """The body of the answer. Raises Closed."""
        if isinstance(body, Mapping):
            body = fitting(message_schema(key, version, "request").body, body)
        frame = encode_request(
            api_key=key, api_version=version, correlation_id=7, client_id="test", body=body
        )
        self.send(frame[4:])
        return decode_response(api_key=key, api_version=version, frame=self.receive())[1]

    def send(self, frame: bytes) -> None:
        """Without its size. Raises Closed."""
        try:
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        except (ConnectionResetError, BrokenPipeError) as error:
            raise Closed from error

    def receive(self) -> bytes:
        """A frame without its size. Raises Closed."""
        return self._receive(int.from_bytes(self._receive(4), "big"))

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                chunk = self._socket.recv(size - len(data))
            except ConnectionResetError as error:
                raise Closed from error
            if not chunk:
                raise Closed
            data += chunk
        return data

    def log_in(self, user: str, password: str = PASSWORD) -> Any:
        """With PLAIN; returns the answer to SaslAuthenticate."""
        shaken = self.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        assert shaken.error_code == ErrorCode.NONE, shaken
        return self.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": f"\0{user}\0{password}".encode()})


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.01)


class World:
    """What the table names, on a broker with the properties above."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._users = sets_of_rights()
        self._clients: dict[str, Client] = {}
        self._given: dict[Given, Any] = {}
        self._ask = self.as_user("admin").ask

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def with_rights(self, rights: tuple[Right, ...]) -> Client:
        """Of the user who has them."""
        return self.as_user(self._users[frozenset(rights)])

    def as_user(self, user: str) -> Client:
        if user not in self._clients:
            client = self._clients[user] = Client(self._port)
            assert client.log_in(user).error_code == ErrorCode.NONE, user
        return self._clients[user]

    def prepare(self) -> None:
        self._create_topic(TOPIC, 2)
        for key_type, key in ((0, GROUP), (0, MODERN_GROUP), (1, TRANSACTIONAL_ID)):
            body = {"key_type": key_type, "coordinator_keys": [key]}
            until(
                lambda body=body: (  # type: ignore[misc]
                    self._ask(ApiKey.FIND_COORDINATOR, 6, body).coordinators[0].error_code == ErrorCode.NONE
                ),
                f"{key} has a coordinator",
            )
        partition = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
        offset = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": TOPIC, "partitions": [partition | {"committed_leader_epoch": -1}]}],
        }
        self._until_done(ApiKey.OFFSET_COMMIT, 8, offset, "topics[].partitions[].error_code")
        self._join_modern_group()
        self._begin_transaction()
        token = self.as_user(OWNER.removeprefix("User:")).ask(
            ApiKey.CREATE_DELEGATION_TOKEN,
            3,
            {"owner_principal_type": None, "owner_principal_name": None, "renewers": [], "max_lifetime": -1},
        )
        assert token.error_code == ErrorCode.NONE, token
        self.create_acls(token.token_id)
        record = [Record(0, 0, None, b"v", ())]
        ids = {"producer_id": 999, "producer_epoch": 0, "base_sequence": 0}
        self._given |= {
            Given.RECORDS: build_batch(record),
            Given.TRANSACTIONAL_RECORDS: build_batch(record, transactional=True, **ids),
        }

    def _until_done(self, key: ApiKey, version: int, body: Mapping[str, Any], at: str) -> Any:
        answer = None

        def is_done() -> bool:
            nonlocal answer
            answer = self._ask(key, version, body)
            return set(found_at(answer, at)) == {ErrorCode.NONE}

        until(is_done, f"{key.name}, but {answer}")
        return answer

    def _begin_transaction(self) -> None:
        body = {
            "transactional_id": TRANSACTIONAL_ID,
            "transaction_timeout": 900_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        producer = self._until_done(ApiKey.INIT_PRODUCER_ID, 5, body, "error_code")
        added = {
            "v3_and_below_transactional_id": TRANSACTIONAL_ID,
            "v3_and_below_producer_id": producer.producer_id,
            "v3_and_below_producer_epoch": producer.producer_epoch,
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
        }
        at = "results_by_topic_v3_and_below[].results_by_partition[].partition_error_code"
        self._until_done(ApiKey.ADD_PARTITIONS_TO_TXN, 3, added, at)

    def _join_modern_group(self) -> None:
        member = {
            "group_id": MODERN_GROUP,
            "member_id": "member",
            "member_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": 60_000,
            "subscribed_topic_names": [TOPIC],
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": [],
        }
        self._until_done(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, member, "error_code")

    def create_acls(self, token_id: str) -> None:
        """All users' rights; ``token_id``: what the right to describe a token names."""
        creations = [
            {
                "resource_type": right.resource_type,
                "resource_name": token_id if right.name == TOKEN_ID else right.name,
                "resource_pattern_type": PatternType.LITERAL,
                "principal": f"User:{user}",
                "host": "*",
                "operation": right.operation,
                "permission_type": AclPermissionType.ALLOW,
            }
            for rights, user in self._users.items()
            for right in rights
        ]
        self._until_done(ApiKey.CREATE_ACLS, 3, {"creations": creations}, "results[].error_code")
        every = {
            "resource_type_filter": 1,
            "resource_name_filter": None,
            "pattern_type_filter": 1,
            "principal_filter": None,
            "host_filter": None,
            "operation": 1,
            "permission_type": 1,
        }
        until(
            lambda: (
                len(found_at(self._ask(ApiKey.DESCRIBE_ACLS, 3, every), "resources[].acls[]"))
                == len(creations)
            ),
            "the broker knows the ACLs",
        )

    def _topic(self, name: str) -> Any:
        body = {
            "topics": [{"name": name, "topic_id": None}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        return self._ask(ApiKey.METADATA, 12, body).topics[0]

    def _create_topic(self, name: str, partitions: int = 1) -> Any:
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        body = {"topics": [topic], "timeout": 10_000, "validate_only": False}
        made = self._ask(ApiKey.CREATE_TOPICS, 7, body).topics[0]
        known = None

        def is_known() -> bool:
            """The new one: the broker may not know yet that the last of that name is gone."""
            nonlocal known
            known = self._topic(name)
            return _is_led(known) and made.topic_id in (None, known.topic_id)

        until(is_known, f"{name} has leaders")
        return known.topic_id

    def _delete_topic(self, name: str) -> None:
        body = {"topics": [{"name": name, "topic_id": None}], "timeout": 10_000}

        def is_gone() -> bool:
            self._ask(ApiKey.DELETE_TOPICS, 6, body)
            return bool(self._topic(name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

        until(is_gone, f"{name} is deleted")

    def found(self, rule: Rule, rights: tuple[Right, ...], version: int) -> list[Any] | None:
        """What stands there for one with these rights. None: the broker hung up."""
        body = rule.body
        if isinstance(body, Mapping):
            named = repr(body)
            if DOOMED in named or Given.DOOMED_ID.name in named:
                self._given[Given.DOOMED_ID] = self._create_topic(DOOMED)
            if MODERN_GROUP in named:
                self._join_modern_group()
            self._given[Given.TOPIC_ID] = self._topic(TOPIC).topic_id
            body = filled(body, self._given)
        user = self._users[frozenset(rights)]
        try:
            answer = self.as_user(user).ask(rule.api, version, body)
        except Closed:
            self._clients.pop(user).close()
            return None
        if isinstance(body, Mapping) and body.get("allow_auto_topic_creation") and rights != rule.given:
            until(lambda: _is_led(self._topic(ABSENT)), "the topic is there")
            self._delete_topic(ABSENT)
        return found_at(answer, rule.at)


def _is_led(topic: Any) -> bool:
    return topic.error_code == ErrorCode.NONE and all(
        each.error_code == ErrorCode.NONE for each in topic.partitions
    )


def in_ranges(by_version: Mapping[int, Any]) -> dict[str, Any]:
    """Versions that follow each other and are answered alike, as one."""
    ranges: list[tuple[int, int, Any]] = []
    for version, found in by_version.items():
        if ranges and ranges[-1][1:] == (version - 1, found):
            ranges[-1] = (ranges[-1][0], version, found)
        else:
            ranges.append((version, version, found))
    return {f"{first}-{last}": found for first, last, found in ranges}


def record_authorization(port: int) -> dict[str, dict[str, Found]]:
    """By rule and case: what the broker on this port answers."""
    world = World(port)
    try:
        world.prepare()
        recorded: dict[str, dict[str, Found]] = {}
        for name, rule in rules():
            if rule.api in BETWEEN_BROKERS:
                continue
            recorded[name] = {
                case: in_ranges(
                    {version: _named(rule, world.found(rule, rights, version)) for version in rule.spoken()}
                )
                for case, rights in cases(rule).items()
            }
        return recorded
    finally:
        world.close()


def _named(rule: Rule, found: list[Any] | None) -> list[str] | int | str:
    if found is None:
        return "closed"
    if rule.error is None:
        return len(found)
    return sorted({ErrorCode(each).name for each in found})


def record_between_brokers(
    port: int, versions: Callable[[ApiKey], range], error_code: Callable[[Client, Rule, int], int]
) -> dict[str, dict[str, Found]]:
    """By rule and case: what the broker on this port answers to the requests of a controller or broker."""
    world = World(port)
    try:
        world.create_acls(token_id="none")
        return {
            name: {
                case: in_ranges(
                    {
                        version: [ErrorCode(error_code(world.with_rights(rights), rule, version)).name]
                        for version in versions(rule.api)
                    }
                )
                for case, rights in cases(rule).items()
            }
            for name, rule in rules()
            if rule.api in BETWEEN_BROKERS
        }
    finally:
        world.close()


def record_kafka_between_brokers() -> dict[str, dict[str, Found]]:
    """Of an Apache Kafka on ZooKeeper that is started for it."""

    def error_code(client: Client, rule: Rule, version: int) -> int:
        client.send(kafka_control_requests.request(rule.api, version, 7))
        return kafka_control_requests.error_code(rule.api, version, client.receive())

    with tempfile.TemporaryDirectory() as directory:
        zookeeper = ZooKeeperServer(Path(directory)).start()
        ports = {name: free_port() for name in ("SASL_PLAINTEXT", "PLAINTEXT")}
        properties = broker_properties(*ports.values()) | {"zookeeper.connect": zookeeper.address}
        port = ports["SASL_PLAINTEXT"]
        broker = KafkaOnZooKeeper(Path(directory) / "kafka", properties=properties, port=port)
        try:
            broker.start()
            return record_between_brokers(port, kafka_control_requests.versions, error_code)
        finally:
            broker.close()
            zookeeper.kill()


def record_ours_between_brokers() -> dict[str, dict[str, Found]]:
    """Of a broker of this project that is started for it."""

    def versions(api: ApiKey) -> range:
        return range(BETWEEN_BROKERS[api].min, BETWEEN_BROKERS[api].max + 1)

    def error_code(client: Client, rule: Rule, version: int) -> int:
        return int(client.ask(rule.api, version, rule.body).error_code)

    with tempfile.TemporaryDirectory() as directory:
        broker, ports = start_ours(Path(directory))
        try:
            return record_between_brokers(ports["SASL_PLAINTEXT"], versions, error_code)
        finally:
            broker.close()


def record_before_login(port: int, *, after_handshake: bool) -> dict[str, dict[str, str]]:
    """By API and versions: whether a request without a body is answered or ends the connection."""
    recorded = {}
    for key in ApiKey:
        last = ANSWERED[key].max if key in ANSWERED else 0
        by_version = {
            version: _fate(port, key, version, after_handshake=after_handshake) for version in range(last + 2)
        }
        recorded[key.name] = in_ranges(by_version)
    return recorded


def _fate(port: int, key: ApiKey, version: int, *, after_handshake: bool) -> str:
    client = Client(port)
    try:
        if after_handshake:
            client.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        is_flexible = version >= FLEXIBLE_SINCE.get(key, version + 1)
        client.send(struct.pack(">hhih4s", key, version, 7, 4, b"test") + bytes(is_flexible))
        client.receive()
    except Closed:
        return "closed"
    finally:
        client.close()
    return "answered"


def record_exchanges(
    ports: Mapping[str, int], exchanges: Iterable[Exchange]
) -> dict[str, list[dict[str, Any] | str]]:
    """By exchange: the fields of each answer that are compared, ``closed`` for the one that did not come."""
    return {each.name: _exchanged(ports[each.listener], each) for each in exchanges}


def _exchanged(port: int, exchange: Exchange) -> list[dict[str, Any] | str]:
    client = Client(port, deadline_s=ANSWER_DEADLINE_S)
    answers: list[dict[str, Any] | str] = []
    try:
        if exchange.user is not None:
            assert client.log_in(exchange.user).error_code == ErrorCode.NONE, exchange.user
        for asked in exchange.asked:
            answer = client.ask(asked.api, asked.version, asked.body)
            answers.append(_compared(asked, answer, in_any_order=exchange.in_any_order))
    except Closed:
        answers.append("closed")
    except TimeoutError:
        answers.append("no answer")
    finally:
        client.close()
    return answers


def _compared(asked: Asked, answer: Any, *, in_any_order: bool) -> dict[str, Any]:
    columns = {}
    for path in asked.at:
        if has_path(asked, path):
            columns[path] = [_plain(path, value) for value in found_at(answer, path)]
    if in_any_order and len({len(column) for column in columns.values()}) == 1:
        rows = sorted(zip(*columns.values(), strict=True), key=repr)
        columns = {path: [row[index] for row in rows] for index, path in enumerate(columns)}
    return columns


def has_path(asked: Asked, path: str) -> bool:
    """Whether the version has that field."""
    names = {field.name for field in message_schema(asked.api, asked.version, "response").body.fields}
    return path.partition(".")[0].removesuffix("[]") in names


def _plain(path: str, value: Any) -> Any:
    if path.endswith("error_code"):
        return ErrorCode(value).name
    return value or None  # a message that is empty is none


def start_kafka(directory: Path, **options: bool) -> tuple[BrokerProcess, dict[str, int]]:
    """Apache Kafka, and the ports of its listeners."""
    ports = {name: free_port() for name in ("SASL_PLAINTEXT", "PLAINTEXT")}
    broker = KafkaProcess(
        directory / "kafka",
        classpath=java.class_path(KAFKA_VERSION),
        properties=kafka_properties(*ports.values(), **options),
        port=ports["SASL_PLAINTEXT"],
    )
    return broker.start(), ports


def start_ours(directory: Path, **options: bool) -> tuple[BrokerProcess, dict[str, int]]:
    ports = {name: free_port() for name in ("SASL_PLAINTEXT", "PLAINTEXT")}
    properties = broker_properties(*ports.values(), **options)
    port = ports["SASL_PLAINTEXT"]
    return BrokerProcess(directory / "ours", properties=properties, port=port).start(), ports


def record(start: Callable[..., tuple[BrokerProcess, dict[str, int]]]) -> dict[str, Any]:
    """All that is compared, of brokers that are started for it."""
    with tempfile.TemporaryDirectory() as directory:
        broker, ports = start(Path(directory))
        try:
            port = ports["SASL_PLAINTEXT"]
            recorded = {
                "authorization": record_authorization(port),
                "before the handshake": record_before_login(port, after_handshake=False),
                "after the handshake": record_before_login(port, after_handshake=True),
                "exchanges": record_exchanges(ports, EXCHANGES),
            }
        finally:
            broker.close()
    with tempfile.TemporaryDirectory() as directory:
        broker, ports = start(Path(directory), with_tokens=False)
        try:
            recorded["exchanges"] |= record_exchanges(ports, WITHOUT_SECRET_KEY)
        finally:
            broker.close()
    return recorded


def main() -> None:
    kafka: dict[str, Any] = {"kafka": KAFKA_VERSION} | record(start_kafka)
    on_zookeeper = {"kafka on ZooKeeper": KafkaOnZooKeeper.VERSION, BETWEEN: record_kafka_between_brokers()}
    RECORDED.write_text(as_text(kafka | on_zookeeper))


def as_text(recorded: Mapping[str, Any]) -> str:
    """A line for each rule, API and exchange."""
    sections = []
    for name, section in recorded.items():
        if isinstance(section, Mapping):
            lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in section.items()]
            sections.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
        else:
            sections.append(f" {json.dumps(name)}: {json.dumps(section)}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


if __name__ == "__main__":
    main()
