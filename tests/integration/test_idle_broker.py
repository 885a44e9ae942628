"""What a broker that was not asked for anything special has in memory, and what it has not.

Start and idle memory are mostly imports, and one line is enough to bring all of them back;
``minikafka.deferred`` says how a module is put off until its first use. The broker's own modules are loaded
soon after the start all the same: an upgrade may replace their files while it runs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import minikafka
from tests.integration.conftest import StartBroker
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess

pytestmark = pytest.mark.minikafka_only

LOADED = "loaded: "
THEN_LIST_MODULES = f"""
import sys, threading
from minikafka.cli.broker import main

def tell():
    print("{LOADED}" + " ".join(list(sys.modules)), flush=True)

def tell_often():
    while not ended.wait(0.25):
        tell()

ended = threading.Event()
threading.Thread(target=tell_often, daemon=True).start()
status = main(sys.argv[1:])
ended.set()
tell()
sys.exit(status)
"""

PUT_OFF = ("aiokafka", "crc32c", "cryptography", "joserfc", "kazoo", "prometheus_client", "re2", "rich")
"""Packages of others, each of some megabytes."""
OF_SECURITY = (
    "minikafka.network.tls_acceptor",
    "minikafka.security.jaas",
    "minikafka.security.tls_settings",
    "minikafka.server.security.acl_authorizer",
    "minikafka.server.security.acl_authorizer",
    "minikafka.server.security.authentication",
    "minikafka.server.security.delegation_tokens",
)
"""Ours that a broker without TLS, SASL and an authorizer never uses: together close to a megabyte."""
CONSOLE = "minikafka.cli.console"
"""Half of the command line is behind it, which who never looks at the page does not need."""
AFTER_THE_START = (
    "minikafka.coordinator.group.shard",
    "minikafka.protocol.internal.group_record_codec",
    "minikafka.protocol.internal.transaction_record_codec",
    "minikafka.security.scram",
    "prometheus_client",
)
PACKAGE = Path(minikafka.__file__).parent
DEFERRED = re.compile(r'deferred\("(minikafka\.[a-z_.]+)"\)')


@pytest.mark.parametrize("http_port", ["off", "0"])
def test_an_idle_broker_has_all_of_its_own_and_not_what_it_does_not_need(
    start_broker: StartBroker, http_port: str
) -> None:
    broker = start_broker(command=[sys.executable, "-c", THEN_LIST_MODULES, f"--http-port={http_port}"])
    deferred_modules = {name for path in PACKAGE.rglob("*.py") for name in DEFERRED.findall(path.read_text())}
    apis = {f"minikafka.server.apis.{path.stem}" for path in (PACKAGE / "server/apis").glob("[a-z]*.py")}
    own = deferred_modules | apis
    assert len(deferred_modules) > 20
    confluent.wait_until(lambda: own <= loaded_by(broker), "all of its own is loaded")

    assert broker.stop() == 0
    loaded = loaded_by(broker)
    assert sorted(own - loaded) == []
    assert sorted(loaded.intersection(PUT_OFF)) == []
    assert sorted(loaded.intersection(OF_SECURITY)) == []
    assert [name for name in loaded if name.startswith(CONSOLE)] == []


def loaded_by(broker: BrokerProcess) -> set[str]:
    """The names of the modules that it had when it told them last."""
    told = [line for line in broker.log_text().splitlines(keepends=True) if line.startswith(LOADED)]
    whole = [line for line in told if line.endswith("\n")]
    return set(whole[-1].split()[1:]) if whole else set()


def test_what_is_put_off_exists() -> None:
    assert [name for name in PUT_OFF + OF_SECURITY if find_spec(name) is None] == []


def test_the_first_answer_does_not_wait_for_what_a_start_does_not_need() -> None:
    """Each was loaded at the start once, because two modules had become one."""
    start = "import sys, minikafka.cli.broker, minikafka.server.broker, minikafka.server.http.pages"
    then = "print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", f"{start}; {then}"], check=True, capture_output=True, text=True
    ).stdout.split()
    assert sorted(set(loaded).intersection(AFTER_THE_START)) == []
