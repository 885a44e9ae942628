"""Who connects to a relay."""

from __future__ import annotations

import os
import socket

import pytest

from tests.chaos import links
from tests.chaos.links import has_socket, socket_inode


@pytest.mark.parametrize("lists", [False, True], ids=["the kernel is asked", "and does not know"])
def test_the_socket_of_a_connection_is_found_and_whose_it_is(
    lists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_listed(*_: int) -> int:
        raise AssertionError("all sockets of the machine are listed")

    if lists:
        monkeypatch.setattr(links, "SOCK_DIAG_BY_FAMILY", 99)  # nothing that it understands
    else:
        monkeypatch.setattr(links, "_listed_inode", is_listed)
    find_each_end()


def find_each_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with socket.create_connection(address) as client, socket.create_connection(address) as other:
            port = client.getsockname()[1]
            inode = socket_inode(port, address[1])
            assert inode is not None and inode == os.fstat(client.fileno()).st_ino
            accepted, _ = server.accept()
            with accepted:
                assert socket_inode(address[1], port) == os.fstat(accepted.fileno()).st_ino, "the other end"
            assert socket_inode(other.getsockname()[1], address[1]) == os.fstat(other.fileno()).st_ino
            assert has_socket(os.getpid(), inode) and not has_socket(os.getpid(), inode + 10_000_000)


def test_a_connection_that_is_gone_is_not_found() -> None:
    assert socket_inode(1, 1) is None
