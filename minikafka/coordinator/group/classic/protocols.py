"""What the members of a group of the classic protocol have in common: the protocol that they agree on (for
consumers: an assignor), and the topics that they use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from minikafka.coordinator.group.classic.member import ClassicMember, Protocols
from minikafka.errors import InvariantError
from minikafka.protocol.internal.consumer_protocol import (
    PROTOCOL_TYPE,
    MalformedSubscription,
    read_subscribed_topics,
)


def why(reason: str | None) -> str:
    """What a client told of its reason (KIP-800), to be added to a log line; nothing when it told none."""
    return f", reason: {reason}" if reason else ""


def names(protocols: Protocols) -> list[str]:
    """Their names, each once, in order of preference."""
    return list(dict.fromkeys(name for name, _ in protocols))


def choose_protocol(ballots: Sequence[Protocols]) -> str:
    """Each member votes for what it prefers among that which all support; most votes win, and where they are
    even, the vote that came first. Kafka: ``ClassicGroup.selectProtocol``."""
    supported = Counter(name for protocols in ballots for name in names(protocols))
    votes: Counter[str] = Counter()
    for protocols in ballots:
        for name, _ in protocols:
            if supported[name] == len(ballots):
                votes[name] += 1
                break
    if not votes:
        raise InvariantError(f"no protocol is supported by all of {len(ballots)} members")
    return max(votes, key=votes.__getitem__)


def subscribed_topics(
    protocol_type: str | None, protocol: str | None, members: Iterable[ClassicMember]
) -> frozenset[str] | None:
    """The topics that the members of a group of consumers use; None if it is not known: the group is of
    another kind, has no protocol yet, or somebody's metadata cannot be read."""
    if protocol_type != PROTOCOL_TYPE:
        return None
    members = list(members)
    if not members:
        return frozenset()
    if protocol is None:
        return None
    try:
        return frozenset(
            topic for member in members for topic in read_subscribed_topics(member.metadata(protocol))
        )
    except MalformedSubscription:
        return None
