"""``api/reassignments``: replicas on their way, how much is left, and when it will be done; and their end.

Rates are of what was left at the look before, so the first look has none.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from minikafka.cli.console.exchange import Refusal
from minikafka.cli.console.snapshot import ClusterView
from minikafka.cli.reassign.verify import CopyRate, bytes_left, log_dirs_of
from minikafka.cli.shared.admin_client import LogDir
from minikafka.errors import ErrorCode, KafkaError
from minikafka.types import ReplicaAssignment, TopicPartition

ROWS_MAX: Final = 500


class CancelBody(msgspec.Struct, forbid_unknown_fields=True):
    """Of a POST to ``api/reassignments/cancel``."""

    topic: str
    partition: int


class ReassignmentsView:
    """See the module header."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._rates: dict[TopicPartition, CopyRate] = {}
        """Of those that were under way at the last look."""

    def __repr__(self) -> str:
        return f"ReassignmentsView({len(self._rates)} under way)"

    async def reassignments(self) -> dict[str, Any]:
        """Raises KafkaError, BrokerUnavailable."""
        admin = self._view.admin
        under_way = await admin.reassignments()
        shown = dict(list(under_way.items())[:ROWS_MAX])
        if not shown:
            self._rates = {}
            return {"reassignments": [], "left_out": 0}
        brokers = (await self._view.snapshot()).alive()
        dirs = await log_dirs_of(admin, brokers, sorted(shown))
        partitions = await admin.partitions(sorted({each.topic for each in shown}))
        left = bytes_left(shown, partitions, dirs)
        now_ms = self._view.clock.now_ms()
        self._rates = {at: self._rates.get(at) or CopyRate() for at in shown}
        rows = []
        for at, assignment in shown.items():
            leader = partitions[at].leader if at in partitions else None
            rows.append(self._row(at, assignment, left[at], _size(dirs, leader, at), now_ms))
        return {"reassignments": rows, "left_out": len(under_way) - len(shown)}

    def _row(
        self,
        at: TopicPartition,
        assignment: ReplicaAssignment,
        left: int | None,
        size: int | None,
        now_ms: int,
    ) -> dict[str, Any]:
        rate = self._rates[at]
        if left is not None:
            rate.record(left, now_ms=now_ms)
        per_s = rate.bytes_per_s
        return {
            "topic": at.topic,
            "partition": at.partition,
            "replicas": assignment.replicas,
            "adding": assignment.adding,
            "removing": assignment.removing,
            "bytes_left": left,
            "bytes_total": None if size is None else size * len(assignment.adding),
            "bytes_per_s": None if per_s is None else round(per_s),
            "seconds_left": round(left / per_s) if per_s and left is not None else None,
        }

    async def cancel(self, body: bytes) -> dict[str, Any]:
        """Raises Refusal, KafkaError: NO_REASSIGNMENT_IN_PROGRESS."""
        try:
            wanted = msgspec.json.decode(body, type=CancelBody)
        except msgspec.DecodeError as error:
            raise Refusal(400, f"the body: {error}") from None
        at = TopicPartition(wanted.topic, wanted.partition)
        if at not in await self._view.admin.reassignments():
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{at} is not being reassigned")
        for refusal in (await self._view.admin.reassign({at: None})).values():
            raise refusal
        self._view.changed()
        return {"is_done": True}


def _size(dirs: dict[int, list[LogDir]], broker: int | None, at: TopicPartition) -> int | None:
    """Of one replica; None: its broker does not say."""
    found = (
        each.replicas[at] for each in dirs.get(-1 if broker is None else broker, ()) if at in each.replicas
    )
    return next((each.size_bytes for each in found if not each.is_future), None)
