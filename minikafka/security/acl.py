"""Principals, access control lists, and filters of them.

**Lists**, with the numbers of Kafka's protocol. Kafka: ``AclBinding``, ``AclOperation``,
``AclPermissionType``, ``PatternType``, ``ResourceType``, ``AclEntry``, ``AclBindingFilter``. Texts are
Kafka's: its tools print them, and ours too.

**Many filters at once** (``AclFilters``), and which of them is the first to find an ACL. Kafka: the loops in
``AclAuthorizer.deleteAcls``, which try every filter on every ACL. Here filters are looked up by what they ask
for: of each part of an ACL a filter asks for one value or for any, so those that find an ACL are among a few
that can be listed. Thousands of filters cost about as much as one.

A filter of MATCH with a name asks for more than one value; those are found by the order of their names, in
which all that begin with a prefix stand together.

**Principals**: who a client is. Kafka: ``KafkaPrincipal``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from itertools import product
from typing import Any, TypeVar

from minikafka.errors import ConfigError
from minikafka.named_tuple import NamedTuple

E = TypeVar("E", bound=IntEnum)

WILDCARD = "*"
"""Every name, every host; ``User:*`` is every principal."""
WILDCARD_PRINCIPAL = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER (``Resource.CLUSTER_NAME``)."""
AUDIT_LOGGER = "kafka.authorizer.logger"
"""Where decisions are logged, as in Kafka."""

USER = "User"


class ResourceType(IntEnum):
    """What an ACL is about."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name in an ACL is meant; ANY and MATCH stand in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What may be done."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourcePattern(NamedTuple):
    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    @classmethod
    def of_codes(cls, resource_type: int, name: str, pattern_type: int) -> ResourcePattern:
        """Of the numbers in a request or response; UNKNOWN where a number is none."""
        return cls(_by_code(ResourceType, resource_type), name, _by_code(PatternType, pattern_type))

    def __str__(self) -> str:
        return (
            f"ResourcePattern(resourceType={self.resource_type.name}, name={self.name}, "
            f"patternType={self.pattern_type.name})"
        )


class AccessControlEntry(NamedTuple):
    """``principal`` and ``host`` as texts: ``User:alice``, ``127.0.0.1``, or ``*``."""

    principal: str
    host: str
    operation: AclOperation
    permission_type: AclPermissionType

    @classmethod
    def of_fields(cls, fields: Any) -> AccessControlEntry:
        """Of the part of a request or response that has one; UNKNOWN where a number is none."""
        return cls(
            fields.principal,
            fields.host,
            _by_code(AclOperation, fields.operation),
            _by_code(AclPermissionType, fields.permission_type),
        )

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation.name}, "
            f"permissionType={self.permission_type.name})"
        )


class AclBinding(NamedTuple):
    """One ACL."""

    pattern: ResourcePattern
    entry: AccessControlEntry

    def __str__(self) -> str:
        return f"(pattern={self.pattern}, entry={self.entry})"


SUPPORTED_OPERATIONS: dict[ResourceType, frozenset[AclOperation]] = {
    ResourceType.TOPIC: frozenset(
        {
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.CREATE,
            AclOperation.DESCRIBE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        }
    ),
    ResourceType.GROUP: frozenset(
        {
            AclOperation.READ,
            AclOperation.DESCRIBE,
            AclOperation.DELETE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        }
    ),
    ResourceType.CLUSTER: frozenset(
        {
            AclOperation.CREATE,
            AclOperation.CLUSTER_ACTION,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
            AclOperation.IDEMPOTENT_WRITE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset(
        {AclOperation.DESCRIBE, AclOperation.WRITE, AclOperation.TWO_PHASE_COMMIT}
    ),
    ResourceType.DELEGATION_TOKEN: frozenset({AclOperation.DESCRIBE}),
    ResourceType.USER: frozenset({AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS}),
}
"""``AclEntry.supportedOperations``; ALL besides, in an ACL."""


def camel_case(member: IntEnum) -> str:
    """``TRANSACTIONAL_ID`` → ``TransactionalId``: as names stand in the store and in the log
    (``SecurityUtils.toPascalCase``)."""
    return "".join(part.capitalize() for part in member.name.split("_"))


def by_name(kind: type[E], text: str) -> E | None:
    """The member of that name, as ``TransactionalId`` or ``TRANSACTIONAL_ID``, in any case; None: there is
    none."""
    return _names_of(kind).get(text.replace("_", "").lower())


def _by_code(kind: type[E], code: int) -> E:
    """The member with that number in the protocol; UNKNOWN for any other number."""
    return kind(code) if code in _codes_of(kind) else kind(0)


@cache
def _names_of(kind: type[E]) -> dict[str, E]:
    return {member.name.replace("_", "").lower(): member for member in kind}


@cache
def _codes_of(kind: type[IntEnum]) -> frozenset[int]:
    return frozenset(int(member) for member in kind)


class ResourcePatternFilter(NamedTuple):
    """Which patterns are meant (``ResourcePatternFilter``); ``name`` None: any."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY

    def __str__(self) -> str:
        name = "<any>" if self.name is None else self.name
        return (
            f"ResourcePattern(resourceType={self.resource_type.name}, name={name}, "
            f"patternType={self.pattern_type.name})"
        )

    def matches(self, pattern: ResourcePattern) -> bool:
        """MATCH finds all patterns that say something about the resource of that name."""
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.name == pattern.name
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)

    def exact(self) -> list[ResourcePattern]:
        """The only patterns that this can find; none when there is no telling."""
        is_exact = self.name is not None and self.resource_type > ResourceType.ANY
        if self.name is None or not is_exact or self.pattern_type is PatternType.MATCH:
            return []
        either = (PatternType.LITERAL, PatternType.PREFIXED)
        kinds = either if self.pattern_type is PatternType.ANY else (self.pattern_type,)
        return [ResourcePattern(self.resource_type, self.name, kind) for kind in kinds]


class AccessControlEntryFilter(NamedTuple):
    """Which entries are meant (``AccessControlEntryFilter``); None, or ANY: any."""

    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY

    def matches(self, entry: AccessControlEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission_type in (AclPermissionType.ANY, entry.permission_type)
        )


class AclBindingFilter(NamedTuple):
    """Which ACLs are meant."""

    pattern: ResourcePatternFilter = ResourcePatternFilter()
    entry: AccessControlEntryFilter = AccessControlEntryFilter()

    @classmethod
    def of_fields(cls, fields: Any) -> AclBindingFilter:
        """Of a request's filter; UNKNOWN where a number is none."""
        return cls(
            ResourcePatternFilter(
                _by_code(ResourceType, fields.resource_type_filter),
                fields.resource_name_filter,
                _by_code(PatternType, fields.pattern_type_filter),
            ),
            AccessControlEntryFilter(
                fields.principal_filter,
                fields.host_filter,
                _by_code(AclOperation, fields.operation),
                _by_code(AclPermissionType, fields.permission_type),
            ),
        )

    def fields(self) -> dict[str, Any]:
        """As a request has it."""
        return {
            "resource_type_filter": self.pattern.resource_type,
            "resource_name_filter": self.pattern.name,
            "pattern_type_filter": self.pattern.pattern_type,
            "principal_filter": self.entry.principal,
            "host_filter": self.entry.host,
            "operation": self.entry.operation,
            "permission_type": self.entry.permission_type,
        }

    def unknown_part(self) -> str | None:
        """What of it has a number that is none, as ``AclControlManager.validateFilter`` says it."""
        if not (self.pattern.resource_type and self.pattern.pattern_type):
            return "Unknown patternFilter."
        if not (self.entry.operation and self.entry.permission_type):
            return "Unknown entryFilter."
        return None


EntryKey = tuple[str | None, str | None, AclOperation, AclPermissionType]
"""As ``AccessControlEntryFilter``, which is equal to it."""


class _MatchedNames:
    """The names of filters of MATCH that are alike in all else, in order."""

    __slots__ = ("_names", "_places")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._places: list[int] = []

    def add(self, name: str, place: int) -> None:
        """The first place of a name counts."""
        at = bisect_left(self._names, name)
        if at == len(self._names) or self._names[at] != name:
            self._names.insert(at, name)
            self._places.insert(at, place)

    def first(self, pattern: ResourcePattern) -> int | None:
        """The first place of a name that the pattern says something about."""
        name = pattern.name
        if pattern.pattern_type is PatternType.PREFIXED:
            begin = bisect_left(self._names, name)
            end = bisect_right(self._names, name, lo=begin, key=lambda each: each[: len(name)])
            return min(self._places[begin:end], default=None)
        if name == WILDCARD:
            return min(self._places)
        at = bisect_left(self._names, name)
        return self._places[at] if at < len(self._names) and self._names[at] == name else None


class AclFilters:
    """Filters in the order in which they are added; a place is a filter's number in it, from 0."""

    def __init__(self) -> None:
        self._count = 0
        self._plain: dict[tuple[ResourceType, str | None, PatternType], dict[EntryKey, int]] = {}
        self._matching: dict[ResourceType, dict[EntryKey, _MatchedNames]] = {}

    def __repr__(self) -> str:
        return f"AclFilters({self._count})"

    def add(self, wanted: AclBindingFilter) -> None:
        """The next one."""
        place, self._count = self._count, self._count + 1
        resource_type, name, pattern_type = wanted.pattern
        if pattern_type is PatternType.MATCH and name is not None:
            names = self._matching.setdefault(resource_type, {})
            names.setdefault(wanted.entry, _MatchedNames()).add(name, place)
        else:
            self._plain.setdefault(wanted.pattern, {}).setdefault(wanted.entry, place)

    def first(self, pattern: ResourcePattern, entry: AccessControlEntry) -> int | None:
        """The place of the first filter that finds an ACL; None: there is no such filter."""
        keys = tuple(_keys(entry))
        places = []
        for pattern_key in product(
            (pattern.resource_type, ResourceType.ANY),
            (pattern.name, None),
            (pattern.pattern_type, PatternType.ANY, PatternType.MATCH),
        ):
            plain = self._plain.get(pattern_key)
            if plain is not None:
                places += [plain[key] for key in keys if key in plain]
        for resource_type in (pattern.resource_type, ResourceType.ANY):
            named = self._matching.get(resource_type)
            if named is not None:
                found = (named[key].first(pattern) for key in keys if key in named)
                places += [each for each in found if each is not None]
        return min(places, default=None)


def _keys(entry: AccessControlEntry) -> Iterator[EntryKey]:
    """All filters that find an entry."""
    return product(
        (entry.principal, None),
        (entry.host, None),
        (entry.operation, AclOperation.ANY),
        (entry.permission_type, AclPermissionType.ANY),
    )


class KafkaPrincipal(NamedTuple):
    """``type`` is ``User`` for all that log in. ``token_id``: of the delegation token that it logged in with;
    it makes no difference to what ACLs say."""

    type: str
    name: str
    token_id: str = ""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = KafkaPrincipal(USER, "ANONYMOUS")
"""Of a connection without authentication (``KafkaPrincipal.ANONYMOUS``)."""


def parse_principal(text: str) -> KafkaPrincipal:
    """``Type:name`` (``SecurityUtils.parseKafkaPrincipal``).

    Raises:
        ConfigError: it has no such form.
    """
    type_, separator, name = text.partition(":")
    if not separator or not type_:
        raise ConfigError(f"expected a string in format principalType:principalName but got {text}")
    return KafkaPrincipal(type_, name)


def parse_super_users(text: str) -> frozenset[KafkaPrincipal]:
    """``super.users``: ``User:NAME``, several with semicolons.

    Raises:
        ConfigError: an entry has no such form.
    """
    return frozenset(parse_principal(each.strip()) for each in text.split(";") if each.strip())
