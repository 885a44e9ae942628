"""Share groups (KIP-932) and streams groups (KIP-1071): whether they are at rest, what share groups
acknowledge and what comes back to them, and the share coordinator that keeps their state.

How far streams groups lag is on the dashboard of consumer groups, whose offsets they have, too.
"""

from __future__ import annotations

from grafana.generator.board import Dashboard, Section
from grafana.generator.panels import above, by_broker, graph, number
from grafana.generator.query import ALL_TOPICS, RATE_WINDOW, TRAFFIC, Query, highest, rate, series, top, total

COORDINATOR = "kafka_server_group_coordinator_metrics_"
SESSIONS = "kafka_server_sharesessioncache_"
ACKNOWLEDGED = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
LOCK_TIMEOUTS = "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total"
SHARE_COORDINATOR = "kafka_server_share_coordinator_metrics_"
PARTITION = "kafka_server_sharepartitionmetrics_"
FETCH_EXPIRES = "kafka_server_delayedsharefetchmetrics_expires_total"
MEDIAN, P99 = 'quantile="0.50"', 'quantile="0.99"'
DELAYED = "kafka_server_delayedoperationpurgatory_numdelayedoperations"


def _states(kind: str, *states: str) -> str:
    """Groups in one of the states."""
    return total(series(f"{COORDINATOR}{kind}_group_count", f'state=~"{"|".join(states)}"'))


def _by_state(kind: str) -> Query:
    return Query(total(series(f"{COORDINATOR}{kind}_group_count"), "state"), "{{state}}")


def _rebalances(kind: str) -> str:
    """New group epochs a minute."""
    return total(f"60 * rate({series(f'{COORDINATOR}{kind}_group_rebalance_count')}[{RATE_WINDOW}])")


def _requests(name: str, legend: str) -> Query:
    """A second, of all brokers."""
    return Query(total(rate(f"{TRAFFIC}{name}requests_total", ALL_TOPICS)), legend)


def _of_topics(name: str, quantile: str) -> Query:
    """The highest of a topic's share partitions."""
    return Query(
        top(10, highest(series(PARTITION + name, quantile), "group", "topic")), "{{group}} {{topic}}"
    )


STATE = Section(
    "State",
    [
        number(
            "Share groups",
            "Share groups with members, on all coordinators.",
            Query(_states("share", "stable"), "groups"),
        ),
        number(
            "Without members",
            "Share groups whose members are gone. What comes meanwhile waits for them.",
            Query(_states("share", "empty"), "groups"),
        ),
        number(
            "Members at work",
            "Share sessions: each member has one with each broker from which it fetches.",
            Query(total(series(f"{SESSIONS}sharesessionscount")), "sessions"),
        ),
        number(
            "Streams groups",
            "Streams groups whose members have all of their tasks.",
            Query(_states("streams", "stable"), "groups"),
        ),
        number(
            "Moving tasks",
            "Streams groups whose members are on their way to another assignment. 0 but for seconds when "
            "instances come and go.",
            Query(_states("streams", "assigning", "reconciling"), "groups"),
            thresholds=above(warning=1),
        ),
        number(
            "Not ready",
            "Streams groups that wait for a topic, of which an instance has said why. 0 is normal.",
            Query(_states("streams", "not_ready"), "groups"),
            thresholds=above(warning=1),
        ),
    ],
)

RECORDS = Section(
    "Records of share groups",
    [
        graph(
            "Acknowledgements",
            "Records a second, by what members said: Accept is done, Release gives a record to another "
            "member, Reject ends it, Renew asks for more time. Many that are released are members that "
            "cannot do their work.",
            Query(total(rate(ACKNOWLEDGED), "ackType"), "{{ackType}}"),
            unit="recps",
        ),
        graph(
            "Locks that ran out",
            "Records a second that a member had and did not acknowledge within "
            "share.record.lock.duration.ms; they are delivered again. 0 is normal: else members are too "
            "slow, or have died.",
            Query(total(rate(LOCK_TIMEOUTS), "instance"), "{{instance}}"),
            unit="recps",
            thresholds=above(warning=1),
        ),
        by_broker(
            "Share partitions",
            "Partitions that the broker leads and share groups consume, each once for each group.",
            series("minikafka_share_partitions"),
        ),
        by_broker(
            "Waiting fetches",
            "ShareFetch requests that wait for records. Where members are at work and have nothing to do, "
            "each has one; 0 under load.",
            series(DELAYED, 'delayedOperation="ShareFetch"'),
        ),
        by_broker(
            "Sessions that broke",
            "Share sessions a minute that ended with their connection. What the member had is given to "
            "others at once. Many are clients that are killed, or a network that drops connections.",
            f"60 * {rate(f'{SESSIONS}sharesessionevictions_total')}",
        ),
    ],
)

REQUESTS = Section(
    "Requests of share groups",
    [
        graph(
            "Fetches and acknowledgements",
            "Requests a second, each once for each of its topics. A ShareFetch that acknowledges counts as "
            "both.",
            _requests("totalsharefetch", "fetches"),
            _requests("totalshareacknowledgement", "acknowledgements"),
            unit="reqps",
            width=8,
        ),
        graph(
            "Requests that failed",
            "Of those, what was answered with an error. Some while leaders move are normal; acknowledgements "
            "that fail for long come from members that are slower than share.record.lock.duration.ms.",
            _requests("failedsharefetch", "fetches"),
            _requests("failedshareacknowledgement", "acknowledgements"),
            unit="reqps",
            width=8,
        ),
        by_broker(
            "Fetches whose wait was over",
            "ShareFetch requests a second that were answered because fetch.max.wait.ms was over. Normal "
            "where members have little to do; 0 under load.",
            rate(FETCH_EXPIRES),
            unit="reqps",
        ),
        graph(
            "Time that fetches keep others away",
            "99th percentile, of the ten highest topics of a group: a share partition is read by one fetch "
            "at a time. A few milliseconds; more where records come from the disk.",
            _of_topics("fetchlocktimems", P99),
            unit="ms",
            width=8,
        ),
        graph(
            "Part of the time with a fetch",
            "Median, of the ten highest topics of a group: how much of the time a share partition is being "
            "read. Near 100 % more members of the group bring nothing, more partitions do.",
            _of_topics("fetchlockratio", MEDIAN),
            unit="percent",
            width=8,
        ),
        graph(
            "Records in a batch",
            "Median, of the ten highest topics of a group: how many records members are given together. "
            "Small batches are many states to keep and to write.",
            _of_topics("inflightbatchmessagecount", MEDIAN),
            width=8,
        ),
    ],
)

COORDINATORS = Section(
    "Coordinators",
    [
        graph(
            "Share groups by state",
            "Stable: with members. Empty: without.",
            _by_state("share"),
        ),
        graph(
            "Streams groups by state",
            "Stable is normal. Assigning and reconciling last for seconds; not ready until the topics are "
            "there.",
            _by_state("streams"),
        ),
        graph(
            "New epochs a minute",
            "Each is another assignment. Many in a row are members that come and go.",
            Query(_rebalances("share"), "share"),
            Query(_rebalances("streams"), "streams"),
            width=8,
        ),
        graph(
            "Writes of share state",
            "What the share coordinators write a second for leaders. Each is a write with acks=all, and "
            "acknowledgements wait for it; those that come meanwhile go into the next one.",
            Query(total(rate(f"{SHARE_COORDINATOR}write_total"), "instance"), "{{instance}}"),
            unit="ops",
            width=8,
        ),
        by_broker(
            "Latency of writes",
            "The longest write of the last minute, until all in-sync replicas of __share_group_state had it. "
            "An acknowledgement takes that long; some milliseconds are normal.",
            series(f"{SHARE_COORDINATOR}write_latency_max"),
            unit="ms",
        ),
        graph(
            "Partitions of __share_group_state",
            "Active: share groups are served. Loading: seconds at most, after a leader moved. Failed is "
            "never normal.",
            Query(total(series("minikafka_share_coordinator_partitions"), "state"), "{{state}}"),
        ),
        by_broker(
            "Time to load",
            "The longest load of a partition of __share_group_state in the last minute. Its share partitions "
            "wait that long after a leader has moved.",
            series(f"{SHARE_COORDINATOR}partition_load_time_max"),
            unit="ms",
            width=12,
        ),
    ],
)

SHARE_AND_STREAMS_DASHBOARD = Dashboard(
    name="share-and-streams",
    title="share and streams groups",
    description="Whether share and streams groups are at rest, and what becomes of share groups' records.",
    variables=[],
    sections=[STATE, RECORDS, REQUESTS, COORDINATORS],
)
