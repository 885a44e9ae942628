"""What a broker that nobody has asked for anything special does not have in memory.

Start and idle memory are mostly imports, and one line is enough to bring all of them back;
``minikafka.deferred`` says how a module is put off until its first use.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest
from confluent_kafka.admin import AdminClient

from tests.integration.conftest import StartBroker
from tests.integration.support.process import BrokerProcess

pytestmark = pytest.mark.minikafka_only

LOADED = "loaded: "
THEN_LIST_MODULES = f"""
import sys
from minikafka.cli.broker import main
status = main(sys.argv[1:])
print("{LOADED}" + " ".join(sys.modules), flush=True)
sys.exit(status)
"""

PUT_OFF = (
    # of others
    "aiofiles", "aiokafka", "cramjam", "crc32c", "kazoo", "prometheus_client", "re2", "rich",
    # of the standard library
    "ctypes",
    # partitions and their logs
    "minikafka.log.compaction.cleaner", "minikafka.log.compaction.staged_compaction",
    "minikafka.log.unified_log",
    "minikafka.protocol.records.records", "minikafka.protocol.records.uniform_runs",
    "minikafka.server.replica.partition", "minikafka.server.dispatch.repeated_produce",
    # groups and transactions
    "minikafka.coordinator.effects", "minikafka.server.coordinator.loading",
    "minikafka.server.coordinator.hosted_shard", "minikafka.server.dispatch.repeated_heartbeat",
    "minikafka.coordinator.group.shard", "minikafka.coordinator.transaction.shard",
    "minikafka.protocol.internal.group_record_codec", "minikafka.protocol.internal.transaction_record_codec",
    # other brokers
    "minikafka.protocol.wire.control_bodies", "minikafka.server.replica.fetcher.remote_leader",
    "minikafka.server.replica.fetcher.replica_fetcher",
    # APIs that neither a start, nor a client's first look at the cluster, nor a stop asks for
    "minikafka.server.apis.produce", "minikafka.server.apis.fetch", "minikafka.server.apis.create_topics",
    "minikafka.server.apis.join_group", "minikafka.server.apis.end_txn",
    "minikafka.server.dispatch.repeated_fetch",
    # pages
    "minikafka.server.http.metrics_collector", "minikafka.server.http.metrics_of_data",
    "minikafka.server.http.status_page",
)  # fmt: skip
WITHOUT_PAGES = ("h11", "minikafka.server.http.pages", "minikafka.server.http.server")


@pytest.mark.parametrize(
    ("http_port", "put_off"), [("off", PUT_OFF + WITHOUT_PAGES), ("0", PUT_OFF)], ids=["no-pages", "pages"]
)
def test_an_idle_broker_has_not_loaded_what_it_does_not_need(
    start_broker: StartBroker, http_port: str, put_off: tuple[str, ...]
) -> None:
    command = [sys.executable, "-c", THEN_LIST_MODULES, f"--http-port={http_port}"]
    broker = start_broker(command=command)
    assert AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).topics == {}

    loaded = loaded_when_stopped(broker)
    assert "minikafka.server.apis.metadata" in loaded
    assert [name for name in put_off if name in loaded] == []


def test_the_first_answer_does_without_kio(start_broker: StartBroker) -> None:
    broker = start_broker(command=[sys.executable, "-c", THEN_LIST_MODULES])  # asks for ApiVersions

    loaded = loaded_when_stopped(broker)
    assert "minikafka.server.apis.api_versions" in loaded
    assert "kio" not in loaded


def loaded_when_stopped(broker: BrokerProcess) -> list[str]:
    """The names of the modules that it had."""
    assert broker.stop() == 0
    *_, last = broker.log_text().splitlines()
    return last.removeprefix(LOADED).split()


def test_what_is_put_off_exists() -> None:
    assert [name for name in PUT_OFF + WITHOUT_PAGES if find_spec(name) is None] == []
