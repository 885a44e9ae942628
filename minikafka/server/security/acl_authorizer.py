"""The authorizer: decides by the ACLs in the store, logs what it decides, counts.

Kafka: ``AclAuthorizer``, ``StandardAuthorizer`` with ``AuthorizerMetrics``. The rules are in
``security/authorizer_data``, the ACLs come from ``AclStore``.

The log ``kafka.authorizer.logger`` has a line for each decision, denials at INFO, others at DEBUG, with the
fields of ``StandardAuthorizerData``. What only finds out which operations are authorised is not logged; Kafka
does that at TRACE, which Python does not have.

Decisions are not cached: one takes about as long as a look-up of its five parts in a cache would. So there is
nothing here that could hold after its ACL has gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from minikafka.config.broker import BrokerConfig
from minikafka.errors import ConfigError
from minikafka.metrics.security_metrics import AuthorizerMetrics
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.security.acl import AUDIT_LOGGER, AclOperation, ResourceType, camel_case
from minikafka.security.authorizer_data import AuthorizerData, Decision
from minikafka.security.principal import USER, parse_super_users
from minikafka.server.security.acl_store import AclStore
from minikafka.server.security.authorizer import Asker

logger = logging.getLogger(__name__)
audit_logger = logging.getLogger(AUDIT_LOGGER)

CLASS_NAMES = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
"""Of ``authorizer.class.name``; one authorizer, which does as both do."""


def authorizer_data(config: BrokerConfig) -> AuthorizerData:
    """Of a broker with an authorizer, before any ACL is loaded.

    Raises:
        ConfigError: there is no such authorizer, or ``super.users`` has other than principals.
    """
    if config.authorizer_class_name.strip() not in CLASS_NAMES:
        raise ConfigError(
            f"authorizer.class.name={config.authorizer_class_name}: must be {' or '.join(CLASS_NAMES)}, "
            "or empty for none"
        )
    try:
        super_users = parse_super_users(config.super_users)
    except ConfigError as error:
        raise ConfigError(f"super.users={config.super_users}: {error}") from None
    for user in super_users:
        if f",{USER}:" in user.name.replace(" ", ""):  # a comma may be in a name, as in CN=alice,O=Example
            logger.warning("super.users has one user %s; several are separated by semicolons", user)
    return AuthorizerData(super_users, allows_everyone_if_no_acl_found=config.allow_everyone_if_no_acl_found)


class AclAuthorizer:
    """An ``Authorizer``."""

    def __init__(self, data: AuthorizerData, acls: AclStore, counts: AuthorizerMetrics) -> None:
        self._data = data
        self._acls = acls
        self._counts = counts

    def __repr__(self) -> str:
        return f"AclAuthorizer({self._data!r}, {self._counts!r})"

    def follow(self, changed: Callable[[], None]) -> None:
        """``changed`` is called after every change of the ACLs."""
        self._acls.follow(changed)

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
        decision = self._data.decide(str(asker.principal), asker.host, operation, resource_type, name)
        if decision.is_allowed:
            self._counts.allowed += 1
            if logs_allowed and audit_logger.isEnabledFor(logging.DEBUG):
                audit_logger.debug("%s", audit_line(asker, operation, resource_type, name, decision))
        else:
            self._counts.denied += 1
            if logs_denied and audit_logger.isEnabledFor(logging.INFO):
                audit_logger.info("%s", audit_line(asker, operation, resource_type, name, decision))
        return decision.is_allowed

    def is_allowed_on_any(self, asker: Asker, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether it is allowed on some resource of the type (``authorizeByResourceType``)."""
        is_allowed = self._data.is_allowed_on_any(str(asker.principal), asker.host, operation, resource_type)
        if is_allowed:
            self._counts.allowed += 1
        else:
            self._counts.denied += 1
        level = logging.DEBUG if is_allowed else logging.INFO
        if audit_logger.isEnabledFor(level):
            line = _line(asker, is_allowed, operation, resource_type, "UNKNOWN:NONE", references=0)
            audit_logger.log(level, "%s", line)
        return is_allowed


def audit_line(
    asker: Asker, operation: AclOperation, resource_type: ResourceType, name: str, decision: Decision
) -> str:
    """As ``StandardAuthorizerData.buildAuditMessage`` writes it."""
    line = _line(asker, decision.is_allowed, operation, resource_type, f"LITERAL:{name}", references=1)
    return f"{line} based on rule {_visible(str(decision))}"


def _line(
    asker: Asker,
    is_allowed: bool,
    operation: AclOperation,
    resource_type: ResourceType,
    resource: str,
    *,
    references: int,
) -> str:
    return (
        f"Principal = {_visible(str(asker.principal))} is {'Allowed' if is_allowed else 'Denied'} "
        f"operation = {operation.name} from host = {asker.host} "
        f"on resource = {camel_case(resource_type)}:{_visible(resource)} "
        f"for request = {camel_case(ApiKey(asker.api_key))} with resourceRefCount = {references}"
    )


def _visible(text: str) -> str:
    """Names of groups and users are whatever clients say: none of them may begin a line of its own."""
    return text if text.isprintable() else ascii(text)[1:-1]
