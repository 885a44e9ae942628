"""The report as one HTML file: what ``Analysis`` holds, in tables and charts, without anything from outside.

Everything that comes from the log (names of topics, keys, errors) is escaped. The page's own policy forbids
it every request. Tables have the id of what they show, charts that of their topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from string import Template

from minikafka.spark.analyze import report_charts
from minikafka.spark.analyze.analysis import Analysis, Partition, ReplicaBatch, Topic

TOPICS_CHARTED_MAX = 20
"""Topics with charts, the largest: a browser draws some hundred charts in a few seconds."""

Cell = str | int | float | None


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
        f"{escape(places)}, read on {_time(analysis.created_ms)}: {_count(len(analysis.topics), 'topic')}, "
        f"{_count(records, 'record')}, {size:,} bytes."
    )
    parts = [*_overview(analysis)]
    charted = sorted(analysis.topics, key=lambda topic: -topic.bytes)[:TOPICS_CHARTED_MAX]
    for number, topic in enumerate(analysis.topics):
        parts += _topic(topic, f"topic-{number}", with_charts=topic in charted)
    parts += _approximations(analysis)
    return template.substitute(script=report_charts.script(), intro=intro, body="\n".join(parts))


def _overview(analysis: Analysis) -> Iterable[str]:
    yield "<h2>Topics</h2>"
    yield _table(
        "topics",
        ("topic", "partitions", "records", "bytes", "batches", "keys", "without key", "tombstones",
         "superseded", "compaction saves"),
        [
            (
                topic.name, len(topic.partitions), topic.records, topic.bytes, topic.batches, topic.keys,
                topic.null_key_records, topic.tombstones, topic.superseded_records,
                topic.compaction_saves_bytes,
            )
            for topic in analysis.topics
        ],
    )  # fmt: skip
    if len(analysis.topics) > 1:
        yield report_charts.topics_chart(analysis.topics)
    yield "<h2>Findings</h2>"
    findings = [
        finding for topic in analysis.topics for each in topic.partitions for finding in _findings(each)
    ]
    yield _table("findings", ("partition", "what"), findings, empty="nothing is wrong")
    if analysis.replicas is not None:
        yield from _replicas(analysis)


def _findings(partition: Partition) -> Iterable[tuple[Cell, ...]]:
    name = f"{partition.topic}-{partition.partition}"
    for damage in partition.damage:
        place = f"{damage.log_dir}/{name}/{damage.segment} at {damage.position}: " if damage.segment else ""
        yield name, f"damaged: {place}{damage.what}"
    if partition.damage_left_out:
        yield name, f"{_count(partition.damage_left_out, 'more damaged piece')}"
    if partition.gaps.overlaps:
        yield (
            name,
            f"{_count(partition.gaps.overlaps, 'batch', 'batches')} with offsets that were there before",
        )
    if partition.duplicates.batches:
        what = _count(partition.duplicates.batches, "batch", "batches")
        yield name, f"{what} of idempotent producers there twice ({partition.duplicates.records:,} records)"
    for each in partition.transactions.first_open:
        yield (
            name,
            f"producer {each.producer_id} has an open transaction from offset {each.first_offset:,} on",
        )


def _replicas(analysis: Analysis) -> Iterable[str]:
    yield "<h2>Replicas</h2>"
    compared = analysis.replicas or []
    yield _table(
        "replicas",
        ("partition", "brokers", "from offset", "to offset", "batches", "bytes", "differences"),
        [
            (
                f"{each.topic}-{each.partition}",
                ", ".join(map(str, each.brokers)),
                each.from_offset,
                each.to_offset,
                each.batches,
                each.bytes,
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
        charts = "".join(f"<div>{chart}</div>" for _, chart in report_charts.topic_charts(topic, name))
        yield f'<div class="charts">{charts}</div>'
    else:
        yield '<p class="note">Charts are drawn for the largest topics only.</p>'
    for title, kind, columns, rows in (
        _partitions(topic), _batches(topic), _sizes(topic), _top_keys(topic), _codecs(topic),
        _order(topic), _producers(topic), _epochs(topic), _retention(topic),
    ):  # fmt: skip
        yield f"<h3>{title}</h3>"
        yield _table(f"{name}-{kind}", columns, rows)


Section = tuple[str, str, Sequence[str], list[tuple[Cell, ...]]]


def _partitions(topic: Topic) -> Section:
    columns = ("partition", "broker", "segments", "first offset", "log end", "high watermark", "records",
               "bytes", "first timestamp", "last timestamp")  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            str(each.partition), each.broker, each.segments, each.first_offset, each.log_end_offset,
            each.high_watermark, each.records, each.bytes, _time(each.timestamps.first_ms),
            _time(each.timestamps.last_ms),
        )
        for each in topic.partitions
    ]  # fmt: skip
    return "Partitions", "partitions", columns, rows


def _batches(topic: Topic) -> Section:
    columns = ("partition", "batches", "control batches", "records a batch", "median", "99 %",
               "bytes a batch", "median", "99 %", "with one record", "fill")  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            str(each.partition), each.batches, each.control_batches, each.fill.records_mean,
            each.fill.records_p50, each.fill.records_p99, each.fill.bytes_mean, each.fill.bytes_p50,
            each.fill.bytes_p99, each.fill.single_record_batches,
            f"{each.fill.fill:.1%} of {each.fill.batch_size:,}",
        )
        for each in topic.partitions
        if each.fill is not None
    ]  # fmt: skip
    return "Batches", "batches", columns, rows


def _sizes(topic: Topic) -> Section:
    sized = [(each, each.sizes, each.keys) for each in topic.partitions]
    columns = ("partition", "mean size", "median", "90 %", "99 %", "99.9 %", "keys", "with one record",
               "without key", "tombstones", "superseded", "their bytes", "compaction saves")  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            str(each.partition), sizes.mean, *sizes.quantiles.values(), keys.keys, keys.keys_once,
            keys.null_key_records, keys.tombstones, keys.superseded_records, keys.superseded_bytes,
            keys.compaction_saves_bytes,
        )
        for each, sizes, keys in sized
        if sizes is not None and keys is not None
    ]  # fmt: skip
    return "Records and keys", "records", columns, rows


def _top_keys(topic: Topic) -> Section:
    rows: list[tuple[Cell, ...]] = [
        (str(top.partition), top.key, top.records, top.bytes, f"{top.share:.1%}")
        for each in topic.partitions
        if each.keys is not None
        for top in each.keys.top
    ]
    return "Top keys", "top-keys", ("partition", "key", "records", "bytes", "share of the partition"), rows


def _codecs(topic: Topic) -> Section:
    rows: list[tuple[Cell, ...]] = []
    for each in topic.partitions:
        trial = each.trial
        used = ", ".join(f"{use.codec} ({use.batches:,} batches)" for use in each.codecs)
        if trial is not None:
            saved = {name: f"{size:,}" for name, size in trial.saved_by_codec.items()}
            rows.append((str(each.partition), used, trial.batches, f"{trial.ratio:.2f}", *saved.values()))
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


def _producers(topic: Topic) -> Section:
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
    return "Idempotence and transactions", "producers", columns, rows


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
        due = f"{retention.due_segments:,} ({retention.due_bytes:,} bytes)" if retention.applies else "never"
        rows.append(
            (
                str(each.partition), settings, due, _time(retention.next_ms), _time(retention.last_ms),
                retention.bytes_left,
            )
        )  # fmt: skip
    columns = ("partition", "settings", "segments due now", "next by time", "all by", "bytes left")
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
    if isinstance(value, str):
        return f'<td class="wide">{escape(value)}</td>' if len(value) > 60 else f"<td>{escape(value)}</td>"
    return (
        f'<td class="number">{value:,}</td>'
        if isinstance(value, int)
        else f'<td class="number">{value:,.1f}</td>'
    )


def _time(timestamp_ms: int | None) -> str:
    """UTC, to the second; Python's calendar ends with the year 9999."""
    if timestamp_ms is None:
        return ""
    try:
        return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"


def _count(number: int, one: str, several: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else several or one + 's'}"
