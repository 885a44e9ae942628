"""The broker properties of client quotas' windows. Kafka: ``QuotaConfig``.

The windows of replication quotas are with the other properties of replication.
"""

from typing import Annotated

from minikafka.config.definition import ConfigType, Importance, prop
from minikafka.config.transaction_properties import TransactionProperties

INT, LOW = ConfigType.INT, Importance.LOW


class QuotaProperties(TransactionProperties, frozen=True, kw_only=True):
    """A field is the property's name with underscores for dots."""

    quota_window_num: Annotated[
        int, prop(INT, LOW, "Samples that a client's rate is measured over.", ge=1)
    ] = 11
    quota_window_size_seconds: Annotated[
        int, prop(INT, LOW, "The length of each of these samples.", ge=1)
    ] = 1
    controller_quota_window_num: Annotated[
        int, prop(INT, LOW, "Windows of controller mutations that a client may save up for a burst.", ge=1)
    ] = 11
    controller_quota_window_size_seconds: Annotated[
        int, prop(INT, LOW, "The length of each of these windows.", ge=1)
    ] = 1
