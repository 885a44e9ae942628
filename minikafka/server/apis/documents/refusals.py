"""``refusals``: what this broker has refused lately, the newest first: produces, logins, and operations that
no ACL allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.metrics.refusals import Refusal, Refused, RefusedKind
from minikafka.server.apis.shared.diagnostics_arguments import take
from minikafka.server.services import Services
from minikafka.steps import ELEMENTS_A_STEP, Steps

_KINDS = {each.value: each for each in RefusedKind}


def refusals(services: Services, arguments: Mapping[str, str]) -> Steps[Any]:
    """``what``: only of this kind; ``about``: only about this, or what begins with it and a dash.
    Raises KafkaError: INVALID_REQUEST."""
    take(arguments, optional=("what", "about"))
    what = arguments.get("what")
    if what is not None and what not in _KINDS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"what={what}: there are {', '.join(_KINDS)}")
    about, now_ms = arguments.get("about"), services.clock.now_ms()
    entries = [*services.produce_refusals.newest_first(), *services.security_metrics.refusals.newest_first()]
    found = []
    for count, (refused, refusal) in enumerate(entries, start=1):
        of_kind = what is None or refused.kind is _KINDS[what]
        if of_kind and (about is None or refused.about == about or refused.about.startswith(f"{about}-")):
            found.append(_entry(refused, refusal, now_ms))
        if count % ELEMENTS_A_STEP == 0:
            yield
    return {"broker": int(services.node_id), "refusals": found}


def _entry(refused: Refused, refusal: Refusal, now_ms: int) -> dict[str, Any]:
    return {
        "kind": refused.kind.value,
        "about": refused.about,
        "error": refused.error,
        "message": refusal.message,
        "user": refused.user,
        "client_id": refused.client_id,
        "host": refused.host,
        "count": refusal.count,
        "first_ms_ago": max(now_ms - refusal.first_ms, 0),
        "last_ms_ago": max(now_ms - refusal.last_ms, 0),
    }
