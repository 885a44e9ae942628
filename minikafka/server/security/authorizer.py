"""Who decides what a client may do. Kafka: ``Authorizer``, ``AuthHelper``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from minikafka.named_tuple import NamedTuple
from minikafka.security.acl import AclOperation, KafkaPrincipal, ResourceType


class Asker(NamedTuple):
    """Who asks, and by which request; the latter is for the authorizer's log."""

    principal: KafkaPrincipal
    host: str
    """The peer's address."""
    listener_name: str
    api_key: int
    client_id: str | None = None


class Authorizer(Protocol):
    """What a decision costs does not grow with the number of ACLs about other resources."""

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
        """Whether the operation is allowed on the resource of exactly this name."""
        ...

    def is_allowed_on_any(self, asker: Asker, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether it is allowed on some resource of the type (``authorizeByResourceType``)."""
        ...

    def follow(self, changed: Callable[[], None]) -> None:
        """``changed`` is called whenever decisions may become others."""
        ...
