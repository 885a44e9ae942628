"""What every test may rely on: `tests` is importable, so that tests share helpers by their full names; and
Hypothesis judges what code does, never how long it takes on a busy machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.support import zookeeper  # noqa: E402 importable from here on
from tests.support.zookeeper import ZooKeeperServer  # noqa: E402

Report = Callable[[str, Sequence[str]], None]

_REPORTS = pytest.StashKey[dict[str, Sequence[str]]]()

settings.register_profile("minikafka", deadline=None)
settings.load_profile("minikafka")


def pytest_configure(config: pytest.Config) -> None:
    os.environ["MINIKAFKA_PROFILE"] = ""  # the profiles of who runs the tests are not theirs
    config.stash[_REPORTS] = {}
    # Warnings are errors, but not those about the insides of stock clients.
    for module in ("kafka", "aiokafka", "confluent_kafka", r"importlib\.resources"):
        for category in ("DeprecationWarning", "ResourceWarning"):
            config.addinivalue_line("filterwarnings", rf"ignore::{category}:{module}(\..*)?")


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One for all tests that do not stop it; each keeps to a chroot of its own."""
    zookeeper.skip_if_missing()
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    try:
        yield server.start()
    finally:
        server.kill()


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """One that the test may stop, freeze and start again."""
    zookeeper.skip_if_missing()
    server = ZooKeeperServer(tmp_path)
    try:
        yield server.start()
    finally:
        server.kill()


@pytest.fixture(scope="session")
def report_at_the_end(request: pytest.FixtureRequest) -> Report:
    """For what a test has measured: a title and lines, printed when all tests are over."""
    return request.config.stash[_REPORTS].__setitem__


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for title, lines in terminalreporter.config.stash[_REPORTS].items():
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.line(line)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--reference", action="store_true", help="run the integration tests against Apache Kafka"
    )
