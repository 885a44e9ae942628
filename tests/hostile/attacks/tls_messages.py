"""TLS after its handshake: new keys without end, and handshakes within a connection.

Python's ``ssl`` asks for neither, so the attacker calls the functions of the OpenSSL that it is linked with.
"""

from __future__ import annotations

import _ssl
import ctypes
import time
from functools import cache

from minikafka.protocol.wire.api_versions import ApiKey
from tests.hostile.secured import Peer, connect, secured
from tests.integration.support.process import BrokerProcess

SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_2_VERSION = 124, 0x0303
SSL_KEY_UPDATE_REQUESTED = 1
GROWTH_BYTES_MAX = 60 * 1024 * 1024
SOCKET_TIMEOUT_S = 20
KEY_UPDATES_MAX = 50_000
"""By one connection: 640 are allowed, and buffers of the systems on the way hold some thousands."""


@cache
def openssl() -> ctypes.CDLL:
    library = ctypes.CDLL(_ssl.__file__)
    for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
        getattr(library, name).restype = ctypes.c_void_p
    return library


class OpenSslPeer:
    """A connection to the SSL listener whose handshake is over. Blocking: its socket has no timeout."""

    def __init__(self, *, tls_1_2: bool = False) -> None:
        library = openssl()
        self.socket = connect("SSL")
        self.socket.settimeout(None)
        method = ctypes.c_void_p(library.TLS_client_method())
        context = ctypes.c_void_p(library.SSL_CTX_new(method))
        if tls_1_2:
            library.SSL_CTX_ctrl(context, SSL_CTRL_SET_MAX_PROTO_VERSION, ctypes.c_long(TLS1_2_VERSION), None)
        self._ssl = ctypes.c_void_p(library.SSL_new(context))
        library.SSL_CTX_free(context)
        library.SSL_set_fd(self._ssl, self.socket.fileno())
        assert library.SSL_connect(self._ssl) == 1, "the handshake failed"

    def __enter__(self) -> OpenSslPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        openssl().SSL_free(self._ssl)

    def update_keys(self) -> bool:
        """Send one KeyUpdate that wants one in return, and read nothing; False: the connection is closed."""
        library = openssl()
        return bool(
            library.SSL_key_update(self._ssl, SSL_KEY_UPDATE_REQUESTED) == 1
            and library.SSL_do_handshake(self._ssl) == 1
        )

    def renegotiate(self) -> bool:
        """Begin another handshake (TLS 1.2); whether the broker took part."""
        library = openssl()
        return bool(library.SSL_renegotiate(self._ssl) == 1 and library.SSL_do_handshake(self._ssl) == 1)


def key_updates(broker: BrokerProcess, short: bool) -> str:
    """As many as can be sent, by clients that read none of the answers: each is closed, and they wait in no
    memory of the broker's."""
    before, closed, count = broker.resident_bytes(), 0, 0
    until = time.monotonic() + (0.5 if short else 20)
    while time.monotonic() < until or not closed:
        with OpenSslPeer() as peer:
            sent = 0
            while peer.update_keys():
                sent += 1
                assert sent < KEY_UPDATES_MAX, "a connection without any data is still open"
        closed, count = closed + 1, count + sent
    grown = broker.resident_bytes() - before
    assert grown < GROWTH_BYTES_MAX, f"{grown >> 20} MB are held for {count} KeyUpdates"
    with Peer("SSL") as another:
        assert another.ask(ApiKey.API_VERSIONS, 0, {}).error_code == 0
    return f"{count} KeyUpdates, {closed} connections closed, the broker grew by {grown >> 20} MB"


def renegotiations(broker: BrokerProcess, short: bool) -> str:
    """A handshake costs the broker a signature: it takes part in one for each connection."""
    count = 5 if short else 500
    for _ in range(count):
        with OpenSslPeer(tls_1_2=True) as peer:
            assert not peer.renegotiate(), "a second handshake was taken part in"
            peer.socket.settimeout(SOCKET_TIMEOUT_S)
    return f"{count} renegotiations refused"


ATTACKS = [
    secured("KeyUpdates without end", key_updates),
    secured("renegotiations of TLS 1.2", renegotiations),
]
