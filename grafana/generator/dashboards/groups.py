"""Consumer groups: how far behind each is, how fast it reads, and whether it is at rest or rebalancing.

Lag is the high watermark at the partition's leader less the committed offset; the group's coordinator shows
it.
"""

from __future__ import annotations

from grafana.generator.board import Dashboard, Section
from grafana.generator.panels import above, by_broker, graph, number, rows
from grafana.generator.query import (
    GROUP,
    RATE_WINDOW,
    TOPIC,
    Query,
    highest,
    lag,
    series,
    top,
    total,
)
from grafana.generator.variables import group_choice, topic_choice

MANAGER = "kafka_coordinator_group_groupmetadatamanager_"
COORDINATOR = "kafka_server_group_coordinator_metrics_"
COMMITTED = "kafka_consumergroup_current_offset"
MEMBERS = highest(series("kafka_consumergroup_members", GROUP), "consumergroup")

LAG = lag(GROUP, TOPIC)
READ = highest(
    f"deriv({series(COMMITTED, GROUP, TOPIC)}[$__rate_interval])", "consumergroup", "topic", "partition"
)


def _per_minute(done: str) -> str:
    return f"60 * rate({series(f'{COORDINATOR}{done}_count')}[{RATE_WINDOW}])"


STATE = Section(
    "State",
    [
        number(
            "Groups",
            "Groups of both protocols, on all coordinators.",
            Query(total(series(f"{MANAGER}numgroups")), "groups"),
        ),
        number(
            "Members",
            "Members of the chosen groups.",
            Query(total(MEMBERS), "members"),
        ),
        number(
            "Rebalancing",
            "Groups whose members wait for each other or for an assignment. 0 but for seconds when "
            "members come and go; members of such a classic group read nothing meanwhile.",
            Query(
                f"{total(series(f'{MANAGER}numgroupspreparingrebalance'))} + "
                f"{total(series(f'{MANAGER}numgroupscompletingrebalance'))}",
                "groups",
            ),
            thresholds=above(warning=1),
        ),
        number(
            "Without members",
            "Classic groups that have offsets but no members. Their lag grows.",
            Query(total(series(f"{MANAGER}numgroupsempty")), "groups"),
        ),
        number(
            "Lag",
            "Records that the chosen groups have still to read, together. What counts is whether it grows.",
            Query(total(LAG), "records"),
        ),
        number(
            "Longest wait",
            "Lag of the worst group divided by the speed at which it reads: in that time it has caught up, "
            "if nothing more came. Nothing is shown while the group does not commit.",
            Query(f"max({total(LAG, 'consumergroup')} / ({total(READ, 'consumergroup')} > 0))", "seconds"),
            unit="s",
            thresholds=above(warning=60, critical=600),
        ),
    ],
)

LAGGING = Section(
    "Lag",
    [
        graph(
            "Lag by group",
            "Records between what was committed and the high watermark; the ten that lag most. A "
            "saw-tooth is normal, as offsets are committed every few seconds; a rise is a group that "
            "cannot keep up.",
            Query(top(10, total(LAG, "consumergroup")), "{{consumergroup}}"),
        ),
        graph(
            "Lag by partition",
            "The ten worst. One alone that grows: its consumer is stuck, or a key is hot.",
            Query(
                top(10, total(LAG, "consumergroup", "topic", "partition")),
                "{{consumergroup}} {{topic}}-{{partition}}",
            ),
        ),
        graph(
            "Speed of reading",
            "Records a second by which the committed offsets move.",
            Query(top(10, total(READ, "consumergroup")), "{{consumergroup}}"),
            unit="recps",
        ),
        graph(
            "Members by group",
            "Members of each group. It changes when consumers come, go or die.",
            Query(top(10, MEMBERS), "{{consumergroup}}"),
        ),
        rows(
            "Groups now",
            "One line for each topic that a group has read.",
            Query(total(LAG, "consumergroup", "topic"), "lag"),
            Query(total(READ, "consumergroup", "topic"), "records a second"),
            Query(
                f"count by (consumergroup, topic) "
                f"({highest(series(COMMITTED, GROUP, TOPIC), 'consumergroup', 'topic', 'partition')})",
                "partitions",
            ),
            labels=["consumergroup", "topic"],
            units=["short", "recps", "short"],
        ),
    ],
)

COORDINATORS = Section(
    "Coordinators",
    [
        by_broker(
            "Groups by coordinator",
            "A group belongs to the leader of one partition of __consumer_offsets.",
            series(f"{MANAGER}numgroups"),
            width=12,
        ),
        graph(
            "Rebalances a minute",
            "Classic: all members have a new assignment; the group does not read meanwhile. KIP-848: a "
            "group's next epoch. Many in a row are consumers that come and go, or are too slow between two "
            "polls.",
            Query(total(_per_minute("group_completed_rebalance")), "classic"),
            Query(total(_per_minute("consumer_group_rebalance")), "consumer"),
        ),
        graph(
            "Offset commits",
            "Offsets committed a second, by coordinator. Each is a write with acks=all.",
            Query(
                total(f"rate({series(f'{COORDINATOR}offset_commit_count')}[{RATE_WINDOW}])", "instance"),
                "{{instance}}",
            ),
            unit="ops",
        ),
        graph(
            "Groups by protocol",
            "Classic, and KIP-848's (group.protocol=consumer).",
            Query(total(series(f"{COORDINATOR}group_count"), "protocol"), "{{protocol}}"),
        ),
        graph(
            "Partitions of __consumer_offsets",
            "Active: groups are served. Loading: seconds at most, after a leader moved. Failed is never "
            "normal.",
            Query(total(series(f"{COORDINATOR}num_partitions"), "state"), "{{state}}"),
        ),
        by_broker(
            "Time to load",
            "The longest load of a partition of __consumer_offsets in the last minute. Its groups wait that "
            "long after a leader has moved.",
            series(f"{COORDINATOR}partition_load_time_max"),
            unit="ms",
            width=12,
        ),
    ],
)

GROUPS_DASHBOARD = Dashboard(
    name="groups",
    title="consumer-group lag",
    description="How far behind each group is, how fast it reads, and whether it is at rest.",
    variables=[group_choice(), topic_choice()],
    sections=[STATE, LAGGING, COORDINATORS],
)
