"""Listeners: where a broker listens, and what it tells clients to connect to.

Kafka: ``EndPoint``, ``SocketServerConfigs.listenerListToEndPoints``, ``KafkaConfig``'s checks. A listener is
``NAME://host:port``; the name maps to a security protocol through ``listener.security.protocol.map``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from minikafka.errors import ConfigError
from minikafka.named_tuple import NamedTuple

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's, by the numbers that UpdateMetadata has for them: the place in this tuple."""

_LISTENER = re.compile(
    r"(?P<name>[^:/]+)://(?P<host>\[[0-9a-zA-Z:.%_-]*\]|[0-9a-zA-Z.%_-]*):(?P<port>[0-9]{1,5})"
)
_LOOPBACK = re.compile(r"127(\.[0-9]{1,3}){3}")
_META_ADDRESSES = frozenset({"0.0.0.0", "::", "0:0:0:0:0:0:0:0"})


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``. A name other than ``localhost`` may be any machine's."""
    return host in ("localhost", "::1") or _LOOPBACK.fullmatch(host) is not None


class Listener(NamedTuple):
    """One listener. An empty ``host`` means all interfaces; port 0 lets the system choose."""

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"

    @property
    def is_wildcard(self) -> bool:
        """Whether the host is no address that a client could connect to."""
        return not self.host or self.host in _META_ADDRESSES

    @property
    def is_unprotected(self) -> bool:
        """Whether other machines reach it, and need not say who they are."""
        return not (self.protocol.startswith("SASL") or is_loopback(self.host))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """``NAME:PROTOCOL,…`` (``listener.security.protocol.map``) as listener name → protocol.

    Raises:
        ConfigError: an entry that is not of this form, an unknown protocol, a name twice.
    """
    protocols: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, separator, protocol = entry.rpartition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not separator or not name:
            raise _invalid("listener.security.protocol.map", entry, "must be LISTENER_NAME:PROTOCOL")
        if protocol not in SECURITY_PROTOCOLS:
            raise _invalid(
                "listener.security.protocol.map",
                entry,
                f"the protocol must be one of {', '.join(SECURITY_PROTOCOLS)}",
            )
        if protocols.setdefault(name, protocol) != protocol:
            raise _invalid(
                "listener.security.protocol.map", entry, f"{name} is already mapped to {protocols[name]}"
            )
    return protocols


def parse_listeners(
    property_name: str,
    values: Sequence[str],
    *,
    protocols: dict[str, str],
    left_out: Sequence[str] = (),
    distinct_ports: bool = True,
) -> tuple[Listener, ...]:
    """``NAME://host:port`` texts as listeners, those whose name is in ``left_out`` left out.

    ``distinct_ports`` holds for addresses that are bound, not for advertised ones. Two listeners may share a
    port when one address is IPv4 and the other IPv6.

    Raises:
        ConfigError: names the property, the listener and what is wrong with it.
    """
    skipped = {name.upper() for name in left_out}
    listeners: list[Listener] = []
    for value in values:
        listener = _parse(property_name, value)
        if listener.name in skipped:
            continue
        protocol = protocols.get(listener.name)
        if protocol is None:
            raise _invalid(
                property_name,
                value,
                f"listener.security.protocol.map has no security protocol for {listener.name}",
            )
        if any(other.name == listener.name for other in listeners):
            raise _invalid(property_name, value, "each listener must have a different name")
        clash = next((other for other in listeners if distinct_ports and _same_port(other, listener)), None)
        if clash is not None:
            raise _invalid(
                property_name, value, f"{clash} has the same port; each listener must have its own"
            )
        listeners.append(listener._replace(protocol=protocol))
    if not listeners:
        raise ConfigError(
            f"Invalid value {','.join(values)!r} for configuration {property_name}: no listener left"
        )
    return tuple(listeners)


def _parse(property_name: str, value: str) -> Listener:
    match = _LISTENER.fullmatch(value)
    if match is None:
        raise _invalid(
            property_name,
            value,
            "must be NAME://host:port, for example PLAINTEXT://localhost:9092 or PLAINTEXT://[::1]:9092",
        )
    host = match["host"]
    if host.startswith("["):
        host = host[1:-1]
        if not _is_ip(host, version=6):
            raise _invalid(property_name, value, f"[{host}] is not an IPv6 address")
    port = int(match["port"])
    if port > 65535:
        raise _invalid(property_name, value, "the port must be 0 to 65535")
    return Listener(match["name"].strip().upper(), host, port)


def _is_ip(host: str, *, version: int) -> bool:
    import ipaddress  # 3 ms that few listeners need

    try:
        return ipaddress.ip_address(host).version == version
    except ValueError:
        return False


def _same_port(first: Listener, second: Listener) -> bool:
    if first.port != second.port or first.port == 0:
        return False
    one_of_each = (_is_ip(first.host, version=4) and _is_ip(second.host, version=6)) or (
        _is_ip(first.host, version=6) and _is_ip(second.host, version=4)
    )
    return not one_of_each


def _invalid(property_name: str, value: str, why: str) -> ConfigError:
    return ConfigError(f"Invalid value {value} for configuration {property_name}: {why}")
