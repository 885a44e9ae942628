"""Listeners: what parses, what is refused, and why."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.config.listeners import Listener, parse_listeners, parse_protocol_map
from minikafka.errors import ConfigError

PLAINTEXT = {"PLAINTEXT": "PLAINTEXT", "INTERNAL": "PLAINTEXT", "SSL": "SSL"}


def parse(*values: str, **options: object) -> list[str]:
    return [
        str(listener) for listener in parse_listeners("listeners", values, protocols=PLAINTEXT, **options)
    ]  # type: ignore[arg-type]


def test_listeners_of_all_kinds() -> None:
    assert parse_listeners("listeners", ["plaintext://[::1]:9092"], protocols=PLAINTEXT) == (
        Listener("PLAINTEXT", "::1", 9092),
    )
    assert parse("PLAINTEXT://:9092") == ["PLAINTEXT://:9092"]
    assert parse("PLAINTEXT://a.example-1.org:0", "INTERNAL://10.0.0.1:0") == [
        "PLAINTEXT://a.example-1.org:0",
        "INTERNAL://10.0.0.1:0",
    ]
    assert parse("PLAINTEXT://[fe80::1]:9092") == ["PLAINTEXT://[fe80::1]:9092"]


def test_one_port_may_serve_ipv4_and_ipv6() -> None:
    assert len(parse("PLAINTEXT://127.0.0.1:9092", "INTERNAL://[::1]:9092")) == 2


def test_advertised_listeners_may_share_a_port() -> None:
    assert len(parse("PLAINTEXT://a:9092", "INTERNAL://b:9092", distinct_ports=False)) == 2


def test_the_listeners_of_a_kraft_controller_are_left_out() -> None:
    assert parse("PLAINTEXT://:9092", "CONTROLLER://:9093", left_out=["controller"]) == ["PLAINTEXT://:9092"]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (["localhost:9092"], "must be NAME://host:port"),
        (["PLAINTEXT://localhost"], "must be NAME://host:port"),
        (["PLAINTEXT://localhost:"], "must be NAME://host:port"),
        (["PLAINTEXT://localhost:-1"], "must be NAME://host:port"),
        (["PLAINTEXT://::1:9092"], "must be NAME://host:port"),
        (["PLAINTEXT://local host:9092"], "must be NAME://host:port"),
        (["PLAINTEXT://localhost:65536"], "0 to 65535"),
        (["PLAINTEXT://[localhost]:9092"], "not an IPv6 address"),
        (["SSL://"], "must be NAME://host:port"),
        (["FOO://localhost:9092"], "no security protocol for FOO"),
        (["PLAINTEXT://a:1", "PLAINTEXT://a:2"], "different name"),
        (["PLAINTEXT://a:1", "INTERNAL://b:1"], "same port"),
        (["PLAINTEXT://127.0.0.1:1", "INTERNAL://127.0.0.2:1"], "same port"),
        ([], "no listener left"),
    ],
)
def test_a_wrong_listener_is_named_with_what_is_wrong(values: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        parse(*values)
    assert "listeners" in str(raised.value) and (not values or values[-1] in str(raised.value))


def test_the_protocol_map_of_kafkas_own_file_parses() -> None:
    text = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
    assert parse_protocol_map(text)["CONTROLLER"] == "PLAINTEXT"


@pytest.mark.parametrize("text", ["PLAINTEXT", ":PLAINTEXT", "A:TLS", "A:SSL,A:PLAINTEXT"])
def test_a_wrong_protocol_map_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"listener\.security\.protocol\.map"):
        parse_protocol_map(text)


@given(st.lists(st.text(alphabet="PLAINTEX:/[]0123456789.-a", max_size=30), max_size=3))
def test_any_texts_are_listeners_or_a_config_error(values: list[str]) -> None:
    try:
        listeners = parse_listeners("listeners", values, protocols=PLAINTEXT)
    except ConfigError:
        return
    assert parse(*map(str, listeners)) == [str(listener) for listener in listeners]
