"""Several listeners, IPv6 among them: each client is told the address of the listener that it came by."""

from __future__ import annotations

import socket
import subprocess

import pytest
from confluent_kafka.admin import AdminClient

from minikafka.testing import ThreadedBroker
from tests.support.ports import free_port

pytestmark = pytest.mark.minikafka_only


def free_port_v6() -> int:
    with socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        port: int = probe.getsockname()[1]
        return port


def told_to(bootstrap: str) -> tuple[str, int]:
    """The broker's address in the metadata that a client gets at ``bootstrap``."""
    metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60)
    (broker,) = metadata.brokers.values()
    return broker.host, broker.port


def test_every_listener_tells_its_own_advertised_address() -> None:
    inside, outside, third = free_port(), free_port_v6(), free_port()
    properties = {
        "listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://[::1]:{outside},THIRD://127.0.0.1:{third}",
        "advertised.listeners": ",".join(
            (f"INSIDE://127.0.0.1:{inside}", f"OUTSIDE://[::1]:{outside}", f"THIRD://localhost:{third}")
        ),
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,THIRD:PLAINTEXT",
    }
    with ThreadedBroker(config=properties):
        assert told_to(f"127.0.0.1:{inside}") == ("127.0.0.1", inside)
        assert told_to(f"[::1]:{outside}") == ("::1", outside)
        assert told_to(f"127.0.0.1:{third}") == ("localhost", third)
        produce = ["kcat", "-P", "-b", f"[::1]:{outside}", "-t", "t"]
        subprocess.run(produce, input=b"over IPv6\n", timeout=90, check=True)
        consume = ["kcat", "-C", "-e", "-q", "-b", f"127.0.0.1:{inside}", "-t", "t"]
        assert subprocess.run(consume, capture_output=True, timeout=90, check=True).stdout == b"over IPv6\n"
