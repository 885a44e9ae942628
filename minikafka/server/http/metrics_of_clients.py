"""What a scrape reads of clients and their quotas.

See ``metrics_of_data`` for how a source behaves. There are ``CLIENTS_MAX`` clients at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from minikafka.metrics import names_of_clients as names
from minikafka.metrics.registry import KafkaMetric
from minikafka.metrics.series import Sample, Source
from minikafka.server.services import Services


def sources_of_clients(services: Services) -> list[Source]:
    """All of this module."""
    return [partial(source, services) for source in (_clients, _quotas)]


def _clients(services: Services) -> Iterator[Sample]:
    clients = services.client_quotas.clients()
    for client in clients:
        yield Sample(names.CLIENT_PRODUCED, client.produced_bytes, (client.user, client.client_id))
    for client in clients:
        yield Sample(names.CLIENT_FETCHED, client.fetched_bytes, (client.user, client.client_id))


def _quotas(services: Services) -> Iterator[Sample]:
    now_ms = services.clock.monotonic_ms()
    families: dict[tuple[str, str], list[KafkaMetric]] = {}
    for metric in services.metrics.metrics.values():
        families.setdefault((metric.name.group, metric.name.name), []).append(metric)
    for family, series in names.QUOTA_METRICS.items():
        for metric in families.get(family, ()):
            yield Sample(series, metric.measure(now_ms), _labels(metric))
    for (group, _), metrics in families.items():
        for metric in metrics:
            if metric.quota is not None and metric.quota.is_upper:
                yield Sample(names.QUOTA_BOUND, metric.quota.bound, (group, *_labels(metric)))


def _labels(metric: KafkaMetric) -> tuple[str, ...]:
    """The user and the client id."""
    return tuple(value for _, value in metric.name.tags)
