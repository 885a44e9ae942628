"""A step as text: a line for each replica, with a cell for each record.

    offset               │0    │1    │2    │
    broker 1 leader e1   │m0 e0│m1 e0┃m2 e1│  HW 2 LEO 3
    broker 2 follower e1 │m0 e0│m1 e0┃        HW 2 LEO 2

Colours say what the letters say too, so that a pipe loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from minikafka.cli.tour.snapshot import Cell, Log, PartitionPicture, Picture, Replica, Step, Waiting
from minikafka.units import format_bytes

BAR_WIDTH = 26
EPOCH_STYLES = ("cyan", "magenta", "yellow", "green", "blue", "red")
NOT_COMMITTED = "dim"


def render(step: Step) -> RenderableType:
    """One step, as it is printed."""
    title = Rule(Text(f"{step.number}. {step.title}", style="bold"), align="left")
    drawing = (Text("  ").append_text(line) for line in draw_step(step))
    return Group(title, Text(f"{step.text}\n"), *drawing, Text())


def draw_step(step: Step, *, timed: bool = True) -> list[Text]:
    """Its picture, what would have been, and its facts; with the moments of virtual time, unless they are of
    no interest."""
    return [*_picture(step.picture, timed), *_suppositions(step), *_facts(step)]


def _facts(step: Step) -> Iterator[Text]:
    for fact in step.facts:
        yield Text.assemble(("→ ", "bold green"), fact)


def _suppositions(step: Step) -> Iterator[Text]:
    for each in step.suppositions:
        yield Text(each.title, style="italic red")
        yield from draw(each.replicas)


def _picture(picture: Picture, timed: bool) -> Iterator[Text]:
    yield Text(describe_cluster(picture, timed=timed), style="dim")
    for partition in picture.partitions:
        yield Text(describe_partition(partition), style="bold")
        yield from draw(partition.replicas, leader=partition.state.leader)
        yield from (Text(line, style="dim") for line in describe_progress(partition))
    yield from (Text(describe_waiting(each, timed=timed), style="dim") for each in picture.waiting)


def describe_cluster(picture: Picture, *, timed: bool = True) -> str:
    """When it is, who is the controller, who does not run."""
    controller = "none" if picture.controller is None else f"broker {picture.controller}"
    parts = [
        *([f"at {picture.at_ms / 1000:,.3f} s"] if timed else []),
        f"controller {controller} (epoch {picture.controller_epoch})",
        *(f"broker {each} is down" for each in picture.down),
        *(f"broker {each} is paused" for each in picture.paused),
    ]
    return " · ".join(parts)


def describe_waiting(waiting: Waiting, *, timed: bool = True) -> str:
    """What is parked where, and for how long at most."""
    left = f", {waiting.left_ms} ms left" if timed else ""
    return f"parked at broker {waiting.broker}{left}: {waiting.what}"


def describe_partition(partition: PartitionPicture) -> str:
    """What the store says."""
    state, assignment = partition.state, partition.assignment
    leader = "no leader" if state.leader < 0 else f"broker {state.leader} leads"
    parts = [
        f"{partition.name}: {leader} in epoch {state.leader_epoch}",
        f"ISR {numbers(state.isr)}",
        f"replicas {numbers(assignment.replicas)}",
    ]
    if assignment.adding:
        parts.append(f"adding {numbers(assignment.adding)}")
    if assignment.removing:
        parts.append(f"removing {numbers(assignment.removing)}")
    if state.eligible:
        parts.append(f"eligible {numbers(state.eligible)}")
    return " · ".join(parts)


def describe_progress(partition: PartitionPicture) -> list[str]:
    """What each leader knows of its followers, a line for each that has some."""
    return [
        f"broker {replica.broker} knows: "
        + ", ".join(
            f"broker {each} " + ("has told nothing yet" if end < 0 else f"has all below {end}")
            for each, end in replica.progress
        )
        for replica in partition.replicas
        if replica.progress
    ]


def numbers(brokers: Sequence[int]) -> str:
    """``1 2 3``."""
    return " ".join(map(str, brokers)) or "none"


def describe_replica(replica: Replica, leader: int | None = None) -> str:
    """Who it is, and what it takes itself for, be it that another is the ``leader`` by now."""
    epoch = f" e{replica.epoch}" if replica.epoch >= 0 else ""
    role = {"none": "has no replica", "down": "is down"}.get(replica.role, replica.role)
    deposed = " (deposed)" if replica.role == "leader" and leader not in (None, replica.broker) else ""
    return f"broker {replica.broker} {role}{epoch}{deposed}"


def describe_log(log: Log) -> str:
    """Its offsets."""
    parts = [] if log.high_watermark < 0 else [f"HW {log.high_watermark}"]
    if 0 <= log.stable < log.high_watermark:
        parts.append(f"LSO {log.stable}")
    return " ".join([*parts, f"LEO {log.end}"])


def describe_cell(cell: Cell) -> str:
    """What stands in a cell."""
    return f"{cell.text} e{cell.epoch}" + (f" p{cell.producer}" if cell.producer else "")


def draw(replicas: Sequence[Replica], leader: int | None = None) -> Iterator[Text]:
    """A line for each replica; with a line of offsets above, when each record has its cell."""
    names = [describe_replica(each, leader) for each in replicas]
    width = max([*map(len, names), len("offset")]) + 1
    columns = columns_of(replicas)
    if columns is None:
        longest = max(each.log.end for each in replicas if each.log is not None)
        for name, replica in zip(names, replicas, strict=True):
            yield Text(name.ljust(width)).append_text(_bar(replica.log, longest))
        return
    if columns:
        offsets = "".join(f"│{offset:<{size}}" for offset, size in columns.items())
        yield Text("offset".ljust(width) + offsets + "│", style="dim")
    for name, replica in zip(names, replicas, strict=True):
        yield Text(name.ljust(width)).append_text(_row(replica.log, columns))


def columns_of(replicas: Sequence[Replica]) -> dict[int, int] | None:
    """The offsets of all logs in ascending order, with the width that the widest record of each needs; None:
    a log has too many for that."""
    logs = [each.log for each in replicas if each.log is not None]
    if any(log.cells is None for log in logs):
        return None
    columns: dict[int, int] = {}
    for cell in sorted((cell for log in logs for cell in log.cells or ()), key=lambda cell: cell.offset):
        needed = max(len(describe_cell(cell)), len(str(cell.offset)))
        columns[cell.offset] = max(columns.get(cell.offset, 0), needed)
    return columns


def _row(log: Log | None, columns: Mapping[int, int]) -> Text:
    line = Text()
    if log is None:
        return line
    cells = {each.offset: each for each in log.cells or ()}
    for offset, size in columns.items():
        cell = cells.get(offset)
        line.append_text(_border(log, offset))
        text = "" if cell is None else describe_cell(cell)
        style = "" if cell is None else _style(cell.epoch, is_committed=offset < log.high_watermark)
        line.append(text.ljust(size), style)
    line.append_text(_border(log, max(columns) + 1 if columns else log.end))
    return line.append(f"  {describe_log(log)}")


def _border(log: Log, offset: int) -> Text:
    """What stands before ``offset``: the thick line is the high watermark."""
    if offset == log.high_watermark:
        return Text("┃", style="bold")
    return Text("│" if log.start <= offset <= log.end and log.end > log.start else " ", style="dim")


def _style(epoch: int, *, is_committed: bool) -> str:
    style = EPOCH_STYLES[epoch % len(EPOCH_STYLES)]
    return style if is_committed else f"{style} {NOT_COMMITTED}"


def _bar(log: Log | None, longest: int) -> Text:
    line = Text()
    if log is None:
        return line
    for span in log.spans:
        style = EPOCH_STYLES[span.epoch % len(EPOCH_STYLES)]
        for character, start, end in (
            ("█", span.start, min(span.end, max(log.high_watermark, span.start))),
            ("▒", max(span.start, log.high_watermark), span.end),
        ):
            cells = round(BAR_WIDTH * end / longest) - round(BAR_WIDTH * start / longest)
            line.append(character * max(cells, 0), style)
    line.append(" " * (BAR_WIDTH - len(line)))
    spans = " ".join(map(str, log.spans))
    return line.append(f"  {spans} {describe_log(log)}, {format_bytes(log.size_bytes)}")
