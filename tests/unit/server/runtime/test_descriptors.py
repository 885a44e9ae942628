"""The limit on descriptors is raised, and shared out between files and connections."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from minikafka.server.runtime.process import RESERVE_MIN, WANTED, DescriptorBudget, raise_limit


@pytest.fixture(autouse=True)
def limits() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_is_raised_to_what_the_hard_one_allows(limits: tuple[int, int]) -> None:
    _, hard = limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (600, hard))
    assert DescriptorBudget.of_process() == DescriptorBudget.of_limit(600)
    raised = raise_limit()
    assert raised == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert raised == (WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED))
    assert DescriptorBudget.of_process().limit == raised
    assert raise_limit() == raised


@pytest.mark.parametrize("limit", [128, 256, 1_024, 20_000, WANTED])
def test_files_and_connections_leave_the_reserve(limit: int) -> None:
    budget = DescriptorBudget.of_limit(limit)
    assert limit - budget.open_files - budget.connections >= max(RESERVE_MIN, limit // 10)
    assert budget.backlog + 2 * min(64, budget.http_connections) < limit - budget.open_files
    assert budget.open_files >= 36
    assert f"{budget.connections} connections" in str(budget)
