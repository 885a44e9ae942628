"""The bounded cache of open files."""

from __future__ import annotations

import errno
import os

import pytest

from minikafka.log.files import OpenFiles


class Member:
    def __init__(self) -> None:
        self.was_used = False
        self.is_open = False

    def close_idle(self) -> None:
        assert self.is_open
        self.is_open = False

    def open(self) -> str:
        self.is_open = True
        return "opened"


def test_the_one_that_was_not_used_closes() -> None:
    cache = OpenFiles(3)
    members = [Member() for _ in range(5)]
    for member in members[:3]:
        assert cache.open(member, member.open) == "opened"
    members[0].was_used = True
    cache.open(members[3], members[3].open)
    assert [member.is_open for member in members] == [True, False, True, True, False]
    for member in members:
        member.was_used = True
    cache.open(members[4], members[4].open)  # when all were used, the one that was opened first
    assert len(cache) == 3 == sum(member.is_open for member in members)


def test_what_its_owner_closed_is_forgotten() -> None:
    cache = OpenFiles(1)
    first, second = Member(), Member()
    cache.open(first, first.open)
    first.is_open = False
    cache.forget(first)
    cache.open(second, second.open)
    assert len(cache) == 1


def test_an_exhausted_process_gets_some_descriptors_back() -> None:
    cache = OpenFiles(100)
    members = [Member() for _ in range(20)]
    for member in members[:19]:
        cache.open(member, member.open)
    refusals = [OSError(errno.EMFILE, os.strerror(errno.EMFILE))]

    def open_last() -> str:
        if refusals:
            raise refusals.pop()
        return members[19].open()

    assert cache.open(members[19], open_last) == "opened"
    assert len(cache) == 17 == sum(member.is_open for member in members)


def test_what_cannot_be_opened_is_no_member() -> None:
    cache = OpenFiles(100)
    others, member = Member(), Member()
    cache.open(others, others.open)

    def refuse() -> str:
        raise OSError(errno.EIO, "the disk")

    with pytest.raises(OSError, match="the disk"):
        cache.open(member, refuse)
    assert len(cache) == 1 and others.is_open
