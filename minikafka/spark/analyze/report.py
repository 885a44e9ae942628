"""An analysis for its readers: one HTML file, in tables and charts and without anything from outside, and
flat tables as Parquet.

Everything that comes from the log (names of topics, keys, errors) is escaped. The page's own policy forbids
it every request. Tables have the id of what they show, charts that of their topic. Charts are drawn by
plotly, each a ``<div>`` with the script that fills it; plotly.js is put into the page once, so that the file
opens anywhere without a network. Names that clients chose (topics, keys) get into a chart only as text of
titles that have no markup: plotly would read tags in them, so ``<`` and ``&`` are escaped.

The tables as Parquet are for further work in Spark, pandas or a database:

    partitions    a row a partition: every single figure; those of nested values are ``<value>_<figure>``
    throughput    topic, partition, start_ms, bucket_ms, records, bytes
    top_keys      topic, partition, key, records, bytes, share
    codecs        topic, partition, codec, batches, records, bytes
    epochs        topic, partition, epoch, first_offset, last_offset, batches, records
    producers     topic, producer_id (null: all without one), producer_epoch, partitions, batches, records,
                  bytes, codecs, is_transactional, first_ms, last_ms
    findings      topic, partition, severity, code, log_dir, seen, advice, setting
    damage        topic, partition, log_dir, segment, position, offset, what
    replicas      topic, partition, brokers, from_offset, to_offset, batches, bytes, differences,
                  first_difference, what

Each is a file of that name; one without rows has its columns all the same.
"""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import msgspec
import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.parquet
from plotly.offline import get_plotlyjs

from minikafka.spark.analyze.analysis import Analysis, Partition, ReplicaBatch, Topic
from minikafka.spark.analyze.findings import counted, is_internal, shown_time, where
from minikafka.units import format_bytes

TOPICS_CHARTED_MAX = 20
"""Topics with charts, the largest: a browser draws some hundred charts in a few seconds."""

Cell = str | int | float | None
"""An int that is neither, such as an offset, has all its digits."""

FINDINGS_SHOWN_MAX = 500
"""Rows; JSON and Parquet have all."""

Section = tuple[str, str, Sequence[str], list[tuple[Cell, ...]]]

MILLION = 1_000_000

PARTITIONS_MAX = 200
"""Bars in a chart of partitions: those with the most bytes."""

_HEIGHT = 300
_LEGEND = {"orientation": "h", "y": -0.3, "x": 0}
_COLOR, _SECOND_COLOR = "#2b6cb0", "#dd6b20"

_LISTS = {
    "throughput": (
        ("start_ms", pa.int64()), ("bucket_ms", pa.int64()), ("records", pa.int64()), ("bytes", pa.int64()),
    ),
    "top_keys": (
        ("key", pa.string()), ("records", pa.int64()), ("bytes", pa.int64()), ("share", pa.float64()),
    ),
    "codecs": (
        ("codec", pa.string()), ("batches", pa.int64()), ("records", pa.int64()), ("bytes", pa.int64()),
    ),
    "epochs": (
        ("epoch", pa.int64()), ("first_offset", pa.int64()), ("last_offset", pa.int64()),
        ("batches", pa.int64()), ("records", pa.int64()),
    ),
    "producers": (
        ("producer_id", pa.int64()), ("producer_epoch", pa.int32()), ("partitions", pa.int32()),
        ("batches", pa.int64()), ("records", pa.int64()), ("bytes", pa.int64()),
        ("codecs", pa.list_(pa.string())), ("is_transactional", pa.bool_()), ("first_ms", pa.int64()),
        ("last_ms", pa.int64()),
    ),
    "findings": (
        ("severity", pa.string()), ("code", pa.string()), ("log_dir", pa.string()), ("seen", pa.string()),
        ("advice", pa.string()), ("setting", pa.string()),
    ),
    "damage": (
        ("log_dir", pa.string()), ("segment", pa.string()), ("position", pa.int64()), ("offset", pa.int64()),
        ("what", pa.string()),
    ),
    "replicas": (
        ("brokers", pa.list_(pa.int32())), ("from_offset", pa.int64()), ("to_offset", pa.int64()),
        ("batches", pa.int64()), ("bytes", pa.int64()), ("differences", pa.int64()),
        ("first_difference", pa.int64()), ("what", pa.string()),
    ),
}  # fmt: skip
"""Columns behind topic and partition."""

_OF_TOPICS = frozenset(("producers",))
"""Without a partition."""

_LOG = (("topic", pa.string()), ("partition", pa.int32()))


# ---- the page


class Bytes(int):
    """A size: ``1.50 GB``, with all digits when the pointer is on it."""


class Count(int):
    """How many: ``24.6 M`` from a million on, with all digits when the pointer is on it."""


def render(analysis: Analysis) -> str:
    """The HTML."""
    template = Template(files("minikafka.spark.analyze").joinpath("report.html").read_text(encoding="utf-8"))
    places = ", ".join(
        each.path + (f" (broker {each.broker})" if each.broker is not None else "")
        for each in analysis.directories
    )
    records = sum(topic.records for topic in analysis.topics)
    size = sum(topic.bytes for topic in analysis.topics)
    intro = (
        f"{escape(places)}, read on {_time(analysis.created_ms)}: {counted(len(analysis.topics), 'topic')}, "
        f"{counted(records, 'record')}, {format_bytes(size)}."
    )
    parts = [*_findings(analysis), *_overview(analysis)]
    charted = sorted(analysis.topics, key=lambda topic: -topic.bytes)[:TOPICS_CHARTED_MAX]
    for number, topic in enumerate(analysis.topics):
        drawn = _topic(topic, f"topic-{number}", with_charts=topic in charted)
        parts += [_folded(topic.name, drawn)] if is_internal(topic.name) else drawn
    parts += _approximations(analysis)
    return template.substitute(script=script(), intro=intro, body="\n".join(parts))


def _findings(analysis: Analysis) -> Iterable[str]:
    yield "<h2>Findings</h2>"
    shown = analysis.findings[:FINDINGS_SHOWN_MAX]
    yield _table(
        "findings",
        ("severity", "where", "what was seen", "what to do", "setting"),
        [(each.severity, where(each), each.seen, each.advice, each.setting) for each in shown],
        empty="none",
    )
    if len(analysis.findings) > len(shown):
        yield f'<p class="note">{len(analysis.findings) - len(shown):,} more are in the JSON.</p>'


def _overview(analysis: Analysis) -> Iterable[str]:
    yield "<h2>Topics</h2>"
    own = [topic for topic in analysis.topics if not is_internal(topic.name)]
    internal = [topic for topic in analysis.topics if is_internal(topic.name)]
    if own or not internal:
        yield _topics_table("topics", own)
    if len(own) > 1:
        yield topics_chart(own)
    if internal:
        yield _folded(
            counted(len(internal), "internal topic")
            + f" ({format_bytes(sum(each.bytes for each in internal))})",
            [_topics_table("internal-topics", internal)],
        )
    if analysis.replicas is not None:
        yield from _replicas(analysis)


def _topics_table(name: str, topics: Sequence[Topic]) -> str:
    columns = ("topic", "partitions", "records", "size", "batches", "keys", "without key", "tombstones",
               "superseded", "compaction saves")  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            topic.name, len(topic.partitions), Count(topic.records), Bytes(topic.bytes), Count(topic.batches),
            _count(topic.keys), Count(topic.null_key_records), Count(topic.tombstones),
            Count(topic.superseded_records), Bytes(topic.compaction_saves_bytes),
        )
        for topic in topics
    ]  # fmt: skip
    return _table(name, columns, rows)


def _folded(summary: str, parts: Iterable[str]) -> str:
    return f"<details><summary>{escape(summary)}</summary>{''.join(parts)}</details>"


def _replicas(analysis: Analysis) -> Iterable[str]:
    yield "<h2>Replicas</h2>"
    compared = analysis.replicas or []
    yield _table(
        "replicas",
        ("partition", "brokers", "from offset", "to offset", "batches", "size", "differences"),
        [
            (
                f"{each.topic}-{each.partition}",
                ", ".join(map(str, each.brokers)),
                each.from_offset,
                each.to_offset,
                Count(each.batches),
                Bytes(each.bytes),
                each.differences,
            )
            for each in compared
        ],
        empty="no partition is in several directories",
    )
    differing = [each for each in compared if each.first is not None]
    if not differing:
        yield '<p class="good">Every batch that was compared is the same on all of its brokers.</p>'
    for each in differing:
        assert each.first is not None
        yield (
            f'<h3 class="bad">{escape(each.topic)}-{each.partition}: the first difference is at offset '
            f"{each.first.offset:,}</h3><p>{escape(each.first.what)}</p>"
        )
        yield _table(
            f"difference-{each.topic}-{each.partition}",
            (
                "broker",
                "file",
                "position",
                "last offset",
                "leader epoch",
                "size",
                "CRC stored",
                "CRC of the bytes",
            ),
            [_replica_row(batch) for batch in each.first.batches],
        )


def _replica_row(batch: ReplicaBatch) -> tuple[Cell, ...]:
    return (
        str(batch.broker),
        batch.file,
        batch.position,
        batch.last_offset,
        batch.leader_epoch,
        batch.size,
        None if batch.stored_crc is None else f"{batch.stored_crc:08x}",
        None if batch.actual_crc is None else f"{batch.actual_crc:08x}",
    )


def _topic(topic: Topic, name: str, *, with_charts: bool) -> Iterable[str]:
    yield f'<h2 id="{name}">{escape(topic.name)}</h2>'
    if with_charts:
        charts = "".join(f"<div>{chart}</div>" for _, chart in topic_charts(topic, name))
        yield f'<div class="charts">{charts}</div>'
    else:
        yield '<p class="note">Charts are drawn for the largest topics only.</p>'
    for title, kind, columns, rows in (
        _partitions(topic), _batches(topic), _sizes(topic), _top_keys(topic), _codecs(topic),
        _order(topic), _transactions(topic), _producers(topic), _epochs(topic), _retention(topic),
    ):  # fmt: skip
        yield f"<h3>{title}</h3>"
        yield _table(f"{name}-{kind}", columns, rows)


def _partitions(topic: Topic) -> Section:
    columns = ("partition", "broker", "segments", "first offset", "log end", "high watermark", "records",
               "size", "first timestamp", "last timestamp")  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            str(each.partition), each.broker, each.segments, each.first_offset, each.log_end_offset,
            each.high_watermark, Count(each.records), Bytes(each.bytes), _time(each.timestamps.first_ms),
            _time(each.timestamps.last_ms),
        )
        for each in topic.partitions
    ]  # fmt: skip
    return "Partitions", "partitions", columns, rows


def _batches(topic: Topic) -> Section:
    columns = ("partition", "batches", "control batches", "records a batch", "median", "99 %",
               "size of a batch", "median", "99 %", "with one record",
               "filled of the producers' batch.size")  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            str(each.partition), Count(each.batches), Count(each.control_batches), each.fill.records_mean,
            each.fill.records_p50, each.fill.records_p99, Bytes(each.fill.bytes_mean),
            Bytes(each.fill.bytes_p50), Bytes(each.fill.bytes_p99), Count(each.fill.single_record_batches),
            f"{each.fill.fill:.1%} of {each.fill.batch_size:,} bytes",
        )
        for each in topic.partitions
        if each.fill is not None
    ]  # fmt: skip
    return "Batches", "batches", columns, rows


def _sizes(topic: Topic) -> Section:
    sized = [(each, each.sizes, each.keys) for each in topic.partitions]
    columns = ("partition", "mean size", "median", "90 %", "99 %", "99.9 %", "keys", "with one record",
               "without key", "tombstones", "superseded", "their size", "compaction saves")  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            str(each.partition), Bytes(sizes.mean), *map(Bytes, sizes.quantiles.values()), Count(keys.keys),
            Count(keys.keys_once), Count(keys.null_key_records), Count(keys.tombstones),
            Count(keys.superseded_records), Bytes(keys.superseded_bytes), Bytes(keys.compaction_saves_bytes),
        )
        for each, sizes, keys in sized
        if sizes is not None and keys is not None
    ]  # fmt: skip
    return "Records and keys", "records", columns, rows


def _top_keys(topic: Topic) -> Section:
    rows: list[tuple[Cell, ...]] = [
        (str(top.partition), top.key, Count(top.records), Bytes(top.bytes), f"{top.share:.1%}")
        for each in topic.partitions
        if each.keys is not None
        for top in each.keys.top
    ]
    return "Top keys", "top-keys", ("partition", "key", "records", "size", "share of the partition"), rows


def _codecs(topic: Topic) -> Section:
    rows: list[tuple[Cell, ...]] = []
    for each in topic.partitions:
        trial = each.trial
        used = ", ".join(f"{use.codec} ({use.batches:,} batches)" for use in each.codecs)
        if trial is not None:
            saved = [Bytes(size) for size in trial.saved_by_codec.values()]
            rows.append((str(each.partition), used, trial.batches, f"{trial.ratio:.2f}", *saved))
    columns = ("partition", "codecs", "batches in the sample", "ratio", *(
        f"{name} saves" for name in ("none", "gzip", "snappy", "lz4", "zstd")
    ))  # fmt: skip
    return "Codecs", "codecs", columns, rows


def _order(topic: Topic) -> Section:
    columns = ("partition", "gaps", "offsets missing", "missing in batches", "overlaps", "late batches",
               "their records", "latest by (ms)")  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            str(each.partition), each.gaps.gaps, each.gaps.missing, each.gaps.missing_inside,
            each.gaps.overlaps, each.timestamps.late_batches, each.timestamps.late_records,
            each.timestamps.late_max_ms,
        )
        for each in topic.partitions
    ]  # fmt: skip
    return "Order of offsets and timestamps", "order", columns, rows


def _transactions(topic: Topic) -> Section:
    columns = ("partition", "duplicate batches", "committed", "aborted", "open", "markers alone",
               "committed records", "aborted records", "open records")  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            str(each.partition), each.duplicates.batches, each.transactions.committed,
            each.transactions.aborted, each.transactions.open, each.transactions.empty,
            each.transactions.committed_records, each.transactions.aborted_records,
            each.transactions.open_records,
        )
        for each in topic.partitions
    ]  # fmt: skip
    return "Idempotence and transactions", "transactions", columns, rows


def _producers(topic: Topic) -> Section:
    columns = ("producer id", "epoch", "partitions", "records", "size", "batches", "codecs", "transactional",
               "first timestamp", "last timestamp")  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            "none" if each.producer_id is None else str(each.producer_id), each.producer_epoch,
            each.partitions, Count(each.records), Bytes(each.bytes), Count(each.batches),
            ", ".join(each.codecs), "yes" if each.is_transactional else "no", _time(each.first_ms),
            _time(each.last_ms),
        )
        for each in topic.producers
    ]  # fmt: skip
    title = "Who produced"
    if topic.producers_left_out:
        title += f" ({topic.producers_left_out:,} with fewer bytes are left out)"
    return title, "producers", columns, rows


def _epochs(topic: Topic) -> Section:
    rows: list[tuple[Cell, ...]] = [
        (
            str(each.partition),
            epoch.epoch,
            epoch.first_offset,
            epoch.last_offset,
            epoch.batches,
            epoch.records,
        )
        for each in topic.partitions
        for epoch in each.epochs
    ]
    return "Leader epochs", "epochs", (
        "partition", "epoch", "first offset", "last offset", "batches", "records"
    ), rows  # fmt: skip


def _retention(topic: Topic) -> Section:
    rows: list[tuple[Cell, ...]] = []
    for each in topic.partitions:
        retention = each.retention
        settings = "; ".join(
            f"{name}={setting.value} ({setting.source})" for name, setting in retention.settings.items()
        )
        due = (
            f"{retention.due_segments:,} ({format_bytes(retention.due_bytes)})"
            if retention.applies
            else "never"
        )
        rows.append(
            (
                str(each.partition), settings, due, _time(retention.next_ms), _time(retention.last_ms),
                None if retention.bytes_left is None else Bytes(retention.bytes_left),
            )
        )  # fmt: skip
    columns = (
        "partition",
        "settings",
        "segments due now",
        "next by time",
        "all by",
        "left until the next by size",
    )
    return "Retention", "retention", columns, rows


def _approximations(analysis: Analysis) -> Iterable[str]:
    yield '<h2>What is approximate</h2><p class="note">All other figures are exact.</p>'
    yield _table(
        "approximations",
        ("figure", "how", "error"),
        [(each.figure, each.how, each.error) for each in analysis.approximations],
    )


def _table(
    name: str, columns: Sequence[str], rows: Sequence[tuple[Cell, ...]], *, empty: str = "none"
) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    body = lines or f'<tr><td colspan="{len(columns)}">{escape(empty)}</td></tr>'
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f'<tbody id="{escape(name)}">{body}</tbody></table></div>'
    )


def _cell(value: Cell) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, Bytes):
        return f'<td class="number" title="{value:,} bytes">{format_bytes(value)}</td>'
    if isinstance(value, Count) and value >= MILLION:
        return f'<td class="number" title="{value:,}">{_abbreviated(value)}</td>'
    if isinstance(value, str):
        return f'<td class="wide">{escape(value)}</td>' if len(value) > 60 else f"<td>{escape(value)}</td>"
    return (
        f'<td class="number">{value:,}</td>'
        if isinstance(value, int)
        else f'<td class="number">{value:,.1f}</td>'
    )


def _abbreviated(count: int) -> str:
    """``24.6 M``, ``1.20 G``: three digits."""
    value, unit = (count / 1e9, "G") if count >= 999_500_000 else (count / 1e6, "M")
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"


def _count(number: int | None) -> Count | None:
    return None if number is None else Count(number)


def _time(timestamp_ms: int | None) -> str:
    return "" if timestamp_ms is None else shown_time(timestamp_ms)


# ---- charts


def script() -> str:
    """plotly.js."""
    return str(get_plotlyjs())


def topic_charts(topic: Topic, prefix: str) -> list[tuple[str, str]]:
    """(id, HTML) of the charts of one topic; ids begin with ``prefix``. What has no data, or times that no
    calendar has, has no chart."""
    makers = (
        ("throughput", _throughput),
        ("partitions", _partitions_chart),
        ("sizes", _sizes_chart),
        ("keys", _keys),
        ("codecs", _codecs_chart),
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
    figure = _figure(f"Throughput (in buckets of {seconds:g} s)")
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
        legend=_LEGEND,
    )
    return figure


def _partitions_chart(topic: Topic) -> go.Figure | None:
    if len(topic.partitions) < 2:
        return None
    largest = sorted(topic.partitions, key=lambda each: -each.bytes)[:PARTITIONS_MAX]
    shown = sorted(largest, key=lambda each: each.partition)
    return _bars(
        "Records by partition", [str(each.partition) for each in shown], [each.records for each in shown]
    )


def _sizes_chart(topic: Topic) -> go.Figure | None:
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
    figure.update_layout(showlegend=True, legend=_LEGEND)
    return figure


def _codecs_chart(topic: Topic) -> go.Figure | None:
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
        margin={"l": 60, "r": 80, "t": 50, "b": 40},
        modebar={"orientation": "v"},  # beside the chart: a row of buttons would lie on the title
        template="plotly_white",
    )
    return figure


def _html(figure: go.Figure, name: str) -> str:
    config = {"displaylogo": False, "responsive": True}
    return str(figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=config))


# ---- Parquet


def tables(analysis: Analysis) -> dict[str, pa.Table]:
    """The tables by name."""
    partitions = [each for topic in analysis.topics for each in topic.partitions]
    bucket_ms = {topic.name: topic.bucket_ms for topic in analysis.topics}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in _LISTS}
    for each in partitions:
        log = {"topic": each.topic, "partition": each.partition}
        width = {"bucket_ms": bucket_ms[each.topic]}
        rows["throughput"] += [log | width | msgspec.to_builtins(bucket) for bucket in each.throughput]
        rows["top_keys"] += [log | msgspec.to_builtins(key) for key in (each.keys.top if each.keys else [])]
        rows["codecs"] += [log | msgspec.to_builtins(use) for use in each.codecs]
        rows["epochs"] += [log | msgspec.to_builtins(epoch) for epoch in each.epochs]
        rows["damage"] += [log | msgspec.to_builtins(damage) for damage in each.damage]
    for topic in analysis.topics:
        rows["producers"] += [{"topic": topic.name} | msgspec.to_builtins(each) for each in topic.producers]
    rows["findings"] = [msgspec.to_builtins(each) for each in analysis.findings]
    for compared in analysis.replicas or []:
        row = msgspec.to_builtins(compared)
        first = row.pop("first")
        rows["replicas"].append(
            row
            | {
                "first_difference": first["offset"] if first else None,
                "what": first["what"] if first else None,
            }
        )
    found = {"partitions": pa.Table.from_pylist(_flat(partitions))}
    for name, columns in _LISTS.items():
        of = _LOG[:1] if name in _OF_TOPICS else _LOG
        found[name] = pa.Table.from_pylist(rows[name], schema=pa.schema([*of, *columns]))
    return found


def write_tables(analysis: Analysis, directory: str) -> list[str]:
    """Write them into ``directory``, which is made if it is not there. Returns the paths. Raises OSError."""
    os.makedirs(directory, exist_ok=True)
    paths = []
    for name, data in parquet_files(analysis).items():
        path = os.path.join(directory, name)
        with open(path, "wb") as file:
            file.write(data)
        paths.append(path)
    return paths


def parquet_files(analysis: Analysis) -> dict[str, pa.Buffer]:
    """The tables as Parquet files, by file name."""
    files = {}
    for name, table in tables(analysis).items():
        sink = pa.BufferOutputStream()
        pyarrow.parquet.write_table(table, sink)
        files[f"{name}.parquet"] = sink.getvalue()
    return files


def _flat(partitions: Sequence[Partition]) -> list[dict[str, Any]]:
    """Rows with the same columns each, also where a partition has no such figure."""
    rows = [dict(_figures("", msgspec.to_builtins(each))) for each in partitions]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in names} for row in rows]


def _figures(prefix: str, value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, each in value.items():
        if isinstance(each, dict):
            yield from _figures(f"{prefix}{name}_", each)
        elif not isinstance(each, list):
            yield f"{prefix}{name}", each
