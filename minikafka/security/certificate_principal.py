"""The name in a client's certificate, and the principal that it becomes.

Kafka: ``SslPrincipalMapper``, ``DefaultKafkaPrincipalBuilder``; names are written as Java's
``X500Principal.getName`` writes them (RFC 2253), so that ACLs for one broker hold for the other.

``ssl.principal.mapping.rules`` is a list of ``DEFAULT`` (the whole name) and
``RULE:pattern/replacement/[LU]``; the first whose pattern matches all of the name decides. Names come from
clients, so patterns are RE2's, which matches in linear time and knows neither look-ahead nor back references
within a pattern; a rule that has them is refused when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from minikafka.deferred import re2
from minikafka.errors import ConfigError
from minikafka.named_tuple import NamedTuple
from minikafka.security.acl import ANONYMOUS, USER, KafkaPrincipal

RULES_PROPERTY = "ssl.principal.mapping.rules"

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER = re.compile(_RULE)

PATTERN_BYTES_MAX = 1 << 20
"""What a compiled pattern may take."""

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""RFC 2253's; other attributes are written with their numbers and the bytes of their values."""

_STRING_TAGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, UniversalString, BMPString."""
_ESCAPED = frozenset(',=+<>#;"\\')
_BLANK = " \r"


class NoMatchingRule(ValueError):
    """No rule matches the name (``SslPrincipalMapper.NoMatchingRule``)."""


class _Rule(NamedTuple):
    pattern: Any
    """Compiled by RE2; None: the name as it is."""
    replacement: tuple[str | int, ...]
    """Texts and numbers of groups."""
    case: str
    text: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(self._replaced, name)
        if self.case == "L":
            return str(result.lower())
        return str(result.upper()) if self.case == "U" else str(result)

    def _replaced(self, match: Any) -> str:
        return "".join(
            part if isinstance(part, str) else (match.group(part) or "") for part in self.replacement
        )


class SslPrincipalMapper:
    """``name`` maps a distinguished name to the name of a principal."""

    def __init__(self, rules: str) -> None:
        """
        Raises:
            ConfigError: a rule that is not of the form, or whose pattern RE2 does not take.
        """
        self._rules = tuple(_rules(rules))

    def __repr__(self) -> str:
        return f"SslPrincipalMapper(rules = [{', '.join(rule.text for rule in self._rules)}])"

    def name(self, distinguished_name: str) -> str:
        """Raises NoMatchingRule."""
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        raise NoMatchingRule(f"no rule of {RULES_PROPERTY} applies to {distinguished_name}")

    def principal(self, certificate: bytes | None) -> KafkaPrincipal:
        """Of a peer that has shown this certificate (DER), or none.

        Raises:
            NoMatchingRule: as Kafka, which closes the connection then.
        """
        if certificate is None:
            return ANONYMOUS
        return KafkaPrincipal(USER, self.name(subject_name(certificate)))


def _rules(text: str) -> Iterator[_Rule]:
    for found in _SPLITTER.finditer(text.strip()):
        rule = found[1]
        match = _PARSER.match(rule)
        if match is None or match.end() != len(rule):
            raise _invalid(rule, "must be DEFAULT or RULE:pattern/replacement/ with L or U at the end or not")
        if match[1] is not None:
            yield _Rule(None, (), "", "DEFAULT")
        elif match[2] is not None:
            case = match[4]
            shown = f"RULE:{match[2]}/{match[3]}" + (f"/{case}" if case else "")
            pattern = _compiled(rule, match[2])
            yield _Rule(pattern, tuple(_replacement(rule, match[3], pattern)), case, shown)


def _compiled(rule: str, pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES_MAX
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(error)
        raise _invalid(rule, f"{text} (patterns have the syntax of RE2)") from None


def _replacement(rule: str, text: str, pattern: Any) -> Iterator[str | int]:
    """The parts of a replacement (``Matcher.appendReplacement``): ``$1``, ``${name}``, ``\\x`` for x. A
    number beyond the groups stands for itself, where there are groups."""
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\" and position < len(text):
            yield text[position]
            position += 1
        elif character != "$":
            yield character
        elif named := re.compile(r"\{([A-Za-z][A-Za-z0-9]*)\}").match(text, position):
            if named[1] not in pattern.groupindex:
                raise _invalid(rule, f"the pattern has no group {named[1]}")
            yield pattern.groupindex[named[1]]
            position = named.end()
        else:
            digits = re.compile(r"[0-9]{0,9}").match(text, position)  # more groups no pattern has
            number = "" if digits is None else digits[0]
            if not number:
                raise _invalid(rule, "after a $ comes the number of a group; write \\$ for the character")
            while int(number) > pattern.groups and len(number) > 1:
                number = number[:-1]
            if int(number) <= pattern.groups:
                yield int(number)
                position += len(number)
            elif pattern.groups == 0:
                raise _invalid(rule, f"the pattern has no group {number}")
            else:
                yield "$"


def _invalid(rule: str, why: str) -> ConfigError:
    return ConfigError(f"Invalid value {rule} for configuration {RULES_PROPERTY}: {why}")


def subject_name(certificate: bytes) -> str:
    """The name of whom a certificate (DER) is for, as text, the last part first.

    Raises:
        ValueError: it is no certificate; OpenSSL lets none through that is not.
    """
    try:
        return _subject_name(certificate)
    except IndexError:
        raise ValueError("the certificate has fewer parts than one has") from None


def _subject_name(certificate: bytes) -> str:
    """Raises ValueError, IndexError."""
    _, signed, _ = _element(certificate, 0)
    _, content, _ = _element(signed, 0)
    fields = _elements(content)
    has_version = fields[0][0] == 0xA0
    _, name = fields[5 if has_version else 4]
    parts = []
    for _, relative in _elements(name):
        attributes = []
        for _, pair in _elements(relative):
            (_, oid), (tag, value) = _elements(pair)
            attributes.append(_attribute(_dotted(oid), tag, value))
        parts.append("+".join(attributes))
    return ",".join(reversed(parts))


def _attribute(oid: str, tag: int, value: bytes) -> str:
    keyword = _KEYWORDS.get(oid)
    if keyword is None or tag not in _STRING_TAGS:
        return f"{keyword or oid}=#{_encoded(tag, value).hex()}"
    text = value.decode("utf-8", errors="replace")
    first = len(text) - len(text.lstrip(_BLANK))
    last = len(text.rstrip(_BLANK)) - 1
    written = []
    for index, character in enumerate(text):
        is_outer = character in _BLANK and not first <= index <= last
        if character == "\0":
            written.append("\\00")
        else:
            written.append("\\" + character if is_outer or character in _ESCAPED else character)
    return f"{keyword}={''.join(written)}"


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    found, position = [], 0
    while position < len(data):
        tag, content, position = _element(data, position)
        found.append((tag, content))
    return found


def _element(data: bytes, position: int) -> tuple[int, bytes, int]:
    """Tag, content, and where the next one begins (DER)."""
    if position + 2 > len(data):
        raise ValueError("the certificate ends too early")
    tag, length, position = data[position], data[position + 1], position + 2
    if length & 0x80:
        count = length & 0x7F
        length, position = int.from_bytes(data[position : position + count], "big"), position + count
    if position + length > len(data):
        raise ValueError("the certificate ends too early")
    return tag, data[position : position + length], position + length


def _encoded(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes((tag, length)) + content
    digits = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(digits))) + digits + content


def _dotted(oid: bytes) -> str:
    numbers, value = [], 0
    for byte in oid:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
