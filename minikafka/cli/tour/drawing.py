"""Steps as text (``render``), and stories as a page (``page``).

Text has a line for each replica, with a cell for each record:

    offset               │0    │1    │2    │
    broker 1 leader e1   │m0 e0│m1 e0┃m2 e1│  HW 2 LEO 3
    broker 2 follower e1 │m0 e0│m1 e0┃        HW 2 LEO 2

Colours say what the letters say too, so that a pipe loses nothing.

The page is one file that needs no other, and no network. Every step is in the document, so without a script
it is read from top to bottom. The script shows one step at a time, and plays them.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from minikafka.cli.tour import Entry, seconds_to_read
from minikafka.cli.tour.stage import Cell, Log, PartitionPicture, Picture, Replica, Step, Supposition, Waiting
from minikafka.units import format_bytes

BAR_WIDTH = 26
EPOCH_STYLES = ("cyan", "magenta", "yellow", "green", "blue", "red")
NOT_COMMITTED = "dim"

BAR = 1_000
"""The width of a bar, in its own units."""

Told = Mapping[Entry, Sequence[Step]]


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


def page(told: Told, *, speed: float) -> str:
    """The whole document."""
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    parts = {
        "policy": _policy(template),
        "speed": f"{speed:g}",
        "nav": "\n".join(
            f'<a href="#{each.name}" title="{escape(each.summary)}">{each.name}</a>' for each in told
        ),
        "stories": "\n".join(_story(entry, steps) for entry, steps in told.items()),
    }
    return re.sub(r"\{(policy|speed|nav|stories)\}", lambda match: parts[match[1]], template)


def _policy(template: str) -> str:
    """Nothing but the one style and the one script that are in the page."""
    return (
        f"default-src 'none'; style-src '{_hash_of('style', template)}'; "
        f"script-src '{_hash_of('script', template)}'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash_of(element: str, template: str) -> str:
    (content,) = re.findall(rf"<{element}>(.*?)</{element}>", template, re.DOTALL)
    digest = hashlib.sha256(content.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _story(entry: Entry, steps: Sequence[Step]) -> str:
    articles = []
    before: Step | None = None
    for step in steps:
        articles.append(_step(entry, step, before))
        before = step
    body = "\n".join(articles)
    read = f'<p class="quiet">Why it is so: docs/{escape(entry.read)}</p>'
    return f'<section id="{entry.name}">\n<h2>{escape(entry.summary)}</h2>\n{body}\n{read}\n</section>'


def _step(entry: Entry, step: Step, before: Step | None) -> str:
    seconds = seconds_to_read(step.text)
    facts = "".join(f"<li>{escape(each)}</li>" for each in step.facts)
    lines = [
        f'<article id="{entry.name}-{step.number}" data-seconds="{seconds:g}">',
        f"<h3>{step.number}. {escape(step.title)}</h3>",
        f"<p>{escape(step.text)}</p>",
        *_picture_html(step.picture, None if before is None else before.picture),
        *map(_supposition, step.suppositions),
        f"<ul>{facts}</ul>" if facts else "",
        "</article>",
    ]
    return "\n".join(filter(None, lines))


def _picture_html(picture: Picture, before: Picture | None) -> Iterator[str]:
    yield f'<p class="quiet">{escape(describe_cluster(picture))}</p>'
    earlier = {} if before is None else {each.name: each for each in before.partitions}
    for partition in picture.partitions:
        yield f'<p class="store">{escape(describe_partition(partition))}</p>'
        yield _replicas(partition.replicas, _known(earlier.get(partition.name)), partition.state.leader)
        for line in describe_progress(partition):
            yield f'<p class="quiet">{escape(line)}</p>'
    for each in picture.waiting:
        yield f'<p class="quiet">{escape(describe_waiting(each))}</p>'


def _known(before: PartitionPicture | None) -> dict[int, Sequence[Cell]] | None:
    """The records that the step before has shown, by broker; None in the first step."""
    if before is None:
        return None
    return {each.broker: () if each.log is None else each.log.cells or () for each in before.replicas}


def _supposition(supposition: Supposition) -> str:
    return (
        f'<div class="supposed"><p>{escape(supposition.title)}</p>'
        f"{_replicas(supposition.replicas, None, None)}</div>"
    )


def _replicas(
    replicas: Sequence[Replica], known: Mapping[int, Sequence[Cell]] | None, leader: int | None
) -> str:
    """One table: a row for each replica."""
    columns = columns_of(replicas)
    head = ""
    if columns is None:
        longest = max(each.log.end for each in replicas if each.log is not None)
        rows = [_head(each, leader) + _bar_html(each.log, longest) for each in replicas]
    else:
        if columns:
            offsets = "".join(f'<th scope="col">{offset}</th>' for offset in columns)
            head = f'<thead><tr><th scope="col">offset</th>{offsets}<th></th></tr></thead>'
        rows = [
            _head(each, leader)
            + _row_html(each.log, list(columns), None if known is None else known.get(each.broker, ()))
            for each in replicas
        ]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="scroll" tabindex="0"><table>{head}<tbody>{body}</tbody></table></div>'


def _head(replica: Replica, leader: int | None) -> str:
    log = replica.log
    is_at_start = log is not None and log.high_watermark == log.start
    classes = f"{replica.role}{' hw' if is_at_start else ''}"
    return f'<th scope="row" class="{classes}">{escape(describe_replica(replica, leader))}</th>'


def _row_html(log: Log | None, columns: Sequence[int], known: Sequence[Cell] | None) -> str:
    if log is None:
        return f'<td colspan="{len(columns) + 1}"></td>'
    cells = {each.offset: each for each in log.cells or ()}
    parts = []
    for offset in columns:
        cell = cells.get(offset)
        if cell is None:
            parts.append("<td></td>")
            continue
        classes = [
            "record",
            _epoch(cell.epoch),
            *(["loose"] if 0 <= log.high_watermark <= offset else []),
            *(["hw"] if log.high_watermark == offset + 1 else []),
            *(["new"] if known is not None and cell not in known else []),
        ]
        producer = f" p{cell.producer}" if cell.producer else ""
        parts.append(
            f'<td class="{" ".join(classes)}">{escape(cell.text)} <small>e{cell.epoch}{producer}</small></td>'
        )
    return "".join([*parts, f'<td class="offsets">{describe_log(log)}</td>'])


def _bar_html(log: Log | None, longest: int) -> str:
    if log is None:
        return '<td class="bar"></td><td></td>'
    rectangles = []
    for span in log.spans:
        middle = min(max(span.start, log.high_watermark), span.end)
        for start, end, classes in ((span.start, middle, ""), (middle, span.end, " loose")):
            if start < end:
                x, width = BAR * start / longest, BAR * (end - start) / longest
                place = f'x="{x:.1f}" y="0" width="{width:.1f}" height="10"'
                rectangles.append(f'<rect {place} class="{_epoch(span.epoch)}{classes}"/>')
    spans = " ".join(map(str, log.spans))
    box = f'viewBox="0 0 {BAR} 10" preserveAspectRatio="none" aria-hidden="true"'
    drawing = f"<svg {box}>{''.join(rectangles)}</svg>"
    said = f"{spans} {describe_log(log)}, {format_bytes(log.size_bytes)}"
    return f'<td class="bar">{drawing}</td><td class="offsets">{escape(said)}</td>'


def _epoch(epoch: int) -> str:
    return f"e{epoch % len(EPOCH_STYLES)}"
