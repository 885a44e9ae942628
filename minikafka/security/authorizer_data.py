"""What the ACLs say about who may do what: the decision, and the rule that it comes from.

Kafka: ``AclAuthorizer`` (3.9) and ``StandardAuthorizerData``, which decide alike.

The rules: a super user may do anything. Else an ACL counts when its pattern matches the resource (literally,
by a prefix, or ``*``), its principal is the client's or ``User:*``, its host the client's or ``*``, and its
operation the one that is asked for, or ALL. One that denies decides; else one that allows; and of those that
allow, READ, WRITE, DELETE and ALTER are DESCRIBE too, ALTER_CONFIGS is DESCRIBE_CONFIGS. Nothing that matches
is a no, unless no ACL speaks of the resource at all and ``allow.everyone.if.no.acl.found`` is set.

How it is found: by type of resource and principal, then by name; prefixes by the lengths that there are of
them (``_Names``), then by host. So a decision costs a few dictionary look-ups, however many ACLs there are
about other resources and principals.

Invariant: ``replace`` changes all that is known of a pattern at once. There is no moment at which some of its
ACLs hold and others do not (CVE-2024-27309).
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, Generic, TypeVar

from minikafka.named_tuple import NamedTuple
from minikafka.security.acl import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    KafkaPrincipal,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from minikafka.steps import ELEMENTS_A_STEP, Steps

T = TypeVar("T")

Operations = int
"""A set of operations: the bit ``1 << operation`` for each."""


def _bits(*operations: AclOperation) -> Operations:
    return sum(1 << operation for operation in operations)


_DENYING: Final = {each: _bits(each) | _bits(AclOperation.ALL) for each in AclOperation}
"""What must be denied for an operation to be."""
_ALLOWING: Final = _DENYING | {
    AclOperation.DESCRIBE: _bits(
        AclOperation.ALL,
        AclOperation.DESCRIBE,
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    ),
    AclOperation.DESCRIBE_CONFIGS: _bits(
        AclOperation.ALL, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
    ),
}
"""What may be allowed for an operation to be."""


class Basis(Enum):
    """What a decision comes from. The values are ``StandardAuthorizerData``'s in the log."""

    ACL = "MatchingAcl"
    SUPER_USER = "SuperUser"
    NO_ACL_FOUND = "DefaultAllow"
    """``allow.everyone.if.no.acl.found``, and there is none about the resource."""
    DEFAULT = "DefaultDeny"


class Decision(NamedTuple):
    """``pattern`` and what follows belong to the ACL that decides, where one does."""

    is_allowed: bool
    basis: Basis
    pattern: ResourcePattern | None = None
    principal: str = ""
    host: str = ""
    operations: Operations = 0
    """Those of its ACLs that decide alike."""

    @property
    def binding(self) -> AclBinding | None:
        """The ACL that decides."""
        if self.pattern is None:
            return None
        operation = next(each for each in AclOperation if self.operations >> each & 1)
        permission = AclPermissionType.ALLOW if self.is_allowed else AclPermissionType.DENY
        return AclBinding(self.pattern, AccessControlEntry(self.principal, self.host, operation, permission))

    def __str__(self) -> str:
        """As ``StandardAuthorizerData`` logs the rule."""
        binding = self.binding
        if binding is None:
            return self.basis.value
        pattern, entry = binding
        return (
            f"{self.basis.value}(acl=StandardAcl(resourceType={pattern.resource_type.name}, "
            f"resourceName={pattern.name}, patternType={pattern.pattern_type.name}, "
            f"principal={entry.principal}, host={entry.host}, operation={entry.operation.name}, "
            f"permissionType={entry.permission_type.name}))"
        )


_SUPER_USER: Final = Decision(True, Basis.SUPER_USER)
_NO_ACL_FOUND: Final = Decision(True, Basis.NO_ACL_FOUND)
_DEFAULT: Final = Decision(False, Basis.DEFAULT)


class _Names(Generic[T]):
    """A value for each pattern of one type of resource, and which of them match a name."""

    __slots__ = ("_lengths", "_sorted_lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, T] = {}
        self.prefixed: dict[str, T] = {}
        self._lengths: Counter[int] = Counter()
        self._sorted_lengths: list[int] = []
        """Of the prefixes that there are, each once."""

    def __bool__(self) -> bool:
        return bool(self.literal or self.prefixed)

    def __iter__(self) -> Iterator[T]:
        yield from self.literal.values()
        yield from self.prefixed.values()

    def put(self, pattern: ResourcePattern, value: T) -> None:
        if pattern.pattern_type is PatternType.LITERAL:
            self.literal[pattern.name] = value
            return
        length = len(pattern.name)
        if pattern.name not in self.prefixed:
            if not self._lengths[length]:
                insort(self._sorted_lengths, length)
            self._lengths[length] += 1
        self.prefixed[pattern.name] = value

    def remove(self, pattern: ResourcePattern) -> None:
        """Where it is not there, nothing."""
        if pattern.pattern_type is PatternType.LITERAL:
            self.literal.pop(pattern.name, None)
        elif self.prefixed.pop(pattern.name, None) is not None:
            length = len(pattern.name)
            self._lengths[length] -= 1
            if not self._lengths[length]:
                del self._lengths[length]
                self._sorted_lengths.remove(length)

    def about(self, name: str) -> list[T]:
        """The values of the patterns that match a resource's name."""
        found = []
        literal = self.literal
        if name in literal:
            found.append(literal[name])
        if WILDCARD in literal and name != WILDCARD:
            found.append(literal[WILDCARD])
        if self._sorted_lengths:
            prefixed, name_length = self.prefixed, len(name)
            for length in self._sorted_lengths:
                if length > name_length:
                    break
                prefix = name[:length]
                if prefix in prefixed:
                    found.append(prefixed[prefix])
        return found


class _Grants:
    """What the ACLs of one pattern say about one principal, by host."""

    __slots__ = ("hosts", "pattern", "principal")

    def __init__(self, pattern: ResourcePattern, principal: str) -> None:
        self.pattern = pattern
        self.principal = principal
        self.hosts: dict[str, tuple[Operations, Operations]] = {}
        """→ what is denied, what is allowed."""

    def add(self, entry: AccessControlEntry) -> None:
        denied, allowed = self.hosts.get(entry.host, (0, 0))
        if entry.permission_type is AclPermissionType.DENY:
            denied |= _bits(entry.operation)
        elif entry.permission_type is AclPermissionType.ALLOW:
            allowed |= _bits(entry.operation)
        self.hosts[entry.host] = (denied, allowed)

    @property
    def denies_something(self) -> bool:
        return any(denied for denied, _ in self.hosts.values())

    def denies(self, host: str, operations: Operations) -> bool:
        return any(self.hosts.get(each, (0, 0))[0] & operations for each in (host, WILDCARD))

    def allows(self, host: str, operations: Operations) -> bool:
        return any(self.hosts.get(each, (0, 0))[1] & operations for each in (host, WILDCARD))


class _PrincipalGrants:
    """What the ACLs say about one principal and one type of resource."""

    __slots__ = ("denying", "names")

    def __init__(self) -> None:
        self.names: _Names[_Grants] = _Names()
        self.denying: dict[ResourcePattern, _Grants] = {}
        """Those of them that deny something, most often few."""

    def put(self, grants: _Grants) -> None:
        self.names.put(grants.pattern, grants)
        if grants.denies_something:
            self.denying[grants.pattern] = grants
        else:
            self.denying.pop(grants.pattern, None)

    def remove(self, pattern: ResourcePattern) -> None:
        self.names.remove(pattern)
        self.denying.pop(pattern, None)


class AuthorizerData:
    """See the module header."""

    def __init__(
        self, super_users: Iterable[KafkaPrincipal] = (), *, allows_everyone_if_no_acl_found: bool = False
    ) -> None:
        self._super_users = frozenset(str(each) for each in super_users)
        self._allows_everyone_if_no_acl_found = allows_everyone_if_no_acl_found
        self._acls: dict[ResourcePattern, frozenset[AccessControlEntry]] = {}
        self._by_type: dict[ResourceType, _Names[ResourcePattern]] = {}
        self._by_principal: dict[tuple[ResourceType, str], _PrincipalGrants] = {}
        self.acl_count = 0

    def __repr__(self) -> str:
        return f"AuthorizerData({self.acl_count} ACLs, super users: {sorted(self._super_users)})"

    # Deciding

    def decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> Decision:
        """Whether ``principal`` (``User:alice``) may do this to the resource of exactly this name."""
        if principal in self._super_users:
            return _SUPER_USER
        denying, allowing = _DENYING[operation], _ALLOWING[operation]
        allowed: Decision | None = None
        for whose in (principal, WILDCARD_PRINCIPAL):
            of_principal = self._by_principal.get((resource_type, whose))
            if of_principal is None:
                continue
            for grants in of_principal.names.about(name):
                for at in (host, WILDCARD):
                    found = grants.hosts.get(at)
                    if found is None:
                        continue
                    if found[0] & denying:
                        return Decision(False, Basis.ACL, grants.pattern, whose, at, found[0] & denying)
                    if allowed is None and found[1] & allowing:
                        allowed = Decision(True, Basis.ACL, grants.pattern, whose, at, found[1] & allowing)
        if allowed is not None:
            return allowed
        if self._allows_everyone_if_no_acl_found and not self._speaks_of(resource_type, name):
            return _NO_ACL_FOUND
        return _DEFAULT

    def _speaks_of(self, resource_type: ResourceType, name: str) -> bool:
        names = self._by_type.get(resource_type)
        return names is not None and bool(names.about(name))

    def is_allowed_on_any(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether ``principal`` may do this to some resource of the type, which need not exist: there is an
        ACL that allows it, and none that denies all that this one allows (``authorizeByResourceType``).

        As in Kafka no operation implies another one here.
        """
        if principal in self._super_users:
            return True
        operations = _DENYING[operation]
        known = [
            found
            for whose in (principal, WILDCARD_PRINCIPAL)
            if (found := self._by_principal.get((resource_type, whose))) is not None
        ]
        denied: _Names[ResourcePattern] = _Names()
        for of_principal in known:
            for pattern, grants in of_principal.denying.items():
                if grants.denies(host, operations):
                    denied.put(pattern, pattern)
        if WILDCARD in denied.literal:
            return False
        if self._allows_everyone_if_no_acl_found:
            return True
        return any(
            grants.allows(host, operations) and not _is_dominated(grants.pattern, denied)
            for of_principal in known
            for grants in of_principal.names
        )

    # The ACLs

    @property
    def patterns(self) -> list[ResourcePattern]:
        """All that there are ACLs for."""
        return list(self._acls)

    def of_pattern(self, pattern: ResourcePattern) -> frozenset[AccessControlEntry]:
        """The ACLs of a pattern."""
        return self._acls.get(pattern, frozenset())

    def matching(self, wanted: AclBindingFilter) -> Steps[list[AclBinding]]:
        """The ACLs that a filter finds, as they are when this begins."""
        exact = wanted.pattern.exact()
        some = [(each, self._acls[each]) for each in exact if each in self._acls]
        found: list[AclBinding] = []
        for count, (pattern, entries) in enumerate(some if exact else list(self._acls.items()), start=1):
            if wanted.pattern.matches(pattern):
                for entry_count, entry in enumerate(entries, start=1):
                    if wanted.entry.matches(entry):
                        found.append(AclBinding(pattern, entry))
                    if entry_count % ELEMENTS_A_STEP == 0:
                        yield
            if count % ELEMENTS_A_STEP == 0:
                yield
        return found

    def replace(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> bool:
        """``entries`` are all the ACLs of ``pattern`` from now on. Returns whether that is a change."""
        new, old = frozenset(entries), self._acls.get(pattern, frozenset())
        if new == old:
            return False
        grants: dict[str, _Grants] = {}
        for entry in new:
            if entry.principal not in grants:
                grants[entry.principal] = _Grants(pattern, entry.principal)
            grants[entry.principal].add(entry)
        for principal in {entry.principal for entry in old} - grants.keys():
            self._forget(pattern, principal)
        for principal, each in grants.items():
            self._by_principal.setdefault((pattern.resource_type, principal), _PrincipalGrants()).put(each)
        names = self._by_type.setdefault(pattern.resource_type, _Names())
        if new:
            self._acls[pattern] = new
            names.put(pattern, pattern)
        else:
            del self._acls[pattern]
            names.remove(pattern)
        self.acl_count += len(new) - len(old)
        return True

    def _forget(self, pattern: ResourcePattern, principal: str) -> None:
        key = (pattern.resource_type, principal)
        of_principal = self._by_principal[key]
        of_principal.remove(pattern)
        if not of_principal.names:
            del self._by_principal[key]


def _is_dominated(pattern: ResourcePattern, denied: _Names[ResourcePattern]) -> bool:
    """Whether all that an allowing pattern matches is denied; less than everything cannot deny everything."""
    if pattern.pattern_type is PatternType.PREFIXED:
        return any(each.pattern_type is PatternType.PREFIXED for each in denied.about(pattern.name))
    return pattern.name != WILDCARD and bool(denied.about(pattern.name))
