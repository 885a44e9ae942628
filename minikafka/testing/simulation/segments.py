"""What travels on a connection: bytes, cut as the network likes, and three signals."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

OPEN, FIN, RST = "OPEN", "FIN", "RST"
"""The handshake's third step, the end of the data, the end of everything."""

Message = bytes | str

FRAGMENTED_SHARE = 0.2
"""How many of the writes arrive in several pieces."""
PIECES_MAX = 4


def fragments(data: bytes, rng: random.Random) -> Sequence[bytes]:
    """``data`` in the pieces that it arrives in."""
    if len(data) < 2 or rng.random() >= FRAGMENTED_SHARE:
        return (data,)
    count = min(len(data), rng.randint(2, PIECES_MAX))
    cuts = [0, *sorted(rng.sample(range(1, len(data)), count - 1)), len(data)]
    return [data[start:stop] for start, stop in pairwise(cuts)]
