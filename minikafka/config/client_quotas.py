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

Differs from Kafka: a rate must be more than zero (Kafka divides by it), and quotas of addresses (``ip``,
KIP-612) do not exist. What a filter wants is Kafka's, but for one entity type more: see ``THROTTLE``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from typing import NamedTuple

from minikafka.config.definition import LONG_MAX
from minikafka.errors import ErrorCode, KafkaError

USER, CLIENT_ID, IP = "user", "client-id", "ip"

THROTTLE = "throttle"
"""An entity type that only filters have: with it the answer has the last throttles instead of quotas."""

COMPACTION = "compaction"
"""An entity type that only alterations have: setting ``SWAP_IN`` of it makes the broker swap in what
``minikafka compact`` has prepared. Its name is ``<topic>-<partition>:<id of the manifest>``."""

SWAP_IN = "swap_in"

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
    """Whose a quota is; at least one of both is not None."""

    user: Name | None = None
    client_id: Name | None = None

    def __str__(self) -> str:
        parts = ((USER, self.user), (CLIENT_ID, self.client_id))
        return ", ".join(f"{kind} {name}" for kind, name in parts if name is not None)

    def parts(self) -> dict[str, Name]:
        """Entity type → name, of what is there, in the order of Kafka's answers."""
        parts = ((CLIENT_ID, self.client_id), (USER, self.user))
        return {kind: name for kind, name in parts if name is not None}


class QuotaType(Enum):
    """The quotas by Kafka's keys, in the order of Kafka's answers."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    CONTROLLER_MUTATION = "controller_mutation_rate"
    REQUEST = "request_percentage"

    @property
    def is_whole(self) -> bool:
        """Whether it is a LONG."""
        return self in (QuotaType.PRODUCE, QuotaType.FETCH)


Quotas = Mapping[QuotaType, float]
"""What is set for one entity."""


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Of entity types with names, as requests have them; None: the default.

    Raises:
        KafkaError: INVALID_REQUEST, naming what cannot be.
    """
    names: dict[str, Name] = {}
    for kind, name in parts:
        if kind == IP:
            raise invalid("Quotas of IP addresses are not supported: entity type ip")
        if kind not in (USER, CLIENT_ID):
            raise invalid(f"Unhandled client quota entity type: {kind}")
        if kind in names:
            raise invalid(f"Invalid client quota entity, duplicate entity entry {kind}")
        if name == "":
            raise invalid(f"Empty {kind} not supported")
        names[kind] = DEFAULT if name is None else name
    if not names:
        raise invalid("Invalid empty client quota entity")
    return QuotaEntity(names.get(USER), names.get(CLIENT_ID))


def checked_quota(key: str, value: float) -> tuple[QuotaType, float]:
    """What a client wants to set.

    Raises:
        KafkaError: INVALID_REQUEST, naming key and value.
    """
    quota = known_quota(key)
    if not math.isfinite(value) or value <= 0 or value > LONG_MAX:
        raise invalid(f"Configuration {key} must be a finite value more than 0, not {value:g}")
    if quota.is_whole:
        whole = int(value + _EPSILON)
        if abs(whole - value) > _EPSILON or whole < 1:
            raise invalid(f"Configuration {key} must be a Long value, not {value:g}")
        value = whole
    return quota, float(value)


def known_quota(key: str) -> QuotaType:
    """Raises KafkaError: INVALID_REQUEST: there is no such quota."""
    try:
        return QuotaType(key)
    except ValueError:
        raise invalid(f"Invalid configuration key {key}") from None


def stored_quotas(config: Mapping[str, str]) -> dict[QuotaType, float]:
    """The quotas among stored properties. What is no quota, or cannot be one, is left out."""
    quotas = {}
    for key, text in config.items():
        try:
            quota, value = checked_quota(key, float(text))
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
