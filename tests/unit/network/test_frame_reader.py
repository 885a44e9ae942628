"""Bytes in, frames out, wherever the stream is cut."""

from __future__ import annotations

import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.network.frame_reader import (
    LARGE_BYTES_MAX,
    LARGE_BYTES_MIN,
    LARGE_FRAMES_MAX,
    FrameReader,
    LargeFrames,
)
from minikafka.types import Buffer
from tests.unit.network.support import framed


def test_a_stream_cut_at_every_byte_gives_the_same_frames() -> None:
    contents = [b"", b"a", b"bcd", b"", b"x" * 20]
    stream = b"".join(map(framed, contents))
    for first in range(len(stream) + 1):
        for second in range(first, len(stream) + 1):
            reader = FrameReader(frame_bytes_max=20)
            chunks = (stream[:first], stream[first:second], stream[second:])
            frames = [bytes(frame) for chunk in chunks for frame in reader.feed(chunk)]
            assert frames == contents
            assert reader.buffered_bytes == reader.expected_bytes == 0


@given(contents=st.lists(st.binary(max_size=50)), cuts=st.lists(st.integers(1, 60)))
def test_any_stream_in_any_chunks(contents: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(framed, contents))
    reader = FrameReader(frame_bytes_max=50)
    frames: list[bytes] = []
    for cut in cuts:
        frames += map(bytes, reader.feed(stream[:cut]))
        stream = stream[cut:]
    frames += map(bytes, reader.feed(stream))
    assert frames == contents


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_random_bytes_are_frames_or_an_error_and_the_same_ones_in_any_chunks(chunks: list[bytes]) -> None:
    whole = FrameReader(frame_bytes_max=30)
    pieces = FrameReader(frame_bytes_max=30)
    expected = [bytes(frame) for frame in whole.feed(b"".join(chunks))]
    assert [bytes(frame) for chunk in chunks for frame in pieces.feed(chunk)] == expected
    assert str(whole.error) == str(pieces.error)
    assert pieces.buffered_bytes <= 30


def test_a_frame_in_one_chunk_is_not_copied() -> None:
    chunk = framed(b"abc") + framed(b"def")
    frames = FrameReader(frame_bytes_max=10).feed(chunk)
    assert all(isinstance(frame, memoryview) and frame.obj is chunk for frame in frames)


@given(
    contents=st.lists(st.tuples(st.binary(max_size=60), st.booleans())),
    cuts=st.lists(st.integers(1, 30)),
)
def test_a_kept_buffer_never_changes_a_frame_that_is_still_held(
    contents: list[tuple[bytes, bool]], cuts: list[int]
) -> None:
    stream = b"".join(framed(content) for content, _ in contents)
    reader = FrameReader(frame_bytes_max=60, keeps_buffer=True)
    held: list[tuple[bytes, Buffer]] = []
    wanted = iter(contents)
    for cut in [*cuts, len(stream) + 1]:
        for frame in reader.feed(stream[:cut]):
            content, is_held = next(wanted)
            assert frame == content
            if is_held:
                held.append((content, frame))
        stream = stream[cut:]
    assert next(wanted, None) is None
    assert all(frame == content for content, frame in held)


def test_a_forgotten_frame_lends_its_memory_to_the_next_one() -> None:
    reader = FrameReader(frame_bytes_max=1 << 20, keeps_buffer=True)

    def received(content: bytes) -> memoryview:
        stream = framed(content)
        assert reader.feed(stream[:10]) == []
        (frame,) = reader.feed(stream[10:])
        assert isinstance(frame, memoryview)
        return frame

    first = received(b"a" * 100_000)
    buffer = id(first.obj)
    del first
    second = received(b"b" * 90_000)
    assert id(second.obj) == buffer
    third = received(b"c" * 90_000)
    assert id(third.obj) != buffer, "the second frame is still needed"
    buffer = id(third.obj)
    del third
    assert id(received(b"d" * 1_000).obj) != buffer, "a small frame does not keep a large buffer"


@given(
    contents=st.lists(
        st.tuples(
            st.sampled_from((3, LARGE_BYTES_MIN - 1, LARGE_BYTES_MIN, LARGE_BYTES_MAX, LARGE_BYTES_MAX + 1)),
            st.integers(0, 255),
            st.booleans(),
        ),
        max_size=12,
    ),
    cuts=st.lists(st.tuples(st.integers(1, 2 * LARGE_BYTES_MIN), st.booleans()), max_size=40),
)
@settings(max_examples=100, deadline=None)
def test_connections_that_share_memory_for_large_frames_get_their_own(
    contents: list[tuple[int, int, bool]], cuts: list[tuple[int, bool]]
) -> None:
    """Two take turns; some frames are held, some bytes received where they stay."""
    shared = LargeFrames()
    readers = [FrameReader(frame_bytes_max=1 << 21, large_frames=shared) for _ in range(2)]
    wholes = [[bytes((number + byte & 255,)) * size for size, byte, _ in contents] for number in range(2)]
    streams = [memoryview(b"".join(map(framed, whole))) for whole in wholes]
    held: list[tuple[bytes, Buffer]] = []
    counts = [0, 0]
    for cut, is_in_place in [*cuts, *[(1 << 18, True)] * (24 * LARGE_BYTES_MAX >> 18)]:
        for number, reader in enumerate(readers):
            room = reader.room() if is_in_place else None
            if room is not None:
                received = streams[number][: min(cut, len(room))]
                room[: len(received)] = received
                frames = reader.received(len(received))
            else:
                received = streams[number][:cut]
                frames = reader.feed(bytes(received))
            streams[number] = streams[number][len(received) :]
            for frame in frames:
                content, is_held = wholes[number][counts[number]], contents[counts[number]][2]
                counts[number] += 1
                assert frame == content
                if is_held:
                    held.append((content, frame))
    assert counts == [len(contents)] * 2
    assert all(frame == content for content, frame in held)


def test_what_large_frames_share_is_bounded_and_given_back() -> None:
    shared = LargeFrames()
    header = LARGE_BYTES_MIN.to_bytes(4, "big")
    stalled = [FrameReader(frame_bytes_max=1 << 20, large_frames=shared) for _ in range(LARGE_FRAMES_MAX)]
    for reader in stalled:
        reader.feed(header)
        assert reader.room() is not None
    late = FrameReader(frame_bytes_max=1 << 20, large_frames=shared)
    late.feed(header)
    assert late.room() is None
    assert late.feed(b"x" * LARGE_BYTES_MIN) == [b"x" * LARGE_BYTES_MIN], "it comes as chunks do"

    stalled[3].forget()
    late.feed(header)
    assert late.room() is not None
    for reader in stalled[:3]:
        assert reader.feed(b"x" * LARGE_BYTES_MIN) == [b"x" * LARGE_BYTES_MIN]


def test_sizes_out_of_bounds_end_the_stream_after_the_good_frames() -> None:
    for size in (-1, 11, 2**31 - 1, -(2**31)):
        reader = FrameReader(frame_bytes_max=10)
        stream = framed(b"x" * 10) + size.to_bytes(4, "big", signed=True) + framed(b"never")
        assert [bytes(frame) for frame in reader.feed(stream)] == [b"x" * 10]
        assert reader.error is not None
        assert f"a frame of {size} bytes" in str(reader.error)
        assert reader.feed(framed(b"never")) == []


def test_a_size_that_only_claims_takes_no_memory() -> None:
    reader = FrameReader(frame_bytes_max=1 << 30, large_frames=LargeFrames())
    tracemalloc.start()
    try:
        assert reader.feed((1 << 30).to_bytes(4, "big") + b"x" * 10) == []
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()
    assert reader.expected_bytes == 1 << 30
    assert reader.buffered_bytes == 10
