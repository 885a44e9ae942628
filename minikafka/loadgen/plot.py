"""A run, or a comparison, as one HTML file that needs nothing else: plotly's script is inside."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go
from hdrh.histogram import HdrHistogram
from plotly.subplots import make_subplots

from minikafka.loadgen.messages import merged
from minikafka.loadgen.report import Flow, Result

NINES_MAX = 5
"""The percentile axis ends at 99.999 %."""
TICKS = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999)


def page(results: Sequence[Result]) -> str:
    """Throughput and latency over time, and the distribution of latencies, of every flow of every result."""
    figure = make_subplots(
        rows=3,
        cols=1,
        subplot_titles=("records a second", "latency over time, ms", "latency by percentile, ms"),
        vertical_spacing=0.08,
    )
    for result in results:
        for flow in result.flows:
            name = flow.name if len(results) == 1 else f"{result.target}, {result.workload}: {flow.name}"
            _add(figure, flow, name)
    figure.update_yaxes(type="log", row=2, col=1)
    figure.update_yaxes(type="log", row=3, col=1)
    figure.update_xaxes(title="seconds", row=2, col=1)
    ticks = {"tickvals": [_nines(tick) for tick in TICKS], "ticktext": [f"{tick:g} %" for tick in TICKS]}
    figure.update_xaxes(ticks, row=3, col=1)
    figure.update_layout(height=1200, template="plotly_white", hovermode="x unified")
    plot = figure.to_html(full_html=False, include_plotlyjs=True)
    title = escape(" · ".join(dict.fromkeys(f"{result.workload}, {result.target}" for result in results)))
    text = "\n".join(escape(line) for result in results for line in [f"# {result.target}", *result.lines()])
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>\n'
        f'<body style="font-family: sans-serif">\n<h1>{title}</h1>\n'
        f'<pre style="white-space: pre-wrap">{text}</pre>\n{plot}\n</body></html>\n'
    )


def _add(figure: go.Figure, flow: Flow, name: str) -> None:
    seconds = [point.at_s for point in flow.points]
    rate = go.Scatter(x=seconds, y=[point.records for point in flow.points], name=name, legendgroup=name)
    figure.add_trace(rate, row=1, col=1)
    if flow.latency is None:
        return
    for label, dash in (("p50", "dot"), ("p99", "solid"), ("max", "dash")):
        values = [getattr(point, f"{label}_ms") for point in flow.points]
        line = go.Scatter(x=seconds, y=values, name=f"{name} {label}", legendgroup=name, line={"dash": dash})
        figure.add_trace(line, row=2, col=1)
    places, latencies = distribution(merged([flow.histogram]))
    curve = go.Scatter(x=places, y=latencies, name=f"{name} by percentile", legendgroup=name)
    figure.add_trace(curve, row=3, col=1)


def distribution(histogram: HdrHistogram) -> tuple[list[float], list[float]]:
    """Places on an axis of nines (90 %, 99 %, 99.9 % are equally far apart), and the latency at each, ms."""
    places = [step / 20 for step in range(NINES_MAX * 20 + 1)]
    percentiles = [100 - 100 / 10**place for place in places]
    return places, [histogram.get_value_at_percentile(each) / 1000 for each in percentiles]


def _nines(percentile: float) -> float:
    return next(
        step / 1000
        for step in range(NINES_MAX * 1000 + 1)
        if 100 - 100 / 10 ** (step / 1000) >= percentile - 1e-6
    )
