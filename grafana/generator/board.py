"""A dashboard: its variables above, its panels below in rows with headings, and links to all the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from grafana.generator.panels import DATA_SOURCE, Panel
from grafana.generator.query import CLUSTER

TAG = "minikafka"
ALL = ".+"
"""What "all" stands for: any value, but not a missing label."""

CLUSTER_SERIES = "kafka_server_replicamanager_partitioncount"
JOB_HELP = "The job of Prometheus that these series come from"

Variable = builders.QueryVariable


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and its panels, from left to right and then downwards; 24 columns are a line."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """``name`` is the file's, and with the tag before it the dashboard's lasting id in addresses."""

    name: str
    title: str
    description: str
    variables: Sequence[Variable]
    sections: Sequence[Section]
    source: str = CLUSTER_SERIES
    """The series whose job of Prometheus is chosen above: every broker has the default."""

    def to_json(self) -> str:
        """As Grafana reads it, with a newline at the end."""
        board = (
            builders.Dashboard(f"minikafka: {self.title}")
            .uid(f"{TAG}-{self.name}")
            .description(self.description)
            .tags([TAG])
            .tooltip(DashboardCursorSync.CROSSHAIR)
            .time("now-30m", "now")
            .refresh("10s")
            .timezone("browser")
            .link(_other_dashboards())
            .with_variable(_data_source())
            .with_variable(_cluster(self.source))
        )
        for variable in self.variables:
            board.with_variable(variable)
        next_id = 1
        for section in self.sections:
            board.with_row(builders.Row(section.title).id(next_id))
            for offset, panel in enumerate(section.panels, start=1):
                board.with_panel(panel.id(next_id + offset))
            next_id += 1 + len(section.panels)
        return JSONEncoder(indent=2, sort_keys=True).encode(board.build()) + "\n"


def choice(name: str, title: str, description: str, metric: str, label: str) -> Variable:
    """Any number of the values of ``label`` in the cluster's series ``metric``; all of them at first."""
    return (
        builders.QueryVariable(name)
        .label(title)
        .description(description)
        .datasource(DATA_SOURCE)
        .query(f"label_values({metric}{{{CLUSTER}}}, {label})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC)
        .multi(True)
        .include_all(True)
        .all_value(ALL)
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )


def _data_source() -> builders.DatasourceVariable:
    return builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus")


def _cluster(source: str) -> Variable:
    return (
        builders.QueryVariable("job")
        .label("Cluster" if source == CLUSTER_SERIES else "Scraped by")
        .description("The cluster, which is a job of Prometheus" if source == CLUSTER_SERIES else JOB_HELP)
        .datasource(DATA_SOURCE)
        .query(f"label_values({source}, job)")
        .refresh(VariableRefresh.ON_DASHBOARD_LOAD)
        .sort(VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC)
    )


def _other_dashboards() -> builders.DashboardLink:
    return (
        builders.DashboardLink("minikafka")
        .type(DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )
