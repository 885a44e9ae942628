"""A page as headless Chromium shows it: the text of its tables, and a picture."""

from __future__ import annotations

import asyncio
import struct
import zlib
from html.parser import HTMLParser
from pathlib import Path

DEADLINE_S = 120
WINDOW = "1200,1600"
ELSEWHERE = "elsewhere.test"
"""A name of this machine for the browser, which does not look like one."""


class ShownPage(HTMLParser):
    """What is in the document once its script has run."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        """Rows of text, by the id of the table's body."""
        self.texts: dict[str, str] = {}
        """Text by the id of the element that it is right in."""
        self.links: dict[str, list[str]] = {}
        """Where the links in a table lead to, by the id of the table's body."""
        self.numbers: dict[str, str] = {}
        """What is said at the top, by its name."""
        self.tags: list[str] = []
        self._term = ""
        self._tag = ""
        self._body: list[list[str]] | None = None
        self._body_links: list[str] = []
        self._ids: list[str | None] = []
        self.feed(html)

    def row(self, table: str, *start: str) -> list[str]:
        """The one row of a table that begins with these cells."""
        (only,) = (row for row in self.tables[table] if row[: len(start)] == list(start))
        return only

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._tag = tag
        name = dict(attributes).get("id")
        if tag == "tbody":
            self._body = self.tables[name or ""] = []
            self._body_links = self.links[name or ""] = []
        elif self._body is not None and tag == "tr":
            self._body.append([])
        elif self._body is not None and tag in ("th", "td"):
            self._body[-1].append("")
        elif self._body is not None and tag == "a":
            self._body_links.append(dict(attributes).get("href") or "")
        self._ids.append(name)

    def handle_endtag(self, tag: str) -> None:
        self._tag = ""
        if tag == "tbody":
            self._body = None
        self._ids.append(None)

    def handle_data(self, data: str) -> None:
        if self._tag == "dt":
            self._term = data
        elif self._tag == "dd":
            self.numbers[self._term] = data
        if self._body and self._body[-1]:
            self._body[-1][-1] += data
        elif self._ids and (name := self._ids[-1]):
            self.texts[name] = data


async def show(url: str, directory: Path, *, virtual_ms: int = 1_500) -> ShownPage:
    """Open ``url`` and let ``virtual_ms`` go by in the page, which takes less; requests are waited for. The
    picture is ``page.png`` in ``directory``."""
    process = await asyncio.create_subprocess_exec(
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-proxy-server",
        f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1",
        f"--user-data-dir={directory / 'profile'}",
        f"--window-size={WINDOW}",
        f"--virtual-time-budget={virtual_ms}",
        f"--screenshot={directory / 'page.png'}",
        "--dump-dom",
        url,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            html, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors.decode(errors="replace")
    return ShownPage(html.decode())


def distinct_lines(png: Path) -> int:
    """How many different lines of pixels a picture has; a blank one has one or two."""
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    position, packed, line_bytes = 8, b"", 0
    while position < len(data):
        (size,) = struct.unpack_from(">I", data, position)
        kind, content = data[position + 4 : position + 8], data[position + 8 : position + 8 + size]
        if kind == b"IHDR":
            width, _, depth, color = struct.unpack_from(">IIBB", content)
            line_bytes = 1 + width * depth // 8 * {2: 3, 6: 4}[color]
        elif kind == b"IDAT":
            packed += content
        position += 12 + size
    pixels = zlib.decompress(packed)
    return len({pixels[start : start + line_bytes] for start in range(0, len(pixels), line_bytes)})
