"""When retention will cut a partition: Kafka's rules, applied to the segments that are there.

Kafka: ``UnifiedLog.deleteOldSegments``. By time the oldest segment goes when its greatest timestamp is more
than retention.ms ago, and the next one after it; by size, as long as what remains is at least
retention.bytes. Nothing at or above the high watermark goes, and only where cleanup.policy has delete.

A log directory does not hold the configuration of its topics, so the values are given, each with its source.
Where a segment has no timestamp Kafka takes the time of the file, which nobody knows here: what is behind it
stays unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from minikafka.config.broker import BrokerConfig
from minikafka.config.definition import format_value
from minikafka.config.resolution import topic_config
from minikafka.config.topic import TOPIC_CONFIG_KEYS
from minikafka.spark.analyze.analysis import Retention, Setting

SHOWN = ("cleanup.policy", "retention.ms", "retention.bytes")
DEFAULT = "Kafka's default"


class SegmentFigures(NamedTuple):
    """One segment, the oldest first."""

    first_offset: int
    last_offset: int
    records: int
    bytes: int
    max_timestamp: int | None


class TopicSettings(NamedTuple):
    """What retention goes by."""

    deletes: bool
    retention_ms: int
    """Below 0: no limit."""
    retention_bytes: int
    shown: dict[str, Setting]


def topic_settings(
    topic: str, overrides: Mapping[str, Mapping[str, str]], broker: BrokerConfig, *, broker_source: str
) -> TopicSettings:
    """The settings of ``topic``: ``overrides[topic]``, else ``overrides["*"]``, else those of ``broker``,
    whose own are Kafka's defaults.

    Raises:
        ConfigError: an unknown name, or a value that is not allowed.
    """
    own, everywhere = overrides.get(topic, {}), overrides.get("*", {})
    config = topic_config(broker, {**everywhere, **own})
    of_broker = broker.static_properties()
    shown = {}
    for name in SHOWN:
        key = TOPIC_CONFIG_KEYS[name]
        if name in own:
            source = f"given for {topic}"
        elif name in everywhere:
            source = "given for all topics"
        elif any(synonym.name in of_broker for synonym in key.synonyms):
            source = broker_source
        else:
            source = DEFAULT
        shown[name] = Setting(value=format_value(key, getattr(config, key.attribute)) or "", source=source)
    policy = shown["cleanup.policy"].value.split(",")
    return TopicSettings("delete" in policy, config.retention_ms, config.retention_bytes, shown)


def forecast(
    segments: Sequence[SegmentFigures], settings: TopicSettings, *, high_watermark: int | None, now_ms: int
) -> Retention:
    """What retention does to ``segments``; ``high_watermark`` None: not known, all of it is committed."""
    removable = [
        segment
        for segment in segments
        if settings.deletes and (high_watermark is None or segment.last_offset < high_watermark)
    ]
    cuts = _cuts_by_time(removable, settings.retention_ms)
    due = sum(1 for cut_ms in cuts if cut_ms <= now_ms)
    total = sum(segment.bytes for segment in segments)
    bytes_left = None
    if settings.deletes and settings.retention_bytes >= 0:
        remaining = total - sum(segment.bytes for segment in removable[:due])
        while due < len(removable) and remaining - settings.retention_bytes >= removable[due].bytes:
            remaining -= removable[due].bytes
            due += 1
        if due < len(segments):
            bytes_left = max(0, settings.retention_bytes + segments[due].bytes - remaining)
    return Retention(
        settings=settings.shown,
        applies=settings.deletes,
        due_segments=due,
        due_records=sum(segment.records for segment in removable[:due]),
        due_bytes=sum(segment.bytes for segment in removable[:due]),
        next_ms=cuts[due] if due < len(cuts) else None,
        last_ms=cuts[-1] if cuts and len(cuts) == len(segments) else None,
        bytes_left=bytes_left,
    )


def _cuts_by_time(segments: Sequence[SegmentFigures], retention_ms: int) -> list[int]:
    """When time removes each of the segments, up to the first of which that is not known."""
    cuts: list[int] = []
    if retention_ms < 0:
        return cuts
    for segment in segments:
        if segment.max_timestamp is None:
            break
        cut_ms = segment.max_timestamp + retention_ms + 1
        cuts.append(max(cut_ms, cuts[-1]) if cuts else cut_ms)
    return cuts
