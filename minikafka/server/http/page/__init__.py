"""The page at ``/``: one HTML file with its style and its script inside, made of the files in this folder.

The browser is told their hashes (Content-Security-Policy), so it runs nothing else, and loads nothing from
anywhere but the server that it has the page from. There is no build: the scripts stand one after the other in
one ``<script>``, in the order of ``SCRIPTS``, and share their names.

What the page draws comes as JSON: ``api/…`` from the console (``minikafka.cli.console``), and where there is
none what a broker says of itself: ``status.json``, ``events.json``, ``purgatory.json``.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Final

from minikafka.server.http.server import HttpResponse

HTML_CONTENT_TYPE: Final = "text/html; charset=utf-8"

SCRIPTS: Final = (
    "base",
    "numbers",
    "tables",
    "charts",
    "routing",
    "dialog",
    "why",
    "cluster",
    "topics",
    "topic",
    "messages",
    "groups",
    "group",
    "reassignments",
    "access",
    "events",
    "purgatory",
    "questions",
    "broker",
    "start",
)
"""In this order: what the later ones do when they are read, they do with what is in the earlier ones."""


def _read(name: str) -> bytes:
    return Path(__file__).with_name(name).read_bytes()


def _hash_of(content: bytes) -> str:
    """CSP's name of what is between the tags of an element."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'"


_STYLE = b"\n" + _read("style.css")
_SCRIPT = b"\n" + b"\n".join(_read(f"{name}.js") for name in SCRIPTS)
_HTML = (
    _read("page.html")
    .replace(b"<style></style>", b"<style>%b</style>" % _STYLE)
    .replace(b"<script></script>", b"<script>%b</script>" % _SCRIPT)
)

HEADERS: Final = (
    (
        "content-security-policy",
        f"default-src 'none'; script-src {_hash_of(_SCRIPT)}; style-src {_hash_of(_STYLE)}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
)
"""Of the page, and of the JSON that it draws."""


def page() -> HttpResponse:
    """``/``."""
    return HttpResponse(_HTML, content_type=HTML_CONTENT_TYPE, headers=HEADERS)
