"""The charts of the report, as plotly draws them: each a ``<div>`` with the script that fills it.

plotly.js is put into the page once, so that the file opens anywhere without a network. Names that clients
chose (topics, keys) get into a chart only as text of titles that have no markup: plotly would read tags in
them, so ``<`` and ``&`` are escaped.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from datetime import UTC, datetime

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from minikafka.spark.analyze.analysis import Topic

PARTITIONS_MAX = 200
"""Bars in a chart of partitions: those with the most bytes."""

_HEIGHT = 300
_COLOR, _SECOND_COLOR = "#2b6cb0", "#dd6b20"


def script() -> str:
    """plotly.js."""
    return str(get_plotlyjs())


def topic_charts(topic: Topic, prefix: str) -> list[tuple[str, str]]:
    """(id, HTML) of the charts of one topic; ids begin with ``prefix``. What has no data, or times that no
    calendar has, has no chart."""
    makers = (
        ("throughput", _throughput),
        ("partitions", _partitions),
        ("sizes", _sizes),
        ("keys", _keys),
        ("codecs", _codecs),
    )
    charts = []
    for name, make in makers:
        figure = make(topic)
        if figure is not None:
            charts.append((f"{prefix}-{name}", _html(figure, f"{prefix}-{name}")))
    return charts


def topics_chart(topics: Sequence[Topic]) -> str:
    """Bytes of the topics, the largest first."""
    largest = sorted(topics, key=lambda topic: -topic.bytes)[:PARTITIONS_MAX]
    figure = _bars(
        "Bytes by topic", [html.escape(topic.name) for topic in largest], [topic.bytes for topic in largest]
    )
    figure.update_yaxes(tickformat=".3s", ticksuffix="B")
    return _html(figure, "topics-bytes")


def _throughput(topic: Topic) -> go.Figure | None:
    if not topic.throughput:
        return None
    seconds = topic.bucket_ms / 1000
    try:
        times = [datetime.fromtimestamp(bucket.start_ms / 1000, UTC) for bucket in topic.throughput]
    except (ValueError, OverflowError, OSError):  # Python's calendar ends with 9999, and so does plotly's
        return None
    figure = _figure(f"Throughput (in pieces of {seconds:g} s)")
    for name, values, axis, color in (
        ("records/s", [bucket.records / seconds for bucket in topic.throughput], "y", _COLOR),
        ("bytes/s", [bucket.bytes / seconds for bucket in topic.throughput], "y2", _SECOND_COLOR),
    ):
        figure.add_scatter(
            x=times, y=values, name=name, yaxis=axis, mode="lines+markers", line={"color": color}
        )
    figure.update_layout(
        yaxis={"title": "records/s", "rangemode": "tozero"},
        yaxis2={"title": "bytes/s", "overlaying": "y", "side": "right", "rangemode": "tozero"},
        legend={"orientation": "h", "y": 1.15, "x": 1, "xanchor": "right"},
    )
    return figure


def _partitions(topic: Topic) -> go.Figure | None:
    if len(topic.partitions) < 2:
        return None
    largest = sorted(topic.partitions, key=lambda each: -each.bytes)[:PARTITIONS_MAX]
    shown = sorted(largest, key=lambda each: each.partition)
    return _bars(
        "Records by partition", [str(each.partition) for each in shown], [each.records for each in shown]
    )


def _sizes(topic: Topic) -> go.Figure | None:
    if not topic.size_histogram:
        return None
    labels = [f"≥ {each.size_min:,}" for each in topic.size_histogram]
    return _bars("Records by size (bytes)", labels, [each.records for each in topic.size_histogram])


def _keys(topic: Topic) -> go.Figure | None:
    if not topic.key_histogram:
        return None
    labels = [f"≥ {each.records_min:,}" for each in topic.key_histogram]
    figure = _bars(
        "Keys by the records they have", labels, [each.keys for each in topic.key_histogram], name="keys"
    )
    figure.add_bar(
        x=labels,
        y=[each.records for each in topic.key_histogram],
        name="records of these keys",
        marker_color=_SECOND_COLOR,
    )
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.15, "x": 1, "xanchor": "right"})
    return figure


def _codecs(topic: Topic) -> go.Figure | None:
    trials = [each.trial for each in topic.partitions if each.trial is not None and each.trial.batches]
    if not trials:
        return None
    stored = sum(trial.stored_bytes for trial in trials)
    sizes = {name: sum(trial.bytes_by_codec[name] for trial in trials) for name in trials[0].bytes_by_codec}
    labels, shares = ["as stored", *sizes], [100.0, *(100 * size / stored for size in sizes.values())]
    figure = _bars("A sample in every codec (% of the stored bytes)", labels, shares)
    figure.update_yaxes(ticksuffix=" %")
    return figure


def _bars(title: str, labels: Sequence[str], values: Sequence[float], *, name: str = "") -> go.Figure:
    figure = _figure(title)
    figure.add_bar(x=list(labels), y=list(values), name=name, marker_color=_COLOR)
    figure.update_layout(showlegend=False)
    figure.update_xaxes(type="category")
    return figure


def _figure(title: str) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        title={"text": title, "font": {"size": 15}},
        height=_HEIGHT,
        margin={"l": 60, "r": 60, "t": 50, "b": 40},
        template="plotly_white",
    )
    return figure


def _html(figure: go.Figure, name: str) -> str:
    config = {"displaylogo": False, "responsive": True}
    return str(figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=config))
