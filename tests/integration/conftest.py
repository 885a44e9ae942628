"""Brokers as real processes for stock clients.

`--reference` runs the same tests against Apache Kafka instead: what fails there is a fault of the test. Tests
of what only minikafka has (its command line, its log lines) are skipped then.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.support import confluent, java
from tests.integration.support.clients import Aiokafka, Client, Confluent, Java, KafkaPython, Kcat
from tests.integration.support.cluster import Engine, ProcessCluster, SqliteEngine, ZooKeeperEngine
from tests.integration.support.process import BrokerProcess, KafkaProcess, java_is_there
from tests.integration.support.verified import assert_undamaged
from tests.support.zookeeper import ZooKeeperServer

StartBroker = Callable[..., BrokerProcess]

StartCluster = Callable[..., ProcessCluster]

_clusters = itertools.count()

PYTHON_REPR = re.compile(r"^.*(?:<\w+\.\w+: -?\d+>| object at 0x|PosixPath\(|: None\b).*$", re.MULTILINE)
"""Values in a log line as Python writes them: members of enums, objects, paths, None."""

CLIENTS = (
    "confluent-kafka",
    "aiokafka",
    "kafka-python",
    "kcat",
    pytest.param("java", marks=pytest.mark.java),
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "minikafka_only: about what Apache Kafka does not have")
    config.addinivalue_line(
        "markers", "reference(release): which Apache Kafka --reference starts, else java.KAFKA_VERSION"
    )
    config.addinivalue_line("markers", "leaves_damage(why): dump-log --verify must find damage afterwards")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    reference = config.getoption("--reference", False)
    for item in items:
        if item.get_closest_marker("java") and not java_is_there():
            item.add_marker(pytest.mark.skip(reason="java and mvn are not there"))
        if item.get_closest_marker("minikafka_only") and reference:
            item.add_marker(pytest.mark.skip(reason="not a matter of Apache Kafka"))
    confluent.is_patient = bool(reference)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add the brokers' logs to the report of a failed test."""
    report = yield
    if report.failed:
        for broker in getattr(item, "brokers", []):
            report.sections.append((f"log of {broker}", broker.log_text()[-20_000:]))
    return report


@pytest.fixture(autouse=True)
def directories_are_verified(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """What the test leaves behind is undamaged, unless its marker ``leaves_damage`` says why it is not."""
    yield
    if request.node.get_closest_marker("leaves_damage"):
        with pytest.raises(AssertionError, match="finds damage"):
            assert_undamaged(tmp_path)
    else:
        assert_undamaged(tmp_path)


@pytest.fixture(scope="session")
def java_class_path() -> str:
    return java.class_path()


@pytest.fixture(scope="session")
def clients(request: pytest.FixtureRequest) -> dict[str, Client]:
    """Every stock client that this machine has, by name."""
    found: list[Client] = [Confluent(), Aiokafka(), KafkaPython(), Kcat()]
    if java_is_there():
        found.append(Java(request.getfixturevalue("java_class_path")))
    return {client.name: client for client in found}


@pytest.fixture(scope="session")
def make_broker(request: pytest.FixtureRequest) -> StartBroker:
    """What makes a broker process, not started yet: ours, or Kafka's with --reference, of a release."""

    def make(data_dir: Path, *, release: str = java.KAFKA_VERSION, **arguments: object) -> BrokerProcess:
        if request.config.getoption("--reference"):
            return KafkaProcess(data_dir, classpath=java.class_path(release), **arguments)
        return BrokerProcess(data_dir, **arguments)

    return make


@pytest.fixture
def start_broker(
    request: pytest.FixtureRequest, tmp_path: Path, make_broker: StartBroker
) -> Iterator[StartBroker]:
    """Start a broker of the test's own: `start_broker(properties={...})`; ended with the test."""
    started: list[BrokerProcess] = []
    request.node.brokers = started
    numbers = itertools.count()
    marker = request.node.get_closest_marker("reference")
    release = java.KAFKA_VERSION if marker is None else marker.args[0]

    def start(**arguments: object) -> BrokerProcess:
        directory = arguments.pop("data_dir", None) or tmp_path / f"broker-{next(numbers)}"
        broker = make_broker(directory, release=release, **arguments)
        started.append(broker)
        return broker.start()

    yield start
    for broker in started:
        broker.close()
    for broker in started:
        assert_no_traceback(broker)


@pytest.fixture(params=["sqlite", "zookeeper"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    """A store of the test's own: both kinds in turn."""
    if request.param == "sqlite":
        return SqliteEngine(tmp_path)
    server: ZooKeeperServer = request.getfixturevalue("zookeeper_server")
    return ZooKeeperEngine(server, f"cluster-{next(_clusters)}")


@pytest.fixture
def start_cluster(
    request: pytest.FixtureRequest, tmp_path: Path, engine: Engine
) -> Iterator[Callable[..., ProcessCluster]]:
    """Start a cluster of the test's own: `start_cluster(properties={...})`; ended with the test."""
    started: list[ProcessCluster] = []
    request.node.brokers = []

    def start(**arguments: Any) -> ProcessCluster:
        cluster = ProcessCluster(tmp_path, engine, **arguments)
        started.append(cluster)
        request.node.brokers += cluster.brokers.values()
        return cluster.start()

    yield start
    for cluster in started:
        cluster.close()
    for broker in request.node.brokers:
        assert_no_traceback(broker)


@pytest.fixture(scope="session")
def shared_broker(
    tmp_path_factory: pytest.TempPathFactory, make_broker: StartBroker
) -> Iterator[BrokerProcess]:
    with serving(make_broker(tmp_path_factory.mktemp("shared") / "data")) as broker:
        yield broker


@pytest.fixture
def broker(request: pytest.FixtureRequest, shared_broker: BrokerProcess) -> BrokerProcess:
    """One broker that all tests share; each keeps to topics of its own."""
    request.node.brokers = [shared_broker]
    return shared_broker


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of the test's own."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", request.node.name)[:200]


@contextmanager
def serving(broker: BrokerProcess) -> Iterator[BrokerProcess]:
    """Have a broker serve several tests, which its own directory outlives; what it leaves is undamaged."""
    try:
        broker.start()
        yield broker
        assert broker.is_running(), f"the broker ended by itself:\n{broker.log_text()}"
        assert_no_traceback(broker)
    finally:
        broker.close()
    assert_undamaged(broker.data_dir)


def assert_no_traceback(broker: BrokerProcess) -> None:
    """No test may make a broker fail inside, whatever it sends."""
    text = broker.log_text()
    if not broker.is_reference and "Traceback (most recent call last)" in text:
        raise AssertionError(f"a broker logged a traceback:\n{text[-20_000:]}")
    if not broker.is_reference and (found := PYTHON_REPR.search(text)):
        raise AssertionError(f"a log line is for Python programmers: {found[0]}")
