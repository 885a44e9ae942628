"""Many filters of ACLs at once, and which of them is the first to find an ACL.

Kafka: the loops in ``AclAuthorizer.deleteAcls``, which try every filter on every ACL. Here filters are looked
up by what they ask for: of each part of an ACL a filter asks for one value or for any, so those that find an
ACL are among a few that can be listed. Thousands of filters cost about as much as one.

A filter of MATCH with a name asks for more than one value; those are found by the order of their names, in
which all that begin with a prefix stand together.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import product

from minikafka.security.acl import (
    WILDCARD,
    AccessControlEntry,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)

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
