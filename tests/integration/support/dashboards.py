"""The committed dashboards as Grafana reads them: variables are asked for and put into every query."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Collection
from typing import Any, NamedTuple

from grafana.generator.files import DASHBOARDS
from tests.integration.support.prometheus import SCRAPE_INTERVAL_S, PrometheusServer

RANGE_S = 60
STEP_S = 5

_LABEL_VALUES = re.compile(r"label_values\((.*), (\w+)\)")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class PanelQuery(NamedTuple):
    """One query of a panel, as the user who chose everything sends it."""

    dashboard: str
    panel: str
    expression: str
    """With the variables in their places."""
    is_instant: bool

    def series(self, prometheus: PrometheusServer) -> int:
        """How many series it finds that have a number."""
        if self.is_instant:
            found = prometheus.ask("query", query=self.expression)["result"]
            return sum(_is_number(each["value"][1]) for each in found)
        now = time.time()
        times = {"start": f"{now - RANGE_S}", "end": f"{now}", "step": f"{STEP_S}"}
        found = prometheus.ask("query_range", query=self.expression, **times)["result"]
        return sum(any(_is_number(value) for _, value in each["values"]) for each in found)


def panel_queries(prometheus: PrometheusServer, boards: Collection[str]) -> list[PanelQuery]:
    """Every query of every panel of these dashboards, by name. Each variable must have a value."""
    return [
        PanelQuery(board["title"], panel["title"], _resolved(target["expr"], values), _is_instant(target))
        for path in sorted(DASHBOARDS / f"{name}.json" for name in boards)
        for board in [json.loads(path.read_text(encoding="utf-8"))]
        for values in [_choices(board, prometheus)]
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]


def _choices(board: dict[str, Any], prometheus: PrometheusServer) -> dict[str, str]:
    """The first value of each variable, or what stands for all of them; later ones depend on earlier ones."""
    # Grafana's rule: four scrapes, or a step and a scrape if that is longer.
    window_s = max(4 * SCRAPE_INTERVAL_S, STEP_S + SCRAPE_INTERVAL_S)
    values = {"__rate_interval": f"{window_s}s"}
    for variable in board["templating"]["list"]:
        if variable["type"] == "datasource":
            continue
        match = _LABEL_VALUES.fullmatch(variable["query"])
        assert match is not None, variable["query"]
        found = prometheus.label_values(_resolved(match[1], values), match[2])
        assert found, f"{board['title']}: there is nothing to choose from for {variable['name']}"
        values[variable["name"]] = variable["allValue"] if variable["includeAll"] else found[0]
    return values


def _resolved(text: str, values: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda match: values[match[1] or match[2]], text)


def _is_instant(target: dict[str, Any]) -> bool:
    return bool(target.get("instant", False))


def _is_number(value: str) -> bool:
    return not math.isnan(float(value))
