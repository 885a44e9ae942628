"""A server that speaks TLS, SASL and just enough Kafka to be logged in to."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.protocol.wire.codec import read_request_header
from minikafka.security.sasl import PlainServer, SaslError, SaslServer
from minikafka.security.scram import ScramServer, ScramUser, make_credential, unknown_user_credential
from tests.support.codec import decode_request, encode_response

ALICE, PASSWORD = "alice", "alice's secret"
SCRAM = "SCRAM-SHA-512"
FRAME_BYTES_MAX = 1 << 20
"""Anything larger is no Kafka: a TLS client's hello is 370 MB long."""
_KEYS = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


def plain_server() -> SaslServer:
    return PlainServer(lambda user, password: (user, password) == (ALICE, PASSWORD))


def scram_server() -> SaslServer:
    credential = make_credential(SCRAM, PASSWORD, salt=b"salt of a test", iterations=4096)
    return ScramServer(
        SCRAM,
        lambda name, is_token: ScramUser(credential, name) if name == ALICE and not is_token else None,
        nonce="server",
        unknown_user=lambda name: unknown_user_credential(
            SCRAM, name, secret=b"secret", salt_bytes=12, iterations=4096
        ),
    )


class SecuredBroker:
    """What it has been asked is in ``asked``, by connection."""

    def __init__(
        self,
        mechanism: str | None = "PLAIN",
        *,
        context: ssl.SSLContext | None = None,
        lifetime_ms: int = 0,
        make_server: Callable[[], SaslServer] | None = None,
    ) -> None:
        self.mechanism = mechanism
        self.lifetime_ms = lifetime_ms
        self.asked: list[list[str]] = []
        self.port = 0
        self._context = context
        self._make_server = make_server or (plain_server if mechanism == "PLAIN" else scram_server)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[SecuredBroker]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers = self._answers()
        next(answers)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                if size > FRAME_BYTES_MAX:
                    break
                answer = answers.send(await reader.readexactly(size))
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
        writer.close()

    def _answers(self) -> Iterator[Any]:
        """A coroutine of one connection: takes frames, gives responses; None: hang up."""
        asked: list[str] = []
        self.asked.append(asked)
        sasl: SaslServer | None = None
        is_in = self.mechanism is None
        answer: bytes | None = b""
        while True:
            frame = yield answer
            header = read_request_header(frame)
            asked.append(ApiKey(header.api_key).name)
            request = decode_request(header, frame)
            body: dict[str, Any] | None = None
            match header.api_key:
                case ApiKey.API_VERSIONS:
                    body = _versions()
                case ApiKey.SASL_HANDSHAKE:
                    right = request.mechanism == self.mechanism
                    code = ErrorCode.NONE if right else ErrorCode.UNSUPPORTED_SASL_MECHANISM
                    body = {"error_code": code, "mechanisms": [self.mechanism]}
                    sasl = self._make_server()
                case ApiKey.SASL_AUTHENTICATE if sasl is not None:
                    try:
                        reply = sasl.evaluate(bytes(request.auth_bytes))
                        is_in = sasl.is_complete
                        body = _authenticated(reply, self.lifetime_ms if is_in else 0)
                    except SaslError as error:
                        body = _authenticated(b"", 0) | {
                            "error_code": ErrorCode.SASL_AUTHENTICATION_FAILED,
                            "error_message": error.told or "Authentication failed",
                        }
                case ApiKey.METADATA if is_in:
                    body = _metadata()
            answer = body and encode_response(
                api_key=header.api_key,
                api_version=header.api_version,
                correlation_id=header.correlation_id,
                body=body,
            )  # type: ignore[assignment]


def _authenticated(auth_bytes: bytes, lifetime_ms: int) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "auth_bytes": auth_bytes,
        "session_lifetime": lifetime_ms,
    }


def _versions() -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "api_keys": [
            {"api_key": int(key), "min_version": SUPPORTED[key].min, "max_version": SUPPORTED[key].max}
            for key in _KEYS
        ],
        "throttle_time": 0,
        "supported_features": [],
        "finalized_features_epoch": 0,
        "finalized_features": [],
        "zk_migration_ready": False,
    }


def _metadata() -> dict[str, Any]:
    return {
        "throttle_time": 0,
        "brokers": [],
        "cluster_id": "secured",
        "controller_id": 0,
        "topics": [],
        "cluster_authorized_operations": 0,
        "error_code": ErrorCode.NONE,
    }
