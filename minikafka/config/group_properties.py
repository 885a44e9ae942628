"""The broker properties of the group coordinator and of its topic. Kafka: ``GroupCoordinatorConfig``.

None of them changes while the broker runs, as in Kafka. ``group.consumer.session.timeout.ms`` and
``group.consumer.heartbeat.interval.ms`` are what a group has that sets nothing itself; their bounds hold for
groups that do.

Where it differs from Kafka: ``group.max.member.metadata.bytes`` and ``group.max.memory.bytes`` are ours. The
first is as much as a record of the group may have (``max.message.bytes``), in which the metadata has to fit
anyway. ``offsets.topic.replication.factor`` is 3 at most, not 3, unless it is set (see
``server.coordinator.topic``); assignors are chosen by name, because there is no class to load.
"""

from typing import Annotated, Literal

from minikafka.config.coordination_properties import CoordinationProperties
from minikafka.config.definition import INT_MAX, SHORT_MAX, ConfigType, Importance, prop
from minikafka.errors import ConfigError

SHORT, INT, LONG = ConfigType.SHORT, ConfigType.INT, ConfigType.LONG
STRING, LIST = ConfigType.STRING, ConfigType.LIST
HIGH, MEDIUM = Importance.HIGH, Importance.MEDIUM


class GroupProperties(CoordinationProperties, frozen=True, kw_only=True):
    """A field is the property's name with underscores for dots."""

    group_min_session_timeout_ms: Annotated[
        int, prop(INT, MEDIUM, "The shortest session that a member of a classic group may ask for.")
    ] = 6_000
    group_max_session_timeout_ms: Annotated[
        int, prop(INT, MEDIUM, "The longest session that a member of a classic group may ask for.")
    ] = 1_800_000
    group_initial_rebalance_delay_ms: Annotated[
        int, prop(INT, MEDIUM, "How long an empty classic group waits for more members than the first.")
    ] = 3_000
    group_max_size: Annotated[int, prop(INT, MEDIUM, "The most members of a classic group.", ge=1)] = INT_MAX
    group_max_member_metadata_bytes: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "Bytes that a member of a group may tell about itself: its protocols' metadata, or its topics. "
            "Kafka has no such limit.",
            ge=1,
        ),
    ] = 1024 * 1024
    group_max_memory_bytes: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "Bytes that all groups of this broker may take; a new member gets a sixteenth of what is left "
            "at most. Kafka has no such limit.",
            ge=1,
        ),
    ] = 256 * 1024 * 1024
    group_consumer_session_timeout_ms: Annotated[
        int, prop(INT, MEDIUM, "How long a consumer group waits for a member's heartbeat.", ge=1)
    ] = 45_000
    group_consumer_min_session_timeout_ms: Annotated[
        int, prop(INT, MEDIUM, "The shortest session that a consumer group may have.", ge=1)
    ] = 45_000
    group_consumer_max_session_timeout_ms: Annotated[
        int, prop(INT, MEDIUM, "The longest session that a consumer group may have.", ge=1)
    ] = 60_000
    group_consumer_heartbeat_interval_ms: Annotated[
        int, prop(INT, MEDIUM, "How often members of a consumer group are told to be heard of.", ge=1)
    ] = 5_000
    group_consumer_min_heartbeat_interval_ms: Annotated[
        int, prop(INT, MEDIUM, "The shortest heartbeat interval that a consumer group may have.", ge=1)
    ] = 5_000
    group_consumer_max_heartbeat_interval_ms: Annotated[
        int, prop(INT, MEDIUM, "The longest heartbeat interval that a consumer group may have.", ge=1)
    ] = 15_000
    group_consumer_max_size: Annotated[
        int, prop(INT, MEDIUM, "The most members of a consumer group.", ge=1)
    ] = INT_MAX
    group_consumer_assignors: Annotated[
        tuple[Literal["uniform", "range"], ...],
        prop(LIST, MEDIUM, "Who may assign partitions in consumer groups; the first one is the default."),
    ] = ("uniform", "range")
    group_consumer_migration_policy: Annotated[
        Literal["disabled", "upgrade", "downgrade", "bidirectional"],
        prop(
            STRING,
            MEDIUM,
            "Which way a group may change its protocol: a classic group becomes a consumer group (upgrade), "
            "a consumer group becomes a classic group (downgrade), both, or neither.",
        ),
    ] = "bidirectional"
    offset_metadata_max_bytes: Annotated[
        int, prop(INT, HIGH, "The most bytes of text that a client may commit with an offset.", ge=0)
    ] = 4096
    offsets_load_buffer_size: Annotated[
        int, prop(INT, HIGH, "How many bytes of the offsets topic are read at once to load groups.", ge=1)
    ] = 5 * 1024 * 1024
    offsets_commit_timeout_ms: Annotated[
        int, prop(INT, HIGH, "How long a group's records may take to reach all in-sync replicas.", ge=1)
    ] = 5_000
    offsets_retention_minutes: Annotated[
        int, prop(INT, HIGH, "How long committed offsets are kept that nobody uses.", ge=1)
    ] = 7 * 24 * 60
    offsets_retention_check_interval_ms: Annotated[
        int, prop(LONG, HIGH, "How often offsets are looked for whose retention is over.", ge=1)
    ] = 600_000
    offsets_topic_num_partitions: Annotated[
        int, prop(INT, HIGH, "Partitions of the offsets topic when it is made.", ge=1)
    ] = 50
    offsets_topic_replication_factor: Annotated[
        int,
        prop(
            SHORT,
            HIGH,
            "Replicas of the offsets topic. When it is set, groups wait until so many brokers are there; "
            "unset: 3, or as many as there are when the topic is made.",
            ge=1,
            le=SHORT_MAX,
        ),
    ] = 3
    offsets_topic_segment_bytes: Annotated[
        int, prop(INT, HIGH, "The segment size of the offsets topic when it is made.", ge=1)
    ] = 100 * 1024 * 1024
    offsets_topic_compression_codec: Annotated[
        int,
        prop(
            INT, HIGH, "The codec of the offsets topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.", ge=0, le=4
        ),
    ] = 0


def check_groups(config: GroupProperties) -> None:
    """What must hold between properties.

    Raises:
        ConfigError: bounds that leave nothing, a default beyond its bounds, no assignor or one twice.
    """
    _check_bounds(
        "group.consumer.session.timeout.ms",
        config.group_consumer_session_timeout_ms,
        at_least=config.group_consumer_min_session_timeout_ms,
        at_most=config.group_consumer_max_session_timeout_ms,
    )
    _check_bounds(
        "group.consumer.heartbeat.interval.ms",
        config.group_consumer_heartbeat_interval_ms,
        at_least=config.group_consumer_min_heartbeat_interval_ms,
        at_most=config.group_consumer_max_heartbeat_interval_ms,
    )
    session_ms, heartbeat_ms = (
        config.group_consumer_session_timeout_ms,
        config.group_consumer_heartbeat_interval_ms,
    )
    if heartbeat_ms >= session_ms:
        raise ConfigError(
            f"Invalid value {heartbeat_ms} for configuration group.consumer.heartbeat.interval.ms: must be "
            f"less than group.consumer.session.timeout.ms ({session_ms})"
        )
    low, high = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if low > high:
        raise ConfigError(
            f"Invalid value {high} for configuration group.max.session.timeout.ms: must be at least "
            f"group.min.session.timeout.ms ({low})"
        )
    assignors = config.group_consumer_assignors
    if not assignors or len(set(assignors)) != len(assignors):
        raise ConfigError(
            f"Invalid value {','.join(assignors)} for configuration group.consumer.assignors: must name each "
            "assignor once, and at least one"
        )


def _check_bounds(name: str, value: int, *, at_least: int, at_most: int) -> None:
    prefix = "group.consumer."
    rest = name.removeprefix(prefix)
    if not at_least <= value <= at_most:
        raise ConfigError(
            f"Invalid value {value} for configuration {name}: must be at least {prefix}min.{rest} "
            f"({at_least}) and at most {prefix}max.{rest} ({at_most})"
        )
