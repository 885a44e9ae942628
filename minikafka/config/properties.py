"""Java's ``.properties`` files, read as ``java.util.Properties.load`` reads them.

A comment starts with ``#`` or ``!``; a backslash at the end of a line continues it; ``=``, ``:`` or white
space ends the name; ``\\t``, ``\\n``, ``\\r``, ``\\f`` and ``\\uXXXX`` are escapes, and any other escaped
character is itself. A name that comes twice has its last value. Where it differs from Java: text is UTF-8
when it is valid UTF-8 (Java says ISO-8859-1), and half a surrogate pair is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from minikafka.errors import ConfigError
from minikafka.named_tuple import NamedTuple

_WHITE_SPACE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
_LINE_END = re.compile(r"\r\n|\r|\n")


class Property(NamedTuple):
    """One property of a file; ``line`` counts from 1, and is where the property starts."""

    name: str
    value: str
    line: int


def parse_properties(data: bytes, *, source: str) -> list[Property]:
    """The properties in ``data`` in their order, repeated names included. ``source`` names it in errors.

    Raises:
        ConfigError: a malformed escape, with its line.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("iso-8859-1")
    properties = []
    for line, content in _logical_lines(text):
        try:
            end, start = _split(content)
            properties.append(Property(_unescape(content[:end]), _unescape(content[start:]), line))
        except ValueError as error:
            raise ConfigError(f"{source}:{line}: {error}") from None
    return properties


def properties_line(name: str, value: str) -> str:
    """A property that ``parse_properties`` reads as it is (``Properties.store``)."""
    escapes = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    text = "".join(escapes.get(each, each) for each in value)
    if text.startswith(" "):
        text = f"\\{text}"
    key = "".join(f"\\{each}" if each in "\\=: #!" else each for each in name)
    return f"{key}={text}\n"


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers: continuations joined, comments and blank lines left out."""
    parts: list[str] = []
    first = 0
    for number, natural in enumerate(_LINE_END.split(text), start=1):
        content = natural.lstrip(_WHITE_SPACE)
        if not parts:
            if not content or content[0] in "#!":
                continue
            first = number
        continued = (len(content) - len(content.rstrip("\\"))) % 2 == 1
        parts.append(content[:-1] if continued else content)
        if not continued:
            yield first, "".join(parts)
            parts = []
    if parts and any(parts):  # the file ends in a continuation
        yield first, "".join(parts)


def _split(line: str) -> tuple[int, int]:
    """Where the name ends, and where the value starts."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _WHITE_SPACE:
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    start = end
    while start < len(line) and line[start] in _WHITE_SPACE:
        start += 1
    if start < len(line) and line[start] in "=:":
        start += 1
        while start < len(line) and line[start] in _WHITE_SPACE:
            start += 1
    return end, start


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts = []
    position = 0
    while (backslash := text.find("\\", position)) >= 0:
        parts.append(text[position:backslash])
        escaped = text[backslash + 1 : backslash + 2]
        position = backslash + 2
        if escaped == "u":
            digits = _HEX4.match(text, position)
            if digits is None:
                raise ValueError(f"malformed \\u escape: {text[backslash : backslash + 6]}")
            parts.append(chr(int(digits[0], 16)))
            position += 4
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    parts.append(text[position:])
    try:
        return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError(f"half a surrogate pair in {text}") from None
