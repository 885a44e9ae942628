"""What a broker that was not asked for anything special has in memory, and what it has not.

Start and idle memory are mostly imports, and one line is enough to bring all of them back;
``minikafka.deferred`` says how a module is put off until its first use. The broker's own modules are loaded
soon after the start all the same: an upgrade may replace their files while it runs.
"""

from __future__ import annotations

import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

import minikafka
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

OWN_MODULES_S = 3
"""Within a second of the first answer, on a machine that is not busy with other tests."""

PUT_OFF = ("aiokafka", "crc32c", "cryptography", "joserfc", "kazoo", "re2", "rich")
"""Packages of others, each of some megabytes."""
OF_SECURITY = (
    "minikafka.network.tls_acceptor",
    "minikafka.security.sasl.client",
    "minikafka.security.tls_settings",
    "minikafka.server.security.acl_authorizer",
    "minikafka.server.security.acl_authorizer",
    "minikafka.server.security.authentication",
    "minikafka.server.security.delegation_tokens",
)
"""Ours that a broker without TLS, SASL and an authorizer never uses: together close to a megabyte."""
PACKAGE = Path(minikafka.__file__).parent
DEFERRED = re.compile(r'deferred\("(minikafka\.[a-z_.]+)"\)')


@pytest.mark.parametrize("http_port", ["off", "0"])
def test_an_idle_broker_has_all_of_its_own_and_not_what_it_does_not_need(
    start_broker: StartBroker, http_port: str
) -> None:
    broker = start_broker(command=[sys.executable, "-c", THEN_LIST_MODULES, f"--http-port={http_port}"])
    time.sleep(OWN_MODULES_S)

    loaded = set(loaded_when_stopped(broker))
    deferred_modules = {name for path in PACKAGE.rglob("*.py") for name in DEFERRED.findall(path.read_text())}
    apis = {f"minikafka.server.apis.{path.stem}" for path in (PACKAGE / "server/apis").glob("[a-z]*.py")}
    assert len(deferred_modules) > 20
    assert sorted((deferred_modules | apis) - loaded) == []
    assert sorted(loaded.intersection(PUT_OFF)) == []
    assert sorted(loaded.intersection(OF_SECURITY)) == []


def loaded_when_stopped(broker: BrokerProcess) -> list[str]:
    """The names of the modules that it had."""
    assert broker.stop() == 0
    *_, last = broker.log_text().splitlines()
    return last.removeprefix(LOADED).split()


def test_what_is_put_off_exists() -> None:
    assert [name for name in PUT_OFF + OF_SECURITY if find_spec(name) is None] == []
