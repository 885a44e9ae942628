"""The series of clients and their quotas; see ``names``.

Kafka's are per quota, tagged with the user and the client id that it is set for; an empty label stands for
everybody who shares it. Which requests a client made is counted with no quota set, too.
"""

from __future__ import annotations

from typing import Final

from minikafka.metrics.series import Series, counter, gauge

_LABELS: Final = ("user", "client_id")


def _quota(group: str, attribute: str, help: str) -> Series:
    return gauge(
        f"kafka_server_{group.lower()}_{attribute.replace('-', '_')}",
        help,
        *_LABELS,
        mbean=f"kafka.server:type={group},user=…,client-id=…, attribute {attribute}",
    )


def _throttle_time(group: str) -> Series:
    return _quota(group, "throttle-time", "Mean throttle time of late, in milliseconds; nobody: NaN.")


CLIENT_PRODUCED = counter(
    "minikafka_client_produced_bytes", "Bytes of the client's Produce requests.", *_LABELS
)
CLIENT_FETCHED = counter("minikafka_client_fetched_bytes", "Bytes of records that the client read.", *_LABELS)
QUOTA_BOUND = gauge(
    "minikafka_client_quota_bound",
    "What the rate of the same labels may be: bytes a second, or percent of the handler's time.",
    "type",
    *_LABELS,
)
QUOTA_METRICS: Final = {
    (group, attribute): _quota(group, attribute, help)
    for group, attribute, help in (
        ("Produce", "byte-rate", "Bytes a second of Produce requests."),
        ("Fetch", "byte-rate", "Bytes a second of records that were read."),
        ("Request", "request-time", "Percent of one core that requests took."),
        ("ControllerMutation", "mutation-rate", "Partitions a second that were created or deleted."),
        ("ControllerMutation", "tokens", "Partitions that may be created or deleted at once; below 0: none."),
    )
} | {
    (group, "throttle-time"): _throttle_time(group)
    for group in ("Produce", "Fetch", "Request", "ControllerMutation")
}
"""By the group and the name of the metric that is shown."""

CLIENTS: Final = (CLIENT_PRODUCED, CLIENT_FETCHED, QUOTA_BOUND, *QUOTA_METRICS.values())
