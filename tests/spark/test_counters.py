"""What Prometheus hears of a job, in each of three ways, and that the dashboard has something to show."""

from __future__ import annotations

import argparse
import http.server
import shutil
import signal
import socketserver
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from minikafka.cli import export
from minikafka.metrics.series import FAILED, LAST_SUCCESS, RECORDS, RUNNING, SPARK_SERIES
from minikafka.spark.runtime.job import (
    OTHER_TOPICS,
    TOPICS_MAX,
    JobCounters,
    UnusableMetrics,
    listen_address,
    published,
)
from tests.integration.support import confluent
from tests.integration.support.clients import Confluent
from tests.integration.support.dashboards import PanelQuery, panel_queries
from tests.integration.support.process import BrokerProcess
from tests.integration.support.prometheus import PrometheusServer
from tests.integration.support.records import numbered
from tests.spark.export_support import wait_for_checkpoint
from tests.support.ports import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Values = dict[tuple[str, str], float]


def arguments(**given: object) -> argparse.Namespace:
    return argparse.Namespace(**({"metrics_file": None, "pushgateway": None, "metrics_port": None} | given))


def values(text: str) -> Values:
    """Name and topic → value."""
    return {
        (sample.name, sample.labels.get("topic", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_file_says_how_the_latest_run_went_and_when_one_went_well(tmp_path: Path) -> None:
    file = tmp_path / "export.prom"
    now_s = [1000.0]
    first = JobCounters("export", lambda: now_s[0])
    with published(first, arguments(metrics_file=file)):
        assert values(file.read_text())[RUNNING.name, ""] == 1
        first.add(RECORDS, 7, topic="orders")
        now_s[0] = 1060.0
    found = values(file.read_text())
    assert found[RECORDS.name, "orders"] == 7 and found["minikafka_spark_duration_seconds", ""] == 60
    assert (found[RUNNING.name, ""], found[FAILED.name, ""], found[LAST_SUCCESS.name, ""]) == (0, 0, 1060)
    assert {name for name, _ in found} == {series.name for series in SPARK_SERIES}
    now_s[0] = 2000.0
    with pytest.raises(ZeroDivisionError), published(JobCounters("export"), arguments(metrics_file=file)):
        raise ZeroDivisionError
    found = values(file.read_text())
    assert (found[FAILED.name, ""], found[LAST_SUCCESS.name, ""]) == (1, 1060)


def test_a_page_is_there_while_the_job_runs(tmp_path: Path) -> None:
    port = free_port()
    counters = JobCounters("analyze")
    with published(counters, arguments(metrics_port=listen_address(str(port)))):
        counters.add(RECORDS, 3, topic="orders")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            assert values(answer.read().decode())[RECORDS.name, "orders"] == 3
        with pytest.raises(UnusableMetrics, match=f"--metrics-port 127.0.0.1:{port}: .*in use"):
            taken = arguments(metrics_port=listen_address(str(port)))
            published(JobCounters("compact"), taken).__enter__()
        with pytest.raises(OSError, match="refused"):  # not visible to others
            urllib.request.urlopen(f"http://127.0.0.2:{port}/metrics", timeout=60)
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60)


def test_a_page_is_for_other_machines_where_an_address_says_so() -> None:
    port = free_port()
    with published(JobCounters("analyze"), arguments(metrics_port=listen_address(f":{port}"))):
        for address in ("127.0.0.1", "127.0.0.2"):
            with urllib.request.urlopen(f"http://{address}:{port}/metrics", timeout=60) as answer:
                assert values(answer.read().decode())[RUNNING.name, ""] == 1
    assert listen_address("10.1.2.3:9500") == ("10.1.2.3", 9500)
    assert listen_address("[::1]:9500") == ("::1", 9500)
    with pytest.raises(UnusableMetrics, match=r"--metrics-port 192\.0\.2\.1:"):
        published(
            JobCounters("analyze"), arguments(metrics_port=listen_address(f"192.0.2.1:{port}"))
        ).__enter__()


@pytest.mark.parametrize("text", ["", "x", "-1", "65536", "localhost", "localhost:", "localhost:x"])
def test_what_is_no_port_is_bad_usage(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"is not a port"):
        listen_address(text)


def test_a_pushgateway_is_told_of_start_and_end(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[str, Values]] = []

    class Gateway(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append((self.path, values(self.rfile.read(int(self.headers["Content-Length"])).decode())))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with serving(Gateway) as port:
        with published(JobCounters("compact"), arguments(pushgateway=f"127.0.0.1:{port}")):
            pass
        assert [(path, found[RUNNING.name, ""]) for path, found in told] == [
            ("/metrics/job/minikafka_spark/spark_job/compact", running) for running in (1, 0)
        ]
    with published(JobCounters("compact"), arguments(pushgateway=f"127.0.0.1:{port}")):
        pass
    assert f"the pushgateway 127.0.0.1:{port}" in capsys.readouterr().err, "the job went on all the same"


def test_a_pushgateway_that_cannot_be_does_not_fail_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    class NoHttp(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"this is no HTTP\r\n\r\n")

    with socketserver.TCPServer(("127.0.0.1", 0), NoHttp) as server:
        threading.Thread(target=server.serve_forever).start()
        for gateway in ("localhost:port", f"127.0.0.1:{server.server_address[1]}"):
            with published(JobCounters("compact"), arguments(pushgateway=gateway)):
                pass
            assert f"the pushgateway {gateway}: " in capsys.readouterr().err
        server.shutdown()


def test_a_job_that_is_terminated_says_that_it_runs_no_more(java: None, tmp_path: Path) -> None:
    file = tmp_path / "jobs.prom"
    command = [
        sys.executable,
        "-m",
        "minikafka.cli.main",
        "export",
        str(tmp_path),
        "-o",
        str(tmp_path / "out"),
    ]
    with subprocess.Popen([*command, "--metrics-file", str(file)]) as process:
        while process.poll() is None and not file.exists():
            time.sleep(0.01)
        assert values(file.read_text())[RUNNING.name, ""] == 1
        process.terminate()
    assert process.returncode == 128 + signal.SIGTERM
    ended = values(file.read_text())
    assert (ended[RUNNING.name, ""], ended[FAILED.name, ""]) == (0, 1)


def test_a_file_that_cannot_be_is_refused_before_the_job_starts(tmp_path: Path) -> None:
    for file in (tmp_path, tmp_path / "missing" / "a.prom"):
        with pytest.raises(UnusableMetrics, match="must be a file in a directory that is there"):
            published(JobCounters("export"), arguments(metrics_file=file)).__enter__()


def test_topics_beyond_a_hundred_share_a_label() -> None:
    counters = JobCounters("analyze")
    for number in range(TOPICS_MAX + 5):
        counters.add(RECORDS, 2, topic=f"topic-{number}")
    counters.add(RECORDS, 1, topic="topic-3")
    assert counters.value(RECORDS, topic="topic-3") == 3
    assert counters.value(RECORDS, topic=OTHER_TOPICS) == 10
    assert len(counters.of_topics(RECORDS)) == TOPICS_MAX + 2


@contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not there")
def test_every_panel_of_the_dashboard_shows_a_real_run(
    shared_session: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "export.prom"

    class Collector(http.server.BaseHTTPRequestHandler):
        """What node_exporter's textfile collector does with the file."""

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(file.read_bytes())

        def log_message(self, *_: object) -> None: ...

    Confluent().write_all(broker.bootstrap, {topic: ("lz4", [numbered(i) for i in range(50)])})
    wait_for_checkpoint(broker, topic, 50)
    output = ["--output", str(tmp_path / "out"), "--topics", topic, "--metrics-file", str(file)]
    assert export.main([str(broker.data_dir), *output]) == 0
    assert values(file.read_text())[RECORDS.name, topic] == 50
    found: dict[PanelQuery, int] = {}
    with serving(Collector) as port:
        prometheus = PrometheusServer(tmp_path / "prometheus", [f"127.0.0.1:{port}"])
        try:
            prometheus.start()
            confluent.wait_until(lambda: prometheus.scrapes() >= 3, "the file is scraped again and again")
            queries = panel_queries(prometheus, ["spark"])
            assert len(queries) > 12

            def all_have_data() -> bool:
                found.update({query: query.series(prometheus) for query in queries if not found.get(query)})
                return all(found.values())

            confluent.wait_until(all_have_data, "every query has data")
        finally:
            print("\n".join(f"{count} {query}" for query, count in found.items()))
            prometheus.close()
