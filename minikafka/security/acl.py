"""What an access control list consists of, with the numbers of Kafka's protocol.

Kafka: ``AclBinding``, ``AclOperation``, ``AclPermissionType``, ``PatternType``, ``ResourceType``,
``AclEntry``, ``AclBindingFilter``. Texts are Kafka's: its tools print them, and ours too.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple, TypeVar

E = TypeVar("E", bound=IntEnum)


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


WILDCARD = "*"
"""Every name, every host; ``User:*`` is every principal."""
WILDCARD_PRINCIPAL = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER (``Resource.CLUSTER_NAME``)."""
AUDIT_LOGGER = "kafka.authorizer.logger"
"""Where decisions are logged, as in Kafka."""


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
