"""A schema registry (Confluent's protocol, which Karapace and Apicurio speak, too): the schemas whose ids are
in front of messages.

Only the registry that is configured is asked, never one that a request names, and no redirect of it is
followed: who looks at a page cannot have the broker ask other servers. An answer has at most
``ANSWER_BYTES_MAX`` and ``TIMEOUT_S``; schemas never change, so they are kept, and what went wrong is for
``FAILURE_S``.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from minikafka.cli.console.decoding import Reader, Readers, avro_reader, protobuf_reader

ANSWER_BYTES_MAX: Final = 1024 * 1024
TIMEOUT_S: Final = 3.0
LOOKUPS_S: Final = 6.0
"""For all that one request has fetched; the rest it gets without."""
COMPILE_S: Final = 10.0
SCHEMAS_MAX: Final = 500
"""That are kept; the one that was asked for longest ago goes first."""
LOOKUPS_MAX: Final = 20
"""Schemas that one request may have fetched; with those that they refer to, ``REFERENCES_MAX`` each."""
REFERENCES_MAX: Final = 20
FAILURE_S: Final = 30.0
TOO_MANY: Final = "there are too many schemas to look up at once, or the registry is slow"

ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
EXTRA: Final = "pip install 'minikafka[console]'"
_FILE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")

_MAIN: Final = "minikafka_schema.proto"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None  # which makes the answer an error


class Registry:
    """Of one URL. Its methods that fetch run in threads."""

    def __init__(self, url: str, user_info: str | None = None) -> None:
        """``url``: of http or https. ``user_info``: NAME:PASSWORD (RFC 7617)."""
        self._url = url.rstrip("/")
        self._headers = {"accept": ACCEPT}
        if user_info is not None:
            self._headers["authorization"] = f"Basic {base64.b64encode(user_info.encode()).decode()}"
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(),
            urllib.request.HTTPErrorProcessor(),
            urllib.request.HTTPDefaultErrorHandler(),
            _NoRedirect(),
        ):
            self._opener.add_handler(handler)  # and none for files, FTP or proxies
        self._kept: dict[int, tuple[float, Reader | str]] = {}
        """Schema id → until when, and what."""
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"Registry({self._url}, {len(self._kept)} schemas)"

    async def readers(self, ids: Iterable[int]) -> Readers:
        """What reads messages of these schemas, or why there is nothing."""
        wanted = set(ids)
        async with self._turn:
            missing = sorted(each for each in wanted if self._of(each) is None)
            until_s = time.monotonic() + LOOKUPS_S
            for number in missing[:LOOKUPS_MAX]:
                if time.monotonic() < until_s:
                    self._keep(number, await asyncio.to_thread(self._load, number, until_s))
            found = {each: self._of(each) or TOO_MANY for each in wanted}
        return found

    def _of(self, number: int) -> Reader | str | None:
        until_s, found = self._kept.get(number, (0.0, ""))
        return found if time.monotonic() < until_s else None

    def _keep(self, number: int, found: Reader | str) -> None:
        while len(self._kept) >= SCHEMAS_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept.pop(number, None)
        self._kept[number] = (time.monotonic() + FAILURE_S if isinstance(found, str) else float("inf")), found

    # In a thread

    def _load(self, number: int, until_s: float) -> Reader | str:
        try:
            found = self._get(f"/schemas/ids/{number}", until_s)
            kind = found.get("schemaType", "AVRO")
            references = self._references(found, until_s)
            if kind == "AVRO":
                return avro_reader(_with_references(found["schema"], references))
            if kind == "PROTOBUF":
                return protobuf_reader(_compiled(found["schema"], references), _MAIN)
            return Reader("json", lambda data: data.decode())
        except ImportError as error:
            return f"schema {number}: {error.name} is not installed: {EXTRA}"
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            return f"schema {number}: {_told(error)}"

    def _references(self, schema: Any, until_s: float) -> dict[str, str]:
        """Name → text of what a schema refers to, what is referred to first."""
        found: dict[str, str] = {}

        def follow(of: Any, depth: int) -> None:
            for each in of.get("references", ()):
                name, subject, version = (
                    str(each["name"]),
                    quote(str(each["subject"]), safe=""),
                    int(each["version"]),
                )
                if name in found:
                    continue
                if len(found) >= REFERENCES_MAX or depth > REFERENCES_MAX:
                    raise ValueError(f"it refers to more than {REFERENCES_MAX} others")
                there = self._get(f"/subjects/{subject}/versions/{version}", until_s)
                follow(there, depth + 1)
                found[name] = there["schema"]

        follow(schema, 0)
        return found

    def _get(self, path: str, until_s: float) -> Any:
        """Raises OSError, ValueError."""
        deadline_s = min(until_s, time.monotonic() + TIMEOUT_S)
        if time.monotonic() >= deadline_s:
            raise ValueError("the registry is slow")
        request = urllib.request.Request(self._url + path, headers=self._headers)
        with self._opener.open(request, timeout=TIMEOUT_S) as answer:
            data = b""
            while chunk := answer.read1(64 * 1024):
                data += chunk
                if len(data) > ANSWER_BYTES_MAX or time.monotonic() > deadline_s:
                    raise ValueError(
                        f"the registry's answer is larger than {ANSWER_BYTES_MAX} bytes, or slow"
                    )
        return json.loads(data)


def _told(error: Exception) -> str:
    match error:
        case urllib.error.HTTPError():
            return f"the registry says {error.code}"
        case urllib.error.URLError():
            return f"the registry cannot be asked: {error.reason}"
        case KeyError():
            return f"the registry's answer has no {error}"
    return str(error)[:300]


def _with_references(text: str, references: dict[str, str]) -> Any:
    """An Avro schema in which each named type that it refers to stands where it is first used."""
    schema = json.loads(text)
    if not references:
        return schema
    named = {name: json.loads(each) for name, each in references.items()}
    put: set[str] = set()

    def place(at: Any) -> Any:
        if isinstance(at, str) and at in named and at not in put:
            put.add(at)
            return place(named[at])
        if isinstance(at, list):
            return [place(each) for each in at]
        if isinstance(at, dict):
            inner = ("type", "items", "values", "fields")
            return {key: place(value) if key in inner else value for key, value in at.items()}
        return at

    return place(schema)


def _compiled(text: str, references: dict[str, str]) -> bytes:
    """The descriptor set of a .proto file's text. Raises ValueError, ImportError, OSError."""
    if find_spec("grpc_tools") is None:
        raise ImportError("grpcio-tools", name="grpcio-tools")
    with tempfile.TemporaryDirectory(prefix="minikafka-schema-") as directory:
        for name, each in ({**references, _MAIN: text}).items():
            if not _FILE.fullmatch(name):
                raise ValueError(f"it refers to {name[:100]!r}, which is no name of a file")
            path = Path(directory, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(each, encoding="utf-8")
        out = Path(directory, "minikafka_schema.desc")
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{directory}", "--include_imports"]
        try:
            done = subprocess.run(
                [*command, f"--descriptor_set_out={out}", _MAIN],
                cwd=directory,
                capture_output=True,
                text=True,
                check=False,
                timeout=COMPILE_S,
            )
        except subprocess.TimeoutExpired:
            raise ValueError(f"protoc took longer than {COMPILE_S:.0f} s") from None
        if done.returncode:
            words = " ".join(done.stderr.split())[:300] or f"protoc ended with {done.returncode}"
            raise ValueError(f"it is not Protobuf: {words}")
        return out.read_bytes()
