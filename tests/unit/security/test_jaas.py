"""``sasl.jaas.config``: Kafka's syntax, errors that name what is wrong, and secrets that stay secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.errors import ConfigError
from minikafka.security.jaas import (
    OAUTHBEARER_LOGIN_MODULE,
    PLAIN_LOGIN_MODULE,
    SCRAM_LOGIN_MODULE,
    jaas_module,
    parse_jaas,
)


def test_an_entry_has_module_flag_and_options() -> None:
    (module,) = parse_jaas(
        f"""
        {PLAIN_LOGIN_MODULE} Required
          username="admin" password='it''s'
          user_admin = admin-secret;
    """.replace("'it''s'", "'it is'")
    )
    assert (module.login_module, module.flag) == (PLAIN_LOGIN_MODULE, "required")
    assert module.options == {"username": "admin", "password": "it is", "user_admin": "admin-secret"}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r'"a\"b"', 'a"b'),
        (r"'a\'b'", "a'b"),
        (r'"a\\b"', "a\\b"),
        (r'"a\tb\nc"', "a\tb\nc"),
        (r'"\101\60"', "A0"),
        ('"a;b=c d"', "a;b=c d"),
        ('""', ""),
        ("a.b-c/d:e", "a.b-c/d:e"),
        ('"ünïcode"', "ünïcode"),
    ],
)
def test_values_are_quoted_as_in_java(written: str, meant: str) -> None:
    (module,) = parse_jaas(f"Module required password={written};")
    assert module.options == {"password": meant}


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n")))
def test_any_value_can_be_written(value: str) -> None:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    (module,) = parse_jaas(f'Module required password="{escaped}";')
    assert module.options == {"password": value}


def test_several_entries_are_told_apart_but_a_client_has_one() -> None:
    text = f"{PLAIN_LOGIN_MODULE} required a=b; {SCRAM_LOGIN_MODULE} optional c=d;"
    assert [module.flag for module in parse_jaas(text)] == ["required", "optional"]
    with pytest.raises(ConfigError, match="contains 2 login modules"):
        jaas_module(text, "PLAIN")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Login module not specified"),
        (";", "Login module not specified"),
        ("Module", "control flag not specified"),
        ("Module;", "control flag not specified"),
        ("Module sometimes;", "must be one of required, requisite, sufficient, optional"),
        ("Module required", "not terminated by semi-colon"),
        ("Module required password=s3cret", "not terminated by semi-colon"),
        ("Module required password s3cret;", "name=value"),
        ("Module required password=;", "Value not specified for key 'password'"),
        ("Module required =s3cret;", "name=value"),
        ('Module required password="s3cret;', "is not closed"),
        ("Module required a=s3cret a=s3cret;", "'a' is there twice"),
    ],
)
def test_what_is_wrong_is_named_and_no_value_shown(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        parse_jaas(text)
    assert "sasl.jaas.config" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_the_module_must_be_the_mechanisms() -> None:
    assert jaas_module(f"{SCRAM_LOGIN_MODULE} required a=b;", "SCRAM-SHA-512").options == {"a": "b"}
    assert jaas_module(f"{OAUTHBEARER_LOGIN_MODULE} required;", "OAUTHBEARER").options == {}
    with pytest.raises(ConfigError, match=f"must be {SCRAM_LOGIN_MODULE}, not {PLAIN_LOGIN_MODULE}"):
        jaas_module(f"{PLAIN_LOGIN_MODULE} required a=b;", "SCRAM-SHA-256")
    with pytest.raises(ConfigError, match="GSSAPI is not supported"):
        jaas_module(f"{PLAIN_LOGIN_MODULE} required a=b;", "GSSAPI")


def test_a_repr_has_no_secret() -> None:
    assert "s3cret" not in repr(parse_jaas("Module required password=s3cret;"))
