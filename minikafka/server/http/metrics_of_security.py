"""What a scrape reads of logins, of new connections, and of the authorizer.

See ``metrics_of_data`` for how a source behaves. Listeners that have counted nothing show zeros, so that a
rate sees the first failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from minikafka.metrics import names
from minikafka.metrics.security_metrics import AuthenticationMetrics
from minikafka.metrics.series import Sample, Source
from minikafka.network.connection_limits import ConnectionCounts
from minikafka.network.socket_server import SocketServer
from minikafka.server.services import Services

NETWORK_PROCESSOR = "0"
"""Kafka's threads of a listener; here it is one."""


def sources_of_security(
    services: Services, socket_server: SocketServer, handshakes_of_http: Callable[[], Mapping[str, int]]
) -> list[Source]:
    """All of this module. ``handshakes_of_http``: those of the HTTP port that failed, by its name."""
    return [
        partial(_authentications, services, socket_server, handshakes_of_http),
        partial(_connections, socket_server),
        partial(_authorizer, services),
    ]


def _authentications(
    services: Services, server: SocketServer, handshakes_of_http: Callable[[], Mapping[str, int]]
) -> Iterator[Sample]:
    """A handshake is an authentication too, in Kafka's counts: one that fails everywhere, one that succeeds
    where nothing follows it."""
    nothing = AuthenticationMetrics()
    handshakes = server.handshakes
    failed = dict(handshakes_of_http())
    done: dict[str, int] = {}
    if handshakes is not None:
        failed |= handshakes.failed
        done = {
            listener.name: handshakes.done.get(listener.name, 0)
            for listener in services.config.endpoints()
            if listener.protocol == "SSL"
        }
    by_handshake: dict[str, dict[str, int]] = {"successful": done, "failed": failed}
    counted = dict.fromkeys(server.listener_names, nothing) | services.security_metrics.listeners
    for field, series in names.AUTHENTICATIONS.items():
        for listener, counts in counted.items():
            count = getattr(counts, field) + by_handshake.get(field, {}).get(listener, 0)
            yield Sample(series, count, (listener, NETWORK_PROCESSOR))
    expired = sum(counts.expired_killed for counts in counted.values())
    yield Sample(names.EXPIRED_CONNECTIONS_KILLED, expired)
    for listener in counted:
        yield Sample(names.TLS_HANDSHAKES_FAILED, failed.get(listener, 0), (listener,))


def _connections(server: SocketServer) -> Iterator[Sample]:
    nothing = ConnectionCounts()
    counted = {name: server.limits.counts.get(name, nothing) for name in server.listener_names}
    for listener, counts in counted.items():
        yield Sample(names.CONNECTIONS_CREATED, counts.accepted, (listener, NETWORK_PROCESSOR))
    for listener, counts in counted.items():
        yield Sample(names.CONNECTIONS_REFUSED, counts.refused, (listener,))
    for listener, counts in counted.items():
        yield Sample(names.CONNECTION_THROTTLES, counts.throttled, (listener, "listener"))
        yield Sample(names.CONNECTION_THROTTLES, counts.ip_throttled, (listener, "ip"))
    for listener, counts in counted.items():
        yield Sample(names.CONNECTION_THROTTLE_SECONDS, counts.delayed_ms / 1000, (listener, "listener"))
        yield Sample(names.CONNECTION_THROTTLE_SECONDS, counts.ip_delayed_ms / 1000, (listener, "ip"))


def _authorizer(services: Services) -> Iterator[Sample]:
    counts = services.security_metrics.authorizer
    yield Sample(names.AUTHORIZATION_REQUESTS, counts.requests)
    yield Sample(names.AUTHORIZATIONS_ALLOWED, counts.allowed)
    yield Sample(names.AUTHORIZATIONS_DENIED, counts.denied)
    yield Sample(names.ACLS, 0 if services.acls is None else services.acls.count)
