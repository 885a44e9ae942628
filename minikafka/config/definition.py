"""What a configuration property is: its name, type, bounds, default, documentation, and how its text is read.

Kafka: ``ConfigDef``, ``ConfigDef.ConfigKey``, ``DescribeConfigsResponse``. A property is declared once, as a
field of a msgspec struct (``TopicConfig``, ``BrokerConfig``); ``prop`` puts the rest of what is known into
the field's annotation, and ``config_keys`` reads it back as ``ConfigKey`` objects:

    num_partitions: Annotated[int, prop(ConfigType.INT, Importance.MEDIUM, "…", ge=1)] = 1

Modules that declare properties do without ``from __future__ import annotations``: as texts the annotations
would be compiled twice at every start, which is most of what importing them costs.

The property's name is the field's name with dots for underscores. msgspec checks bounds and allowed values;
messages follow Kafka's wording, because admin clients show them to people who know it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from enum import Enum, IntEnum
from inspect import get_annotations
from typing import Any, get_args

import msgspec

from minikafka.errors import ConfigError

HIDDEN = "[hidden]"
"""What stands for a password wherever a configuration is shown (Kafka: ``Password.HIDDEN``)."""

SHORT_MAX = 2**15 - 1
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class ConfigType(IntEnum):
    """Type of a property; the numbers are DescribeConfigs' (Kafka: ``ConfigType``)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are DescribeConfigs' (Kafka: ``ConfigSource``)."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class Importance(Enum):
    """How much a property matters to most people (``ConfigDef.Importance``)."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class UpdateMode(Enum):
    """Whether a broker property can change while the broker runs, under Kafka's names for it (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Synonym(msgspec.Struct, frozen=True):
    """A broker property that gives a topic property its default (``ConfigSynonym``)."""

    name: str
    multiplier: int = 1
    """The broker value times this is the topic value (hours or minutes to milliseconds)."""


class ConfigKey(msgspec.Struct, frozen=True, kw_only=True):
    """One property, as ``ConfigDef.ConfigKey``."""

    name: str
    attribute: str
    """The struct field that holds the value."""
    type: ConfigType
    default: Any
    importance: Importance
    documentation: str
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    synonyms: tuple[Synonym, ...] = ()
    ge: int | float | None = None
    le: int | float | None = None
    choices: tuple[str, ...] = ()
    annotation: Any = None
    """What msgspec checks a value against."""

    @property
    def nullable(self) -> bool:
        """Whether the property may be unset."""
        return self.default is None

    def allowed(self) -> str:
        """The allowed values in Kafka's words (``[0,...]``, ``[CreateTime, LogAppendTime]``), or ``""``."""
        low, high = _TYPE_BOUNDS.get(self.type, (None, None))
        lower = None if self.ge == low else self.ge
        upper = None if self.le == high else self.le
        if self.choices:
            return f"[{', '.join(self.choices)}]"
        if lower is None and upper is None:
            return ""
        return f"[{'...' if lower is None else lower},{'...' if upper is None else upper}]"


_TYPE_BOUNDS: dict[ConfigType, tuple[int, int]] = {
    ConfigType.SHORT: (-SHORT_MAX - 1, SHORT_MAX),
    ConfigType.INT: (-INT_MAX - 1, INT_MAX),
    ConfigType.LONG: (-LONG_MAX - 1, LONG_MAX),
}


class _PropertyInfo(msgspec.Struct, frozen=True):
    type: ConfigType
    importance: Importance
    update_mode: UpdateMode
    synonyms: tuple[Synonym, ...]


def prop(
    type: ConfigType,
    importance: Importance,
    documentation: str,
    *,
    ge: int | float | None = None,
    le: int | float | None = None,
    update: UpdateMode = UpdateMode.READ_ONLY,
    synonyms: tuple[Synonym, ...] = (),
) -> msgspec.Meta:
    """What a struct field's annotation says about its property. ``ge`` and ``le`` are inclusive bounds."""
    low, high = _TYPE_BOUNDS.get(type, (None, None))
    return msgspec.Meta(
        ge=low if ge is None else ge,
        le=high if le is None else le,
        description=documentation,
        extra={"info": _PropertyInfo(type, importance, update, synonyms)},
    )


_TYPES_OF_TEXT = frozenset({ConfigType.STRING, ConfigType.LIST, ConfigType.CLASS, ConfigType.PASSWORD})


def config_keys(struct: type[msgspec.Struct]) -> dict[str, ConfigKey]:
    """The properties that ``struct`` declares, by name, sorted. Fields without ``prop`` are left out."""
    annotations: dict[str, Any] = {}
    for declaring in struct.__mro__[::-1]:  # ``msgspec.structs.fields`` evaluates each again, 4 ms of a start
        annotations |= get_annotations(declaring)
    fields, defaults = struct.__struct_fields__, struct.__struct_defaults__
    default_of = dict(zip(fields[len(fields) - len(defaults) :], defaults, strict=True))
    keys = {}
    for attribute in fields:
        annotation = annotations[attribute]
        meta = _meta(annotation)
        if meta is None or not meta.extra:
            continue
        info: _PropertyInfo = meta.extra["info"]
        name = attribute.replace("_", ".")
        keys[name] = ConfigKey(
            name=name,
            attribute=attribute,
            type=info.type,
            default=default_of.get(attribute, msgspec.NODEFAULT),
            importance=info.importance,
            documentation=meta.description or "",
            update_mode=info.update_mode,
            synonyms=info.synonyms,
            ge=meta.ge,
            le=meta.le,
            choices=_literals(annotation) if info.type in _TYPES_OF_TEXT else (),
            annotation=annotation,
        )
    return dict(sorted(keys.items()))


def _meta(annotation: Any) -> msgspec.Meta | None:
    """The ``Meta`` of ``Annotated[X, meta]`` or of ``Annotated[X, meta] | None``."""
    for candidate in (annotation, *get_args(annotation)):
        for meta in getattr(candidate, "__metadata__", ()):
            if isinstance(meta, msgspec.Meta):
                return meta
    return None


def _literals(annotation: Any) -> tuple[str, ...]:
    """The strings of every ``Literal`` within ``annotation``."""
    found: list[str] = []
    for argument in get_args(annotation):
        if isinstance(argument, str):
            found.append(argument)
        elif not isinstance(argument, msgspec.Meta):
            found.extend(_literals(argument))
    return tuple(found)


_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DOUBLE = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
"""Each digit can belong to one place only: else 32 KB of digits are tried in all ways, for minutes."""
_TYPE_NAMES = {
    ConfigType.SHORT: "SHORT",
    ConfigType.INT: "INT",
    ConfigType.LONG: "LONG",
    ConfigType.DOUBLE: "DOUBLE",
}
_DIGITS_MAX = 19
"""Digits of the longest 64-bit number: longer texts are refused unread (``int`` has a limit of its own)."""


def parse_value(key: ConfigKey, text: str) -> Any:
    """``text`` as the value of ``key``, read as Kafka reads it (``ConfigDef.parseType``) and checked.

    Raises:
        ConfigError: not of the type, or out of bounds; names the property, the value and what is allowed.
    """
    trimmed = text.strip()
    value: Any
    match key.type:
        case ConfigType.BOOLEAN:
            value = {"true": True, "false": False}.get(trimmed.lower())
            if value is None:
                raise _invalid(key, text, "Expected value to be either true or false")
        case ConfigType.INT | ConfigType.LONG | ConfigType.SHORT:
            digits = trimmed.lstrip("+-0")
            if not _INTEGER.fullmatch(trimmed) or len(digits) > _DIGITS_MAX:
                raise _invalid(key, text, f"Not a number of type {_TYPE_NAMES[key.type]}")
            value = int(digits or "0") * (-1 if trimmed[0] == "-" else 1)
            low, high = _TYPE_BOUNDS[key.type]
            if not low <= value <= high:
                raise _invalid(key, text, f"Not a number of type {_TYPE_NAMES[key.type]}")
        case ConfigType.DOUBLE:
            if not _DOUBLE.fullmatch(trimmed) or not math.isfinite(float(trimmed)):
                raise _invalid(key, text, "Not a number of type DOUBLE")
            value = float(trimmed)
        case ConfigType.LIST:
            value = tuple(item.strip() for item in trimmed.split(",")) if trimmed else ()
        case _:
            value = trimmed
    return check_value(key, value)


def check_value(key: ConfigKey, value: Any) -> Any:
    """``value`` when its type, bounds and choices allow it.

    Raises:
        ConfigError: names the property, the value and what is allowed.
    """
    try:
        return msgspec.convert(value, key.annotation)
    except msgspec.ValidationError:
        raise _invalid(key, format_value(key, value), _why_not(key, value)) from None


def _why_not(key: ConfigKey, value: Any) -> str:
    if key.choices:
        return f"String must be one of: {', '.join(key.choices)}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        if key.ge is not None and value < key.ge:
            return f"Value must be at least {key.ge}"
        if key.le is not None and value > key.le:
            return f"Value must be no more than {key.le}"
    return f"Expected a value of type {key.type.name}"


def _invalid(key: ConfigKey, value: object, why: str) -> ConfigError:
    if key.type is ConfigType.PASSWORD:
        value = HIDDEN
    allowed = key.allowed()
    within = f" (allowed: {allowed})" if allowed and not key.choices else ""
    return ConfigError(f"Invalid value {value} for configuration {key.name}: {why}{within}")


def format_value(key: ConfigKey, value: Any) -> str | None:
    """``value`` as Kafka shows it (``ConfigDef.convertToString``); ``None`` for an unset value."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    return str(value)


def effective_synonym(synonyms: tuple[Synonym, ...], values: Mapping[str, Any]) -> Any:
    """The topic value that the first synonym with a value gives; numbers in the topic property's unit."""
    for synonym in synonyms:
        value = values.get(synonym.name)
        if value is not None:
            return value * synonym.multiplier if synonym.multiplier != 1 else value
    return None
