"""``topic-deletion``: how far the deletion of a topic is; only the controller knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.apis.shared.diagnostics_arguments import take
from minikafka.server.services import Services
from minikafka.steps import ELEMENTS_A_STEP, Steps

REPLICAS_MAX: Final = 1_000
"""Of those that are not deleted yet."""


def topic_deletion(services: Services, arguments: Mapping[str, str]) -> Steps[Any]:
    """Raises KafkaError: INVALID_REQUEST; NOT_CONTROLLER."""
    take(arguments, required=("topic",))
    topic = arguments["topic"]
    context = services.controller.context if services.controller.is_controller else None
    if context is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, f"broker {services.node_id} is not the controller")
    left: list[dict[str, Any]] = []
    done = 0
    is_deleted = context.is_to_be_deleted(topic)
    partitions = [each for each in context.assignments if each.topic == topic] if is_deleted else []
    for count, at in enumerate(partitions, start=1):
        assignment = context.assignments.get(at)  # it may be gone by now
        for broker in () if assignment is None else assignment.replicas:
            status = context.replica_status.get(broker, {}).get(at)
            state = "unknown" if status is None else status.name
            if state == "DELETION_SUCCESSFUL":
                done += 1
            elif len(left) < REPLICAS_MAX:
                is_alive = context.is_live(broker)
                left.append(
                    {"partition": at.partition, "broker": int(broker), "state": state, "alive": is_alive}
                )
        if count % ELEMENTS_A_STEP == 0:
            yield
    return {
        "broker": int(services.node_id),
        "known": topic in context.topics,
        "to_be_deleted": is_deleted,
        "waits_for_reassignment": topic in context.topics_waiting_for_deletion,
        "ineligible": topic in context.topics_ineligible_for_deletion,
        "started": topic in context.topics_with_deletion_started,
        "enabled": services.config.delete_topic_enable,
        "deleted_replicas": done,
        "replicas_left": left,
    }
