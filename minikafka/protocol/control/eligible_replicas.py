"""Eligible leader replicas (KIP-966): who may lead without a loss although it is not in the ISR.

Kafka: ``PartitionChangeBuilder.maybeUpdateEligibleLeaderReplicas`` of KRaft. While the ISR is smaller than
min.insync.replicas the high watermark stands still. So whoever was in the ISR when it became too small, or
later, holds everything below it, for as long as it keeps its log: a broker that comes back from an unclean
stop does not count. Both sides that write states keep this rule: leaders that change the ISR, and the
controller.
"""

from __future__ import annotations

import msgspec

from minikafka.types import BrokerId, PartitionState


def eligible_after(
    before: PartitionState, isr: tuple[BrokerId, ...], *, min_isr: int
) -> tuple[BrokerId, ...]:
    """The eligible replicas when ``isr`` takes the place of the ISR of ``before``."""
    if len(isr) >= min_isr:
        return ()
    return tuple(each for each in dict.fromkeys((*before.isr, *before.eligible)) if each not in isr)


def keep_eligible(before: PartitionState, after: PartitionState, *, min_isr: int) -> PartitionState:
    """``after`` with the eligible replicas that follow from the change of the ISR."""
    if after.leader_recovering:  # records were given up: nobody holds them surely
        return msgspec.structs.replace(after, eligible=())
    return msgspec.structs.replace(after, eligible=eligible_after(before, after.isr, min_isr=min_isr))
