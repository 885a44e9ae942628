"""Names that no topic can have, and control requests that no controller sends: refused, and nothing is made.

A topic's name becomes a directory and a path in the store, so it is checked before either is touched; Kafka's
``Topic.validate``, with Kafka's errors. The requests are encoded with the broker's own codec, because no
stock client would send them.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.control import (
    ControlledShutdownRequest,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    StopReplicaPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.protocol.wire.codec import decode_response, encode_request
from minikafka.protocol.wire.control_bodies import encode_for_0_2
from minikafka.types import BrokerId, LeaderEpoch
from tests.integration.conftest import StartBroker
from tests.integration.support import confluent, wire
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import Record

pytestmark = pytest.mark.minikafka_only

BAD_NAMES = [
    "",
    ".",
    "..",
    "a/b",
    "../a",
    "a b",
    "nul\0",
    "ü",
    "x" * 250,
    "x" * 5_000,
    "known/partitions/0/state",
    "known/partitions",
]
UNKNOWN, INVALID, NONE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.NONE,
)

TOPIC_RESOURCE = 2

BY_NAME: dict[ApiKey, tuple[Callable[[str], Mapping[str, Any]], Callable[[Any], int], ErrorCode]] = {
    ApiKey.CREATE_TOPICS: (
        lambda name: {
            "topics": [
                {
                    "name": name,
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
            ],
            "timeout": 5_000,
            "validate_only": False,
        },
        lambda answer: answer.topics[0].error_code,
        INVALID,
    ),
    ApiKey.CREATE_PARTITIONS: (
        lambda name: {
            "topics": [{"name": name, "count": 2, "assignments": None}],
            "timeout": 5_000,
            "validate_only": False,
        },
        lambda answer: answer.results[0].error_code,
        UNKNOWN,
    ),
    ApiKey.DELETE_TOPICS: (
        lambda name: {"topics": [{"name": name, "topic_id": None}], "timeout": 5_000},
        lambda answer: answer.responses[0].error_code,
        UNKNOWN,
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
        lambda name: {
            "timeout": 5_000,
            "topics": [{"name": name, "partitions": [{"partition_index": 0, "replicas": [1]}]}],
        },
        lambda answer: answer.responses[0].partitions[0].error_code,
        UNKNOWN,
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (
        lambda name: {"timeout": 5_000, "topics": [{"name": name, "partition_indexes": [0]}]},
        lambda answer: answer.error_code,
        NONE,
    ),
    ApiKey.ALTER_CONFIGS: (
        lambda name: {
            "resources": [
                {
                    "resource_type": TOPIC_RESOURCE,
                    "resource_name": name,
                    "configs": [{"name": "retention.ms", "value": "1"}],
                }
            ],
            "validate_only": False,
        },
        lambda answer: answer.responses[0].error_code,
        INVALID,
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        lambda name: {
            "resources": [
                {
                    "resource_type": TOPIC_RESOURCE,
                    "resource_name": name,
                    "configs": [{"name": "retention.ms", "config_operation": 0, "value": "1"}],
                }
            ],
            "validate_only": False,
        },
        lambda answer: answer.responses[0].error_code,
        INVALID,
    ),
    ApiKey.DESCRIBE_CONFIGS: (
        lambda name: {
            "resources": [
                {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configuration_keys": None}
            ],
            "include_synonyms": False,
            "include_documentation": False,
        },
        lambda answer: answer.results[0].error_code,
        INVALID,
    ),
    ApiKey.ELECT_LEADERS: (
        lambda name: {
            "election_type": 0,
            "topic_partitions": [{"topic": name, "partitions": [0]}],
            "timeout": 5_000,
        },
        lambda answer: answer.replica_election_results[0].partition_result[0].error_code,
        UNKNOWN,
    ),
    ApiKey.DELETE_RECORDS: (
        lambda name: {
            "topics": [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}],
            "timeout": 5_000,
        },
        lambda answer: answer.topics[0].partitions[0].error_code,
        UNKNOWN,
    ),
    ApiKey.METADATA: (
        lambda name: {
            "topics": [{"name": name, "topic_id": None}],
            "allow_auto_topic_creation": True,
            "include_topic_authorized_operations": False,
        },
        lambda answer: answer.topics[0].error_code,
        INVALID,
    ),
}


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    """With one topic, whose nodes in the store a bad name might reach."""
    broker = start_broker()
    confluent.write_one_batch_each(broker.bootstrap, "known", [Record(b"k", b"v")])
    return broker


def directories(broker: BrokerProcess) -> list[str]:
    """Of partitions: what else is there are checkpoints, which the broker writes when it is time."""
    return sorted(path.name for path in broker.data_dir.rglob("*") if path.is_dir())


def call(peer: wire.RawClient, key: ApiKey, body: Any) -> Any:
    version = 0 if key not in SUPPORTED else SUPPORTED[key].max
    peer.send(encode_request(api_key=key, api_version=version, correlation_id=1, client_id="raw", body=body))
    correlation_id, answer = peer.receive()
    frame = correlation_id.to_bytes(4, "big") + bytes(answer)
    return decode_response(api_key=key, api_version=version, frame=frame)[1]


def test_apis_refuse_names_before_they_touch_anything(broker: BrokerProcess) -> None:
    """Each gets its error from each API; no directory was made, and the broker starts again."""
    before = directories(broker)
    with wire.RawClient(broker.port) as peer:
        for key, (body, error_of, expected) in BY_NAME.items():
            for name in BAD_NAMES:
                answer = call(peer, key, body(name))
                assert ErrorCode(error_of(answer)) is expected, (key, name[:40], answer)
        assert call(peer, ApiKey.LIST_PARTITION_REASSIGNMENTS, {"timeout": 1, "topics": None}).topics == ()
    assert directories(broker) == before
    assert broker.stop() == 0
    broker.start()
    assert broker.stop() == 0


LATER = 2**30
"""An epoch of a controller, and of a broker, after all that there are."""


def leader_and_isr(topic: str, partition: int = 0) -> LeaderAndIsrPartition:
    return LeaderAndIsrPartition(
        topic=topic,
        topic_id=uuid.UUID(int=5),
        partition=partition,
        controller_epoch=LATER,
        leader=BrokerId(1),
        leader_epoch=LeaderEpoch(0),
        isr=(BrokerId(1),),
        partition_epoch=0,
        replicas=(BrokerId(1),),
        is_new=True,
    )


def control_requests(topic: str) -> list[tuple[ApiKey, msgspec.Struct]]:
    one = BrokerId(1)
    state = leader_and_isr(topic)
    return [
        (ApiKey.LEADER_AND_ISR, LeaderAndIsrRequest(one, LATER, LATER, (state,), ())),
        (
            ApiKey.STOP_REPLICA,
            StopReplicaRequest(one, LATER, LATER, (StopReplicaPartition(topic, 0, delete=True),)),
        ),
        (ApiKey.UPDATE_METADATA, UpdateMetadataRequest(one, LATER, LATER, (state,), ())),
    ]


def test_control_requests_with_bad_names_close_the_connection(broker: BrokerProcess) -> None:
    """They made ``a/b-0``, after which the broker did not start, or took the error for a dead disk."""
    before = directories(broker)
    for name in BAD_NAMES:
        for key, body in control_requests(name):
            with wire.RawClient(broker.port) as peer:
                peer.send(wire.request(key, 0, encode_for_0_2(body)))
                assert peer.is_closed_by_peer(), (key, name[:40])
    assert directories(broker) == before
    with wire.RawClient(broker.port) as friend:
        assert friend.produce("known", 0, wire.batch([b"v"])).error == 0
    assert broker.stop() == 0
    broker.start()


def mutated(body: bytes, rng: random.Random) -> bytes:
    """``body`` with one to three bytes changed, gone or added."""
    changed = bytearray(body)
    for _ in range(rng.randint(1, 3)):
        position = rng.randrange(len(changed) or 1)
        match rng.choice(("change", "change", "delete", "insert")):
            case "change" if changed:
                changed[position] = rng.randrange(256)
            case "delete" if changed:
                del changed[position]
            case _:
                changed.insert(position, rng.randrange(256))
    return bytes(changed)


def test_mutated_control_requests_end_in_an_answer_or_a_closed_connection(
    start_broker: StartBroker,
) -> None:
    """What still makes sense may be carried out: that brokers believe any peer is a matter of authorisation.
    But the broker lives, logs no traceback (the fixture looks), and serves clients that come afterwards."""
    broker = start_broker()
    rng = random.Random(10)
    requests = [
        *control_requests("orders"),
        (ApiKey.CONTROLLED_SHUTDOWN, ControlledShutdownRequest(BrokerId(1), LATER)),
    ]
    for _ in range(400):
        key, body = rng.choice(requests)
        with wire.RawClient(broker.port) as peer:
            peer.send(wire.request(key, 0, mutated(encode_for_0_2(body), rng)))
            try:
                peer.receive()
            except ConnectionError:
                continue
    assert broker.is_running()
    with wire.RawClient(broker.port) as friend:
        assert friend.api_versions()
