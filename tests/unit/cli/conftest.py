"""What the tests of operators' commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minikafka.cli.reassign import command as reassign
from minikafka.cli.shared import admin_client
from minikafka.cli.shared.admin_client import AdminClient
from minikafka.cli.shared.commands import Address
from tests.unit.cli.fake_cluster import FakeCluster


@pytest.fixture
def talk_to(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeCluster], None]:
    """Every admin client talks to this cluster from now on; there is no wait between two looks."""

    def install(fake: FakeCluster) -> None:
        async def connect(self: AdminClient, address: Address) -> Any:
            return await fake.connect(address)

        monkeypatch.setattr(AdminClient, "_connect", connect)
        monkeypatch.setattr(reassign, "POLL_S", 0)
        monkeypatch.setattr(admin_client, "RETRY_BACKOFF_S", 0)

    return install


@pytest.fixture
def cluster(talk_to: Callable[[FakeCluster], None]) -> FakeCluster:
    """Three brokers."""
    fake = FakeCluster()
    talk_to(fake)
    return fake


def cells(lines: list[str]) -> list[list[str]]:
    """What stands in the columns of a table."""
    return [line.split() for line in lines]
