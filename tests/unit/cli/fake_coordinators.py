"""What clusters with groups and with transactions have in common: coordinators, which move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.unit.cli.fake_cluster import NONE, FakeCluster


class FakeCoordinators(FakeCluster):
    """Who coordinates what, ``DEFAULT_COORDINATOR`` for keys that are not in it."""

    DEFAULT_COORDINATOR = 1

    def __init__(self) -> None:
        super().__init__()
        self.moves = 0
        """How often a coordinator says that it is none."""

    def coordinator_of(self, key: str) -> int | None:
        """Of a group or a transactional id; None: there is no such."""
        raise NotImplementedError

    def has_moved(self) -> bool:
        """Whether the coordinator that is asked now says that it is none."""
        has_moved = self.moves > 0
        self.moves -= has_moved
        return has_moved

    def _find_coordinator(self, node_id: int, request: Any) -> Mapping[str, Any]:
        found = []
        for key in request.coordinator_keys:
            node = self.coordinator_of(key) or self.DEFAULT_COORDINATOR
            found.append(
                {
                    "key": key,
                    "node_id": node,
                    "host": "b",
                    "port": 9000 + node,
                    "error_code": NONE,
                    "error_message": None,
                }
            )
        return {"throttle_time": 0, "coordinators": found}
