"""What a member of a classic consumer group was assigned. Kafka: ``ConsumerProtocol.deserializeAssignment``.

The coordinator does not look into it, so it may be anything; what is no assignment counts as none.
"""

from __future__ import annotations

import struct

_I16, _I32 = struct.Struct(">h"), struct.Struct(">i")


def read_assignment(data: bytes) -> dict[str, list[int]]:
    """Topic → partitions; all versions of the format begin like the first. Nothing for other bytes."""
    assignment: dict[str, list[int]] = {}
    try:
        (topics,) = _I32.unpack_from(data, _I16.size)
        position = _I16.size + _I32.size
        for _ in range(topics):
            (length,) = _I16.unpack_from(data, position)
            position += _I16.size
            name = bytes(data[position : position + length]).decode()
            position += length
            (count,) = _I32.unpack_from(data, position)
            position += _I32.size
            assignment[name] = sorted(struct.unpack_from(f">{count}i", data, position))
            position += count * _I32.size
    except (struct.error, UnicodeDecodeError):
        return {}
    return assignment
