"""The pytest plugin: brokers as fixtures. pytest loads it wherever minikafka is installed.

``minikafka_broker``
    A fresh, empty broker for each test (function scope): nothing that one test wrote is seen by the next. A
    start and a stop cost a few tens of milliseconds, which isolation is worth.
``minikafka_secure_broker``
    The same with TLS, users and ACLs (``ThreadedBroker(secure=True)``); ``client_config(user)`` is what a
    client needs, ``add_user`` and ``add_acl`` let others in than ``admin``.
``minikafka_session_broker``
    One broker for the whole session (per xdist worker), started when first asked for. For suites where even
    that cost matters; tests must then keep to topics of their own.

``minikafka_cluster``
    A fresh cluster of three brokers for each test; a start costs a quarter of a second.

These are ``ThreadedBroker`` and ``ThreadedCluster`` objects, and serve synchronous and asynchronous tests
alike, whichever plugin runs the latter. Broker properties come from the ini file, for all fixtures::

    [tool.pytest.ini_options]
    minikafka_config = ["num.partitions=3", "log.segment.bytes=1048576"]

and from a marker, for all but ``minikafka_session_broker``; a property named by both has the
marker's value, and the nearest marker wins over those further out::

    @pytest.mark.minikafka_config({"auto.create.topics.enable": False})
    def test_orders(minikafka_broker):
        consumer = KafkaConsumer(bootstrap_servers=minikafka_broker.bootstrap_servers)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # imported when a fixture is asked for: a test run without brokers pays nothing
    from minikafka.testing.broker import Property
    from minikafka.testing.thread import ThreadedBroker, ThreadedCluster

_INI = "minikafka_config"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(_INI, "broker properties for minikafka's fixtures, one name=value a line", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{_INI}(properties): broker properties for this test's minikafka_broker or cluster"
    )


def _ini_properties(config: pytest.Config) -> dict[str, Property]:
    properties: dict[str, Property] = {}
    for line in config.getini(_INI):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise pytest.UsageError(f"{_INI}: {line!r} is not of the form name=value")
        properties[name.strip()] = value.strip()
    return properties


def _marker_properties(node: pytest.Item) -> dict[str, Property]:
    properties: dict[str, Property] = {}
    for marker in reversed(list(node.iter_markers(_INI))):  # the nearest comes first, and is to win
        if len(marker.args) != 1 or not isinstance(marker.args[0], dict) or marker.kwargs:
            raise pytest.UsageError(f"@pytest.mark.{_INI} takes one dict of broker properties")
        properties |= marker.args[0]
    return properties


@pytest.fixture
def minikafka_broker(request: pytest.FixtureRequest) -> Iterator[ThreadedBroker]:
    """A fresh broker for this test; ``minikafka_broker.bootstrap_servers`` is what clients need."""
    from minikafka.testing.thread import ThreadedBroker

    config = _ini_properties(request.config) | _marker_properties(request.node)
    with ThreadedBroker(config=config) as broker:
        yield broker


@pytest.fixture
def minikafka_secure_broker(request: pytest.FixtureRequest) -> Iterator[ThreadedBroker]:
    """A fresh secure broker for this test; its ``client_config()`` is what clients need."""
    from minikafka.testing.thread import ThreadedBroker

    config = _ini_properties(request.config) | _marker_properties(request.node)
    with ThreadedBroker(config=config, secure=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def minikafka_session_broker(request: pytest.FixtureRequest) -> Iterator[ThreadedBroker]:
    """One broker for all tests of the session that ask for it."""
    from minikafka.testing.thread import ThreadedBroker

    with ThreadedBroker(config=_ini_properties(request.config)) as broker:
        yield broker


@pytest.fixture
def minikafka_cluster(request: pytest.FixtureRequest) -> Iterator[ThreadedCluster]:
    """Three brokers for this test; ``kill``, ``pause``, ``isolate`` and so on say what befalls them."""
    from minikafka.testing.thread import ThreadedCluster

    config = _ini_properties(request.config) | _marker_properties(request.node)
    with ThreadedCluster(config=config) as cluster:
        yield cluster
