"""The diagnostics kind ``counters``: what a console asks of every broker."""

from __future__ import annotations

import json
from typing import Any

from minikafka import __version__
from minikafka.errors import ErrorCode
from tests.unit.server.apis.test_diagnostics import ask


async def document(broker: Any) -> Any:
    result = await ask(broker, "counters")
    assert result.error_code == ErrorCode.NONE, result.error_message
    return json.loads("".join(each.value for each in result.configs))


async def test_what_was_served_since_the_start(admin_broker: Any) -> None:
    first = await document(admin_broker)
    assert (first["broker"], first["version"], first["page"]) == (1, __version__, None)
    assert first["log_bytes"] == sum(
        log.size_bytes for log in admin_broker.services.log_manager.logs.values()
    )
    stats = admin_broker.services.replica_manager.stats.host("orders")
    stats.bytes_in += 70
    stats.bytes_out += 30
    admin_broker.services.connection_count = lambda: 3
    second = await document(admin_broker)
    assert second["in_bytes"] - first["in_bytes"] == 70
    assert second["out_bytes"] - first["out_bytes"] == 30
    assert second["connections"] == 3


async def test_an_argument_is_refused(admin_broker: Any) -> None:
    assert (await ask(admin_broker, "counters", "colour=red")).error_code == ErrorCode.INVALID_REQUEST
