"""Where client quotas lie in the store. Kafka: ``ConfigEntity.fullSanitizedName``, ``Sanitizer``.

``/config/users/<user>``, ``/config/clients/<client id>`` and ``/config/users/<user>/clients/<client id>``,
with names escaped and ``<default>`` for the default; an escaped name cannot be that.
"""

from __future__ import annotations

from minikafka.config.client_quotas import DEFAULT, Name, QuotaEntity
from minikafka.coordination.paths import CONFIGS, DEFAULT_ENTITY, named_config, sanitize

USERS = "users"
CLIENTS = "clients"
USER_CONFIGS = f"{CONFIGS}/{USERS}"
CLIENT_CONFIGS = f"{CONFIGS}/{CLIENTS}"


def client_quota_path(entity: QuotaEntity) -> str:
    """The node that an entity's quotas are in."""
    if entity.user is None:
        return f"{CLIENT_CONFIGS}/{_node(entity.client_id)}"
    if entity.client_id is None:
        return f"{USER_CONFIGS}/{_node(entity.user)}"
    return f"{user_clients_path(_node(entity.user))}/{_node(entity.client_id)}"


def user_clients_path(user_node: str) -> str:
    """Where the clients of a user lie."""
    return f"{USER_CONFIGS}/{user_node}/{CLIENTS}"


def quota_entity_at(entity_path: str) -> QuotaEntity | None:
    """Whose quotas are at ``/config/<entity_path>``; None: that is no such place."""
    match entity_path.split("/"):
        case ["users", user]:
            return QuotaEntity(_name(user))
        case ["clients", client_id]:
            return QuotaEntity(None, _name(client_id))
        case ["users", user, "clients", client_id]:
            return QuotaEntity(_name(user), _name(client_id))
    return None


def _node(name: Name | None) -> str:
    return sanitize(name) if isinstance(name, str) else DEFAULT_ENTITY


def _name(node: str) -> Name:
    return DEFAULT if node == DEFAULT_ENTITY else named_config(node)
