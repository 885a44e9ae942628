"""``draw_swarm``: a cluster of its own for each seed, of whose features a random part is switched on.

Groce et al., "Swarm testing": what everything at once hides, because one feature suppresses another, is found
by many runs that each lack something."""

from __future__ import annotations

import random
from collections.abc import Sequence

from minikafka.testing.broker import Property
from minikafka.testing.simulation.scenarios import consumer_group_member, keyed_producer
from minikafka.testing.simulation.scenarios.administrator import PAUSE_MS
from minikafka.testing.simulation.scenarios.cluster_run import CONFIG
from minikafka.testing.simulation.scenarios.faults import draw_fault
from minikafka.testing.simulation.scenarios.plan import (
    COMPACTED,
    TOPIC,
    Action,
    ActionKind,
    Consumer,
    Fault,
    FaultKind,
    GroupProtocol,
    Member,
    Plan,
    Producer,
    Step,
    Transactor,
)
from minikafka.testing.simulation.scenarios.settings import CLEANUP_POLICIES, LOG_DIRECTORIES

OTHER_TOPICS = ("u", "v")
"""Those that come and go."""
STEPS_MAX = 6
ACTIONS_MAX = 16
TIMEOUTS_MS = (1_000, 5_000)
IN_FLIGHT_MAX = 5
"""``max.in.flight.requests.per.connection`` up to which an idempotent producer keeps the order."""
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

_POWER = (FaultKind.POWER_OFF, FaultKind.POWER_OFF_IN_NEW_EPOCH)
_LINKS = (FaultKind.ONE_WAY, FaultKind.FLAPPING_LINK, FaultKind.SLOW_LINK)
_OF_ALL = (FaultKind.KILL_ALL, FaultKind.POWER_OFF_ALL, FaultKind.ROLLING_RESTART)
_ALONE = (*_POWER, *_OF_ALL, FaultKind.BIT_ROT)
"""Nothing else happens meanwhile."""
_DISKS = (FaultKind.READ_ERROR, FaultKind.WRITE_ERROR, FaultKind.DISK_FULL)

_RIGHTS = (
    ActionKind.GRANT, ActionKind.REVOKE, ActionKind.SET_CREDENTIAL, ActionKind.REMOVE_CREDENTIAL,
)  # fmt: skip


def draw_swarm(seed: int, rng: random.Random) -> Plan:
    """A plan of the whole space."""
    count = rng.choice((1, 2, 3, 3, 3, 4, 5))
    brokers = range(1, count + 1)
    replicas = rng.randint(1, min(4, count))
    partitions = rng.choice((1, 1, 2, 2, 3, 4, 6, 8))
    config = _draw_config(rng, count, replicas)
    racks = rng.choice((0, 0, 2, 3))
    transactors = _draw_transactors(rng)
    members = _draw_members(rng)
    keys = rng.choice((1, 3, 8)) if rng.random() < 0.15 else 0
    log_dirs = 2 if rng.random() < 0.2 else 1
    is_secured = rng.random() < 0.12
    if transactors:
        config |= _config_of_transactions(rng, count)
    if any(member.protocol is GroupProtocol.CONSUMER for member in members):
        config |= consumer_group_member.CONFIG
    if racks and rng.random() < 0.6:
        config["replica.selector.class"] = RACK_AWARE
    if keys:
        config |= keyed_producer.CONFIG
    steps = _draw_steps(rng, brokers, replicas)
    drawn = {fault.kind for step in steps for fault in step.faults}
    if FaultKind.POWER_OFF_ALL in drawn:
        config["log.flush.interval.messages"] = 1
    if FaultKind.BIT_ROT in drawn:
        config["log.roll.ms"] = 2_000  # only closed segments rot
    kinds = [kind for kind in ActionKind if kind not in _RIGHTS and rng.random() < 0.4]
    if not keys and ActionKind.SET_CLEANUP_POLICY in kinds:
        kinds.remove(ActionKind.SET_CLEANUP_POLICY)
    if log_dirs == 1 and ActionKind.MOVE_LOG_DIR in kinds:
        kinds.remove(ActionKind.MOVE_LOG_DIR)
    if ActionKind.SET_RETENTION in kinds:
        config["log.retention.check.interval.ms"] = 1_000
    kinds = [] if rng.random() < 0.3 else kinds
    if is_secured:
        kinds += _RIGHTS
    return Plan(
        scenario="swarm", seed=seed, brokers=count, partitions=partitions, replicas=replicas, config=config,
        racks=racks, producers=tuple(_draw_producer(rng, partitions) for _ in range(rng.randint(1, 3))),
        transactors=transactors, consumers=_draw_consumers(rng, racks, bool(transactors)), members=members,
        keys=keys, log_dirs=log_dirs, is_secured=is_secured,
        steps=steps, actions=_draw_actions(rng, brokers, partitions, replicas, kinds),
    )  # fmt: skip


def _draw_config(rng: random.Random, brokers: int, replicas: int) -> dict[str, Property]:
    config = dict(CONFIG)
    config["min.insync.replicas"] = rng.randint(1, min(3, replicas))
    config["default.replication.factor"] = replicas
    config["offsets.topic.replication.factor"] = min(3, brokers)
    config["offsets.topic.num.partitions"] = 2
    config["group.initial.rebalance.delay.ms"] = rng.choice((0, 1000))
    config["log.roll.ms"] = rng.choice((2000, 5000, 3_600_000))
    config["replica.lag.time.max.ms"] = rng.choice((2000, 4000, 10_000))
    if rng.random() < 0.3:
        config["log.flush.interval.messages"] = rng.choice((1, 10))
    if rng.random() < 0.3:
        config["auto.leader.rebalance.enable"] = "true"
        config["leader.imbalance.check.interval.seconds"] = 2
    return config


def _config_of_transactions(rng: random.Random, brokers: int) -> dict[str, Property]:
    return {
        "transaction.state.log.replication.factor": min(3, brokers),
        "transaction.state.log.min.isr": rng.randint(1, min(2, brokers)),
        "transaction.state.log.num.partitions": rng.choice((1, 2)),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
    }


def _draw_producer(rng: random.Random, partitions: int) -> Producer:
    idempotent = rng.random() < 0.6
    return Producer(
        partition=rng.randrange(partitions), pause_ms=rng.choice((20, 60, 150, 300)),
        in_flight=rng.choice((1, 1, IN_FLIGHT_MAX)), timeout_ms=rng.choice(TIMEOUTS_MS),
        acks=-1 if idempotent else rng.choice((-1, 1)), idempotent=idempotent,
    )  # fmt: skip


def _draw_transactors(rng: random.Random) -> tuple[Transactor, ...]:
    if rng.random() > 0.2:
        return ()
    has_rivals = rng.random() < 0.4
    return tuple(
        Transactor(
            copies=rng.random() < 0.35, pause_ms=rng.choice((200, 500, 1_000)), has_rivals=has_rivals
        )
        for _ in range(rng.choice((1, 1, 2)))
    )  # fmt: skip


def _draw_consumers(rng: random.Random, racks: int, has_transactions: bool) -> tuple[Consumer, ...]:
    return tuple(
        Consumer(
            read_committed=rng.random() < (0.6 if has_transactions else 0.2),
            rack=f"rack-{rng.randrange(racks)}" if racks and rng.random() < 0.7 else "",
        )
        for _ in range(rng.choice((0, 1)) if racks or has_transactions else rng.choice((0, 0, 1)))
    )


def _draw_members(rng: random.Random) -> tuple[Member, ...]:
    """Of one group, or of one of each protocol."""
    count, static_share = rng.choice((0, 0, 0, 1, 2, 3)), rng.choice((0.0, 0.0, 0.7))
    protocols = rng.choice(
        (
            (GroupProtocol.CLASSIC,), (GroupProtocol.CLASSIC,), (GroupProtocol.CONSUMER,),
            (GroupProtocol.CONSUMER,), tuple(GroupProtocol),
        )
    )  # fmt: skip
    return tuple(
        Member(protocol=protocols[number % len(protocols)], is_static=rng.random() < static_share)
        for number in range(count)
    )


def _draw_steps(rng: random.Random, brokers: Sequence[int], replicas: int) -> tuple[Step, ...]:
    """Some kinds of faults, one to three at the same time; a power cut only where it can lose nothing."""
    several = len(brokers) > 1
    kinds = [
        kind for kind in FaultKind
        if kind not in _ALONE and (several or kind not in _LINKS) and rng.random() < 0.5
    ] or [FaultKind.KILL]  # fmt: skip
    # What fsync has failed to write, and the kernel forgotten, is lost with the power: nothing can know it.
    alone: list[FaultKind] = []
    if replicas > 1 and rng.random() < 0.5:
        alone += _POWER
    alone += [kind for kind in (FaultKind.KILL_ALL, FaultKind.ROLLING_RESTART) if rng.random() < 0.15]
    if replicas > 1 and rng.random() < 0.15:
        alone.append(FaultKind.BIT_ROT)
    if rng.random() < 0.08:
        alone.append(FaultKind.POWER_OFF_ALL)
        kinds = [kind for kind in kinds if kind not in _DISKS] or [FaultKind.KILL]
    steps = []
    for _ in range(rng.randint(1, STEPS_MAX)):
        after_ms = rng.randint(100, 3000)
        when_whole = rng.random() < 0.4
        if when_whole and alone and rng.random() < 0.6:
            faults: list[Fault] = [draw_fault(rng, brokers, rng.choice(alone), rng.choice(brokers))]
        else:
            victims = rng.sample(brokers, rng.randint(1, min(3, len(brokers))))
            faults = [draw_fault(rng, brokers, rng.choice(kinds), victim) for victim in victims]
        steps.append(Step(after_ms=after_ms, faults=tuple(faults), when_whole=when_whole))
    return tuple(steps)


def _draw_actions(
    rng: random.Random,
    brokers: Sequence[int],
    partitions: int,
    replicas: int,
    kinds: Sequence[ActionKind],
) -> tuple[Action, ...]:
    actions = []
    for _ in range(rng.randint(1, ACTIONS_MAX) if kinds else 0):
        kind = rng.choice(kinds)
        topic, number = TOPIC, 0
        named: tuple[int, ...] = ()
        match kind:
            case ActionKind.REASSIGN:
                # With fewer than it had, a power cut could hit the only ones that have all.
                named = tuple(rng.sample(brokers, rng.randint(replicas, min(4, len(brokers)))))
            case ActionKind.CREATE_TOPIC:
                topic, number, named = rng.choice(OTHER_TOPICS), rng.randint(1, 4), tuple(brokers[:replicas])
            case ActionKind.DELETE_TOPIC:
                topic = rng.choice(OTHER_TOPICS)
            case ActionKind.GROW_TOPIC:
                topic, number = rng.choice(OTHER_TOPICS), rng.randint(2, 6)
            case ActionKind.SET_CLEANUP_POLICY:
                topic, number = COMPACTED, rng.randrange(len(CLEANUP_POLICIES))
            case _:
                number = _draw_number(rng, kind, replicas)
        actions.append(
            Action(
                after_ms=rng.randint(*PAUSE_MS),
                kind=kind,
                ask=rng.choice(brokers),
                topic=topic,
                partition=rng.randrange(partitions),
                replicas=named,
                number=number,
            )
        )
    return tuple(actions)


def _draw_number(rng: random.Random, kind: ActionKind, replicas: int) -> int:
    match kind:
        case ActionKind.SET_MIN_INSYNC:
            return rng.randint(1, min(3, replicas))
        case ActionKind.DELETE_RECORDS:
            return rng.choice((10, 50, 100))
        case ActionKind.SET_RETENTION:
            return rng.choice((0, 2_000, 6_000))
        case ActionKind.SET_QUOTA:
            return rng.choice((0, 500, 2_000))
        case ActionKind.SET_THROTTLE:
            return rng.choice((0, 5_000, 20_000))
        case ActionKind.MOVE_LOG_DIR:
            return rng.randrange(len(LOG_DIRECTORIES))
        case ActionKind.SET_CREDENTIAL:
            return rng.randrange(2)
        case _:
            return 0
