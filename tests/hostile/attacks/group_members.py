"""Members of groups that bring more than a coordinator should keep for them."""

from __future__ import annotations

import struct
from contextlib import ExitStack

from tests.hostile.attack import Attack
from tests.integration.support.process import BrokerProcess
from tests.integration.support.wire import RawClient, string

JOIN_GROUP, FIND_COORDINATOR = 11, 10
INVALID_REQUEST, GROUP_MAX_SIZE_REACHED = 42, 81
RESIDENT_GROWTH_BYTES_MAX = 450 * 1024 * 1024
"""``group.max.memory.bytes`` (256 MiB), a request of 50 MB twice on its way, and what the allocator keeps."""


def join_group_body(group: str, metadata: bytes) -> bytes:
    """JoinGroup 2, of a member without an id."""
    return b"".join(
        (
            string(group),
            struct.pack(">ii", 1_800_000, 1_800_000),
            string(""),
            string("consumer"),
            struct.pack(">i", 1),
            string("range"),
            struct.pack(">i", len(metadata)),
            metadata,
        )
    )


def make_coordinator(broker: BrokerProcess, short: bool) -> None:
    """The offsets topic is made by the first who looks for a coordinator."""
    with RawClient(broker.port) as client:
        while struct.unpack_from(">h", client.call(FIND_COORDINATOR, 0, string("group-0")))[0]:
            pass


def join(broker: BrokerProcess, *, count: int, metadata_bytes: int) -> tuple[int, int, int]:
    """How many were refused as too large, how many for want of room, and by how much the broker grew. One who
    is taken in waits for the others, so nothing is read from it."""
    too_large = no_room = 0
    metadata = bytes(metadata_bytes)
    before = broker.resident_bytes()
    with ExitStack() as stack:
        for number in range(count):
            client = stack.enter_context(RawClient(broker.port, timeout_s=60))
            body = join_group_body(f"group-{number}", metadata)
            error = struct.unpack_from(">ih", client.call(JOIN_GROUP, 2, body))[1]
            too_large += error == INVALID_REQUEST
            no_room += error == GROUP_MAX_SIZE_REACHED
        grown = broker.resident_bytes() - before
    assert grown < RESIDENT_GROWTH_BYTES_MAX, f"the broker grew by {grown >> 20} MB"
    return too_large, no_room, grown


def giant_members(broker: BrokerProcess, short: bool) -> str:
    count = 3 if short else 30
    too_large, _, grown = join(broker, count=count, metadata_bytes=50_000_000)
    assert too_large == count, f"only {too_large} of {count} were refused"
    return f"{count} joins of 50 MB refused, the broker grew by {grown >> 20} MB"


def many_large_members(broker: BrokerProcess, short: bool) -> str:
    count = 20 if short else 600
    too_large, no_room, grown = join(broker, count=count, metadata_bytes=1_000_000)
    assert not too_large
    assert short or no_room, "there is room for any number of them"
    return f"{no_room} of {count} joins of 1 MB refused, the broker grew by {grown >> 20} MB"


NO_DELAY = {"group.initial.rebalance.delay.ms": 0}

ATTACKS = [
    Attack("members of groups with 50 MB of metadata", giant_members, NO_DELAY, prepare=make_coordinator),
    Attack("members of groups with 1 MB of metadata", many_large_members, NO_DELAY, prepare=make_coordinator),
]
