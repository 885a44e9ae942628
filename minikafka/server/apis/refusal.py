"""The APIs that Kafka's broker listener has and this broker has not (``protocol.wire.api_versions.REFUSED``).

Behaviour (``AbstractRequest.getErrorResponse`` with UNSUPPORTED_VERSION, as ``KafkaApis`` answers the APIs
of share and streams groups when their feature is off): the error stands where the API has room for it, at
the top or with each thing that was asked about; everything else in the answer is empty. The connection stays,
and clients say what is wrong: Java's raise UnsupportedVersionException.

StreamsGroupTopologyDescriptionUpdate (key 93, KIP-1331) needs a plugin of the broker's, written in Java
(``group.streams.topology.description.plugin.class``). By default Kafka 4.4 has none and answers the same; a
member pushes its description only where a heartbeat's answer asks for it, and ours never does.

So are those that a release which ``api.versions`` imitates has switched off.

Versions: those of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import Body
from minikafka.protocol.wire.schema import message_schema
from minikafka.server.requests import RequestContext, refusing_body
from minikafka.server.services import Services

_REASONS: Final[Mapping[ApiKey, str]] = {
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: (
        "The broker has no streams group topology description plugin configured."
    ),
}
"""Kafka's own words, where it has some."""


def handle(services: Services, context: RequestContext, request: Any) -> Body:
    key = ApiKey(context.header.api_key)
    name = message_schema(key, context.api_version, "response").api_name
    asked = _ASKED.get(key)
    reason = _REASONS.get(key, f"This broker does not support {name}.")
    error = KafkaError(ErrorCode.UNSUPPORTED_VERSION, reason)
    return refusing_body(key, context.api_version, error, {} if asked is None else asked(request))


def _groups(request: Any) -> Body:
    return {"groups": [{"group_id": group_id} for group_id in request.group_ids]}


def _groups_with_topics(request: Any) -> Body:
    return {"groups": [{"group_id": group.group_id} for group in request.groups]}


def _partitions(request: Any) -> Body:
    return {
        "results": [
            {
                "topic_id": topic.topic_id,
                "partitions": [{"partition": each.partition} for each in topic.partitions],
            }
            for topic in request.topics
        ]
    }


_ASKED: Final[Mapping[ApiKey, Callable[[Any], Body]]] = {
    ApiKey.CONSUMER_GROUP_DESCRIBE: _groups,
    ApiKey.SHARE_GROUP_DESCRIBE: _groups,
    ApiKey.STREAMS_GROUP_DESCRIBE: _groups,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _groups_with_topics,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _partitions,
    ApiKey.READ_SHARE_GROUP_STATE: _partitions,
    ApiKey.WRITE_SHARE_GROUP_STATE: _partitions,
    ApiKey.DELETE_SHARE_GROUP_STATE: _partitions,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _partitions,
}
"""What the answer names of the request, for the APIs that have no error at the top."""
