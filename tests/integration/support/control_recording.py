"""What a controller and its brokers say to each other through a day: a topic is created, a partition moved, a
broker killed and started again, a leader elected, the topic deleted, a broker stopped.

Relays stand between the brokers: each broker's inter-broker listener is advertised as its relay's port. They
pass all bytes on and keep the control requests (LeaderAndIsr, StopReplica, UpdateMetadata,
ControlledShutdown, AlterPartition, AllocateProducerIds). What differs between two runs of the same broker,
such as zxids, topic ids, ports and the order of topics in a request, is written as names.

``python -m tests.integration.support.control_recording`` records Apache Kafka 3.9.1 into
``control_of_kafka_3_9.jsonl`` beside this: one request a line, by step of the day and broker that it went to.
``test_recorded_control`` compares with a cluster of this project's brokers on ZooKeeper. What may differ,
``as_said_here`` and docs/explanation/control-plane.md say.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.wire import schema
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import read_request_header
from minikafka.protocol.wire.reading import compile_reader
from minikafka.protocol.wire.schema import field_name, message_schema
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess, KafkaOnZooKeeper
from tests.support.ports import free_port
from tests.support.zookeeper import ZooKeeperServer

RECORDED: Final = Path(__file__).with_name("control_of_kafka_3_9.jsonl")
TOPIC: Final = "orders"
CONTROLLER: Final = 1
BROKERS: Final = (1, 2, 3)
CONTROL: Final = frozenset(
    (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    )
)
PROPERTIES: Final = {
    "zookeeper.session.timeout.ms": "4000",
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
    "inter.broker.listener.name": "INTERNAL",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
}
DEADLINE_S: Final = 60.0
OWN_FIELDS: Final = frozenset(
    field_name(each.name)
    for structures in schema.OWN_FIELDS.values()
    for fields in structures.values()
    for each in fields
)
"""Which Apache Kafka has not, and skips."""
QUIET_S: Final = 1.5
"""A step of the day is over when so long no control request came."""


class ControlRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request, as it is compared."""

    step: str
    broker: int
    """That it went to."""
    api: str
    version: int
    fields: dict[str, Any]


class _Seen(NamedTuple):
    at_s: float
    broker: int
    frame: bytes


class ControlRelay:
    """Passes on what comes for one broker, and keeps its control requests."""

    def __init__(self, broker: int, target: int, keep: Callable[[_Seen], object]) -> None:
        self._broker = broker
        self._target = target
        self._keep = keep
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, name=f"relay to {broker}", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._server.accept()
            except OSError:
                return  # closed
            try:
                broker = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                peer.close()
                continue
            for source, sink, look in ((peer, broker, self._look), (broker, peer, None)):
                threading.Thread(target=self._pump, args=(source, sink, look), daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket, look: Callable[[bytearray], object] | None) -> None:
        pending = bytearray()
        try:
            while data := source.recv(1 << 16):
                if look is not None:
                    pending += data
                    look(pending)
                sink.sendall(data)
        except OSError:
            pass  # one of the two is gone; so is the other, now
        for each in (source, sink):
            each.close()

    def _look(self, pending: bytearray) -> None:
        while len(pending) >= 4:
            (size,) = struct.unpack_from(">i", pending)
            if len(pending) < 4 + size:
                return
            frame = bytes(pending[4 : 4 + size])
            del pending[: 4 + size]
            if int.from_bytes(frame[:2], "big") in CONTROL:
                self._keep(_Seen(time.monotonic(), self._broker, frame))

    def close(self) -> None:
        self._server.close()


class RecordedCluster:
    """Three brokers on a ZooKeeper, with relays between them. Broker 1 is the controller."""

    def __init__(self, directory: Path, zookeeper: str, *, of_kafka: bool) -> None:
        self._seen: list[_Seen] = []
        self._step = "start"
        self._taken = 0
        self.requests: list[ControlRequest] = []
        self.names = _Names()
        self.ports: dict[int, int] = {}
        self.relays: dict[int, ControlRelay] = {}
        self.brokers: dict[int, BrokerProcess] = {}
        for node_id in BROKERS:
            client, internal = free_port(), free_port()
            relay = ControlRelay(node_id, internal, self._seen.append)
            listeners = f"CLIENT://127.0.0.1:{client},INTERNAL://127.0.0.1:{{}}"
            properties = PROPERTIES | {
                "zookeeper.connect": zookeeper,
                "broker.id": str(node_id),
                "listeners": listeners.format(internal),
                "advertised.listeners": listeners.format(relay.port),
            }
            self.names.addresses |= {client: f"broker {node_id}", relay.port: f"broker {node_id}"}
            self.ports[node_id], self.relays[node_id] = client, relay
            kind = KafkaOnZooKeeper if of_kafka else BrokerProcess
            self.brokers[node_id] = kind(directory / f"broker-{node_id}", properties=properties, port=client)

    def next_step(self, name: str) -> None:
        """When what the last one has set off is over."""
        self.settle()
        self._step = name

    def settle(self) -> None:
        """Wait until for ``QUIET_S`` from now on nothing has come."""
        began_s = time.monotonic()

        def is_quiet() -> bool:
            last_s = max(began_s, self._seen[-1].at_s if self._seen else began_s)
            return time.monotonic() - last_s > QUIET_S

        confluent.wait_until(is_quiet, f"the end of {self._step}", deadline_s=DEADLINE_S)
        for each in self._seen[self._taken :]:
            self.requests.append(self.names.request(self._step, each))
        self._taken = len(self._seen)

    def ask(self, key: ApiKey, body: Mapping[str, Any]) -> Any:
        """Of the controller."""

        async def ask() -> Any:
            address = ("127.0.0.1", self.ports[CONTROLLER])
            client = await BrokerClient.connect(*address, client_id="operator", deadline_ms=20_000)
            try:
                return await client.request(key, body, deadline_ms=20_000)
            finally:
                await client.close()

        return asyncio.run(ask())

    def partitions(self) -> dict[int, Any]:
        """Leader and ISR of each, as the controller's broker knows them."""
        asked = {
            "topics": [{"topic_id": None, "name": TOPIC}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        (topic,) = self.ask(ApiKey.METADATA, asked).topics
        return {
            each.partition_index: (each.leader_id, sorted(each.replica_nodes), sorted(each.isr_nodes))
            for each in topic.partitions
        }

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        confluent.wait_until(condition, what, deadline_s=DEADLINE_S)


class _Names:
    """Names for what is different in each run."""

    def __init__(self) -> None:
        self.addresses: dict[int, str] = {}
        self._incarnations: dict[int, str] = {}
        self._counts = {node_id: count(1) for node_id in BROKERS}

    def request(self, step: str, seen: _Seen) -> ControlRequest:
        header = read_request_header(seen.frame)
        message = message_schema(header.api_key, header.api_version, "request")
        view = memoryview(seen.frame)
        entity, _ = compile_reader(message.body)(view, header.body_start, [100_000])
        key = ApiKey(header.api_key)
        asks = key in (ApiKey.CONTROLLED_SHUTDOWN, ApiKey.ALTER_PARTITION, ApiKey.ALLOCATE_PRODUCER_IDS)
        sender = getattr(entity, "broker_id", seen.broker) if asks else seen.broker
        fields = self._named("", entity, broker=sender)
        return ControlRequest(step, seen.broker, message.api_name, header.api_version, fields)

    def _named(self, name: str, value: Any, *, broker: int) -> Any:
        if hasattr(value, "_fields"):
            broker = getattr(value, "broker_id", getattr(value, "id", broker)) if name else broker
            named = {each: self._named(each, getattr(value, each), broker=broker) for each in value._fields}
            return {each: field for each, field in named.items() if field not in _NOTHING}
        if isinstance(value, UUID):
            return "the topic's"
        if name == "broker_epoch":
            return self._incarnation(broker, value)
        if name == "port":
            return self.addresses.get(value, value)
        if isinstance(value, tuple):
            found = [self._named(name, each, broker=broker) for each in value]
            return sorted(found, key=_place) if found and isinstance(found[0], dict) else found
        return value

    def _incarnation(self, broker: int, epoch: int) -> str | int:
        if epoch == -1:
            return epoch
        if epoch not in self._incarnations:
            self._incarnations[epoch] = f"broker {broker}, start {next(self._counts[broker])}"
        return self._incarnations[epoch]


_NOTHING: Final[tuple[Any, ...]] = (None, "", [], -1)
"""What a field is that a request leaves out; so both brokers' are compared without them."""
_PLACES: Final = ("topic_name", "name", "partition_index", "broker_id", "id", "listener")


def _place(entity: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(entity[name] for name in _PLACES if name in entity)


@contextmanager
def recorded_cluster(directory: Path, *, of_kafka: bool) -> Iterator[RecordedCluster]:
    zookeeper = ZooKeeperServer(directory).start()
    cluster = RecordedCluster(directory, zookeeper.address, of_kafka=of_kafka)
    try:
        yield cluster
    finally:
        for broker in cluster.brokers.values():
            broker.close()
        for relay in cluster.relays.values():
            relay.close()
        zookeeper.kill()


def day(cluster: RecordedCluster) -> list[ControlRequest]:
    """The whole day; what was said in it."""
    for node_id in BROKERS:
        cluster.next_step(f"start {node_id}")
        cluster.brokers[node_id].start()
    cluster.next_step("create")
    assignments = [
        {"partition_index": 0, "broker_ids": [2, 3]},
        {"partition_index": 1, "broker_ids": [3, 2]},
    ]
    topic = {"name": TOPIC, "num_partitions": -1, "replication_factor": -1, "assignments": assignments}
    cluster.ask(
        ApiKey.CREATE_TOPICS, {"topics": [topic | {"configs": []}], "timeout": 20_000, "validate_only": False}
    )
    cluster.next_step("reassign")
    moved = {"partition_index": 0, "replicas": [2, 1]}
    asked = {"timeout": 20_000, "topics": [{"name": TOPIC, "partitions": [moved]}]}
    cluster.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, asked)
    cluster.wait_for(lambda: cluster.partitions()[0] == (2, [1, 2], [1, 2]), "the partition has moved")
    cluster.next_step("kill 2")
    cluster.brokers[2].kill()
    cluster.wait_for(
        lambda: all(2 not in (leader, *isr) for leader, _, isr in cluster.partitions().values()), "2 is out"
    )
    cluster.next_step("start 2 again")
    cluster.brokers[2].start()
    cluster.wait_for(
        lambda: all(2 in isr for _, _, isr in cluster.partitions().values()), "2 is in the ISRs again"
    )
    cluster.next_step("elect")
    elected = [{"topic": TOPIC, "partitions": [0]}]
    cluster.ask(ApiKey.ELECT_LEADERS, {"election_type": 0, "topic_partitions": elected, "timeout": 20_000})
    cluster.wait_for(lambda: cluster.partitions()[0][0] == 2, "2 leads again")
    cluster.next_step("delete")
    cluster.ask(
        ApiKey.DELETE_TOPICS,
        {"topics": [{"name": TOPIC, "topic_id": None}], "topic_names": [TOPIC], "timeout": 20_000},
    )
    cluster.next_step("stop 3")
    cluster.brokers[3].stop()
    cluster.settle()
    return cluster.requests


class _Told(NamedTuple):
    """What does not depend on how a controller happens to put things together, by step and broker."""

    order: dict[tuple[str, int], list[str]]
    """The APIs in their order; several requests of one API in a row once."""
    states: dict[tuple[str, int, str, int], list[dict[str, Any]]]
    """By API and partition: the states of the partition in their order, each once."""
    alive: dict[tuple[str, int], list[Any]]
    """The live brokers."""
    asked: dict[tuple[str, str], list[dict[str, Any]]]
    """What brokers asked of the controller, by API."""


def _told(requests: Iterable[ControlRequest]) -> _Told:
    told = _Told({}, {}, {}, {})
    for each in requests:
        if each.broker == CONTROLLER:
            if "controller_id" not in each.fields:
                told.asked.setdefault((each.step, each.api), []).append(_as_kafka_asks(each.fields))
            continue
        _add(told.order.setdefault((each.step, each.broker), []), each.api)
        if "live_brokers" in each.fields:
            brokers = [_without(broker, OWN_FIELDS) for broker in each.fields["live_brokers"]]
            _add(told.alive.setdefault((each.step, each.broker), []), brokers)
        for topic in each.fields.get("topic_states", ()):
            for state in topic["partition_states"]:
                place = (each.step, each.broker, each.api, state["partition_index"])
                state = _without(state, OWN_FIELDS)
                _add(told.states.setdefault(place, []), state | {"isr": sorted(state.get("isr", ()))})
    return told


def _as_kafka_asks(fields: dict[str, Any]) -> dict[str, Any]:
    """AlterPartition without what Kafka does not know: the tagged fields, and on ZooKeeper the broker epoch
    that each member fetched with."""
    if "topics" not in fields:
        return fields
    topics = [
        topic | {"partitions": [_as_kafka_asks_for(each) for each in topic["partitions"]]}
        for topic in fields["topics"]
    ]
    return fields | {"topics": topics}


def _as_kafka_asks_for(partition: Mapping[str, Any]) -> dict[str, Any]:
    members = [_without(each, frozenset(("broker_epoch",))) for each in partition["new_isr_with_epochs"]]
    return _without(partition, OWN_FIELDS) | {"new_isr_with_epochs": members}


def _add(values: list[Any], value: Any) -> None:
    if not values or values[-1] != value:
        values.append(value)


def _without(entity: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in entity.items() if name not in names}


def differences(kafka: Iterable[ControlRequest], ours: Iterable[ControlRequest]) -> list[str]:
    """Where the two days differ, a line each."""
    theirs, mine = _told(kafka), _told(ours)
    found = []
    for name in _Told._fields:
        one, other = getattr(theirs, name), getattr(mine, name)
        for place in sorted(one.keys() | other.keys()):
            if one.get(place) != other.get(place):
                where = ", ".join(map(str, place))
                found.append(f"{name}: {where}: {one.get(place)} there, {other.get(place)} here")
    return found


def as_said_here(kafka: Iterable[ControlRequest]) -> list[ControlRequest]:
    """Kafka's day with what is different on purpose.

    - When a reassignment has all its replicas in the ISR, the controller goes on with it at once: there is no
      news of that ISR.
    - The controller's own broker asks it without a request.
    - At the end of a reassignment one write takes the replicas that leave out of the assignment and of the
      ISR; Kafka's are two, with a leader epoch each. So partition 0 has one epoch less from then on.
    """
    found = []
    for each in kafka:
        states = each.fields.get("topic_states")
        if each.api == "AlterPartition" and each.fields["broker_id"] == CONTROLLER:
            continue
        if states is None or each.step in ("create", "delete"):
            found.append(each)
            continue
        (topic,) = states
        left = [
            _one_epoch_less(state) if state["partition_index"] == 0 else state
            for state in topic["partition_states"]
            if not (each.step == "reassign" and len(state.get("isr", ())) == len(BROKERS))
        ]
        if left:
            fields = each.fields | {"topic_states": [topic | {"partition_states": left}]}
            found.append(msgspec.structs.replace(each, fields=fields))
    return found


def _one_epoch_less(state: dict[str, Any]) -> dict[str, Any]:
    """Of what is said after Kafka's second write."""
    if state["leader_epoch"] <= 2:
        return state
    epochs = ("leader_epoch", "partition_epoch", "zk_version")
    return state | {name: state[name] - 1 for name in epochs if name in state}


def without_extras(requests: Iterable[ControlRequest]) -> list[ControlRequest]:
    """What brokers act on. Here a broker that comes is told all its partitions, also when it has none, so
    that it finds logs which are of no use any more. Of a partition that is being deleted Kafka says the
    first epochs, and here the last are said: brokers look at neither."""
    found = []
    for each in requests:
        states = each.fields.get("topic_states")
        if states is None and each.api == "LeaderAndIsr":
            continue
        if states is not None and each.step == "delete":
            topics = [
                topic | {"partition_states": [_without(s, _NOT_READ) for s in topic["partition_states"]]}
                for topic in states
            ]
            each = msgspec.structs.replace(each, fields=each.fields | {"topic_states": topics})
        found.append(each)
    return found


_NOT_READ: Final = frozenset(("leader_epoch", "zk_version"))


def recorded() -> list[ControlRequest]:
    return [msgspec.json.decode(line, type=ControlRequest) for line in RECORDED.read_bytes().splitlines()]


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="minikafka-control-") as directory,
        recorded_cluster(Path(directory), of_kafka=True) as cluster,
    ):
        lines = [msgspec.json.encode(each) for each in day(cluster)]
    RECORDED.write_bytes(b"".join(line + b"\n" for line in lines))
    print(f"{len(lines)} requests in {RECORDED.name}")


if __name__ == "__main__":
    main()
