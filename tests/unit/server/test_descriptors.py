"""The limit on descriptors is raised, and closed segments get their share of it."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from minikafka.server.descriptors import SEGMENTS_MIN, WANTED, open_segments_max, raise_limit


@pytest.fixture(autouse=True)
def limits() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_is_raised_to_what_the_hard_one_allows(limits: tuple[int, int]) -> None:
    _, hard = limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (600, hard))
    assert open_segments_max() == 100
    raised = raise_limit()
    assert raised == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert raised == (WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED))
    assert open_segments_max() == raised // 6
    assert raise_limit() == raised


def test_few_descriptors_still_leave_some_for_segments(limits: tuple[int, int]) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, limits[1]))
    assert open_segments_max() == SEGMENTS_MIN
