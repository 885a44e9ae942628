"""What can be chosen above a dashboard, besides the cluster."""

from __future__ import annotations

from grafana.generator.board import Variable, choice


def broker_choice() -> Variable:
    """Brokers, by the address that Prometheus scrapes."""
    return choice(
        "broker",
        "Broker",
        "By the address that Prometheus scrapes",
        metric="kafka_server_replicamanager_partitioncount",
        label="instance",
    )


def topic_choice() -> Variable:
    """Topics that have a leader."""
    return choice("topic", "Topic", "Topics of the cluster", "kafka_topic_partition_current_offset", "topic")


def request_choice() -> Variable:
    """APIs that were asked for at least once."""
    return choice(
        "request",
        "API",
        "As Kafka names its requests; each Fetch counts as FetchConsumer or FetchFollower too",
        metric="kafka_network_requestmetrics_totaltimems_count",
        label="request",
    )


def group_choice() -> Variable:
    """Groups that committed an offset."""
    return choice(
        "group",
        "Group",
        "Consumer groups that have committed an offset",
        metric="kafka_consumergroup_current_offset",
        label="consumergroup",
    )
