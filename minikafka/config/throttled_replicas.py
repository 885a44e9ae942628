"""Which replicas of a topic replicate under a throttle: ``partition:broker,partition:broker,...``, or ``*``.

Kafka: ``ThrottledReplicaListValidator``, ``TopicConfigHandler.parseThrottledPartitions``; KIP-73. The topic
properties ``leader.replication.throttled.replicas`` and ``follower.replication.throttled.replicas`` are such
lists. Empty entries are fine behind the last one, as in Kafka, whose lists may end in commas.
"""

import re
from collections.abc import Sequence
from enum import Enum
from typing import Final

from minikafka.config.definition import INT_MAX
from minikafka.errors import ConfigError

EVERY_REPLICA = "*"

_REPLICA = re.compile(r"([0-9]+):([0-9]+)", re.ASCII)
_DIGITS_MAX = 10
"""Of INT_MAX; zeros in front do not count."""


class AllPartitions(Enum):
    """The one value that says: all partitions of a topic (Kafka's ``AllReplicas``)."""

    ALL = EVERY_REPLICA


ThrottledPartitions = frozenset[int] | AllPartitions

ALL: Final = AllPartitions.ALL
NONE: Final[frozenset[int]] = frozenset()


def check_throttled_replicas(name: str, replicas: Sequence[str]) -> None:
    """Whether ``replicas`` is such a list.

    Raises:
        ConfigError: names the property, and the entry that is wrong.
    """
    if tuple(replicas) == (EVERY_REPLICA,):
        return
    ended = False
    for replica in replicas:
        if not replica:
            ended = True
        elif ended or _parse(replica) is None:
            wrong = "an entry that is empty" if ended else repr(replica)
            raise ConfigError(
                f"Invalid value {','.join(replicas)} for configuration {name}: {wrong} is no replica; "
                "expected partition:broker,partition:broker,... or '*' alone"
            )


def throttled_partitions(replicas: Sequence[str], broker_id: int) -> ThrottledPartitions:
    """The partitions whose replica on ``broker_id`` is in a list that was checked."""
    if EVERY_REPLICA in replicas:
        return ALL
    parsed = (_parse(replica) for replica in replicas)
    return frozenset(each[0] for each in parsed if each is not None and each[1] == broker_id)


def _parse(replica: str) -> tuple[int, int] | None:
    """Partition and broker; None for what is neither."""
    match = _REPLICA.fullmatch(replica)
    if match is None:
        return None
    partition_digits, broker_digits = (digits.lstrip("0") for digits in match.groups())
    if max(len(partition_digits), len(broker_digits)) > _DIGITS_MAX:
        return None
    partition, broker_id = int(partition_digits or 0), int(broker_digits or 0)
    return (partition, broker_id) if max(partition, broker_id) <= INT_MAX else None
