"""The values of ``protocol.control`` as bytes, and back.

Kafka: ``LeaderAndIsrRequest``, ``StopReplicaRequest``, ``UpdateMetadataRequest``,
``ControlledShutdownRequest`` and their responses in 3.9, the last release that has them: versions 1 and up,
in which brokers of this project talk to each other and to Apache Kafka's. What Kafka's have no place for,
eligible leader replicas, registrations' epochs and where the pages of a broker are, is in tagged fields,
which Kafka skips (``schema.OWN_FIELDS``). The field names of its schemas that differ from ours are here only.

Version 0 is what brokers of minikafka 0.2.0 speak, and is for the time of an upgrade from it: MessagePack
behind Kafka's ordinary header. (Kafka's version 0 is of 0.8, and not spoken.)

Names that no topic can have, and numbers that make no sense, do not get past the decoder in either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from minikafka.errors import UNDECODABLE, InvariantError, PeerProtocolError
from minikafka.protocol.control import (
    UNNAMED_LISTENER,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LiveBroker,
    PartitionError,
    StopReplicaPartition,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.writing import Body
from minikafka.types import NO_EPOCH, NO_LEADER, Buffer, TopicPartition

VERSION_OF_0_2: Final = 0
"""MessagePack, of minikafka 0.2.0."""

_TYPES: Final[dict[tuple[int, str], type[msgspec.Struct]]] = {
    (ApiKey.LEADER_AND_ISR, "request"): LeaderAndIsrRequest,
    (ApiKey.LEADER_AND_ISR, "response"): LeaderAndIsrResponse,
    (ApiKey.STOP_REPLICA, "request"): StopReplicaRequest,
    (ApiKey.STOP_REPLICA, "response"): StopReplicaResponse,
    (ApiKey.UPDATE_METADATA, "request"): UpdateMetadataRequest,
    (ApiKey.UPDATE_METADATA, "response"): UpdateMetadataResponse,
    (ApiKey.CONTROLLED_SHUTDOWN, "request"): ControlledShutdownRequest,
    (ApiKey.CONTROLLED_SHUTDOWN, "response"): ControlledShutdownResponse,
}
_DECODERS: Final = {key: msgspec.msgpack.Decoder(kind) for key, kind in _TYPES.items()}
_ENCODER: Final = msgspec.msgpack.Encoder()

_FULL: Final = 2
"""``AbstractControlRequest.Type``: 1 is incremental, 0 unknown: of a controller before 3.6."""
_SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""``SecurityProtocol``, by its number."""


def encode_for_0_2(body: msgspec.Struct) -> bytes:
    return _ENCODER.encode(body)


def decode_of_0_2(api_key: int, direction: str, data: Buffer) -> Any:
    """The value that ``data`` holds. The brokers in it are of 0.2.0, as far as their controller knows.

    Raises:
        PeerProtocolError: it holds no such thing.
    """
    try:
        value = _DECODERS[api_key, direction].decode(data)
    except UNDECODABLE as error:
        raise PeerProtocolError(f"malformed: {ApiKey(api_key).name} {direction}: {error}") from error
    if isinstance(value, UpdateMetadataRequest):
        brokers = tuple(msgspec.structs.replace(each, is_of_0_2=True) for each in value.live_brokers)
        return msgspec.structs.replace(value, live_brokers=brokers)
    return value


def to_kafka(body: msgspec.Struct) -> Body:
    """The fields of ``body`` in all of Kafka's versions, for the codec."""
    match body:
        case LeaderAndIsrRequest():
            return {
                **_head(body),
                "type": _FULL if body.is_full else 1,
                "ungrouped_partition_states": _ungrouped(body.partitions, _leadership),
                "topic_states": _topic_states(body.partitions, _leadership),
                "live_leaders": [
                    {"broker_id": each.node_id, "host_name": endpoint.host, "port": endpoint.port}
                    for each in body.live_leaders
                    for endpoint in each.endpoints
                ],
            }
        case StopReplicaRequest():
            return _stopped(body)
        case UpdateMetadataRequest():
            return {
                **_head(body),
                "type": _FULL if body.is_full else 1,
                "ungrouped_partition_states": _ungrouped(body.partitions, _metadata),
                "topic_states": _topic_states(body.partitions, _metadata),
                "live_brokers": [_live_broker(each) for each in body.live_brokers],
            }
        case ControlledShutdownRequest():
            return {"broker_id": body.node_id, "broker_epoch": body.broker_epoch}
        case LeaderAndIsrResponse():
            topic_ids = dict(body.topic_ids)
            return {
                "error_code": body.error_code,
                "partition_errors": _partition_errors(body.partitions),
                "topics": [
                    {
                        "topic_id": topic_ids[name],
                        "partition_errors": [_partition_error(each) for each in errors],
                    }
                    for name, errors in _by_topic(body.partitions)
                ],
            }
        case StopReplicaResponse():
            return {"error_code": body.error_code, "partition_errors": _partition_errors(body.partitions)}
        case UpdateMetadataResponse():
            return {"error_code": body.error_code}
        case ControlledShutdownResponse():
            return {
                "error_code": body.error_code,
                "remaining_partitions": [
                    {"topic_name": each.topic, "partition_index": each.partition}
                    for each in body.remaining_partitions
                ],
            }
    raise InvariantError(f"{type(body).__name__} is no message between brokers")


def from_kafka(api_key: int, direction: str, entity: Any) -> Any:
    """The value of what the codec has read of one of Kafka's versions. A controller that does not say which
    incarnation of a broker it means has broker epoch -1. In a response to LeaderAndIsr topics have their ids
    for names from version 5 on: see ``with_names``.

    Raises:
        PeerProtocolError: names or numbers in it cannot be; it is of a controller that is not followed: of
            KRaft, or older than Kafka 2.8, which has no topic ids.
    """
    kind = _TYPES[api_key, direction]
    try:
        return msgspec.convert(_VALUES[kind](entity), kind)
    except (msgspec.ValidationError, IndexError) as error:
        raise PeerProtocolError(f"malformed: {ApiKey(api_key).name} {direction}: {error}") from error


def with_addresses(request: LeaderAndIsrRequest, listener_name: str) -> LeaderAndIsrRequest:
    """``request`` with the one address of each leader that Kafka's has room for: that of the listener which
    brokers use."""
    leaders = (
        msgspec.structs.replace(each, endpoints=(endpoint,))
        for each in request.live_leaders
        if (endpoint := each.endpoint(listener_name))
    )
    return msgspec.structs.replace(request, live_leaders=tuple(leaders))


def with_names(response: LeaderAndIsrResponse, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    """``response`` with the topics' names where it has their ids. What was not asked for is left out."""
    names = {str(each.topic_id): each.topic for each in request.partitions}
    errors = (
        each if each.topic not in names else each._replace(topic=names[each.topic])
        for each in response.partitions
    )
    asked = {each.topic for each in request.partitions}
    return msgspec.structs.replace(response, partitions=tuple(each for each in errors if each.topic in asked))


# To Kafka's

_Named = TypeVar("_Named", LeaderAndIsrPartition, StopReplicaPartition, PartitionError)


def _by_topic(partitions: Iterable[_Named]) -> Iterable[tuple[str, list[_Named]]]:
    found: dict[str, list[_Named]] = defaultdict(list)
    for each in partitions:
        found[each.topic].append(each)
    return found.items()


def _head(body: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest) -> dict[str, Any]:
    return {
        "controller_id": body.controller_id,
        "is_k_raft_controller": False,
        "controller_epoch": body.controller_epoch,
        "broker_epoch": body.broker_epoch,
    }


def _stopped(body: StopReplicaRequest) -> Body:
    topics, states = [], []
    for name, partitions in _by_topic(body.partitions):
        topics.append({"name": name, "partition_indexes": [each.partition for each in partitions]})
        partition_states = [
            {
                "partition_index": each.partition,
                "leader_epoch": each.leader_epoch,
                "delete_partition": each.delete,
            }
            for each in partitions
        ]
        states.append({"topic_name": name, "partition_states": partition_states})
    is_deletion = all(each.delete for each in body.partitions)
    return {**_head(body), "delete_partitions": is_deletion, "topics": topics, "topic_states": states}


def _topic_states(
    partitions: Iterable[LeaderAndIsrPartition], state: Callable[[LeaderAndIsrPartition], Body]
) -> list[Body]:
    return [
        {
            "topic_name": name,
            "topic_id": of_topic[0].topic_id,
            "partition_states": [state(each) for each in of_topic],
        }
        for name, of_topic in _by_topic(partitions)
    ]


def _ungrouped(
    partitions: Iterable[LeaderAndIsrPartition], state: Callable[[LeaderAndIsrPartition], Body]
) -> list[Body]:
    return [{"topic_name": each.topic, **state(each)} for each in partitions]


def _leadership(state: LeaderAndIsrPartition) -> Body:
    return {
        **_state_of(state),
        "partition_epoch": state.partition_epoch,
        "adding_replicas": state.adding_replicas,
        "removing_replicas": state.removing_replicas,
        "is_new": state.is_new,
        "eligible_leader_replicas": state.eligible,
        "leader_recovery_state": int(state.leader_recovering),
    }


def _metadata(state: LeaderAndIsrPartition) -> Body:
    return {
        **_state_of(state),
        "zk_version": state.partition_epoch,
        "offline_replicas": state.offline_replicas,
        "eligible_leader_replicas": state.eligible,
        "last_known_leader": state.last_known_leader,
    }


def _state_of(state: LeaderAndIsrPartition) -> dict[str, Any]:
    return {
        "partition_index": state.partition,
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
        "replicas": state.replicas,
    }


def _live_broker(broker: LiveBroker) -> Body:
    http_host, http_port = broker.http or ("", -1)
    return {
        "id": broker.node_id,
        "broker_epoch": broker.epoch,
        "http_host": http_host,
        "http_port": http_port,
        "endpoints": [
            {
                "port": each.port,
                "host": each.host,
                "listener": each.listener_name,
                "security_protocol": _SECURITY_PROTOCOLS.index(each.security_protocol),
            }
            for each in broker.endpoints
        ],
        "rack": broker.rack,
    }


def _partition_errors(errors: Iterable[PartitionError]) -> list[Body]:
    return [{"topic_name": each.topic, **_partition_error(each)} for each in errors]


def _partition_error(error: PartitionError) -> dict[str, Any]:
    return {"partition_index": error.partition, "error_code": error.error_code}


# From Kafka's: the values of a struct's fields, in their order


def _leader_and_isr(entity: Any) -> tuple[Any, ...]:
    return (
        *_request_head(entity),
        tuple(_states(entity, "partition_epoch")),
        tuple(
            (each.broker_id, -1, ((UNNAMED_LISTENER, each.host_name, each.port),))
            for each in entity.live_leaders
        ),
        getattr(entity, "type", 0) == _FULL,
    )


def _update_metadata(entity: Any) -> tuple[Any, ...]:
    return (
        *_request_head(entity),
        tuple(_states(entity, "zk_version")),
        tuple(_told_broker(each) for each in entity.live_brokers),
        getattr(entity, "type", 0) == _FULL,
    )


def _told_broker(broker: Any) -> tuple[Any, ...]:
    http_host = getattr(broker, "http_host", "")
    return (
        broker.id,
        getattr(broker, "broker_epoch", -1),
        tuple(_endpoints(broker)),
        getattr(broker, "rack", None),
        True,
        (http_host, broker.http_port) if http_host else None,
    )


def _stop_replica(entity: Any) -> tuple[Any, ...]:
    if hasattr(entity, "topic_states"):
        partitions = [
            (topic.topic_name, each.partition_index, each.leader_epoch, each.delete_partition)
            for topic in entity.topic_states
            for each in topic.partition_states
        ]
    else:
        partitions = [
            (topic.name, index, NO_EPOCH, entity.delete_partitions)
            for topic in entity.topics
            for index in topic.partition_indexes
        ]
    return *_request_head(entity), tuple(partitions)


def _request_head(entity: Any) -> tuple[int, int, int]:
    if getattr(entity, "is_k_raft_controller", False):
        raise PeerProtocolError(f"controller {entity.controller_id} is one of KRaft, which is not followed")
    return entity.controller_id, entity.controller_epoch, getattr(entity, "broker_epoch", -1)


def _states(entity: Any, epoch_name: str) -> Iterator[tuple[Any, ...]]:
    ungrouped: tuple[Any, ...] = getattr(entity, "ungrouped_partition_states", ())
    for topic in getattr(entity, "topic_states", ungrouped):
        topic_id = getattr(topic, "topic_id", None)
        if topic_id is None:
            raise PeerProtocolError(f"topic {topic.topic_name} has no id: a controller from before Kafka 2.8")
        for each in topic.partition_states:
            yield _state(topic.topic_name, topic_id, each, epoch_name)


def _state(topic: str, topic_id: UUID, state: Any, epoch_name: str) -> tuple[Any, ...]:
    return (
        topic,
        topic_id,
        state.partition_index,
        state.controller_epoch,
        state.leader,
        state.leader_epoch,
        state.isr,
        getattr(state, epoch_name),
        state.replicas,
        getattr(state, "adding_replicas", ()),
        getattr(state, "removing_replicas", ()),
        getattr(state, "is_new", False),
        getattr(state, "leader_recovery_state", 0) == 1,
        getattr(state, "offline_replicas", ()),
        getattr(state, "eligible_leader_replicas", ()),
        getattr(state, "last_known_leader", NO_LEADER),
    )


def _endpoints(broker: Any) -> Iterator[tuple[Any, ...]]:
    for each in broker.endpoints:
        protocol = _SECURITY_PROTOCOLS[each.security_protocol]
        # Before version 3 a listener was named after its security protocol.
        yield getattr(each, "listener", protocol), each.host, each.port, protocol


def _leader_and_isr_answered(entity: Any) -> tuple[Any, ...]:
    if hasattr(entity, "topics"):
        errors = [
            (str(topic.topic_id), each.partition_index, each.error_code)
            for topic in entity.topics
            for each in topic.partition_errors
        ]
    else:
        errors = list(_errors(entity))
    return entity.error_code, tuple(errors)


def _errors(entity: Any) -> Iterator[tuple[str, int, int]]:
    for each in entity.partition_errors:
        yield each.topic_name, each.partition_index, each.error_code


_VALUES: Final[dict[type[msgspec.Struct], Callable[[Any], tuple[Any, ...]]]] = {
    LeaderAndIsrRequest: _leader_and_isr,
    StopReplicaRequest: _stop_replica,
    UpdateMetadataRequest: _update_metadata,
    ControlledShutdownRequest: lambda entity: (entity.broker_id, getattr(entity, "broker_epoch", -1)),
    LeaderAndIsrResponse: _leader_and_isr_answered,
    StopReplicaResponse: lambda entity: (entity.error_code, tuple(_errors(entity))),
    UpdateMetadataResponse: lambda entity: (entity.error_code,),
    ControlledShutdownResponse: lambda entity: (
        entity.error_code,
        tuple(TopicPartition(each.topic_name, each.partition_index) for each in entity.remaining_partitions),
    ),
}
