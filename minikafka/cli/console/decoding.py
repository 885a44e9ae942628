"""Keys, values and headers as text that a page can show: UTF-8, JSON, hex, and Avro or Protobuf by the schema
that a registry has for them; and that registry.

Bytes come from anybody, so nothing here trusts them: text is cut, and what a decoder raises is why the bytes
are shown as hex. Two things would take the process with them and are refused before: a recursive Avro schema
with many bytes, which ends in a stack overflow (fastavro's reader recurses in C), and an Avro array of items
without bytes, whose count costs nothing.

A schema registry speaks Confluent's protocol, as Karapace and Apicurio do, too; a schema's id is in front of
a message. Only the registry that is configured is asked, never one that a request names, and no redirect of
it is followed: who looks at a page cannot have the broker ask other servers. An answer has at most
``ANSWER_BYTES_MAX`` and ``TIMEOUT_S``; schemas never change, so they are kept, and what went wrong is for
``FAILURE_S``.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from decimal import Decimal
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote
from uuid import UUID

import msgspec

from minikafka.cli.console.exchange import Refusal

KEPT_BYTES_MAX: Final = 256 * 1024
"""Of a key or a value, which is enough to decode most; the rest is only counted."""
TEXT_LENGTH_MAX: Final = 32 * 1024
"""Characters that are shown of one key or value."""
HEX_BYTES_MAX: Final = 4 * 1024
RECURSIVE_BYTES_MAX: Final = 1_000
"""Of a message of a recursive Avro schema: each level of its nesting takes a byte, and some thousands of
levels overflow a thread's stack of 8 MiB."""

MAGIC: Final = 0
PREFIX_BYTES: Final = 5
"""Before what a registry's serializer writes: a zero, and the schema's id in four bytes."""

Format = Literal["auto", "text", "json", "hex", "avro", "protobuf"]

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


def read_format(text: str) -> Format:
    """Raises Refusal: there is none of that name."""
    match text:
        case "auto" | "text" | "json" | "hex" | "avro" | "protobuf":
            return text
    raise Refusal(400, "format: must be auto, text, json, hex, avro or protobuf")


class Cut(NamedTuple):
    """Bytes, of which there may have been more."""

    data: bytes
    size: int


class Decoded(msgspec.Struct, frozen=True):
    """What is shown; ``format`` is what it was taken for."""

    text: str
    format: str
    bytes: int
    is_cut: bool
    why_not: str | None = None
    """Why it is not in the format that was asked for."""


class Reader(NamedTuple):
    """A schema that was made ready. ``read`` gets the bytes behind the prefix, and returns JSON text; it may
    raise anything."""

    format: str
    read: Callable[[bytes], str]


Readers = dict[int, Reader | str]
"""By the schema's id; a text is why there is none."""


def schema_id(data: bytes) -> int | None:
    """What a registry's serializer has put in front; None: it has not."""
    if len(data) < PREFIX_BYTES or data[0] != MAGIC:
        return None
    return int.from_bytes(data[1:PREFIX_BYTES], "big")


def decode(cut: Cut | None, format: Format, readers: Readers) -> Decoded | None:
    """None for null."""
    if cut is None:
        return None
    match format:
        case "hex":
            return _hex(cut)
        case "text":
            return _text(cut, cut.data.decode("utf-8", errors="replace"), "text")
        case "json":
            return _json(cut) or msgspec.structs.replace(_guess(cut), why_not="it is not JSON")
        case "avro" | "protobuf":
            return _by_schema(cut, format, readers)
    number = schema_id(cut.data)
    if number is not None and isinstance(readers.get(number), Reader):
        found = _by_schema(cut, None, readers)
        if found.why_not is None:
            return found
    return _guess(cut)


def _by_schema(cut: Cut, format: str | None, readers: Readers) -> Decoded:
    number = schema_id(cut.data)
    if number is None:
        return _hex(cut, "it does not begin with the id of a schema")
    reader = readers.get(number, f"schema {number} was not looked up")
    if isinstance(reader, str):
        return _hex(cut, reader)
    if format is not None and reader.format != format:
        return _hex(cut, f"schema {number} is {reader.format}")
    if cut.size > len(cut.data):
        return _hex(cut, f"it has {cut.size} bytes; {KEPT_BYTES_MAX} are decoded")
    try:
        return _text(cut, reader.read(cut.data[PREFIX_BYTES:]), reader.format)
    except Exception as error:  # noqa: BLE001 foreign bytes: the library raises whatever
        return _hex(cut, f"schema {number} does not read it: {type(error).__name__}: {str(error)[:200]}")


def _guess(cut: Cut) -> Decoded:
    if (found := _json(cut)) is not None:
        return found
    data = cut.data[: TEXT_LENGTH_MAX * 4]
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if len(data) == cut.size or error.start < len(data) - 3:  # else a character was cut
            return _hex(cut)
        text = data[: error.start].decode()
    return _text(cut, text, "text") if _is_readable(text) else _hex(cut)


def _is_readable(text: str) -> bool:
    return not any(character < " " and character not in "\t\n\r" for character in text)


def _json(cut: Cut) -> Decoded | None:
    """Objects and arrays; a lone number or word is as well text. None: it is none."""
    if cut.size > len(cut.data) or cut.data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        msgspec.json.decode(cut.data, type=msgspec.Raw)
        text = cut.data.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return _text(cut, text, "json")


def _text(cut: Cut, text: str, format: str) -> Decoded:
    is_cut = len(text) > TEXT_LENGTH_MAX or cut.size > len(cut.data)
    return Decoded(text[:TEXT_LENGTH_MAX], format, cut.size, is_cut)


def _hex(cut: Cut, why_not: str | None = None) -> Decoded:
    shown = cut.data[:HEX_BYTES_MAX]
    return Decoded(shown.hex(), "hex", cut.size, len(shown) < cut.size, why_not)


# Avro
def avro_reader(schema: Any) -> Reader:
    """Of a schema as JSON's values, with what it refers to in it. Raises ValueError: it is none, or one that
    cannot be read safely; ImportError: fastavro is not there."""
    import fastavro  # the extra console

    try:
        parsed = fastavro.parse_schema(schema)
    except Exception as error:  # a library's own kinds, KeyError, TypeError
        raise ValueError(f"it is no Avro schema: {type(error).__name__}: {error}") from error
    shape = _Shape()
    shape.walk(parsed, (), passes_byte=True)
    if shape.why is not None:
        raise ValueError(shape.why)

    def read(data: bytes) -> str:
        if shape.is_recursive and len(data) > RECURSIVE_BYTES_MAX:
            raise ValueError(f"its schema is recursive: at most {RECURSIVE_BYTES_MAX} bytes are decoded")
        stream = BytesIO(data)
        value = fastavro.schemaless_reader(stream, parsed, None)
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes are left behind it")
        return _as_json(value)

    return Reader("avro", read)


class _Shape:
    """Whether a schema, as fastavro has parsed it, can be read safely."""

    def __init__(self) -> None:
        self.is_recursive = False
        self.why: str | None = None
        self._named: dict[str, Any] = {}

    def walk(self, schema: Any, open_names: tuple[str, ...], *, passes_byte: bool) -> bool:
        """Whether a value of it can be without bytes. ``passes_byte``: at least one has been read since the
        innermost of ``open_names`` began."""
        if isinstance(schema, list):
            for each in schema:
                self.walk(each, open_names, passes_byte=True)
            return False  # the branch's number
        if isinstance(schema, str):
            return self._named_or_primitive(schema, open_names, passes_byte)
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, open_names, passes_byte)
        if kind == "array":
            if self.walk(schema["items"], open_names, passes_byte=True):
                self.why = "it has an array of items without bytes, which may be any number"
            return False
        if kind == "map":
            self.walk(schema["values"], open_names, passes_byte=True)
            return False
        if kind in ("fixed", "enum"):
            self._named[schema["name"]] = schema
            return bool(kind == "fixed" and schema["size"] == 0)
        return self.walk(kind, open_names, passes_byte=passes_byte)

    def _record(self, schema: Any, open_names: tuple[str, ...], passes_byte: bool) -> bool:
        name = schema["name"]
        self._named[name] = schema
        is_empty = True
        for field in schema["fields"]:
            is_empty &= self.walk(field["type"], (*open_names, name), passes_byte=not is_empty)
        return is_empty

    def _named_or_primitive(self, name: str, open_names: tuple[str, ...], passes_byte: bool) -> bool:
        if name in open_names:
            self.is_recursive = True
            if not passes_byte:
                self.why = f"{name} contains itself without end"
            return False
        if name in self._named:
            found = self._named[name]
            if found["type"] in ("record", "error"):
                return all(
                    isinstance(each["type"], str) and self._named_or_primitive(each["type"], open_names, True)
                    for each in found["fields"]
                )
            return bool(found["type"] == "fixed" and found["size"] == 0)
        return name == "null"


def _as_json(value: Any) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    match value:
        case bytes() | bytearray():
            return value.hex()
        case Decimal() | UUID():
            return str(value)
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
    return str(value)


# Protobuf
def protobuf_reader(descriptors: bytes, file_name: str) -> Reader:
    """Of a descriptor set, whose file ``file_name`` has the messages. Raises ValueError: it is none;
    ImportError: protobuf is not there."""
    from google.protobuf import json_format  # the extra console
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    pool = DescriptorPool()
    try:
        for each in FileDescriptorSet.FromString(descriptors).file:
            pool.Add(each)
        file = pool.FindFileByName(file_name)
    except Exception as error:  # a library's own kinds, KeyError, TypeError
        raise ValueError(f"it is no descriptor set: {type(error).__name__}: {error}") from error
    top = list(file.message_types_by_name.values())

    def read(data: bytes) -> str:
        (first, *inner), position = _indexes(data)
        found = top[first]
        for index in inner:
            found = found.nested_types[index]
        message = GetMessageClass(found)()
        message.ParseFromString(data[position:])
        options: dict[str, Any] = {"indent": None, "preserving_proto_field_name": True, "ensure_ascii": False}
        return str(json_format.MessageToJson(message, descriptor_pool=pool, **options))

    return Reader("protobuf", read)


def _indexes(data: bytes) -> tuple[list[int], int]:
    """Which message of the file it is, as Confluent's serializer says it: a count and so many indexes, as
    zigzag varints; a lone zero means the first. Raises ValueError."""
    count, position = _zigzag(data, 0)
    if count == 0:
        return [0], position
    if not 0 < count <= 100:
        raise ValueError(f"{count} indexes of messages")
    indexes = []
    for _ in range(count):
        index, position = _zigzag(data, position)
        if index < 0:
            raise ValueError(f"the index {index} of a message")
        indexes.append(index)
    return indexes, position


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 28:
            raise ValueError("the indexes of the message are cut off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position


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
