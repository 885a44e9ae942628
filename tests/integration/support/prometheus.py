"""Debian's Prometheus on loopback, with this repository's configuration and rules, but in a hurry: it scrapes
each second, and a minute of the alerts lasts three."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grafana.generator.files import ROOT
from grafana.generator.rules import rules
from tests.integration.support import confluent
from tests.support.ports import free_port

SCRAPE_INTERVAL_S = 1
MINUTE_S = 3
"""Rates over a minute of the rules have three scrapes then."""


class PrometheusServer:
    """Scrapes ``targets`` (host:port) until ``close``."""

    def __init__(self, directory: Path, targets: Sequence[str]) -> None:
        self._directory = directory
        self._targets = list(targets)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    def start(self) -> PrometheusServer:
        self._directory.mkdir()
        self._write_config()
        (self._directory / "rules.yml").write_text(rules(minute_s=MINUTE_S), encoding="utf-8")
        with open(self._directory / "log", "wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self._directory / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._directory / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        confluent.wait_until(self._is_ready, "Prometheus is ready")
        return self

    def watch(self, target: str) -> None:
        """Scrape this one too."""
        assert self._process is not None
        self._targets.append(target)
        self._write_config()
        self._process.send_signal(signal.SIGHUP)

    def _write_config(self) -> None:
        config = (ROOT / "prometheus" / "prometheus.yml").read_text(encoding="utf-8")
        config, intervals = re.subn(r"(_interval:) 15s", rf"\1 {SCRAPE_INTERVAL_S}s", config)
        config, targets = re.subn(r"targets: \[.*\]", f"targets: {json.dumps(self._targets)}", config)
        assert (intervals, targets) == (2, 1)
        (self._directory / "prometheus.yml").write_text(config, encoding="utf-8")

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "log").read_text(errors="replace")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def ask(self, path: str, **parameters: str) -> Any:
        """The data that the HTTP API answers with. Raises AssertionError with what it says is wrong."""
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}", timeout=60
            ) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode(errors='replace')}") from error

    def label_values(self, series: str, label: str) -> list[str]:
        """What Grafana's ``label_values(series, label)`` gives."""
        values: list[str] = self.ask(f"label/{label}/values", **{"match[]": series})
        return values

    def scrapes(self) -> int:
        """How often the target was scraped that was scraped least."""
        found = self.ask("query", query="sum_over_time(up[5m])")["result"]
        counts = [int(each["value"][1]) for each in found]
        return min(counts) if len(counts) == len(self._targets) else 0

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        alerts = self.ask("alerts")["alerts"]
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}
