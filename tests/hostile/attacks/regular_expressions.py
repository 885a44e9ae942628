"""Patterns that cost more to match than to send."""

from __future__ import annotations

import itertools
import struct
import time

from tests.hostile.attack import Attack
from tests.integration.support.process import BrokerProcess
from tests.integration.support.wire import RawClient

FIND_COORDINATOR, CONSUMER_GROUP_HEARTBEAT = 10, 68
INVALID_REGULAR_EXPRESSION = 128
GROUPS = "(a?)" * 5_000


def compact(text: str) -> bytes:
    data = text.encode()
    length = len(data) + 1
    size = bytearray()
    while length >= 0x80:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    size.append(length)
    return bytes(size) + data


def heartbeat(regex: str, member: str) -> bytes:
    """Version 1: the member joins with nothing but a pattern."""
    head = b"\0" + compact("attacked") + compact(member) + struct.pack(">i", 0)
    nothing = b"\0\0"  # instance id, rack id
    return head + nothing + struct.pack(">i", 60_000) + b"\0" + compact(regex) + b"\0\1\0"


def subscribe(broker: BrokerProcess, short: bool) -> str:
    patterns = [GROUPS, "(a?)" * 400, "(\\pL?)" * 300, ".*(a|b){1000}", "(.?){500}x"]
    rounds = 1 if short else 5
    refused = 0
    with RawClient(broker.port, timeout_s=120) as client:
        for number in range(rounds * len(patterns)):
            pattern = patterns[number % len(patterns)]
            answer = client.call(
                CONSUMER_GROUP_HEARTBEAT,
                1,
                heartbeat(pattern, f"member-{number}"),
            )
            (code,) = struct.unpack_from(">h", answer, 1 + 4)
            refused += code == INVALID_REGULAR_EXPRESSION
            assert code in (0, INVALID_REGULAR_EXPRESSION), code
    assert refused >= rounds, "5,000 groups are too long"
    return f"{refused} of {rounds * len(patterns)} refused"


def find_coordinator(broker: BrokerProcess, short: bool) -> None:
    """The groups' topic is there, and loaded."""
    with RawClient(broker.port) as client:
        client.call(FIND_COORDINATOR, 1, struct.pack(">h", 8) + b"attacked" + b"\0")
        deadline = time.monotonic() + 30
        for number in itertools.count():
            answer = client.call(CONSUMER_GROUP_HEARTBEAT, 1, heartbeat("nothing", f"first-{number}"))
            if struct.unpack_from(">h", answer, 1 + 4) == (0,):
                return
            assert time.monotonic() < deadline, bytes(answer)


ATTACKS = [Attack("20 KB regular expression", subscribe, prepare=find_coordinator)]
