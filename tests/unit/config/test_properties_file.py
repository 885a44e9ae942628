"""Java's .properties format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.config.properties import parse_properties, properties_line
from minikafka.errors import ConfigError


def read(text: str) -> dict[str, str]:
    return {name: value for name, value, _ in parse_properties(text.encode(), source="f")}


def escape(text: str, *, is_name: bool) -> str:
    """What java.util.Properties.store does."""
    special = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}
    special |= {character: f"\\{character}" for character in "=:#!"}
    escaped = "".join(
        special.get(c)
        or (c if " " < c < "\x7f" else "".join(f"\\u{unit:04x}" for unit in _utf16(c)) if c != " " else c)
        for c in text
    )
    return (
        escaped.replace(" ", "\\ ")
        if is_name
        else "\\ " * (len(text) - len(text.lstrip(" "))) + escaped.lstrip(" ")
    )


def _utf16(character: str) -> list[int]:
    data = character.encode("utf-16-be")
    return [int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a \t=\f  b  ", {"a": "b  "}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a : = b", {"a": "= b"}),
        ("# c\n! c\n\n   # c\na=b", {"a": "b"}),
        ("a=b # no comment", {"a": "b # no comment"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\r\n  c\rd=e", {"a": "bc", "d": "e"}),
        ("# c \\\na=b", {"a": "b"}),
        ("a=b\\", {"a": "b"}),
        ("a\\ b\\=c=d", {"a b=c": "d"}),
        ("a=\\t\\n\\u00e4\\z", {"a": "\t\nä" + "z"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=ä", {"a": "ä"}),
        ("a=1\na=2", {"a": "2"}),
        ("=b", {"": "b"}),
        ("", {}),
    ],
)
def test_what_java_reads(text: str, expected: dict[str, str]) -> None:
    assert read(text) == expected


def test_lines_are_counted_where_a_property_starts() -> None:
    properties = parse_properties(b"# c\n\na=1\\\n  2\nb=3\n", source="f")
    assert [(p.name, p.line) for p in properties] == [("a", 3), ("b", 5)]


def test_text_that_is_not_utf_8_is_latin_1_as_in_java() -> None:
    assert parse_properties(b"a=\xe4", source="f")[0].value == "ä"


def test_a_byte_order_mark_is_no_part_of_the_first_name() -> None:
    assert parse_properties(b"\xef\xbb\xbfa=b", source="f")[0].name == "a"


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uzzzz", "a=\\ud83d"])
def test_a_malformed_escape_is_named_with_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^f:2: "):
        read("x=1\n" + text)


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(WORDS, WORDS, max_size=5))
def test_what_java_would_write_is_read_back(properties: dict[str, str]) -> None:
    text = "".join(
        f"{escape(name, is_name=True)}={escape(value, is_name=False)}\n" for name, value in properties.items()
    )
    assert read(text) == properties


@given(st.binary(max_size=200))
def test_any_bytes_are_properties_or_a_config_error(data: bytes) -> None:
    try:
        parse_properties(data, source="f")
    except ConfigError as error:
        assert str(error).startswith("f:")


@given(st.text(alphabet="ab=: \\\n\r\tu0#!", max_size=40))
def test_any_mix_of_special_characters_is_properties_or_a_config_error(text: str) -> None:
    try:
        parse_properties(text.encode(), source="f")
    except ConfigError as error:
        assert str(error).startswith("f:")


@pytest.mark.parametrize(
    ("name", "value"),
    [("a b:c=d", "  x\\y\n\tz=1:"), ("p", "-----BEGIN\nA\r\n-----END\n"), ("#k", "ü🔑 "), ("e", "")],
)
def test_what_is_written_is_read_again(name: str, value: str) -> None:
    (found,) = parse_properties(properties_line(name, value).encode(), source="s")
    assert (found.name, found.value) == (name, value)
