"""The issuer's keys: read from a file or the web, kept while the issuer is away, read again."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from joserfc.jwk import ECKey, KeySet

from minikafka.errors import ConfigError
from minikafka.server.security import authentication
from minikafka.server.security.authentication import JwksSettings, JwksSource, check_jwks_url


def key_set(*names: str) -> str:
    keys = KeySet([ECKey.generate_key("P-256", {"kid": name}) for name in names])
    return json.dumps(keys.as_dict(private=False))


@pytest.fixture
async def sources() -> AsyncIterator[list[JwksSource]]:
    made: list[JwksSource] = []
    yield made
    for source in made:
        source.close()


async def test_a_file_is_read_again_when_an_unknown_key_comes(
    tmp_path: Path, sources: list[JwksSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "WANTED_PAUSE_MS", 1)
    file = tmp_path / "jwks.json"
    file.write_text(key_set("one"))
    sources.append(source := JwksSource(JwksSettings(file.as_uri(), 3_600_000, 1, 10)))
    task = asyncio.create_task(source.run())
    await source.tried.wait()
    assert [key.key_id for key in source.known()] == ["one"]
    file.write_text(key_set("one", "two"))
    async with asyncio.timeout(60):
        while len(source.known()) < 2:
            source.want()
            await asyncio.sleep(0)
    task.cancel()


@pytest.mark.parametrize("content", [None, "no JSON", "x" * 2_000_000])
async def test_keys_hold_while_there_are_no_others(
    tmp_path: Path, sources: list[JwksSource], caplog: pytest.LogCaptureFixture, content: str | None
) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(key_set("one"))
    sources.append(source := JwksSource(JwksSettings(file.as_uri(), 3_600_000, 1, 10)))
    assert await source._read()
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    with caplog.at_level(logging.WARNING):
        assert not await source._read()
    assert [key.key_id for key in source.known()] == ["one"]
    assert "those that were read before still hold" in caplog.text


async def test_keys_come_over_http(sources: list[JwksSource]) -> None:
    body = key_set("web").encode()
    location = b""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if location:
            writer.write(b"HTTP/1.0 302 Found\r\nLocation: " + location + b"\r\n\r\n")
        else:
            writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + body)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        sources.append(source := JwksSource(JwksSettings(f"http://127.0.0.1:{port}/keys", 1000, 1, 10)))
        assert await source._read()
        assert [key.key_id for key in source.known()] == ["web"]
        location = b"ftp://127.0.0.1/keys"
        assert not await source._read()


async def test_keys_that_come_without_tls_are_warned_of(
    sources: list[JwksSource], caplog: pytest.LogCaptureFixture
) -> None:
    sources.append(source := JwksSource(JwksSettings("http://127.0.0.1:1/keys", 3_600_000, 1, 10)))
    with caplog.at_level(logging.WARNING):
        task = asyncio.create_task(source.run())
        await source.tried.wait()
        task.cancel()
    assert "is read without TLS" in caplog.messages[0]
    assert caplog.messages[1].endswith("http://127.0.0.1:1/keys: Connection refused")


@pytest.mark.parametrize(
    "url", ["", "jwks.json", "ftp://issuer/keys", "file:", "https://", "file://host/keys"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url"):
        check_jwks_url(url)
