"""Stories as a page: one file that needs no other, and no network.

Every step is in the document, so without a script it is read from top to bottom. The script shows one step at
a time, and plays them.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files

from minikafka.cli.tour.catalogue import Entry, seconds_to_read
from minikafka.cli.tour.snapshot import Cell, Log, PartitionPicture, Picture, Replica, Step, Supposition
from minikafka.cli.tour.text import (
    EPOCH_STYLES,
    columns_of,
    describe_cluster,
    describe_log,
    describe_partition,
    describe_progress,
    describe_replica,
    describe_waiting,
)
from minikafka.units import format_bytes

BAR = 1_000
"""The width of a bar, in its own units."""

Told = Mapping[Entry, Sequence[Step]]


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
        *_picture(step.picture, None if before is None else before.picture),
        *map(_supposition, step.suppositions),
        f"<ul>{facts}</ul>" if facts else "",
        "</article>",
    ]
    return "\n".join(filter(None, lines))


def _picture(picture: Picture, before: Picture | None) -> Iterator[str]:
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
        rows = [_head(each, leader) + _bar(each.log, longest) for each in replicas]
    else:
        if columns:
            offsets = "".join(f'<th scope="col">{offset}</th>' for offset in columns)
            head = f'<thead><tr><th scope="col">offset</th>{offsets}<th></th></tr></thead>'
        rows = [
            _head(each, leader)
            + _row(each.log, list(columns), None if known is None else known.get(each.broker, ()))
            for each in replicas
        ]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="scroll" tabindex="0"><table>{head}<tbody>{body}</tbody></table></div>'


def _head(replica: Replica, leader: int | None) -> str:
    log = replica.log
    is_at_start = log is not None and log.high_watermark == log.start
    classes = f"{replica.role}{' hw' if is_at_start else ''}"
    return f'<th scope="row" class="{classes}">{escape(describe_replica(replica, leader))}</th>'


def _row(log: Log | None, columns: Sequence[int], known: Sequence[Cell] | None) -> str:
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


def _bar(log: Log | None, longest: int) -> str:
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
