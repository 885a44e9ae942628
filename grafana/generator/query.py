"""Queries as the panels need them: the series of one cluster, narrowed by what is chosen above the dashboard.

A cluster is a Prometheus job, a broker an instance of it. In the variables of a dashboard, "all" is ``.+``,
which no missing label matches; so a choice of topics leaves out the totals over all topics, which Kafka
exports under the same name without the label.
"""

from __future__ import annotations

from dataclasses import dataclass

CLUSTER = 'job="$job"'
BROKER = 'instance=~"$broker"'
TOPIC = 'topic=~"$topic"'
GROUP = 'consumergroup=~"$group"'
ALL_TOPICS = 'topic=""'
"""The total over all topics, which carries no topic."""

TRAFFIC = "kafka_server_brokertopicmetrics_"
REPLICAS = "kafka_server_replicamanager_"
"""How the series of Kafka's BrokerTopicMetrics and ReplicaManager begin."""

RATE_WINDOW = "$__rate_interval"
"""Grafana's: at least four scrapes, so that a rate survives a missed one."""


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression, and the legend of its series (``{{label}}`` stands for a label's value)."""

    expression: str
    legend: str


def series(name: str, *matchers: str) -> str:
    """The series of that name in the chosen cluster that match."""
    return _matching(name, CLUSTER, *matchers)


def rate(name: str, *matchers: str) -> str:
    """A counter's growth per second."""
    return f"rate({series(name, *matchers)}[{RATE_WINDOW}])"


def total(expression: str, *by: str) -> str:
    """The sum, for each value of these labels."""
    return f"sum by ({', '.join(by)}) ({expression})" if by else f"sum({expression})"


def highest(expression: str, *by: str) -> str:
    """The highest, for each value of these labels."""
    return f"max by ({', '.join(by)}) ({expression})" if by else f"max({expression})"


def top(count: int, expression: str) -> str:
    """The highest few, so that a panel stays readable with a thousand topics."""
    return f"topk({count}, {expression})"


def lag(*matchers: str) -> str:
    """Records that groups have still to read, by group, topic and partition."""
    return highest(series("kafka_consumergroup_lag", *matchers), "consumergroup", "topic", "partition")


def _matching(name: str, *matchers: str) -> str:
    return f"{name}{{{','.join(filter(None, matchers))}}}"
