"""What a broker says when it is ready."""

from __future__ import annotations

import io

from minikafka.cli.banner import banner_lines, print_banner


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, **changes: object) -> str:
    facts = {"node_id": 1, "addresses": ["localhost:9092"], "directories": ["/data"], "temporary": False}
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


def test_a_temporary_directory_is_called_one() -> None:
    assert "gone when the broker stops" in shown(io.StringIO(), temporary=True)
