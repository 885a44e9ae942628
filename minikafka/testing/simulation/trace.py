"""What happened in a run, in order: two runs of one seed must agree in every line."""

from __future__ import annotations

from collections.abc import Callable


class Trace:
    """Notes as tuples, which cost little; lines only when somebody reads them."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._notes: list[tuple[int, str, str, object]] = []

    def __len__(self) -> int:
        return len(self._notes)

    def add(self, host: str, event: str, detail: object = "") -> None:
        """``detail`` must say the same whenever it is printed: numbers, texts, tuples of them."""
        self._notes.append((self._now_ns(), host, event, detail))

    def lines(self) -> list[str]:
        """``milliseconds host: event detail``."""
        return [
            f"{ns / 1e6:.6f} {host}: {event} {detail}".rstrip() for ns, host, event, detail in self._notes
        ]
