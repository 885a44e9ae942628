"""What ``minikafka analyze`` says on the terminal at the end: a table of topics, and what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from minikafka.cli.shared.quantities import format_bytes
from minikafka.spark.analyze.analysis import Analysis, Partition, Topic

WIDTH = 160
"""Columns of a table that goes to a file."""

TOPICS_MAX = 30
"""Rows, the largest topics; the report has all."""


def print_summary(analysis: Analysis, written: Sequence[str], console: Console | None = None) -> None:
    """A table, the findings, and where the rest is."""
    out = console or (Console() if sys.stdout.isatty() else Console(width=WIDTH))
    table = Table()
    for column in ("topic", "partitions", "records", "bytes", "batches", "fill", "ratio", "keys", "top keys",
                   "tombstones", "compaction saves"):  # fmt: skip
        table.add_column(column, justify="left" if column == "topic" else "right")
    largest = sorted(analysis.topics, key=lambda topic: -topic.bytes)
    for topic in largest[:TOPICS_MAX]:
        table.add_row(*_row(topic))
    out.print(table)
    if len(largest) > TOPICS_MAX:
        out.print(f"and {len(largest) - TOPICS_MAX} smaller topics")
    for line in findings(analysis):
        out.print(f"[red]{escape(line)}[/red]", soft_wrap=True)
    if analysis.replicas is not None and not any(each.differences for each in analysis.replicas):
        batches = sum(each.batches for each in analysis.replicas)
        out.print(f"replicas: {batches:,} batches of {len(analysis.replicas):,} partitions are the same")
    for path in written:
        out.print(f"written: {escape(path)}", soft_wrap=True)


def findings(analysis: Analysis) -> Iterator[str]:
    """What somebody should look at, a line each."""
    for topic in analysis.topics:
        for each in topic.partitions:
            name = f"{each.topic}-{each.partition}"
            if each.damage:
                yield f"{name}: damaged: {_damage(each)}"
            if each.duplicates.batches:
                yield f"{name}: {_count(each.duplicates.batches, 'repeated batch', 'repeated batches')}"
            if each.transactions.open:
                yield f"{name}: {_count(each.transactions.open, 'open transaction', 'open transactions')}"
    for compared in analysis.replicas or []:
        if compared.first is not None:
            yield (
                f"{compared.topic}-{compared.partition}: {compared.differences:,} batches differ, the first "
                f"at offset {compared.first.offset:,}: {compared.first.what}"
            )
            for batch in compared.first.batches:
                if batch.stored_crc is not None and batch.actual_crc is not None:
                    yield (
                        f"  broker {batch.broker}: {batch.file} position {batch.position}: CRC "
                        f"{batch.stored_crc:08x}, of the bytes {batch.actual_crc:08x}"
                    )


def _count(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


def _damage(partition: Partition) -> str:
    first, others = partition.damage[0], len(partition.damage) - 1 + partition.damage_left_out
    file = f"{first.log_dir}/{partition.topic}-{partition.partition}/{first.segment}"
    place = f"{file} at {first.position}: " if first.segment else ""
    return f"{place}{first.what}" + (f" (and {others:,} more)" if others else "")


def _mean_fill(topic: Topic) -> float:
    """Over the topic's batches; each partition counts by how many it has."""
    filled = sum(each.fill.fill * each.batches for each in topic.partitions if each.fill is not None)
    return filled / topic.batches


def _row(topic: Topic) -> tuple[str, ...]:
    trials = [each.trial for each in topic.partitions if each.trial is not None and each.trial.stored_bytes]
    shares = [each.keys.top_share for each in topic.partitions if each.keys is not None and each.keys.top]
    stored, plain = sum(each.stored_bytes for each in trials), sum(each.plain_bytes for each in trials)
    return (
        escape(topic.name),
        f"{len(topic.partitions):,}",
        f"{topic.records:,}",
        format_bytes(topic.bytes),
        f"{topic.batches:,}",
        f"{_mean_fill(topic):.0%}" if topic.batches else "",
        f"{plain / stored:.2f}" if stored else "",
        "" if topic.keys is None else f"{topic.keys:,}",
        f"{max(shares):.0%}" if shares else "",
        f"{topic.tombstones:,}",
        format_bytes(topic.compaction_saves_bytes),
    )
