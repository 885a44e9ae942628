"""Alerts: what is wrong, for how long it must be so, and what to do about it.

Times are in minutes. How long a minute lasts is an argument, so that a test can see every alert fire within
seconds while the rules stay the same.

An alert about the cluster must outlive the broker that it is about: a broker that is gone exports nothing. So
the rules ask those that are left, or Prometheus, which knows that it could not scrape (``up``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

JOBS = 'job=~"minikafka.*"'
"""Which jobs of Prometheus are clusters of ours; for ``up``, which every job has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A rule. In ``expression``, ``{window}`` is the time over which rates and lowest values are taken."""

    name: str
    expression: str
    for_minutes: int
    window_minutes: int = 0
    severity: str
    summary: str
    description: str


_COPIES_NOTHING = (
    "min_over_time(kafka_server_fetcherlagmetrics_consumerlag[{window}]) > 0 "
    "and kafka_server_fetcherlagmetrics_consumerlag offset {window} > 0 "
    "unless on (job, instance, topic, partition) delta(kafka_log_log_logendoffset[{window}]) > 0"
)
"""The partition's follower was behind all the time, and its log has not grown."""

_HELD_BACK = "sum by (job, topic, partition) (increase(minikafka_replication_held_back_total[{window}])) > 0"
"""A quota has held back a read of the partition: this follower's own, or that of the leader, which
is another instance."""

GROUP_LAG_MIN = 10_000
"""Records of a topic that a group may be behind by. A consumer at work commits every five seconds, so less is
what a few thousand records a second look like."""
FAILED_LOGINS_MAX = 5
"""A second. One client with an old password tries about ten times in that time, but backs off to one."""
DENIALS_MAX = 10
"""A second. A client that lacks an ACL asks for metadata each tenth of a second at first."""
FREE_SHARE_MIN = 0.1
"""Of a log directory's file system. Retention by size and by time frees nothing at once."""

_GROUP_LAG = "max by (job, consumergroup, topic) (kafka_consumergroup_lag_sum{at})"
"""By ``max``, because two brokers may show a group for a moment when its coordinator changes."""

ALERTS: Sequence[Alert] = (
    Alert(
        name="MinikafkaBrokerDown",
        expression=f"up{{{JOBS}}} == 0",
        for_minutes=1,
        severity="warning",
        summary="Prometheus cannot reach broker {{ $labels.instance }}",
        description=(
            "The broker is down, hangs, or is cut off. Its partitions are led by others, if they have "
            "in-sync replicas elsewhere. Look at its log, then at its process."
        ),
    ),
    Alert(
        name="MinikafkaOfflinePartitions",
        expression="max by (job) (kafka_controller_kafkacontroller_offlinepartitionscount) > 0",
        for_minutes=1,
        severity="critical",
        summary="{{ $value }} partitions of {{ $labels.job }} have no leader",
        description=(
            "They cannot be written or read. All brokers that may lead them are down, or none of those "
            "that are up was in sync. `minikafka cluster describe` names the partitions and the brokers "
            "that are missing."
        ),
    ),
    Alert(
        name="MinikafkaUnderMinIsr",
        expression="sum by (job) (kafka_server_replicamanager_underminisrpartitioncount) > 0",
        for_minutes=1,
        severity="critical",
        summary="{{ $value }} partitions of {{ $labels.job }} are under min.insync.replicas",
        description=(
            "Producers with acks=all are refused. A broker is down or a follower has fallen behind; "
            "`minikafka cluster describe` says for each replica why it is not in sync."
        ),
    ),
    Alert(
        name="MinikafkaUnderReplicated",
        expression="sum by (job) (kafka_server_replicamanager_underreplicatedpartitions) > 0",
        for_minutes=5,
        severity="warning",
        summary="{{ $value }} partitions of {{ $labels.job }} lack in-sync replicas",
        description=(
            "The next failure may make them unavailable. A broker is down, or a follower does not keep up; "
            "`minikafka cluster describe` says for each replica why it is not in sync."
        ),
    ),
    Alert(
        name="MinikafkaGroupLag",
        expression=(
            f"{_GROUP_LAG.format(at='')} > {GROUP_LAG_MIN} and "
            f"{_GROUP_LAG.format(at='')} > {_GROUP_LAG.format(at=' offset {window}')}"
        ),
        for_minutes=5,
        window_minutes=5,
        severity="warning",
        summary=(
            "Group {{ $labels.consumergroup }} is {{ $value }} records behind in {{ $labels.topic }}, "
            "and falls back"
        ),
        description=(
            "Its consumers are gone, hang, or are slower than the producers. `minikafka groups describe` "
            "shows its members and the lag of each partition."
        ),
    ),
    Alert(
        name="MinikafkaDiskSpace",
        expression=(
            f"minikafka_log_directory_free_bytes / minikafka_log_directory_total_bytes < {FREE_SHARE_MIN}"
        ),
        for_minutes=5,
        severity="critical",
        summary=(
            "{{ $value | humanizePercentage }} of the disk of {{ $labels.logDirectory }} on "
            "{{ $labels.instance }} is free"
        ),
        description=(
            "A full disk takes the log directory offline. Lower retention.bytes or retention.ms of large "
            "topics, or move replicas elsewhere with `minikafka reassign`."
        ),
    ),
    Alert(
        name="MinikafkaNoController",
        expression=(
            "(sum by (job) (kafka_controller_kafkacontroller_activecontrollercount) "
            f"or sum by (job) (up{{{JOBS}}} * 0)) < 1"
        ),
        for_minutes=1,
        severity="critical",
        summary="{{ $labels.job }} has no controller",
        description=(
            "No leader is elected, no topic created and no reassignment continues. Either no broker is up, "
            "or the coordination store (the SQLite file, or ZooKeeper) cannot be reached."
        ),
    ),
    Alert(
        name="MinikafkaStuckFetcher",
        expression=(
            f"({_COPIES_NOTHING} unless on (job, topic, partition) {_HELD_BACK}) "
            "or kafka_server_replicafetchermanager_failedpartitionscount > 0"
        ),
        for_minutes=1,
        window_minutes=5,
        severity="warning",
        summary=(
            "A fetcher of {{ $labels.instance }} is stuck"
            "{{ with $labels.topic }} at {{ . }}-{{ $labels.partition }}{{ end }}"
        ),
        description=(
            "The follower is behind and has copied nothing for minutes, or has given a partition up. The "
            "leader does not answer, or the replica's log is broken (the broker's log says so)."
        ),
    ),
    Alert(
        name="MinikafkaThrottledToAStandstill",
        expression=f"({_COPIES_NOTHING}) and on (job, topic, partition) {_HELD_BACK}",
        for_minutes=1,
        window_minutes=5,
        severity="info",
        summary=(
            "The throttle keeps {{ $labels.instance }} from copying "
            "{{ $labels.topic }}-{{ $labels.partition }}"
        ),
        description=(
            "The follower is behind and has copied nothing for minutes, because a replication quota was "
            "exceeded whenever it asked. If that is not meant, give the move a higher rate: `minikafka "
            "reassign execute --additional --throttle RATE`."
        ),
    ),
    Alert(
        name="MinikafkaSustainedThrottling",
        expression=(
            "sum by (job, instance, request) "
            "(rate(kafka_network_requestmetrics_throttletimems_count[{window}])) > 0"
        ),
        for_minutes=10,
        window_minutes=2,
        severity="warning",
        summary="{{ $labels.instance }} has throttled {{ $labels.request }} requests for minutes",
        description=(
            "A client wants more than its quota, and does not slow down by itself: raise the quota or the "
            "client's batches. `minikafka quotas why` names the entity, its rate, its bound and the "
            "milliseconds."
        ),
    ),
    Alert(
        name="MinikafkaFailedLogins",
        expression=(
            "sum by (job, instance, listener) "
            "(rate(kafka_server_socket_server_metrics_failed_authentication_total[{window}])) "
            f"> {FAILED_LOGINS_MAX}"
        ),
        for_minutes=5,
        window_minutes=2,
        severity="warning",
        summary=(
            "{{ $value | humanize }} logins a second fail at {{ $labels.listener }} of {{ $labels.instance }}"
        ),
        description=(
            "Passwords are being guessed, or many clients have an old one. The broker's log names the "
            "address and the reason of each; max.connection.creation.rate and quotas of the entity type ip "
            "slow an address down."
        ),
    ),
    Alert(
        name="MinikafkaDenials",
        expression=(
            "sum by (job) (rate(kafka_server_plugins_authorization_denied_total[{window}])) "
            f"> {DENIALS_MAX}"
        ),
        for_minutes=10,
        window_minutes=5,
        severity="warning",
        summary="{{ $value | humanize }} requests a second are denied in {{ $labels.job }}",
        description=(
            "A client lacks an ACL and tries again and again, or a user probes for access. The "
            "broker's log names principal, operation and resource; `minikafka why-denied` says which ACL "
            "decides, or which is missing."
        ),
    ),
)


def rules(*, minute_s: int = 60) -> str:
    """The rules as a file for Prometheus (YAML). A minute of the rules lasts ``minute_s`` seconds."""
    lines = [
        "# Written by `python -m grafana.generator` from grafana/generator/rules.py.",
        "groups:",
        "  - name: minikafka",
        "    rules:",
    ]
    for alert in ALERTS:
        expression = alert.expression.replace("{window}", _duration(alert.window_minutes, minute_s))
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {_text(expression)}",
            f"        for: {_duration(alert.for_minutes, minute_s)}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {_text(alert.summary)}",
            f"          description: {_text(alert.description)}",
        ]
    return "\n".join(lines) + "\n"


def _duration(minutes: int, minute_s: int) -> str:
    return f"{minutes}m" if minute_s == 60 else f"{minutes * minute_s}s"


def _text(text: str) -> str:
    """A string in single quotes, in which YAML knows one escape: two of them stand for one."""
    return "'" + text.replace("'", "''") + "'"
