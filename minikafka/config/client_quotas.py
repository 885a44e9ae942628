"""Client quotas: whose they are, which there are, what may be set, and which one counts for a client. Pure.

Kafka: ``ClientQuotaEntity``, ``QuotaConfig``, ``ClientQuotaControlManager`` (validation),
``ClientQuotaFilter``, ``DefaultQuotaCallback`` (precedence); KIP-13, KIP-55, KIP-124, KIP-546, KIP-599.

An entity is a user, a client id, or both, and each of them may be the default: all that have no quota of
their own. For a client with user U and client id C the first of these counts that has the quota:

=====  ==================================  ===========================
order  entity                              shared by
=====  ==================================  ===========================
1      user U, client id C                 connections of U and C
2      user U, default client id           connections of U and C
3      user U                              all connections of U
4      default user, client id C           connections of U and C
5      default user, default client id     connections of U and C
6      default user                        all connections of U
7      client id C                         all connections of C
8      default client id                   all connections of C
=====  ==================================  ===========================

So a default is a bound for each, not for all together.

An address (``ip``) is an entity of its own kind, and so is the default of all addresses: it has the quota
``connection_creation_rate`` and no other (KIP-612; ``network.limits`` enforces it).

Differs from Kafka: a rate must be more than zero (Kafka divides by it), and an address is no host name, which
every broker would resolve for itself. What a filter wants is Kafka's, but for one entity type more: see
``THROTTLE``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum

from minikafka.config.definition import INT_MAX, LONG_MAX
from minikafka.errors import ErrorCode, KafkaError
from minikafka.named_tuple import NamedTuple

USER, CLIENT_ID, IP = "user", "client-id", "ip"

THROTTLE = "throttle"
"""An entity type that only filters have: with it the answer has the last throttles instead of quotas."""

COMPACTION = "compaction"
"""An entity type that only alterations have: setting ``SWAP_IN`` of it makes the broker swap in what
``minikafka compact`` has prepared. Its name is ``<topic>-<partition>:<id of the manifest>``."""

SWAP_IN = "swap_in"

SESSIONS = "sessions"
"""An entity type that only alterations have: setting ``KILL`` of it makes the broker close the connections of
the user who is its name."""

KILL = "kill"

_EPSILON = 1e-6
"""So far from a whole number may a LONG be that comes as a double (Kafka's)."""


class Default(Enum):
    """In the place of a name: all that have no quota of their own."""

    DEFAULT = "<default>"

    def __str__(self) -> str:
        return self.value


DEFAULT = Default.DEFAULT

Name = str | Default


class QuotaEntity(NamedTuple):
    """Whose a quota is: an address, or at least one of the others."""

    user: Name | None = None
    client_id: Name | None = None
    ip: Name | None = None

    def __str__(self) -> str:
        parts = ((USER, self.user), (CLIENT_ID, self.client_id), (IP, self.ip))
        return ", ".join(f"{kind} {name}" for kind, name in parts if name is not None)

    def parts(self) -> dict[str, Name]:
        """Entity type → name, of what is there, in the order of Kafka's answers."""
        parts = ((CLIENT_ID, self.client_id), (IP, self.ip), (USER, self.user))
        return {kind: name for kind, name in parts if name is not None}


class QuotaType(Enum):
    """The quotas by Kafka's keys, in the order of Kafka's answers."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    CONTROLLER_MUTATION = "controller_mutation_rate"
    REQUEST = "request_percentage"
    CONNECTION_CREATION = "connection_creation_rate"

    @property
    def is_whole(self) -> bool:
        """Whether it is a LONG or an INT."""
        return self in (QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.CONNECTION_CREATION)

    @property
    def is_of_addresses(self) -> bool:
        """Whether an ``ip`` has it; all others are of users and client ids."""
        return self is QuotaType.CONNECTION_CREATION


QUOTA_KEYS = frozenset(quota.value for quota in QuotaType)

Quotas = Mapping[QuotaType, float]
"""What is set for one entity."""


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Of entity types with names, as requests have them; None: the default.

    Raises:
        KafkaError: INVALID_REQUEST, naming what cannot be.
    """
    names: dict[str, Name] = {}
    for kind, name in parts:
        if kind not in (USER, CLIENT_ID, IP):
            raise invalid(f"Unhandled client quota entity type: {kind}")
        if kind in names:
            raise invalid(f"Invalid client quota entity, duplicate entity entry {kind}")
        if name == "":
            raise invalid(f"Empty {kind} not supported")
        names[kind] = DEFAULT if name is None else _address(name) if kind == IP else name
    if not names:
        raise invalid("Invalid empty client quota entity")
    if IP in names and len(names) > 1:
        raise invalid(
            "Invalid quota entity combination, IP entity should not be used with user/client ID entity."
        )
    return QuotaEntity(names.get(USER), names.get(CLIENT_ID), names.get(IP))


def _address(text: str) -> str:
    """In the one form that connections have. Raises KafkaError: INVALID_REQUEST."""
    import ipaddress  # 3 ms that few need

    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise invalid(f"{text} is not a valid IP address.") from None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def checked_quota(key: str, value: float, *, of_address: bool = False) -> tuple[QuotaType, float]:
    """What a client wants to set, for an address or for a user or client id.

    Raises:
        KafkaError: INVALID_REQUEST, naming key and value.
    """
    quota = known_quota(key, of_address=of_address)
    if not math.isfinite(value) or value <= 0 or value > (INT_MAX if quota.is_of_addresses else LONG_MAX):
        raise invalid(f"Configuration {key} must be a finite value more than 0, not {value:g}")
    if quota.is_whole:
        whole = int(value + _EPSILON)
        if abs(whole - value) > _EPSILON or whole < 1:
            raise invalid(f"Configuration {key} must be a Long value, not {value:g}")
        value = whole
    return quota, float(value)


def known_quota(key: str, *, of_address: bool = False) -> QuotaType:
    """Raises KafkaError: INVALID_REQUEST: an address, or a user or client id, has no such quota."""
    if key not in QUOTA_KEYS or QuotaType(key).is_of_addresses is not of_address:
        raise invalid(f"Invalid configuration key {key}")
    return QuotaType(key)


def stored_quotas(config: Mapping[str, str], *, of_address: bool = False) -> dict[QuotaType, float]:
    """The quotas among stored properties. What is no quota, or cannot be one, is left out."""
    quotas = {}
    for key, text in config.items():
        try:
            quota, value = checked_quota(key, float(text), of_address=of_address)
        except (KafkaError, ValueError):
            continue
        quotas[quota] = value
    return quotas


def quota_text(quota: QuotaType, value: float) -> str:
    """As Kafka stores it."""
    return str(int(value)) if quota.is_whole else repr(value)


def invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


# Which quota counts


class Bound(NamedTuple):
    """The quota that counts for a client, and who shares it: "" for any user or any client id."""

    value: float
    user: str
    client_id: str


def bound_for(
    quotas: Mapping[QuotaEntity, Quotas], quota: QuotaType, *, user: str, client_id: str
) -> Bound | None:
    """The first in Kafka's order of eight, or None. An empty client id has only defaults."""
    own: Name = client_id or DEFAULT
    for entity, shared_user, shared_client_id in (
        (QuotaEntity(user, own), user, client_id),
        (QuotaEntity(user, DEFAULT), user, client_id),
        (QuotaEntity(user), user, ""),
        (QuotaEntity(DEFAULT, own), user, client_id),
        (QuotaEntity(DEFAULT, DEFAULT), user, client_id),
        (QuotaEntity(DEFAULT), user, ""),
        (QuotaEntity(None, own), "", client_id),
        (QuotaEntity(None, DEFAULT), "", client_id),
    ):
        value = quotas.get(entity, {}).get(quota)
        if value is not None:
            return Bound(value, shared_user, shared_client_id)
    return None


# Which entities are asked for


class MatchType(IntEnum):
    """The numbers are DescribeClientQuotas'."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class QuotaFilter(NamedTuple):
    """Which entities to describe; a name of None: any."""

    names: Mapping[str, Name | None]
    strict: bool
    """Whether an entity may have no other parts."""

    def matches(self, parts: Mapping[str, Name]) -> bool:
        """Whether an entity with these parts is wanted."""
        if self.strict and parts.keys() != self.names.keys():
            return False
        return all(kind in parts and name in (None, parts[kind]) for kind, name in self.names.items())


def quota_filter(components: Iterable[tuple[str, int, str | None]], *, strict: bool) -> QuotaFilter:
    """Of entity type, match type and match, as requests have them.

    Raises:
        KafkaError: UNSUPPORTED_VERSION for an unknown entity type, as in Kafka; INVALID_REQUEST.
    """
    names: dict[str, Name | None] = {}
    for kind, match_type, match in components:
        if not kind:
            raise invalid("Invalid empty entity type.")
        if kind in names:
            raise invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP, THROTTLE):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        names[kind] = _wanted(match_type, match)
    if IP in names and (USER in names or CLIENT_ID in names):
        raise invalid(
            "Invalid entity filter component combination, IP filter component should not be used with user "
            "or clientId filter component."
        )
    return QuotaFilter(names, strict)


def _wanted(match_type: int, match: str | None) -> Name | None:
    if match_type == MatchType.EXACT:
        if match is None:
            raise invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        return match
    if match_type not in (MatchType.DEFAULT, MatchType.ANY):
        raise invalid(f"Unknown match type {match_type}")
    if match is not None:
        kind = "DEFAULT" if match_type == MatchType.DEFAULT else "SPECIFIED"
        raise invalid(f"Request specified MATCH_TYPE_{kind}, but also specified a match string: {match}")
    return DEFAULT if match_type == MatchType.DEFAULT else None
