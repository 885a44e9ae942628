"""Replication and reassignment: replicas that are not in sync, their lag, and throttled moves."""

from __future__ import annotations

from grafana.generator.board import Dashboard, Section
from grafana.generator.panels import above, by_broker, faults, graph, number, rows, throttled_bytes
from grafana.generator.query import (
    BROKER,
    REPLICAS,
    TOPIC,
    TRAFFIC,
    Query,
    highest,
    rate,
    series,
    top,
    total,
)
from grafana.generator.replicas import offline_replicas, under_min_isr, under_replicated
from grafana.generator.variables import broker_choice, topic_choice

FETCHERS = "kafka_server_replicafetchermanager_"
FETCHER = "kafka_server_fetcherstats_"
LAG = "kafka_server_fetcherlagmetrics_consumerlag"

STATE = Section(
    "State",
    [
        under_replicated(series(f"{REPLICAS}underreplicatedpartitions", BROKER)),
        under_min_isr(series(f"{REPLICAS}underminisrpartitioncount", BROKER)),
        number(
            "Being reassigned",
            "Partitions of the cluster whose replicas move now.",
            Query(highest(series("minikafka_controller_reassigning_partitions")), "partitions"),
        ),
        number(
            "Largest lag",
            "Records by which the partition that lags most lags. Hundreds are normal under load, what "
            "grows is not.",
            Query(highest(series(f"{FETCHERS}maxlag", BROKER)), "records"),
        ),
        faults(
            "Failed partitions",
            "Partitions whose fetching has failed. Normal is 0; the broker's log says why.",
            total(series(f"{FETCHERS}failedpartitionscount", BROKER)),
            "partitions",
        ),
        offline_replicas(BROKER),
    ],
)

IN_SYNC = Section(
    "In sync?",
    [
        by_broker(
            "Under-replicated partitions",
            "By the broker that leads them. All others name the one that is missing.",
            series(f"{REPLICAS}underreplicatedpartitions", BROKER),
            thresholds=above(warning=1),
        ),
        graph(
            "ISR changes",
            "Replicas that fell out and came back. None is normal; both, again and again, is a follower "
            "at its limit (replica.lag.time.max.ms).",
            Query(rate(f"{REPLICAS}isrshrinks_total", BROKER), "{{instance}} out"),
            Query(rate(f"{REPLICAS}isrexpands_total", BROKER), "{{instance}} in"),
            unit="ops",
            width=8,
        ),
        by_broker(
            "ISR changes that failed",
            "Proposals that the coordination store did not take. Few when leaders move; a steady number "
            "is a store that does not answer.",
            rate(f"{REPLICAS}failedisrupdates_total", BROKER),
            unit="ops",
        ),
    ],
)

LAGGING = Section(
    "Lag of followers",
    [
        by_broker(
            "Lag by broker",
            "Records by which the most lagging partition of each follower lags.",
            highest(series(f"{FETCHERS}maxlag", BROKER), "instance"),
            width=12,
        ),
        graph(
            "Lag by partition",
            "The ten that lag most. A replica that is moved begins with all of its records and falls to "
            "0; a level line is a fetcher that is stuck.",
            Query(
                top(10, highest(series(LAG, BROKER, TOPIC), "instance", "topic", "partition")),
                "{{instance}} {{topic}}-{{partition}}",
            ),
        ),
        by_broker(
            "Copied",
            "Bytes that each broker copied from leaders. In all, what producers write times the replicas "
            "less one.",
            rate(f"{TRAFFIC}replicationbytesin_total", BROKER),
            unit="binBps",
            width=12,
        ),
        by_broker(
            "Served to followers",
            "Bytes that each broker answered followers with.",
            rate(f"{TRAFFIC}replicationbytesout_total", BROKER),
            unit="binBps",
            width=12,
        ),
        graph(
            "Copied by fetcher",
            "Bytes a second of each fetcher; num.replica.fetchers says how many there are for a leader.",
            Query(
                top(10, rate(f"{FETCHER}bytes_total", BROKER)),
                "{{instance}} from {{brokerHost}}:{{brokerPort}} {{clientId}}",
            ),
            unit="binBps",
            width=8,
        ),
        graph(
            "Fetch requests by fetcher",
            "An idle one asks about twice a second (replica.fetch.wait.max.ms), a busy one as often as "
            "there are records.",
            Query(
                top(10, rate(f"{FETCHER}requests_total", BROKER)),
                "{{instance}} from {{brokerHost}}:{{brokerPort}} {{clientId}}",
            ),
            unit="reqps",
            width=8,
        ),
        by_broker(
            "Slowest fetcher",
            "Requests a second over the last minute, at each broker. Near 0 with fetchers at work: a "
            "leader does not answer.",
            series(f"{FETCHERS}minfetchrate", BROKER),
            unit="reqps",
        ),
    ],
)

MOVES = Section(
    "Reassignment",
    [
        graph(
            "Partitions being reassigned",
            "As the controller knows them. It falls to 0; a move that never ends lacks a broker or a "
            "higher throttle.",
            Query(highest(series("minikafka_controller_reassigning_partitions")), "partitions"),
            width=8,
        ),
        throttled_bytes(
            "LeaderReplication",
            "Throttled bytes, leaders",
            "Bytes a second of throttled replicas, at the leaders, and the bound. At the bound the "
            "move takes as long as the throttle says.",
        ),
        throttled_bytes("FollowerReplication", "Throttled bytes, followers", "The same at the followers."),
        rows(
            "Replicas that lag now",
            "What is left to copy. Divided by the throttle it is the time that a move still takes.",
            Query(
                f"{highest(series(LAG, BROKER, TOPIC), 'instance', 'topic', 'partition')} > 0",
                "records behind",
            ),
            labels=["topic", "partition", "instance"],
            units=["short"],
        ),
    ],
)

REPLICATION_DASHBOARD = Dashboard(
    name="replication",
    title="replication and reassignment",
    description="Which replicas are not in sync, their lag, and the progress of throttled moves.",
    variables=[broker_choice(), topic_choice()],
    sections=[STATE, IN_SYNC, LAGGING, MOVES],
)
