"""Panels as all dashboards draw them: a number, lines over time, a table; each with a unit, a legend and a
description that says what is normal.

The thresholds of a panel colour it. They say the same as the alert rules where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders import common, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from grafana.generator.query import BROKER, Query, series

Panel = timeseries.Panel | stat.Panel | table.Panel

DATA_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
"""The one chosen above the dashboard."""

WIDTH_OF_ALL = 24
NUMBER_HEIGHT = 4
GRAPH_HEIGHT = 8

GREEN, ORANGE, RED, BLUE = "green", "orange", "red", "blue"

NEUTRAL = [Threshold(value=None, color=BLUE)]
"""For what is neither good nor bad."""


def above(*, warning: float | None = None, critical: float | None = None) -> list[Threshold]:
    """Green, orange from ``warning`` on, red from ``critical`` on."""
    steps = [Threshold(value=None, color=GREEN)]
    if warning is not None:
        steps.append(Threshold(value=warning, color=ORANGE))
    if critical is not None:
        steps.append(Threshold(value=critical, color=RED))
    return steps


def exactly(value: float) -> list[Threshold]:
    """Green for this whole number, red for any other."""
    return [
        Threshold(value=None, color=RED),
        Threshold(value=value, color=GREEN),
        Threshold(value=value + 1, color=RED),
    ]


def number(
    title: str,
    description: str,
    query: Query,
    *,
    unit: str = "short",
    thresholds: Sequence[Threshold] = NEUTRAL,
    width: int = 4,
) -> stat.Panel:
    """One number, coloured by its thresholds, with its course in the background."""
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(DATA_SOURCE)
        .unit(unit)
        .span(width)
        .height(NUMBER_HEIGHT)
        .thresholds(_absolute(thresholds))
        .color_mode(options.BigValueColorMode.VALUE)
        .graph_mode(options.BigValueGraphMode.AREA)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .with_target(_target(query, "A"))
    )


def faults(
    title: str, description: str, expression: str, legend: str, *, is_warning: bool = False
) -> stat.Panel:
    """How many of what should not be: red from one on, or orange where it may be so for a while."""
    thresholds = above(warning=1) if is_warning else above(critical=1)
    return number(title, description, Query(expression, legend), thresholds=thresholds)


def graph(
    title: str,
    description: str,
    *queries: Query,
    unit: str = "short",
    thresholds: Sequence[Threshold] = (),
    stacked: bool = False,
    width: int = 12,
) -> timeseries.Panel:
    """Lines over time, with a table of their last and highest values as the legend."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(DATA_SOURCE)
        .unit(unit)
        .min(0)
        .span(width)
        .height(GRAPH_HEIGHT)
        .line_width(1)
        .fill_opacity(30 if stacked else 8)
        .show_points(options.VisibilityMode.NEVER)
        .legend(
            common.VizLegendOptions()
            .display_mode(options.LegendDisplayMode.TABLE)
            .placement(options.LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(options.TooltipDisplayMode.MULTI)
            .sort(options.SortOrder.DESCENDING)
        )
    )
    if stacked:
        panel.stacking(common.StackingConfig().mode(options.StackingMode.NORMAL).group("A"))
    if thresholds:
        line = common.GraphThresholdsStyleConfig().mode(options.GraphTresholdsStyleMode.LINE)
        panel.thresholds(_absolute(thresholds)).thresholds_style(line)
    for ref_id, query in zip("ABCDEFGH", queries, strict=False):
        panel.with_target(_target(query, ref_id))
    return panel


def by_broker(
    title: str,
    description: str,
    expression: str,
    *,
    unit: str = "short",
    thresholds: Sequence[Threshold] = (),
    width: int = 8,
) -> timeseries.Panel:
    """A line for each broker."""
    query = Query(expression, "{{instance}}")
    return graph(title, description, query, unit=unit, thresholds=thresholds, width=width)


def throttled_bytes(kind: str, title: str, description: str) -> timeseries.Panel:
    """What a replication quota lets through, and its bound where it has one. ``kind``: LeaderReplication or
    FollowerReplication."""
    return graph(
        title,
        description,
        Query(series(f"kafka_server_{kind.lower()}_byte_rate", BROKER), "{{instance}}"),
        Query(
            series("minikafka_replication_quota_bytes_per_second", BROKER, f'type="{kind}"'),
            "{{instance}} bound",
        ),
        unit="binBps",
        width=8,
    )


def rows(
    title: str,
    description: str,
    *queries: Query,
    labels: Sequence[str],
    units: Sequence[str],
    width: int = WIDTH_OF_ALL,
) -> table.Panel:
    """A table of what is the case now: a row for each combination of ``labels``, a column for each query.

    The legend of a query is the heading of its column; ``units`` are those of the columns, in their order.
    """
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(DATA_SOURCE)
        .span(width)
        .height(GRAPH_HEIGHT)
        .show_header(True)
    )
    renamed, order = {}, {label: place for place, label in enumerate(labels)}
    for ref_id, query, unit in zip("ABCDEFGH", queries, units, strict=False):
        panel.with_target(_target(query, ref_id).instant().format(PromQueryFormat.TABLE))
        value = f"Value #{ref_id}" if len(queries) > 1 else "Value"
        renamed[value] = query.legend
        order[value] = len(order)
        panel.override_by_name(query.legend, [DynamicConfigValue(id_val="unit", value=unit)])
    if len(queries) > 1:
        panel.with_transformation(DataTransformerConfig(id_val="merge", options={}))
    organize = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": renamed}
    return panel.with_transformation(DataTransformerConfig(id_val="organize", options=organize))


def _target(query: Query, ref_id: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(query.expression).legend_format(query.legend).ref_id(ref_id)


def _absolute(steps: Sequence[Threshold]) -> builders.ThresholdsConfig:
    return builders.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(list(steps))
