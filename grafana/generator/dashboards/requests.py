"""Requests: how many, how long they take, in which phase, what is refused; and what waits in purgatories."""

from __future__ import annotations

from grafana.generator.board import Dashboard, Section
from grafana.generator.panels import above, by_broker, graph, rows
from grafana.generator.query import BROKER, Query, highest, rate, series, top, total
from grafana.generator.variables import broker_choice, request_choice

REQUESTS = "kafka_network_requestmetrics_"
PURGATORY = "kafka_server_delayedoperationpurgatory_"
API = 'request=~"$request"'
MEDIAN, P99 = 'quantile="0.50"', 'quantile="0.99"'


def _p99(phase: str) -> str:
    return highest(series(f"{REQUESTS}{phase}timems", BROKER, API, P99), "request")


ALL = Section(
    "All requests",
    [
        graph(
            "Requests",
            "Requests that were handled, by API; the busiest ten.",
            Query(top(10, total(rate(f"{REQUESTS}requests_total", BROKER, API), "request")), "{{request}}"),
            unit="reqps",
        ),
        graph(
            "Errors in answers",
            "By API and error, the most frequent ten. NOT_LEADER_OR_FOLLOWER comes when leaders move, "
            "MEMBER_ID_REQUIRED whenever a member joins; both mean nothing. Others for long do.",
            Query(
                top(10, total(rate(f"{REQUESTS}errors_total", BROKER), "request", "error")),
                "{{request}} {{error}}",
            ),
            unit="ops",
        ),
        graph(
            "Size, p99",
            "Bytes of a request, by API, at the broker with the largest. Of Produce it is what producers "
            "send at once (batch.size times partitions).",
            Query(
                top(10, highest(series(f"{REQUESTS}requestbytes", BROKER, API, P99), "request")),
                "{{request}}",
            ),
            unit="bytes",
            width=8,
        ),
        graph(
            "Total time, p99",
            "From the arrival of a request until its answer was written, at the worst broker. Fetches of "
            "idle consumers wait for records up to fetch.max.wait.ms (500 ms), which is no fault; "
            "JoinGroup waits for other members.",
            Query(top(10, _p99("total")), "{{request}}"),
            unit="ms",
            width=8,
        ),
        graph(
            "Total time, median",
            "The same for every other request.",
            Query(
                top(
                    10,
                    highest(series(f"{REQUESTS}totaltimems", BROKER, API, MEDIAN), "request"),
                ),
                "{{request}}",
            ),
            unit="ms",
            width=8,
        ),
    ],
)

PHASES = Section(
    "Where the time goes",
    [
        rows(
            "Phases of each API, p99",
            "The worst broker. Queue: until the handler began. Local: in the handler, while the event "
            "loop does nothing else. Remote: parked, for followers (Produce with acks=all) or for records "
            "(Fetch). Response queue: behind earlier answers of the connection. Send: until the transport "
            "had it. Throttled answers have a time of their own.",
            Query(_p99("total"), "total"),
            Query(_p99("requestqueue"), "queue"),
            Query(_p99("local"), "local"),
            Query(_p99("remote"), "remote"),
            Query(_p99("responsequeue"), "response queue"),
            Query(_p99("responsesend"), "send"),
            labels=["request"],
            units=["ms"] * 6,
        ),
        graph(
            "Queue",
            "Until the handler began, p99. It rises with the event loop's lag: the broker is overloaded.",
            Query(top(5, _p99("requestqueue")), "{{request}}"),
            unit="ms",
            thresholds=above(warning=100),
            width=8,
        ),
        graph(
            "Local",
            "In the handler, p99. A millisecond or less for Produce and Fetch; admin requests take longer.",
            Query(top(5, _p99("local")), "{{request}}"),
            unit="ms",
            width=8,
        ),
        graph(
            "Remote",
            "Parked, p99. For Produce with acks=all it is the time until all in-sync followers have the "
            "records.",
            Query(top(5, _p99("remote")), "{{request}}"),
            unit="ms",
            width=8,
        ),
    ],
)

WAITING = Section(
    "Purgatories",
    [
        graph(
            "Operations that wait",
            "Produce: for followers. Fetch: for records; one for each idle consumer and follower is normal. "
            "Rebalance: for members.",
            Query(
                total(series(f"{PURGATORY}numdelayedoperations", BROKER), "delayedOperation"),
                "{{delayedOperation}}",
            ),
            width=8,
        ),
        graph(
            "Entries of the watch lists",
            "An operation has one for each partition that it waits for, until it is purged.",
            Query(
                total(series(f"{PURGATORY}purgatorysize", BROKER), "delayedOperation"), "{{delayedOperation}}"
            ),
            width=8,
        ),
        by_broker(
            "Fetch sessions",
            "Incremental sessions of consumers and followers. At "
            "max.incremental.fetch.session.cache.slots (1000) the least used are evicted, and their "
            "clients send every partition again.",
            series("kafka_server_fetchsessioncache_numincrementalfetchsessions", BROKER),
            thresholds=above(warning=900),
        ),
    ],
)

REQUESTS_DASHBOARD = Dashboard(
    name="requests",
    title="requests and purgatory",
    description="How many requests, how long they take and in which phase, what is refused, and what waits.",
    variables=[broker_choice(), request_choice()],
    sections=[ALL, PHASES, WAITING],
)
