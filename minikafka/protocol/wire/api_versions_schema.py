"""The schemas of ApiVersions, as data; a unit test holds them equal to kio's.

Kafka: ``ApiVersionsRequest.json``, ``ApiVersionsResponse.json``. The response header is version 0 always, so
that a client which is too new for the broker can read it (KIP-511).
"""

from __future__ import annotations

from typing import Any, Final

from minikafka.errors import InvariantError
from minikafka.protocol.wire.api_versions import FLEXIBLE_SINCE, SUPPORTED, ApiKey
from minikafka.protocol.wire.schema import REQUIRED, Direction, EntitySchema, FieldSchema, MessageSchema

VERSIONS: Final = range(SUPPORTED[ApiKey.API_VERSIONS].min, SUPPORTED[ApiKey.API_VERSIONS].max + 1)
_FLEXIBLE_SINCE: Final = FLEXIBLE_SINCE[ApiKey.API_VERSIONS]
_THROTTLE_TIME_SINCE: Final = 1


def message_schema(api_version: int, direction: Direction) -> MessageSchema:
    """The schema of ApiVersions in one version. Raises InvariantError: there is none."""
    if api_version not in VERSIONS:
        raise InvariantError(f"there is no schema for a {direction} of ApiVersions, version {api_version}")
    flexible = api_version >= _FLEXIBLE_SINCE
    if direction == "request":
        fields = (_field("client_software_name", "string"), _field("client_software_version", "string"))
        body = EntitySchema("ApiVersionsRequest", flexible, fields if flexible else ())
        return MessageSchema("ApiVersions", api_version, flexible, body)
    return MessageSchema("ApiVersions", api_version, False, _response(api_version, flexible=flexible))


def _response(api_version: int, *, flexible: bool) -> EntitySchema:
    def entities(name: str, *fields: FieldSchema) -> EntitySchema:
        return EntitySchema(name, flexible, fields)

    def range_of(what: FieldSchema, smaller: str, larger: str) -> tuple[FieldSchema, ...]:
        return what, _field(smaller, "int16"), _field(larger, "int16")

    api_key = range_of(_field("api_key", "int16"), "min_version", "max_version")
    fields = [
        _field("error_code", "error_code"),
        _array("api_keys", entities("ApiVersion", *api_key)),
    ]
    if api_version >= _THROTTLE_TIME_SINCE:
        fields.append(_field("throttle_time", "timedelta_i32"))
    if flexible:
        supported = range_of(_field("name", "string"), "min_version", "max_version")
        finalized = range_of(_field("name", "string"), "max_version_level", "min_version_level")
        fields += [
            _array("supported_features", entities("SupportedFeatureKey", *supported), tag=0),
            _field("finalized_features_epoch", "int64", tag=1, default=-1),
            _array("finalized_features", entities("FinalizedFeatureKey", *finalized), tag=2),
            _field("zk_migration_ready", "bool", tag=3, default=False),
        ]
    return EntitySchema("ApiVersionsResponse", flexible, tuple(fields))


def _field(name: str, kafka_type: str, *, tag: int | None = None, default: Any = REQUIRED) -> FieldSchema:
    return FieldSchema(name, kafka_type, None, is_array=False, nullable=False, tag=tag, default=default)


def _array(name: str, entity: EntitySchema, *, tag: int | None = None) -> FieldSchema:
    default = REQUIRED if tag is None else ()
    return FieldSchema(name, None, entity, is_array=True, nullable=False, tag=tag, default=default)
