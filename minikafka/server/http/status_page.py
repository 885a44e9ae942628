"""The status page: ``/``, one HTML file that draws ``/status.json`` again every two seconds.

The file has its style and its script inside. The browser is told their hashes (Content-Security-Policy), so
it runs nothing else, and loads nothing from anywhere but this broker.
"""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

import msgspec

from minikafka.server.http.server import HttpRequest, HttpResponse
from minikafka.server.http.status import describe
from minikafka.server.services import Services

HTML_CONTENT_TYPE = "text/html; charset=utf-8"
JSON_CONTENT_TYPE = "application/json"

_HTML = files(__package__).joinpath("status_page.html").read_bytes()


def _hash_of(element: bytes) -> str:
    """CSP's name of what is between the tags of the one ``element`` of the page."""
    (content,) = re.findall(rb"<%b>(.*?)</%b>" % (element, element), _HTML, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'"


_HEADERS = (
    (
        "content-security-policy",
        f"default-src 'none'; script-src {_hash_of(b'script')}; style-src {_hash_of(b'style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
)


def page() -> HttpResponse:
    """``/``."""
    return HttpResponse(_HTML, content_type=HTML_CONTENT_TYPE, headers=_HEADERS)


async def status(services: Services, request: HttpRequest) -> HttpResponse:
    """``/status.json``: what the page draws."""
    document = await describe(services, topic_filter=request.query.get("topic", ""))
    return HttpResponse(msgspec.json.encode(document), content_type=JSON_CONTENT_TYPE, headers=_HEADERS)
