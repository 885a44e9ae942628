"""What operators' commands share: addresses, quantities, the rate of a copy."""

from __future__ import annotations

import pytest

from minikafka.cli import groups
from minikafka.cli.reassign.verify import CopyRate
from minikafka.cli.shared.commands import explain, parse_addresses, parse_bytes, with_action_first
from minikafka.errors import ErrorCode, KafkaError
from minikafka.units import format_bytes, format_duration, format_rate


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("localhost", [("localhost", 9092)]),
        ("[::1]:19092", [("::1", 19092)]),
        ("[::1]", [("::1", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
    ],
)
def test_addresses(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_addresses(text) == addresses


@pytest.mark.parametrize("text", ["", "a:x", "a:0", "a:65536", ":9092", "a:1,,b:2"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="must be HOST:PORT"):
        parse_addresses(text)


@pytest.mark.parametrize("text", ["0", "-5", "1.5", "x", "", str(2**31), "9" * 5000])
def test_a_timeout_that_leaves_no_time_or_no_end(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        groups.parser().parse_args(["list", f"--timeout-ms={text}"])
    assert "must be milliseconds, from 1 to 2147483647" in capsys.readouterr().err


def test_an_action_may_be_an_option() -> None:
    assert with_action_first(["-b", "h:1", "--list", "x"], ["list"]) == ["list", "-b", "h:1", "x"]
    assert with_action_first(["list", "x"], ["list"]) == ["list", "x"]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1024", 1024),
        ("50MB", 50_000_000),
        ("50 mb/s", 50_000_000),
        ("1MiB", 2**20),
        ("2GB", 2 * 10**9),
    ],
)
def test_bytes_as_people_write_them(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "-1", "1.5MB", "MB", "1XB", "1 M B", "١"])
def test_what_is_no_number_of_bytes(text: str) -> None:
    with pytest.raises(ValueError, match="must be a number of bytes"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),
        (12_340_000, "12.3 MB"),
        (10**15, "1000 TB"),
    ],
)
def test_bytes_as_people_read_them(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0 ms"),
        (4_200, "4.2 s"),
        (59_900, "1 min"),
        (60_000, "1 min"),
        (200_000, "3 min 20 s"),
        (7_500_000, "2 h 5 min"),
        (273_600_000, "3 d 4 h"),
    ],
)
def test_durations_as_people_read_them(duration_ms: int, text: str) -> None:
    assert format_duration(duration_ms) == text


def test_the_rate_is_that_of_the_last_seconds() -> None:
    rate = CopyRate()
    rate.record(1_000_000_000, now_ms=0)
    assert (rate.bytes_per_s, rate.describe()) == (None, "1.00 GB left")
    rate.record(900_000_000, now_ms=1_000)
    assert rate.describe() == f"900 MB left, {format_rate(100_000_000)}, about 9.0 s"
    for second in range(2, 30):
        rate.record(900_000_000 - second * 10_000_000, now_ms=second * 1_000)
    assert rate.bytes_per_s == 10_000_000, "what was faster before does not count any more"
    rate.record(10**12, now_ms=30_000)
    assert rate.bytes_per_s == 0, "producers are faster"


def test_an_error_without_words_of_the_broker_has_ours() -> None:
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert explain(KafkaError(disabled)) == (
        "delegation.token.secret.key is not set on the brokers (DELEGATION_TOKEN_AUTH_DISABLED)"
    )
    assert explain(KafkaError(disabled, "no")) == "no (DELEGATION_TOKEN_AUTH_DISABLED)"
    assert explain(KafkaError(ErrorCode.NOT_CONTROLLER)) == "NOT_CONTROLLER"
