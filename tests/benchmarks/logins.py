"""Clients that log in by SCRAM-SHA-512, many and fast: the load of ``bench_security``.

A login is what a stock client does: TCP, TLS where the listener has it (a full handshake each), ApiVersions,
SaslHandshake, two SaslAuthenticate, and the server's signature verified. What costs a client most, deriving
the key of its password, is done once for each salt, so that the brokers are the busy ones.

``python -m tests.benchmarks.logins rate PORT`` lets some clients log in one login after the other for some
seconds; ``crowd`` connects many first, and then lets all of them begin in one moment. Both print a line of
JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import socket
import ssl
import struct
import time
from collections.abc import Generator
from functools import cache
from typing import NamedTuple

import uvloop

from tests.integration.support.wire import API_VERSIONS, request, string

MECHANISM, HASH = "SCRAM-SHA-512", "sha512"
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
ITERATIONS = 4096
HOST = "127.0.0.1"
DEADLINE_S = 60.0

Login = Generator[bytes, bytes, bool]
"""Yields whole frames, is sent the body of each answer, and returns whether the broker let us in."""


class Counted(NamedTuple):
    """What became of the logins, and how long all of them took together."""

    let_in: int
    refused: int
    seconds: float


def login(user: str, password: str) -> Login:
    """One login, without any input or output. Raises AssertionError: the broker is not what it should be."""
    yield request(API_VERSIONS, 0, b"")
    answer = yield request(SASL_HANDSHAKE, 1, string(MECHANISM))
    assert answer[:2] == b"\0\0", f"the broker has no {MECHANISM}"
    bare = f"n={user},r={secrets.token_urlsafe(24)}"
    server_first = auth_bytes((yield authenticate(f"n,,{bare}")))
    nonce, salt, iterations = (part[2:] for part in server_first.split(","))
    keys = keys_of(password, salt, int(iterations))
    without_proof = f"c=biws,r={nonce}"
    message = f"{bare},{server_first},{without_proof}".encode()
    signature = hmac.digest(keys.stored, message, HASH)
    proof = bytes(one ^ other for one, other in zip(keys.client, signature, strict=True))
    answer = yield authenticate(f"{without_proof},p={base64.b64encode(proof).decode()}")
    if answer[:2] != b"\0\0":
        return False
    server_signature = base64.b64encode(hmac.digest(keys.server, message, HASH)).decode()
    assert auth_bytes(answer) == f"v={server_signature}", "the broker does not know the password"
    return True


class Keys(NamedTuple):
    client: bytes
    stored: bytes
    server: bytes


@cache
def keys_of(password: str, salt: str, iterations: int) -> Keys:
    salted = hashlib.pbkdf2_hmac(HASH, password.encode(), base64.b64decode(salt), iterations)
    client = hmac.digest(salted, b"Client Key", HASH)
    return Keys(client, hashlib.new(HASH, client).digest(), hmac.digest(salted, b"Server Key", HASH))


def authenticate(message: str) -> bytes:
    """A frame of SaslAuthenticate 1."""
    data = message.encode()
    return request(SASL_AUTHENTICATE, 1, struct.pack(">i", len(data)) + data)


def auth_bytes(answer: bytes) -> str:
    """The mechanism's message in an answer to SaslAuthenticate 1 without an error."""
    error, told_bytes = struct.unpack_from(">hh", answer)
    assert error == 0, f"error {error}"
    at = 4 + max(told_bytes, 0)  # Kafka says nothing by an empty text, minikafka by none
    (size,) = struct.unpack_from(">i", answer, at)
    return answer[at + 4 : at + 4 + size].decode()


def log_in(peer: socket.socket, user: str, password: str) -> None:
    """On a blocking socket. Raises AssertionError: refused."""
    steps = login(user, password)
    frame = next(steps)
    while True:
        peer.sendall(frame)
        size = int.from_bytes(peer.recv(4, socket.MSG_WAITALL))
        answer = peer.recv(size, socket.MSG_WAITALL)
        try:
            frame = steps.send(answer[4:])
        except StopIteration as end:
            assert end.value, "the broker refused the login"
            return


class Client(NamedTuple):
    """Who logs in, and where."""

    port: int
    user: str
    password: str
    context: ssl.SSLContext | None

    async def connect(self) -> socket.socket:
        peer = socket.socket()
        peer.setblocking(False)
        await asyncio.get_running_loop().sock_connect(peer, (HOST, self.port))
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return peer

    async def log_in(self, peer: socket.socket) -> bool:
        """On a socket that is connected; it is closed then."""
        name = None if self.context is None else HOST
        reader, writer = await asyncio.open_connection(sock=peer, ssl=self.context, server_hostname=name)
        try:
            steps = login(self.user, self.password)
            frame = next(steps)
            while True:
                writer.write(frame)
                size = int.from_bytes(await reader.readexactly(4))
                answer = await reader.readexactly(size)
                try:
                    frame = steps.send(answer[4:])
                except StopIteration as end:
                    return bool(end.value)
        finally:
            writer.transport.abort()


async def at_a_rate(client: Client, *, clients: int, seconds: float) -> Counted:
    """So many clients, each logging in again as soon as it is in."""
    outcomes: list[bool] = []
    began = time.perf_counter()

    async def again_and_again() -> None:
        while time.perf_counter() - began < seconds:
            outcomes.append(await client.log_in(await client.connect()))

    await asyncio.gather(*(again_and_again() for _ in range(clients)))
    return counted(outcomes, began)


async def in_a_crowd(client: Client, *, clients: int) -> Counted:
    """So many clients that are connected and begin all at once."""
    peers = [await client.connect() for _ in range(clients)]
    began = time.perf_counter()
    return counted(await asyncio.gather(*(client.log_in(peer) for peer in peers)), began)


def counted(outcomes: list[bool], began: float) -> Counted:
    let_in = sum(outcomes)
    return Counted(let_in, len(outcomes) - let_in, time.perf_counter() - began)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("how", choices=["rate", "crowd"])
    options.add_argument("port", type=int)
    options.add_argument("user")
    options.add_argument("password")
    options.add_argument("--clients", type=int, required=True)
    options.add_argument("--seconds", type=float, default=0.0, help="of a rate")
    options.add_argument("--ca", help="PEM; the listener has TLS")
    arguments = options.parse_args()
    context = None
    if arguments.ca:
        context = ssl.create_default_context(cafile=arguments.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    client = Client(arguments.port, arguments.user, arguments.password, context)
    if arguments.how == "rate":
        load = at_a_rate(client, clients=arguments.clients, seconds=arguments.seconds)
    else:
        load = in_a_crowd(client, clients=arguments.clients)
    done = uvloop.run(asyncio.wait_for(load, DEADLINE_S))
    print(json.dumps(done._asdict() | {"cpu_seconds": time.process_time()}))


if __name__ == "__main__":
    main()
