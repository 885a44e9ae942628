"""``bin/bench scale``: what is called growth, and that its crowd of clients counts what a broker answered."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Iterator

import pytest

from tests.benchmarks import bench_scale
from tests.benchmarks.scale.brokers import Row, growth, limit_row
from tests.benchmarks.scale.crowd import crowd
from tests.support.commands import skip_if_missing


def curve(*values: float) -> list[Row]:
    return [{"part": "p", "of": "o", "n": 10**at, "cost": value} for at, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "exponent", "is_ok"),
    [
        ((5, 50, 500), 1.0, True),
        ((5, 50, 50), 0.0, True),
        ((5, 50, 5_000), 2.0, False),  # quadratic
        ((500, 5, 50), 1.0, True),  # only the last step counts
    ],
)
def test_growth_is_the_exponent_of_the_last_step(
    values: tuple[float, ...], exponent: float, *, is_ok: bool
) -> None:
    (row,) = growth(curve(*values), "n", {"cost": 1.0}, most=1.25)
    assert (row["exponent"], row["ok"]) == (exponent, is_ok)
    assert (row["from"], row["to"]) == (10, 100)


def test_what_is_small_says_nothing_of_growth() -> None:
    assert growth(curve(0.01, 0.02, 90.0), "n", {"cost": 1.0}, most=1.25) == []
    assert growth(curve(5.0), "n", {"cost": 1.0}, most=1.25) == []


def test_a_limit_holds_up_to_its_value() -> None:
    assert limit_row("x", 3.0, "s", 3.0)["ok"]
    assert not limit_row("x", 3.01, "s", 3.0)["ok"]


def test_an_unknown_part_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONLY", "partitions,partition")
    with pytest.raises(SystemExit, match=r"ONLY=partition: there are partitions, cluster"):
        bench_scale.run(quick=True)


class Peer(socketserver.ThreadingTCPServer):
    """Answers each request with as many bytes, but closes the connection instead of a last answer."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, *, answers_max: int) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.left = answers_max
        self.lock = threading.Lock()
        self.seen: list[bytes] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class Answers(socketserver.StreamRequestHandler):
    server: Peer

    def handle(self) -> None:
        while head := self.rfile.read(4):
            body = self.rfile.read(struct.unpack(">i", head)[0])
            with self.server.lock:
                self.server.seen.append(head + body)
                self.server.left -= 1
                if self.server.left < 0:
                    return
            self.wfile.write(head + body)


@pytest.fixture
def peer() -> Iterator[Peer]:
    skip_if_missing("gcc")
    with Peer(answers_max=1_000_000) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


FRAMES = [struct.pack(">i", 5) + b"first", struct.pack(">i", 6) + b"second"]


def test_connections_that_stay_send_at_their_rate_and_every_answer_counts(peer: Peer) -> None:
    opened = []
    said = crowd(
        "stay",
        peer.port,
        FRAMES,
        connections=10,
        rate=20,
        seconds=0.5,
        when_open=lambda: opened.append(len(peer.seen)),
    )
    assert opened == [0], "nothing is asked before all are there"
    assert (said["opened"], said["failed"], said["lost"]) == (10, 0, 0)
    assert said["answered"] == len(peer.seen) == 100
    assert set(peer.seen) == set(FRAMES)
    assert 0 < said["p50_ms"] <= said["p99_ms"]


def test_visitors_ask_everything_and_leave(peer: Peer) -> None:
    said = crowd("visit", peer.port, FRAMES, connections=20, rate=100, seconds=0.5)
    assert (said["opened"], said["answered"], said["failed"], said["lost"]) == (50, 50, 0, 0)
    assert len(peer.seen) == 100


def test_what_is_not_answered_is_lost(peer: Peer) -> None:
    peer.left = 15
    said = crowd("stay", peer.port, FRAMES, connections=5, rate=20, seconds=0.5)
    assert said["answered"] == 15
    assert said["failed"] == 5, "each connection is closed in the end"
    assert said["lost"] == len(peer.seen) - 15
