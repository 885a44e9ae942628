"""The page of what was measured: the kept results of ``bin/bench``, as tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from docs.generator.markdown import page, table, text

MEASUREMENTS = Path(__file__).with_name("measurements")
"""A file of ``bin/bench NAME --json`` for each benchmark that is on the page, ``NAME.json``."""

SCALE_LOG = "scale-log"
"""The part ``log`` of ``bin/bench scale`` by itself: it takes longer than the others, and the disk."""

SCALE_LARGE_LOG = "scale-large-log"
"""The same of logs that are larger than the disk: on a file system that compresses."""

COST_AGAIN = "cost-again"
"""Rows of ``bin/bench cost`` that were measured a second time."""

OURS, KAFKA = "minikafka", "Apache Kafka"

Row = dict[str, Any]


class Part(NamedTuple):
    """A curve of ``bin/bench scale``."""

    name: str
    by: str
    """What it goes along."""
    story: str


SCALE = (
    Part(
        "partitions",
        "partitions",
        "One broker, topics of 1,000 partitions with one replica. Creating and deleting last until all are "
        "led and have logs, or all directories are gone. Creating is measured in one broker that gets more "
        "and more, with its logs in memory, and how long it lasts on the disk is said beside: how long it "
        "takes to make a file there depends on how many were deleted just before. A start lasts until the "
        "broker answers as one that knows its topics, each of which has a record in each partition. An "
        "unclean start follows SIGKILL. "
        "Metadata are those of all topics, for 100 clients at the same moment.",
    ),
    Part(
        "cluster",
        "partitions",
        "Three brokers on a shared SQLite file, three replicas of each partition, all led by one broker that "
        "is not the controller. It is killed: `failover` is from the end of its session until both others "
        "name new leaders for all. Then it starts again, until all replicas are in sync.",
    ),
    Part(
        "connections",
        "connections",
        "Connections that stay, each with a Produce of one record of 100 bytes ten times a second, or as "
        "often as makes 10,000 requests a second of all.",
    ),
    Part(
        "groups",
        "groups",
        "Groups of five members of the classic protocol, a connection each, which all join at once and then "
        "send a heartbeat every 3 s.",
    ),
    Part(
        "producers",
        "producers",
        "Transactional producers, a connection each; 100 transactions a second of all together, of one "
        "record each.",
    ),
    Part(
        "comings and goings",
        "clients",
        "50,000 clients in a minute: each connects, asks ApiVersions and Metadata of a topic, and leaves.",
    ),
    Part(
        "log size",
        "GB",
        "A log of four partitions with segments of 256 MB, all of it written. Producers of 1 KB records, 500 "
        "a second of 20 connections, go on while the log is read from its start out of a cold page cache, by "
        "a consumer and by a process that is no broker, while retention takes half of it away, and while its "
        "topic is deleted.",
    ),
)


def performance() -> str:
    """The page's text."""
    return page(
        "Performance",
        "What was measured, on which machine, and how to measure it again. CPU seconds and memory are those "
        "of the broker's processes; they hold on a busy machine, where times and latencies are rough. What a "
        "broker of one process does is bound by one core "
        "([decision 15](../decisions/015-one-process-one-core.md)).",
        *_scale(),
        *_cost(),
    )


def _read(name: str, kept: str = "") -> tuple[Row, list[Row]] | None:
    """The machine and the rows of a result of the benchmark ``name``, ``kept`` under that name or another;
    None: there is none."""
    path = MEASUREMENTS / f"{kept or name}.json"
    if not path.exists():
        return None
    report = json.loads(path.read_text(encoding="utf-8"))
    return report["machine"], report["results"][name]["rows"]


def _again(name: str, machine: Row, *, kept: str = "", only: str = "") -> str:
    memory_gb = machine["memory_bytes"] / 1e9
    return (
        f"Measured on {machine['date'][:10]} ({text(str(machine['commit']))}) on {machine['cpus']} cores "
        f"({text(machine['cpu'])}) with {memory_gb:.0f} GB of memory, {text(machine['system'])}, "
        f"{text(machine['python'])}. "
        f"{machine.get('note', '')}\n\n```sh\n"
        f"{only}bin/bench {name} --json docs/generator/measurements/{kept or name}.json\n"
        ".venv-dev/bin/python -m docs.generator\n```"
    )


# ---- bin/bench scale


def _scale() -> Iterator[str]:
    found = _read("scale")
    yield "## Scale"
    if found is None:
        yield "`bin/bench scale` measures how costs grow. No result is kept here yet."
        return
    machine, rows = found
    yield (
        "How costs grow with what a broker holds. Asked is that nothing grows worse than linearly; the "
        "tables *growth* say with which exponent the last step of a curve does, where 1 is linear, 0 "
        "constant and 2 quadratic. `ONLY=partitions,log` picks parts, `ALONE=1` leaves Apache Kafka out."
    )
    yield _again("scale", machine)
    yield from _parts(rows)
    if (log := _read("scale", SCALE_LOG)) is not None:
        machine, of_log = log
        yield from _parts(of_log)
        yield _again("scale", machine, kept=SCALE_LOG, only="ONLY=log ")
        rows = [*rows, *of_log]
    yield "### What was asked"
    yield _asked(rows)
    if (log := _read("scale", SCALE_LARGE_LOG)) is not None:
        machine, rows = log
        yield "### A log larger than the disk"
        yield (
            "The same on btrfs, which compresses the records. What a file has is all written and read, but "
            "less of it reaches the disk, and compressing takes of the same processors."
        )
        yield from _curves(SCALE[-1], rows)
        yield _asked(rows)
        only = "ONLY=log GB=20,200 TMPDIR=/mnt/btrfs "
        yield _again("scale", machine, kept=SCALE_LARGE_LOG, only=only)


def _parts(rows: Sequence[Row]) -> Iterator[str]:
    for part in SCALE:
        if any(row.get("part") == part.name for row in rows):
            yield f"### {part.name.capitalize()}"
            yield part.story
            yield from _curves(part, rows)


def _curves(part: Part, rows: Sequence[Row]) -> Iterator[str]:
    yield _curve(part, [row for row in rows if row.get("part") == part.name])
    yield _growth([row for row in rows if row.get("growth of", "").startswith(f"{part.name}: ")])


def _curve(part: Part, rows: Sequence[Row]) -> str:
    """A column for each point, a line for each measure."""
    header = ["", *(f"{_number(row[part.by])}{_short(row['of'])}" for row in rows)]
    measures = dict.fromkeys(key for row in rows for key in row if key not in ("part", "of", part.by))
    lines = [[text(key), *(_number(row[key]) if key in row else "" for row in rows)] for key in measures]
    return table(header, lines)


def _short(side: str) -> str:
    return "" if side == OURS else f" ({side})"


def _growth(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    lines = [
        (
            text(row["growth of"].partition(": ")[2]),
            f"{_number(row['from'])} to {_number(row['to'])}",
            f"{row['exponent']:.2f}",
            _judged(row),
        )
        for row in rows
    ]
    return table(("growth", "step", "exponent", "asked"), lines)


def _asked(rows: Sequence[Row]) -> str:
    """A line for each row that is a limit."""
    lines = [
        (text(row["name"]), f"{_number(row['value'])} {row['unit']}".strip(), _judged(row))
        for row in rows
        if set(row) == {"name", "value", "unit", "asked", "ok"}
    ]
    return table(("what", "measured", "asked"), lines)


def _judged(row: Row) -> str:
    return text(row["asked"]) + ("" if row["ok"] else ", **missed**")


def _number(value: Any) -> str:
    if isinstance(value, float) and abs(value) < 100:
        return f"{value:.3g}"
    return f"{value:,.0f}" if isinstance(value, int | float) else text(str(value))


# ---- bin/bench cost


def _cost() -> Iterator[str]:
    yield "## Cost"
    yield (
        "What a gigabyte, a record and a request cost the broker, beside Apache Kafka 4.4.0, by a client in "
        "C that is the same for both."
    )
    found = _read("cost")
    if found is None:
        yield "`bin/bench cost` measures it. No result is kept here yet."
        return
    machine, rows = found
    yield _again("cost", machine)
    yield from _tables(rows)
    if (again := _read("cost", COST_AGAIN)) is not None:
        machine, rows = again
        yield "### Some of it again"
        measured = dict.fromkeys(row["workload"] for row in rows if "workload" in row)
        yield _again("cost", machine, kept=COST_AGAIN, only=f'ONLY="{",".join(measured)}" ')
        yield from _tables(rows)


def _tables(rows: Sequence[Row]) -> Iterator[str]:
    """A table for each kind of row."""
    kinds: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        kinds.setdefault(tuple(row), []).append(row)
    for columns, members in kinds.items():
        yield table(
            [text(each) for each in columns], ([_number(row[each]) for each in columns] for row in members)
        )
