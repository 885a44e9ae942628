"""An authorizer that allows what a test names, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.security.authorizer import Asker


class Right(NamedTuple):
    """To do one thing to one resource."""

    operation: AclOperation
    resource_type: ResourceType
    name: str


class FakeAuthorizer:
    """Of every principal alike; there are no implied operations and no wildcards."""

    def __init__(self) -> None:
        self._allowed: frozenset[Right] | None = frozenset()
        self.denied: frozenset[Right] = frozenset()
        self._followers: list[Callable[[], None]] = []
        self.asked: list[Right] = []
        self.logged_denials: list[Right] = []
        """Those that would be in the authorizer's log."""

    def allow(self, *allowed: Right) -> None:
        """This, and nothing else, from now on."""
        self._allowed = frozenset(allowed)
        self._change()

    def allow_all_but(self, *denied: Right) -> None:
        """From now on."""
        self._allowed, self.denied = None, frozenset(denied)
        self._change()

    def _change(self) -> None:
        self.asked.clear()
        self.logged_denials.clear()
        for changed in self._followers:
            changed()

    def is_allowed(
        self,
        asker: Asker,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        logs_allowed: bool = True,
        logs_denied: bool = True,
    ) -> bool:
        right = Right(operation, resource_type, name)
        self.asked.append(right)
        is_allowed = right not in self.denied if self._allowed is None else right in self._allowed
        if logs_denied and not is_allowed:
            self.logged_denials.append(right)
        return is_allowed

    def is_allowed_on_any(self, asker: Asker, operation: AclOperation, resource_type: ResourceType) -> bool:
        if self._allowed is None:
            return True
        return any(each[:2] == (operation, resource_type) for each in self._allowed)

    def follow(self, changed: Callable[[], None]) -> None:
        self._followers.append(changed)
