"""The page of Kafka's command line tools, and what each does with a broker here."""

from __future__ import annotations

from docs.generator.markdown import code, page, table, text

TOOLS = (
    ("kafka-acls", "works; without an authorizer SECURITY_DISABLED, as Kafka"),
    ("kafka-broker-api-versions", "works"),
    ("kafka-client-metrics", "works"),
    (
        "kafka-cluster",
        "cluster-id, list-endpoints and unregister work; a broker that is gone is fenced until it is "
        "unregistered, and a live one cannot be; --bootstrap-controller finds no controller's listener",
    ),
    (
        "kafka-configs",
        "works, for topics, brokers, loggers, users, clients, addresses, groups and client-metrics",
    ),
    ("kafka-console-consumer, kafka-console-producer", "work"),
    (
        "kafka-console-share-consumer, kafka-share-groups, kafka-share-consumer-perf-test",
        "work",
    ),
    ("kafka-consumer-groups, kafka-groups", "work"),
    ("kafka-consumer-perf-test, kafka-producer-perf-test, kafka-e2e-latency", "work"),
    ("kafka-delegation-tokens", "works; on a listener without SASL refused, as Kafka"),
    ("kafka-delete-records, kafka-get-offsets", "work"),
    ("kafka-dump-log", "works; --cluster-metadata-decoder has no log to read"),
    (
        "kafka-features",
        "works; metadata.version, kraft.version and eligible.leader.replicas.version stand at those of 4.4",
    ),
    ("kafka-jmx", "there is no JVM; metrics are at /metrics"),
    ("kafka-leader-election", "works"),
    ("kafka-log-dirs", "works"),
    (
        "kafka-metadata-quorum",
        "describe works: the controller as leader, the live brokers as its voters; no voter can be added or "
        "removed",
    ),
    ("kafka-metadata-shell, kafka-storage", "for the log of KRaft, which there is not"),
    ("kafka-reassign-partitions", "works, with throttles and between log directories"),
    ("kafka-replica-verification", "works"),
    ("kafka-streams-application-reset", "works"),
    ("kafka-streams-groups", "works"),
    ("kafka-topics", "works"),
    ("kafka-transactions", "works"),
    ("kafka-verifiable-consumer, kafka-verifiable-producer, kafka-verifiable-share-consumer", "work"),
)
"""Names without .sh, and what they do."""


def kafka_tools() -> str:
    """The page's text."""
    return page(
        "Kafka's tools",
        "The programs in Kafka's `bin/`, and what they do with minikafka. Most of 4.3.1 and 4.4.0 were "
        "run; tests run those of 4.1.0, and a few of 4.4.0; `minikafka` has "
        "[commands of its own](cli.md) for most of it.",
        table(
            ("tool", "here"),
            [
                (", ".join(code(f"{name}.sh") for name in names.split(", ")), text(here))
                for names, here in TOOLS
            ],
        ),
    )
