"""Quotas and throttling: which clients are throttled, by which bound, and for how long."""

from __future__ import annotations

from grafana.generator.board import Dashboard, Section
from grafana.generator.panels import WIDTH_OF_ALL, Panel, above, by_broker, graph, throttled_bytes
from grafana.generator.query import BROKER, Query, highest, rate, series, top, total
from grafana.generator.variables import broker_choice

REQUESTS = "kafka_network_requestmetrics_"
CLIENT, ENTITY = "{{client_id}}", "{{user}} {{client_id}}"


def _used(quota: str, rate: str, description: str) -> Panel:
    """How much of their quotas of one kind the entities use that use most of it."""
    measured = series(f"kafka_server_{quota.lower()}_{rate}", BROKER)
    bound = series("minikafka_client_quota_bound", BROKER, f'type="{quota}"')
    used = f"{measured} / on (instance, user, client_id) {bound}"
    return graph(
        f"{quota} quotas, used",
        description,
        Query(top(10, highest(used, "user", "client_id")), ENTITY),
        unit="percentunit",
        thresholds=above(warning=1),
        width=8,
    )


def _throttle_time(quota: str) -> str:
    return highest(series(f"kafka_server_{quota}_throttle_time", BROKER), "user", "client_id")


THROTTLED = Section(
    "Requests",
    [
        graph(
            "Throttled requests",
            "Requests a second whose answer a quota delayed, by API. 0 where there is no quota, or all keep "
            "to it.",
            Query(top(10, total(rate(f"{REQUESTS}throttletimems_count", BROKER), "request")), "{{request}}"),
            unit="reqps",
        ),
        graph(
            "Throttle time, p99",
            "How long such answers and their connections were held back. Clients see it as throttle_time_ms.",
            Query(
                top(
                    10,
                    highest(series(f"{REQUESTS}throttletimems", BROKER, 'quantile="0.99"'), "request"),
                ),
                "{{request}}",
            ),
            unit="ms",
        ),
    ],
)

CLIENTS = Section(
    "Clients and their quotas",
    [
        graph(
            "Written by client",
            "Bytes a second of Produce requests, the busiest ten, with a quota or without.",
            Query(top(10, total(rate("minikafka_client_produced_bytes_total", BROKER), "client_id")), CLIENT),
            unit="binBps",
        ),
        graph(
            "Read by client",
            "Bytes a second of records, the busiest ten, with a quota or without.",
            Query(top(10, total(rate("minikafka_client_fetched_bytes_total", BROKER), "client_id")), CLIENT),
            unit="binBps",
        ),
        _used(
            "Produce",
            "byte_rate",
            "The rate that a quota counts, in parts of its bound, at the broker where it is highest. Each "
            "broker allows the bound for itself. Above 1 its clients are throttled.",
        ),
        _used("Fetch", "byte_rate", "The same for what is read."),
        _used("Request", "request_time", "The same for the time that handlers take."),
        graph(
            "Throttle time by entity",
            "The mean of late, for producers and consumers. An empty part of a name is shared by all that "
            "have no quota of their own. `minikafka quotas why` tells each throttle with its formula.",
            Query(top(10, _throttle_time("produce")), f"{ENTITY} producing"),
            Query(top(10, _throttle_time("fetch")), f"{ENTITY} fetching"),
            unit="ms",
        ),
        graph(
            "Tokens for creating and deleting partitions",
            "What an entity with a controller_mutation_rate has left, at the broker where it has least. "
            "Below 0 it has to wait.",
            Query(
                f"min by (user, client_id) ({series('kafka_server_controllermutation_tokens', BROKER)})",
                ENTITY,
            ),
        ),
    ],
)

REPLICATION = Section(
    "Replication",
    [
        throttled_bytes(
            "LeaderReplication",
            "Leaders",
            "Bytes a second of throttled replicas that followers fetched, and the bound. A move at its "
            "bound is as fast as the throttle allows.",
        ),
        throttled_bytes(
            "FollowerReplication",
            "Followers",
            "Bytes a second of throttled replicas that these brokers copied, and the bound.",
        ),
        by_broker(
            "Moves between log directories",
            "Bytes a second that a replica copied to another directory of its broker.",
            series("kafka_server_alterlogdirsreplication_byte_rate", BROKER),
            unit="binBps",
        ),
        graph(
            "Held back",
            "How often a second a fetch left the partition out because of the throttle, the most ten. "
            "Some are how a throttle works; one that is held back and copies nothing stands still.",
            Query(
                top(
                    10,
                    total(
                        rate("minikafka_replication_held_back_total", BROKER), "type", "topic", "partition"
                    ),
                ),
                "{{topic}}-{{partition}} {{type}}",
            ),
            unit="ops",
            width=WIDTH_OF_ALL,
        ),
    ],
)

QUOTAS_DASHBOARD = Dashboard(
    name="quotas",
    title="quotas and throttling",
    description="Which clients are throttled, by which bound, and for how long.",
    variables=[broker_choice()],
    sections=[THROTTLED, CLIENTS, REPLICATION],
)
