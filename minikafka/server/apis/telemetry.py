"""GetTelemetrySubscriptions and PushTelemetry (keys 71, 72): a client's metrics of itself (KIP-714)."""

from __future__ import annotations

from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.server.client_metrics import ACCEPTED_COMPRESSION_TYPES, Push
from minikafka.server.requests import RequestContext
from minikafka.server.services import Services


def handle_get_telemetry_subscriptions(services: Services, context: RequestContext, request: Any) -> Body:
    """GetTelemetrySubscriptions (key 71): which metrics of itself a client is to send (KIP-714).

    Behaviour (``ClientMetricsManager.processGetTelemetrySubscriptionRequest``): a client without an instance
    id gets one. Which subscriptions match is decided by its attributes; where none does, no metrics are asked
    for and the client asks again after five minutes. Who comes before its push interval is over gets
    THROTTLING_QUOTA_EXCEEDED. ApiVersions hides this API while there is no subscription at all.

    Versions: 0.
    """
    try:
        subscribed = services.client_metrics.subscribe(request.client_instance_id, client_attributes(context))
    except KafkaError as error:
        return _body(error.code)
    return _body(ErrorCode.NONE) | {
        "client_instance_id": subscribed.client_instance_id,
        "subscription_id": subscribed.subscription_id,
        "accepted_compression_types": ACCEPTED_COMPRESSION_TYPES,
        "push_interval": subscribed.push_interval_ms,
        "telemetry_max_bytes": services.client_metrics.telemetry_max_bytes,
        "delta_temporality": True,
        "requested_metrics": subscribed.metrics,
    }


def client_attributes(context: RequestContext) -> dict[str, str | None]:
    """What subscriptions can match, beside the instance id."""
    connection = context.connection
    return {
        "client_id": context.header.client_id,
        "client_software_name": connection.client_software_name,
        "client_software_version": connection.client_software_version,
        "client_source_address": connection.peer_host,
        "client_source_port": str(connection.peer_port),
    }


def _body(code: ErrorCode) -> dict[str, Any]:
    return {
        "throttle_time": 0,
        "error_code": code,
        "client_instance_id": None,
        "subscription_id": 0,
        "accepted_compression_types": (),
        "push_interval": 0,
        "telemetry_max_bytes": 0,
        "delta_temporality": False,
        "requested_metrics": (),
    }


def handle_push_telemetry(services: Services, context: RequestContext, request: Any) -> Body:
    """PushTelemetry (key 72): a client's metrics of itself (KIP-714).

    Behaviour (``ClientMetricsManager.processPushTelemetryRequest``): checked against what the client was
    told, decompressed within ``telemetry.max.bytes``, read and handed on (``server.client_metrics``).
    INVALID_REQUEST without an instance id; other errors as there.

    Versions: 0.
    """
    code = ErrorCode.NONE
    if request.client_instance_id is None:
        code = ErrorCode.INVALID_REQUEST
    else:
        push = Push(
            client_instance_id=request.client_instance_id,
            subscription_id=request.subscription_id,
            terminating=request.terminating,
            compression_type=request.compression_type,
            metrics=bytes(request.metrics),
        )
        try:
            services.client_metrics.push(push, client_attributes(context))
        except KafkaError as error:
            code = error.code
    return {"throttle_time": 0, "error_code": code}
