"""Why a client was throttled, as the broker remembers it and ``minikafka quotas why`` shows it."""

from __future__ import annotations

from typing import NamedTuple

from minikafka.config.client_quotas import QuotaType


class Throttle(NamedTuple):
    """Why somebody was slowed down, once. ``observed`` is a rate, or the tokens, which are below zero."""

    quota: QuotaType
    user: str
    client_id: str
    """Whose request it was, with ``user``; others may share the quota."""
    observed: float
    bound: float
    window_ms: int
    """What the rate was divided by; 0 for tokens."""
    throttle_time_ms: int
    at_ms: int
    """Wall-clock time."""

    @property
    def formula(self) -> str:
        """How the throttle time comes about, with the numbers."""
        if self.quota is QuotaType.CONTROLLER_MUTATION:
            return f"{number_text(-self.observed)} tokens overspent / {number_text(self.bound)} a second"
        observed, bound = number_text(self.observed), number_text(self.bound)
        text = f"({observed} - {bound}) / {bound} x {self.window_ms} ms"
        return f"{text}, one window at most" if self.quota is QuotaType.REQUEST else text


def number_text(value: float) -> str:
    """For people: whole when large, else four digits."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
