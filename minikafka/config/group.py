"""What can be set for one group. Kafka: ``GroupConfig``, ``GroupConfigManager`` (KIP-848, KIP-932,
KIP-1071).

A value that is set must lie within the bounds that the broker has for it, ``group.consumer.min.…`` and
``group.consumer.max.…``, for share groups ``group.share.…``; what is not set is the broker's
``group.consumer.…``, ``group.share.…`` or ``group.streams.…``. A value that was set within other bounds than
the broker has now stays as it is, and is described so; what holds is the nearest that the broker allows
(``within_bounds``).
"""

import re
from collections.abc import Container, Mapping
from typing import Annotated, Any, Literal

import msgspec

from minikafka.config.definition import INT_MAX, ConfigType, Importance, config_keys, parse_value, prop
from minikafka.errors import ConfigError, ErrorCode, KafkaError

BROKER_PREFIX = "group."
"""In front of a group's property: the name of the broker's property that gives its default."""
ASSIGNOR_NAME = "streams.assignor.name"
"""But of this one, see ``broker_synonym``."""

BOOLEAN, INT, STRING, MEDIUM = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.STRING, Importance.MEDIUM

STREAMS_ASSIGNORS = ("sticky",)
"""What ``group.streams.assignors`` may have."""
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"

_BOUNDED = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
    "streams.assignment.interval.ms",
)
"""Those that a broker has a default, a least and a highest value for, in the order in which Kafka checks:
``group.K.NAME``, ``group.K.min.NAME`` and ``group.K.max.NAME`` for K.NAME."""

_MOST = {
    "streams.num.standby.replicas": "group.streams.max.standby.replicas",
    "streams.num.warmup.replicas": "group.streams.max.warmup.replicas",
}
_LEAST = {"streams.task.offset.interval.ms": "group.streams.min.task.offset.interval.ms"}
"""Those that a broker has a default and one bound for."""
_OF_BROKER = (
    *_BOUNDED,
    "consumer.assignor.offload.enable",
    "share.assignor.offload.enable",
    "streams.assignor.offload.enable",
    *_MOST,
    *_LEAST,
    "streams.initial.rebalance.delay.ms",
    "streams.rack.aware.assignment.tags",
    "streams.acceptable.recovery.lag",
)
"""Those that a broker has a default for."""

GroupBounds = Any
"""The properties of a broker, or something that has those of ``_BOUNDED`` (``GroupCoordinatorConfig``,
``ShareGroupConfig``)."""

BY_DURATION = "by_duration:"
_DURATION = re.compile(
    r"\+?P(?=.)(?:(\d{1,9})D)?(?:T(?=.)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})(?:[.,](\d{0,9}))?S)?)?",
    re.IGNORECASE,
)


class GroupConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A field is the property's name with underscores for dots; the defaults are Kafka's."""

    consumer_session_timeout_ms: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "How long a member may be silent before it is removed from a group of the consumer protocol.",
            ge=1,
        ),
    ] = 45_000
    consumer_heartbeat_interval_ms: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "How often the members of a group of the consumer protocol are asked to send heartbeats.",
            ge=1,
        ),
    ] = 5_000
    consumer_assignment_interval_ms: Annotated[
        int,
        prop(
            ConfigType.INT,
            Importance.MEDIUM,
            "The least time between two assignments of a group of the consumer protocol: members that come "
            "or go meanwhile wait for the next one.",
            ge=0,
        ),
    ] = 0
    consumer_assignor_offload_enable: Annotated[
        bool,
        prop(
            BOOLEAN,
            MEDIUM,
            "Whether a thread works out large assignments of the group.",
        ),
    ] = True
    share_session_timeout_ms: Annotated[
        int,
        prop(INT, MEDIUM, "How long a member may be silent before it is removed from a share group.", ge=1),
    ] = 45_000
    share_heartbeat_interval_ms: Annotated[
        int, prop(INT, MEDIUM, "How often the members of a share group are asked to send heartbeats.", ge=1)
    ] = 5_000
    share_assignment_interval_ms: Annotated[
        int, prop(INT, MEDIUM, "The least time between two assignments of a share group.", ge=0)
    ] = 1_000
    share_assignor_offload_enable: Annotated[
        bool,
        prop(
            BOOLEAN,
            MEDIUM,
            "Whether a thread works out large assignments of the share group.",
        ),
    ] = True
    share_record_lock_duration_ms: Annotated[
        int,
        prop(INT, MEDIUM, "How long a member of a share group holds a record that it was given.", ge=1_000),
    ] = 30_000
    share_delivery_count_limit: Annotated[
        int, prop(INT, MEDIUM, "How often a record is delivered to a share group at most.", ge=2)
    ] = 5
    share_partition_max_record_locks: Annotated[
        int, prop(INT, MEDIUM, "The most records of a partition that a share group holds at once.", ge=100)
    ] = 2_000
    share_auto_offset_reset: Annotated[
        str,
        prop(
            STRING,
            MEDIUM,
            "Where a share group begins in a partition that it has not read: latest, earliest, or "
            "by_duration:D for what is not older than D, an ISO 8601 duration as PT1H.",
        ),
    ] = "latest"
    share_isolation_level: Annotated[
        Literal["read_committed", "read_uncommitted"],
        prop(STRING, MEDIUM, "Whether records of transactions are delivered before these are committed."),
    ] = "read_uncommitted"
    share_renew_acknowledge_enable: Annotated[
        bool, prop(BOOLEAN, MEDIUM, "Whether a member may renew its lock of a record that it was given.")
    ] = True
    errors_deadletterqueue_topic_name: Annotated[
        str,
        prop(
            STRING,
            MEDIUM,
            "The dead letter queue of a share group: the topic that gets what is rejected, or was delivered "
            "as often as the group allows; empty for none.",
        ),
    ] = ""
    errors_deadletterqueue_copy_record_enable: Annotated[
        bool,
        prop(
            BOOLEAN,
            MEDIUM,
            "Whether the dead letter queue gets keys and values of records, or only where they are.",
        ),
    ] = False
    streams_session_timeout_ms: Annotated[
        int,
        prop(INT, MEDIUM, "How long a member may be silent before it is removed from a streams group.", ge=1),
    ] = 45_000
    streams_heartbeat_interval_ms: Annotated[
        int, prop(INT, MEDIUM, "How often the members of a streams group are asked to send heartbeats.", ge=1)
    ] = 5_000
    streams_num_standby_replicas: Annotated[
        int, prop(INT, MEDIUM, "How many standbys each task of a streams group has.", ge=0)
    ] = 0
    streams_initial_rebalance_delay_ms: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "How long the first member of a streams group waits for others before tasks are assigned.",
            ge=0,
        ),
    ] = 3_000
    streams_assignment_interval_ms: Annotated[
        int, prop(INT, MEDIUM, "The least time between two assignments of a streams group.", ge=0)
    ] = 1_000
    streams_assignor_offload_enable: Annotated[
        bool,
        prop(
            BOOLEAN,
            MEDIUM,
            "Whether a thread works out large assignments of the streams group.",
        ),
    ] = True
    streams_assignor_name: Annotated[
        str,
        prop(
            STRING,
            MEDIUM,
            "The assignor of a streams group: one of group.streams.assignors, of which there is one.",
        ),
    ] = "sticky"
    streams_task_offset_interval_ms: Annotated[
        int,
        prop(
            INT, MEDIUM, "How often members of a streams group tell how far their tasks are restored.", ge=1
        ),
    ] = 60_000
    streams_num_warmup_replicas: Annotated[
        int, prop(INT, MEDIUM, "How many tasks of a streams group are warmed up at once at most.", ge=0)
    ] = 2
    streams_rack_aware_assignment_tags: Annotated[
        tuple[str, ...],
        prop(ConfigType.LIST, MEDIUM, "The client tags over whose values the standbys of a task are spread."),
    ] = ()
    streams_acceptable_recovery_lag: Annotated[
        int,
        prop(ConfigType.LONG, MEDIUM, "How many offsets a task may be behind to count as caught up.", ge=0),
    ] = 10_000


GROUP_CONFIG_KEYS = config_keys(GroupConfig)
"""Every property of a group by its name."""


def broker_synonym(name: str) -> str:
    """The broker's property that gives the default of a group's."""
    return "group.streams.assignors" if name == ASSIGNOR_NAME else BROKER_PREFIX + name


def group_config(bounds: GroupBounds, overrides: Mapping[str, str]) -> GroupConfig:
    """What holds for a group that sets ``overrides``, which were checked.

    Raises:
        ConfigError: an unknown name or a value that is not allowed.
    """
    values = {name.replace(".", "_"): _of_broker(bounds, name) for name in _OF_BROKER}
    return GroupConfig(**values | _parsed(overrides))


def check_group_overrides(bounds: GroupBounds, overrides: Mapping[str, str]) -> None:
    """What a client wants to set: each value within the broker's bounds, and together with the broker's where
    one is missing, as in Kafka since 4.3.

    Raises:
        KafkaError: INVALID_CONFIG, with Kafka's kind of message.
    """
    try:
        _check_bounds(bounds, group_config(bounds, overrides), overrides)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def within_bounds(
    bounds: GroupBounds, config: GroupConfig, overrides: Container[str]
) -> tuple[GroupConfig, list[str]]:
    """What holds for a group, and what is to be said of values that are not as they were set
    (``GroupConfig.evaluate``, KIP-1240): each of ``overrides`` is at least and at most what the broker allows
    now. A session that is no longer than the heartbeat interval holds, and is said, too."""
    held: dict[str, int] = {}
    said = []
    for name in (*_BOUNDED, *_LEAST, *_MOST):
        if name not in overrides:
            continue
        value = getattr(config, name.replace(".", "_"))
        low, high = _allowed(bounds, name)
        nearest = min(max(value, low), high)
        if nearest != value:
            held[name.replace(".", "_")] = nearest
            said.append(f"{name} is {value}, of which this broker allows {nearest}: that is what holds")
    config = msgspec.structs.replace(config, **held)
    for kind, session_ms, heartbeat_ms in _sessions(config):
        names = (f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms")
        if session_ms <= heartbeat_ms and any(name in overrides for name in names):
            said.append(f"{names[0]} ({session_ms}) is not greater than {names[1]} ({heartbeat_ms})")
    return config, said


def _allowed(bounds: GroupBounds, name: str) -> tuple[int, int]:
    """The least and the greatest value that the broker allows; where it has no such bound, of an integer."""
    if name in _LEAST:
        return getattr(bounds, _LEAST[name].replace(".", "_")), INT_MAX
    if name in _MOST:
        return 0, getattr(bounds, _MOST[name].replace(".", "_"))
    return _of_broker(bounds, name, "min_"), _of_broker(bounds, name, "max_")


def auto_offset_reset(text: str) -> tuple[str, int]:
    """The strategy (``latest``, ``earliest``, ``by_duration``) and, for the last, its milliseconds (Kafka:
    ``ShareGroupAutoOffsetResetStrategy``).

    Raises:
        ConfigError: none of these.
    """
    if text in ("latest", "earliest"):
        return text, 0
    found = _DURATION.fullmatch(text.removeprefix(BY_DURATION)) if text.startswith(BY_DURATION) else None
    if found is None:
        raise ConfigError(
            f"Invalid value {text} for configuration share.auto.offset.reset: the value must be either "
            "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS.>'."
        )
    days, hours, minutes, seconds, fraction = found.groups(default="0")
    whole = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    return "by_duration", whole * 1_000 + int(f"{fraction:<03}"[:3])


def _of_broker(bounds: GroupBounds, name: str, which: str = "") -> Any:
    kind, _, rest = name.partition(".")
    return getattr(bounds, f"group_{kind}_{which}{rest.replace('.', '_')}")


def _parsed(overrides: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for name, text in overrides.items():
        key = GROUP_CONFIG_KEYS.get(name)
        if key is None:
            raise ConfigError(f"Unknown group config name: {name}")
        values[key.attribute] = parse_value(key, text)
    _check_assignor(values.get("streams_assignor_name", STREAMS_ASSIGNORS[0]))
    auto_offset_reset(values.get("share_auto_offset_reset", "latest"))
    if values.get(DEAD_LETTER_TOPIC.replace(".", "_"), "").startswith("__"):
        raise ConfigError(f"{DEAD_LETTER_TOPIC}: DLQ topic name must not start with '__'")
    return values


def _check_assignor(name: str) -> None:
    """Raises ConfigError."""
    if name not in STREAMS_ASSIGNORS:
        raise ConfigError(
            f"{ASSIGNOR_NAME} '{name}' is not a registered task assignor. Registered assignors are: "
            f"[{', '.join(STREAMS_ASSIGNORS)}]."
        )


def _check_bounds(bounds: GroupBounds, config: GroupConfig, overrides: Container[str]) -> None:
    for name in _BOUNDED:
        if name not in overrides:
            continue
        kind, _, rest = name.partition(".")
        value = getattr(config, name.replace(".", "_"))
        low, high = _of_broker(bounds, name, "min_"), _of_broker(bounds, name, "max_")
        if value < low:
            raise ConfigError(f"{name} must be greater than or equal to group.{kind}.min.{rest} ({low})")
        if value > high:
            raise ConfigError(f"{name} must be less than or equal to group.{kind}.max.{rest} ({high})")
    for bound_names, is_least in ((_LEAST, True), (_MOST, False)):
        for name, bound_name in bound_names.items():
            value = getattr(config, name.replace(".", "_"))
            bound = getattr(bounds, bound_name.replace(".", "_"))
            if name in overrides and (value < bound if is_least else value > bound):
                than = "greater" if is_least else "less"
                raise ConfigError(f"{name} must be {than} than or equal to {bound_name} ({bound})")
    for kind, session_ms, heartbeat_ms in _sessions(config):
        if session_ms <= heartbeat_ms:
            raise ConfigError(f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms")


def _sessions(config: GroupConfig) -> tuple[tuple[str, int, int], ...]:
    """Kind of group, session timeout and heartbeat interval."""
    return (
        ("consumer", config.consumer_session_timeout_ms, config.consumer_heartbeat_interval_ms),
        ("share", config.share_session_timeout_ms, config.share_heartbeat_interval_ms),
        ("streams", config.streams_session_timeout_ms, config.streams_heartbeat_interval_ms),
    )
