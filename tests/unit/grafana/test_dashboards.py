"""What holds for every dashboard: it asks for series that exist, and a person can read it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from grafana.generator.dashboards import DASHBOARDS
from grafana.generator.panels import WIDTH_OF_ALL
from grafana.generator.rules import ALERTS, rules
from minikafka.metrics.names import ALL_SERIES
from minikafka.metrics.series import SPARK_SERIES, SeriesType

BOARDS: dict[str, dict[str, Any]] = {board.name: json.loads(board.to_json()) for board in DASHBOARDS}

FROM_ELSEWHERE = {
    "up",
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "python_gc_collections_total",
}
"""Prometheus makes the first, prometheus-client the others."""

EXPORTED = FROM_ELSEWHERE | {
    name
    for series in (*ALL_SERIES, *SPARK_SERIES)
    for name in (series.sample, *([f"{series.name}_count"] if series.type is SeriesType.SUMMARY else []))
}
METRIC = re.compile(r"\b(?:up|(?:kafka|minikafka|process|python)_\w+)\b")


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (panel for panel in board["panels"] if panel["type"] != "row")


def expressions(board: dict[str, Any]) -> Iterator[str]:
    return (target["expr"] for panel in panels(board) for target in panel["targets"])


@pytest.mark.parametrize("name", BOARDS)
def test_every_query_asks_for_series_that_are_exported(name: str) -> None:
    asked = {metric for text in expressions(BOARDS[name]) for metric in METRIC.findall(text)}
    assert asked and asked <= EXPORTED
    variables = {
        metric
        for variable in BOARDS[name]["templating"]["list"]
        for metric in METRIC.findall(variable["query"])
    }
    assert variables <= EXPORTED


def test_every_rule_asks_for_series_that_are_exported() -> None:
    asked = {metric for alert in ALERTS for metric in METRIC.findall(alert.expression)}
    assert asked and asked <= EXPORTED


@pytest.mark.parametrize("name", BOARDS)
def test_every_query_is_about_the_chosen_cluster_and_uses_what_can_be_chosen(name: str) -> None:
    board = BOARDS[name]
    variables = {variable["name"] for variable in board["templating"]["list"]}
    used = set()
    for text in expressions(board):
        assert len(METRIC.findall(text)) == text.count('job="$job"'), text
        used |= set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval"}
    assert used | {"datasource"} == variables


@pytest.mark.parametrize("name", BOARDS)
def test_every_panel_says_what_it_shows_and_what_is_normal(name: str) -> None:
    for panel in panels(BOARDS[name]):
        assert panel["description"].endswith("."), panel["title"]
        assert all(target["legendFormat"] for target in panel["targets"])
        assert panel["datasource"]["uid"] == "${datasource}"
        units = [panel["fieldConfig"]["defaults"].get("unit")] + [
            setting["value"]
            for override in panel["fieldConfig"]["overrides"]
            for setting in override["properties"]
        ]
        assert any(units), panel["title"]


@pytest.mark.parametrize("name", BOARDS)
def test_every_line_of_panels_is_full(name: str) -> None:
    lines: dict[int, int] = {}
    for panel in BOARDS[name]["panels"]:
        place = panel["gridPos"]
        assert lines.get(place["y"], 0) == place["x"], panel["title"]
        lines[place["y"]] = place["x"] + place["w"]
    assert set(lines.values()) == {WIDTH_OF_ALL}


def test_dashboards_and_panels_can_be_told_apart() -> None:
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS)
    for board in BOARDS.values():
        ids = [panel["id"] for panel in board["panels"]]
        titles = [panel["title"] for panel in panels(board)]
        assert len(set(ids)) == len(ids)
        assert len(set(titles)) == len(titles), titles


def test_a_shorter_minute_shortens_the_rules_and_changes_nothing_else() -> None:
    short, long = rules(minute_s=3), rules()
    durations = re.compile(r"\b\d+[ms]\b")
    assert durations.sub("", short) == durations.sub("", long)
    assert "for: 30s" in short and "for: 10m" in long
