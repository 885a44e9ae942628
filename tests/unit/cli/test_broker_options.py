"""``minikafka-broker``: what its options mean, and how wrong ones are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minikafka.cli.broker import load_configuration, main, parser, properties_text, usual_http_port
from minikafka.config.broker import BROKER_CONFIG_KEYS, BrokerConfig


def configuration(*options: str) -> BrokerConfig:
    return load_configuration(parser().parse_args(options)).config


def test_options_are_short_for_properties() -> None:
    config = configuration(
        "--port", "9999", "--data-dir", "/d", "--log-level", "DEBUG", "--set", "num.partitions=3"
    )
    assert [str(listener) for listener in config.endpoints()] == ["PLAINTEXT://localhost:9999"]
    assert (config.log_dirs, config.log_level, config.num_partitions) == (("/d",), "debug", 3)


def test_the_http_port_is_a_property_and_may_be_switched_off(tmp_path: Path) -> None:
    assert configuration().http_port is None
    assert configuration("--http-port", "0").http_port == 0
    path = tmp_path / "server.properties"
    path.write_text("http.port=8080\nhttp.host=0.0.0.0\n")
    config = configuration("--config", str(path))
    assert (config.http_port, config.http_host) == (8080, "0.0.0.0")
    assert configuration("--config", str(path), "--http-port", "off").http_port is None


def test_brokers_on_one_machine_have_an_http_port_each() -> None:
    assert usual_http_port(configuration()) == 9404
    assert usual_http_port(configuration("--set", "node.id=3")) == 9406
    assert usual_http_port(configuration("--set", "node.id=100000")) is None


def test_options_beat_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "listeners=PLAINTEXT://:1\nadvertised.listeners=PLAINTEXT://example.org:1\nlog.dirs=/a,/b\n"
    )
    config = configuration("--config", str(path), "--port", "2", "--data-dir", "/d")
    assert [str(listener) for listener in config.advertised_endpoints()] == ["PLAINTEXT://localhost:2"]
    assert config.log_dirs == ("/d",)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--set", "num.partitions=0"], "--set: Invalid value 0 for configuration num.partitions"),
        (["--set", "foo"], "--set foo: must be name=value"),
        (["--port", "65536"], "--port 65536: must be a number from 0 to 65535"),
        (["--port", "x"], "--port x: must be a number"),
        (["--http-port", "on"], "--http-port on: must be a number from 0 to 65535, or off"),
        (["--http-port", "1", "--set", "http.port=2"], "--http-port and --set http.port=2 say the same"),
        (
            ["--port", "1", "--set", "listeners=PLAINTEXT://a:1"],
            "--port and --set listeners=PLAINTEXT://a:1 say",
        ),
        (
            ["--data-dir", "/a", "--set", "log.dir=/b"],
            "--data-dir and --set log.dir=/b say the same thing twice",
        ),
        (["--log-level", "loud"], "--log-level: Invalid value loud for configuration log.level"),
        (["--config", "/nowhere.properties"], "cannot read the configuration file /nowhere.properties"),
    ],
)
def test_a_configuration_that_cannot_be_is_one_line_and_status_1(
    options: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("minikafka-broker: ") and why in captured.err
    assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize("options", [["--in-memory", "--data-dir", "/d"], ["--foo"], ["extra"]])
def test_bad_usage_is_status_2(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(options)
    assert left.value.code == 2
    assert "usage: minikafka-broker" in capsys.readouterr().err


def test_all_properties_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--properties"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == list(BROKER_CONFIG_KEYS)
    assert "default: 1073741824; allowed: [1048576,...]; update: cluster-wide" in properties_text()


def test_an_address_to_listen_on() -> None:
    def listeners(*options: str) -> list[str]:
        return [str(each) for each in configuration(*options).endpoints()]

    assert listeners("--listen", "kafka.example.com") == ["PLAINTEXT://kafka.example.com:9092"]
    assert listeners("--listen", "10.0.0.5:9094") == ["PLAINTEXT://10.0.0.5:9094"]
    assert listeners("--listen", "::1") == ["PLAINTEXT://[::1]:9092"]
    assert listeners("--listen", "[::1]:0") == ["PLAINTEXT://[::1]:0"]
    assert listeners("--listen", "0.0.0.0:9094") == ["PLAINTEXT://:9094"]


def test_an_address_replaces_what_is_advertised_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIKAFKA_LISTENERS", "OLD://:1")
    monkeypatch.setenv("MINIKAFKA_ADVERTISED_LISTENERS", "OLD://old.example.com:1")
    config = configuration("--listen", "10.0.0.5")
    assert [str(each) for each in config.advertised_endpoints()] == ["PLAINTEXT://10.0.0.5:9092"]
    outside = "advertised.listeners=PLAINTEXT://kafka.example.com:9092"
    config = configuration("--listen", "0.0.0.0", "--set", outside)
    assert [str(each) for each in config.advertised_endpoints()] == ["PLAINTEXT://kafka.example.com:9092"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--listen", "localhost:x"], "--listen localhost:x: must be HOST or HOST:PORT"),
        (["--listen", "[::1]x"], "must be HOST or HOST:PORT"),
        (["--listen", "a:1", "--port", "1"], "--port and --listen say the same thing twice"),
        (["--listen", "a:1", "--set", "listeners=PLAINTEXT://:1"], "say the same thing twice"),
        (["--security-dir", "x"], "--security-dir is for --secure"),
    ],
)
def test_addresses_and_directories_that_cannot_be(
    options: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options) == 1
    assert why in capsys.readouterr().err


def test_who_has_read_enough_of_the_properties_may_go() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "minikafka.cli.main", "broker", "--properties"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
