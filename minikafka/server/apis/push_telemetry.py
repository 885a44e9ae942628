"""PushTelemetry (key 72): a client's metrics of itself (KIP-714).

Behaviour (``ClientMetricsManager.processPushTelemetryRequest``): checked against what the client was told,
decompressed within ``telemetry.max.bytes``, read and handed on (``server.quota.client_metrics``).
INVALID_REQUEST without an instance id; other errors as there.

Versions: 0.
"""

from __future__ import annotations

from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.server.apis.telemetry import client_attributes
from minikafka.server.quota.client_metrics import Push
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services


def handle(services: Services, context: RequestContext, request: Any) -> Body:
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
