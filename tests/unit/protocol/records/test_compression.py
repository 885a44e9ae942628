"""Codecs: both ways, other writers' framings, and a bound that a bomb meets."""

from __future__ import annotations

import gzip
import os
import struct
import tracemalloc

import aiokafka.codec as reference
import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.errors import ErrorCode
from minikafka.protocol.records.compression import CompressionType, CorruptBatch, compress, decompress

CODECS = [codec for codec in CompressionType if codec]
TEXT = b"the quick brown fox " * 10_000


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=5000), st.sampled_from(CompressionType), st.integers(0, 70))
def test_there_and_back(data: bytes, codec: CompressionType, reserve: int) -> None:
    packed = compress(memoryview(data), codec)
    assert decompress(packed, codec, bytes_max=len(data), reserve=reserve) == bytes(reserve) + data


@pytest.mark.parametrize(
    "data", [b"", b"a", TEXT, os.urandom(200_000)], ids=["empty", "one", "text", "noise"]
)
def test_against_the_reference_codecs(data: bytes) -> None:
    for codec, encode, decode in (
        (CompressionType.GZIP, reference.gzip_encode, reference.gzip_decode),
        (CompressionType.SNAPPY, reference.snappy_encode, reference.snappy_decode),
        (CompressionType.LZ4, reference.lz4_encode, reference.lz4_decode),
        (CompressionType.ZSTD, reference.zstd_encode, reference.zstd_decode),
    ):
        assert decompress(encode(data), codec, bytes_max=len(data)) == data
        if (
            data or codec is not CompressionType.SNAPPY
        ):  # the reference takes an empty xerial stream for a raw one
            assert decode(compress(data, codec)) == data


def test_snappy_raw_and_in_xerial_framing() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(raw, CompressionType.SNAPPY, bytes_max=len(TEXT)) == TEXT
    framed = compress(TEXT, CompressionType.SNAPPY)
    assert framed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    # Redpanda writes version and compat in the other byte order; Java ignores both.
    swapped = framed[:8] + struct.pack("<ii", 1, 1) + framed[16:]
    assert decompress(swapped, CompressionType.SNAPPY, bytes_max=len(TEXT)) == TEXT


def test_lz4_is_what_java_reads_independent_blocks_in_a_frame() -> None:
    frame = compress(TEXT, CompressionType.LZ4)
    assert frame[:4] == bytes.fromhex("04224d18")
    flags = frame[4]
    assert flags >> 6 == 1, "version 1"
    assert flags & 0x20, "independent blocks"
    assert not flags & 0x04, "no checksum of the content"


def test_several_gzip_members_are_one_stream() -> None:
    two = gzip.compress(b"one ") + gzip.compress(b"two")
    assert decompress(two, CompressionType.GZIP, bytes_max=7) == b"one two"
    with pytest.raises(CorruptBatch):
        decompress(two, CompressionType.GZIP, bytes_max=6)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_stops_at_the_bound(codec: CompressionType) -> None:
    bomb = compress(bytes(64 * 1024 * 1024), codec)
    tracemalloc.start()
    with pytest.raises(CorruptBatch) as raised:
        decompress(bomb, codec, bytes_max=1024 * 1024)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * 1024 * 1024


@pytest.mark.parametrize("codec", CODECS)
def test_exactly_the_bound_is_allowed_and_one_less_is_not(codec: CompressionType) -> None:
    packed = compress(TEXT, codec)
    assert decompress(packed, codec, bytes_max=len(TEXT)) == TEXT
    with pytest.raises(CorruptBatch):
        decompress(packed, codec, bytes_max=len(TEXT) - 1)


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=40, deadline=None)
@given(noise=st.binary(max_size=40), at=st.integers(0, 60))
def test_damage_is_data_or_a_corrupt_batch(codec: CompressionType, noise: bytes, at: int) -> None:
    packed = compress(b"some records " * 20, codec)
    for data in (noise, packed[:at], packed[:at] + noise + packed[at + len(noise) :]):
        try:
            assert len(decompress(data, codec, bytes_max=1000)) <= 1000
        except CorruptBatch:
            pass


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_of_no_codec_are_invalid_not_corrupt_so_that_no_producer_tries_again(
    codec: CompressionType,
) -> None:
    for data in (b"", b"\xff\xff not compressed at all", compress(TEXT, codec)[:-3]):
        with pytest.raises(CorruptBatch) as raised:
            decompress(data, codec, bytes_max=len(TEXT))
        assert raised.value.code is ErrorCode.INVALID_RECORD


def test_a_snappy_block_cannot_claim_what_it_cannot_hold() -> None:
    for claim in (b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x08"):
        tracemalloc.start()
        with pytest.raises(CorruptBatch):
            decompress(claim + b"abc", CompressionType.SNAPPY, bytes_max=1 << 30)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 100_000
    for size in (-1, 100, 2**31 - 1):
        with pytest.raises(CorruptBatch):
            decompress(
                b"\x82SNAPPY\x00" + bytes(8) + struct.pack(">i", size), CompressionType.SNAPPY, bytes_max=99
            )


def test_a_codec_that_is_none_says_so() -> None:
    for number in (5, 6, 7):
        with pytest.raises(CorruptBatch) as raised:
            decompress(b"data", number, bytes_max=10)
        assert raised.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_names_are_those_of_compression_type() -> None:
    names = ("uncompressed", "none", "gzip", "snappy", "lz4", "zstd")
    assert [CompressionType.of_name(name) for name in names] == [0, 0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="producer"):
        CompressionType.of_name("producer")
