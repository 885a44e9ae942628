"""Metrics that clients send of themselves: who is asked for which, and what becomes of them (KIP-714).

Kafka: ``ClientMetricsManager``, ``ClientMetricsInstance``, ``ClientMetricsInstanceMetadata``. A subscription
is a configuration (``config.client_metrics``). A client asks which metrics are wanted of it, and pushes them
at the interval that it was told. Its subscription id is computed from what it was told, so that every broker
of the cluster knows whether the client pushes by the subscriptions of now.

While there is no subscription at all, ApiVersions hides both APIs and clients do not ask (Kafka: while there
is no plugin that receives metrics). Who asks all the same, or matches no subscription, is told of no metrics
and asks again after five minutes, which is how clients notice a subscription that is made later.

What is pushed goes to the receivers. There is one: a debug line with the names of the metrics.

Invariants: at most ``INSTANCES_MAX`` clients are remembered, those that came last; a client that is forgotten
loses nothing but the check that it does not come too often.

Where it differs from Kafka: a client's instance is forgotten when its time is over, not when its connection
ends.
"""

from __future__ import annotations

import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec

from minikafka.clock import Clock
from minikafka.config.client_metrics import (
    ALL_METRICS,
    INTERVAL_MS_DEFAULT,
    ClientMetricsConfig,
    client_metrics_config,
)
from minikafka.deferred import crc32c
from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.checkpoint import encode_uuid
from minikafka.protocol.records.compression import CompressionType, CorruptBatch, decompress
from minikafka.protocol.wire.telemetry import DamagedTelemetryError, metric_names

logger = logging.getLogger(__name__)

INSTANCES_MAX = 16_384
INSTANCE_LIFE_MS_MIN = 60_000
"""Kafka's ``CACHE_MAX_SIZE`` and ``DEFAULT_CACHE_EXPIRY_MS``; a longer push interval counts three times."""

ACCEPTED_COMPRESSION_TYPES: Final = (
    CompressionType.ZSTD,
    CompressionType.LZ4,
    CompressionType.GZIP,
    CompressionType.SNAPPY,
)
"""In the order of preference; clients take the first that they have."""

_RETRY_AT_ONCE = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_NEVER = -(2**62)

Receiver = Callable[[Mapping[str, str | None], Sequence[str]], None]
"""Called with a client's attributes (``CLIENT_ATTRIBUTES``) and the names of the metrics that it has sent."""


class Subscribed(msgspec.Struct, frozen=True, kw_only=True):
    """What a client is to send."""

    client_instance_id: UUID
    subscription_id: int
    metrics: tuple[str, ...]
    """Prefixes of names, sorted; ``*`` alone for all metrics, nothing for none."""
    push_interval_ms: int


class Push(msgspec.Struct, frozen=True, kw_only=True):
    """What a client sends (``PushTelemetryRequest``)."""

    client_instance_id: UUID
    subscription_id: int
    terminating: bool
    """The last one: the client closes."""
    compression_type: int
    metrics: bytes


def log_metrics(attributes: Mapping[str, str | None], names: Sequence[str]) -> None:
    """The receiver that every broker has."""
    logger.debug("client %s sent %d metrics: %s", dict(attributes), len(names), ", ".join(names))


class _Instance:
    """One client, as it was when it last came (``ClientMetricsInstance``)."""

    __slots__ = (
        "expires_ms",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "subscribed",
        "terminating",
        "version",
    )

    def __init__(self, subscribed: Subscribed, version: int) -> None:
        self.subscribed = subscribed
        self.version = version
        """Which subscriptions ``subscribed`` was computed from."""
        self.last_get_ms = self.last_push_ms = _NEVER
        self.last_error = ErrorCode.NONE
        self.terminating = False
        self.expires_ms = 0

    def may_get(self, now_ms: int) -> bool:
        if now_ms - max(self.last_get_ms, self.last_push_ms) < self.subscribed.push_interval_ms:
            return False
        self.last_get_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """The first push after a get comes at any time: clients shift it at random."""
        first = self.last_get_ms > self.last_push_ms
        if not first and now_ms - self.last_push_ms < self.subscribed.push_interval_ms:
            return False
        self.last_push_ms = now_ms
        return True


class ClientMetricsManager:
    """See the module header. ``telemetry_max_bytes``: of one push, compressed and decompressed."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        telemetry_max_bytes: int,
        receivers: Sequence[Receiver] = (log_metrics,),
    ) -> None:
        self.telemetry_max_bytes = telemetry_max_bytes
        self._clock = clock
        self._rng = rng
        self._receivers = tuple(receivers)
        self._subscriptions: dict[str, ClientMetricsConfig] = {}
        self._version = 0
        self._instances: OrderedDict[UUID, _Instance] = OrderedDict()

    def __repr__(self) -> str:
        return (
            f"ClientMetricsManager({len(self._subscriptions)} subscriptions, {len(self._instances)} clients)"
        )

    def update_subscription(self, name: str, overrides: Mapping[str, str]) -> None:
        """This is set for a subscription now; nothing: there is no such subscription."""
        if overrides:
            self._subscriptions[name] = client_metrics_config(overrides)
        elif self._subscriptions.pop(name, None) is None:
            return
        self._version += 1

    def subscribe(self, client_instance_id: UUID | None, attributes: Mapping[str, str | None]) -> Subscribed:
        """What the client is to send. None: a client that has no id yet and gets one.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED before its push interval is over.
        """
        now_ms = self._clock.monotonic_ms()
        known = client_instance_id or UUID(int=self._rng.getrandbits(128), version=4)
        instance = self._instance(known, attributes, now_ms)
        if not instance.may_get(now_ms) and instance.last_error not in _RETRY_AT_ONCE:
            raise _too_early(known)
        instance.last_error = ErrorCode.NONE
        return instance.subscribed

    def push(self, push: Push, attributes: Mapping[str, str | None]) -> None:
        """A client's metrics, given to the receivers.

        Raises:
            KafkaError: INVALID_REQUEST after its last push, THROTTLING_QUOTA_EXCEEDED before the push
                interval is over, UNKNOWN_SUBSCRIPTION_ID when the subscriptions are others now,
                UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE, INVALID_RECORD for what cannot be read.
        """
        now_ms = self._clock.monotonic_ms()
        instance = self._instance(push.client_instance_id, attributes, now_ms)
        try:
            self._check(push, instance, now_ms)
            names = self._names(push)
        except KafkaError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.terminating = push.terminating
        instance.last_error = ErrorCode.NONE
        if names:
            for receive in self._receivers:
                receive({"client_instance_id": encode_uuid(push.client_instance_id), **attributes}, names)

    def _check(self, push: Push, instance: _Instance, now_ms: int) -> None:
        client = encode_uuid(push.client_instance_id)
        if instance.terminating:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Client [{client}] sent the previous request with state terminating to TRUE, can not accept "
                "any requests after that",
            )
        if not instance.may_push(now_ms) and not push.terminating:
            raise _too_early(push.client_instance_id)
        if push.subscription_id != instance.subscribed.subscription_id:
            raise KafkaError(
                ErrorCode.UNKNOWN_SUBSCRIPTION_ID, f"Unknown client subscription id for the client [{client}]"
            )
        if push.compression_type not in CompressionType.__members__.values():
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"Unknown compression type [{push.compression_type}] is received in telemetry request from "
                f"[{client}]",
            )
        if len(push.metrics) > self.telemetry_max_bytes:
            raise _too_large(client, self.telemetry_max_bytes)

    def _names(self, push: Push) -> list[str]:
        """The metrics in ``push``: decompressed within the limit, and looked into."""
        if not push.metrics:
            return []
        try:
            return metric_names(
                decompress(push.metrics, push.compression_type, bytes_max=self.telemetry_max_bytes)
            )
        except CorruptBatch as error:
            if error.code is ErrorCode.MESSAGE_TOO_LARGE:
                raise _too_large(encode_uuid(push.client_instance_id), self.telemetry_max_bytes) from None
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error.message)) from None
        except DamagedTelemetryError as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None

    def _instance(
        self, client_instance_id: UUID, attributes: Mapping[str, str | None], now_ms: int
    ) -> _Instance:
        """The client's, made, or computed again when the subscriptions have changed."""
        self._forget(now_ms)
        instance = self._instances.pop(client_instance_id, None)
        if instance is None or instance.version != self._version:
            instance = _Instance(self._subscribed(client_instance_id, attributes), self._version)
        interval_ms = instance.subscribed.push_interval_ms
        instance.expires_ms = now_ms + max(INSTANCE_LIFE_MS_MIN, 3 * interval_ms)
        self._instances[client_instance_id] = instance
        return instance

    def _forget(self, now_ms: int) -> None:
        """Those who have not come for long, and one when there is no room."""
        while self._instances:
            oldest = next(iter(self._instances.values()))
            if oldest.expires_ms > now_ms and len(self._instances) < INSTANCES_MAX:
                return
            self._instances.popitem(last=False)

    def _subscribed(self, client_instance_id: UUID, attributes: Mapping[str, str | None]) -> Subscribed:
        known = {"client_instance_id": encode_uuid(client_instance_id), **attributes}
        metrics: set[str] = set()
        interval_ms = INTERVAL_MS_DEFAULT
        for _, subscription in sorted(self._subscriptions.items()):
            if _matches(subscription, known):
                metrics.update(subscription.metrics)
                interval_ms = min(interval_ms, subscription.interval_ms)
        wanted = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
        return Subscribed(
            client_instance_id=client_instance_id,
            subscription_id=_subscription_id(client_instance_id, wanted, interval_ms),
            metrics=wanted,
            push_interval_ms=interval_ms,
        )


def _matches(subscription: ClientMetricsConfig, attributes: Mapping[str, str | None]) -> bool:
    return all(
        (value := attributes.get(name)) is not None and pattern.fullmatch(value) is not None
        for name, pattern in subscription.patterns().items()
    )


def _subscription_id(client_instance_id: UUID, metrics: Sequence[str], interval_ms: int) -> int:
    """The same on every broker: the checksum of what the client is told, mixed with its id."""
    checksum = crc32c.crc32c(f"{','.join(metrics)} {interval_ms}".encode())
    mixed = checksum ^ crc32c.crc32c(client_instance_id.bytes)
    return mixed - (1 << 32) if mixed >= 1 << 31 else mixed


def _too_early(client_instance_id: UUID) -> KafkaError:
    return KafkaError(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        f"Request from the client [{encode_uuid(client_instance_id)}] arrived before the next push interval "
        "time",
    )


def _too_large(client: str, bytes_max: int) -> KafkaError:
    return KafkaError(
        ErrorCode.TELEMETRY_TOO_LARGE,
        f"Telemetry request from [{client}] is larger than the maximum allowed size [{bytes_max}]",
    )
