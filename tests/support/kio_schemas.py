"""What kio has of Kafka's messages: dataclasses by api key, version and direction. It is the tests' second
opinion."""

from __future__ import annotations

import importlib
from typing import Any

from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from minikafka.protocol.wire.schema import Direction

OTHERWISE_NAMED = {  # in Kafka 4.4, and in kio
    "generation_id_or_member_epoch": "generation_id",
    "acceptable_recovery_lag_legacy": "acceptable_recovery_lag",
}


def kio_versions(api_key: int) -> list[int]:
    return sorted(schema_name_map[api_key_map[api_key]]) if api_key in api_key_map else []


def kio_class(api_key: int, version: int, direction: Direction) -> Any:
    path = schema_name_map[api_key_map[api_key]][version][EntityType[direction]]  # type: ignore[index]
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
