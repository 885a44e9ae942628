"""What the tests of operators' commands share."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.cli import reassign_execute
from minikafka.cli.admin_client import AdminClient
from minikafka.cli.commands import Address
from tests.unit.cli.fake_cluster import FakeCluster


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Three brokers that every admin client talks to; nobody waits between two looks."""
    fake = FakeCluster()

    async def connect(self: AdminClient, address: Address) -> Any:
        return await fake.connect(address)

    monkeypatch.setattr(AdminClient, "_connect", connect)
    monkeypatch.setattr(reassign_execute, "POLL_S", 0)
    return fake
