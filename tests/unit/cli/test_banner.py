"""What a broker says when it is ready."""

from __future__ import annotations

import io

import pytest

from minikafka.cli.broker import _open_address, banner_lines, http_url, print_banner, status_page_in
from minikafka.config.listeners import Listener
from minikafka.server.cluster.metadata_cache import Endpoint


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, **changes: object) -> str:
    facts = {
        "node_id": 1,
        "listening": ["localhost:9092"],
        "addresses": ["localhost:9092"],
        "open_address": "localhost:9092",
        "directories": ["/data"],
        "temporary": False,
    }
    print_banner(banner_lines(**(facts | changes)), stream)  # type: ignore[arg-type]
    return stream.getvalue()


def test_without_a_terminal_it_is_plain_lines() -> None:
    lines = shown(io.StringIO()).splitlines()
    assert lines[0].startswith("minikafka ") and lines[0].endswith("broker 1")
    assert "listening on  localhost:9092" in lines
    assert "data in       /data" in lines
    assert "try it        echo hello | kcat -b localhost:9092 -t greetings -P" in lines


def test_on_a_terminal_it_says_the_same() -> None:
    text = shown(Terminal())
    assert all(
        part in text for part in ("localhost:9092", "/data", "kcat -b localhost:9092 -t greetings -C -e")
    )


def test_what_to_try_goes_where_a_client_needs_no_login() -> None:
    addresses = ["localhost:9093", "localhost:9092"]
    lines = shown(io.StringIO(), addresses=addresses).splitlines()
    assert "try it        echo hello | kcat -b localhost:9092 -t greetings -P" in lines
    lines = shown(io.StringIO(), addresses=["localhost:9093"], open_address=None).splitlines()
    options = "-b localhost:9093 --command-config client.properties"
    assert f"try it        echo hello | minikafka produce greetings {options}" in lines


def test_an_open_listener_is_found_wherever_it_stands() -> None:
    login, plain = Listener("CLIENTS", "", 9093, "SASL_SSL"), Listener("INSIDE", "", 9092)
    advertised = {"CLIENTS": Endpoint("a", 9093), "INSIDE": Endpoint("b", 9092)}
    assert _open_address([login, plain], advertised) == "b:9092"
    assert _open_address([login], advertised) is None


def test_the_http_port_is_shown_when_there_is_one() -> None:
    lines = shown(io.StringIO(), status_page="http://a:1/", metrics="http://a:1/metrics").splitlines()
    assert lines[4:6] == ["status page   http://a:1/", "metrics       http://a:1/metrics"]
    assert "status page" not in shown(io.StringIO(), metrics="nowhere: port 1 is taken (--http-port)")


def test_a_temporary_directory_is_called_one() -> None:
    assert "gone when the broker stops" in shown(io.StringIO(), temporary=True)


def test_who_reads_the_banner_finds_the_status_page() -> None:
    stream = io.StringIO("an earlier line of the log\n")
    stream.seek(0, io.SEEK_END)
    lines = shown(stream, status_page="http://localhost:8081/").splitlines()
    assert status_page_in(lines) == "http://localhost:8081/"
    assert status_page_in(shown(io.StringIO()).splitlines()) is None
    with pytest.raises(LookupError):
        status_page_in(lines[:-1])


def test_a_page_of_all_interfaces_is_asked_for_on_this_one() -> None:
    assert http_url(("", 8081), "/", scheme="http") == "http://localhost:8081/"
    assert http_url(("::1", 8081), "/metrics", scheme="https") == "https://[::1]:8081/metrics"
    assert http_url(None, "/", scheme="http") is None
