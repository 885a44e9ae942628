"""Socket addresses as text, the way Kafka prints them, and out of what a socket says of itself."""

from __future__ import annotations

from collections.abc import Iterable


def format_address(host: str, port: int) -> str:
    """``host:port``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(name: object) -> tuple[str, int]:
    """Host and port of a socket name; an IPv4 address on a dual-stack socket is an IPv4 address."""
    if not isinstance(name, Iterable) or isinstance(name, str | bytes):
        return "", 0  # a transport without addresses, as simulations have them
    host, port, *_ = name
    return str(host).removeprefix("::ffff:"), int(port)
