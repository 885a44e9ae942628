"""DescribeCluster (key 60): the cluster's id, controller and brokers (KIP-700).

Behaviour (``AuthHelper.computeDescribeClusterResponse``): addresses of the listener that the question came
on. A question that is meant for a controller's own listener (KIP-919) is refused: brokers are all there is
here. Everybody may ask; the operations of one that may not describe the cluster are none.

Versions: 1 endpoint type; 2 fenced brokers may be asked for (KIP-1073); a broker here is either live or
unknown.
"""

from __future__ import annotations

from typing import Any

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.codec import Body, field
from minikafka.server.apis.metadata import describe_brokers
from minikafka.server.apis.shared.authorization import authorized_operations_on_cluster
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services

ENDPOINT_TYPE_BROKER = 1
ENDPOINT_TYPE_CONTROLLER = 2


def handle(services: Services, context: RequestContext, request: Any) -> Body:
    endpoint_type = field(request, "endpoint_type", ENDPOINT_TYPE_BROKER)
    if endpoint_type == ENDPOINT_TYPE_CONTROLLER:
        return _refuse(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER",
        )
    if endpoint_type != ENDPOINT_TYPE_BROKER:
        return _refuse(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}")
    metadata = services.metadata
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "endpoint_type": ENDPOINT_TYPE_BROKER,
        "cluster_id": services.cluster_id,
        "controller_id": metadata.controller_id,
        "brokers": [
            {
                "broker_id": broker["node_id"],
                "host": broker["host"],
                "port": broker["port"],
                "rack": broker["rack"],
                "is_fenced": False,
            }
            for broker in describe_brokers(metadata, context.connection.listener_name)
        ],
        "cluster_authorized_operations": authorized_operations_on_cluster(
            services, context, asked=request.include_cluster_authorized_operations
        ),
    }


def _refuse(code: ErrorCode, message: str) -> Body:
    return {
        "throttle_time": 0,
        "error_code": code,
        "error_message": message,
        "cluster_id": "",
        "brokers": [],
    }
