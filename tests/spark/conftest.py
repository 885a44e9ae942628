"""Spark for tests: one small session that all share. A machine without Java skips them, CI does not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from minikafka.spark.runtime import job
from minikafka.spark.runtime.session import PANDAS_WARNING, SparkMissing, check_java, open_session
from tests.integration.support.process import BrokerProcess
from tests.spark.object_store import CREDENTIALS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"

CONF = {
    "spark.driver.memory": "1g",
    # Start and small jobs count here: the second compiler of the JVM would only be in the way.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}
"""Of every Spark that tests start."""

SHARED_CONF = CONF | {
    # Queries over a few rows: writing, compiling and loading a class for each takes longer than to interpret
    # it, and so does planning the rest again after every stage. What runs as a process does both.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Of the one that they share."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", f"ignore:{PANDAS_WARNING}")
    # py4j leaves its sockets to the garbage collector.
    config.addinivalue_line("filterwarnings", "ignore::ResourceWarning:py4j")


@pytest.fixture(scope="session")
def java() -> None:
    """For tests that start Spark as another process."""
    try:
        check_java()
    except SparkMissing as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    """One for all: starting it takes seconds. Its workers have the environment that it starts with."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        with open_session("minikafka tests", master=MASTER, conf=[*SHARED_CONF.items()]) as session:
            yield session


@pytest.fixture
def shared_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """Subcommands that are run in this process take the shared session and leave it running."""

    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(job, "open_session", opened)
    return spark


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One that soon says in its directory what is committed."""
    properties = {"replica.high.watermark.checkpoint.interval.ms": "100"}
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", properties=properties)
    try:
        yield process.start()
    finally:
        process.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of the test's own."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", request.node.name)[:200]
