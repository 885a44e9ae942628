"""The fields of every message, in the form that ``reading`` and ``writing`` compile from.

They are kio's (``kio_schema``), but for those of ApiVersions (``api_versions_schema``): every client asks for
it first, and a broker that has just started would have to import kio for its answer, 20 ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from minikafka.deferred import deferred
from minikafka.protocol.wire.api_versions import ApiKey

if TYPE_CHECKING:
    from minikafka.protocol.wire import api_versions_schema, kio_schema
else:
    api_versions_schema = deferred("minikafka.protocol.wire.api_versions_schema")
    kio_schema = deferred("minikafka.protocol.wire.kio_schema")

Direction = Literal["request", "response"]

REQUIRED: Final = object()
"""The default of a field that has none."""


class FieldSchema(NamedTuple):
    """One field of one entity in one version. ``kafka_type`` is kio's name of the type; None for an
    entity."""

    name: str
    kafka_type: str | None
    entity: EntitySchema | None
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any
    """In wire terms: milliseconds, ints, dicts. ``REQUIRED`` when there is none."""


class EntitySchema(NamedTuple):
    """A message, or a structure inside one."""

    name: str
    flexible: bool
    fields: tuple[FieldSchema, ...]
    """Untagged fields in wire order, then tagged ones by tag."""


class MessageSchema(NamedTuple):
    """A request or response with what its header needs."""

    api_name: str
    api_version: int
    header_flexible: bool
    body: EntitySchema


@cache
def message_schema(api_key: int, api_version: int, direction: Direction) -> MessageSchema:
    """The schema of one message.

    Raises:
        InvariantError: there is no such API or version; callers check against ``ANSWERED`` first.
    """
    if api_key == ApiKey.API_VERSIONS:
        return api_versions_schema.message_schema(api_version, direction)
    return kio_schema.message_schema(api_key, api_version, direction)


def names_by_version(api_key: int, direction: Direction, path: tuple[str, ...]) -> Iterator[frozenset[str]]:
    """The field names of the entity at ``path`` in the versions of the API, the newest first. Each version is
    imported when it is its turn."""
    versions = (
        api_versions_schema.VERSIONS if api_key == ApiKey.API_VERSIONS else kio_schema.versions(api_key)
    )
    for api_version in reversed(versions):
        entity: EntitySchema | None = message_schema(api_key, api_version, direction).body
        for step in path:
            fields = {field.name: field for field in entity.fields} if entity else {}
            entity = fields[step].entity if step in fields else None
        if entity is not None:
            yield frozenset(field.name for field in entity.fields)
