"""Frames come out of the stream as they went in, however it is cut, and a lie about a size reserves
nothing."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.errors import PeerProtocolError
from minikafka.protocol.frame import FrameReader


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


@given(st.lists(st.binary(max_size=300), max_size=8), st.lists(st.integers(1, 200), min_size=1, max_size=50))
def test_any_cut_of_the_stream_gives_the_same_frames(contents: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(framed, contents))
    reader = FrameReader(frame_bytes_max=1000)
    frames: list[memoryview] = []
    position, turn = 0, 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        frames += reader.feed(stream[position : position + size])
        position, turn = position + size, turn + 1
    assert frames == contents
    assert reader.buffered_bytes == 0


def test_a_frame_inside_one_chunk_is_not_copied() -> None:
    chunk = framed(b"a" * 1000) + framed(b"b" * 1000)
    first, second = FrameReader(frame_bytes_max=1000).feed(chunk)
    assert first.obj is chunk and second.obj is chunk
    assert first.readonly


def test_a_large_frame_in_pieces_is_whole_and_read_only() -> None:
    content = bytes(range(256)) * 40_000
    reader = FrameReader(frame_bytes_max=len(content))
    stream = framed(content)
    frames = []
    for start in range(0, len(stream), 65_536):
        frames += reader.feed(stream[start : start + 65_536])
    assert frames == [content]
    assert frames[0].readonly


def test_memory_follows_what_arrived_not_what_was_announced() -> None:
    tracemalloc.start()
    reader = FrameReader(frame_bytes_max=100 * 1024 * 1024)
    reader.feed((100 * 1024 * 1024).to_bytes(4, "big") + b"x")
    reserved, _ = tracemalloc.get_traced_memory()
    assert reserved < 200_000
    for _ in range(100):
        reader.feed(b"y" * 10_000)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 2.2 * 1_000_000
    assert 1_000_000 < reader.buffered_bytes < 2_200_000


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_size_out_of_bounds_ends_the_stream(size: int) -> None:
    reader = FrameReader(frame_bytes_max=1000)
    with pytest.raises(PeerProtocolError, match=str(size)):
        reader.feed(size.to_bytes(4, "big", signed=True))


def test_an_empty_frame_is_a_frame() -> None:
    assert FrameReader(frame_bytes_max=10).feed(framed(b"") * 2) == [b"", b""]
